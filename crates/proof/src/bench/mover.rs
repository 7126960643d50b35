//! `bench mover`: a backup server's data path, by the pages that its buffers lie on.
//!
//! The devices are made and filled, and the data space of each arm is taken, once. Then, round by
//! round, all arms run in an order drawn anew, each for a while; after each run what was written is
//! read back and checked. An arm is a way to hand buffers to devices ([`Mode`]) on a data space
//! ([`IoPages`](hugeleaf_workload::mover::IoPages)). All are compared with scattered base pages in the same mode,
//! which is what the buffers of a server that has run for long are on.
//!
//! Memory that is locked part by part loses its large mappings where it is transparent; so that
//! mode has data spaces of its own, and their layout is read back before and after.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hugeleaf_host::{Host, Root};
use hugeleaf_sys::may_lock;
use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::{
    Devices, Edge, Load, Mode, Moved, MoverError, Place, Wanted, bare, run, verify,
};

use super::processors::ProcessorTimes;
use super::spaces::{Space, Take, needs_own};
use super::{BenchEnding, BenchError, BenchEvent, Machine, Measured, nothing};
use crate::rows::Results;

mod layout;
mod result;
mod rows;
mod settings;
mod streams;

pub(in crate::bench) use layout::{PhysicalLayout, add_looks, look};
use result::{MoverArm, MoverResult};
pub use settings::MoverSettings;

/// Measures.
///
/// # Errors
/// [`BenchError`]; all memory, devices and files are gone then.
pub fn measure(
    settings: &MoverSettings,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    Ok(measured(settings, machine, progress)?.to_results())
}

fn measured<'a>(
    settings: &'a MoverSettings,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<MoverResult<'a>, BenchError> {
    let Machine {
        root,
        host,
        circumstances,
        stop,
        ..
    } = *machine;
    check_room(settings, host)?;
    check_memlock(settings)?;
    let began = Instant::now();
    let mut engine = Engine {
        settings,
        root,
        host,
        progress,
        stop,
        random: fastrand::Rng::with_seed(settings.seed),
        began,
        arms: result::empty_arms(settings),
        spaces: Vec::new(),
        bare: Vec::new(),
        done: 0,
    };
    engine.take_spaces()?;
    if engine.spaces.is_empty() {
        return Err(nothing(
            engine.arms.iter().map(|arm| (&*arm.label, &arm.shortage)),
        ));
    }
    (engine.progress)(BenchEvent::Taking("devices".to_owned()));
    let devices = Devices::make(&engine.wanted(), host, stop)?;
    let ending = match engine.all(&devices) {
        Ok(()) => BenchEnding::Done,
        Err(BenchError::Mover(MoverError::Stopped)) => BenchEnding::Interrupted,
        Err(error) => return Err(error),
    };
    engine.look_again()?;
    let (arms, bare) = (engine.arms, engine.bare);
    if arms.iter().all(|arm| arm.samples.is_empty()) {
        return Err(BenchError::Stopped);
    }
    let about = (began.elapsed(), ending);
    let mut measured = Measured::new("mover", settings, arms, circumstances, about);
    measured.caveats = result::caveats(&measured.arms, circumstances);
    Ok(MoverResult {
        devices: devices.places,
        bare,
        measured,
    })
}

/// Refuses what would take more memory than it may.
fn check_room(settings: &MoverSettings, host: &Host) -> Result<(), BenchError> {
    let lock = settings.modes.contains(&Mode::Lock);
    let other = settings.modes.iter().any(|mode| *mode != Mode::Lock);
    let spaces = u64::from(lock) + u64::from(other);
    let mut asked = Bytes::ZERO;
    for pages in settings.pages.iter().filter(|pages| !pages.is_pool()) {
        let whole = pages.whole(settings.space, host).unwrap_or(settings.space);
        asked += Bytes(whole.get().saturating_mul(spaces));
    }
    let devices = settings
        .each
        .get()
        .saturating_mul(settings.threads() as u64);
    if settings.places.contains(&Place::Memory) {
        asked += Bytes(devices);
    }
    if asked <= settings.most {
        return Ok(());
    }
    Err(BenchError::TooLarge {
        what: format!("data spaces of {} and devices", settings.space),
        asked,
        most: settings.most,
    })
}

/// Refuses what would pin more than this process may.
fn check_memlock(settings: &MoverSettings) -> Result<(), BenchError> {
    let Some(most) = may_lock() else {
        return Ok(());
    };
    for mode in &settings.modes {
        let each = match mode {
            Mode::Lock => settings.block,
            Mode::UringRegistered => settings.space,
            Mode::Direct | Mode::Uring => continue,
        };
        let asked = Bytes(each.get().saturating_mul(settings.threads() as u64));
        if asked > most {
            let mode = mode.name();
            return Err(MoverError::MemlockLimit { mode, asked, most }.into());
        }
    }
    Ok(())
}

struct Engine<'a> {
    settings: &'a MoverSettings,
    root: &'a Root,
    host: &'a Host,
    progress: &'a mut dyn FnMut(BenchEvent),
    stop: &'a AtomicBool,
    random: fastrand::Rng,
    began: Instant,
    arms: Vec<MoverArm>,
    spaces: Vec<Space>,
    bare: Vec<f64>,
    done: u64,
}

