//! `bench pin`: what it costs to pin one buffer, by the pages that it lies on and by the number of
//! threads that do it at a time.
//!
//! Round by round, every way of pinning runs on every kind of pages with every number of threads, in
//! an order drawn anew. Next to what was measured stands the published model: one turn of a lock a
//! unit, so that the cost goes with the number of pages in a buffer. Memory that is locked part by
//! part loses its large mappings where it is transparent; so that way has memory of its own, and
//! the layout of all of it is read back at the end.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hugeleaf_host::{Host, Root};
use hugeleaf_sys::may_lock;
use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::{Area, Devices, IoPages, MoverError, Wanted};
use hugeleaf_workload::pin::{Method, PinLoad, pin};

use super::mover::look;
use super::spaces::{Space, Take, needs_own};
use super::{BenchEnding, BenchError, BenchEvent, Machine, Measured, nothing};
use crate::rows::Results;

mod result;
mod rows;
mod settings;

use result::{PinArm, PinResult};
pub use settings::PinSettings;

/// One point to be measured.
#[derive(Debug, Clone, Copy)]
struct Turn {
    arm: usize,
    space: usize,
    method: Method,
    threads: usize,
}

/// Measures.
///
/// # Errors
/// [`BenchError`]; all memory and the file are gone then.
pub fn measure(
    settings: &PinSettings,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    Ok(measured(settings, machine, progress)?.to_results())
}

fn measured<'a>(
    settings: &'a PinSettings,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<PinResult<'a>, BenchError> {
    let Machine {
        root,
        host,
        circumstances,
        stop,
        ..
    } = *machine;
    check(settings, host)?;
    let began = Instant::now();
    let mut engine = Engine {
        settings,
        root,
        host,
        progress,
        stop,
        arms: result::empty_arms(settings, host),
        spaces: Vec::new(),
    };
    engine.take_spaces()?;
    if engine.spaces.is_empty() {
        return Err(nothing(
            engine.arms.iter().map(|arm| (&*arm.label, &arm.shortage)),
        ));
    }
    let devices = engine.devices()?;
    let source = devices.as_ref().and_then(|d| d.sources.first());
    let ending = match engine.all(source) {
        Ok(()) => BenchEnding::Done,
        Err(BenchError::Mover(MoverError::Stopped)) => BenchEnding::Interrupted,
        Err(error) => return Err(error),
    };
    engine.look_again()?;
    let arms = engine.arms;
    if arms.iter().all(PinArm::is_empty) {
        return Err(BenchError::Stopped);
    }
    let about = (began.elapsed(), ending);
    let mut measured = Measured::new("pin", settings, arms, circumstances, about);
    result::compare(&mut measured.arms, circumstances.host.cpus);
    measured.caveats = result::caveats(&measured.arms, host);
    Ok(PinResult {
        devices: devices.map_or_else(Vec::new, |devices| devices.places),
        measured,
    })
}

/// Refuses what would take more memory, or pin more, than it may.
fn check(settings: &PinSettings, host: &Host) -> Result<(), BenchError> {
    let lock = settings.methods.contains(&Method::Mlock);
    let other = settings.methods.iter().any(|m| *m != Method::Mlock);
    let spaces = u64::from(lock) + u64::from(other);
    let of = |pages: &IoPages| pages.whole(settings.space, host).unwrap_or(settings.space);
    let ordinary = settings.pages.iter().filter(|pages| !pages.is_pool());
    let asked: Bytes = ordinary
        .map(|p| Bytes(of(p).get().saturating_mul(spaces)))
        .sum();
    if asked > settings.most {
        return Err(BenchError::TooLarge {
            what: format!("memory of {} for each kind of pages", settings.space),
            asked,
            most: settings.most,
        });
    }
    let threads = settings.threads.iter().copied().max().unwrap_or(1);
    let asked = Bytes(settings.block.get().saturating_mul(threads as u64));
    let pins = settings.methods.iter().find(|m| **m != Method::Direct);
    match (may_lock(), pins) {
        (Some(most), Some(method)) if asked > most => {
            let mode = method.name();
            Err(MoverError::MemlockLimit { mode, asked, most }.into())
        }
        _ => Ok(()),
    }
}

