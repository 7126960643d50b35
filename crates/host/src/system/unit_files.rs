//! Unit files of systemd, read as files, so systemd need not run (systemd.unit(5),
//! systemd.exec(5)).

use hugeleaf_units::Bytes;

use crate::fact::Fact;
use crate::root::Root;

/// Folders of unit files. Of two files with one name, the first counts.
const FOLDERS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// The used settings of a service's unit file and its drop-ins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitFile {
    pub unit: String,
    /// The files that were read, in that order.
    pub files: Vec<String>,
    /// `User=`.
    pub user: Option<String>,
    /// `ExecStart=`, with `%i` and other specifiers replaced.
    pub exec_start: Vec<String>,
    /// `LimitMEMLOCK=`: the soft and the hard limit.
    pub memlock: Option<(Bytes, Bytes)>,
    /// The file that has the last `LimitMEMLOCK=`.
    pub memlock_file: Option<String>,
}

impl UnitFile {
    /// Returns its command, if it has exactly one and that has no prefix.
    pub fn only_command(&self) -> Option<String> {
        match self.exec_start.as_slice() {
            [one] if one.starts_with('/') => Some(one.clone()),
            _ => None,
        }
    }
}

/// Reads a unit from its files. `None` if there is no such unit.
pub fn read(root: &Root, unit: &str) -> Option<UnitFile> {
    if unit.contains('/') {
        return None;
    }
    let (template, instance) = match unit.split_once('@') {
        Some((name, rest)) => {
            let (instance, kind) = rest.rsplit_once('.')?;
            (Some(format!("{name}@.{kind}")), instance)
        }
        None => (None, ""),
    };
    let names = [Some(unit.to_owned()), template].into_iter().flatten();
    let (name, path, text) = names
        .flat_map(|name| FOLDERS.map(|folder| (name.clone(), format!("{folder}/{name}"))))
        .find_map(|(name, path)| match root.read(&path) {
            Fact::Known(text) => Some((name, path, text)),
            _ => None,
        })?;
    let mut file = UnitFile {
        unit: unit.to_owned(),
        ..UnitFile::default()
    };
    file.add(&text, &path, instance);
    for path in drop_ins(root, unit, &name) {
        if let Fact::Known(text) = root.read(&path) {
            file.add(&text, &path, instance);
        }
    }
    Some(file)
}

