//! Runs targets: one thread per target, and one per server.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use hugeleaf_host::system::available;
use hugeleaf_host::{Host, Root};
use hugeleaf_mover::pressure::{floor_of, sample};
use hugeleaf_mover::{PromoteOptions, promote};
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::Bytes;

use crate::component::WorkerReport;
use crate::config::{BalanceAction, BalanceTarget};
use crate::controller::{Controller, HostState, LogEvent};
use crate::status::BalanceStatus;
use crate::worker::Worker;
use hugeleaf_host::ForkTreeId;
use hugeleaf_units::Share;
use hugeleaf_units::panic_containment::StopOnPanic;

/// Scan interval while a resize is in progress.
const SOON: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    pub root: &'a Root,
    pub kernel: &'a Kernel,
    pub host: &'a Host,
    /// The run folder, in which limits of servers' owners are recorded.
    pub folder: &'a Path,
    /// Share of time in memory stalls above which no memory is given.
    pub pause_memory: Share,
    pub stop: &'a AtomicBool,
    /// Set while moves are paused.
    pub paused: &'a AtomicBool,
    pub say: &'a (dyn Fn(LogEvent) + Sync),
    pub shared: &'a Mutex<Vec<Option<BalanceStatus>>>,
    /// Called after each step. Ends the run if true, e.g. for a single scan.
    pub enough: &'a (dyn Fn(&Controller, Duration) -> bool + Sync),
}

pub fn run(run: RunContext<'_>, targets: &[BalanceTarget]) {
    let mut shared = run.shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.resize(targets.len(), None);
    drop(shared);
    std::thread::scope(|scope| {
        for (place, target) in targets.iter().enumerate() {
            scope.spawn(move || run_target(scope, run, place, target));
        }
    });
}

struct PressureMonitor {
    before: Option<hugeleaf_mover::pressure::PressureSample>,
    why: Option<String>,
}

impl PressureMonitor {
    fn observe_host(&mut self, run: RunContext<'_>, now: Duration) -> HostState {
        /// Minimum time between two readings for a meaningful rate.
        const LEAST: Duration = Duration::from_secs(1);
        let is_due = self.before.is_none_or(|before| now >= before.at + LEAST);
        if is_due {
            let is = sample(run.root, now, Duration::ZERO);
            self.why = self.before.and_then(|was| {
                let stalled = is.stalled?.saturating_sub(was.stalled?).as_secs_f64();
                let part = stalled / is.at.saturating_sub(was.at).as_secs_f64();
                (part > run.pause_memory.0).then(|| {
                    format!("tasks stall for memory {:.0} % of the time, more than pause_memory = \"{}\"", part * 100.0, run.pause_memory)
                })
            });
            self.before = Some(is);
        }
        let keep = run.host.pmd_page.get().map(|huge| floor_of(run.host, huge));
        HostState {
            available: available(run.root).get().zip(keep),
            short: self.why.clone(),
            paused: run.paused.load(Ordering::Relaxed),
        }
    }
}

fn run_target<'s, 'e: 's>(
    scope: &'s Scope<'s, 'e>,
    run: RunContext<'e>,
    place: usize,
    target: &BalanceTarget,
) {
    let _others = StopOnPanic(run.stop);
    let began = Instant::now();
    let workers = target.components.iter().map(|member| {
        let acts = target.action == BalanceAction::Balance;
        let worker = Worker::start(member, run.root, run.folder, acts, began);
        worker.map_err(|e| format!("cannot start a thread: {e}"))
    });
    let workers: Vec<Result<Worker, String>> = workers.collect();
    let huge = run
        .host
        .pmd_page
        .get()
        .map_or(Bytes::ZERO, |page| page.bytes());
    let mut core = Controller::new(target.clone(), huge);
    let mut around = PressureMonitor {
        before: None,
        why: None,
    };
    let mut promotion: Option<RunningPromotion<'s>> = None;
    let mut waiting: VecDeque<ForkTreeId> = VecDeque::new();
    while !run.stop.load(Ordering::Relaxed) {
        let reports: Vec<WorkerReport> = workers.iter().map(report).collect();
        let now = began.elapsed();
        if let Some((id, bytes)) = promotion.take_if(|p| p.1.is_finished()).and_then(ended) {
            *core.promoted.entry(id.pid).or_default() += bytes;
        }
        let done = core.step(&reports, &around.observe_host(run, now), now);
        for command in &done.commands {
            if let Some(Ok(worker)) = workers.get(command.part) {
                worker.resize(command.id, command.to, command.shrinks);
            }
        }
        done.said.into_iter().for_each(run.say);
        // Promote one server at a time, in order.
        let mut new = done.promote;
        new.retain(|id| !waiting.contains(id));
        waiting.extend(new);
        if promotion.is_none()
            && let Some(id) = waiting.pop_front()
        {
            promotion = Some((id, scope.spawn(move || promoted(run, id))));
        }
        publish(run, place, core.status(now));
        if (run.enough)(&core, now) {
            return;
        }
        let is_moving = core.is_moving();
        for worker in workers.iter().flatten() {
            if !is_moving {
                worker.returned();
            }
            worker.request_observation();
        }
        let pause = match is_moving {
            true => SOON.min(target.every),
            false => target.every,
        };
        run.kernel.wait(pause, run.stop);
    }
}

type RunningPromotion<'s> = (ForkTreeId, ScopedJoinHandle<'s, Bytes>);

fn ended((id, thread): RunningPromotion<'_>) -> Option<(ForkTreeId, Bytes)> {
    thread.join().ok().map(|bytes| (id, bytes))
}

fn report(worker: &Result<Worker, String>) -> WorkerReport {
    match worker {
        Ok(worker) => worker.report(),
        Err(why) => WorkerReport {
            trouble: Some(why.clone()),
            ..WorkerReport::default()
        },
    }
}

/// Promotes memory that a server got, within a tenth of its time. Servers disable THP for themselves because it grows
/// them. Only fully resident blocks are promoted here, which avoids growth.
fn promoted(run: RunContext<'_>, id: ForkTreeId) -> Bytes {
    let options = PromoteOptions {
        switch_thp_on: true,
        ..PromoteOptions::default()
    };
    let pids = [Pid(id.pid)];
    let outcome = promote(
        run.kernel,
        run.root,
        run.host,
        &pids,
        &options,
        &mut |_| {},
        run.stop,
    );
    match outcome {
        Ok(outcome) => outcome.done(),
        Err(error) => {
            (run.say)(LogEvent {
                what: "failed",
                name: format!("process {}", id.pid),
                text: format!("cannot promote the added memory: {error}"),
                bytes: None,
            });
            Bytes::ZERO
        }
    }
}

fn publish(run: RunContext<'_>, place: usize, status: BalanceStatus) {
    let mut shared = run.shared.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(slot) = shared.get_mut(place) {
        *slot = Some(status);
    }
}
