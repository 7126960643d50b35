//! The loop: scans, decides, runs the work in threads, learns from the results, and answers requests.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hugeleaf_host::{Fact, Host, Root};
use hugeleaf_mover::{BytesByReason, ProcessRanges, Progress, StallStats};
use hugeleaf_sys::{HostLock, Kernel, process_usage};
use hugeleaf_units::{Bytes, Failure};
use jiff::Timestamp;

use crate::balancer_supervisor::BalancerSupervisor;
use crate::config::Config;
use crate::config_files::{ConfigFiles, group_id};
use crate::instance_lock::lock_instance;
use crate::log::{Log, LogEntry};
use crate::observation::{Now, Observation, ObservedTree};
use crate::observer::Observer;
use crate::panic_failure::fault;
use crate::policy::{
    Decision, JobOutcome, PromotionResult, decide, learn, pressure, proof_in_words,
};
use crate::pool_policy::{self, PoolFinding, PoolInputs, PoolResize};
use crate::pool_watch::PoolWatch;
use crate::run_job::{JobContext, work};
use crate::scan_interval::ScanInterval;
use crate::serve::{HttpReply, HttpRequest, Listener, processor_without_answers, serve};
use crate::state::{GuardState, JobKind, Proof, RememberedVerdict};
use crate::state_store::StateFile;
use crate::status::{self, GuardCost, GuardStatus, JobProgress, SCHEMA};
use crate::textfile::Textfile;
use hugeleaf_balancer::LogEvent;
use hugeleaf_host::ForkTreeId;
use hugeleaf_units::panic_containment::{FAULT, caught};

/// Minimum time between writes of the state, except after a decision.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// Interval between attempts to open a listener that failed.
const LISTEN_AGAIN: Duration = Duration::from_secs(60);
/// Maximum time between signs of life of the loop.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// Time without a sign of life after which the loop counts as hung, as in the unit (`WatchdogSec=`).
const HUNG: Duration = Duration::from_secs(120);
const AS_ROOT: &str = "run as root, or: hugeleaf guard --once --dry-run";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardPaths {
    /// Folder of the lock and the socket, unique on a host: `/run/hugeleaf`.
    pub run: PathBuf,
    /// Folder of the state: `/var/lib/hugeleaf`; `None` to neither read nor write one.
    pub state: Option<PathBuf>,
    /// Folder of the log: `/var/log/hugeleaf`; `None` to keep the log in memory.
    pub log: Option<PathBuf>,
}

impl Default for GuardPaths {
    /// Returns systemd's folders (systemd.exec(5), `RuntimeDirectory=` and similar), or the defaults.
    fn default() -> GuardPaths {
        let place = |variable: &str, usual: &str| {
            // systemd separates several folders by colons; our unit has one.
            let said = std::env::var(variable)
                .ok()
                .filter(|said| said.starts_with('/'));
            said.and_then(|said| said.split(':').next().map(PathBuf::from))
                .unwrap_or_else(|| usual.into())
        };
        GuardPaths {
            run: place("RUNTIME_DIRECTORY", "/run/hugeleaf"),
            state: Some(place("STATE_DIRECTORY", "/var/lib/hugeleaf")),
            log: Some(place("LOGS_DIRECTORY", "/var/log/hugeleaf")),
        }
    }
}

