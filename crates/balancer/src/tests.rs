//! Simulated servers with real behaviour: obey, refuse, lie, take minutes, hang, restart, and are set by hand.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

use crate::component::WorkerReport;
use crate::config::{BalanceAction, BalanceTarget, BalancedServer, PagePreference};
use crate::controller::{Controller, HostState, ResizeCommand, StepOutput};
use crate::process::ProcessSeen;
use crate::server::{CacheCounts, ResizableServer, ServerObserver, ServerState};
use crate::server_kinds::{KINDS, kind_named};
use crate::worker::{ServerAccess, Worker};
use hugeleaf_ask::QueryError;
use hugeleaf_host::ForkTreeId;
use hugeleaf_testkit::until;

const fn mib(n: u64) -> Bytes {
    Bytes::from_mib(n)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    Willing,
    Refuses,
    /// Reports the smaller size, but keeps its memory.
    Keeps,
    /// Resizes after this number of seconds.
    Slow(u64),
    /// No longer answers.
    Silent,
    /// Has pages as MariaDB: writes to new memory only when it reads, and keeps some pages free.
    Paged,
    /// As `Paged`, and a reduction evicts nearly all of its data (MariaDB 10.11.19).
    Emptied,
}

struct Sim {
    name: &'static str,
    manner: Manner,
    size: Bytes,
    /// Memory of its cache; `overhead` is added.
    held: Bytes,
    overhead: Bytes,
    load: u64,
    counts: CacheCounts,
    process: ForkTreeId,
    floor: Bytes,
    limits: Vec<(String, Bytes)>,
    late: Option<(u64, Bytes)>,
    report: WorkerReport,
    /// Pages in use, for [`Manner::Paged`].
    data: Bytes,
}

/// Pages that [`Manner::Paged`] keeps free, of which about half are free.
const KEPT: u64 = 24;

impl Sim {
    fn new(name: &'static str, size: u64, load: u64) -> Sim {
        Sim {
            name,
            manner: Manner::Willing,
            size: mib(size),
            held: mib(size),
            overhead: mib(40),
            load,
            counts: CacheCounts::default(),
            process: ForkTreeId {
                pid: u32::try_from(load).unwrap(),
                start_ticks: 1,
            },
            floor: Bytes::ZERO,
            limits: Vec::new(),
            late: None,
            report: WorkerReport::default(),
            data: mib(size - KEPT / 2),
        }
    }

    fn is_paged(&self) -> bool {
        matches!(self.manner, Manner::Paged | Manner::Emptied)
    }

    /// Returns its reported use.
    fn used(&self) -> Bytes {
        match self.is_paged() {
            true => self.size.min(self.data + mib(KEPT)),
            false => self.held.min(self.size),
        }
    }

    /// Advances the time by a second.
    fn pass(&mut self, now: u64) {
        if self.late.is_some_and(|(at, _)| at <= now) {
            let (_, to) = self.late.take().unwrap();
            (self.size, self.held) = (to, to);
        }
        let hits = (self.size.as_f64() / mib(1024).as_f64()).powf(0.4).min(1.0);
        #[allow(clippy::cast_possible_truncation)]
        let misses = (self.load as f64 * (1.0 - hits)) as u64;
        self.counts.operations += self.load;
        self.counts.misses += misses;
        if self.is_paged() {
            // For `Paged`, pages are so small that filling a granule takes minutes.
            let page = if self.manner == Manner::Paged {
                16
            } else {
                64 << 10
            };
            let brought = Bytes(misses * page);
            self.data = (self.data + brought).min(self.size - mib(KEPT / 2));
            self.held = (self.held + brought).min(self.size);
        }
        if self.manner == Manner::Silent {
            self.report.trouble = Some("no route".into());
            return;
        }
        let look = ServerState {
            size: self.size,
            granule: mib(1),
            floor: self.floor,
            used: Some(self.used()),
            unmaps: self.is_paged(),
            counts: Some(self.counts),
            pid: Some(Pid(self.process.pid)),
            ..ServerState::default()
        };
        let process = ProcessSeen {
            id: self.process,
            resident: self.held + self.overhead,
            limits: self.limits.clone(),
        };
        self.report.trouble = None;
        self.report.seen = Some((Duration::from_secs(now), look, Some(process)));
    }

