//! Monotonic counters of the host: `/proc/vmstat`, and the time that tasks stalled, `/proc/pressure`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fact::Fact;
use crate::model::CompactionStalls;
use crate::parse_helpers::ParseError;
use crate::root::Root;

/// Resources that tasks stall for (Documentation/accounting/psi.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PressureResource {
    Memory,
    Processors,
    Io,
}

/// Returns the time since boot in which some task stalled for it. Absent if the kernel does not report it.
pub fn read_stalled(root: &Root, resource: PressureResource) -> Fact<Duration> {
    let name = match resource {
        PressureResource::Memory => "memory",
        PressureResource::Processors => "cpu",
        PressureResource::Io => "io",
    };
    root.parse(format!("proc/pressure/{name}"), parse_stalled)
}

/// Parses `total=` of the line `some`, in microseconds.
///
/// # Errors
/// If it is missing.
pub fn parse_stalled(text: &str) -> Result<Duration, ParseError> {
    let line = text.lines().find(|line| line.starts_with("some "));
    let mut words = line.into_iter().flat_map(str::split_whitespace);
    words
        .find_map(|word| word.strip_prefix("total=")?.parse().ok())
        .map(Duration::from_micros)
        .ok_or_else(|| ParseError::new(1, "expected a line of some with a total", text))
}

/// Returns a counter of `/proc/vmstat`. Absent if the kernel does not have it.
pub fn read_vmstat(root: &Root, name: &str) -> Fact<u64> {
    root.read("proc/vmstat").and_then(|text| {
        parse_vmstat(&text)
            .find(|(of, _)| *of == name)
            .map(|(_, n)| n)
            .into()
    })
}

/// Returns the kernel's counters of THP and of compaction, by their names (mm/vmstat.c).
pub fn read_thp_events(root: &Root) -> Fact<BTreeMap<String, u64>> {
    root.read("proc/vmstat").map(|text| {
        let ours = |name: &str| name.starts_with("thp_") || name.starts_with("compact_");
        parse_vmstat(&text)
            .filter(|(name, _)| ours(name))
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    })
}

/// Reads the number of allocations that waited for compaction since boot, and the memory pressure now.
pub fn read_compaction(root: &Root) -> CompactionStalls {
    let events = read_thp_events(root);
    let count = |name: &str| events.clone().and_then(|all| all.get(name).copied().into());
    CompactionStalls {
        stalls: count("compact_stall"),
        failures: count("compact_fail"),
        uptime: read_uptime(root),
        pressure: root.parse("proc/pressure/memory", parse_last_minute),
    }
}

/// Returns the time since this host was booted, suspended time included. It never decreases.
pub fn read_uptime(root: &Root) -> Fact<Duration> {
    root.parse("proc/uptime", parse_uptime)
}

/// Parses the first number of `/proc/uptime`, in seconds.
fn parse_uptime(text: &str) -> Result<Duration, ParseError> {
    let seconds = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| ParseError::new(1, "expected seconds since boot", text))
}

/// Parses `avg60=` of the line `some`, in percent.
fn parse_last_minute(text: &str) -> Result<f64, ParseError> {
    let line = text.lines().find(|line| line.starts_with("some "));
    let mut words = line.into_iter().flat_map(str::split_whitespace);
    words
        .find_map(|word| word.strip_prefix("avg60=")?.parse().ok())
        .filter(|percent: &f64| percent.is_finite())
        .ok_or_else(|| ParseError::new(1, "expected a line of some with avg60", text))
}

/// Iterates over lines with a name and a number. Skips other lines.
pub fn parse_vmstat(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        Some((name, count.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_the_kernel_writes() {
        let psi = "some avg10=0.00 avg60=0.10 avg300=0.00 total=1500000\nfull avg10=0.00 total=7\n";
        assert_eq!(parse_stalled(psi).unwrap(), Duration::from_millis(1500));
        assert!((parse_last_minute(psi).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(
            parse_uptime("90.5 12.0\n").unwrap(),
            Duration::from_millis(90_500)
        );
        for text in ["", "some", "some total=", "some total=x", "full total=3"] {
            assert!(parse_stalled(text).is_err(), "{text}");
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let vmstat = "pgscan_direct 12\nthp_fault_alloc 7\ncompact_stall 3\nnr_free 9\nthp_x y\n";
        std::fs::write(dir.path().join("proc/vmstat"), vmstat).unwrap();
        let root = Root::at(dir.path());
        let events = read_thp_events(&root).known().cloned().unwrap();
        assert_eq!(read_vmstat(&root, "pgscan_direct"), Fact::Known(12));
        assert!(
            read_vmstat(&root, "thp_x").is_absent() && read_vmstat(&root, "pgscan").is_absent()
        );
        let expected = [
            ("compact_stall".to_owned(), 3),
            ("thp_fault_alloc".into(), 7),
        ];
        assert_eq!(events.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(read_stalled(&root, PressureResource::Io), Fact::Absent);
        let compaction = read_compaction(&root);
        assert_eq!(compaction.stalls, Fact::Known(3));
        assert!(compaction.failures.is_absent() && compaction.uptime.is_absent());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = parse_stalled(&text);
            let _ = (parse_uptime(&text), parse_last_minute(&text));
            let _ = parse_vmstat(&text).count();
        }
    }
}