impl GuardPaths {
    /// Returns the same places without state and log, for a guard that only reads.
    #[must_use]
    pub fn read_only(self) -> GuardPaths {
        GuardPaths {
            state: None,
            log: None,
            ..self
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.run.join("guard.sock")
    }
}

#[derive(Debug)]
pub enum ControlCommand {
    /// Read the rules again (SIGHUP).
    Reload,
    /// Suspend all changes until resumed.
    Pause,
    Resume,
    /// Stop (SIGTERM), after running work was brought to a safe state.
    Stop,
}

/// Renders the status, which the guard itself does not do.
pub trait StatusRenderer: Send + Sync {
    /// Returns the answer to a path that is not the guard's own; `None` if there is no such page.
    fn page(&self, path: &str, status: &GuardStatus) -> Option<(&'static str, Vec<u8>)>;

    /// Returns the content of node_exporter's textfile.
    fn textfile(&self, status: &GuardStatus) -> String;
}

enum DaemonEvent {
    Order(ControlCommand),
    /// A promotion is about to begin. Its thread continues once the sender is dropped.
    Intends(Box<PendingPromotion>, Sender<()>),
    Done(Box<Decision>, JobOutcome, JobCost),
    Said(LogEvent),
    /// A check of pools is complete: its findings, and the processor time used.
    Checked(Result<Vec<PoolFinding>, String>, Duration),
}

struct PendingPromotion {
    decision: Decision,
    memory: Vec<ProcessRanges>,
    one_way: Option<BytesByReason>,
}

/// The duration of a job, and the stalls that it caused.
struct JobCost {
    time: Duration,
    stalls: StallStats,
}

#[derive(Clone)]
pub struct ControlSender(Sender<DaemonEvent>);

impl ControlSender {
    pub fn send(&self, order: ControlCommand) {
        let _ = self.0.send(DaemonEvent::Order(order));
    }
}

pub struct Guard<'a> {
    root: &'a Root,
    kernel: &'a Kernel,
    host: &'a Host,
    files: ConfigFiles,
    places: GuardPaths,
    config: Config,
    state: GuardState,
    state_file: Option<StateFile>,
    log: Log,
    observer: Observer<'a>,
    pools: PoolWatch<'a>,
    balancing: BalancerSupervisor,
    checked: Option<String>,
    pace: ScanInterval,
    shared: Arc<SharedState>,
    serving: BTreeMap<&'static str, ServedListener>,
    tried: BTreeMap<&'static str, Instant>,
    events: (Sender<DaemonEvent>, Receiver<DaemonEvent>),
    jobs: BTreeMap<ForkTreeId, Arc<RunningJob>>,
    seen: BTreeMap<ForkTreeId, ObservedTree>,
    observation: Observation,
    problems: BTreeMap<&'static str, String>,
    started: Timestamp,
    scans: u64,
    wait: Duration,
    saved: Option<Instant>,
    textfile: Textfile,
    _lock: HostLock,
}

#[derive(Default)]
struct RunningJob {
    stop: AtomicBool,
    progress: Mutex<Option<JobProgress>>,
}

impl RunningJob {
    fn progress(&self) -> MutexGuard<'_, Option<JobProgress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loop's state as listeners see it.
struct SharedState {
    status: RwLock<Arc<GuardStatus>>,
    /// Time of the loop's last sign of life.
    alive: Mutex<Instant>,
}

impl SharedState {
    fn new() -> SharedState {
        SharedState {
            status: RwLock::default(),
            alive: Mutex::new(Instant::now()),
        }
    }

    fn status(&self) -> Arc<GuardStatus> {
        Arc::clone(&self.status.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, status: GuardStatus) {
        *self.status.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(status);
    }

    fn alive(&self) -> MutexGuard<'_, Instant> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct ServedListener {
    at: String,
    stop: Arc<AtomicBool>,
}

fn now_text() -> String {
    wall_text(Timestamp::now().as_second())
}

fn wall_text(seconds: i64) -> String {
    let text = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Timestamp::from_second(seconds).map_or_else(|_| String::new(), text)
}

impl<'a> Guard<'a> {
    pub fn new(
        root: &'a Root,
        kernel: &'a Kernel,
        host: &'a Host,
        files: ConfigFiles,
        places: GuardPaths,
    ) -> Result<Guard<'a>, Failure> {
        let config = files.read()?;
        for folder in [Some(&places.run), places.state.as_ref()]
            .into_iter()
            .flatten()
        {
            make(folder)?;
        }
        let lock = take_lock(&places)?;
        let mut problems = BTreeMap::new();
        let (state_file, state) = match &places.state {
            None => (None, GuardState::default()),
            Some(folder) => {
                let (file, state, problem) = StateFile::open(root, &folder.join("guard.json"));
                problems.extend(problem.map(|problem| ("state", problem)));
                (Some(file), state)
            }
        };
        // Without a folder the log is kept in memory only, and a problem is reported.
        let log = places.log.as_ref().and_then(|folder| match make(folder) {
            Ok(()) => Some(folder.join("guard.jsonl")),
            Err(error) => {
                problems.insert("log", error.to_string());
                None
            }
        });
        let mut guard = Guard {
            root,
            kernel,
            host,
            log: Log::new(log, config.log_bytes),
            observer: Observer::new(root, kernel, host),
            pools: PoolWatch::new(root, kernel),
            balancing: BalancerSupervisor::default(),
            checked: None,
            files,
            places,
            wait: config.every,
            config,
            state,
            state_file,
            pace: ScanInterval::default(),
            shared: Arc::new(SharedState::new()),
            serving: BTreeMap::new(),
            tried: BTreeMap::new(),
            events: channel(),
            jobs: BTreeMap::new(),
            seen: BTreeMap::new(),
            observation: Observation::default(),
            problems: BTreeMap::new(),
            started: Timestamp::now(),
            scans: 0,
            saved: None,
            textfile: Textfile::default(),
            _lock: lock,
        };
        // The first save of the state resolves its problem; the log keeps it.
        for (what, problem) in problems {
            guard.problem(what, Some(problem));
        }
        Ok(guard)
    }

    pub fn orders(&self) -> ControlSender {
        ControlSender(self.events.0.clone())
    }

