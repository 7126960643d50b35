//! Observation of the database's processes during the load: their usage at the end, and processor counts.

use std::time::Instant;

use crate::kits::tpcc::MeasurementObserver;
use hugeleaf_host::{Host, PageUsage, Root};
use hugeleaf_perf::processor::{CYCLES, INSTRUCTIONS};
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

use super::server_usage::{cache_pages, tree};
use hugeleaf_proof::bench::page_tables;
use hugeleaf_proof::metric::{MetricError, TranslationCounters, TranslationTotals};

#[derive(Debug, Clone, Copy)]
pub(super) enum WatchedProcesses<'a> {
    ExternalServer,
    Own,
    /// A server of this host, with its children.
    DatabaseServer {
        pid: u32,
        host: &'a Host,
        /// True if its cache is shared memory of its processes, false if private memory of one.
        shared: bool,
    },
}

impl<'a> WatchedProcesses<'a> {
    /// Returns the processes of a server of this host; none if it does not run.
    pub(super) fn of_server(
        pid: Option<u32>,
        host: &'a Host,
        shared: bool,
    ) -> WatchedProcesses<'a> {
        match pid {
            Some(pid) => WatchedProcesses::DatabaseServer { pid, host, shared },
            None => WatchedProcesses::ExternalServer,
        }
    }
}

/// Observes a run. See [`MeasurementObserver`].
pub(super) struct DatabaseWatcher<'a> {
    root: &'a Root,
    processes: WatchedProcesses<'a>,
    /// True to count cycles, instructions and TLB misses with the processor.
    pub(super) count: bool,
    /// Returns the bytes written so far by a concurrent copier, if there is one.
    pub(super) copied: Option<&'a dyn Fn() -> Option<u64>>,
    counting: Option<Result<TranslationCounters, MetricError>>,
    copied_before: Option<(Instant, u64)>,
    pub(super) seen: DatabaseUsage,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DatabaseUsage {
    /// Page tables of all processes of the database, at the end.
    pub(super) page_tables: Option<Bytes>,
    /// Pages of a server's cache at the end.
    pub(super) pages: Option<Vec<PageUsage>>,
    pub(super) counted: Option<(TranslationTotals, CountedEvents)>,
    /// Reason why the processor did not count, if it was to.
    pub(super) why_not_counted: Option<String>,
    /// Rate of the concurrent copy, in bytes a second.
    pub(super) copied_per_second: Option<f64>,
}

/// The processor events that counted, in user mode, in one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CountedEvents {
    cycles: String,
    instructions: String,
    /// Misses of the data TLB, or page-table walks if the processor counts them. Missing if neither is
    /// counted.
    tlb_misses: Option<String>,
    /// Reason why neither is counted.
    tlb_misses_error: Option<String>,
    /// Share of time in which the events had registers, above 0 to 1; counts are scaled up by it.
    share_of_time: Option<f64>,
}

impl CountedEvents {
    /// Describes the events that counted, and those that did not.
    pub(super) fn in_words(&self) -> String {
        let share = self.share_of_time.filter(|share| *share < 0.995);
        let share = share.map_or_else(String::new, |share| {
            format!(", for {:.0} % of the time and scaled up", 100.0 * share)
        });
        let misses = match (&self.tlb_misses, &self.tlb_misses_error) {
            (Some(event), _) => format!(", {event}"),
            (None, error) => {
                let why = error.as_deref().unwrap_or("unknown reason");
                format!("; TLB misses and page table walks are not counted here: {why}")
            }
        };
        format!(
            "translation: counted by the processor while the load ran, by the events {}, {}{misses}{share}",
            self.cycles, self.instructions
        )
    }
}

impl<'a> DatabaseWatcher<'a> {
    pub(super) fn new(processes: WatchedProcesses<'a>, root: &'a Root) -> DatabaseWatcher<'a> {
        DatabaseWatcher {
            root,
            processes,
            count: false,
            copied: None,
            counting: None,
            copied_before: None,
            seen: DatabaseUsage::default(),
        }
    }

    fn pids(&self) -> Vec<u32> {
        match &self.processes {
            WatchedProcesses::ExternalServer => Vec::new(),
            WatchedProcesses::Own => vec![std::process::id()],
            WatchedProcesses::DatabaseServer { pid, .. } => tree(self.root, *pid),
        }
    }
}

impl MeasurementObserver for DatabaseWatcher<'_> {
    fn begins(&mut self) {
        if self.count {
            let pids: Vec<Pid> = self.pids().into_iter().map(Pid).collect();
            self.counting = Some(TranslationCounters::open(&pids));
        }
        let copied = self.copied.and_then(|copied| copied());
        self.copied_before = copied.map(|bytes| (Instant::now(), bytes));
    }

    fn ends(&mut self) {
        let copied = self.copied.and_then(|copied| copied());
        let copied = copied.zip(self.copied_before);
        self.seen.copied_per_second = copied.map(|(bytes, (since, before))| {
            // A copy of minutes is far below 2^52 bytes.
            let bytes = bytes.saturating_sub(before) as f64;
            bytes / since.elapsed().as_secs_f64()
        });
        let counting = self.counting.take();
        match counting.map(|started| started.and_then(counted)) {
            Some(Ok(counted)) => self.seen.counted = Some(counted),
            Some(Err(error)) => self.seen.why_not_counted = Some(error.to_string()),
            None => {}
        }
        let pids = self.pids();
        self.seen.page_tables = page_tables(self.root, &pids);
        if let WatchedProcesses::DatabaseServer { host, shared, .. } = &self.processes {
            let kernel = Kernel::new();
            self.seen.pages = cache_pages(self.root, &kernel, host, &pids, *shared);
        }
    }
}

