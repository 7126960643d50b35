//! The subject of `prove`: running processes, promoted and demoted by `hugeleaf-mover`.
//!
//! The memory is chosen once, before any change, and the same ranges are promoted and demoted. Memory that
//! was on huge pages before stays there in both arms, and memory allocated meanwhile stays as it is.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

use hugeleaf_host::memory_totals::process_memory;
use hugeleaf_host::process::proc_parsers::{parse_stat, parse_status};
use hugeleaf_host::system::counters::read_vmstat;
use hugeleaf_host::{Host, PageUsage, Process, ProcessError, ReadDetail, Root, read_process};
use hugeleaf_mover::block_plan::{self, BackingObjectId, Block, MappingKind, SelectionRules};
use hugeleaf_mover::{
    DemoteOptions, HeldBeforeSplit, Percent, PreconditionError, ProcessIdentity, ProcessRanges,
    Progress, PromoteOptions, SplitRefusal, StallLimits, StallStats, can_split_shared, demote,
    promote,
};
use hugeleaf_perf::processor::{Processor, is_virtual};
use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::{Bytes, Failure};

use crate::experiment::{LEAST_SEPARATION, Provenance};
use crate::experiment_lock::{self, ExperimentLock};
use crate::prove_result::{HostFingerprint, Knob};
use crate::subject::{Arm, SelectedMemory, SideMetrics, Subject, SubjectError};

pub struct LiveSubject<'a> {
    kernel: &'a Kernel,
    root: &'a Root,
    host: &'a Host,
    name: String,
    /// Command name of all processes; `None` if they differ.
    process_name: Option<String>,
    processes: Vec<ProcessIdentity>,
    pace: StallLimits,
    ranges: Vec<ProcessRanges>,
    /// Memory that blocks held at their last split; they become huge again while they hold it.
    held: HeldBeforeSplit,
    stalls: StallStats,
    /// True if memory that several processes map is promoted and demoted too.
    splits_shared: bool,
    /// Excludes other experiments on the same memory.
    claim: ExperimentLock,
    /// Resident memory of all processes at the last scan.
    resident: Option<Bytes>,
}

impl<'a> LiveSubject<'a> {
    /// Creates the subject `name` of the processes `pids`. `pace` bounds the share of time for promoting
    /// and demoting: all of it is fastest, and nothing is measured meanwhile.
    pub fn new(
        kernel: &'a Kernel,
        root: &'a Root,
        host: &'a Host,
        name: &str,
        pids: &[Pid],
        pace: StallLimits,
    ) -> LiveSubject<'a> {
        LiveSubject {
            kernel,
            root,
            host,
            name: name.to_owned(),
            process_name: None,
            processes: (pids.iter())
                .filter_map(|pid| ProcessIdentity::of(root, *pid).ok())
                .collect(),
            pace,
            ranges: Vec::new(),
            held: HeldBeforeSplit::default(),
            stalls: StallStats::default(),
            splits_shared: false,
            claim: ExperimentLock::default(),
            resident: None,
        }
    }

    /// Returns the processes that are still alive and the same.
    fn alive(&self) -> Vec<Pid> {
        (self.processes.iter())
            .filter(|who| who.is_there(self.root))
            .map(|who| who.pid)
            .collect()
    }

    fn ended(&self) -> SubjectError {
        SubjectError::Ended {
            pid: self.processes.first().map_or(Pid(0), |who| who.pid),
        }
    }

    /// Reads the living processes; fails with `Ended` if there are none.
    fn read(&self, pids: &[Pid], looking: ReadDetail) -> Result<Vec<Process>, SubjectError> {
        let alive = self.alive();
        let mut read = Vec::new();
        for pid in pids.iter().filter(|p| alive.contains(p)) {
            match read_process(self.root, self.kernel, self.host, *pid, looking) {
                Ok(process) => read.push(process),
                Err(ProcessError::Gone { .. } | ProcessError::Zombie { .. }) => {}
                Err(e) => return Err(e.into()),
            }
        }
        if read.is_empty() {
            return Err(self.ended());
        }
        Ok(read)
    }

    fn moved(&self) -> Vec<Pid> {
        match self.ranges.is_empty() {
            true => self.processes.iter().map(|who| who.pid).collect(),
            false => self.ranges.iter().map(|memory| memory.who.pid).collect(),
        }
    }

    /// Returns the memory by page size of all processes in the experiment; shared memory counts once.
    fn table(&mut self) -> Result<Vec<PageUsage>, SubjectError> {
        let moved = self.moved();
        let all: Vec<Pid> = self.processes.iter().map(|who| who.pid).collect();
        let mut processes = self.read(&all, ReadDetail::Segments)?;
        self.resident = Some(process_memory(&processes).iter().map(|h| h.bytes).sum());
        processes.retain(|p| moved.contains(&p.pid));
        if processes.is_empty() {
            return Err(self.ended());
        }
        Ok(process_memory(&processes))
    }
}

