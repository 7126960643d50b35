//! `hugeleaf mem`: memory of processes by page size.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use hugeleaf_host::process::is_run_library;
use hugeleaf_host::{
    Fact, Host, MappingRole, PageUsage, Pid, Process, ProcessMapping, RunSettings,
    SharedMemoryObject, ThpAdvice, memory_totals,
};
use hugeleaf_units::{Bytes, PageKind, PageSize};
use hugeleaf_verdict::role_results::{RoleResult, program, role_of};
use hugeleaf_verdict::why::{RangeVerdict, SegmentAccount};
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::document::{
    Cell, CellValue, ContentBlock, Document, Note, Section, Table, TableBuilder, counted, listed,
};
use crate::json::{answer, merge_fields, value};
use crate::run_roles;
use crate::terminal_escape::cut;

/// The model of `mem`, shared by terminal and JSON.
#[derive(Debug, Clone)]
pub struct MemView<'a> {
    pub host: &'a Host,
    /// Processes, those with most base-page memory first.
    pub processes: &'a [Process],
    pub shared: &'a [SharedMemoryObject],
    /// True if targets were named: then segments are shown, and totals cover the targets only.
    pub targeted: bool,
    /// For each of `processes`, the verdicts on its ranges; empty unless requested.
    pub accounts: &'a [Vec<SegmentAccount>],
    /// For each of `processes`, its roles if `hugeleaf run` started it; empty otherwise.
    pub roles: &'a [Vec<RoleResult>],
}

const ROWS: usize = 25;

/// Sorts processes for display: most base-page memory first, then by PID.
pub fn rank(processes: &mut [Process]) {
    let base = |p: &Process| held(p).map_or(Bytes::ZERO, PageUsage::on_base);
    processes.sort_by_key(|p| (Reverse(base(p)), p.pid));
}

fn held(process: &Process) -> Option<&[PageUsage]> {
    process.by_page_size.known().map(Vec::as_slice)
}

/// Adds a column for each page size and kind that a row holds, smallest first. Base pages always have a column.
fn by_size<T>(
    table: TableBuilder<T>,
    host: &Host,
    held: impl Fn(&T) -> Option<&[PageUsage]> + Copy,
) -> TableBuilder<T> {
    let rows = table.items().iter().filter_map(held).flatten();
    let mut columns: BTreeSet<_> = rows.map(|h| (h.size, h.kind)).collect();
    columns.insert((host.base_page, PageKind::Base));
    table.columns_for(columns, |table, column| {
        let name = format!("{} {}", column.1.name().to_uppercase(), column.0);
        table.right(name, |row| match held(row) {
            None => CellValue::Unreadable.into(),
            Some(held) => {
                let on = held.iter().filter(|h| (h.size, h.kind) == column);
                Cell::some_bytes(on.map(|h| h.bytes).sum())
            }
        })
    })
}

/// Formats a page kind with its size: `base 4K`, `THP 2M`, `hugetlb 1G`.
fn in_words(held: &PageUsage) -> String {
    match held.kind {
        PageKind::Thp => format!("THP {}", held.size),
        kind => format!("{kind} {}", held.size),
    }
}