    fn obey(&mut self, command: &ResizeCommand, now: u64) {
        let answer = match self.manner {
            Manner::Willing => {
                (self.size, self.held) = (command.to, command.to);
                Ok(())
            }
            Manner::Refuses => Err(QueryError::new("Access denied")),
            Manner::Keeps => {
                self.size = command.to;
                self.held = self.held.max(command.to);
                Ok(())
            }
            Manner::Slow(seconds) => {
                self.late = Some((now + seconds, command.to));
                Err(QueryError::timeout("no answer in 10 s"))
            }
            Manner::Paged | Manner::Emptied => {
                if self.manner == Manner::Emptied && command.to < self.size {
                    self.data = mib(8);
                }
                self.size = command.to;
                self.held = self.held.min(command.to);
                self.data = self.data.min(command.to - mib(KEPT / 2));
                Ok(())
            }
            Manner::Silent => return,
        };
        self.report.answer = Some((command.id, answer));
    }
}

struct World {
    sims: Vec<Sim>,
    core: Controller,
    target: BalanceTarget,
    around: HostState,
    now: u64,
    said: Vec<String>,
    commands: usize,
    promoted: usize,
    /// Permitted total memory, checked each second.
    most: Bytes,
}

pub(super) fn member(name: &str, kind: &str) -> BalancedServer {
    BalancedServer {
        name: name.into(),
        kind: kind_named(kind).unwrap(),
        address: String::new(),
        shown: String::new(),
        least: mib(64),
        most: mib(2048),
        miss: Duration::from_millis(1),
        set_limit: false,
        below_limit: false,
        evict_per_hour: mib(512),
    }
}

impl World {
    /// Two servers of 512M each under a target of their sum; the first has most of the load.
    fn new() -> World {
        World::of(vec![Sim::new("a", 512, 9000), Sim::new("b", 512, 1000)])
    }

    fn of(sims: Vec<Sim>) -> World {
        let target = BalanceTarget {
            name: "t".into(),
            target: sims.iter().map(|sim| sim.size + sim.overhead).sum(),
            action: BalanceAction::Balance,
            every: Duration::from_secs(1),
            pages: PagePreference::Huge,
            components: sims.iter().map(|sim| member(sim.name, "mariadb")).collect(),
        };
        World {
            core: Controller::new(target.clone(), mib(2)),
            most: target.target,
            target,
            sims,
            around: HostState::default(),
            now: 0,
            said: Vec::new(),
            commands: 0,
            promoted: 0,
        }
    }

    fn second(&mut self) -> StepOutput {
        self.now += 1;
        self.sims.iter_mut().for_each(|sim| sim.pass(self.now));
        let reports: Vec<WorkerReport> = self.sims.iter().map(|sim| sim.report.clone()).collect();
        let now = Duration::from_secs(self.now);
        let done = self.core.step(&reports, &self.around, now);
        for command in &done.commands {
            self.sims[command.part].obey(command, self.now);
        }
        self.commands += done.commands.len();
        self.promoted += done.promote.len();
        let lines = done
            .said
            .iter()
            .map(|s| format!("{} {}: {}", s.what, s.name, s.text));
        self.said.extend(lines);
        let resident: Bytes = self.sims.iter().map(|sim| sim.held + sim.overhead).sum();
        // The promised tolerance is 2 %.
        let most = self.most + Bytes(self.most.get() / 50);
        assert!(
            resident <= most,
            "{resident} of {most} at {} s: {:#?}",
            self.now,
            self.said
        );
        done
    }

