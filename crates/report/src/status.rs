//! `hugeleaf status`: a host on one screen, and the same as JSON.
//!
//! An absent feature takes at most a line. An unreadable value is shown as `unknown`, and a finding gives
//! the reason. Findings come last, because the end of the output stays visible.

use hugeleaf_host::{
    Fact, Host, MemoryLimit, PageSizeInfo, Pool, Thp, ThpMemoryKind, ThpSizeSettings,
};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};
use hugeleaf_verdict::advice::risks;
use hugeleaf_verdict::findings::{Finding, MemoryByName, Severity, by_name};
use serde_json::{Value as Json, json};

use crate::document::{
    Cell, CellValue, ColumnShrink, CommandHint, ContentBlock, Document, Note, Section, StatusMark,
    Table, TableBuilder, counted, listed,
};
use crate::json::{answer, merge_fields};

/// Maximum number of items of each kind, before `and N more`.
const MOST_CGROUPS: usize = 8;
const MOST_HOLDERS: usize = 4;
const MOST_LOG_LINES: usize = 3;
const ALL: &str = "hugeleaf status --json";

pub fn status(host: &Host, findings: &[Finding]) -> Document {
    let mut page = Document::new("Host", head(host));
    page.section("PAGE SIZES", vec![page_sizes(host).into()])
        .add(pools(host))
        .section("USAGE AND SETTINGS", vec![settings(host).into()])
        .section("CGROUP LIMITS ON HUGETLB", vec![cgroups(host).into()])
        .add(memory_limits(host))
        .section("KERNEL LOG", vec![kernel_log(host).into()])
        .add(findings_block(findings));
    page
}

/// Returns the JSON answer. An unset limit is missing, like all absent values.
pub fn status_json(host: &Host, findings: &[Finding]) -> String {
    let limit = |l: &MemoryLimit| merge_fields(l, json!({ "room_bytes": l.room_at_most() }));
    let more = json!({
        "memory_limits": host.memory_limits.iter().map(limit).collect::<Json>(),
        "holders": by_name(&host.owners),
    });
    answer(&json!({ "host": merge_fields(host, more), "findings": findings }))
}

/// Returns a fact as a cell: `unknown` if unreadable, `-` if absent.
fn known(fact: impl Into<Cell>) -> Cell {
    let cell = fact.into();
    match cell.value {
        CellValue::Unreadable => "unknown".into(),
        _ => cell,
    }
}

fn words(fact: impl Into<Cell>) -> String {
    known(fact).to_string()
}

/// Formats a limit; an effectively infinite one is named as such.
fn limit(fact: &Fact<Bytes>) -> String {
    const AS_GOOD_AS_NONE: u64 = i64::MAX.unsigned_abs();
    words(fact.clone().map(|limit| match limit.get() {
        n if n >= AS_GOOD_AS_NONE => "unlimited".into(),
        _ => Cell::from(limit),
    }))
}

fn head(host: &Host) -> String {
    let memory = &host.memory;
    format!(
        "Linux {}{}: {} of memory on {}, {} available, {} free; base page {}",
        words(&host.kernel),
        listed(" ", host.arch.known()),
        words(&memory.total),
        counted(host.nodes.len(), "node"),
        words(&memory.available),
        words(&memory.free),
        host.base_page
    )
}

/// Sizes in one row: the smaller THP sizes mostly share their settings.
type PageSizeGroup<'a> = Vec<&'a PageSizeInfo>;

