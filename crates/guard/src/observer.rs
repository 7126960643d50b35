//! Scans the host for the policy, only through `hugeleaf-host` and never by files of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_host::demand::read_user;
use hugeleaf_host::process::maps::read_maps;
use hugeleaf_host::process_scanner::{
    ForkTree, ProcessScanner, TreeMemory, since_boot, walk_pages,
};
use hugeleaf_host::system::counters::{
    PressureResource, read_stalled, read_thp_events, read_vmstat,
};
use hugeleaf_host::system::{available, meminfo, read_pools};
use hugeleaf_host::{Fact, Host, Pool, ProcessError, ReadError, Root};
use hugeleaf_mover::pressure::floor_of;
use hugeleaf_mover::{ProcessIdentity, ProcessRanges};
use hugeleaf_proof::metric::cpi;
use hugeleaf_sys::{Kernel, own_pid};
use hugeleaf_units::{Bytes, Pages, Range};
use jiff::Zoned;

use crate::config::{Config, RuleAction};
use crate::observation::{
    FileId, HostSnapshot, Now, Observation, ObservedTree, TreeDetail, pod_of,
};
use crate::policy::needs_detail;
use crate::state::GuardState;
use crate::status::{HostStatus, PoolStatus};
use hugeleaf_host::ForkTreeId;

pub struct Observer<'a> {
    root: &'a Root,
    kernel: &'a Kernel,
    host: &'a Host,
    watch: ProcessScanner,
    users: BTreeMap<u32, Option<String>>,
    before: Option<PressureCounters>,
    shares: PressureShares,
    counts: bool,
    unable: Option<String>,
}

/// Counters of the host that only rise.
#[derive(Debug, Clone, Copy)]
struct PressureCounters {
    at: Duration,
    memory: Option<Duration>,
    processors: Option<Duration>,
    /// Pages scanned by tasks in direct reclaim (`pgscan_direct`).
    scanned: Option<u64>,
}

/// Rates between two readings of [`PressureCounters`]; `None` before the second.
#[derive(Debug, Clone, Copy, Default)]
struct PressureShares {
    /// Share of time in which some task stalled for memory.
    memory: Option<f64>,
    /// Share of time in which some task waited for a processor.
    processors: Option<f64>,
    scanned: Option<u64>,
}

impl PressureShares {
    fn between(before: Option<&PressureCounters>, now: &PressureCounters) -> PressureShares {
        let Some(before) = before else {
            return PressureShares::default();
        };
        let span = now.at.saturating_sub(before.at).as_secs_f64();
        let part = |was: Option<Duration>, is: Option<Duration>| {
            let (was, is) = (was?, is?);
            Some((is.saturating_sub(was).as_secs_f64() / span).min(1.0))
        };
        let scanned = now.scanned.zip(before.scanned);
        PressureShares {
            memory: part(before.memory, now.memory),
            processors: part(before.processors, now.processors),
            scanned: scanned.map(|(is, was)| is.saturating_sub(was)),
        }
    }
}

/// Minimum time between two readings for a meaningful rate.
const LEAST_SPAN: Duration = Duration::from_millis(500);

const USERS: usize = 4000;

