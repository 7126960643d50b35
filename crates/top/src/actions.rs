//! Actions of keys: the reasons for memory's page sizes, and promotions. Each calls another crate in its own thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hugeleaf_host::{Host, Process, ProcessError, ReadDetail, Root, TargetError, read_process};
use hugeleaf_mover::{DemoteOptions, Outcome, Percent, Progress, PromoteOptions, demote, promote};
use hugeleaf_report::document::Document;
use hugeleaf_report::promote::{HostCommands, PromoteRequest, PromotionDirection, page};
use hugeleaf_report::why::WhyView;
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::Failure;
use hugeleaf_verdict::why::{SegmentAccount, account};

use crate::model::{OperationProgress, TreeSample};

#[derive(Clone)]
pub struct ActionContext {
    pub root: Root,
    pub kernel: Arc<Kernel>,
    pub host: Host,
    pub guard: Option<PathBuf>,
    pub commands: HostCommands,
}

/// Makes a page of an outcome, or of the expected one, as `promote` and `demote` print it.
pub fn outcome_page(
    commands: &HostCommands,
    outcome: &Outcome,
    whom: &TreeSample,
    direction: PromotionDirection,
    budget: Percent,
) -> Document {
    page(
        outcome,
        &PromoteRequest {
            direction,
            targets: &targets(whom),
            pace: budget.into(),
            commands,
        },
    )
}

fn targets(program: &TreeSample) -> String {
    match program.processes {
        0 | 1 => program.pid.to_string(),
        _ => format!("tree:{}", program.pid),
    }
}

pub fn why(tools: &ActionContext, program: &TreeSample) -> Result<Document, Failure> {
    let (mut processes, mut unread): (Vec<Process>, Vec<(Pid, ProcessError)>) = Default::default();
    let (root, kernel, host) = (&tools.root, &*tools.kernel, &tools.host);
    for pid in pids_of(program) {
        match read_process(root, kernel, host, pid, ReadDetail::Pages) {
            Ok(process) => processes.push(process),
            Err(error) => unread.push((pid, error)),
        }
    }
    if let (true, Some((_, error))) = (processes.is_empty(), unread.first()) {
        return Err(TargetError::from(error.clone()).into());
    }
    let name = targets(program);
    let accounts: Vec<Vec<SegmentAccount>> = (processes.iter())
        .map(|p| account(host, p, &name))
        .collect();
    let judged: Vec<(&Process, &[SegmentAccount])> = (processes.iter().zip(&accounts))
        .map(|(p, a)| (p, a.as_slice()))
        .collect();
    let why = WhyView {
        judged: &judged,
        unread: &unread,
    };
    Ok(why.page(false))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromoteDemoteRequest {
    pub direction: PromotionDirection,
    /// The budget for calls, as a share of the program's time.
    pub budget: Percent,
    pub dry_run: bool,
}

pub fn change(
    tools: &ActionContext,
    program: &TreeSample,
    asked: PromoteDemoteRequest,
    progress: &mut dyn FnMut(&Progress<'_>),
    stop: &AtomicBool,
) -> Result<Outcome, Failure> {
    let (root, kernel, host) = (&tools.root, &*tools.kernel, &tools.host);
    let pids = pids_of(program);
    let (pace, dry_run) = (asked.budget.into(), asked.dry_run);
    let outcome = match asked.direction {
        PromotionDirection::Promote => {
            let options = PromoteOptions {
                pace,
                dry_run,
                ..PromoteOptions::default()
            };
            promote(kernel, root, host, &pids, &options, progress, stop)
        }
        PromotionDirection::Demote => {
            let options = DemoteOptions {
                pace,
                dry_run,
                ..DemoteOptions::default()
            };
            demote(kernel, root, host, &pids, &options, progress, stop)
        }
    };
    outcome.map_err(Failure::from)
}

pub fn going_on(
    program: &TreeSample,
    asked: PromoteDemoteRequest,
    progress: &Progress<'_>,
) -> OperationProgress {
    OperationProgress {
        pid: program.pid,
        name: program.name.clone(),
        what: asked.direction.verb().into(),
        by: "top".into(),
        status: progress.into(),
        budget_percent: asked.budget.get(),
    }
}

pub fn pids_of(program: &TreeSample) -> Vec<Pid> {
    program.pids.iter().map(|pid| Pid(*pid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan_schedule::VisibleTrees;
    use crate::scanner::Scanner;
    use crate::tests::tools;
    use hugeleaf_sys::own_pid;

    #[test]
    fn this_program_says_why_and_would_be_moved() {
        let tools = tools();
        let mut scanner = Scanner::new(tools.clone());
        let sample = scanner.scan(&VisibleTrees::default(), None).unwrap();
        let is_own = |p: &&TreeSample| p.pids.contains(&own_pid().0);
        let own = sample.programs.iter().find(is_own).unwrap();
        let only = TreeSample {
            pids: vec![own_pid().0],
            processes: 1,
            ..own.clone()
        };
        assert!(!why(&tools, &only).unwrap().blocks.is_empty());
        let asked = PromoteDemoteRequest {
            direction: PromotionDirection::Promote,
            budget: "10%".parse().unwrap(),
            dry_run: true,
        };
        let stop = AtomicBool::new(false);
        match change(&tools, &only, asked, &mut |_| {}, &stop) {
            Ok(outcome) => {
                let (direction, budget) = (asked.direction, asked.budget);
                let page = outcome_page(&tools.commands, &outcome, &only, direction, budget);
                assert!(outcome.dry_run && page.title == "hugeleaf promote");
            }
            // The kernel does not support it.
            Err(refusal) => assert!(!refusal.remedy.is_empty()),
        }
    }

    #[test]
    fn who_is_gone_is_refused_in_two_lines() {
        let nobody = TreeSample {
            pid: u32::MAX,
            pids: vec![u32::MAX],
            ..TreeSample::default()
        };
        assert!(
            why(&tools(), &nobody)
                .unwrap_err()
                .message
                .contains("4294967295")
        );
    }
}
