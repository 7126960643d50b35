//! Executes decisions, through `hugeleaf-mover` and `hugeleaf-proof`, and returns their results.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hugeleaf_host::{Host, Root};
use hugeleaf_mover::{
    DemoteOptions, MAX_LOCK_TIME, Outcome, PreconditionError, ProcessOutcome, Progress,
    PromoteOptions, StallStats, StoppedBy, UnchangedReason, WorkingSetOptions, demote,
    measure_touch_rate, promote,
};
use hugeleaf_proof::{
    ExperimentDesign, ExperimentEnd, ExperimentSettings, LiveSubject, MetricSpec, ProveError,
    Provenance, StoppingRule, Subject, SubjectError,
};
use hugeleaf_sys::{Kernel, Pid};

use crate::policy::{
    Decision, Job, JobOutcome, PromotionResult, TestSessionResult, TestSessionWork,
};

#[derive(Clone, Copy)]
pub struct JobContext<'a> {
    pub kernel: &'a Kernel,
    pub root: &'a Root,
    pub host: &'a Host,
    pub stop: &'a AtomicBool,
    pub progress: &'a dyn Fn(&Progress<'_>),
}

/// Executes a decision. Its calls on processes are added to `stalls` even if it fails.
pub fn work(tools: JobContext<'_>, decision: &Decision, stalls: &mut StallStats) -> JobOutcome {
    let (kernel, root, host, stop) = (tools.kernel, tools.root, tools.host, tools.stop);
    let progress = &mut |seen: &Progress<'_>| (tools.progress)(seen);
    match &decision.job {
        Job::Promote {
            pace,
            min_resident,
            switch_thp_on,
        } => {
            let options = PromoteOptions {
                pace: *pace,
                min_resident: *min_resident,
                switch_thp_on: *switch_thp_on,
                ..PromoteOptions::default()
            };
            match promote(kernel, root, host, &decision.pids, &options, progress, stop) {
                Ok(outcome) => {
                    stalls.join(&outcome.stalls);
                    promoted(&outcome)
                }
                Err(error) => failed(&error),
            }
        }
        Job::Demote { pace, memory } => {
            let options = DemoteOptions {
                pace: *pace,
                only: Some(memory.clone()),
                ..DemoteOptions::default()
            };
            let pids: Vec<Pid> = memory.iter().map(|memory| memory.who.pid).collect();
            match demote(kernel, root, host, &pids, &options, progress, stop) {
                Ok(outcome) => {
                    stalls.join(&outcome.stalls);
                    JobOutcome::Demoted {
                        done: outcome.done(),
                    }
                }
                Err(error) => failed(&error),
            }
        }
        Job::Test { .. } => tested(tools, decision, stalls)
            .unwrap_or_else(|why| JobOutcome::Failed { why, ended: false }),
        Job::Sample { time } => {
            let leader = Pid(decision.id.pid);
            let watch = WorkingSetOptions {
                time: *time,
                held: MAX_LOCK_TIME,
                stop,
            };
            match measure_touch_rate(kernel, root, leader, watch) {
                Ok(touched) => JobOutcome::Sampled {
                    touched: touched.bytes_per_second,
                    cost: touched.cost,
                },
                Err(why) => JobOutcome::Failed { why, ended: false },
            }
        }
    }
}

fn failed(error: &PreconditionError) -> JobOutcome {
    JobOutcome::Failed {
        why: error.to_string(),
        ended: error.is_end(),
    }
}

fn promoted(outcome: &Outcome) -> JobOutcome {
    if let (true, Some(first)) = (outcome.processes.is_empty(), outcome.skipped.first()) {
        return failed(&first.error);
    }
    let failed = outcome.processes.iter().flat_map(|p| &p.failed);
    let mut reasons = failed.map(|part| part.reason);
    JobOutcome::Promoted(PromotionResult {
        asked: outcome.requested(),
        done: outcome.done(),
        grown: outcome.processes.iter().map(|p| p.grown).sum(),
        memory: outcome
            .processes
            .iter()
            .map(ProcessOutcome::memory)
            .collect(),
        fragmented: outcome.stopped_by == Some(StoppedBy::NoContiguousMemory)
            || reasons.any(|reason| reason == UnchangedReason::NoContiguousMemory),
        short: outcome.stopped_by == Some(StoppedBy::MemoryPressure),
    })
}

/// Runs a session of a test, as in `prove`. The memory is always restored to its previous state.
fn tested(
    tools: JobContext<'_>,
    decision: &Decision,
    stalls: &mut StallStats,
) -> Result<JobOutcome, String> {
    let Job::Test {
        metric,
        session,
        interval,
        pace,
        limit,
    } = &decision.job
    else {
        return Err("no test".into());
    };
    let spec: MetricSpec = metric.parse().map_err(|e| format!("{e}"))?;
    let (kernel, root, host, stop) = (tools.kernel, tools.root, tools.host, tools.stop);
    let mut metric = match spec.open(&decision.pids, stop) {
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(JobOutcome::Stopped),
        opened => opened.map_err(|e| e.to_string())?,
    };
    let mut subject = LiveSubject::new(kernel, root, host, &decision.name, &decision.pids, *pace);
    let ran = hugeleaf_proof::run(
        &mut subject,
        &mut metric,
        kernel,
        &settings(*session, *interval, *limit),
        &Provenance::default(),
        &mut |_| {},
        stop,
    );
    stalls.join(&subject.stalls().unwrap_or_default());
    let result = match ran {
        Ok(result) => result,
        Err(ProveError::Subject(SubjectError::Ended { pid })) => {
            return Ok(JobOutcome::Failed {
                why: format!("process {pid} ended"),
                ended: true,
            });
        }
        Err(error) => return Err(error.to_string()),
    };
    if result.experiment.design == ExperimentDesign::BeforeAfter {
        return Err("its memory cannot be demoted, so no pairs can be measured".into());
    }
    let is_empty = result.pairs.is_empty() && result.holds.is_none();
    if is_empty && stop.load(Ordering::Relaxed) {
        return Ok(JobOutcome::Stopped);
    }
    // Pairs measured before the interruption count. A hold may be repeated.
    let has_pairs = matches!(session, TestSessionWork::Pairs(_));
    if is_empty && has_pairs && result.experiment.ending == ExperimentEnd::Interrupted {
        let (name, seconds) = (spec.shown(), limit.as_secs());
        return Err(format!("{name}: no complete pair in {seconds} s"));
    }
    Ok(JobOutcome::Tested(TestSessionResult {
        logs: result.pairs.iter().map(|pair| pair.ratio.ln()).collect(),
        holds: result.holds,
        better: metric.better,
        metric: spec.shown().to_owned(),
    }))
}

fn settings(session: TestSessionWork, interval: Duration, limit: Duration) -> ExperimentSettings {
    let settings = ExperimentSettings {
        interval,
        settle: interval / 4,
        at_most: Some(limit),
        ..ExperimentSettings::default()
    };
    match session {
        TestSessionWork::Pairs(pairs) => ExperimentSettings {
            rule: StoppingRule {
                fixed_pairs: Some(pairs),
                ..StoppingRule::default()
            },
            ..settings
        },
        TestSessionWork::Hold { against, time } => ExperimentSettings {
            hold: time,
            against: Some(against),
            ..settings
        },
    }
}
