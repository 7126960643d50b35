//! Lock contention by lock, by thread and by caller, and the turns that threads take at one lock.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use super::profile::thread_name;
use super::share;
use crate::model::{Lock, LockAction, LockKind, LockTotals, Trace};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LockRow<'a> {
    pub lock: &'a Lock,
    pub function: Option<&'a str>,
    pub share: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct LockTable<'a> {
    pub rows: Vec<LockRow<'a>>,
    pub others: LockTotals,
    pub others_count: u64,
    pub all: LockTotals,
}

/// Waits for an answer in JSON, with times in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LockWaitsJson {
    contentions: u64,
    waited_seconds: f64,
    mean_seconds: Option<f64>,
    longest_seconds: f64,
}

impl From<&LockTotals> for LockWaitsJson {
    fn from(totals: &LockTotals) -> LockWaitsJson {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        LockWaitsJson {
            contentions: totals.contentions,
            waited_seconds: seconds(totals.waited_nanos),
            mean_seconds: totals.mean_nanos().map(seconds),
            longest_seconds: seconds(totals.longest_nanos),
        }
    }
}

fn waits<S: Serializer>(totals: &LockTotals, serializer: S) -> Result<S::Ok, S::Error> {
    LockWaitsJson::from(totals).serialize(serializer)
}

fn kind_name<S: Serializer>(kind: &LockKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LockWaiterRow {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    #[serde(flatten, serialize_with = "waits")]
    pub totals: LockTotals,
    #[serde(skip)]
    pub share: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LockCallerRow {
    /// The function that takes the lock; `?` if unknown.
    pub function: String,
    #[serde(serialize_with = "kind_name")]
    pub kind: LockKind,
    /// The call path, from the function outward.
    pub path: Vec<String>,
    #[serde(flatten, serialize_with = "waits")]
    pub totals: LockTotals,
    #[serde(skip)]
    pub share: Option<f64>,
}

/// The alternation of threads at a lock, as visible in its list of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockHandoffs {
    /// Number of times that a thread got the lock after a wait, in the available events.
    pub got: u64,
    /// Number of these in which another thread had got it before.
    pub changed: u64,
    pub threads: usize,
}

pub fn table(trace: &Trace) -> LockTable<'_> {
    let mut all = trace.other_locks;
    trace.locks.iter().for_each(|lock| all.join(&lock.totals));
    let row = |lock| LockRow {
        lock,
        function: function(trace, lock),
        share: share(lock.totals.waited_nanos, all.waited_nanos),
    };
    let mut rows: Vec<LockRow<'_>> = trace.locks.iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.lock.totals.waited_nanos));
    LockTable {
        rows,
        others: trace.other_locks,
        others_count: trace.other_locks_count,
        all,
    }
}

pub fn function<'a>(trace: &'a Trace, lock: &Lock) -> Option<&'a str> {
    lock.taken_by
        .map(|place| trace.symbols[place as usize].name.as_str())
}

/// Returns the name of a lock, or its address.
pub fn label(lock: &Lock) -> String {
    match &lock.name {
        Some(name) => name.clone(),
        None => format!("{:#x}", lock.address),
    }
}

/// Returns the locks that match a text: an address, with or without `0x`; the name of a static lock; a function that
/// takes it. Longest waits come first.
pub fn find<'a>(trace: &'a Trace, text: &str) -> Vec<&'a Lock> {
    let digits = text.trim_start_matches("0x");
    let address = u64::from_str_radix(digits, 16).ok();
    let by = |wanted: &dyn Fn(&Lock) -> bool| -> Vec<&'a Lock> {
        let rows = table(trace).rows;
        let locks = rows.into_iter().map(|row| row.lock);
        locks.filter(|lock| wanted(lock)).collect()
    };
    let found = by(&|lock| lock.name.as_deref() == Some(text));
    if !found.is_empty() {
        return found;
    }
    let found = by(&|lock| Some(lock.address) == address);
    if !found.is_empty() {
        return found;
    }
    by(&|lock| function(trace, lock) == Some(text))
}

/// Returns the threads that waited for a lock, or for any lock, longest first.
pub fn by_thread(trace: &Trace, only: Option<&Lock>) -> Vec<LockWaiterRow> {
    let mut rows: BTreeMap<(u32, u32), LockTotals> = BTreeMap::new();
    let mut all = LockTotals::default();
    for lock in chosen(trace, only) {
        for thread in &lock.by_thread {
            let row = rows.entry((thread.process, thread.tid)).or_default();
            row.join(&thread.totals);
            all.join(&thread.totals);
        }
    }
    let row = |((place, tid), totals): ((u32, u32), LockTotals)| {
        let process = &trace.processes[place as usize];
        LockWaiterRow {
            pid: process.pid,
            tid,
            name: thread_name(trace, place, tid).to_owned(),
            totals,
            share: share(totals.waited_nanos, all.waited_nanos),
        }
    };
    let mut rows: Vec<LockWaiterRow> = rows.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.totals.waited_nanos));
    rows
}

