//! `hugeleaf status`: a host on one screen, and the same as JSON.
//!
//! What a host does not have takes at most a line; what could not be read says `unknown`, and the
//! findings say why. Findings come last: the end of an answer is what stays in sight.

mod json;

use hugeleaf_host::{Fact, Host, Memory, MemoryLimit, Pool, Thp};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};
use hugeleaf_verdict::findings::{Finding, Holder, Severity, by_name};

use crate::table::{Align, Look, Paint, Table, clean, cut, percent};

pub(crate) use json::finding as finding_json;
pub use json::status as status_json;

/// How many of a kind are shown before `and N more`.
const MOST_CGROUPS: usize = 8;
const MOST_HOLDERS: usize = 4;
const MOST_LOG_LINES: usize = 3;

/// The screen.
pub fn status(host: &Host, findings: &[Finding], look: Look) -> String {
    let sections = [
        head(host, look),
        page_sizes(host, look),
        pools(host, look),
        settings(host, look),
        cgroups(host, look),
        memory_limits(host, look),
        kernel_log(host, look),
        findings_section(findings, look),
    ];
    let shown: Vec<String> = sections.into_iter().filter(|s| !s.is_empty()).collect();
    shown.join("\n")
}

fn title(text: &str, look: Look) -> String {
    look.paint(text, Paint::Bold) + "\n"
}

/// A fact in words: `unknown` where it could not be read, `-` where the host does not have it.
fn words<T>(fact: &Fact<T>, show: impl FnOnce(&T) -> String) -> String {
    match fact {
        Fact::Known(value) => show(value),
        Fact::Absent => "-".to_owned(),
        Fact::Unreadable(_) => "unknown".to_owned(),
    }
}

fn bytes(fact: &Fact<Bytes>) -> String {
    words(fact, Bytes::to_string)
}

/// A limit: what is as good as no limit is called so.
fn limit(fact: &Fact<Bytes>) -> String {
    const AS_GOOD_AS_NONE: u64 = i64::MAX.unsigned_abs();
    words(fact, |limit| match limit.get() {
        n if n >= AS_GOOD_AS_NONE => "unlimited".to_owned(),
        _ => limit.to_string(),
    })
}

fn head(host: &Host, look: Look) -> String {
    let memory = &host.memory;
    let nodes = match host.nodes.len() {
        1 => "1 node".to_owned(),
        n => format!("{n} nodes"),
    };
    let arch = host
        .arch
        .known()
        .map_or(String::new(), |arch| format!(" {arch}"));
    let name = format!("Linux {}{arch}", words(&host.kernel, String::clone));
    let text = format!(
        "{name}: {} of memory on {nodes}, {} available, {} free; base page {}",
        bytes(&memory.total),
        bytes(&memory.available),
        bytes(&memory.free),
        host.base_page
    );
    look.wrap("", &text)
}

/// One line of the table of page sizes, before sizes with equal settings are put together.
struct SizeRow {
    sizes: Vec<PageSize>,
    kind: PageKind,
    on: bool,
    private: String,
    shared: String,
    had: Vec<String>,
    at_most: Vec<String>,
    limited_by: String,
}

fn page_sizes(host: &Host, look: Look) -> String {
    let mut rows: Vec<SizeRow> = Vec::new();
    for info in &host.page_sizes {
        let (private, shared) = settings_of(host, info.size, info.kind, info.enabled);
        let row = SizeRow {
            sizes: vec![info.size],
            kind: info.kind,
            on: info.enabled,
            private,
            shared,
            had: vec![words(&info.could_be_had, |had| had.bytes.to_string())],
            at_most: vec![bytes(&info.if_defragmented)],
            limited_by: words(&info.could_be_had, |had| had.limited_by.clone()),
        };
        match rows.last_mut().filter(|last| last.is_like(&row)) {
            Some(last) => last.take(row),
            None => rows.push(row),
        }
    }
    let mut table = Table::new(&[
        ("SIZE", Align::Right),
        ("KIND", Align::Left),
        ("ON", Align::Left),
        ("PRIVATE", Align::Left),
        ("SHARED", Align::Left),
        ("TO BE HAD", Align::Right),
        ("AT MOST", Align::Right),
        ("LIMITED BY", Align::Left),
    ])
    .indented(2);
    for row in rows {
        let sizes: Vec<String> = row.sizes.iter().map(PageSize::to_string).collect();
        table.row([
            span(&sizes),
            row.kind.to_string(),
            if row.on { "yes" } else { "no" }.to_owned(),
            row.private,
            row.shared,
            span(&row.had),
            span(&row.at_most),
            row.limited_by,
        ]);
    }
    let text = title("PAGE SIZES", look) + &table.render_as(look);
    let mut note = "TO BE HAD: now. AT MOST: were all available memory contiguous.".to_owned();
    if text.contains(INHERITED) {
        note += &format!(" {INHERITED}: inherited from enabled or shmem_enabled.");
    }
    text + &look.wrap("  ", &note)
}

