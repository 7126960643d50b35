//! Findings about hugetlb pools: short, idle, or uneven across nodes.

use std::collections::BTreeMap;

use hugeleaf_host::{Host, OrphanKind, Pool};
use hugeleaf_units::{Bytes, PageSize, Pages};

use super::{AdvisedCommand, Finding, Severity, shell_word};
use crate::advice::{PLAN, Setting, SettingChange};
use crate::pod_limits::below_pool;
use crate::{clean, list};

/// Share of idle pool pages in memory that justifies a warning.
const MUCH_IDLE: f64 = 0.02;

pub fn idle(host: &Host, pool: &Pool) -> Option<Finding> {
    // An unreadable number is not 0. Pages whose reservation is unknown are not reported as idle.
    for fact in [&pool.total, &pool.free, &pool.reserved, &pool.surplus] {
        fact.get()?;
    }
    let idle = pool.available().min(pool.persistent());
    // Pods want these pages but are barred from them, which is another finding.
    if idle == Pages(0) || below_pool(host, pool.size).is_some() {
        return None;
    }
    let bytes = idle.in_bytes(pool.size);
    let which = match pool.all() {
        all if all == idle => format!("All {idle}"),
        all => format!("{idle} of {all}"),
    };
    let total = host.memory.total.get();
    let share = total.and_then(|total| bytes.share_of(total));
    let severity = match share.is_some_and(|share| share >= MUCH_IDLE) {
        true => Severity::Warning,
        false => Severity::Note,
    };
    let left = pool.persistent() - idle;
    // A file or the command line requests them again at the next boot. A plan changes both.
    let asked = configured_pages(host).remove(&pool.size);
    let next: AdvisedCommand = match asked.is_some_and(|(pages, _)| Pages(pages) > left) {
        true => "hugeleaf plan --tighten".into(),
        false => change(pool, left).check(host).into(),
    };
    Some(Finding::new(
        severity,
        "pool-unused",
        format!(
            "{which} pages of {} in the pool ({bytes}) are unused: neither held nor reserved, and \
             other programs cannot use that memory. Free them unless a server that needs them is \
             about to start.",
            pool.size
        ),
        next,
    ))
}

/// Returns the change of a pool to another number of pages.
fn change(pool: &Pool, pages: Pages) -> SettingChange {
    let risk = match pages > pool.persistent() {
        true => "other programs cannot use pool memory",
        false => "a server that starts later finds fewer pages",
    };
    SettingChange::new(Setting::pool(pool.size, pool.node), pages)
        .from(pool.persistent())
        .at_risk(risk)
}

/// Returns the command that grows a pool, of one node or of all, or the reason against it. If enough pages of the size are
/// unused, a plan decides if more are needed.
fn grown(host: &Host, of_size: &Pool, pool: &Pool, to: Pages) -> (AdvisedCommand, Option<String>) {
    match change(pool, to).compacting().check(host) {
        Err(refused) => (refused.remedy.into(), Some(refused.message)),
        Ok(_) if of_size.available() >= to - pool.persistent() => (PLAN.into(), None),
        Ok(advice) => (advice.into(), None),
    }
}

/// Finds pages that no running process holds.
pub fn leftovers(host: &Host) -> Option<Finding> {
    let (text, command) = left_over(host)?;
    Some(Finding::warning("pool-leftovers", text, command))
}