fn counted(
    mut counters: TranslationCounters,
) -> Result<(TranslationTotals, CountedEvents), MetricError> {
    let totals = counters.totals()?;
    let misses = counters.misses.map(|event| event.name.to_owned());
    let by = CountedEvents {
        cycles: CYCLES.name.to_owned(),
        instructions: INSTRUCTIONS.name.to_owned(),
        tlb_misses: misses.clone().ok(),
        tlb_misses_error: misses.err(),
        share_of_time: totals.counted_share,
    };
    Ok((totals, by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::oltp::rows::of_run;
    use crate::kits::tpcc::DriverResult;

    /// Returns a quantity of a run of 1000 transactions in 10 s.
    fn value(seen: &DatabaseUsage, name: &str) -> Option<f64> {
        let outcome = DriverResult {
            seconds: 10.0,
            kinds: Default::default(),
            counters: Default::default(),
            counted: 1000,
            usage: Default::default(),
        };
        let mut all = of_run(&outcome, seen).into_iter();
        all.find(|(quantity, _)| quantity.name == name)
            .map(|(_, value)| value)
    }

    #[test]
    fn what_is_not_looked_at_is_not_known() {
        let root = Root::live();
        let copied = || Some(7);
        let mut elsewhere = DatabaseWatcher::new(WatchedProcesses::ExternalServer, &root);
        elsewhere.copied = Some(&copied);
        elsewhere.begins();
        elsewhere.ends();
        let seen = &elsewhere.seen;
        assert_eq!(seen.why_not_counted, None);
        assert_eq!(value(seen, "page tables"), None);
        // The copier has copied nothing meanwhile, which differs from unknown.
        assert_eq!(value(seen, "copied beside, a second"), Some(0.0));
        assert!(seen.pages.is_none() && seen.counted.is_none());
    }

    #[test]
    fn of_this_process_it_counts_or_says_why_not() {
        let root = Root::live();
        let mut own = DatabaseWatcher::new(WatchedProcesses::Own, &root);
        own.count = true;
        own.begins();
        let work: u64 = (0..1_000_000u64).fold(0, |a, b| a ^ b.wrapping_mul(a | 1));
        assert!(work != 1);
        own.ends();
        let seen = &own.seen;
        assert!(value(seen, "page tables").unwrap() > 0.0);
        let counted = value(seen, "cycles an instruction");
        assert_ne!(
            counted.is_some(),
            seen.why_not_counted.is_some(),
            "{seen:?}"
        );
        // An uncounted value is not 0.
        assert_eq!(seen.counted.is_some(), counted.is_some());
        let misses = seen
            .counted
            .as_ref()
            .and_then(|(_, by)| by.tlb_misses.as_ref());
        let of_misses = value(seen, "TLB misses a transaction");
        assert_eq!(of_misses.is_some(), misses.is_some());
    }

    #[test]
    fn what_was_counted_is_for_each_transaction_and_second() {
        let counted = |misses: Option<f64>| {
            let totals = TranslationTotals {
                cycles: 3e9,
                instructions: 2e9,
                misses,
                counted_share: Some(0.5),
            };
            let by = CountedEvents {
                cycles: "cycles".to_owned(),
                instructions: "instructions".to_owned(),
                tlb_misses: misses.map(|_| "DTLB_WALK".to_owned()),
                tlb_misses_error: misses.is_none().then(|| "it stays at 0".to_owned()),
                share_of_time: Some(0.5),
            };
            DatabaseUsage {
                counted: Some((totals, by)),
                ..DatabaseUsage::default()
            }
        };
        let seen = counted(Some(4e6));
        assert_eq!(value(&seen, "cycles an instruction"), Some(1.5));
        assert_eq!(value(&seen, "TLB misses in 1000 instructions"), Some(2.0));
        assert_eq!(value(&seen, "cycles a transaction"), Some(3e6));
        assert_eq!(value(&seen, "TLB misses a transaction"), Some(4e3));
        assert_eq!(value(&seen, "TLB misses a second"), Some(4e5));
        let said = seen.counted.unwrap().1.in_words();
        assert!(said.contains("DTLB_WALK, for 50 % of the time"), "{said}");
        // A host that counts cycles and no misses shows no zeros for them.
        let seen = counted(None);
        assert_eq!(value(&seen, "cycles an instruction"), Some(1.5));
        assert_eq!(value(&seen, "TLB misses in 1000 instructions"), None);
        assert_eq!(value(&seen, "TLB misses a transaction"), None);
        let said = seen.counted.unwrap().1.in_words();
        assert!(said.contains("not counted here: it stays at 0"), "{said}");
    }
}