    pub fn run(mut self, views: &dyn StatusRenderer) -> Result<(), Failure> {
        self.log_event("started", self.rules_in_words());
        std::thread::scope(|scope| {
            // After a fault the process exits, and its service manager restarts it.
            let outcome = caught(|| self.work(scope, views)).unwrap_or_else(|| Err(fault()));
            self.balancing.stop();
            let finished = caught(|| self.finish());
            for serving in self.serving.values() {
                serving.stop.store(true, Ordering::Relaxed);
            }
            // Drops the channel, so that no job waits for an answer of the loop.
            self.events = channel();
            outcome.and(finished.ok_or_else(fault))
        })?;
        let _ = std::fs::remove_file(self.places.socket());
        Ok(())
    }

    /// Runs until a stop order.
    fn work<'s, 'v: 's>(
        &mut self,
        scope: &'s std::thread::Scope<'s, '_>,
        views: &'v dyn StatusRenderer,
    ) -> Result<(), Failure>
    where
        'a: 's,
    {
        // Answers say that the first scan is not complete yet.
        self.publish(views);
        loop {
            self.keep_serving(scope, views);
            self.keep_balancing(scope);
            if !self.step(scope, views)? {
                return Ok(());
            }
        }
    }

    /// Serves the listeners of the rules. A failed listener is reported and retried after a minute.
    fn keep_serving<'s, 'v: 's>(
        &mut self,
        scope: &'s std::thread::Scope<'s, '_>,
        views: &'v dyn StatusRenderer,
    ) {
        let page = self.config.listen.map(|address| address.to_string());
        let metrics = self.config.metrics.map(|address| address.to_string());
        let socket = Some(self.places.socket().display().to_string());
        let mut has_stopped = false;
        for (what, wanted) in [("page", page), ("metrics", metrics), ("socket", socket)] {
            let has = self.serving.get(what).map(|serving| serving.at.clone());
            if wanted.is_none() {
                self.problem(what, None);
            }
            if has == wanted {
                continue;
            }
            if let Some(old) = self.serving.remove(what) {
                old.stop.store(true, Ordering::Relaxed);
                has_stopped = true;
            }
            let is_due = self
                .tried
                .get(what)
                .is_none_or(|at| at.elapsed() >= LISTEN_AGAIN);
            let Some(at) = wanted.filter(|_| is_due) else {
                continue;
            };
            let opened = match what {
                "page" => self.open_page(),
                "metrics" => self.open_metrics(),
                _ => self.open_socket(),
            };
            match opened {
                Ok(listener) => {
                    let stop = Arc::new(AtomicBool::new(false));
                    let (flag, orders) = (Arc::clone(&stop), self.orders());
                    let shared = Arc::clone(&self.shared);
                    scope.spawn(move || match what {
                        "metrics" => {
                            serve(&listener, &flag, &|r| answer_metrics(r, &shared, views));
                        }
                        _ => serve(&listener, &flag, &|r| answer(r, &shared, &orders, views)),
                    });
                    self.serving.insert(what, ServedListener { at, stop });
                    self.problem(what, None);
                }
                // The listener that was stopped just now may still have the address.
                Err(_) if has_stopped => {}
                Err(why) => {
                    self.tried.insert(what, Instant::now());
                    self.problem(what, Some(why));
                }
            }
        }
    }

