//! The host lock, and the only way for a test to write a host knob.
//!
//! [`exclusive`] is for a test that changes a knob, a pool or a mount, or needs much memory. No other test that holds the host runs meanwhile.
//! [`shared`] is for a test that needs unchanged knobs. Both record the knobs and compare them when dropped. `exclusive` restores them and
//! fails if that does not work; `shared` fails if they differ. A killed run cannot restore them, so `exclusive` keeps their values in a file.
//! The next test that takes the host restores those first, and removes the cgroup hierarchies that the killed one had mounted.
//!
//! The lock is flock(2) on `/run/lock/hugeleaf.lock`. Benchmarks and guests take it exclusively with `hugeleaf_sys::lock_host`. A waiting
//! process holds a second lock, the turnstile, so later readers queue behind a waiting writer. Tests of one program that need the host
//! alone pass the lock on directly. Otherwise each would wait again until all readers end. The product's commands lock other files.
//!
//! Only root can change knobs. Other users cannot open root's lock file, so their tests run without a lock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::is_root;

const FOLDER: &str = "/run/lock";
const LOCK: &str = "hugeleaf.lock";
const TURNSTILE: &str = "hugeleaf.turnstile";

/// Knob values before the test that holds the host alone. Only root can write to the folder.
const RECORD: &str = "/run/hugeleaf-tests.before";

/// Folder of the THP knobs.
pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";
/// Folder with one folder per hugetlb page size.
pub const POOLS: &str = "/sys/kernel/mm/hugepages";

/// Knobs outside those folders that the product writes.
const VM: [&str; 6] = [
    "/proc/sys/vm/hugetlb_shm_group",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/compaction_proactiveness",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/perf_event_paranoid",
];

/// Exclusive hold of the host. Dropping it restores the knobs, and fails if that does not work.
#[derive(Debug)]
#[must_use]
pub struct ExclusiveHost {
    before: Mutex<InitialKnobs>,
    held: TestLock,
}

#[derive(Debug)]
struct InitialKnobs {
    /// State of the host to restore.
    host: KnobValues,
    /// State that the test found, with empty pools.
    test: KnobValues,
}

/// Shared hold of the host. Dropping it fails if the knobs have changed meanwhile.
#[derive(Debug)]
#[must_use]
pub struct SharedHost {
    before: KnobValues,
    held: TestLock,
}

type KnobValues = BTreeMap<PathBuf, String>;

/// Waits until no other test holds the host, and holds it exclusively. Unused pools are then empty on every host, because a plan counts
/// existing pool pages.
///
/// # Panics
/// If the calling thread holds the host shared, because it would wait for itself.
pub fn exclusive() -> ExclusiveHost {
    let held = TestLock::take(LockMode::Alone);
    let is_first = held.is_outermost() && is_root();
    if is_first {
        if Path::new(RECORD).exists() {
            crate::cgroup::remove_leftovers();
        }
        restore(&recorded());
    }
    let host = knobs();
    if is_first {
        record(&host);
        empty_pools();
    }
    let test = knobs();
    ExclusiveHost {
        before: Mutex::new(InitialKnobs { host, test }),
        held,
    }
}

/// Waits until no other test holds the host exclusively, and holds it shared.
pub fn shared() -> SharedHost {
    let mut held = TestLock::take(LockMode::Shared);
    // No test holds the host alone, so the one that left the record was killed.
    while held.is_outermost() && is_root() && Path::new(RECORD).exists() {
        held.end();
        drop(exclusive());
        held = TestLock::take(LockMode::Shared);
    }
    SharedHost {
        before: knobs(),
        held,
    }
}

/// Returns [`exclusive`] for root; otherwise prints "not run" and returns `None`.
pub fn alone_as_root(test: &str) -> Option<ExclusiveHost> {
    if !is_root() {
        crate::not_run(test, "needs root");
        return None;
    }
    Some(exclusive())
}

#[derive(Debug)]
#[must_use]
pub enum HostAccess {
    Shared(SharedHost),
    Exclusive(ExclusiveHost),
}

/// Returns the host with a knob at a value: shared if it has the value already, otherwise alone with the knob set. `knob` is relative to
/// [`THP`].
pub fn with(knob: &str, value: &str) -> HostAccess {
    let is_set = || chosen(&Path::new(THP).join(knob)).as_deref() == Some(value);
    let held = shared();
    if is_set() {
        return HostAccess::Shared(held);
    }
    drop(held);
    let held = exclusive();
    held.choose(knob, value);
    HostAccess::Exclusive(held)
}

