//! Simulates days: a host with process trees that grow, save, restart and end, and the policy.

use super::*;
use crate::observation::TreeDetail;
use crate::tests::{closer, seen};
use hugeleaf_proof::long_holds::HoldRound;
use hugeleaf_proof::{Arm, Verdict};
use hugeleaf_units::Range;
use proptest::prelude::*;

const HUGE: Bytes = Bytes::from_mib(2);
const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

#[derive(Clone)]
struct Program {
    seen: ObservedTree,
    small: Bytes,
    large: Bytes,
    /// Part of `small` that no promotion gets.
    stuck: Bytes,
    /// Part of `small` that a scan knows to be misaligned.
    misaligned: Bytes,
    /// The metric's ratio, huge over base; `None` if the metric cannot be read.
    ratio: Option<f64>,
    /// True if holds agree with the pairs; `None` if they cannot be completed.
    held: Option<bool>,
    saving: bool,
    thp_disabled: bool,
    touched: Option<f64>,
    room: Option<Bytes>,
    inode: u64,
}

/// Returns holds with a gain of a tenth, which contradicts any loss.
fn holds(settled: bool) -> HoldResult {
    HoldResult {
        seconds: 40.0,
        rounds: vec![HoldRound {
            base: 1.0,
            large: 1.1,
            ratio: 1.1,
            first: Arm::Large,
        }],
        settled,
    }
}

/// The host, the guard's state, and the decisions.
struct Sim {
    config: Config,
    state: GuardState,
    host: HostSnapshot,
    programs: Vec<Program>,
    seconds: u64,
    wall: i64,
    /// Running jobs with their end.
    jobs: Vec<(u64, Decision)>,
    done: Vec<(u64, Decision)>,
    closer_looks: u64,
    samples: usize,
    noise: u64,
    fragmented: bool,
}

impl Sim {
    fn new(rules: &str) -> Sim {
        let text = format!("schema = 1\n{rules}");
        Sim {
            config: Config::parse(&[("/guard.toml".into(), text)]).unwrap(),
            state: GuardState::default(),
            host: HostSnapshot {
                huge: HUGE,
                kernel: "6.18".into(),
                stalled: Some(0.0),
                waiting: Some(0.0),
                ..HostSnapshot::default()
            },
            programs: Vec::new(),
            seconds: 10_000,
            wall: 1_800_000_000,
            jobs: Vec::new(),
            done: Vec::new(),
            closer_looks: 0,
            samples: 0,
            noise: 7,
            fragmented: false,
        }
    }

    fn with(mut self, pid: u32, small: u64) -> Sim {
        self.add(pid, small);
        self
    }

    fn add(&mut self, pid: u32, small: u64) -> &mut Program {
        let mut new = seen(pid);
        new.name = format!("server{pid}");
        self.programs.push(Program {
            seen: new,
            small: Bytes::from_mib(small),
            large: Bytes::ZERO,
            stuck: Bytes::ZERO,
            misaligned: Bytes::ZERO,
            ratio: Some(1.0),
            held: Some(true),
            saving: false,
            thp_disabled: false,
            touched: None,
            room: None,
            inode: 5,
        });
        self.programs.last_mut().unwrap()
    }

    fn program(&mut self, pid: u32) -> &mut Program {
        self.programs
            .iter_mut()
            .find(|p| p.seen.id.pid == pid)
            .unwrap()
    }

    fn now(&self) -> Now {
        let minute = u16::try_from(self.wall.rem_euclid(86_400) / 60).unwrap();
        Now {
            since_boot: Duration::from_secs(self.seconds),
            wall: self.wall,
            minute,
        }
    }

    fn look(&mut self) {
        let now = self.now();
        self.finish(now);
        let mut observation = Observation {
            host: self.host.clone(),
            programs: Vec::new(),
        };
        for program in &mut self.programs {
            let mut seen = program.seen.clone();
            seen.resident = program.small + program.large;
            if needs_detail(&self.config, &self.state, &seen, now) {
                self.closer_looks += 1;
                seen.closer = Some(TreeDetail {
                    saving: program.saving,
                    misaligned: program.misaligned.min(program.small),
                    thp_disabled: program.thp_disabled,
                    room: program.room,
                    file: Some(crate::observation::FileId {
                        device: 1,
                        inode: program.inode,
                        changed: 1,
                    }),
                    moved: (self.state.tracks.get(&seen.id))
                        .and_then(|track| track.moved.as_ref())
                        .map(|moved| moved.memory.clone()),
                    ..closer(program.small.get() >> 20, program.large.get() >> 20)
                });
            }
            observation.programs.push(seen);
        }
        for decision in decide(&self.config, &mut self.state, &observation, now) {
            self.begin(decision);
        }
    }