/// Returns the drop-ins of a unit and of its template, in the order in which they are applied, by
/// name. Of two with one name, the first folder counts.
fn drop_ins(root: &Root, unit: &str, template: &str) -> Vec<String> {
    let mut found: Vec<(String, String)> = Vec::new();
    for folder in FOLDERS {
        for unit in [unit, template] {
            let folder = format!("{folder}/{unit}.d");
            for name in root.list(&folder).or_default() {
                if name.ends_with(".conf") && !found.iter().any(|(seen, _)| *seen == name) {
                    found.push((name.clone(), format!("{folder}/{name}")));
                }
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Returns the services that are started at boot because some target wants them.
pub fn enabled(root: &Root) -> Vec<String> {
    let folder = FOLDERS[0];
    let targets = root.list(folder).or_default();
    let mut units: Vec<String> = targets
        .iter()
        .filter(|name| name.ends_with(".wants"))
        .flat_map(|name| root.list(format!("{folder}/{name}")).or_default())
        .filter(|name| name.ends_with(".service"))
        .collect();
    units.sort();
    units.dedup();
    units
}

impl UnitFile {
    /// Adds one file. Later settings replace earlier ones, and an empty `ExecStart=` removes all
    /// before it.
    pub fn add(&mut self, text: &str, path: &str, instance: &str) {
        self.files.push(format!("/{path}"));
        for (key, value) in settings_of(text) {
            match key {
                "User" => self.user = (!value.is_empty()).then(|| value.clone()),
                "ExecStart" if value.is_empty() => self.exec_start.clear(),
                "ExecStart" => self
                    .exec_start
                    .push(specifiers(&value, &self.unit, instance)),
                "LimitMEMLOCK" => {
                    self.memlock = parse_limit(&value);
                    self.memlock_file = Some(format!("/{path}"));
                }
                _ => {}
            }
        }
    }
}

/// Parses the settings of the section `[Service]`. Joins lines that end in `\` with the next.
fn settings_of(text: &str) -> Vec<(&str, String)> {
    let mut settings: Vec<(&str, String)> = Vec::new();
    let mut is_service = false;
    let mut is_open = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            continue;
        }
        let (part, continues) = match line.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        if is_open {
            if let Some((_, value)) = settings.last_mut() {
                value.push(' ');
                value.push_str(part.trim_start());
            }
            is_open = continues;
        } else if line.starts_with('[') {
            is_service = line == "[Service]";
        } else if is_service && let Some((key, value)) = part.split_once('=') {
            settings.push((key.trim_end(), value.trim_start().to_owned()));
            is_open = continues;
        }
    }
    settings
}

/// Replaces the specifiers in a command: `%i` and `%I` the instance, `%n` the unit, `%%` a percent
/// sign.
fn specifiers(text: &str, unit: &str, instance: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match rest.next() {
            Some('i') => out.push_str(instance),
            // Unescaped: a dash stands for a slash.
            Some('I') => out.push_str(&instance.replace('-', "/")),
            Some('n') => out.push_str(unit),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// Parses `infinity`, `8M`, or a soft and a hard limit separated by a colon.
pub fn parse_limit(value: &str) -> Option<(Bytes, Bytes)> {
    let one = |text: &str| match text.trim() {
        "infinity" => Some(Bytes(u64::MAX)),
        text => text.parse().ok(),
    };
    match value.split_once(':') {
        Some((soft, hard)) => Some((one(soft)?, one(hard)?)),
        None => one(value).map(|both| (both, both)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;
    use proptest::prelude::*;

    #[test]
    fn a_template_with_drop_ins_from_three_folders() {
        let (_dir, root) = host(&[
            (
                "lib/systemd/system/postgresql@.service",
                "[Unit]\nUser=no\n[Service]\nUser=postgres\nExecStart=-/usr/bin/pg_ctlcluster \\\n  %i start\n",
            ),
            (
                "etc/systemd/system/postgresql@.service.d/10-a.conf",
                "[Service]\nLimitMEMLOCK=8M\n",
            ),
            (
                "usr/lib/systemd/system/postgresql@15-main.service.d/10-a.conf",
                "[Service]\nLimitMEMLOCK=1M\n",
            ),
            (
                "run/systemd/system/postgresql@15-main.service.d/20-b.conf",
                "[Service]\n# ExecStart=\nLimitMEMLOCK=64K:infinity\n",
            ),
            (
                "etc/systemd/system/multi-user.target.wants/postgresql@15-main.service",
                "",
            ),
        ]);
        let unit = read(&root, "postgresql@15-main.service").unwrap();
        assert_eq!(unit.user.as_deref(), Some("postgres"));
        assert_eq!(unit.exec_start, ["-/usr/bin/pg_ctlcluster 15-main start"]);
        assert_eq!(unit.only_command(), None);
        let limits = (Bytes::from_kib(64), Bytes(u64::MAX));
        assert_eq!(unit.memlock, Some(limits));
        let file = "/run/systemd/system/postgresql@15-main.service.d/20-b.conf";
        assert_eq!(unit.memlock_file.as_deref(), Some(file));
        assert_eq!(unit.files.len(), 3);
        assert_eq!(enabled(&root), ["postgresql@15-main.service"]);
        assert_eq!(read(&root, "../../etc/passwd"), None);
        assert_eq!(read(&root, "none.service"), None);
    }

    #[test]
    fn an_empty_command_takes_back_those_before_it() {
        let (_dir, root) = host(&[
            (
                "lib/systemd/system/a.service",
                "[Service]\nExecStart=/bin/a 100%%\n",
            ),
            (
                "etc/systemd/system/a.service.d/x.conf",
                "[Service]\nExecStart=\nExecStart=/bin/b %n\n",
            ),
        ]);
        let unit = read(&root, "a.service").unwrap();
        assert_eq!(unit.only_command().as_deref(), Some("/bin/b a.service"));
    }

    #[test]
    fn limits() {
        assert_eq!(parse_limit("1G"), Some((Bytes(1 << 30), Bytes(1 << 30))));
        assert_eq!(parse_limit("x"), None);
        assert_eq!(parse_limit("1:"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*", more in "([A-Za-z=%\\\\ ]*\n)*") {
            let _ = parse_limit(&text);
            let mut file = UnitFile::default();
            file.add(&text, "", "");
            file.add(&format!("[Service]\n{more}"), "", "i");
        }
    }
}
