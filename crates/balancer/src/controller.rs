//! A target and its components: turns reports of threads into commands. No clock, thread, input or output, so that
//! tests simulate servers that restart, lie and hang.
//!
//! The policy (`hugeleaf-balance`) divides the target minus each process's overhead at any size. An order ends when the
//! server reports this. For a reduction its process must also hold less memory. Only then the policy is informed, and
//! gives that memory to another component.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hugeleaf_balance::{
    Component, Granule, Move, OperationKind, OrderResult, Settings, State, decide, learn, view,
};
use hugeleaf_units::Bytes;

use crate::component::{PendingResize, ResizeFollowUp, ServerComponent, WorkerReport};
use crate::config::{BalanceAction, BalanceTarget};
use crate::status::{BalanceStatus, ComponentStatus};
use hugeleaf_host::ForkTreeId;

/// Minimum number of granules in a target, so that one is small in comparison and its effect can be measured.
const GRANULES: u64 = 64;
/// Extra time that the policy waits for an answer, beyond the time to return memory.
const PATIENCE: Duration = Duration::from_secs(30);
/// After growth a server's memory is promoted during the first time, at intervals of the second.
const PROMOTED: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(10));
/// Maximum rounds per step. Freed memory is given in the next round.
const ROUNDS: usize = 8;
const SHOWN: usize = 50;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostState {
    /// Available memory, and the part that must stay available; `None` if the kernel does not report it.
    pub available: Option<(Bytes, Bytes)>,
    /// Reason why no memory may be given now.
    pub short: Option<String>,
    pub paused: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeCommand {
    pub part: usize,
    pub id: u64,
    pub to: Bytes,
    pub shrinks: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// One of `balance`, `balanced`, `failed`, `problem`, `resolved`.
    pub what: &'static str,
    pub name: String,
    pub text: String,
    pub bytes: Option<Bytes>,
}

#[derive(Debug, Default, PartialEq)]
pub struct StepOutput {
    pub commands: Vec<ResizeCommand>,
    pub promote: Vec<ForkTreeId>,
    pub said: Vec<LogEvent>,
}

impl StepOutput {
    fn say(&mut self, target: &str, component: &str, what: &'static str, text: String) {
        self.said.push(log_event(target, component, what, text));
    }
}

pub struct Controller {
    target: BalanceTarget,
    settings: Settings,
    state: State,
    parts: Vec<ServerComponent>,
    usable: Bytes,
    components: Vec<Component>,
    would: Vec<String>,
    problems: BTreeMap<&'static str, String>,
    /// Last reported reason for the exclusion of each component.
    apart: BTreeMap<String, String>,
    /// Components that had no limit and were given one.
    given_limits: BTreeSet<usize>,
    /// Last reported trouble of each component that the policy skips.
    troubled: BTreeMap<String, String>,
    scans: u32,
    /// End of promotion for each component that grew, and the time of the next one.
    promote: BTreeMap<usize, (Duration, Duration)>,
    pub promoted: BTreeMap<u32, Bytes>,
}

impl Controller {
    pub fn new(target: BalanceTarget, huge: Bytes) -> Controller {
        let part = Bytes(target.target.get() / GRANULES);
        let huge = Granule::new(huge).ok();
        let granule = huge.map_or(part, |huge| huge.round_up(part));
        let granule = granule.max(Bytes::from_kib(1));
        let returns = target.components.iter().map(|member| member.kind.returns);
        let settings = Settings {
            patience: returns.max().unwrap_or_default() + PATIENCE,
            ..Settings::servers()
        };
        let parts = (target.components.iter()).filter_map(|member| {
            let granule = Granule::new(granule).ok()?;
            Some(ServerComponent::new(member.clone(), granule, target.every))
        });
        Controller {
            parts: parts.collect(),
            settings,
            state: State::default(),
            usable: target.target,
            components: Vec::new(),
            would: Vec::new(),
            problems: BTreeMap::new(),
            apart: BTreeMap::new(),
            given_limits: BTreeSet::new(),
            troubled: BTreeMap::new(),
            scans: 0,
            promote: BTreeMap::new(),
            promoted: BTreeMap::new(),
            target,
        }
    }

    pub fn is_moving(&self) -> bool {
        self.parts.iter().any(|part| part.order.is_some())
    }

    /// Returns true if a component has not answered yet, and its first answer is not overdue.
    pub fn is_waiting(&self, now: Duration) -> bool {
        self.parts.iter().any(|part| part.is_new(now))
    }

    /// Returns true if each component answered its last query, and no resize is in progress.
    pub fn is_settled(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.all(|part| part.seen.is_some() && part.trouble.is_none() && part.order.is_none())
    }

    pub const fn scans(&self) -> u32 {
        self.scans
    }

    /// Changes the total; components keep their memory until the next steps.
    pub fn set_target(&mut self, target: Bytes) {
        self.target.target = target;
    }

    pub fn step(
        &mut self,
        reports: &[WorkerReport],
        around: &HostState,
        now: Duration,
    ) -> StepOutput {
        self.scans = self.scans.saturating_add(1);
        let mut done = StepOutput::default();
        let mut fresh = vec![false; self.parts.len()];
        for (index, (part, report)) in self.parts.iter_mut().zip(reports).enumerate() {
            if let Some(id) = part.observe(report, now) {
                fresh[index] = true;
                let text = format!(
                    "restarted as process {} with {}; its resize in progress is dropped",
                    id.pid,
                    part.size().unwrap_or_default()
                );
                done.say(&self.target.name, &part.member.name, "problem", text);
            }
        }
        self.answers(reports, now, &mut done);
        self.limit(around, &mut done);
        self.divide(around, &fresh, now);
        for _ in 0..ROUNDS {
            if !self.round(around, now, &mut done) {
                break;
            }
        }
        self.report_excluded(around, now, &mut done);
        self.promotions(now, &mut done);
        done
    }

    /// Sets a limit for components that must get one, at least their minimum.
    fn limit(&mut self, around: &HostState, done: &mut StepOutput) {
        /// Differs from the id of any order.
        const ID: u64 = u64::MAX;
        if self.target.action == BalanceAction::Watch || around.paused {
            return;
        }
        for (index, part) in self.parts.iter().enumerate() {
            let look = part.seen.as_ref().map(|(_, look)| look);
            let Some(look) = look.filter(|look| look.is_unlimited && part.order.is_none()) else {
                continue;
            };
            let to = look.size.max(part.member.least);
            done.commands.push(ResizeCommand {
                part: index,
                id: ID,
                to,
                shrinks: false,
            });
            if self.given_limits.insert(index) {
                let text = format!("it has no limit: setting a limit of {to}");
                done.say(&self.target.name, &part.member.name, "balance", text);
            }
        }
    }

    fn answers(&mut self, reports: &[WorkerReport], now: Duration, done: &mut StepOutput) {
        let target = self.target.name.clone();
        for (index, report) in reports.iter().enumerate() {
            let Some(part) = self.parts.get_mut(index) else {
                return;
            };
            let Some(order) = part.order.clone() else {
                continue;
            };
            match part.outcome(report, now) {
                ResizeFollowUp::Wait => {}
                ResizeFollowUp::SetBack(size) => {
                    if let Some(order) = &mut part.order {
                        order.back = Some((size, now));
                    }
                    done.commands.push(ResizeCommand {
                        part: index,
                        id: order.id,
                        to: size,
                        shrinks: false,
                    });
                }
                ResizeFollowUp::Over(came) => {
                    part.order = None;
                    learn(&self.settings, &mut self.state, order.id, &came, now);
                    if order.kind == OperationKind::Grow {
                        self.promote.insert(index, (now + PROMOTED.0, now));
                    }
                    done.said
                        .push(outcome_said(&target, part, &order, &came, now));
                }
            }
        }
    }

    /// Computes the memory to divide, and the components. Restarted ones are left out once, so that the policy drops
    /// its knowledge of them.
    fn divide(&mut self, around: &HostState, fresh: &[bool], now: Duration) {
        let is_short = around.short.is_some();
        let mut usable = self.target.target;
        let mut held = Bytes::ZERO;
        let mut all_known = true;
        let mut components = Vec::new();
        for (part, fresh) in self.parts.iter().zip(fresh) {
            let component = part.component(is_short, now).filter(|_| !fresh);
            match component {
                Some(component) => {
                    usable = usable - part.overhead;
                    held += component.held();
                    components.push(component);
                }
                None => {
                    usable = usable - part.reserved();
                    all_known &= *fresh;
                }
            }
        }
        if !all_known {
            // An unseen component may have any size, so unused memory may be its own.
            usable = usable.min(held);
        }
        self.usable = self.limited(usable, held, around);
        self.components = components;
    }

    /// Limits memory to the capacity of the host and of a cgroup common to all, and lower if those are short.
    fn limited(&mut self, usable: Bytes, held: Bytes, around: &HostState) -> Bytes {
        let unfilled: Bytes = self.parts.iter().map(ServerComponent::unfilled).sum();
        let mut limited = usable;
        let mut why = None;
        let mut bound = |room: Bytes, keep: Bytes, what: &str| {
            let give = room - (unfilled + keep);
            let lack = (unfilled + keep) - room;
            let most = held + give - lack;
            if most < limited {
                limited = most;
                why = Some(format!(
                    "{what} leaves {room}, of which {keep} must stay free: {most} are distributed instead of {usable}"
                ));
            }
        };
        if let Some((available, keep)) = around.available {
            bound(available, keep, "the host");
        }
        for (path, room) in self.common_limits() {
            let keep = self.parts.iter().map(|part| part.granule.bytes()).max();
            bound(
                room,
                keep.unwrap_or_default(),
                &format!("the memory limit of cgroup {path}"),
            );
        }
        self.set_problem("limit", why);
        limited
    }

    fn set_problem(&mut self, key: &'static str, text: Option<String>) {
        match text {
            Some(text) => self.problems.insert(key, text),
            None => self.problems.remove(key),
        };
    }

    fn common_limits(&self) -> Vec<(String, Bytes)> {
        let Some((first, others)) = self.parts.split_first() else {
            return Vec::new();
        };
        let is_common = |path: &String| {
            let mut all = others.iter();
            all.all(|part| part.limits().iter().any(|(other, _)| other == path))
        };
        let limits = first.limits().iter();
        limits
            .filter(|(path, _)| is_common(path))
            .cloned()
            .collect()
    }

    fn round(&mut self, around: &HostState, now: Duration, done: &mut StepOutput) -> bool {
        if around.paused {
            self.would.clear();
            return false;
        }
        let watches = self.target.action == BalanceAction::Watch;
        let before = watches.then(|| self.state.clone());
        let moves = decide(
            &self.settings,
            &mut self.state,
            self.usable,
            &self.components,
            now,
        );
        if let Some(before) = before {
            if !moves.is_empty() {
                // No order is given, so there is no result to wait for.
                self.state = before;
            }
            self.would_do(&moves, now, done);
            return false;
        }
        self.would.clear();
        moves.iter().for_each(|one| self.begin(one, now, done));
        !moves.is_empty()
    }

    /// Returns `a: 512M to 496M, for b: WHY`, and the possible cost.
    fn in_words(&self, one: &Move, now: Duration) -> String {
        let line = move_in_words(one);
        let is_it = |part: &&ServerComponent| part.member.name == one.order.component;
        let part = self.parts.iter().find(is_it);
        let part = part.filter(|_| one.order.kind == OperationKind::Shrink);
        let evicts = part.map_or(Bytes::ZERO, |part| part.evicts(one.order.goal));
        match part.filter(|_| !evicts.is_zero()) {
            Some(part) => format!(
                "{line}; it may evict {evicts} of its data, of {} still allowed this hour",
                part.may_evict(now)
            ),
            None => line,
        }
    }

    /// Records planned moves, and logs them if there was none before.
    fn would_do(&mut self, moves: &[Move], now: Duration, done: &mut StepOutput) {
        let lines: Vec<String> = moves.iter().map(|one| self.in_words(one, now)).collect();
        if self.would.is_empty() {
            done.said
                .extend(moves.iter().zip(&lines).map(|(one, line)| {
                    let text = format!("would resize {line}");
                    log_event(&self.target.name, &one.order.component, "balance", text)
                }));
        }
        self.would = lines;
    }

    fn begin(&mut self, one: &Move, now: Duration, done: &mut StepOutput) {
        let order = &one.order;
        let is_it = |part: &ServerComponent| part.member.name == order.component;
        let Some(index) = self.parts.iter().position(is_it) else {
            return;
        };
        let mut line = log_event(
            &self.target.name,
            &order.component,
            "balance",
            self.in_words(one, now),
        );
        line.bytes = Some(order.by());
        done.said.push(line);
        let ordered = PendingResize {
            id: one.id,
            kind: order.kind,
            before: order.before,
            goal: order.goal,
            since: now,
            held: None,
            back: None,
        };
        self.parts[index].begin(ordered, now);
        done.commands.push(ResizeCommand {
            part: index,
            id: one.id,
            to: order.goal,
            shrinks: order.kind == OperationKind::Shrink,
        });
    }

    /// Reports excluded components, once per change, and problems of the whole target.
    fn report_excluded(&mut self, around: &HostState, now: Duration, done: &mut StepOutput) {
        let problem = self.state.problem().map(ToString::to_string);
        self.set_problem("policy", problem);
        let short = around.short.as_ref();
        self.set_problem("short", short.map(|why| format!("growth is paused: {why}")));
        let mut now_apart = BTreeMap::new();
        for part in &self.parts {
            let busy = part
                .seen
                .as_ref()
                .is_some_and(|(_, look)| look.busy.is_some());
            if let Some(why) = part.reason(now).filter(|_| !busy && !part.is_new(now)) {
                now_apart.insert(part.member.name.clone(), why);
            }
        }
        for (name, why) in &now_apart {
            if !self.apart.contains_key(name) {
                done.say(&self.target.name, name, "problem", why.clone());
            }
        }
        for name in self
            .apart
            .keys()
            .filter(|name| !now_apart.contains_key(*name))
        {
            let text = "resized again".to_owned();
            done.say(&self.target.name, name, "resolved", text);
        }
        self.apart = now_apart;
        self.tell_trouble(done);
    }

    fn tell_trouble(&mut self, done: &mut StepOutput) {
        // During an order its memory may not be returned yet.
        let moves = |name: &str| {
            let mut parts = self.parts.iter();
            parts.any(|part| part.member.name == name && part.order.is_some())
        };
        let standings = self.state.standings();
        let troubled: BTreeMap<String, String> = standings
            .filter(|(name, standing)| standing.is_excluded() && !moves(name))
            .map(|(name, standing)| (name.to_owned(), standing.to_string()))
            .collect();
        for (name, text) in &troubled {
            if !self.troubled.contains_key(name) {
                done.say(&self.target.name, name, "problem", text.clone());
            }
        }
        self.troubled = troubled;
    }

    fn promotions(&mut self, now: Duration, done: &mut StepOutput) {
        self.promote.retain(|_, (until, _)| now < *until);
        if self.target.pages == crate::config::PagePreference::Base {
            return;
        }
        for (index, (_, next)) in &mut self.promote {
            let process = self
                .parts
                .get(*index)
                .and_then(|part| part.process.as_ref());
            if let Some(process) = process.filter(|_| now >= *next) {
                *next = now + PROMOTED.1;
                done.promote.push(process.id);
            }
        }
    }

    pub fn status(&self, now: Duration) -> BalanceStatus {
        let mut view = view(&self.state, &self.components);
        let old = view.operations.len().saturating_sub(SHOWN);
        view.operations.drain(..old);
        BalanceStatus {
            name: self.target.name.clone(),
            action: self.target.action,
            pages: self.target.pages,
            target_bytes: self.target.target,
            usable_bytes: self.usable,
            held_bytes: self.parts.iter().map(ServerComponent::reserved).sum(),
            resident_bytes: self
                .parts
                .iter()
                .filter_map(ServerComponent::resident)
                .sum(),
            every_seconds: self.target.every.as_secs_f64(),
            problems: self.problems.values().cloned().collect(),
            would: self.would.clone(),
            components: self
                .parts
                .iter()
                .map(|part| self.component_status(part, now))
                .collect(),
            view,
        }
    }

    fn component_status(&self, part: &ServerComponent, now: Duration) -> ComponentStatus {
        let name = &part.member.name;
        let mut standings = self.state.standings();
        let standing = standings.find(|(of, _)| of == name);
        let standing = standing.map(|(_, standing)| standing.to_string());
        let benefit = part.benefit(now);
        let process = part.process.as_ref();
        ComponentStatus {
            name: name.clone(),
            kind: part.member.kind.name().into(),
            address: part.member.shown.clone(),
            pid: process.map(|process| process.id.pid),
            size_bytes: part.size(),
            least_bytes: part.member.least,
            most_bytes: part.member.most,
            granule_bytes: part.granule.bytes(),
            resident_bytes: part.resident(),
            overhead_bytes: part.overhead,
            gain_seconds_per_second: benefit.more.map(|e| e.value),
            loss_seconds_per_second: benefit.less.map(|e| e.value),
            pressure_seconds_per_second: benefit.pressure,
            may_evict_bytes: part.is_evicting().then(|| part.may_evict(now)),
            promoted_bytes: process
                .and_then(|process| self.promoted.get(&process.id.pid).copied())
                .unwrap_or_default(),
            standing: part.reason(now).or(standing).unwrap_or_default(),
        }
    }
}

fn log_event(target: &str, component: &str, what: &'static str, text: String) -> LogEvent {
    LogEvent {
        what,
        name: format!("{target}/{component}"),
        text,
        bytes: None,
    }
}

/// Returns `a: 512M to 496M, for b: WHY`.
fn move_in_words(one: &Move) -> String {
    let order = &one.order;
    let by_whom = match (order.kind, &one.from, &one.to) {
        (OperationKind::Shrink, _, Some(to)) => format!(", for {to}"),
        (OperationKind::Grow, Some(from), _) => format!(", taken from {from}"),
        _ => String::new(),
    };
    format!(
        "{} from {} to {}{by_whom}: {}",
        order.component, order.before, order.goal, one.why
    )
}

fn outcome_said(
    target: &str,
    part: &ServerComponent,
    order: &PendingResize,
    came: &OrderResult,
    now: Duration,
) -> LogEvent {
    let took = now.saturating_sub(order.since).as_secs_f64();
    let (what, text) = match came {
        OrderResult::Refused { why } => ("failed", why.clone()),
        OrderResult::Resized { now_bytes, .. } => (
            "balanced",
            format!(
                "from {} to {now_bytes} in {took:.1} s, {} resident",
                order.before,
                part.resident().unwrap_or_default()
            ),
        ),
    };
    LogEvent {
        bytes: Some(order.before.max(order.goal) - order.before.min(order.goal)),
        ..log_event(target, &part.member.name, what, text)
    }
}