fn page_sizes(host: &Host) -> TableBuilder<PageSizeGroup<'_>> {
    let setting = |info: &PageSizeInfo| settings_of(host, info.size, info.kind, info.enabled);
    let limit = |info: &PageSizeInfo| info.available.clone().map(|had| had.limited_by);
    let alike = |a: &PageSizeInfo, b: &PageSizeInfo| {
        let key = |i: &PageSizeInfo| (i.kind, i.enabled, setting(i), limit(i));
        a.kind == PageKind::Thp && key(a) == key(b)
    };
    let mut rows: Vec<PageSizeGroup<'_>> = Vec::new();
    for info in &host.page_sizes {
        match rows.last_mut().filter(|last| alike(last[0], info)) {
            Some(last) => last.push(info),
            None => rows.push(vec![info]),
        }
    }
    let span = |row: &PageSizeGroup<'_>, cell: fn(&PageSizeInfo) -> Cell| {
        Cell::span(row.iter().map(|info| cell(info)))
    };
    let available = |i: &PageSizeInfo| known(i.available.clone().map(|had| had.bytes));
    Table::from_items(rows)
        .right("SIZE", |r| span(r, |i| i.size.into()))
        .left("KIND", |r| r[0].kind)
        .left("ON", |r| if r[0].enabled { "yes" } else { "no" })
        .narrow(ColumnShrink::Drop(2))
        .left("PRIVATE", |r| setting(r[0]).0)
        .left("SHARED", |r| setting(r[0]).1)
        .right("AVAILABLE NOW", |r| span(r, available))
        .right("IF DEFRAGMENTED", |r| {
            span(r, |i| known(&i.if_defragmented))
        })
        .left("LIMITED BY", |r| known(limit(r[0])))
        .narrow(ColumnShrink::Drop(1))
}

fn settings_of(host: &Host, size: PageSize, kind: PageKind, enabled: bool) -> (String, String) {
    let alike = |text: &str| (text.to_owned(), text.to_owned());
    match kind {
        PageKind::Base => alike("always"),
        PageKind::Hugetlb => alike(if enabled { "on request" } else { "no pool" }),
        PageKind::Thp => {
            let thp = host.thp.known();
            let order = thp.and_then(|thp| thp.orders.iter().find(|o| o.size == size));
            match (thp, order) {
                (Some(thp), Some(order)) => (
                    words(order.setting(thp, ThpMemoryKind::Private)),
                    words(order.setting(thp, ThpMemoryKind::Shared)),
                ),
                _ => alike("-"),
            }
        }
    }
}

fn pools(host: &Host) -> ContentBlock {
    if host.pools.is_empty() {
        return Section::new("", vec!["hugetlb: not in this kernel.".into()]).into();
    }
    let is_empty = |size: PageSize| {
        let zero = |fact: &Fact<Pages>| matches!(fact, Fact::Known(Pages(0)) | Fact::Absent);
        let mut of_size = host.pools.iter().filter(|pool| pool.size == size);
        of_size.all(|p| zero(&p.total) && zero(&p.overcommit))
    };
    let shown =
        |pool: &&Pool| !is_empty(pool.size) && (pool.node.is_none() || host.nodes.len() > 1);
    let shown: Vec<&Pool> = host.pools.iter().filter(shown).collect();
    let whole = host.pools.iter().filter(|pool| pool.node.is_none());
    let empty = whole.map(|pool| pool.size).filter(|size| is_empty(*size));
    if shown.is_empty() {
        let text = format!("{}).", listed("hugetlb: all pools are empty (", empty));
        return Section::new("", vec![text.into()]).into();
    }
    let empty = listed(" Empty: ", empty);
    let end = if empty.is_empty() { "" } else { "." };
    let memlock = memlock_note(host);
    let note = format!("UNUSED: neither in use nor reserved.{empty}{end}{memlock}");
    Section::new("HUGETLB POOLS", vec![pool_table(shown).into(), note.into()]).into()
}

fn pool_table(pools: Vec<&Pool>) -> TableBuilder<&Pool> {
    let less = |a: &Fact<Pages>, b: &Fact<Pages>| {
        let difference = |a: Pages| b.clone().map(|b| Pages(a.get().saturating_sub(b.get())));
        known(a.clone().and_then(difference))
    };
    Table::from_items(pools)
        .right("SIZE", |p| p.size)
        .right("NODE", |p| p.node.map_or("all".into(), Cell::from))
        .right("PAGES", |p| known(&p.total))
        .right("MEMORY", |p| {
            known(p.total.clone().map(|n| n.in_bytes(p.size)))
        })
        .right("IN USE", |p| less(&p.total, &p.free))
        .right("FREE", |p| known(&p.free))
        .right("RESERVED", |p| known(&p.reserved))
        .right("UNUSED", |p| less(&p.free, &p.reserved))
        .right("SURPLUS", |p| known(&p.surplus))
        .right("OVERCOMMIT", |p| known(&p.overcommit))
}