impl Engine<'_> {
    fn wanted(&self) -> Wanted {
        let s = self.settings;
        Wanted {
            places: s.places.clone(),
            sources: s.readers,
            targets: s.targets(),
            each: s.each,
            block: s.block,
            overwrite: s.overwrite,
            seed: s.seed,
        }
    }

    /// Takes the data spaces.
    fn take_spaces(&mut self) -> Result<(), BenchError> {
        let s = self.settings;
        let locks: Vec<bool> = s.modes.iter().map(|mode| *mode == Mode::Lock).collect();
        let take = Take {
            pages: &s.pages,
            locks: &locks,
            space: s.space,
            block: s.block,
            seed: s.seed,
            host: self.host,
            root: self.root,
            called: "a data space",
        };
        let arms = &mut self.arms;
        self.spaces = take.all(self.progress, self.stop, |label, why| {
            for arm in arms.iter_mut().filter(|arm| arm.label == label) {
                arm.shortage = Some(why.clone());
            }
        })?;
        Ok(())
    }

    /// All rounds, then the streams, with what the devices do by themselves before and after.
    fn all(&mut self, devices: &Devices) -> Result<(), BenchError> {
        let plan = self.plan();
        let of = (self.settings.rounds * plan.len()) as u64;
        self.bare(devices)?;
        for round in 0..self.settings.rounds {
            let mut order = plan.clone();
            self.random.shuffle(&mut order);
            for (arm, space) in order {
                (self.progress)(BenchEvent::At {
                    done: self.done,
                    of,
                    what: format!("{} on {}", self.arms[arm].mode, self.arms[arm].label),
                });
                self.sample(round, arm, space, devices)?;
                self.done += 1;
            }
        }
        self.bare(devices)?;
        if let Some(rate) = self.settings.rate {
            self.streams(rate, &plan, devices)?;
        }
        Ok(())
    }

    /// The arms that are available, each with its data space.
    fn plan(&self) -> Vec<(usize, usize)> {
        let mut plan = Vec::new();
        for (at, arm) in self.arms.iter().enumerate() {
            let space = self.spaces.iter().position(|space| {
                space.pages.to_string() == arm.label
                    && space.locked == needs_own(arm.mode_as_asked() == Mode::Lock, space.pages)
            });
            plan.extend(space.map(|space| (at, space)));
        }
        plan
    }

    fn load<'d>(&self, mode: Mode, devices: &'d Devices, targets: usize) -> Load<'d> {
        let s = self.settings;
        Load {
            mode,
            depth: s.depth,
            block: s.block,
            rate: None,
            sources: &devices.sources,
            targets: &devices.targets[..targets.min(devices.targets.len())],
            warm: s.warm(),
            time: s.sample,
            base: self.host.base_page,
        }
    }

    fn bare(&mut self, devices: &Devices) -> Result<(), BenchError> {
        /// More does not tell more, and is not what was asked for.
        const LONGEST: Duration = Duration::from_secs(1);
        let mut load = self.load(Mode::Direct, devices, self.settings.writers);
        load.time = load.time.min(LONGEST);
        // The last is the one with the largest pages.
        let whole = self.spaces.iter().rposition(|space| !space.locked);
        let at = whole.unwrap_or(self.spaces.len().saturating_sub(1));
        let Some(space) = self.spaces.get_mut(at) else {
            return Ok(());
        };
        let (moved, time) = bare(&mut space.memory, &load, self.stop)?;
        self.bare.push(result::rate(moved, time));
        Ok(())
    }

    fn sample(
        &mut self,
        round: usize,
        arm: usize,
        space: usize,
        devices: &Devices,
    ) -> Result<(), BenchError> {
        let mode = self.arms[arm].mode_as_asked();
        let load = self.load(mode, devices, self.settings.writers);
        let at = self.began.elapsed().as_secs_f64();
        let (moved, host) = self.run(space, &load)?;
        let sample = result::sample(round, at, &moved, host);
        self.arms[arm].samples.push(sample.mib_per_second);
        self.arms[arm].raw.push(sample);
        Ok(())
    }

    /// One run, and what it wrote read back.
    fn run(
        &mut self,
        space: usize,
        load: &Load<'_>,
    ) -> Result<(Moved, Option<ProcessorTimes>), BenchError> {
        let memory = &mut self.spaces[space].memory;
        let root = self.root;
        let (mut begin, mut end) = (None, None);
        let mut edge = |edge: Edge| match edge {
            Edge::Begin => begin = ProcessorTimes::read(root),
            Edge::End => end = ProcessorTimes::read(root),
        };
        let moved = run(memory, load, self.stop, &mut edge)?;
        verify(memory, load.targets, load.block)?;
        let host = begin.zip(end).map(|(begin, end)| end.since(begin));
        Ok((moved, host))
    }

    /// The layout of the data spaces at the end.
    fn look_again(&mut self) -> Result<(), BenchError> {
        for (arm, space) in self.plan() {
            let space = &self.spaces[space];
            let block = self.settings.block;
            let after = layout::look(&space.memory, block, self.root, self.host)?;
            self.arms[arm].before = Some(space.before.clone());
            self.arms[arm].after = Some(after);
        }
        Ok(())
    }
}
