//! `bench pagetables`: what it costs that many processes attach one region, by page size.
//!
//! For each number of processes and each arm, in an order drawn at random: a shared region is taken,
//! the processes are started and wait, and their page tables are counted. Then, one after the
//! other, each attaches the region and touches all of it; and their page tables are counted again.
//! The growth is that of the very same processes, so what a process has anyway is not in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hugeleaf::{MemoryError, Region, RegionOptions};
use hugeleaf_host::process::stat::{Status, parse_status};
use hugeleaf_host::system::meminfo;
use hugeleaf_host::{Host, Root};
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::{Attachers, ChildError, PageArm, Program, Turn};

use super::{
    BenchEnding, BenchError, BenchEvent, Circumstances, Machine, Measured, Shortage,
    is_unavailable, nothing,
};
use crate::rows::Results;
use crate::subject::SizeHeld;

mod rows;

/// What the kernel holds for a process in addition to its memory and page tables: its stack in the kernel,
/// its descriptors, its mappings (a thousand of them took 64K each; twice that).
const KERNEL_A_PROCESS: Bytes = Bytes::from_kib(128);
/// Bytes of an entry of a page table, on every architecture with 64-bit addresses.
const ENTRY: u64 = 8;

/// What is measured.
#[derive(Debug, Clone)]
pub struct PageTablesSettings {
    /// The arms; base pages first, where they are among them.
    pub arms: Vec<PageArm>,
    /// How many processes.
    pub processes: Vec<usize>,
    /// How long the region is.
    pub region: Bytes,
    /// What orders are drawn from.
    pub seed: u64,
    /// The most ordinary memory to hold at a time.
    pub most: Bytes,
    /// What runs `hugeleaf_workload::pagetables::serve_attacher`.
    pub program: Program,
}

/// What was measured.
type PageTablesResult<'a> = Measured<'a, PageTablesSettings, PageTablesArm>;

/// Pages of one size and kind.
#[derive(Debug, Clone, PartialEq)]
struct PageTablesArm {
    /// As the flag names it: `base`, `thp:2M`, `hugetlb:1G`.
    pub label: String,
    /// Their size.
    pub page_bytes: u64,
    /// `base`, `thp` or `hugetlb`.
    pub kind: String,
    /// What was measured, by number of processes, fewest first.
    pub points: Vec<PageTablesPoint>,
    /// Why the region was unavailable.
    pub shortage: Option<Shortage>,
}

/// So many processes on one arm.
#[derive(Debug, Clone, PartialEq)]
struct PageTablesPoint {
    /// How many.
    pub processes: usize,
    /// Growth of the page tables (`VmPTE`) of each process, in bytes.
    pub samples: Vec<i64>,
    /// Page tables of all of them before anything was attached.
    pub before_bytes: u64,
    /// And after all of them had touched all of the region.
    pub after_bytes: u64,
    /// The difference.
    pub growth_bytes: i64,
    /// Growth of the host's page tables meanwhile (`PageTables` of /proc/meminfo): also those of
    /// everybody else, and tables that processes share only once. Missing where it was not told.
    pub host_growth_bytes: Option<i64>,
    /// How many seconds it took to attach: each process in the order of their turns.
    pub attach: Vec<f64>,
    /// How long the first touch of all of it took after that.
    pub first_touch: Vec<f64>,
    /// What a process that waits takes in memory of its own, page tables included.
    pub idle_bytes: u64,
    /// The region by the pages that the first process has it on.
    pub pages: Vec<SizeHeld>,
    /// Whether all processes have all of it on the pages of its arm.
    pub verified: bool,
    /// Why not.
    pub note: Option<String>,
}

/// Measures. The calling thread has to stay: children end with it.
///
/// # Errors
/// [`BenchError`]; all processes are ended and all memory is returned then.
pub fn measure(
    settings: &PageTablesSettings,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    Ok(measured(settings, machine, progress)?.to_results())
}

fn measured<'a>(
    settings: &'a PageTablesSettings,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<PageTablesResult<'a>, BenchError> {
    let Machine {
        root,
        host,
        circumstances,
        stop,
        ..
    } = *machine;
    for arm in &settings.arms {
        let most = settings.processes.iter().copied().max().unwrap_or(0);
        check_room(settings, host, *arm, most, Bytes::ZERO)?;
    }
    let began = Instant::now();
    let mut engine = Engine {
        settings,
        root,
        host,
        progress,
        stop,
        arms: settings.arms.iter().map(|arm| empty_arm(*arm)).collect(),
        done: 0,
        of: (settings.processes.iter().sum::<usize>() * settings.arms.len()) as u64,
    };
    let ending = match engine.all() {
        Ok(()) => BenchEnding::Done,
        Err(BenchError::Attach(ChildError::Stopped) | BenchError::Stopped) => {
            BenchEnding::Interrupted
        }
        // Ctrl-C on a terminal goes to all of the processes at once.
        Err(_) if stop.load(Ordering::Relaxed) => BenchEnding::Interrupted,
        Err(error) => return Err(error),
    };
    let mut arms = engine.arms;
    if arms.iter().all(|arm| arm.points.is_empty()) {
        return Err(match ending {
            BenchEnding::Done => nothing(arms.iter().map(|arm| (&*arm.label, &arm.shortage))),
            BenchEnding::Interrupted => BenchError::Stopped,
        });
    }
    for arm in &mut arms {
        arm.points.sort_by_key(|point| point.processes);
    }
    let about = (began.elapsed(), ending);
    let mut measured = Measured::new("pagetables", settings, arms, circumstances, about);
    measured.caveats = caveats(&measured.arms, settings, host, circumstances);
    Ok(measured)
}

