//! `hugeleaf bench oltp`: a result as one page that needs nothing beside it, with the published charts and
//! tables beside those of this host.

use hugeleaf_proof::bench::oltp::{
    Io, OltpArm, OltpResult, OltpSample, StepsBy, Translation, TranslationSource,
};
use hugeleaf_units::Bytes;
use maud::{Markup, html};

use crate::bench::duration;
use crate::bench::oltp::rows::{
    Index, LATENCY, PUBLISHED, PUBLISHED_CYCLES, PUBLISHED_GAIN, PUBLISHED_MISSES, STUDY, Seen,
    Step, first_label, index_text, indices, labels, latency_rows, miss_indices, not_had,
    page_tables, seen, steps, study_rows, translation_indices, with_joined_step, with_step,
};
use crate::bench::oltp::{
    KINDS, cost_rows, how, kind_rows, meaning, oltp_headline, translation_meaning, without_step,
};
use crate::bench_html;
use crate::bench_html::curves;
use crate::chart::drawn;
use crate::page::{
    Axis, Chart, ChartKind, Page, Point, Scale, Series, Unit, circumstances, command, document,
    notes, table,
};
use crate::prove::number;

/// The page.
pub fn oltp_html(result: &OltpResult) -> String {
    let body = html! {
        @if result.arms.is_empty() {
            @for run in &result.runs { (single(run)) }
        } @else {
            (throughput(result))
            (translation(result))
            (by_cache(result))
            (study(result))
            (by_connections(result))
            (latencies(result))
        }
        (absent(result))
        (bench_html::not_had(&not_had(result)))
        (notes(&result.caveats))
        (circumstances(&result.host, &result.settings.knobs, &settings(result), &result.command))
    };
    let headline = oltp_headline(result);
    let top = Page::new(headline, format!("{}.", meaning(result)));
    document(&top, &html! { p { (how(result)) "." } (body) })
}

fn single(run: &OltpSample) -> Markup {
    let heads = KINDS.map(str::to_lowercase);
    html! {
        h2 { "Transactions" }
        (table(&heads.each_ref().map(String::as_str), &kind_rows(run)))
        h2 { "What they cost" }
        (table(&["", "a second", "a transaction"], &cost_rows(run)))
    }
}

/// Bars under a title, each with its name.
struct Group {
    title: String,
    is_ours: bool,
    rows: Vec<(String, Point)>,
}

fn rows(indices: Vec<Index>, in_words: &dyn Fn(&Index) -> String) -> Vec<(String, Point)> {
    let row = |index: Index| {
        let point = Point {
            note: in_words(&index),
            y: index.value.unwrap_or(f64::NAN),
            interval: index.ends,
            samples: index.dots,
            doubtful: index.seen != Seen::Yes,
            ..Point::default()
        };
        (index.label, point)
    };
    indices.into_iter().map(row).collect()
}

fn published(title: &str, values: &[(&str, f64)]) -> Group {
    let row = |(size, value): &(&str, f64)| {
        let point = Point {
            y: *value,
            note: number(*value),
            ..Point::default()
        };
        ((*size).to_owned(), point)
    };
    Group {
        title: format!("{title}, as published"),
        is_ours: false,
        rows: values.iter().map(row).collect(),
    }
}

/// One group below the other, with a line at 100 through all. Where nothing of ours was measured, that is said.
fn bars(groups: Vec<Group>, axis: &str) -> Markup {
    let ours = groups.iter().filter(|g| g.is_ours);
    if ours
        .flat_map(|g| &g.rows)
        .all(|(_, point)| point.y.is_nan())
    {
        return html! { p {
            "This chart could not be drawn: nothing was measured that could be held against the first arm"
        } };
    }
    let (mut steps, mut series, mut x) = (Vec::new(), Vec::new(), 0.0);
    for group in groups {
        let mut points = Vec::new();
        for (label, point) in group.rows {
            steps.push((x, label));
            points.push(Point { x, ..point });
            x += 1.0;
        }
        series.push(Series {
            name: group.title,
            points,
        });
    }
    drawn(&Chart {
        kind: ChartKind::Bars,
        x: Axis {
            steps,
            ..Axis::default()
        },
        y: Axis {
            name: axis.to_owned(),
            level: Some(100.0),
            ..Axis::default()
        },
        series,
        ..Chart::default()
    })
}

/// What stands below bars: `base = 100`.
fn axis(result: &OltpResult) -> String {
    format!("{} = 100", first_label(result))
}