/// Notes the part of the pools that memlock allows for SysV segments, if it is less than the pools.
fn memlock_note(host: &Host) -> String {
    let sizes = host.page_sizes.iter();
    let hugetlb = sizes.filter(|info| info.kind == PageKind::Hugetlb);
    let most = hugetlb.filter_map(|info| Some(info.available.known()?.bytes));
    match (host.limits.memlock.get(), most.max()) {
        (Some(memlock), Some(most)) if memlock < most => {
            let group = host.limits.hugetlb_shm_group.get().filter(|id| *id > 0);
            let group = listed(" or group ", group);
            format!(
                " SysV segments on hugetlb: {memlock} (memlock of this process) without \
                 CAP_IPC_LOCK{group}."
            )
        }
        _ => String::new(),
    }
}

fn settings(host: &Host) -> Vec<(String, Cell)> {
    let lines = [
        ("memory", memory_line(host)),
        ("page tables", page_tables_line(host)),
        ("hugetlb", hugetlb_line(host)),
        ("THP", thp_line(host)),
        ("limits", limits_line(host)),
        ("hypervisor", hypervisor_line(host)),
    ];
    lines
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(label, text)| (label.to_owned(), text.into()))
        .collect()
}

/// Formats private memory, shared memory and page cache, each with its part on PMD-sized pages.
fn memory_line(host: &Host) -> String {
    let memory = &host.memory;
    let cache = memory.cached.clone();
    let cache = cache.and_then(|c| memory.shmem.clone().map(|s| c - s));
    let huge = |all: &Fact<Bytes>, huge: &Fact<Bytes>| {
        let share = huge.get().and_then(|huge| huge.share_of(all.get()?));
        match (host.pmd_page.get(), huge.is_absent()) {
            (Some(pmd), false) => format!(" ({} on {pmd})", Cell::percent(share)),
            _ => String::new(),
        }
    };
    let parts = [
        ("private", &memory.anon, &memory.anon_huge),
        ("shared", &memory.shmem, &memory.shmem_huge),
        ("page cache", &cache, &memory.file_huge),
    ];
    let known = parts.iter().filter(|(_, all, _)| !all.is_absent());
    let part = |(name, all, on): &(&str, &Fact<Bytes>, &Fact<Bytes>)| {
        format!("{name} {}{}", words(*all), huge(all, on))
    };
    listed("", known.map(part))
}

fn page_tables_line(host: &Host) -> String {
    let tables = &host.memory.page_tables;
    let share = tables
        .get()
        .and_then(|t| t.share_of(host.memory.total.get()?));
    let holders = by_name(&host.owners).into_iter();
    let most = holders
        .filter(|holder| !holder.page_tables.is_zero())
        .take(MOST_HOLDERS);
    let most = most.map(|holder| format!("{} {}", named(&holder), holder.page_tables));
    let part = match share {
        Some(share) if share >= 0.001 => format!(" ({:.1} % of memory)", share * 100.0),
        _ => String::new(),
    };
    words(tables) + &part + &listed("; most for ", most)
}

/// Formats the hypervisor below this host: `none`, its name, or `unknown`.
fn hypervisor_line(host: &Host) -> String {
    let machine = &host.virtual_machine;
    let names = [machine.vendor.known(), machine.product.known()];
    let name = names.into_iter().flatten().map(String::as_str);
    match machine.is_guest.get() {
        Some(true) => match name.collect::<Vec<_>>().join(" ") {
            nothing if nothing.is_empty() => "present, without a name".to_owned(),
            name => name,
        },
        Some(false) => "none".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// Formats the processes that map hugetlb pages; empty without any.
fn hugetlb_line(host: &Host) -> String {
    let mut holders = by_name(&host.owners);
    holders.retain(|holder| !holder.hugetlb.is_zero());
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.hugetlb));
    let one = |holder: &MemoryByName| {
        let each = if holder.processes > 1 { "up to " } else { "" };
        format!("{} {each}{}", named(holder), holder.hugetlb)
    };
    listed("mapped by ", holders.iter().take(MOST_HOLDERS).map(one))
}

fn named(holder: &MemoryByName) -> String {
    match holder.processes {
        1 => holder.name.clone(),
        n => format!("{n} × {}", holder.name),
    }
}

