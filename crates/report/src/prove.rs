//! `hugeleaf prove`: a result as a page for a terminal and, with its circumstances, for a browser.

use std::collections::BTreeMap;

use hugeleaf_proof::prove_result::ProveResult;
use hugeleaf_proof::result_format::{ResultRow, fields};
use hugeleaf_proof::stats::{self, BetterDirection, Effect, Estimator, Verdict, percent};
use hugeleaf_proof::stopping_rule::MIN_PAIRS;
use hugeleaf_proof::{Arm, ExperimentDesign, ExperimentEnd, HoldResult, try_experiment};
use hugeleaf_units::time::{measured, minutes};
use hugeleaf_units::{Bytes, PageSize};

use crate::bench::bytes;
use crate::document::{
    Axis, AxisUnit, Cell, CellValue, Chart, ChartKind, Document, Note, Point, Series, StatusMark,
    Table, TableBuilder, counted as counted_of, number, ratio, thousands,
};

/// Returns the page of a result: the verdict, then its evidence.
pub fn page(result: &ProveResult) -> Document {
    let (name, _) = who(result);
    let title = format!("{name}: {}", result.verdict);
    let mut page = Document::new(title, headline(result));
    page.mark = mark(result.verdict);
    page.add(meaning(result));
    page.add(ratios(result)).add(samples_over_time(result));
    page.section("", vec![samples(result).into()])
        .section("", vec![also_measured(result).into()])
        .section("", vec![page_sizes(result).into()])
        .section("", vec![notes(result).into()]);
    page
}

/// Returns the page with details for reproduction on another machine: rejected pairs, host, settings, command.
pub fn whole_page(result: &ProveResult) -> Document {
    let mut page = page(result);
    let rejected = result.rejected.iter();
    let rejected =
        rejected.map(|r| Note::plain(format!("at {} s: {}", number(r.at_seconds), r.reason)));
    page.section("Discarded", vec![rejected.collect::<Vec<_>>().into()]);
    page.add(crate::bench::circumstances(
        &result.experiment.started,
        &fields(&result.host),
        &fields(&result.settings),
        &result.command,
    ));
    page
}

/// Returns the name of the target for a title, and for a text with the target as typed, which may be a PID.
fn who(result: &ProveResult) -> (&str, String) {
    let target = &result.experiment.target;
    match &result.experiment.process {
        Some(name) if name != target && target != try_experiment::TARGET => {
            (name.as_str(), format!("{name} ({target})"))
        }
        _ => (target.as_str(), target.clone()),
    }
}

fn notes(result: &ProveResult) -> Vec<Note> {
    let mut notes: Vec<Note> = Note::each("also", also_said(result)).collect();
    notes.push(Note::new("how", how(result)));
    notes.extend(Note::each("note", &result.caveats));
    notes.extend(next(result));
    notes
}

/// Formats the headline: `12 % faster (95 % CI 7 to 17 %), ×1.12 [1.07, 1.17], 24 pairs`.
fn headline(result: &ProveResult) -> String {
    let verdict = result.verdict;
    let effect = match &result.effect {
        // A quantile read from buckets has known bounds only.
        Some(e) if result.buckets.is_some() => format!(
            "{verdict}, between {} and {} % ({} % CI), ×{} to ×{}",
            percent(e.low),
            percent(e.high),
            number(e.confidence * 100.0),
            ratio(e.low),
            ratio(e.high)
        ),
        None if result.buckets.is_some() && result.pairs.len() >= MIN_PAIRS => {
            format!("{verdict}, the buckets allow any ratio")
        }
        effect => difference(verdict, result.experiment.better, effect.as_ref()),
    };
    let pairs = counted_of(result.pairs.len(), "pair");
    format!("{effect}, {pairs}")
}

/// Formats a verdict with its effect, as on all screens: [`stats::difference`].
pub(crate) fn difference(
    verdict: Verdict,
    better: BetterDirection,
    effect: Option<&Effect>,
) -> String {
    match effect {
        Some(e) => {
            let ratio = [e.low, e.ratio, e.high];
            stats::difference(verdict, better, ratio, Some(e.confidence))
        }
        None => format!("{verdict}, too few pairs for an interval"),
    }
}

