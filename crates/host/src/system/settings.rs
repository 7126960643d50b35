//! What files below `/etc` say the kernel and the services should have: to be compared with what
//! they have.

use std::collections::BTreeMap;

use super::files;
use crate::fact::Fact;
use crate::root::Root;
use crate::system::pam_limits::{self, MemlockLine};
use crate::system::unit_files::{self, UnitFile};

/// Settings for large pages in files, in addition to those of sysctl.d ([`crate::Limits::sysctl`]).
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Lines of tmpfiles.d that write into a knob, in the order in which they are applied.
    pub tmpfiles: Fact<Vec<KnobLine>>,
    /// Lines of limits.conf and limits.d that speak of memlock.
    pub memlock: Fact<Vec<MemlockLine>>,
    pub units: Vec<UnitFile>,
    /// What the boot loader's files add to the kernel's command line.
    pub boot: Fact<Vec<BootLine>>,
    /// tuned's profile, where it runs: it sets THP knobs by itself.
    pub tuned: Fact<String>,
}

/// A line of tmpfiles.d that writes a value into a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnobLine {
    pub path: String,
    /// The knob, below /proc or /sys.
    pub knob: String,
    pub value: String,
    /// What the knob says now; of one that shows its choices the one that is chosen.
    pub now: Fact<String>,
}

/// A line of the boot loader's that adds to the kernel's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootLine {
    pub path: String,
    pub arguments: String,
}

/// Reads them; of units those with these names.
pub fn read_settings(root: &Root, units: &[&str]) -> Settings {
    let units = units.iter().filter_map(|unit| unit_files::read(root, unit));
    Settings {
        tmpfiles: tmpfiles(root),
        memlock: pam_limits::read(root),
        units: units.collect(),
        boot: boot(root),
        tuned: files::line(root, "etc/tuned/active_profile"),
    }
}

/// All lines of tmpfiles.d that write into a knob (tmpfiles.d(5)): files of one name count once, by
/// the folder that comes first.
fn tmpfiles(root: &Root) -> Fact<Vec<KnobLine>> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for folder in ["etc/tmpfiles.d", "run/tmpfiles.d", "usr/lib/tmpfiles.d"] {
        let paths = match files::paths_in(root, folder, ".conf") {
            Fact::Unreadable(error) => return Fact::Unreadable(error),
            paths => paths.or_default(),
        };
        for path in paths {
            files.entry(path.replace(folder, "")).or_insert(path);
        }
    }
    let now = |mut line: KnobLine| {
        let text = root.read(line.knob.trim_start_matches('/'));
        line.now = text.map(|text| match crate::parse::chosen(&text) {
            Ok(chosen) => chosen,
            Err(_) => text.trim().to_owned(),
        });
        line
    };
    files::parse_each(root, files.into_values(), parse_tmpfiles)
        .map(|lines| lines.into_iter().map(now).collect())
}

/// The lines of one file that write into a knob for memory; lines of another shape are passed over.
pub fn parse_tmpfiles(text: &str, path: &str) -> Vec<KnobLine> {
    const KNOBS: [&str; 3] = ["sys/kernel/mm/", "sys/devices/system/node/", "proc/sys/vm/"];
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (kind, knob) = (words.next()?, words.next()?);
        // `w`, with `+` to append and modifiers such as `!`, which means at boot only.
        let is_write = kind.starts_with('w');
        let is_knob = KNOBS
            .iter()
            .any(|k| knob.trim_start_matches('/').starts_with(k));
        // Mode, user, group and age stand before what is written.
        let value: Vec<&str> = words.skip(4).collect();
        (is_write && is_knob && !value.is_empty()).then(|| KnobLine {
            path: path.to_owned(),
            knob: knob.to_owned(),
            value: value.join(" "),
            now: Fact::Absent,
        })
    };
    text.lines().filter_map(parse).collect()
}

fn boot(root: &Root) -> Fact<Vec<BootLine>> {
    files::paths_in(root, "etc/default/grub.d", ".cfg").and_then(|more| {
        let first = "etc/default/grub".to_owned();
        files::parse_each(root, std::iter::once(first).chain(more), parse_grub)
    })
}

/// The lines of one file that set what every kernel is started with. They are shell; what they
/// take over from before (`$GRUB_CMDLINE_LINUX`) is left out.
pub fn parse_grub(text: &str, path: &str) -> Vec<BootLine> {
    let parse = |line: &str| {
        let (name, value) = line.trim().split_once('=')?;
        let is_command_line = matches!(name, "GRUB_CMDLINE_LINUX" | "GRUB_CMDLINE_LINUX_DEFAULT");
        let value = value.trim_matches(['"', '\'']);
        let words: Vec<&str> = value
            .split_ascii_whitespace()
            .filter(|word| !word.starts_with('$'))
            .collect();
        is_command_line.then(|| BootLine {
            path: path.to_owned(),
            arguments: words.join(" "),
        })
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn knobs_are_read_with_what_they_say_now() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let knob = "sys/kernel/mm/transparent_hugepage/enabled";
        write(knob, "always [madvise] never\n");
        write(
            "etc/tmpfiles.d/a.conf",
            &format!("w /{knob} - - - - always\n"),
        );
        write(
            "usr/lib/tmpfiles.d/a.conf",
            &format!("w /{knob} - - - - never\n"),
        );
        write(
            "usr/lib/tmpfiles.d/b.conf",
            "d /run/x 0755 - - -\nw! /proc/sys/vm/nr_hugepages - - - - 12 \nw /sys/kernel/mm/x\n",
        );
        let found = tmpfiles(&Root::at(dir.path()));
        let found = found.known().unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].value, "always");
        assert_eq!(found[0].now, Fact::Known("madvise".to_owned()));
        assert_eq!(
            (found[1].value.as_str(), &found[1].now),
            ("12", &Fact::Absent)
        );
    }

    #[test]
    fn the_boot_loaders_files() {
        let text = "GRUB_TIMEOUT=5\n#GRUB_CMDLINE_LINUX=\"x\"\n\
            GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepagesz=1G hugepages=4\"\n";
        let lines = parse_grub(text, "/etc/default/grub");
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].arguments, "hugepagesz=1G hugepages=4");
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*", line in "w /sys/kernel/mm/[a-z -]*") {
            let _ = (parse_tmpfiles(&text, ""), parse_grub(&text, ""));
            let _ = parse_tmpfiles(&line, "");
        }
    }
}
