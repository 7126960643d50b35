//! Cost of watching 500 programs that hold 16 GiB on base pages, each a unit of its own in the metrics.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Holder, compile_worker, mib, named, used};
use crate::kit::{self, Guarding, Place};
use crate::record::{Record, median};
use crate::{Failed, Mode};

/// Runs the benchmark.
pub fn run(mode: Mode, out: &Path) -> Result<(), Failed> {
    let (count, each, sample, rounds) = match mode {
        Mode::Full => (500, 32, Duration::from_secs(60), 8),
        Mode::Smoke => (5, 2, Duration::from_secs(1), 1),
    };
    let Some(_host) = kit::can_change("guard-cost") else {
        return Ok(());
    };
    let mut record = Record::new("guard-cost", "make bench");
    let place = Place::new();
    let program = compile_worker(Path::new(&place.path("")))?;
    let mut holders = Vec::new();
    for n in 0..count {
        holders.push(Holder::start(
            &named(&program, &format!("unit-{n}"))?,
            each,
        )?);
    }
    let address = format!("127.0.0.1:{}", kit::free_port());
    let rules = format!(
        "schema = 1\nlisten = '{address}'\nseries = {count}\n[[rule]]\nname = 'unit-*'\naction = 'watch'\n\
         min_bytes = '1M'\nmin_cpu = '0%'\n"
    );
    let guard = Guarding::start(&place, &rules);
    let all = |s: &serde_json::Value| s["programs"].as_array().is_some_and(|p| p.len() >= count);
    if mode == Mode::Full {
        guard.wait_long_for("it knows them all", all);
    }
    let pid = guard.pid();
    let (mut shares, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (before, began) = (used(pid)?, Instant::now());
        std::thread::sleep(sample);
        shares.push((used(pid)? - before) / began.elapsed().as_secs_f64() * 100.0);
        resident.push(mib(pid, "VmRSS")?);
    }
    let (mut scrapes, mut units) = (Vec::new(), 0);
    for _ in 0..rounds * 25 {
        let began = Instant::now();
        let page = guard.page(&address, "/metrics");
        scrapes.push(began.elapsed().as_secs_f64() * 1e3);
        units = page
            .lines()
            .filter(|l| l.starts_with("hugeleaf_page_tables_bytes{"))
            .count();
    }
    scrapes.sort_by(f64::total_cmp);
    let p99 = scrapes[scrapes.len() * 99 / 100];
    record.figure("processes", count);
    record.figure(
        "GiB resident",
        f64::from(u32::try_from(count)?) * f64::from(u32::try_from(each)?) / 1024.0,
    );
    record.figure("percent of a processor, median of minutes", median(&shares));
    record.figure("MiB resident, most", mib(pid, "VmHWM")?);
    record.figure("units in a scrape", units);
    record.figure("ms a scrape, median", median(&scrapes));
    record.figure("ms a scrape, 99th percentile", p99);
    record.arm("processor", "percent", &shares);
    record.arm("resident", "MiB", &resident);
    record.arm("scrape", "ms", &scrapes);
    guard.end();
    drop(holders);
    record.write(out)?;
    Ok(())
}
