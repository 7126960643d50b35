//! What is seen of the database's processes while the load runs: what they hold at the end, and
//! what the processor counted.

use std::time::Instant;

use hugeleaf_host::{Held, Host, Root};
use hugeleaf_sys::{Pid, RealKernel};
use hugeleaf_units::Bytes;
use hugeleaf_workload::tpcc::Onlooker;

use super::OltpSample;
use super::server::{page_tables, shared_pages, tree};
use crate::metric::{Counted, Metric, MetricError, Reading};
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
    /// What another process has written so far, where one copies beside it.
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
    counted: Option<[f64; 2]>,
    why_not_counted: Option<String>,
    copied_per_second: Option<f64>,
}

/// Counters that run, with what they said at first.
struct Counting {
    cpi: Counted,
    misses: Counted,
    before: [[f64; 2]; 2],
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

    /// Writes down what was seen. Returns why the processor did not count, where it was to.
    pub(super) fn write(&self, sample: &mut OltpSample) -> Option<String> {
        sample.page_tables_bytes = self.seen.page_tables.map(Bytes::get);
        sample.counted = self.seen.counted;
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
            Some(Ok(counted)) => self.seen.counted = counted,
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

impl Counting {
    fn start(pids: &[Pid]) -> Result<Counting, MetricError> {
        let (mut cpi, mut misses) = (Counted::cpi(pids)?, Counted::tlb_misses(pids)?);
        let before = [counts(&mut cpi)?, counts(&mut misses)?];
        Ok(Counting {
            cpi,
            misses,
            before,
        })
    }

    /// Cycles an instruction, and misses in a thousand instructions.
    fn end(mut self) -> Result<Option<[f64; 2]>, MetricError> {
        let now = [counts(&mut self.cpi)?, counts(&mut self.misses)?];
        let ratio = |at: usize| {
            let since = |which: usize| now[at][which] - self.before[at][which];
            (since(1) > 0.0).then(|| since(0) / since(1))
        };
        let both = ratio(0).zip(ratio(1));
        Ok(both.map(|(cycles, misses)| [cycles, 1000.0 * misses]))
    }
}

fn counts(metric: &mut dyn Metric) -> Result<[f64; 2], MetricError> {
    Ok(match metric.read()? {
        Reading::Ratio { above, below } => [above, below],
        _ => [0.0, 0.0],
    })
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
        assert_eq!(elsewhere.write(&mut sample), None);
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
        let why = own.write(&mut sample);
        assert!(sample.page_tables_bytes.unwrap() > 0);
        assert_ne!(
            sample.counted.is_some(),
            why.is_some(),
            "{sample:?} {why:?}"
        );
    }
}