/// Returns further results of the pairs: the effect as assigned, and the tests behind `same`.
fn also_said(result: &ProveResult) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(all) = &result.intention_to_treat {
        let better = result.experiment.better;
        lines.push(format!(
            "as assigned (intention to treat): {}, {} pairs, {} of them not as assigned",
            difference(all.verdict, better, all.effect.as_ref()),
            all.pairs.len(),
            all.astray
        ));
    }
    if let Some(holds) = unsettled(result)
        && let Some(late) = holds.late_ratio()
    {
        lines.push(format!(
            "held for {} s on each page size: {} %, ×{} in {}",
            number(holds.seconds),
            percent(late),
            ratio(late),
            counted_of(holds.rounds.len(), "round")
        ));
    }
    if let (Verdict::Same, Some(e)) = (result.verdict, &result.equivalence) {
        lines.push(format!(
            "same is two one-sided tests, each at {} %: the ratio is not below 1/{m}, and not above {m}",
            number(e.alpha * 100.0),
            m = number(1.0 + e.margin)
        ));
    }
    lines
}

fn meaning(result: &ProveResult) -> String {
    let e = &result.experiment;
    let better = match e.better {
        BetterDirection::Higher => "higher is better",
        BetterDirection::Lower => "lower is better",
        BetterDirection::Neither => "no direction is better",
    };
    let equal = number(result.settings.equal * 100.0);
    let says = match (result.verdict, &result.effect) {
        (Verdict::Faster | Verdict::Slower, _) if result.settings.same_pages => {
            "both arms were the same, so this is a false positive".to_owned()
        }
        (Verdict::Faster, _) => "huge pages make it better".to_owned(),
        (Verdict::Slower, _) => "huge pages make it worse".to_owned(),
        (Verdict::Same, _) => format!("any difference is within ±{equal} %"),
        (Verdict::Unclear, _) if shared_bucket(result).is_some() => {
            "both arms are in one bucket of the histogram, so the difference is unknown".to_owned()
        }
        (Verdict::Unclear, Some(_)) if unsettled(result).is_some() => format!(
            "the effect is not settled: it needs longer than intervals of {} s",
            number(result.settings.interval_seconds)
        ),
        (Verdict::Unclear, Some(_)) => "the interval is too wide for a verdict".to_owned(),
        (Verdict::Unclear, None) => "too few measurements for a verdict".to_owned(),
    };
    let (_, target) = who(result);
    format!("{} on {target}, {} ({better}): {says}", e.name, e.unit)
}

/// Returns the holds if they contradict the pairs.
fn unsettled(result: &ProveResult) -> Option<&HoldResult> {
    result.holds.as_ref().filter(|holds| !holds.settled)
}

fn shared_bucket(result: &ProveResult) -> Option<[Option<f64>; 2]> {
    result.buckets.as_ref()?.shared
}

pub(crate) fn mark(verdict: Verdict) -> StatusMark {
    match verdict {
        Verdict::Faster => StatusMark::Good,
        Verdict::Slower => StatusMark::Bad,
        Verdict::Same => StatusMark::Plain,
        Verdict::Unclear => StatusMark::Warn,
    }
}

/// Returns the chart of all pairs, with the effect as a band.
fn ratios(result: &ProveResult) -> Chart {
    let pairs = result.pairs.iter().zip(1u32..);
    let points = pairs.map(|(pair, n)| Point::at(f64::from(n), pair.ratio));
    let points: Vec<Point> = points.collect();
    let last = points.last().map_or(0.0, |p| p.x);
    let band = result.effect.as_ref().filter(|_| last > 0.0);
    let band = band.map(|e| Point {
        width: last,
        interval: Some((e.low, e.high)),
        ..Point::at(0.5, e.ratio)
    });
    Chart {
        title: match result.experiment.design {
            ExperimentDesign::RandomPairs => "Huge over base pages, by pair",
            ExperimentDesign::BeforeAfter => "Huge over base pages, by sample (not pairs in time)",
        }
        .to_owned(),
        kind: ChartKind::Dots,
        x: Axis::named("pair"),
        y: Axis {
            unit: AxisUnit::Ratio,
            level: Some(1.0),
            ..Axis::default()
        },
        series: vec![
            Series::new("pair", points),
            Series::new("estimate and interval", band.into_iter().collect()),
        ],
    }
}

fn samples_over_time(result: &ProveResult) -> Chart {
    let arm = |arm: Arm, name: &str| {
        let samples = result.samples(arm).map_or(&[][..], |row| &row.samples);
        let points = samples
            .iter()
            .filter_map(|s| Some(Point::at(s.at_seconds?, s.value)));
        Series::new(name, points.collect())
    };
    Chart {
        title: format!("Samples over time, {}", result.experiment.unit),
        kind: ChartKind::Dots,
        x: Axis::named("seconds"),
        series: vec![arm(Arm::Base, "base pages"), arm(Arm::Large, "huge pages")],
        ..Chart::default()
    }
}