    fn run(&mut self, seconds: u64) {
        (0..seconds).for_each(|_| {
            self.second();
        });
    }

    fn size(&self, name: &str) -> Bytes {
        self.sims.iter().find(|sim| sim.name == name).unwrap().size
    }

    fn sim(&mut self, name: &str) -> &mut Sim {
        self.sims.iter_mut().find(|sim| sim.name == name).unwrap()
    }

    fn has_said(&self, words: &str) -> bool {
        self.said.iter().any(|line| line.contains(words))
    }

    fn standing(&self, name: &str) -> String {
        let status = self.core.status(Duration::from_secs(self.now));
        let mut all = status.components.into_iter();
        all.find(|c| c.name == name).unwrap().standing
    }

    fn problems(&self) -> String {
        self.core
            .status(Duration::from_secs(self.now))
            .problems
            .join("; ")
    }

    #[track_caller]
    fn expect(&self, words: &str) {
        assert!(self.has_said(words), "{words}: {:#?}", self.said);
    }
}

#[test]
fn memory_goes_where_the_load_is_and_comes_back_when_it_swaps() {
    let mut world = World::new();
    world.run(600);
    assert!(world.size("a") > mib(700), "{:#?}", world.said);
    assert!(world.promoted > 0);
    (world.sims[0].load, world.sims[1].load) = (1000, 9000);
    world.run(1200);
    assert!(world.size("b") > mib(600), "{:#?}", world.said);
    world.expect("balance t/b: b from");
    world.expect("balanced t/a: from");
}

#[test]
fn base_pages_are_left_alone() {
    let mut world = World::new();
    world.target.pages = PagePreference::Base;
    world.core = Controller::new(world.target.clone(), mib(2));
    world.run(300);
    assert!(world.size("a") > mib(600) && world.promoted == 0);
}

#[test]
fn what_is_not_given_back_is_not_given() {
    let mut world = World::new();
    world.sim("b").manner = Manner::Keeps;
    world.run(400);
    world.expect("and was set back to 512M");
    assert_eq!((world.size("a"), world.size("b")), (mib(512), mib(512)));
    let standing = world.standing("b");
    assert!(standing.contains("skipped for"), "{standing}");
}

/// Two MariaDBs whose load swapped: given memory was never written to, so none of it was returned, and the estimated overhead
/// was too low. The balancer waited, gave the size back and skipped the server.
#[test]
fn what_was_never_written_to_need_not_come_back() {
    let mut world = World::of(vec![Sim::new("a", 512, 1000), Sim::new("b", 512, 9000)]);
    world.sim("b").manner = Manner::Paged;
    while world.size("b") == mib(512) {
        world.second();
        assert!(world.now < 60, "{:#?}", world.said);
    }
    // It keeps the new memory for a while, and reads nothing into it.
    world.run(10);
    (world.sims[0].load, world.sims[1].load) = (9000, 100);
    world.run(60);
    assert!(world.size("a") > mib(700), "{:#?}", world.said);
}

/// Its process falls by less than the reduction: pages move into those of its size that were never written to.
#[test]
fn a_reduction_is_over_when_the_server_unmapped_it() {
    let mut world = World::of(vec![Sim::new("a", 512, 9000), Sim::new("b", 512, 100)]);
    world.sim("b").manner = Manner::Paged;
    world.sim("b").held = mib(512 - KEPT);
    world.run(60);
    assert!(world.size("a") > mib(700), "{:#?}", world.said);
    assert!(!world.has_said("set back"), "{:#?}", world.said);
    // Nor does it owe any memory.
    assert!(!world.has_said("holds"), "{:#?}", world.said);
}

/// It reads its data again for minutes, which costs no more than its few operations.
#[test]
fn one_with_little_load_gives_while_it_fills_again() {
    let mut world = World::of(vec![Sim::new("a", 512, 9000), Sim::new("b", 512, 100)]);
    world.sim("b").manner = Manner::Emptied;
    world.run(60);
    assert!(world.size("a") > mib(900), "{:#?}", world.said);
}

