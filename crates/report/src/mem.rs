//! `hugeleaf mem`: who holds what on pages of which size.

use hugeleaf_host::process::is_run_library;
use hugeleaf_host::{
    Advised, Asked, Fact, Held, Host, Pid, Process, Role, RunSettings, Segment, SharedObject,
    totals,
};
use hugeleaf_units::{Bytes, PageKind, PageSize, Range};
use hugeleaf_verdict::roles::{RoleState, role_of};
use hugeleaf_verdict::why::{Account, Verdict};
use serde::Serialize;

use crate::json::{answer, value};
use crate::page::{Block, Cell, Note, Page, Section, Table, Value};
use crate::roles;
use crate::screen::cut;

/// What `mem` shows: a model of its own, so that terminal and JSON say the same.
#[derive(Debug, Clone)]
pub struct Mem<'a> {
    /// The host.
    pub host: &'a Host,
    /// The processes, those that hold most on base pages first.
    pub processes: &'a [Process],
    /// Shared objects; empty with a target.
    pub shared: &'a [SharedObject],
    /// Whether targets were named: then segments are shown, and totals are of them alone.
    pub targeted: bool,
    /// For each of `processes`, the verdicts on its ranges; empty where nobody asked.
    pub accounts: &'a [Vec<Account>],
    /// For each of `processes`, its roles where `hugeleaf run` started it; empty otherwise.
    pub roles: &'a [Vec<RoleState>],
}

/// Rows of processes or segments that a screen takes.
const ROWS: usize = 25;

/// Sorts as a screen shows them: what is held on base pages, most first; then the id.
pub fn rank(processes: &mut [Process]) {
    processes.sort_by_key(|p| {
        let on_base = p
            .by_page_size
            .known()
            .map(|t| Held::on_base(t))
            .unwrap_or_default();
        (std::cmp::Reverse(on_base), p.pid)
    });
}

type Column = (PageSize, PageKind);

/// A column for each page size and kind that anybody holds, smallest first; base pages always.
fn columns<'a>(host: &Host, tables: impl Iterator<Item = &'a [Held]>) -> Vec<Column> {
    let mut columns = vec![(host.base_page, PageKind::Base)];
    for held in tables.flatten() {
        if let Err(at) = columns.binary_search(&(held.size, held.kind)) {
            columns.insert(at, (held.size, held.kind));
        }
    }
    columns
}

fn column_name((size, kind): Column) -> String {
    match kind {
        PageKind::Base => format!("BASE {size}"),
        PageKind::Thp => format!("THP {size}"),
        PageKind::Hugetlb => format!("HUGETLB {size}"),
    }
}

fn on(table: &[Held], (size, kind): Column) -> Bytes {
    table
        .iter()
        .filter(|h| h.size == size && h.kind == kind)
        .map(|h| h.bytes)
        .sum()
}

fn sum(table: &[Held]) -> Bytes {
    table.iter().map(|h| h.bytes).sum()
}

