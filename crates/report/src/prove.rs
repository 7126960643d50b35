//! `hugeleaf prove`: a result as text and as JSON. The page is in [`crate::prove_html`].

use std::collections::BTreeMap;

use hugeleaf_proof::result::{BesideArm, ResultFile};
use hugeleaf_proof::rule::MIN_PAIRS;
use hugeleaf_proof::stats::{Better, Estimator, Verdict};
use hugeleaf_proof::{Arm, Design, Ending};
use hugeleaf_units::Bytes;

use crate::table::{Align, Look, Paint, Table};

/// The result on a screen: the verdict first, then what it rests on.
pub fn text(result: &ResultFile, look: Look) -> String {
    let mut out = look.paint(&headline(result), paint(result.verdict));
    out.push('\n');
    out.push_str(&look.wrap("", &meaning(result)));
    out.push('\n');
    out.push_str(&samples(result).render_as(look));
    out.push('\n');
    out.push_str(&beside(result).render_as(look));
    let sizes = page_sizes(result);
    if !sizes.is_empty() {
        out.push('\n');
        out.push_str(&sizes.render_as(look));
    }
    out.push('\n');
    for line in beside_the_effect(result) {
        out.push_str(&look.wrap("also  ", &line));
    }
    out.push_str(&look.wrap("how   ", &how(result)));
    for caveat in &result.caveats {
        out.push_str(&look.wrap("note  ", caveat));
    }
    if let Some(next) = next(result) {
        out.push_str(&look.wrap("next  ", &next));
    }
    out
}

/// The result as its file has it.
pub fn json(result: &ResultFile) -> String {
    result.to_json()
}

/// `faster  ×1.12 [1.07, 1.17]  95 %  24 pairs`.
pub fn headline(result: &ResultFile) -> String {
    let effect = match &result.effect {
        // Of a quantile read from buckets only the ends are known.
        Some(e) if result.buckets.is_some() => format!(
            "between ×{} and ×{}  {} %",
            ratio(e.low),
            ratio(e.high),
            number(e.confidence * 100.0)
        ),
        Some(e) => format!(
            "×{} [{}, {}]  {} %",
            ratio(e.ratio),
            ratio(e.low),
            ratio(e.high),
            number(e.confidence * 100.0)
        ),
        None if result.buckets.is_some() && result.pairs.len() >= MIN_PAIRS => {
            "the buckets allow any ratio".to_owned()
        }
        None => "too few pairs for an interval".to_owned(),
    };
    let count = result.pairs.len();
    let pairs = if count == 1 { "pair" } else { "pairs" };
    format!("{}  {effect}  {count} {pairs}", result.verdict)
}