impl MemView<'_> {
    /// Returns the sums over the shown processes, with each shared page counted once.
    pub fn totals(&self) -> Vec<PageUsage> {
        if self.targeted {
            memory_totals::process_memory(self.processes)
        } else {
            memory_totals::host_memory(self.host)
        }
    }

    pub fn page_tables(&self) -> Bytes {
        let sum = self.processes.iter().map(|p| p.page_tables).sum();
        if self.targeted {
            sum
        } else {
            self.host.memory.page_tables.get().unwrap_or(sum)
        }
    }

    /// Returns the screen; `all` shows all segments, even small ones.
    pub fn page(&self, all: bool) -> Document {
        let mut page = Document::new("Memory by page size", "");
        if !self.targeted {
            page.add(self.ranking(all))
                .add(self.hidden())
                .add(self.sum_line("total, each page once"))
                .section("", self.shared_blocks());
            return page;
        }
        for (i, p) in self.processes.iter().enumerate() {
            let mut blocks = head(p);
            blocks.push(Section::new("", vec![self.segments(p, all).into()]).into());
            page.section("", blocks).section("", self.under_run(i, p));
        }
        if self.processes.len() > 1 {
            let sum = self.sum_line("total, shared memory once");
            page.section("", vec![sum.into()]);
        }
        page
    }

    fn sum_line(&self, what: &str) -> String {
        let totals = self.totals();
        let part = |h: &PageUsage| format!("{} on {}", h.bytes, in_words(h));
        format!(
            "{what}: {} (coverage {}), page tables {}",
            listed("", totals.iter().map(part)),
            Cell::percent(PageUsage::coverage(&totals)),
            self.page_tables()
        )
    }

    fn ranking(&self, all: bool) -> Table {
        let rows = ranked(self.processes, self.shared, all);
        let units = rows.iter().any(|row| row.first.unit.is_some());
        let rest = rows.get(ROWS..).unwrap_or_default();
        let base: Bytes = rest.iter().map(RankedGroup::on_base).sum();
        let table = Table::from_items(rows)
            .right("PID", |row| row.first.pid)
            .left("NAME", RankedGroup::name)
            .when(units, |t| t.left("UNIT", |row| row.first.unit.clone()))
            .right("RESIDENT", |row| row.resident);
        by_size(table, self.host, |row| row.held.as_deref())
            .right("COVERAGE", |row| {
                Cell::percent(row.held.as_deref().and_then(PageUsage::coverage))
            })
            .right("PAGE TABLES", |row| row.page_tables)
            .done()
            .limited(ROWS, format!("with {base} on base pages"), "")
    }

    fn hidden(&self) -> String {
        let processes = self.processes.iter();
        let hidden = processes.filter(|p| p.by_page_size.error().is_some());
        match hidden.count() {
            0 => String::new(),
            1 => "? one process of another user cannot be read: run as root".to_owned(),
            n => format!("? {n} of other users cannot be read: run as root"),
        }
    }

    fn shared_blocks(&self) -> Vec<ContentBlock> {
        let is_held = |o: &&SharedMemoryObject| !o.by_page_size.is_empty();
        let shared: Vec<&SharedMemoryObject> = self.shared.iter().filter(is_held).collect();
        let remarks = shared.iter().flat_map(|o| remarks(o)).map(Note::plain);
        let remarks: Vec<Note> = remarks.collect();
        let misaligned = |o: &SharedMemoryObject| match o.misaligned.len() {
            0 => Cell::default(),
            n => format!("{n} of {}", o.attached.len()).into(),
        };
        let table = Table::from_items(shared)
            .left("SHARED OBJECT", |o| &o.name)
            .right("ATTACHED", |o| o.attached.len());
        let table = by_size(table, self.host, |o| Some(&o.by_page_size))
            .right("COVERAGE", |o| {
                Cell::percent(PageUsage::coverage(&o.by_page_size))
            })
            .right("MISALIGNED", |o| misaligned(o));
        vec![table.into(), remarks.into()]
    }

    fn segments<'a>(&self, p: &'a Process, all: bool) -> TableBuilder<MappingRow<'a>> {
        // The name is the last left-aligned column, which is cut on a narrow screen.
        let table = Table::from_items(rows_of(self.host, p, all))
            .left("ROLE", |r| r.role.name())
            .left("ADDRESS", |r| r.own(|s| format!("{:x}", s.range.start())))
            .left("ASKED", |r| r.own(requested))
            .left("NAME", |r| r.name(p))
            .right("RESIDENT", |r| {
                Cell::some_bytes(r.held.iter().map(|h| h.bytes).sum())
            });
        // Columns without values are omitted: most processes neither lock nor swap.
        by_size(table, self.host, |r| Some(&r.held))
            .right("COVERAGE", |r| Cell::percent(PageUsage::coverage(&r.held)))
            .right("PSS", |r| r.sum(|s| s.pss))
            .nonzero_column("LOCKED", |r| r.sum(|s| s.locked))
            .nonzero_column("SWAPPED", |r| r.sum(|s| s.swapped))
    }

    fn under_run(&self, i: usize, p: &Process) -> Vec<ContentBlock> {
        match (&p.run, slice_at(self.roles, i)) {
            (Fact::Unreadable(error), _) => {
                let text = "under hugeleaf run, with settings that cannot be read";
                vec![format!("{text}: {error}").into()]
            }
            (Fact::Known(_), roles) if !roles.is_empty() => {
                let mut blocks = vec!["under hugeleaf run:".into()];
                blocks.extend(run_roles::blocks(roles));
                blocks
            }
            _ => Vec::new(),
        }
    }

    pub fn json(&self) -> String {
        let processes = self.processes.iter().enumerate();
        let processes: Vec<Json> = processes.map(|(i, p)| self.process_answer(i, p)).collect();
        let shared = || self.shared.iter().map(shared_answer).collect::<Json>();
        let text = answer(&json!({
            "processes": processes,
            "totals": { "by_page_size": self.totals(), "page_tables_bytes": self.page_tables() },
            "shared": (!self.targeted).then(shared),
        }));
        let mut parts = text.split(SEGMENTS_TEXT);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for (i, (part, process)) in parts.zip(self.processes).enumerate() {
            write_segments(&mut out, process, slice_at(self.accounts, i));
            out += part;
        }
        out
    }

    fn process_answer(&self, i: usize, p: &Process) -> Json {
        let about = json!({
            "pid": p.pid,
            "name": p.name,
            "unit": p.unit,
            "cgroup": p.cgroup,
            "resident_bytes": p.resident,
            "swapped_bytes": p.swapped,
            "locked_bytes": p.locked,
            "page_tables_bytes": p.page_tables,
            "thp_disabled": p.thp_disabled,
            "coverage": p.coverage(),
            "by_page_size": p.by_page_size,
        });
        if !self.targeted {
            return about;
        }
        let roles = slice_at(self.roles, i);
        let looked_at = json!({
            "pss_bytes": p.pss,
            "segments": SEGMENTS,
            "run": p.run.clone().map(|settings| run_answer(p, &settings)),
            "roles": (!roles.is_empty()).then_some(roles),
        });
        merge_fields(about, looked_at)
    }
}

