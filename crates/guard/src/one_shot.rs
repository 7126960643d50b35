//! One pass over the host, for a user or a timer: the planned or executed work, and the reasons for skipping the
//! rest.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hugeleaf_host::{Host, ReadError, Root};
use hugeleaf_mover::StallStats;
use hugeleaf_sys::Kernel;
use hugeleaf_units::Bytes;
use serde::Serialize;

use crate::config::Config;
use crate::observation::{Now, Observation};
use crate::observer::Observer;
use crate::policy::{JobOutcome, PromotionResult, decide, learn, passed_over, pressure};
use crate::pool_policy::{PoolInputs, outlook};
use crate::pool_watch::PoolWatch;
use crate::run_job::{JobContext, work};
use crate::state::GuardState;
use crate::status::{GuardStatus, ProcessTreeStatus, SCHEMA, programs};
use crate::tree_state::TreeState;

/// Time between the two scans that measure processor usage.
const APART: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OneShotResult {
    pub programs: Vec<ProcessTreeStatus>,
    /// Number of other process trees, by reason.
    pub passed_over: BTreeMap<&'static str, usize>,
    pub done: Vec<OneShotJobResult>,
    /// Planned change of each pool that may give pages back; empty if the pass makes changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    pub dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OneShotJobResult {
    pub pid: u32,
    pub name: String,
    pub text: String,
    pub good: bool,
}

/// Scans twice and decides. One eligible scan suffices here instead of four in a row, and nothing is tested.
pub fn once(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    config: &Config,
    state: &mut GuardState,
    dry_run: bool,
    stop: &AtomicBool,
) -> Result<OneShotResult, ReadError> {
    let mut config = config.clone();
    for rule in &mut config.rules {
        rule.limits.scans = 1;
        rule.prove = None;
        if dry_run {
            // Show everything that would eventually be promoted, regardless of the order.
            rule.limits.at_once = u32::MAX;
        }
    }
    if dry_run {
        config.at_once = u32::MAX;
    }
    let mut observer = Observer::new(root, kernel, host);
    observer.scan(&config, state)?;
    kernel.wait(APART, stop);
    let (mut seen, mut now) = observer.scan(&config, state)?;
    let mut decisions = decide(&config, state, &seen, now);
    let mut done = Vec::new();
    let mut texts: BTreeMap<u32, String> = BTreeMap::new();
    while !dry_run && !decisions.is_empty() && !stop.load(std::sync::atomic::Ordering::Relaxed) {
        for decision in std::mem::take(&mut decisions) {
            let tools = JobContext {
                kernel,
                root,
                host,
                stop,
                progress: &|_| {},
            };
            let began = Instant::now();
            let mut stalls = StallStats::default();
            let came = work(tools, &decision, &mut stalls);
            state.counts.stall(&stalls);
            let (text, good) = describe_outcome(&came, began.elapsed());
            let now = observer.now()?;
            if let Some(program) = seen.programs.iter().find(|p| p.id == decision.id) {
                learn(&config, state, program, &came, &seen.host, now);
            }
            if matches!(came, JobOutcome::Sampled { .. }) {
                continue;
            }
            texts.insert(decision.id.pid, text.clone());
            done.push(OneShotJobResult {
                pid: decision.id.pid,
                name: decision.name.clone(),
                text,
                good,
            });
        }
        (seen, now) = observer.scan(&config, state)?;
        decisions = decide(&config, state, &seen, now);
        // Promote each process tree once; later passes handle the rest.
        decisions.retain(|d| !texts.contains_key(&d.id.pid));
    }
    Ok(OneShotResult {
        programs: standings(&config, state, &seen, &texts),
        passed_over: counts(&config, state, &seen),
        done,
        pools: match dry_run {
            true => pools_outlook(root, kernel, &observer, &config, state, &seen, now),
            false => Vec::new(),
        },
        dry_run,
    })
}

fn pools_outlook(
    root: &Root,
    kernel: &Kernel,
    observer: &Observer<'_>,
    config: &Config,
    state: &GuardState,
    seen: &Observation,
    now: Now,
) -> Vec<String> {
    let mut watch = PoolWatch::new(root, kernel);
    watch.read_plans(true, now.since_boot);
    let short = pressure(config, state, &seen.host, now.since_boot).map(|why| why.text());
    outlook(PoolInputs {
        pools: &observer.pools(),
        may: &watch.may,
        short: short.as_deref(),
        paused: false,
        now: now.since_boot,
    })
}

/// Returns the metrics of a host without a guard: process trees from 16M on, without promotions and tests.
pub fn scan_once(root: &Root, kernel: &Kernel, host: &Host) -> Result<GuardStatus, ReadError> {
    const LEAST: Bytes = Bytes::from_mib(16);
    let mut config = Config::default();
    for rule in &mut config.rules {
        rule.limits.min_bytes = LEAST;
        rule.limits.min_age = Duration::ZERO;
    }
    let mut state = GuardState::default();
    let mut observer = Observer::new(root, kernel, host);
    let (seen, now) = observer.scan(&config, &state)?;
    decide(&config, &mut state, &seen, now);
    Ok(GuardStatus {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").into(),
        host: observer.host_status(&seen.host),
        programs: programs(&config, &state, &seen),
        seen: seen.programs.len(),
        series: config.series,
        ..GuardStatus::default()
    })
}

fn describe_outcome(came: &JobOutcome, took: Duration) -> (String, bool) {
    match came {
        JobOutcome::Promoted(PromotionResult { asked, done, .. }) => (
            format!("promoted {done} of {asked} in {:.1} s", took.as_secs_f64()),
            asked == done,
        ),
        JobOutcome::Demoted { done } => (format!("demoted {done}"), true),
        JobOutcome::Tested(_) | JobOutcome::Sampled { .. } => (String::new(), true),
        JobOutcome::Stopped => ("stopped".into(), false),
        JobOutcome::Failed { why, .. } => (why.clone(), false),
    }
}

/// Marks pending decisions as next, and adds the results of executed ones.
fn standings(
    config: &Config,
    state: &GuardState,
    seen: &Observation,
    done: &BTreeMap<u32, String>,
) -> Vec<ProcessTreeStatus> {
    let mut all = programs(config, state, seen);
    for program in &mut all {
        if program.standing.state == TreeState::Promoting {
            program.standing.state = TreeState::Queued;
        }
        if let Some(text) = done.get(&program.pid) {
            program.standing.text.clone_from(text);
        }
    }
    all.sort_by_key(|p| p.standing.state);
    all
}

fn counts(
    config: &Config,
    state: &GuardState,
    seen: &Observation,
) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    let others = seen
        .programs
        .iter()
        .filter(|p| !state.tracks.contains_key(&p.id));
    for why in others.filter_map(|program| passed_over(config, program)) {
        *counts.entry(why.id()).or_default() += 1;
    }
    counts
}