/// What else the pairs say: the effect as assigned, the tests behind `same`.
pub fn beside_the_effect(result: &ResultFile) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(all) = &result.intention_to_treat {
        let effect = match &all.effect {
            Some(e) => format!("×{} [{}, {}]", ratio(e.ratio), ratio(e.low), ratio(e.high)),
            None => "too few pairs for an interval".to_owned(),
        };
        lines.push(format!(
            "as assigned (intention to treat): {}  {effect}, {} pairs, {} of them not moved as asked",
            all.verdict,
            all.pairs.len(),
            all.astray
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

/// What the verdict means for this metric, in a sentence.
pub fn meaning(result: &ResultFile) -> String {
    let e = &result.experiment;
    let better = match e.better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
        Better::Neither => "neither way is better",
    };
    let equal = number(result.settings.equal * 100.0);
    let says = match (result.verdict, &result.effect) {
        (Verdict::Faster | Verdict::Slower, _) if result.settings.same_pages => {
            "both arms were the same, so this is a false call".to_owned()
        }
        (Verdict::Faster, _) => "larger pages make it better".to_owned(),
        (Verdict::Slower, _) => "larger pages make it worse".to_owned(),
        (Verdict::Same, _) => format!("any difference is within ±{equal} %"),
        (Verdict::Unclear, _) if shared_bucket(result).is_some() => {
            "both arms lie in one bucket of the histogram, which says nothing of the difference"
                .to_owned()
        }
        (Verdict::Unclear, Some(_)) => "the interval is too wide to say".to_owned(),
        (Verdict::Unclear, None) => "there is too little to say anything".to_owned(),
    };
    format!("{} on {}, {} ({better}): {says}", e.name, e.target, e.unit)
}

/// The bucket that holds the quantile of both arms, where it is one.
fn shared_bucket(result: &ResultFile) -> Option<[Option<f64>; 2]> {
    result.buckets.as_ref()?.shared
}

fn paint(verdict: Verdict) -> Paint {
    match verdict {
        Verdict::Faster => Paint::Good,
        Verdict::Slower => Paint::Bad,
        Verdict::Same => Paint::Bold,
        Verdict::Unclear => Paint::Warn,
    }
}

fn samples(result: &ResultFile) -> Table {
    let mut table = Table::new(&[
        ("PAGES", Align::Left),
        ("MEDIAN", Align::Right),
        ("LEAST", Align::Right),
        ("MOST", Align::Right),
        ("SAMPLES", Align::Right),
    ]);
    for arm in &result.arms {
        let mut sorted = arm.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |n: usize| sorted.get(n).map_or("-".to_owned(), |v| number(*v));
        table.row([
            arm.label.name().to_owned(),
            median(&sorted).map_or("-".to_owned(), number),
            at(0),
            at(sorted.len().wrapping_sub(1)),
            sorted.len().to_string(),
        ]);
    }
    table
}

/// The median of sorted values.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]))
}

/// What else moved: a name, and its value in each arm.
pub fn beside_rows(result: &ResultFile) -> Vec<[String; 3]> {
    type Get = fn(&BesideArm) -> Option<String>;
    let rows: [(&str, Get); 5] = [
        ("resident", |b| {
            b.resident_bytes.map(|v| Bytes(v).to_string())
        }),
        ("page tables", |b| {
            b.page_tables_bytes.map(|v| Bytes(v).to_string())
        }),
        ("user CPU", |b| b.user_cpus.map(|v| format!("{v:.2}"))),
        ("system CPU", |b| b.system_cpus.map(|v| format!("{v:.2}"))),
        ("compaction stalls", |b| {
            b.compaction_stalls.map(|v| v.to_string())
        }),
    ];
    let of = |arm: Arm, get: Get| {
        let found = result.beside.iter().find(|b| b.label == arm);
        found.and_then(get).unwrap_or_else(|| "?".to_owned())
    };
    rows.iter()
        .map(|(name, get)| {
            [
                (*name).to_owned(),
                of(Arm::Base, *get),
                of(Arm::Large, *get),
            ]
        })
        .collect()
}

fn beside(result: &ResultFile) -> Table {
    let mut table = Table::new(&[
        ("BESIDE", Align::Left),
        ("BASE", Align::Right),
        ("LARGE", Align::Right),
    ]);
    for row in beside_rows(result) {
        table.row(row);
    }
    table
}

/// The memory by page size: `4K base`, and the bytes before, in both arms, and after.
pub fn page_size_rows(result: &ResultFile) -> Vec<[String; 5]> {
    let stages = [
        &result.page_sizes.before,
        &result.page_sizes.base,
        &result.page_sizes.large,
        &result.page_sizes.after,
    ];
    let mut rows: BTreeMap<(u64, &str), [Option<u64>; 4]> = BTreeMap::new();
    for (stage, held) in stages.iter().enumerate() {
        for h in *held {
            let row = rows.entry((h.page_bytes, &h.kind)).or_default();
            row[stage] = Some(row[stage].unwrap_or(0) + h.bytes);
        }
    }
    let cell = |stage: usize, bytes: Option<u64>| match (bytes, stages[stage].is_empty()) {
        (Some(bytes), _) => Bytes(bytes).to_string(),
        (None, true) => "?".to_owned(),
        (None, false) => "0".to_owned(),
    };
    rows.iter()
        .map(|((size, kind), held)| {
            let name = format!("{} {kind}", Bytes(*size));
            [
                name,
                cell(0, held[0]),
                cell(1, held[1]),
                cell(2, held[2]),
                cell(3, held[3]),
            ]
        })
        .collect()
}

fn page_sizes(result: &ResultFile) -> Table {
    let mut table = Table::new(&[
        ("ON PAGES OF", Align::Left),
        ("BEFORE", Align::Right),
        ("BASE", Align::Right),
        ("LARGE", Align::Right),
        ("AFTER", Align::Right),
    ]);
    for row in page_size_rows(result) {
        table.row(row);
    }
    table
}

/// How it was measured, why it ended, and how the memory was left.
pub fn how(result: &ResultFile) -> String {
    let (e, s) = (&result.experiment, &result.settings);
    let design = match e.design {
        Design::RandomPairs => format!(
            "pairs of {} s on base and on large pages, order drawn at random{}",
            number(s.interval_seconds),
            (s.block_pairs).map_or(String::new(), |n| format!(" in balanced blocks of {n}"))
        ),
        Design::BeforeAfter => format!(
            "intervals of {} s on base pages, then on large ones",
            number(s.interval_seconds)
        ),
    };
    let ending = match e.ending {
        Ending::Narrow => format!(
            "ended with the interval within ±{} %",
            number(s.until * 100.0)
        ),
        Ending::Pairs => "ended with the pairs asked for".to_owned(),
        Ending::Time => format!("ended after {}", time(e.duration_seconds)),
        Ending::OneBucket => "ended because both arms lie in one bucket".to_owned(),
        Ending::Interrupted => "interrupted".to_owned(),
    };
    let estimate = match result.effect.as_ref().and_then(|e| e.estimator) {
        Some(_) if result.buckets.is_some() => "; the interval holds all that the buckets allow",
        Some(Estimator::HodgesLehmann) => "; the ratio is the Hodges-Lehmann estimate of the pairs",
        Some(Estimator::GeometricMeans) => "; the ratio is that of the geometric means",
        None => "",
    };
    format!(
        "{} moved; {design}, {} s discarded after each move; {ending}; {}{estimate}",
        Bytes(e.moved_bytes),
        number(s.settle_seconds),
        left(result)
    )
}

/// How the memory was left, and what of it is not as it was found.
pub fn left(result: &ResultFile) -> String {
    let e = &result.experiment;
    let Some(arm) = e.left_on else {
        return "the target has ended".to_owned();
    };
    if arm != e.began_on {
        return format!(
            "left on {} pages, found on {}",
            arm.name(),
            e.began_on.name()
        );
    }
    match &result.left {
        Some(left) if !left.as_found => format!(
            "left on {} pages, but not as found: {}, {}",
            arm.name(),
            change(
                "resident",
                left.resident_before_bytes,
                left.resident_after_bytes
            ),
            change(
                "on large pages",
                left.large_before_bytes,
                left.large_after_bytes
            )
        ),
        // Files of before it was looked at say no more than which pages.
        None => format!("left on {} pages", arm.name()),
        Some(_) => format!("left on {} pages, as found", arm.name()),
    }
}

fn change(what: &str, before: u64, after: u64) -> String {
    let by = Bytes(before.abs_diff(after));
    let direction = match after {
        same if same == before => return format!("{what} {} as before", Bytes(after)),
        less if less < before => "less",
        _ => "more",
    };
    let (before, after) = (Bytes(before), Bytes(after));
    format!("{what} {after} where it was {before} ({by} {direction})")
}

/// What to do now.
pub fn next(result: &ResultFile) -> Option<String> {
    let target = &result.experiment.target;
    if result.settings.same_pages {
        return None;
    }
    match result.verdict {
        // What was measured by a phrase, as the database of `try`, is gone by the time this is read.
        Verdict::Faster if target.contains(' ') => None,
        Verdict::Faster if result.experiment.left_on != Some(Arm::Large) => {
            Some(format!("hugeleaf promote {target}"))
        }
        Verdict::Unclear if shared_bucket(result).is_some() => {
            let instead = result.buckets.as_ref()?.instead.as_ref()?;
            Some(format!(
                "measure the mean of the same observations, --metric '{instead}', or give the \
                 histogram finer buckets there"
            ))
        }
        Verdict::Unclear => {
            let minutes = (result.settings.for_seconds / 60.0).max(1.0) * 4.0;
            let until = result.settings.equal * 75.0;
            Some(format!(
                "the same command with --for {}m --until {}%: four times the pairs halve the \
                 interval",
                number(minutes.ceil()),
                number(until)
            ))
        }
        _ => None,
    }
}

/// A ratio, to the percent.
pub fn ratio(value: f64) -> String {
    if !(0.1..10.0).contains(&value) {
        return number(value);
    }
    format!("{value:.2}")
}

/// A number with about four digits that mean something; thousands apart from 10,000 on.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        s if s == 0.0 || s >= 1000.0 => 0,
        s if s >= 100.0 => 1,
        s if s >= 10.0 => 2,
        s if s >= 0.01 => 3,
        _ => return format!("{value:.2e}"),
    };
    let text = format!("{value:.decimals$}");
    if size >= 10_000.0 && value.is_finite() {
        return thousands(&text);
    }
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn thousands(digits: &str) -> String {
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        let left = digits.len() - i;
        if i > 0 && left.is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A time as people say it.
pub fn time(seconds: f64) -> String {
    if seconds < 90.0 {
        return format!("{seconds:.0} s");
    }
    format!("{:.1} min", seconds / 60.0)
}

/// A result for tests of views.
#[cfg(test)]
pub(crate) fn example() -> ResultFile {
    let text = r#"{
      "schema": 1,
      "experiment": {
        "name": "redis://localhost:6379", "unit": "commands/s", "better": "higher",
        "target": "redis-server", "design": "random-pairs", "started": "2026-01-31T12:00:00Z",
        "duration_seconds": 64.2, "ending": "narrow", "began_on": "base", "left_on": "base",
        "moved_bytes": 2254857830
      },
      "arms": [
        {"label": "base", "samples": [51000.0, 50000.0, 52000.0], "at_seconds": [3.0, 8.0, 14.0],
         "coverage": [[0.01, 0.01], [0.01, 0.01], [0.01, 0.01]]},
        {"label": "large", "samples": [57000.0, 56000.0, 58500.0], "at_seconds": [5.0, 6.0, 12.0],
         "coverage": [[0.98, 0.98], [0.98, 0.98], [0.98, 0.98]]}
      ],
      "pairs": [
        {"base": 51000.0, "large": 57000.0, "ratio": 1.1176, "first": "base", "at_seconds": 2.0},
        {"base": 50000.0, "large": 56000.0, "ratio": 1.12, "first": "large", "at_seconds": 5.0},
        {"base": 52000.0, "large": 58500.0, "ratio": 1.125, "first": "large", "at_seconds": 11.0}
      ],
      "effect": {"ratio": 1.1201, "low": 1.0702, "high": 1.1698, "confidence": 0.95,
                 "method": "signed-rank", "estimator": "hodges-lehmann"},
      "verdict": "faster",
      "beside": [
        {"label": "base", "resident_bytes": 2254857830, "page_tables_bytes": 4404019,
         "user_cpus": 0.93, "system_cpus": 0.12, "compaction_stalls": 0},
        {"label": "large", "resident_bytes": 2254857830, "page_tables_bytes": 4404019,
         "user_cpus": 0.95, "compaction_stalls": 3}
      ],
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
      "caveats": ["The base arm is memory whose large pages were split."],
      "host": {"kernel": "6.18.0", "arch": "x86_64", "cpus": 2, "nodes": 1,
               "memory_bytes": 25769803776, "base_page_bytes": 4096, "large_page_bytes": 2097152},
      "settings": {"interval_seconds": 2.0, "settle_seconds": 0.5, "until": 0.03,
                   "for_seconds": 180.0, "equal": 0.02, "seed": 7, "block_pairs": 4,
                   "knobs": [{"name": "enabled", "value": "madvise"}], "version": "0.1.0"},
      "command": ["hugeleaf", "prove", "redis-server", "--metric", "redis:localhost:6379"]
    }"#;
    serde_json::from_str(text).expect("the example is a result")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_proof::result::{AsAssigned, Buckets, Equivalence, Left};

    #[test]
    fn the_screen_to_the_letter() {
        let expected = "\
faster  ×1.12 [1.07, 1.17]  95 %  3 pairs
redis://localhost:6379 on redis-server, commands/s (higher is better): larger pages make it better

PAGES  MEDIAN   LEAST    MOST  SAMPLES
base   51,000  50,000  52,000        3
large  57,000  56,000  58,500        3

BESIDE             BASE  LARGE
resident           2.1G   2.1G
page tables        4.2M   4.2M
user CPU           0.93   0.95
system CPU         0.12      ?
compaction stalls     0      3

ON PAGES OF  BEFORE  BASE  LARGE  AFTER
4K base        2.1G  2.1G    20M      ?
2M thp            0     0   2.1G      ?

how   2.1G moved; pairs of 2 s on base and on large pages, order drawn at random in balanced blocks
      of 4, 0.5 s discarded after each move; ended with the interval within ±3 %; left on base
      pages, as found; the ratio is the Hodges-Lehmann estimate of the pairs
note  The base arm is memory whose large pages were split.
next  hugeleaf promote redis-server
";
        assert_eq!(text(&example(), Look::plain(100)), expected);
    }

    #[test]
    fn what_is_not_as_found_is_worded() {
        let mut result = example();
        assert!(left(&result).ends_with("as found"));
        result.left = Some(Left {
            as_found: false,
            resident_before_bytes: 206 << 20,
            resident_after_bytes: 155 << 20,
            large_before_bytes: 200 << 20,
            large_after_bytes: 200 << 20,
        });
        assert_eq!(
            left(&result),
            "left on base pages, but not as found: resident 155M where it was 206M (51M less), on \
             large pages 200M as before"
        );
        result.left = None;
        assert_eq!(left(&result), "left on base pages");
    }

    #[test]
    fn one_bucket_is_a_refusal_with_advice() {
        let mut result = example();
        result.verdict = Verdict::Unclear;
        result.buckets = Some(Buckets {
            shared: Some([Some(0.02), Some(0.05)]),
            interpolated: Some(0.92),
            instead: Some("http://h/metrics#mean(lat)".to_owned()),
        });
        assert!(
            meaning(&result).contains("one bucket"),
            "{}",
            meaning(&result)
        );
        let next = next(&result).unwrap();
        assert!(
            next.contains("--metric 'http://h/metrics#mean(lat)'"),
            "{next}"
        );
        let says = "unclear  between ×1.07 and ×1.17  95 %  3 pairs";
        assert!(text(&result, Look::plain(100)).starts_with(says));
    }

    #[test]
    fn the_effect_as_assigned_and_the_tests_of_same() {
        let mut result = example();
        assert!(beside_the_effect(&result).is_empty());
        result.verdict = Verdict::Same;
        result.equivalence = Some(Equivalence {
            margin: 0.02,
            alpha: 0.025,
            not_below: true,
            not_above: true,
        });
        result.intention_to_treat = Some(AsAssigned {
            pairs: Vec::new(),
            astray: 2,
            effect: result.effect,
            verdict: Verdict::Faster,
        });
        let lines = beside_the_effect(&result);
        assert!(lines[0].contains("faster  ×1.12 [1.07, 1.17]"), "{lines:?}");
        assert!(
            lines[0].ends_with("2 of them not moved as asked"),
            "{lines:?}"
        );
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
    fn every_verdict_is_worded() {
        let mut result = example();
        for (verdict, says, next_says) in [
            (Verdict::Slower, "worse", None),
            (Verdict::Same, "within ±2 %", None),
            (Verdict::Unclear, "too wide", Some("--for 12m --until 1.5%")),
        ] {
            result.verdict = verdict;
            assert!(meaning(&result).contains(says), "{}", meaning(&result));
            let next = next(&result);
            match next_says {
                Some(says) => assert!(next.is_some_and(|n| n.contains(says))),
                None => assert_eq!(next, None),
            }
        }
        result.effect = None;
        assert!(headline(&result).contains("too few pairs"));
        result.verdict = Verdict::Faster;
        result.experiment.left_on = Some(Arm::Large);
        assert_eq!(next(&result), None);
    }

    #[test]
    fn an_a_a_recommends_nothing() {
        let mut result = example();
        result.settings.same_pages = true;
        assert!(
            meaning(&result).contains("false call"),
            "{}",
            meaning(&result)
        );
        assert_eq!(next(&result), None);
    }

    #[test]
    fn numbers() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_012, "1.20e-5"),
            (0.25, "0.25"),
            (3.0, "3"),
            (12.345, "12.35"),
            (1234.5, "1234"),
            (12_345.0, "12,345"),
            (-1_234_567.0, "-1,234,567"),
            (2_680_318_123.0, "2,680,318,123"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
        assert_eq!(ratio(1.118), "1.12");
        assert_eq!(ratio(12.5), "12.5");
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, 2.0]), Some(1.5));
    }

    #[test]
    fn json_is_the_file() {
        let back = hugeleaf_proof::rows::Results::read(&json(&example())).unwrap();
        assert_eq!(back, example().to_results());
        // What scripts read is at its names.
        let verdict = serde_json::to_value(example().verdict).unwrap();
        assert_eq!(back.analysis["verdict"], verdict);
        assert_eq!(
            back.analysis["pairs"].as_array().unwrap().len(),
            example().pairs.len()
        );
        assert!(back.analysis["effect"]["ratio"].is_number());
    }
}
