//! Code shared by servers that are started on the pages of an arm: their start program, their pool, their promotion
//! while they run, and the check of its result.

use std::path::Path;

use crate::kits::tpcc::TpccStore;
use hugeleaf_host::{Host, PageUsage};
use hugeleaf_units::{Bytes, PageKind};

use super::background_copy::BackgroundCopy;
use super::pages::OltpPages;
use super::run::run_once;
use super::settings::{DerivedSettings, EventSink, OltpSettings};
use super::watch::{DatabaseWatcher, WatchedProcesses};
use hugeleaf_proof::MedianInterval;
use hugeleaf_proof::bench::{BenchContext, BenchError, NoPromotionReason, promote};
use hugeleaf_proof::result_format::Results;

/// Share of a server's memory that must be on the pages of an arm. Blocks at its ends may contain base pages of
/// neighbouring memory.
const NEARLY_ALL: f64 = 0.99;

/// A server of this host that is about to be driven.
pub(super) struct ServerRun<'a> {
    pub order: &'a OltpSettings,
    pub machine: &'a BenchContext<'a>,
    pub store: &'a dyn TpccStore,
    pub folder: &'a Path,
    pub processes: WatchedProcesses<'a>,
}

impl ServerRun<'_> {
    /// Runs the load once, with a concurrent copy if the order requests one. Reads back whether it was on the pages of
    /// the arm.
    pub fn drive(
        self,
        pages: Option<OltpPages>,
        setup: DerivedSettings,
        progress: EventSink<'_>,
    ) -> Result<Results, BenchError> {
        let (order, machine) = (self.order, self.machine);
        let copier = BackgroundCopy::start(order.copy_beside, self.folder)?;
        let copied = || copier.as_ref()?.copied(machine.root);
        let mut watcher = DatabaseWatcher::new(self.processes, machine.root);
        watcher.copied = Some(&copied);
        watcher.count = pages.is_some() && order.translation;
        let mut run = run_once(self.store, order, setup, machine, &mut watcher, progress)?;
        for seen in &mut run.layouts {
            seen.verified = pages.map(|pages| is_on(&seen.pages, pages, machine.host));
        }
        Ok(run)
    }
}

/// Describes the durations of promotions of the running server, in seconds; `None` if there was none.
pub(super) fn promotion_took(seconds: &[f64]) -> Option<String> {
    let spread = MedianInterval::from_samples(seconds)?;
    Some(format!(
        "promoting the running server took {:.1} s (median of {}), before the load",
        spread.median,
        seconds.len()
    ))
}

/// Promotes a server. MariaDB disables THP for itself, including requests of others, so it is re-enabled.
pub(crate) fn promote_mariadb(program: &Path, pid: u32) -> Result<f64, BenchError> {
    promote(program, &["--switch-thp-on", &pid.to_string()], NOT_WHOLE)
}

/// Error for a server whose cache is private memory: blocks that are not wholly resident are skipped.
const NOT_WHOLE: NoPromotionReason<'static> = (
    "no block of its cache is fully resident, or the kernel does not collapse it",
    "use more data to fill its cache; while it runs, hugeleaf why mariadbd shows the reason",
);

/// Returns true if nearly all memory is on the pages of an arm. `run` uses any huge pages.
pub(crate) fn is_on(held: &[PageUsage], pages: OltpPages, host: &Host) -> bool {
    let sum = |of: &dyn Fn(&&PageUsage) -> bool| -> Bytes {
        held.iter().filter(of).map(|held| held.bytes).sum()
    };
    let arm = pages.arm(host);
    let on = sum(&|held| match pages {
        OltpPages::Run => held.kind != PageKind::Base,
        _ => arm.is_some_and(|arm| held.size == arm.size && held.kind == arm.kind),
    });
    let all = sum(&|_| true);
    // Sizes of memory are far below 2^52 bytes.
    let nearly_all = on.get() as f64 >= NEARLY_ALL * all.get() as f64;
    !all.is_zero() && nearly_all
}

#[cfg(test)]
mod tests {
    use super::*;

    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::Kernel;
    use hugeleaf_units::PageSize;

    #[test]
    fn nearly_all_is_all() {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/x86-4k-two-nodes");
        let host = read_host(&Root::at(fixture), &Kernel::new()).unwrap();
        let held = |size: PageSize, kind, mebibytes: u64| PageUsage {
            size,
            kind,
            bytes: Bytes::from_mib(mebibytes),
        };
        let (base, large) = (host.base_page, host.pmd_page.get().unwrap());
        let small = |mebibytes| held(base, PageKind::Base, mebibytes);
        let thp = |mebibytes| held(large, PageKind::Thp, mebibytes);
        let pool = |mebibytes| held(large, PageKind::Hugetlb, mebibytes);
        let promoted = |held: &[PageUsage]| is_on(held, OltpPages::Promoted, &host);
        assert!(promoted(&[small(10), thp(990)]));
        assert!(!promoted(&[small(11), thp(989)]));
        // Pool pages are not THP, but `run` accepts both; without memory nothing can be determined.
        assert!(!promoted(&[pool(990)]) && is_on(&[pool(990)], OltpPages::Run, &host));
        assert!(!promoted(&[]) && !is_on(&[small(1)], OltpPages::Run, &host));
    }
}