/// The need of a cache does not wait for memory that it owes.
#[test]
fn one_that_owes_memory_is_given_what_its_requests_need_at_once() {
    let mut world = World::new();
    world.sim("b").manner = Manner::Keeps;
    while !world.has_said("and was set back to 512M") {
        world.second();
        assert!(world.now < 400, "{:#?}", world.said);
    }
    world.second();
    assert!(world.standing("b").contains("skipped"));
    // Its requests are about to fail, and the other server's fragmentation exceeds the target.
    world.sim("b").floor = mib(600);
    world.sim("a").overhead += mib(5);
    world.run(3);
    assert!(world.size("b") >= mib(600), "{:#?}", world.said);
    world.expect("b needs 600M, has 512M");
}

/// With floors above the target servers share the memory there is; no requests fail while another server has more than it needs.
#[test]
fn floors_above_the_target_leave_nobody_starving() {
    let mut world = World::of(vec![
        Sim::new("a", 512, 9000),
        Sim::new("b", 512, 1000),
        Sim::new("c", 256, 10),
    ]);
    world.sim("a").floor = mib(600);
    world.sim("b").floor = mib(512);
    world.sim("c").floor = mib(200);
    world.run(10);
    assert!(world.size("c") < mib(224), "{:#?}", world.said);
    assert!(world.size("a") > mib(550), "{:#?}", world.said);
    assert!(world.problems().contains("more than the target"));
}

#[test]
fn evictions_are_announced_and_bounded_by_the_hour() {
    let mut world = World::new();
    for member in &mut world.target.components {
        *member = BalancedServer {
            evict_per_hour: mib(64),
            ..self::member(&member.name, "redis")
        };
    }
    world.core = Controller::new(world.target.clone(), mib(2));
    world.run(900);
    world.expect("it may evict 18M of its data, of 64M still allowed this hour");
    let status = world.core.status(Duration::from_secs(world.now));
    assert_eq!(status.components[1].may_evict_bytes, Some(mib(10)));
    // A restarted server may lose no more in that hour, and neither may one under a lower target.
    world.sim("b").process.start_ticks += 1;
    world.core.set_target(mib(900));
    world.most = mib(1104);
    world.run(300);
    assert!(world.size("b") >= mib(448) && world.size("a") >= mib(448));
    world.run(3600);
    assert!(world.size("b") < mib(448), "{:#?}", world.said);
}

#[test]
fn a_refusal_is_said_and_it_is_let_be() {
    let mut world = World::new();
    world.sim("b").manner = Manner::Refuses;
    world.run(30);
    let standing = world.standing("b");
    assert!(standing.contains("refused: Access denied"), "{standing}");
    let before = world.commands;
    world.run(1200);
    world.expect("failed t/b: Access denied");
    assert!(world.commands - before <= 20, "{}", world.commands - before);
    assert_eq!(world.size("a"), mib(512));
}

#[test]
fn an_answer_after_minutes_is_within_the_target() {
    for slow in [40, 180, 600] {
        let mut world = World::new();
        world.sims.push(Sim::new("c", 256, 9000));
        let mut world = World::of(world.sims);
        world.sim("b").manner = Manner::Slow(slow);
        world.run(2400);
        assert!(world.size("a") >= mib(512), "the others go on");
    }
}

#[test]
fn one_that_is_unreachable_in_a_move_keeps_what_it_has() {
    let mut world = World::new();
    while world.second().commands.iter().all(|c| c.part != 1) {}
    world.sim("b").manner = Manner::Silent;
    let (a, commands) = (world.size("a"), world.commands);
    world.run(60);
    let standing = world.standing("b");
    assert!(standing.contains("no answer for"), "{standing}");
    assert!(standing.contains("memory stays reserved"), "{standing}");
    assert_eq!((world.size("a"), world.commands), (a, commands));
    world.sim("b").manner = Manner::Willing;
    world.run(1200);
    world.expect("resolved t/b: resized again");
    assert!(world.size("a") > mib(600), "{:#?}", world.said);
}

