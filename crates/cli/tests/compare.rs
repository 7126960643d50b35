//! Tests `hugeleaf compare` on the committed runs, on derived files, and on invalid input.

use std::path::{Path, PathBuf};

use crate::common::{good, refused, repository, run, stderr, stdout};
use hugeleaf_proof::result_format::{ArmInfo, Quantity, Results, Sample, fields};
use serde_json::{Value, json};

/// Returns the first committed run of this name; new runs of a benchmark are in a new folder.
fn committed(name: &str) -> String {
    let folders = std::fs::read_dir(repository().join("bench/runs")).unwrap();
    let paths = folders.map(|folder| folder.unwrap().path().join(name));
    let first = paths.filter(|path| path.exists()).min();
    let first = first.unwrap_or_else(|| panic!("no run is called {name}"));
    first.to_str().unwrap().to_owned()
}

fn read(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn write(folder: &Path, name: &str, value: &Value) -> String {
    let path: PathBuf = folder.join(name);
    std::fs::write(&path, value.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns a named result with kernel, command and a caveat, but without arms and rows.
fn empty(name: &str) -> Results {
    let mut results = Results::empty(name, "2026-01-02T03:04:05Z");
    results.host = fields(&json!({"kernel": "6.1", "cpus": 2, "nodes": 1, "base_page_bytes": 1}));
    results.command = vec!["hugeleaf".to_owned(), name.to_owned()];
    results
}

/// Returns a result of `hugeleaf-lab oltp` with one run per round and arm.
fn oltp(arms: &[(&str, &[f64])], cache: u64) -> Value {
    let mut results = empty("oltp");
    results.caveats = vec!["no TPC-C result".to_owned()];
    results.settings = fields(&json!({
        "connections": 2, "for_seconds": 10.0, "seed": 1, "knobs": [],
        "database": {"name": "sqlite:x", "version": "SQLite 3", "cache_bytes": cache},
    }));
    for (label, samples) in arms {
        results.arms.push(ArmInfo::named(*label));
        for (round, notpm) in samples.iter().enumerate() {
            for (quantity, value) in [
                (Quantity::rate("NOTPM", "NOTPM").main(), *notpm),
                (Quantity::time("New-Order p99", "seconds"), 60.0 / notpm),
                (Quantity::amount("logical reads a transaction", ""), 40.0),
                (Quantity::amount("page tables", "bytes"), 1_048_576.0),
                (Quantity::plain("measured", "seconds"), 10.0),
            ] {
                results.add(label, &[], quantity, Sample::new(round, value));
            }
        }
    }
    serde_json::to_value(results).unwrap()
}

const BASE: [f64; 6] = [30_000.0, 30_300.0, 29_800.0, 30_100.0, 29_900.0, 30_200.0];
const LARGE: [f64; 6] = [36_000.0, 36_300.0, 35_800.0, 36_100.0, 35_900.0, 36_200.0];

fn line<'a>(text: &'a str, words: &[&str]) -> &'a str {
    let mut lines = text.lines();
    let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
    found.unwrap_or_else(|| panic!("no line with {words:?} in:\n{text}"))
}

#[test]
fn every_committed_result_is_the_same_as_itself() {
    let mut compared = 0;
    let folder = repository().join("bench/runs");
    for path in crate::common::files_below(&folder) {
        let path = folder.join(path).to_str().unwrap().to_owned();
        let is_json = path.ends_with(".json");
        // The folder also has a recording, a calculation and a few summaries.
        let has_samples = |row: &Value| row["samples"].as_array().is_some_and(|s| !s.is_empty());
        let is_result = |v: Value| {
            v["rows"]
                .as_array()
                .is_some_and(|rows| rows.iter().any(has_samples))
        };
        if !is_json || !is_result(read(&path)) {
            continue;
        }
        let answer: Value =
            serde_json::from_str(&good(&run(&["compare", &path, &path, "--json"]))).unwrap();
        for row in answer["rows"].as_array().unwrap() {
            let of = |side: &str| row[side]["median"].as_f64().unwrap();
            assert!(row["ratio"].is_null() || (row["ratio"].as_f64().unwrap() - 1.0).abs() < 1e-9);
            assert!((of("a") - of("b")).abs() < 1e-9, "{path}: {row}");
            match row["verdict"].as_str() {
                Some(verdict) => assert!(matches!(verdict, "same" | "unclear"), "{path}: {row}"),
                None => assert!(row["not_compared"].is_string(), "{path}: {row}"),
            }
        }
        compared += 1;
    }
    assert!(compared >= 60, "{compared}");
}

#[test]
fn two_files_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a.json", &oltp(&[("base", &BASE)], 1 << 30));
    let b = write(
        folder.path(),
        "b.json",
        &oltp(&[("base", &LARGE), ("thp:2M", &LARGE)], 1 << 29),
    );
    let text = good(&run(&["compare", &a, &b]));
    let notpm = line(&text, &["base", "NOTPM", "faster"]);
    assert!(notpm.contains("+20") && notpm.contains("1.20"), "{text}");
    line(&text, &["base", "New-Order p99", "faster", "-16.6 %"]);
    line(&text, &["base", "logical reads a transaction", "equal"]);
    line(&text, &["thp:2M", "NOTPM", "only in B"]);
    line(&text, &["database.cache_bytes: 1G in A, 512M in B"]);
    // In the other direction it is slower.
    let text = good(&run(&["compare", &b, &a]));
    line(&text, &["base", "NOTPM", "slower"]);
    // With `--equal 30%`, a fifth more counts as equal.
    let text = good(&run(&["compare", &a, &b, "--equal", "30%"]));
    line(&text, &["base", "NOTPM", "equal"]);
}