impl SizeRow {
    /// Whether only the size differs: the smaller THP sizes are mostly set alike.
    fn is_like(&self, other: &SizeRow) -> bool {
        self.kind == PageKind::Thp
            && (
                self.kind,
                self.on,
                &self.private,
                &self.shared,
                &self.limited_by,
            ) == (
                other.kind,
                other.on,
                &other.private,
                &other.shared,
                &other.limited_by,
            )
    }

    fn take(&mut self, other: SizeRow) {
        self.sizes.extend(other.sizes);
        self.had.extend(other.had);
        self.at_most.extend(other.at_most);
    }
}

/// `A` or `A-B`: the first and the last of texts that may differ.
fn span(texts: &[String]) -> String {
    match (texts.first(), texts.last()) {
        (Some(first), Some(last)) if first != last => format!("{first}-{last}"),
        (first, _) => first.cloned().unwrap_or_default(),
    }
}

/// How a size is enabled for private and for shared memory.
fn settings_of(host: &Host, size: PageSize, kind: PageKind, enabled: bool) -> (String, String) {
    let both = |text: &str| (text.to_owned(), text.to_owned());
    match kind {
        PageKind::Base => both("always"),
        PageKind::Hugetlb => both(if enabled { "on request" } else { "no pool" }),
        PageKind::Thp => {
            let thp = host.thp.known();
            let order = thp.and_then(|thp| thp.orders.iter().find(|o| o.size == size));
            match (thp, order) {
                (Some(thp), Some(order)) => (
                    setting(&order.anon, &thp.enabled),
                    setting(&order.shmem, &thp.shmem_enabled),
                ),
                _ => both("-"),
            }
        }
    }
}

/// Marks a setting that a size takes from the knob above.
const INHERITED: char = '*';

/// A size's own knob; where it inherits, the one in force, marked.
fn setting(own: &Fact<String>, top: &Fact<String>) -> String {
    match own.known().map(String::as_str) {
        Some("inherit") => words(top, String::clone) + &INHERITED.to_string(),
        _ => words(own, String::clone),
    }
}

fn pools(host: &Host, look: Look) -> String {
    if host.pools.is_empty() {
        return look.wrap("", "hugetlb: not in this kernel.");
    }
    let is_empty = |size: PageSize| {
        let of_size = |pool: &&Pool| pool.size == size;
        let zero = |fact: &Fact<Pages>| matches!(fact, Fact::Known(Pages(0)) | Fact::Absent);
        host.pools
            .iter()
            .filter(of_size)
            .all(|p| zero(&p.total) && zero(&p.overcommit))
    };
    let mut table = Table::new(&[
        ("SIZE", Align::Right),
        ("NODE", Align::Right),
        ("PAGES", Align::Right),
        ("MEMORY", Align::Right),
        ("IN USE", Align::Right),
        ("FREE", Align::Right),
        ("RESERVED", Align::Right),
        ("UNUSED", Align::Right),
        ("SURPLUS", Align::Right),
        ("OVERCOMMIT", Align::Right),
    ])
    .indented(2);
    for pool in host.pools.iter().filter(|p| !is_empty(p.size)) {
        if pool.node.is_none() || host.nodes.len() > 1 {
            table.row(pool_row(pool));
        }
    }
    let empty: Vec<String> = host
        .pools
        .iter()
        .filter(|pool| pool.node.is_none() && is_empty(pool.size))
        .map(|pool| pool.size.to_string())
        .collect();
    if table.is_empty() {
        return look.wrap(
            "",
            &format!("hugetlb: all pools are empty ({}).", empty.join(", ")),
        );
    }
    let mut text = title("HUGETLB POOLS", look) + &table.render_as(look);
    let mut note = "UNUSED: neither held nor reserved by anybody.".to_owned();
    if !empty.is_empty() {
        note += &format!(" Empty: {}.", empty.join(", "));
    }
    note += &memlock_note(host);
    text += &look.wrap("  ", &note);
    text
}