/// The blocks of some processes, sorted by whether the change is reversible.
#[derive(Default)]
struct BlocksByReversibility {
    /// Reason why memory mapped by several processes cannot be split on this host; `None` if it can.
    no_split: Option<SplitRefusal>,
    reversible: Vec<ProcessRanges>,
    reversible_bytes: Bytes,
    irreversible: Vec<ProcessRanges>,
    irreversible_bytes: Bytes,
    /// Reasons why some are irreversible.
    is_locked: bool,
    is_shared: bool,
    /// True if some are reversible only by splitting memory that several processes map.
    needs_split: bool,
    /// Shared blocks counted so far, because several processes may map the same.
    counted: HashSet<(BackingObjectId, u64)>,
}

impl BlocksByReversibility {
    fn new(split: Result<(), SplitRefusal>) -> BlocksByReversibility {
        BlocksByReversibility {
            no_split: split.err(),
            ..BlocksByReversibility::default()
        }
    }

    fn of(
        processes: &[Process],
        plans: &[block_plan::BlockPlan],
        split: Result<(), SplitRefusal>,
    ) -> BlocksByReversibility {
        let mut blocks = BlocksByReversibility::new(split);
        for (process, plan) in processes.iter().zip(plans) {
            for block in &plan.blocks {
                blocks.add(ProcessIdentity::from(process), block);
            }
        }
        blocks
    }

    fn add(&mut self, who: ProcessIdentity, block: &Block) {
        // Collapsed program text cannot be split from outside, and is small, so it is skipped.
        if block.kind == MappingKind::File {
            return;
        }
        let goes_back = block.one_way(self.no_split).is_none();
        self.needs_split |= goes_back && block.one_way(Some(SplitRefusal::NoFile)).is_some();
        let (list, bytes) = match goes_back {
            true => (&mut self.reversible, &mut self.reversible_bytes),
            false => (&mut self.irreversible, &mut self.irreversible_bytes),
        };
        let is_new =
            block.kind != MappingKind::Shared || self.counted.insert((block.object, block.offset));
        if !block.map_only && is_new {
            *bytes += block.range.len();
        }
        if !goes_back {
            self.is_locked |= block.locked;
            self.is_shared |= !block.locked;
        }
        match list.last_mut() {
            Some(last) if last.who == who => last.ranges.push(block.range),
            _ => list.push(ProcessRanges {
                who,
                ranges: vec![block.range],
            }),
        }
    }

    fn why_irreversible(&self) -> String {
        let shared = || match self.no_split {
            Some(why) => format!("the memory is shared by several processes ({why})"),
            None => "the memory is shared by several processes".to_owned(),
        };
        let why = match (self.is_shared, self.is_locked) {
            (true, true) => format!("{}, and some is locked with mlock", shared()),
            (false, true) => "the memory is locked with mlock".to_owned(),
            _ => shared(),
        };
        why + ", and the kernel does not split such pages for other processes"
    }
}

