//! Data spaces of `bench mover` and `bench pin`: memory on each kind of pages, taken once.
//!
//! Memory that is locked part by part loses its large mappings where it is transparent, so what
//! locks has a space of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use hugeleaf_host::{Host, Root};
use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::{IoMemory, IoPages};

use super::mover::{PhysicalLayout, look};
use super::{BenchError, BenchEvent, Shortage, is_unavailable};

/// A data space that is available, with the arms that use it.
pub struct Space {
    /// What it lies on.
    pub pages: IoPages,
    /// Whether it is for what locks.
    pub locked: bool,
    /// The memory.
    pub memory: IoMemory,
    /// Its layout when it was taken.
    pub before: PhysicalLayout,
}

/// Whether what locks, or does not, needs a data space of its own on such pages.
pub fn needs_own(locks: bool, pages: IoPages) -> bool {
    locks && !pages.is_pool()
}

/// What spaces are taken for.
pub struct Take<'a> {
    /// Kinds of pages, in order.
    pub pages: &'a [IoPages],
    /// Whether each thing that is to be measured locks.
    pub locks: &'a [bool],
    /// Length of a space,
    pub space: Bytes,
    /// and of a block in it.
    pub block: Bytes,
    /// What scattered pages are drawn from.
    pub seed: u64,
    /// The host.
    pub host: &'a Host,
    /// Where it is read.
    pub root: &'a Root,
    /// What progress calls a space.
    pub called: &'a str,
}

impl Take<'_> {
    /// Takes them. One that is unavailable is reported, as an event and in `shortage`, and the others go on.
    ///
    /// # Errors
    /// [`BenchError`]; [`BenchError::Stopped`] where `stop` says so.
    pub fn all(
        &self,
        progress: &mut dyn FnMut(BenchEvent),
        stop: &AtomicBool,
        mut shortage: impl FnMut(&str, Shortage),
    ) -> Result<Vec<Space>, BenchError> {
        let mut spaces = Vec::new();
        for pages in self.pages {
            for locked in [false, true] {
                let uses = |locks: &bool| needs_own(*locks, *pages) == locked;
                if !self.locks.iter().any(uses) {
                    continue;
                }
                if stop.load(Ordering::Relaxed) {
                    return Err(BenchError::Stopped);
                }
                progress(BenchEvent::Taking(format!("{} on {pages}", self.called)));
                match self.one(*pages, locked) {
                    Ok(space) => spaces.push(space),
                    Err(BenchError::Memory(error)) if is_unavailable(&error) => {
                        let (arm, reason) = (pages.to_string(), error.to_string());
                        progress(BenchEvent::Unavailable {
                            arm: arm.clone(),
                            reason: reason.clone(),
                        });
                        let from_bytes = self.space.get();
                        let next = error.next();
                        shortage(
                            &arm,
                            Shortage {
                                from_bytes,
                                reason,
                                next,
                            },
                        );
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(spaces)
    }

    fn one(&self, pages: IoPages, locked: bool) -> Result<Space, BenchError> {
        let memory = IoMemory::take(pages, self.space, self.host, self.seed)?;
        let before = look(&memory, self.block, self.root, self.host)?;
        Ok(Space {
            pages,
            locked,
            memory,
            before,
        })
    }
}
