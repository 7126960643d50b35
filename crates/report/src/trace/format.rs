//! Values of traces as cells, texts that several tables use, and tables as sections of a page.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::TraceEndReason;
use hugeleaf_trace::tables::not_measured::{TraceDataKind, not_measured};
use hugeleaf_trace::tables::{share, target_name};
use hugeleaf_units::Bytes;
use jiff::Timestamp;

use crate::document::{Cell, CellValue, ContentBlock, Section, Table, counted};

/// Formats a share from 0 to 1 with one decimal, `59.9 %`; `-` without a total.
pub(super) fn part(share: Option<f64>) -> Cell {
    share.map(CellValue::Share).into()
}

pub(super) fn part_of(n: u64, all: u64) -> Cell {
    part(share(n, all))
}

/// Formats a share in whole percent without a sign, for narrow columns.
pub(super) fn whole_part(share: Option<f64>) -> Cell {
    Cell::decimal(share.map(|share| share * 100.0), 0)
}

/// Formats a count, with thousands separators from 10,000 on.
pub(super) fn count(n: u64) -> Cell {
    Cell::number(Some(float(n)))
}

pub(super) const fn float(n: u64) -> f64 {
    n as f64
}

/// Formats a count a second, in tenths.
pub(super) fn rate(n: u64, seconds: f64) -> Cell {
    let rate = (seconds > 0.0).then(|| (float(n) / seconds * 10.0).round() / 10.0);
    Cell::number(rate)
}

/// Formats a duration in nanoseconds: `12.3 µs`.
pub(super) fn nanos(n: u64) -> Cell {
    CellValue::Time(float(n) / 1e9).into()
}

pub(super) fn flow(bytes_a_second: f64) -> Cell {
    CellValue::Flow(bytes_a_second).into()
}

/// Formats a page size with its kind: `2M thp`, `4K base`.
pub(super) fn page(page_bytes: u64, kind: &str) -> String {
    format!("{} {kind}", Bytes(page_bytes))
}

pub(super) fn bytes(bytes: Option<u64>) -> Cell {
    bytes.map(Bytes).into()
}

/// Returns the last component of a path, by which programs are known.
pub(super) fn module(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.is_empty() { path } else { name }
}

pub(super) const fn side(kernel: bool) -> &'static str {
    if kernel { "kernel" } else { "user" }
}

pub(super) fn is_measured(trace: &Trace, what: TraceDataKind) -> bool {
    not_measured(trace, what).is_none()
}

/// Returns the text of an empty table: the reason why nothing was measured, or `none` if the measurement was
/// empty.
pub(super) fn missing_or(trace: &Trace, what: TraceDataKind, none: &str) -> String {
    match not_measured(trace, what) {
        Some(why) => format!("not measured: {why}"),
        None => none.to_owned(),
    }
}

/// Returns the text and notes for a table with several sources. If no source was measured, the text gives the
/// reasons. Else a note below the table names the missing sources.
pub(super) fn missing_sources(
    trace: &Trace,
    parts: &[TraceDataKind],
    none: &str,
) -> (String, Vec<String>) {
    let why =
        |what: &TraceDataKind| Some(format!("{}: {}", what.name(), not_measured(trace, *what)?));
    let missing: Vec<String> = parts.iter().filter_map(why).collect();
    let said = missing.join("; ");
    match missing.len() {
        0 => (none.to_owned(), Vec::new()),
        n if n == parts.len() => (format!("not measured: {said}"), Vec::new()),
        _ => (none.to_owned(), vec![format!("Not measured: {said}.")]),
    }
}

/// Maximum number of rows that a browser shows unfolded.
const OPEN: usize = 15;

/// Returns a section with a table, or with the reason why it is empty.
pub(super) fn table(
    title: impl Into<String>,
    rows: impl Into<Table>,
    none: impl Into<String>,
) -> Section {
    drawn_table(title, Vec::new(), rows, none)
}

/// Returns the same section with charts above the table.
pub(super) fn drawn_table(
    title: impl Into<String>,
    drawn: Vec<ContentBlock>,
    rows: impl Into<Table>,
    none: impl Into<String>,
) -> Section {
    let rows: Table = rows.into();
    let is_long = rows.rows.len() > OPEN;
    let is_drawn = !drawn.iter().all(ContentBlock::is_empty);
    let mut blocks = drawn;
    blocks.push(match (rows.rows.is_empty(), is_long && is_drawn) {
        (true, _) => none.into().into(),
        (_, true) => Section::new("", vec![rows.into()]).folded().into(),
        (_, false) => rows.into(),
    });
    let section = Section::new(title, blocks);
    match is_long && !is_drawn {
        true => section.folded(),
        false => section,
    }
}

pub(super) fn who(trace: &Trace) -> String {
    target_name(trace).unwrap_or("the whole host".to_owned())
}

pub(super) fn when(trace: &Trace) -> String {
    let seconds = i64::try_from(trace.started_unix).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or("at an unknown time".to_owned(), |t| t.to_string())
}

pub(super) fn host(trace: &Trace) -> String {
    let host = &trace.host;
    let mut words = vec![counted(host.cpus as usize, "CPU")];
    words.extend(host.memory_bytes.map(|b| Bytes(b).to_string()));
    if host.base_page_bytes > 0 {
        words.push(format!("base page {}", Bytes(host.base_page_bytes)));
    }
    if host.virtual_machine == Some(true) {
        words.push("virtual".to_owned());
    }
    let kernel = [host.name.as_str(), &host.kernel, &host.arch];
    let kernel: Vec<&str> = kernel.into_iter().filter(|w| !w.is_empty()).collect();
    format!("{}: {}", kernel.join(" "), words.join(", "))
}

/// Returns the reason why the trace is shorter than requested; `None` for a complete one.
pub(super) const fn ending(trace: &Trace) -> Option<&'static str> {
    match trace.ending {
        TraceEndReason::Done => None,
        TraceEndReason::Interrupted => Some("interrupted"),
        TraceEndReason::TargetEnded => Some("the target ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let texts = |cells: &[Cell]| cells.iter().map(Cell::to_string).collect::<Vec<_>>();
        let shares = [part(Some(0.5988)), part(None), whole_part(Some(0.5988))];
        assert_eq!(texts(&shares), ["59.9 %", "-", "60"]);
        let counts = [count(1_234_567), rate(30, 10.0), rate(1, 0.0), flow(378e6)];
        assert_eq!(texts(&counts), ["1,234,567", "3", "-", "378 MB/s"]);
    }

    #[test]
    fn an_empty_trace_has_words_too() {
        let trace = Trace::default();
        assert_eq!(who(&trace), "the whole host");
        assert_eq!(when(&trace), "1970-01-01T00:00:00Z");
        assert_eq!(host(&trace), ": 0 CPUs");
    }
}
