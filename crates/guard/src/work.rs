//! Does what was decided, through `hugeleaf-change` and `hugeleaf-proof`, and says what came of it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_change::{
    ChangeError, DemoteOptions, Outcome, Percent, Progress, PromoteOptions, Reason, StoppedBy,
    demote, promote, touched,
};
use hugeleaf_host::{Host, Root};
use hugeleaf_proof::{
    Circumstances, Design, Ending, LiveSubject, MetricSpec, ProveError, Rule, Settings,
    SubjectError,
};
use hugeleaf_sys::{Kernel, Pid};

use crate::policy::{Came, Decision, Job, Promoted};

/// How long a sitting may take at most: a metric that answers slowly must not hold up everything.
const LONGEST_TEST: Duration = Duration::from_secs(1800);

#[derive(Clone, Copy)]
pub struct Tools<'a> {
    pub kernel: &'a Kernel,
    pub root: &'a Root,
    pub host: &'a Host,
    pub stop: &'a AtomicBool,
    pub progress: &'a dyn Fn(&Progress),
}

pub fn work(tools: Tools<'_>, decision: &Decision) -> Came {
    let Tools {
        kernel,
        root,
        host,
        stop,
        progress,
    } = tools;
    let progress = &mut |seen: &Progress| progress(seen);
    match &decision.job {
        Job::Promote {
            budget,
            min_resident,
            switch_thp_on,
        } => {
            let options = PromoteOptions {
                budget: *budget,
                min_resident: *min_resident,
                switch_thp_on: *switch_thp_on,
                ..PromoteOptions::default()
            };
            match promote(kernel, root, host, &decision.pids, &options, progress, stop) {
                Ok(outcome) => promoted(&outcome),
                Err(error) => failed(&error),
            }
        }
        Job::Demote { budget, ranges } => {
            let options = DemoteOptions {
                budget: *budget,
                only: Some(ranges.clone()),
                ..DemoteOptions::default()
            };
            let pids: Vec<Pid> = ranges.iter().map(|(pid, _)| *pid).collect();
            match demote(kernel, root, host, &pids, &options, progress, stop) {
                Ok(outcome) => Came::Demoted {
                    done: outcome.done(),
                },
                Err(error) => failed(&error),
            }
        }
        Job::Test {
            metric,
            pairs,
            interval,
        } => tested(tools, decision, metric, *pairs, *interval)
            .unwrap_or_else(|why| Came::Failed { why, ended: false }),
        Job::Sample { time } => {
            let leader = Pid(decision.id.pid);
            match touched(tools.kernel, tools.root, leader, *time) {
                Ok(touched) => Came::Sampled {
                    touched: touched.bytes_per_second,
                    cost: touched.cost,
                },
                Err(why) => Came::Failed { why, ended: false },
            }
        }
    }
}

fn failed(error: &ChangeError) -> Came {
    Came::Failed {
        why: error.to_string(),
        ended: error.is_end(),
    }
}

fn promoted(outcome: &Outcome) -> Came {
    if let (true, Some(first)) = (outcome.processes.is_empty(), outcome.skipped.first()) {
        return failed(&first.error);
    }
    let failed = outcome.processes.iter().flat_map(|p| &p.failed);
    let mut reasons = failed.map(|part| part.reason);
    Came::Promoted(Promoted {
        asked: outcome.asked(),
        done: outcome.done(),
        grown: outcome.processes.iter().map(|p| p.grown).sum(),
        stalled: Duration::try_from_secs_f64(outcome.moving_seconds).unwrap_or_default(),
        ranges: (outcome.processes.iter())
            .map(|p| (p.pid, p.moved.clone()))
            .collect(),
        fragmented: outcome.stopped_by == Some(StoppedBy::NoContiguousMemory)
            || reasons.any(|reason| reason == Reason::NoContiguousMemory),
        short: outcome.stopped_by == Some(StoppedBy::Pressure),
    })
}

/// Some pairs of a test: the experiment of `prove`, with a number of pairs fixed beforehand. Whatever happens, the
/// memory is put back as it was found.
fn tested(
    tools: Tools<'_>,
    decision: &Decision,
    metric: &str,
    pairs: usize,
    interval: Duration,
) -> Result<Came, String> {
    let spec: MetricSpec = metric.parse().map_err(|e| format!("{e}"))?;
    let mut metric = spec.open(&decision.pids).map_err(|e| e.to_string())?;
    let Tools {
        kernel,
        root,
        host,
        stop,
        ..
    } = tools;
    // A test moves all of a program's memory some ten times: it takes as little time as the machine can, and
    // nothing is measured meanwhile.
    let mut subject = LiveSubject::new(
        kernel,
        root,
        host,
        &decision.name,
        &decision.pids,
        Percent::ALL,
    );
    let settings = Settings {
        interval,
        settle: interval / 4,
        limit: LONGEST_TEST,
        rule: Rule {
            fixed_pairs: Some(pairs),
            ..Rule::default()
        },
        ..Settings::default()
    };
    let ran = hugeleaf_proof::run(
        &mut subject,
        &mut metric,
        kernel,
        &settings,
        &Circumstances::default(),
        &mut |_| {},
        stop,
    );
    let result = match ran {
        Ok(result) => result,
        Err(ProveError::Subject(SubjectError::Ended { pid })) => {
            return Ok(Came::Failed {
                why: format!("process {pid} ended"),
                ended: true,
            });
        }
        Err(error) => return Err(error.to_string()),
    };
    if result.experiment.design == Design::BeforeAfter {
        return Err("its memory cannot be moved back, so there are no pairs".into());
    }
    if result.experiment.ending == Ending::Interrupted {
        return Err("stopped".into());
    }
    Ok(Came::Tested {
        logs: result.pairs.iter().map(|pair| pair.ratio.ln()).collect(),
        better: metric.better,
        metric: spec.shown().to_owned(),
    })
}