/// What memlock leaves of the pools to SysV segments, where that is less than there is.
fn memlock_note(host: &Host) -> String {
    let hugetlb = host
        .page_sizes
        .iter()
        .filter(|info| info.kind == PageKind::Hugetlb);
    let most = hugetlb
        .filter_map(|info| Some(info.could_be_had.known()?.bytes))
        .max();
    match (host.limits.memlock.get(), most) {
        (Some(memlock), Some(most)) if memlock < most => {
            let group = match host.limits.hugetlb_shm_group.get() {
                None | Some(0) => String::new(),
                Some(group) => format!(" or group {group}"),
            };
            format!(
                " SysV segments on hugetlb: {memlock} (memlock of this process) without \
                 CAP_IPC_LOCK{group}."
            )
        }
        _ => String::new(),
    }
}

fn pool_row(pool: &Pool) -> [String; 10] {
    let pages = |fact: &Fact<Pages>| words(fact, Pages::to_string);
    let less = |a: &Fact<Pages>, b: &Fact<Pages>| {
        let difference = |a: Pages| b.clone().map(|b| Pages(a.get().saturating_sub(b.get())));
        a.clone().and_then(difference)
    };
    [
        pool.size.to_string(),
        pool.node.map_or("all".to_owned(), |node| node.to_string()),
        pages(&pool.total),
        words(&pool.total, |total| total.of(pool.size).to_string()),
        pages(&less(&pool.total, &pool.free)),
        pages(&pool.free),
        pages(&pool.reserved),
        pages(&less(&pool.free, &pool.reserved)),
        pages(&pool.surplus),
        pages(&pool.overcommit),
    ]
}

/// The lines that need no table: a label and a sentence each.
fn settings(host: &Host, look: Look) -> String {
    let lines = [
        ("memory", memory_line(host)),
        ("page tables", page_tables_line(host)),
        ("hugetlb", hugetlb_line(host)),
        ("THP", thp_line(host)),
        ("limits", limits_line(host)),
    ];
    let line = |(label, text): &(&str, String)| look.wrap(&format!("  {label:<13}"), text);
    let shown = lines.iter().filter(|(_, text)| !text.is_empty());
    title("IN USE AND IN FORCE", look) + &shown.map(line).collect::<String>()
}

/// Private memory, shared memory and page cache, and how much of each is on PMD-sized pages.
fn memory_line(host: &Host) -> String {
    let Memory {
        anon,
        anon_huge,
        shmem,
        shmem_huge,
        file_huge,
        cached,
        ..
    } = &host.memory;
    let cache = cached.clone().and_then(|c| shmem.clone().map(|s| c - s));
    let huge = |all: &Fact<Bytes>, huge: &Fact<Bytes>| {
        let share = huge.get().and_then(|huge| huge.share_of(all.get()?));
        match (host.pmd_page.get(), huge.is_absent()) {
            (Some(pmd), false) => format!(" ({} on {pmd})", percent(share)),
            _ => String::new(),
        }
    };
    let parts = [
        ("private", anon, anon_huge),
        ("shared", shmem, shmem_huge),
        ("page cache", &cache, file_huge),
    ];
    let known = parts.iter().filter(|(_, all, _)| !all.is_absent());
    let part = |(name, all, on): &(&str, &Fact<Bytes>, &Fact<Bytes>)| {
        format!("{name} {}{}", bytes(all), huge(all, on))
    };
    known.map(part).collect::<Vec<_>>().join(", ")
}

fn page_tables_line(host: &Host) -> String {
    let tables = &host.memory.page_tables;
    let share = tables
        .get()
        .and_then(|t| t.share_of(host.memory.total.get()?));
    let holders = by_name(&host.owners);
    let most: Vec<String> = holders
        .iter()
        .filter(|holder| !holder.page_tables.is_zero())
        .take(MOST_HOLDERS)
        .map(|holder| format!("{} {}", named(holder), holder.page_tables))
        .collect();
    let who = match most.is_empty() {
        true => String::new(),
        false => format!("; most for {}", most.join(", ")),
    };
    let part = match share {
        Some(share) if share >= 0.001 => format!(" ({:.1} % of memory)", share * 100.0),
        _ => String::new(),
    };
    bytes(tables) + &part + &who
}

