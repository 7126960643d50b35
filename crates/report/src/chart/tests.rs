use super::primitives::*;
use super::*;
use crate::document::{Axis, AxisUnit, Scale};
use crate::document::{Point, Series};

fn point(x: f64, y: f64) -> Point {
    Point {
        x,
        y,
        ..Point::default()
    }
}

fn series(name: &str, values: &[(f64, f64)]) -> Series {
    let points = values.iter().map(|(x, y)| Point {
        interval: Some((y * 0.9, y * 1.1)),
        ..point(*x, *y)
    });
    Series {
        name: name.to_owned(),
        points: points.collect(),
    }
}

fn curves(series: Vec<Series>) -> Chart {
    Chart {
        x: Axis {
            name: "working set".to_owned(),
            unit: AxisUnit::Bytes,
            scale: Scale::Binary,
            ..Axis::default()
        },
        y: Axis {
            name: "ns a read".to_owned(),
            scale: Scale::Decimal,
            ..Axis::default()
        },
        series,
        ..Chart::default()
    }
}

fn bars(kind: ChartKind, steps: &[&str], series: Vec<Series>) -> Chart {
    let steps = steps.iter().zip(0u32..);
    let steps = steps.map(|(name, at)| (f64::from(at), (*name).to_owned()));
    Chart {
        kind,
        x: Axis {
            steps: steps.collect(),
            ..Axis::default()
        },
        series,
        ..Chart::default()
    }
}

/// Draws the chart, and checks that elements close and numbers are finite.
fn drawn(chart: &Chart) -> String {
    let svg = svg(chart).expect("a drawing");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"), "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    svg
}

#[test]
fn every_curve_has_its_name_its_shape_and_its_intervals() {
    let mut chart = curves(vec![
        series("base", &[(1024.0, 1.0), (4096.0, 300.0)]),
        series("thp:2M", &[(1024.0, 1.0), (4096.0, 299.0)]),
    ]);
    let svg = drawn(&chart);
    for part in ["base", "thp:2M", "working set", "ns a read", "2K", "100"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    assert_eq!(
        (
            svg.matches("<circle").count(),
            svg.matches("<polygon").count()
        ),
        (2, 2)
    );
    assert_eq!(svg.matches("fill=\"none\"").count(), 2);
    // A doubtful point is hollow.
    chart.series[0].points[0].doubtful = true;
    assert_eq!(drawn(&chart).matches("fill=\"none\"").count(), 3);
}

#[test]
fn both_schemes_are_in_the_drawing_and_nothing_is_fetched() {
    let svg = drawn(&curves(vec![series("a", &[(1.0, 1.0)])]));
    assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("currentColor"));
    let rest = svg.replace("http://www.w3.org/2000/svg", "");
    for sign in ["http", "href", "url(", "<script", "@import"] {
        assert!(!rest.contains(sign), "{sign}");
    }
}

#[test]
fn names_are_somebody_elses() {
    let name = "</text><script>alert(1)</script>\u{202e}\u{1b}";
    let mut chart = curves(vec![
        series(name, &[(1.0, 1.0)]),
        series("b", &[(1.0, 1.0)]),
    ]);
    chart.title = "\"><b>".to_owned();
    let svg = drawn(&chart);
    assert!(!svg.contains("<script") && !svg.contains("<b>"), "{svg}");
    assert!(!svg.contains('\u{202e}') && !svg.contains('\u{1b}'));
    assert!(!text(&chart, 80).contains('\u{1b}'));
    let mut bar = point(0.0, 1.0);
    bar.note = "<i>".to_owned();
    let one = Series {
        name: name.to_owned(),
        points: vec![bar],
    };
    assert!(!drawn(&bars(ChartKind::Stacks, &["<u>"], vec![one])).contains("<u>"));
}

#[test]
fn odd_values_are_left_out_and_of_nothing_there_is_no_drawing() {
    let odd = series(
        "odd",
        &[
            (0.0, 1.0),
            (1.0, f64::NAN),
            (2.0, -1.0),
            (4.0, 7.0),
            (8.0, f64::INFINITY),
        ],
    );
    let svg = drawn(&curves(vec![odd]));
    assert_eq!(svg.matches("<circle").count(), 1);
    assert_eq!(super::svg(&curves(vec![series("none", &[])])), None);
    assert_eq!(
        super::svg(&curves(vec![series("none", &[(1.0, f64::NAN)])])),
        None
    );
    for kind in [ChartKind::Bars, ChartKind::Stacks] {
        let odd = series(
            "odd",
            &[
                (0.0, f64::NAN),
                (1.0, f64::INFINITY),
                (2.0, 11_600.0),
                (3.0, -3.0),
            ],
        );
        drawn(&bars(kind, &["a", "b", "c", "d"], vec![odd]));
    }
    assert_eq!(
        super::svg(&bars(
            ChartKind::Bars,
            &["a"],
            vec![series("x", &[(0.0, f64::NAN)])]
        )),
        None
    );
}