/// Returns the call paths that waited for a lock, or for any lock, longest first. Paths are cut to `depth` functions,
/// and equal ones are joined.
pub fn by_caller(trace: &Trace, only: Option<&Lock>, depth: usize) -> Vec<LockCallerRow> {
    let mut rows: BTreeMap<(String, LockKind, Vec<&str>), LockTotals> = BTreeMap::new();
    let mut all = LockTotals::default();
    for lock in chosen(trace, only) {
        for caller in &lock.by_caller {
            let frames = &trace.stacks[caller.stack as usize].frames;
            let from = caller
                .function
                .and_then(|f| frames.iter().position(|frame| *frame == f))
                .unwrap_or(0);
            let name = |frame: &u32| trace.symbols[*frame as usize].name.as_str();
            let path: Vec<&str> = frames[from..].iter().take(depth).map(name).collect();
            let function = caller.function.as_ref().map_or("?", name).to_owned();
            let row = rows.entry((function, caller.kind, path)).or_default();
            row.join(&caller.totals);
            all.join(&caller.totals);
        }
    }
    let rows = rows
        .into_iter()
        .map(|((function, kind, path), totals)| LockCallerRow {
            function,
            kind,
            path: path.into_iter().map(str::to_owned).collect(),
            totals,
            share: share(totals.waited_nanos, all.waited_nanos),
        });
    let mut rows: Vec<LockCallerRow> = rows.collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.totals.waited_nanos));
    rows
}

pub fn chosen<'a>(trace: &'a Trace, only: Option<&'a Lock>) -> Vec<&'a Lock> {
    match only {
        Some(lock) => vec![lock],
        None => trace.locks.iter().collect(),
    }
}

pub fn turns(lock: &Lock) -> LockHandoffs {
    let got = lock.events.iter().filter(|e| e.what == LockAction::Got);
    let who: Vec<(u32, u32)> = got.map(|e| (e.process, e.tid)).collect();
    let changed = who.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let threads: BTreeSet<&(u32, u32)> = who.iter().collect();
    LockHandoffs {
        got: who.len() as u64,
        changed: changed as u64,
        threads: threads.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Maker, kernel, user};
    use super::*;
    use crate::model::{LockCaller, LockEvent, LockThread};

    fn totals(contentions: u64, waited_nanos: u64) -> LockTotals {
        LockTotals {
            contentions,
            waited_nanos,
            longest_nanos: waited_nanos,
        }
    }

    fn trace() -> Trace {
        let mut maker = Maker::new();
        let mover = maker.process(10, "mover", true);
        let pin = kernel("pin_seg_range");
        let function = Some(maker.symbol(&pin));
        let stack = maker.stack(&[kernel("_raw_spin_lock"), pin, user("read")]);
        let kind = LockKind::Spin;
        let caller = |waited| LockCaller {
            stack,
            function,
            kind,
            totals: totals(2, waited),
        };
        let thread = |tid, waited| LockThread {
            process: mover,
            tid,
            totals: totals(1, waited),
        };
        let got = |at_nanos, tid| LockEvent {
            at_nanos,
            process: mover,
            tid,
            what: LockAction::Got,
            ..LockEvent::default()
        };
        maker.trace.locks = vec![
            Lock {
                address: 0xff10,
                name: Some("pools_lock".to_owned()),
                totals: totals(1, 100),
                ..Lock::default()
            },
            Lock {
                address: 0xff20,
                kind,
                taken_by: function,
                totals: totals(4, 700),
                by_caller: vec![caller(500), caller(200)],
                by_thread: vec![thread(11, 500), thread(12, 200)],
                events: vec![got(1, 11), got(2, 12), got(3, 11), got(4, 11)],
                ..Lock::default()
            },
        ];
        maker.trace.other_locks = totals(9, 200);
        maker.trace.other_locks_count = 3;
        maker.build()
    }

    #[test]
    fn shares_are_of_all_locks_listed_or_not() {
        let trace = trace();
        let table = table(&trace);
        assert_eq!(table.rows[0].lock.address, 0xff20);
        assert_eq!(table.rows[0].function, Some("pin_seg_range"));
        assert_eq!(table.rows[0].share, Some(0.7));
        assert_eq!((table.all.contentions, table.all.waited_nanos), (14, 1000));
        assert_eq!(super::table(&Trace::default()), LockTable::default());
    }

    #[test]
    fn a_lock_is_found_by_address_name_and_function() {
        let trace = trace();
        for (text, address) in [
            ("pools_lock", 0xff10),
            ("0xff20", 0xff20),
            ("ff20", 0xff20),
            ("pin_seg_range", 0xff20),
        ] {
            assert_eq!(find(&trace, text)[0].address, address, "{text}");
        }
        assert!(find(&trace, "nothing").is_empty());
    }

    #[test]
    fn threads_and_callers() {
        let trace = trace();
        let threads = by_thread(&trace, Some(&trace.locks[1]));
        assert_eq!((threads[0].tid, threads[0].share), (11, Some(5.0 / 7.0)));
        // Two stacks that agree up to the depth are one row, from the function that takes the lock.
        let callers = by_caller(&trace, None, 4);
        assert_eq!((callers.len(), callers[0].totals.waited_nanos), (1, 700));
        assert_eq!(callers[0].path, ["pin_seg_range", "read"]);
    }

    #[test]
    fn turns_are_counted() {
        let trace = trace();
        let expected = LockHandoffs {
            got: 4,
            changed: 2,
            threads: 2,
        };
        assert_eq!(turns(&trace.locks[1]), expected);
        assert_eq!(turns(&trace.locks[0]), LockHandoffs::default());
    }
}
