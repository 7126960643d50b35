//! `bench pagetables` as text.

use hugeleaf_proof::bench::pagetables::{PageTablesArm, PageTablesPoint, PageTablesResult, Times};
use hugeleaf_units::Bytes;

use super::{NotHadLine, duration, ending, not_had_text, times_base};
use crate::table::{Align, Look, Paint, Table, bar};

/// The result on a screen: the most processes first, then all of them.
pub fn pagetables_text(result: &PageTablesResult, look: Look) -> String {
    let mut out = look.paint(&look.wrap("", &pagetables_headline(result)), Paint::Bold);
    out.push_str(&look.wrap("", &pagetables_meaning(result)));
    out.push('\n');
    let heads = COLUMNS.map(|head| match head {
        "PAGES" => (head, Align::Left),
        _ => (head, Align::Right),
    });
    let mut table = Table::new(&heads);
    for row in pagetables_rows(result) {
        table.row(row);
    }
    out.push_str(&table.render_as(look));
    out.push('\n');
    out.push_str(&bars(result, look));
    out.push_str(&not_had_text(&not_had(result), look));
    out.push_str(&look.wrap("how   ", &pagetables_how(result)));
    for note in notes(result) {
        out.push_str(&look.wrap("note  ", &note));
    }
    out
}

/// The columns of [`pagetables_rows`].
pub const COLUMNS: [&str; 9] = [
    "PROCESSES",
    "PAGES",
    "GROWTH",
    "EACH",
    "×BASE",
    "OF HOST",
    "ATTACH",
    "FIRST TOUCH",
    "BOTH, ALL",
];

/// `pagetables, 1024 processes on 1G: base 2.0G; hugetlb:2M 8.0M, ×0.0039`, with the most
/// processes that were measured.
pub fn pagetables_headline(result: &PageTablesResult) -> String {
    let Some(most) = counts(result).last().copied() else {
        return "pagetables: nothing was measured".to_owned();
    };
    let parts: Vec<String> = at(result, most)
        .map(|(arm, point)| {
            let over = point
                .over_base
                .map_or_else(String::new, |ratio| format!(", {}", times_base(ratio)));
            format!("{} {}{over}", arm.label, signed(point.growth_bytes))
        })
        .collect();
    let region = Bytes(result.settings.region_bytes);
    let many = processes(most);
    format!("page tables of {many} on {region}: {}", parts.join("; "))
}

fn processes(count: usize) -> String {
    match count {
        1 => "1 process".to_owned(),
        n => format!("{n} processes"),
    }
}

/// What the numbers are.
pub fn pagetables_meaning(result: &PageTablesResult) -> String {
    format!(
        "growth of page tables (VmPTE) over the same processes without the region of {} (less is \
         better); ATTACH and FIRST TOUCH are medians of a process; × is over base pages",
        Bytes(result.settings.region_bytes)
    )
}

/// A row a number of processes and arm, as [`COLUMNS`].
pub fn pagetables_rows(result: &PageTablesResult) -> Vec<[String; 9]> {
    let mut rows = Vec::new();
    for count in counts(result) {
        for (arm, point) in at(result, count) {
            rows.push(row(arm, point));
        }
    }
    rows
}

fn row(arm: &PageTablesArm, point: &PageTablesPoint) -> [String; 9] {
    let mark = if point.verified { "" } else { " ?" };
    let each = i64::try_from(point.processes).map_or(0, |n| point.growth_bytes / n.max(1));
    let median = |times: &Times| duration(times.spread.median);
    [
        point.processes.to_string(),
        format!("{}{mark}", arm.label),
        signed(point.growth_bytes),
        signed(each),
        point.over_base.map_or("-".to_owned(), times_base),
        point.host_growth_bytes.map_or("?".to_owned(), signed),
        median(&point.attach),
        median(&point.first_touch),
        duration(point.attach.total_seconds + point.first_touch.total_seconds),
    ]
}

/// Bytes that may be fewer than none.
fn signed(bytes: i64) -> String {
    let size = Bytes(bytes.unsigned_abs());
    if bytes < 0 {
        format!("-{size}")
    } else {
        size.to_string()
    }
}

