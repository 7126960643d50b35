//! PostgreSQL's configuration files: settings, and the files that they include (`guc-file.l` and
//! `ParseConfigFile` in its sources).

use std::path::{Path, PathBuf};

use hugeleaf_units::Bytes;

use crate::root::UntrustedFiles;

/// Maximum depth of includes, as in PostgreSQL.
const DEEPEST: u32 = 10;

/// Maximum number of files that are read, and of names in a folder, which may hold any number.
const MOST_FILES: u32 = 1000;
const MOST_NAMES: usize = 10_000;

/// Maximum number of bytes read, for all files together and for each.
const MOST_BYTES: u64 = 8 << 20;

/// Returns the setting of this name in a configuration file and its includes. The last one counts.
/// Skips unreadable files, as the server does on a reload.
pub(super) fn setting_in_files(theirs: &UntrustedFiles, file: &Path, name: &str) -> Option<String> {
    let mut found = SettingSearch {
        name,
        value: None,
        files: 0,
        left: MOST_BYTES,
    };
    found.read(theirs, file, 0);
    found.value
}

struct SettingSearch<'a> {
    name: &'a str,
    value: Option<String>,
    files: u32,
    left: u64,
}

impl SettingSearch<'_> {
    fn read(&mut self, theirs: &UntrustedFiles, file: &Path, depth: u32) {
        self.files += 1;
        if depth > DEEPEST || self.files > MOST_FILES {
            return;
        }
        let text = theirs.read_at_most(file, Bytes(self.left));
        let Some(text) = text.known() else { return };
        self.left = self.left.saturating_sub(text.len() as u64);
        // Paths are relative to the folder of the file that names them.
        let folder = file.parent().unwrap_or(Path::new("/"));
        for (name, value) in text.lines().filter_map(item) {
            if name.eq_ignore_ascii_case(self.name) {
                self.value = Some(value);
            } else if name.eq_ignore_ascii_case("include")
                || name.eq_ignore_ascii_case("include_if_exists")
            {
                self.read(theirs, &folder.join(value), depth + 1);
            } else if name.eq_ignore_ascii_case("include_dir") {
                for file in files_of(theirs, &folder.join(value)) {
                    self.read(theirs, &file, depth + 1);
                }
            }
        }
    }
}

/// Returns the configuration files of a folder by name: `*.conf`, without those that begin with a
/// dot.
fn files_of(theirs: &UntrustedFiles, folder: &Path) -> Vec<PathBuf> {
    let mut names = theirs.list(folder, MOST_NAMES).or_default();
    names.retain(|name| name.ends_with(".conf") && !name.starts_with('.'));
    names.sort_unstable();
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// Parses name and value of a line. The equals sign may be missing. `None` for lines without a
/// setting.
fn item(line: &str) -> Option<(&str, String)> {
    let line = line.trim_start();
    let is_name =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$') || !c.is_ascii();
    let end = line.find(|c: char| !is_name(c))?;
    let (name, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let value = match rest.strip_prefix('\'') {
        Some(quoted) => unquoted(quoted)?,
        None => rest.split(['#', ' ', '\t']).next()?.to_owned(),
    };
    (!name.is_empty() && !rest.is_empty()).then_some((name, value))
}

/// Parses a value up to its closing quote. Two quotes are one, and a backslash escapes the next
/// character.
fn unquoted(text: &str) -> Option<String> {
    let mut value = String::new();
    let mut chars = text.chars().peekable();
    loop {
        match chars.next()? {
            '\'' if chars.peek() == Some(&'\'') => value.extend(chars.next()),
            '\'' => return Some(value),
            '\\' => value.extend(chars.next()),
            c => value.push(c),
        }
    }
}

/// Returns the last value of a setting in the text of `postgresql.conf`, without included files.
/// Names are not case-sensitive.
pub fn setting_in(text: &str, name: &str) -> Option<String> {
    let items = text.lines().filter_map(item);
    let of_name = items.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    of_name.map(|(_, value)| value).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn settings_are_read_as_the_server_does() {
        let text = "#huge_pages = off\nhuge_pages = on\t# (change requires restart)\n\
            Huge_Pages try\ndata_directory = '/var/lib/a b'\t# x\nhuge_page_size='1GB'\n\
            name = 'it''s \\'x'\n";
        assert_eq!(setting_in(text, "huge_pages").as_deref(), Some("try"));
        let data = setting_in(text, "data_directory");
        assert_eq!(data.as_deref(), Some("/var/lib/a b"));
        assert_eq!(setting_in(text, "name").as_deref(), Some("it's 'x"));
        assert_eq!(setting_in(text, "shared_buffers"), None);
        assert_eq!(setting_in(text, "huge"), None);
    }

    /// Returns the value of `huge_pages` in a tree of files.
    fn value(files: &[(&str, &str)]) -> Option<String> {
        let (_dir, root) = crate::testing::host(files);
        let rights = crate::UserCredentials {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        };
        let theirs = root.files_of_user(rights).unwrap();
        setting_in_files(&theirs, Path::new("/etc/pg/postgresql.conf"), "huge_pages")
    }

    #[test]
    fn included_files_are_read_where_they_are_included() {
        let main = "etc/pg/postgresql.conf";
        let dir = "huge_pages = off\ninclude_dir = 'conf.d'\n";
        let of = |files: &[(&str, &str)]| value(files);
        assert_eq!(of(&[(main, dir)]).as_deref(), Some("off"));
        let b = ("etc/pg/conf.d/b.conf", "huge_pages = on");
        let a = ("etc/pg/conf.d/a.conf", "huge_pages = try");
        assert_eq!(of(&[(main, dir), b, a]).as_deref(), Some("on"));
        let hidden = ("etc/pg/conf.d/.z.conf", "huge_pages = try");
        let other = ("etc/pg/conf.d/z.conf~", "huge_pages = try");
        assert_eq!(of(&[(main, dir), b, hidden, other]).as_deref(), Some("on"));
        // A setting after the include counts, and paths are relative to the file that names them.
        let before = "include '../more/x.conf'\n#include_dir 'conf.d'\n";
        let x = (
            "etc/more/x.conf",
            "INCLUDE_IF_EXISTS 'y.conf'\ninclude 'none.conf'\n",
        );
        let y = ("etc/more/y.conf", "huge_pages on\n");
        assert_eq!(of(&[(main, before), x, y, b]).as_deref(), Some("on"));
        let after = format!("{before}huge_pages = off\n");
        assert_eq!(of(&[(main, &after), x, y]).as_deref(), Some("off"));
        let absolute = "include_if_exists = '/etc/more/y.conf'\n";
        assert_eq!(of(&[(main, absolute), y]).as_deref(), Some("on"));
        // A circle of includes ends, though each file names two.
        let itself = "include 'postgresql.conf'\ninclude 'postgresql.conf'\nhuge_pages = on\n";
        assert_eq!(of(&[(main, itself)]).as_deref(), Some("on"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = setting_in(&text, "huge_pages");
        }
    }
}
