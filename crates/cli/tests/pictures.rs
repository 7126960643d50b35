//! The pictures in README.md: a screen of a captured host as written to a terminal, and the chart of a committed experiment.
//!
//! After an intended change, `HUGELEAF_BLESS=1 cargo test -p hugeleaf-cli --test cli pictures` redraws them; check them in light and dark
//! mode.

use std::process::{Command, Stdio};

use crate::common::{not_run, repository};
use hugeleaf_report::chart;
use hugeleaf_report::document::{Axis, AxisUnit, Chart, ChartKind, Point, Series};
use serde_json::Value;

/// Compares a picture with the committed one, or writes it.
fn compare(name: &str, drawn: &str) {
    let path = repository().join("docs/pictures").join(name);
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        std::fs::write(&path, drawn).unwrap();
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == drawn,
        "docs/pictures/{name} is not what the program draws; look at what \
         `HUGELEAF_BLESS=1 cargo test -p hugeleaf-cli --test cli pictures` changes"
    );
}

/// Returns a command's terminal output with colours; `None` without script(1).
fn on_a_terminal(command: &str) -> Option<String> {
    let written = Command::new("script")
        .args(["--quiet", "--return", "--command", command, "/dev/null"])
        .current_dir(repository())
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    assert!(
        written.status.code().is_some_and(|code| code < 2),
        "{written:?}"
    );
    Some(String::from_utf8(written.stdout).unwrap().replace('\r', ""))
}

#[test]
fn the_screen_is_what_the_program_writes() {
    let mut screen = String::new();
    for command in ["mem", "why"] {
        let arguments = format!("{command} redis-server --root fixtures/why/redis-disabled");
        let program = env!("CARGO_BIN_EXE_hugeleaf");
        let Some(written) = on_a_terminal(&format!("'{program}' {arguments}")) else {
            return not_run(
                "the_screen_is_what_the_program_writes",
                "script (util-linux) is not installed",
            );
        };
        screen.push_str(&format!(
            "\x1b[1m$ hugeleaf {arguments}\x1b[0m\n{written}\n"
        ));
    }
    // This palette's yellow is readable on black, unlike that of VGA.
    let term = anstyle_svg::Term::new().palette(anstyle_svg::WIN10_CONSOLE);
    compare(
        "why.svg",
        &(term.render_svg(screen.trim_end())
            + "
"),
    );
}

#[test]
fn the_chart_is_that_of_the_committed_experiment() {
    let path = repository().join("bench/runs/2026-11-22-vm/oltp-sqlite-prove.json");
    let text = std::fs::read_to_string(path).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    compare("prove.svg", &(chart::svg(&pairs(&result)).unwrap() + "\n"));
    let of = |key: &str| result["effect"][key].as_f64().unwrap();
    let effect = format!("×{:.3} [{:.3}, {:.3}]", of("ratio"), of("low"), of("high"));
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(readme.contains(&effect), "README.md does not say {effect}");
}

/// Returns the chart of a `prove` page: each pair, and the overall estimate.
fn pairs(result: &Value) -> Chart {
    let ratios = result["pairs"].as_array().unwrap().iter();
    let ratios = ratios.map(|pair| pair["ratio"].as_f64().unwrap());
    let points = (1u32..).zip(ratios).map(|(n, y)| Point {
        x: f64::from(n),
        y,
        ..Point::default()
    });
    let points: Vec<Point> = points.collect();
    let of = |key: &str| result["effect"][key].as_f64().unwrap();
    let estimate = Point {
        x: 0.5,
        width: points.last().unwrap().x,
        y: of("ratio"),
        interval: Some((of("low"), of("high"))),
        ..Point::default()
    };
    Chart {
        kind: ChartKind::Dots,
        x: Axis {
            name: "pair".to_owned(),
            ..Axis::default()
        },
        y: Axis {
            unit: AxisUnit::Ratio,
            level: Some(1.0),
            ..Axis::default()
        },
        series: vec![
            Series {
                name: "a pair".to_owned(),
                points,
            },
            Series {
                name: "estimate and interval".to_owned(),
                points: vec![estimate],
            },
        ],
        ..Chart::default()
    }
}