#[test]
fn one_that_restarts_in_a_move_is_a_new_one() {
    let mut world = World::new();
    world.run(300);
    assert!(world.size("a") > mib(600));
    // Its settings say 512M, and the other server has got its memory.
    while world.second().commands.is_empty() && world.now < 900 {}
    let resident: Bytes = world.sims.iter().map(|sim| sim.held + sim.overhead).sum();
    let b = world.sim("b");
    let more = mib(512) - b.size;
    (b.size, b.held, b.process.start_ticks) = (mib(512), mib(512), 77);
    b.counts = CacheCounts::default();
    // This exceeds the target until other memory is freed.
    let most = world.most;
    world.most = resident + more;
    world.run(30);
    world.expect("restarted as process");
    world.most = most;
    world.run(300);
    assert!(
        !world.standing("b").contains("somebody else"),
        "{}",
        world.standing("b")
    );
}

#[test]
fn one_that_was_never_reached_may_have_any_size() {
    let mut world = World::new();
    world.sim("b").manner = Manner::Silent;
    world.run(300);
    assert_eq!((world.size("a"), world.commands), (mib(512), 0));
    assert!(world.standing("b").contains("not reached yet (no route)"));
}

/// A single pass ends without success if a server does not answer, or a resize is still in progress.
#[test]
fn a_pass_is_settled_if_all_answer_and_nothing_moves() {
    let mut world = World::new();
    let now = |world: &World| Duration::from_secs(world.now);
    assert!(world.core.is_waiting(now(&world)) && !world.core.is_settled());
    world.second();
    assert!(world.core.is_settled() && !world.core.is_waiting(now(&world)));
    world.sim("b").manner = Manner::Slow(600);
    while !world.core.is_moving() {
        world.second();
        assert!(world.now < 60, "{:#?}", world.said);
    }
    assert!(!world.core.is_settled());
    let mut world = World::new();
    world.run(10);
    world.sim("b").manner = Manner::Silent;
    world.second();
    assert!(!world.core.is_settled() && !world.core.is_waiting(now(&world)));
}

#[test]
fn a_size_set_by_hand_wins_and_is_said() {
    let mut world = World::new();
    world.run(60);
    let b = world.sim("b");
    (b.size, b.held) = (mib(100), mib(100));
    world.run(120);
    assert_eq!(world.size("b"), mib(100));
    world.expect("resized by hand from");
}

#[test]
fn floors_above_the_target_are_said() {
    let mut world = World::new();
    world.sims.iter_mut().for_each(|sim| sim.floor = mib(700));
    world.run(60);
    assert!(
        world.problems().contains("more than the target"),
        "{}",
        world.problems()
    );
    assert_eq!(world.commands, 0);
}

#[test]
fn requests_that_would_fail_come_first() {
    let mut world = World::new();
    // The part that it may not evict grows; the other server has all the load.
    world.sim("b").floor = mib(560);
    world.run(120);
    assert!(world.size("b") >= mib(560), "{:#?}", world.said);
}

#[test]
fn pressure_of_others_gives_nobody_anything() {
    let mut world = World::new();
    world.around.short = Some("tasks stall".into());
    world.run(300);
    assert_eq!(world.commands, 0);
    assert!(world.problems().contains("growth is paused: tasks stall"));
    world.around.short = None;
    world.run(300);
    assert!(world.size("a") > mib(600));
}

#[test]
fn a_host_that_has_less_is_given_some_back() {
    let mut world = World::new();
    world.around.available = Some((mib(40), mib(200)));
    world.run(60);
    let total = world.size("a") + world.size("b");
    assert!(
        total < mib(1024) && world.problems().contains("the host leaves"),
        "{total}"
    );
}

