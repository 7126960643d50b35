//! Findings about THP: off, absent, or allocated with stalls.

use hugeleaf_host::{Host, ThpMemoryKind};
use hugeleaf_units::Bytes;

use super::Finding;
use crate::advice::{Setting, SettingChange};
use crate::list;

/// Minimum rate of compaction stalls per second since boot, for a finding: thousands a day.
const STALLS_A_SECOND: f64 = 0.1;
/// Clearing a huge page of this size takes tens of milliseconds, and touching one byte allocates all of it.
const TOO_LARGE: Bytes = Bytes(128 << 20);
/// The `defrag` value with which only memory that requests huge pages waits for them. Other memory gets them later.
pub(crate) const DEFRAG_WITHOUT_STALLS: &str = "defer+madvise";

/// True if every page fault that could get a huge page waits for compaction.
pub(crate) fn defrag_stalls(host: &Host) -> bool {
    let Some(thp) = host.thp.known() else {
        return false;
    };
    let mut orders = thp.orders.iter();
    thp.defrag.text() == Some("always")
        && orders.any(|order| order.is_on(thp, ThpMemoryKind::Private))
}

/// Finds page faults that wait for compaction, many since boot or possible at each fault.
pub fn compaction(host: &Host) -> Option<Finding> {
    let set = SettingChange::new(Setting::thp("defrag"), DEFRAG_WITHOUT_STALLS).check(host);
    let does_stall = defrag_stalls(host);
    let always = "transparent_hugepage/defrag is always: each page fault that could get a huge \
                  page waits for memory compaction.";
    let Some((stalls, rate)) = stalls(host).filter(|(_, rate)| *rate >= STALLS_A_SECOND) else {
        return does_stall.then(|| Finding::note("defrag-always", always, set));
    };
    let failed = host.compaction.failures.get().unwrap_or_default();
    let pressure = host
        .compaction
        .pressure
        .get()
        .map_or(String::new(), |part| {
            format!(" In the last minute some task stalled for memory {part:.1} % of the time.")
        });
    let text = format!(
        "Allocations waited for memory compaction {stalls} times since boot, {rate:.1} times a \
         second on average; {failed} of these got no huge page.{pressure}"
    );
    Some(match does_stall {
        true => Finding::warning("compaction-stalls", format!("{text} {always}"), set),
        false => Finding::warning("compaction-stalls", text, "hugeleaf trace"),
    })
}

/// Returns the compaction stalls since boot, and their average per second.
fn stalls(host: &Host) -> Option<(u64, f64)> {
    let (stalls, up) = (host.compaction.stalls.get()?, host.compaction.uptime.get()?);
    let seconds = up.as_secs_f64();
    (seconds > 0.0).then(|| (stalls, stalls as f64 / seconds))
}

/// Finds huge pages of hundreds of megabytes that any program gets by touching one byte.
pub fn large(host: &Host) -> Option<Finding> {
    let text = too_large(host)?;
    let file = Setting::file(host.thp_setting(ThpMemoryKind::Private).0);
    let change = SettingChange::new(file, "madvise").check(host);
    Some(Finding::warning("thp-too-large", text, change))
}

pub(crate) fn too_large(host: &Host) -> Option<String> {
    let pmd = host
        .pmd_page
        .get()
        .filter(|size| size.bytes() >= TOO_LARGE)?;
    let is_always = host.thp_setting(ThpMemoryKind::Private).1.text() == Some("always");
    is_always.then(|| {
        format!(
            "Huge pages are {pmd} with base pages of {}, and every program gets them (always). A \
             program that touches one byte of an aligned {pmd} may hold all of it. With madvise, \
             only programs that request them do.",
            host.base_page
        )
    })
}

/// Describes `max_ptes_none` where sizes below the PMD size treat it as 0 (mm/khugepaged.c, Linux 7.2: only the extremes count).
pub(crate) fn ignored_max_ptes_none(host: &Host) -> Option<String> {
    let (thp, pmd) = (host.thp.known()?, host.pmd_page.get()?);
    let pages = thp.khugepaged.max_ptes_none.get()?.get();
    let most = pmd.ratio_to(host.base_page) - 1;
    let sizes = thp.khugepaged_sizes(Some(pmd)).into_iter();
    let smaller: Vec<_> = sizes.filter(|size| *size < pmd).collect();
    let is_ignored = thp.khugepaged.collapses_small_orders && !smaller.is_empty();
    (is_ignored && pages != 0 && pages != most).then(|| {
        format!(
            "khugepaged/max_ptes_none is {pages}, which applies to {pmd} pages only. For {}, this \
             kernel accepts only 0 and {most}, and treats {pages} as 0.",
            list(smaller)
        )
    })
}

