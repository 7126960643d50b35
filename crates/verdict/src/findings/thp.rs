//! Transparent huge pages as a whole: off, or not there.

use hugeleaf_host::Host;

use super::{Finding, Severity, is_on, thp_file};

/// Every size is `never` for private and for shared memory.
pub fn off(host: &Host) -> Vec<Finding> {
    let Some(thp) = host.thp.known() else {
        return Vec::new();
    };
    let any = thp
        .orders
        .iter()
        .any(|order| is_on(order.anon_in_force(thp)) || is_on(order.shmem_in_force(thp)));
    // A knob that could not be read may be on.
    let unknown = thp.enabled.error().is_some() || thp.shmem_enabled.error().is_some();
    if any || unknown || thp.orders.is_empty() {
        return Vec::new();
    }
    vec![Finding::new(
        "thp-off",
        Severity::Note,
        "THP is never for every size: programs that ask for it with madvise get base pages, in \
         silence. Only hugetlb and hugeleaf promote give large pages."
            .to_owned(),
        format!("echo madvise > {}", thp_file("enabled")),
    )]
}

/// A kernel with neither THP nor hugetlb.
pub fn none(host: &Host) -> Vec<Finding> {
    if !host.thp.is_absent() || !host.pools.is_empty() {
        return Vec::new();
    }
    vec![Finding::new(
        "no-large-pages",
        Severity::Note,
        "This kernel has no large pages at all: neither THP nor hugetlb.".to_owned(),
        "grep -E 'CONFIG_(TRANSPARENT_HUGEPAGE|HUGETLBFS)' /boot/config-$(uname -r)".to_owned(),
    )]
}

#[cfg(test)]
mod tests {
    use super::super::testing::{healthy, ids, thp, word};
    use super::*;
    use hugeleaf_host::Fact;

    #[test]
    fn never_everywhere() {
        let mut host = healthy();
        thp(&mut host).enabled = word("never");
        assert_eq!(off(&host), []);
        thp(&mut host).shmem_enabled = word("never");
        assert_eq!(ids(&off(&host)), ["thp-off"]);
        thp(&mut host).orders[0].anon = word("madvise");
        assert_eq!(off(&host), []);
    }

    #[test]
    fn neither_kind() {
        let mut host = healthy();
        host.thp = Fact::Absent;
        assert_eq!(none(&host), []);
        host.pools.clear();
        assert_eq!(ids(&none(&host)), ["no-large-pages"]);
    }
}
