//! `hugeleaf bench`: a result as one page that needs nothing beside it.

use hugeleaf_proof::bench::chase::ChaseResult;
use hugeleaf_proof::bench::mover::{MoverArm, MoverResult};
use hugeleaf_proof::bench::pagetables::{PageTablesPoint, PageTablesResult};
use hugeleaf_proof::bench::pin::{PinArm, PinPoint, PinResult};
use hugeleaf_units::Bytes;
use maud::{Markup, html};

use crate::bench::{self, NotHadLine, duration, short};
use crate::chart::drawn;
use crate::page::{
    Axis, Chart, ChartKind, Page, Point, Scale, Series, Unit, circumstances, document, notes, table,
};

/// The page of `bench chase`.
pub fn chase_html(result: &ChaseResult) -> String {
    let arms = bench::chase::measured(result);
    let lines = arms.iter().map(|arm| Series {
        name: arm.label.clone(),
        points: arm
            .points
            .iter()
            .map(|p| Point {
                x: Bytes(p.working_set_bytes).as_f64(),
                y: p.spread.median,
                interval: p.spread.low.zip(p.spread.high),
                doubtful: !p.verified,
                ..Point::default()
            })
            .collect(),
    });
    let latency = curves(
        axis("working set", Unit::Bytes, Scale::Binary),
        axis("ns a read", Unit::Number, Scale::Decimal),
        lines.collect(),
    );
    let heads = arms.iter().map(|arm| arm.label.as_str());
    let heads: Vec<&str> = ["working set"].into_iter().chain(heads).collect();
    let body = html! {
        h2 { "Latency by working set" }
        (drawn(&latency))
        p { "A point is the median, the bar through it its interval. Hollow points were not seen to be \
             on the pages of their arm. Both axes are logarithmic." }
        h2 { "Nanoseconds a read" }
        (table(&heads, &bench::chase_rows(result)))
        (not_had(&bench::chase::not_had(result)))
        (notes(&bench::chase::notes(result)))
        (circumstances(&result.host, &result.settings.knobs, &[
            ["when".to_owned(), result.experiment.started.clone()],
            ["rounds".to_owned(), result.settings.rounds.to_string()],
            ["sample".to_owned(), duration(result.settings.sample_seconds)],
            ["seed".to_owned(), result.settings.seed.to_string()],
            ["hugeleaf".to_owned(), result.settings.version.clone()],
        ], &result.command))
    };
    page(
        &bench::chase_headline(result),
        &bench::chase_meaning(result),
        &bench::chase_how(result),
        &body,
    )
}

/// The page of `bench pagetables`.
pub fn pagetables_html(result: &PageTablesResult) -> String {
    let lines = |name, unit, scale, value: Value| {
        let arms = result.arms.iter().filter(|arm| !arm.points.is_empty());
        let series = arms.map(|arm| Series {
            name: arm.label.clone(),
            points: arm.points.iter().map(|p| point(p, value)).collect(),
        });
        let x = axis("processes", Unit::Number, Scale::Binary);
        curves(x, axis(name, unit, scale), series.collect())
    };
    let growth = lines("page tables", Unit::Bytes, Scale::Binary, |p| {
        (as_f64(p.growth_bytes), None)
    });
    let attach = lines("attach", Unit::Seconds, Scale::Decimal, |p| {
        let spread = &p.attach.spread;
        (spread.median, spread.low.zip(spread.high))
    });
    let touch = lines("first touch", Unit::Seconds, Scale::Decimal, |p| {
        let spread = &p.first_touch.spread;
        (spread.median, spread.low.zip(spread.high))
    });
    let heads = bench::PAGETABLES_COLUMNS.map(str::to_lowercase);
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = bench::pagetables_rows(result)
        .into_iter()
        .map(Vec::from)
        .collect();
    let body = html! {
        h2 { "Growth of page tables by number of processes" }
        (drawn(&growth))
        p { "Over the same processes without the region. Both axes are logarithmic. Hollow points were \
             not seen to be on the pages of their arm." }
        h2 { "Attaching, a process" }
        (drawn(&attach))
        h2 { "First touch of all of it, a process" }
        (drawn(&touch))
        p { "A point is the median of all processes, the bar through it its interval." }
        h2 { "All numbers" }
        (table(&heads, &rows))
        (not_had(&bench::pagetables::not_had(result)))
        (notes(&bench::pagetables::notes(result)))
        (circumstances(&result.host, &result.settings.knobs, &[
            ["when".to_owned(), result.experiment.started.clone()],
            ["region".to_owned(), Bytes(result.settings.region_bytes).to_string()],
            ["seed".to_owned(), result.settings.seed.to_string()],
            ["hugeleaf".to_owned(), result.settings.version.clone()],
        ], &result.command))
    };
    page(
        &bench::pagetables_headline(result),
        &bench::pagetables_meaning(result),
        &bench::pagetables_how(result),
        &body,
    )
}