    fn begin(&mut self, decision: Decision) {
        // A promotion takes 8 s; a test takes two intervals per pair and 10 s.
        let takes = match &decision.job {
            Job::Promote { .. } | Job::Demote { .. } => 8,
            Job::Sample { .. } => 1,
            Job::Test {
                session, interval, ..
            } => match session {
                TestSessionWork::Pairs(pairs) => *pairs as u64 * interval.as_secs() * 2 + 10,
                TestSessionWork::Hold { time, .. } => time.as_secs() * 2 + 10,
            },
        };
        match decision.job.kind() {
            JobKind::Sample => self.samples += 1,
            _ => self.done.push((self.seconds, decision.clone())),
        }
        self.jobs.push((self.seconds + takes, decision));
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of job")]
    fn finish(&mut self, now: Now) {
        let (over, going): (Vec<_>, Vec<_>) = std::mem::take(&mut self.jobs)
            .into_iter()
            .partition(|(at, _)| *at <= self.seconds);
        self.jobs = going;
        for (_, decision) in over {
            let fragmented = self.fragmented;
            let noise = self.noise;
            self.noise = self
                .noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let Some(program) = self.programs.iter_mut().find(|p| p.seen.id == decision.id) else {
                self.state.tracks.remove(&decision.id);
                continue;
            };
            let came = match &decision.job {
                Job::Promote { .. } => {
                    let asked = program.small;
                    let done = match fragmented {
                        true => Bytes::ZERO,
                        false => asked - program.stuck,
                    };
                    program.small = program.small - done;
                    program.large += done;
                    JobOutcome::Promoted(PromotionResult {
                        asked,
                        done,
                        grown: Bytes::ZERO,
                        memory: vec![ProcessRanges {
                            who: crate::tests::who(decision.id.pid),
                            ranges: vec![Range::new(0, done.get().max(1)).unwrap()],
                        }],
                        fragmented,
                        short: false,
                    })
                }
                Job::Demote { .. } => {
                    let done = program.large;
                    program.small += done;
                    program.large = Bytes::ZERO;
                    JobOutcome::Demoted { done }
                }
                Job::Sample { .. } => match program.touched {
                    Some(touched) => JobOutcome::Sampled {
                        touched,
                        cost: Duration::from_millis(20),
                    },
                    None => JobOutcome::Failed {
                        why: "no".into(),
                        ended: false,
                    },
                },
                Job::Test {
                    session, metric, ..
                } => match program.ratio {
                    Some(ratio) => {
                        let (pairs, holds) = match session {
                            TestSessionWork::Pairs(pairs) => (*pairs, None),
                            TestSessionWork::Hold { .. } => (0, program.held.map(holds)),
                        };
                        JobOutcome::Tested(TestSessionResult {
                            logs: (0..pairs)
                                .map(|n| ratio.ln() + ((noise >> (n * 8)) % 100) as f64 / 2e4)
                                .collect(),
                            holds,
                            better: BetterDirection::Higher,
                            metric: metric.clone(),
                        })
                    }
                    None => JobOutcome::Failed {
                        why: "connection refused".into(),
                        ended: false,
                    },
                },
            };
            let seen = program.seen.clone();
            let next = learn(&self.config, &mut self.state, &seen, &came, &self.host, now);
            if let Some(next) = next {
                self.begin(next);
            }
        }
    }

    /// Ends a process tree's job before the next scan.
    fn finish_early(&mut self, pid: u32) {
        for (at, _) in self.jobs.iter_mut().filter(|(_, d)| d.id.pid == pid) {
            *at = self.seconds;
        }
        let now = self.now();
        self.finish(now);
    }

    fn run(&mut self, seconds: u64) {
        let until = self.seconds + seconds;
        while self.seconds < until {
            self.look();
            self.seconds += 5;
            self.wall += 5;
            for program in &mut self.programs {
                program.seen.age += Duration::from_secs(5);
            }
        }
    }

    fn count(&self, kind: JobKind) -> usize {
        self.done
            .iter()
            .filter(|(_, d)| d.job.kind() == kind)
            .count()
    }

    fn standing(&self, pid: u32) -> &TreeStatus {
        let track = self.state.tracks.iter().find(|(id, _)| id.pid == pid);
        track.unwrap().1.standing.as_ref().unwrap()
    }
}

const ALL: &str = "default.action = 'promote'";

#[test]
fn without_a_rule_it_only_says_what_it_would_do() {
    let mut sim = Sim::new("").with(7, 1024).with(8, 100);
    sim.run(600);
    assert!(sim.done.is_empty());
    assert_eq!(sim.standing(7).state, TreeState::Candidate);
    assert_eq!(sim.standing(7).text, "1G of 1G on base pages");
    assert!(
        sim.state.tracks.keys().all(|id| id.pid != 8),
        "too small for a closer look"
    );
}

#[test]
fn four_looks_in_a_row() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.run(15);
    assert!(sim.done.is_empty());
    assert_eq!(sim.standing(7).reason, "not-long-enough");
    sim.run(5);
    assert_eq!(sim.count(JobKind::Promote), 1);
    // An idle scan restarts the count.
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.run(15);
    sim.program(7).seen.cpu = Some(0.05);
    sim.look();
    assert_eq!(sim.standing(7).reason, "too-idle");
    sim.program(7).seen.cpu = Some(0.5);
    sim.run(15);
    assert!(sim.done.is_empty());
}

