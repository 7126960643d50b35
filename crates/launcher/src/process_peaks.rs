//! A process tree, with each process as observed when it held the most memory.
//!
//! A process belongs to the tree if the settings in its environment name this launcher's socket, which is
//! unique. This includes daemons that left their parents, and excludes programs started with a clean
//! environment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use hugeleaf_host::process::{identity, proc_parsers, read_run_settings};
use hugeleaf_host::{
    Fact, Host, Process, ReadDetail, Root, RunSettings, all_pids, has_hidden_sqlite,
    read_memory_facts, read_process,
};
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::role_results::{ProcessRoleResults, judge_roles, sum_of};
use hugeleaf_verdict::why::account;

use crate::{ProcessPeak, WatchReport};

const LISTED: usize = 200;
/// Maximum number of files that are searched for a SQLite.
const SEARCHED: usize = 10_000;

struct TreeMember {
    /// Start time and image; a different image means another program.
    identity: (u64, [u64; 4]),
    resident: Bytes,
    /// Peak resident memory as the kernel reports it.
    peak: Bytes,
    best: Option<(ProcessPeak, ProcessRoleResults)>,
}

pub struct WatchedTree {
    root: Root,
    kernel: Kernel,
    host: Host,
    settings: RunSettings,
    socket: String,
    started: Instant,
    /// Ids that existed at the last scan, members or not.
    known: BTreeSet<Pid>,
    members: BTreeMap<Pid, TreeMember>,
    /// Processes that have ended, and the peak of all.
    report: WatchReport,
    /// Files with code of these processes, if they are to be searched for a SQLite at the end.
    code: Option<BTreeSet<PathBuf>>,
}

impl WatchedTree {
    /// Creates the tree of the program with this id. `before` are the processes that existed before it.
    pub fn new(
        program: Pid,
        before: BTreeSet<Pid>,
        settings: RunSettings,
        socket: String,
        host: Host,
        finds_sqlite: bool,
    ) -> WatchedTree {
        let mut tree = WatchedTree {
            root: Root::live(),
            kernel: Kernel::new(),
            host,
            settings,
            socket,
            started: Instant::now(),
            known: before,
            members: BTreeMap::new(),
            report: WatchReport::default(),
            code: finds_sqlite.then(BTreeSet::new),
        };
        tree.admit(program);
        tree
    }

    /// Scans the existing processes, and reads those in full that hold more than ever before.
    pub fn survey(&mut self) {
        self.find_new();
        for pid in self.members.keys().copied().collect::<Vec<_>>() {
            self.update(pid, false);
        }
        self.sum_up();
    }

    /// Handles a process that is about to exit and waits.
    pub fn ends(&mut self, pid: Pid) {
        if !self.members.contains_key(&pid) && self.belongs(pid) {
            self.admit(pid);
        }
        self.update(pid, true);
        self.sum_up();
    }

    pub fn found(mut self) -> WatchReport {
        for pid in self.members.keys().copied().collect::<Vec<_>>() {
            self.drop_member(pid);
        }
        self.keep_largest();
        let code = self.code.unwrap_or_default().into_iter();
        self.report.hidden_sqlite = code.filter(|path| has_hidden_sqlite(path)).collect();
        self.report
    }

    fn find_new(&mut self) {
        let all: BTreeSet<Pid> = all_pids(&self.root).into_iter().collect();
        for pid in all.difference(&self.known.clone()) {
            if !self.members.contains_key(pid) && self.belongs(*pid) {
                self.admit(*pid);
            }
        }
        self.known = all;
    }

    fn belongs(&self, pid: Pid) -> bool {
        match read_run_settings(&self.root, pid) {
            Fact::Known(settings) => settings.report.as_deref() == Some(self.socket.as_str()),
            Fact::Absent => false,
            // The process overwrote its environment, so its parent decides.
            Fact::Unreadable(_) => self
                .root
                .parse(format!("proc/{pid}/stat"), proc_parsers::parse_stat)
                .known()
                .is_some_and(|stat| self.members.contains_key(&Pid(stat.parent))),
        }
    }

    fn admit(&mut self, pid: Pid) {
        if let Ok(identity) = identity(&self.root, pid) {
            let member = TreeMember {
                identity,
                resident: Bytes::ZERO,
                peak: Bytes::ZERO,
                best: None,
            };
            self.members.insert(pid, member);
        }
    }

