//! Settings that have no effect with this kernel and its other settings.

use hugeleaf_host::{
    Fact, Host, Thp, ThpMemoryKind, ThpSizeSettings, pool_file, thp_file, thp_is_on,
};
use hugeleaf_units::{PageSize, Pages};

use super::thp::ignored_max_ptes_none;
use super::{Finding, shell_word};
use crate::advice::{Setting, SettingChange};
use crate::list;

/// The values of the top-level shared-memory setting that override every size.
const OVERRULES: [&str; 2] = ["force", "deny"];

/// Returns an enabled top-level setting that no size inherits. A size with an unreadable setting
/// may inherit it.
fn uninherited(host: &Host, of: ThpMemoryKind) -> Option<(&str, &ThpSizeSettings)> {
    let thp = host.thp.known()?;
    let top = thp
        .global_setting(of)
        .text()
        .filter(|word| thp_is_on(Some(word)))?;
    let may_inherit = |order: &ThpSizeSettings| match order.own_setting(of) {
        Fact::Known(own) => own == "inherit",
        Fact::Absent => false,
        Fact::Unreadable(_) => true,
    };
    let order = host.full_thp()?;
    (!thp.orders.iter().any(may_inherit)).then_some((top, order))
}

/// Finds `enabled` on, although no size inherits it or is on.
pub fn anon_top(host: &Host) -> Option<Finding> {
    let (top, full) = uninherited(host, ThpMemoryKind::Private)?;
    Some(Finding::warning(
        "dead-enabled",
        format!("transparent_hugepage/enabled is {top} and has no effect: no size inherits it."),
        SettingChange::new(Setting::file(full.file(ThpMemoryKind::Private)), "inherit").check(host),
    ))
}

/// Finds `shmem_enabled` on, although no size inherits it. It then affects memfd and similar memory
/// only, not the memory that servers share between processes (mm/shmem.c,
/// shmem_allowable_huge_orders).
pub fn shmem_top(host: &Host) -> Option<Finding> {
    let (top, full) = uninherited(host, ThpMemoryKind::Shared)?;
    (!OVERRULES.contains(&top)).then(|| {
        Finding::warning(
            "dead-shmem-enabled",
            format!(
                "transparent_hugepage/shmem_enabled is {top} and has no effect on shared \
                 anonymous memory: no size inherits it."
            ),
            SettingChange::new(Setting::file(full.file(ThpMemoryKind::Shared)), "inherit")
                .check(host),
        )
    })
}

/// Finds a size below the PMD size that inherits a top-level `never`. The PMD size inherits by
/// default, so that says nothing.
pub fn inherit(host: &Host, of: ThpMemoryKind, better: &str) -> Option<Finding> {
    let thp = host.thp.known()?;
    let top = thp
        .global_setting(of)
        .text()
        .filter(|word| !thp_is_on(Some(word)))?;
    let below = |order: &&ThpSizeSettings| Some(order.size) != host.pmd_page.get();
    let inherits = |order: &&ThpSizeSettings| order.own_setting(of).text() == Some("inherit");
    let orders = thp.orders.iter().filter(below).filter(inherits);
    let inheriting: Vec<&ThpSizeSettings> = orders.collect();
    Some(Finding::warning(
        "dead-inherit",
        format!(
            "{} inherit{} transparent_hugepage/{}, which is {top}: no effect.",
            list(inheriting.iter().map(|order| order.size)),
            if inheriting.len() == 1 { "s" } else { "" },
            of.knob()
        ),
        SettingChange::new(Setting::file(inheriting.first()?.file(of)), better).check(host),
    ))
}

/// True if any size is on for private memory, or a setting is unknown.
fn anon_is_on(thp: &Thp) -> bool {
    let mut orders = thp.orders.iter();
    thp.enabled.error().is_some()
        || orders.any(|o| o.is_on(thp, ThpMemoryKind::Private) || o.anon.error().is_some())
}

/// Finds `defrag` set to work harder than the default, although no size is on.
pub fn defrag(host: &Host) -> Option<Finding> {
    let thp = host.thp.known()?;
    let set = thp.defrag.text()?;
    if matches!(set, "madvise" | "never") || anon_is_on(thp) {
        return None;
    }
    Some(Finding::warning(
        "dead-defrag",
        format!(
            "transparent_hugepage/defrag is {set} and has no effect: THP is never for private \
             memory."
        ),
        SettingChange::new(Setting::file(ThpMemoryKind::Private.file()), "madvise").check(host),
    ))
}