struct Engine<'a> {
    settings: &'a PinSettings,
    root: &'a Root,
    host: &'a Host,
    progress: &'a mut dyn FnMut(BenchEvent),
    stop: &'a AtomicBool,
    arms: Vec<PinArm>,
    spaces: Vec<Space>,
}

impl Engine<'_> {
    fn devices(&mut self) -> Result<Option<Devices>, BenchError> {
        let s = self.settings;
        if !s.methods.contains(&Method::Direct) {
            return Ok(None);
        }
        (self.progress)(BenchEvent::Taking("a file to read".to_owned()));
        let wanted = Wanted {
            places: vec![s.place.clone()],
            sources: 1,
            targets: 0,
            each: s.each,
            block: s.block,
            overwrite: false,
            seed: s.seed,
        };
        Ok(Some(Devices::make(&wanted, self.host, self.stop)?))
    }

    fn take_spaces(&mut self) -> Result<(), BenchError> {
        let s = self.settings;
        let locks: Vec<bool> = s.methods.iter().map(|m| *m == Method::Mlock).collect();
        let take = Take {
            pages: &s.pages,
            locks: &locks,
            space: s.space,
            block: s.block,
            seed: s.seed,
            host: self.host,
            root: self.root,
            called: "memory",
        };
        let arms = &mut self.arms;
        self.spaces = take.all(self.progress, self.stop, |label, why| {
            for arm in arms.iter_mut().filter(|arm| arm.label == label) {
                arm.shortage = Some(why.clone());
            }
        })?;
        Ok(())
    }

    /// Every arm that is available, with every number of threads.
    fn plan(&self) -> Vec<Turn> {
        let mut plan = Vec::new();
        for (arm, one) in self.arms.iter().enumerate() {
            let Ok(method) = one.method.parse::<Method>() else {
                continue;
            };
            let space = self.spaces.iter().position(|space| {
                space.pages.to_string() == one.label
                    && space.locked == needs_own(method == Method::Mlock, space.pages)
            });
            let Some(space) = space else {
                continue;
            };
            plan.extend(self.settings.threads.iter().map(|threads| Turn {
                arm,
                space,
                method,
                threads: *threads,
            }));
        }
        plan
    }

    fn all(&mut self, source: Option<&Area>) -> Result<(), BenchError> {
        let plan = self.plan();
        let mut random = fastrand::Rng::with_seed(self.settings.seed);
        let of = (plan.len() * self.settings.rounds) as u64;
        let mut done = 0;
        for round in 0..self.settings.rounds {
            let mut order = plan.clone();
            random.shuffle(&mut order);
            for turn in order {
                let arm = &self.arms[turn.arm];
                (self.progress)(BenchEvent::At {
                    done,
                    of,
                    what: format!("{} on {}, {}", arm.method, arm.label, turn.threads),
                });
                let load = PinLoad {
                    method: turn.method,
                    threads: turn.threads,
                    block: self.settings.block,
                    time: self.settings.sample,
                    source,
                };
                let memory = &mut self.spaces[turn.space].memory;
                let pinned = pin(memory, &load, self.stop)?;
                self.arms[turn.arm].saw(turn.threads, round, &pinned);
                done += 1;
            }
        }
        Ok(())
    }

    fn look_again(&mut self) -> Result<(), BenchError> {
        for turn in self.plan() {
            let space = &self.spaces[turn.space];
            if self.arms[turn.arm].after.is_some() {
                continue;
            }
            let after = look(&space.memory, self.settings.block, self.root, self.host)?;
            self.arms[turn.arm].before = Some(space.before.clone());
            self.arms[turn.arm].after = Some(after);
        }
        Ok(())
    }
}
