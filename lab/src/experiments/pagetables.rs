//! `hugeleaf-lab pagetables`: the cost of attaching one region from many processes, by page size.
//!
//! The experiment takes each number of processes and each arm, in a random order. It makes a shared
//! region, starts the processes, which wait, and counts their page tables. Then the processes in turn
//! attach the region and touch all of it, and their page tables are counted again. The growth is of the
//! same processes, so it excludes the page tables of an idle process.

use std::sync::atomic::Ordering;

use hugeleaf::{MemoryError, Region, RegionOptions};
use hugeleaf_host::process::proc_parsers::{ProcessStatus, parse_status};
use hugeleaf_host::system::meminfo;
use hugeleaf_host::{Host, PageUsage};
use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, Failure, PageKind};
use hugeleaf_workload::{ChildCommand, ChildError, PageArm};
use serde_json::json;

use crate::kits::pagetables::{AttachTiming, Attachers};

use hugeleaf_proof::bench::BenchRun;
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent, MissingPages};
use hugeleaf_proof::result_format::{
    ArmInfo, Chart, PageLayout, Parameter, Quantity, ResultRow, Results, Sample,
};

/// Kernel memory of a process besides its own memory and page tables: its kernel stack, its descriptors,
/// its mappings. This is twice the measured value (a thousand processes took 64K each).
const KERNEL_A_PROCESS: Bytes = Bytes::from_kib(128);
/// Bytes of a page-table entry, on every architecture with 64-bit addresses.
const ENTRY: u64 = 8;

#[derive(Debug, Clone)]
pub struct PageTablesSettings {
    /// The arms; base pages come first if they are among them.
    pub arms: Vec<PageArm>,
    pub processes: Vec<usize>,
    pub region: Bytes,
    pub seed: u64,
    /// Maximum ordinary memory held at a time.
    pub memory_limit: Bytes,
    /// The program that runs [`crate::kits::pagetables::serve_attacher`].
    pub program: ChildCommand,
}

const GROWTH: &str = "page tables";

fn growth_of_all() -> Quantity {
    Quantity::amount(GROWTH, "bytes").counted().main()
}

/// Measures all arms. The calling thread must stay alive: children end with it.
///
/// # Errors
/// [`BenchError`]; all processes are ended and all memory is returned then.
pub fn measure(
    settings: &PageTablesSettings,
    machine: &BenchContext<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    let (region, seed) = (settings.region, settings.seed);
    for arm in &settings.arms {
        let most = settings.processes.iter().copied().max().unwrap_or(0);
        check_room(settings, machine.host, *arm, most, Bytes::ZERO)?;
    }
    let used = json!({ "region_bytes": region, "most_bytes": settings.memory_limit });
    let mut run = BenchRun::new("pagetables", (seed, used), machine, progress);
    let about = &mut run.results.experiment;
    about.title = format!(
        "processes that attach one region of {region}: growth of their page tables, and the time of attaching and of \
         the first touch of all of it"
    );
    about.how = format!(
        "each process attaches and touches in its turn; growth is that of the same processes, counted before and \
         after; orders drawn from seed {seed}"
    );
    let by = |what, title| Chart::by("processes", what, title);
    run.results.charts = vec![
        by(GROWTH, "Growth of page tables by number of processes"),
        by("attach", "Time to attach, a process"),
        by("first touch", "First touch of the region, a process"),
    ];
    let mut rising = settings.processes.clone();
    rising.sort_unstable();
    for arm in &settings.arms {
        for processes in &rising {
            run.expect(ArmInfo::from_arm(*arm), place(*processes), *processes);
        }
    }
    let went = (settings.processes.iter()).try_for_each(|processes| {
        run.rounds(1, &settings.arms, |run, _, arm| {
            point(run, settings, arm, *processes)
        })
    });
    run.ended(went)?;
    caveats(&mut run, settings);
    run.finish(&growth_of_all())
}

fn place(processes: usize) -> Vec<Parameter> {
    vec![Parameter::number("processes", processes as u64)]
}

