//! Intervals: counters of `/proc`, read once a second. Parsers are pure.

use std::collections::BTreeMap;

use hugeleaf_host::memory_totals::host_memory;
use hugeleaf_host::{Fact, Host, Root, read_memory_facts};
use hugeleaf_sys::{Kernel, ticks_per_second};
use hugeleaf_units::PageSize;

use crate::model::{
    EventSource, Interval, MemoryCounter, PageSizeCount, PageSizeUsage, Pressure, SourceState,
};
use crate::tables::not_measured::TraceDataKind;

#[derive(Debug, Clone, Default)]
pub struct ProcfsCounters {
    /// The line `cpu` of `/proc/stat`, in clock ticks, in the order of the file.
    cpu: Vec<u64>,
    /// `ctxt`, `processes`, `procs_running`, `procs_blocked`.
    others: BTreeMap<String, u64>,
    vmstat: BTreeMap<String, u64>,
    /// Counters of each THP size: (size, name) to value.
    by_size: BTreeMap<(u64, String), u64>,
    /// Microseconds of `some` and `full` by resource.
    pressure: BTreeMap<(&'static str, &'static str), u64>,
}

impl ProcfsCounters {
    /// Returns the growth of a counter of `/proc/vmstat`.
    fn grown(&self, last: &ProcfsCounters, name: &str) -> u64 {
        let of = |counts: &ProcfsCounters| counts.vmstat.get(name).copied().unwrap_or(0);
        of(self).saturating_sub(of(last))
    }

    /// Returns the growth of the counters of THP sizes; 0 for a new counter.
    fn grown_by_size(&self, last: &ProcfsCounters) -> impl Iterator<Item = (u64, &str, u64)> {
        self.by_size.iter().map(|(key, value)| {
            let before = last.by_size.get(key).unwrap_or(value);
            (key.0, key.1.as_str(), value.saturating_sub(*before))
        })
    }
}

#[derive(Debug)]
pub struct IntervalReader {
    root: Root,
    base: PageSize,
    pmd: Option<PageSize>,
    sizes: Vec<(u64, String)>,
    last: ProcfsCounters,
    /// The kernel's counters over all intervals. Unchanged ones are kept, because zero is an answer.
    pub counters: Vec<MemoryCounter>,
}

/// True for counters of `/proc/vmstat` that are kept for every interval.
fn is_exported_counter(name: &str) -> bool {
    name.starts_with("thp_")
        || name.starts_with("compact_")
        || name.starts_with("htlb_")
        || name.starts_with("nr_tlb_")
        || name.starts_with("allocstall")
        || name.starts_with("unevictable_pgs_")
        || matches!(
            name,
            "pgmigrate_success" | "pgmigrate_fail" | "pgsteal_direct" | "pgscan_direct"
        )
}

const SIZE_COUNTERS: [&str; 6] = [
    "anon_fault_alloc",
    "anon_fault_fallback",
    "shmem_alloc",
    "shmem_fallback",
    "split",
    "split_deferred",
];

impl IntervalReader {
    pub fn new(root: &Root, host: &Host) -> IntervalReader {
        let folder = "sys/kernel/mm/transparent_hugepage";
        let sizes = root
            .list(folder)
            .known()
            .into_iter()
            .flatten()
            .filter_map(|name| {
                let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
                let bytes = kib.parse::<u64>().ok()?.checked_mul(1024)?;
                Some((bytes, format!("{folder}/{name}/stats")))
            })
            .filter(|(_, stats)| matches!(root.list(stats), Fact::Known(_)))
            .collect();
        let mut intervals = IntervalReader {
            root: root.clone(),
            base: host.base_page,
            pmd: host.pmd_page.get(),
            sizes,
            last: ProcfsCounters::default(),
            counters: Vec::new(),
        };
        intervals.last = intervals.read();
        intervals
    }

