//! Transparent huge pages as a whole: off, or not there.

use hugeleaf_host::{Host, ThpUse};

use super::Finding;
use crate::advice::{Change, Setting};

/// Every size is `never` for private and for shared memory.
pub fn off(host: &Host) -> Option<Finding> {
    let thp = host.thp.known()?;
    let uses = [ThpUse::Private, ThpUse::Shared];
    let any = thp
        .orders
        .iter()
        .any(|order| uses.iter().any(|of| order.is_on(thp, *of)));
    // A knob that could not be read may be on.
    let unknown = thp.enabled.error().is_some() || thp.shmem_enabled.error().is_some();
    if any || unknown || thp.orders.is_empty() {
        return None;
    }
    Some(Finding::note(
        "thp-off",
        "THP is never for every size: programs that ask for it with madvise get base pages, in \
         silence. Only hugetlb and hugeleaf promote give large pages.",
        Change::new(Setting::file(ThpUse::Private.file()), "madvise").check(host),
    ))
}

pub fn none(host: &Host) -> Option<Finding> {
    (host.thp.is_absent() && host.pools.is_empty()).then(|| {
        Finding::note(
            "no-large-pages",
            "This kernel has no large pages at all: neither THP nor hugetlb.",
            "grep -E 'CONFIG_(TRANSPARENT_HUGEPAGE|HUGETLBFS)' /boot/config-$(uname -r)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::{healthy, ids, thp, word};
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
    fn neither_kind() {
        let mut host = healthy();
        host.thp = Fact::Absent;
        assert_eq!(none(&host), None);
        host.pools.clear();
        assert_eq!(ids(none(&host)), ["no-large-pages"]);
    }
}