/// A row of the ranking: a process, or several of one name and unit.
struct RankedGroup<'a> {
    first: &'a Process,
    count: usize,
    /// Memory by page size; `None` if it cannot be read.
    held: Option<Vec<PageUsage>>,
    resident: Bytes,
    page_tables: Bytes,
}

impl<'a> RankedGroup<'a> {
    fn new(processes: &[&'a Process], shared: &[SharedMemoryObject]) -> Option<RankedGroup<'a>> {
        let first = *processes.iter().min_by_key(|p| p.pid)?;
        let memory = match (processes.len(), held(first)) {
            (1, memory) => memory.map(<[PageUsage]>::to_vec),
            (_, Some(_)) => Some(memory_totals::of_group(processes, shared)),
            (_, None) => None,
        };
        let resident = match &memory {
            Some(memory) if processes.len() > 1 => PageUsage::total(memory),
            _ => processes.iter().map(|p| p.resident).sum(),
        };
        Some(RankedGroup {
            first,
            count: processes.len(),
            held: memory,
            resident,
            page_tables: processes.iter().map(|p| p.page_tables).sum(),
        })
    }

    fn name(&self) -> String {
        let name = marked_name(self.first);
        match self.count {
            1 => name,
            n => format!("{name} ×{n}"),
        }
    }

    fn on_base(&self) -> Bytes {
        let held = self.held.as_deref();
        held.map_or(Bytes::ZERO, PageUsage::on_base)
    }
}

/// Returns the rows of the ranking, most base-page memory first. Processes of one name and unit are one row unless `all` are
/// shown.
fn ranked<'a>(
    processes: &'a [Process],
    shared: &[SharedMemoryObject],
    all: bool,
) -> Vec<RankedGroup<'a>> {
    let mut groups: BTreeMap<_, Vec<&'a Process>> = BTreeMap::new();
    for p in processes {
        let alone = all.then_some(p.pid);
        let key = (marked_name(p), p.unit.as_deref(), held(p).is_some(), alone);
        groups.entry(key).or_default().push(p);
    }
    let rows = groups.into_values();
    let mut rows: Vec<RankedGroup<'a>> = rows
        .filter_map(|group| RankedGroup::new(&group, shared))
        .collect();
    rows.sort_by_key(|row| (Reverse(row.on_base()), row.first.pid));
    rows
}

fn slice_at<T>(all: &[Vec<T>], i: usize) -> &[T] {
    all.get(i).map_or(&[], Vec::as_slice)
}

/// Formats a process's name, with a note if the process disabled THP for itself.
fn marked_name(p: &Process) -> String {
    match p.thp_disabled.get() {
        Some(true) => format!("{} (THP off)", p.name),
        _ => p.name.clone(),
    }
}

