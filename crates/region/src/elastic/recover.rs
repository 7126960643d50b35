//! Recovery of the memory of ended processes, and of memory that the system had refused.

use hugeleaf_sys::SysError;
use hugeleaf_units::Bytes;

use super::backing::GranuleRun;
use super::granule_entry::{GranuleEntry, GranuleState, PROCESSES};
use super::ledger::LockedLedger;
use super::owner_identity::OwnerIdentity;
use super::{Elastic, ElasticError};

/// The result of [`Elastic::recover`].
///
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticOptions};
///
/// let options = ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?).shared();
/// let memory = Elastic::new(&options)?;
/// // A worker process was killed.
/// let recovered = memory.recover()?;
/// println!("{} of {} ended processes freed", recovered.bytes, recovered.processes);
/// assert!(recovered.cleaned.is_zero());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Recovered {
    /// Number of processes that had ended without returning their memory.
    pub processes: usize,
    /// Memory that they held, or were taking or returning.
    pub bytes: Bytes,
    /// Memory without an owner: memory that the system had refused before, and pages that an access
    /// to granules that were not held has left.
    pub cleaned: Bytes,
}

impl Elastic {
    /// Frees the granules of processes that have ended, even if they were killed at any
    /// instruction. Id, start time and image identify a process; if in doubt it counts as alive.
    /// Call this after a worker has died, or when memory is short.
    ///
    /// # Errors
    /// [`ElasticError::ReturnPending`] if the system refuses some memory; [`ElasticError::Forked`],
    /// [`ElasticError::LockTimeout`], [`ElasticError::Damaged`].
    pub fn recover(&self) -> Result<Recovered, ElasticError> {
        self.check_process()?;
        let slots = 0u16..u16::try_from(PROCESSES).unwrap_or(u16::MAX);
        let ended: Vec<(u16, OwnerIdentity)> = slots
            .filter_map(|slot| Some((slot, self.ledger.process(slot)?)))
            .filter(|(slot, _)| self.ledger.has_ended(*slot))
            .collect();
        let locked = self.ledger.lock()?;
        let still = |locked: &LockedLedger<'_>| -> Vec<u16> {
            // Skips a slot that another process has taken since.
            let same = ended
                .iter()
                .filter(|(slot, was)| locked.process(*slot) == Some(*was));
            same.map(|(slot, _)| *slot).collect()
        };
        let slots = still(&locked);
        let theirs = self.adopt(&locked, |entry| slots.contains(&entry.owner))?;
        let cleaned = self.clean_up(&locked)?;
        drop(locked);
        let failed = self.release_adopted(&theirs)?;
        let locked = self.ledger.lock()?;
        let slots = still(&locked);
        for slot in &slots {
            locked.remove_process(*slot);
        }
        match failed {
            Some((bytes, error)) => Err(ElasticError::ReturnPending { bytes, error }),
            None => Ok(Recovered {
                processes: slots.len(),
                bytes: self.ledger.shape.bytes(theirs.len() as u64),
                cleaned,
            }),
        }
    }

    /// Frees the granules and the table slot of this process.
    pub(super) fn leave(&self) -> Result<(), ElasticError> {
        let own = self.ledger.slot;
        let locked = self.ledger.lock()?;
        let mine = self.adopt(&locked, |entry| entry.owner == own)?;
        drop(locked);
        self.release_adopted(&mine)?;
        self.ledger.lock()?.remove_process(own);
        Ok(())
    }

    /// Makes this process the owner of granules, to return them. Returns their previous entries.
    fn adopt(
        &self,
        locked: &LockedLedger<'_>,
        is_theirs: impl Fn(&GranuleEntry) -> bool,
    ) -> Result<Vec<(u32, GranuleEntry)>, ElasticError> {
        let mut adopted = Vec::new();
        for found in locked.entries() {
            let (index, entry) = found?;
            if !matches!(entry.state, GranuleState::Free | GranuleState::Unclean)
                && is_theirs(&entry)
            {
                adopted.push((index, entry));
            }
        }
        for (index, entry) in &adopted {
            let returning = GranuleEntry {
                state: GranuleState::Returning,
                owner: self.ledger.slot,
                ..*entry
            };
            locked.set(*index, returning);
        }
        Ok(adopted)
    }

    /// Frees adopted granules. A held granule is only on its rung; one in transit may be on any.
    fn release_adopted(
        &self,
        adopted: &[(u32, GranuleEntry)],
    ) -> Result<Option<(Bytes, SysError)>, ElasticError> {
        let (held, under_way): (Vec<_>, Vec<_>) = adopted
            .iter()
            .partition(|(_, entry)| entry.state == GranuleState::Held);
        let failed = self.release_granules(
            &GranuleRun::from_indices(under_way.iter().map(|(i, _)| *i)),
            None,
        )?;
        self.release_held(&held, failed)
    }

    /// Frees memory without an owner. Done under the lock, since it is rare.
    fn clean_up(&self, locked: &LockedLedger<'_>) -> Result<Bytes, ElasticError> {
        let (mut unclean, mut free, mut under_way) = (Vec::new(), Vec::new(), false);
        for found in locked.entries() {
            let (index, entry) = found?;
            match entry.state {
                GranuleState::Unclean => unclean.push(index),
                GranuleState::Free => free.push(index),
                GranuleState::Taking | GranuleState::Returning => under_way = true,
                GranuleState::Held => {}
            }
        }
        let mut cleaned = Bytes::ZERO;
        for run in GranuleRun::from_indices(unclean.iter().copied()) {
            if let Err(error) = self.backing.clean(run) {
                let bytes = self.ledger.shape.bytes(locked.unclean());
                return Err(ElasticError::ReturnPending { bytes, error });
            }
            for index in run.indices() {
                if let Some(entry) = locked.entry(index)? {
                    locked.set(index, entry.freed());
                }
            }
            cleaned += self.ledger.shape.bytes(run.count.into());
        }
        // Pages of granules in transit cannot be distinguished from strays.
        if under_way {
            return Ok(cleaned);
        }
        let counted = |step| locked.on_step(step);
        let strays = self.backing.strays(&counted)?;
        if !strays.is_zero() {
            for run in GranuleRun::from_indices(free) {
                let cleaned = self.backing.clean(run);
                cleaned.map_err(|error| ElasticError::ReturnPending {
                    bytes: strays,
                    error,
                })?;
            }
        }
        Ok(cleaned + strays)
    }
}