/// Describes the files and segments that hold pages without a process, and returns the command that removes them.
pub fn left_over(host: &Host) -> Option<(String, String)> {
    const SHOWN: usize = 3;
    let all = host.leftovers.entries();
    let first = all.first()?;
    let bytes: Bytes = all.iter().map(|one| one.bytes).sum();
    let pages: Pages = all.iter().map(|one| one.size.pages_for(one.bytes)).sum();
    let shown = all.iter().take(SHOWN).map(|one| {
        let owner = one
            .owner
            .clone()
            .unwrap_or_else(|| format!("user {}", one.uid));
        let what = match &one.kind {
            OrphanKind::File { path } => format!("file {}", clean(path)),
            OrphanKind::SysV { id } => format!("SysV segment {id}"),
        };
        format!("{what} ({} of {owner})", one.bytes)
    });
    let mut shown: Vec<String> = shown.collect();
    if let Some(more) = all.len().checked_sub(SHOWN + 1) {
        shown.push(format!("{} more", more + 1));
    }
    let (removed, them) = match all.len() {
        1 => ("it is removed", "it"),
        _ => ("they are removed", "them"),
    };
    let text = format!(
        "{pages} pages of {} ({bytes}) are held by no running process: {}. Other programs can use \
         these pages only after {removed}; check first that no program still needs {them}.",
        first.size,
        list(shown)
    );
    let files = all.iter().filter_map(|one| match &one.kind {
        OrphanKind::File { path } => Some(shell_word(path)),
        OrphanKind::SysV { .. } => None,
    });
    let files: Vec<String> = files.take(SHOWN).collect();
    let segments = all.iter().filter_map(|one| match one.kind {
        OrphanKind::SysV { id } => Some(format!("-m {id}")),
        OrphanKind::File { .. } => None,
    });
    let segments: Vec<String> = segments.take(SHOWN).collect();
    let both = [(Setting::files(), files), (Setting::segments(), segments)];
    let both = both.into_iter().filter(|(_, all)| !all.is_empty());
    let removed = |(setting, all): (_, Vec<String>)| {
        let change = SettingChange::new(setting, all.join(" "));
        change
            .at_risk("a program that still needs them loses data")
            .command(host)
    };
    let commands: Vec<String> = both.map(removed).collect();
    Some((text, commands.join("; ")))
}

/// Finds surplus pages. They leave the pool when freed, and may not be available again.
pub fn surplus(host: &Host, pool: &Pool) -> Option<Finding> {
    let surplus = pool.surplus.get().filter(|n| *n > Pages(0))?;
    Some(Finding::note(
        "pool-surplus",
        format!(
            "{surplus} pages of {} are surplus: they came from overcommit, return to the kernel \
             when freed, and may be unavailable after a restart of their holder.",
            pool.size
        ),
        grown(host, pool, pool, pool.all()).0,
    ))
}

/// Finds a pool that is on some nodes only, or mostly on one.
pub fn uneven(host: &Host, pool: &Pool) -> Option<Finding> {
    let of_size = host.pools.iter().filter(|p| p.size == pool.size);
    let nodes: Vec<(&Pool, u32, u64)> = of_size
        .filter_map(|p| Some((p, p.node?, p.total.get()?.get())))
        .collect();
    let (_, most_node, most) = nodes.iter().max_by_key(|(.., total)| *total)?;
    let (least_pool, least_node, least) = nodes.iter().min_by_key(|(.., total)| *total)?;
    let all: u64 = nodes.iter().map(|(.., total)| total).sum();
    (*most > least.saturating_mul(2)).then(|| {
        Finding::note(
            "pool-uneven",
            format!(
                "The pool of {} is spread unevenly: {most} pages on node {most_node}, {least} on \
                 node {least_node}. Programs on node {least_node} use remote pages, or get none \
                 if they are bound to it.",
                pool.size
            ),
            grown(host, pool, least_pool, Pages(all / nodes.len() as u64)).0,
        )
    })
}

pub fn short(host: &Host, pool: &Pool) -> Option<Finding> {
    let (asked, by) = configured_pages(host).remove(&pool.size)?;
    pool.total.get()?;
    let (has, asked) = (pool.persistent(), Pages(asked));
    let missing = asked - has;
    if missing == Pages(0) {
        return None;
    }
    let (next, refused) = grown(host, pool, pool, asked);
    let refused = refused.map_or(String::new(), |why| format!(" It does not fit: {why}."));
    let text = format!(
        "{by} asks for {asked} pages of {}, the pool has {has}: {missing} short ({}).{refused}",
        pool.size,
        missing.in_bytes(pool.size)
    );
    Some(Finding::problem("pool-short", text, next))
}

/// Returns the requested number of pages of each size, and its source. Settings in /etc override boot parameters, because
/// they are applied later.
fn configured_pages(host: &Host) -> BTreeMap<PageSize, (u64, String)> {
    let default = host.memory.default_hugetlb_page.get();
    let boot = host.limits.boot.text().unwrap_or_default();
    let mut asked: BTreeMap<_, _> = boot_pools(boot, default)
        .into_iter()
        .map(|(size, pages)| (size, (pages, "The kernel's command line".to_owned())))
        .collect();
    for setting in host.limits.sysctl.entries() {
        if setting.key == "vm.nr_hugepages"
            && let (Some(size), Ok(pages)) = (default, setting.value.parse())
        {
            let by = format!("vm.nr_hugepages in {}", setting.path);
            asked.insert(size, (pages, by));
        }
    }
    asked
}