fn head(p: &Process) -> Vec<ContentBlock> {
    let unit = listed(" of ", &p.unit);
    let part = |h: &PageUsage| format!("{} {}", in_words(h), h.bytes);
    let parts = held(p).map(|held| format!(": {}", listed("", held.iter().map(part))));
    let parts = parts.unwrap_or_default();
    let first = format!(
        "{} ({}){unit}: {} resident{parts}",
        p.name, p.pid, p.resident
    );
    let some = |bytes: Bytes| (!bytes.is_zero()).then_some(bytes);
    let second = format!(
        "coverage {}, page tables {}{}{}{}",
        Cell::percent(p.coverage()),
        p.page_tables,
        listed(", proportional share ", p.pss.get()),
        listed(", locked ", some(p.locked)),
        listed(", swapped ", some(p.swapped))
    );
    let mut blocks = vec![first.into(), second.into()];
    if p.thp_disabled.get() == Some(true) {
        let text = "THP disabled by the process: prctl(PR_SET_THP_DISABLE)";
        blocks.push(text.into());
    }
    blocks
}

fn remarks(object: &SharedMemoryObject) -> Vec<String> {
    const SHOWN: usize = 5;
    let misaligned = object.misaligned.clone();
    let worse = object.worse.iter().map(|(pid, _)| *pid);
    let worse = worse.filter(|pid| !misaligned.contains(pid)).collect();
    let name = cut(&object.name, 40);
    let line = |(what, pids): (&str, Vec<Pid>)| {
        let more = match pids.len().saturating_sub(SHOWN) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let shown = listed("", pids.iter().take(SHOWN));
        (!pids.is_empty()).then(|| format!("{name}: {what} by {shown}{more}"))
    };
    let lines = [
        ("attached at a misaligned address", misaligned.clone()),
        ("mapped by smaller pages than elsewhere", worse),
    ];
    lines.into_iter().filter_map(line).collect()
}

/// A row of a process's table: a segment, or the small segments of a role.
struct MappingRow<'a> {
    role: MappingRole,
    segments: Vec<&'a ProcessMapping>,
    is_one: bool,
    held: Vec<PageUsage>,
}

impl<'a> MappingRow<'a> {
    fn new(role: MappingRole, segments: Vec<&'a ProcessMapping>, is_one: bool) -> MappingRow<'a> {
        let mut held = Vec::new();
        PageUsage::add_all(&mut held, segments.iter().flat_map(|s| &s.by_page_size));
        MappingRow {
            role,
            segments,
            is_one,
            held,
        }
    }

    /// Formats a field of a single segment; empty if the row has several.
    fn own(&self, of: fn(&ProcessMapping) -> String) -> String {
        let one = self.segments.first().filter(|_| self.is_one);
        one.map_or_else(String::new, |segment| of(segment))
    }

    fn name(&self, process: &Process) -> String {
        match self.segments.as_slice() {
            [one] if self.is_one && process.guest_ram_of(one).is_some() => process.name_of(one),
            _ if self.is_one => self.own(name),
            all => counted(all.len(), "mapping"),
        }
    }

    fn sum(&self, of: fn(&ProcessMapping) -> Bytes) -> Cell {
        Cell::some_bytes(self.segments.iter().map(|s| of(s)).sum())
    }
}

/// Returns the segments that could hold a huge page, largest first, then a row for each role with the others.
/// `all` lists every segment.
fn rows_of<'a>(host: &Host, p: &'a Process, all: bool) -> Vec<MappingRow<'a>> {
    let smallest = host.pmd_page.get().unwrap_or(host.base_page).bytes();
    let size = |s: &ProcessMapping| s.resident + s.swapped;
    let segments = p.segments.iter().filter(|s| !size(s).is_zero());
    let (mut large, small): (Vec<&ProcessMapping>, Vec<&ProcessMapping>) =
        segments.partition(|s| all || size(s) >= smallest);
    large.sort_by_key(|s| (Reverse(s.resident), s.range));
    let mut roles: BTreeMap<MappingRole, Vec<&ProcessMapping>> = BTreeMap::new();
    for segment in small {
        roles.entry(segment.role).or_default().push(segment);
    }
    let large = large
        .into_iter()
        .map(|s| MappingRow::new(s.role, vec![s], true));
    let small = roles
        .into_iter()
        .map(|(role, all)| MappingRow::new(role, all, false));
    large.chain(small).collect()
}

/// Returns the last component of a file's path; `--json` has the full path.
fn name(s: &ProcessMapping) -> String {
    match s.name.rsplit('/').next() {
        Some("") | None => "-".into(),
        Some(last) if s.name.starts_with('/') && s.role != MappingRole::Shm => last.to_owned(),
        Some(_) => s.name.clone(),
    }
}

