//! Processes during collection: existence, descent and mapped code. Initial processes come from `/proc`, later ones from
//! records, which are in order of time. Mapped code comes from `/proc` alone, because records of it would make every
//! mmap(2) of the host more expensive, most where threads contend for an address space (docs/internals/kernel-notes.md). So
//! a process that ends before a scan, within a tenth of a second, has functions without names.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use hugeleaf_host::Root;
use hugeleaf_host::process::maps::read_maps;
use hugeleaf_host::process::proc_parsers::parse_stat;
use hugeleaf_units::Bytes;

use super::perf_records::ProcessRecord;
use super::stacks::{Frame, Stacks, contexts};
use crate::model::{Thread, TracedProcess};

#[derive(Debug, Clone)]
struct ExecutableMapping {
    end: u64,
    offset: u64,
    inode: u64,
    path: Rc<str>,
}

/// The code of a process at one time. Children share their parent's.
#[derive(Debug, Clone)]
struct CodeMap {
    code: Rc<BTreeMap<u64, ExecutableMapping>>,
    at_nanos: u64,
}

/// Minimum time between two reads of a process that runs outside all its known code.
const AGAIN_NANOS: u64 = 20_000_000;

/// Maximum number of code mappings kept per process, because a process may make any number.
const MOST_CODE: usize = 1 << 13;

/// Maximum length of a stored command line, because even short-lived processes keep theirs.
const LONGEST_COMMAND: Bytes = Bytes(2 << 10);

#[derive(Debug)]
pub struct ProcessTable {
    root: Root,
    all: Vec<TracedProcess>,
    now: HashMap<u32, u32>,
    maps: HashMap<u32, CodeMap>,
    threads: HashMap<(u32, u32), String>,
    everybody: bool,
    start_nanos: u64,
    /// Target processes that were gone at the last scan and whose end no record reported yet.
    missing: Vec<u32>,
}

/// The ID that the kernel gives to an exiting thread.
const ENDING: u32 = u32::MAX;
/// The ID of all processes outside of this PID namespace; no process has it.
pub(super) const OUTSIDE: u32 = u32::MAX - 1;

impl ProcessTable {
    pub fn new(root: &Root, everybody: bool, start_nanos: u64) -> ProcessTable {
        ProcessTable {
            root: root.clone(),
            all: Vec::new(),
            now: HashMap::new(),
            maps: HashMap::new(),
            threads: HashMap::new(),
            everybody,
            start_nanos,
            missing: Vec::new(),
        }
    }

    pub fn scan_proc(&mut self) {
        for name in self.root.list("proc").known().into_iter().flatten() {
            if let Ok(pid) = name.parse() {
                self.find(pid);
            }
        }
    }

    /// Makes a process and its future descendants part of the target.
    pub fn add_target(&mut self, pid: u32) {
        let place = self.find(pid);
        self.all[place as usize].in_target = true;
    }

    /// Ends processes that a scan found gone without a record: they ended before the first record, it was lost, or there
    /// are none. This happens at the second scan that misses them, because records from before the first may follow it.
    pub fn end_missing(&mut self, gone: Vec<u32>, nanos: u64) {
        for pid in &gone {
            if self.missing.contains(pid) {
                self.exit(nanos, *pid, *pid);
            }
        }
        self.missing = gone;
    }

    /// Returns the index of a living process, and adds it if it is unknown.
    pub fn find(&mut self, pid: u32) -> u32 {
        if let Some(place) = self.now.get(&pid) {
            return *place;
        }
        let mut process = TracedProcess {
            pid,
            in_target: self.everybody,
            ..TracedProcess::default()
        };
        match pid {
            0 => {
                "idle".clone_into(&mut process.name);
                process.kernel_thread = true;
                process.in_target = false;
            }
            ENDING => {
                "(ending)".clone_into(&mut process.name);
                process.in_target = false;
            }
            _ => self.read(&mut process),
        }
        if process.kernel_thread {
            process.in_target = false;
        }
        self.add(process)
    }

    fn add(&mut self, process: TracedProcess) -> u32 {
        let place = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.now.insert(process.pid, place);
        self.all.push(process);
        place
    }

