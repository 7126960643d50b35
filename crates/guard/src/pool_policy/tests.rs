//! Simulates days: pools that servers use, memory shortage, and other programs that set pools.

use super::*;
use hugeleaf_host::Fact;

const DAY_SECONDS: u64 = 24 * 3600;

fn page() -> PageSize {
    "2M".parse().unwrap()
}

/// A host with one node and one pool, a plan for it, and the guard's state.
struct Sim {
    pages: u64,
    used: u64,
    reserved: u64,
    surplus: u64,
    /// Maximum number of pages available to the pool.
    most: u64,
    may: Vec<ReturnablePool>,
    short: bool,
    paused: bool,
    seconds: u64,
    state: PoolsState,
    forgotten: Vec<String>,
    /// Times and values of the changes of the pool.
    set: Vec<(u64, u64)>,
}

impl Sim {
    fn new(pages: u64, used: u64) -> Sim {
        Sim {
            pages,
            used,
            reserved: 0,
            surplus: 0,
            most: u64::MAX,
            may: vec![ReturnablePool {
                page: page(),
                node: Some(0),
                pages: Pages(pages),
                lasting: Pages(pages),
            }],
            short: false,
            paused: false,
            seconds: 100_000,
            state: PoolsState::default(),
            forgotten: Vec::new(),
            set: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn pools(&self) -> Vec<Pool> {
        let pool = |node| Pool {
            size: page(),
            node,
            total: Fact::Known(Pages(self.pages + self.surplus)),
            free: Fact::Known(Pages(self.pages - self.used)),
            reserved: match node {
                None => Fact::Known(Pages(self.reserved)),
                Some(_) => Fact::Absent,
            },
            surplus: Fact::Known(Pages(self.surplus)),
            overcommit: Fact::Absent,
        };
        vec![pool(None), pool(Some(0))]
    }

    fn decide(&mut self) -> Vec<PoolResize> {
        let pools = self.pools();
        let look = PoolInputs {
            pools: &pools,
            may: &self.may,
            short: self.short.then_some("tasks stall for memory"),
            paused: self.paused,
            now: self.now(),
        };
        let decided = decide(look, &mut self.state);
        self.forgotten.extend(decided.forgotten);
        decided.resizes
    }

    /// Scans every five seconds for this time.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds / 5 {
            self.seconds += 5;
            let pools = self.pools();
            let now = self.now();
            record_unused(&mut self.state, &pools, now);
            for resize in self.decide() {
                let to = resize.to.get().min(self.most.max(self.pages));
                assert!(to >= self.used + self.reserved, "{resize:?}");
                self.pages = to;
                self.set.push((self.seconds, to));
                learn(&mut self.state, &resize, Some(Pages(to)), now);
            }
        }
    }

    /// Kills and restarts the guard.
    fn restart(&mut self) {
        let text = serde_json::to_string(&self.state).unwrap();
        self.state = serde_json::from_str(&text).unwrap();
    }

    fn set_to(&self) -> Vec<u64> {
        self.set.iter().map(|(_, to)| *to).collect()
    }
}

#[test]
fn unused_pages_go_by_quarters_and_come_back() {
    let mut sim = Sim::new(100, 60);
    sim.run(3600);
    assert_eq!(sim.set, []);
    sim.short = true;
    sim.run(300);
    assert_eq!(sim.set_to()[..4], [90, 83, 78, 74]);
    let apart = sim.set.windows(2).all(|two| two[1].0 - two[0].0 >= 30);
    assert!(apart, "{:?}", sim.set);
    sim.run(3600);
    assert_eq!(sim.pages, 60, "all that nobody uses, and no more");
    sim.short = false;
    let (before, calm) = (sim.set.len(), sim.seconds);
    sim.run(900);
    assert_eq!(sim.set.len(), before + 1);
    let (at, to) = sim.set[before];
    assert!(
        to == 100 && (600..=610).contains(&(at - calm)),
        "{to} {at} {calm}"
    );
    assert_eq!(sim.forgotten, [""; 0]);
}

#[test]
fn without_a_plan_that_says_so_nothing_is_given() {
    let mut sim = Sim::new(100, 0);
    sim.may.clear();
    sim.short = true;
    sim.run(DAY_SECONDS);
    assert_eq!((sim.set_to(), sim.state.given.len()), (vec![], 0));
}

