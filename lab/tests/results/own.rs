//! The sections of hugeleaf's own benchmarks: its cost, and comparisons with other tools.

use serde_json::Value;

use hugeleaf_proof::result_format::ResultRow;
use hugeleaf_report::compare::three;

use crate::runs::{Run, Runs, Table, interval, share};

/// Returns programs under `run`: coverage and throughput, compared with all other ways.
pub fn programs(runs: &Runs) -> String {
    let mut out = String::from(
        "Ratios over the bare program, with the 95 % interval. *Others' best* is the largest ratio among THP `always`,\n\
         glibc's two tunables, hugectl, jemalloc and mimalloc.\n\n",
    );
    let mut table = Table::new(&[
        "program",
        "arm",
        "coverage, private",
        "coverage, shared",
        "quantity",
        "over bare",
        "others' best",
        "raw samples",
    ]);
    let mut missed: Vec<String> = Vec::new();
    for run in runs.named("run-") {
        let Some(summary) = run.value["summary"].as_object() else {
            continue;
        };
        missed.extend(
            summary
                .iter()
                .filter(|(key, _)| key.ends_with("missed"))
                .flat_map(|(_, list)| {
                    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
                    let list = list.iter().filter_map(Value::as_str);
                    list.map(|what| format!("{what} ({})", run.name))
                        .collect::<Vec<_>>()
                }),
        );
        for arm in ["run, thp", "run, pool"] {
            let Some(figures) = summary.get(arm).and_then(Value::as_object) else {
                continue;
            };
            for key in figures.keys().filter(|key| key.ends_with("over bare")) {
                let of = |name: &str| {
                    figures
                        .get(name)
                        .and_then(Value::as_f64)
                        .map_or("-".into(), share)
                };
                table.row(&[
                    run.name
                        .trim_start_matches("run-")
                        .trim_end_matches(".json")
                        .to_owned(),
                    arm.to_owned(),
                    of("private on large, share"),
                    of("shared on large, share"),
                    key.trim_end_matches(", over bare").to_owned(),
                    run.three(Some(arm), key)
                        .map_or_else(|| "-".into(), interval),
                    others_best(run, key),
                    run.link(),
                ]);
            }
        }
    }
    out.push_str(&table.text());
    out.push_str(&rates(runs));
    out.push_str(&library(runs));
    out.push_str(&pool(runs));
    out.push_str("Missed requirements, as recorded by the runs:\n\n");
    for what in &missed {
        out.push_str(&format!("- {what}\n"));
    }
    if missed.is_empty() {
        out.push_str("- nothing\n");
    }
    out + "\n"
}

fn others_best(run: &Run, key: &str) -> String {
    let Some(summary) = run.value["summary"].as_object() else {
        return "-".to_owned();
    };
    let ours = |arm: &str| arm == "bare" || arm.starts_with("run,");
    let best = summary
        .keys()
        .filter(|arm| !ours(arm))
        .filter_map(|arm| Some((arm, run.three(Some(arm), key)?)))
        .max_by(|(_, a), (_, b)| a[1].total_cmp(&b[1]));
    // Less resident memory is better, so its largest value has no meaning.
    match best {
        Some((arm, figure)) if !key.starts_with("resident") => {
            format!("{} ({arm})", interval(figure))
        }
        _ => "-".to_owned(),
    }
}

/// Returns the section on hosts with THP `always`: coverage and throughput of each arm, host by host.
pub fn always(runs: &Runs) -> String {
    let all: Vec<&Run> = runs.named("always-").collect();
    let mut text = "THP is `always` in every arm. Figures are medians of ratios over the bare program, with an interval \
                    if there were\nenough rounds.\n"
        .to_owned();
    // They are in the order of their paths, so those of a host are adjacent.
    for of_host in all.chunk_by(|a, b| a.folder == b.folder) {
        text.push_str(&always_on(of_host));
    }
    text
}