/// Who maps hugetlb pages; empty where nobody does.
fn hugetlb_line(host: &Host) -> String {
    let mut holders = by_name(&host.owners);
    holders.retain(|holder| !holder.hugetlb.is_zero());
    holders.sort_by_key(|holder| std::cmp::Reverse(holder.hugetlb));
    let one = |holder: &Holder| {
        let each = if holder.processes > 1 { "up to " } else { "" };
        format!("{} {each}{}", named(holder), holder.hugetlb)
    };
    let most: Vec<String> = holders.iter().take(MOST_HOLDERS).map(one).collect();
    match most.is_empty() {
        true => String::new(),
        false => format!("mapped by {}", most.join(", ")),
    }
}

fn named(holder: &Holder) -> String {
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
    let switch = |on: &bool| if *on { "on" } else { "off" }.to_owned();
    let khugepaged = if khugepaged_runs(host, thp) {
        format!(
            "khugepaged makes {}, scans {} every {}, defrag {}, max_ptes_none {}",
            khugepaged_makes(host, thp),
            words(&k.pages_to_scan, |pages| pages
                .of(host.base_page)
                .to_string()),
            words(&k.scan_sleep_millis, |millis| seconds(*millis)),
            words(&k.defrag, switch),
            words(&k.max_ptes_none, Pages::to_string)
        )
    } else {
        "khugepaged does not run".to_owned()
    };
    format!(
        "defrag {}; {khugepaged}; huge zero page {}{}",
        words(&thp.defrag, String::clone),
        words(&thp.use_zero_page, switch),
        shrink_underused(host, thp)
    )
}

/// The sizes that khugepaged makes.
fn khugepaged_makes(host: &Host, thp: &Thp) -> String {
    let sizes = thp.khugepaged_sizes(host.pmd_page.get());
    let sizes: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
    match sizes.is_empty() {
        true => "shared memory large".to_owned(),
        false => sizes.join(" and "),
    }
}

/// Whether the kernel splits mostly empty huge pages when memory is short: those of which more than
/// `max_ptes_none` base pages hold zeroes. With its default there are none.
fn shrink_underused(host: &Host, thp: &Thp) -> String {
    let all_but_one = host.pmd_page.get().map(|p| p.holds(host.base_page) - 1);
    let none = thp.khugepaged.max_ptes_none.get().map(Pages::get);
    match thp.shrink_underused {
        Fact::Known(true) if none.is_some() && none == all_but_one => {
            "; shrink_underused on (splits nothing with this max_ptes_none)".to_owned()
        }
        Fact::Known(true) => "; shrink_underused on".to_owned(),
        Fact::Known(false) => "; shrink_underused off".to_owned(),
        _ => String::new(),
    }
}

/// It runs where a size that it makes is on for private memory, or the PMD's for shared memory
/// (mm/khugepaged.c, hugepage_enabled), or may be as far as is known.
fn khugepaged_runs(host: &Host, thp: &Thp) -> bool {
    let on = |setting: Option<&str>| setting.is_none_or(|word| !matches!(word, "never" | "deny"));
    let pmd = host.pmd_page.get();
    let mut full = thp.orders.iter().filter(|o| Some(o.size) == pmd);
    !thp.khugepaged_sizes(pmd).is_empty() || full.any(|o| on(o.shmem_in_force(thp)))
}

fn seconds(millis: u64) -> String {
    match (millis / 1000, millis % 1000) {
        (0, millis) => format!("{millis} ms"),
        (seconds, 0) => format!("{seconds} s"),
        (seconds, millis) => format!("{seconds}.{} s", millis / 100),
    }
}