impl Mem<'_> {
    /// Sums over what is shown, a shared page counted once.
    pub fn totals(&self) -> Vec<Held> {
        if self.targeted {
            totals::of_processes(self.processes)
        } else {
            totals::of_host(self.host)
        }
    }

    /// Page tables of all that is shown; of the host where no target was named.
    pub fn page_tables(&self) -> Bytes {
        let sum = self.processes.iter().map(|p| p.page_tables).sum();
        if self.targeted {
            sum
        } else {
            self.host.memory.page_tables.get().unwrap_or(sum)
        }
    }

    /// The screen; `all` shows all segments, however small.
    pub fn page(&self, all: bool) -> Page {
        let mut page = Page::new("Memory by page size", "");
        if self.targeted {
            for (i, p) in self.processes.iter().enumerate() {
                let mut blocks = self.head(p);
                blocks.push(Section::new("", vec![self.segments(p, all).into()]).into());
                page.section("", blocks).add(self.under_run(i, p));
            }
            if self.processes.len() > 1 {
                page.section(
                    "",
                    vec![self.sum_line("together, shared memory once").into()],
                );
            }
            return page;
        }
        page.add(self.ranking());
        if let Some(line) = self.hidden() {
            page.add(line);
        }
        page.add(self.sum_line("in all, each page once"));
        page.section("", self.shared_blocks());
        page
    }

    fn sum_line(&self, what: &str) -> String {
        let totals = self.totals();
        let parts: Vec<String> = totals
            .iter()
            .map(|h| {
                format!(
                    "{} on {}",
                    h.bytes,
                    column_name((h.size, h.kind)).to_lowercase_kind()
                )
            })
            .collect();
        format!(
            "{what}: {} (coverage {}), page tables {}",
            parts.join(", "),
            Cell::percent(Held::coverage(&totals)),
            self.page_tables()
        )
    }

    fn ranking(&self) -> Table {
        let tables = self.processes.iter().filter_map(|p| p.by_page_size.known());
        let columns = columns(self.host, tables.map(Vec::as_slice));
        let units = self.processes.iter().any(|p| p.unit.is_some());
        let held = |p: &Process, column| match &p.by_page_size {
            Fact::Known(held) => Cell::some_bytes(on(held, column)),
            _ => Value::Unreadable.into(),
        };
        let rest = self.processes.get(ROWS..).unwrap_or_default();
        let rest = rest.iter().filter_map(|p| p.by_page_size.known());
        let base: Bytes = rest.map(|t| Held::on_base(t)).sum();
        Table::of(self.processes)
            .right("PID", |p| p.pid)
            .left("NAME", |p| self.marked_name(p))
            .when(units, |t| t.left("UNIT", |p| p.unit.clone()))
            .right("RESIDENT", |p| p.resident)
            .each(columns, |t, c| t.right(column_name(c), move |p| held(p, c)))
            .right("COVERAGE", |p| Cell::percent(p.coverage()))
            .right("PAGE TABLES", |p| p.page_tables)
            .limited(ROWS, format!("that hold {base} on base pages between them"))
            .done()
    }

    /// A process that switched THP off for itself, or one that cannot be read, says so by name.
    fn marked_name(&self, p: &Process) -> String {
        if p.thp_disabled.get() == Some(true) {
            format!("{} (THP off)", p.name)
        } else {
            p.name.clone()
        }
    }

    /// Says of how many processes nothing is known.
    fn hidden(&self) -> Option<String> {
        let hidden = self
            .processes
            .iter()
            .filter(|p| p.by_page_size.error().is_some());
        match hidden.count() {
            0 => None,
            1 => Some("? one process of another user cannot be read: run as root".to_owned()),
            n => Some(format!("? {n} of other users cannot be read: run as root")),
        }
    }

    fn shared_blocks(&self) -> Vec<Block> {
        let is_held = |o: &&SharedObject| !o.by_page_size.is_empty();
        let shared: Vec<&SharedObject> = self.shared.iter().filter(is_held).collect();
        let columns = columns(self.host, shared.iter().map(|o| o.by_page_size.as_slice()));
        let remarks: Vec<Note> = shared
            .iter()
            .flat_map(|o| remarks(o))
            .map(Note::plain)
            .collect();
        let misaligned = |o: &SharedObject| match o.misaligned.len() {
            0 => Cell::default(),
            n => format!("{n} of {}", o.attached.len()).into(),
        };
        let table = Table::of(shared)
            .left("SHARED OBJECT", |o| o.name.clone())
            .right("ATTACHED", |o| o.attached.len())
            .each(columns, |t, c| {
                t.right(column_name(c), move |o| {
                    Cell::some_bytes(on(&o.by_page_size, c))
                })
            })
            .right("COVERAGE", |o| {
                Cell::percent(Held::coverage(&o.by_page_size))
            })
            .right("MISALIGNED", |o| misaligned(o));
        vec![table.into(), remarks.into()]
    }

    fn segments(&self, p: &Process, all: bool) -> Table {
        let rows = rows_of(self.host, p, all);
        let columns = columns(self.host, rows.iter().map(|r| r.held.as_slice()));
        // Most processes lock and swap nothing: those columns come where they say something.
        let locks = rows.iter().any(|r| !r.locked.is_zero());
        let swaps = rows.iter().any(|r| !r.swapped.is_zero());
        // The name stands last among the left ones: it gives way where the screen is narrow.
        Table::of(rows)
            .left("ROLE", |r| r.role)
            .left("ADDRESS", |r| r.address.clone())
            .left("ASKED", |r| r.asked.clone())
            .left("NAME", |r| r.name.clone())
            .right("RESIDENT", |r| Cell::some_bytes(sum(&r.held)))
            .each(columns, |t, c| {
                t.right(column_name(c), move |r| Cell::some_bytes(on(&r.held, c)))
            })
            .right("COVERAGE", |r| Cell::percent(Held::coverage(&r.held)))
            .right("PSS", |r| Cell::some_bytes(r.pss))
            .when(locks, |t| t.right("LOCKED", |r| Cell::some_bytes(r.locked)))
            .when(swaps, |t| {
                t.right("SWAPPED", |r| Cell::some_bytes(r.swapped))
            })
            .done()
    }

    /// What `hugeleaf run` asked and got, where it started the process.
    fn under_run(&self, i: usize, p: &Process) -> Section {
        let blocks = match (&p.run, self.roles.get(i).map(Vec::as_slice)) {
            (Fact::Unreadable(error), _) => vec![Block::Text(format!(
                "under hugeleaf run, with settings that cannot be read: {error}"
            ))],
            (Fact::Known(_), Some(roles)) if !roles.is_empty() => {
                let mut blocks = vec!["under hugeleaf run:".into()];
                blocks.extend(roles::blocks(roles));
                blocks
            }
            _ => Vec::new(),
        };
        Section::new("", blocks)
    }

    fn head(&self, p: &Process) -> Vec<Block> {
        let mut first = format!("{} ({})", p.name, p.pid);
        if let Some(unit) = &p.unit {
            first += &format!(" of {unit}");
        }
        first += &format!(": {} resident", p.resident);
        if let Some(table) = p.by_page_size.known() {
            let part = |h: &Held| {
                let name = column_name((h.size, h.kind)).to_lowercase_kind();
                format!("{name} {}", h.bytes)
            };
            let parts: Vec<String> = table.iter().map(part).collect();
            first += &format!(": {}", parts.join(", "));
        }
        let coverage = Cell::percent(p.coverage());
        let mut second = format!("coverage {coverage}, page tables {}", p.page_tables);
        if let Some(pss) = p.pss.get() {
            second += &format!(", proportional share {pss}");
        }
        for (what, bytes) in [("locked", p.locked), ("swapped", p.swapped)] {
            if !bytes.is_zero() {
                second += &format!(", {what} {bytes}");
            }
        }
        let mut blocks = vec![first.into(), second.into()];
        if p.thp_disabled.get() == Some(true) {
            let text =
                "it switched transparent huge pages off for itself: prctl(PR_SET_THP_DISABLE)";
            blocks.push(text.into());
        }
        blocks
    }

    /// The JSON answer.
    pub fn json(&self) -> String {
        #[derive(Serialize)]
        struct Answer<'a> {
            processes: Vec<ProcessAnswer<'a>>,
            totals: Totals,
            shared: Option<Vec<SharedAnswer<'a>>>,
        }
        #[derive(Serialize)]
        struct Totals {
            by_page_size: Vec<Held>,
            page_tables_bytes: Bytes,
        }
        let processes = self.processes.iter().enumerate();
        let shared = || self.shared.iter().map(SharedAnswer::of).collect();
        let text = answer(&Answer {
            processes: processes.map(|(i, p)| self.process_answer(i, p)).collect(),
            totals: Totals {
                by_page_size: self.totals(),
                page_tables_bytes: self.page_tables(),
            },
            shared: (!self.targeted).then(shared),
        });
        let mut parts = text.split(SEGMENTS_TEXT);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for (i, (part, process)) in parts.zip(self.processes).enumerate() {
            write_segments(&mut out, process, of(self.accounts, i));
            out += part;
        }
        out
    }

    fn process_answer<'a>(&'a self, i: usize, p: &'a Process) -> ProcessAnswer<'a> {
        let roles = of(self.roles, i);
        let looked_at = || LookedAt {
            pss_bytes: &p.pss,
            segments: SEGMENTS,
            run: p.run.clone().map(|settings| RunAnswer::of(p, settings)),
            roles: (!roles.is_empty()).then_some(roles),
        };
        ProcessAnswer {
            pid: p.pid,
            name: &p.name,
            unit: p.unit.as_deref(),
            cgroup: p.cgroup.as_deref(),
            resident_bytes: p.resident,
            swapped_bytes: p.swapped,
            locked_bytes: p.locked,
            page_tables_bytes: p.page_tables,
            thp_disabled: &p.thp_disabled,
            coverage: p.coverage(),
            by_page_size: &p.by_page_size,
            looked_at: self.targeted.then(looked_at),
        }
    }
}