#[test]
fn while_it_is_paused_nothing_is_done() {
    let mut sim = Sim::new(100, 0);
    (sim.short, sim.paused) = (true, true);
    sim.run(3600);
    assert_eq!(sim.set, []);
    sim.paused = false;
    sim.run(300);
    let given = sim.pages;
    assert!(given < 100);
    (sim.short, sim.paused) = (false, true);
    sim.run(3600);
    assert_eq!(sim.pages, given);
}

#[test]
fn pages_in_use_or_reserved_are_never_given() {
    for (used, reserved) in [(100, 0), (60, 40), (99, 1)] {
        let mut sim = Sim::new(100, used);
        (sim.reserved, sim.short) = (reserved, true);
        sim.run(3600);
        assert_eq!(sim.set, [], "{used} {reserved}");
    }
    let mut sim = Sim::new(100, 60);
    (sim.surplus, sim.short) = (1, true);
    sim.run(3600);
    assert_eq!(sim.set, [], "programs want more than it has");
    // An unreadable number is not 0.
    let mut pools = sim.pools();
    pools[0].reserved = Fact::Absent;
    let look = PoolInputs {
        pools: &pools,
        may: &sim.may,
        short: Some("short"),
        paused: false,
        now: sim.now(),
    };
    assert_eq!(decide(look, &mut PoolsState::default()).resizes, []);
}

#[test]
fn a_pool_that_somebody_else_set_is_left_alone() {
    // Before any page was given back: the pool differs from the plan.
    let mut sim = Sim::new(100, 0);
    (sim.pages, sim.short) = (90, true);
    sim.run(3600);
    assert_eq!(sim.set, []);
    // And after giving back.
    let mut sim = Sim::new(100, 0);
    sim.short = true;
    sim.run(60);
    assert!(sim.pages < 100);
    (sim.pages, sim.short) = (50, false);
    let before = sim.set.len();
    sim.run(DAY_SECONDS);
    assert_eq!((sim.set.len(), sim.pages), (before, 50));
    assert_eq!(sim.forgotten.len(), 1, "{:?}", sim.forgotten);
    assert!(
        sim.forgotten[0].contains("pool of 2M on node 0") && sim.forgotten[0].contains("it has 50")
    );
    assert_eq!(sim.state.given_back(), []);
}

#[test]
fn where_no_plan_says_so_any_more_it_is_forgotten_and_said() {
    let mut sim = Sim::new(100, 0);
    sim.short = true;
    sim.run(60);
    let given = sim.pages;
    sim.may.clear();
    sim.short = false;
    sim.run(DAY_SECONDS);
    assert_eq!(sim.pages, given);
    assert!(
        sim.forgotten[0].contains("give_back"),
        "{:?}",
        sim.forgotten
    );
}

#[test]
fn where_the_kernel_has_fewer_it_waits_twice_as_long_up_to_six_hours() {
    let mut sim = Sim::new(100, 60);
    sim.short = true;
    sim.run(3600);
    (sim.short, sim.most, sim.set) = (false, 80, Vec::new());
    sim.run(2 * DAY_SECONDS);
    let waits: Vec<u64> = sim
        .set
        .windows(2)
        .map(|two| (two[1].0 - two[0].0) / 60)
        .collect();
    assert_eq!(waits[..7], [10, 20, 40, 80, 160, 320, 360]);
    assert_eq!(sim.pages, 80);
    sim.most = u64::MAX;
    sim.run(6 * 3600 + 60);
    assert_eq!(sim.pages, 100);
    // A plan reduced meanwhile is not exceeded.
    let mut sim = Sim::new(100, 60);
    sim.short = true;
    sim.run(3600);
    sim.may[0].pages = Pages(70);
    sim.short = false;
    sim.run(3600);
    assert_eq!(sim.pages, 70);
}

#[test]
fn what_makes_memory_short_when_it_is_taken_is_taken_less_often() {
    let mut sim = Sim::new(100, 60);
    // Memory is short whenever the pool has all its pages.
    for _ in 0..2 * DAY_SECONDS / 5 {
        sim.short = sim.pages == 100;
        sim.run(5);
    }
    let taken: Vec<u64> = sim
        .set
        .iter()
        .filter(|(_, to)| *to == 100)
        .map(|(at, _)| *at)
        .collect();
    assert!((6..16).contains(&taken.len()), "{}", taken.len());
}