/// Refuses settings that exceed the memory limit: the region, the page tables of all processes, and the
/// memory of the idle processes.
fn check_room(
    settings: &PageTablesSettings,
    host: &Host,
    arm: PageArm,
    processes: usize,
    idle: Bytes,
) -> Result<(), BenchError> {
    let is_pool = arm.kind == PageKind::Hugetlb;
    // If huge pages are unavailable, base pages are used, so the bound assumes their page tables.
    let page = if is_pool { arm.size } else { host.base_page };
    let length = settings.region.get();
    let tables = page.pages_for(settings.region).get().saturating_mul(ENTRY);
    let each = Bytes(tables.saturating_add(idle.get())) + KERNEL_A_PROCESS;
    let all = (processes as u64).saturating_mul(each.get());
    let asked = all.saturating_add(if is_pool { 0 } else { length });
    if asked <= settings.memory_limit.get() {
        return Ok(());
    }
    Err(BenchError::TooLarge {
        what: format!("{processes} processes on {} of {arm}", settings.region),
        asked: Bytes(asked),
        most: settings.memory_limit,
    })
}

fn point(
    run: &mut BenchRun<'_>,
    settings: &PageTablesSettings,
    arm: PageArm,
    processes: usize,
) -> Result<(), BenchError> {
    let machine = run.machine;
    let what = format!("{processes} processes on {arm}");
    run.taking(&what);
    let region = match region(settings.region, arm, machine.host) {
        Ok(region) => region,
        Err(error) => {
            let shortage = MissingPages::from_error(settings.region, error)?;
            run.lacks(&arm.to_string(), &[], &shortage);
            run.skip(processes);
            return Ok(());
        }
    };
    let handle = region.handle()?;
    let line = handle.inheritable()?;
    let failed = |error| failed(&error, machine);
    let mut attachers = Attachers::new(settings.program.clone(), &line).map_err(failed)?;
    attachers.grow_to(1, machine.stop).map_err(failed)?;
    let idle = idle(&attachers, machine)?;
    check_room(settings, machine.host, arm, processes, idle)?;
    attachers.grow_to(processes, machine.stop).map_err(failed)?;
    let pids = attachers.pids();
    let before = page_tables(&pids, machine)?;
    let host_before = of_host(machine);
    let mut turns = Vec::new();
    for _ in 0..processes {
        run.step(what.clone());
        turns.push(attachers.turn(machine.stop).map_err(failed)?);
    }
    let host = host_before.zip(of_host(machine));
    let after = page_tables(&pids, machine)?;
    drop(attachers);
    let (arm_name, at) = (arm.to_string(), place(processes));
    let note = astray(settings.region, arm, &turns);
    for (quantity, values) in quantities(&before, &after, &turns, idle, host) {
        run.results.rows.push(ResultRow {
            doubtful: note.is_some(),
            note: note.clone(),
            ..ResultRow::new(&arm_name, at.clone(), quantity, Sample::alone(values))
        });
    }
    let pages = turns.first().map_or(&[][..], |turn| &turn.pages);
    let pages = (pages.iter()).map(|&(size, kind, bytes)| PageUsage { size, kind, bytes });
    let layout = PageLayout::new(&arm_name, &at, "after", pages.collect());
    run.results.layouts.push(layout);
    Ok(())
}

/// Makes the shared region. A THP region may get fewer huge pages than requested; each process reports its
/// own pages.
fn region(length: Bytes, arm: PageArm, host: &Host) -> Result<Region, MemoryError> {
    let ladder = arm.ladder(arm.kind != PageKind::Base && !arm.is_unverifiable(host));
    Region::new(&RegionOptions::new(length, ladder).shared())
}

/// Returns the memory and page tables of the attachers before their turns (one process so far).
fn idle(attachers: &Attachers, machine: &BenchContext<'_>) -> Result<Bytes, BenchError> {
    let mut sum = Bytes::ZERO;
    for pid in attachers.pids() {
        let status = status(pid, machine)?;
        sum += status.resident_anon.unwrap_or_default();
        sum += status.page_tables.unwrap_or_default();
    }
    Ok(sum)
}

fn page_tables(pids: &[Pid], machine: &BenchContext<'_>) -> Result<Vec<Bytes>, BenchError> {
    let of = |pid: &Pid| {
        let tables = status(*pid, machine)?.page_tables;
        // A process without the line is a zombie.
        tables.ok_or_else(|| ended(*pid, machine))
    };
    pids.iter().map(of).collect()
}

fn status(pid: Pid, machine: &BenchContext<'_>) -> Result<ProcessStatus, BenchError> {
    let path = format!("proc/{pid}/status");
    let fact = machine.root.parse(path, parse_status);
    match fact.error() {
        Some(error) => Err(error.clone().into()),
        None => (fact.known().cloned()).ok_or_else(|| ended(pid, machine)),
    }
}

fn ended(pid: Pid, machine: &BenchContext<'_>) -> BenchError {
    failed(&ChildError::Ended { pid, reason: None }, machine)
}

