//! Findings about memory: the size of page tables, and base-page memory.

use std::collections::BTreeMap;

use hugeleaf_host::{Fact, Host, ProcessMemoryUse, ThpMemoryKind};
use hugeleaf_units::Bytes;

use super::{Finding, Severity, shell_word};
use crate::advice::{self, Setting, SettingChange};

/// Shares of page tables in memory that are a warning and a problem.
const MUCH: f64 = 0.01;
const TOO_MUCH: f64 = 0.05;
const WORTHWHILE: f64 = 0.05;
/// Minimum share of free memory in whole huge pages. Below it, free memory counts as fragmented.
const FRAGMENTED: f64 = 0.1;

/// Finds page tables that take a large share of memory: shared memory on base pages, mapped by many.
pub fn page_tables(host: &Host) -> Option<Finding> {
    let (tables, total) = (host.memory.page_tables.get()?, host.memory.total.get()?);
    let share = tables.share_of(total).filter(|share| *share >= MUCH)?;
    let most = by_name(&host.owners).into_iter().next();
    let who = most.as_ref().map_or(String::new(), |most| {
        let (name, tables) = (&most.name, most.page_tables);
        match most.processes {
            1 => format!(", {tables} of it for {name}"),
            n => format!(", {tables} of it for {n} processes named {name}"),
        }
    });
    let severity = match share < TOO_MUCH {
        true => Severity::Warning,
        false => Severity::Problem,
    };
    Some(Finding::new(
        severity,
        "page-tables",
        format!(
            "Page tables take {tables}, {:.1} % of memory{who}. Shared memory on huge pages needs \
             almost none.",
            share * 100.0
        ),
        most.map_or("hugeleaf mem".to_owned(), |most| {
            format!("hugeleaf why {}", shell_word(&most.name))
        }),
    ))
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MemoryByName {
    pub name: String,
    pub processes: usize,
    #[serde(rename = "page_tables_bytes")]
    pub page_tables: Bytes,
    /// The most hugetlb memory mapped by one process, because a sum would count shared pages
    /// repeatedly.
    #[serde(rename = "hugetlb_bytes")]
    pub hugetlb: Bytes,
}

/// Groups owners by name, those with the largest page tables first.
pub fn by_name(owners: &[ProcessMemoryUse]) -> Vec<MemoryByName> {
    let mut names: BTreeMap<&str, MemoryByName> = BTreeMap::new();
    for owner in owners {
        let holder = names.entry(&owner.name).or_insert_with(|| MemoryByName {
            name: owner.name.clone(),
            processes: 0,
            page_tables: Bytes::ZERO,
            hugetlb: Bytes::ZERO,
        });
        holder.processes += 1;
        holder.page_tables += owner.page_tables;
        holder.hugetlb = holder.hugetlb.max(owner.hugetlb);
    }
    let mut holders: Vec<MemoryByName> = names.into_values().collect();
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.page_tables));
    holders
}

fn is_worthwhile(part: Bytes, host: &Host) -> bool {
    let total = host.memory.total.get();
    let share = total.and_then(|total| part.share_of(total));
    share.is_some_and(|share| share >= WORTHWHILE)
}

/// Finds much shared memory on base pages while shared memory gets no huge pages, as with PostgreSQL's
/// buffers on a stock kernel.
pub fn shmem_on_base(host: &Host) -> Option<Finding> {
    let (thp, order) = (host.thp.known()?, host.full_thp()?);
    let (shmem, of) = (host.memory.shmem.get()?, ThpMemoryKind::Shared);
    let setting = order.effective(thp, of)?;
    // A kernel without the line has no huge pages of shared memory, but an unreadable line is not 0.
    let huge = match &host.memory.shmem_huge {
        Fact::Known(huge) => *huge,
        Fact::Absent => Bytes::ZERO,
        Fact::Unreadable(_) => return None,
    };
    let on_base = shmem - huge;
    if order.is_on(thp, of) || !is_worthwhile(on_base, host) {
        return None;
    }
    Some(Finding::warning(
        "shmem-on-base",
        format!(
            "{on_base} of shared memory is on base pages, and shared memory gets no {} pages \
             (shmem {setting}). Change the setting and restart the server that holds it once; \
             then its memory can be promoted while it runs.",
            order.size
        ),
        SettingChange::new(Setting::file(order.effective_file(of)), "advise").check(host),
    ))
}

