//! `hugeleaf why`: the reasons that keep memory on base pages, in sum and range by range.

use hugeleaf_host::{MappingRole, Pid, Process, ProcessError};
use hugeleaf_units::{Bytes, Range};
use hugeleaf_verdict::advice::risks;
use hugeleaf_verdict::eligible::{Reason, Remedy};
use hugeleaf_verdict::why::{SegmentAccount, Summary, SummaryLine, counted, summarise};
use serde_json::{Value as Json, json};

use crate::document::{
    Cell, CommandHint, ContentBlock, Document, Section, ShareBar, StatusMark, Table, listed,
};
use crate::json::{answer, merge_fields};

/// The model of `why`, shared by terminal and JSON.
#[derive(Debug, Clone, Copy)]
pub struct WhyView<'a> {
    /// Processes with their accounts, in display order.
    pub judged: &'a [(&'a Process, &'a [SegmentAccount])],
    /// Processes of the target that were unreadable, with the reason.
    pub unread: &'a [(Pid, ProcessError)],
}

/// Maximum number of summary lines and of range rows on a screen.
const LINES: usize = 6;
const ROWS: usize = 20;
/// Maximum number of rows for each of several processes, and of processes.
const ROWS_OF_EACH: usize = 6;
const PROCESSES: usize = 8;

impl WhyView<'_> {
    pub fn summary(&self) -> Summary {
        summarise(self.judged)
    }

    /// Returns the screen. `all` shows every verdict; otherwise lists are cut and equal ranges grouped.
    pub fn page(&self, all: bool) -> Document {
        let summary = self.summary();
        let mut page = Document::new("Why memory is not on huge pages", self.heading());
        page.add(totals(&summary));
        reasons(&mut page, &summary, all);
        let mut tables = self.tables(&summary, all);
        let shown = tables.len().min(if all { usize::MAX } else { PROCESSES });
        let more = self.judged.len() - shown;
        for table in tables.drain(..shown) {
            page.add(table);
        }
        if more > 0 {
            page.section(
                "",
                vec![format!("… and {more} more processes: --all").into()],
            );
        }
        for (_, error) in self.unread {
            page.add(format!("not read: {error}"));
        }
        page
    }

    fn heading(&self) -> String {
        match self.judged {
            [(process, _)] => name_of(process),
            many => format!("{} processes; shared memory counts once", many.len()),
        }
    }

    fn tables(&self, summary: &Summary, all: bool) -> Vec<Section> {
        let mut tables = Vec::new();
        let several = self.judged.len() > 1;
        let most = if several { ROWS_OF_EACH } else { ROWS };
        for ((process, accounts), counts) in self.judged.iter().zip(counted(self.judged)) {
            // Memory that another process shows already is omitted.
            let shown: Vec<&SegmentAccount> = match all {
                true => accounts.iter().collect(),
                false => counts.iter().collect(),
            };
            let mut rows = rows(&shown, all);
            let mut left_out = (0, Bytes::ZERO);
            if !all {
                let (extents, bytes) = drop_small_rows(&mut rows, summary.resident);
                let (more, more_bytes) = limit_rows(&mut rows, most);
                left_out = (extents + more, bytes + more_bytes);
            }
            if several && rows.is_empty() {
                continue;
            }
            let name = several.then(|| name_of(process));
            tables.push(table(name, &rows, left_out));
        }
        tables
    }

    pub fn json(&self) -> String {
        let summary = self.summary();
        let line = |line: &SummaryLine| merge_fields(line, json!({ "way": line.id.remedy() }));
        let unread = self.unread.iter();
        let unread = unread.map(|(pid, error)| json!({ "pid": pid, "error": error.to_string() }));
        answer(&json!({
            "processes": self.judged.iter().map(process_answer).collect::<Json>(),
            "summary": summary.lines.iter().map(line).collect::<Json>(),
            "totals": {
                "resident_bytes": summary.resident,
                "huge_bytes": summary.huge,
                "too_small_bytes": summary.too_small,
                "swapped_bytes": summary.swapped,
                "promotable_bytes": summary.by_remedy(Remedy::Promote),
                "promotable_growing_bytes": summary.by_remedy(Remedy::PromoteAndGrow),
                "change_first_bytes": summary.by_remedy(Remedy::Change),
                "nothing_to_do_bytes": summary.by_remedy(Remedy::Nothing),
            },
            "unread": (!self.unread.is_empty()).then(|| unread.collect::<Json>()),
        }))
    }
}