fn limits_line(host: &Host) -> String {
    let limits = &host.limits;
    let shmall = limits.shmall.clone().map(|pages| pages.of(host.base_page));
    let group = |group: &u64| match group {
        0 => "none".to_owned(),
        group => group.to_string(),
    };
    let mut parts = vec![("memlock", limit(&limits.memlock))];
    if !host.pools.is_empty() {
        parts.push(("hugetlb_shm_group", words(&limits.hugetlb_shm_group, group)));
    }
    parts.extend([
        ("shmmax", limit(&limits.shmmax)),
        ("shmall", limit(&shmall)),
        ("min_free", bytes(&limits.min_free)),
        (
            "overcommit_memory",
            words(&limits.overcommit_memory, u64::to_string),
        ),
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
    present
        .map(|(name, value)| format!("{name} {value}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn cgroups(host: &Host, look: Look) -> String {
    let all = host.cgroups.known().map(Vec::as_slice).unwrap_or_default();
    let mut table = Table::new(&[
        ("CGROUP", Align::Left),
        ("V", Align::Right),
        ("SIZE", Align::Right),
        ("FAULT LIMIT", Align::Right),
        ("USED", Align::Right),
        ("RESERVATION LIMIT", Align::Right),
        ("RESERVED", Align::Right),
        ("HITS", Align::Right),
    ])
    .indented(2);
    let of = |limit: &Fact<Option<Bytes>>| {
        words(limit, |limit| {
            limit.map_or("unlimited".to_owned(), |bytes| bytes.to_string())
        })
    };
    let rows = all
        .iter()
        .flat_map(|cgroup| cgroup.hugetlb.iter().map(move |limit| (cgroup, limit)));
    let count = rows.clone().count();
    for (cgroup, limit) in rows.take(MOST_CGROUPS) {
        table.row([
            cgroup.path.clone(),
            cgroup.version.to_string(),
            limit.size.to_string(),
            of(&limit.fault_limit),
            bytes(&limit.fault_usage),
            of(&limit.reservation_limit),
            bytes(&limit.reservation_usage),
            words(&limit.hits, u64::to_string),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    title("CGROUP LIMITS ON HUGETLB", look) + &table.render_as(look) + &and_more(count, look)
}

/// Says that a table of cgroups goes on.
fn and_more(count: usize, look: Look) -> String {
    match count > MOST_CGROUPS {
        true => look.wrap(
            "  ",
            &format!("and {} more: hugeleaf status --json", count - MOST_CGROUPS),
        ),
        false => String::new(),
    }
}

/// Those that leave least first: a huge page is charged before the base pages that it replaces are
/// given back.
fn memory_limits(host: &Host, look: Look) -> String {
    let mut limits: Vec<&MemoryLimit> = host.memory_limits.iter().collect();
    limits.sort_by_key(|l| (l.room_at_most(), l.path.as_str()));
    let mut table = Table::new(&[
        ("CGROUP", Align::Left),
        ("V", Align::Right),
        ("LIMIT", Align::Right),
        ("USED", Align::Right),
        ("PAGE CACHE", Align::Right),
        ("LEFT", Align::Right),
    ])
    .indented(2);
    for limit in limits.iter().take(MOST_CGROUPS) {
        table.row([
            limit.path.clone(),
            limit.version.to_string(),
            limit.limit.to_string(),
            limit.usage.to_string(),
            (limit.unused_cache + limit.used_cache).to_string(),
            limit.room_at_most().to_string(),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let note =
        "LEFT: were all its page cache given up. Huge pages count as base pages do, pools do not.";
    title("CGROUP LIMITS ON MEMORY", look)
        + &table.render_as(look)
        + &and_more(limits.len(), look)
        + &look.wrap("  ", note)
}

fn kernel_log(host: &Host, look: Look) -> String {
    let lines = host
        .kernel_log
        .known()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if lines.is_empty() {
        return String::new();
    }
    let last = &lines[lines.len().saturating_sub(MOST_LOG_LINES)..];
    let line = |line: &String| format!("  {}\n", cut(&clean(line), look.width.saturating_sub(2)));
    title("KERNEL LOG", look) + &last.iter().map(line).collect::<String>()
}

/// What a finding says, behind the word for how bad that is.
pub(crate) fn said(severity: Severity, text: &str, look: Look) -> String {
    let paint = match severity {
        Severity::Problem => Paint::Bad,
        Severity::Warning => Paint::Warn,
        Severity::Note => Paint::Dim,
    };
    let word = severity.name();
    // Wrapped without colour, so that the widths are true; painted after.
    let wrapped = look.wrap(&format!("  {word:<9}"), text);
    wrapped.replacen(word, &look.paint(word, paint), 1)
}

pub(crate) fn findings_section(findings: &[Finding], look: Look) -> String {
    if findings.is_empty() {
        return look.wrap("", "No findings.");
    }
    let mut text = title("FINDINGS", look);
    for finding in findings {
        text += &said(finding.severity, &finding.text, look);
        text += &format!("           run: {}\n", clean(&finding.command));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_spans_read_well() {
        assert_eq!(
            [seconds(0), seconds(500), seconds(10_000), seconds(1500)],
            ["0 ms", "500 ms", "10 s", "1.5 s"]
        );
        let texts =
            |words: &[&str]| span(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            [
                texts(&["1G", "1G"]),
                texts(&["16K", "32K", "1M"]),
                texts(&[])
            ],
            ["1G", "16K-1M", ""]
        );
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
