//! The quantities of a run of `hugeleaf-lab mover`, and remarks on all of them.

use std::time::Duration;

use crate::kits::backup_io::{BackupIoResult, IoMode};
use hugeleaf_units::Bytes;

use crate::experiments::host_cpu_time::{DOING, HostCpuSeconds};
use hugeleaf_proof::result_format::{ArmInfo, Chart, Parameter, Quantity, Results};

const MOVED: &str = "data moved";
const CPU: &str = "CPU of the process a GiB";
/// Published values of the case behind this benchmark. MiB a second of a backup server on 4K pages with 2 readers
/// and 5 writers, on 16M pages with 2 and 7, and the ratio of both.
const PUBLISHED: [f64; 3] = [139.0, 378.0, 2.72];

pub(super) fn main() -> Quantity {
    Quantity::rate(MOVED, "MiB/s").main()
}

pub(super) fn charts() -> Vec<Chart> {
    vec![
        Chart::bars(MOVED, "Data moved, MiB a second"),
        Chart::bars(CPU, "CPU of the process a GiB"),
    ]
}

pub(super) fn remarks(modes: &[IoMode], results: &Results) -> Vec<String> {
    let [small, large, ratio] = PUBLISHED;
    let published = format!(
        "published for a backup server (256K, 2 readers, 5 and 7 writers): {small} to {large} MiB/s, ×{ratio}"
    );
    let each = modes
        .iter()
        .filter_map(|mode| contiguity(results, mode.name()));
    [published].into_iter().chain(each).collect()
}

/// Returns the part of the gain that split huge pages keep: contiguity alone.
fn contiguity(results: &Results, mode: &str) -> Option<String> {
    /// Minimum gain to divide; parts of a smaller gain are noise.
    const WORTH: f64 = 1.1;
    let at = [Parameter::text("mode", mode)];
    let row = |arm: &str| results.row(arm, &at, MOVED);
    // Huge before the run: one extent a block.
    let is_huge = |arm: &&ArmInfo| {
        let mut looks = results
            .layouts
            .iter()
            .filter(|l| l.arm == arm.name && l.at == at);
        let extents = looks.next().and_then(|look| look.extents_a_block);
        arm.name.starts_with("thp:") && extents.is_none_or(|extents| extents < 1.5)
    };
    let whole = results.arms.iter().find(is_huge)?;
    let first = row("scattered")?;
    let (split, gain) = (row("split")?.over(first)?, row(&whole.name)?.over(first)?);
    // A gain that may be zero has no parts.
    if gain.ratio < WORTH || gain.low <= 1.0 {
        return None;
    }
    let part = (split.ratio.ln() / gain.ratio.ln() * 100.0).clamp(0.0, 100.0);
    Some(format!(
        "{mode}: {part:.0} % of the gain of {} is contiguity (split pages keep only that: ×{:.2}); the rest is \
         translation and the unit of pinning",
        whole.name, split.ratio
    ))
}

/// Adds the throughput of the devices without a data path.
pub(super) fn add_bare(results: &mut Results, rate: f64) {
    const BARE: &str = "devices alone";
    if results.arms.iter().all(|arm| arm.name != BARE) {
        results.arms.push(ArmInfo::named(BARE));
    }
    results.add(BARE, &[], Quantity::rate(BARE, "MiB/s"), rate.into());
}

/// Returns MiB a second.
pub(super) fn rate(moved: Bytes, time: Duration) -> f64 {
    mib(moved) / time.as_secs_f64().max(f64::EPSILON)
}

fn mib(bytes: Bytes) -> f64 {
    bytes.as_f64() / Bytes::from_mib(1).as_f64()
}

/// Returns the number of writers at `rate` that add up to the arm's best write throughput without a limit.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn written_over(
    results: &Results,
    (arm, at): (&str, &[Parameter]),
    rate: Bytes,
) -> usize {
    let of = |what| {
        results
            .row(arm, at, what)
            .map_or_else(Vec::new, |row| row.values())
    };
    let runs = of("written").into_iter().zip(of("length"));
    let shares = runs.map(|(bytes, seconds)| bytes / seconds / rate.as_f64().max(1.0));
    shares.fold(1.0f64, f64::max) as usize
}

/// Returns all quantities of a run, with the use of the host's processors if known.
pub(super) fn of_run(moved: &BackupIoResult, host: Option<HostCpuSeconds>) -> Vec<(Quantity, f64)> {
    let usage = &moved.usage;
    let (length, worked) = (moved.time.as_secs_f64(), usage.processor().as_secs_f64());
    let both = moved.read + moved.written;
    let gib = Some(mib(both) / 1024.0).filter(|gib| *gib > 0.0);
    let threads = u32::try_from(moved.threads).map_or(1.0, f64::from);
    let all = (threads * length).max(f64::EPSILON);
    let plain = Quantity::plain;
    let mut seen = vec![(main(), rate(both, moved.time))];
    let a_gib = |name, seconds: f64| Some((Quantity::amount(name, "seconds"), seconds / gib?));
    seen.extend(a_gib(CPU, worked));
    seen.extend(host.and_then(|[user, system, ..]| a_gib("CPU of the host a GiB", user + system)));
    let lock = Some(moved.lock).filter(|lock| lock.count > 0);
    let lock_mean = Quantity::time("lock and unlock, mean", "seconds");
    seen.extend(lock.map(|lock| (lock_mean, lock.mean)));
    seen.extend([
        (plain("length", "seconds"), length),
        (plain("read", "bytes"), moved.read.as_f64()),
        (plain("written", "bytes"), moved.written.as_f64()),
        (plain("user", "seconds"), usage.user.as_secs_f64()),
        (plain("system", "seconds"), usage.system.as_secs_f64()),
        (
            plain("share of time waited", ""),
            (1.0 - worked / all).clamp(0.0, 1.0),
        ),
        (plain("waits", ""), usage.waits as f64),
    ]);
    let of_host = host
        .into_iter()
        .flat_map(|host| DOING.into_iter().zip(host));
    let of_host = of_host.map(|(doing, time)| (plain(&format!("host {doing}"), "seconds"), time));
    seen.extend(of_host);
    for (name, times) in [
        ("transfer", Some(moved.io)),
        ("lock and unlock", lock),
        ("page fault of a bystander", Some(moved.bystander)),
    ] {
        let Some(times) = times else {
            continue;
        };
        let named = |which| format!("{name}, {which}");
        for (which, seconds) in [
            ("mean", times.mean),
            ("p50", times.median),
            ("p99", times.p99),
            ("longest", times.max),
        ] {
            let quantity = Quantity::time(&named(which), "seconds");
            // The mean of a lock is already in the list.
            if seen.iter().all(|(known, _)| known.name != quantity.name) {
                seen.push((quantity, seconds));
            }
        }
        seen.push((plain(&named("count"), ""), times.count as f64));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_ratio_is_that_of_the_published_rates() {
        let [small, large, ratio] = PUBLISHED;
        assert!((large / small - ratio).abs() < 0.005);
    }
}