impl Subject for LiveSubject<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn process_name(&self) -> Option<String> {
        self.process_name.clone()
    }

    fn prepare(&mut self) -> Result<SelectedMemory, SubjectError> {
        let Some(huge) = self.host.pmd_page.get() else {
            return Err(PreconditionError::NoThp.into());
        };
        let pids: Vec<Pid> = self.processes.iter().map(|who| who.pid).collect();
        let mut notes = Vec::new();
        let me = (hugeleaf_sys::own_pid(), hugeleaf_sys::effective_uid());
        self.claim = experiment_lock::claim(self.root, &pids, me, &mut notes)?;
        let processes = self.read(&pids, ReadDetail::Pages)?;
        self.process_name = common_name(&processes);
        let rules = SelectionRules {
            host: self.host,
            huge,
            base: self.kernel.base_page(),
            min_resident: Percent::ALL,
            held: None,
            only: vec![None; processes.len()],
        };
        let all: Vec<&Process> = processes.iter().collect();
        let alive: Vec<Pid> = processes.iter().map(|p| p.pid).collect();
        let split = can_split_shared(self.kernel, self.root, &alive);
        let up = BlocksByReversibility::of(&processes, &block_plan::plan(&all, &rules), split);
        let splits: Vec<_> = (processes.iter().enumerate())
            .map(|(index, process)| block_plan::plan_split(index, process, &rules))
            .collect();
        let down = BlocksByReversibility::of(&processes, &splits, split);
        let mut prepared = self.choose(up, down)?;
        let held = PageUsage::total(&self.table()?);
        check_share(&self.name, &prepared, held)?;
        prepared.notes.extend(notes);
        Ok(prepared)
    }

    fn apply_arm(&mut self, arm: Arm, stop: &AtomicBool) -> Result<(), SubjectError> {
        let only: Vec<ProcessRanges> = (self.ranges.iter())
            .filter(|memory| memory.who.is_there(self.root))
            .cloned()
            .collect();
        if only.is_empty() {
            return Err(self.ended());
        }
        let pids: Vec<Pid> = only.iter().map(|memory| memory.who.pid).collect();
        let only = Some(only);
        let (pace, quiet) = (self.pace, &mut |_: &Progress<'_>| {});
        let (kernel, root, host) = (self.kernel, self.root, self.host);
        let outcome = match arm {
            Arm::Large => {
                // Splitting frees zero-filled base pages (kernel-notes.md). Promoting such blocks restores
                // their size.
                let options = PromoteOptions {
                    pace,
                    only,
                    held: Some(std::mem::take(&mut self.held)),
                    ..PromoteOptions::default()
                };
                let outcome = promote(kernel, root, host, &pids, &options, quiet, stop);
                self.held = options.held.unwrap_or_default();
                outcome
            }
            Arm::Base => {
                let options = DemoteOptions {
                    pace,
                    only,
                    record_held: true,
                    ..DemoteOptions::default()
                };
                demote(kernel, root, host, &pids, &options, quiet, stop)
            }
        };
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(e) if e.is_end() => return Err(self.ended()),
            Err(e) => return Err(e.into()),
        };
        self.stalls.join(&outcome.stalls);
        self.held.renew(&outcome.held);
        if outcome.processes.iter().all(|p| p.ended.is_some()) {
            return Err(self.ended());
        }
        Ok(())
    }

    fn use_full_budget(&mut self) {
        self.pace = Percent::ALL.into();
    }

    fn coverage(&mut self) -> Result<f64, SubjectError> {
        Ok(PageUsage::coverage(&self.table()?).unwrap_or(0.0))
    }

    fn page_sizes(&mut self) -> Result<Vec<PageUsage>, SubjectError> {
        self.table()
    }

    fn resident(&mut self) -> Option<Bytes> {
        self.resident
    }

    fn mapped(&mut self) -> Option<Bytes> {
        if !self.splits_shared {
            return None;
        }
        let each = self
            .processes
            .iter()
            .filter_map(|ProcessIdentity { pid, .. }| {
                let status = self.root.parse(format!("proc/{pid}/status"), parse_status);
                status.known().and_then(|s| s.resident_shmem)
            });
        Some(each.sum())
    }

    fn stalls(&self) -> Option<StallStats> {
        Some(self.stalls)
    }

    fn side_metrics(&mut self) -> SideMetrics {
        let ticks = hugeleaf_sys::ticks_per_second();
        let seconds = |n: u64| n as f64 / ticks.max(1) as f64;
        let mut side_metrics = SideMetrics::default();
        for ProcessIdentity { pid, .. } in &self.processes {
            let stat = self.root.parse(format!("proc/{pid}/stat"), parse_stat);
            if let Some(stat) = stat.known() {
                *side_metrics.user_seconds.get_or_insert(0.0) += seconds(stat.user_ticks);
                *side_metrics.system_seconds.get_or_insert(0.0) += seconds(stat.system_ticks);
            }
            let status = self.root.parse(format!("proc/{pid}/status"), parse_status);
            if let Some(tables) = status.known().and_then(|s| s.page_tables) {
                *side_metrics.page_tables.get_or_insert_default() += tables;
            }
        }
        side_metrics.compaction_stalls = read_vmstat(self.root, "compact_stall").get();
        side_metrics
    }
}

