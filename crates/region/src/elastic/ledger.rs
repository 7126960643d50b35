//! The table of granules, components and processes, and the one lock that guards it.
//!
//! The word of a granule is authoritative; counters are derived from words. A process that takes
//! the lock over from a dead holder counts again and continues. No system call is made under the
//! lock, except to check whether another process lives and for the readings of [`super::view`].
//!
//! The lock is a word of the table. It holds the slot of its holder in the process list and a
//! ticket that is unique to each acquisition. Record locks (fcntl(2)) were the first choice, since
//! they end with their holder too. But closing any descriptor of the file releases them, and every
//! handle has one. Open file description locks pass to forked children and outlive their holder.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hugeleaf_host::Pid;
use hugeleaf_sys::{MemoryFile, MemorySyscalls};
use hugeleaf_units::{Bytes, PageSize};

use super::error::ElasticError;
use super::granule_entry::{COMPONENTS, GranuleEntry, GranuleState, PROCESSES, STEPS};
use super::ids::{Component, components};
use super::lock::{self, LockToken, LockWord};
use super::owner_identity::{OwnerIdentity, namespace};
use super::shared_words::{SharedWords, length_of};

/// "hugeleaf" in ASCII.
const MAGIC: u64 = 0x6875_6765_6c65_6166;
/// Version of the layout. Changes with every change of the layout.
const VERSION: u64 = 2;
/// Maximum number of granules. More would make a table of hundreds of megabytes.
pub(crate) const MOST_GRANULES: u64 = 1 << 24;
pub(crate) const NAME: usize = 47;

mod at {
    use super::super::granule_entry::{COMPONENTS, PROCESSES, STEPS};

    // Constant words, checked when a process attaches.
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const WORDS: usize = 2;
    pub(super) const GRANULE: usize = 3;
    pub(super) const GRANULES: usize = 4;
    pub(super) const NAMESPACE: usize = 5;
    // Variable words.
    pub(super) const LOCK: usize = 6;
    pub(super) const TARGET: usize = 7;
    // Derived: granules held or in transit, unclean granules, the first one that may be free, and
    // the held ones per rung.
    pub(super) const HELD: usize = 8;
    pub(super) const UNCLEAN: usize = 9;
    pub(super) const FIRST_FREE: usize = 10;
    pub(super) const ON_STEP: usize = 11;

    pub(super) const COMPONENT: usize = ON_STEP + STEPS;
    /// Flags, six words of name, and the number of its granules (derived).
    pub(super) const COMPONENT_WORDS: usize = 8;
    pub(super) const PROCESS: usize = COMPONENT + COMPONENTS * COMPONENT_WORDS;
    /// Process id, start time, two words of image, and the time namespace.
    pub(super) const PROCESS_WORDS: usize = 5;
    pub(super) const ENTRY: usize = PROCESS + PROCESSES * PROCESS_WORDS;
}

/// Flags of a component. The bits above them hold the length of its name.
const IS_THERE: u64 = 1;
const RESIZABLE: u64 = 2;
const NAME_LENGTH: u32 = 8;

/// Flag of a process id while the other words are being written.
const ARRIVING: u64 = 1 << 63;

/// Wait after which the holder of the lock is checked, and wait after which the attempt fails.
const LOOK_AFTER: Duration = Duration::from_millis(5);
const GIVE_UP_AFTER: Duration = Duration::from_secs(20);

/// Required shape of the table: set by the process that creates it, checked by each that attaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LedgerShape {
    pub(crate) granule: PageSize,
    pub(crate) granules: u32,
}

impl LedgerShape {
    fn words(self) -> usize {
        at::ENTRY + self.granules as usize
    }

    pub(crate) fn length(self, base: PageSize) -> Bytes {
        length_of(self.words(), base)
    }