impl<'a> Observer<'a> {
    pub fn new(root: &'a Root, kernel: &'a Kernel, host: &'a Host) -> Observer<'a> {
        Observer {
            root,
            kernel,
            host,
            watch: ProcessScanner::default(),
            users: BTreeMap::new(),
            before: None,
            shares: PressureShares::default(),
            counts: cpi(&[own_pid()]).is_ok(),
            unable: unable(kernel, host),
        }
    }

    pub fn now(&self) -> Result<Now, ReadError> {
        since_boot(self.root).map(at)
    }

    pub fn scan(
        &mut self,
        config: &Config,
        state: &GuardState,
    ) -> Result<(Observation, Now), ReadError> {
        let least = least(config, state);
        let (programs, time) = self.watch.scan(self.root, self.host.base_page, least)?;
        let now = at(time);
        let mut seen: Vec<ObservedTree> = Vec::with_capacity(programs.len());
        for program in programs {
            let mut program = self.seen(program);
            if needs_detail(config, state, &program, now) {
                program.closer = self.closer(&program);
                let moved = state.tracks.get(&program.id).and_then(|t| t.moved.as_ref());
                if let (Some(closer), Some(moved)) = (&mut program.closer, moved) {
                    closer.moved = Some(still_mapped(self.root, &moved.memory));
                }
            }
            seen.push(program);
        }
        let observation = Observation {
            host: self.host_seen(time),
            programs: seen,
        };
        Ok((observation, now))
    }

    pub fn pools(&self) -> Vec<Pool> {
        read_pools(self.root, self.host.memory.default_hugetlb_page.get())
    }

    /// Returns the metrics of the host: pools, and the kernel's counters.
    pub fn host_status(&self, seen: &HostSnapshot) -> HostStatus {
        let pools = self.pools().into_iter().filter_map(|pool| {
            let count = |pages: &Fact<Pages>| pages.get().map_or(0, Pages::get);
            Some(PoolStatus {
                page_bytes: pool.size.bytes(),
                node: pool.node,
                total: pool.total.get()?.get(),
                free: count(&pool.free),
                reserved: count(&pool.reserved),
                surplus: count(&pool.surplus),
            })
        });
        HostStatus {
            kernel: seen.kernel.clone(),
            huge_page_bytes: seen.huge,
            stalled: seen.stalled,
            waiting: seen.waiting,
            unable: seen.unable.clone(),
            counts: seen.counts,
            page_tables_bytes: meminfo::read(self.root).page_tables.get(),
            pools: pools.collect(),
            events: read_thp_events(self.root).or_default(),
        }
    }

    fn seen(&mut self, program: ForkTree) -> ObservedTree {
        let about = program.info.unwrap_or_default();
        let user = (program.resident > Bytes::ZERO)
            .then(|| self.user(about.uid))
            .flatten();
        ObservedTree {
            id: ForkTreeId {
                pid: program.leader.0,
                start_ticks: program.start_ticks,
            },
            is_own: program.pids.contains(&own_pid()),
            pids: program.pids,
            name: program.name,
            program_name: about.program_name.clone(),
            unit: about.unit.clone(),
            pod: about.cgroup.as_deref().and_then(pod_of),
            cgroup: about.cgroup.clone(),
            uid: about.uid,
            user,
            age: program.age,
            cpu: program.cpu,
            resident: program.resident,
            closer: None,
        }
    }

    fn user(&mut self, uid: u32) -> Option<String> {
        if self.users.len() >= USERS {
            self.users.clear();
        }
        let root = self.root;
        let name = || {
            read_user(root, &uid.to_string())
                .known()
                .and_then(|user| user.name.clone())
        };
        self.users.entry(uid).or_insert_with(name).clone()
    }

    /// Returns the detailed scan of a process tree; `None` if it ended.
    fn closer(&self, seen: &ObservedTree) -> Option<TreeDetail> {
        let leader = hugeleaf_sys::Pid(seen.id.pid);
        let look = walk_pages(self.root, self.kernel, self.host, &seen.pids, leader);
        match look {
            Fact::Known(holding) => Some(closer_of(holding)),
            Fact::Absent => None,
            Fact::Unreadable(error) => Some(TreeDetail {
                unreadable: Some(error.to_string()),
                ..TreeDetail::default()
            }),
        }
    }

    fn host_seen(&mut self, at: Duration) -> HostSnapshot {
        let now = PressureCounters {
            at,
            memory: read_stalled(self.root, PressureResource::Memory).get(),
            processors: read_stalled(self.root, PressureResource::Processors).get(),
            scanned: read_vmstat(self.root, "pgscan_direct").get(),
        };
        // An order causes two scans in a row. The time between them is too short for a rate.
        if self
            .before
            .is_none_or(|before| now.at >= before.at + LEAST_SPAN)
        {
            self.shares = PressureShares::between(self.before.as_ref(), &now);
            self.before = Some(now);
        }
        let huge = self.host.pmd_page.get();
        let floor = huge.map(|page| floor_of(self.host, page));
        HostSnapshot {
            // A rate needs two readings; without PSI there is none.
            stalled: self.shares.memory.or(now.memory.map(|_| 0.0)),
            waiting: self.shares.processors,
            no_psi: now.memory.is_none(),
            reclaimed: self.shares.scanned,
            is_short: floor.is_some_and(|f| available(self.root).get().is_some_and(|a| a < f)),
            counts: self.counts,
            unable: self.unable.clone(),
            kernel: self.host.kernel.known().cloned().unwrap_or_default(),
            huge: huge.map_or(Bytes::ZERO, |page| page.bytes()),
        }
    }
}

fn closer_of(holding: TreeMemory) -> TreeDetail {
    TreeDetail {
        small: holding.base,
        large: holding.huge,
        misaligned: holding.misaligned,
        page_tables: holding.page_tables,
        thp_disabled: holding.thp_disabled,
        saving: holding.saving,
        room: holding.room,
        file: holding.file.map(|(device, inode, changed)| FileId {
            device,
            inode,
            changed,
        }),
        touched: None,
        moved: None,
        unreadable: None,
    }
}

/// Returns the parts of this memory that are still mapped. Ranges of a process that ended, or that executed another
/// program, are dropped. Ranges about which nothing can be read are kept.
fn still_mapped(root: &Root, memory: &[ProcessRanges]) -> Vec<ProcessRanges> {
    let live = memory
        .iter()
        .filter(|memory| match ProcessIdentity::of(root, memory.who.pid) {
            Ok(now) => now == memory.who,
            Err(error) => matches!(error, ProcessError::Read(_)),
        });
    let each = live.filter_map(|memory| {
        let path = format!("proc/{}/maps", memory.who.pid);
        let maps = match root.parse_lines(path, read_maps) {
            Fact::Known(maps) => maps,
            Fact::Absent => return None,
            Fact::Unreadable(_) => return Some(memory.clone()),
        };
        let parts = memory.ranges.iter().flat_map(|range| {
            let mapped = maps.iter().filter_map(|map| map.range.intersect(*range));
            mapped.collect::<Vec<Range>>()
        });
        let ranges: Vec<Range> = parts.collect();
        (!ranges.is_empty()).then_some(ProcessRanges {
            who: memory.who,
            ranges,
        })
    });
    each.collect()
}

/// Returns the size below which no rule can match, so that smaller process trees are not read further.
fn least(config: &Config, state: &GuardState) -> Bytes {
    if state.tracks.values().any(|track| track.moved.is_some()) {
        // A promoted process tree may have shrunk.
        return Bytes::from_mib(16);
    }
    let rules = config
        .rules
        .iter()
        .filter(|rule| rule.action != RuleAction::Never);
    rules
        .map(|rule| rule.limits.min_bytes)
        .min()
        .unwrap_or_default()
}

fn at(since_boot: Duration) -> Now {
    let wall = Zoned::now();
    let minute = i32::from(wall.hour()) * 60 + i32::from(wall.minute());
    Now {
        since_boot,
        wall: wall.timestamp().as_second(),
        minute: u16::try_from(minute).unwrap_or(0),
    }
}

fn unable(kernel: &Kernel, host: &Host) -> Option<String> {
    if !kernel.supports_process_madvise() {
        return Some("this kernel has no process_madvise (Linux 5.10)".into());
    }
    if !kernel.supports_collapse() {
        return Some("this kernel has no MADV_COLLAPSE (Linux 6.1)".into());
    }
    match &host.pmd_page {
        Fact::Known(_) => None,
        Fact::Absent => Some("this kernel has no transparent huge pages".into()),
        Fact::Unreadable(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    /// The ranges are needed to demote the memory, so a file that cannot be read must not remove them.
    #[test]
    fn ranges_are_kept_where_nothing_can_be_read() {
        let (root, pid) = (Root::live(), own_pid());
        let held = vec![1_u8; 1 << 20];
        let start = held.as_ptr().addr() as u64;
        let mapped = Range::new(start, start + held.len() as u64).unwrap();
        // No program can map the lowest page (vm.mmap_min_addr).
        let unmapped = Range::new(1, 2).unwrap();
        let memory = [ProcessRanges {
            who: ProcessIdentity::of(&root, pid).unwrap(),
            ranges: vec![unmapped, mapped],
        }];
        let left = still_mapped(&root, &memory);
        let sum = |memory: &[ProcessRanges]| -> Bytes {
            let ranges = memory.iter().flat_map(|memory| &memory.ranges);
            ranges.map(|range| range.len()).sum()
        };
        assert_eq!(sum(&left), mapped.len());
        for name in ["maps", "stat"] {
            let file = format!("proc/{pid}/{name}");
            let unreadable = root.failing(&file, ErrorKind::TimedOut);
            let kept = still_mapped(&unreadable, &memory);
            let expected = if name == "maps" {
                &memory[..]
            } else {
                &left[..]
            };
            assert_eq!(kept, expected, "{name}");
            let ended = root.failing(&file, ErrorKind::NotFound);
            assert!(still_mapped(&ended, &memory).is_empty(), "{name}");
        }
    }
}