#[test]
fn too_young_too_small_too_idle() {
    let mut sim = Sim::new(ALL).with(7, 1024).with(8, 255).with(9, 1024);
    sim.program(7).seen.age = Duration::ZERO;
    sim.program(9).seen.cpu = Some(0.09);
    sim.run(25);
    assert!(sim.done.is_empty());
    sim.run(60);
    let moved: Vec<u32> = sim.done.iter().map(|(_, d)| d.id.pid).collect();
    assert_eq!(moved, [7]);
    // A rule that names programs waives age and CPU, not size.
    let mut sim =
        Sim::new("[[rule]]\nname = 'server?'\naction = 'promote'\nmin_age = '0s'\nmin_cpu = '0%'");
    sim.add(9, 1024).seen.cpu = Some(0.0);
    sim.add(8, 255);
    sim.run(60);
    assert_eq!(sim.done.len(), 1);
}

#[test]
fn what_grows_is_moved_within_a_minute() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.run(300);
    assert_eq!(sim.count(JobKind::Promote), 1);
    sim.program(7).small += Bytes::from_mib(1024);
    sim.run(60);
    let program = sim.program(7).clone();
    assert!(program.small.as_f64() < 0.05 * program.large.as_f64());
    assert_eq!(sim.standing(7).state, TreeState::Managed);
    assert!(sim.standing(7).text.contains("unproven"));
}

#[test]
fn what_grows_while_it_is_moved_is_moved_too() {
    let mut sim = Sim::new(ALL).with(7, 300);
    sim.run(20);
    assert_eq!(sim.count(JobKind::Promote), 1);
    // The promotion is still running, and includes memory that exists when it ends.
    sim.finish_early(7);
    sim.program(7).small += Bytes::from_mib(500);
    sim.run(60);
    assert_eq!(sim.program(7).small, Bytes::ZERO);
}

#[test]
fn what_cannot_be_moved_is_not_tried_at_every_look() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.program(7).stuck = Bytes::from_mib(300);
    sim.run(7 * DAY);
    let tried = sim.count(JobKind::Promote);
    assert!((2..=7 * 24 + 10).contains(&tried), "{tried}");
    // Detailed scans are rare too: once per ten minutes, and after each attempt.
    assert!(
        sim.closer_looks < 7 * 24 * 6 + 2 * tried as u64 + 20,
        "{}",
        sim.closer_looks
    );
}

/// Only a restart helps, so nothing is tried, and it does not count as managed.
#[test]
fn misaligned_memory_is_named_and_not_managed() {
    let mut sim = Sim::new(ALL).with(7, 1024).with(8, 1024);
    sim.program(7).stuck = Bytes::from_mib(1024);
    sim.program(7).misaligned = Bytes::from_mib(1024);
    // Enough of it is aligned.
    sim.program(8).stuck = Bytes::from_mib(600);
    sim.program(8).misaligned = Bytes::from_mib(600);
    sim.run(DAY);
    assert_eq!(sim.standing(7).state, TreeState::Skipped);
    assert_eq!(sim.standing(7).reason, "misaligned");
    assert!(
        sim.standing(7)
            .text
            .starts_with("1G of 1G on base pages is misaligned")
    );
    assert!(sim.done.iter().all(|(_, decision)| decision.id.pid != 7));
    assert_eq!(sim.standing(8).state, TreeState::Managed);
}

/// An earlier build promoted what it did not know to be misaligned.
#[test]
fn an_attempt_on_misaligned_memory_manages_nothing() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.program(7).stuck = Bytes::from_mib(1024);
    sim.run(HOUR);
    assert_eq!(sim.standing(7).state, TreeState::Managed);
    sim.program(7).misaligned = Bytes::from_mib(1024);
    sim.run(HOUR);
    assert_eq!(sim.standing(7).reason, "misaligned");
}