fn thp_line(host: &Host) -> String {
    let thp = match &host.thp {
        Fact::Known(thp) => thp,
        Fact::Absent => return "not in this kernel".to_owned(),
        Fact::Unreadable(_) => return "unknown".to_owned(),
    };
    let k = &thp.khugepaged;
    let switch = |on: &Fact<bool>| words(on.clone().map(|on| if on { "on" } else { "off" }));
    let khugepaged = if khugepaged_runs(host, thp) {
        format!(
            "khugepaged makes {}, scans {} every {}, defrag {}, max_ptes_none {}",
            khugepaged_makes(host, thp),
            words(
                k.pages_to_scan
                    .clone()
                    .map(|pages| pages.in_bytes(host.base_page))
            ),
            words(k.scan_sleep_millis.clone().map(millis)),
            switch(&k.defrag),
            words(&k.max_ptes_none)
        )
    } else {
        "khugepaged does not run".to_owned()
    };
    format!(
        "{}{}; defrag {}; {khugepaged}; huge zero page {}{}",
        knob("enabled", &thp.enabled, thp, |order| &order.anon),
        knob(", shmem_enabled", &thp.shmem_enabled, thp, |order| &order
            .shmem),
        words(&thp.defrag),
        switch(&thp.use_zero_page),
        shrink_underused(host, thp)
    )
}

/// Formats a knob for all sizes, with the sizes that inherit it.
fn knob(
    name: &str,
    value: &Fact<String>,
    thp: &Thp,
    own: fn(&ThpSizeSettings) -> &Fact<String>,
) -> String {
    let inherits =
        |order: &&ThpSizeSettings| own(order).known().is_some_and(|word| word == "inherit");
    let sizes = thp.orders.iter().filter(inherits);
    let of = listed(" for ", sizes.map(|order| order.size));
    match value {
        Fact::Absent => String::new(),
        value => format!("{name} {}{of}", words(value)),
    }
}

fn khugepaged_makes(host: &Host, thp: &Thp) -> String {
    let sizes = thp.khugepaged_sizes(host.pmd_page.get());
    match sizes.is_empty() {
        true => "shared memory huge".to_owned(),
        false => listed("", sizes).replace(", ", " and "),
    }
}

/// Formats shrink_underused: under memory pressure the kernel splits huge pages with more than
/// `max_ptes_none` zero-filled base pages. With the default of that limit there are none.
fn shrink_underused(host: &Host, thp: &Thp) -> String {
    let all_but_one = host.pmd_page.get().map(|p| p.ratio_to(host.base_page) - 1);
    let none = thp.khugepaged.max_ptes_none.get().map(Pages::get);
    match thp.shrink_underused {
        Fact::Known(true) if none.is_some() && none == all_but_one => {
            "; shrink_underused on (no effect with this max_ptes_none)".to_owned()
        }
        Fact::Known(true) => "; shrink_underused on".to_owned(),
        Fact::Known(false) => "; shrink_underused off".to_owned(),
        _ => String::new(),
    }
}

/// True if khugepaged runs, as far as known: a size that it makes is on for private memory, or the PMD's
/// for shared memory (mm/khugepaged.c, hugepage_enabled).
fn khugepaged_runs(host: &Host, thp: &Thp) -> bool {
    let on = |setting: Option<&str>| setting.is_none_or(|word| !matches!(word, "never" | "deny"));
    let pmd = host.pmd_page.get();
    let mut full = thp.orders.iter().filter(|o| Some(o.size) == pmd);
    !thp.khugepaged_sizes(pmd).is_empty()
        || full.any(|o| on(o.effective(thp, ThpMemoryKind::Shared)))
}

fn millis(millis: u64) -> Cell {
    Cell::seconds(millis as f64 / 1e3)
}

fn limits_line(host: &Host) -> String {
    let limits = &host.limits;
    let shmall = limits.shmall.clone();
    let shmall = shmall.map(|pages| pages.in_bytes(host.base_page));
    let group = |group: u64| match group {
        0 => "none".into(),
        group => Cell::from(group),
    };
    let mut parts = vec![("memlock of this process", limit(&limits.memlock))];
    if !host.pools.is_empty() {
        let group = limits.hugetlb_shm_group.clone().map(group);
        parts.push(("hugetlb_shm_group", words(group)));
    }
    parts.extend([
        ("shmmax", limit(&limits.shmmax)),
        ("shmall", limit(&shmall)),
        ("min_free", words(&limits.min_free)),
        ("overcommit_memory", words(&limits.overcommit_memory)),
    ]);
    if !host.pools.is_empty() {
        let cgroups = match &host.cgroups {
            Fact::Unreadable(_) => "unknown",
            Fact::Known(all) if !all.is_empty() => "below",
            _ => "none",
        };
        parts.push(("cgroup limits on hugetlb", cgroups.to_owned()));
    }
    let present = parts.iter().filter(|(_, value)| value != "-");
    listed("", present.map(|(name, value)| format!("{name} {value}")))
}