#[test]
fn a_cgroup_limit_below_the_target_counts() {
    let mut world = World::new();
    world.target.target = mib(4096);
    world.core = Controller::new(world.target.clone(), mib(2));
    for sim in &mut world.sims {
        sim.limits = vec![("/db.slice".into(), Bytes::ZERO)];
    }
    world.run(120);
    assert!(
        world.problems().contains("cgroup /db.slice"),
        "{}",
        world.problems()
    );
    // A single server is bounded by its own cgroup.
    let mut world = World::new();
    world.sim("a").limits = vec![("/a.service".into(), mib(10))];
    world.run(300);
    assert!(world.size("a") <= mib(522), "{}", world.size("a"));
}

#[test]
fn watching_says_what_it_would_do_and_does_nothing() {
    let mut world = World::new();
    world.target.action = BalanceAction::Watch;
    world.core = Controller::new(world.target.clone(), mib(2));
    world.run(120);
    assert_eq!(world.commands, 0);
    world.expect("would resize b from 512M to");
    let said = world
        .said
        .iter()
        .filter(|line| line.contains("would resize"))
        .count();
    assert!(said <= 10, "{:#?}", world.said);
}

#[test]
fn paused_it_moves_nothing() {
    let mut world = World::new();
    world.around.paused = true;
    world.run(120);
    assert_eq!(world.commands, 0);
}

/// A new balancer starts with the servers' current sizes, at each second of a run.
#[test]
fn a_kill_at_any_moment_leaves_them_within_the_target() {
    for at in (1..200).step_by(3) {
        let mut world = World::new();
        world.sim("b").manner = Manner::Slow(3);
        world.run(at);
        world.core = Controller::new(world.target.clone(), mib(2));
        for sim in &mut world.sims {
            sim.report.answer = None;
        }
        world.run(60);
    }
}

#[test]
fn a_target_can_fall() {
    let mut world = World::new();
    world.run(20);
    world.core.set_target(mib(800));
    world.run(120);
    world.most = mib(800);
    world.run(60);
}

struct Hangs;

impl ServerObserver for Hangs {
    fn observe(&mut self) -> Result<ServerState, QueryError> {
        loop {
            std::thread::park();
        }
    }
}

impl ResizableServer for Hangs {
    fn observer(&mut self) -> &mut dyn ServerObserver {
        self
    }

    fn resize(&mut self, _to: Bytes) -> Result<(), QueryError> {
        Ok(())
    }
}

struct Answers(Bytes);

impl ServerObserver for Answers {
    fn observe(&mut self) -> Result<ServerState, QueryError> {
        Ok(ServerState {
            size: self.0,
            ..ServerState::default()
        })
    }
}

impl ResizableServer for Answers {
    fn observer(&mut self) -> &mut dyn ServerObserver {
        self
    }

    fn resize(&mut self, to: Bytes) -> Result<(), QueryError> {
        self.0 = to;
        Ok(())
    }
}

/// A server without a limit gets one by an order if its rule says so; a watching balancer gives no orders.
#[test]
fn a_limit_is_set_by_an_order_and_never_by_a_look() {
    for (action, used, to) in [
        (BalanceAction::Balance, 10, Some(mib(64))),
        (BalanceAction::Balance, 300, Some(mib(300))),
        (BalanceAction::Watch, 300, None),
    ] {
        let target = BalanceTarget {
            name: "t".into(),
            target: mib(1024),
            action,
            every: Duration::from_secs(1),
            pages: PagePreference::Base,
            components: vec![member("r", "redis")],
        };
        let mut core = Controller::new(target, mib(2));
        let look = ServerState {
            size: mib(used),
            is_unlimited: true,
            ..ServerState::default()
        };
        let report = WorkerReport {
            seen: Some((Duration::from_secs(1), look, None)),
            ..WorkerReport::default()
        };
        let done = core.step(&[report], &HostState::default(), Duration::from_secs(1));
        let orders: Vec<Bytes> = done.commands.iter().map(|command| command.to).collect();
        assert_eq!(orders, Vec::from_iter(to), "{action:?}");
    }
}