#[test]
fn one_at_a_time_and_the_busiest_first() {
    let mut sim = Sim::new(ALL).with(7, 512).with(8, 4096).with(9, 1024);
    sim.program(9).seen.cpu = Some(8.0);
    sim.run(100);
    // Without samples, size and processor usage decide.
    let order: Vec<u32> = sim.done.iter().map(|(_, d)| d.id.pid).collect();
    assert_eq!(order, [9, 8, 7]);
    for pair in sim.done.windows(2) {
        assert!(pair[1].0 >= pair[0].0 + 8, "two at once");
    }
    let mut sim = Sim::new("at_once = 3\n[default]\naction = 'promote'\nat_once = 2")
        .with(7, 512)
        .with(8, 512)
        .with(9, 512);
    sim.run(25);
    assert_eq!(sim.done.len(), 2, "two of one rule");
}

#[test]
fn who_touches_more_comes_first() {
    let mut sim = Sim::new(ALL).with(7, 512).with(8, 4096).with(9, 1024);
    for (pid, touched) in [(7, 9e9), (8, 1e6), (9, 2e9)] {
        sim.program(pid).touched = Some(touched);
    }
    sim.run(100);
    let order: Vec<u32> = sim.done.iter().map(|(_, d)| d.id.pid).collect();
    assert_eq!(order, [7, 9, 8]);
    assert_eq!((sim.samples, sim.state.counts.samples), (3, 3), "once each");
    // A single process tree is not sampled.
    let mut sim = Sim::new(ALL).with(7, 512);
    sim.run(DAY);
    assert_eq!((sim.samples, sim.count(JobKind::Promote)), (0, 1));
}

#[test]
fn times_of_day() {
    let mut sim = Sim::new("[default]\naction = 'promote'\nhours = '02:00-03:00'").with(7, 1024);
    sim.wall = 20_000 * 86_400 + 12 * 3600;
    sim.run(13 * HOUR);
    assert!(sim.done.is_empty());
    assert_eq!(sim.standing(7).reason, "time-of-day");
    sim.run(2 * HOUR);
    assert_eq!(sim.count(JobKind::Promote), 1);
}

/// The journal of its memory is kept, as after a kill.
#[test]
fn a_promotion_that_panics_midway_counts_as_made() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.run(20);
    assert_eq!(sim.count(JobKind::Promote), 1);
    sim.jobs.clear();
    let half = Bytes::from_mib(512);
    let memory = vec![ProcessRanges {
        who: crate::tests::who(7),
        ranges: vec![Range::new(0, half.get()).unwrap()],
    }];
    let id = sim.program(7).seen.id;
    sim.state.tracks.get_mut(&id).unwrap().intended = memory.clone();
    let came = JobOutcome::from_job(|| panic!("expected by a test"));
    let (seen, now, host) = (sim.program(7).seen.clone(), sim.now(), sim.host.clone());
    let next = learn(&sim.config, &mut sim.state, &seen, &came, &host, now);
    assert_eq!(next, None);
    let track = &sim.state.tracks[&id];
    assert!(track.intended.is_empty() && track.job.is_none());
    let moved = track.moved.as_ref().unwrap();
    assert_eq!((&moved.memory, moved.bytes), (&memory, half));
    // A process tree that ended has no memory.
    sim.state.tracks.get_mut(&id).unwrap().intended = memory;
    let ended = JobOutcome::Failed {
        why: "process 7 ended".into(),
        ended: true,
    };
    learn(&sim.config, &mut sim.state, &seen, &ended, &host, now);
    assert!(sim.state.tracks.is_empty());
}

#[test]
fn a_scan_that_fails_changes_nothing_that_is_managed() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.program(7).stuck = Bytes::from_mib(300);
    sim.run(40);
    let id = sim.program(7).seen.id;
    let before = sim.state.tracks[&id].moved.clone().unwrap();
    assert_eq!(before.bytes, Bytes::from_mib(724));
    assert_eq!(before.left, Some(Bytes::from_mib(300)));
    let mut observation = Observation {
        host: sim.host.clone(),
        programs: vec![sim.program(7).seen.clone()],
    };
    let unreadable = TreeDetail {
        moved: Some(Vec::new()),
        unreadable: Some("permission denied".into()),
        ..TreeDetail::default()
    };
    observation.programs[0].closer = Some(unreadable);
    let now = sim.now();
    let decisions = decide(&sim.config, &mut sim.state, &observation, now);
    assert!(decisions.is_empty());
    assert_eq!(sim.state.tracks[&id].moved.as_ref(), Some(&before));
    // A scan that succeeds counts.
    observation.programs[0].closer = Some(TreeDetail {
        moved: Some(before.memory.clone()),
        ..closer(300, 24)
    });
    decide(&sim.config, &mut sim.state, &observation, now);
    let bytes = sim.state.tracks[&id].moved.as_ref().unwrap().bytes;
    assert_eq!(bytes, Bytes::from_mib(24));
}