/// Finds THP set to `never` for every size of private and shared memory.
pub fn off(host: &Host) -> Option<Finding> {
    let thp = host.thp.known()?;
    let uses = [ThpMemoryKind::Private, ThpMemoryKind::Shared];
    let any = thp
        .orders
        .iter()
        .any(|order| uses.iter().any(|of| order.is_on(thp, *of)));
    // An unreadable knob may be on.
    let unknown = thp.enabled.error().is_some() || thp.shmem_enabled.error().is_some();
    if any || unknown || thp.orders.is_empty() {
        return None;
    }
    Some(Finding::note(
        "thp-off",
        "THP is never for every size: programs that request it with madvise get base pages \
         without an error. Only hugetlb and hugeleaf promote provide huge pages.",
        SettingChange::new(Setting::file(ThpMemoryKind::Private.file()), "madvise").check(host),
    ))
}

pub fn none(host: &Host) -> Option<Finding> {
    (host.thp.is_absent() && host.pools.is_empty()).then(|| {
        Finding::note(
            "no-large-pages",
            "This kernel has no huge pages: neither THP nor hugetlb.",
            "grep -E 'CONFIG_(TRANSPARENT_HUGEPAGE|HUGETLBFS)' /boot/config-$(uname -r)",
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::testing::{healthy, ids, size, thp, word};
    use super::*;
    use hugeleaf_host::Fact;

    #[test]
    fn never_everywhere() {
        let mut host = healthy();
        thp(&mut host).enabled = word("never");
        assert_eq!(off(&host), None);
        thp(&mut host).shmem_enabled = word("never");
        assert_eq!(ids(off(&host)), ["thp-off"]);
        thp(&mut host).orders[0].anon = word("madvise");
        assert_eq!(off(&host), None);
    }

    #[test]
    fn stalls_are_counted_over_the_time_since_boot() {
        let mut host = healthy();
        host.compaction.stalls = Fact::Known(9_000_000);
        // Without the uptime, a count says nothing.
        assert_eq!(compaction(&host), None);
        host.compaction.uptime = Fact::Known(Duration::from_secs(90_000_001));
        assert_eq!(compaction(&host), None);
        host.compaction.uptime = Fact::Known(Duration::from_secs(30 * 24 * 3600));
        host.compaction.pressure = Fact::Known(2.5);
        let found = compaction(&host).unwrap();
        assert_eq!(
            (found.id, &*found.command),
            ("compaction-stalls", "hugeleaf trace")
        );
        assert!(
            found
                .text
                .contains("9000000 times since boot, 3.5 times a second")
        );
        assert!(found.text.contains("2.5 % of the time"));
        thp(&mut host).defrag = word("always");
        let found = compaction(&host).unwrap();
        assert!(found.command.starts_with("echo defer+madvise > "));
    }

    #[test]
    fn defrag_that_stalls_each_fault() {
        let mut host = healthy();
        thp(&mut host).defrag = word("always");
        assert_eq!(ids(compaction(&host)), ["defrag-always"]);
        thp(&mut host).enabled = word("never");
        assert_eq!(compaction(&host), None);
    }

    #[test]
    fn huge_pages_of_hundreds_of_megabytes_for_all() {
        let mut host = healthy();
        host.base_page = size("64K");
        host.pmd_page = Fact::Known(size("512M"));
        thp(&mut host).orders[1].size = size("512M");
        assert_eq!(large(&host), None);
        thp(&mut host).enabled = word("always");
        let found = large(&host).unwrap();
        assert!(found.text.contains("512M with base pages of 64K"));
        assert!(found.command.ends_with("transparent_hugepage/enabled"));
        thp(&mut host).orders[1].anon = word("madvise");
        assert_eq!(large(&host), None);
        // 2M pages are no problem.
        let mut host = healthy();
        thp(&mut host).enabled = word("always");
        assert_eq!(large(&host), None);
    }

    #[test]
    fn neither_kind() {
        let mut host = healthy();
        host.thp = Fact::Absent;
        assert_eq!(none(&host), None);
        host.pools.clear();
        assert_eq!(ids(none(&host)), ["no-large-pages"]);
    }
}
