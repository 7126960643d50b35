//! Reads back the settings that `hugeleaf run` gave the library loaded into a process, from the
//! variable `HUGELEAF_RUN` of its environment.
//!
//! A program may overwrite its first environment (setproctitle, as Redis and PostgreSQL do). The
//! library keeps a copy of the variable in its own data, which is read in that case. This module
//! does not judge the effect of the settings.

use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, PageSize};

use crate::fact::Fact;
use crate::model::{RunMemoryKind, RunPageKind, RunPolicy, RunSettings};
use crate::parse_helpers::ParseError;
use crate::process::file_of;
use crate::process::maps::{MapLine, mappings};
use crate::root::Root;

/// The version of the format that this program knows.
const VERSION: &str = "1";

impl RunSettings {
    pub const VARIABLE: &'static str = "HUGELEAF_RUN";

    pub const LIBRARY: &'static str = "libhugeleaf_run";
}

/// True if a mapping's name is that of the library.
pub fn is_run_library(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    name.starts_with('/') && file.starts_with(RunSettings::LIBRARY)
}

/// Returns the value of a variable in an environment in the form of `/proc/PID/environ`. The first
/// one counts, as for getenv(3).
pub fn find_variable<'a>(environment: &'a str, name: &str) -> Option<&'a str> {
    environment
        .split('\0')
        .find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
}

/// Parses the value of `HUGELEAF_RUN`. Skips unknown keys, because a later hugeleaf may add some to
/// the same version.
///
/// # Errors
/// Another version, a malformed pair, or a value of the wrong form for its key. The line is the
/// number of the pair.
pub fn parse_run_settings(text: &str) -> Result<RunSettings, ParseError> {
    let pairs = text.split(';').enumerate();
    let pairs = pairs.filter(|(_, pair)| !pair.is_empty());
    let mut settings = RunSettings::default();
    let version = |(i, pair): (usize, &'_ str)| Some((i + 1, pair.strip_prefix("v=")?.to_owned()));
    let version = pairs.clone().filter_map(version).last();
    match version {
        Some((_, version)) if version == VERSION => {}
        Some((line, version)) if version.parse::<u32>().is_ok_and(|v| v > 1) => {
            let what = "expected v=1; these settings are of a newer hugeleaf";
            return Err(ParseError::new(line, what, &version));
        }
        other => {
            let (line, version) = other.unwrap_or((1, text.to_owned()));
            return Err(ParseError::new(line, "expected v=1", &version));
        }
    }
    for (i, pair) in pairs {
        let error = |what| ParseError::new(i + 1, what, pair);
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| error("expected key=value"))?;
        set(&mut settings, key, value).map_err(error)?;
    }
    Ok(settings)
}

/// Sets one value. The error names the expected form.
fn set(settings: &mut RunSettings, key: &str, value: &str) -> Result<(), &'static str> {
    match key {
        "base" => settings.base = Some(page_size(value)?),
        "pmd" => settings.pmd = Some(page_size(value)?),
        "data_after" => settings.data_after = Some(bytes(value)?),
        "shm_after" => settings.shm_after = Some(bytes(value)?),
        "stack_after" => settings.stack_after = Some(bytes(value)?),
        "reserve" => settings.reserve = Some(bytes(value)?),
        "touch" => settings.touch = flag(value)?,
        "shmem_touch" => settings.shmem_touch = flag(value)?,
        "only" => settings.only = value.split(':').map(str::to_owned).collect(),
        "report" => settings.report = Some(value.to_owned()),
        _ => {
            let (name, is_typed) = match key.strip_prefix("asked_") {
                Some(name) => (name, true),
                None => (key, false),
            };
            let role = RunMemoryKind::ALL.iter().find(|role| role.name() == name);
            let Some(role) = role else { return Ok(()) };
            let asked = &mut settings.roles[*role as usize];
            if is_typed {
                asked.typed = value.to_owned();
            } else {
                (asked.ways, asked.mandatory) = ways(value)?;
            }
        }
    }
    Ok(())
}

fn bytes(value: &str) -> Result<Bytes, &'static str> {
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    let number = value.parse().ok().filter(|_| digits);
    number.map(Bytes).ok_or("expected a number of bytes")
}

fn page_size(value: &str) -> Result<PageSize, &'static str> {
    PageSize::new(bytes(value)?).map_err(|_| "expected a page size")
}

fn flag(value: &str) -> Result<bool, &'static str> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("expected 0 or 1"),
    }
}

/// Parses `hugetlb:BYTES`, `thp` and `base`, separated by commas, with an optional last `!`.
fn ways(value: &str) -> Result<(Vec<RunPageKind>, bool), &'static str> {
    let (list, mandatory) = match value.strip_suffix(",!") {
        Some(list) => (list, true),
        None => (value, false),
    };
    let mut ways = Vec::new();
    for way in list.split(',') {
        match way {
            "thp" => ways.push(RunPageKind::Thp),
            // Base pages end every ladder, listed or not.
            "base" => {}
            _ => {
                let size = way.strip_prefix("hugetlb:");
                let size = size.ok_or("expected thp, hugetlb:BYTES or base")?;
                ways.push(RunPageKind::Hugetlb(page_size(size)?));
            }
        }
    }
    Ok((ways, mandatory))
}