#[test]
fn managed_memory_is_followed_after_its_rule_became_never() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.run(60);
    let id = sim.program(7).seen.id;
    let managed = |sim: &Sim| sim.state.tracks[&id].moved.as_ref().unwrap().bytes;
    assert_eq!(managed(&sim), Bytes::from_mib(1024));
    sim.config = Sim::new("[[rule]]\nname = 'server7'\naction = 'never'").config;
    sim.program(7).large = Bytes::from_mib(512);
    sim.run(10);
    assert_eq!(managed(&sim), Bytes::from_mib(512));
    assert_eq!(sim.standing(7).reason, "rule-says-never");
}

#[test]
fn it_yields_to_what_programs_asked_for() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.program(7).thp_disabled = true;
    sim.run(300);
    assert!(sim.done.is_empty());
    assert_eq!(sim.standing(7).reason, "thp-disabled");
    let mut sim =
        Sim::new("[[rule]]\nname = 'server7'\naction = 'promote'\noverride = true").with(7, 1024);
    sim.program(7).thp_disabled = true;
    sim.run(60);
    let Job::Promote { switch_thp_on, .. } = sim.done[0].1.job else {
        panic!()
    };
    assert!(switch_thp_on);
}

#[test]
fn calm() {
    type Change = fn(&mut Sim);
    let cases: &[(Change, Change, &str)] = &[
        (
            |s| s.host.stalled = Some(0.2),
            |s| s.host.stalled = Some(0.0),
            "memory-pressure",
        ),
        (
            |s| s.host.is_short = true,
            |s| s.host.is_short = false,
            "low-memory",
        ),
        (
            |s| {
                s.host.stalled = None;
                s.host.reclaimed = Some(5000);
            },
            |s| s.host.reclaimed = Some(0),
            "low-memory",
        ),
        (
            |s| s.program(7).saving = true,
            |s| s.program(7).saving = false,
            "saving",
        ),
        (
            |s| s.program(7).room = Some(Bytes::from_mib(3)),
            |s| s.program(7).room = None,
            "cgroup-limit",
        ),
        (
            |s| s.state.paused_since = Some(0),
            |s| s.state.paused_since = None,
            "paused",
        ),
        (
            |s| s.host.unable = Some("no".into()),
            |s| s.host.unable = None,
            "host-cannot",
        ),
    ];
    for (begin, end, reason) in cases {
        let mut sim = Sim::new(ALL).with(7, 1024);
        begin(&mut sim);
        sim.run(120);
        assert!(sim.done.is_empty(), "{reason}");
        assert_eq!(sim.standing(7).reason, *reason);
        end(&mut sim);
        sim.run(700);
        assert_eq!(sim.count(JobKind::Promote), 1, "{reason}");
    }
}

#[test]
fn busy_processors_make_it_slow_and_late() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.host.waiting = Some(0.99);
    sim.run(60);
    assert!(sim.done.is_empty());
    assert_eq!(sim.standing(7).reason, "cpu-pressure");
    sim.run(60);
    let Job::Promote { pace, .. } = sim.done[0].1.job else {
        panic!()
    };
    assert_eq!(pace.budget.get(), 2);
}

#[test]
fn fragmentation_makes_it_wait_longer_each_time() {
    let mut sim = Sim::new(ALL).with(7, 1024);
    sim.fragmented = true;
    sim.run(6 * HOUR);
    let at: Vec<u64> = sim.done.iter().map(|(at, _)| *at).collect();
    let gaps: Vec<u64> = at.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.windows(2).all(|w| w[1] >= w[0]), "{gaps:?}");
    assert!(*gaps.last().unwrap() >= HOUR && gaps.len() < 14, "{gaps:?}");
    sim.fragmented = false;
    sim.run(2 * HOUR);
    assert_eq!(sim.program(7).small, Bytes::ZERO);
}

const TESTED: &str = "[[rule]]\nname = 'server*'\naction = 'promote'\nmin_cpu = '0%'\nmetric = 'cmd:x'\n\
                      prove = { pairs = 12, every = '7d', over = '6h' }\n";

#[test]
fn what_makes_it_slower_is_moved_back_and_not_tried_again() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.program(7).ratio = Some(0.9);
    sim.run(DAY);
    assert_eq!(
        (sim.count(JobKind::Promote), sim.count(JobKind::Demote)),
        (1, 1)
    );
    assert_eq!(
        sim.count(JobKind::Test),
        4,
        "twelve pairs, four at a time, and a hold"
    );
    assert_eq!(sim.standing(7).reason, "no-gain");
    assert_eq!(sim.program(7).large, Bytes::ZERO);
    sim.run(30 * DAY);
    assert_eq!(sim.count(JobKind::Promote), 1);
    assert_eq!(sim.state.counts.slower, 1);
    // Its next process is the same program.
    sim.programs.clear();
    sim.run(5);
    sim.add(70, 1100).seen.name = "server7".into();
    sim.run(HOUR);
    assert_eq!(sim.count(JobKind::Promote), 1);
    // A different program file, a larger size and another kernel each mean another program.
    sim.program(70).inode = 6;
    sim.program(70).small += Bytes::from_mib(32);
    sim.run(HOUR);
    assert_eq!(sim.count(JobKind::Promote), 2);
}