fn samples(result: &ProveResult) -> TableBuilder<&ResultRow> {
    let end = |row: &ResultRow, of: fn(f64, f64) -> f64| row.values().into_iter().reduce(of);
    Table::from_items(result.rows.iter().filter(|row| row.quantity.main))
        .left("PAGES", |row| {
            let arm = Arm::ALL.into_iter().find(|arm| arm.name() == row.arm);
            arm.map_or_else(|| row.arm.clone(), |arm| arm.pages().to_owned())
        })
        .right("MEDIAN", |row| Cell::number(median(row)))
        .right("MIN", |row| Cell::number(end(row, f64::min)))
        .right("MAX", |row| Cell::number(end(row, f64::max)))
        .right("SAMPLES", |row| row.samples.len())
}

pub fn median(row: &ResultRow) -> Option<f64> {
    Some(row.spread()?.median)
}

pub(crate) fn counted(row: &ResultRow) -> Option<f64> {
    Some(row.samples.first()?.value)
}

fn also_measured(result: &ProveResult) -> TableBuilder<&'static str> {
    let of = |arm, name: &str| match result.row(arm, name).and_then(counted) {
        None => Cell::from(CellValue::Unreadable),
        Some(value) if name.ends_with("CPUs") => Cell::decimal(Some(value), 2),
        Some(value) if name == "compaction stalls" => Cell::number(Some(value)),
        Some(value) => bytes(value).into(),
    };
    Table::from_items([
        "resident",
        "page tables",
        "user CPUs",
        "system CPUs",
        "compaction stalls",
    ])
    .left("ALSO MEASURED", |name| name.replace("CPUs", "CPU"))
    .right("BASE", |name| of(Arm::Base, name))
    .right("HUGE", |name| of(Arm::Large, name))
}

/// Returns the memory by page size: bytes before, in both arms, and after.
fn page_sizes(result: &ProveResult) -> Table {
    let stages = [
        ("BEFORE", &result.page_sizes.before),
        ("BASE", &result.page_sizes.base),
        ("HUGE", &result.page_sizes.large),
        ("AFTER", &result.page_sizes.after),
    ];
    let mut rows: BTreeMap<(PageSize, &str), [Bytes; 4]> = BTreeMap::new();
    for (stage, (_, held)) in stages.iter().enumerate() {
        for h in *held {
            rows.entry((h.size, h.kind.name())).or_default()[stage] += h.bytes;
        }
    }
    Table::from_items(rows)
        .left("ON PAGES OF", |((size, kind), _)| format!("{size} {kind}"))
        .columns_for(stages.iter().enumerate(), |table, (stage, (head, held))| {
            table.right(*head, |(_, bytes)| match held.is_empty() {
                true => Cell::from(CellValue::Unreadable),
                false => bytes[stage].into(),
            })
        })
        .done()
}

fn how(result: &ProveResult) -> String {
    let (e, s) = (&result.experiment, &result.settings);
    let design = match e.design {
        ExperimentDesign::RandomPairs => format!(
            "pairs of {} s on base and on huge pages, in random order{}",
            number(s.interval_seconds),
            (s.block_pairs).map_or(String::new(), |n| format!(" in balanced blocks of {n}"))
        ),
        ExperimentDesign::BeforeAfter => format!(
            "intervals of {} s on base pages, then on huge pages",
            number(s.interval_seconds)
        ),
    };
    let ending = match e.ending {
        ExperimentEnd::Narrow => format!(
            "ended with the interval within ±{} %",
            number(s.until * 100.0)
        ),
        ExperimentEnd::Pairs => "ended after the requested pairs".to_owned(),
        ExperimentEnd::Time => format!("ended after {}", minutes(e.duration_seconds)),
        ExperimentEnd::OneBucket => "ended because both arms are in one bucket".to_owned(),
        ExperimentEnd::Interrupted => "interrupted".to_owned(),
    };
    let estimate = match result.effect.as_ref().and_then(|e| e.estimator) {
        Some(_) if result.buckets.is_some() => "; the interval spans all that the buckets allow",
        Some(Estimator::HodgesLehmann) => "; the ratio is the Hodges-Lehmann estimate of the pairs",
        Some(Estimator::GeometricMeans) => "; the ratio is between the geometric means",
        None => "",
    };
    let stalls = e.stalls.map(|stalls| {
        format!(
            " in {} collapse and split calls, longest {}",
            thousands(&stalls.count.to_string()),
            measured(stalls.longest.as_secs_f64())
        )
    });
    format!(
        "{} promoted and demoted{}; {design}, {} s discarded after each; {ending}; {}{estimate}",
        e.moved_bytes,
        stalls.unwrap_or_default(),
        number(s.settle_seconds),
        left(result)
    )
}

