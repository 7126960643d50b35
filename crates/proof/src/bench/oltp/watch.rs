//! What is seen of the database's processes while the load runs: what they hold at the end, and
//! what the processor counted.

use std::time::Instant;

use hugeleaf_host::{Held, Host, Root};
use hugeleaf_sys::{Pid, RealKernel};
use hugeleaf_units::Bytes;
use hugeleaf_workload::tpcc::Onlooker;

use super::server::{page_tables, shared_pages, tree};
use super::{CountedBy, OltpSample};
use crate::metric::{MetricError, TranslationTotals, Translations};
use crate::subject::SizeHeld;

/// Which processes are the database.
#[derive(Debug, Clone, Copy)]
pub enum Processes<'a> {
    /// Those of a server that we cannot see.
    Elsewhere,
    /// This one.
    Own,
    /// A server of this host, with its children.
    Server {
        /// Its id.
        pid: u32,
        /// The host, to tell page sizes.
        host: &'a Host,
    },
}

/// Looks on. See [`Onlooker`].
pub struct Watcher<'a> {
    root: &'a Root,
    processes: Processes<'a>,
    /// Whether the processor is to count.
    count: bool,
    /// What another process has written so far, where one copies at the same time.
    copied: Option<&'a dyn Fn() -> Option<u64>>,
    counting: Option<Result<Counting, MetricError>>,
    copied_before: Option<(Instant, u64)>,
    seen: Seen,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Default)]
struct Seen {
    page_tables: Option<Bytes>,
    pages: Option<Vec<Held>>,
    counted: Option<(TranslationTotals, CountedBy)>,
    why_not_counted: Option<String>,
    copied_per_second: Option<f64>,
}

/// Counters that run, with what they said at first.
struct Counting {
    counters: Translations,
    before: TranslationTotals,
}

impl<'a> Watcher<'a> {
    /// One that looks at these processes.
    pub fn of(processes: Processes<'a>, root: &'a Root) -> Watcher<'a> {
        Watcher {
            root,
            processes,
            count: false,
            copied: None,
            counting: None,
            copied_before: None,
            seen: Seen::default(),
        }
    }

    /// Has the processor count cycles, instructions and misses of the TLB.
    #[must_use]
    pub fn counting(mut self) -> Watcher<'a> {
        self.count = true;
        self
    }

    /// Looks at what another process has copied so far, too.
    #[must_use]
    pub fn with_copier(mut self, copied: &'a dyn Fn() -> Option<u64>) -> Watcher<'a> {
        self.copied = Some(copied);
        self
    }

    /// What the shared memory of a server lay on at the end.
    pub fn pages(&self) -> Option<&[Held]> {
        self.seen.pages.as_deref()
    }

    /// Writes down what was seen, with what the processor counted for each of so many transactions.
    /// Returns why the processor did not count, where it was to.
    pub(super) fn write(&self, sample: &mut OltpSample, transactions: u64) -> Option<String> {
        sample.page_tables_bytes = self.seen.page_tables.map(Bytes::get);
        if let Some((counted, by)) = &self.seen.counted {
            sample.counted_by = Some(by.clone());
            sample.cycles_an_instruction = over(counted.cycles, counted.instructions);
            let misses = counted.misses.and_then(|m| over(m, counted.instructions));
            let thousandths = misses.map(|each| 1000.0 * each);
            let both = sample.cycles_an_instruction.zip(thousandths);
            sample.counted = both.map(|(cycles, misses)| [cycles, misses]);
            #[allow(clippy::cast_precision_loss)] // a run's transactions are far below 2^52
            let each = |count: f64| over(count, transactions as f64);
            let cost = &mut sample.per_transaction;
            cost.cycles = each(counted.cycles);
            cost.instructions = each(counted.instructions);
            cost.tlb_misses = counted.misses.and_then(each);
            let second = |count: f64| over(count, sample.seconds);
            let cost = &mut sample.per_second;
            cost.cycles = second(counted.cycles);
            cost.instructions = second(counted.instructions);
            cost.tlb_misses = counted.misses.and_then(second);
        }
        sample.copied_bytes_per_second = self.seen.copied_per_second;
        if let Some(pages) = &self.seen.pages {
            sample.pages = SizeHeld::all(pages);
        }
        self.seen.why_not_counted.clone()
    }

    fn pids(&self) -> Vec<u32> {
        match &self.processes {
            Processes::Elsewhere => Vec::new(),
            Processes::Own => vec![std::process::id()],
            Processes::Server { pid, .. } => tree(self.root, *pid),
        }
    }
}

