//! Results of the lab: each program by page size, and its prediction.

use std::collections::BTreeMap;

use std::time::Duration;

use hugeleaf_proof::result_format::{ResultRow, Results};
use hugeleaf_units::{Bytes, PageSize};
use hugeleaf_verdict::predict::{
    AccessScan, GainPrediction, NoPrediction, ProcessActivity, ReadLatency, predict,
};
use serde_json::Value;

use crate::oltp;
use crate::runs::{Run, Runs, Table};

/// The arms of the table; the last is available without any setting of the program.
const ARMS: [&str; 3] = ["thp:2M", "hugetlb:2M", LIVE];
const LIVE: &str = "promoted or run";

/// Results on disks have no information on a program's memory.
const DISKS: [&str; 3] = ["files", "filesystems", "schedulers"];

/// Returns the newest result of each program, by name.
fn newest(runs: &Runs) -> BTreeMap<&str, (&Run, &Results)> {
    let known = runs.named("lab-").filter_map(|run| {
        let name = run.name.strip_prefix("lab-")?.strip_suffix(".json")?;
        Some((name, (run, run.results.as_ref()?)))
    });
    known.filter(|(name, _)| !DISKS.contains(name)).collect()
}

/// Gain of an arm over base pages, as work in the same time: the ratio, and its interval if it is of one place.
struct Gain {
    ratio: f64,
    ends: Option<(f64, f64)>,
    places: usize,
    doubtful: bool,
}

impl Gain {
    fn text(&self) -> String {
        let doubt = if self.doubtful { " ?" } else { "" };
        match self.ends {
            Some((low, high)) => format!("×{:.3} [{low:.3}, {high:.3}]{doubt}", self.ratio),
            None if self.places == 1 => format!("×{:.3}{doubt}", self.ratio),
            None => format!(
                "×{:.3}, mean of {} settings{doubt}",
                self.ratio, self.places
            ),
        }
    }
}

fn is_arm(row: &ResultRow, arm: &str) -> bool {
    match arm {
        LIVE => ["promoted", "run"].contains(&row.arm.as_str()),
        arm => row.arm == arm,
    }
}

fn gain(results: &Results, arm: &str) -> Option<Gain> {
    let base = &results.arms.first()?.name;
    let rows = results.rows.iter();
    let rows = rows.filter(|row| row.quantity.main && is_arm(row, arm));
    let all: Vec<_> = rows
        .filter_map(|row| {
            let first = results.row(base, &row.at, &row.quantity.name)?;
            let better = row.quantity.better;
            let effect = row.over(first);
            let medians = || Some(row.spread()?.median / first.spread()?.median);
            let ratio = effect.as_ref().map(|e| e.ratio).or_else(medians)?;
            let ends = effect.map(|e| (better.gain(e.low), better.gain(e.high)));
            let ends = ends.map(|(a, b)| (a.min(b), a.max(b)));
            Some((better.gain(ratio), ends, row.doubtful))
        })
        .collect();
    let (_, ends, _) = all.first()?;
    Some(Gain {
        ratio: mean(all.iter().map(|(ratio, ..)| *ratio))?,
        ends: ends.filter(|_| all.len() == 1),
        places: all.len(),
        doubtful: all.iter().any(|(.., doubtful)| *doubtful),
    })
}

