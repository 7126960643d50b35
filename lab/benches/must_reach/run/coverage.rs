//! Program by program: what each arm has of it on large pages, how fast it is and how large.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use hugeleaf_units::Bytes;
use serde_json::json;

use super::arms::{Arm, BARE, PROMOTED, RUN, RUN_POOL, RUN_THP, under_always};
use super::host::Host;
use super::programs::{Program, RESIDENT, Taken, all};
use super::samples::{Sample, Samples};
use crate::record::Record;
use crate::{Asked, Failed};

/// The arms of hugeleaf.
const OURS: [&str; 4] = [RUN_THP, RUN_POOL, RUN, PROMOTED];

/// What they must reach.
const COVERAGE: f64 = 0.95;
const RESIDENT_RATIO: f64 = 1.05;
const LEAST_SPEED_OF_SHORT_PROGRAMS: f64 = 0.98;

/// How the host is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// THP for those that ask, but in the arms that are about another setting.
    Madvise,
    /// THP for everybody, in every arm.
    Always,
}

impl Setting {
    fn name(self) -> &'static str {
        match self {
            Setting::Madvise => "run-coverage",
            Setting::Always => "run-always",
        }
    }

    fn arms(self, program: &dyn Program, host: &Host) -> Vec<Arm> {
        match self {
            Setting::Madvise => program.arms(host),
            Setting::Always => under_always(),
        }
    }

    fn file(self, program: &dyn Program) -> String {
        match self {
            Setting::Madvise => program.file().to_owned(),
            Setting::Always => program.file().replace("run-", "always-"),
        }
    }
}

/// Takes so many rounds of every program.
pub fn run(asked: &Asked, setting: Setting) -> Result<(), Failed> {
    let Some(host) = Host::lock(setting.name())? else {
        return Ok(());
    };
    let mut programs = all(asked)?;
    if setting == Setting::Always {
        // Private memory that a program holds is what that setting is about.
        programs
            .retain(|program| !program.shares().is_empty() && program.need().shared == Bytes::ZERO);
    }
    for program in programs {
        let mut arms = setting.arms(program.as_ref(), &host);
        let labels: Vec<&str> = arms.iter().map(|arm| arm.label).collect();
        println!(" {}", program.name());
        let file = format!("{}.json", setting.file(program.as_ref()));
        let mut samples = match asked.more {
            true => Samples::read(&asked.out.join(file))?,
            false => Samples::default(),
        };
        let mut check = None;
        // One that is not kept: it warms what is read from files.
        if let Err(e) = take(program.as_ref(), &host, &Arm::bare()) {
            println!("not run: {}: {e}", program.name());
            continue;
        }
        for _ in 0..asked.rounds(program.rounds()) {
            let round = round(program.as_ref(), &host, &mut arms, &mut check);
            if host.is_asked_to_end() {
                break;
            }
            samples.add_round(round);
        }
        if samples.rounds() > 0 {
            report(program.as_ref(), setting, &samples, &labels, &asked.out)?;
        }
        if host.is_asked_to_end() {
            break;
        }
    }
    Ok(())
}

/// Every arm once, in random order. An arm that fails says why and is left out from then on.
fn round<'a>(
    program: &dyn Program,
    host: &Host,
    arms: &mut Vec<Arm>,
    check: &mut Option<String>,
) -> BTreeMap<&'a str, Sample> {
    fastrand::shuffle(arms);
    let mut round = BTreeMap::new();
    arms.retain(|arm| {
        if host.is_asked_to_end() {
            return true;
        }
        let taken = take(program, host, arm).and_then(|taken| same(taken, check));
        match taken {
            Ok(sample) => {
                round.insert(arm.label, sample);
                true
            }
            Err(e) => {
                println!("  failed: {}: {e}", arm.label);
                false
            }
        }
    });
    round
}

/// One sample of one arm, on a host that is prepared for it.
fn take(program: &dyn Program, host: &Host, arm: &Arm) -> Result<Taken, Failed> {
    let _prepared = arm.prepare(host, program.need())?;
    // The servers of the tests' support panic where they do not start.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let taken = catch_unwind(AssertUnwindSafe(|| program.sample(arm)));
    std::panic::set_hook(hook);
    taken.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map_or("", String::as_str);
        Err(format!("it did not start: {said}").into())
    })
}