/// Returns the runs of one host.
fn always_on(runs: &[&Run]) -> String {
    let mut table = Table::new(&[
        "program",
        "arm",
        "coverage, private",
        "growing",
        "work",
        "resident",
        "raw samples",
    ]);
    let mut rounds: Vec<String> = Vec::new();
    let mut is_off = false;
    for run in runs {
        let summary = run.value["summary"].as_object();
        let (program, _) = run.name.split_once('.').unwrap_or((&run.name, ""));
        let program = program.trim_start_matches("always-");
        rounds.push(format!("{program} {}", run.value["summary"]["rounds"]));
        let arms = summary.into_iter().flatten();
        for (arm, figures) in arms.filter(|(_, figures)| figures.is_object()) {
            let over_bare = |key: &str| {
                let key = format!("{key}, over bare");
                let median = figures[&key].as_f64().map(|ratio| format!("{ratio:.2}"));
                let ratio = run.three(Some(arm), &key).map(interval);
                ratio.or(median).unwrap_or_else(|| "-".to_owned())
            };
            let part = figures["private on large, share"].as_f64();
            is_off |= program == "redis" && part.is_some_and(|part| part < 0.5);
            table.row(&[
                program.to_owned(),
                arm.clone(),
                part.map_or_else(|| "-".to_owned(), share),
                over_bare("grow, operations/s"),
                over_bare("work, operations/s"),
                over_bare("resident, bytes"),
                run.link(),
            ]);
        }
    }
    let host = &runs[0].value["host"];
    let redis = match is_off {
        true => " Redis disabled THP for itself, as it does if THP is `always`.",
        false => " Redis was started with `--disable-thp no`.",
    };
    format!(
        "\n{} processors ({}), Linux {}; rounds: {}.{redis}\n\n{}",
        host["cpus"],
        host["processor"].as_str().unwrap_or_default(),
        host["kernel"].as_str().unwrap_or_default(),
        rounds.join(", "),
        table.text()
    )
}

/// Compares the library that `run` loads, with libc's changed pages from a file in memory, with the previous one, which
/// wrote into them. Both were measured in turn, round by round.
fn library(runs: &Runs) -> String {
    let (Some(before), Some(after)) = (runs.find("library-before"), runs.find("library-after"))
    else {
        return String::new();
    };
    let mut table = Table::new(&[
        "operations per second under `run`",
        "newer over older",
        "rounds",
    ]);
    for row in before.results.iter().flat_map(|results| &results.rows) {
        let operation = row.quantity.name.strip_suffix(", operations/s");
        let Some(operation) = operation.filter(|_| row.arm == "run, thp") else {
            continue;
        };
        let new = after
            .results
            .as_ref()
            .and_then(|r| r.row(&row.arm, &row.at, &row.quantity.name));
        let (old, new) = (row.values(), new.map_or_else(Vec::new, ResultRow::values));
        let mut ratios: Vec<f64> = new.iter().zip(&old).map(|(a, b)| a / b).collect();
        ratios.sort_by(f64::total_cmp);
        let figure = match ratios.as_slice() {
            [] => "-".to_owned(),
            all => format!(
                "{:.2} ({:.2} to {:.2})",
                all[all.len() / 2],
                all[0],
                all[all.len() - 1]
            ),
        };
        table.row(&[operation.to_owned(), figure, ratios.len().to_string()]);
    }
    format!(
        "Two versions of the library that `run` loads. The newer one takes libc's changed pages from a sealed file in memory; the older one\n\
         wrote into them ({}, {}).\n\
         Figures are the median of the rounds' ratios, with the smallest and the largest:\n\n{}\n",
        before.link(),
        after.link(),
        table.text()
    )
}

fn rates(runs: &Runs) -> String {
    let Some(run) = runs.find("run-rates") else {
        return "`run-rates.json`: not measured yet.\n\n".to_owned();
    };
    let mut table = Table::new(&["operations per second under `run`", "over bare"]);
    let keys = run.value["summary"].as_object();
    for key in keys
        .into_iter()
        .flat_map(|s| s.keys())
        .filter(|k| k.ends_with("over bare"))
    {
        let figure = run
            .three(None, key)
            .map_or_else(|| "-".to_owned(), interval);
        table.row(&[key.trim_end_matches(", over bare").to_owned(), figure]);
    }
    format!(
        "The cost of the loaded library ({}):\n\n{}",
        run.link(),
        table.text()
    )
}

fn pool(runs: &Runs) -> String {
    let Some(run) = runs.find("run-pool") else {
        return "`run-pool.json`: not measured yet.\n\n".to_owned();
    };
    let cases = run.value["summary"].as_object();
    let cases: Vec<bool> = (cases.into_iter().flat_map(|s| s.values()))
        .filter_map(|case| case["same_result_as_bare"].as_bool())
        .collect();
    let same = cases.iter().filter(|same| **same).count();
    format!(
        "With the pool drained to nothing, half and two thirds of the need, {same} of {} programs gave the same result as without `run` ({}).\n\n",
        cases.len(),
        run.link()
    )
}