#[test]
fn memory_is_demoted_only_if_a_hold_agrees() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.program(7).ratio = Some(0.9);
    // Slow at first, then faster.
    sim.program(7).held = Some(false);
    sim.run(DAY);
    assert_eq!(
        (sim.count(JobKind::Test), sim.count(JobKind::Demote)),
        (4, 0)
    );
    let known = &sim.state.remembered[0];
    assert_eq!(
        (known.proven.verdict, known.reverted, known.evidence.reverts),
        (Verdict::Unclear, false, 0)
    );
    // Each test asks again.
    sim.run(8 * DAY);
    assert_eq!(
        (sim.count(JobKind::Test), sim.count(JobKind::Demote)),
        (8, 0)
    );
    sim.program(7).held = Some(true);
    sim.run(8 * DAY);
    assert_eq!(sim.count(JobKind::Demote), 1);
    assert_eq!(sim.state.remembered[0].evidence.reverts, 1);
}

#[test]
fn a_hold_that_cannot_be_completed_is_repeated_and_then_pairs_decide() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.program(7).ratio = Some(0.9);
    sim.program(7).held = None;
    sim.run(5 * HOUR);
    assert_eq!(
        (sim.count(JobKind::Test), sim.count(JobKind::Demote)),
        (4, 0)
    );
    // A restart continues with the pairs and the attempts.
    let text = serde_json::to_string(&sim.state).unwrap();
    sim.state = serde_json::from_str(&text).unwrap();
    sim.run(DAY);
    assert_eq!(
        (sim.count(JobKind::Test), sim.count(JobKind::Demote)),
        (6, 1)
    );
    // A rule may do without holds.
    let mut sim = Sim::new(&TESTED.replace("'6h'", "'6h', hold = '0s'")).with(7, 1024);
    sim.program(7).ratio = Some(0.9);
    sim.program(7).held = Some(false);
    sim.run(DAY);
    assert_eq!(
        (sim.count(JobKind::Test), sim.count(JobKind::Demote)),
        (3, 1)
    );
}

#[test]
fn what_changed_is_tried_again() {
    let reverted = || {
        let mut sim = Sim::new(TESTED).with(7, 1024);
        sim.program(7).ratio = Some(0.9);
        sim.run(DAY);
        sim.program(7).ratio = Some(1.1);
        sim
    };
    let mut sim = reverted();
    sim.program(7).small = Bytes::from_mib(2100);
    sim.run(HOUR);
    assert_eq!(sim.count(JobKind::Promote), 2, "its size");
    let mut sim = reverted();
    sim.host.kernel = "6.19".into();
    sim.run(HOUR);
    assert_eq!(sim.count(JobKind::Promote), 2, "the kernel");
}

#[test]
fn a_revert_is_tried_again_after_half_a_year_and_then_later() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.program(7).ratio = Some(0.9);
    sim.run(DAY);
    let demoted = |sim: &Sim| (sim.count(JobKind::Promote), sim.count(JobKind::Demote));
    assert_eq!(demoted(&sim), (1, 1));
    let text = "test result: slower, ×0.902; next try in 182 days";
    assert_eq!(sim.standing(7).text, text);
    sim.wall += 181 * 86_400;
    sim.run(HOUR);
    assert_eq!(demoted(&sim), (1, 1));
    sim.wall += 86_400;
    sim.run(DAY);
    assert_eq!(demoted(&sim), (2, 2), "slower still");
    let evidence = sim.state.remembered[0].evidence.clone();
    assert_eq!(
        (evidence.reverts, evidence.logs.len()),
        (2, 12),
        "new pairs"
    );
    assert!(evidence.tests >= 2, "the same budget");
    sim.wall += 190 * 86_400;
    sim.run(HOUR);
    assert_eq!(demoted(&sim), (2, 2), "a year this time");
    sim.wall += 180 * 86_400;
    sim.program(7).ratio = Some(1.1);
    sim.run(2 * DAY);
    assert_eq!(demoted(&sim), (3, 2));
    assert!(!sim.state.remembered[0].reverted);
}

#[test]
fn tests_of_all_its_processes_count_together() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.program(7).ratio = Some(1.1);
    sim.run(DAY);
    sim.programs.clear();
    sim.add(70, 1024).seen.name = "server7".into();
    sim.program(70).ratio = Some(1.1);
    sim.wall += 8 * 86_400;
    sim.run(DAY);
    let known = &sim.state.remembered[0];
    assert_eq!((known.evidence.tests, known.proven.pairs), (2, 24));
    // Pairs of another metric are dropped; the budget is shared.
    sim.config.rules[0].metric = Some("cmd:y".into());
    sim.wall += 8 * 86_400;
    sim.run(DAY);
    let known = &sim.state.remembered[0];
    assert_eq!((known.evidence.tests, known.proven.pairs), (3, 12));
}