fn cgroups(host: &Host) -> Table {
    let all = host.cgroups.known().into_iter().flatten();
    let rows = all.flat_map(|cgroup| cgroup.hugetlb.iter().map(move |limit| (cgroup, limit)));
    let limit = |limit: &Fact<Option<Bytes>>| {
        let limit = limit.clone();
        known(limit.map(|limit| limit.map_or("unlimited".into(), Cell::from)))
    };
    Table::from_items(rows)
        .left("CGROUP", |(cgroup, _)| cgroup.path.clone())
        .right("V", |(cgroup, _)| cgroup.version)
        .right("SIZE", |(_, l)| l.size)
        .right("FAULT LIMIT", |(_, l)| limit(&l.fault_limit))
        .right("USED", |(_, l)| known(&l.fault_usage))
        .right("RESERVATION LIMIT", |(_, l)| limit(&l.reservation_limit))
        .right("RESERVED", |(_, l)| known(&l.reservation_usage))
        .right("HITS", |(_, l)| known(&l.hits))
        .done()
        .limited(MOST_CGROUPS, "", ALL)
}

/// Sorts by remaining room, least first: a huge page is charged before the base pages that it replaces
/// are freed.
fn memory_limits(host: &Host) -> Section {
    let mut limits: Vec<&MemoryLimit> = host.memory_limits.iter().collect();
    limits.sort_by_key(|l| (l.room_at_most(), l.path.as_str()));
    let table = Table::from_items(limits)
        .left("CGROUP", |l| l.path.clone())
        .right("V", |l| l.version)
        .right("LIMIT", |l| match l.only_throttles {
            true => format!("{} (high)", l.limit),
            false => l.limit.to_string(),
        })
        .right("USED", |l| l.usage)
        .right("PAGE CACHE", |l| l.inactive_cache + l.active_cache)
        .right("LEFT", |l| l.room_at_most())
        .done()
        .limited(MOST_CGROUPS, "", ALL);
    let note =
        "LEFT: with all page cache reclaimed. Huge pages count as base pages do, pools do not.";
    match host.memory_limits.is_empty() {
        true => Section::default(),
        false => Section::new("CGROUP LIMITS ON MEMORY", vec![table.into(), note.into()]),
    }
}

fn kernel_log(host: &Host) -> TableBuilder<&String> {
    let lines = host.kernel_log.known().map_or(&[][..], Vec::as_slice);
    let last = &lines[lines.len().saturating_sub(MOST_LOG_LINES)..];
    Table::from_items(last).left("", |line| *line)
}

pub(crate) fn severity_word(severity: Severity) -> Cell {
    Cell::from(severity.name()).marked(match severity {
        Severity::Problem => StatusMark::Bad,
        Severity::Warning => StatusMark::Warn,
        Severity::Note => StatusMark::Dim,
    })
}

pub(crate) fn findings_block(findings: &[Finding]) -> ContentBlock {
    let note = |finding: &Finding| {
        let command = CommandHint::new("run", &finding.command).at_risk(risks(&finding.advice));
        Note::new(severity_word(finding.severity), &finding.text).then(command)
    };
    let notes: Vec<Note> = findings.iter().map(note).collect();
    match notes.is_empty() {
        true => Section::new("", vec!["No findings.".into()]).into(),
        false => Section::new("FINDINGS", vec![notes.into()]).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        let times = [0, 500, 10_000, 1500].map(|n| millis(n).to_string());
        assert_eq!(times, ["0 ms", "500 ms", "10 s", "1.5 s"]);
    }

    #[test]
    fn a_limit_as_good_as_none_is_called_so() {
        assert_eq!(
            limit(&Fact::Known(Bytes(18_446_744_073_692_774_399))),
            "unlimited"
        );
        assert_eq!(limit(&Fact::Known(Bytes(8 << 20))), "8M");
        assert_eq!(limit(&Fact::Absent), "-");
    }
}