/// Converts the failure of a process. Ctrl-C on a terminal reaches all processes at once.
fn failed(error: &ChildError, machine: &BenchContext<'_>) -> BenchError {
    if matches!(error, ChildError::Stopped) || machine.stop.load(Ordering::Relaxed) {
        return BenchError::Stopped;
    }
    let next = match error {
        ChildError::Start { before, .. } => format!(
            "raise the limits on processes (ulimit -u, pids.max of the cgroup), or: \
             hugeleaf-lab pagetables --processes {}",
            (*before).max(1)
        ),
        ChildError::Ended {
            reason: Some(_), ..
        } => "hugeleaf-lab pagetables --processes 1    # fewer, or a smaller --region".into(),
        _ => "hugeleaf-lab pagetables    # run it again".into(),
    };
    BenchError::Part(Failure::missing(error.to_string(), next))
}

/// Returns the page tables of the host; shared ones count once.
fn of_host(machine: &BenchContext<'_>) -> Option<Bytes> {
    meminfo::read(machine.root).page_tables.get()
}

/// Returns the growth in bytes; negative where it shrank.
fn growth(before: Bytes, after: Bytes) -> f64 {
    after.as_f64() - before.as_f64()
}

/// Returns the quantities of all turns. `before` and `after` are of the same processes.
fn quantities(
    before: &[Bytes],
    after: &[Bytes],
    turns: &[AttachTiming],
    idle: Bytes,
    host: Option<(Bytes, Bytes)>,
) -> Vec<(Quantity, Vec<f64>)> {
    let each = before.iter().zip(after);
    let each: Vec<f64> = each
        .map(|(before, after)| growth(*before, *after))
        .collect();
    let attach: Vec<f64> = turns.iter().map(|t| t.attach.as_secs_f64()).collect();
    let touch: Vec<f64> = turns.iter().map(|t| t.first_touch.as_secs_f64()).collect();
    let time = |name| Quantity::time(name, "seconds");
    let counted = |name| Quantity::plain(name, "bytes").counted();
    let all = |each: &[f64]| vec![each.iter().sum()];
    let bytes = |all: &[Bytes]| vec![all.iter().copied().sum::<Bytes>().as_f64()];
    let mut quantities = vec![
        (growth_of_all(), all(&each)),
        (time("attach, all"), all(&attach)),
        (time("first touch, all"), all(&touch)),
        (time("attach"), attach),
        (time("first touch"), touch),
        (Quantity::amount("page tables of a process", "bytes"), each),
        (counted("page tables before"), bytes(before)),
        (counted("page tables after"), bytes(after)),
        (counted("memory of an idle process"), bytes(&[idle])),
    ];
    quantities.extend(host.map(|(before, after)| {
        let of_host = Quantity::amount("page tables of the host", "bytes").counted();
        (of_host, vec![growth(before, after)])
    }));
    quantities
}

/// Returns a note if some processes do not have all of the region on the pages of its arm.
fn astray(region: Bytes, arm: PageArm, turns: &[AttachTiming]) -> Option<String> {
    let is_right = |turn: &&AttachTiming| {
        let mut pages = turn.pages.iter();
        !turn.pages.is_empty() && pages.all(|p| (p.0, p.1) == (arm.size, arm.kind))
    };
    let of = turns.len();
    let wrong = of - turns.iter().filter(is_right).count();
    (wrong > 0).then(|| format!("{wrong} of {of} processes did not have all of {region} on {arm}"))
}

fn caveats(run: &mut BenchRun<'_>, settings: &PageTablesSettings) {
    run.explain_doubts();
    let (host, results) = (run.machine.host, &mut run.results);
    // Processes can share tables in units of the range of one second-level table.
    let entries = host.base_page.bytes().get() / ENTRY;
    let block = host.pmd_page.get().map(|p| p.bytes().get() * entries);
    let is_pool = |row: &ResultRow| {
        let mut arms = results.arms.iter();
        arms.any(|arm| arm.name == row.arm && arm.kind == Some(PageKind::Hugetlb))
    };
    let has_pools = results.rows.iter().any(is_pool);
    if let Some(block) = block.filter(|block| has_pools && settings.region.get() >= *block) {
        results.caveats.push(format!(
            "The kernel can let processes share the page tables of hugetlb memory that covers whole, \
             aligned blocks of {}: a shared table counts in each process, and once in the host's sum.",
            Bytes(block)
        ));
    }
    run.on_a_virtual_machine("times include the hypervisor's work for new page table entries.");
}

#[cfg(test)]
mod tests;
