//! `hugeleaf bench`: a result of any experiment, drawn from its rows alone. An experiment declares rows and charts, and
//! its screen and page follow. No code here depends on the name of an experiment.

use std::collections::BTreeSet;

use hugeleaf_proof::MedianInterval;
use hugeleaf_proof::compare::over;
use hugeleaf_proof::result_format::{
    Chart as Declared, NotComparableReason, Pairing, Parameter, ParameterValue, Quantity,
    ResultRow, Results, TIME,
};
use hugeleaf_proof::stats::BetterDirection;
use hugeleaf_units::{Bytes, time::measured};
use serde_json::{Map, Value as Json};

use crate::document::{
    Axis, AxisScale, AxisUnit, Cell, Chart, ChartKind, CommandHint, ContentBlock, Document, Note,
    Point, Section, Series, Table, ratio, short,
};

/// Maximum number of secondary rows shown at first.
const MOST_ROWS: usize = 40;

/// Returns the page of a result: headlines, all rows, then notes.
pub fn page(results: &Results) -> Document {
    let about = &results.experiment;
    let mut lines = headlines(results).into_iter();
    let mut page = Document::new(about.name.as_str(), lines.next().unwrap_or_default());
    for line in lines {
        page.add(line);
    }
    page.add(meaning(results));
    let groups = groups(results);
    for group in &groups {
        page.add(group.of_main(results));
    }
    for group in &groups {
        page.add(group.also_measured(results));
    }
    page.section("", vec![notes(results).into()]);
    page
}

pub fn whole_page(results: &Results) -> Document {
    let mut page = page(results);
    page.add(circumstances(
        &results.experiment.started,
        &results.host,
        &results.settings,
        &results.command,
    ));
    page
}

pub(crate) fn circumstances(
    started: &str,
    host: &Map<String, Json>,
    settings: &Map<String, Json>,
    command: &[String],
) -> Section {
    let mut facts = vec![("started".to_owned(), Cell::from(started))];
    facts.extend(shown(host));
    facts.extend(shown(settings));
    let knobs = settings.get("knobs").and_then(Json::as_array);
    let text = |knob: &Json, field: &str| knob[field].as_str().unwrap_or_default().to_owned();
    let knobs = knobs.into_iter().flatten();
    facts.extend(knobs.map(|knob| (text(knob, "name"), text(knob, "value").into())));
    let command = (!command.is_empty()).then(|| CommandHint::new("", command.join(" ")));
    let is_file = |(_, text): &(String, Cell)| text.to_string().contains('\n');
    let files: Vec<_> = facts.extract_if(.., |fact| is_file(fact)).collect();
    let mut blocks = vec![facts.into(), Vec::from_iter(command).into()];
    blocks.extend(files.into_iter().map(|(name, text)| {
        let lines = text.to_string().lines().map(str::to_owned).collect();
        Section::new(name, vec![ContentBlock::Lines(lines)])
            .folded()
            .into()
    }));
    Section::new("Host, settings, command", blocks)
}

fn shown(part: &Map<String, Json>) -> Vec<(String, Cell)> {
    let fact = |(name, value): (&String, &Json)| {
        // The key of result files says `large`.
        let head = Parameter::text(&name.replace("large_", "huge_"), "").head();
        let text = match value.as_u64() {
            // A parameter is a floating-point number, which cannot hold every seed.
            Some(seed) if name == "seed" => seed.to_string(),
            _ => ParameterValue::of_json(name, value)?.to_string(),
        };
        Some((head, text.into()))
    };
    part.iter().filter_map(fact).collect()
}

fn meaning(results: &Results) -> String {
    let better = match results.main().map(|quantity| quantity.better) {
        None | Some(BetterDirection::Neither) => String::new(),
        Some(better) => format!(" ({better} is better)"),
    };
    let title = &results.experiment.title;
    format!(
        "{title}{better}; medians ± half of the 95 % interval; × is the ratio to the first arm in the same rounds"
    )
}

/// Rows at the same named places, such as a mode. Most experiments have one group.
struct RowGroup<'a> {
    words: Vec<&'a Parameter>,
    rows: Vec<&'a ResultRow>,
}

fn is_word(place: &Parameter) -> bool {
    matches!(place.value, ParameterValue::Text(_))
}

