//! Scans the host: one small file per process each time, page tables of a few programs, and host-wide counters.

use std::collections::HashMap;
use std::time::Duration;

use hugeleaf_guard::CpuTokenBucket;
use hugeleaf_guard::status::{GuardStatus, JobProgress, PoolStatus};
use hugeleaf_guard::{TreeState, client::ask_status};
use hugeleaf_host::demand::read_user;
use hugeleaf_host::process_scanner::{ForkTree as Seen, ProcessScanner, walk_pages};
use hugeleaf_host::system::counters::{PressureResource, read_stalled, read_thp_events};
use hugeleaf_host::system::{meminfo, read_memory_facts, read_pools};
use hugeleaf_host::{Fact, Host, ReadError};
use hugeleaf_sys::{own_pid, process_usage};
use hugeleaf_units::{Bytes, Pages};
use jiff::Zoned;

use crate::actions::ActionContext;
use crate::model::{
    GuardSummary, HostSample, HostStats, KernelEventRates, OperationProgress, ProcessTreeMemory,
    ScanCost, TreeId, TreeSample,
};
use crate::scan_schedule::{VisibleTrees, WalkCandidate, allowance, schedule};

/// Interval at which settings of the host are read again.
const SETTINGS_EVERY: Duration = Duration::from_secs(10);
/// Interval at which the guard is queried.
const GUARD_EVERY: Duration = Duration::from_secs(3);
const USERS: usize = 4000;
/// Budget for scans, as a share of one processor. After a longer scan, the next one is delayed.
const SHARE: f64 = 0.025;
pub const EVERY: Duration = Duration::from_secs(1);

/// State kept from one scan to the next.
pub struct Scanner {
    tools: ActionContext,
    host: Host,
    watch: ProcessScanner,
    users: HashMap<u32, String>,
    closer: HashMap<TreeId, (Duration, Result<ProcessTreeMemory, String>)>,
    allowance: CpuTokenBucket,
    /// Times of the last scan, of the last reading of settings, and of the last query to the guard.
    at: Option<Duration>,
    settings_at: Duration,
    guard_at: Option<Duration>,
    guard: Option<GuardStatus>,
    before: Option<HostCounters>,
    used: Duration,
    pub every: Duration,
}

/// Counters that only rise.
struct HostCounters {
    stalled: [Option<Duration>; 3],
    events: [Option<u64>; 4],
}

impl Scanner {
    pub fn new(tools: ActionContext) -> Scanner {
        Scanner {
            host: tools.host.clone(),
            tools,
            watch: ProcessScanner::default(),
            users: HashMap::new(),
            closer: HashMap::new(),
            allowance: allowance(),
            at: None,
            settings_at: Duration::ZERO,
            guard_at: None,
            guard: None,
            before: None,
            used: process_usage().processor(),
            every: EVERY,
        }
    }

    /// Scans once. `own` is the promotion or demotion that this program runs.
    pub fn scan(
        &mut self,
        wanted: &VisibleTrees,
        own: Option<OperationProgress>,
    ) -> Result<HostSample, ReadError> {
        let root = self.tools.root.clone();
        let before = process_usage().processor();
        let page = self.host.base_page;
        let (seen, now) = self.watch.scan(&root, page, Bytes::ZERO)?;
        let passed = self.at.map(|at| now.saturating_sub(at));
        self.at = Some(now);
        self.allowance.earn(passed.unwrap_or_default());
        self.walk_pages(&seen, wanted, now);
        self.read_settings(now);
        self.ask_guard(now);
        let programs: Vec<TreeSample> = seen.into_iter().map(|one| self.program(one)).collect();
        let problems = self.problems(&programs);
        let mut moves: Vec<OperationProgress> = own.into_iter().collect();
        moves.extend(self.guard.iter().flat_map(moves_of));
        let host = self.host_line(passed);
        let usage = process_usage().processor();
        self.pace(usage.saturating_sub(before));
        let used = usage.saturating_sub(self.used);
        self.used = usage;
        Ok(HostSample {
            at: Zoned::now().strftime("%FT%T%:z").to_string(),
            since_boot_seconds: now.as_secs_f64(),
            host,
            guard: self.guard.as_ref().map(guard_line),
            programs,
            moves,
            cost: ScanCost {
                every_seconds: self.every.as_secs_f64(),
                cpu: passed
                    .filter(|p| !p.is_zero())
                    .map(|p| used.as_secs_f64() / p.as_secs_f64()),
            },
            problems,
        })
    }

