//! Simulated components with known curves, a clock, and an executor of orders.

use std::time::Duration;

use hugeleaf_balance::{
    Benefit, Component, Estimate, Granule, MissRateModel, Move, OperationKind, OrderResult,
    ResizeMode, Settings, State, decide, learn,
};
use hugeleaf_units::Bytes;

/// Time of an operation without a miss, and the extra time of a miss, in seconds.
pub const HIT: f64 = 0.000_1;
pub const MISS: f64 = 0.001;

/// Reaction of a component to orders.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    Willing,
    Refuses,
    /// Reports a change, but keeps its memory.
    Lies,
    /// Changes by half of the order.
    Short,
    /// Changes after this number of seconds.
    Slow(u64),
    /// Never answers, and never changes.
    Silent,
}

/// Source of its benefit.
pub enum Known {
    /// As a ghost list: the true slopes, with a load smoothed over 2 s and an error of 3 %.
    Ghost,
    /// Its counters alone.
    Counters(Box<MissRateModel>),
    /// Claims this saving for each granule more, and no cost for a granule less.
    Boasts(f64),
}

/// Operations per second at a time.
pub type Load = Box<dyn Fn(f64) -> f64>;

pub struct Part {
    pub name: &'static str,
    pub least: u64,
    pub most: u64,
    /// Its reported size, and the memory it holds.
    pub size: Bytes,
    pub held: Bytes,
    pub granule: Granule,
    /// Memory touched by its load, in granules. 0: it never repeats.
    pub items: f64,
    /// Exponent of the hit ratio at a size: (size / items) to this power.
    pub power: f64,
    pub load: Load,
    pub manner: Manner,
    pub known: Known,
    /// Granules brought in by a miss, which is its speed of filling after growth. Infinite: at once.
    pub brings: f64,
    /// Filled part, in granules.
    filled: f64,
    smooth: f64,
}

impl Part {
    /// Creates a part with that many granules of 2M, and hits as of keys with a skew of 0.6.
    pub fn new(
        name: &'static str,
        size: u64,
        items: f64,
        load: impl Fn(f64) -> f64 + 'static,
    ) -> Part {
        let granule = Granule::new(Bytes::from_mib(2)).unwrap();
        Part {
            name,
            least: 16,
            most: 100_000,
            size: granule.bytes() * size,
            held: granule.bytes() * size,
            granule,
            items,
            power: 0.4,
            load: Box::new(load),
            manner: Manner::Willing,
            known: Known::Ghost,
            brings: f64::INFINITY,
            filled: size as f64,
            smooth: 0.0,
        }
    }

    pub fn granules(&self) -> f64 {
        self.granule.count(self.held)
    }

    /// Returns the part in use, in granules.
    fn filled(&self) -> f64 {
        match self.brings.is_finite() {
            true => self.filled.min(self.granules()),
            false => self.granules(),
        }
    }

    fn hits(&self, granules: f64) -> f64 {
        match self.items > 0.0 {
            true => (granules.max(0.0) / self.items).powf(self.power).min(1.0),
            false => 0.0,
        }
    }

    /// Returns seconds of work per second at a size.
    fn work(&self, granules: f64, load: f64) -> f64 {
        load * (HIT + MISS * (1.0 - self.hits(granules)))
    }

    fn benefit(&self, noise: &mut fastrand::Rng) -> Benefit {
        let size = self.granules();
        let slope = |from: f64, to: f64| {
            let value = self.smooth * MISS * (self.hits(to) - self.hits(from));
            Some(Estimate {
                value: value * (0.97 + 0.06 * noise.f64()),
                error: value * 0.03,
                samples: 1000.0,
            })
        };
        match &self.known {
            Known::Ghost => {
                let mut slope = slope;
                Benefit {
                    more: slope(size, size + 1.0),
                    less: slope(size - 1.0, size),
                    pressure: 0.0,
                }
            }
            Known::Counters(counters) => counters.benefit(),
            Known::Boasts(value) => Benefit {
                more: Some(Estimate {
                    value: *value,
                    error: 0.0,
                    samples: 1e9,
                }),
                less: Some(Estimate::default()),
                pressure: *value,
            },
        }
    }

