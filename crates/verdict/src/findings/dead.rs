//! Settings that are made and have no effect on this kernel as it is set.

use hugeleaf_host::{Fact, Host, Thp, ThpOrder};
use hugeleaf_units::{PageSize, Pages};

use super::{Finding, Severity, is_on, pool_file, shell_word, thp_file, thp_size_file};

/// The words by which shared memory's top-level knob overrules every size.
const OVERRULES: [&str; 2] = ["force", "deny"];

/// Picks one of a size's two knobs.
type Knob = fn(&ThpOrder) -> &Fact<String>;

fn dead(id: &'static str, text: String, command: String) -> Vec<Finding> {
    vec![Finding::new(id, Severity::Warning, text, command)]
}

/// Whether some size has this setting, or one that is not known.
fn any(thp: &Thp, knob: Knob, word: &str) -> bool {
    thp.orders.iter().any(|order| match knob(order) {
        Fact::Known(own) => own == word,
        Fact::Absent => false,
        Fact::Unreadable(_) => true,
    })
}

/// `enabled` is on, and no size inherits it or is on by itself.
pub fn anon_top(host: &Host) -> Vec<Finding> {
    let (Some(thp), Some(pmd)) = (host.thp.known(), host.pmd_page.get()) else {
        return Vec::new();
    };
    let top = thp.enabled.known().map(String::as_str);
    if thp.orders.is_empty() || !is_on(top) || any(thp, |o| &o.anon, "inherit") {
        return Vec::new();
    }
    dead(
        "dead-enabled",
        format!(
            "transparent_hugepage/enabled is {} and dead: no size inherits it.",
            top.unwrap_or_default()
        ),
        format!("echo inherit > {}", thp_size_file(pmd, "enabled")),
    )
}

/// `shmem_enabled` is on, and no size inherits it: then it speaks for memfd and the like only, and
/// not for what servers share between their processes (mm/shmem.c, shmem_allowable_huge_orders).
pub fn shmem_top(host: &Host) -> Vec<Finding> {
    let (Some(thp), Some(pmd)) = (host.thp.known(), host.pmd_page.get()) else {
        return Vec::new();
    };
    let top = thp.shmem_enabled.known().map(String::as_str);
    let overruled = top.is_some_and(|word| OVERRULES.contains(&word));
    if thp.orders.is_empty() || !is_on(top) || overruled || any(thp, |o| &o.shmem, "inherit") {
        return Vec::new();
    }
    dead(
        "dead-shmem-enabled",
        format!(
            "transparent_hugepage/shmem_enabled is {} and dead for shared anonymous memory: no size \
             inherits it.",
            top.unwrap_or_default()
        ),
        format!("echo inherit > {}", thp_size_file(pmd, "shmem_enabled")),
    )
}

/// A size below the PMD's inherits a top-level knob that is `never`. The PMD size inherits by
/// default, so that one says nothing.
pub fn inherit(host: &Host) -> Vec<Finding> {
    let Some(thp) = host.thp.known() else {
        return Vec::new();
    };
    let kinds: [(&str, &Fact<String>, Knob, &str); 2] = [
        ("enabled", &thp.enabled, |o| &o.anon, "madvise"),
        ("shmem_enabled", &thp.shmem_enabled, |o| &o.shmem, "advise"),
    ];
    let mut findings = Vec::new();
    for (name, top, knob, better) in kinds {
        let Some(top) = top.known().filter(|word| !is_on(Some(word))) else {
            continue;
        };
        let inheriting: Vec<PageSize> = thp
            .orders
            .iter()
            .filter(|o| Some(o.size) != host.pmd_page.get())
            .filter(|o| knob(o).known().is_some_and(|own| own == "inherit"))
            .map(|o| o.size)
            .collect();
        let Some(first) = inheriting.first() else {
            continue;
        };
        let names: Vec<String> = inheriting.iter().map(PageSize::to_string).collect();
        findings.extend(dead(
            "dead-inherit",
            format!(
                "{} inherit{} transparent_hugepage/{name}, which is {top}: dead.",
                names.join(", "),
                if names.len() == 1 { "s" } else { "" }
            ),
            format!("echo {better} > {}", thp_size_file(*first, name)),
        ));
    }
    findings
}

/// Whether any size is on for private memory, or not known.
fn anon_is_on(thp: &Thp) -> bool {
    let unknown = thp.enabled.error().is_some();
    unknown
        || thp
            .orders
            .iter()
            .any(|o| is_on(o.anon_in_force(thp)) || o.anon.error().is_some())
}

/// `defrag` is set to work harder than by default, and no size is on to profit from it.
pub fn defrag(host: &Host) -> Vec<Finding> {
    let Some(thp) = host.thp.known() else {
        return Vec::new();
    };
    let Some(set) = thp.defrag.known() else {
        return Vec::new();
    };
    if matches!(set.as_str(), "madvise" | "never") || anon_is_on(thp) {
        return Vec::new();
    }
    dead(
        "dead-defrag",
        format!("transparent_hugepage/defrag is {set} and dead: THP is never for private memory."),
        format!("echo madvise > {}", thp_file("enabled")),
    )
}