/// Fails where a program came to another result than it did the first time.
fn same(taken: Taken, check: &mut Option<String>) -> Result<Sample, Failed> {
    let before = check.get_or_insert_with(|| taken.check.clone());
    if *before == taken.check {
        return Ok(taken.sample);
    }
    Err(format!("it came to {:?}, not to {before:?}", taken.check).into())
}

fn report(
    program: &dyn Program,
    setting: Setting,
    samples: &Samples,
    labels: &[&str],
    out: &Path,
) -> Result<(), Failed> {
    print_table(program, samples, labels);
    let mut record = Record::new(
        setting.file(program),
        format!("scripts/bench.sh {}", setting.name()),
    );
    record.figure("rounds", samples.rounds());
    for label in labels {
        let mut figures = serde_json::Map::new();
        for quantity in program.shares() {
            if let Some(value) = samples.median(label, quantity) {
                figures.insert((*quantity).to_owned(), json!(value));
            }
        }
        for quantity in program.rates().iter().chain([&RESIDENT]) {
            if let Some(ratio) = samples.ratio(label, BARE, quantity) {
                figures.insert(format!("{quantity}, over bare"), ratio.into());
            }
        }
        if !figures.is_empty() {
            record.figure(*label, figures);
        }
    }
    for label in OURS.iter().filter(|l| labels.contains(l)) {
        let missed = missed(program, samples, label, labels);
        record.figure(format!("{label}, missed"), missed);
    }
    samples.keep(&mut record);
    record.write(out)?;
    Ok(())
}

/// What an arm of ours has not reached.
fn missed(program: &dyn Program, samples: &Samples, ours: &str, labels: &[&str]) -> Vec<String> {
    let mut missed = Vec::new();
    for quantity in program.shares() {
        match samples.median(ours, quantity) {
            Some(share) if share >= COVERAGE => {}
            Some(share) => missed.push(format!("{quantity}: {share:.3}")),
            None => missed.push(format!("{quantity}: no sample")),
        }
    }
    if let Some(ratio) = samples.ratio(ours, BARE, RESIDENT)
        && ratio.center > RESIDENT_RATIO
    {
        missed.push(format!("{RESIDENT}: {ratio} of bare's"));
    }
    for quantity in program.rates() {
        let Some(own) = samples.ratio(ours, BARE, quantity) else {
            missed.push(format!("{quantity}: no sample"));
            continue;
        };
        if program.shares().is_empty() && own.center < LEAST_SPEED_OF_SHORT_PROGRAMS {
            missed.push(format!("{quantity}: {own} of bare's"));
        }
        // Bare's interval over itself is 1.
        let highest = own.interval.map_or(own.center, |(_, high)| high);
        for peer in labels.iter().filter(|l| !OURS.contains(l)) {
            let theirs = samples.ratio(peer, BARE, quantity);
            let lowest = theirs.and_then(|r| r.interval).map(|(low, _)| low);
            if lowest.is_some_and(|low| low > highest) {
                let theirs = theirs.map(|r| r.to_string()).unwrap_or_default();
                missed.push(format!("{quantity}: {own}, where {peer} has {theirs}"));
            }
        }
    }
    missed
}

fn print_table(program: &dyn Program, samples: &Samples, labels: &[&str]) {
    let has_resident = samples.median(BARE, RESIDENT).is_some();
    let columns = program
        .shares()
        .iter()
        .chain(program.rates())
        .chain(has_resident.then_some(&RESIDENT));
    let mut head = format!("  {:24}", "");
    for column in columns.clone() {
        let name = column.split(", ").next().unwrap_or(column);
        head.push_str(&match program.shares().contains(column) {
            true => format!(" {name:>17}"),
            false => format!("  {:22}", format!("{name}, over bare")),
        });
    }
    println!("{}", head.trim_end());
    for label in labels {
        let mut line = format!("  {label:24}");
        for column in columns.clone() {
            line.push_str(&match program.shares().contains(column) {
                true => match samples.median(label, column) {
                    Some(share) => format!(" {:>15.1} %", 100.0 * share),
                    None => format!(" {:>17}", "-"),
                },
                false => match samples.ratio(label, BARE, column) {
                    Some(ratio) => format!("  {ratio:22}"),
                    None => format!("  {:22}", "-"),
                },
            });
        }
        println!("{}", line.trim_end());
    }
}