/// Returns the final state of the memory, and its differences from the initial state.
fn left(result: &ProveResult) -> String {
    let e = &result.experiment;
    let Some(arm) = e.left_on else {
        return "the target has ended".to_owned();
    };
    if arm != e.began_on {
        return format!(
            "left on {} pages, found on {}",
            arm.pages(),
            e.began_on.pages()
        );
    }
    match &result.left {
        Some(left) if !left.as_found => format!(
            "left on {} pages, but not as found: {}, {}",
            arm.pages(),
            change(
                "resident",
                left.resident_before_bytes,
                left.resident_after_bytes
            ),
            change(
                "on huge pages",
                left.large_before_bytes,
                left.large_after_bytes
            )
        ),
        // Old files have no such check and name the pages only.
        None => format!("left on {} pages", arm.pages()),
        Some(_) => format!("left on {} pages, as found", arm.pages()),
    }
}

fn change(what: &str, before: Bytes, after: Bytes) -> String {
    let by = before.max(after) - before.min(after);
    let direction = match after {
        same if same == before => return format!("{what} {after} as before"),
        less if less < before => "less",
        _ => "more",
    };
    format!("{what} {after}, before {before} ({by} {direction})")
}

fn next(result: &ProveResult) -> Option<Note> {
    let target = &result.experiment.target;
    if result.settings.same_pages {
        return None;
    }
    match result.verdict {
        // The database of `try` has exited when the user reads this.
        Verdict::Faster if target == try_experiment::TARGET => None,
        Verdict::Faster if result.experiment.left_on != Some(Arm::Large) => {
            Some(Note::new("next", "").run("", format!("hugeleaf promote {target}")))
        }
        Verdict::Unclear if shared_bucket(result).is_some() => {
            let instead = result.buckets.as_ref()?.instead.as_ref()?;
            let text = format!(
                "measure the mean of the same observations, --metric '{instead}', or use finer \
                 histogram buckets there"
            );
            Some(Note::new("next", text))
        }
        Verdict::Unclear => {
            let settle = unsettled(result).map(|holds| settled_after(result, holds));
            Some(Note::new("next", settle.unwrap_or_else(|| longer(result))))
        }
        _ => None,
    }
}

/// Returns the next step for an effect that needs longer than an interval: pairs that start after it has settled.
fn settled_after(result: &ProveResult, holds: &HoldResult) -> String {
    let interval = (holds.seconds / 4.0).max(result.settings.interval_seconds);
    // Each arm of a pair takes the settling time and one and a half intervals.
    let pair = 2.0 * (holds.seconds + 1.5 * interval);
    let minutes = (pair * MIN_PAIRS as f64 * 1.5 / 60.0).ceil();
    format!(
        "the same command with --settle {}s --interval {}s --for {}m --hold 0: pairs that begin once the effect has settled",
        number(holds.seconds),
        number(interval),
        number(minutes)
    )
}

/// Maximum duration of an advised experiment, in seconds.
const MOST_SECONDS: f64 = 86400.0;

/// Returns the half-width, a log ratio, at which an effect like the measured one is resolved as a difference or
/// as none.
fn needed(effect: &Effect, equal: f64) -> f64 {
    let (center, equal) = (effect.ratio.ln().abs(), (1.0 + equal).ln());
    // A margin of 20 %, because the next estimate will differ.
    center.max(equal - center) * 0.8
}