pub fn private_on_base(host: &Host) -> Option<Finding> {
    let (pmd, anon) = (host.pmd_page.get()?, host.memory.anon.get()?);
    let huge = host.memory.anon_huge.get()?;
    if huge.share_of(anon)? >= 0.5 || !is_worthwhile(anon - huge, host) {
        return None;
    }
    Some(Finding::note(
        "private-on-base",
        format!(
            "{} of {anon} of private memory is not on {pmd} pages.",
            anon - huge
        ),
        "hugeleaf mem",
    ))
}

pub fn fragmented(host: &Host) -> Option<Finding> {
    let (pmd, free) = (host.pmd_page.get()?, host.memory.free.get()?);
    let whole = host.buddy.known()?.free_for(pmd, host.base_page);
    if whole.share_of(free)? >= FRAGMENTED || !is_worthwhile(free, host) {
        return None;
    }
    Some(Finding::warning(
        "fragmented",
        format!("Free memory is fragmented: of {free} only {whole} is in whole {pmd} blocks."),
        advice::compaction().check(host),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::{gib, healthy, ids, thp, word};
    use super::*;
    use hugeleaf_host::Pid;

    fn owner(pid: u32, name: &str, gib: u64) -> ProcessMemoryUse {
        ProcessMemoryUse {
            pid: Pid(pid),
            name: name.to_owned(),
            page_tables: Bytes(gib << 30),
            hugetlb: Bytes::ZERO,
            resident: Bytes::ZERO,
        }
    }

    #[test]
    fn page_tables_from_one_percent_on() {
        let mut host = healthy();
        host.memory.page_tables = Fact::Known(Bytes(655 << 20));
        assert_eq!(page_tables(&host), None);
        host.memory.page_tables = Fact::Known(Bytes(656 << 20));
        assert_eq!(page_tables(&host).unwrap().severity, Severity::Warning);
        host.memory.page_tables = gib(8);
        host.owners = vec![
            owner(1, "java", 3),
            owner(2, "postgres", 2),
            owner(3, "postgres", 2),
        ];
        let found = page_tables(&host).unwrap();
        assert_eq!(found.severity, Severity::Problem);
        assert!(
            found
                .text
                .contains("8G, 12.5 % of memory, 4G of it for 2 processes named")
        );
        assert_eq!(found.command, "hugeleaf why postgres");
    }

    #[test]
    fn shared_memory_on_base_pages_by_the_knob() {
        let mut host = healthy();
        host.memory.shmem = gib(8);
        assert_eq!(shmem_on_base(&host), None);
        thp(&mut host).shmem_enabled = word("never");
        let found = shmem_on_base(&host).unwrap();
        assert!(
            found
                .command
                .ends_with("transparent_hugepage/shmem_enabled")
        );
        host.memory.shmem = gib(3);
        assert_eq!(shmem_on_base(&host), None);
        host.memory.shmem = gib(8);
        host.memory.shmem_huge = gib(7);
        assert_eq!(shmem_on_base(&host), None);
        host.memory.shmem_huge = gib(0);
        thp(&mut host).orders[1].shmem = word("never");
        let found = shmem_on_base(&host).unwrap();
        assert!(found.command.ends_with("hugepages-2048kB/shmem_enabled"));
    }

    #[test]
    fn private_memory_on_base_pages() {
        let mut host = healthy();
        host.memory.anon = gib(16);
        host.memory.anon_huge = gib(8);
        assert_eq!(private_on_base(&host), None);
        host.memory.anon_huge = gib(7);
        assert_eq!(ids(private_on_base(&host)), ["private-on-base"]);
        host.memory.anon = gib(2);
        host.memory.anon_huge = gib(0);
        assert_eq!(private_on_base(&host), None);
    }

    #[test]
    fn free_memory_in_pieces() {
        let mut host = healthy();
        let counts = |host: &mut Host, order: usize, n: u64| {
            if let Fact::Known(buddy) = &mut host.buddy {
                buddy.zones[0].counts = vec![0; 11];
                buddy.zones[0].counts[order] = n;
            }
        };
        // 10 GiB are free: 512 blocks of 2M are a tenth of that, 511 are not.
        counts(&mut host, 9, 512);
        assert_eq!(fragmented(&host), None);
        counts(&mut host, 9, 511);
        assert!(
            fragmented(&host)
                .unwrap()
                .text
                .contains("of 10G only 1022M is in whole 2M blocks")
        );
        host.memory.free = gib(1);
        counts(&mut host, 0, 1);
        assert_eq!(fragmented(&host), None);
    }
}