impl LiveSubject<'_> {
    fn note_split(&mut self, splits_shared: bool, notes: &mut Vec<String>) {
        self.splits_shared = splits_shared;
        if splits_shared {
            notes.push(
                "Shared memory is split for all processes that map it (debugfs split_huge_pages). \
                 They map it again when they touch it; measurements wait until nearly all of it \
                 is mapped again."
                    .to_owned(),
            );
        }
    }

    /// Chooses the memory of the experiment: the larger of the promotable and the demotable part. Of this
    /// only reversible blocks, unless most are irreversible.
    fn choose(
        &mut self,
        up: BlocksByReversibility,
        down: BlocksByReversibility,
    ) -> Result<SelectedMemory, SubjectError> {
        let mut notes = Vec::new();
        let prepared = |began, bytes, one_way, notes| {
            Ok(SelectedMemory {
                began,
                bytes,
                one_way,
                notes,
            })
        };
        let up_all = up.reversible_bytes + up.irreversible_bytes;
        if down.reversible_bytes > up_all {
            self.ranges = down.reversible;
            self.note_split(down.needs_split, &mut notes);
            if !up_all.is_zero() {
                notes.push(format!("{up_all} stay on base pages in both arms."));
            }
            return prepared(Arm::Large, down.reversible_bytes, None, notes);
        }
        if up_all.is_zero() {
            let why = match down.irreversible_bytes.is_zero() {
                true => "none of it can be promoted".to_owned(),
                false => format!(
                    "it is already on huge pages and cannot be demoted: {}",
                    down.why_irreversible()
                ),
            };
            let target = &self.name;
            return Err(SubjectError::Failed(Failure::missing(
                format!("{target}: no memory for an experiment: {why}"),
                format!("hugeleaf why {target}"),
            )));
        }
        let already = down.reversible_bytes + down.irreversible_bytes;
        if !already.is_zero() {
            notes.push(format!(
                "{already} were on huge pages before and stay there in both arms."
            ));
        }
        if up.reversible_bytes >= up.irreversible_bytes {
            if !up.irreversible_bytes.is_zero() {
                notes.push(format!(
                    "{} are left out: {}.",
                    up.irreversible_bytes,
                    up.why_irreversible()
                ));
            }
            self.ranges = up.reversible;
            self.note_split(up.needs_split, &mut notes);
            return prepared(Arm::Base, up.reversible_bytes, None, notes);
        }
        let why = up.why_irreversible();
        notes.push(format!(
            "{why}. It is therefore measured before and after, and the memory stays on huge pages \
             until the server is restarted."
        ));
        self.ranges = joined(up.reversible, up.irreversible);
        prepared(Arm::Base, up_all, Some(why), notes)
    }
}

/// Returns the command name that all processes have.
fn common_name(processes: &[Process]) -> Option<String> {
    let first = processes.first()?;
    let is_common = processes.iter().all(|process| process.name == first.name);
    is_common.then(|| first.name.clone())
}

/// Refuses an experiment whose memory is too small a part for the arms to differ.
fn check_share(target: &str, prepared: &SelectedMemory, held: Bytes) -> Result<(), SubjectError> {
    let bytes = prepared.bytes;
    if bytes.share_of(held).unwrap_or(1.0) >= LEAST_SEPARATION {
        return Ok(());
    }
    let why = prepared.notes.join(" ");
    Err(SubjectError::Failed(Failure::missing(
        format!(
            "{target}: {bytes} of {held} can be promoted and demoted, too little to compare: {why}"
        ),
        format!("hugeleaf why {target}"),
    )))
}

fn joined(mut a: Vec<ProcessRanges>, b: Vec<ProcessRanges>) -> Vec<ProcessRanges> {
    for memory in b {
        match a.iter_mut().find(|known| known.who == memory.who) {
            Some(known) => known.ranges.extend(memory.ranges),
            None => a.push(memory),
        }
    }
    a
}