fn process_answer((process, accounts): &(&Process, &[SegmentAccount])) -> Json {
    let sum = |part: fn(&SegmentAccount) -> Bytes| accounts.iter().map(part).sum::<Bytes>();
    json!({
        "pid": process.pid,
        "name": process.name,
        "unit": process.unit,
        "resident_bytes": sum(|a| a.resident),
        "huge_bytes": sum(|a| a.huge),
        "too_small_bytes": sum(|a| a.too_small),
        "verdicts": accounts.iter().flat_map(|a| &a.verdicts).collect::<Vec<_>>(),
    })
}

/// Builds the table of a process's ranges, with a heading if there are several processes.
fn table(name: Option<String>, rows: &[VerdictRow<'_>], left_out: (usize, Bytes)) -> Section {
    let table = Table::from_items(rows)
        .left("RANGE", |row| row.range)
        .right("EXTENTS", |row| row.extents)
        .right("BYTES", |row| row.bytes)
        .left("ROLE", |row| row.role.name())
        .left("REASON", |row| row.id.name())
        .left("MAPPING", |row| row.name);
    let more = match left_out {
        (0, _) => String::new(),
        (more, bytes) => format!("… and {more} smaller, {bytes} together: --all"),
    };
    let name = ContentBlock::Text(name.unwrap_or_default());
    Section::new("", vec![name, table.into(), more.into()])
}

fn name_of(process: &Process) -> String {
    match &process.unit {
        Some(unit) => format!("{} {} ({unit})", process.name, process.pid),
        None => format!("{} {}", process.name, process.pid),
    }
}

/// Formats the totals without zero parts, such as `4.2G resident: 0.3G on huge pages, 3.9G could be
/// promoted now, …; 1G more in swap`.
fn totals(summary: &Summary) -> String {
    let rest = summary.too_small + summary.by_remedy(Remedy::Nothing);
    let parts = [
        (summary.by_remedy(Remedy::Promote), "could be promoted now"),
        (
            summary.by_remedy(Remedy::PromoteAndGrow),
            "could be promoted if the process may grow",
        ),
        (
            summary.by_remedy(Remedy::Change),
            "could be promoted after a change",
        ),
        (rest, "cannot or need not be promoted"),
    ];
    let parts = parts.into_iter().filter(|(bytes, _)| !bytes.is_zero());
    let parts = listed(", ", parts.map(|(bytes, what)| format!("{bytes} {what}")));
    let swapped = Some(summary.swapped).filter(|swapped| !swapped.is_zero());
    let swapped = swapped.map(|swapped| format!("{swapped} more in swap"));
    let mut remedies = summary.lines.iter().map(|line| line.id.remedy());
    let nothing = remedies.all(|remedy| remedy == Remedy::Nothing);
    format!(
        "{} resident: {} on huge pages{parts}{}{}",
        summary.resident,
        summary.huge,
        listed("; ", swapped),
        listed("; ", nothing.then_some("nothing to do"))
    )
}

fn reasons(page: &mut Document, summary: &Summary, all: bool) {
    // Reasons below one percent are hidden unless there is no other. Swapped memory is compared
    // separately, because it is not resident.
    let much = |bytes: Bytes| bytes.share_of(summary.resident).is_some_and(|s| s >= 0.01);
    let shown = |at: usize, line: &SummaryLine| {
        let is_swap = line.id == Reason::Swapped && much(summary.swapped);
        all || at < 1 || (at < LINES && much(line.bytes)) || is_swap
    };
    let lines = summary.lines.iter().enumerate();
    let (shown, rest): (Vec<_>, Vec<_>) = lines.partition(|(at, line)| shown(*at, line));
    let bars: Vec<ShareBar> = (shown.iter())
        .map(|(_, line)| reason(line, summary.resident))
        .collect();
    page.add(bars);
    if !rest.is_empty() {
        let bytes: Bytes = rest.iter().map(|(_, line)| line.bytes).sum();
        let names: Vec<&str> = rest.iter().map(|(_, line)| line.id.name()).collect();
        let text = format!("for other reasons: {} (--all)", names.join(", "));
        let fact = (format!("{bytes:>6}"), Cell::from(text));
        page.section("", vec![vec![fact].into()]);
    }
}

fn reason(line: &SummaryLine, resident: Bytes) -> ShareBar {
    let mut next = CommandHint::new("next", &line.command);
    // The command's own comment says so already. A command without changes is an alternative to a refused one.
    let is_said = line.command.starts_with('#') || line.changes.is_empty();
    if let Some(bytes) = line.host_wide.filter(|_| !is_said) {
        next.note = format!("a host-wide setting: it could promote {bytes} here");
    }
    ShareBar {
        value: line.bytes.into(),
        part: line.bytes.share_of(resident),
        name: Cell::from(line.id.name()).marked(mark(line.id.remedy())),
        text: line.text.clone(),
        commands: vec![next.at_risk(risks(&line.changes))],
    }
}

fn mark(remedy: Remedy) -> StatusMark {
    match remedy {
        Remedy::Promote => StatusMark::Good,
        Remedy::PromoteAndGrow | Remedy::Change => StatusMark::Warn,
        Remedy::Nothing => StatusMark::Dim,
    }
}

/// A row of the table: one verdict, or several equal ones.
struct VerdictRow<'a> {
    range: Range,
    extents: usize,
    bytes: Bytes,
    role: MappingRole,
    id: Reason,
    name: &'a str,
}