fn not_measured(name: &str) -> [String; 3] {
    [
        format!("`{name}`"),
        "not measured yet".to_owned(),
        "-".to_owned(),
    ]
}

/// Returns the sections on the promotion of running memory, and on the library.
pub fn promotion(runs: &Runs) -> String {
    let mut table = Table::new(&["measurement", "ratio", "raw samples"]);
    if let Some(run) = runs.find("promote") {
        for of in run.value["ratios"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
        {
            let number = |key: &str| of[key].as_f64().unwrap_or(f64::NAN);
            table.row(&[
                format!(
                    "`promote` at full speed over a {}",
                    of["over"].as_str().unwrap_or("-")
                ),
                interval([number("low"), number("median"), number("high")]),
                run.link(),
            ]);
        }
    }
    for name in ["promote-mariadb", "promote-redis"] {
        let Some(run) = runs.find(name) else {
            table.row(&not_measured(name));
            continue;
        };
        for (key, what) in [
            (
                "worst 3 s, promoting over still",
                "throughput of the worst 3 s during promotion, over the worst 3 s before",
            ),
            (
                "worst 3 s, still over still",
                "the same without promotion (noise)",
            ),
        ] {
            let rounds = of_rounds(run, &format!("{key}, by round"));
            let server = name.trim_start_matches("promote-");
            let cell = rounds.map_or_else(|| "-".to_owned(), range);
            table.row(&[format!("{server}: {what}"), cell, run.link()]);
        }
    }
    for name in ["region-populate", "region-read", "region-elastic"] {
        let Some(run) = runs.find(name) else {
            table.row(&not_measured(name));
            continue;
        };
        let keys = run.value["summary"].as_object();
        for key in keys
            .into_iter()
            .flat_map(|s| s.keys())
            .filter(|key| key.contains(" over "))
        {
            if let Some(figure) = run.three(None, key) {
                table.row(&[format!("library: {key}"), interval(figure), run.link()]);
            }
        }
    }
    let text = "Brackets hold the 95 % interval; for the servers, the smallest and the largest round. Rows of the library have\n\
                the names used in their files.\n\n";
    text.to_owned() + &table.text()
}

fn of_rounds(run: &Run, key: &str) -> Option<Vec<f64>> {
    let rounds = run.value["summary"].get(key)?.as_array()?;
    rounds.iter().map(Value::as_f64).collect()
}

/// Formats median, smallest and largest value.
fn range(mut rounds: Vec<f64>) -> String {
    rounds.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (rounds.first(), rounds.last()) else {
        return "-".to_owned();
    };
    interval([*first, rounds[rounds.len() / 2], *last])
}

/// Returns the section on the cost of the screens, relative to its targets.
pub fn looking(runs: &Runs) -> String {
    let mut table = Table::new(&["measurement", "ratio", "raw samples"]);
    if let Some(run) = runs.find("latency") {
        for (key, wanted) in [("status, median", 0.05), ("mem PID of 4G, median", 0.15)] {
            let cell = run
                .figure(key)
                .map_or_else(|| "-".to_owned(), |s| three(s / wanted));
            let what = key.trim_end_matches(", median");
            table.row(&[
                format!("`{what}` over its limit of {} ms", wanted * 1e3),
                cell,
                run.link(),
            ]);
        }
    }
    if let Some(run) = runs.find("mem-shared") {
        for (key, what) in [
            (
                "mem_over_smem",
                "`mem` over `smem`, 48 processes that share a segment (required: at most 0.1)",
            ),
            (
                "mem_96_over_48",
                "`mem` of 96 such processes over 48 (required: at most 1.3)",
            ),
        ] {
            let cell = run.figure(key).map_or_else(|| "-".to_owned(), three);
            table.row(&[what.to_owned(), cell, run.link()]);
        }
    }
    table.text()
}

/// Returns the figures of runs whose names have one of these beginnings, as they are.
pub fn figures(runs: &Runs, begins: &[&str]) -> String {
    let mut table = Table::new(&["run", "quantity", "value", "raw samples"]);
    let number = |value: &Value| {
        value
            .as_f64()
            .map(|n| format!("{}", (n * 1e3).round() / 1e3))
    };
    for run in begins.iter().flat_map(|begin| runs.named(begin)) {
        let summary = run.value["summary"].as_object();
        for (what, value) in summary.into_iter().flatten() {
            let figures = match value.as_array() {
                Some(all) => all.iter().map(number).collect::<Option<Vec<_>>>(),
                None => number(value).map(|one| vec![one]),
            };
            // Lists of words are only in the file.
            let Some(figures) = figures.filter(|all| !all.is_empty()) else {
                continue;
            };
            table.row(&[
                run.name.trim_end_matches(".json").to_owned(),
                what.clone(),
                figures.join("; "),
                run.link(),
            ]);
        }
    }
    table.text()
}

/// Returns the section on the correctness of `prove`.
pub fn prove(runs: &Runs) -> String {
    let Some(run) = runs.find("simulate") else {
        return "`simulate.json`: not measured yet.\n\n".to_owned();
    };
    let mut table = Table::new(&[
        "injected effect",
        "faster",
        "slower",
        "same",
        "interval covers it",
    ]);
    for row in run.value["rows"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
    {
        let s = &row["summary"];
        let part = |key: &str| s[key].as_f64().map_or_else(|| "-".to_owned(), share);
        let effect = s["effect"].as_f64().unwrap_or(f64::NAN);
        table.row(&[
            format!("×{effect:.2}"),
            part("faster"),
            part("slower"),
            part("same"),
            part("covered"),
        ]);
    }
    let noise: Vec<String> = runs.named("noise-").map(Run::link).collect();
    format!(
        "`prove` on simulated experiments over recorded noise, {} ({}):\n\n{}",
        run.link(),
        noise.join(", "),
        table.text()
    ) + &scenarios(run)
        + &one_recording(runs)
        + &prove_on_a_server(runs)
}

/// Returns the same for scenarios that servers' loads are known for.
fn scenarios(run: &Run) -> String {
    let of = |row: &Value, effect: f64, key: &str| {
        let rows = row["rows"].as_array().into_iter().flatten();
        let mut found = rows.filter(|s| s["effect"].as_f64() == Some(effect));
        found.next().and_then(|s| s[key].as_f64())
    };
    let cell = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), share);
    let mut table = Table::new(&["scenario", "false calls", "interval covers ×1.05"]);
    for row in run.value["scenarios"].as_array().into_iter().flatten() {
        let calls = (of(row, 1.0, "faster").zip(of(row, 1.0, "slower"))).map(|(a, b)| a + b);
        table.row(&[
            row["scenario"].as_str().unwrap_or("-").to_owned(),
            cell(calls),
            cell(of(row, 1.05, "covered")),
        ]);
    }
    format!(
        "\nThe same for typical changes of a load. A false call is `faster` or `slower` without an effect. Required in each scenario are at most 6 %\n\
         false calls, and intervals that cover the effect in at least 94 % ({}):\n\n{}",
        run.link(),
        table.text()
    )
}