/// Returns the host with THP on request only (`enabled=madvise`), so that a test's memory starts on base pages. Without root the host stays
/// unchanged.
pub fn advised() -> HostAccess {
    match is_root() {
        true => with("enabled", "madvise"),
        false => HostAccess::Shared(shared()),
    }
}

impl ExclusiveHost {
    /// Writes a knob and remembers its previous value.
    ///
    /// # Panics
    /// If the kernel refuses the value.
    #[track_caller]
    pub fn set(&self, path: impl AsRef<Path>, value: impl ToString) {
        let path = path.as_ref();
        self.try_set(path, value)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Writes a knob that the kernel may refuse, and remembers its previous value.
    ///
    /// # Errors
    /// Those of open(2) and write(2).
    pub fn try_set(&self, path: impl AsRef<Path>, value: impl ToString) -> std::io::Result<()> {
        self.keep(&path);
        std::fs::write(path, value.to_string())
    }

    /// Chooses a value of a THP knob, relative to [`THP`].
    #[track_caller]
    pub fn choose(&self, knob: &str, value: &str) {
        self.set(Path::new(THP).join(knob), value);
    }

    /// Remembers a knob that the program under test will change, so that it is restored.
    pub fn keep(&self, path: impl AsRef<Path>) {
        // Another name for the pool of the default size, which is already recorded.
        const ALIAS: &str = "/proc/sys/vm/nr_hugepages";
        let path = path.as_ref().to_owned();
        if path == Path::new(ALIAS) {
            return;
        }
        let mut before = self.before.lock().unwrap();
        if let Some(value) = chosen(&path)
            && !before.host.contains_key(&path)
        {
            before.test.insert(path.clone(), value.clone());
            before.host.insert(path, value);
            record(&before.host);
        }
    }

    /// Sets the size of a pool, and compacts memory if the kernel finds too few pages. Returns the resulting number of pages.
    #[track_caller]
    pub fn set_pool(&self, page_bytes: u64, pages: u64) -> u64 {
        let file = pool(page_bytes).join("nr_hugepages");
        self.set(&file, pages);
        write_whole(&file, &pages.to_string());
        number(&file)
    }

    /// Fails if a knob differs from its value at the start of the test; `when` names the moment.
    #[track_caller]
    pub fn assert_as_before(&self, when: &str) {
        let before = self.before.lock().unwrap();
        let differ = differences(&before.test);
        assert!(differ.is_empty(), "{when}: {}", differ.join("; "));
    }
}

/// Makes the kernel compact memory. This is not a knob, so nothing needs restoring.
pub fn compact() {
    let _ = std::fs::write("/proc/sys/vm/compact_memory", "1");
}

/// Returns the folder of the pool with this page size.
pub fn pool(page_bytes: u64) -> PathBuf {
    Path::new(POOLS).join(format!("hugepages-{}kB", page_bytes / 1024))
}

/// Returns true if a process uses or has reserved pages of a pool. Tests then cannot set the pool to their own size.
pub fn has_pool_in_use() -> bool {
    pools().any(|pool| is_in_use(&pool))
}

fn is_in_use(pool: &Path) -> bool {
    let pages = |name| number(&pool.join(name));
    // Read one after the other: a pool that grows in between has more free pages than it had pages.
    pages("nr_hugepages") > pages("free_hugepages") || pages("resv_hugepages") > 0
}

/// Returns true if programs use surplus pages, which `undo` reports as still in use.
pub fn has_surplus_pages() -> bool {
    pools().any(|pool| number(&pool.join("surplus_hugepages")) > 0)
}

/// Empties unused pools. Pages larger than the largest block of free memory stay, because the host may not be able to allocate them again
/// before a reboot.
fn empty_pools() {
    let blocks = std::fs::read_to_string("/proc/buddyinfo").unwrap_or_default();
    let orders = |line: &str| line.split_whitespace().skip(4).count();
    let orders = blocks.lines().map(orders).max().unwrap_or(0);
    if orders == 0 {
        return;
    }
    let largest = (rustix::param::page_size() as u64) << (orders - 1);
    for pool in pools() {
        if page_bytes(&pool).is_some_and(|bytes| bytes <= largest) && !is_in_use(&pool) {
            let _ = std::fs::write(pool.join("nr_hugepages"), "0");
        }
    }
}

/// Returns the page size of a pool in bytes.
fn page_bytes(pool: &Path) -> Option<u64> {
    let name = pool.file_name()?.to_str()?;
    let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    Some(kib.parse::<u64>().ok()? * 1024)
}

fn pools() -> impl Iterator<Item = PathBuf> {
    let folders = std::fs::read_dir(POOLS).into_iter().flatten();
    folders.flatten().map(|entry| entry.path())
}

fn number(path: &Path) -> u64 {
    chosen(path).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Restores knobs that have a different value now.
fn restore(before: &KnobValues) {
    for (path, value) in before {
        write_whole(path, value);
    }
}

/// Writes a knob until it has the value, because a pool may need compaction first.
fn write_whole(path: &Path, value: &str) {
    for attempt in 0..5 {
        if chosen(path).as_deref() == Some(value) {
            break;
        }
        if attempt > 0 {
            compact();
        }
        let _ = std::fs::write(path, value);
    }
}

/// Saves the values for the next test in case this one is killed.
fn record(values: &KnobValues) {
    let lines = values.iter();
    let lines = lines.map(|(path, value)| format!("{}\t{value}\n", path.display()));
    let text: String = lines.collect();
    // The rename replaces the whole file, so a record is never incomplete.
    let new = format!("{RECORD}.new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, RECORD));
    written.unwrap_or_else(|e| panic!("{RECORD}: {e}"));
}

/// Returns the values left by a killed run; empty if the last run restored them itself.
fn recorded() -> KnobValues {
    let text = std::fs::read_to_string(RECORD).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs
        .map(|(path, value)| (PathBuf::from(path), value.to_owned()))
        .collect()
}

impl Drop for ExclusiveHost {
    fn drop(&mut self) {
        let before = self.before.get_mut().unwrap_or_else(|e| e.into_inner());
        restore(&before.host);
        let differ = differences(&before.host);
        if self.held.is_outermost() && is_root() {
            let _ = std::fs::remove_file(RECORD);
        }
        self.held.end();
        complain("the host is not as it was", &differ);
    }
}

impl Drop for SharedHost {
    fn drop(&mut self) {
        // An outer guard of this thread compares and restores.
        let is_checked = self.held.is_outermost() && is_root();
        let differ = if is_checked {
            differences(&self.before)
        } else {
            Vec::new()
        };
        self.held.end();
        complain("changed while the host was shared", &differ);
    }
}

/// Fails the test. If it already fails, only prints the differences.
fn complain(what: &str, differ: &[String]) {
    if differ.is_empty() {
        return;
    }
    let text = format!("{what}: {}", differ.join("; "));
    match std::thread::panicking() {
        true => eprintln!("{text}"),
        false => panic!("{text}"),
    }
}

fn differences(before: &KnobValues) -> Vec<String> {
    let differ = |(path, value): (&PathBuf, &String)| {
        let now = chosen(path);
        let text = || format!("{}: {value} became {now:?}", path.display());
        (now.as_ref() != Some(value)).then(text)
    };
    before.iter().filter_map(differ).collect()
}

/// Returns all huge-page knobs by path.
fn knobs() -> KnobValues {
    let mut files: Vec<PathBuf> = VM.map(PathBuf::from).into();
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let is_writable = |path: &PathBuf| {
        let meta = std::fs::metadata(path);
        meta.is_ok_and(|meta| meta.is_file() && meta.mode() & 0o200 != 0)
    };
    for at in list(Path::new(THP)) {
        match at.is_dir() {
            true => files.extend(list(&at)),
            false => files.push(at),
        }
    }
    for pool in list(Path::new(POOLS)) {
        files.extend(["nr_hugepages", "nr_overcommit_hugepages"].map(|name| pool.join(name)));
    }
    files.retain(is_writable);
    let read = |path: PathBuf| Some((path.clone(), chosen(&path)?));
    files.into_iter().filter_map(read).collect()
}

/// Returns a knob's value: the bracketed word, or the whole line without brackets. For a pool it excludes surplus pages, which would become
/// permanent when written back.
fn chosen(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let pages = path.file_name().is_some_and(|name| name == "nr_hugepages");
    if pages && path.starts_with(POOLS) {
        let surplus = std::fs::read_to_string(path.with_file_name("surplus_hugepages"));
        let surplus: u64 = surplus.ok()?.trim().parse().ok()?;
        return Some((text.trim().parse::<u64>().ok()? - surplus).to_string());
    }
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    Some(inside.map_or(text.trim(), |(value, _)| value).to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockMode {
    Shared,
    Alone,
}

thread_local! {
    /// This thread's kind of lock, and its number of guards.
    static OWN: Cell<(Option<LockMode>, u32)> = const { Cell::new((None, 0)) };
}

/// The lock. A guard nested in another one of the same thread takes no lock.
#[derive(Debug)]
struct TestLock {
    lock: Option<File>,
    depth: u32,
    /// Makes the guard `!Send`: the thread that took the lock must release it.
    _own: PhantomData<MutexGuard<'static, ()>>,
}

impl TestLock {
    fn take(kind: LockMode) -> TestLock {
        let (outer, depth) = OWN.get();
        let lock = match (outer, kind) {
            (None, LockMode::Shared) => lock(FlockOperation::LockShared),
            (None, LockMode::Alone) => OWN_TURN.take(|| lock(FlockOperation::LockExclusive)),
            (Some(LockMode::Shared), LockMode::Alone) => {
                panic!("this thread holds the host shared: alone would wait for itself")
            }
            (Some(_), _) => None,
        };
        OWN.set((outer.or(Some(kind)), depth + 1));
        TestLock {
            lock,
            depth: depth + 1,
            _own: PhantomData,
        }
    }

    fn is_outermost(&self) -> bool {
        self.depth == 1
    }

    fn end(&mut self) {
        let (outer, depth) = OWN.get();
        let depth = depth.saturating_sub(1);
        OWN.set((outer.filter(|_| depth > 0), depth));
        let lock = self.lock.take();
        if depth == 0 && outer == Some(LockMode::Alone) {
            OWN_TURN.end(lock);
        }
    }
}

/// The exclusive lock among the threads of this process.
struct ExclusiveLock {
    state: Mutex<ExclusiveLockState>,
    handed_on: Condvar,
}

struct ExclusiveLockState {
    /// A thread holds the lock, or waits for the file lock.
    is_taken: bool,
    waiting: u32,
    /// The lock that the last holder passes to a waiting thread.
    left: Option<Option<File>>,
}

static OWN_TURN: ExclusiveLock = ExclusiveLock {
    state: Mutex::new(ExclusiveLockState {
        is_taken: false,
        waiting: 0,
        left: None,
    }),
    handed_on: Condvar::new(),
};

impl ExclusiveLock {
    /// Takes the lock from the previous thread, or acquires a new one.
    fn take(&self, lock: impl FnOnce() -> Option<File>) -> Option<File> {
        let mut state = self.state.lock().unwrap();
        if !state.is_taken {
            state.is_taken = true;
            drop(state);
            return lock();
        }
        state.waiting += 1;
        let mut state = self
            .handed_on
            .wait_while(state, |state| state.left.is_none())
            .unwrap();
        state.waiting -= 1;
        state.left.take().flatten()
    }

    /// Passes the lock to a waiting thread, or releases it.
    fn end(&self, lock: Option<File>) {
        let mut state = self.state.lock().unwrap();
        if state.waiting > 0 {
            state.left = Some(lock);
            self.handed_on.notify_one();
        } else {
            state.is_taken = false;
        }
    }
}

/// Waits for the file lock; `None` if this user cannot have one.
fn lock(how: FlockOperation) -> Option<File> {
    let _ = std::fs::create_dir_all(FOLDER);
    let (turnstile, path) = (
        Path::new(FOLDER).join(TURNSTILE),
        Path::new(FOLDER).join(LOCK),
    );
    let _turn = flocked(&turnstile, FlockOperation::LockExclusive)?;
    flocked(&path, how)
}

/// Opens a lock file as `lock_host` does, for its owner only, and locks it.
fn flocked(path: &Path, how: FlockOperation) -> Option<File> {
    // Creates the file, replaces a file of another user, and releases the lock at once.
    match hugeleaf_sys::lock_host(path, false) {
        Err(e) if is_root() && e.errno != hugeleaf_sys::Errno::WOULDBLOCK => panic!("{e}"),
        _ => {}
    }
    loop {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = File::options()
            .read(true)
            .write(true)
            .custom_flags(i32::try_from(flags.bits()).unwrap())
            .open(path);
        let file = match opened {
            Ok(file) => file,
            Err(e) if is_root() => panic!("{}: {e}", path.display()),
            Err(_) => return None,
        };
        while let Err(e) = flock(&file, how) {
            assert_eq!(e, rustix::io::Errno::INTR, "{}", path.display());
        }
        // The file may have been replaced during the wait; the lock would then have no effect.
        let held = file.metadata().unwrap();
        let now = std::fs::symlink_metadata(path);
        if now.is_ok_and(|now| (now.dev(), now.ino()) == (held.dev(), held.ino())) {
            return Some(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_change_under_the_guard_and_are_as_before_after_it() {
        let test = "knobs_change_under_the_guard_and_are_as_before_after_it";
        let knob = Path::new(THP).join("khugepaged/pages_to_scan");
        let Some(before) = chosen(&knob).filter(|_| is_root()) else {
            return crate::not_run(test, "needs root and khugepaged");
        };
        let guard = exclusive();
        guard.set(&knob, 4097);
        assert_eq!(chosen(&knob).as_deref(), Some("4097"));
        let nested = shared();
        drop(nested);
        drop(guard);
        let guard = shared();
        assert_eq!(chosen(&knob), Some(before));
        drop(guard);
    }

    #[test]
    fn knobs_of_a_killed_run_are_restored_by_the_next() {
        let test = "host_lock::tests::knobs_of_a_killed_run_are_restored_by_the_next";
        let knob = Path::new(THP).join("khugepaged/pages_to_scan");
        let Some(before) = chosen(&knob).filter(|_| is_root()) else {
            return crate::not_run(test, "needs root and khugepaged");
        };
        if !crate::in_own_process(test) {
            return;
        }
        for take in [
            || HostAccess::Exclusive(exclusive()),
            || HostAccess::Shared(shared()),
        ] {
            let guard = exclusive();
            guard.set(&knob, 4099);
            // Simulates a killed run: the lock is released, nothing is restored, the record stays.
            std::mem::ManuallyDrop::new(guard).held.end();
            let next = take();
            assert_eq!(chosen(&knob).as_ref(), Some(&before));
            drop(next);
        }
    }

    #[test]
    fn unused_pools_are_empty_for_a_test_and_are_given_back() {
        let test = "unused_pools_are_empty_for_a_test_and_are_given_back";
        let Some(bytes) = pools().filter_map(|pool| page_bytes(&pool)).min() else {
            return crate::not_run(test, "this kernel has no pools");
        };
        if !is_root() || has_pool_in_use() {
            return crate::not_run(test, "needs root and pools that nobody uses");
        }
        let outer = exclusive();
        if outer.set_pool(bytes, 3) != 3 {
            return crate::not_run(test, "no memory for three huge pages");
        }
        let file = pool(bytes).join("nr_hugepages");
        empty_pools();
        assert_eq!(number(&file), 0);
        outer.set_pool(bytes, 3);
        restore(&outer.before.lock().unwrap().test);
        outer.assert_as_before("restored");
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_them() {
        let test = "readers_share_and_a_writer_waits_for_them";
        if !is_root() {
            return crate::not_run(test, "needs root");
        }
        let path = Path::new(FOLDER).join(LOCK);
        let guard = shared();
        // Another thread also reads; an exclusive lock is unavailable.
        std::thread::spawn(|| {
            drop(flocked(
                &Path::new(FOLDER).join(LOCK),
                FlockOperation::LockShared,
            ))
        })
        .join()
        .unwrap();
        assert!(hugeleaf_sys::lock_host(&path, false).is_err());
        drop(guard);
    }

    #[test]
    fn one_program_hands_it_on_before_others_read() {
        let test = "host_lock::tests::one_program_hands_it_on_before_others_read";
        if !is_root() {
            return crate::not_run(test, "needs root");
        }
        if !crate::in_own_process(test) {
            return;
        }
        let guard = exclusive();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let lock = flocked(&Path::new(FOLDER).join(LOCK), FlockOperation::LockShared);
                order.lock().unwrap().push("reader");
                drop(lock);
            });
            threads.spawn(|| {
                let guard = exclusive();
                order.lock().unwrap().push("next");
                drop(guard);
            });
            crate::until("the next one waits", || {
                OWN_TURN.state.lock().unwrap().waiting == 1
            });
            drop(guard);
        });
        assert_eq!(order.into_inner().unwrap(), ["next", "reader"]);
    }

    #[test]
    #[should_panic(expected = "would wait for itself")]
    fn nobody_waits_for_himself() {
        let _guard = shared();
        let _never = exclusive();
    }
}