/// Returns the next step after an unclear result, from its pairs, their noise, effect and duration.
pub(crate) fn longer(result: &ProveResult) -> String {
    let pairs = result.pairs.len();
    let settings = &result.settings;
    let is_try = result.experiment.target == try_experiment::TARGET;
    let command = if is_try {
        "hugeleaf try"
    } else {
        "the same command"
    };
    let Some(effect) = result.effect.as_ref().filter(|_| pairs >= MIN_PAIRS) else {
        return format!("run it to the end: {pairs} of at least {MIN_PAIRS} pairs were made");
    };
    let half = (effect.high / effect.low).ln() / 2.0;
    // Never wider than the measured interval.
    let needed = needed(effect, settings.equal).min(half / 1.1);
    // The interval narrows with the square root of the number of pairs.
    let times = (half / needed).powi(2);
    let seconds = result.experiment.duration_seconds * times;
    let more = (pairs as f64 * times).ceil();
    let percent = |half: f64| format!("{:.1}", (half.exp() - 1.0) * 100.0);
    let seen = format!(
        "{pairs} pairs gave ±{} %; an effect of ×{} needs ±{} %",
        percent(half),
        ratio(effect.ratio),
        percent(needed)
    );
    if seconds.is_nan() || seconds > MOST_SECONDS {
        return format!(
            "choose a metric that varies less, or a longer --interval: {seen}, which takes {} pairs",
            number(more)
        );
    }
    let minutes = number((seconds / 60.0).ceil().max(1.0));
    // Round down, so that the run does not end too early.
    let until = number(((needed.exp() - 1.0) * 1000.0).floor().clamp(1.0, 990.0) / 10.0);
    match settings.pairs {
        Some(_) => format!(
            "{command} with --pairs {} ({minutes} min): {seen}",
            number(more)
        ),
        None if is_try => format!("{command} --for {minutes}m: {seen}"),
        None => format!("{command} with --for {minutes}m --until {until}%: {seen}"),
    }
}