/// Returns the same for each recording alone, since an easy one can hide a difficult one.
fn one_recording(runs: &Runs) -> String {
    let each = runs.named("simulate-").map(|run| {
        let of = |effect: f64, key: &str| {
            let rows = run.value["rows"].as_array().into_iter().flatten();
            let mut rows = rows.map(|row| &row["summary"]);
            let found = rows.find(|s| s["effect"].as_f64() == Some(effect));
            found.and_then(|s| s[key].as_f64()).unwrap_or(f64::NAN)
        };
        format!(
            "{} false calls, {} covered ({})",
            share(of(1.0, "faster") + of(1.0, "slower")),
            share(of(1.05, "covered")),
            run.link()
        )
    });
    let each: Vec<String> = each.collect();
    let mut out = "\n".to_owned();
    if !each.is_empty() {
        out.push_str(&format!(
            "On each recording alone: {}.\n\n",
            each.join("; ")
        ));
    }
    let newest = runs.find("simulate").map(Run::path);
    let older = runs.named("simulate.json");
    let older = older
        .filter(|run| Some(run.path()) != newest)
        .map(Run::link);
    let older: Vec<String> = older.collect();
    if !older.is_empty() {
        out.push_str(&format!(
            "An older version drew the order of each pair independently, and spent a quarter of the error probability on interim looks: {}.\n\n",
            older.join(", ")
        ));
    }
    out
}

