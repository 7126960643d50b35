//! The CPU profile: by process, by thread, by function, and by callers of a function.

use std::collections::{BTreeMap, BTreeSet};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::TableScope;
use crate::model::{CpuMode, StackSample, Symbol, Trace};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuModeSamples {
    pub kernel: u64,
    pub user: u64,
    /// A guest, a hypervisor, or not reported.
    pub other: u64,
}

impl CpuModeSamples {
    pub const fn total(&self) -> u64 {
        self.kernel + self.user + self.other
    }

    fn add(&mut self, mode: CpuMode, count: u64) {
        let field = match mode {
            CpuMode::Kernel => &mut self.kernel,
            CpuMode::User => &mut self.user,
            CpuMode::Other => &mut self.other,
        };
        *field = field.saturating_add(count);
    }
}

/// Includes the sum, as in a JSON answer.
impl Serialize for CpuModeSamples {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut of = serializer.serialize_struct("Modes", 4)?;
        of.serialize_field("samples", &self.total())?;
        of.serialize_field("kernel_samples", &self.kernel)?;
        of.serialize_field("user_samples", &self.user)?;
        of.serialize_field("other_samples", &self.other)?;
        of.end()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BusyIdleSamples {
    pub busy: u64,
    pub idle: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessRow {
    pub name: String,
    pub processes: usize,
    pub in_target: bool,
    #[serde(flatten)]
    pub modes: CpuModeSamples,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ThreadRow {
    pub pid: u32,
    pub tid: u32,
    /// Name of the thread, or that of the process.
    pub name: String,
    #[serde(flatten)]
    pub modes: CpuModeSamples,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SymbolRow {
    /// Its name; `[module+0x12]` without symbols.
    #[serde(rename = "function")]
    pub name: String,
    /// The program, the library, or `[kernel]`.
    pub module: String,
    pub kernel: bool,
    pub samples: u64,
    /// Samples in the function and in its callees.
    #[serde(rename = "with_callees_samples")]
    pub with_callees: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callers {
    pub samples: u64,
    /// Direct callers, most samples first; the name is empty at the end of a stack.
    pub direct: Vec<SymbolRow>,
    /// Whole call paths, outermost last, most samples first.
    pub paths: Vec<CallPath>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallPath {
    #[serde(rename = "path")]
    pub names: Vec<String>,
    pub samples: u64,
}

fn is_idle(trace: &Trace, sample: &StackSample) -> bool {
    trace.processes[sample.process as usize].pid == 0
}

pub fn busy(trace: &Trace, of: TableScope) -> impl Iterator<Item = &StackSample> {
    trace.samples.iter().filter(move |sample| {
        let process = &trace.processes[sample.process as usize];
        process.pid != 0 && (of == TableScope::Host || process.in_target || trace.target.is_none())
    })
}

pub fn counted(trace: &Trace) -> BusyIdleSamples {
    let mut counted = BusyIdleSamples::default();
    for sample in &trace.samples {
        match is_idle(trace, sample) {
            true => counted.idle += sample.count,
            false => counted.busy += sample.count,
        }
    }
    counted
}

pub fn modes(trace: &Trace, of: TableScope) -> CpuModeSamples {
    let mut modes = CpuModeSamples::default();
    busy(trace, of).for_each(|s| modes.add(s.mode, s.count));
    modes
}

pub fn by_process(trace: &Trace) -> Vec<ProcessRow> {
    let mut rows: BTreeMap<&str, (BTreeSet<u32>, bool, CpuModeSamples)> = BTreeMap::new();
    for sample in busy(trace, TableScope::Host) {
        let process = &trace.processes[sample.process as usize];
        // kworker threads are named after their current work, so they are joined.
        let name = match process.kernel_thread && process.name.starts_with("kworker/") {
            true => "kworker",
            false => &process.name,
        };
        let row = rows.entry(name).or_default();
        row.0.insert(sample.process);
        row.1 |= process.in_target;
        row.2.add(sample.mode, sample.count);
    }
    let rows = rows
        .into_iter()
        .map(|(name, (places, in_target, modes))| ProcessRow {
            name: name.to_owned(),
            processes: places.len(),
            in_target: in_target && trace.target.is_some(),
            modes,
        });
    let mut rows: Vec<ProcessRow> = rows.collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.modes.total()));
    rows
}

pub fn by_thread(trace: &Trace, of: TableScope) -> Vec<ThreadRow> {
    let mut rows: BTreeMap<(u32, u32), CpuModeSamples> = BTreeMap::new();
    for sample in busy(trace, of) {
        let row = rows.entry((sample.process, sample.tid)).or_default();
        row.add(sample.mode, sample.count);
    }
    let row = |((place, tid), modes): ((u32, u32), CpuModeSamples)| ThreadRow {
        pid: trace.processes[place as usize].pid,
        tid,
        name: thread_name(trace, place, tid).to_owned(),
        modes,
    };
    let mut rows: Vec<ThreadRow> = rows.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.modes.total()));
    rows
}

/// Returns the name of a thread, or that of its process if unknown.
pub fn thread_name(trace: &Trace, process: u32, tid: u32) -> &str {
    let process = &trace.processes[process as usize];
    let thread = process.threads.iter().find(|t| t.tid == tid);
    thread.map_or(&process.name, |t| &t.name)
}

pub fn by_symbol(trace: &Trace, of: TableScope) -> Vec<SymbolRow> {
    let mut rows: BTreeMap<(&str, &str), SymbolRow> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for sample in busy(trace, of) {
        seen.clear();
        let frames = &trace.stacks[sample.stack as usize].frames;
        for (depth, frame) in frames.iter().enumerate() {
            let symbol = &trace.symbols[*frame as usize];
            let key = (symbol.name.as_str(), symbol.module.as_str());
            let row = rows.entry(key).or_insert_with(|| empty_row(symbol));
            if depth == 0 {
                row.samples += sample.count;
            }
            // A recursive function counts once.
            if seen.insert(key) {
                row.with_callees += sample.count;
            }
        }
    }
    let mut rows: Vec<SymbolRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.samples, row.with_callees)));
    rows
}