#[test]
fn arms_of_one_file_are_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let one = oltp(
        &[
            ("base", &BASE),
            ("hugetlb:2M", &LARGE),
            ("promoted", &LARGE),
        ],
        1 << 30,
    );
    let one = write(folder.path(), "a.json", &one);
    let ask = |arms: &str| -> Value {
        serde_json::from_str(&good(&run(&["compare", &one, "--arms", arms, "--json"]))).unwrap()
    };
    let answer = ask("hugetlb:2M,promoted");
    let row = &answer["rows"][0];
    assert_eq!(
        (&row["what"], &row["verdict"]),
        (&json!("NOTPM"), &json!("same"))
    );
    assert_eq!(row["effect"]["method"], "signed-rank");
    assert_eq!(answer["a"]["arm"], "hugetlb:2M");
    assert_eq!(ask("base,promoted")["rows"][0]["verdict"], "faster");
    let text = good(&run(&[
        "compare",
        &committed("mover.json"),
        "--arms",
        "scattered,hugetlb:2M",
    ]));
    line(&text, &["direct", "data moved", "faster"]);
    line(&text, &["direct", "CPU of the process a GiB", "less"]);
    refused(
        &run(&["compare", &one, "--arms", "base,1G"]),
        2,
        &[
            "'1G'",
            "base, hugetlb:2M, promoted",
            "--arms base,hugetlb:2M",
        ],
    );
    refused(
        &run(&["compare", &one, "--arms", "base,base"]),
        2,
        &["twice"],
    );
    refused(&run(&["compare", &one, "--arms", "base"]), 2, &["two arms"]);
    refused(&run(&["compare", &one]), 2, &["<B>"]);
}

/// Returns a result of `prove` with six pairs.
fn prove(base: &[f64; 6], large: &[f64; 6]) -> Value {
    let mut results = empty("get");
    results.experiment.target = Some("redis (7)".to_owned());
    results.settings = fields(&json!({"interval_seconds": 2.0, "seed": 1, "knobs": []}));
    for (arm, samples) in [("base", base), ("large", large)] {
        results.arms.push(ArmInfo::named(arm));
        for (pair, value) in samples.iter().enumerate() {
            let get = Quantity::rate("get", "operations/s").main();
            results.add(arm, &[], get, Sample::new(pair, *value));
        }
    }
    serde_json::to_value(results).unwrap()
}