/// Which arms of some are drawn hollow, in words.
fn hollow(indices: &[Index]) -> Option<String> {
    let of = |seen: Seen| {
        let own = indices
            .iter()
            .filter(move |i| i.seen == seen && i.value.is_some());
        own.map(|i| i.label.as_str()).collect::<Vec<_>>().join(", ")
    };
    let mut parts = Vec::new();
    for (seen, why) in [
        (Seen::NotAll, "not all of it was seen to be on these pages"),
        (
            Seen::CannotBeTold,
            "it could not be read back which pages it was on",
        ),
    ] {
        let arms = of(seen);
        if !arms.is_empty() {
            parts.push(format!("{arms} ({why})"));
        }
    }
    (!parts.is_empty()).then(|| format!("Hollow: {}.", parts.join("; ")))
}

/// Chart 1 of the published study.
fn throughput(result: &OltpResult) -> Markup {
    let Some(last) = steps(result).pop() else {
        return html! {};
    };
    let indices = indices(&last);
    let hollow = hollow(&indices);
    let ours = Group {
        title: format!("NOTPM{}", with_step(result, last.at)),
        is_ours: true,
        rows: rows(indices, &index_text),
    };
    let theirs = published("DB2 9, POWER5+, 473 GB of buffer pools", &PUBLISHED);
    let caption = "The line through a bar is the 95 % interval of the effect over the first arm, pair by pair \
         of one round; of the first arm it is the interval of its own median. Dots are the pairs; of the \
         first arm its samples over their median. Fewer than 6 rounds have no interval. Bars begin at 0.";
    html! {
        h2 { "NOTPM by page size" (with_step(result, last.at)) ", " (axis(result)) }
        (bars(vec![ours, theirs], &axis(result)))
        p { (caption) @if let Some(hollow) = hollow { " " (hollow) } }
        (command(&result.command))
    }
}

/// Chart 2 of the published study.
fn translation(result: &OltpResult) -> Markup {
    let Some(translation) = &result.translation else {
        return html! {};
    };
    let seen = |label: &str| match translation.source {
        TranslationSource::Counters => seen(result, label),
        // Of memory of its own, which is not that of the load.
        TranslationSource::Chase => Seen::Yes,
    };
    let indices = translation_indices(&translation.arms, &seen);
    let hollow = hollow(&indices);
    let counts_misses = translation
        .arms
        .iter()
        .any(|arm| !arm.tlb_misses.is_empty());
    let heading = match translation.source {
        TranslationSource::Counters if counts_misses => {
            "Cycles an instruction and TLB misses by page size"
        }
        TranslationSource::Counters => "Cycles an instruction by page size",
        TranslationSource::Chase => "Cost of translation by page size",
    };
    html! {
        h2 { (heading) ", " (axis(result)) }
        (bars(translation_groups(translation, indices, &seen), &axis(result)))
        p { (capital(&translation_meaning(translation))) "." @if let Some(hollow) = hollow { " " (hollow) } }
        @if translation.source == TranslationSource::Chase {
            p { "Published with counters: cycles an instruction ×0.89, TLB misses ×0.87, for 64K over 4K. \
                 A read that waits for each translation shows more of it than a whole program does, so the \
                 two are not beside each other here." }
        }
        (command(&result.command))
    }
}

fn translation_groups(
    translation: &Translation,
    indices: Vec<Index>,
    seen: &dyn Fn(&str) -> Seen,
) -> Vec<Group> {
    let in_words = |unit: &'static str| {
        move |index: &Index| match index.spread {
            Some(spread) => format!("{}{unit}, {}", number(spread.median), index_text(index)),
            None => "not had".to_owned(),
        }
    };
    let group = |title: &str, indices, unit| Group {
        title: title.to_owned(),
        is_ours: true,
        rows: rows(indices, &in_words(unit)),
    };
    match translation.source {
        TranslationSource::Chase => vec![group("Nanoseconds a dependent read", indices, " ns")],
        TranslationSource::Counters => {
            let mut groups = vec![
                group("Cycles an instruction", indices, ""),
                published("DB2 9, cycles an instruction", &PUBLISHED_CYCLES),
            ];
            for (title, each) in [
                ("TLB misses in a thousand instructions", false),
                ("TLB misses a transaction", true),
            ] {
                let misses = miss_indices(&translation.arms, each, seen);
                groups.extend(misses.map(|misses| group(title, misses, "")));
            }
            if groups.len() > 2 {
                groups.push(published("DB2 9, TLB misses", &PUBLISHED_MISSES));
            }
            groups
        }
    }
}