/// What is said of one process; nothing where nobody asked.
fn of<T>(all: &[Vec<T>], i: usize) -> &[T] {
    all.get(i).map_or(&[], Vec::as_slice)
}

/// A process as it stands in an answer.
#[derive(Serialize)]
struct ProcessAnswer<'a> {
    pid: Pid,
    name: &'a str,
    unit: Option<&'a str>,
    cgroup: Option<&'a str>,
    resident_bytes: Bytes,
    swapped_bytes: Bytes,
    locked_bytes: Bytes,
    page_tables_bytes: Bytes,
    thp_disabled: &'a Fact<bool>,
    coverage: Option<f64>,
    by_page_size: &'a Fact<Vec<Held>>,
    #[serde(flatten)]
    looked_at: Option<LookedAt<'a>>,
}

/// What is known only of a process that was named.
#[derive(Serialize)]
struct LookedAt<'a> {
    pss_bytes: &'a Fact<Bytes>,
    segments: &'static str,
    run: Fact<RunAnswer>,
    roles: Option<&'a [RoleState]>,
}

/// `BASE 4K` in a sentence: `base 4K`.
trait LowercaseKind {
    fn to_lowercase_kind(&self) -> String;
}

impl LowercaseKind for String {
    fn to_lowercase_kind(&self) -> String {
        match self.split_once(' ') {
            Some(("THP", size)) => format!("THP {size}"),
            Some((kind, size)) => format!("{} {size}", kind.to_lowercase()),
            None => self.clone(),
        }
    }
}