fn empty_row(symbol: &Symbol) -> SymbolRow {
    SymbolRow {
        name: symbol.name.clone(),
        module: symbol.module.clone(),
        kernel: symbol.kernel,
        samples: 0,
        with_callees: 0,
    }
}

/// Maximum length of a call path that is distinguished.
const LONGEST_PATH: usize = 12;

/// Returns the callers of the named function; `None` if it is in no stack.
pub fn callers(trace: &Trace, of: TableScope, function: &str) -> Option<Callers> {
    let mut samples = 0;
    let mut direct: BTreeMap<(&str, &str), SymbolRow> = BTreeMap::new();
    let mut paths: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
    let nobody = Symbol::default();
    let symbol = |frame: &u32| &trace.symbols[*frame as usize];
    for sample in busy(trace, of) {
        let frames = &trace.stacks[sample.stack as usize].frames;
        // Take the outermost frame: the callers of a recursion are those from outside.
        let Some(at) = frames.iter().rposition(|f| symbol(f).name == function) else {
            continue;
        };
        samples += sample.count;
        let caller = frames.get(at + 1).map_or(&nobody, symbol);
        let row = direct
            .entry((&caller.name, &caller.module))
            .or_insert_with(|| empty_row(caller));
        row.samples += sample.count;
        row.with_callees += sample.count;
        let names = frames[at..].iter().take(LONGEST_PATH);
        let names = names.map(|f| symbol(f).name.as_str()).collect();
        *paths.entry(names).or_default() += sample.count;
    }
    let mut direct: Vec<SymbolRow> = direct.into_values().collect();
    direct.sort_by_key(|row| std::cmp::Reverse(row.samples));
    let path = |(names, samples): (Vec<&str>, u64)| CallPath {
        names: names.into_iter().map(str::to_owned).collect(),
        samples,
    };
    let mut paths: Vec<CallPath> = paths.into_iter().map(path).collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.samples));
    (samples > 0).then_some(Callers {
        samples,
        direct,
        paths,
    })
}

#[cfg(test)]
mod tests {
    use super::super::target_name;
    use super::super::testing::{Maker, kernel, user};
    use super::*;