/// What is drawn of an arm at a step: a value, and its interval where it has one.
type Value<'a> = &'a dyn Fn(&OltpArm, &Index) -> Option<(f64, Option<(f64, f64)>)>;

/// A curve an arm over the steps.
fn step_curves(result: &OltpResult, point: Value<'_>) -> Vec<Series> {
    let all: Vec<(Step<'_>, Vec<Index>)> = steps(result)
        .into_iter()
        .map(|step| {
            let indices = indices(&step);
            (step, indices)
        })
        .collect();
    let points = |label: &str| {
        all.iter()
            .filter_map(|(step, indices)| {
                let at = step.arms.iter().position(|arm| arm.label == label)?;
                let (y, interval) = point(step.arms[at], &indices[at])?;
                Some(Point {
                    x: Bytes(step.at?).as_f64(),
                    y,
                    interval,
                    doubtful: indices[at].seen != Seen::Yes,
                    ..Point::default()
                })
            })
            .collect::<Vec<Point>>()
    };
    let curves = labels(result).into_iter().map(|label| Series {
        name: label.to_owned(),
        points: points(label),
    });
    curves.filter(|curve| !curve.points.is_empty()).collect()
}

/// The axis of the steps, where they are what is asked for.
fn step_axis(result: &OltpResult, by: StepsBy) -> Option<Axis> {
    let steps = result.steps.as_ref().filter(|steps| steps.by == by)?;
    let label = |value: u64| match by {
        StepsBy::Cache => Bytes(value).to_string(),
        StepsBy::Connections => value.to_string(),
    };
    let values = steps.values.iter();
    Some(Axis {
        name: step_name(result).to_owned(),
        scale: Scale::Binary,
        steps: values.map(|v| (Bytes(*v).as_f64(), label(*v))).collect(),
        ..Axis::default()
    })
}

const CURVES: &str = "A point is an estimate, the bar through it its 95 % interval. Points of one step stand \
     side by side. Hollow points were not seen to be on the pages of their arm.";

/// Chart 3 of the published study.
fn by_cache(result: &OltpResult) -> Markup {
    let Some(x) = step_axis(result, StepsBy::Cache) else {
        return html! {};
    };
    // The first arm is the line at 1.
    let first = first_label(result);
    let lines = step_curves(result, &|arm, index| {
        let value = index.value.filter(|_| arm.label != first)? / 100.0;
        let ends = arm.effect.map(|e| (e.low, e.high));
        Some((value, ends))
    });
    let y = Axis {
        name: format!("over {first}"),
        unit: Unit::Ratio,
        level: Some(1.0),
        ..Axis::default()
    };
    html! {
        h2 { "Gain by size of the cache" }
        (drawn(&curves(x, y, lines)))
        p { (CURVES) " The line at ×1 is " (first) ". The axis of the cache is logarithmic, that of the gain is \
             not, and it is cut off below. " (capital(PUBLISHED_GAIN)) "." }
        (command(&result.command))
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// The table of the Oracle study.
fn study(result: &OltpResult) -> Markup {
    let heads = [["pages", ""].as_slice(), &STUDY].concat();
    let rows: Vec<Vec<String>> = study_rows(result)
        .into_iter()
        .map(with_joined_step)
        .collect();
    html! {
        h2 { "What was done a second, and for each transaction" }
        (table(&heads, &rows))
        p { "Averages of the runs. Logical reads are pages asked of the cache; block changes, pages changed; \
             physical, pages that were read and written. Oracle 11g is as published, without and with huge \
             pages: automatic and manual memory management." }
        (command(&result.command))
    }
}

fn step_name(result: &OltpResult) -> &'static str {
    match result.steps.as_ref().map(|steps| steps.by) {
        Some(StepsBy::Cache) => "cache",
        Some(StepsBy::Connections) => "connections",
        None => "",
    }
}

fn by_connections(result: &OltpResult) -> Markup {
    let Some(x) = step_axis(result, StepsBy::Connections) else {
        return html! {};
    };
    let tables = step_curves(result, &|arm, _| {
        let spread = page_tables(result, arm)?;
        Some((spread.median, spread.low.zip(spread.high)))
    });
    let notpm = step_curves(result, &|_, index| {
        let spread = index.spread?;
        Some((spread.median, spread.low.zip(spread.high)))
    });
    let axis = |name: &str, unit, scale| Axis {
        name: name.to_owned(),
        unit,
        scale,
        ..Axis::default()
    };
    let bytes = axis("page tables", Unit::Bytes, Scale::Binary);
    let whole = Axis {
        level: Some(0.0),
        ..axis("NOTPM", Unit::Number, Scale::Linear)
    };
    html! {
        h2 { "Page tables by number of connections" }
        (drawn(&curves(x.clone(), bytes, tables)))
        p { "Of all processes of the database, at the end of a run. Both axes are logarithmic. " (CURVES) }
        (command(&result.command))
        h2 { "NOTPM by number of connections" }
        (drawn(&curves(x, whole, notpm)))
        p { "Medians of the runs; the axis begins at 0. " (CURVES) }
        (command(&result.command))
    }
}

fn latencies(result: &OltpResult) -> Markup {
    let heads = ["pages", step_name(result)];
    let heads = without_step(result, [heads.as_slice(), &LATENCY].concat());
    let rows: Vec<Vec<String>> = latency_rows(result)
        .into_iter()
        .map(|row| without_step(result, row))
        .collect();
    html! {
        h2 { "Latency by transaction" }
        (table(&heads, &rows))
        p { "So many of a hundred transactions ended within the time below p50, p90 and p99: the medians of the \
             runs. Sending again is in them." }
    }
}

/// Charts that this result has no numbers for, and what makes them.
fn absent(result: &OltpResult) -> Markup {
    let by = result.steps.as_ref().map(|steps| steps.by);
    let mut lines = Vec::new();
    if result.arms.is_empty() {
        lines.push(("NOTPM by page size", "--pages base,thp:2M,hugetlb:2M"));
    }
    if result.translation.is_none() {
        lines.push((
            "the cost of translation",
            "--pages, without --no-translation",
        ));
    }
    if by != Some(StepsBy::Cache) {
        lines.push(("the gain by size of the cache", "--pages and --by-cache"));
    }
    if by != Some(StepsBy::Connections) {
        lines.push((
            "page tables by number of connections",
            "--pages and --by-connections",
        ));
    }
    html! {
        @if !lines.is_empty() {
            h2 { "Not asked for here" }
            ul { @for (what, flags) in lines { li { (what) ": " code { (flags) } } } }
        }
    }
}

fn settings(result: &OltpResult) -> Vec<[String; 2]> {
    let (database, settings) = (&result.database, &result.settings);
    let rounds = result.arms.iter().map(|arm| arm.samples.len()).max();
    let io = match settings.io {
        Io::Cached => "all data fit the cache",
        Io::Buffered => "through the page cache of the host",
        Io::Direct => "direct",
    };
    let mut rows = vec![
        ("when", result.experiment.started.clone()),
        ("database", database.version.clone()),
        ("place", database.name.clone()),
        ("warehouses", database.warehouses.to_string()),
        ("of them touched", settings.touched_warehouses.to_string()),
        ("connections", settings.connections.to_string()),
        ("cache", Bytes(database.cache_bytes).to_string()),
        ("what is not in the cache", io.to_owned()),
        ("commits on disk", database.durability.clone()),
        ("before it counted", duration(settings.ramp_up_seconds)),
        ("measured", duration(settings.for_seconds)),
        ("seed", settings.seed.to_string()),
    ];
    if let Some(rounds) = rounds {
        rows.push(("rounds", rounds.to_string()));
    }
    if let Some(bytes) = settings.copied_file_bytes {
        rows.push(("a file copied beside it", Bytes(bytes).to_string()));
    }
    rows.into_iter()
        .map(|(name, value)| [name.to_owned(), value])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::oltp::testing;
    use crate::page::needs_nothing;

    /// A chart of a page, by its number.
    fn chart(page: &str, number: usize) -> &str {
        let part = page.split("<svg").nth(number + 1).unwrap();
        part.split("</svg>").next().unwrap()
    }

    #[test]
    fn throughput_stands_beside_what_is_published() {
        let result = testing::example();
        let page = oltp_html(&result);
        needs_nothing(&page);
        assert_eq!(page.matches("<svg").count(), 2);
        let svg = chart(&page, 0);
        // Three sure arms and four published bars are filled, one is hollow.
        assert_eq!(svg.matches("<rect").count(), 7 + 1);
        assert_eq!(svg.matches("fill=\"none\"").count(), 1);
        // A dot a sample of each arm that was had.
        assert_eq!(svg.matches("<circle").count(), 4 * 10);
        for part in ["116 [114, 118]", "not had", "126", "16G", "locked"] {
            assert!(svg.contains(part), "{part}");
        }
        for part in [
            "Hollow: thp:2M (not all of it was seen to be on these pages).",
            "the pool of 1G has no free page &lt;b&gt;",
            "hugeleaf bench oltp --pages base,thp:2M",
            "--by-cache",
        ] {
            assert!(page.contains(part), "{part}");
        }
        // The study's rows, a second and each, beside ours.
        for part in ["36,742", "40.6", "310", "Oracle manual, 2M"] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn translation_says_where_its_numbers_are_from() {
        let page = oltp_html(&testing::example());
        assert!(page.contains("not by counters: this host has no hardware counters"));
        assert!(chart(&page, 1).contains("208 ns, 67"), "{page}");
        let page = oltp_html(&testing::counted());
        let svg = chart(&page, 1);
        assert!(!page.contains("not by counters"));
        for part in ["DB2 9, TLB misses", "89", "87", "Cycles an instruction"] {
            assert!(svg.contains(part), "{part}");
        }
        // The load's own pages count here: thp:2M is hollow in both groups.
        assert_eq!(svg.matches("<rect").count(), (1 + 2 + 1 + 1 + 2) + 3);
        assert_eq!(svg.matches("fill=\"none\"").count(), 3);
        for part in ["TLB misses a transaction", "10,015, 100", "1321, 13"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(page.contains("by the events cycles, instructions, ls_l1_d_tlb_miss.all_l2_miss"));
        // What is not counted has no bar, and no 0.
        let page = oltp_html(&testing::counted_without_misses());
        let svg = chart(&page, 1);
        assert!(svg.contains("Cycles an instruction") && !svg.contains("TLB misses a transaction"));
        assert!(page.contains("<h2>Cycles an instruction by page size"));
        assert!(page.contains("are not counted here: DTLB_WALK opens and stays at 0"));
    }

    #[test]
    fn a_curve_an_arm_by_step() {
        let page = oltp_html(&testing::by_cache());
        needs_nothing(&page);
        assert_eq!(page.matches("<svg").count(), 2);
        let svg = chart(&page, 1);
        for part in ["1G", "4G", "locked", "hugetlb:2M", "×1.1"] {
            assert!(svg.contains(part), "{part}");
        }
        // The first arm is the line at 1. Locked has filled circles, hugetlb:2M filled squares; triangles are
        // hollow.
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("<polygon").count(), 3 + 3);
        let hollow = "fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"";
        assert_eq!(svg.matches(hollow).count(), 3);
        assert!(page.contains("NOTPM by page size with a cache of 4G"));
        assert!(page.contains("×1.13 with 473 GB"));
        let page = oltp_html(&testing::by_connections());
        needs_nothing(&page);
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(chart(&page, 1).contains("32") && chart(&page, 1).contains("256M"));
        // NOTPM begins at 0.
        assert!(chart(&page, 2).contains("10,000") && chart(&page, 2).contains("base"));
    }

    #[test]
    fn one_run_two_rounds_and_nothing_are_pages_too() {
        let page = oltp_html(&testing::single());
        assert_eq!(page.matches("<svg").count(), 0);
        assert!(page.contains("New-Order") && page.contains("logical reads"));
        let page = oltp_html(&testing::two_rounds());
        needs_nothing(&page);
        assert_eq!(chart(&page, 0).matches("<circle").count(), 4 * 2);
        assert!(!chart(&page, 0).contains('['), "no interval of two rounds");
        let page = oltp_html(&testing::nothing());
        assert!(page.contains("could not be drawn: nothing was measured"));
    }

    #[test]
    fn a_hundredfold_effect_and_odd_numbers_are_drawn() {
        let mut result = testing::example();
        result.arms[3].effect = Some(testing::effect(116.0));
        let page = oltp_html(&result);
        needs_nothing(&page);
        assert!(chart(&page, 0).contains("11,600 [11,426, 11,774]"));
        result.arms[3].effect = Some(testing::effect(f64::INFINITY));
        result.arms[0].samples[0] = 0.0;
        let page = oltp_html(&result);
        needs_nothing(&page);
        assert!(!page.contains("NaN") && !chart(&page, 0).contains("-2147"));
        result.arms.truncate(1);
        needs_nothing(&oltp_html(&result));
    }
}