    /// Delays the next scan so that scans stay within their budget, in whole seconds, so that the screen is steady.
    fn pace(&mut self, took: Duration) {
        let seconds = (took.as_secs_f64() / SHARE / EVERY.as_secs_f64())
            .ceil()
            .clamp(1.0, 60.0);
        let wanted = EVERY.mul_f64(seconds);
        // A single long scan, as the first one, must not make the next ones rare.
        self.every = match wanted > self.every {
            true => self.every + EVERY,
            false => wanted,
        };
    }

    fn walk_pages(&mut self, seen: &[Seen], wanted: &VisibleTrees, now: Duration) {
        let id = |one: &Seen| TreeId {
            pid: one.leader.0,
            start_ticks: one.start_ticks,
        };
        let mut old = std::mem::take(&mut self.closer);
        let by_id: HashMap<TreeId, &Seen> = seen.iter().map(|one| (id(one), one)).collect();
        self.closer = (by_id.keys())
            .filter_map(|id| old.remove_entry(id))
            .collect();
        let waiting = seen.iter().map(|one| WalkCandidate {
            id: id(one),
            resident: one.resident,
            since: self
                .closer
                .get(&id(one))
                .map(|(at, _)| now.saturating_sub(*at)),
        });
        let tools = self.tools.clone();
        let (root, kernel) = (&tools.root, &tools.kernel);
        let is_live = root.is_live();
        for one in schedule(waiting.collect(), wanted) {
            if is_live && !self.allowance.is_left() {
                return;
            }
            let Some(program) = by_id.get(&one.id) else {
                continue;
            };
            let before = process_usage().processor();
            let found = walk_pages(root, kernel, &self.host, &program.pids, program.leader);
            self.allowance
                .spend(process_usage().processor().saturating_sub(before));
            let found = match found {
                Fact::Known(holding) => Ok(ProcessTreeMemory {
                    base_bytes: holding.base,
                    huge_bytes: holding.huge,
                    page_tables_bytes: holding.page_tables,
                    thp_disabled: holding.thp_disabled,
                }),
                Fact::Unreadable(error) => Err(error.to_string()),
                // It ended, or this host has no huge pages.
                Fact::Absent => continue,
            };
            self.closer.insert(one.id, (now, found));
        }
    }

    fn read_settings(&mut self, now: Duration) {
        if now.saturating_sub(self.settings_at) < SETTINGS_EVERY {
            return;
        }
        self.settings_at = now;
        if let Ok(host) = read_memory_facts(&self.tools.root, &self.tools.kernel) {
            self.host = host;
        }
    }

    /// Queries the guard, if there is one. The client's timeout bounds the wait.
    fn ask_guard(&mut self, now: Duration) {
        let is_due = |at: Duration| now.saturating_sub(at) >= GUARD_EVERY;
        let socket = self.tools.guard.as_deref();
        if let Some(socket) = socket.filter(|_| self.guard_at.is_none_or(is_due)) {
            self.guard = ask_status(socket).ok();
            self.guard_at = Some(now);
        }
    }