    /// Reads only the size, to check whether the process has grown.
    fn update(&mut self, pid: Pid, at_exit: bool) {
        let Some(member) = self.members.get_mut(&pid) else {
            return;
        };
        let Some((resident, peak)) = resident(&self.root, pid) else {
            self.drop_member(pid);
            return;
        };
        // After an execve the resident size starts anew, but the earlier peak remains.
        member.resident = resident;
        member.peak = member.peak.max(peak);
        let is_more = |(seen, _): &(ProcessPeak, ProcessRoleResults)| match at_exit {
            // At equal size the later observation is better, because the library may have corrected
            // growth.
            true => resident >= less_a_little(seen.resident),
            false => less_a_little(resident) > seen.resident,
        };
        if member.best.as_ref().is_none_or(is_more) {
            self.sample(pid, at_exit);
        }
    }

    fn sample(&mut self, pid: Pid, at_exit: bool) {
        // Read pools and knobs again, because reasons refer to their current state.
        if let Ok(host) = read_memory_facts(&self.root, &self.kernel) {
            self.host = host;
        }
        let read = read_process(&self.root, &self.kernel, &self.host, pid, ReadDetail::Pages);
        let Ok(process) = read else {
            return; // Gone; earlier observations stay.
        };
        let identity = (process.start_ticks, process.image);
        if self
            .members
            .get(&pid)
            .is_some_and(|m| m.identity != identity)
        {
            // The process executes another program now.
            self.drop_member(pid);
        }
        self.note_code(&process);
        let roles = self.judge(&process);
        let seen = ProcessPeak {
            pid,
            name: process.name,
            seconds: self.started.elapsed().as_secs_f64(),
            resident: process.resident,
            peak: process.resident,
            at_exit,
            roles: Vec::new(),
        };
        let known = self.members.get(&pid).map(|m| m.peak);
        let member = TreeMember {
            identity,
            resident: process.resident,
            peak: known.unwrap_or_default().max(process.resident),
            best: Some((seen, roles)),
        };
        self.members.insert(pid, member);
    }

    fn note_code(&mut self, process: &Process) {
        let Some(code) = &mut self.code else {
            return;
        };
        for segment in &process.segments {
            let path = Path::new(&segment.name);
            let [_, _, is_code] = segment.permissions;
            if is_code && path.is_absolute() && code.len() < SEARCHED {
                code.insert(path.to_owned());
            }
        }
    }

    fn judge(&self, process: &Process) -> ProcessRoleResults {
        let accounts = account(&self.host, process, &process.pid.to_string());
        let mut roles = judge_roles(&self.host, process, &self.settings, &accounts);
        for state in &mut roles.states {
            // The process has ended when the report is read, so commands on it are useless.
            let of_the_living =
                |c: &String| c.contains("hugeleaf promote") || c.contains("--orders");
            state.command = state.command.take().filter(|c| !of_the_living(c));
        }
        roles
    }

    /// Removes a process that is gone, and keeps its observations.
    fn drop_member(&mut self, pid: Pid) {
        let member = self.members.remove(&pid);
        let best = member.and_then(|member| Some((member.peak, member.best?)));
        if let Some((peak, (mut seen, roles))) = best {
            seen.peak = seen.peak.max(peak);
            self.report.peak = self.report.peak.max(peak);
            seen.roles = roles.states;
            self.report.processes.push(seen);
        }
        if self.report.processes.len() > 4 * LISTED {
            self.keep_largest();
        }
    }

    fn keep_largest(&mut self) {
        let ended = &mut self.report.processes;
        ended.sort_by_key(|seen| (std::cmp::Reverse(seen.peak), seen.pid));
        self.report.left_out += ended.len().saturating_sub(LISTED);
        ended.truncate(LISTED);
    }

    /// Sums up all live processes if they hold more together than ever before.
    fn sum_up(&mut self) {
        let total: Bytes = self.members.values().map(|m| m.resident).sum();
        if total >= less_a_little(self.report.peak) && !total.is_zero() {
            self.report.peak = self.report.peak.max(total);
            let best = self.members.values().filter_map(|m| m.best.as_ref());
            let roles: Vec<&ProcessRoleResults> = best.map(|(_, roles)| roles).collect();
            self.report.roles = sum_of(&roles);
        }
    }
}

/// Returns current and peak resident memory, including hugetlb pages (for which the kernel keeps no
/// peak); `None` for a process that is gone or a zombie.
fn resident(root: &Root, pid: Pid) -> Option<(Bytes, Bytes)> {
    let status = root.parse(format!("proc/{pid}/status"), proc_parsers::parse_status);
    let status = status.known()?;
    let (now, pools) = (status.resident?, status.hugetlb.unwrap_or_default());
    Some((
        now + pools,
        status.peak.unwrap_or_default().max(now) + pools,
    ))
}

/// Subtracts 2 %. Smaller growth is not worth a full read.
fn less_a_little(bytes: Bytes) -> Bytes {
    bytes - Bytes(bytes.get() / 50)
}