/// What stands out about a shared object, in lines of its own.
fn remarks(object: &SharedObject) -> Vec<String> {
    let name = cut(&object.name, 40);
    let line = |what: &str, by: String| format!("{name}: {what} by {by}");
    let pids = |pids: &[Pid]| {
        let shown: Vec<String> = pids.iter().take(5).map(ToString::to_string).collect();
        let more = pids.len().saturating_sub(5);
        if more > 0 {
            format!("{} and {more} more", shown.join(", "))
        } else {
            shown.join(", ")
        }
    };
    let mut lines = Vec::new();
    if !object.misaligned.is_empty() {
        lines.push(line(
            "attached at an address that large pages do not fit",
            pids(&object.misaligned),
        ));
    }
    let other: Vec<Pid> = object
        .worse
        .iter()
        .map(|(pid, _)| *pid)
        .filter(|pid| !object.misaligned.contains(pid))
        .collect();
    if !other.is_empty() {
        lines.push(line("mapped by smaller pages than elsewhere", pids(&other)));
    }
    lines
}

/// The last part of a file's path says most; `--json` has all of it.
fn name(s: &Segment) -> String {
    match s.name.rsplit('/').next() {
        Some("") | None => "-".into(),
        Some(last) if s.name.starts_with('/') && s.role != Role::Shm => last.to_owned(),
        Some(_) => s.name.clone(),
    }
}

/// One line of a process's table: a segment, or what the small ones of a role come to.
struct Row {
    role: &'static str,
    address: String,
    asked: String,
    name: String,
    held: Vec<Held>,
    pss: Bytes,
    locked: Bytes,
    swapped: Bytes,
}

/// The segments that could hold a large page, largest first, then one line a role for those that
/// could not; all of them, one by one, where `all`.
fn rows_of(host: &Host, p: &Process, all: bool) -> Vec<Row> {
    let smallest = host.pmd_page.get().unwrap_or(host.base_page).bytes();
    let mut segments: Vec<&Segment> = p
        .segments
        .iter()
        .filter(|s| !(s.resident + s.swapped).is_zero())
        .collect();
    segments.sort_by_key(|s| (std::cmp::Reverse(s.resident), s.range));
    let (large, small): (Vec<&Segment>, Vec<&Segment>) = segments
        .into_iter()
        .partition(|s| all || s.resident + s.swapped >= smallest);
    let mut rows: Vec<Row> = large
        .into_iter()
        .map(|s| Row {
            role: s.role.name(),
            address: format!("{:x}", s.range.start()),
            asked: asked(s),
            name: name(s),
            held: s.by_page_size.clone(),
            pss: s.pss,
            locked: s.locked,
            swapped: s.swapped,
        })
        .collect();
    let mut roles: Vec<Role> = small.iter().map(|s| s.role).collect();
    roles.sort_unstable();
    roles.dedup();
    for role in roles {
        rows.push(summed(role, small.iter().filter(|s| s.role == role)));
    }
    rows
}