    fn trace() -> Trace {
        let mut maker = Maker::new();
        let idle = maker.process(0, "swapper", false);
        let mover = maker.process(10, "mover", true);
        let again = maker.process(11, "mover", true);
        let other = maker.process(20, "bash", false);
        maker.sample(
            idle,
            0,
            CpuMode::Kernel,
            &[kernel("pv_native_safe_halt")],
            50,
        );
        let pin = [kernel("gup_fast"), kernel("pin_user_pages"), user("read")];
        maker.sample(mover, 12, CpuMode::Kernel, &pin, 30);
        maker.sample(
            again,
            11,
            CpuMode::User,
            &[user("sum"), user("sum"), user("main")],
            10,
        );
        maker.sample(other, 20, CpuMode::Other, &[], 10);
        maker.build()
    }

    #[test]
    fn idle_is_told_apart_and_processes_of_a_name_are_one_row() {
        let trace = trace();
        assert_eq!(counted(&trace), BusyIdleSamples { busy: 50, idle: 50 });
        let rows = by_process(&trace);
        assert_eq!((rows.len(), rows[0].name.as_str()), (2, "mover"));
        assert_eq!((rows[0].processes, rows[0].in_target), (2, true));
        let expected = CpuModeSamples {
            kernel: 30,
            user: 10,
            other: 0,
        };
        assert_eq!(rows[0].modes, expected);
        assert_eq!(modes(&trace, TableScope::Target).total(), 40);
        assert_eq!(modes(&trace, TableScope::Host).total(), 50);
        let threads = by_thread(&trace, TableScope::Target);
        assert_eq!((threads[0].pid, threads[0].tid), (10, 12));
    }

    #[test]
    fn a_target_that_is_a_number_has_a_name() {
        let mut trace = trace();
        assert_eq!(target_name(&Trace::default()), None);
        let target = trace.target.as_mut().unwrap();
        target.text = "10".to_owned();
        target.pids = vec![10];
        assert_eq!(target_name(&trace).unwrap(), "mover (10)");
        trace.target.as_mut().unwrap().text = "mover.service".to_owned();
        assert_eq!(target_name(&trace).unwrap(), "mover.service");
    }

    #[test]
    fn workers_of_the_kernel_are_one_row() {
        let mut maker = Maker::new();
        for (pid, name) in [(7, "kworker/0:1"), (8, "kworker/u8:1-loop1")] {
            let place = maker.process(pid, name, false);
            maker.trace.processes[place as usize].kernel_thread = true;
            maker.sample(place, pid, CpuMode::Kernel, &[], 1);
        }
        let rows = by_process(&maker.build());
        assert_eq!(
            (rows.len(), rows[0].name.as_str(), rows[0].processes),
            (1, "kworker", 2)
        );
    }

    #[test]
    fn a_function_counts_itself_and_what_it_calls() {
        let rows = by_symbol(&trace(), TableScope::Host);
        assert_eq!((rows[0].name.as_str(), rows[0].samples), ("gup_fast", 30));
        let find = |name: &str| rows.iter().find(|r| r.name == name).unwrap();
        assert_eq!(find("pin_user_pages").samples, 0);
        assert_eq!(find("pin_user_pages").with_callees, 30);
        // Counted once, although it is on the stack twice.
        assert_eq!((find("sum").samples, find("sum").with_callees), (10, 10));
    }

    #[test]
    fn callers_lead_outward() {
        let trace = trace();
        let callers_of = |name: &str| callers(&trace, TableScope::Host, name);
        let gup = callers_of("gup_fast").unwrap();
        assert_eq!(
            (gup.samples, gup.direct[0].name.as_str()),
            (30, "pin_user_pages")
        );
        assert_eq!(gup.paths[0].names, ["gup_fast", "pin_user_pages", "read"]);
        // The caller of a recursion is outside of it.
        assert_eq!(callers_of("sum").unwrap().direct[0].name, "main");
        assert_eq!(callers_of("main").unwrap().direct[0].name, "");
        assert_eq!(callers_of("nowhere"), None);
    }
}
