//! `bench chase` as text.

use hugeleaf_proof::bench::chase::{ChaseArm, ChasePoint, ChaseResult};
use hugeleaf_units::Bytes;

use super::chart::{Series, draw};
use super::{NotHadLine, duration, ending, not_had_text, short, spread, times_base};
use crate::table::{Align, Look, Paint, Table, first_that_fits};

/// The result on a screen: the largest working set first, then all of them.
pub fn chase_text(result: &ChaseResult, look: Look) -> String {
    let mut out = look.paint(&look.wrap("", &chase_headline(result)), Paint::Bold);
    out.push_str(&look.wrap("", &chase_meaning(result)));
    out.push('\n');
    out.push_str(&table(result, look));
    out.push('\n');
    out.push_str(&chart(result, look));
    out.push_str(&not_had_text(&not_had(result), look));
    out.push_str(&look.wrap("how   ", &chase_how(result)));
    for note in notes(result) {
        out.push_str(&look.wrap("note  ", &note));
    }
    out
}

/// Arms of which there is a point.
pub(crate) fn measured(result: &ChaseResult) -> Vec<&ChaseArm> {
    let arms = result.arms.iter();
    arms.filter(|arm| !arm.points.is_empty()).collect()
}

/// Every working set of which there is a point, smallest first.
pub(crate) fn working_sets(result: &ChaseResult) -> Vec<u64> {
    let points = result.arms.iter().flat_map(|arm| &arm.points);
    let mut sizes: Vec<u64> = points.map(|point| point.working_set_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

pub(crate) fn at(arm: &ChaseArm, size: u64) -> Option<&ChasePoint> {
    arm.points.iter().find(|p| p.working_set_bytes == size)
}

/// `chase at 1G: base 312 ns; thp:2M 210 ns, ×0.67 [0.66, 0.68]`, at the largest working set that
/// most arms have.
pub fn chase_headline(result: &ChaseResult) -> String {
    let arms = measured(result);
    let count = |size: &u64| arms.iter().filter(|arm| at(arm, *size).is_some()).count();
    let sizes = working_sets(result);
    let Some(size) = sizes.iter().max_by_key(|size| (count(size), **size)) else {
        return "chase: nothing was measured".to_owned();
    };
    let of = |arm: &&ChaseArm| {
        let point = at(arm, *size)?;
        let effect = point.effect.map_or_else(String::new, |e| {
            let (low, high) = (times_base(e.low), times_base(e.high));
            let ends = [low, high].map(|end| end.trim_start_matches('×').to_owned());
            format!(", {} [{}, {}]", times_base(e.ratio), ends[0], ends[1])
        });
        Some(format!(
            "{} {} ns{effect}",
            arm.label,
            short(point.spread.median)
        ))
    };
    let parts: Vec<String> = arms.iter().filter_map(of).collect();
    format!("chase at {}: {}", Bytes(*size), parts.join("; "))
}

/// What the numbers are.
pub fn chase_meaning(result: &ChaseResult) -> String {
    let rounds = result.settings.rounds;
    let sure = short(result.settings.confidence * 100.0);
    let sure = sure.trim_end_matches('0').trim_end_matches('.');
    let interval = match rounds {
        0..6 => "too few rounds for an interval".to_owned(),
        _ => format!("with its {sure} % interval"),
    };
    format!(
        "dependent random reads, ns a read (lower is better): the median of {rounds} rounds, \
         {interval}; × is over base pages in the same rounds"
    )
}

/// The table, with as much about intervals as the screen has room for.
fn table(result: &ChaseResult, look: Look) -> String {
    let heads = measured(result).into_iter();
    let heads = heads.map(|arm| (arm.label.to_uppercase(), Align::Right));
    let heads: Vec<(String, Align)> = [("WORKING SET".to_owned(), Align::Left)]
        .into_iter()
        .chain(heads)
        .collect();
    let widths = [Cells::Ends, Cells::HalfWidth, Cells::Median];
    let draw = |cells: Cells| {
        let mut table = Table::new(&heads);
        for row in rows(result, cells) {
            table.row(row);
        }
        table
    };
    first_that_fits(widths.map(draw), look)
}

/// How much a cell says.
#[derive(Clone, Copy)]
enum Cells {
    /// `312 [309, 318]`.
    Ends,
    /// `312 ±1 %`: half the interval.
    HalfWidth,
    /// `312`.
    Median,
}

/// A row a working set: its size, and each measured arm with its interval. `-` is not had, `?` not
/// seen to be on the pages of the arm.
pub fn chase_rows(result: &ChaseResult) -> Vec<Vec<String>> {
    rows(result, Cells::Ends)
}

fn rows(result: &ChaseResult, cells: Cells) -> Vec<Vec<String>> {
    let arms = measured(result);
    let cell = |arm: &&ChaseArm, size: u64| match at(arm, size) {
        None => "-".to_owned(),
        Some(point) => {
            let mark = if point.verified { "" } else { " ?" };
            format!("{}{mark}", value(point, cells))
        }
    };
    let row = |size: u64| {
        let cells = arms.iter().map(|arm| cell(arm, size));
        [Bytes(size).to_string()].into_iter().chain(cells).collect()
    };
    working_sets(result).into_iter().map(row).collect()
}

fn value(point: &ChasePoint, cells: Cells) -> String {
    let s = &point.spread;
    match (cells, s.low.zip(s.high)) {
        (Cells::Ends, _) => spread(s),
        (Cells::HalfWidth, Some((low, high))) => {
            let part = (high - low) / 2.0 / s.median * 100.0;
            format!("{} ±{part:.0} %", short(s.median))
        }
        _ => short(s.median),
    }
}

/// A letter for each arm: b is base, t and the next transparent, h and the next from pools.
fn letters(arms: &[&ChaseArm]) -> Vec<char> {
    let mut taken: Vec<char> = Vec::new();
    for arm in arms {
        let mut choice = match arm.kind.as_str() {
            "base" => "b",
            "thp" => "tuvwxyz",
            _ => "hijklmn",
        }
        .chars();
        let letter = choice.find(|letter| !taken.contains(letter));
        taken.push(letter.unwrap_or('*'));
    }
    taken
}

fn chart(result: &ChaseResult, look: Look) -> String {
    let (arms, sizes) = (measured(result), working_sets(result));
    if sizes.len() < 2 {
        return String::new();
    }
    let letters = letters(&arms);
    let series: Vec<Series> = arms
        .iter()
        .zip(&letters)
        .map(|(arm, letter)| Series {
            letter: *letter,
            values: sizes
                .iter()
                .map(|size| at(arm, *size).map(|p| p.spread.median))
                .collect(),
        })
        .collect();
    let labels: Vec<String> = sizes.iter().map(|size| Bytes(*size).to_string()).collect();
    let drawn = draw(&series, &labels, look.width);
    let keys: Vec<String> = arms
        .iter()
        .zip(&letters)
        .map(|(arm, letter)| format!("{letter} {}", arm.label))
        .collect();
    let key = look.wrap(
        "",
        &format!("ns a read by working set: {}", keys.join(", ")),
    );
    format!("{key}{drawn}\n")
}

/// Arms that were not had, and from which working set on.
pub fn not_had(result: &ChaseResult) -> Vec<NotHadLine> {
    let arms = result.arms.iter();
    arms.filter_map(|arm| {
        let why = arm.not_had.as_ref()?;
        Some(NotHadLine::of(&arm.label, !arm.points.is_empty(), why))
    })
    .collect()
}

/// How it was measured.
pub fn chase_how(result: &ChaseResult) -> String {
    let s = &result.settings;
    format!(
        "one cycle through every {} bytes of the working set, in an order drawn from seed {}; {} \
         rounds, the arms in a new order in each; {} a sample, after reading on without a clock; {}",
        s.line_bytes,
        s.seed,
        s.rounds,
        duration(s.sample_seconds),
        ending(result.experiment.ending, result.experiment.duration_seconds)
    )
}

/// What a reader must know: caveats, and why points are marked; alike ones once.
pub fn notes(result: &ChaseResult) -> Vec<String> {
    let mut notes = result.caveats.clone();
    for arm in &result.arms {
        let marked: Vec<(&ChasePoint, &String)> = arm
            .points
            .iter()
            .filter_map(|p| Some((p, p.note.as_ref()?)))
            .collect();
        if let Some((first, note)) = marked.first() {
            let more = match marked.len() - 1 {
                0 => String::new(),
                n => format!(" ({n} more like it)"),
            };
            let size = Bytes(first.working_set_bytes);
            notes.push(format!("{} at {size}: {note}{more}", arm.label));
        }
    }
    notes
}

/// A result for tests of views.
#[cfg(test)]
pub(crate) fn example() -> ChaseResult {
    let point = |size: u64, ns: f64, effect: &str, verified: bool| {
        let note = if verified {
            ""
        } else {
            r#""note": "2M of 4M were not on thp:2M","#
        };
        format!(
            r#"{{"working_set_bytes": {size}, "samples": [{ns}], "rounds": [0], "hops": [1000],
              "at_seconds": [0.5], "median": {ns}, "low": {}, "high": {}, {effect} {note}
              "pages_before": [], "pages_after": [], "verified": {verified}, "in_turn": false}}"#,
            ns * 0.98,
            ns * 1.02
        )
    };
    let effect = r#""effect": {"ratio": 0.667, "low": 0.651, "high": 0.682, "confidence": 0.95,
        "method": "signed-rank"},"#;
    let (small, large) = (64u64 << 10, 1u64 << 30);
    let text = format!(
        r#"{{"schema": 1,
      "experiment": {{"name": "chase", "unit": "ns", "better": "lower",
        "started": "2026-01-31T12:00:00Z", "duration_seconds": 61.2, "ending": "done"}},
      "arms": [
        {{"label": "base", "page_bytes": 4096, "kind": "base",
          "points": [{}, {}]}},
        {{"label": "thp:2M", "page_bytes": 2097152, "kind": "thp", "points": [{}, {}]}},
        {{"label": "hugetlb:1G", "page_bytes": 1073741824, "kind": "hugetlb", "points": [],
          "not_had": {{"from_bytes": 65536, "reason": "no page of 1G <b>", "next": "echo 6 > pool"}}}}
      ],
      "caveats": ["This is a virtual machine."],
      "host": {{"kernel": "6.18.0", "arch": "x86_64", "cpus": 2, "nodes": 1,
        "base_page_bytes": 4096, "large_page_bytes": 2097152}},
      "settings": {{"rounds": 9, "for_seconds": 60.0, "sample_seconds": 0.08, "seed": 7,
        "line_bytes": 64, "most_bytes": 1, "confidence": 0.95,
        "knobs": [{{"name": "enabled", "value": "madvise"}}], "version": "0.1.0"}},
      "command": ["hugeleaf", "bench", "chase"]}}"#,
        point(small, 1.93, "", true),
        point(large, 312.0, "", true),
        point(small, 1.92, "", true),
        point(large, 208.0, effect, false),
    );
    serde_json::from_str(&text).expect("the example is a result")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_to_the_letter() {
        let expected = "\
chase at 1G: base 312 ns; thp:2M 208 ns, ×0.67 [0.65, 0.68]
dependent random reads, ns a read (lower is better): the median of 9 rounds, with its 95 % interval;
× is over base pages in the same rounds

WORKING SET               BASE             THP:2M
64K          1.93 [1.89, 1.97]  1.92 [1.88, 1.96]
1G              312 [306, 318]   208 [204, 212] ?
";
        let text = chase_text(&example(), Look::plain(100));
        assert!(text.starts_with(expected), "{text}");
        let rest = "
not had  hugetlb:1G: no page of 1G <b>
  next   echo 6 > pool
how   one cycle through every 64 bytes of the working set, in an order drawn from seed 7; 9 rounds,
      the arms in a new order in each; 80.0 ms a sample, after reading on without a clock; took 61.2
      s
note  This is a virtual machine.
note  thp:2M at 1G: 2M of 4M were not on thp:2M
";
        assert!(text.ends_with(rest), "{text}");
        assert!(text.contains("b base, t thp:2M\n"), "{text}");
    }

    #[test]
    fn what_does_not_fit_is_said_shorter() {
        let row = |width| {
            let text = chase_text(&example(), Look::plain(width));
            let line = text.lines().find(|line| line.starts_with("1G "));
            line.unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(row(48), "1G 312 ±2 % 208 ±2 % ?");
        assert_eq!(row(30), "1G 312 208 ?");
    }

    #[test]
    fn narrow_screens_are_kept_to_where_tables_can_give_way() {
        let text = chase_text(&example(), Look::plain(60));
        assert!(text.lines().all(|l| l.chars().count() <= 60), "{text}");
    }
}