    /// Returns the files behind intervals as sources of their own, because unread values are zero in an
    /// interval.
    pub fn sources(&self) -> Vec<EventSource> {
        let source = |what: TraceDataKind, file: &str, was_read: bool| {
            let state = match (was_read, self.root.read(file)) {
                (true, _) => SourceState::Used,
                (_, Fact::Known(_)) => SourceState::not_here(format!("{file} does not report it")),
                (_, Fact::Absent) => SourceState::not_here(format!("there is no {file}")),
                (_, Fact::Unreadable(error)) => SourceState::not_here(error.to_string()),
            };
            EventSource::new(what.name(), state)
        };
        vec![
            source(
                TraceDataKind::CpuTime,
                "proc/stat",
                !self.last.cpu.is_empty(),
            ),
            source(
                TraceDataKind::Vmstat,
                "proc/vmstat",
                !self.last.vmstat.is_empty(),
            ),
        ]
    }

    fn read(&self) -> ProcfsCounters {
        let text = |path: &str| self.root.read(path).known().cloned().unwrap_or_default();
        let (cpu, others) = parse_stat(&text("proc/stat"));
        let mut pressure = BTreeMap::new();
        for resource in ["cpu", "memory", "io"] {
            for (key, total) in parse_pressure(&text(&format!("proc/pressure/{resource}"))) {
                pressure.insert((resource, key), total);
            }
        }
        let mut by_size = BTreeMap::new();
        for (size, folder) in &self.sizes {
            for name in SIZE_COUNTERS {
                if let Ok(value) = text(&format!("{folder}/{name}")).trim().parse() {
                    by_size.insert((*size, name.to_owned()), value);
                }
            }
        }
        ProcfsCounters {
            cpu,
            others,
            vmstat: parse_vmstat(&text("proc/vmstat")),
            by_size,
            pressure,
        }
    }

    pub fn next(&mut self, at_seconds: f64, seconds: f64, kernel: &Kernel) -> Interval {
        let now = self.read();
        let mut interval = between(&self.last, &now, seconds, self.base, self.pmd);
        interval.at_seconds = at_seconds;
        if let Ok(host) = read_memory_facts(&self.root, kernel) {
            interval.host_by_size = host_memory(&host).iter().map(held).collect();
            interval.page_tables_bytes = host.memory.page_tables.get().map(|b| b.get());
        }
        self.count(&now);
        self.last = now;
        interval
    }

    fn count(&mut self, now: &ProcfsCounters) {
        let mut grown: Vec<(Option<u64>, String, u64)> = Vec::new();
        for (name, value) in now
            .vmstat
            .iter()
            .filter(|(name, _)| is_exported_counter(name))
        {
            let before = self.last.vmstat.get(name).copied().unwrap_or(*value);
            grown.push((None, name.clone(), value.saturating_sub(before)));
        }
        for (size, name, more) in now.grown_by_size(&self.last) {
            grown.push((Some(size), name.to_owned(), more));
        }
        let first = self.counters.is_empty();
        for (at, (page_bytes, name, value)) in grown.into_iter().enumerate() {
            if first {
                self.counters.push(MemoryCounter {
                    name: name.clone(),
                    page_bytes,
                    ..MemoryCounter::default()
                });
            }
            // The order is constant, so a counter that appears later is ignored.
            let place = self.counters.get_mut(at);
            if let Some(counter) = place.filter(|c| c.name == name && c.page_bytes == page_bytes) {
                counter.by_interval.push(value);
                counter.total = counter.total.saturating_add(value);
            }
        }
    }
}

pub fn held(held: &hugeleaf_host::PageUsage) -> PageSizeUsage {
    PageSizeUsage {
        page_bytes: held.size.bytes().get(),
        kind: held.kind.name().to_owned(),
        bytes: held.bytes.get(),
    }
}

