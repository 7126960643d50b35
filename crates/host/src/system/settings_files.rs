//! Settings in files below `/etc` for the kernel and the services, which are compared with the
//! values in force.

use super::file_readers;
use crate::fact::Fact;
use crate::root::Root;
use crate::system::pam_limits::{self, MemlockLine};
use crate::system::unit_files::{self, UnitFile};

/// Huge-page settings in files other than those of sysctl.d ([`crate::KernelLimits::sysctl`]).
#[derive(Debug, Clone, Default)]
pub struct SettingsFiles {
    /// Lines of tmpfiles.d that write a kernel setting, in the order in which they are applied.
    pub tmpfiles: Fact<Vec<TmpfilesLine>>,
    /// Lines of limits.conf and limits.d on memlock.
    pub memlock: Fact<Vec<MemlockLine>>,
    pub units: Vec<UnitFile>,
    /// Additions of the boot loader's files to the kernel's command line.
    pub boot: Fact<Vec<BootLoaderLine>>,
    /// Profile of tuned, if it runs. tuned sets THP settings on its own.
    pub tuned: Fact<String>,
}

/// A line of tmpfiles.d that writes a value to a kernel setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmpfilesLine {
    pub path: String,
    /// The file of the setting, below /proc or /sys.
    pub knob: String,
    pub value: String,
    /// The current value of the setting. If it shows its choices, the chosen one.
    pub now: Fact<String>,
}

/// A line of the boot loader's files that adds to the kernel's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootLoaderLine {
    pub path: String,
    pub arguments: String,
}

/// Reads the settings, with the units of these names.
pub fn read_settings(root: &Root, units: &[&str]) -> SettingsFiles {
    let units = units.iter().filter_map(|unit| unit_files::read(root, unit));
    SettingsFiles {
        tmpfiles: tmpfiles(root),
        memlock: pam_limits::read(root),
        units: units.collect(),
        boot: boot(root),
        tuned: file_readers::line(root, "etc/tuned/active_profile"),
    }
}

/// Returns all lines of tmpfiles.d that write a kernel setting (tmpfiles.d(5)). Of files with one
/// name, only the one in the first folder counts.
fn tmpfiles(root: &Root) -> Fact<Vec<TmpfilesLine>> {
    let folders = ["etc/tmpfiles.d", "run/tmpfiles.d", "usr/lib/tmpfiles.d"];
    let now = |mut line: TmpfilesLine| {
        let text = root.read(line.knob.trim_start_matches('/'));
        line.now = text.map(|text| match crate::parse_helpers::chosen(&text) {
            Ok(chosen) => chosen,
            Err(_) => text.trim().to_owned(),
        });
        line
    };
    file_readers::merged(root, &folders)
        .and_then(|paths| file_readers::parse_each(root, paths, parse_tmpfiles))
        .map(|lines| lines.into_iter().map(now).collect())
}

/// Parses the lines of one file that write a memory setting. Skips lines of another shape.
pub fn parse_tmpfiles(text: &str, path: &str) -> Vec<TmpfilesLine> {
    const KNOBS: [&str; 3] = ["sys/kernel/mm/", "sys/devices/system/node/", "proc/sys/vm/"];
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (kind, knob) = (words.next()?, words.next()?);
        // `w`, with `+` to append and modifiers such as `!`, which means at boot only.
        let is_write = kind.starts_with('w');
        let is_knob = KNOBS
            .iter()
            .any(|k| knob.trim_start_matches('/').starts_with(k));
        // Mode, user, group and age precede the value.
        let value: Vec<&str> = words.skip(4).collect();
        (is_write && is_knob && !value.is_empty()).then(|| TmpfilesLine {
            path: path.to_owned(),
            knob: knob.to_owned(),
            value: value.join(" "),
            now: Fact::Absent,
        })
    };
    text.lines().filter_map(parse).collect()
}

fn boot(root: &Root) -> Fact<Vec<BootLoaderLine>> {
    file_readers::paths_in(root, "etc/default/grub.d", ".cfg").and_then(|more| {
        let first = "etc/default/grub".to_owned();
        file_readers::parse_each(root, std::iter::once(first).chain(more), parse_grub)
    })
}

/// Parses the lines of one file that set the command line of every kernel. They are shell.
/// References to earlier values (`$GRUB_CMDLINE_LINUX`) are left out.
pub fn parse_grub(text: &str, path: &str) -> Vec<BootLoaderLine> {
    let parse = |line: &str| {
        let (name, value) = line.trim().split_once('=')?;
        let is_command_line = matches!(name, "GRUB_CMDLINE_LINUX" | "GRUB_CMDLINE_LINUX_DEFAULT");
        let value = value.trim_matches(['"', '\'']);
        let words: Vec<&str> = value
            .split_ascii_whitespace()
            .filter(|word| !word.starts_with('$'))
            .collect();
        is_command_line.then(|| BootLoaderLine {
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