#[test]
fn a_level_is_in_sight_and_steps_have_their_names() {
    let mut chart = curves(vec![series("a", &[(3.0, 2.0), (12.0, 2.1)])]);
    chart.y = Axis {
        unit: AxisUnit::Ratio,
        level: Some(1.0),
        ..Axis::default()
    };
    chart.x.steps = vec![(3.0, "three".to_owned()), (12.0, "twelve".to_owned())];
    let svg = drawn(&chart);
    for part in ["×1.0", "×2.0", "three", "twelve"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    let whole = Axis {
        level: Some(0.0),
        ..Axis::default()
    };
    let span = AxisRange::padded([3.0, 5.0].into_iter(), &whole).unwrap();
    assert!(span.from == 0.0 && span.to > 5.0, "{span:?}");
    let shared = Axis {
        end: Some(10.0),
        ..whole
    };
    assert_eq!(
        AxisRange::padded([3.0, 5.0].into_iter(), &shared)
            .unwrap()
            .to,
        10.0
    );
}

#[test]
fn a_wide_dot_is_a_band() {
    let mut chart = curves(vec![series("pairs", &[(1.0, 1.1), (2.0, 1.2)])]);
    chart.kind = ChartKind::Dots;
    let mut band = series("estimate", &[(1.0, 1.15)]);
    band.points[0].width = 1.0;
    chart.series.push(band);
    let svg = drawn(&chart);
    // The band, and the two dots with that of the legend; the estimate's sample in the legend.
    assert_eq!(
        (svg.matches("<rect").count(), svg.matches("<circle").count()),
        (1, 3)
    );
    assert!(!svg.contains("<polyline"));
}

#[test]
fn many_curves_stay_in_the_drawing() {
    let names: Vec<String> = (0..40).map(|n| format!("curve {n}")).collect();
    let all = names
        .iter()
        .map(|name| series(name, &[(1.0, 1.0), (2.0, 1.1)]));
    let mut chart = curves(all.collect());
    chart.x.steps = vec![(1.0, "before".to_owned()), (2.0, "after".to_owned())];
    let svg = drawn(&chart);
    let numbers = |name: &str| -> Vec<f64> {
        let sign = format!(" {name}=\"");
        let rest = svg.split(&sign).skip(1);
        rest.map(|text| text.split('"').next().unwrap().parse().unwrap())
            .collect()
    };
    let axis = numbers("x1")[0];
    assert!(numbers("cx").iter().all(|x| *x >= axis), "{axis} in {svg}");
    assert!(numbers("y").iter().all(|y| *y > 0.0), "{svg}");
}

#[test]
fn one_outlier_does_not_flatten_the_other_dots() {
    let values = [1.0, 1.02, 0.98, 1.01, 1.03, 0.99, 1.0, 30.0];
    let points = (1u32..).zip(values).map(|(n, y)| point(f64::from(n), y));
    let mut chart = curves(vec![Series::new("pairs", points.collect())]);
    chart.kind = ChartKind::Dots;
    chart.y = Axis {
        unit: AxisUnit::Ratio,
        level: Some(1.0),
        ..Axis::default()
    };
    let svg = drawn(&chart);
    for part in ["×1.02", "×30 ↑"] {
        assert!(svg.contains(&format!(">{part}<")), "{part} in {svg}");
    }
    assert_eq!(svg.matches("<circle").count(), values.len());
}

#[test]
fn layers_stand_on_each_other() {
    let layer = |name: &str, values: [f64; 2]| Series {
        name: name.to_owned(),
        points: values
            .into_iter()
            .zip([0.0, 1.0])
            .map(|(y, x)| Point {
                width: 1.0,
                ..point(x, y)
            })
            .collect(),
    };
    let mut chart = curves(vec![layer("user", [0.1, 0.2]), layer("system", [0.5, 0.4])]);
    chart.kind = ChartKind::Layers;
    (chart.x, chart.y) = (
        Axis::default(),
        Axis {
            unit: AxisUnit::Percent,
            level: Some(0.0),
            end: Some(0.6),
            ..Axis::default()
        },
    );
    let svg = drawn(&chart);
    assert_eq!(svg.matches("<polygon").count(), 2);
    assert!(svg.contains(">60 %<") && svg.contains(">0 %<"), "{svg}");
    chart.series[0].points[0].y = f64::NAN;
    drawn(&chart);
}

#[test]
fn bars_have_intervals_samples_and_notes() {
    let mut here = series("here", &[(0.0, 100.0), (1.0, 116.0)]);
    here.points[0].samples = vec![99.0, 101.0];
    here.points[1].doubtful = true;
    here.points[1].note = "116 [104, 127]".to_owned();
    let there = series("published", &[(2.0, 110.0)]);
    let mut chart = bars(
        ChartKind::Bars,
        &["base", "thp:2M", "DB2"],
        vec![here, there],
    );
    chart.y = Axis {
        name: "base = 100".to_owned(),
        level: Some(100.0),
        ..Axis::default()
    };
    let svg = drawn(&chart);
    // Three bars: each series has its own step, so its name is the heading.
    assert_eq!(
        (svg.matches("<rect").count(), svg.matches("<circle").count()),
        (3, 2)
    );
    assert_eq!(svg.matches("fill=\"none\"").count(), 1);
    for part in ["116 [104, 127]", "DB2", "published", "base = 100", ">0<"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    // A ratio is a dot relative to 1.
    chart.y.unit = AxisUnit::Ratio;
    chart.y.level = None;
    assert_eq!(drawn(&chart).matches("r=\"4\"").count(), 3);
}

#[test]
fn parts_of_a_stack_are_one_bar() {
    let user = series("user", &[(0.0, 0.25), (1.0, 0.0)]);
    let kernel = series("kernel", &[(0.0, 0.75), (1.0, 0.5)]);
    let svg = drawn(&bars(
        ChartKind::Stacks,
        &["mover", "sh"],
        vec![user, kernel],
    ));
    assert_eq!(svg.matches("<rect").count(), 2 + 3, "{svg}");
}

/// Memory that is almost constant: with steps of a billionth, the marks would be innumerable.
#[test]
fn bytes_that_stand_evenly_have_marks_at_powers_of_two() {
    let axis = Axis {
        scale: Scale::Linear,
        unit: AxisUnit::Bytes,
        ..Axis::default()
    };
    let mib = |n: u32| f64::from(n << 20);
    let still = AxisRange::padded([mib(32)].into_iter(), &axis).unwrap();
    assert!(still.marks(&axis, 6).len() <= 6);
    let grows = AxisRange::padded([mib(120), mib(910)].into_iter(), &axis).unwrap();
    let texts: Vec<String> = grows.marks(&axis, 6).into_iter().map(|m| m.1).collect();
    assert_eq!(texts, ["256M", "512M", "768M"]);
}

#[test]
fn axes_have_marks_that_can_be_read() {
    for scale in [Scale::Linear, Scale::Binary, Scale::Decimal] {
        for (low, high) in [
            (1.0, 1.2),
            (0.97, 1.23),
            (8.0, 9e9),
            (16.0, 33.0),
            (1e-6, 2e-3),
        ] {
            for unit in [
                AxisUnit::Number,
                AxisUnit::Percent,
                AxisUnit::Seconds,
                AxisUnit::Ratio,
            ] {
                let axis = Axis {
                    scale,
                    unit,
                    ..Axis::default()
                };
                let span = AxisRange::padded([low, high].into_iter(), &axis).unwrap();
                let marks = span.marks(&axis, 10);
                let mut texts: Vec<&str> = marks.iter().map(|(_, text)| text.as_str()).collect();
                assert!(texts.len() <= 10);
                texts.dedup();
                assert_eq!(texts.len(), marks.len(), "{axis:?} {low} {high}: {marks:?}");
            }
        }
    }
    assert_eq!(label(1.5e-6, None, AxisUnit::Seconds), "1.5 µs");
    assert_eq!(label(4096.0 * 1024.0, None, AxisUnit::Bytes), "4M"); // not a page size
}

#[test]
fn letters_stand_where_values_are() {
    let mut chart = curves(vec![
        series(
            "base",
            &[(65_536.0, 1.0), (1_048_576.0, 10.0), (16_777_216.0, 100.0)],
        ),
        series("thp", &[(65_536.0, 1.0), (16_777_216.0, 50.0)]),
    ]);
    let drawn = text(&chart, 80);
    let rows: Vec<&str> = drawn.lines().collect();
    assert_eq!(rows[0], "ns a read by working set: b base, t thp");
    // The highest row has the largest value, the lowest both of the smallest, side by side.
    assert!(rows[1].ends_with("│          b"), "{drawn}");
    assert!(rows[rows.len() - 3].ends_with("│bt"), "{drawn}");
    assert!(rows.last().unwrap().contains("64K  1M   16M"), "{drawn}");
    let many: Vec<(f64, f64)> = (1..40).map(|n| (f64::from(n), 2.0)).collect();
    chart.series[0] = series("many", &many);
    assert!(text(&chart, 60).lines().all(|l| l.chars().count() <= 60));
    assert_eq!(
        text(
            &curves(vec![series("none", &[(1.0, f64::NAN), (2.0, -1.0)])]),
            60
        ),
        ""
    );
}