/// Finds khugepaged tuned but not running. It runs if a size that it makes is on for private
/// memory, or the PMD size is on for shared memory.
pub fn khugepaged(host: &Host) -> Option<Finding> {
    let (thp, order) = (host.thp.known()?, host.full_thp()?);
    let pmd = order.size;
    let unknown = thp.enabled.error().is_some() || thp.shmem_enabled.error().is_some();
    let makes = |o: &&ThpSizeSettings| o.size == pmd || thp.khugepaged.collapses_small_orders;
    let mut made = thp.orders.iter().filter(makes);
    if unknown
        || made.any(|o| o.is_on(thp, ThpMemoryKind::Private))
        || order.is_on(thp, ThpMemoryKind::Shared)
    {
        return None;
    }
    // The kernel's defaults (mm/khugepaged.c): 8 huge pages per scan, all but one page missing.
    let pages = pmd.ratio_to(host.base_page);
    let k = &thp.khugepaged;
    let usual = [
        (
            "pages_to_scan",
            k.pages_to_scan.get().map(Pages::get),
            pages * 8,
        ),
        (
            "max_ptes_none",
            k.max_ptes_none.get().map(Pages::get),
            pages - 1,
        ),
        ("scan_sleep_millisecs", k.scan_sleep_millis.get(), 10_000),
        ("alloc_sleep_millisecs", k.alloc_sleep_millis.get(), 60_000),
    ];
    let tuned = usual
        .iter()
        .filter(|(_, is, usual)| is.is_some_and(|is| is != *usual));
    let tuned: Vec<&str> = tuned.map(|(name, ..)| *name).collect();
    if tuned.is_empty() {
        return None;
    }
    Some(Finding::warning(
        "dead-khugepaged",
        format!(
            "khugepaged is tuned ({}) but does not run: {pmd} pages are never for private and for \
             shared memory.",
            tuned.join(", ")
        ),
        SettingChange::new(Setting::file(ThpMemoryKind::Private.file()), "madvise").check(host),
    ))
}

/// Finds `max_ptes_none` between its extremes, which affects the PMD size only.
pub fn max_ptes_none(host: &Host) -> Option<Finding> {
    let command = format!("cat {}", thp_file("khugepaged/max_ptes_none"));
    ignored_max_ptes_none(host).map(|text| Finding::note("dead-max-ptes-none", text, command))
}

pub fn shm_group(host: &Host) -> Option<Finding> {
    let group = host
        .limits
        .hugetlb_shm_group
        .get()
        .filter(|group| *group != 0)?;
    let first = host.totals().next()?.size;
    let has_none = |fact: &Fact<Pages>| matches!(fact, Fact::Known(Pages(0)) | Fact::Absent);
    if !host
        .totals()
        .all(|pool| has_none(&pool.total) && has_none(&pool.overcommit))
    {
        return None;
    }
    let size = host.memory.default_hugetlb_page.get().unwrap_or(first);
    let file = pool_file(size, None, "nr_overcommit_hugepages");
    Some(Finding::warning(
        "dead-shm-group",
        format!("hugetlb_shm_group lets group {group} use hugetlb pages, but every pool is empty."),
        SettingChange::new(Setting::file(file), 1).check(host),
    ))
}

pub fn boot(host: &Host) -> Option<Finding> {
    let boot = host.limits.boot.text().unwrap_or_default();
    let is_dead = |word: &&str| {
        let Some((name, value)) = word.split_once('=') else {
            return false;
        };
        match name {
            "hugepagesz" | "default_hugepagesz" => {
                let size = value.parse::<PageSize>().ok();
                !host.pools.iter().any(|pool| Some(pool.size) == size)
            }
            "hugepages" => host.pools.is_empty(),
            "transparent_hugepage" | "transparent_hugepage_shmem" | "thp_anon" | "thp_shmem" => {
                host.thp.is_absent()
            }
            _ => false,
        }
    };
    let words: Vec<&str> = boot.split_ascii_whitespace().filter(is_dead).collect();
    if words.is_empty() {
        return None;
    }
    let sizes = list(host.totals().map(|pool| pool.size));
    let has = match (sizes.is_empty(), host.thp.is_absent()) {
        (true, true) => "neither THP nor hugetlb".to_owned(),
        (true, false) => "no hugetlb".to_owned(),
        (false, true) => format!("no THP, and hugetlb pages of {sizes}"),
        (false, false) => format!("hugetlb pages of {sizes}"),
    };
    Some(Finding::warning(
        "dead-boot",
        format!(
            "On the kernel's command line, {} has no effect: this kernel on this machine has \
             {has}.",
            words.join(" ")
        ),
        "cat /proc/cmdline",
    ))
}