    /// Reads a process from `/proc`; a process that is gone has its PID as name.
    fn read(&self, process: &mut TracedProcess) {
        let pid = process.pid;
        match self
            .root
            .parse(format!("proc/{pid}/stat"), parse_stat)
            .known()
        {
            Some(stat) => {
                process.name.clone_from(&stat.name);
                process.parent = stat.parent;
                process.kernel_thread = stat.is_kernel_thread();
            }
            None => process.name = format!("({pid})"),
        }
        let line = self
            .root
            .beginning(format!("proc/{pid}/cmdline"), LONGEST_COMMAND);
        if let Some(line) = line.known() {
            process.command_line = line.trim_end_matches('\0').replace('\0', " ");
        }
    }

    pub fn record(&mut self, nanos: u64, record: ProcessRecord) {
        match record {
            ProcessRecord::Name {
                pid,
                tid,
                name,
                exec,
            } => self.name(pid, tid, &name, exec),
            ProcessRecord::Fork { pid, tid, parent } => self.fork(nanos, pid, tid, parent),
            ProcessRecord::Exit { pid, tid } => self.exit(nanos, pid, tid),
        }
    }

    fn seconds(&self, nanos: u64) -> f64 {
        std::time::Duration::from_nanos(nanos.saturating_sub(self.start_nanos)).as_secs_f64()
    }

    fn fork(&mut self, nanos: u64, pid: u32, tid: u32, parent: u32) {
        if pid == parent || pid != tid {
            // A thread: it has its creator's name until a record renames it.
            return;
        }
        let from = self.find(parent);
        let from = self.all[from as usize].clone();
        let process = TracedProcess {
            pid,
            parent,
            name: from.name,
            command_line: from.command_line,
            in_target: from.in_target || (self.everybody && !from.kernel_thread),
            // Kernel threads are created by kthreadd.
            kernel_thread: from.kernel_thread,
            started_seconds: Some(self.seconds(nanos)),
            ..TracedProcess::default()
        };
        let map = self.map_of(parent, nanos);
        self.add(process);
        self.maps.insert(pid, map);
    }

    /// Renames a thread; with `exec` its process runs another program.
    fn name(&mut self, pid: u32, tid: u32, name: &str, exec: bool) {
        let place = self.find(pid) as usize;
        // The same form as read from `/proc/PID/stat`.
        let name = &name.replace('\n', "\\n");
        if tid != pid {
            self.threads.insert((pid, tid), name.to_owned());
            return;
        }
        if exec {
            self.maps.remove(&pid);
            let mut now = TracedProcess {
                pid,
                ..TracedProcess::default()
            };
            self.read(&mut now);
            // If `/proc` has another name, the process has changed since, and the record is right.
            if now.name == *name {
                self.all[place].command_line = now.command_line;
            } else {
                name.clone_into(&mut self.all[place].command_line);
            }
        }
        let process = &mut self.all[place];
        if process.name != *name {
            let earlier = std::mem::replace(&mut process.name, name.to_owned());
            if exec {
                process.earlier_names.push(earlier);
            }
        }
    }

    /// Ends a thread; a process ends with its first thread.
    fn exit(&mut self, nanos: u64, pid: u32, tid: u32) {
        if pid != tid {
            return;
        }
        let seconds = self.seconds(nanos);
        if let Some(place) = self.now.remove(&pid) {
            self.all[place as usize].ended_seconds = Some(seconds);
        }
        self.maps.remove(&pid);
    }

    /// Returns the known code of a process, and reads it the first time.
    fn map_of(&mut self, pid: u32, nanos: u64) -> CodeMap {
        match self.maps.get(&pid) {
            Some(map) => map.clone(),
            None => self.read_map(pid, nanos),
        }
    }

    /// Reads the code of a process; if it is gone, the known code stays.
    fn read_map(&mut self, pid: u32, at_nanos: u64) -> CodeMap {
        let mut code = BTreeMap::new();
        let lines = self.root.parse_lines(format!("proc/{pid}/maps"), read_maps);
        for line in lines.known().into_iter().flatten() {
            // Code only: data would be three times as much.
            if line.permissions[2] && code.len() < MOST_CODE {
                let found = ExecutableMapping {
                    end: line.range.end(),
                    offset: line.offset,
                    inode: line.object.2,
                    path: line.name.trim_end_matches(" (deleted)").into(),
                };
                code.insert(line.range.start(), found);
            }
        }
        let code = match (code.is_empty(), self.maps.get(&pid)) {
            (true, Some(known)) => Rc::clone(&known.code),
            _ => Rc::new(code),
        };
        let map = CodeMap { code, at_nanos };
        self.maps.insert(pid, map.clone());
        map
    }