fn summed<'a>(role: Role, segments: impl Iterator<Item = &'a &'a Segment>) -> Row {
    let mut row = Row {
        role: role.name(),
        address: String::new(),
        asked: String::new(),
        name: String::new(),
        held: Vec::new(),
        pss: Bytes::ZERO,
        locked: Bytes::ZERO,
        swapped: Bytes::ZERO,
    };
    let mut count = 0;
    for s in segments {
        count += 1;
        for held in &s.by_page_size {
            Held::add(&mut row.held, held.size, held.kind, held.bytes);
        }
        row.pss += s.pss;
        row.locked += s.locked;
        row.swapped += s.swapped;
    }
    row.name = match count {
        1 => "1 mapping".to_owned(),
        n => format!("{n} mappings"),
    };
    row
}

/// What was asked for a segment, in the words of the calls.
fn asked(s: &Segment) -> String {
    let mut words = Vec::new();
    if let Some(size) = s.asked.hugetlb {
        words.push(format!("hugetlb {size}"));
    }
    match s.asked.advised {
        Advised::Huge => words.push("huge".to_owned()),
        Advised::NoHuge => words.push("no huge".to_owned()),
        Advised::Nothing => {}
    }
    if let Some(policy) = &s.asked.policy {
        words.push(policy.clone());
    }
    if words.is_empty() {
        "-".into()
    } else {
        words.join(", ")
    }
}

/// What `hugeleaf run` told its library in a process, and whether that is there.
#[derive(Serialize)]
struct RunAnswer {
    library_loaded: bool,
    data_after_bytes: Option<Bytes>,
    shm_after_bytes: Option<Bytes>,
    stack_after_bytes: Option<Bytes>,
    reserve_bytes: Option<Bytes>,
    only: Option<Vec<String>>,
}

impl RunAnswer {
    fn of(p: &Process, settings: RunSettings) -> RunAnswer {
        RunAnswer {
            library_loaded: p.segments.iter().any(|s| is_run_library(&s.name)),
            data_after_bytes: settings.data_after,
            shm_after_bytes: settings.shm_after,
            stack_after_bytes: settings.stack_after,
            reserve_bytes: settings.reserve,
            only: (!settings.only.is_empty()).then_some(settings.only),
        }
    }
}

/// What `hugeleaf run` was asked for a segment's role.
fn asked_of_run(p: &Process, s: &Segment) -> Option<String> {
    let settings = p.run.known()?;
    Some(settings.of(role_of(p, s)?).text())
}

/// Stands for the segments of a process until the answer is a text: a process may have any number, and as
/// values they take four times as much memory. No name holds a zero byte.
const SEGMENTS: &str = "\0";
const SEGMENTS_TEXT: &str = "\"\\u0000\"";

/// Writes the segments of a process as they stand in the answer.
fn write_segments(out: &mut String, p: &Process, accounts: &[Account]) {
    const INDENT: &str = "\n        ";
    *out += "[";
    for (n, segment) in p.segments.iter().enumerate() {
        *out += if n == 0 { "" } else { "," };
        *out += INDENT;
        let text = format!("{:#}", value(&SegmentAnswer::of(p, segment, accounts)));
        *out += &text.replace('\n', INDENT);
    }
    *out += if p.segments.is_empty() {
        "]"
    } else {
        "\n      ]"
    };
}

/// A segment as it stands in an answer.
#[derive(Serialize)]
struct SegmentAnswer<'a> {
    #[serde(flatten)]
    range: Range,
    role: Role,
    name: &'a str,
    shared: bool,
    resident_bytes: Bytes,
    pss_bytes: Bytes,
    locked_bytes: Bytes,
    swapped_bytes: Bytes,
    asked: AskedAnswer<'a>,
    by_page_size: &'a [Held],
    verdicts: Vec<&'a Verdict>,
}

#[derive(Serialize)]
struct AskedAnswer<'a> {
    #[serde(flatten)]
    asked: &'a Asked,
    run: Option<String>,
}