/// Between hosts only gains are comparable: one host is twice as fast, the gain is the same.
#[test]
fn two_experiments_of_prove_and_their_gains() {
    let folder = tempfile::tempdir().unwrap();
    let a = write(folder.path(), "a.json", &prove(&BASE, &LARGE));
    let twice = |samples: &[f64; 6]| samples.map(|sample| 2.0 * sample);
    let b = write(
        folder.path(),
        "b.json",
        &prove(&twice(&BASE), &twice(&LARGE)),
    );
    let text = good(&run(&["compare", &a, &b]));
    line(&text, &["base", "get", "faster", "+100 %"]);
    line(&text, &["large", "get over base", "1.20", "equal"]);
    let text = good(&run(&["compare", &a, "--arms", "base,large"]));
    line(&text, &["get", "faster", "+20"]);
}

#[test]
fn what_cannot_be_compared_is_refused_in_two_lines() {
    let folder = tempfile::tempdir().unwrap();
    let good_one = oltp(&[("base", &BASE)], 1 << 30);
    let one = write(folder.path(), "one.json", &good_one);
    let with = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut value = good_one.clone();
        change(&mut value);
        write(folder.path(), name, &value)
    };
    let no = |other: &str, words: &[&str]| {
        refused(&run(&["compare", &one, other]), 1, words);
    };
    no(
        &committed("chase.json"),
        &["oltp (NOTPM", "chase (ns", "not comparable"],
    );
    no(
        &committed("run-redis.json"),
        &["oltp (NOTPM", "run-redis", "not comparable"],
    );
    no(
        &committed("noise-redis.json"),
        &["noise-redis.json", "schema"],
    );
    let other = with("version.json", &|v| v["schema"] = json!(3));
    no(&other, &["version.json", "schema 3"]);
    let other = with("older.json", &|v| v["schema"] = json!(1));
    no(
        &other,
        &["older.json", "an older hugeleaf wrote it", "measure again"],
    );
    let other = with("unit.json", &|v| {
        for row in v["rows"].as_array_mut().unwrap() {
            if row["quantity"]["main"] == true {
                row["quantity"]["unit"] = json!("TPS");
            }
        }
    });
    no(&other, &["NOTPM", "TPS"]);
    let other = with("stopped.json", &|v| {
        v["experiment"]["ending"] = json!("interrupted");
        for row in v["rows"].as_array_mut().unwrap() {
            row["samples"] = json!([]);
        }
    });
    no(&other, &["stopped.json", "no samples", "interrupted"]);
    let other = with("arms.json", &|v| {
        v["arms"][0]["name"] = json!("thp:2M");
        for row in v["rows"].as_array_mut().unwrap() {
            row["arm"] = json!("thp:2M");
        }
    });
    no(&other, &["no row in common", "--arms"]);
    let cut = folder.path().join("cut.json");
    let text = good_one.to_string();
    let half = (text.len() / 2..)
        .find(|at| text.is_char_boundary(*at))
        .unwrap();
    std::fs::write(&cut, &text[..half]).unwrap();
    no(cut.to_str().unwrap(), &["cut.json", "ends in the middle"]);
    std::fs::write(&cut, b"\xff\xfe").unwrap();
    no(cut.to_str().unwrap(), &["is not text"]);
    no("/dev/zero", &["/dev/zero"]);
    let gone = folder.path().join("gone.json");
    refused(
        &run(&["compare", &one, gone.to_str().unwrap()]),
        3,
        &["gone.json", "No such file"],
    );
}

#[test]
fn an_interrupted_result_with_samples_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let mut value = oltp(&[("base", &BASE)], 1 << 30);
    let one = write(folder.path(), "one.json", &value);
    value["experiment"]["ending"] = json!("interrupted");
    value["host"]["kernel"] = json!("6.9");
    let other = write(folder.path(), "other.json", &value);
    let answer: Value =
        serde_json::from_str(&good(&run(&["compare", &one, &other, "--json"]))).unwrap();
    assert_eq!(answer["b"]["is_interrupted"], true);
    let notes = answer["notes"].as_array().unwrap();
    let kernel = notes
        .iter()
        .find(|note| note["name"] == "host.kernel")
        .unwrap();
    assert_eq!((&kernel["a"], &kernel["b"]), (&json!("6.1"), &json!("6.9")));
    assert!(
        notes
            .iter()
            .any(|note| note["text"].as_str().unwrap().contains("interrupted"))
    );
    for row in answer["rows"].as_array().unwrap() {
        assert_eq!(row["notes"].as_array().unwrap().len(), 2, "{row}");
    }
}