#[test]
fn a_restart_knows_what_was_given() {
    let mut sim = Sim::new(100, 60);
    sim.short = true;
    sim.run(60);
    sim.restart();
    let given = sim.state.given_back();
    assert_eq!(given[0].pages, Pages(100 - sim.pages));
    sim.short = false;
    sim.run(590);
    assert!(sim.pages < 100, "it has not seen ten quiet minutes yet");
    sim.run(30);
    assert_eq!(sim.pages, 100);
    // Killed after recording the change, before and after setting the pool: both are recognised as its own change.
    for is_done in [false, true] {
        let mut sim = Sim::new(100, 60);
        sim.short = true;
        let next = sim.decide();
        sim.restart();
        if is_done {
            sim.pages = next[0].to.get();
        }
        sim.short = false;
        sim.run(700);
        assert_eq!((sim.pages, sim.forgotten.len()), (100, 0), "{is_done}");
    }
    // After a reboot pools are as the configuration files set them.
    sim.state.forget_boot();
    assert_eq!(sim.state.given_back(), []);
}

fn unused(sim: &Sim) -> Option<u64> {
    sim.state.unused[0].for_a_day(sim.now()).map(Pages::get)
}

#[test]
fn what_nobody_took_for_a_day_is_found() {
    let mut sim = Sim::new(100, 60);
    sim.run(DAY_SECONDS - 60);
    assert_eq!(unused(&sim), None);
    sim.run(120);
    assert_eq!(unused(&sim), Some(40));
    let found = unused_for_a_day(&sim.state, sim.now());
    assert!(
        found[0]
            .text
            .starts_with("40 pages of 2M in the pool (80M)"),
        "{found:?}"
    );
    assert!(found[0].command.starts_with("hugeleaf plan"));
    // A program takes 30 pages for a minute, so they count as used for a day.
    sim.used = 90;
    sim.run(60);
    sim.used = 60;
    sim.run(DAY_SECONDS - 3600);
    assert_eq!(unused(&sim), Some(10));
    sim.run(2 * 3600);
    assert_eq!(unused(&sim), Some(40));
    // One or two pages are negligible.
    sim.used = 98;
    sim.run(60);
    assert_eq!(unused_for_a_day(&sim.state, sim.now()), []);
}

#[test]
fn what_nobody_watched_is_not_called_unused() {
    let mut sim = Sim::new(100, 60);
    sim.run(DAY_SECONDS / 2);
    // A restart of a few minutes is no gap.
    sim.restart();
    sim.seconds += 600;
    sim.run(DAY_SECONDS / 2);
    assert_eq!(unused(&sim), Some(40));
    sim.seconds += 3 * 3600;
    sim.run(60);
    assert_eq!(unused(&sim), None, "nobody looked for hours");
    sim.run(DAY_SECONDS);
    assert_eq!(unused(&sim), Some(40));
    // The clock of another boot.
    sim.seconds = 60;
    sim.run(60);
    assert_eq!(unused(&sim), None);
}

#[test]
fn the_state_changes_once_an_hour() {
    let mut sim = Sim::new(100, 60);
    sim.run(3600);
    let (mut changes, mut before) = (0, sim.state.clone());
    for _ in 0..DAY_SECONDS / 5 {
        sim.run(5);
        changes += usize::from(sim.state != before);
        before = sim.state.clone();
    }
    assert!(changes <= 25, "{changes}");
}

#[test]
fn findings_are_new_once_whatever_their_numbers() {
    let finding = |id: &str, text: &str| PoolFinding {
        id: id.into(),
        severity: "problem".into(),
        text: text.into(),
        command: String::new(),
    };
    let before = [finding("a", "db is 7 pages short"), finding("b", "gone")];
    let now = [
        finding("a", "db is 12 pages short"),
        finding("a", "web is 3 pages short"),
    ];
    let (new, gone) = changes(&before, &now);
    assert_eq!((new, gone), (vec![now[1].clone()], vec![before[1].clone()]));
}