    /// Returns the stack of a sample, with each frame located in its file.
    pub fn stack(&mut self, pid: u32, nanos: u64, raw: &[u64], stacks: &mut Stacks) -> u32 {
        self.find(pid);
        let mut map = self.map_of(pid, nanos);
        // Only the innermost address is certain to be code: without frame pointers others may be data.
        let running = contexts(raw).find(|(_, kernel)| !kernel);
        let again = nanos >= map.at_nanos.saturating_add(AGAIN_NANOS);
        if let Some((address, _)) = running
            && again
            && code_at(&map.code, address).is_none()
        {
            map = self.read_map(pid, nanos);
        }
        let mut frames = Vec::with_capacity(raw.len());
        for (address, kernel) in contexts(raw) {
            let frame = match kernel {
                true => Frame::Kernel(address),
                false => user_frame(&map.code, address, pid, stacks),
            };
            frames.push(stacks.frame(frame));
        }
        stacks.stack(&frames)
    }

    pub fn target(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self
            .now
            .iter()
            .filter(|(_, place)| self.all[**place as usize].in_target)
            .map(|(pid, _)| *pid)
            .collect();
        pids.sort_unstable();
        pids
    }

    pub fn process(&mut self, place: u32) -> &mut TracedProcess {
        &mut self.all[place as usize]
    }

    /// Returns all processes, each with its threads in `seen`.
    pub fn finish(mut self, seen: impl IntoIterator<Item = (u32, u32)>) -> Vec<TracedProcess> {
        for (place, tid) in seen {
            let Some(process) = self.all.get_mut(place as usize) else {
                continue;
            };
            if process.threads.iter().any(|t| t.tid == tid) {
                continue;
            }
            let name = match self.threads.remove(&(process.pid, tid)) {
                Some(name) => name,
                None if tid == process.pid => process.name.clone(),
                None => self
                    .root
                    .read(format!("proc/{}/task/{tid}/comm", process.pid))
                    .known()
                    .map_or_else(|| process.name.clone(), |n| n.trim_end().to_owned()),
            };
            process.threads.push(Thread {
                tid,
                name,
                io: None,
            });
        }
        for process in &mut self.all {
            process.threads.sort_by_key(|t| t.tid);
        }
        self.all
    }
}

/// True if a mapping's name is a file's, or the kernel's code in every process.
fn is_file(path: &str) -> bool {
    path == "[vdso]" || (path.starts_with('/') && !path.starts_with("//anon"))
}

/// Returns the code mapping of an address, with its start.
fn code_at(
    map: &BTreeMap<u64, ExecutableMapping>,
    address: u64,
) -> Option<(&u64, &ExecutableMapping)> {
    map.range(..=address)
        .next_back()
        .filter(|(_, code)| address < code.end)
}