fn between(
    last: &ProcfsCounters,
    now: &ProcfsCounters,
    seconds: f64,
    base: PageSize,
    pmd: Option<PageSize>,
) -> Interval {
    let ticks = |places: &[usize]| -> f64 {
        let sum: u64 = places
            .iter()
            .map(|at| {
                let of = |counts: &ProcfsCounters| counts.cpu.get(*at).copied().unwrap_or(0);
                of(now).saturating_sub(of(last))
            })
            .sum();
        sum as f64 / ticks_per_second().max(1) as f64
    };
    let grown = |name: &str| now.grown(last, name);
    let other = |counts: &ProcfsCounters, name: &str| counts.others.get(name).copied().unwrap_or(0);
    let faults_by_size = faults_by_size(last, now, base, pmd, grown("pgfault"));
    Interval {
        seconds,
        user_seconds: ticks(&[0, 1]),
        system_seconds: ticks(&[2, 5, 6]),
        idle_seconds: ticks(&[3]),
        wait_seconds: ticks(&[4]),
        steal_seconds: ticks(&[7]),
        runnable: other(now, "procs_running"),
        blocked: other(now, "procs_blocked"),
        faults: grown("pgfault"),
        faults_major: grown("pgmajfault"),
        faults_by_size,
        context_switches: other(now, "ctxt").saturating_sub(other(last, "ctxt")),
        forks: other(now, "processes").saturating_sub(other(last, "processes")),
        // These two are in KiB for any base page size.
        page_in_bytes: grown("pgpgin").saturating_mul(1024),
        page_out_bytes: grown("pgpgout").saturating_mul(1024),
        swap_in_bytes: grown("pswpin").saturating_mul(base.bytes().get()),
        swap_out_bytes: grown("pswpout").saturating_mul(base.bytes().get()),
        pressure: pressure(last, now, seconds),
        ..Interval::default()
    }
}

/// Returns faults on huge pages from the counters of each size, and the rest as faults on base pages.
fn faults_by_size(
    last: &ProcfsCounters,
    now: &ProcfsCounters,
    base: PageSize,
    pmd: Option<PageSize>,
    all: u64,
) -> Vec<PageSizeCount> {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for (size, name, grown) in now.grown_by_size(last) {
        if matches!(name, "anon_fault_alloc" | "shmem_alloc") {
            *sizes.entry(size).or_default() += grown;
        }
    }
    // A kernel without counters per size counts the PMD size only.
    if let (true, Some(pmd)) = (now.by_size.is_empty(), pmd) {
        let grown = ["thp_fault_alloc", "thp_file_alloc"].map(|name| now.grown(last, name));
        sizes.insert(pmd.bytes().get(), grown.iter().sum());
    }
    let large: u64 = sizes.values().sum();
    *sizes.entry(base.bytes().get()).or_default() += all.saturating_sub(large);
    sizes
        .into_iter()
        .map(|(page_bytes, count)| PageSizeCount { page_bytes, count })
        .collect()
}

fn pressure(last: &ProcfsCounters, now: &ProcfsCounters, seconds: f64) -> Option<Pressure> {
    if now.pressure.is_empty() {
        return None;
    }
    let share = |resource, key| {
        let of =
            |counts: &ProcfsCounters| counts.pressure.get(&(resource, key)).copied().unwrap_or(0);
        let micros = of(now).saturating_sub(of(last)) as f64;
        (micros / (seconds.max(1e-6) * 1e6)).clamp(0.0, 1.0)
    };
    Some(Pressure {
        cpu_some: share("cpu", "some"),
        memory_some: share("memory", "some"),
        memory_full: share("memory", "full"),
        io_some: share("io", "some"),
        io_full: share("io", "full"),
    })
}

/// Parses `/proc/stat`: the line of all CPUs, and the single numbers.
pub fn parse_stat(text: &str) -> (Vec<u64>, BTreeMap<String, u64>) {
    let mut cpu = Vec::new();
    let mut others = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("cpu") => cpu = words.map_while(|w| w.parse().ok()).collect(),
            Some(name @ ("ctxt" | "processes" | "procs_running" | "procs_blocked")) => {
                if let Some(Ok(value)) = words.next().map(str::parse) {
                    others.insert(name.to_owned(), value);
                }
            }
            _ => {}
        }
    }
    (cpu, others)
}

/// Parses `/proc/vmstat`: a name and a number per line.
pub fn parse_vmstat(text: &str) -> BTreeMap<String, u64> {
    let counters = hugeleaf_host::system::counters::parse_vmstat(text);
    counters.map(|(name, n)| (name.to_owned(), n)).collect()
}