fn requested(s: &ProcessMapping) -> String {
    let hugetlb = s.request.hugetlb.map(|size| format!("hugetlb {size}"));
    let advised = match s.request.advised {
        ThpAdvice::Huge => Some("huge".to_owned()),
        ThpAdvice::NoHuge => Some("no huge".to_owned()),
        ThpAdvice::Nothing => None,
    };
    let all = [hugetlb, advised, s.request.policy.clone()];
    match listed("", all.into_iter().flatten()) {
        nothing if nothing.is_empty() => "-".to_owned(),
        words => words,
    }
}

fn run_answer(p: &Process, settings: &RunSettings) -> Json {
    let only = &settings.only;
    json!({
        "library_loaded": p.segments.iter().any(|s| is_run_library(&s.name)),
        "data_after_bytes": settings.data_after,
        "shm_after_bytes": settings.shm_after,
        "stack_after_bytes": settings.stack_after,
        "reserve_bytes": settings.reserve,
        "only": (!only.is_empty()).then_some(only),
    })
}

/// A placeholder for a process's segments until the answer is text. The number of segments is unbounded, and as
/// JSON values they take four times the memory. No name contains a zero byte.
const SEGMENTS: &str = "\0";
const SEGMENTS_TEXT: &str = "\"\\u0000\"";

fn write_segments(out: &mut String, p: &Process, accounts: &[SegmentAccount]) {
    const INDENT: &str = "\n        ";
    let program = program(p);
    *out += "[";
    for (n, segment) in p.segments.iter().enumerate() {
        *out += if n == 0 { "" } else { "," };
        *out += INDENT;
        // Accounts are found by index: searching would be quadratic in the number of segments, which is unbounded.
        let verdicts = accounts.get(n).map_or(&[][..], |a| &a.verdicts);
        let asked = || Some(p.run.known()?.policy(role_of(program, segment)?).text());
        let mut answer = segment_answer(segment, asked(), verdicts);
        if let Some(ram) = p.guest_ram_of(segment) {
            answer["guest_ram"] = json!({ "backend": ram.backend });
        }
        let text = format!("{:#}", value(&answer));
        *out += &text.replace('\n', INDENT);
    }
    *out += if p.segments.is_empty() {
        "]"
    } else {
        "\n      ]"
    };
}

fn segment_answer(s: &ProcessMapping, run: Option<String>, verdicts: &[RangeVerdict]) -> Json {
    let more = json!({
        "role": s.role,
        "name": s.name,
        "shared": s.shared,
        "resident_bytes": s.resident,
        "pss_bytes": s.pss,
        "locked_bytes": s.locked,
        "swapped_bytes": s.swapped,
        "asked": merge_fields(&s.request, json!({ "run": run })),
        "by_page_size": s.by_page_size,
        "verdicts": verdicts,
    });
    merge_fields(s.range, more)
}