/// The page of `bench mover`.
pub fn mover_html(result: &MoverResult) -> String {
    let modes: Vec<&str> = result.arms.iter().fold(Vec::new(), |mut modes, arm| {
        if arm.spread.is_some() && !modes.contains(&arm.mode.as_str()) {
            modes.push(&arm.mode);
        }
        modes
    });
    let (rates, costs) = (
        bench::mover::RATES.map(str::to_lowercase),
        bench::mover::COSTS.map(str::to_lowercase),
    );
    let rates: Vec<&str> = rates.iter().map(String::as_str).collect();
    let costs: Vec<&str> = costs.iter().map(String::as_str).collect();
    let body = html! {
        @for mode in modes {
            h2 { "Moved, " (mode) ", MiB a second" }
            (bars(result, mode, &|arm| arm.spread.map(|s| s.median)))
            h2 { "Seconds of processors for a GiB, " (mode) }
            (bars(result, mode, &|arm| arm.processor_seconds_per_gib.map(|s| s.median)))
        }
        h2 { "All numbers" }
        (table(&rates, &bench::mover::rate_rows(result)))
        (table(&costs, &bench::mover::cost_rows(result)))
        ul { @for line in bench::mover::beside(result) { li { (line) } } }
        (not_had(&bench::mover::not_had(result)))
        (notes(&bench::mover::notes(result)))
        (circumstances(&result.host, &result.settings.knobs, &[
            ["when".to_owned(), result.experiment.started.clone()],
            ["devices".to_owned(), result.settings.devices.join(", ")],
            ["rounds".to_owned(), result.settings.rounds.to_string()],
            ["sample".to_owned(), duration(result.settings.sample_seconds)],
            ["seed".to_owned(), result.settings.seed.to_string()],
            ["hugeleaf".to_owned(), result.settings.version.clone()],
        ], &result.command))
    };
    page(
        &first_of(bench::mover_headlines(result)),
        &bench::mover::mover_meaning(result),
        &bench::mover::mover_how(result),
        &body,
    )
}

/// A page has one headline; the rest is in its tables.
fn first_of(lines: Vec<String>) -> String {
    lines.into_iter().next().unwrap_or_default()
}

/// A bar an arm of a mode, as long as its value.
fn bars(result: &MoverResult, mode: &str, value: &dyn Fn(&MoverArm) -> Option<f64>) -> Markup {
    let arms = result.arms.iter().filter(|arm| arm.mode == mode);
    let found = arms.filter_map(|arm| Some((arm.label.clone(), value(arm)?)));
    let (mut steps, mut points) = (Vec::new(), Vec::new());
    for ((label, y), at) in found.zip(0u32..) {
        let x = f64::from(at);
        steps.push((x, label));
        points.push(Point {
            x,
            y,
            note: short(y),
            ..Point::default()
        });
    }
    drawn(&Chart {
        kind: ChartKind::Bars,
        x: Axis {
            steps,
            ..Axis::default()
        },
        series: vec![Series {
            name: String::new(),
            points,
        }],
        ..Chart::default()
    })
}

