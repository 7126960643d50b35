//! Taking granules, returning them, and transferring them between components.

use hugeleaf_sys::SysError;
use hugeleaf_units::{Bytes, Pages};

use super::backing::{FillError, FilledRun, GranuleRun};
use super::granule_entry::{FallbackCode, GranuleEntry, GranuleState};
use super::ledger::{ListedComponent, LockedLedger};
use super::{Component, Elastic, ElasticError, Granule};
use crate::error::MemoryError;
use crate::host_memory::HostMemory;

impl Elastic {
    /// Takes one granule on the first rung that has the pages. It is populated, zeroed and within
    /// all limits, so a later access never raises SIGBUS.
    ///
    /// # Errors
    /// [`ElasticError::OverTarget`], [`ElasticError::Full`], [`ElasticError::NoSuchComponent`],
    /// [`ElasticError::NotResizable`]; [`MemoryError::Short`] on a mandatory ladder,
    /// [`MemoryError::TooLarge`] if memory is short; [`ElasticError::Forked`]. Nothing is taken
    /// then.
    pub fn take(&self, component: Component) -> Result<Granule, ElasticError> {
        let taken = self.take_many(component, 1)?;
        let none = || ElasticError::Damaged("a granule was taken, but none is recorded".to_owned());
        taken.into_iter().next().ok_or_else(none)
    }

    /// Takes `count` granules, or none. They are adjacent if enough adjacent ones are free, and
    /// always in address order.
    ///
    /// # Errors
    /// As [`Elastic::take`].
    pub fn take_many(
        &self,
        component: Component,
        count: usize,
    ) -> Result<Vec<Granule>, ElasticError> {
        self.check_process()?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let claimed = self.claim(component, count)?;
        let mut filled = Vec::new();
        for run in &claimed.runs {
            let unclean = run.indices().any(|i| claimed.unclean.contains(&i));
            let outcome = match unclean.then(|| self.backing.clean(*run)) {
                Some(Err(error)) => Err(FillError::Failed(error.into())),
                _ => self.fill(*run),
            };
            match outcome {
                Ok(on_steps) => filled.extend(on_steps),
                Err(unfilled) => {
                    let error = self.describe(unfilled, count);
                    self.release_granules(&claimed.runs, None)?;
                    return Err(error);
                }
            }
        }
        self.hold(&mut filled)
    }

    fn fill(&self, run: GranuleRun) -> Result<Vec<FilledRun>, FillError> {
        let dropped = self.backing.steps.dropped.first();
        let first = dropped.map_or(FallbackCode::None, FallbackCode::from_fallback);
        let counted = |step| self.ledger.on_step(step);
        self.backing.fill(run, first, &counted)
    }

    fn describe(&self, unfilled: FillError, count: usize) -> ElasticError {
        match unfilled {
            FillError::Failed(error) => error.into(),
            FillError::Short { missing, reason } => {
                let room = HostMemory::read().ok();
                let first = self.asked.size;
                let wanted = first.pages_for(self.ledger.shape.bytes(count as u64));
                let short = first.pages_for(self.ledger.shape.bytes(missing));
                let got = Pages(wanted.get().saturating_sub(short.get()));
                let why = self.why(reason, wanted, got, room.as_ref());
                let error = MemoryError::Short {
                    ladder: self.ladder.clone(),
                    asked: self.ledger.shape.bytes(count as u64),
                    missing: self.ledger.shape.bytes(missing),
                    why: why
                        .unwrap_or(crate::extent::FallbackReason::NotContiguous { size: first }),
                };
                error.into()
            }
        }
    }

    /// Chooses granules and records that this process is taking them.
    fn claim(&self, component: Component, count: usize) -> Result<ClaimedGranules, ElasticError> {
        let locked = self.ledger.lock()?;
        let listed = known(&locked, component)?;
        if listed.granules > 0 {
            resizable(listed)?;
        }
        let shape = self.ledger.shape;
        let (held, wanted) = (shape.bytes(locked.held()), shape.bytes(count as u64));
        let free = u64::from(shape.granules).saturating_sub(locked.held());
        if count as u64 > free {
            let (max, free) = (self.max, shape.bytes(free));
            return Err(ElasticError::Full { max, free, wanted });
        }
        let target = locked.target();
        if held + wanted > target {
            return Err(ElasticError::OverTarget {
                target,
                held,
                wanted,
            });
        }
        let chosen = choose(&locked, count)?;
        let mut unclean = Vec::new();
        for (index, before) in &chosen {
            if before.state == GranuleState::Unclean {
                unclean.push(*index);
            }
            let taking = GranuleEntry {
                state: GranuleState::Taking,
                step: 0,
                component: small(component),
                owner: self.ledger.slot,
                reason: FallbackCode::None,
                stamp: before.stamp.wrapping_add(1),
            };
            locked.set(*index, taking);
        }
        let runs = GranuleRun::from_indices(chosen.iter().map(|(index, _)| *index));
        Ok(ClaimedGranules { runs, unclean })
    }

