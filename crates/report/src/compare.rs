//! `hugeleaf compare`: two results, or two arms of one.

use std::collections::HashSet;

use hugeleaf_proof::compare::{
    Compared, ComparedRow, ComparedSets, HistoryRow, QuantitySelection, SetHistory, SetRow, Side,
};
use hugeleaf_proof::result_format::{Parameter, QuantityKind, Results};
use hugeleaf_proof::stats::{Better, Verdict};
use serde_json::json;

use crate::bench::value;
use crate::document::{
    Axis, AxisUnit, Cell, Chart, ContentBlock, Document, Mark, Note, Point, Series, Table,
    TableBuilder, counted, fact, number,
};
use crate::json::answer;

const FEW: usize = 24;

#[derive(Debug, Clone, Copy)]
pub struct ComparisonView<'a> {
    pub compared: &'a Compared,
    pub a: (&'a Results, &'a str),
    /// The second result; `None` if two arms of one are compared.
    pub b: Option<(&'a Results, &'a str)>,
}

/// The result, its file, and its arm if arms are compared.
type OneSide<'a> = (&'a Results, &'a str, Option<&'a str>);

impl ComparisonView<'_> {
    pub fn page(&self, all: bool) -> Document {
        let mut page = Document::new("hugeleaf compare", self.headline());
        let side = |name, (measured, file, arm): OneSide<'_>| {
            let arm = arm.map_or_else(String::new, |arm| format!("{arm} of "));
            fact(
                name,
                format!("{arm}{file}, {}", measured.experiment.started),
            )
        };
        let [a, b] = self.sides();
        page.add(vec![side("A", a), side("B", b)]);
        let rows = &self.compared.rows;
        let shown = shown(rows, all);
        let notes = self.notes(rows.len() - shown.len(), &shown);
        page.section("", vec![table(&shown).into()]);
        page.section("", vec![notes.into()]);
        page
    }

    fn notes(&self, more: usize, shown: &[&ComparedRow]) -> Vec<Note> {
        let mut notes = Vec::new();
        if more > 0 {
            let text = format!("{more} secondary rows: --all");
            notes.push(Note::new("more", text));
        }
        let percent = number(self.compared.equal * 100.0);
        let unclear = match self.compared.is_within {
            true => "the interval is too wide",
            false => "the interval is partly within, partly outside",
        };
        let equal = format!("within ±{percent} %; brackets are 95 % intervals; unclear: {unclear}");
        notes.push(Note::new("equal", equal));
        let named: HashSet<usize> = shown.iter().flat_map(|row| row.notes.clone()).collect();
        let bearing = self.compared.notes.iter();
        let bearing = bearing.filter(|note| named.contains(&note.id));
        notes.extend(bearing.map(|note| Note::new(format!("note {}", note.id), &note.text)));
        notes.extend(Note::each("note", &self.compared.caveats));
        notes
    }

    pub fn json(&self) -> String {
        let measured = self.a.0;
        let main = measured.main();
        let side = |(measured, file, arm): OneSide<'_>| {
            json!({
                "file": file,
                "arm": arm,
                "started": measured.experiment.started,
                "is_interrupted": measured.experiment.is_interrupted(),
                "command": measured.command,
            })
        };
        let [a, b] = self.sides().map(side);
        answer(&json!({
            "experiment": {
                "name": measured.experiment.name,
                "unit": main.map(|q| &q.unit),
                "better": main.map(|q| q.better),
            },
            "a": a,
            "b": b,
            "equal": self.compared.equal,
            "rows": self.compared.rows,
            "notes": self.compared.notes,
            "caveats": self.compared.caveats,
        }))
    }

    /// Returns the heading, such as `chase (ns, lower is better): thp:2M over base`.
    fn headline(&self) -> String {
        let over = match &self.compared.arms {
            Some([a, b]) => format!("{b} over {a}"),
            None => "B over A".to_owned(),
        };
        format!("{}: {over}", self.a.0.in_words())
    }

    fn sides(&self) -> [OneSide<'_>; 2] {
        let arm = |at: usize| self.compared.arms.as_ref().map(|arms| arms[at].as_str());
        let (a, b) = (self.a, self.b.unwrap_or(self.a));
        [(a.0, a.1, arm(0)), (b.0, b.1, arm(1))]
    }
}