    fn program(&mut self, seen: Seen) -> TreeSample {
        let id = TreeId {
            pid: seen.leader.0,
            start_ticks: seen.start_ticks,
        };
        let user = seen.info.as_ref().map(|about| self.user(about.uid));
        let now = self.at.unwrap_or_default();
        let closer = self.closer.get(&id);
        let (held, unreadable) = match closer.map(|(_, found)| found) {
            Some(Ok(held)) => (Some(*held), None),
            Some(Err(why)) => (None, Some(why.clone())),
            None => (None, None),
        };
        let guard = self.guard.as_ref().and_then(|status| {
            let one = status.programs.iter().find(|p| p.pid == id.pid)?;
            Some(one.standing.state.name().to_owned())
        });
        TreeSample {
            pid: id.pid,
            start_ticks: id.start_ticks,
            processes: seen.pids.len(),
            pids: seen.pids.iter().map(|pid| pid.0).collect(),
            name: seen.name,
            unit: seen.info.as_ref().and_then(|about| about.unit.clone()),
            user,
            resident_bytes: seen.resident,
            threads: seen.threads,
            cpu: seen.cpu,
            started_seconds: now.saturating_sub(seen.age).as_secs_f64(),
            held,
            // Rounded, because a recording writes a program again if any value of it changed.
            held_at_seconds: closer.map(|(at, _)| (at.as_secs() / 5 * 5) as f64),
            unreadable,
            guard,
        }
    }

    fn user(&mut self, uid: u32) -> String {
        if self.users.len() >= USERS {
            self.users.clear();
        }
        let root = &self.tools.root;
        let name = || {
            let user = read_user(root, &uid.to_string());
            let name = user.known().and_then(|user| user.name.clone());
            name.unwrap_or_else(|| uid.to_string())
        };
        self.users.entry(uid).or_insert_with(name).clone()
    }

    fn problems(&self, programs: &[TreeSample]) -> Vec<String> {
        let hidden = programs.iter().filter(|p| p.unreadable.is_some()).count();
        let mut problems = Vec::new();
        if hidden > 0 {
            problems.push(format!(
                "the memory of {hidden} of {} process trees cannot be read: run as root",
                programs.len()
            ));
        }
        if let Fact::Unreadable(error) = &self.host.pmd_page {
            problems.push(error.to_string());
        }
        problems
    }

    fn host_line(&mut self, passed: Option<Duration>) -> HostStats {
        let root = &self.tools.root;
        let memory = meminfo::read(root);
        let pools = read_pools(root, memory.default_hugetlb_page.get());
        let count = |pages: &Fact<Pages>| pages.get().map_or(0, Pages::get);
        let pools = pools.iter().filter(|pool| pool.node.is_none());
        let pools = pools.map(|pool| PoolStatus {
            page_bytes: pool.size.bytes(),
            node: None,
            total: count(&pool.total),
            free: count(&pool.free),
            reserved: count(&pool.reserved),
            surplus: count(&pool.surplus),
        });
        let bytes = |fact: &Fact<Bytes>| fact.get().unwrap_or_default();
        let thp = self.host.thp.known();
        let mut line = HostStats {
            kernel: self.host.kernel.known().cloned().unwrap_or_default(),
            huge_page_bytes: self.host.pmd_page.get().map(|page| page.bytes()),
            memory_bytes: bytes(&memory.total),
            available_bytes: bytes(&memory.available),
            private_bytes: bytes(&memory.anon),
            private_huge_bytes: bytes(&memory.anon_huge),
            shared_bytes: bytes(&memory.shmem),
            shared_huge_bytes: bytes(&memory.shmem_huge),
            page_tables_bytes: bytes(&memory.page_tables),
            pools: pools.collect(),
            thp: thp.and_then(|thp| thp.enabled.known().cloned()),
            thp_shared: thp.and_then(|thp| thp.shmem_enabled.known().cloned()),
            ..HostStats::default()
        };
        let now = HostCounters::read(&self.tools);
        if let (Some(before), Some(passed)) = (&self.before, passed) {
            now.fill(before, passed, &mut line);
        }
        self.before = Some(now);
        line
    }
}