    /// Advances the time by a second.
    fn pass(&mut self, time: f64, resizing: bool) {
        let load = (self.load)(time);
        // A half-life of 2 s.
        self.smooth += (load - self.smooth) * (1.0 - 0.5f64.sqrt());
        let misses = load * (1.0 - self.hits(self.filled()));
        let brought = self.filled() + misses * self.brings;
        self.filled = brought.min(self.granules());
        let fills = self.filled < self.granules() * 0.97;
        let (size, second) = (self.size, Duration::from_secs(1));
        if let Known::Counters(counters) = &mut self.known {
            match (resizing, fills) {
                (true, _) => counters.skip(second),
                (_, true) => counters.observe_unfilled(load as u64, misses as u64, second),
                _ => counters.observe(size, load as u64, misses as u64, second),
            }
        }
    }

    fn component(&self, noise: &mut fastrand::Rng) -> Component {
        Component {
            name: self.name.to_owned(),
            min: self.granule.bytes() * self.least,
            max: self.granule.bytes() * self.most,
            size: self.size,
            measured: Some(self.held),
            granule: self.granule,
            resizable: true,
            benefit: self.benefit(noise),
        }
    }
}

pub struct World {
    pub parts: Vec<Part>,
    pub target: Bytes,
    pub settings: Settings,
    pub state: State,
    pub seconds: u64,
    /// Number of executed orders.
    pub orders: usize,
    /// Orders to be answered later.
    late: Vec<(u64, Move)>,
    noise: fastrand::Rng,
    total_before: Bytes,
}

impl World {
    /// Creates a world with all memory of the components as target, and settings for a process.
    pub fn new(parts: Vec<Part>) -> World {
        let target: Bytes = parts.iter().map(|part| part.held).sum();
        World {
            parts,
            target,
            settings: Settings::in_process(),
            state: State::default(),
            seconds: 0,
            orders: 0,
            late: Vec::new(),
            noise: fastrand::Rng::with_seed(1),
            total_before: target,
        }
    }

    pub fn part(&mut self, name: &str) -> &mut Part {
        self.parts
            .iter_mut()
            .find(|part| part.name == name)
            .unwrap()
    }

    pub fn size(&self, name: &str) -> f64 {
        self.parts
            .iter()
            .find(|part| part.name == name)
            .unwrap()
            .granules()
    }

    pub fn total(&self) -> Bytes {
        self.parts.iter().map(|part| part.held).sum()
    }

    pub fn components(&mut self) -> Vec<Component> {
        let noise = &mut self.noise;
        self.parts
            .iter()
            .map(|part| part.component(noise))
            .collect()
    }

    pub fn standing(&self, name: &str) -> String {
        let mut all = self.state.standings();
        all.find(|(n, _)| *n == name).unwrap().1.to_string()
    }

    /// Runs one second with a scan at its end. Returns the number of orders.
    pub fn second(&mut self) -> usize {
        let resizing: Vec<&str> = (self.late.iter())
            .map(|(_, m)| m.order.component.as_str())
            .collect();
        for part in &mut self.parts {
            part.pass(self.seconds as f64, resizing.contains(&part.name));
        }
        self.seconds += 1;
        let now = Duration::from_secs(self.seconds);
        let due = std::mem::take(&mut self.late).into_iter();
        let (due, later): (Vec<_>, Vec<_>) = due.partition(|(at, _)| *at <= self.seconds);
        self.late = later;
        due.iter().for_each(|(_, order)| self.change(order, now));
        let mut orders = 0;
        // Memory freed at once is given at once.
        loop {
            let components = self.components();
            let moves = decide(
                &self.settings,
                &mut self.state,
                self.target,
                &components,
                now,
            );
            orders += moves.len();
            if moves.is_empty() {
                break;
            }
            moves.iter().for_each(|m| self.carry_out(m, now));
        }
        self.orders += orders;
        self.check();
        orders
    }

    pub fn run(&mut self, seconds: u64) -> usize {
        (0..seconds).map(|_| self.second()).sum()
    }

    /// Like [`World::run`], if more than the target is held at first because memory was taken outside the
    /// policy.
    pub fn run_above(&mut self, seconds: u64) -> usize {
        self.total_before = self.total();
        self.run(seconds)
    }