/// Compares two sets of results by workload: the gain of the second in percent of throughput.
pub fn sets(compared: &ComparedSets, which: QuantitySelection) -> Document {
    let mut distinct: Vec<&str> = (compared.rows.iter())
        .map(|row| row.workload.as_str())
        .collect();
    distinct.dedup();
    let lead = format!(
        "B over A, {}: {}",
        counted(distinct.len(), "workload"),
        match which {
            QuantitySelection::Main =>
                "percent of throughput, above 0 is better; times are shown as rates",
            QuantitySelection::Counts =>
                "counts, no timings; above 0 is better, or more if neither is better",
        }
    );
    let mut page = Document::new("hugeleaf compare", lead);
    let interval = |row: &&SetRow| match (row.low_percent, row.high_percent) {
        (Some(low), Some(high)) => format!("[{low:+.1}, {high:+.1}]"),
        _ => "-".to_owned(),
    };
    let side = |value: Option<f64>, unit: &str| {
        let unit = if unit == "bytes" { unit } else { "" };
        value.map_or_else(|| "-".to_owned(), |value| self::value(value, unit))
    };
    let table = Table::from_items(&compared.rows)
        .left("WORKLOAD", |row| row.workload.as_str())
        .left("AT", |row| place(&row.at))
        .left("ARM", |row| row.arm.as_deref().unwrap_or_default())
        .when(which == QuantitySelection::Counts, |table| {
            table
                .left("QUANTITY", |row| row.what.as_str())
                .right("A", |row| side(row.a, &row.unit))
                .right("B", |row| side(row.b, &row.unit))
        })
        .right("B OVER A", |row| percent(row.better_percent))
        .right("95 %", interval)
        .left("VERDICT", |row| better_or_worse(row.verdict));
    page.section("", vec![table.into()]);
    let mut notes = vec![Note::new("equal", within(compared.equal))];
    notes.extend(Note::each("left out", &compared.left_out));
    page.section("", vec![notes.into()]);
    page
}

fn within(equal: f64) -> String {
    format!("within ±{} %", number(equal * 100.0))
}

fn percent(value: Option<f64>) -> Cell {
    value.map_or_else(|| Cell::from("-"), |p| Cell::from(format!("{p:+.1} %")))
}

fn place(at: &[Parameter]) -> String {
    let one =
        |place: &Parameter| format!("{} {}", place.name, place.value.to_json()).replace('"', "");
    at.iter().map(one).collect::<Vec<_>>().join(", ")
}

const fn mark(verdict: Option<Verdict>) -> Mark {
    match verdict {
        Some(Verdict::Faster) => Mark::Good,
        Some(Verdict::Slower) => Mark::Bad,
        _ => Mark::Dim,
    }
}

/// Compares many sets: a row for each workload, a column for each set, and a chart for each workload.
pub fn history(history: &SetHistory) -> Document {
    let (first, last) = (history.sets.first(), history.sets.last());
    let name = |set: Option<&String>| set.cloned().unwrap_or_default();
    let lead = format!(
        "{} over {}, the first: percent of throughput, above 0 is better; times are shown as rates",
        counted(history.sets.len().saturating_sub(1), "set"),
        name(first)
    );
    let mut page = Document::new("hugeleaf compare", lead);
    let others = history.sets.get(1..).unwrap_or_default().iter().enumerate();
    let point = |row: &HistoryRow, set: usize| row.points.get(set).cloned().flatten();
    let table = Table::from_items(&history.rows)
        .left("WORKLOAD", |row| row.workload.as_str())
        .left("AT", |row| place(&row.at))
        .left("ARM", |row| row.arm.as_deref().unwrap_or_default())
        .columns_for(others, |table, (set, name)| {
            table.right(name.clone(), move |row| match point(row, set) {
                Some(point) => percent(point.better_percent).marked(mark(point.verdict)),
                None => Cell::from("-"),
            })
        })
        .left("LATEST", |row| {
            let last = row.points.last().cloned().flatten();
            better_or_worse(last.and_then(|point| point.verdict))
        });
    page.section("", vec![table.into()]);
    let mut notes = vec![
        Note::new("last", name(last)),
        Note::new("equal", within(history.equal)),
    ];
    notes.extend(Note::each("left out", &history.left_out));
    page.section("", vec![notes.into()]);
    let charts = of_workloads(history);
    page.section(
        "CHARTS",
        charts.into_iter().map(ContentBlock::Chart).collect(),
    );
    page
}