#[test]
fn keep_if_faster_takes_back_what_is_the_same() {
    for (keep, ratio, demoted) in [
        ("if-faster", 1.0, 1),
        ("if-faster", 1.1, 0),
        ("unless-slower", 1.0, 0),
        ("unless-slower", 0.9, 1),
    ] {
        let mut sim = Sim::new(&format!("{TESTED}keep = '{keep}'")).with(7, 1024);
        sim.program(7).ratio = Some(ratio);
        sim.run(DAY);
        assert_eq!(sim.count(JobKind::Demote), demoted, "{keep} {ratio}");
    }
}

#[test]
fn a_test_is_spread_and_repeated_and_never_two_at_a_time() {
    let mut sim = Sim::new(TESTED);
    for pid in 7..17 {
        sim.add(pid, 1024).ratio = Some(1.1);
    }
    let weeks = hugeleaf_testkit::size(2, 4);
    sim.run((7 * weeks + 2) * DAY);
    let tests: Vec<&(u64, Decision)> = sim
        .done
        .iter()
        .filter(|(_, d)| d.job.kind() == JobKind::Test)
        .collect();
    // Ten programs, three sessions each, at the start of each week.
    assert_eq!(tests.len() as u64, 10 * 3 * (weeks + 1));
    for (n, (at, _)) in tests.iter().enumerate().skip(1) {
        assert!(*at >= tests[n - 1].0 + 50, "two tests at once");
    }
    let of_one: Vec<u64> = tests
        .iter()
        .filter(|(_, d)| d.id.pid == 7)
        .map(|t| t.0)
        .collect();
    assert!(of_one[1] - of_one[0] >= 2 * HOUR && of_one[2] - of_one[1] >= 2 * HOUR);
    assert!(of_one[3] - of_one[2] >= 7 * DAY - 3 * HOUR);
    // No promotion during a test.
    for (at, decision) in &sim.done {
        let during =
            |(from, d): &&&(u64, Decision)| d.id != decision.id && *from <= *at && *at < from + 50;
        assert!(decision.job.kind() == JobKind::Test || !tests.iter().any(|t| during(&t)));
    }
    assert_eq!(sim.count(JobKind::Demote), 0);
}

#[test]
fn a_metric_that_stops_answering_ends_its_test_and_nothing_else() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.run(200);
    assert!(matches!(
        sim.state.tracks.values().next().unwrap().proof,
        Proof::Testing(_)
    ));
    sim.program(7).ratio = None;
    sim.run(DAY);
    let tests = sim.count(JobKind::Test);
    assert!((3..10).contains(&tests), "{tests}: later each time");
    assert_eq!(
        (sim.count(JobKind::Demote), sim.state.counts.slower),
        (0, 0)
    );
    assert!(sim.state.counts.dropped >= 2);
    assert_eq!(
        sim.program(7).small,
        Bytes::ZERO,
        "what it was before the test"
    );
    // The metric can be read again.
    sim.program(7).ratio = Some(1.2);
    sim.run(2 * DAY);
    assert_eq!(sim.state.counts.faster, 1);
}

#[test]
fn a_test_that_is_stopped_keeps_its_pairs_and_is_no_failure() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.program(7).ratio = Some(1.1);
    sim.run(400);
    let pairs = |sim: &Sim| match &sim.state.tracks.values().next().unwrap().proof {
        Proof::Testing(test) => test.logs.len(),
        _ => panic!("no test goes on"),
    };
    let (before, now, host) = (pairs(&sim), sim.now(), sim.host.clone());
    assert!(before > 0);
    let seen = sim.program(7).seen.clone();
    let track = sim.state.tracks.values_mut().next().unwrap();
    track.job = Some(JobKind::Test);
    let next = learn(
        &sim.config,
        &mut sim.state,
        &seen,
        &JobOutcome::Stopped,
        &host,
        now,
    );
    assert_eq!(next, None);
    assert_eq!((pairs(&sim), sim.state.counts.dropped), (before, 0));
    // The test continues where it was.
    sim.run(DAY);
    assert_eq!((sim.state.counts.faster, sim.state.counts.dropped), (1, 0));
}

