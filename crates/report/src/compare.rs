//! `hugeleaf compare`: two results, or two arms of one, as text and JSON.

use hugeleaf_proof::compare::{Compared, ComparedRow, Note, Side};
use hugeleaf_proof::rows::{Kind, Place, Results, Value as Reported};
use hugeleaf_proof::stats::{Better, Verdict};
use hugeleaf_units::Bytes;
use serde_json::{Value, json};

use crate::json::Object;
use crate::page::{duration, short};
use crate::prove::number;
use crate::table::{Align, Look, Paint, Table};

/// Up to so many rows are all shown, but for what is neither good nor bad; of more the main ones, unless all are
/// asked for.
const FEW: usize = 24;

/// A comparison with what it is of.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The comparison.
    pub compared: &'a Compared,
    /// The first result, and its file.
    pub a: (&'a Results, &'a str),
    /// The second; missing where two arms of one are compared.
    pub b: Option<(&'a Results, &'a str)>,
}

impl Shown<'_> {
    /// The comparison on a screen; all rows where `all` asks for them.
    pub fn text(&self, look: Look, all: bool) -> String {
        let mut out = look.paint(&look.wrap("", &self.headline()), Paint::Bold);
        for (name, of, arm) in self.sides() {
            let arm = arm.map_or_else(String::new, |arm| format!("{arm} of "));
            let (measured, file) = of;
            let line = format!("{arm}{file}, {}", measured.experiment.started);
            out.push_str(&look.wrap(&format!("{name}  "), &line));
        }
        out.push('\n');
        let rows = &self.compared.rows;
        let says = |row: &&ComparedRow| row.quantity.main || row.quantity.better != Better::Neither;
        let is_few = rows.iter().filter(says).count() <= FEW;
        let shown: Vec<&ComparedRow> = (rows.iter())
            .filter(|row| all || row.quantity.main || is_few && says(row))
            .collect();
        out.push_str(&table(&shown, look));
        out.push('\n');
        if shown.len() < rows.len() {
            let more = rows.len() - shown.len();
            let text = format!("{more} rows of what was also measured: --all");
            out.push_str(&look.wrap("more  ", &text));
        }
        let percent = number(self.compared.equal * 100.0);
        let equal = format!(
            "within ±{percent} %; brackets are 95 % intervals; unclear: the interval is too wide, \
             or there is none"
        );
        out.push_str(&look.wrap("equal ", &equal));
        for (at, note) in self.compared.notes.iter().enumerate() {
            let first = format!("note {}  ", at + 1);
            out.push_str(&look.wrap(&first, &in_words(note)));
        }
        for caveat in &self.compared.caveats {
            out.push_str(&look.wrap("note  ", caveat));
        }
        out
    }

    /// The same as JSON.
    pub fn json(&self) -> String {
        let mut answer = Object::answer();
        let measured = self.a.0;
        let about = &measured.experiment;
        let main = measured.main();
        let about = json!({
            "name": about.name, "unit": main.map(|q| &q.unit), "better": main.map(|q| q.better),
        });
        answer.put("experiment", about);
        for (name, (measured, file), arm) in self.sides() {
            let mut side = Object::new();
            side.put("file", file)
                .put_some("arm", arm)
                .put("started", measured.experiment.started.clone())
                .put("is_interrupted", measured.experiment.is_interrupted())
                .put("command", measured.command.clone());
            answer.put(&name.to_lowercase(), side.build());
        }
        let notes = self.compared.notes.iter().enumerate();
        let notes: Value = notes.map(note_json).collect();
        let rows: Value = self.compared.rows.iter().map(row_json).collect();
        answer
            .put("equal", self.compared.equal)
            .put("rows", rows)
            .put("notes", notes)
            .put("caveats", self.compared.caveats.clone());
        answer.render()
    }

    /// `chase (ns, lower is better): thp:2M over base`.
    fn headline(&self) -> String {
        let over = match &self.compared.arms {
            Some([a, b]) => format!("{b} over {a}"),
            None => "B over A".to_owned(),
        };
        format!("{}: {over}", self.a.0.in_words())
    }

    fn sides(&self) -> Vec<(&'static str, (&Results, &str), Option<&str>)> {
        let b = self.b.unwrap_or(self.a);
        let arm = |at: usize| Some(self.compared.arms.as_ref()?[at].as_str());
        vec![("A", self.a, arm(0)), ("B", b, arm(1))]
    }
}

fn note_json((at, note): (usize, &Note)) -> Value {
    let mut object = Object::new();
    object.put("id", at + 1).put("text", in_words(note));
    if let Note::Differs { name, a, b } = note {
        object
            .put("name", name.clone())
            .put_some("a", a.as_ref().map(Reported::to_json))
            .put_some("b", b.as_ref().map(Reported::to_json));
    }
    object.build()
}

fn in_words(note: &Note) -> String {
    match note {
        Note::Says(text) => text.clone(),
        Note::Differs { name, a, b } => {
            let value = |value: &Option<Reported>| match value {
                Some(value) => value.to_string(),
                None => "not reported".to_owned(),
            };
            format!("{name}: {} in A, {} in B", value(a), value(b))
        }
    }
}

/// The places that any of the rows has, in the order in which they come.
fn places<'a>(rows: &[&'a ComparedRow]) -> Vec<&'a Place> {
    let mut first: Vec<&Place> = Vec::new();
    for place in rows.iter().flat_map(|row| &row.at) {
        if first.iter().all(|known| known.name != place.name) {
            first.push(place);
        }
    }
    first
}