#[test]
fn a_server_that_hangs_holds_up_nobody() {
    let began = Instant::now();
    let hangs = Worker::run(ServerAccess::Server(Box::new(Hangs)), began, |_| None).unwrap();
    let answers = Worker::run(
        ServerAccess::Server(Box::new(Answers(mib(1)))),
        began,
        |_| None,
    )
    .unwrap();
    for _ in 0..1000 {
        hangs.request_observation();
        hangs.resize(1, mib(2), true);
    }
    answers.resize(7, mib(3), false);
    until("the other one answers", || {
        answers.report().answer.is_some()
    });
    let report = answers.report();
    assert_eq!(report.answer, Some((7, Ok(()))));
    assert_eq!(report.seen.unwrap().1.size, mib(3));
    assert!(hangs.report().seen.is_none());
}

/// A server whose first observation panics.
struct Faulty(bool);

impl ServerObserver for Faulty {
    fn observe(&mut self) -> Result<ServerState, QueryError> {
        assert!(std::mem::replace(&mut self.0, true), "expected by a test");
        Ok(ServerState::default())
    }
}

#[test]
fn a_fault_in_a_servers_thread_is_told_and_it_goes_on() {
    let worker = Worker::run(
        ServerAccess::Observer(Box::new(Faulty(false))),
        Instant::now(),
        |_| None,
    )
    .unwrap();
    worker.request_observation();
    until("its fault is told, or it has gone on", || {
        worker.request_observation();
        let report = worker.report();
        report.trouble.is_some() || report.seen.is_some()
    });
    until("it goes on", || {
        worker.request_observation();
        worker.report().seen.is_some()
    });
    assert_eq!(worker.report().trouble, None);
}

/// Its observer is a type of its own, which has no connection that can change it.
#[test]
fn no_server_is_an_observer() {
    let folder = format!("{}/src", env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_code = path.extension().is_some_and(|end| end == "rs");
        if !is_code || path.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let of = |start: &str| -> BTreeSet<String> {
            let names = text.lines().filter_map(|line| line.strip_prefix(start));
            names.map(str::to_owned).collect()
        };
        let (observers, servers) = (of("impl Observer for "), of("impl Server for "));
        assert!(observers.is_disjoint(&servers), "{}", path.display());
    }
}

#[test]
fn each_kind_checks_its_example() {
    for kind in KINDS {
        assert!((kind.check)(kind.example).is_ok(), "{}", kind.name());
        assert!((kind.check)("").is_err(), "{}", kind.name());
    }
}

/// `HUGELEAF_BLESS=1` rewrites the table of the document.
#[test]
fn the_document_lists_these_kinds() {
    const HEAD: &str = "| kind | address | setting that is changed | benefit measured by | default of `miss` |\n|---|---|---|---|---|\n";
    let rows = KINDS.iter().map(|kind| {
        let names: Vec<String> = kind.names.iter().map(|name| format!("`{name}`")).collect();
        format!(
            "| {} | {}: `{}` | {} | {} | `{}us` |\n",
            names.join(", "),
            kind.address,
            kind.example,
            kind.resizes,
            kind.benefit,
            kind.miss.as_micros()
        )
    });
    let table: String = rows.collect();
    let path = format!(
        "{}/../../docs/reference/guard.md",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(HEAD).expect("a table of kinds");
    let end = rest.find("\nOne balancer").expect("what follows it");
    let after = &rest[end..];
    let want = format!("{before}{HEAD}{table}{after}");
    let blesses = std::env::var_os("HUGELEAF_BLESS").is_some();
    if blesses {
        std::fs::write(&path, &want).unwrap();
    }
    assert!(
        text == want || blesses,
        "docs/reference/guard.md lists other kinds; HUGELEAF_BLESS=1 writes it anew"
    );
}