    /// Records that the taken granules are held.
    fn hold(&self, filled: &mut [FilledRun]) -> Result<Vec<Granule>, ElasticError> {
        filled.sort_by_key(|part| part.run.first);
        let locked = self.ledger.lock()?;
        let mut taken = Vec::new();
        for part in filled.iter() {
            for index in part.run.indices() {
                let held = GranuleEntry {
                    state: GranuleState::Held,
                    step: part.step,
                    reason: part.reason,
                    ..entry(&locked, index)?
                };
                locked.set(index, held);
                self.backing.note_ready(index, held);
                taken.push(Granule {
                    index,
                    stamp: held.stamp,
                });
            }
        }
        Ok(taken)
    }

    /// Returns granules that this process is taking or returning to the system, from their step if
    /// it is known, and frees them. Granules that the system refuses are recorded as unclean.
    ///
    /// # Errors
    /// [`ElasticError::LockTimeout`]: their entries in the table are unchanged.
    pub(super) fn release_granules(
        &self,
        runs: &[GranuleRun],
        step: Option<u8>,
    ) -> Result<Option<(Bytes, SysError)>, ElasticError> {
        let clean = |run: &GranuleRun| match step {
            Some(step) => self.backing.clean_on(*run, step),
            None => self.backing.clean(*run),
        };
        let done: Vec<_> = runs.iter().map(|run| (*run, clean(run))).collect();
        let locked = self.ledger.lock()?;
        let mut failed: Option<(Bytes, SysError)> = None;
        for (run, outcome) in done {
            for index in run.indices() {
                let mut now = entry(&locked, index)?.freed();
                if outcome.is_err() {
                    now.state = GranuleState::Unclean;
                }
                locked.set(index, now);
            }
            if let Err(error) = outcome {
                let more = self.ledger.shape.bytes(run.count.into());
                let (bytes, _) = failed.get_or_insert((Bytes::ZERO, error));
                *bytes += more;
            }
        }
        Ok(failed)
    }

    /// Returns granules of a component, all or none. Their memory goes to the pool or the system at
    /// once, for all processes.
    ///
    /// # Errors
    /// [`ElasticError::NotHeld`], [`ElasticError::Stale`], [`ElasticError::DuplicateGranule`],
    /// [`ElasticError::HeldByOther`], [`ElasticError::NotResizable`],
    /// [`ElasticError::NoSuchComponent`], [`ElasticError::Forked`]: none was returned.
    /// [`ElasticError::ReturnPending`]: none is held any more, but the system refused some memory.
    pub fn give_back(
        &self,
        component: Component,
        granules: &[Granule],
    ) -> Result<(), ElasticError> {
        self.check_process()?;
        let locked = self.ledger.lock()?;
        resizable(known(&locked, component)?)?;
        let held = held_by(&locked, component, granules)?;
        for (index, before) in &held {
            let returning = GranuleEntry {
                state: GranuleState::Returning,
                owner: self.ledger.slot,
                ..*before
            };
            locked.set(*index, returning);
        }
        drop(locked);
        match self.release_held(&held, None)? {
            None => Ok(()),
            Some((bytes, error)) => Err(ElasticError::ReturnPending { bytes, error }),
        }
    }

    /// As [`Elastic::give_back`] for held granules, each only on its rung. Adds earlier failures.
    pub(super) fn release_held(
        &self,
        held: &[(u32, GranuleEntry)],
        mut failed: Option<(Bytes, SysError)>,
    ) -> Result<Option<(Bytes, SysError)>, ElasticError> {
        let mut steps: Vec<u8> = held.iter().map(|(_, entry)| entry.step).collect();
        steps.sort_unstable();
        steps.dedup();
        for step in steps {
            let on_step = held.iter().filter(|(_, entry)| entry.step == step);
            let runs = GranuleRun::from_indices(on_step.map(|(index, _)| *index));
            failed = match (failed, self.release_granules(&runs, Some(step))?) {
                (Some((before, first)), Some((bytes, _))) => Some((before + bytes, first)),
                (before, now) => before.or(now),
            };
        }
        Ok(failed)
    }