impl VerdictRow<'_> {
    fn add(&mut self, range: Range, bytes: Bytes) {
        let (start, end) = (
            self.range.start().min(range.start()),
            self.range.end().max(range.end()),
        );
        self.range = Range::new(start, end).unwrap_or(self.range);
        self.extents += 1;
        self.bytes += bytes;
    }
}

/// Returns the verdicts as rows in address order. Unless `all` is set, adjacent verdicts of a segment
/// with the same reason and kind of memory share a row.
fn rows<'a>(accounts: &[&'a SegmentAccount], all: bool) -> Vec<VerdictRow<'a>> {
    let mut rows: Vec<VerdictRow<'a>> = Vec::new();
    for account in accounts {
        // The rows of this segment, and the row before it.
        let from = rows.len().saturating_sub(1);
        for v in &account.verdicts {
            let alike =
                |r: &&mut VerdictRow<'_>| (r.id, r.role, r.name) == (v.id, v.role, v.name.as_str());
            match rows[from..].iter_mut().find(alike).filter(|_| !all) {
                Some(row) => row.add(v.range, v.bytes),
                None => rows.push(VerdictRow {
                    range: v.range,
                    extents: 1,
                    bytes: v.bytes,
                    role: v.role,
                    id: v.id,
                    name: &v.name,
                }),
            }
        }
    }
    rows
}

/// Drops rows below one percent that need no action, and returns their number and bytes. A process
/// maps dozens of libraries that do not matter to the user.
fn drop_small_rows(rows: &mut Vec<VerdictRow<'_>>, resident: Bytes) -> (usize, Bytes) {
    drop_rows(rows, |_, row| {
        let is_small = row.bytes.share_of(resident).is_none_or(|s| s < 0.01);
        is_small && row.id.remedy() == Remedy::Nothing
    })
}

/// Keeps the `most` largest rows in their order, and returns the number and bytes of the others.
fn limit_rows(rows: &mut Vec<VerdictRow<'_>>, most: usize) -> (usize, Bytes) {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(rows[*at].bytes));
    order.truncate(most);
    drop_rows(rows, |at, _| !order.contains(&at))
}