/// khugepaged is tuned, and does not run: it does where a size that it makes is on for private
/// memory, or the PMD's for shared memory.
pub fn khugepaged(host: &Host) -> Vec<Finding> {
    let (Some(thp), Some(pmd)) = (host.thp.known(), host.pmd_page.get()) else {
        return Vec::new();
    };
    let Some(order) = thp.orders.iter().find(|order| order.size == pmd) else {
        return Vec::new();
    };
    let unknown = thp.enabled.error().is_some() || thp.shmem_enabled.error().is_some();
    let makes = |o: &&ThpOrder| o.size == pmd || thp.khugepaged.makes_smaller;
    let mut made = thp.orders.iter().filter(makes);
    if unknown || made.any(|o| is_on(o.anon_in_force(thp))) || is_on(order.shmem_in_force(thp)) {
        return Vec::new();
    }
    // The kernel's own values (mm/khugepaged.c): 8 huge pages a round, all but one page missing.
    let pages = pmd.holds(host.base_page);
    let k = &thp.khugepaged;
    let differs = |fact: &Fact<Pages>, default: u64| fact.get().is_some_and(|n| n.get() != default);
    let differs_time = |fact: &Fact<u64>, default: u64| fact.get().is_some_and(|n| n != default);
    let tuned = [
        ("pages_to_scan", differs(&k.pages_to_scan, pages * 8)),
        ("max_ptes_none", differs(&k.max_ptes_none, pages - 1)),
        (
            "scan_sleep_millisecs",
            differs_time(&k.scan_sleep_millis, 10_000),
        ),
        (
            "alloc_sleep_millisecs",
            differs_time(&k.alloc_sleep_millis, 60_000),
        ),
    ];
    let tuned: Vec<&str> = tuned
        .iter()
        .filter(|(_, is)| *is)
        .map(|(name, _)| *name)
        .collect();
    if tuned.is_empty() {
        return Vec::new();
    }
    dead(
        "dead-khugepaged",
        format!(
            "khugepaged is tuned ({}) and does not run: {pmd} pages are never for private and for \
             shared memory.",
            tuned.join(", ")
        ),
        format!("echo madvise > {}", thp_file("enabled")),
    )
}

/// A group may use hugetlb pages, and there are none.
pub fn shm_group(host: &Host) -> Vec<Finding> {
    let Some(group) = host
        .limits
        .hugetlb_shm_group
        .get()
        .filter(|group| *group != 0)
    else {
        return Vec::new();
    };
    let mut totals = host
        .pools
        .iter()
        .filter(|pool| pool.node.is_none())
        .peekable();
    let Some(first) = totals.peek().map(|pool| pool.size) else {
        return Vec::new();
    };
    let has_none = |fact: &Fact<Pages>| matches!(fact, Fact::Known(Pages(0)) | Fact::Absent);
    if !totals.all(|pool| has_none(&pool.total) && has_none(&pool.overcommit)) {
        return Vec::new();
    }
    let size = host.memory.default_hugetlb_page.get().unwrap_or(first);
    dead(
        "dead-shm-group",
        format!("hugetlb_shm_group lets group {group} use hugetlb pages, and every pool is empty."),
        format!("echo 1 > {}", pool_file(size, "nr_overcommit_hugepages")),
    )
}

/// Boot parameters for what this kernel or this machine does not have.
pub fn boot(host: &Host) -> Vec<Finding> {
    let boot = host.limits.boot.known().map_or("", String::as_str);
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
        return Vec::new();
    }
    let sizes: Vec<String> = host
        .pools
        .iter()
        .filter(|pool| pool.node.is_none())
        .map(|pool| pool.size.to_string())
        .collect();
    let has = match (sizes.is_empty(), host.thp.is_absent()) {
        (true, true) => "neither THP nor hugetlb".to_owned(),
        (true, false) => "no hugetlb".to_owned(),
        (false, true) => format!("no THP, and hugetlb pages of {}", sizes.join(", ")),
        (false, false) => format!("hugetlb pages of {}", sizes.join(", ")),
    };
    dead(
        "dead-boot",
        format!(
            "On the kernel's command line {} is dead: this kernel on this machine has {has}.",
            words.join(" ")
        ),
        "cat /proc/cmdline".to_owned(),
    )
}