fn user_frame(
    map: &BTreeMap<u64, ExecutableMapping>,
    address: u64,
    pid: u32,
    stacks: &mut Stacks,
) -> Frame {
    match code_at(map, address) {
        Some((start, code)) if is_file(&code.path) => {
            let module = stacks.module(&code.path, code.inode, pid);
            Frame::File(module, code.offset.wrapping_add(address - start))
        }
        None if map.is_empty() => Frame::Ended,
        _ => Frame::Process(pid, address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes() -> ProcessTable {
        // A root without processes: all come from records.
        ProcessTable::new(&Root::at("/nowhere"), false, 1_000_000_000)
    }

    #[test]
    fn children_of_the_target_belong_to_it() {
        let mut processes = processes();
        processes.add_target(10);
        processes.fork(2_000_000_000, 11, 11, 10);
        processes.fork(2_000_000_000, 12, 12, 11);
        processes.fork(2_000_000_000, 20, 20, 1);
        // A thread is not a process.
        processes.fork(2_000_000_000, 10, 13, 10);
        assert_eq!(processes.target(), [10, 11, 12]);
        processes.exit(3_000_000_000, 11, 11);
        processes.name(12, 12, "new", true);
        assert_eq!(processes.target(), [10, 12]);
        let all = processes.finish([]);
        let child = all.iter().find(|p| p.pid == 11).unwrap();
        assert_eq!(child.started_seconds, Some(1.0));
        assert_eq!(child.ended_seconds, Some(2.0));
        let renamed = all.iter().find(|p| p.pid == 12).unwrap();
        assert_eq!(
            (renamed.name.as_str(), renamed.earlier_names.len()),
            ("new", 1)
        );
    }

    #[test]
    fn a_process_that_ended_without_a_record_is_ended_at_the_second_look() {
        let mut processes = processes();
        processes.add_target(10);
        processes.end_missing(vec![10], 2_000_000_000);
        assert_eq!(processes.target(), [10]);
        processes.end_missing(vec![10], 3_000_000_000);
        assert!(processes.target().is_empty());
        let all = processes.finish([]);
        assert_eq!(all[0].ended_seconds, Some(2.0));
    }

    /// A reused PID is another process.
    #[test]
    fn ids_are_used_again() {
        let mut processes = processes();
        processes.fork(0, 11, 11, 10);
        let first = processes.find(11);
        processes.exit(5, 11, 11);
        processes.fork(6, 11, 11, 10);
        assert_ne!(processes.find(11), first);
    }

    /// The location of a process's address at a time.
    fn frame(processes: &mut ProcessTable, pid: u32, millis: u64, address: u64) -> String {
        let user = 0u64.wrapping_sub(512);
        let mut stacks = Stacks::default();
        let nanos = millis * 1_000_000;
        let stack = processes.stack(pid, nanos, &[user, address], &mut stacks) as usize;
        match stacks.frames()[stacks.stacks()[stack][0] as usize] {
            Frame::File(module, offset) => {
                format!("{} {offset:#x}", stacks.modules()[module as usize].path)
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn code_is_found_by_file_and_looked_for_again() {
        let root = tempfile::tempdir().unwrap();
        let write = |pid: u32, lines: &[&str]| {
            let folder = root.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&folder).unwrap();
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            std::fs::write(folder.join("maps"), text).unwrap();
        };
        let a = "1000-2000 r-xp 00000500 08:01 7 /bin/a";
        let data = "2000-3000 rw-p 00000000 08:01 7 /bin/a";
        let library = "5000-6000 r-xp 00001000 08:01 8 /lib/b.so";
        write(11, &[a, data]);
        let mut processes = ProcessTable::new(&Root::at(root.path()), false, 0);
        processes.fork(0, 11, 11, 10);
        // A child of an unknown process has code of its own to read.
        processes.name(11, 11, "a", true);
        assert_eq!(frame(&mut processes, 11, 1, 0x1810), "/bin/a 0xd10");
        processes.fork(2_000_000, 12, 12, 11);
        assert_eq!(frame(&mut processes, 12, 2, 0x1810), "/bin/a 0xd10");
        // Data is not code.
        assert!(frame(&mut processes, 11, 3, 0x2800).starts_with("Process"));
        // A library loaded later is found once code runs in it, but not again at once.
        write(11, &[a, data, library]);
        assert!(frame(&mut processes, 11, 4, 0x5010).starts_with("Process"));
        assert_eq!(frame(&mut processes, 11, 50, 0x5010), "/lib/b.so 0x1010");
        // A process that is gone keeps its known code.
        std::fs::remove_dir_all(root.path().join("proc/11")).unwrap();
        assert!(frame(&mut processes, 11, 100, 0x9000).starts_with("Process"));
        assert_eq!(frame(&mut processes, 11, 101, 0x5010), "/lib/b.so 0x1010");
        assert_eq!(frame(&mut processes, 99, 101, 0x5010), "Ended");
        // Another program has other code.
        write(11, &["1000-2000 r-xp 00000000 08:01 9 /bin/c"]);
        processes.name(11, 11, "c", true);
        assert_eq!(frame(&mut processes, 11, 200, 0x1810), "/bin/c 0x810");
    }
}