impl RunPolicy {
    /// Returns the policy as typed, or the list of kinds if the typed text was not passed on.
    pub fn text(&self) -> String {
        match self.typed.as_str() {
            "" => self.to_string(),
            typed => typed.to_owned(),
        }
    }
}

impl fmt::Display for RunPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |way: &RunPageKind| match way {
            RunPageKind::Thp => "thp".to_owned(),
            RunPageKind::Hugetlb(size) => format!("hugetlb:{:#}", size.bytes()),
        };
        let ways: Vec<String> = self.ways.iter().map(way).collect();
        let ways = match ways.is_empty() {
            true => "base".to_owned(),
            false => ways.join(","),
        };
        let mark = if self.mandatory { ",!" } else { "" };
        write!(f, "{ways}{mark}")
    }
}

impl fmt::Display for RunSettings {
    /// Writes the value of the variable, which [`parse_run_settings`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v={VERSION}")?;
        let sizes = [
            ("base", self.base.map(PageSize::bytes)),
            ("pmd", self.pmd.map(PageSize::bytes)),
            ("data_after", self.data_after),
            ("shm_after", self.shm_after),
            ("stack_after", self.stack_after),
            ("reserve", self.reserve),
        ];
        for (key, bytes) in sizes {
            if let Some(bytes) = bytes {
                write!(f, ";{key}={bytes:#}")?;
            }
        }
        for role in RunMemoryKind::ALL {
            write!(f, ";{role}={}", self.policy(role))?;
        }
        let (touch, shmem) = (u8::from(self.touch), u8::from(self.shmem_touch));
        write!(f, ";touch={touch};shmem_touch={shmem}")?;
        if !self.only.is_empty() {
            write!(f, ";only={}", self.only.join(":"))?;
        }
        if let Some(report) = &self.report {
            write!(f, ";report={report}")?;
        }
        for role in RunMemoryKind::ALL {
            write!(f, ";asked_{role}={}", self.policy(role).typed)?;
        }
        Ok(())
    }
}

/// Maximum length of an environment that is read. A new program gets at most a quarter of 8M, and a
/// program can enlarge its own afterwards.
pub(crate) const LONGEST_ENVIRONMENT: Bytes = Bytes(2 << 20); // not a page size

/// Reads the settings of a process from its environment, or else from the library's own copy.
/// Absent if the process was not started with `run`.
pub fn read_run_settings(root: &Root, pid: Pid) -> Fact<RunSettings> {
    let path = file_of(pid, "environ");
    let environment = root.beginning(&path, LONGEST_ENVIRONMENT);
    let text = environment.text();
    if let Some(value) = text.and_then(|text| find_variable(text, RunSettings::VARIABLE)) {
        return root.parsed(&path, parse_run_settings(value));
    }
    // An unreadable environment is another user's, so it is not known if there were settings.
    let maps = mappings(root, pid).or_default();
    if !maps.iter().any(|m| is_run_library(&m.name)) {
        return environment.and_then(|_| Fact::Absent);
    }
    let path = file_of(pid, "mem");
    match kept_copy(root, &path, &maps) {
        Some(value) => root.parsed(&path, parse_run_settings(&value)),
        None => {
            let what = "expected HUGELEAF_RUN, which the program overwrote";
            root.parsed(file_of(pid, "environ"), Err(ParseError::new(1, what, "")))
        }
    }
}

/// Returns the variable from the library's copy, in its writable data and the zero data after it.
/// These are two mappings, and the copy may cross their border.
fn kept_copy(root: &Root, mem: &str, maps: &[MapLine]) -> Option<String> {
    /// The library's data is a few pages. More would not be the library's.
    const MOST: u64 = 1 << 20;
    let mut ranges = Vec::new();
    let (mut end, mut left) = (None, MOST);
    for map in maps.iter().filter(|m| m.permissions[1]) {
        let follows = map.name.is_empty() && end == Some(map.range.start());
        if !(is_run_library(&map.name) || follows) {
            continue;
        }
        end = Some(map.range.end());
        let length = map.range.len().get().min(left);
        left -= length;
        ranges.push((map.range.start(), length));
    }
    let read = root.with_file(Path::new(mem), move |file| {
        let mut data = Vec::new();
        for (start, length) in ranges.into_iter().filter(|(_, length)| *length > 0) {
            let mut part = vec![0; usize::try_from(length).unwrap_or(0)];
            if file.read_exact_at(&mut part, start).is_ok() {
                data.extend(part);
            }
        }
        Ok(data)
    });
    value_in(&read.ok()?)
}