fn shared_answer(o: &SharedMemoryObject) -> Json {
    let (major, minor, inode) = o.object;
    let worse = (o.worse.iter()).map(|(pid, held)| json!({ "pid": pid, "by_page_size": held }));
    json!({
        "name": o.name,
        "device": format!("{major:x}:{minor:x}"),
        "inode": inode,
        "by_page_size": o.by_page_size,
        "attached": o.attached,
        "misaligned": o.misaligned,
        "worse": worse.collect::<Vec<Json>>(),
    })
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostPageUsage {
    #[serde(rename = "page_bytes")]
    pub size: PageSize,
    pub kind: PageKind,
    /// Size of the pool; `None` for THP, which is made of base pages on demand.
    #[serde(rename = "pool_bytes")]
    pub pool: Option<Bytes>,
    #[serde(rename = "in_use_bytes")]
    pub in_use: Fact<Bytes>,
    /// Memory that is neither reclaimed nor swapped: locked memory, and all hugetlb pages.
    #[serde(rename = "pinned_bytes")]
    pub pinned: Option<Bytes>,
    #[serde(rename = "free_bytes")]
    pub free: Option<Bytes>,
}

/// Returns the host's memory by page size, in the style of `svmon -G`.
pub fn global(host: &Host) -> Vec<HostPageUsage> {
    let m = &host.memory;
    // Absent values of this kernel count as 0; an unreadable value makes the sum unknown.
    let sum = |facts: &[&Fact<Bytes>]| match facts.iter().find_map(|fact| fact.error()) {
        Some(error) => Fact::Unreadable(error.clone()),
        None => Fact::Known(facts.iter().filter_map(|fact| fact.get()).sum::<Bytes>()),
    };
    let thp = sum(&[&m.anon_huge, &m.shmem_huge, &m.file_huge]);
    let mut rows = Vec::new();
    if let (Some(total), Some(free), Some(pools)) =
        (m.total.get(), m.free.get(), sum(&[&m.hugetlb]).get())
    {
        rows.push(HostPageUsage {
            size: host.base_page,
            kind: PageKind::Base,
            pool: Some(total - pools),
            in_use: thp.clone().map(|thp| total - pools - free - thp),
            pinned: m.unevictable.get(),
            free: Some(free),
        });
    }
    if let Some(size) = host.pmd_page.get() {
        rows.push(HostPageUsage {
            size,
            kind: PageKind::Thp,
            pool: None,
            in_use: thp,
            pinned: None,
            free: host.buddy.known().map(|b| b.free_for(size, host.base_page)),
        });
    }
    for pool in host.pools.iter().filter(|p| p.node.is_none()) {
        if let (Some(total), Some(free)) = (pool.total.get(), pool.free.get()) {
            let (total, free) = (total.in_bytes(pool.size), free.in_bytes(pool.size));
            rows.push(HostPageUsage {
                size: pool.size,
                kind: PageKind::Hugetlb,
                pool: Some(total),
                in_use: Fact::Known(total - free),
                pinned: Some(total),
                free: Some(free),
            });
        }
    }
    rows
}

pub fn global_page(host: &Host) -> Document {
    let mut page = Document::new("Memory by page size", "");
    let table = Table::from_items(global(host))
        .right("PAGE SIZE", |row| row.size)
        .left("KIND", |row| row.kind)
        .right("POOL", |row| row.pool)
        .right("IN USE", |row| row.in_use.clone())
        .right("PINNED", |row| row.pinned)
        .right("FREE", |row| row.free);
    page.add(table)
        .add(
            "THP uses base memory on demand. Its FREE is the free memory in blocks of at least \
             that size.",
        )
        .add("hugetlb pages are never reclaimed: all of a pool is pinned.");
    page
}

pub fn global_json(host: &Host) -> String {
    answer(&json!({ "sizes": global(host) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, name: &str, base: u64) -> Process {
        let held = PageUsage {
            size: "4K".parse().unwrap(),
            kind: PageKind::Base,
            bytes: Bytes::from_mib(base),
        };
        let mut process = Process {
            pid: Pid(pid),
            name: name.to_owned(),
            page_tables: Bytes::from_kib(100),
            ..Process::default()
        };
        process.set_table(Fact::Known(vec![held]));
        process
    }

    #[test]
    fn equal_processes_are_one_row() {
        let mut all = vec![
            process(30, "bash", 3),
            process(10, "postgres", 20),
            process(20, "bash", 5),
            process(40, "bash", 7),
            process(50, "bash", 1),
        ];
        all[3].unit = Some("app.service".to_owned());
        let rows = ranked(&all, &[], false);
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.first.pid, row.name(), row.resident, row.page_tables))
            .collect();
        let row = |pid, name: &str, resident, tables| {
            (
                Pid(pid),
                name.to_owned(),
                Bytes::from_mib(resident),
                Bytes::from_kib(tables),
            )
        };
        let expected = [
            row(10, "postgres", 20, 100),
            row(20, "bash ×3", 9, 300),
            row(40, "bash", 7, 100),
        ];
        assert_eq!(shown, expected);
        let names: Vec<String> = ranked(&all, &[], true)
            .iter()
            .map(RankedGroup::name)
            .collect();
        assert_eq!(names, ["postgres", "bash", "bash", "bash", "bash"]);
    }

    #[test]
    fn unreadable_processes_are_a_row_of_their_own() {
        let mut hidden = process(60, "bash", 1);
        hidden.by_page_size = Fact::Absent;
        let all = [process(20, "bash", 5), hidden.clone(), hidden];
        let rows = ranked(&all, &[], false);
        let names: Vec<String> = rows.iter().map(RankedGroup::name).collect();
        assert_eq!(names, ["bash", "bash ×2"]);
        assert_eq!(rows[1].held, None);
        assert_eq!(rows[1].resident, Bytes::from_mib(2));
    }
}