/// Returns the geometric mean.
fn mean(ratios: impl Iterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = ratios.map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Returns the table of the first page.
pub fn summary(runs: &Runs) -> String {
    let programs = newest(runs);
    if programs.is_empty() {
        return "## By program\n\n`lab-*.json`: not measured yet.\n\n".to_owned();
    }
    let mut table = Table::new(&["program", ARMS[0], ARMS[1], ARMS[2], "raw samples"]);
    let mut all: [Vec<f64>; 3] = Default::default();
    let mut won = 0;
    for (run, results) in programs.values() {
        let gains = ARMS.map(|arm| gain(results, arm));
        // An arm that was not on its pages has no information on them.
        let sure = |gain: &Gain| !gain.doubtful;
        for (all, gain) in all.iter_mut().zip(&gains) {
            all.extend(gain.as_ref().filter(|g| sure(g)).map(|gain| gain.ratio));
        }
        let wins = |gain: &Gain| gain.ends.is_some_and(|(low, _)| low > 1.0) && sure(gain);
        won += usize::from(gains.iter().flatten().any(wins));
        let cells = gains.map(|gain| gain.map_or("unavailable".to_owned(), |gain| gain.text()));
        let [thp, pool, live] = cells;
        let title = results.experiment.title.clone();
        table.row(&[title, thp, pool, live, run.link()]);
    }
    let means = all.map(|ratios| {
        let n = ratios.len();
        mean(ratios.into_iter()).map_or("-".to_owned(), |mean| {
            format!("**×{mean:.3}**, {n} programs")
        })
    });
    let [thp, pool, live] = means;
    table.row(&[
        "**mean**".to_owned(),
        thp,
        pool,
        live,
        "geometric".to_owned(),
    ]);
    format!(
        "{} programs from packages, on a small virtual machine (two shared processors). Figures are the work done in the same time, over base pages,\n\
         so above ×1 is better. In {won} of the programs, at least one arm has its whole interval above ×1. `?`: not all memory of the arm was seen on its pages.\n\
         Published for large machines: +18 % in the mean of eight programs with the largest data (Trident, MICRO 2021, 1G and 2M pages over 2M alone),\n\
         +7.7 % of requests a second over a fleet (Temeraire, OSDI 2021), +13 % to +26 % for a database with hundreds of gigabytes (DB2 9).\n\n\
         ## By program\n\n{}",
        programs.len(),
        table.text()
    )
}

/// Returns all results of the lab.
pub fn all(runs: &Runs) -> String {
    let mut files = runs.named("lab-").peekable();
    if files.peek().is_none() {
        return "`lab-*.json`: not measured yet.\n\n".to_owned();
    }
    let about = |run: &Run| {
        let remarks = run.results.iter().flat_map(|results| &results.remarks);
        let remarks: Vec<&str> = remarks.map(String::as_str).collect();
        let title = run
            .results
            .as_ref()
            .map(|results| &results.experiment.title);
        let title = title.map_or(&run.name, |title| title);
        format!(
            "## {title}\n\n{}\n\n{}",
            remarks.join("\n\n"),
            oltp::of_run(run)
        )
    };
    files.map(about).collect()
}

/// Applies the current model to an earlier observation.
fn again(value: &Value) -> Result<GainPrediction, NoPrediction> {
    let watched = &value["watched"];
    let number = |of: &Value| of.as_f64().unwrap_or(0.0);
    let time = |name: &str| Duration::from_secs_f64(number(&watched[name]));
    let bytes = |of: &Value| Bytes(of.as_u64().unwrap_or(0));
    let looks = watched["looks"].as_array().unwrap().iter();
    let seen = |look: &Value| AccessScan {
        time: Duration::from_secs_f64(number(&look["seconds"])),
        resident: bytes(&look["resident_bytes"]),
        touched: bytes(&look["touched_bytes"]),
        large: bytes(&look["large_bytes"]),
    };
    let watched = ProcessActivity {
        base_page: PageSize::new(Bytes::from_kib(4)).unwrap(), // x86-64
        scans: looks.map(seen).collect(),
        time: time("watched_seconds"),
        user: time("user_seconds"),
        system: time("system_seconds"),
        busiest: time("busiest_thread_seconds"),
        waited: watched["waited_seconds"]
            .as_f64()
            .map(Duration::from_secs_f64),
        faults: watched["minor_faults"].as_u64().unwrap_or(0),
        walks: watched["walk_cycles_share"].as_f64(),
    };
    let read = &value["read"];
    let reads = ReadLatency {
        size: bytes(&read["size_bytes"]),
        base_ns: number(&read["base_ns"]),
        large_ns: number(&read["large_ns"]),
    };
    predict(&watched, &reads)
}

/// Returns the proven gain of a program: by THP from its start. If it was not on THP then, like a program that disables
/// it for itself, the gain is that of its promotion.
fn proven(results: &Results) -> Option<Gain> {
    let from_its_start = gain(results, ARMS[0])?;
    let live = || gain(results, LIVE).filter(|gain| !gain.doubtful);
    match from_its_start.doubtful {
        true => Some(live().unwrap_or(from_its_start)),
        false => Some(from_its_start),
    }
}

/// Compares the proven gain with the prediction.
fn verdict(predicted: &GainPrediction, gain: Option<&Gain>) -> &'static str {
    let range = predicted.low..=predicted.high;
    match gain {
        None => "not proven",
        Some(gain) if gain.doubtful => "not proven: not on these pages",
        Some(gain) if range.contains(&gain.ratio) => INSIDE,
        Some(gain) => match gain.ends {
            Some((low, high)) if low <= predicted.high && high >= predicted.low => REACHES,
            _ => OUTSIDE,
        },
    }
}

const INSIDE: &str = "inside";
const REACHES: &str = "**outside**; the intervals overlap";
const OUTSIDE: &str = "**outside**";

/// Returns the prediction for each program on base pages, next to the gain of huge pages.
pub fn predicted(runs: &Runs) -> String {
    let programs = newest(runs);
    let name = |run: &Run| {
        let name = run.name.trim_start_matches("predict-");
        name.trim_end_matches(".json").to_owned()
    };
    let mut table = Table::new(&["program", "predicted", "proven", "", "raw samples"]);
    let mut verdicts = Vec::new();
    for run in runs.named("predict-") {
        let name = name(run);
        let gain = programs
            .get(name.as_str())
            .and_then(|(_, results)| proven(results));
        let (text, verdict) = match again(&run.value) {
            Ok(predicted) => (
                format!("×{:.2} to ×{:.2}", predicted.low, predicted.high),
                verdict(&predicted, gain.as_ref()),
            ),
            Err(why) => (format!("none: {why}"), "-"),
        };
        verdicts.push(verdict);
        let proven = gain.map_or("-".to_owned(), |gain| gain.text());
        table.row(&[name, text, proven, verdict.to_owned(), run.link()]);
    }
    let count = |which: &str| verdicts.iter().filter(|verdict| **verdict == which).count();
    let said = count(INSIDE) + count(REACHES) + count(OUTSIDE);
    if said == 0 {
        return "`predict-*.json`: not measured yet.\n\n".to_owned();
    }
    format!(
        "`hugeleaf predict` watched each program on base pages, before anything was changed. {} of {said} proven gains are inside the range that the current model predicts.\n\
         The intervals of {} others overlap that range. If there is no prediction, the table has the reason. The model's constants were fitted to some of these programs, so\n\
         only the others test it. *Proven* is the gain from transparent huge pages at the start, or from promotion for a program that disables them for itself.\n\n{}",
        count(INSIDE),
        count(REACHES),
        table.text()
    )
}