/// Parses a file of `/proc/pressure`: microseconds of `some` and of `full`.
pub fn parse_pressure(text: &str) -> Vec<(&'static str, u64)> {
    text.lines()
        .filter_map(|line| {
            let key = match line.split_ascii_whitespace().next()? {
                "some" => "some",
                "full" => "full",
                _ => return None,
            };
            let total = line.rsplit_once("total=")?.1.trim().parse().ok()?;
            Some((key, total))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_units::Bytes;
    use proptest::prelude::*;

    fn counts(cpu: &[u64], vmstat: &str, sizes: &[(u64, &str, u64)]) -> ProcfsCounters {
        ProcfsCounters {
            cpu: cpu.to_vec(),
            vmstat: parse_vmstat(vmstat),
            by_size: sizes
                .iter()
                .map(|(size, name, value)| ((*size, (*name).to_owned()), *value))
                .collect(),
            ..ProcfsCounters::default()
        }
    }

    #[test]
    fn the_difference_of_two_looks() {
        let base = PageSize::new(Bytes::from_kib(4)).unwrap();
        let last = counts(
            &[100, 0, 50, 10, 0, 1, 1, 0],
            "pgfault 10\npgpgin 4\n",
            &[(65536, "anon_fault_alloc", 5)],
        );
        let now = counts(
            &[200, 10, 90, 20, 5, 2, 2, 0],
            "pgfault 110\npgpgin 8\n",
            &[(65536, "anon_fault_alloc", 25)],
        );
        let interval = between(&last, &now, 1.0, base, None);
        let ticks = ticks_per_second() as f64;
        assert!((interval.user_seconds * ticks - 110.0).abs() < 1e-6);
        assert!((interval.system_seconds * ticks - 42.0).abs() < 1e-6);
        assert!((interval.wait_seconds * ticks - 5.0).abs() < 1e-6);
        assert_eq!((interval.faults, interval.page_in_bytes), (100, 4096));
        let sizes: Vec<_> = interval
            .faults_by_size
            .iter()
            .map(|s| (s.page_bytes, s.count))
            .collect();
        assert_eq!(sizes, [(4096, 80), (65536, 20)]);
        assert_eq!(interval.pressure, None);
    }

    /// A kernel that counts the PMD size only.
    #[test]
    fn faults_of_an_older_kernel() {
        let (base, pmd) = (
            PageSize::new(Bytes::from_kib(4)).unwrap(),
            PageSize::new(Bytes::from_kib(2048)).unwrap(),
        );
        let last = counts(&[], "pgfault 0\nthp_fault_alloc 3\n", &[]);
        let now = counts(&[], "pgfault 100\nthp_fault_alloc 13\n", &[]);
        let faults = between(&last, &now, 1.0, base, Some(pmd)).faults_by_size;
        let sizes: Vec<_> = faults.iter().map(|s| s.count).collect();
        assert_eq!(sizes, [90, 10]);
    }

    #[test]
    fn texts() {
        let (cpu, others) = parse_stat("cpu  1 2 3\ncpu0 9 9 9\nctxt 77\nprocs_running 2\n");
        assert_eq!(
            (cpu, others["ctxt"], others["procs_running"]),
            (vec![1, 2, 3], 77, 2)
        );
        let pressure = parse_pressure(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 total=3\n",
        );
        assert_eq!(pressure, [("some", 12), ("full", 3)]);
    }

    #[test]
    fn every_interval_of_a_counter_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            std::fs::create_dir_all(dir.path().join("proc")).unwrap();
            std::fs::write(dir.path().join("proc/vmstat"), text).unwrap();
        };
        write("thp_fault_alloc 1\n");
        let mut intervals = IntervalReader {
            root: Root::at(dir.path()),
            base: PageSize::new(Bytes::from_kib(4)).unwrap(),
            pmd: None,
            sizes: Vec::new(),
            last: ProcfsCounters::default(),
            counters: Vec::new(),
        };
        intervals.last = intervals.read();
        for value in [4, 4, 9] {
            write(&format!("thp_fault_alloc {value}\n"));
            let now = intervals.read();
            intervals.count(&now);
            intervals.last = now;
        }
        let counters = intervals.counters;
        assert_eq!(counters[0].by_interval, [3, 0, 5]);
        assert_eq!(counters[0].total, 8);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = parse_stat(&text);
            let _ = parse_vmstat(&text);
            let _ = parse_pressure(&text);
        }
    }
}