    fn carry_out(&mut self, order: &Move, now: Duration) {
        assert!(!order.why.is_empty());
        match self.part(&order.order.component).manner {
            Manner::Silent => {}
            Manner::Slow(seconds) => self.late.push((self.seconds + seconds, order.clone())),
            Manner::Refuses => {
                let why = "no memory is unused".to_owned();
                learn(
                    &self.settings,
                    &mut self.state,
                    order.id,
                    &OrderResult::Refused { why },
                    now,
                );
            }
            _ => self.change(order, now),
        }
    }

    fn change(&mut self, order: &Move, now: Duration) {
        let (before, goal) = (order.order.before, order.order.goal);
        let part = self.part(&order.order.component);
        match (part.manner, order.order.kind) {
            (Manner::Lies, OperationKind::Shrink) => part.size = goal,
            (Manner::Short, OperationKind::Shrink) => {
                let half = part.granule.round_down(Bytes((before - goal).get() / 2));
                (part.size, part.held) = (before - half, before - half);
            }
            _ => (part.size, part.held) = (goal, goal),
        }
        let came = OrderResult::Resized {
            now_bytes: part.size,
            measured_bytes: Some(part.held),
        };
        learn(&self.settings, &mut self.state, order.id, &came, now);
    }

    /// Checks the invariants.
    fn check(&mut self) {
        let total = self.total();
        let granule = Bytes::from_mib(2);
        let most = self.target.max(self.total_before);
        assert!(
            total < most + granule,
            "{total} are held at {} s",
            self.seconds
        );
        self.total_before = total;
        for operation in self.state.history().operations().rev().take(4) {
            let part = self
                .parts
                .iter()
                .find(|part| part.name == operation.component)
                .unwrap();
            let (least, most) = (
                part.granule.bytes() * part.least,
                part.granule.bytes() * part.most,
            );
            let is_within = operation.target >= least && operation.target <= most;
            assert!(
                is_within || operation.mode == ResizeMode::Manual,
                "{operation:?}"
            );
        }
    }

    fn throughput_at(&self, sizes: &[f64]) -> f64 {
        let (mut operations, mut work) = (0.0, 0.0);
        for (part, size) in self.parts.iter().zip(sizes) {
            let load = (part.load)(self.seconds as f64);
            operations += load;
            work += part.work(*size, load);
        }
        operations / work
    }

    /// Returns the throughput relative to that of the best split of the target.
    pub fn quality(&self) -> f64 {
        let sizes: Vec<f64> = self.parts.iter().map(Part::filled).collect();
        self.throughput_at(&sizes) / self.throughput_at(&self.best())
    }

    /// Returns the best split: each next four granules go where they save most. Curves are concave.
    fn best(&self) -> Vec<f64> {
        let mut sizes: Vec<f64> = self.parts.iter().map(|part| part.least as f64).collect();
        let all = self.parts[0].granule.count(self.target);
        const STEP: f64 = 4.0;
        while sizes.iter().sum::<f64>() + STEP <= all {
            let saves = |index: usize| {
                let (part, size) = (&self.parts[index], sizes[index]);
                let load = (part.load)(self.seconds as f64);
                part.work(size, load) - part.work(size + STEP, load)
            };
            let all = 0..sizes.len();
            let best = all.max_by(|a, b| saves(*a).total_cmp(&saves(*b))).unwrap();
            sizes[best] += STEP;
        }
        sizes
    }

    /// Returns the worst quality over this number of seconds.
    pub fn worst(&mut self, seconds: u64) -> f64 {
        let qualities = (0..seconds).map(|_| {
            self.second();
            self.quality()
        });
        qualities.fold(f64::INFINITY, f64::min)
    }

    /// Returns the seconds until the quality is reached and holds for a minute; waits at most ten minutes.
    pub fn settles(&mut self, quality: f64) -> u64 {
        let start = self.seconds;
        let mut since = start;
        while self.seconds < since + 60 && self.seconds < start + 600 {
            self.second();
            if self.quality() < quality {
                since = self.seconds;
            }
        }
        since - start
    }
}