impl HostCounters {
    fn read(tools: &ActionContext) -> HostCounters {
        let events = read_thp_events(&tools.root);
        let event = |name: &str| events.known().and_then(|events| events.get(name).copied());
        HostCounters {
            stalled: [
                PressureResource::Memory,
                PressureResource::Processors,
                PressureResource::Io,
            ]
            .map(|resource| read_stalled(&tools.root, resource).get()),
            events: [
                event("thp_fault_alloc"),
                event("thp_fault_fallback"),
                event("thp_collapse_alloc"),
                event("compact_stall"),
            ],
        }
    }

    fn fill(&self, before: &HostCounters, passed: Duration, line: &mut HostStats) {
        let seconds = passed.as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let part = |at: usize| {
            let (was, is) = (before.stalled[at]?, self.stalled[at]?);
            Some((is.saturating_sub(was).as_secs_f64() / seconds).min(1.0))
        };
        line.stalled_memory = part(0);
        line.stalled_processors = part(1);
        line.stalled_io = part(2);
        let rate = |at: usize| {
            let (was, is) = (before.events[at]?, self.events[at]?);
            Some(is.saturating_sub(was) as f64 / seconds)
        };
        // A kernel without THP has none of them.
        line.rates = rate(0).map(|faults| KernelEventRates {
            faults,
            fallbacks: rate(1).unwrap_or_default(),
            collapses: rate(2).unwrap_or_default(),
            compactions: rate(3).unwrap_or_default(),
        });
    }
}

fn guard_line(status: &GuardStatus) -> GuardSummary {
    GuardSummary {
        acts: status.acts,
        paused: status.paused_since.is_some(),
        rules: status.rules,
        kept: status.count(TreeState::Managed) + status.count(TreeState::Testing),
        next: status.count(TreeState::Candidate) + status.count(TreeState::Queued),
    }
}

fn moves_of(status: &GuardStatus) -> impl Iterator<Item = OperationProgress> {
    status.programs.iter().filter_map(|program| {
        let what = match program.standing.state {
            TreeState::Promoting => "promote",
            TreeState::Reverting => "demote",
            TreeState::Testing => "test",
            _ => return None,
        };
        Some(OperationProgress {
            pid: program.pid,
            name: program.name.clone(),
            what: what.into(),
            by: "guard".into(),
            // A test promotes and demotes, so its progress is unknown.
            status: (program.job.clone()).unwrap_or_else(|| JobProgress {
                stage: program.standing.state.name().into(),
                ..JobProgress::default()
            }),
            budget_percent: program.budget_percent,
        })
    })
}

pub fn is_own(program: &TreeSample) -> bool {
    program.pids.contains(&own_pid().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tools;

    #[test]
    fn this_program_is_seen_and_looked_at() {
        let mut scanner = Scanner::new(tools());
        let me = own_pid().0;
        let sample = scanner.scan(&VisibleTrees::default(), None).unwrap();
        let own = sample.programs.iter().find(|p| is_own(p)).unwrap();
        let wanted = VisibleTrees {
            selected: Some(own.id()),
            visible: Vec::new(),
        };
        assert!(own.user.is_some() && own.threads > 0 && sample.host.memory_bytes > Bytes::ZERO);
        assert_eq!(sample.cost.cpu, None);
        // Time must pass until a page-table walk is due.
        let at_most = Duration::from_secs(300);
        hugeleaf_testkit::until_at_most("its page tables are read", at_most, || {
            let sample = scanner.scan(&wanted, None).unwrap();
            let mut programs = sample.programs.iter();
            let own = programs.find(|p| p.pids.contains(&me)).unwrap();
            own.held.is_some() || tools().host.pmd_page.get().is_none()
        });
    }

    #[test]
    fn what_takes_long_is_done_less_often() {
        let mut scanner = Scanner::new(tools());
        for (took, every) in [(900, 2), (5, 1), (60, 2), (60, 3), (60, 3), (2, 1)] {
            scanner.pace(Duration::from_millis(took));
            assert_eq!(scanner.every, Duration::from_secs(every), "{took} ms");
        }
    }
}