/// Returns the machine and the knobs in force for a result. `command` is the command as typed, stored
/// without passwords.
pub fn circumstances(root: &Root, host: &Host, command: &[String]) -> Provenance {
    let cpuinfo = root.read("proc/cpuinfo");
    let cpuinfo = cpuinfo.known().map_or("", String::as_str);
    let mut knobs = Vec::new();
    let mut knob = |name: &str, value: Option<String>| {
        let name = name.to_owned();
        knobs.extend(value.map(|value| Knob { name, value }));
    };
    if let Some(thp) = host.thp.known() {
        knob("enabled", thp.enabled.known().cloned());
        knob("defrag", thp.defrag.known().cloned());
        knob("shmem_enabled", thp.shmem_enabled.known().cloned());
        let k = &thp.khugepaged;
        let scanned = k.pages_to_scan.get().map(|p| p.0.to_string());
        knob("khugepaged/pages_to_scan", scanned);
        let sleep = k.scan_sleep_millis.get().map(|v| v.to_string());
        knob("khugepaged/scan_sleep_millisecs", sleep);
        for order in &thp.orders {
            let name = format!("hugepages-{}kB/enabled", order.size.bytes().get() / 1024);
            knob(&name, order.anon.known().cloned());
        }
    }
    let proactive = host.limits.compaction_proactiveness.get();
    let proactive = proactive.map(|v| v.to_string());
    knob("vm.compaction_proactiveness", proactive);
    Provenance {
        host: HostFingerprint {
            kernel: host.kernel.known().cloned(),
            arch: host.arch.known().cloned(),
            processor: Processor::parse(cpuinfo).name,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            nodes: host.nodes.len(),
            memory_bytes: host.memory.total.get().map(Bytes::get),
            base_page_bytes: host.base_page.bytes().get(),
            large_page_bytes: host.pmd_page.get().map(|p| p.bytes().get()),
            is_virtual: is_virtual(cpuinfo),
        },
        knobs,
        command: crate::metric::shown_command(command),
        started: jiff::Timestamp::now()
            .round(jiff::Unit::Second)
            .map_or_else(|_| String::new(), |t| t.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_units::Range;

    /// A PostgreSQL whose buffers are on huge pages and cannot be split has a little other memory.
    #[test]
    fn a_little_of_much_is_refused_before_it_moves() {
        let prepared = SelectedMemory {
            began: Arm::Base,
            bytes: Bytes::from_mib(4),
            one_way: None,
            notes: vec!["512M were on huge pages before and stay there.".into()],
        };
        let enough = |held| check_share("postgres", &prepared, Bytes::from_mib(held));
        let error = enough(516).unwrap_err().to_string();
        assert!(
            error.contains("4M of 516M") && error.contains("512M were"),
            "{error}"
        );
        assert!(enough(400).is_ok() && enough(0).is_ok());
    }

    fn who(pid: u32) -> ProcessIdentity {
        let mut who = ProcessIdentity::default();
        who.pid = Pid(pid);
        who
    }

    fn block(kind: MappingKind, locked: bool, exclusive: bool, attach: bool) -> Block {
        Block {
            pid: Pid(1),
            range: Range::new(0x20_0000, 0x40_0000).unwrap(),
            role: hugeleaf_host::MappingRole::Anon,
            kind,
            object: (0, 0, 0, false),
            offset: 0,
            map_only: attach,
            missing: Bytes::ZERO,
            restores: Bytes::ZERO,
            locked,
            exclusive,
            share: Bytes(0x20_0000),
        }
    }

    #[test]
    fn what_goes_back_depends_on_who_shares_it() {
        let goes_back = |b: Block, split| {
            let mut blocks = BlocksByReversibility::new(split);
            blocks.add(who(1), &b);
            (
                blocks.reversible.len(),
                blocks.irreversible.len(),
                blocks.needs_split,
            )
        };
        let refused = Err(SplitRefusal::Refused);
        for (facts, with, without) in [
            (
                (MappingKind::Private, false, true, false),
                (1, 0, false),
                (1, 0, false),
            ),
            (
                (MappingKind::Private, true, true, false),
                (0, 1, false),
                (0, 1, false),
            ),
            (
                (MappingKind::Shared, false, true, false),
                (1, 0, false),
                (1, 0, false),
            ),
            (
                (MappingKind::Shared, false, false, false),
                (1, 0, true),
                (0, 1, false),
            ),
            (
                (MappingKind::Shared, false, true, true),
                (1, 0, true),
                (0, 1, false),
            ),
            (
                (MappingKind::Shared, true, false, false),
                (0, 1, false),
                (0, 1, false),
            ),
            (
                (MappingKind::File, false, true, false),
                (0, 0, false),
                (0, 0, false),
            ),
        ] {
            let (kind, locked, exclusive, attach) = facts;
            let one = || block(kind, locked, exclusive, attach);
            assert_eq!(goes_back(one(), Ok(())), with, "{facts:?}");
            assert_eq!(goes_back(one(), refused), without, "{facts:?}");
        }
    }

    #[test]
    fn what_several_processes_share_counts_once() {
        let mut blocks = BlocksByReversibility::new(Ok(()));
        for pid in 1..4 {
            blocks.add(who(pid), &block(MappingKind::Shared, false, false, false));
        }
        assert_eq!(blocks.reversible.len(), 3);
        assert_eq!(blocks.reversible_bytes, Bytes(0x20_0000));
    }

    #[test]
    fn why_memory_stays_names_what_refused() {
        let mut blocks = BlocksByReversibility::new(Err(SplitRefusal::Refused));
        blocks.add(who(1), &block(MappingKind::Shared, false, false, false));
        let why = blocks.why_irreversible();
        assert!(why.contains("refused even to root"), "{why}");
        blocks.add(who(1), &block(MappingKind::Shared, true, false, false));
        assert!(blocks.why_irreversible().contains("mlock"));
    }
}