impl SegmentAnswer<'_> {
    fn of<'a>(p: &Process, s: &'a Segment, accounts: &'a [Account]) -> SegmentAnswer<'a> {
        let verdicts = accounts.iter().flat_map(|a| &a.verdicts);
        SegmentAnswer {
            range: s.range,
            role: s.role,
            name: &s.name,
            shared: s.shared,
            resident_bytes: s.resident,
            pss_bytes: s.pss,
            locked_bytes: s.locked,
            swapped_bytes: s.swapped,
            asked: AskedAnswer {
                asked: &s.asked,
                run: asked_of_run(p, s),
            },
            by_page_size: &s.by_page_size,
            verdicts: verdicts
                .filter(|v| s.range.contains(v.range.start()))
                .collect(),
        }
    }
}

/// A shared object as it stands in an answer.
#[derive(Serialize)]
struct SharedAnswer<'a> {
    name: &'a str,
    device: String,
    inode: u64,
    by_page_size: &'a [Held],
    attached: &'a [Pid],
    misaligned: &'a [Pid],
    worse: Vec<Worse<'a>>,
}

/// A process that maps a shared object worse than others.
#[derive(Serialize)]
struct Worse<'a> {
    pid: Pid,
    by_page_size: &'a [Held],
}

impl SharedAnswer<'_> {
    fn of(o: &SharedObject) -> SharedAnswer<'_> {
        let (major, minor, inode) = o.object;
        SharedAnswer {
            name: &o.name,
            device: format!("{major:x}:{minor:x}"),
            inode,
            by_page_size: &o.by_page_size,
            attached: &o.attached,
            misaligned: &o.misaligned,
            worse: (o.worse.iter())
                .map(|(pid, held)| Worse {
                    pid: *pid,
                    by_page_size: held,
                })
                .collect(),
        }
    }
}

/// One row of `mem --global`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GlobalSize {
    /// The page size.
    #[serde(rename = "page_bytes")]
    pub size: PageSize,
    /// Where its pages come from.
    pub kind: PageKind,
    /// What there is of it; `None` for THP, which is made of base pages as needed.
    #[serde(rename = "pool_bytes")]
    pub pool: Option<Bytes>,
    /// In use.
    #[serde(rename = "in_use_bytes")]
    pub in_use: Fact<Bytes>,
    /// Neither reclaimed nor moved to swap: locked memory, and all hugetlb pages.
    #[serde(rename = "pinned_bytes")]
    pub pinned: Option<Bytes>,
    /// Free.
    #[serde(rename = "free_bytes")]
    pub free: Option<Bytes>,
}

/// The host by page size, as `svmon -G` showed it.
pub fn global(host: &Host) -> Vec<GlobalSize> {
    let m = &host.memory;
    // What this kernel does not have is nothing; what could not be read is not known.
    let sum = |facts: &[&Fact<Bytes>]| match facts.iter().find_map(|fact| fact.error()) {
        Some(error) => Fact::Unreadable(error.clone()),
        None => Fact::Known(facts.iter().filter_map(|fact| fact.get()).sum::<Bytes>()),
    };
    let thp = sum(&[&m.anon_huge, &m.shmem_huge, &m.file_huge]);
    let mut rows = Vec::new();
    if let (Some(total), Some(free), Some(pools)) =
        (m.total.get(), m.free.get(), sum(&[&m.hugetlb]).get())
    {
        rows.push(GlobalSize {
            size: host.base_page,
            kind: PageKind::Base,
            pool: Some(total - pools),
            in_use: thp.clone().map(|thp| total - pools - free - thp),
            pinned: m.unevictable.get(),
            free: Some(free),
        });
    }
    if let Some(size) = host.pmd_page.get() {
        rows.push(GlobalSize {
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
            let (total, free) = (total.of(pool.size), free.of(pool.size));
            rows.push(GlobalSize {
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

/// `mem --global`.
pub fn global_page(host: &Host) -> Page {
    let mut page = Page::new("Memory by page size", "");
    let table = Table::of(global(host))
        .right("PAGE SIZE", |row| row.size)
        .left("KIND", |row| row.kind)
        .right("POOL", |row| row.pool)
        .right("IN USE", |row| row.in_use.clone())
        .right("PINNED", |row| row.pinned)
        .right("FREE", |row| row.free);
    page.add(table)
        .add(
            "THP is made of base memory as needed: its FREE is the part of free memory that lies in \
             blocks large enough.",
        )
        .add("hugetlb pages are never reclaimed: all of a pool is pinned.");
    page
}

/// `mem --global --json`.
pub fn global_json(host: &Host) -> String {
    #[derive(Serialize)]
    struct Answer {
        sizes: Vec<GlobalSize>,
    }
    answer(&Answer {
        sizes: global(host),
    })
}