/// Returns the variable's value in some bytes of memory, up to the terminating zero.
fn value_in(data: &[u8]) -> Option<String> {
    let mark = format!("{}=v=", RunSettings::VARIABLE);
    let at = data
        .windows(mark.len())
        .position(|w| w == mark.as_bytes())?;
    let value = data.get(at + RunSettings::VARIABLE.len() + 1..)?;
    let end = value.iter().position(|b| *b == 0)?;
    Some(String::from_utf8_lossy(&value[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "v=1;base=4096;pmd=2097152;data_after=33554432;shm_after=2097152;\
        data=thp;shm=hugetlb:1073741824,hugetlb:2097152,thp,!;stack=thp;text=base;touch=1;\
        shmem_touch=0;only=postgres:initdb;report=/tmp/x/s;asked_data=auto;asked_shm=1G,2M!;later=7";

    #[test]
    fn what_the_launcher_wrote_is_read_back() {
        let settings = parse_run_settings(TEXT).unwrap();
        assert_eq!(settings.pmd, Some("2M".parse().unwrap()));
        assert_eq!(
            settings.policy(RunMemoryKind::Data).ways,
            [RunPageKind::Thp]
        );
        assert_eq!(settings.policy(RunMemoryKind::Shm).ways.len(), 3);
        assert!(
            settings.policy(RunMemoryKind::Shm).mandatory
                && !settings.policy(RunMemoryKind::Data).mandatory
        );
        assert!(settings.policy(RunMemoryKind::Text).ways.is_empty());
        assert_eq!(settings.policy(RunMemoryKind::Shm).typed, "1G,2M!");
        assert_eq!(settings.data_after, Some(Bytes::from_mib(32)));
        assert!(settings.touch && !settings.shmem_touch);
        assert_eq!(settings.only, ["postgres", "initdb"]);
        assert_eq!(settings.report.as_deref(), Some("/tmp/x/s"));
        assert_eq!(parse_run_settings(&settings.to_string()), Ok(settings));
    }

    #[test]
    fn damage_and_other_versions_are_told_apart() {
        for (text, line, what) in [
            ("", 1, "v=1"),
            ("base=4096", 1, "v=1"),
            ("v=0", 1, "v=1"),
            ("v=2;base=4096", 1, "newer hugeleaf"),
            ("base=16;v=2;gold", 2, "newer hugeleaf"),
            ("v=1;base=3", 2, "page size"),
            ("v=1;pmd=+4096", 2, "number of bytes"),
            ("v=1;base=4096;data=gold", 3, "expected thp"),
            ("v=1;touch=yes", 2, "0 or 1"),
            ("v=1;nonsense", 2, "key=value"),
        ] {
            let error = parse_run_settings(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.to_string().contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn the_first_variable_of_the_name_counts() {
        let text = "PATH=/bin\0HUGELEAF_RUN_LIBRARY=/x\0HUGELEAF_RUN=v=1\0HUGELEAF_RUN=v=2\0";
        assert_eq!(find_variable(text, RunSettings::VARIABLE), Some("v=1"));
        assert_eq!(find_variable("", "A"), None);
    }

    #[test]
    fn the_library_is_known_by_its_file() {
        assert!(is_run_library("/var/cache/hugeleaf/libhugeleaf_run-1f.so"));
        assert!(!is_run_library("/usr/lib/libc.so.6"));
        assert!(!is_run_library("[anon:libhugeleaf_run]"));
    }

    #[test]
    fn a_kept_copy_is_found_between_other_data() {
        let data = b"\0\0HUGELEAF_RUN\0HUGELEAF_RUN=v=1;base=4096\0rest";
        assert_eq!(value_in(data).as_deref(), Some("v=1;base=4096"));
        assert_eq!(value_in(b"HUGELEAF_RUN=v=1 without an end"), None);
        assert_eq!(value_in(b""), None);
    }

    fn size() -> impl Strategy<Value = PageSize> {
        (0u32..63).prop_map(|shift| PageSize::new(Bytes(1 << shift)).unwrap())
    }

    fn asked() -> impl Strategy<Value = RunPolicy> {
        let way = prop_oneof![
            Just(RunPageKind::Thp),
            size().prop_map(RunPageKind::Hugetlb)
        ];
        let ways = prop::collection::vec(way, 0..4);
        (ways, any::<bool>(), "[^;\0]*").prop_map(|(ways, mandatory, typed)| RunPolicy {
            ways,
            mandatory,
            typed,
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(
            (data, shm, stack, text) in (asked(), asked(), asked(), asked()),
            (base, pmd) in (size(), prop::option::of(size())),
            reserve in prop::option::of(any::<u64>().prop_map(Bytes)),
            only in prop::collection::vec("[^;:\0]+", 0..3),
            (touch, shmem_touch) in (any::<bool>(), any::<bool>()),
        ) {
            let settings = RunSettings {
                base: Some(base), pmd, roles: [data, shm, stack, text], reserve, only, touch, shmem_touch,
                ..RunSettings::default()
            };
            prop_assert_eq!(parse_run_settings(&settings.to_string()), Ok(settings));
        }

        #[test]
        fn nothing_panics(text in "(?s).*", data in prop::collection::vec(any::<u8>(), 0..99)) {
            let _ = parse_run_settings(&text);
            let _ = parse_run_settings(&format!("v=1;{text}"));
            let _ = find_variable(&text, RunSettings::VARIABLE);
            let _ = value_in(&data);
            let _ = is_run_library(&text);
        }
    }
}