fn table(rows: &[&ComparedRow], look: Look) -> String {
    let places = places(rows);
    let has_arm = rows.iter().any(|row| row.arm.is_some());
    let mut heads: Vec<(String, Align)> = Vec::new();
    if has_arm {
        heads.push(("ARM".to_owned(), Align::Left));
    }
    heads.extend(
        places
            .iter()
            .map(|place| (place.head().to_uppercase(), Align::Left)),
    );
    for (head, align) in [
        ("WHAT", Align::Left),
        ("A", Align::Right),
        ("B", Align::Right),
        ("B/A", Align::Right),
        ("CHANGE", Align::Right),
        ("B IS", Align::Left),
        ("NOTE", Align::Left),
    ] {
        heads.push((head.to_owned(), align));
    }
    let mut table = Table::new(&heads);
    for row in rows {
        let mut cells: Vec<String> = Vec::new();
        if has_arm {
            cells.push(row.arm.clone().unwrap_or_default());
        }
        for known in &places {
            let place = row.at.iter().find(|place| place.name == known.name);
            cells.push(place.map_or_else(String::new, |place| place.value.to_string()));
        }
        cells.extend([
            row.quantity.name.clone(),
            median(row.a.as_ref(), &row.quantity.unit),
            median(row.b.as_ref(), &row.quantity.unit),
            over(row),
            row.ratio.map_or_else(|| "-".to_owned(), change),
            word(row).to_owned(),
            ranges(&row.notes),
        ]);
        table.row(cells);
    }
    table.render_as(look)
}

fn median(side: Option<&Side>, unit: &str) -> String {
    side.map_or_else(|| "-".to_owned(), |side| value(side.spread.median, unit))
}

/// A value in its unit.
fn value(value: f64, unit: &str) -> String {
    match unit {
        "seconds" => duration(value),
        "µs" => duration(value / 1e6),
        "ns" => duration(value / 1e9),
        // A growth can be below nothing.
        "bytes" if value >= 0.0 => {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let bytes = value as u64;
            Bytes(bytes).to_string()
        }
        _ => short(value),
    }
}

/// `1.154 [1.120, 1.190]`.
fn over(row: &ComparedRow) -> String {
    match (&row.effect, row.ratio) {
        (Some(e), _) => format!("{} [{}, {}]", three(e.ratio), three(e.low), three(e.high)),
        (None, Some(ratio)) => three(ratio),
        (None, None) => "-".to_owned(),
    }
}

/// A ratio to three digits behind the point, where it is about 1.
pub fn three(ratio: f64) -> String {
    match ratio {
        r if (0.01..10.0).contains(&r) => format!("{r:.3}"),
        r if (0.0001..0.01).contains(&r) => format!("{r:.5}"),
        r => crate::prove::ratio(r),
    }
}

/// A ratio as people say it: `+15.4 %`.
pub fn change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    match percent.abs() {
        p if p >= 100.0 => format!("{percent:+.0} %"),
        // Not `-0.0`.
        p if p < 0.05 => "0.0 %".to_owned(),
        _ => format!("{percent:+.1} %"),
    }
}

/// What B is, held against A.
fn word(row: &ComparedRow) -> &'static str {
    let went_up = (row.quantity.better == Better::Higher) == (row.verdict == Some(Verdict::Faster));
    match (row.verdict, row.quantity.kind) {
        (None, _) if row.a.is_some() => "only in A",
        (None, _) => "only in B",
        (Some(Verdict::Same), _) => "equal",
        (Some(Verdict::Unclear), _) => "unclear",
        (Some(Verdict::Faster), Kind::Speed) => "faster",
        (Some(Verdict::Slower), Kind::Speed) => "slower",
        (Some(_), _) if went_up => "more",
        (Some(_), _) => "less",
    }
}

/// Numbers of notes, from 1: `1-3,5`.
fn ranges(notes: &[usize]) -> String {
    let mut notes: Vec<usize> = notes.iter().map(|at| at + 1).collect();
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

fn row_json(row: &ComparedRow) -> Value {
    let mut object = Object::new();
    object.put_some("arm", row.arm.clone());
    let place = |place: &Place| (place.name.clone(), place.value.to_json());
    object
        .put("at", Value::Object(row.at.iter().map(place).collect()))
        .put("what", row.quantity.name.clone())
        .put("unit", row.quantity.unit.clone())
        .put("better", row.quantity.better.to_string())
        .put("is_main", row.quantity.main)
        .put_some("a", row.a.as_ref().map(side_json))
        .put_some("b", row.b.as_ref().map(side_json))
        .put_some("ratio", row.ratio);
    if let Some(e) = &row.effect {
        let method = serde_json::to_value(e.method).unwrap_or_default();
        object.put(
            "effect",
            json!({
                "ratio": e.ratio, "low": e.low, "high": e.high, "confidence": e.confidence,
                "method": method,
            }),
        );
    }
    let notes: Vec<usize> = row.notes.iter().map(|at| at + 1).collect();
    object
        .put_some("verdict", row.verdict.map(|verdict| verdict.to_string()))
        .put("notes", notes);
    object.build()
}

fn side_json(side: &Side) -> Value {
    let mut object = Object::new();
    object
        .put("median", side.spread.median)
        .put_some("low", side.spread.low)
        .put_some("high", side.spread.high)
        .put("samples", side.samples.clone());
    object.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_notes_are_short() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[4, 0, 1, 2, 4]), "1-3,5");
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

    #[test]
    fn values_are_in_the_unit_that_fits() {
        assert_eq!(value(211.2, "ns"), "211 ns");
        assert_eq!(value(1500.0, "µs"), "1.50 ms");
        assert_eq!(value(0.25, "seconds"), "250 ms");
        assert_eq!(value(2048.0, "bytes"), "2K");
        assert_eq!(value(-4.0, "bytes"), "-4.00");
        assert_eq!(value(31_200.0, "NOTPM"), "31,200");
    }
}
