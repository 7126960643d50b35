//! Plays experiments on recorded noise and prints how often they are right.
//!
//! `scripts/lab.sh run --release --example simulate -- [--experiments N] [--seed N] [--interval S]
//! [--transition S] [--for S] [--hold S] [--no-power] [--json] FILE…`

use std::process::ExitCode;

use hugeleaf_lab::prove_simulation::{
    LoadDisturbance, NoiseRecording, SimulationSettings, SimulationSummary, pairs_needed, play_many,
};

const EFFECTS: [f64; 7] = [1.0, 1.01, 1.02, 1.03, 1.05, 1.10, 1.20];
const MOST_PAIRS: usize = 1000;
/// Effects injected in each scenario: none for false calls, and two to be covered.
const IN_SCENARIOS: [f64; 3] = [1.0, 1.05, 1.10];

struct Options {
    experiments: usize,
    seed: u64,
    json: bool,
    /// True to determine the number of pairs that an effect needs.
    power: bool,
    play: SimulationSettings,
    files: Vec<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        experiments: 5000,
        seed: 1,
        json: false,
        power: true,
        play: SimulationSettings::default(),
        files: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || -> Result<f64, String> {
            let text = args.next().unwrap_or_default();
            text.parse()
                .map_err(|_| format!("{arg} {text}: not a number"))
        };
        #[allow(clippy::cast_possible_truncation)]
        match arg.as_str() {
            "--experiments" => options.experiments = number()? as usize,
            "--seed" => options.seed = number()? as u64,
            "--interval" => options.play.interval_seconds = number()?,
            "--transition" => options.play.transition_seconds = number()?,
            "--for" => options.play.for_seconds = number()?,
            "--hold" => options.play.hold_seconds = number()?,
            "--json" => options.json = true,
            "--no-power" => options.power = false,
            _ => options.files.push(arg),
        }
    }
    if options.files.is_empty() {
        return Err("name at least one recording; make one with the example record_noise".into());
    }
    Ok(options)
}

fn scenarios(
    noises: &[NoiseRecording],
    options: &Options,
    rng: &mut fastrand::Rng,
) -> Vec<(LoadDisturbance, Vec<SimulationSummary>)> {
    let mut played = |scenario: LoadDisturbance| {
        let play = SimulationSettings {
            scenario,
            ..options.play
        };
        IN_SCENARIOS.map(|effect| play_many(noises, effect, &play, options.experiments, rng))
    };
    let all = LoadDisturbance::ALL.into_iter();
    all.map(|scenario| (scenario, played(scenario).to_vec()))
        .collect()
}

fn run() -> Result<(), String> {
    let options = options()?;
    let mut noises = Vec::new();
    for file in &options.files {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
        noises.push(NoiseRecording::parse(&text).map_err(|e| format!("{file}: {e}"))?);
    }
    let mut rng = fastrand::Rng::with_seed(options.seed);
    let scenarios = scenarios(&noises, &options, &mut rng);
    let mut rows: Vec<(SimulationSummary, Option<usize>)> = Vec::new();
    for effect in EFFECTS {
        let summary = play_many(
            &noises,
            effect,
            &options.play,
            options.experiments,
            &mut rng,
        );
        let trials = options.experiments.min(500);
        let needed = (effect > 1.0 && options.power)
            .then(|| {
                pairs_needed(
                    &noises,
                    effect,
                    &options.play,
                    0.8,
                    MOST_PAIRS,
                    trials,
                    &mut rng,
                )
            })
            .flatten();
        rows.push((summary, needed));
    }
    if options.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(summary, needed)| {
                serde_json::json!({"summary": summary, "pairs_for_80_percent_power": needed})
            })
            .collect();
        let text = serde_json::json!({
            "schema": 1, "command": "scripts/bench.sh simulate", "recordings": options.files, "seed": options.seed,
            "experiments": options.experiments,
            "interval_seconds": options.play.interval_seconds,
            "transition_seconds": options.play.transition_seconds,
            "for_seconds": options.play.for_seconds, "hold_seconds": options.play.hold_seconds,
            "rows": rows, "scenarios": scenarios.iter().map(|(scenario, summaries)| {
                serde_json::json!({"scenario": scenario, "rows": summaries})
            }).collect::<Vec<_>>(),
        });
        println!("{text:#}");
        return Ok(());
    }
    print(&options, noises.len(), rows, &scenarios);
    Ok(())
}

fn print(
    options: &Options,
    recordings: usize,
    rows: Vec<(SimulationSummary, Option<usize>)>,
    scenarios: &[(LoadDisturbance, Vec<SimulationSummary>)],
) {
    println!(
        "{} experiments an effect, on {} recording(s), intervals of {} s, at most {} s\n",
        options.experiments, recordings, options.play.interval_seconds, options.play.for_seconds
    );
    println!(
        "effect   faster   slower     same  not settled  covered   pairs  half width   pairs for 80 % power"
    );
    for (s, needed) in rows {
        println!(
            "{:>5.0}%  {:>6.1}%  {:>6.1}%  {:>6.1}%  {:>10.1}%  {:>6.1}%  {:>6.1}  {:>9.1}%   {}",
            (s.effect - 1.0) * 100.0,
            s.faster * 100.0,
            s.slower * 100.0,
            s.same * 100.0,
            s.not_settled * 100.0,
            s.covered * 100.0,
            s.pairs,
            (s.half_width.exp() - 1.0) * 100.0,
            match (s.effect > 1.0, needed) {
                (false, _) => "-".to_owned(),
                (true, Some(pairs)) => pairs.to_string(),
                (true, None) => format!("over {MOST_PAIRS}"),
            }
        );
    }
    println!(
        "\nscenario         effect   faster   slower     same  not settled  covered   pairs  half width  seconds"
    );
    for (scenario, summaries) in scenarios {
        for s in summaries {
            println!(
                "{:<16}  {:>4.0}%  {:>6.1}%  {:>6.1}%  {:>6.1}%  {:>10.1}%  {:>6.1}%  {:>6.1}  {:>9.1}%  {:>7.0}",
                format!("{scenario:?}"),
                (s.effect - 1.0) * 100.0,
                s.faster * 100.0,
                s.slower * 100.0,
                s.same * 100.0,
                s.not_settled * 100.0,
                s.covered * 100.0,
                s.pairs,
                (s.half_width.exp() - 1.0) * 100.0,
                s.seconds,
            );
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("simulate: {what}");
            ExitCode::from(2)
        }
    }
}
