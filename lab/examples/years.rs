//! Plays the guard's tests for ten years and prints the number of demoted servers.
//!
//! `scripts/lab.sh run --example years -- [--servers N] [--tests N] [--seed N] [--only NAME,…] [RECORDING…]`. A NAME is
//! that of a judge, a policy to keep, a noise or an effect, as in the rows.

use std::process::ExitCode;

use fastrand::Rng;
use hugeleaf_guard::KeepCondition;
use hugeleaf_lab::guard_simulation::{DecisionRule, NoiseModel, TEN_YEARS, play_servers};
use hugeleaf_lab::prove_simulation::NoiseRecording;

const EFFECTS: [f64; 6] = [0.95, 0.98, 1.0, 1.02, 1.05, 1.10];

struct Options {
    servers: usize,
    seed: u64,
    tests: usize,
    /// Selected judges, policies, noises and effects; all if empty.
    only: Vec<String>,
    files: Vec<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        servers: 1000,
        seed: 1,
        tests: TEN_YEARS,
        only: Vec::new(),
        files: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_default();
        let number = |text: String| -> Result<usize, String> {
            text.parse().map_err(|_| format!("{text}: not a number"))
        };
        match arg.as_str() {
            "--servers" => options.servers = number(value())?,
            "--seed" => options.seed = number(value())? as u64,
            "--tests" => options.tests = number(value())?,
            "--only" => options.only = value().split(',').map(str::to_owned).collect(),
            _ => options.files.push(arg),
        }
    }
    Ok(options)
}

/// Returns the name of a variant, as in a row.
fn name(value: &impl serde::Serialize) -> Result<String, String> {
    let value = serde_json::to_value(value).map_err(|e| e.to_string())?;
    Ok(value.as_str().unwrap_or_default().to_owned())
}

fn run() -> Result<(), String> {
    let options = options()?;
    let read = |file: &String| {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        NoiseRecording::parse(&text).map_err(|e| format!("{file}: {e}"))
    };
    let noises = options
        .files
        .iter()
        .map(read)
        .collect::<Result<Vec<_>, _>>()?;
    let keeps = [KeepCondition::IfFaster, KeepCondition::UnlessSlower];
    for judge in [DecisionRule::Alone, DecisionRule::Together] {
        for (keep, spread) in keeps.iter().flat_map(|k| NoiseModel::ALL.map(|s| (*k, s))) {
            for effect in EFFECTS {
                let names = [
                    name(&judge)?,
                    name(&keep)?,
                    name(&spread)?,
                    effect.to_string(),
                ];
                if !options.only.iter().all(|only| names.contains(only))
                    || (spread == NoiseModel::Recorded && noises.is_empty())
                {
                    continue;
                }
                let mut rng = Rng::with_seed(options.seed);
                let size = (options.servers, options.tests);
                let row = play_servers(&noises, (effect, spread), (judge, keep), size, &mut rng);
                println!(
                    "{}",
                    serde_json::to_string(&row).map_err(|e| e.to_string())?
                );
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("years: {what}");
            ExitCode::from(2)
        }
    }
}