    /// Transfers granules with their contents from one component to another, all or none. No memory
    /// moves, and no system call is made for it. The calling process becomes their owner. They get
    /// new names, returned in the order of the old ones.
    ///
    /// # Errors
    /// As [`Elastic::give_back`], for either component. Nothing has changed then.
    pub fn transfer(
        &self,
        from: Component,
        to: Component,
        granules: &[Granule],
    ) -> Result<Vec<Granule>, ElasticError> {
        self.check_process()?;
        let locked = self.ledger.lock()?;
        for component in [from, to] {
            let listed = known(&locked, component)?;
            if from != to {
                resizable(listed)?;
            }
        }
        held_by(&locked, from, granules)?;
        let mut renamed = Vec::new();
        for granule in granules {
            let before = entry(&locked, granule.index)?;
            let was_ready = self.backing.is_ready(granule.index, before);
            let now = GranuleEntry {
                component: small(to),
                owner: self.ledger.slot,
                stamp: before.stamp.wrapping_add(1),
                ..before
            };
            locked.set(granule.index, now);
            if was_ready {
                self.backing.note_ready(granule.index, now);
            }
            renamed.push(Granule {
                stamp: now.stamp,
                ..*granule
            });
        }
        Ok(renamed)
    }

    /// Returns the address of a granule in this process, mapped on its current rung.
    ///
    /// # Errors
    /// [`ElasticError::NotHeld`], [`ElasticError::Stale`], [`ElasticError::Forked`]; errors of the
    /// system calls if it has to be mapped first.
    pub fn address(&self, granule: Granule) -> Result<*mut u8, ElasticError> {
        self.check_process()?;
        let found = held(self.ledger.entry(granule.index)?, granule)?;
        if !self.backing.is_ready(granule.index, found) {
            // Under the lock, so that it is not returned meanwhile.
            let locked = self.ledger.lock()?;
            let found = held(locked.entry(granule.index)?, granule)?;
            self.backing.make_ready(granule.index, found)?;
        }
        Ok(self.backing.part(GranuleRun::single(granule.index)).start() as *mut u8)
    }
}

struct ClaimedGranules {
    runs: Vec<GranuleRun>,
    /// Granules whose memory could not be returned before.
    unclean: Vec<u32>,
}

/// Chooses `count` free granules: the first adjacent ones, else the first ones.
fn choose(
    locked: &LockedLedger<'_>,
    count: usize,
) -> Result<Vec<(u32, GranuleEntry)>, ElasticError> {
    let from = locked.first_free();
    let (mut found, mut neighbours) = (Vec::new(), Vec::new());
    for index in from..locked.shape.granules {
        let entry = entry(locked, index)?;
        match entry.state {
            GranuleState::Free | GranuleState::Unclean => {
                if found.is_empty() {
                    locked.set_first_free(index);
                }
                if found.len() < count {
                    found.push((index, entry));
                }
                neighbours.push((index, entry));
            }
            _ => neighbours.clear(),
        }
        if neighbours.len() == count {
            return Ok(neighbours);
        }
    }
    match found.len() == count {
        true => Ok(found),
        false => Err(ElasticError::Damaged(
            "fewer granules are free than counted".to_owned(),
        )),
    }
}

fn known(locked: &LockedLedger<'_>, component: Component) -> Result<ListedComponent, ElasticError> {
    let listed = locked.component(component);
    listed.ok_or(ElasticError::NoSuchComponent(component))
}

/// Refuses a component of a fixed size, which takes once and keeps its granules.
fn resizable(listed: ListedComponent) -> Result<(), ElasticError> {
    let ListedComponent {
        name, resizable, ..
    } = listed;
    match resizable {
        true => Ok(()),
        false => Err(ElasticError::NotResizable { name }),
    }
}

/// Converts a component's number for an entry. The caller has found it in the table.
fn small(component: Component) -> u8 {
    u8::try_from(component.0).unwrap_or(u8::MAX)
}

fn entry(locked: &LockedLedger<'_>, index: u32) -> Result<GranuleEntry, ElasticError> {
    let entry = locked.entry(index)?;
    entry.ok_or_else(|| ElasticError::Damaged(format!("no granule {index}")))
}

/// Returns the entry of a granule if it is held under this name.
fn held(entry: Option<GranuleEntry>, granule: Granule) -> Result<GranuleEntry, ElasticError> {
    match entry {
        Some(entry) if entry.stamp != granule.stamp && entry.stamp != 0 => {
            Err(ElasticError::Stale { granule })
        }
        Some(entry) if entry.state == GranuleState::Held && entry.stamp == granule.stamp => {
            Ok(entry)
        }
        _ => Err(ElasticError::NotHeld { granule }),
    }
}

/// Returns the entries of a list in address order, if a component holds all of them under these
/// names.
fn held_by(
    locked: &LockedLedger<'_>,
    component: Component,
    granules: &[Granule],
) -> Result<Vec<(u32, GranuleEntry)>, ElasticError> {
    let mut sorted = granules.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ElasticError::DuplicateGranule { granule: pair[0] });
    }
    let mut found = Vec::new();
    for granule in sorted {
        let entry = held(locked.entry(granule.index)?, granule)?;
        let holder = Component(u32::from(entry.component));
        if holder != component {
            return Err(ElasticError::HeldByOther {
                granule,
                asked: component,
                holder,
            });
        }
        found.push((granule.index, entry));
    }
    Ok(found)
}