#[test]
fn counters_serve_where_there_is_no_metric() {
    let rules = "[[rule]]\nname = 'server7'\naction = 'promote'\nprove = {}";
    let mut sim = Sim::new(rules).with(7, 1024);
    sim.run(DAY);
    assert_eq!(sim.count(JobKind::Test), 0);
    assert!(sim.standing(7).text.ends_with("unproven"));
    sim.host.counts = true;
    sim.run(DAY);
    let metrics: Vec<&str> = (sim.done.iter())
        .filter_map(|(_, d)| match &d.job {
            Job::Test { metric, .. } => Some(metric.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(metrics, ["cpi"; 3]);
}

#[test]
fn a_clock_that_jumps_moves_nothing() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.program(7).ratio = Some(1.1);
    sim.run(DAY);
    let tests = sim.count(JobKind::Test);
    sim.wall -= 400 * 86_400;
    sim.run(DAY);
    assert_eq!(sim.count(JobKind::Test), tests);
    // A clock set forward counts as one week.
    sim.wall += 800 * 86_400;
    sim.run(DAY);
    assert_eq!(sim.count(JobKind::Test), tests + 3);
    // A month of suspend causes no burst of scans or promotions.
    sim.seconds += 30 * DAY;
    sim.wall += 30 * 86_400;
    let before = sim.done.len();
    sim.run(600);
    assert!(sim.done.len() <= before + 1);
}

#[test]
fn itself_the_first_process_and_never() {
    let mut sim =
        Sim::new("default.action = 'promote'\n[[rule]]\nname = 'server9'\naction = 'never'");
    sim.add(7, 1024).seen.is_own = true;
    sim.add(1, 1024);
    sim.add(9, 1024);
    sim.run(DAY);
    assert!(sim.done.is_empty() && sim.closer_looks == 0);
}

#[test]
fn what_a_restart_reads_back_goes_on() {
    let mut sim = Sim::new(TESTED).with(7, 1024);
    sim.program(7).ratio = Some(0.9);
    sim.run(3 * HOUR);
    let text = serde_json::to_string(&sim.state).unwrap();
    sim.state = serde_json::from_str(&text).unwrap();
    let logs = |state: &GuardState| match &state.tracks.values().next().unwrap().proof {
        Proof::Testing(test) => test.logs.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(logs(&sim.state), 8);
    sim.run(DAY);
    assert_eq!(
        (sim.count(JobKind::Test), sim.count(JobKind::Demote)),
        (4, 1)
    );
}

#[test]
fn ten_thousand_programs_that_come_and_go_leave_nothing() {
    let mut sim = Sim::new(ALL);
    for round in 0..200u32 {
        sim.programs.clear();
        for n in 0..50 {
            sim.add(100 + round * 50 + n, 300);
        }
        sim.run(40);
    }
    sim.programs.clear();
    sim.run(60);
    assert!(sim.state.tracks.is_empty() && sim.state.remembered.is_empty());
    assert!(serde_json::to_string(&sim.state).unwrap().len() < 2000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(hugeleaf_testkit::size(16, 64)))]
    /// Invariants for any events on the host: at most one job per process tree, no more jobs than allowed at
    /// once, none for excluded ones.
    #[test]
    fn promises(seed in any::<u64>()) {
        let mut rng = seed | 1;
        let mut draw = |n: u64| {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            rng % n
        };
        let mut sim = Sim::new(TESTED);
        sim.add(1, 2048);
        sim.add(2, 2048).seen.is_own = true;
        for pid in 3..9 {
            sim.add(pid, 200 + draw(4000));
        }
        for _ in 0..300 {
            let pid = 3 + u32::try_from(draw(6)).unwrap();
            let how = draw(12);
            let size = Bytes::from_mib(draw(3000));
            let program = sim.program(pid);
            match how {
                0 => program.small += size,
                1 => program.large = program.large - size,
                2 => program.saving = !program.saving,
                3 => program.ratio = [None, Some(0.9), Some(1.1), Some(1.0)][(size.get() >> 20 & 3) as usize],
                4 => program.seen.id.start_ticks += 1,
                5 => program.seen.cpu = None,
                6 => program.seen.cpu = Some(size.get() as f64 / 1e9),
                7 => sim.host.stalled = Some(draw(100) as f64 / 300.0),
                8 => sim.fragmented = !sim.fragmented,
                9 => sim.host.is_short = draw(2) == 0,
                10 => sim.wall += i64::try_from(draw(100_000)).unwrap() - 50_000,
                _ => program.stuck = size,
            }
            sim.run(5 * (1 + draw(40)));
            let kinds = [JobKind::Promote, JobKind::Demote];
            let moves = sim.jobs.iter().filter(|(_, d)| kinds.contains(&d.job.kind()));
            prop_assert!(moves.count() <= 2, "a move, and one back that a test asked for");
            let tests = sim.jobs.iter().filter(|(_, d)| d.job.kind() == JobKind::Test);
            prop_assert!(tests.count() <= 1);
        }
        for (_, decision) in &sim.done {
            prop_assert!(decision.id.pid > 2);
        }
    }
}