/// Returns a chart for each workload, with a curve for each arm and place. Intervals are relative to the first set.
fn of_workloads(history: &SetHistory) -> Vec<Chart> {
    let mut names: Vec<&str> = Vec::new();
    for row in &history.rows {
        if !names.contains(&row.workload.as_str()) {
            names.push(&row.workload);
        }
    }
    let ratio = |percent: f64| 1.0 + percent / 100.0;
    let points = |row: &HistoryRow| {
        let known = row.points.iter().enumerate();
        let known = known.filter_map(|(set, point)| {
            let point = point.as_ref()?;
            Some(Point {
                interval: point
                    .low_percent
                    .zip(point.high_percent)
                    .map(|(low, high)| (ratio(low), ratio(high))),
                ..Point::at((set + 1) as f64, ratio(point.better_percent?))
            })
        });
        std::iter::once(Point::at(0.0, 1.0)).chain(known).collect()
    };
    let series = |row: &HistoryRow| {
        let parts = [row.arm.clone().unwrap_or_default(), place(&row.at)];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Series::new(parts.join(" "), points(row))
    };
    let steps = || {
        let names = history.sets.iter().enumerate();
        names.map(|(at, name)| (at as f64, name.clone())).collect()
    };
    let chart = |name: &&str| Chart {
        title: (*name).to_owned(),
        x: Axis {
            steps: steps(),
            ..Axis::named("set")
        },
        y: Axis {
            unit: AxisUnit::Ratio,
            level: Some(1.0),
            ..Axis::named("over the first set")
        },
        series: (history.rows.iter())
            .filter(|row| row.workload == **name)
            .map(series)
            .collect(),
        ..Chart::default()
    };
    names.iter().map(chart).collect()
}

fn better_or_worse(verdict: Option<Verdict>) -> Cell {
    let word = match verdict {
        Some(Verdict::Faster) => "better",
        Some(Verdict::Slower) => "worse",
        Some(Verdict::Same) => "equal",
        Some(Verdict::Unclear) => "unclear",
        None => "-",
    };
    Cell::from(word).marked(mark(verdict))
}

pub fn sets_json(compared: &ComparedSets) -> String {
    answer(
        &json!({ "equal": compared.equal, "workloads": compared.rows, "left_out": compared.left_out }),
    )
}

/// Selects rows. Without `all` these are main rows and those that are better higher or lower. If too many, main and
/// changed rows; if still too many, main rows only.
fn shown(rows: &[ComparedRow], all: bool) -> Vec<&ComparedRow> {
    let says = |row: &ComparedRow| row.quantity.main || row.quantity.better != Better::Neither;
    let changed = |row: &ComparedRow| {
        let is_other = matches!(row.verdict, Some(Verdict::Faster | Verdict::Slower));
        row.quantity.main || says(row) && is_other
    };
    let few: [&dyn Fn(&ComparedRow) -> bool; 2] = [&says, &changed];
    let picked = few
        .into_iter()
        .find(|which| rows.iter().filter(|row| which(row)).count() <= FEW);
    let is_shown = |row: &&ComparedRow| all || picked.map_or(row.quantity.main, |which| which(row));
    rows.iter().filter(is_shown).collect()
}

fn places<'a>(rows: &[&'a ComparedRow]) -> Vec<&'a Parameter> {
    let mut seen = HashSet::new();
    let places = rows.iter().flat_map(|row| &row.at);
    places.filter(|place| seen.insert(&place.name)).collect()
}

