//! Plays the guard's tests for ten years and prints how many servers were moved back.
//!
//! `scripts/lab.sh run --example years -- [--servers N] [--seed N] [RECORDING…]`

use std::process::ExitCode;

use fastrand::Rng;
use hugeleaf_guard::Keep;
use hugeleaf_lab::simulate::Noise;
use hugeleaf_lab::years::{Judge, Row, Spread, TEN_YEARS, play_servers};

/// The true effects, and for how many tests each is played.
const EFFECTS: [(f64, usize); 6] = [
    (0.95, TEN_YEARS),
    (0.98, TEN_YEARS),
    (1.0, TEN_YEARS),
    (1.02, TEN_YEARS),
    (1.05, TEN_YEARS),
    (1.10, TEN_YEARS),
];

fn run() -> Result<(), String> {
    let (mut servers, mut seed, mut files) = (1000usize, 1u64, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> Result<u64, String> {
            let text = args.next().unwrap_or_default();
            text.parse()
                .map_err(|_| format!("{arg} {text}: not a number"))
        };
        match arg.as_str() {
            "--servers" => servers = usize::try_from(number()?).map_err(|e| e.to_string())?,
            "--seed" => seed = number()?,
            _ => files.push(arg),
        }
    }
    let read = |file: &String| {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        Noise::parse(&text).map_err(|e| format!("{file}: {e}"))
    };
    let noises = files.iter().map(read).collect::<Result<Vec<Noise>, _>>()?;
    for judge in [Judge::Alone, Judge::Together] {
        for keep in [Keep::IfFaster, Keep::UnlessSlower] {
            for spread in Spread::ALL {
                if spread == Spread::Recorded && noises.is_empty() {
                    continue;
                }
                for (effect, tests) in EFFECTS {
                    let mut rng = Rng::with_seed(seed);
                    let size = (servers, tests);
                    let row: Row =
                        play_servers(&noises, (effect, spread), (judge, keep), size, &mut rng);
                    let text = serde_json::to_string(&row).map_err(|e| e.to_string())?;
                    println!("{text}");
                }
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