/// hugetlb settings in /etc on a kernel without hugetlb.
pub fn sysctl(host: &Host) -> Vec<Finding> {
    if !host.pools.is_empty() {
        return Vec::new();
    }
    let settings = host.limits.sysctl.known().into_iter().flatten();
    let dead_one = settings
        .filter(|s| s.key.starts_with("vm."))
        .find(|s| !matches!(s.value.as_str(), "" | "0"));
    dead_one.map_or_else(Vec::new, |s| {
        dead(
            "dead-sysctl",
            format!(
                "{} asks for {} = {} and is dead: this kernel has no hugetlb.",
                s.path, s.key, s.value
            ),
            format!("grep -n '{}' {}", s.key, shell_word(&s.path)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{healthy, ids, pool, thp, word};
    use super::*;
    use hugeleaf_host::Sysctl;

    #[test]
    fn enabled_without_a_size_that_inherits_it() {
        let mut host = healthy();
        thp(&mut host).orders[1].anon = word("never");
        assert_eq!(ids(&anon_top(&host)), ["dead-enabled"]);
        thp(&mut host).orders[0].anon = word("inherit");
        assert_eq!(anon_top(&host), []);
        thp(&mut host).orders[0].anon = word("never");
        thp(&mut host).enabled = word("never");
        assert_eq!(anon_top(&host), []);
    }

    #[test]
    fn shmem_enabled_without_a_size_that_inherits_it() {
        let mut host = healthy();
        thp(&mut host).orders[1].shmem = word("never");
        let found = shmem_top(&host);
        assert!(found[0].text.contains("shmem_enabled is advise and dead"));
        assert!(found[0].command.ends_with("hugepages-2048kB/shmem_enabled"));
        // force overrules the sizes: it is very much alive.
        thp(&mut host).shmem_enabled = word("force");
        assert_eq!(shmem_top(&host), []);
    }

    #[test]
    fn a_size_that_inherits_never() {
        let mut host = healthy();
        thp(&mut host).enabled = word("never");
        assert_eq!(inherit(&host), []);
        thp(&mut host).orders[0].anon = word("inherit");
        let found = inherit(&host);
        assert_eq!(
            found[0].text,
            "64K inherits transparent_hugepage/enabled, which is never: dead."
        );
        thp(&mut host).enabled = word("madvise");
        assert_eq!(inherit(&host), []);
    }

    #[test]
    fn defrag_while_never() {
        let mut host = healthy();
        thp(&mut host).defrag = word("always");
        assert_eq!(defrag(&host), []);
        thp(&mut host).enabled = word("never");
        assert_eq!(ids(&defrag(&host)), ["dead-defrag"]);
        thp(&mut host).defrag = word("madvise");
        assert_eq!(defrag(&host), []);
    }

    #[test]
    fn khugepaged_tuned_while_the_pmd_size_is_off() {
        let mut host = healthy();
        thp(&mut host).khugepaged.pages_to_scan = Fact::Known(Pages(100_000));
        assert_eq!(khugepaged(&host), []);
        thp(&mut host).enabled = word("never");
        // Shared memory still has it run.
        assert_eq!(khugepaged(&host), []);
        thp(&mut host).shmem_enabled = word("never");
        assert!(khugepaged(&host)[0].text.contains("tuned (pages_to_scan)"));
        // From Linux 7.2 it makes smaller sizes too.
        thp(&mut host).orders[0].anon = word("always");
        assert!(!khugepaged(&host).is_empty());
        thp(&mut host).khugepaged.makes_smaller = true;
        assert_eq!(khugepaged(&host), []);
        thp(&mut host).khugepaged.pages_to_scan = Fact::Known(Pages(4096));
        assert_eq!(khugepaged(&host), []);
    }

    #[test]
    fn a_group_for_empty_pools() {
        let mut host = healthy();
        host.limits.hugetlb_shm_group = Fact::Known(1001);
        assert_eq!(shm_group(&host), []);
        host.pools = vec![pool("2M", None, 0)];
        assert_eq!(ids(&shm_group(&host)), ["dead-shm-group"]);
        host.limits.hugetlb_shm_group = Fact::Known(0);
        assert_eq!(shm_group(&host), []);
    }

    #[test]
    fn boot_parameters_for_what_is_not_there() {
        let mut host = healthy();
        host.limits.boot = word("transparent_hugepage=always hugepagesz=1G hugepages=4");
        assert_eq!(boot(&host), []);
        host.limits.boot = word("hugepagesz=16G hugepages=4");
        assert!(boot(&host)[0].text.contains("hugepagesz=16G is dead"));
        host.limits.boot = word("thp_anon=64K:madvise");
        assert_eq!(boot(&host), []);
        host.thp = Fact::Absent;
        assert!(boot(&host)[0].text.contains("has no THP"));
    }

    #[test]
    fn sysctl_without_hugetlb() {
        let mut host = healthy();
        host.limits.sysctl = Fact::Known(vec![Sysctl {
            path: "/etc/sysctl.conf".to_owned(),
            key: "vm.nr_hugepages".to_owned(),
            value: "4096".to_owned(),
        }]);
        assert_eq!(sysctl(&host), []);
        host.pools.clear();
        assert_eq!(ids(&sysctl(&host)), ["dead-sysctl"]);
    }
}