fn table<'a>(rows: &[&'a ComparedRow]) -> TableBuilder<&'a ComparedRow> {
    let has_arm = rows.iter().any(|row| row.arm.is_some());
    let at = |row: &ComparedRow, known: &Parameter| {
        let mut places = row.at.iter();
        let place = places.find(|place| place.name == known.name);
        place.map_or_else(String::new, |place| place.value.to_string())
    };
    Table::from_items(rows.iter().copied())
        .when(has_arm, |table| {
            table.left("ARM", |row| row.arm.clone().unwrap_or_default())
        })
        .columns_for(places(rows), |table, known| {
            table.left(known.head().to_uppercase(), |row| at(row, known))
        })
        .left("QUANTITY", |row| &row.quantity.name)
        .right("A", |row| median(row.a.as_ref(), &row.quantity.unit))
        .right("B", |row| median(row.b.as_ref(), &row.quantity.unit))
        .right("B/A", |row| over(row))
        .right("CHANGE", |row| row.ratio.map(change))
        .left("RESULT", |row| word(row))
        .left("NOTE", |row| ranges(&row.notes))
}

/// Formats times and bytes with their unit; the headline names any other unit.
fn median(side: Option<&Side>, unit: &str) -> Option<String> {
    let unit = match unit {
        "seconds" | "µs" | "ns" | "bytes" => unit,
        _ => "",
    };
    Some(value(side?.spread.median, unit))
}

/// Formats a ratio with its interval: `1.154 [1.120, 1.190]`.
fn over(row: &ComparedRow) -> Option<String> {
    match &row.effect {
        Some(e) => Some(format!(
            "{} [{}, {}]",
            three(e.ratio),
            three(e.low),
            three(e.high)
        )),
        None => row.ratio.map(three),
    }
}

/// Formats a ratio with three decimals near 1.
pub fn three(ratio: f64) -> String {
    match ratio {
        r if (0.01..10.0).contains(&r) => format!("{r:.3}"),
        r if (0.0001..0.01).contains(&r) => format!("{r:.5}"),
        r => crate::document::ratio(r),
    }
}

/// Formats a ratio as a change in percent: `+15.4 %`.
pub fn change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    match percent.abs() {
        p if p >= 1e6 => format!("{percent:+.2e} %"),
        p if p >= 100.0 => format!("{percent:+.0} %"),
        // Avoid `-0.0`.
        p if p < 0.05 => "0.0 %".to_owned(),
        _ => format!("{percent:+.1} %"),
    }
}

fn word(row: &ComparedRow) -> &'static str {
    let went_up = (row.quantity.better == Better::Higher) == (row.verdict == Some(Verdict::Faster));
    match (row.verdict, row.quantity.kind) {
        (None, _) if row.a.is_some() && row.b.is_some() => "not compared",
        (None, _) if row.a.is_some() => "only in A",
        (None, _) => "only in B",
        (Some(Verdict::Same), _) => "equal",
        (Some(Verdict::Unclear), _) => "unclear",
        (Some(Verdict::Faster), QuantityKind::Speed) => "faster",
        (Some(Verdict::Slower), QuantityKind::Speed) => "slower",
        (Some(_), _) if went_up => "more",
        (Some(_), _) => "less",
    }
}

/// Formats note IDs as ranges: `1-3,5`.
fn ranges(notes: &[usize]) -> String {
    let mut notes = notes.to_vec();
    notes.sort_unstable();
    notes.dedup();
    let parts = notes.chunk_by(|a, b| a + 1 == *b);
    let part = |of: &[usize]| match of {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    parts.map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_notes_are_short() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[5, 1, 2, 3, 5]), "1-3,5");
    }

    #[test]
    fn ratios_are_said_in_percent() {
        assert_eq!(change(1.154), "+15.4 %");
        assert_eq!(change(0.9999), "0.0 %");
        assert_eq!(change(0.5), "-50.0 %");
        assert_eq!(change(3.0), "+200 %");
        assert_eq!(three(0.9971), "0.997");
        assert_eq!(three(0.03), "0.030");
        assert_eq!(three(0.001_953), "0.00195");
        assert_eq!(three(34.68), "34.68");
    }
}