/// Drops rows for which `goes` is true, by index or content, and returns their number and bytes.
fn drop_rows(
    rows: &mut Vec<VerdictRow<'_>>,
    goes: impl Fn(usize, &VerdictRow<'_>) -> bool,
) -> (usize, Bytes) {
    let (mut at, mut gone) = (0, (0, Bytes::ZERO));
    rows.retain(|row| {
        let goes = goes(at, row);
        at += 1;
        if goes {
            gone = (gone.0 + 1, gone.1 + row.bytes);
        }
        !goes
    });
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_units::Range;
    use hugeleaf_verdict::why::{RangeVerdict, VerdictFigures};

    fn verdict(id: Reason, start: u64, len: u64, name: &str) -> RangeVerdict {
        RangeVerdict {
            id,
            role: MappingRole::Anon,
            name: name.to_owned(),
            range: Range::new(start, start + len).unwrap(),
            bytes: Bytes(len),
            text: "because".to_owned(),
            command: "# nothing to do".to_owned(),
            changes: Vec::new(),
            figures: VerdictFigures::default(),
        }
    }

    fn account(verdicts: Vec<RangeVerdict>) -> SegmentAccount {
        let bytes = verdicts.iter().map(|v| v.bytes).sum();
        SegmentAccount {
            range: verdicts[0].range,
            resident: bytes,
            huge: Bytes::ZERO,
            too_small: Bytes::ZERO,
            verdicts,
        }
    }

    fn refs(accounts: &[SegmentAccount]) -> Vec<&SegmentAccount> {
        accounts.iter().collect()
    }

    #[test]
    fn alike_neighbours_share_a_row() {
        let (a, b) = (Reason::NotAdvised, Reason::Sparse);
        let accounts = [
            account(vec![
                verdict(a, 0, 10, ""),
                verdict(b, 10, 5, ""),
                verdict(a, 15, 10, ""),
            ]),
            account(vec![verdict(b, 100, 5, "")]),
            account(vec![verdict(b, 200, 5, "x")]),
            account(vec![verdict(b, 300, 5, "x")]),
        ];
        let got: Vec<_> = rows(&refs(&accounts), false)
            .iter()
            .map(|r| (r.id, r.range.to_string(), r.extents, r.bytes.get()))
            .collect();
        assert_eq!(
            got,
            [
                (a, "0-19".to_owned(), 2, 20),
                (b, "a-69".to_owned(), 2, 10),
                (b, "c8-131".to_owned(), 2, 10),
            ]
        );
        assert_eq!(rows(&refs(&accounts), true).len(), 6);
    }

    #[test]
    fn the_largest_rows_stay_in_order() {
        let accounts: Vec<SegmentAccount> = [5, 9, 5, 7, 5]
            .iter()
            .zip(0u64..)
            .map(|(len, n)| account(vec![verdict(Reason::Sparse, n * 100, *len, &n.to_string())]))
            .collect();
        let mut kept = rows(&refs(&accounts), false);
        assert_eq!(limit_rows(&mut kept, 3), (2, Bytes(10)));
        let names: Vec<&str> = kept.iter().map(|r| r.name).collect();
        assert_eq!(names, ["0", "1", "3"]);
        assert_eq!(limit_rows(&mut kept, 3), (0, Bytes(0)));
    }

    #[test]
    fn trifles_go_unless_something_can_be_done() {
        let accounts = [
            account(vec![verdict(Reason::TooSmall, 0, 9, "")]),
            account(vec![verdict(Reason::NotAdvised, 100, 9, "")]),
            account(vec![verdict(Reason::TooSmall, 200, 11, "x")]),
        ];
        let refs = refs(&accounts);
        let mut kept = rows(&refs, false);
        assert_eq!(drop_small_rows(&mut kept, Bytes(1000)), (1, Bytes(9)));
        assert_eq!(kept.len(), 2);
    }

    #[test]
    fn totals_leave_out_what_there_is_none_of() {
        let mut summary = Summary {
            resident: Bytes(10 << 20),
            huge: Bytes(10 << 20),
            ..Summary::default()
        };
        assert_eq!(
            totals(&summary),
            "10M resident: 10M on huge pages; nothing to do"
        );
        summary.swapped = Bytes(3 << 20);
        assert_eq!(
            totals(&summary),
            "10M resident: 10M on huge pages; 3M more in swap; nothing to do"
        );
        summary.swapped = Bytes::ZERO;
        summary.huge = Bytes(6 << 20);
        summary.lines.push(SummaryLine {
            id: Reason::NotAdvised,
            bytes: Bytes(4 << 20),
            ranges: 1,
            text: String::new(),
            command: String::new(),
            changes: Vec::new(),
            adds: Bytes::ZERO,
            host_wide: None,
        });
        assert_eq!(
            totals(&summary),
            "10M resident: 6M on huge pages, 4M could be promoted now"
        );
    }
}