/// Refuses what would take more memory than it may: the region, the page tables of all processes,
/// and what they take anyway.
fn check_room(
    settings: &PageTablesSettings,
    host: &Host,
    arm: PageArm,
    processes: usize,
    idle: Bytes,
) -> Result<(), BenchError> {
    let is_pool = arm.kind == PageKind::Hugetlb;
    // Where huge pages are unavailable, base pages are: their tables are reckoned with.
    let page = if is_pool { arm.size } else { host.base_page };
    let length = settings.region.get();
    let tables = page.pages_for(settings.region).get().saturating_mul(ENTRY);
    let each = Bytes(tables.saturating_add(idle.get())) + KERNEL_A_PROCESS;
    let all = (processes as u64).saturating_mul(each.get());
    let asked = all.saturating_add(if is_pool { 0 } else { length });
    if asked <= settings.most.get() {
        return Ok(());
    }
    Err(BenchError::TooLarge {
        what: format!("{processes} processes on {} of {arm}", settings.region),
        asked: Bytes(asked),
        most: settings.most,
    })
}

struct Engine<'a> {
    settings: &'a PageTablesSettings,
    root: &'a Root,
    host: &'a Host,
    progress: &'a mut dyn FnMut(BenchEvent),
    stop: &'a AtomicBool,
    arms: Vec<PageTablesArm>,
    done: u64,
    of: u64,
}