/// Parses `hugepagesz=1G hugepages=16`, and `hugepages=0:8,1:8` by node (Documentation/admin-guide/kernel-parameters.txt).
pub fn boot_pools(boot: &str, default: Option<PageSize>) -> Vec<(PageSize, u64)> {
    let mut size = default;
    let mut pools = Vec::new();
    for word in boot.split_ascii_whitespace() {
        if let Some(value) = word.strip_prefix("hugepagesz=") {
            size = value.parse().ok();
        } else if let (Some(value), Some(size)) = (word.strip_prefix("hugepages="), size) {
            let node = |item: &str| item.rsplit(':').next().and_then(|n| n.parse::<u64>().ok());
            let pages: Option<Vec<u64>> = value.split(',').map(node).collect();
            if let Some(pages) = pages {
                pools.push((size, pages.iter().sum()));
            }
        }
    }
    pools
}

pub fn kernel_log(host: &Host) -> Option<Finding> {
    let count = match host.kernel_log.entries().len() {
        0 => return None,
        1 => "a line".to_owned(),
        n => format!("{n} lines"),
    };
    Some(Finding::warning(
        "kernel-log",
        format!("The kernel log has {count} about huge pages that were short or refused."),
        "dmesg | grep -iE 'hugetlb|page allocation failure'",
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::{healthy, ids, pool, size, word};
    use super::*;
    use hugeleaf_host::{Fact, OrphanedHugetlb, SysctlLine};

    fn all(rule: fn(&Host, &Pool) -> Option<Finding>, host: &Host) -> Vec<Finding> {
        host.totals().filter_map(|pool| rule(host, pool)).collect()
    }

    #[test]
    fn idle_pages_are_those_that_are_free_and_not_reserved() {
        let mut host = healthy();
        host.pools[0].free = Fact::Known(Pages(1000));
        host.pools[0].reserved = Fact::Known(Pages(1000));
        assert_eq!(all(idle, &host), []);
        host.pools[0].reserved = Fact::Known(Pages(0));
        let found = all(idle, &host);
        assert!(
            found[0]
                .text
                .starts_with("1000 of 4096 pages of 2M in the pool (2G) are unused")
        );
        assert!(
            found[0].command.starts_with("echo 3096 > "),
            "{}",
            found[0].command
        );
        assert_eq!(found[0].severity, Severity::Warning);
        host.pools[0].reserved = Fact::Known(Pages(999));
        assert_eq!(all(idle, &host)[0].severity, Severity::Note);
    }

    #[test]
    fn pages_that_may_be_reserved_are_not_idle() {
        let mut host = healthy();
        host.pools[0].free = Fact::Known(Pages(1000));
        for unknown in [
            |p: &mut Pool| p.reserved = Fact::Absent,
            |p: &mut Pool| {
                p.surplus = Fact::Absent;
            },
        ] {
            let mut host = host.clone();
            unknown(&mut host.pools[0]);
            assert_eq!(all(idle, &host), []);
        }
    }

    #[test]
    fn pages_that_a_file_asks_for_again_are_for_a_plan() {
        let mut host = healthy();
        host.pools[0].free = Fact::Known(Pages(1000));
        host.limits.boot = word("hugepages=3096");
        assert!(all(idle, &host)[0].command.starts_with("echo 3096 > "));
        host.limits.boot = word("hugepages=3097");
        assert_eq!(all(idle, &host)[0].command, "hugeleaf plan --tighten");
        // The host owns the pool.
        host.limits.boot = word("");
        host.is_in_container = true;
        assert!(
            all(idle, &host)[0]
                .command
                .starts_with("# on the host of this container: echo 3096")
        );
    }

    #[test]
    fn pages_that_no_process_holds_are_named_with_what_removes_them() {
        let mut host = healthy();
        host.leftovers = Fact::Known(Vec::new());
        assert_eq!(leftovers(&host), None);
        let left = |bytes: u64, owner: Option<&str>, kind| OrphanedHugetlb {
            size: size("2M"),
            bytes: Bytes(bytes << 20),
            uid: 7,
            owner: owner.map(str::to_owned),
            kind,
        };
        let file = |path: &str| OrphanKind::File {
            path: path.to_owned(),
        };
        host.leftovers = Fact::Known(vec![
            left(40, Some("root"), file("/dev/hugepages/a b")),
            left(20, None, OrphanKind::SysV { id: 32 }),
        ]);
        let found = leftovers(&host).unwrap();
        for part in [
            "30 pages of 2M (60M)",
            "file /dev/hugepages/a b (40M of root)",
            "SysV segment 32 (20M of user 7)",
        ] {
            assert!(found.text.contains(part), "{}", found.text);
        }
        assert_eq!(found.command, "rm -- '/dev/hugepages/a b'; ipcrm -m 32");
    }

    #[test]
    fn surplus_pages() {
        let mut host = healthy();
        host.pools[0].overcommit = Fact::Known(Pages(100));
        assert_eq!(all(surplus, &host), []);
        host.pools[0].surplus = Fact::Known(Pages(3));
        assert_eq!(ids(all(surplus, &host)), ["pool-surplus"]);
    }

    #[test]
    fn more_than_twice_as_many_on_one_node() {
        let mut host = healthy();
        host.pools[1].total = Fact::Known(Pages(2730));
        host.pools[2].total = Fact::Known(Pages(1366));
        assert_eq!(all(uneven, &host), []);
        host.pools[1].total = Fact::Known(Pages(2733));
        host.pools[2].total = Fact::Known(Pages(1363));
        let found = all(uneven, &host);
        let file = "node1/hugepages/hugepages-2048kB/nr_hugepages";
        assert!(found[0].command.contains("echo 2048 > ") && found[0].command.ends_with(file));
    }

    #[test]
    fn fewer_pages_than_etc_asks_for() {
        let mut host = healthy();
        let set = |value: &str| SysctlLine {
            path: "/etc/sysctl.d/90-db.conf".to_owned(),
            key: "vm.nr_hugepages".to_owned(),
            value: value.to_owned(),
        };
        host.limits.sysctl = Fact::Known(vec![set("9999"), set("4096")]);
        assert_eq!(all(short, &host), []);
        host.limits.sysctl = Fact::Known(vec![set("4097")]);
        let found = all(short, &host);
        assert!(
            found[0].text.contains("has 4096: 1 short (2M)"),
            "{}",
            found[0].text
        );
        // More pages than fit, and more pages while as many are unused.
        host.limits.sysctl = Fact::Known(vec![set("32000")]);
        let found = all(short, &host);
        assert!(
            found[0].text.contains("at most 21299 pages"),
            "{}",
            found[0].text
        );
        assert_eq!(found[0].command, PLAN);
        host.limits.sysctl = Fact::Known(vec![set("4097")]);
        host.pools[0].free = Fact::Known(Pages(1));
        assert_eq!(all(short, &host)[0].command, PLAN);
        host.pools[0].free = Fact::Known(Pages(0));
        // Surplus pages are temporary, so they do not fill the gap.
        host.limits.sysctl = Fact::Known(vec![set("4096")]);
        host.pools[0].surplus = Fact::Known(Pages(1));
        assert_eq!(ids(all(short, &host)), ["pool-short"]);
    }

    #[test]
    fn fewer_pages_than_the_command_line_asks_for() {
        let mut host = healthy();
        host.limits.boot = word("quiet hugepages=0:2048,1:2048 hugepagesz=1G hugepages=0");
        assert_eq!(all(short, &host), []);
        host.limits.boot = word("hugepagesz=1G hugepages=16");
        host.pools[3] = pool("1G", None, 11);
        assert!(
            all(short, &host)[0]
                .text
                .contains("asks for 16 pages of 1G, the pool has 11: 5 short")
        );
    }

    #[test]
    fn boot_parameters_of_any_shape() {
        let two = Some(size("2M"));
        assert_eq!(boot_pools("hugepages=x hugepagesz=3M hugepages=1", two), []);
        assert_eq!(boot_pools("hugepages=5", None), []);
        assert_eq!(boot_pools("hugepages=5", two), [(size("2M"), 5)]);
    }

    #[test]
    fn lines_of_the_kernel_log() {
        let mut host = healthy();
        assert_eq!(kernel_log(&host), None);
        host.kernel_log = Fact::Known(vec!["first".to_owned(), "second".to_owned()]);
        assert!(
            kernel_log(&host)
                .unwrap()
                .text
                .contains("has 2 lines about huge pages")
        );
    }
}