fn numbers(row: &ResultRow) -> Vec<&Parameter> {
    row.at.iter().filter(|place| !is_word(place)).collect()
}

fn groups(results: &Results) -> Vec<RowGroup<'_>> {
    let mut groups: Vec<RowGroup<'_>> = Vec::new();
    for row in results.rows.iter().filter(|row| !row.samples.is_empty()) {
        let words: Vec<&Parameter> = row.at.iter().filter(|place| is_word(place)).collect();
        match groups.iter_mut().find(|group| group.words == words) {
            Some(group) => group.rows.push(row),
            None => groups.push(RowGroup {
                words,
                rows: vec![row],
            }),
        }
    }
    groups
}

impl<'a> RowGroup<'a> {
    fn title(&self, of: &str) -> String {
        let words = self.words.iter().map(|place| place.value.to_string());
        let parts: Vec<String> = words.chain([of.to_owned()]).collect();
        parts.join(": ")
    }

    fn arms(&self, results: &'a Results, quantity: &Quantity) -> Vec<&'a str> {
        let has = |name: &&str| {
            let mut rows = self.rows.iter();
            rows.any(|row| row.arm == *name && row.quantity.name == quantity.name)
        };
        let arms = results.arms.iter().map(|arm| arm.name.as_str());
        arms.filter(has).collect()
    }

    fn places(&self, quantity: &Quantity) -> Vec<Vec<&'a Parameter>> {
        let mut all: Vec<Vec<&Parameter>> = Vec::new();
        for row in &self.rows {
            let place = numbers(row);
            if row.quantity.name == quantity.name && !all.contains(&place) {
                all.push(place);
            }
        }
        let values = |at: &[&Parameter]| -> Vec<f64> {
            at.iter().filter_map(|place| place.value.as_f64()).collect()
        };
        all.sort_by(|a, b| {
            values(a)
                .partial_cmp(&values(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        all
    }

    fn row(&self, arm: &str, place: &[&Parameter], quantity: &Quantity) -> Option<&'a ResultRow> {
        let mut rows = self.rows.iter();
        let is_it = |r: &&&ResultRow| {
            r.arm == arm && r.quantity.name == quantity.name && numbers(r) == place
        };
        rows.find(is_it).copied()
    }

    fn of_main(&self, results: &'a Results) -> Section {
        let mut blocks: Vec<ContentBlock> = Vec::new();
        let Some(main) = results.main() else {
            return Section::default();
        };
        let has_places = self.places(main).iter().any(|place| !place.is_empty());
        match has_places {
            true => {
                blocks.push(self.grid(results, main, |_, row| spread(row)).into());
                let over =
                    |first: Option<&ResultRow>, row: &ResultRow| times_first(first?, row).ok();
                let over = self.grid(results, main, over);
                blocks.push(Section::new(baseline_label(results), vec![over.into()]).into());
            }
            false => blocks.push(self.by_arm(results, main).into()),
        }
        let charts = results.charts.iter();
        blocks.extend(charts.filter_map(|declared| Some(self.chart(declared, results)?.into())));
        Section::new(self.title(&main.name), blocks)
    }

    /// Builds a table with a row for each quantity and place, and a column for each arm. `named` adds a column with the
    /// quantity's name.
    fn table(
        &self,
        named: bool,
        quantities: &[&Quantity],
        arms: &[&str],
        cell: impl Fn(&str, &[&Parameter], &Quantity) -> Option<String>,
    ) -> Table {
        let mut rows = Vec::new();
        for quantity in quantities {
            let places = self.places(quantity).into_iter();
            rows.extend(places.map(|place| (*quantity, place)));
        }
        let heads = rows.iter().map(|row| &row.1);
        let heads = heads.max_by_key(|place| place.len());
        let heads = heads.cloned().unwrap_or_default().into_iter().enumerate();
        Table::from_items(rows)
            .when(named, |table| {
                table.left("QUANTITY", |(quantity, _)| &quantity.name)
            })
            .columns_for(heads, |table, (n, head)| {
                table.left(head.head().to_uppercase(), |(_, place)| {
                    let place = place.get(n).map(|place| place.value.to_string());
                    place.unwrap_or_default()
                })
            })
            .columns_for(arms, |table, arm| {
                table.right(arm.to_uppercase(), |(quantity, place)| {
                    cell(arm, place, quantity)
                })
            })
            .done()
    }

    /// Builds a table with a row for each place and a column for each arm. `cell` also receives the row of the first arm
    /// when it draws another arm. Empty columns are omitted.
    fn grid(
        &self,
        results: &'a Results,
        quantity: &Quantity,
        cell: impl Fn(Option<&ResultRow>, &ResultRow) -> Option<String>,
    ) -> Table {
        let arms = self.arms(results, quantity);
        let places = self.places(quantity);
        let first = arms.first().copied().unwrap_or_default();
        let cell = |arm: &str, place: &[&Parameter], quantity: &Quantity| {
            let held = self.row(first, place, quantity).filter(|_| arm != first);
            cell(held, self.row(arm, place, quantity)?)
        };
        let has = |arm: &&str| places.iter().any(|at| cell(arm, at, quantity).is_some());
        let arms: Vec<&str> = arms.iter().copied().filter(has).collect();
        match arms.is_empty() {
            true => Table::default(),
            false => self.table(false, &[quantity], &arms, cell),
        }
    }

    fn by_arm(&self, results: &'a Results, quantity: &Quantity) -> Table {
        let arms = self.arms(results, quantity);
        let of = |arm: &str| self.row(arm, &[], quantity);
        let first = arms.first().and_then(|arm| of(arm));
        let over = |arm: &&str| {
            let row = of(arm).filter(|row| first.is_some_and(|first| first.arm != row.arm))?;
            times_first(first?, row).ok()
        };
        let extents = |arm: &str| {
            let mut layouts = results.layouts.iter();
            let is_it = |l: &&hugeleaf_proof::result_format::PageLayout| {
                l.arm == arm && l.at.iter().all(|place| self.words.contains(&place))
            };
            layouts.find(is_it)?.extents_a_block
        };
        let has_extents = arms.iter().any(|arm| extents(arm).is_some());
        Table::from_items(&arms)
            .left("ARM", |arm| **arm)
            .right(quantity.name.to_uppercase(), |arm| of(arm).and_then(spread))
            .when(arms.len() > 1, |table| {
                table.right(baseline_label(results).to_uppercase(), |arm| over(arm))
            })
            .when(has_extents, |table| {
                table.right("EXTENTS A BLOCK", |arm| Cell::decimal(extents(arm), 1))
            })
            .done()
    }

    /// Returns the secondary quantities that are better higher or lower; counts and durations of measurements are
    /// omitted.
    fn also_measured(&self, results: &'a Results) -> Section {
        let main = results.main().map(|main| main.name.as_str());
        let mut seen = BTreeSet::new();
        let quantities: Vec<&Quantity> = (self.rows.iter().map(|row| &row.quantity))
            .filter(|q| Some(q.name.as_str()) != main && q.better != BetterDirection::Neither)
            .filter(|q| seen.insert(&q.name))
            .collect();
        let has = |arm: &&str| {
            quantities
                .iter()
                .any(|q| self.arms(results, q).contains(arm))
        };
        let arms = results.arms.iter().map(|arm| arm.name.as_str());
        let arms: Vec<&str> = arms.filter(has).collect();
        let mut table = self.table(true, &quantities, &arms, |arm, place, quantity| {
            let spread = self.row(arm, place, quantity)?.spread()?;
            Some(value(spread.median, &quantity.unit))
        });
        table = table.limited(MOST_ROWS, "", "--html FILE, --json");
        Section::new(self.title("also measured"), vec![table.into()])
    }

    /// Returns a declared chart of these rows, or `None` if the rows have no data for it.
    fn chart(&self, declared: &Declared, results: &'a Results) -> Option<Chart> {
        let mut quantities = self.rows.iter().map(|row| &row.quantity);
        let quantity = quantities.find(|q| q.name == declared.y)?;
        let arms = self.arms(results, quantity);
        let first = arms.first()?;
        let point = |row: &ResultRow, x: f64| {
            let mut point = Point {
                doubtful: row.doubtful,
                ..Point::at(x, 0.0)
            };
            if declared.over_first {
                let first = self.row(first, &numbers(row), quantity)?;
                let over = over(first, row, Pairing::Rounds);
                (point.y, point.interval) = match over {
                    _ if row.arm == first.arm => (1.0, None),
                    Ok(over) => (over.ratio?, over.effect.map(|e| (e.low, e.high))),
                    Err(_) => return None,
                };
            } else {
                let spread = row.spread()?;
                (point.y, point.interval) = (spread.median, spread.low.zip(spread.high));
            }
            Some(point)
        };
        let in_words = |y: f64| match declared.over_first {
            true => times(y),
            false => value(y, &quantity.unit),
        };
        let is_time = declared.x.as_deref() == Some(TIME);
        let (kind, (x, series)) = match &declared.x {
            Some(_) if is_time => (ChartKind::Curves, self.over_time(quantity, &arms)?),
            Some(x) => {
                // The ratio of the first arm to itself is always 1.
                let arms = &arms[usize::from(declared.over_first)..];
                (ChartKind::Curves, self.curves(quantity, x, arms, point)?)
            }
            None => (
                ChartKind::Bars,
                self.bars(declared, quantity, &arms, point, in_words)?,
            ),
        };
        let over = declared.over_first.then(|| format!("over {first}"));
        let mut y = level(quantity, over.as_deref(), kind);
        if is_time {
            // A linear axis shows changes over time undistorted.
            y.scale = AxisScale::Linear;
        }
        Some(Chart {
            title: self.title(&declared.title),
            kind,
            x,
            y,
            series,
        })
    }

    /// Returns a curve for each arm by sample time, with the median of simultaneous samples. `None` without data.
    fn over_time(&self, quantity: &Quantity, arms: &[&str]) -> Option<(Axis, Vec<Series>)> {
        let of_arm = |arm: &&str| {
            let mut samples: Vec<(f64, f64)> = Vec::new();
            if let Some(row) = self.row(arm, &[], quantity) {
                let timed = row.samples.iter();
                samples.extend(timed.filter_map(|s| Some((s.at_seconds?, s.value))));
            }
            samples.sort_by(|a, b| a.0.total_cmp(&b.0));
            let times = samples.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq());
            let points = times.filter_map(|same| {
                let values: Vec<f64> = same.iter().map(|sample| sample.1).collect();
                Some(Point::at(
                    same.first()?.0,
                    MedianInterval::from_samples(&values)?.median,
                ))
            });
            Series::new(*arm, points.collect())
        };
        let series: Vec<Series> = arms.iter().map(of_arm).collect();
        let is_curve = series.iter().any(|series| series.points.len() > 1);
        let x = Axis {
            unit: AxisUnit::Seconds,
            ..Axis::named("time")
        };
        is_curve.then_some((x, series))
    }

    /// Returns a curve for each arm by place. `None` without data.
    fn curves(
        &self,
        quantity: &Quantity,
        x: &str,
        arms: &[&str],
        point: impl Fn(&ResultRow, f64) -> Option<Point>,
    ) -> Option<(Axis, Vec<Series>)> {
        let place = |row: &ResultRow| row.at.iter().find(|place| place.name == x).cloned();
        let of_arm = |arm: &&str| {
            let is_it = |r: &&&ResultRow| r.arm == *arm && r.quantity.name == quantity.name;
            let rows = self.rows.iter().filter(is_it);
            let points = rows.filter_map(|row| point(row, place(row)?.value.as_f64()?));
            Series::new(*arm, points.collect())
        };
        let series: Vec<Series> = arms.iter().map(of_arm).collect();
        if series.iter().all(|series| series.points.len() < 2) {
            return None;
        }
        let mut steps: Vec<(f64, String)> = Vec::new();
        for place in self.rows.iter().filter_map(|row| place(row)) {
            let value = place.value.as_f64()?;
            if steps.iter().all(|known| known.0.total_cmp(&value).is_ne()) {
                steps.push((value, place.value.to_string()));
            }
        }
        let x = Axis {
            name: Parameter::number(x, 0).head(),
            unit: match x.ends_with("_bytes") {
                true => AxisUnit::Bytes,
                false => AxisUnit::Number,
            },
            scale: AxisScale::Binary,
            steps,
            ..Axis::default()
        };
        Some((x, series))
    }

    /// Returns a bar for each arm and the published values for comparison. `None` without data.
    fn bars(
        &self,
        declared: &Declared,
        quantity: &Quantity,
        arms: &[&str],
        point: impl Fn(&ResultRow, f64) -> Option<Point>,
        in_words: impl Fn(f64) -> String,
    ) -> Option<(Axis, Vec<Series>)> {
        let mut steps: Vec<(f64, String)> = Vec::new();
        let mut at = |name: &str| {
            let x = steps.len() as f64;
            steps.push((x, name.to_owned()));
            x
        };
        let noted = |point: Point| Point {
            note: in_words(point.y),
            ..point
        };
        let of_arm = |arm: &&str| {
            let row = self.row(arm, &[], quantity)?;
            let mut point = noted(point(row, at(arm))?);
            if !declared.over_first {
                point.samples = row.values();
            }
            Some(point)
        };
        let measured: Vec<Point> = arms.iter().filter_map(of_arm).collect();
        if measured.is_empty() {
            return None;
        }
        let published = declared.published.iter();
        let published = published.map(|(name, y)| noted(Point::at(at(name), *y)));
        let published = Series::new("as published", published.collect());
        let x = Axis {
            steps,
            ..Axis::default()
        };
        Some((x, vec![Series::new("measured", measured), published]))
    }
}

/// Returns the axis of a quantity; `over` names the baseline of a ratio.
fn level(quantity: &Quantity, over: Option<&str>, kind: ChartKind) -> Axis {
    let unit = match quantity.unit.as_str() {
        _ if over.is_some() => AxisUnit::Ratio,
        "seconds" => AxisUnit::Seconds,
        "bytes" => AxisUnit::Bytes,
        _ => AxisUnit::Number,
    };
    Axis {
        name: match unit {
            AxisUnit::Number if !quantity.unit.is_empty() => quantity.unit.clone(),
            AxisUnit::Ratio => format!("{}, {}", quantity.name, over.unwrap_or_default()),
            _ => quantity.name.clone(),
        },
        scale: match (kind, unit) {
            (ChartKind::Bars, _) | (_, AxisUnit::Ratio) => AxisScale::Linear,
            (_, AxisUnit::Bytes) => AxisScale::Binary,
            _ => AxisScale::Decimal,
        },
        level: over.map(|_| 1.0),
        unit,
        ..Axis::default()
    }
}

/// Formats the name of the baseline, such as `over base`.
fn baseline_label(results: &Results) -> String {
    let first = results.arms.first().map_or("", |arm| arm.name.as_str());
    format!("over {first}")
}

/// Returns a line for each group at the last place that most arms share, such as
/// `chase at 1G: base 312 ns; thp:2M 210 ns, ×0.67 [0.66, 0.68]`.
pub fn headlines(results: &Results) -> Vec<String> {
    let name = &results.experiment.name;
    let line = |group: &RowGroup<'_>| {
        let main = results.main()?;
        let (arms, places) = (group.arms(results, main), group.places(main));
        let own = |arm: &str, place: &[&Parameter]| group.row(arm, place, main);
        let count =
            |place: &[&Parameter]| arms.iter().filter(|arm| own(arm, place).is_some()).count();
        let most = places.iter().map(|place| count(place)).max()?;
        let place = places.iter().rfind(|place| count(place) == most)?;
        let first = arms.iter().find_map(|arm| own(arm, place))?;
        let of = |arm: &&str| {
            let row = own(arm, place)?;
            let over = match times_first(first, row) {
                _ if row.arm == first.arm => String::new(),
                Ok(over) => format!(", {over}"),
                Err(why) => format!(" (not compared: {why})"),
            };
            Some(format!(
                "{arm} {}{over}",
                value(row.spread()?.median, &main.unit)
            ))
        };
        let at = place.iter().map(|place| match place.value {
            ParameterValue::Bytes(bytes) => format!(" at {bytes}"),
            _ => format!(" with {}", counted(place)),
        });
        let words = group.words.iter().map(|place| format!(", {}", place.value));
        let parts: Vec<String> = arms.iter().filter_map(of).collect();
        let where_: String = words.chain(at).collect();
        Some(format!("{name}{where_}: {}", parts.join("; ")))
    };
    let lines: Vec<String> = groups(results).iter().filter_map(line).collect();
    match lines.is_empty() {
        true => vec![format!("{name}: nothing was measured")],
        false => lines,
    }
}

/// Formats a count with its noun: `8 threads`, `1 process`.
fn counted(place: &Parameter) -> String {
    let head = place.head();
    let head = match place.value.to_string() == "1" {
        true if head.ends_with("sses") => head.trim_end_matches("es"),
        true => head.trim_end_matches('s'),
        false => &head,
    };
    format!("{} {head}", place.value)
}

fn notes(results: &Results) -> Vec<Note> {
    let about = &results.experiment;
    let mut seen = BTreeSet::new();
    let mut notes: Vec<Note> = Vec::new();
    for not in &results.unavailable {
        if !seen.insert((not.arm.clone(), not.reason.clone())) {
            continue;
        }
        let mut rows = results.rows.iter();
        let has_some = rows.any(|row| row.arm == not.arm && !row.samples.is_empty());
        let from = match has_some && not.at.is_empty() {
            true => format!(" from {} on", Bytes(not.from_bytes)),
            false => String::new(),
        };
        let text = format!("{}{from}: {}", not.arm, not.reason);
        notes.push(Note::new("unavailable", text).run("next", &not.next));
    }
    notes.extend(Note::each("remark", &results.remarks));
    let took = about.duration_seconds.map(measured);
    let ended = match (about.is_interrupted(), took) {
        (true, Some(took)) => format!("; interrupted after {took}"),
        (true, None) => "; interrupted".to_owned(),
        (false, Some(took)) => format!("; took {took}"),
        (false, None) => String::new(),
    };
    notes.push(Note::new("how", format!("{}{ended}", about.how)));
    notes.extend(Note::each("note", &results.caveats));
    for row in results.rows.iter().filter(|row| !row.samples.is_empty()) {
        if let Some(said) = row.remark()
            && seen.insert((row.arm.clone(), said.clone()))
        {
            let at = row.at.iter().map(|place| format!(", {}", place.value));
            let at: String = at.collect();
            notes.push(Note::new("note", format!("{}{at}: {said}", row.arm)));
        }
    }
    notes
}

/// Formats a median with its half-width, such as `312 ns ±1 %`; a `?` marks a doubtful row.
fn spread(row: &ResultRow) -> Option<String> {
    let spread = row.spread()?;
    let half = spread.low.zip(spread.high).filter(|_| spread.median != 0.0);
    let half = half.map_or_else(String::new, |(low, high)| {
        format!(
            " ±{:.0} %",
            (high - low) / 2.0 / spread.median.abs() * 100.0
        )
    });
    let mark = if row.doubtful { " ?" } else { "" };
    Some(format!(
        "{}{half}{mark}",
        value(spread.median, &row.quantity.unit)
    ))
}

/// Returns the ratio of a row to that of the first arm, `×2.00 [1.95, 2.04]`, or the reason why it is missing.
fn times_first(first: &ResultRow, row: &ResultRow) -> Result<String, NotComparableReason> {
    let over = over(first, row, Pairing::Rounds)?;
    Ok(match (over.effect, over.ratio) {
        (Some(effect), _) => {
            let ends = [effect.low, effect.high].map(times);
            let [low, high] = ends.each_ref().map(|end| end.trim_start_matches('×'));
            format!("{} [{low}, {high}]", times(effect.ratio))
        }
        (None, Some(ratio)) => times(ratio),
        (None, None) => "equal".to_owned(),
    })
}

/// Formats a ratio; small ones keep two significant digits: `×0.67`, `×0.0039`.
fn times(value: f64) -> String {
    match value {
        v if v > 0.0 && v < 0.1 => {
            // Two significant digits.
            #[allow(clippy::cast_possible_truncation)]
            let decimals = (1.0 - v.log10().floor()).clamp(2.0, 9.0) as usize;
            format!("×{v:.decimals$}")
        }
        v => format!("×{}", ratio(v)),
    }
}

/// Formats a value with its unit: `312 ns`, `467 MiB/s`.
pub(crate) fn value(value: f64, unit: &str) -> String {
    match unit {
        "seconds" => measured(value),
        "µs" => measured(value / 1e6),
        "ns" => measured(value / 1e9),
        // A growth can be negative.
        "bytes" if value < 0.0 => format!("-{}", bytes(-value)),
        "bytes" => bytes(value).to_string(),
        "" => short(value),
        unit => format!("{} {unit}", short(value)),
    }
}

/// Rounds to whole bytes; negative values become 0.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn bytes(value: f64) -> Bytes {
    Bytes(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{TextOptions, needs_nothing};
    use hugeleaf_proof::result_format::{ArmInfo, Sample, UnavailableArm};
    use std::path::Path;

    const READ: &str = "read";

    /// An example with two arms at two working sets in six rounds. The second arm is half as fast at the larger working
    /// set. A third arm is unavailable on the host.
    fn example() -> Results {
        let mut results = Results::empty("walk", "2026-01-31T12:00:00Z");
        results.experiment.title = "reads, a time of one".to_owned();
        results.experiment.how = "drawn from seed 1".to_owned();
        results.experiment.duration_seconds = Some(61.2);
        for (arm, large) in [("base", 400.0), ("thp:2M", 200.0)] {
            results.arms.push(ArmInfo::named(arm));
            for (size, value) in [(1 << 16, 2.0), (1 << 30, large)] {
                let at = vec![Parameter::number("working_set_bytes", size)];
                let samples = (0..6).map(|round| Sample::new(round, value)).collect();
                let read = Quantity::time(READ, "ns").main();
                results.rows.push(ResultRow {
                    doubtful: arm != "base" && size == 1 << 30,
                    note: (arm != "base").then(|| "<b>".to_owned()),
                    ..ResultRow::new(arm, at.clone(), read, samples)
                });
                let misses = vec![Sample::new(0, value * 10.0)];
                results.rows.push(ResultRow::new(
                    arm,
                    at,
                    Quantity::amount("misses", ""),
                    misses,
                ));
            }
        }
        results.charts = vec![
            Declared::by("working_set_bytes", READ, "Time of a read"),
            Declared::by("working_set_bytes", READ, "Over the first").over_first(),
            Declared::bars("nothing of that name", "Nothing"),
        ];
        results.unavailable.push(UnavailableArm {
            arm: "hugetlb:1G".to_owned(),
            at: Vec::new(),
            from_bytes: 1,
            reason: "no page of 1G".to_owned(),
            next: "echo 6 > pool".to_owned(),
        });
        results.remarks.push("half is half".to_owned());
        results
            .caveats
            .push("This is a virtual machine.".to_owned());
        results.command = vec!["hugeleaf".to_owned(), "bench".to_owned()];
        results
    }

    #[test]
    fn the_screen_to_the_letter() {
        let text = page(&example()).text(TextOptions::plain(100));
        let begin = "\
walk at 1G: base 400 ns; thp:2M 200 ns, ×0.50 [0.50, 0.50]
reads, a time of one (lower is better); medians ± half of the 95 % interval; × is the ratio to the
first arm in the same rounds

read
  WORKING SET          BASE         THP:2M
  64K          2.00 ns ±0 %   2.00 ns ±0 %
  1G            400 ns ±0 %  200 ns ±0 % ?

  over base
    WORKING SET              THP:2M
    64K          ×1.00 [1.00, 1.00]
    1G           ×0.50 [0.50, 0.50]

ns by working set: b base, t thp:2M
";
        assert!(text.starts_with(begin), "{text}");
        let end = "
also measured
  QUANTITY  WORKING SET  BASE  THP:2M
  misses    64K          20.0    20.0
  misses    1G           4000    2000

unavailable  hugetlb:1G: no page of 1G
             next: echo 6 > pool
remark       half is half
how          drawn from seed 1; took 61.2 s
note         This is a virtual machine.
note         thp:2M, 64K: <b>
note         thp:2M, 1G: not verified to be on these pages: <b>
";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn the_page_needs_nothing_and_doubtful_points_are_hollow() {
        let html = whole_page(&example()).html();
        needs_nothing(&html);
        assert_eq!(html.matches("<svg").count(), 2);
        for part in [
            "<h1>walk</h1>",
            "reads, a time of one",
            "&lt;b&gt;",
            "<code>echo 6 &gt; pool</code>",
            "fill=\"none\"",
            "×0.50 [0.50, 0.50]",
            "<code>hugeleaf bench</code>",
            "2026-01-31T12:00:00Z",
        ] {
            assert!(html.contains(part), "{part} is missing in {html}");
        }
    }

    /// The seed repeats an experiment, so every digit counts.
    #[test]
    fn a_seed_is_shown_in_full() {
        let settings = serde_json::json!({"seed": 13_512_345_678_901_234_567_u64, "pairs": 8});
        let facts = shown(settings.as_object().unwrap());
        let seed = facts.iter().find(|(name, _)| name == "seed").unwrap();
        assert_eq!(seed.1.to_string(), "13512345678901234567");
    }

    #[test]
    fn a_file_among_the_settings_is_folded() {
        let mut results = example();
        let settings = serde_json::json!({"seed": 1, "workload": "schema = 1\n[set]\n"});
        results.settings = settings.as_object().unwrap().clone();
        let html = whole_page(&results).html();
        assert!(html.contains("<th scope=\"row\">seed</th>"), "{html}");
        let file = "<details><summary>workload</summary><pre><span>schema = 1</span>\n";
        assert!(html.contains(file), "{html}");
    }

    #[test]
    fn words_are_groups_and_arms_without_places_are_rows_and_bars() {
        let mut results = example();
        for row in &mut results.rows {
            let size = row.at[0].value.as_f64();
            row.at = vec![Parameter::text(
                "mode",
                if size < Some(1e6) { "small" } else { "large" },
            )];
        }
        let bars = Declared::bars(READ, "Time");
        results.charts = vec![
            bars.clone(),
            bars.over_first().published(&[("elsewhere", 0.7)]),
        ];
        let text = page(&results).text(TextOptions::plain(100));
        for part in [
            "walk, small: base 2.00 ns; thp:2M 2.00 ns, ×1.00 [1.00, 1.00]\nwalk, large: base 400 ns",
            "large: read\n  ARM              READ           OVER BASE\n  base      400 ns ±0 %                   -\n",
            "small: also measured\n  QUANTITY  BASE  THP:2M\n  misses    20.0    20.0\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let html = whole_page(&results).html();
        needs_nothing(&html);
        assert_eq!(html.matches("<svg").count(), 4);
        assert!(
            html.contains("elsewhere") && html.contains("×0.7"),
            "{html}"
        );
    }

    #[test]
    fn nothing_and_too_few_rounds_are_pages_too() {
        let mut results = example();
        for row in &mut results.rows {
            row.samples.truncate(1);
        }
        let text = page(&results).text(TextOptions::plain(100));
        assert!(
            text.starts_with(
                "walk at 1G: base 400 ns; thp:2M 200 ns (not compared: too few samples"
            ),
            "{text}"
        );
        results.rows.clear();
        assert!(
            page(&results)
                .text(TextOptions::plain(80))
                .starts_with("walk: nothing was measured\n")
        );
        needs_nothing(&(whole_page(&results).html() + "currentColor"));
    }

    /// Results of earlier months must remain readable by the current program.
    #[test]
    fn every_committed_result_has_a_screen_and_a_page() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
        let mut seen = 0;
        for run in std::fs::read_dir(runs).unwrap() {
            for file in std::fs::read_dir(run.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let Ok(results) = Results::read(&text) else {
                    continue;
                };
                let text = page(&results).text(TextOptions::plain(120));
                let html = whole_page(&results).html();
                assert!(
                    text.contains("how") && !text.contains("NaN"),
                    "{}:\n{text}",
                    path.display()
                );
                assert!(
                    !html.contains("could not be drawn") && !html.contains("NaN"),
                    "{}",
                    path.display()
                );
                seen += 1;
            }
        }
        assert!(seen > 50, "only {seen} results are read");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(1.934), "1.93");
        assert_eq!(short(42.55), "42.5");
        assert_eq!(short(311.6), "312");
        assert_eq!(times(0.667), "×0.67");
        assert_eq!(times(0.003_912), "×0.0039");
        assert_eq!(times(0.0), "×0");
        assert_eq!(value(-4096.0, "bytes"), "-4K");
        assert_eq!(value(467.2, "MiB/s"), "467 MiB/s");
        let names = [("threads", 8), ("threads", 1), ("processes", 1)];
        let names = names.map(|(name, n)| counted(&Parameter::number(name, n)));
        assert_eq!(names, ["8 threads", "1 thread", "1 process"]);
    }
}