/// Returns the section on `prove` on PostgreSQL in a virtual machine, with its experiments of two equal arms.
fn prove_on_a_server(runs: &Runs) -> String {
    let mut out = String::new();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or("-").to_owned();
    if let Some(run) = runs.find("prove-postgresql") {
        let number = |key: &str| run.value["effect"][key].as_f64().unwrap_or(f64::NAN);
        out.push_str(&format!(
            "`prove` on PostgreSQL, whose shared memory is demoted through debugfs, in a virtual machine (kernel {}, emulated\nprocessors): {} ×{:.2} [{:.2}, {:.2}], {} pairs in random order ({}).\n\n",
            text(&run.value["host"], "kernel"),
            text(&run.value, "verdict"),
            number("ratio"),
            number("low"),
            number("high"),
            run.value["pairs"].as_array().map_or(0, Vec::len),
            run.link()
        ));
    }
    if let Some(run) = runs.find("prove-postgresql-same-pages") {
        let all = run.value["runs"].as_array().map_or(&[][..], Vec::as_slice);
        let calls = |verdict: &str| all.iter().filter(|r| text(r, "verdict") == verdict).count();
        let covers = |run: &&Value| {
            let of = |key: &str| run["effect"][key].as_f64().unwrap_or(f64::NAN);
            of("low") <= 1.0 && 1.0 <= of("high")
        };
        out.push_str(&format!(
            "Smaller servers (32M) in the same virtual machine, with both arms on the same pages (`--same-pages`), in {} experiments: {} false calls\n({} faster, {} slower). The interval contains ×1 in {} of them ({}).\n\n",
            all.len(),
            calls("faster") + calls("slower"),
            calls("faster"),
            calls("slower"),
            all.iter().filter(covers).count(),
            run.link()
        ));
    }
    out
}

/// Returns the section on the cost of a trace, and its comparison with `perf`.
#[expect(clippy::too_many_lines, reason = "one page")]
pub fn trace(runs: &Runs) -> String {
    let mut out = String::new();
    if let Some(run) = runs.find("trace-agreement") {
        let points = |key: &str| {
            run.figure(key)
                .map_or_else(|| "-".to_owned(), |p| format!("{p:.1}"))
        };
        out.push_str(&format!(
            "Compared with `perf report` and `perf lock contention` on the same run, entries of 5 % and more differ by at most {} points in\nthe profile and {} in the lock table ({}).\n\n",
            points("profile, largest difference, points"),
            points("locks, largest difference, points"),
            run.link()
        ));
    }
    if let Some(run) = runs.find("trace-size") {
        let figure = |key: &str| run.figure(key).unwrap_or(f64::NAN);
        out.push_str(&format!(
            "A trace of half a minute on a busy host has {:.1} MB, and its page is drawn in {:.2} s. The limits are 20 MB and 2 s ({}).\n\n",
            figure("file of 30 s, bytes") / 1e6,
            figure("page of 30 s, seconds"),
            run.link()
        ));
    }
    let mut table = Table::new(&[
        "load",
        "throughput, traced over not traced",
        "required",
        "raw samples",
    ]);
    for (file, key, what, wanted) in [
        (
            "trace-pgbench",
            "pgbench read-only, traced over not: low, median, high",
            "pgbench, read-only",
            "0.97",
        ),
        (
            "trace-pgbench",
            "pgbench tpcb, traced over not: low, median, high",
            "pgbench, TPC-B",
            "0.97",
        ),
        (
            "trace-locks",
            "locks, traced over not: low, median, high",
            "threads that contend for locks",
            "0.9",
        ),
    ] {
        let run = runs.find(file);
        let cell = run.and_then(|run| run.three(None, key));
        table.row(&[
            what.to_owned(),
            cell.map_or_else(|| "not measured yet".to_owned(), interval),
            format!("at least {wanted}"),
            run.map_or_else(|| format!("`{file}.json`"), Run::link),
        ]);
    }
    let names = [
        "trace-agreement",
        "trace-pgbench",
        "trace-locks",
        "trace-size",
    ];
    let shown: Vec<String> = names
        .iter()
        .filter_map(|name| runs.find(name).map(Run::link))
        .collect();
    let others: Vec<String> = runs
        .named("trace-")
        .map(Run::link)
        .filter(|link| !shown.contains(link))
        .collect();
    out.push_str(&table.text());
    if !others.is_empty() {
        out.push_str(&format!("Other runs: {}.\n\n", others.join(", ")));
    }
    out + "Brackets hold the 95 % interval of the median of the rounds; with fewer than six rounds, the smallest and the largest.\n\n"
}