impl Onlooker for Watcher<'_> {
    fn begins(&mut self) {
        if self.count {
            let pids: Vec<Pid> = self.pids().into_iter().map(Pid).collect();
            self.counting = Some(Counting::start(&pids));
        }
        let copied = self.copied.and_then(|copied| copied());
        self.copied_before = copied.map(|bytes| (Instant::now(), bytes));
    }

    fn ends(&mut self) {
        let copied = self.copied.and_then(|copied| copied());
        let copied = copied.zip(self.copied_before);
        self.seen.copied_per_second = copied.map(|(bytes, (since, before))| {
            // A copy of minutes is far below 2^52 bytes.
            #[allow(clippy::cast_precision_loss)]
            let bytes = bytes.saturating_sub(before) as f64;
            bytes / since.elapsed().as_secs_f64()
        });
        let counted = self.counting.take();
        match counted.map(|started| started.and_then(Counting::end)) {
            Some(Ok(counted)) => self.seen.counted = Some(counted),
            Some(Err(error)) => self.seen.why_not_counted = Some(error.to_string()),
            None => {}
        }
        let pids = self.pids();
        self.seen.page_tables = page_tables(self.root, &pids);
        if let Processes::Server { host, .. } = &self.processes {
            self.seen.pages = shared_pages(self.root, &RealKernel::new(), host, &pids);
        }
    }
}

/// A ratio of something that is not 0.
fn over(above: f64, below: f64) -> Option<f64> {
    (below > 0.0).then(|| above / below)
}

impl Counting {
    fn start(pids: &[Pid]) -> Result<Counting, MetricError> {
        let mut counters = Translations::open(pids)?;
        let before = counters.totals()?;
        Ok(Counting { counters, before })
    }

    /// What was counted since, and by which events.
    fn end(mut self) -> Result<(TranslationTotals, CountedBy), MetricError> {
        let now = self.counters.totals()?;
        let (cycles, instructions, misses) = self.counters.events();
        let by = CountedBy {
            cycles: cycles.to_owned(),
            instructions: instructions.to_owned(),
            tlb_misses: misses.ok().map(str::to_owned),
            tlb_misses_error: misses.err().map(str::to_owned),
            share_of_time: now.counted_share,
        };
        let since = TranslationTotals {
            cycles: now.cycles - self.before.cycles,
            instructions: now.instructions - self.before.instructions,
            misses: now.misses.zip(self.before.misses).map(|(a, b)| a - b),
            counted_share: now.counted_share,
        };
        Ok((since, by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_looked_at_is_not_known() {
        let root = Root::live();
        let copied = || Some(7);
        let mut elsewhere = Watcher::of(Processes::Elsewhere, &root).with_copier(&copied);
        elsewhere.begins();
        elsewhere.ends();
        let mut sample = OltpSample::default();
        assert_eq!(elsewhere.write(&mut sample, 1), None);
        assert_eq!(sample.page_tables_bytes, None);
        // It has copied nothing meanwhile, which is not the same as nobody knows.
        assert_eq!(sample.copied_bytes_per_second, Some(0.0));
        assert!(sample.pages.is_empty() && sample.counted.is_none());
    }

    #[test]
    fn of_this_process_it_counts_or_says_why_not() {
        let root = Root::live();
        let mut own = Watcher::of(Processes::Own, &root).counting();
        own.begins();
        let work: u64 = (0..1_000_000u64).fold(0, |a, b| a ^ b.wrapping_mul(a | 1));
        assert!(work != 1);
        own.ends();
        let mut sample = OltpSample::default();
        let why = own.write(&mut sample, 10);
        assert!(sample.page_tables_bytes.unwrap() > 0);
        let counted = sample.cycles_an_instruction;
        assert_ne!(counted.is_some(), why.is_some(), "{sample:?} {why:?}");
        // What is not counted is not 0.
        let by = sample.counted_by.clone();
        assert_eq!(by.is_some(), counted.is_some());
        let misses = by.and_then(|by| by.tlb_misses);
        assert_eq!(
            sample.per_transaction.tlb_misses.is_some(),
            misses.is_some()
        );
    }

    #[test]
    fn what_was_counted_is_for_each_transaction_and_second() {
        let root = Root::live();
        let mut watcher = Watcher::of(Processes::Own, &root);
        let counted = |misses: Option<f64>| {
            let totals = TranslationTotals {
                cycles: 3e9,
                instructions: 2e9,
                misses,
                counted_share: Some(0.5),
            };
            let by = CountedBy {
                cycles: "cycles".to_owned(),
                instructions: "instructions".to_owned(),
                tlb_misses: misses.map(|_| "DTLB_WALK".to_owned()),
                tlb_misses_error: misses.is_none().then(|| "no".to_owned()),
                share_of_time: Some(0.5),
            };
            Some((totals, by))
        };
        watcher.seen.counted = counted(Some(4e6));
        let mut sample = OltpSample {
            seconds: 10.0,
            ..OltpSample::default()
        };
        watcher.write(&mut sample, 1000);
        assert_eq!(sample.counted, Some([1.5, 2.0]));
        assert_eq!(sample.per_transaction.cycles, Some(3e6));
        assert_eq!(sample.per_transaction.tlb_misses, Some(4e3));
        assert_eq!(sample.per_second.tlb_misses, Some(4e5));
        watcher.seen.counted = counted(None);
        let mut sample = OltpSample::default();
        watcher.write(&mut sample, 1000);
        assert_eq!(
            (sample.counted, sample.cycles_an_instruction),
            (None, Some(1.5))
        );
        assert_eq!(sample.per_transaction.tlb_misses, None);
    }
}