/// Creates a folder with one result.
fn set(below: &Path, name: &str, base: &[f64]) -> String {
    let folder = below.join(name);
    std::fs::create_dir(&folder).unwrap();
    write(&folder, "oltp.json", &oltp(&[("base", base)], 1 << 30));
    folder.to_str().unwrap().to_owned()
}

#[test]
fn of_two_folders_what_was_counted_can_be_asked_for() {
    let below = tempfile::tempdir().unwrap();
    let (a, b) = (
        set(below.path(), "a", &BASE),
        set(below.path(), "b", &LARGE),
    );
    let counts = good(&run(&["compare", &a, &b, "--counts"]));
    line(&counts, &["oltp", "base", "page tables", "1M", "equal"]);
    assert!(!counts.contains("NOTPM"), "{counts}");
    let timed = good(&run(&["compare", &a, &b]));
    line(&timed, &["oltp", "base", "better"]);
    assert!(!timed.contains("page tables"), "{timed}");
    let files = [&a, &b].map(|folder| format!("{folder}/oltp.json"));
    refused(
        &run(&["compare", &files[0], &files[1], "--counts"]),
        2,
        &["two directories"],
    );
    // Counters have no main metric. Two equal sets failed, because some counters are zero.
    for flags in [
        ["--counts", "--fail-if-slower=2%"],
        ["--fail-if-slower=2%", "--counts"],
    ] {
        let both = run(&["compare", &a, &a, flags[0], flags[1]]);
        refused(&both, 2, &["--counts", "--fail-if-slower"]);
    }
}

#[test]
fn many_folders_are_a_history_with_a_page() {
    let below = tempfile::tempdir().unwrap();
    let slow = BASE.map(|value| value * 0.9);
    let all = [("1-old", &BASE), ("2-fast", &LARGE), ("3-slow", &slow)]
        .map(|(name, samples)| set(below.path(), name, samples));
    let page = below.path().join("history.html");
    let html = ["--html", page.to_str().unwrap()];
    let sets: Vec<&str> = all.iter().map(String::as_str).collect();
    let arguments = [&["compare", "--history"], sets.as_slice(), &html].concat();
    let output = run(&arguments);
    let text = stdout(&output);
    assert!(output.status.success() && stderr(&output).contains("history.html"));
    line(&text, &["WORKLOAD", "2-fast", "3-slow", "LATEST"]);
    line(&text, &["oltp", "base", "+20.", "-10.0 %", "worse"]);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("1-old"), "{html}");

    let arguments = [&["compare", "--json", "--history"], sets.as_slice()].concat();
    let answer: Value = serde_json::from_str(&good(&run(&arguments))).unwrap();
    assert_eq!(answer["sets"], json!(["1-old", "2-fast", "3-slow"]));
    assert_eq!(answer["rows"][0]["points"][1]["verdict"], "slower");

    let arguments = [
        &["compare", "--fail-if-slower", "2%", "--history"],
        sets.as_slice(),
    ]
    .concat();
    assert_eq!(run(&arguments).status.code(), Some(1));
    // The last set counts, not those in between.
    let back = [
        "compare",
        "--fail-if-slower",
        "2%",
        "--history",
        sets[0],
        sets[2],
        sets[1],
    ];
    assert_eq!(run(&back).status.code(), Some(0));

    // A workload missing in the last set counts as not compared.
    let file = format!("{}/oltp.json", sets[0]);
    std::fs::write(
        format!("{}/other.json", sets[0]),
        std::fs::read(file).unwrap().as_slice(),
    )
    .unwrap();
    let output = run(&back);
    assert_eq!(output.status.code(), Some(1));
    line(&stderr(&output), &["not compared", "only in A"]);

    let nothing = below.path().join("nothing");
    std::fs::create_dir(&nothing).unwrap();
    let nothing = nothing.to_str().unwrap();
    refused(
        &run(&["compare", "--history", sets[0], nothing]),
        1,
        &["first folder"],
    );
    refused(&run(&["compare", "--history", sets[0]]), 2, &["--history"]);
}