impl Engine<'_> {
    fn all(&mut self) -> Result<(), BenchError> {
        let mut random = fastrand::Rng::with_seed(self.settings.seed);
        for processes in self.settings.processes.clone() {
            let mut order: Vec<usize> = (0..self.settings.arms.len()).collect();
            random.shuffle(&mut order);
            for arm in order {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(BenchError::Stopped);
                }
                self.point(arm, processes)?;
            }
        }
        Ok(())
    }

    fn point(&mut self, at: usize, processes: usize) -> Result<(), BenchError> {
        let arm = self.settings.arms[at];
        let what = format!("{processes} processes on {arm}");
        (self.progress)(BenchEvent::Taking(what.clone()));
        let region = match self.region(arm) {
            Ok(region) => region,
            Err(error) if is_unavailable(&error) => {
                if self.arms[at].shortage.is_none() {
                    let reason = error.to_string();
                    (self.progress)(BenchEvent::Unavailable {
                        arm: arm.to_string(),
                        reason,
                    });
                }
                Shortage::join(&mut self.arms[at].shortage, self.settings.region, &error);
                self.done += processes as u64;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let handle = region.handle()?;
        let line = handle.inheritable()?;
        let mut attachers = Attachers::new(self.settings.program.clone(), &line)?;
        attachers.grow_to(1, self.stop)?;
        let idle = self.idle(&attachers)?;
        check_room(self.settings, self.host, arm, processes, idle)?;
        attachers.grow_to(processes, self.stop)?;
        let pids = attachers.pids();
        let before = self.page_tables(&pids)?;
        let host_before = self.of_host();
        let mut turns = Vec::new();
        for _ in 0..processes {
            let (done, of) = (self.done, self.of);
            let what = what.clone();
            (self.progress)(BenchEvent::At { done, of, what });
            turns.push(attachers.turn(self.stop)?);
            self.done += 1;
        }
        let host_after = self.of_host();
        let after = self.page_tables(&pids)?;
        drop(attachers);
        let host_growth = host_before
            .zip(host_after)
            .map(|(before, after)| growth(before, after));
        let mut point = point_of(self.settings.region, arm, &before, &after, &turns);
        point.host_growth_bytes = host_growth;
        point.idle_bytes = idle.get();
        self.arms[at].points.push(point);
        Ok(())
    }

    /// The shared region. One of transparent huge pages may come on fewer of them than asked for;
    /// each process says what it got.
    fn region(&self, arm: PageArm) -> Result<Region, MemoryError> {
        let length = self.settings.region;
        let ladder = arm.ladder(arm.kind != PageKind::Base && !arm.is_untold(self.host));
        Region::new(&RegionOptions::new(length, ladder).shared())
    }

    /// What the one process that there is takes: memory of its own, and page tables.
    fn idle(&self, attachers: &Attachers) -> Result<Bytes, BenchError> {
        let mut sum = Bytes::ZERO;
        for pid in attachers.pids() {
            let status = self.status(pid)?;
            sum += status.resident_anon.unwrap_or_default();
            sum += status.page_tables.unwrap_or_default();
        }
        Ok(sum)
    }

    fn page_tables(&self, pids: &[Pid]) -> Result<Vec<Bytes>, BenchError> {
        let of = |pid: &Pid| {
            let tables = self.status(*pid)?.page_tables;
            // A process without the line has ended: it is a zombie.
            tables.ok_or(BenchError::Attach(ChildError::Ended {
                pid: *pid,
                reason: None,
            }))
        };
        pids.iter().map(of).collect()
    }

    fn status(&self, pid: Pid) -> Result<Status, BenchError> {
        let fact = self.root.parse(format!("proc/{pid}/status"), parse_status);
        match fact.error() {
            Some(error) => Err(error.clone().into()),
            None => (fact.known().cloned())
                .ok_or(BenchError::Attach(ChildError::Ended { pid, reason: None })),
        }
    }

    fn of_host(&self) -> Option<Bytes> {
        meminfo::read(self.root).page_tables.get()
    }
}

fn growth(before: Bytes, after: Bytes) -> i64 {
    let clamp = |bytes: Bytes| i64::try_from(bytes.get()).unwrap_or(i64::MAX);
    clamp(after).saturating_sub(clamp(before))
}

fn point_of(
    region: Bytes,
    arm: PageArm,
    before: &[Bytes],
    after: &[Bytes],
    turns: &[Turn],
) -> PageTablesPoint {
    let samples: Vec<i64> = before
        .iter()
        .zip(after)
        .map(|(before, after)| growth(*before, *after))
        .collect();
    let is_right = |turn: &&Turn| {
        let right = turn
            .pages
            .iter()
            .all(|p| (p.0, p.1) == (arm.size, arm.kind));
        right && !turn.pages.is_empty()
    };
    let wrong = turns.len() - turns.iter().filter(is_right).count();
    let note = (wrong > 0).then(|| {
        let of = turns.len();
        format!("{wrong} of {of} processes did not have all of {region} on {arm}")
    });
    let pages = turns.first().map_or(&[][..], |turn| &turn.pages);
    let seconds = |of: fn(&Turn) -> Duration| -> Vec<f64> {
        turns.iter().map(|turn| of(turn).as_secs_f64()).collect()
    };
    PageTablesPoint {
        processes: turns.len(),
        growth_bytes: samples.iter().sum(),
        samples,
        before_bytes: before.iter().copied().sum::<Bytes>().get(),
        after_bytes: after.iter().copied().sum::<Bytes>().get(),
        host_growth_bytes: None,
        attach: seconds(|turn| turn.attach),
        first_touch: seconds(|turn| turn.first_touch),
        idle_bytes: 0,
        pages: pages
            .iter()
            .map(|(size, kind, bytes)| SizeHeld::new(*size, *kind, *bytes))
            .collect(),
        verified: note.is_none(),
        note,
    }
}

fn empty_arm(arm: PageArm) -> PageTablesArm {
    PageTablesArm {
        label: arm.to_string(),
        page_bytes: arm.size.bytes().get(),
        kind: arm.kind.to_string(),
        points: Vec::new(),
        shortage: None,
    }
}

fn caveats(
    arms: &[PageTablesArm],
    settings: &PageTablesSettings,
    host: &Host,
    circumstances: &Circumstances,
) -> Vec<String> {
    let mut caveats = Vec::new();
    let points = || arms.iter().flat_map(|arm| &arm.points);
    if points().any(|p| !p.verified) {
        caveats.push("Points marked ? were not seen to be on the pages of their arm.".to_owned());
    }
    // What one table of the second level covers is what processes can share.
    let entries = host.base_page.bytes().get() / ENTRY;
    let block = host.pmd_page.get().map(|p| p.bytes().get() * entries);
    let pools = arms.iter().filter(|arm| arm.kind == "hugetlb");
    let pools = pools.filter(|arm| !arm.points.is_empty()).count();
    if let Some(block) = block.filter(|block| pools > 0 && settings.region.get() >= *block) {
        caveats.push(format!(
            "The kernel can let processes share the page tables of hugetlb memory that covers whole, \
             aligned blocks of {}: a shared table counts in each process, and once in the host's sum.",
            Bytes(block)
        ));
    }
    if circumstances.host.is_virtual == Some(true) {
        caveats.push(
            "This is a virtual machine: times include what the machine below does for new entries \
             of page tables."
                .to_owned(),
        );
    }
    caveats
}

#[cfg(test)]
mod tests;