pub fn sysctl(host: &Host) -> Option<Finding> {
    let mut settings = host.limits.sysctl.entries().iter();
    let s = settings
        .find(|s| s.key.starts_with("vm.") && !matches!(s.value.as_str(), "" | "0"))
        .filter(|_| host.pools.is_empty())?;
    Some(Finding::warning(
        "dead-sysctl",
        format!(
            "{} sets {} = {}, which has no effect: this kernel has no hugetlb.",
            s.path, s.key, s.value
        ),
        format!("grep -n '{}' {}", s.key, shell_word(&s.path)),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::{healthy, ids, pool, thp, word};
    use super::*;
    use hugeleaf_host::SysctlLine;

    #[test]
    fn enabled_without_a_size_that_inherits_it() {
        let mut host = healthy();
        thp(&mut host).orders[1].anon = word("never");
        assert_eq!(ids(anon_top(&host)), ["dead-enabled"]);
        thp(&mut host).orders[0].anon = word("inherit");
        assert_eq!(anon_top(&host), None);
        thp(&mut host).orders[0].anon = word("never");
        thp(&mut host).enabled = word("never");
        assert_eq!(anon_top(&host), None);
    }

    #[test]
    fn shmem_enabled_without_a_size_that_inherits_it() {
        let mut host = healthy();
        thp(&mut host).orders[1].shmem = word("never");
        let found = shmem_top(&host).unwrap();
        assert!(found.text.contains("is advise and has no effect"));
        assert!(found.command.ends_with("hugepages-2048kB/shmem_enabled"));
        // force overrides the sizes, so it has an effect.
        thp(&mut host).shmem_enabled = word("force");
        assert_eq!(shmem_top(&host), None);
    }

    #[test]
    fn a_size_that_inherits_never() {
        let mut host = healthy();
        thp(&mut host).enabled = word("never");
        assert_eq!(inherit(&host, ThpMemoryKind::Private, "madvise"), None);
        thp(&mut host).orders[0].anon = word("inherit");
        let found = inherit(&host, ThpMemoryKind::Private, "madvise").unwrap();
        assert_eq!(
            found.text,
            "64K inherits transparent_hugepage/enabled, which is never: no effect."
        );
        thp(&mut host).enabled = word("madvise");
        assert_eq!(inherit(&host, ThpMemoryKind::Private, "madvise"), None);
    }

    #[test]
    fn defrag_while_never() {
        let mut host = healthy();
        thp(&mut host).defrag = word("always");
        assert_eq!(defrag(&host), None);
        thp(&mut host).enabled = word("never");
        assert_eq!(ids(defrag(&host)), ["dead-defrag"]);
        thp(&mut host).defrag = word("madvise");
        assert_eq!(defrag(&host), None);
    }

    #[test]
    fn khugepaged_tuned_while_the_pmd_size_is_off() {
        let mut host = healthy();
        thp(&mut host).khugepaged.pages_to_scan = Fact::Known(Pages(100_000));
        assert_eq!(khugepaged(&host), None);
        thp(&mut host).enabled = word("never");
        // khugepaged still runs for shared memory.
        assert_eq!(khugepaged(&host), None);
        thp(&mut host).shmem_enabled = word("never");
        assert!(
            khugepaged(&host)
                .unwrap()
                .text
                .contains("tuned (pages_to_scan)")
        );
        // From Linux 7.2 khugepaged makes smaller sizes too.
        thp(&mut host).orders[0].anon = word("always");
        assert!(khugepaged(&host).is_some());
        thp(&mut host).khugepaged.collapses_small_orders = true;
        assert_eq!(khugepaged(&host), None);
        thp(&mut host).khugepaged.pages_to_scan = Fact::Known(Pages(4096));
        assert_eq!(khugepaged(&host), None);
    }

    #[test]
    fn max_ptes_none_of_which_smaller_sizes_know_the_ends_only() {
        let mut host = healthy();
        let set = |host: &mut _, pages| {
            thp(host).khugepaged.max_ptes_none = Fact::Known(Pages(pages));
            ids(max_ptes_none(host))
        };
        thp(&mut host).orders[0].anon = word("always");
        assert_eq!(set(&mut host, 255), [""; 0]);
        thp(&mut host).khugepaged.collapses_small_orders = true;
        assert_eq!(set(&mut host, 255), ["dead-max-ptes-none"]);
        assert_eq!(set(&mut host, 0), [""; 0]);
        assert_eq!(set(&mut host, 511), [""; 0]);
        thp(&mut host).orders[0].anon = word("never");
        assert_eq!(set(&mut host, 255), [""; 0]);
    }

    #[test]
    fn a_group_for_empty_pools() {
        let mut host = healthy();
        host.limits.hugetlb_shm_group = Fact::Known(1001);
        assert_eq!(shm_group(&host), None);
        host.pools = vec![pool("2M", None, 0)];
        assert_eq!(ids(shm_group(&host)), ["dead-shm-group"]);
        host.limits.hugetlb_shm_group = Fact::Known(0);
        assert_eq!(shm_group(&host), None);
    }

    #[test]
    fn boot_parameters_for_what_is_not_there() {
        let mut host = healthy();
        host.limits.boot = word("transparent_hugepage=always hugepagesz=1G hugepages=4");
        assert_eq!(boot(&host), None);
        host.limits.boot = word("hugepagesz=16G hugepages=4");
        assert!(boot(&host).unwrap().text.contains("16G has no effect"));
        host.limits.boot = word("thp_anon=64K:madvise");
        assert_eq!(boot(&host), None);
        host.thp = Fact::Absent;
        assert!(boot(&host).unwrap().text.contains("has no THP"));
    }

    #[test]
    fn sysctl_without_hugetlb() {
        let mut host = healthy();
        host.limits.sysctl = Fact::Known(vec![SysctlLine {
            path: "/etc/sysctl.conf".to_owned(),
            key: "vm.nr_hugepages".to_owned(),
            value: "4096".to_owned(),
        }]);
        assert_eq!(sysctl(&host), None);
        host.pools.clear();
        assert_eq!(ids(sysctl(&host)), ["dead-sysctl"]);
    }
}