/// The numbers of processes that were measured, fewest first.
pub(crate) fn counts(result: &PageTablesResult) -> Vec<usize> {
    let points = result.arms.iter().flat_map(|arm| &arm.points);
    let mut counts: Vec<usize> = points.map(|point| point.processes).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The arms that have a point of so many processes.
pub(crate) fn at(
    result: &PageTablesResult,
    count: usize,
) -> impl Iterator<Item = (&PageTablesArm, &PageTablesPoint)> {
    result.arms.iter().filter_map(move |arm| {
        let point = arm.points.iter().find(|p| p.processes == count)?;
        Some((arm, point))
    })
}

#[allow(clippy::cast_precision_loss)]
fn bars(result: &PageTablesResult, look: Look) -> String {
    let Some(most) = counts(result).last().copied() else {
        return String::new();
    };
    let all: Vec<_> = at(result, most).collect();
    let widest = all.iter().map(|(arm, _)| arm.label.chars().count()).max();
    let widest = widest.unwrap_or(0);
    let top = all.iter().map(|(_, p)| p.growth_bytes).max().unwrap_or(0);
    let room = look.width.saturating_sub(widest + 12).clamp(10, 60);
    let mut out = format!("growth with {}\n", processes(most));
    for (arm, point) in all {
        let part = match top {
            top if top > 0 => point.growth_bytes as f64 / top as f64,
            _ => 0.0,
        };
        let (label, bar) = (&arm.label, bar(part, room));
        out.push_str(&format!(
            "  {label:<widest$}  {bar} {}\n",
            signed(point.growth_bytes)
        ));
    }
    out.push('\n');
    out
}

/// Arms that were not had.
pub fn not_had(result: &PageTablesResult) -> Vec<NotHadLine> {
    let arms = result.arms.iter();
    arms.filter_map(|arm| {
        let why = arm.not_had.as_ref()?;
        let some = !arm.points.is_empty();
        let mut line = NotHadLine::of(&arm.label, false, why);
        if some {
            line.what = format!("{} at some numbers of processes", arm.label);
        }
        Some(line)
    })
    .collect()
}

/// How it was measured.
pub fn pagetables_how(result: &PageTablesResult) -> String {
    let points = result.arms.iter().flat_map(|arm| &arm.points);
    let idle = points.map(|point| point.idle_bytes).max().unwrap_or(0);
    format!(
        "each process started anew, {} of its own before it attaches; one after the other attaches \
         (which fills in its page tables) and reads a byte of each base page; arms in an order drawn \
         from seed {}; {}",
        Bytes(idle),
        result.settings.seed,
        ending(result.experiment.ending, result.experiment.duration_seconds)
    )
}

/// What a reader must know.
pub fn notes(result: &PageTablesResult) -> Vec<String> {
    let mut notes = result.caveats.clone();
    for arm in &result.arms {
        let marked = arm
            .points
            .iter()
            .filter_map(|p| Some((p, p.note.as_ref()?)));
        notes.extend(marked.map(|(_, note)| format!("{}: {note}", arm.label)));
    }
    notes
}

/// A result for tests of views.
#[cfg(test)]
pub(crate) fn example() -> PageTablesResult {
    let point = |n: u64, each: u64, over: &str, ms: f64| {
        let growth = n * each;
        let total = ms / 1000.0 * n as f64;
        format!(
            r#"{{"processes": {n}, "samples": [{each}], "before_bytes": 1000, "after_bytes": 2000,
              "growth_bytes": {growth}, "host_growth_bytes": {growth}, {over}
              "attach": {{"samples_seconds": [0.001], "median": {}, "total_seconds": {total}}},
              "first_touch": {{"samples_seconds": [0.001], "median": 0.0005, "total_seconds": {}}},
              "idle_bytes": 262144, "pages": [], "verified": true}}"#,
            ms / 1000.0,
            0.0005 * n as f64
        )
    };
    let over = r#""over_base": 0.00390625,"#;
    let (base, huge) = (2u64 << 20, 8u64 << 10);
    let text = format!(
        r#"{{"schema": 1,
      "experiment": {{"name": "pagetables", "unit": "bytes", "better": "lower",
        "started": "2026-01-31T12:00:00Z", "duration_seconds": 71.0, "ending": "done"}},
      "arms": [
        {{"label": "base", "page_bytes": 4096, "kind": "base", "points": [{}, {}]}},
        {{"label": "hugetlb:2M", "page_bytes": 2097152, "kind": "hugetlb", "points": [{}, {}]}},
        {{"label": "hugetlb:1G", "page_bytes": 1073741824, "kind": "hugetlb", "points": [],
          "not_had": {{"from_bytes": 1073741824, "reason": "no page of 1G", "next": "echo 6 > pool"}}}}
      ],
      "caveats": ["Shared tables count once in the host's sum."],
      "host": {{"kernel": "6.18.0", "arch": "x86_64", "cpus": 2, "nodes": 1,
        "base_page_bytes": 4096}},
      "settings": {{"region_bytes": 1073741824, "seed": 7, "most_bytes": 1, "confidence": 0.95,
        "knobs": [], "version": "0.1.0"}},
      "command": ["hugeleaf", "bench", "pagetables"]}}"#,
        point(1, base, "", 45.1),
        point(64, base, "", 44.0),
        point(1, huge, over, 0.08),
        point(64, huge, over, 0.09),
    );
    serde_json::from_str(&text).expect("the example is a result")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_to_the_letter() {
        let expected = "\
page tables of 64 processes on 1G: base 128M; hugetlb:2M 512K, ×0.0039
growth of page tables (VmPTE) over the same processes without the region of 1G (less is better);
ATTACH and FIRST TOUCH are medians of a process; × is over base pages

PROCESSES  PAGES       GROWTH  EACH    ×BASE  OF HOST   ATTACH  FIRST TOUCH  BOTH, ALL
        1  base            2M    2M        -       2M  45.1 ms       500 µs    45.6 ms
        1  hugetlb:2M      8K    8K  ×0.0039       8K  80.0 µs       500 µs     580 µs
       64  base          128M    2M        -     128M  44.0 ms       500 µs     2.85 s
       64  hugetlb:2M    512K    8K  ×0.0039     512K  90.0 µs       500 µs    37.8 ms

growth with 64 processes
  base        ████████████████████████████████████████████████████████████ 128M
  hugetlb:2M  ···························································· 512K
";
        let text = pagetables_text(&example(), Look::plain(100));
        assert!(text.starts_with(expected), "{text}");
        let rest = "
not had  hugetlb:1G: no page of 1G
  next   echo 6 > pool
how   each process started anew, 256K of its own before it attaches; one after the other attaches
      (which fills in its page tables) and reads a byte of each base page; arms in an order drawn
      from seed 7; took 71.0 s
note  Shared tables count once in the host's sum.
";
        assert!(text.ends_with(rest), "{text}");
    }

    #[test]
    fn less_than_none_is_told() {
        assert_eq!(signed(-2048), "-2K");
    }
}