    pub(crate) fn bytes(self, granules: u64) -> Bytes {
        Bytes(granules.saturating_mul(self.granule.bytes().get()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedComponent {
    pub(crate) name: String,
    pub(crate) resizable: bool,
    pub(crate) granules: u64,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    table: SharedWords,
    pub(crate) shape: LedgerShape,
    pub(crate) slot: u16,
    /// Queues the threads of this process, so that only one waits for other processes.
    turn: Mutex<()>,
}

impl Ledger {
    pub(crate) fn create(
        memory: &MemorySyscalls,
        shape: LedgerShape,
        target: Bytes,
        base: PageSize,
    ) -> Result<(Ledger, MemoryFile), ElasticError> {
        let (table, file) = SharedWords::create(memory, shape.words(), base)?;
        let words = table.words();
        let set = |index: usize, value: u64| words[index].store(value, Ordering::Relaxed);
        set(at::VERSION, VERSION);
        set(at::WORDS, shape.words() as u64);
        set(at::GRANULE, shape.granule.bytes().get());
        set(at::GRANULES, u64::from(shape.granules));
        set(at::NAMESPACE, namespace("pid"));
        set(at::TARGET, target.get());
        words[at::MAGIC].store(MAGIC, Ordering::Release);
        Ok((Ledger::enter(table, shape)?, file))
    }

    /// Maps the table of another process. The length of its file must have been checked.
    ///
    /// # Errors
    /// [`ElasticError::Damaged`] if it is no table; [`ElasticError::OtherNamespace`];
    /// [`ElasticError::TooManyProcesses`]; errors of the system calls.
    pub(crate) fn attach(
        memory: &MemorySyscalls,
        file: &MemoryFile,
        shape: LedgerShape,
        base: PageSize,
    ) -> Result<Ledger, ElasticError> {
        let table = SharedWords::map(memory, file, shape.words(), base)?;
        let words = table.words();
        let get = |index: usize| words[index].load(Ordering::Acquire);
        let expected = [
            (at::MAGIC, MAGIC, "not a table"),
            (at::VERSION, VERSION, "other version"),
            (at::WORDS, shape.words() as u64, "wrong length"),
            (
                at::GRANULE,
                shape.granule.bytes().get(),
                "wrong granule size",
            ),
            (
                at::GRANULES,
                u64::from(shape.granules),
                "wrong number of granules",
            ),
        ];
        for (index, value, what) in expected {
            if get(index) != value {
                return Err(ElasticError::Damaged(what.to_owned()));
            }
        }
        if get(at::NAMESPACE) != namespace("pid") {
            return Err(ElasticError::OtherNamespace);
        }
        Ledger::enter(table, shape)
    }

    fn enter(table: SharedWords, shape: LedgerShape) -> Result<Ledger, ElasticError> {
        let own = OwnerIdentity::own()?;
        let id = u64::from(own.pid.0);
        for slot in 0..PROCESSES {
            let from = at::PROCESS + slot * at::PROCESS_WORDS;
            let words = &table.words()[from..from + at::PROCESS_WORDS];
            let claim =
                words[0].compare_exchange(0, id | ARRIVING, Ordering::Acquire, Ordering::Relaxed);
            if claim.is_err() {
                continue;
            }
            words[1].store(own.start, Ordering::Relaxed);
            words[2].store(own.image[0], Ordering::Relaxed);
            words[3].store(own.image[1], Ordering::Relaxed);
            words[4].store(own.clock, Ordering::Relaxed);
            words[0].store(id, Ordering::Release);
            let slot = u16::try_from(slot).unwrap_or(u16::MAX);
            let turn = Mutex::new(());
            return Ok(Ledger {
                table,
                shape,
                slot,
                turn,
            });
        }
        Err(ElasticError::TooManyProcesses { most: PROCESSES })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.table.words()[index]
    }

    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    pub(crate) fn target(&self) -> Bytes {
        Bytes(self.get(at::TARGET))
    }

    pub(crate) fn held(&self) -> u64 {
        self.get(at::HELD)
    }

    /// Returns the number of granules without an owner whose memory is not returned yet.
    pub(crate) fn unclean(&self) -> u64 {
        self.get(at::UNCLEAN)
    }

    pub(crate) fn on_step(&self, step: usize) -> u64 {
        self.get(at::ON_STEP + step)
    }

    /// Returns a granule; `None` if there is none of that number.
    pub(crate) fn entry(&self, index: u32) -> Result<Option<GranuleEntry>, ElasticError> {
        if index >= self.shape.granules {
            return Ok(None);
        }
        let word = self.get(at::ENTRY + index as usize);
        let damaged = || ElasticError::Damaged(format!("granule {index} reads {word:#x}"));
        GranuleEntry::from_word(word).map(Some).ok_or_else(damaged)
    }

    /// Returns all granules in order; [`ElasticError::Damaged`] for one that cannot be decoded.
    pub(crate) fn entries(
        &self,
    ) -> impl Iterator<Item = Result<(u32, GranuleEntry), ElasticError>> {
        let entry = |index| Some((index, self.entry(index).transpose()?));
        let all = (0..self.shape.granules).filter_map(entry);
        all.map(|(index, entry)| Ok((index, entry?)))
    }

    pub(crate) fn component(&self, component: Component) -> Option<ListedComponent> {
        let index = usize::try_from(component.0)
            .ok()
            .filter(|i| *i < COMPONENTS)?;
        let from = at::COMPONENT + index * at::COMPONENT_WORDS;
        let flags = self.get(from);
        if flags & IS_THERE == 0 {
            return None;
        }
        let length = usize::try_from(flags >> NAME_LENGTH).unwrap_or(0).min(NAME);
        let words = from + 1..from + at::COMPONENT_WORDS - 1;
        let bytes: Vec<u8> = words.flat_map(|i| self.get(i).to_le_bytes()).collect();
        Some(ListedComponent {
            name: String::from_utf8_lossy(&bytes[..length]).into_owned(),
            resizable: flags & RESIZABLE != 0,
            granules: self.get(from + at::COMPONENT_WORDS - 1),
        })
    }

    /// Returns a process of the list; `None` if the slot is empty.
    pub(crate) fn process(&self, slot: u16) -> Option<OwnerIdentity> {
        let slot = usize::from(slot);
        if slot >= PROCESSES {
            return None;
        }
        let from = at::PROCESS + slot * at::PROCESS_WORDS;
        let pid = u32::try_from(self.get(from) & !ARRIVING).ok()?;
        (pid != 0).then(|| OwnerIdentity {
            pid: Pid(pid),
            start: self.get(from + 1),
            image: [self.get(from + 2), self.get(from + 3)],
            clock: self.get(from + 4),
        })
    }

    /// True if the process of a slot has ended, or the slot is empty.
    pub(crate) fn has_ended(&self, slot: u16) -> bool {
        let Some(process) = self.process(slot) else {
            return true;
        };
        let from = at::PROCESS + usize::from(slot) * at::PROCESS_WORDS;
        match self.get(from) & ARRIVING {
            0 => process.has_ended(),
            // Its identity is not written yet, so it counts as ended only if no process has its id.
            _ => process.has_exited(),
        }
    }

    /// Takes the lock, from a dead holder as well.
    ///
    /// # Errors
    /// [`ElasticError::LockTimeout`] if a live process holds it for more than 20 s.
    #[expect(
        clippy::disallowed_methods,
        reason = "between two tries, within the deadline"
    )]
    pub(crate) fn lock(&self) -> Result<LockedLedger<'_>, ElasticError> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let word = self.word(at::LOCK);
        let mut since: Option<(u64, Instant)> = None;
        loop {
            let seen = word.look();
            let take = || lock::try_acquire(word, seen, self.slot);
            let Some(holder) = lock::holder_of(seen) else {
                if let Some(token) = take() {
                    return Ok(LockedLedger {
                        ledger: self,
                        token,
                        _turn: turn,
                    });
                }
                continue;
            };
            let waited = match since {
                Some((known, from)) if known == seen => from.elapsed(),
                _ => {
                    since = Some((seen, Instant::now()));
                    Duration::ZERO
                }
            };
            if waited < LOOK_AFTER {
                std::thread::yield_now();
                continue;
            }
            if self.has_ended(holder)
                && let Some(token) = take()
            {
                let locked = LockedLedger {
                    ledger: self,
                    token,
                    _turn: turn,
                };
                locked.count_again();
                return Ok(locked);
            }
            if waited > GIVE_UP_AFTER {
                let pid = self.process(holder).map_or(Pid(0), |process| process.pid);
                let seconds = waited.as_secs();
                return Err(ElasticError::LockTimeout { pid, seconds });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(crate) struct LockedLedger<'a> {
    ledger: &'a Ledger,
    token: LockToken,
    _turn: MutexGuard<'a, ()>,
}

impl Deref for LockedLedger<'_> {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        self.ledger
    }
}

impl Drop for LockedLedger<'_> {
    fn drop(&mut self) {
        // Not released if another process took it over, mistaking this one for dead.
        lock::release(self.word(at::LOCK), &self.token);
    }
}

impl LockedLedger<'_> {
    fn put(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    fn add(&self, index: usize, number: u64) {
        self.put(index, self.get(index).wrapping_add(number));
    }

    pub(crate) fn set_target(&self, target: Bytes) {
        self.put(at::TARGET, target.get());
    }

    /// Writes a granule and updates the counters derived from it.
    pub(crate) fn set(&self, index: u32, entry: GranuleEntry) {
        let word = at::ENTRY + index as usize;
        if let Some(before) = GranuleEntry::from_word(self.get(word)) {
            self.count(before, u64::MAX);
        }
        self.put(word, entry.to_word());
        self.count(entry, 1);
        if matches!(entry.state, GranuleState::Free | GranuleState::Unclean) {
            let first = self.get(at::FIRST_FREE).min(u64::from(index));
            self.put(at::FIRST_FREE, first);
        }
    }

    /// Adds a granule to the counters, or subtracts it if `number` is `u64::MAX` (minus one).
    fn count(&self, entry: GranuleEntry, number: u64) {
        match entry.state {
            GranuleState::Free => {}
            GranuleState::Unclean => self.add(at::UNCLEAN, number),
            GranuleState::Taking | GranuleState::Held | GranuleState::Returning => {
                self.add(at::HELD, number);
                let component = at::COMPONENT
                    + usize::from(entry.component) * at::COMPONENT_WORDS
                    + at::COMPONENT_WORDS
                    - 1;
                self.add(component, number);
            }
        }
        if entry.state == GranuleState::Held {
            self.add(at::ON_STEP + usize::from(entry.step), number);
        }
    }

    pub(crate) fn count_again(&self) {
        let components = (0..COMPONENTS).map(|i| at::COMPONENT + (i + 1) * at::COMPONENT_WORDS - 1);
        let counters = [at::HELD, at::UNCLEAN, at::FIRST_FREE].into_iter();
        let steps = (0..STEPS).map(|step| at::ON_STEP + step);
        for index in counters.chain(steps).chain(components) {
            self.put(index, 0);
        }
        for index in 0..self.shape.granules as usize {
            if let Some(entry) = GranuleEntry::from_word(self.get(at::ENTRY + index)) {
                self.count(entry, 1);
            }
        }
    }

    /// Returns the index of the first granule that may be free.
    pub(crate) fn first_free(&self) -> u32 {
        let first = u32::try_from(self.get(at::FIRST_FREE)).unwrap_or(0);
        first.min(self.shape.granules)
    }

    /// Records that no granule below `index` is free.
    pub(crate) fn set_first_free(&self, index: u32) {
        self.put(at::FIRST_FREE, u64::from(index));
    }

    /// Adds a component; `None` if the table is full.
    pub(crate) fn add_component(&self, name: &str, resizable: bool) -> Option<Component> {
        let free = components().find(|c| self.component(*c).is_none())?;
        let from = at::COMPONENT + free.0 as usize * at::COMPONENT_WORDS;
        let mut bytes = [0u8; (at::COMPONENT_WORDS - 2) * size_of::<u64>()];
        bytes
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        for (i, part) in bytes.chunks_exact(size_of::<u64>()).enumerate() {
            let word = part
                .iter()
                .rev()
                .fold(0, |word, b| word << 8 | u64::from(*b));
            self.put(from + 1 + i, word);
        }
        // Written last, so that an entry left incomplete by a dead process does not count.
        let resizable = if resizable { RESIZABLE } else { 0 };
        self.put(
            from,
            IS_THERE | resizable | (name.len() as u64) << NAME_LENGTH,
        );
        Some(free)
    }

    /// Empties a slot of the process list. All granules of the process must have new owners.
    pub(crate) fn remove_process(&self, slot: u16) {
        self.put(at::PROCESS + usize::from(slot) * at::PROCESS_WORDS, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::granule_entry::FallbackCode;
    use super::*;
    use hugeleaf_sys::Kernel;

    fn ledger() -> Ledger {
        let base = Kernel::new().base_page();
        let shape = LedgerShape {
            granule: base,
            granules: 100,
        };
        let target = shape.bytes(100);
        Ledger::create(&MemorySyscalls::new(), shape, target, base)
            .unwrap()
            .0
    }

    fn held() -> GranuleEntry {
        GranuleEntry {
            state: GranuleState::Held,
            step: 1,
            component: 3,
            owner: 9,
            reason: FallbackCode::None,
            stamp: 1,
        }
    }

    #[test]
    fn the_lock_of_a_dead_process_is_taken_over_and_all_is_counted_again() {
        let ledger = ledger();
        ledger.lock().unwrap().set(5, held());
        assert_eq!((ledger.held(), ledger.on_step(1)), (1, 1));
        // The holder does not exist and died between writing a word and its counters.
        let entry = ledger.word(at::ENTRY + 6);
        entry.store(held().to_word(), Ordering::Relaxed);
        for holder in [77, u16::MAX] {
            let word = lock::held_by(holder, 3 << 32);
            ledger.word(at::LOCK).store(word, Ordering::Relaxed);
            let locked = ledger.lock().unwrap();
            assert_eq!((locked.held(), locked.on_step(1)), (2, 2));
            drop(locked);
            assert_eq!(lock::holder_of(ledger.get(at::LOCK)), None);
        }
    }

    #[test]
    fn a_lock_that_was_taken_over_is_not_opened_by_who_had_it() {
        let ledger = ledger();
        let locked = ledger.lock().unwrap();
        let word = ledger.word(at::LOCK);
        let others = lock::held_by(77, word.load(Ordering::Relaxed));
        word.store(others, Ordering::Relaxed);
        drop(locked);
        assert_eq!(word.load(Ordering::Relaxed), others);
    }

    #[test]
    fn counters_follow_each_change() {
        let ledger = ledger();
        let locked = ledger.lock().unwrap();
        let returning = GranuleEntry {
            state: GranuleState::Returning,
            ..held()
        };
        let unclean = GranuleEntry {
            state: GranuleState::Unclean,
            ..held().freed()
        };
        for (entry, expected) in [
            (held(), (1, 0, 1)),
            (returning, (1, 0, 0)),
            (unclean, (0, 1, 0)),
            (held().freed(), (0, 0, 0)),
        ] {
            locked.set(7, entry);
            let counted = (locked.held(), locked.unclean(), locked.on_step(1));
            assert_eq!(counted, expected, "{entry:?}");
            locked.count_again();
            let again = (locked.held(), locked.unclean(), locked.on_step(1));
            assert_eq!(again, expected, "{entry:?}");
        }
    }

    #[test]
    fn places_exclude_each_other() {
        let base = Kernel::new().base_page();
        let shape = LedgerShape {
            granule: base,
            granules: 1,
        };
        let memory = MemorySyscalls::new();
        let (one, file) = Ledger::create(&memory, shape, shape.bytes(1), base).unwrap();
        let two = Ledger::attach(&memory, &file, shape, base).unwrap();
        assert_ne!(one.slot, two.slot);
        let counter = Mutex::new(0);
        std::thread::scope(|scope| {
            for ledger in [&one, &two, &one, &two] {
                let counter = &counter;
                scope.spawn(move || {
                    for _ in 0..1000 {
                        let _locked = ledger.lock().unwrap();
                        let mut alone = counter.try_lock().unwrap();
                        std::thread::yield_now();
                        *alone += 1;
                    }
                });
            }
        });
        assert_eq!(counter.into_inner().unwrap(), 4000);
    }
}
