//! Sections of the results of `bench`: each arm relative to the first, row by row.

use hugeleaf_proof::compare::ComparedRow;
use hugeleaf_proof::result_format::{Parameter, Results};

use crate::runs::{Run, Runs, Table, over, ratio};

/// Subjects of files, by the beginning of their names.
const OLTP: [(&str, &str); 5] = [
    ("oltp-sqlite", "SQLite, all data in its cache"),
    ("oltp-postgres", "PostgreSQL, all data in shared_buffers"),
    ("oltp-cache", "SQLite, by size of the cache"),
    ("oltp-connections", "PostgreSQL, by number of connections"),
    (
        "oltp-noncached",
        "SQLite, with a cache of a fifth of the data",
    ),
];

/// Additional quantities with a column, and its head.
const ALSO_MEASURED: [(&str, &str); 15] = [
    ("throughput, settled", "settled"),
    ("worst 3 s", "worst 3 s"),
    ("logical reads an operation", "logical reads each"),
    ("physical reads an operation", "physical reads each"),
    ("resident, most", "resident, most"),
    ("CPU of the process a GiB", "CPU a GiB"),
    ("lock and unlock, mean", "lock and unlock"),
    ("CPU of one", "CPU of one"),
    ("CPU a transaction", "CPU a transaction"),
    ("New-Order p99", "New-Order p99"),
    ("logical reads a transaction", "logical reads each"),
    ("physical reads a transaction", "physical reads each"),
    ("physical writes a transaction", "physical writes each"),
    ("page tables", "page tables"),
    ("dependent read", "dependent read"),
];

/// Returns the section on page size and throughput.
pub fn text(runs: &Runs) -> String {
    let mut out = String::new();
    for (begin, what) in OLTP {
        out.push_str(&format!("### {what}\n\n"));
        let mut files = runs.named(begin).peekable();
        if files.peek().is_none() {
            out.push_str(&format!("`{begin}*.json`: not measured yet.\n\n"));
        }
        for run in files {
            out.push_str(&of_run(run));
        }
    }
    let is_known = |run: &&Run| OLTP.iter().any(|(begin, _)| run.name.starts_with(begin));
    let others: Vec<&Run> = runs.named("oltp").filter(|run| !is_known(run)).collect();
    if !others.is_empty() {
        out.push_str("### Other runs of the same load\n\n");
    }
    for run in others {
        out.push_str(&of_run(run));
    }
    out
}

/// Returns the shares of time of a profile, each with its name.
fn shares(run: &Run) -> String {
    let Some(summary) = run.value["summary"].as_object() else {
        return format!("{}: not readable as a result.\n\n", run.link());
    };
    let mut out = format!("{}, medians of its rounds:\n\n", run.link());
    for (name, value) in summary {
        if let Some(share) = value.as_f64() {
            out.push_str(&format!("- {name}: {:.1} %\n", share * 100.0));
        }
    }
    out.push('\n');
    out
}

/// Returns all arms of a result relative to its first, with the circumstances of the measurement.
pub fn of_run(run: &Run) -> String {
    let measured = match &run.results {
        Some(measured) if measured.rows.iter().any(|row| row.quantity.main) => measured,
        _ => return shares(run),
    };
    let arms = measured.arm_names();
    let Some((first, others)) = arms.split_first() else {
        return String::new();
    };
    let mut out = format!("{}, {}.\n\n", run.link(), about(run, measured, first));
    if others.is_empty() {
        out.push_str("It has one arm, so there is no comparison.\n\n");
        return out;
    }
    let rows: Vec<(&String, Vec<ComparedRow>)> = (others.iter())
        .map(|arm| (arm, over(run, arm, first)))
        .collect();
    out.push_str(&table(&rows, measured));
    let notes: Vec<String> = measured
        .rows
        .iter()
        .filter(|row| row.quantity.main)
        .filter_map(|row| Some(format!("{}: {}", row.arm, measured.remark_of(row)?)))
        .collect();
    let mut seen: Vec<String> = Vec::new();
    for note in notes {
        if !seen.contains(&note) {
            seen.push(note);
        }
    }
    for note in &seen {
        out.push_str(&format!("- {note}\n"));
    }
    if !seen.is_empty() {
        out.push('\n');
    }
    out
}

fn about(run: &Run, measured: &Results, first: &str) -> String {
    let rounds = run.value["settings"]["rounds"].as_u64();
    let mains = measured.rows.iter().filter(|row| row.quantity.main);
    let samples = mains.map(|row| row.samples.len()).max();
    let rounds = rounds.map_or_else(
        || match samples {
            Some(0 | 1) | None => "counted once".to_owned(),
            Some(samples) => format!("up to {samples} samples per arm"),
        },
        |rounds| format!("{rounds} interleaved rounds"),
    );
    let database = &run.value["settings"]["database"];
    let on = match database["version"].as_str() {
        Some(version) => format!(
            "{version}, {} warehouses, cache {}; ",
            database["warehouses"],
            hugeleaf_units::Bytes(database["cache_bytes"].as_u64().unwrap_or(0)),
        ),
        None => String::new(),
    };
    format!("{on}over `{first}`, {rounds}, {}", measured.in_words())
}

fn table(rows: &[(&String, Vec<ComparedRow>)], measured: &Results) -> String {
    let all = || rows.iter().flat_map(|(_, rows)| rows);
    let also: Vec<(&str, &str)> = ALSO_MEASURED
        .into_iter()
        .filter(|(name, _)| {
            all().any(|row| !row.quantity.main && row.quantity.name == *name && row.ratio.is_some())
        })
        .collect();
    let mut places: Vec<&Parameter> = Vec::new();
    for place in all().flat_map(|row| &row.at) {
        if places.iter().all(|known| known.name != place.name) {
            places.push(place);
        }
    }
    let mut heads: Vec<String> = vec!["pages".to_owned()];
    heads.extend(places.iter().map(|place| place.head()));
    heads.push(main_name(measured));
    heads.extend(also.iter().map(|(_, head)| (*head).to_owned()));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new(&heads);
    for (arm, rows) in rows {
        let mains: Vec<&ComparedRow> = rows
            .iter()
            .filter(|row| row.quantity.main && row.ratio.is_some())
            .collect();
        if mains.is_empty() {
            let mut cells = vec![(*arm).clone()];
            cells.resize(heads.len(), "unavailable".to_owned());
            table.row(&cells);
        }
        for main in mains {
            let mut cells = vec![(*arm).clone()];
            for known in &places {
                let place = main.at.iter().find(|at| at.name == known.name);
                cells.push(place.map_or_else(String::new, |at| at.value.to_string()));
            }
            cells.push(ratio(main));
            for (name, _) in &also {
                let row = rows
                    .iter()
                    .find(|row| row.at == main.at && row.quantity.name == *name);
                cells.push(row.map_or_else(|| "-".to_owned(), ratio));
            }
            table.row(&cells);
        }
    }
    table.text()
}

fn main_name(measured: &Results) -> String {
    let main = measured.rows.iter().find(|row| row.quantity.main);
    main.map_or_else(
        || measured.experiment.name.clone(),
        |row| row.quantity.name.clone(),
    )
}