/// Returns each B that cannot be compared with a valid A, and a word of the reason.
fn incomparable(good_one: &Value) -> [(&'static str, Option<String>, &'static str); 8] {
    let text = good_one.to_string();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = good_one.clone();
        change(&mut value);
        value.to_string()
    };
    let samples = |value: &dyn Fn(usize) -> f64| {
        with(&|v| {
            let row = &mut v["rows"][0];
            assert_eq!(row["quantity"]["main"], true);
            for n in 0..6 {
                row["samples"][n]["value"] = json!(value(n));
            }
        })
    };
    let without_arm = with(&|v| {
        let rows = v["rows"].as_array_mut().unwrap();
        rows.retain(|row| row["arm"] == "base");
    });
    let few = with(&|v| v["rows"][0]["samples"].as_array_mut().unwrap().truncate(2));
    [
        ("lacking", None, "only in A"),
        ("garbage", Some("{]".to_owned()), "not JSON"),
        (
            "cut",
            Some(text[..text.len() / 2].to_owned()),
            "ends in the middle",
        ),
        ("arm", Some(without_arm), "only A has samples of thp:2M"),
        ("zero", Some(samples(&|_| 0.0)), "not above 0"),
        ("negative", Some(samples(&|_| -5.0)), "not above 0"),
        (
            "second",
            Some(samples(&|n| (n % 2) as f64)),
            "3 of 6 samples",
        ),
        ("few", Some(few), "too few samples"),
    ]
}

/// Each failed comparison stops a release, with its file and the reason.
#[test]
fn a_comparison_that_could_not_be_made_is_not_no_difference() {
    let below = tempfile::tempdir().unwrap();
    let good_one = oltp(&[("base", &BASE), ("thp:2M", &LARGE)], 1 << 30);
    let text = good_one.to_string();
    for (name, b, cause) in incomparable(&good_one) {
        let folder = |side: &str| {
            let folder = below.path().join(format!("{name}-{side}"));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("kept.json"), prove(&BASE, &BASE).to_string()).unwrap();
            folder
        };
        let (a, other) = (folder("a"), folder("b"));
        std::fs::write(a.join("oltp.json"), &text).unwrap();
        if let Some(b) = &b {
            std::fs::write(other.join("oltp.json"), b).unwrap();
        }
        let mut both = vec![[a.clone(), other.clone()]];
        if b.is_some() {
            both.push([a, other].map(|folder| folder.join("oltp.json")));
        }
        for paths in both {
            let [a, b] = paths.each_ref().map(|path| path.to_str().unwrap());
            let output = run(&["compare", a, b, "--fail-if-slower", "50%"]);
            assert_eq!(output.status.code(), Some(1), "{name}: {}", stdout(&output));
            let said = stderr(&output);
            assert!(
                said.contains(cause) && said.contains("oltp"),
                "{name}: {said}"
            );
            // Without the flag, failed comparisons are only listed.
            if b.ends_with("-b") {
                let shown = good(&run(&["compare", a, b]));
                assert!(
                    shown.replace("\n", " ").contains("left out"),
                    "{name}: {shown}"
                );
            }
        }
    }
    // Undamaged results pass.
    let folder = below.path().join("zero-a");
    let folder = folder.to_str().unwrap();
    good(&run(&[
        "compare",
        folder,
        folder,
        "--fail-if-slower",
        "50%",
    ]));
}

#[test]
fn numbers_of_any_size_are_short() {
    let folder = tempfile::tempdir().unwrap();
    let huge = oltp(&[("base", &[1e308; 6])], 1 << 30);
    let one = write(folder.path(), "one.json", &huge);
    let other = write(
        folder.path(),
        "other.json",
        &oltp(&[("base", &BASE)], 1 << 30),
    );
    for text in [
        run(&["compare", &one, &one]),
        run(&["compare", &other, &one]),
    ]
    .map(|o| good(&o))
    {
        assert!(text.lines().all(|line| line.len() < 200), "{text}");
        line(&text, &["NOTPM", "e308"]);
    }
}