#[cfg(test)]
pub(crate) fn example() -> ProveResult {
    use hugeleaf_proof::result_format::{Quantity, Sample};
    let text = r#"{
      "schema": 2,
      "experiment": {
        "name": "redis://localhost:6379", "unit": "commands/s", "better": "higher",
        "target": "redis-server", "design": "random-pairs", "started": "2026-01-31T12:00:00Z",
        "duration_seconds": 64.2, "ending": "narrow", "began_on": "base", "left_on": "base",
        "moved_bytes": 2254857830
      },
      "arms": [{"name": "base"}, {"name": "large"}],
      "charts": [{"title": "The arms", "y": "redis://localhost:6379"}],
      "rows": [],
      "pairs": [
        {"base": 51000.0, "large": 57000.0, "ratio": 1.1176, "first": "base", "at_seconds": 2.0},
        {"base": 50000.0, "large": 56000.0, "ratio": 1.12, "first": "large", "at_seconds": 5.0},
        {"base": 52000.0, "large": 58500.0, "ratio": 1.125, "first": "large", "at_seconds": 11.0}
      ],
      "effect": {"ratio": 1.1201, "low": 1.0702, "high": 1.1698, "confidence": 0.95,
                 "method": "signed-rank", "estimator": "hodges-lehmann"},
      "verdict": "faster",
      "page_sizes": {
        "before": [{"page_bytes": 4096, "kind": "base", "bytes": 2254857830}],
        "base": [{"page_bytes": 4096, "kind": "base", "bytes": 2254857830}],
        "large": [{"page_bytes": 4096, "kind": "base", "bytes": 20971520},
                  {"page_bytes": 2097152, "kind": "thp", "bytes": 2233886310}],
        "after": []
      },
      "left": {"as_found": true, "resident_before_bytes": 2254857830,
               "resident_after_bytes": 2254857830, "large_before_bytes": 0, "large_after_bytes": 0},
      "rejected": [{"arm": "base", "at_seconds": 20.5, "reason": "coverage was <high>"}],
      "caveats": ["The base arm is memory whose huge pages were split."],
      "host": {"kernel": "6.18.0", "arch": "x86_64", "cpus": 2, "nodes": 1,
               "memory_bytes": 25769803776, "base_page_bytes": 4096, "large_page_bytes": 2097152},
      "settings": {"interval_seconds": 2.0, "settle_seconds": 0.5, "until": 0.03,
                   "for_seconds": 180.0, "equal": 0.02, "seed": 7, "block_pairs": 4,
                   "knobs": [{"name": "enabled", "value": "madvise"}], "version": "0.1.0"},
      "command": ["hugeleaf", "prove", "redis-server", "--metric", "redis:localhost:6379"]
    }"#;
    let mut result: ProveResult = serde_json::from_str(text).expect("the example is a result");
    let commands = Quantity::rate(&result.experiment.name, "commands/s").main();
    let base = [(3.0, 51000.0), (8.0, 50000.0), (14.0, 52000.0)];
    let large = [(5.0, 57000.0), (6.0, 56000.0), (12.0, 58500.0)];
    for (arm, samples) in [("base", base), ("large", large)] {
        let samples = samples.iter().enumerate();
        let samples = samples.map(|(round, (at, value))| Sample {
            at_seconds: Some(*at),
            ..Sample::new(round, *value)
        });
        let row = ResultRow::new(arm, Vec::new(), commands.clone(), samples.collect());
        result.rows.push(row);
    }
    for (name, unit, base, large) in [
        ("resident", "bytes", Some(2254857830.0), 2254857830.0),
        ("page tables", "bytes", Some(4404019.0), 4404019.0),
        ("user CPUs", "", Some(0.93), 0.95),
        ("system CPUs", "", Some(0.12), f64::NAN),
        ("compaction stalls", "", Some(0.0), 3.0),
    ] {
        for (arm, value) in [
            ("base", base),
            ("large", Some(large).filter(|v| !v.is_nan())),
        ] {
            let samples = value.map(|value| Sample::alone([value]));
            let quantity = Quantity::amount(name, unit).counted();
            let row = |samples| ResultRow::new(arm, Vec::new(), quantity, samples);
            result.rows.extend(samples.map(row));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{TextOptions, needs_nothing};
    use hugeleaf_proof::prove_result::{
        BeforeAfterMemory, BucketedQuantile, Equivalence, IntentionToTreat,
    };

    #[test]
    fn the_screen_to_the_letter() {
        let expected = "\
12 % faster (95 % CI 7 to 17 %), ×1.12 [1.07, 1.17], 3 pairs
redis://localhost:6379 on redis-server, commands/s (higher is better): huge pages make it better

PAGES  MEDIAN     MIN     MAX  SAMPLES
base   51,000  50,000  52,000        3
huge   57,000  56,000  58,500        3

ALSO MEASURED      BASE  HUGE
resident           2.1G  2.1G
page tables        4.2M  4.2M
user CPU           0.93  0.95
system CPU         0.12     ?
compaction stalls     0     3

ON PAGES OF  BEFORE  BASE  HUGE  AFTER
4K base        2.1G  2.1G   20M      ?
2M thp            0     0  2.1G      ?

how   2.1G promoted and demoted; pairs of 2 s on base and on huge pages, in random order in balanced
      blocks of 4, 0.5 s discarded after each; ended with the interval within ±3 %; left on base
      pages, as found; the ratio is the Hodges-Lehmann estimate of the pairs
note  The base arm is memory whose huge pages were split.
next  hugeleaf promote redis-server
";
        assert_eq!(page(&example()).text(TextOptions::plain(100)), expected);
    }

    #[test]
    fn a_title_has_the_name_of_the_process() {
        let mut result = example();
        result.experiment.target = "1234".to_owned();
        result.experiment.process = Some("redis-server".to_owned());
        let page = page(&result);
        assert_eq!(page.title, "redis-server: faster");
        let text = page.text(TextOptions::plain(100));
        assert!(
            text.contains("on redis-server (1234), commands/s"),
            "{text}"
        );
        assert!(text.contains("hugeleaf promote 1234"), "{text}");
        // Earlier files have no name; `try` has one for its database.
        result.experiment.process = None;
        assert_eq!(who(&result), ("1234", "1234".to_owned()));
        result.experiment.target = try_experiment::TARGET.into();
        result.experiment.process = Some("hugeleaf".to_owned());
        assert_eq!(who(&result).0, try_experiment::TARGET);
    }

    #[test]
    fn what_is_not_as_found_is_worded() {
        let mut result = example();
        assert!(left(&result).ends_with("as found"));
        result.left = Some(BeforeAfterMemory {
            as_found: false,
            resident_before_bytes: Bytes::from_mib(206),
            resident_after_bytes: Bytes::from_mib(155),
            large_before_bytes: Bytes::from_mib(200),
            large_after_bytes: Bytes::from_mib(200),
        });
        assert_eq!(
            left(&result),
            "left on base pages, but not as found: resident 155M, before 206M (51M less), on huge \
             pages 200M as before"
        );
        result.left = None;
        assert_eq!(left(&result), "left on base pages");
    }

    #[test]
    fn one_bucket_is_a_refusal_with_advice() {
        let mut result = example();
        result.verdict = Verdict::Unclear;
        result.buckets = Some(BucketedQuantile {
            shared: Some([Some(0.02), Some(0.05)]),
            interpolated: Some(0.92),
            instead: Some("http://h/metrics#mean(lat)".to_owned()),
        });
        assert!(
            meaning(&result).contains("one bucket"),
            "{}",
            meaning(&result)
        );
        let next = next(&result).unwrap().text;
        assert!(
            next.contains("--metric 'http://h/metrics#mean(lat)'"),
            "{next}"
        );
        let says = "unclear, between +7 and +17 % (95 % CI), ×1.07 to ×1.17, 3 pairs";
        assert!(
            page(&result)
                .text(TextOptions::plain(100))
                .starts_with(says)
        );
    }

    #[test]
    fn the_effect_as_assigned_and_the_tests_of_same() {
        let mut result = example();
        assert!(also_said(&result).is_empty());
        result.verdict = Verdict::Same;
        result.equivalence = Some(Equivalence {
            margin: 0.02,
            alpha: 0.025,
            not_below: true,
            not_above: true,
        });
        result.intention_to_treat = Some(IntentionToTreat {
            pairs: Vec::new(),
            astray: 2,
            effect: result.effect,
            verdict: Verdict::Faster,
        });
        let lines = also_said(&result);
        let effect = "12 % faster (95 % CI 7 to 17 %), ×1.12 [1.07, 1.17]";
        assert!(lines[0].contains(effect), "{lines:?}");
        assert!(lines[0].ends_with("2 of them not as assigned"), "{lines:?}");
        assert!(
            lines[1].contains("two one-sided tests, each at 2.5 %"),
            "{lines:?}"
        );
        assert!(
            lines[1].ends_with("not below 1/1.02, and not above 1.02"),
            "{lines:?}"
        );
    }

    #[test]
    fn an_effect_that_has_not_settled_is_worded() {
        let mut result = example();
        result.verdict = Verdict::Unclear;
        result.holds = serde_json::from_str(
            r#"{"seconds": 40, "settled": false, "rounds": [
                {"base": 1.0, "large": 1.09, "ratio": 1.09, "first": "large"},
                {"base": 1.0, "large": 1.11, "ratio": 1.11, "first": "base"}]}"#,
        )
        .unwrap();
        assert!(
            meaning(&result).contains("not settled"),
            "{}",
            meaning(&result)
        );
        let held = "held for 40 s on each page size: +10 %, ×1.10 in 2 rounds";
        assert_eq!(also_said(&result), [held]);
        let settle = "the same command with --settle 40s --interval 10s --for 22m --hold 0";
        let next = next(&result).unwrap().text;
        assert!(next.starts_with(settle), "{next}");
        result.holds.as_mut().unwrap().settled = true;
        assert!(meaning(&result).contains("too wide"));
        assert!(also_said(&result).is_empty());
    }

    #[test]
    fn every_verdict_is_worded() {
        let mut result = example();
        for (verdict, says, next_says) in [
            (Verdict::Slower, "worse", None),
            (Verdict::Same, "within ±2 %", None),
            (
                Verdict::Unclear,
                "too wide",
                Some("run it to the end: 3 of"),
            ),
        ] {
            result.verdict = verdict;
            assert!(meaning(&result).contains(says), "{}", meaning(&result));
            let next = next(&result);
            match next_says {
                Some(says) => assert!(next.is_some_and(|n| n.text.contains(says))),
                None => assert_eq!(next, None),
            }
        }
        result.effect = None;
        assert!(headline(&result).contains("too few pairs"));
        result.verdict = Verdict::Faster;
        result.experiment.left_on = Some(Arm::Large);
        assert_eq!(next(&result), None);
    }

    /// An unclear result with the given pairs, duration and interval.
    fn unclear(pairs: usize, seconds: f64, [low, middle, high]: [f64; 3]) -> ProveResult {
        let mut result = example();
        result.verdict = Verdict::Unclear;
        result.pairs = std::iter::repeat_n(result.pairs[0], pairs).collect();
        result.experiment.duration_seconds = seconds;
        let effect = result.effect.as_mut().unwrap();
        (effect.low, effect.ratio, effect.high) = (low, middle, high);
        result
    }

    #[test]
    fn the_next_step_follows_from_what_was_seen() {
        let mut result = unclear(20, 200.0, [0.97, 1.04, 1.115]);
        let says = |result: &ProveResult| next(result).unwrap().text.to_string();
        let text = says(&result);
        // ±7 % narrows to ±3.2 % in 4.9 times the time, independent of the requested duration.
        assert!(
            text.contains("--for 17m --until 3.1%: 20 pairs gave ±7.2"),
            "{text}"
        );
        result.settings.for_seconds = 36000.0;
        assert_eq!(says(&result), text);
        result.settings.pairs = Some(20);
        assert!(
            says(&result).contains("--pairs 99 (17 min)"),
            "{}",
            says(&result)
        );
        result.settings.pairs = None;
        result.experiment.target = try_experiment::TARGET.into();
        assert!(
            says(&result).starts_with("hugeleaf try --for 17m: "),
            "{}",
            says(&result)
        );
        // Twice the noise takes four times the pairs; a smaller effect takes more.
        let noisy = says(&unclear(20, 200.0, [0.9, 1.04, 1.2]));
        assert!(noisy.contains("--for 71m"), "{noisy}");
        let none = says(&unclear(20, 9000.0, [0.9, 1.0, 1.1]));
        assert!(
            none.starts_with("choose a metric that varies less"),
            "{none}"
        );
    }

    proptest::proptest! {
        #[test]
        fn the_next_run_is_longer(pairs in 8usize..500, seconds in 1.0f64..1e5, low in 0.1f64..1.0, wide in 1.001f64..5.0) {
            let result = unclear(pairs, seconds, [low, low * wide.sqrt(), low * wide]);
            let text = longer(&result);
            if let Some((_, rest)) = text.split_once("--for ") {
                let minutes: f64 = rest.split('m').next().unwrap().replace(',', "").parse().unwrap();
                proptest::prop_assert!(minutes * 60.0 >= seconds, "{}", text);
                let until = rest.split("--until ").nth(1).unwrap().split('%').next().unwrap();
                let until: f64 = until.parse().unwrap();
                proptest::prop_assert!(until > 0.0 && until < 100.0, "{}", text);
            }
        }
    }

    #[test]
    fn an_a_a_recommends_nothing() {
        let mut result = example();
        result.settings.same_pages = true;
        assert!(
            meaning(&result).contains("false positive"),
            "{}",
            meaning(&result)
        );
        assert_eq!(next(&result), None);
    }

    #[test]
    fn json_is_the_file() {
        let back = hugeleaf_proof::result_format::Results::read(&example().to_json()).unwrap();
        assert_eq!(back.rows, example().rows);
        // The round trip is lossless.
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&back.to_json()), value(&example().to_json()));
        // Fields that scripts read keep their names.
        let verdict = serde_json::to_value(example().verdict).unwrap();
        assert_eq!(back.analysis["verdict"], verdict);
        assert_eq!(
            back.analysis["pairs"].as_array().unwrap().len(),
            example().pairs.len()
        );
        assert!(back.analysis["effect"]["ratio"].is_number());
    }

    #[test]
    fn one_page_that_needs_nothing_else() {
        let page = whole_page(&example()).html();
        for part in [
            "<h1>redis-server: faster</h1>",
            "12 % faster (95 % CI 7 to 17 %), ×1.12 [1.07, 1.17], 3 pairs",
            "The base arm is memory whose huge pages were split.",
            "<code>hugeleaf promote redis-server</code>",
            "6.18.0",
            "madvise",
            "--metric redis:localhost:6379",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        needs_nothing(&page);
    }

    #[test]
    fn what_a_server_says_stays_text() {
        let mut result = example();
        result.experiment.name = "<script>alert(1)</script>".into();
        let page = whole_page(&result).html();
        assert!(!page.contains("<script>"));
        assert!(page.contains("coverage was &lt;high&gt;"));
    }

    #[test]
    fn an_empty_result_is_a_page_too() {
        let mut result = example();
        result.pairs.clear();
        result.effect = None;
        result.rows.clear();
        result.page_sizes = Default::default();
        let page = whole_page(&result).html();
        assert_eq!(page.matches("<svg").count(), 0);
        assert!(!page.contains("could not be drawn"));
    }

    #[test]
    fn equal_and_odd_values_are_drawn() {
        let mut result = example();
        for pair in &mut result.pairs {
            pair.ratio = 1.0;
        }
        for sample in result.rows.iter_mut().flat_map(|row| &mut row.samples) {
            (sample.value, sample.at_seconds) = (5.0, Some(1.0));
        }
        result.effect = None;
        assert!(!whole_page(&result).html().contains("could not be drawn"));
        result.pairs[0].ratio = f64::NAN;
        result.pairs[1].ratio = f64::INFINITY;
        assert!(!whole_page(&result).html().contains("NaN"));
    }
}
