//! `mem` over many processes that attach one segment, compared with `smem`; and its detection of the
//! process that attached it at a misaligned address.

use std::path::Path;
use std::process::Command;

use hugeleaf_units::Bytes;
use serde_json::Value;

use crate::holders::{Holder, Segment};
use crate::record::{Record, median};
use crate::timing::{Arm, interleave};
use crate::{Failed, HUGELEAF, Mode};

struct Sizes {
    segment: Bytes,
    few: usize,
    many: usize,
    rounds: usize,
}

impl Sizes {
    const fn of(mode: Mode) -> Sizes {
        match mode {
            Mode::Full => Sizes {
                segment: Bytes::from_mib(2048),
                few: 48,
                many: 96,
                rounds: 9,
            },
            Mode::Smoke => Sizes {
                segment: Bytes::from_mib(8),
                few: 4,
                many: 8,
                rounds: 1,
            },
        }
    }
}

/// Runs the benchmark.
pub fn run(mode: Mode, out: &Path) -> Result<(), Failed> {
    let sizes = Sizes::of(mode);
    let smem = hugeleaf_testkit::find_program(&["smem"]);
    if smem.is_none() {
        println!("not run: the arm smem: smem is not installed");
    }
    let mut record = Record::new("mem-shared", "make bench");
    let segment = Segment::new(sizes.segment.get())?;
    let mut holders = attach(&segment, &sizes, sizes.few, true)?;
    let first = time(&mut record, smem.as_deref(), &sizes, sizes.few, "first")?;
    holders.extend(attach(&segment, &sizes, sizes.many - sizes.few, false)?);
    let many = time(&mut record, smem.as_deref(), &sizes, sizes.many, "between")?;
    holders.truncate(sizes.few);
    // Again with few: shows a drift of the host meanwhile.
    let again = time(&mut record, smem.as_deref(), &sizes, sizes.few, "again")?;
    drop(holders);
    let few = [first.mem, again.mem].concat();
    if smem.is_some() {
        let smem = [first.smem, again.smem].concat();
        record.figure("mem_over_smem", median(&few) / median(&smem));
    }
    let ratio = median(&many.mem) / median(&few);
    record.figure(format!("mem_{}_over_{}", sizes.many, sizes.few), ratio);
    drop(segment);
    let misfits = misfits(&sizes)?;
    record.figure("told_apart", misfits);
    record.write(out)?;
    if misfits == 1 {
        Ok(())
    } else {
        Err(format!("{misfits} processes were named, not 1").into())
    }
}

struct Times {
    mem: Vec<f64>,
    smem: Vec<f64>,
}

fn time(
    record: &mut Record,
    smem: Option<&Path>,
    sizes: &Sizes,
    processes: usize,
    when: &str,
) -> Result<Times, Failed> {
    let mut arms = vec![Arm::new("mem", HUGELEAF, &["mem"])];
    if let Some(smem) = smem {
        arms.push(Arm::new("smem", &smem.to_string_lossy(), &[]));
    }
    interleave(&mut arms, sizes.rounds)?;
    for arm in &arms {
        let label = format!("{}, {processes} processes, {when}", arm.label);
        record.figure(label.as_str(), median(&arm.seconds));
        record.arm(label, "seconds", &arm.seconds);
    }
    let mut of = arms.into_iter().map(|arm| arm.seconds);
    Ok(Times {
        mem: of.next().unwrap_or_default(),
        smem: of.next().unwrap_or_default(),
    })
}

/// Starts processes that attach the segment; with `misfit` the last one attaches it one base page past
/// a multiple of the huge page.
fn attach(
    segment: &Segment,
    sizes: &Sizes,
    processes: usize,
    misfit: bool,
) -> Result<Vec<Holder>, Failed> {
    let base = rustix::param::page_size().to_string();
    let size = format!("{:#}", sizes.segment);
    let mut holders = Vec::new();
    for number in 1..=processes {
        let skew = if misfit && number == processes {
            &base
        } else {
            "0"
        };
        let mut holder = Holder::start(segment.path()?, &size, skew, false)?;
        // One after the other: a hundred at once would only take turns.
        holder.wait_ready()?;
        holders.push(holder);
    }
    Ok(holders)
}

/// Returns the number of processes that `mem` reports on base pages, while others have huge pages.
fn misfits(sizes: &Sizes) -> Result<usize, Failed> {
    let segment = Segment::new(sizes.segment.get())?;
    let size = format!("{:#}", sizes.segment);
    let mut holders = vec![Holder::start(segment.path()?, &size, "0", true)?];
    holders[0].wait_ready()?;
    holders.extend(attach(&segment, sizes, sizes.few - 1, true)?);
    let output = Command::new(HUGELEAF).args(["mem", "--json"]).output()?;
    let json: Value = serde_json::from_slice(&output.stdout)?;
    let mut misfits = 0;
    for holder in &holders {
        let process = json["processes"]
            .as_array()
            .and_then(|all| all.iter().find(|p| p["pid"] == holder.pid()))
            .ok_or_else(|| format!("mem does not list {}", holder.pid()))?;
        let held = process["by_page_size"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let on_base: u64 = held
            .iter()
            .filter(|h| h["kind"] == "base")
            .filter_map(|h| h["bytes"].as_u64())
            .sum();
        misfits += usize::from(on_base > sizes.segment.get() / 2);
    }
    Ok(misfits)
}