    fn keep_balancing<'s>(&mut self, scope: &'s std::thread::Scope<'s, '_>)
    where
        'a: 's,
    {
        self.balancing.set_paused(self.state.paused_since.is_some());
        let events = self.events.0.clone();
        let kept = self.balancing.keep(
            scope,
            (self.root, self.kernel, self.host),
            (&self.config.targets, self.config.pause_memory),
            &self.places.run,
            move |said| {
                // The loop may have ended already.
                let _ = events.send(DaemonEvent::Said(said));
            },
        );
        match kept {
            Ok(()) => self.problem("balance", None),
            Err(error) if error.what.is_empty() => {}
            Err(error) => self.problem("balance", Some(error.to_string())),
        }
    }

    fn balanced(&mut self, said: LogEvent) {
        self.log.add(LogEntry {
            at: now_text(),
            what: said.what.into(),
            name: said.name,
            text: said.text,
            bytes: said.bytes,
            ..LogEntry::default()
        });
    }

    fn step<'s>(
        &mut self,
        scope: &'s std::thread::Scope<'s, '_>,
        views: &dyn StatusRenderer,
    ) -> Result<bool, Failure>
    where
        'a: 's,
    {
        let before = processor_without_answers();
        let was_busy = !self.jobs.is_empty() || self.pools.is_checking;
        let (observation, now) = self.observer.scan(&self.config, &self.state)?;
        let closer = observation.programs.iter().any(|p| p.closer.is_some());
        let decisions = decide(&self.config, &mut self.state, &observation, now);
        self.scans += 1;
        self.seen = observation
            .programs
            .iter()
            .map(|p| (p.id, p.clone()))
            .collect();
        self.observation = observation;
        let changed = closer || !decisions.is_empty() || !self.jobs.is_empty();
        for decision in decisions {
            self.begin(scope, decision);
        }
        let cost = processor_without_answers().saturating_sub(before);
        let alone = !was_busy && self.jobs.is_empty();
        self.manage_pools(scope, now);
        self.save(false);
        self.publish(views);
        let cpu = self.pools.left(self.config.cpu);
        let cost = alone.then_some(cost);
        self.wait = self.pace.next(self.config.every, cpu, cost, changed);
        self.notify(&[sd_notify::NotifyState::Ready]);
        self.notify_alive();
        self.wait_for_next(scope, views)
    }

    fn manage_pools<'s>(&mut self, scope: &'s std::thread::Scope<'s, '_>, now: Now)
    where
        'a: 's,
    {
        let (pools, at) = (self.observer.pools(), now.since_boot);
        pool_policy::record_unused(&mut self.state.pools, &pools, at);
        let short = pressure(&self.config, &self.state, &self.observation.host, at);
        let short = short.map(|why| why.text());
        // Read the plans now, because an undo may have changed them since.
        let may_act = short.is_some() && !self.pools.may.is_empty();
        let at_once = may_act || !self.state.pools.given.is_empty();
        self.pools.read_plans(at_once, at);
        let look = PoolInputs {
            pools: &pools,
            may: &self.pools.may,
            short: short.as_deref(),
            paused: self.state.paused_since.is_some() || self.config.is_dry,
            now: at,
        };
        let decided = pool_policy::decide(look, &mut self.state.pools);
        for text in decided.forgotten {
            self.log_event("problem", text);
        }
        for resize in &decided.resizes {
            self.resize(resize, at);
        }
        if let Some(check) = self.pools.due(&self.state.pools, &pools, at) {
            let events = self.events.0.clone();
            scope.spawn(move || {
                let (found, cost) = caught(|| check.run()).unwrap_or_else(|| {
                    (
                        Err(format!("pools are not checked: {FAULT}")),
                        Duration::ZERO,
                    )
                });
                let _ = events.send(DaemonEvent::Checked(found, cost));
            });
        }
    }

    fn pools_checked(&mut self, found: Result<Vec<PoolFinding>, String>, cost: Duration) {
        self.pools.checked(cost, self.config.cpu);
        match found {
            Ok(found) => self.found(found),
            Err(why) => self.problem("pools", Some(why)),
        }
    }

    /// Records the findings of a check, and logs new and resolved ones.
    fn found(&mut self, found: Vec<PoolFinding>) {
        self.problem("pools", None);
        self.checked = Some(now_text());
        let (new, gone) = pool_policy::changes(&self.state.pools.findings, &found);
        for finding in new {
            self.log_event("problem", format!("{} {}", finding.text, finding.command));
        }
        for finding in gone {
            self.log_event("resolved", finding.text);
        }
        self.state.pools.findings = found;
    }

    fn checked_at(&self) -> Option<String> {
        let (_, wait) = self.pools.cost();
        self.checked.clone().filter(|_| !wait.is_zero())
    }

    /// Sets a pool, after recording this in the state and the log.
    fn resize(&mut self, resize: &PoolResize, at: Duration) {
        let which = pool_policy::name(resize.page, resize.node);
        let (begun, done) = match resize.gives() {
            true => ("give", "gave"),
            false => ("take", "took"),
        };
        self.log_event(begun, format!("{which}: {}", resize.why));
        self.save(true);
        let got = self.pools.resize(resize);
        pool_policy::learn(
            &mut self.state.pools,
            resize,
            got.as_ref().ok().copied(),
            at,
        );
        match got {
            Ok(has) => self.log_event(
                done,
                format!("{which}: now {has} pages, {} before", resize.from),
            ),
            Err(why) => self.log_event("failed", why),
        }
        self.save(true);
    }

    fn wait_for_next<'s>(
        &mut self,
        scope: &'s std::thread::Scope<'s, '_>,
        views: &dyn StatusRenderer,
    ) -> Result<bool, Failure>
    where
        'a: 's,
    {
        let until = Instant::now() + self.wait;
        // Notify the watchdog more than twice per period.
        let slice = watchdog()
            .map_or(SIGN_OF_LIFE, |time| (time / 3).min(SIGN_OF_LIFE))
            .max(Duration::from_millis(100));
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(true);
            }
            match self.events.1.recv_timeout(left.min(slice)) {
                Ok(DaemonEvent::Order(ControlCommand::Stop)) => return Ok(false),
                Ok(DaemonEvent::Order(order)) => {
                    self.obey(&order);
                    return Ok(true);
                }
                Ok(DaemonEvent::Intends(intention, _goes_on)) => self.intends(*intention, views),
                Ok(DaemonEvent::Done(decision, came, spent)) => {
                    self.done(scope, &decision, &came, &spent, views)?;
                }
                Ok(DaemonEvent::Said(said)) => self.balanced(said),
                Ok(DaemonEvent::Checked(found, cost)) => {
                    self.pools_checked(found, cost);
                    self.publish(views);
                }
                Err(RecvTimeoutError::Timeout) => self.notify_alive(),
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    /// Records memory about to be promoted in the state. Memory that cannot be demoted is also reported in the log
    /// and the status.
    fn intends(&mut self, intention: PendingPromotion, views: &dyn StatusRenderer) {
        let decision = &intention.decision;
        if let Some(part) = intention.one_way {
            let text = part.one_way_in_words();
            self.log_decision(decision, "one-way", text, Some(part.bytes), None);
            self.publish(views);
        }
        if let Some(track) = self.state.tracks.get_mut(&decision.id) {
            track.intended = intention.memory;
            self.save(true);
        }
    }

    /// Runs a decision in a thread of its own, after logging it.
    fn begin<'s>(&mut self, scope: &'s std::thread::Scope<'s, '_>, decision: Decision)
    where
        'a: 's,
    {
        self.log_decision(
            &decision,
            decision.job.kind().name(),
            decision.why.clone(),
            None,
            None,
        );
        self.save(true);
        let going = Arc::new(RunningJob::default());
        self.jobs.insert(decision.id, Arc::clone(&going));
        let (kernel, root, host) = (self.kernel, self.root, self.host);
        let events = self.events.0.clone();
        scope.spawn(move || {
            let intend = |seen: &Progress<'_>| {
                let (written, wait) = channel();
                let intention = Box::new(PendingPromotion {
                    decision: decision.clone(),
                    memory: seen.planned.to_vec(),
                    one_way: seen.one_way,
                });
                let _ = events.send(DaemonEvent::Intends(intention, written));
                // Ends when the sender is dropped, after the state was written to its file.
                let _ = wait.recv();
            };
            let tools = JobContext {
                kernel,
                root,
                host,
                stop: &going.stop,
                progress: &|seen| {
                    *going.progress() = Some(seen.into());
                    if decision.job.kind() == JobKind::Promote && !seen.planned.is_empty() {
                        intend(seen);
                    }
                },
            };
            let began = Instant::now();
            let mut stalls = StallStats::default();
            let came = JobOutcome::from_job(|| work(tools, &decision, &mut stalls));
            let spent = JobCost {
                time: began.elapsed(),
                stalls,
            };
            let _ = events.send(DaemonEvent::Done(Box::new(decision), came, spent));
        });
    }

    fn done<'s>(
        &mut self,
        scope: &'s std::thread::Scope<'s, '_>,
        decision: &Decision,
        came: &JobOutcome,
        spent: &JobCost,
        views: &dyn StatusRenderer,
    ) -> Result<(), Failure>
    where
        'a: 's,
    {
        let now = self.observer.now()?;
        if let Some(next) = self.learn(decision, came, spent, now) {
            self.begin(scope, next);
        }
        self.save(true);
        self.publish(views);
        Ok(())
    }

    fn learn(
        &mut self,
        decision: &Decision,
        came: &JobOutcome,
        spent: &JobCost,
        now: Now,
    ) -> Option<Decision> {
        self.jobs.remove(&decision.id);
        let seconds = Some(spent.time.as_secs_f64());
        self.state.counts.stall(&spent.stalls);
        let seen = self.seen.get(&decision.id).cloned();
        let host = self.observation.host.clone();
        let next = match &seen {
            Some(seen) => learn(&self.config, &mut self.state, seen, came, &host, now),
            None => {
                self.state.tracks.remove(&decision.id);
                None
            }
        };
        let (what, text, bytes) = match came {
            JobOutcome::Promoted(PromotionResult {
                asked, done, grown, ..
            }) => {
                let grown = match grown.is_zero() {
                    true => String::new(),
                    false => format!(", memory grew by {grown}"),
                };
                (
                    "promoted",
                    format!("{done} of {asked} to huge pages{grown}"),
                    Some(*done),
                )
            }
            JobOutcome::Demoted { done } => {
                ("demoted", format!("{done} to base pages"), Some(*done))
            }
            JobOutcome::Tested(session) => {
                let track = self.state.tracks.get(&decision.id);
                let proof = track.map_or(&Proof::Unproven, |t| &t.proof);
                let measured = match session.logs.len() {
                    0 => "holds of both page sizes".to_owned(),
                    pairs => format!("{pairs} pairs"),
                };
                let metric = &session.metric;
                let text = format!("{measured} by {metric}: {}", proof_in_words(proof));
                ("tested", text, None)
            }
            JobOutcome::Sampled { touched, cost } => {
                let text = format!(
                    "touches {:.0} MB/s; the sample took {:.0} ms",
                    touched / 1e6,
                    cost.as_secs_f64() * 1e3
                );
                ("sampled", text, None)
            }
            JobOutcome::Stopped => ("stopped", "continues later".into(), None),
            JobOutcome::Failed { why, .. } => ("failed", why.clone(), None),
        };
        self.log_decision(decision, what, text, bytes, seconds);
        next
    }

    fn obey(&mut self, order: &ControlCommand) {
        match order {
            ControlCommand::Reload => {
                self.notify(&[sd_notify::NotifyState::Reloading]);
                match self.files.read() {
                    Ok(config) => {
                        self.log.most = config.log_bytes;
                        self.config = config;
                        self.pools.look_again();
                        self.problem("rules", None);
                        self.log_event("reloaded", self.rules_in_words());
                    }
                    // The old rules stay in force.
                    Err(error) => {
                        self.problem(
                            "rules",
                            Some(format!("{error}; the previous rules stay in force")),
                        );
                    }
                }
                self.notify(&[sd_notify::NotifyState::Ready]);
            }
            ControlCommand::Pause => {
                if self.state.paused_since.is_none() {
                    self.state.paused_since = Some(Timestamp::now().as_second());
                    self.log_event(
                        "paused",
                        "no promotions or demotions until: hugeleaf guard resume".into(),
                    );
                }
                for going in self.jobs.values() {
                    going.stop.store(true, Ordering::Relaxed);
                }
            }
            ControlCommand::Resume => {
                if self.state.paused_since.take().is_some() {
                    self.log_event("resumed", String::new());
                }
            }
            ControlCommand::Stop => {}
        }
        self.save(true);
    }

    /// Ends running work: a promotion stops at once, and a test restores its memory.
    fn finish(&mut self) {
        self.notify(&[sd_notify::NotifyState::Stopping]);
        for going in self.jobs.values() {
            going.stop.store(true, Ordering::Relaxed);
        }
        while !self.jobs.is_empty() {
            match self.events.1.recv_timeout(Duration::from_secs(1)) {
                Ok(DaemonEvent::Done(decision, came, spent)) => {
                    let Ok(now) = self.observer.now() else { break };
                    // Follow-up work waits for the next start.
                    if let Some(next) = self.learn(&decision, &came, &spent, now)
                        && let Some(track) = self.state.tracks.get_mut(&next.id)
                    {
                        track.job = None;
                    }
                }
                Ok(DaemonEvent::Said(said)) => self.balanced(said),
                Ok(DaemonEvent::Order(_) | DaemonEvent::Intends(..) | DaemonEvent::Checked(..))
                | Err(RecvTimeoutError::Timeout) => self.notify_alive(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.log_event("stopped", String::new());
        self.save(true);
    }

    fn rules_in_words(&self) -> String {
        let files = self.files.found();
        let from = match files.len() {
            0 => "no rules: watching everything, changing nothing".to_owned(),
            _ => {
                let rules = count(self.config.rules.len() - 1, "rule");
                let targets = match self.config.targets.len() {
                    0 => String::new(),
                    n => format!(" and {}", count(n, "memory target")),
                };
                format!("{rules}{targets} in {}", count(files.len(), "file"))
            }
        };
        match self.config.acts() {
            true => format!("{from}; acting"),
            false if files.is_empty() => from,
            false => format!("{from}; watching"),
        }
    }

    fn log_event(&mut self, what: &str, text: String) {
        self.log.add(LogEntry {
            at: now_text(),
            what: what.into(),
            text,
            ..LogEntry::default()
        });
    }

    fn log_decision(
        &mut self,
        decision: &Decision,
        what: &str,
        text: String,
        bytes: Option<Bytes>,
        seconds: Option<f64>,
    ) {
        self.log.add(LogEntry {
            at: now_text(),
            what: what.into(),
            pid: Some(decision.id.pid),
            name: decision.name.clone(),
            group: decision.group.clone(),
            rule: decision.rule.clone(),
            text,
            bytes,
            seconds,
        });
    }

    /// Records a problem once; `None` marks it as resolved.
    fn problem(&mut self, what: &'static str, problem: Option<String>) {
        match problem {
            None => {
                self.problems.remove(what);
            }
            Some(text) => {
                if self.problems.get(what) != Some(&text) {
                    self.log_event("problem", text.clone());
                    self.problems.insert(what, text);
                }
            }
        }
    }

    fn save(&mut self, now: bool) {
        let is_due = self.saved.is_none_or(|at| at.elapsed() >= SAVE_EVERY);
        if !now && !is_due {
            return;
        }
        self.saved = Some(Instant::now());
        if let Some(file) = &mut self.state_file {
            let saved = file.save(&self.state);
            self.problem("state", saved.err());
        }
    }

    fn publish(&mut self, views: &dyn StatusRenderer) {
        if let Some(problem) = self.log.problem() {
            self.problems.insert("log", problem.to_owned());
        } else if self.places.log.as_ref().is_some_and(|log| log.is_dir()) {
            self.problems.remove("log");
        }
        let host = &self.observation.host;
        if host.no_psi && self.scans > 0 {
            let why = "this kernel has no pressure stall information (PSI): memory \
                       pressure is detected by reclaim, processor pressure is not detected";
            self.problems.insert("pressure", why.into());
        }
        let mut programs = status::programs(&self.config, &self.state, &self.observation);
        for program in &mut programs {
            let mut jobs = self.jobs.iter();
            let going = jobs.find(|(id, _)| id.pid == program.pid);
            program.job = going.and_then(|(_, going)| going.progress().clone());
        }
        let status = GuardStatus {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            started: wall_text(self.started.as_second()),
            // With milliseconds, so that two guards within one second differ.
            started_seconds: self.started.as_millisecond() as f64 / 1e3,
            at: now_text(),
            files: self
                .files
                .found()
                .iter()
                .map(|f| f.display().to_string())
                .collect(),
            acts: self.config.acts(),
            read_only: self.places.state.is_none(),
            rules: self.config.rules.len() - 1,
            paused_since: self.state.paused_since.map(wall_text),
            problems: self.problems.values().cloned().collect(),
            cost: GuardCost {
                scan_seconds: self.pace.cost().as_secs_f64(),
                wait_seconds: self.wait.as_secs_f64(),
                scans: self.scans,
                cpu_seconds: process_usage().processor().as_secs_f64(),
                resident_bytes: own_resident(self.root),
                pool_check_seconds: self.pools.cost().0.as_secs_f64(),
                pool_check_wait_seconds: self.pools.cost().1.as_secs_f64(),
            },
            host: self.observer.host_status(host),
            pools: status::pools(&self.state.pools, self.checked_at()),
            programs,
            seen: self.observation.programs.len(),
            counts: self.state.counts,
            remembered: (self.state.remembered.iter())
                .map(RememberedVerdict::shown)
                .collect(),
            series: self.config.series,
            balance: self.balancing.statuses(),
            log: self.log.newest(),
        };
        if let Some(path) = self.config.textfile.clone() {
            let text = views.textfile(&status);
            let written = self.textfile.write(&path, text);
            self.problem("textfile", written.err());
        }
        self.shared.publish(status);
    }

    /// Tells the watchdog and the listeners that the loop continues.
    fn notify_alive(&self) {
        *self.shared.alive() = Instant::now();
        self.notify(&[sd_notify::NotifyState::Watchdog]);
    }

    fn notify(&self, state: &[sd_notify::NotifyState<'_>]) {
        // Without systemd there is no receiver.
        let _ = sd_notify::notify(false, state);
    }

    fn open_page(&self) -> Result<Listener, String> {
        let Some(address) = self.config.listen else {
            return Err("no address".into());
        };
        let fail = |error| format!("cannot serve the page and the metrics at {address}: {error}");
        let listener = TcpListener::bind(address).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        Ok(Listener::Tcp(listener))
    }

    fn open_metrics(&self) -> Result<Listener, String> {
        let Some(address) = self.config.metrics else {
            return Err("no address".into());
        };
        let fail = |error| format!("cannot serve the metrics at {address}: {error}");
        let listener = TcpListener::bind(address).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        Ok(Listener::Network(listener))
    }

    fn open_socket(&self) -> Result<Listener, String> {
        let path = self.places.socket();
        let fail = |error: &dyn std::fmt::Display| {
            format!("cannot open the socket {}: {error}", path.display())
        };
        match std::fs::symlink_metadata(&path) {
            // This process holds the lock, so the socket's previous owner has ended.
            Ok(file) if file.file_type().is_socket() => {
                std::fs::remove_file(&path).map_err(|e| fail(&e))?;
            }
            Ok(_) => return Err(fail(&"the path exists and is not a socket")),
            Err(_) => {}
        }
        let listener = UnixListener::bind(&path).map_err(|e| fail(&e))?;
        listener.set_nonblocking(true).map_err(|e| fail(&e))?;
        let group = match &self.config.group {
            Some(name) => Some(
                group_id(self.root, name)
                    .ok_or_else(|| fail(&format!("there is no group '{name}'")))?,
            ),
            None => None,
        };
        // Users who may connect may give orders: the owner, and the group of the rules. If the unit runs in that
        // group, the socket already has it, and no right to change the group is needed.
        let has = std::fs::symlink_metadata(&path).map(|file| file.gid()).ok();
        if group.is_some() && group != has {
            std::os::unix::fs::chown(&path, None, group).map_err(|e| fail(&e))?;
        }
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).map_err(|e| fail(&e))?;
        Ok(Listener::Unix(listener))
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn watchdog() -> Option<Duration> {
    let mut micros = 0;
    sd_notify::watchdog_enabled(false, &mut micros).then(|| Duration::from_micros(micros))
}

fn own_resident(root: &Root) -> Bytes {
    let parse = hugeleaf_host::process::proc_parsers::parse_status;
    match root.parse("proc/self/status", parse) {
        Fact::Known(status) => status.resident.unwrap_or_default(),
        _ => Bytes::ZERO,
    }
}

fn make(folder: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder);
    made.map_err(|error| Failure::missing(format!("{}: {error}", folder.display()), AS_ROOT))
}

fn take_lock(places: &GuardPaths) -> Result<HostLock, Failure> {
    let lock = lock_instance(&places.run.join("guard.lock"), "guard");
    lock.map_err(|error| match error.is_held {
        true => Failure::missing(error.what, "hugeleaf guard status"),
        false => Failure::missing(error.what, AS_ROOT),
    })
}

fn answer(
    request: HttpRequest<'_>,
    shared: &SharedState,
    orders: &ControlSender,
    views: &dyn StatusRenderer,
) -> HttpReply {
    let status = shared.status();
    if request.method == "POST" {
        let order = match request.path {
            "/pause" => ControlCommand::Pause,
            "/resume" => ControlCommand::Resume,
            "/reload" => ControlCommand::Reload,
            _ => return HttpReply::refuse(404, "no such command"),
        };
        orders.send(order);
        return HttpReply::ok("text/plain; charset=utf-8", "done\n");
    }
    match request.path {
        "/healthz" | "/readyz" => answer_metrics(request, shared, views),
        "/status.json" => match serde_json::to_vec(&*status) {
            Ok(bytes) => HttpReply::ok("application/json", bytes),
            Err(error) => HttpReply::refuse(500, &error.to_string()),
        },
        path => match views.page(path, &status) {
            Some((kind, body)) => HttpReply::ok(kind, body),
            None => HttpReply::refuse(404, "no such page"),
        },
    }
}

/// Answers a reader on the network: metrics and the state of the loop, and nothing else.
fn answer_metrics(
    request: HttpRequest<'_>,
    shared: &SharedState,
    views: &dyn StatusRenderer,
) -> HttpReply {
    const PLAIN: &str = "text/plain; charset=utf-8";
    let is_hung = || shared.alive().elapsed() > HUNG;
    match request.path {
        "/healthz" | "/readyz" if is_hung() => HttpReply::refuse(503, "the guard hangs"),
        "/readyz" if shared.status().cost.scans == 0 => {
            HttpReply::refuse(503, "the first scan is not complete yet")
        }
        "/healthz" | "/readyz" => HttpReply::ok(PLAIN, "ok\n"),
        path @ ("/metrics" | "/metrics/openmetrics") => match views.page(path, &shared.status()) {
            Some((kind, body)) => HttpReply::ok(kind, body),
            None => HttpReply::refuse(404, "no such page"),
        },
        _ => HttpReply::refuse(404, "here are only /metrics, /healthz and /readyz"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Views;

    impl StatusRenderer for Views {
        fn page(&self, path: &str, _status: &GuardStatus) -> Option<(&'static str, Vec<u8>)> {
            Some(("text/plain", path.as_bytes().to_vec()))
        }

        fn textfile(&self, _status: &GuardStatus) -> String {
            String::new()
        }
    }

    fn status_of(shared: &SharedState, path: &str) -> u16 {
        let request = HttpRequest {
            method: "GET",
            path,
            query: "",
            trusted: false,
        };
        answer_metrics(request, shared, &Views).status
    }

    #[test]
    fn the_network_gets_metrics_and_no_page() {
        let shared = SharedState::new();
        for path in ["/metrics", "/metrics/openmetrics", "/healthz"] {
            assert_eq!(status_of(&shared, path), 200, "{path}");
        }
        for path in [
            "/",
            "/status.json",
            "/decisions",
            "/proofs",
            "/program/1",
            "/pause",
            "",
            "/metrics/",
            "*",
        ] {
            assert_eq!(status_of(&shared, path), 404, "{path}");
        }
    }

    #[test]
    fn ready_after_the_first_scan_and_healthy_while_the_loop_continues() {
        let shared = SharedState::new();
        let states = || {
            (
                status_of(&shared, "/healthz"),
                status_of(&shared, "/readyz"),
            )
        };
        assert_eq!(states(), (200, 503));
        let mut status = GuardStatus::default();
        status.cost.scans = 1;
        shared.publish(status);
        assert_eq!(states(), (200, 200));
        *shared.alive() = Instant::now().checked_sub(HUNG * 2).unwrap();
        assert_eq!(states(), (503, 503));
    }

    /// The first save writes a new file, after which no problem is left to show.
    #[test]
    fn a_state_file_of_a_later_version_is_in_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("state")).unwrap();
        std::fs::write(at("state/guard.json"), "{\"schema\": 99}").unwrap();
        std::fs::write(at("guard.toml"), "schema = 1\nlisten = 'off'\n").unwrap();
        let places = GuardPaths {
            run: at("run"),
            state: Some(at("state")),
            log: Some(at("log")),
        };
        let (root, kernel) = (Root::live(), Kernel::new());
        let host = hugeleaf_host::read_host(&root, &kernel).unwrap();
        let files = ConfigFiles::named(at("guard.toml"));
        Guard::new(&root, &kernel, &host, files, places).unwrap();
        let log = std::fs::read_to_string(at("log/guard.jsonl")).unwrap();
        assert!(log.contains("renamed to .bad"), "{log}");
    }
}