/// The page of `bench pin`.
pub fn pin_html(result: &PinResult) -> String {
    let methods: Vec<&str> = result.arms.iter().fold(Vec::new(), |mut methods, arm| {
        if !arm.is_empty() && !methods.contains(&arm.method.as_str()) {
            methods.push(&arm.method);
        }
        methods
    });
    let lines = |method: &str| {
        let arms = bench::pin::measured(result).filter(|arm| arm.method == method);
        let series = arms.map(|arm| Series {
            name: arm.label.clone(),
            points: (arm.points.iter())
                .filter_map(|p| pin_point(arm, p))
                .collect(),
        });
        let x = axis("threads", Unit::Number, Scale::Binary);
        curves(
            x,
            axis("µs each", Unit::Number, Scale::Decimal),
            series.collect(),
        )
    };
    let heads = bench::pin::COLUMNS.map(str::to_lowercase);
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let body = html! {
        @for method in methods {
            h2 { "One pin by number of threads, " (method) }
            (drawn(&lines(method)))
        }
        p { "A point is the median, the bar through it its interval. Both axes are logarithmic. Hollow \
             points were not seen to be on the pages of their name." }
        h2 { "All numbers" }
        (table(&heads, &bench::pin::pin_rows(result)))
        ul { @for line in bench::pin::beside(result) { li { (line) } } }
        (not_had(&bench::pin::not_had(result)))
        (notes(&bench::pin::notes(result)))
        (circumstances(&result.host, &result.settings.knobs, &[
            ["when".to_owned(), result.experiment.started.clone()],
            ["rounds".to_owned(), result.settings.rounds.to_string()],
            ["sample".to_owned(), duration(result.settings.sample_seconds)],
            ["seed".to_owned(), result.settings.seed.to_string()],
            ["hugeleaf".to_owned(), result.settings.version.clone()],
        ], &result.command))
    };
    page(
        &first_of(bench::pin_headlines(result)),
        &bench::pin::pin_meaning(result),
        &bench::pin::pin_how(result),
        &body,
    )
}

fn pin_point(arm: &PinArm, point: &PinPoint) -> Option<Point> {
    let spread = point.spread?;
    Some(Point {
        x: f64::from(u32::try_from(point.threads).ok()?),
        y: spread.median,
        interval: spread.low.zip(spread.high),
        doubtful: arm.before.as_ref().is_some_and(|lying| !lying.verified),
        ..Point::default()
    })
}

/// What is drawn of a point: a value, and its interval where it has one.
type Value = fn(&PageTablesPoint) -> (f64, Option<(f64, f64)>);

fn point(of: &PageTablesPoint, value: Value) -> Point {
    let (y, interval) = value(of);
    Point {
        x: f64::from(u32::try_from(of.processes).unwrap_or(u32::MAX)),
        y,
        interval,
        doubtful: !of.verified,
        ..Point::default()
    }
}

#[allow(clippy::cast_precision_loss)]
fn as_f64(bytes: i64) -> f64 {
    bytes as f64
}

fn axis(name: &str, unit: Unit, scale: Scale) -> Axis {
    Axis {
        name: name.to_owned(),
        unit,
        scale,
        ..Axis::default()
    }
}

pub(crate) const fn curves(x: Axis, y: Axis, series: Vec<Series>) -> Chart {
    Chart {
        title: String::new(),
        kind: ChartKind::Curves,
        x,
        y,
        series,
    }
}

pub(crate) fn page(headline: &str, meaning: &str, how: &str, body: &Markup) -> String {
    let top = Page::new(headline, format!("{meaning}."));
    document(&top, &html! { p { (how) "." } (body) })
}

pub(crate) fn not_had(lines: &[NotHadLine]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h2 { "Not had" }
            ul { @for line in lines {
                li { (line.what) ": " (line.reason) ". Next: " code { (line.next) } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::needs_nothing;

    #[test]
    fn chase_is_one_page() {
        let page = chase_html(&bench::chase::example());
        needs_nothing(&page);
        assert_eq!(page.matches("<svg").count(), 1);
        for part in [
            "thp:2M 208 ns",
            "Not had",
            "no page of 1G &lt;b&gt;",
            "madvise",
            "bench chase",
            "2M of 4M were not on thp:2M",
        ] {
            assert!(page.contains(part), "{part}");
        }
        // The doubtful point is hollow: one triangle filled, one not.
        assert_eq!(page.matches("<polygon").count(), 2);
        let hollow = "fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.5\"";
        assert_eq!(page.matches(hollow).count(), 1);
    }

    #[test]
    fn pagetables_is_one_page() {
        let page = pagetables_html(&bench::pagetables::example());
        needs_nothing(&page);
        assert_eq!(page.matches("<svg").count(), 3);
        for part in ["×0.0039", "hugetlb:1G", "128M"] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn an_empty_result_is_a_page_too() {
        let mut result = bench::chase::example();
        for arm in &mut result.arms {
            arm.points.clear();
        }
        let page = chase_html(&result);
        assert!(page.contains("This chart could not be drawn: no points"));
    }
}
