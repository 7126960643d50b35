//! Hours with programs that come and go: the guard's memory, descriptors, log and state stay as they were.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Holder, compile_worker, mib, named, used};
use crate::kit::{self, Guarding, Place};
use crate::record::{Record, median};
use crate::{Asked, Failed, Mode};

/// So many programs come and go.
const PROGRAMS: u32 = 10_000;
const MINUTES: usize = 120;
/// Of all that come, one in so many grows until it is worth moving.
const LARGE: u32 = 20;

/// Runs it for so many minutes as there are rounds.
#[expect(clippy::too_many_lines, reason = "one run")]
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let (minutes, minute) = match asked.mode {
        Mode::Full => (asked.rounds(MINUTES), Duration::from_secs(60)),
        Mode::Smoke => (2, Duration::from_secs(2)),
    };
    // All of them come in the time there is.
    let pause = minute * u32::try_from(minutes)? / PROGRAMS;
    // Without the host's lock, which others need meanwhile: it changes no setting, and only its own programs' pages.
    if hugeleaf_sys::effective_uid() != 0 {
        println!("not run: guard-soak: needs root");
        return Ok(());
    }
    let mut record = Record::new("guard-soak", "make soak");
    let place = Place::new();
    let program = compile_worker(Path::new(&place.path("")))?;
    let address = format!("127.0.0.1:{}", kit::free_port());
    let rules = format!(
        "schema = 1\nlisten = '{address}'\nlog_bytes = '256K'\npause_memory = '100%'\n[[rule]]\nname = 'soak-*'\n\
         action = 'promote'\nmin_bytes = '64M'\nmin_age = '5s'\nmin_cpu = '0%'\nlooks = 1\nbudget = '100%'\n"
    );
    let guard = Guarding::start(&place, &rules);
    let pid = guard.pid();
    let mut arms: [(&str, &str, Vec<f64>); 6] = [
        ("resident", "MiB", Vec::new()),
        ("descriptors", "", Vec::new()),
        ("threads", "", Vec::new()),
        ("log", "KiB", Vec::new()),
        ("state", "KiB", Vec::new()),
        ("processor", "percent", Vec::new()),
    ];
    let kib =
        |name: &str| std::fs::metadata(place.path(name)).map_or(0.0, |m| m.len() as f64 / 1024.0);
    let mut alive: std::collections::VecDeque<(Instant, Holder)> =
        std::collections::VecDeque::new();
    let (start, mut started) = (Instant::now(), 0u32);
    for _ in 0..minutes {
        let (before, began) = (used(pid)?, Instant::now());
        while began.elapsed() < minute {
            // Each lives for half a minute; names change, so that units come and go too.
            while alive
                .front()
                .is_some_and(|(since, _)| since.elapsed() > Duration::from_secs(30))
            {
                alive.pop_front();
            }
            let link = named(&program, &format!("soak-{started}"))?;
            let size = if started.is_multiple_of(LARGE) { 96 } else { 8 };
            alive.push_back((Instant::now(), Holder::start(&link, size)?));
            std::fs::remove_file(link)?;
            started += 1;
            let due = start + pause * started;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let processor = (used(pid)? - before) / began.elapsed().as_secs_f64() * 100.0;
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as f64;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.count() as f64;
        let log = kib("log/guard.jsonl") + kib("log/guard.jsonl.1");
        let now = [
            mib(pid, "VmRSS")?,
            descriptors,
            threads,
            log,
            kib("state/guard.json"),
            processor,
        ];
        for ((_, _, samples), value) in arms.iter_mut().zip(now) {
            samples.push(value);
        }
        println!("  {started} programs: {now:.1?}");
    }
    drop(alive);
    let status = guard.status();
    record.figure("programs that came and went", started);
    record.figure("promotions", status["counts"]["promotions"].clone());
    record.figure("problems", status["problems"].clone());
    for (name, unit, samples) in arms {
        let part = (samples.len() / 4).max(1);
        let most = samples.iter().copied().fold(0.0, f64::max);
        record.figure(
            format!("{name}: first quarter, last quarter, most"),
            serde_json::json!([
                median(&samples[..part]),
                median(&samples[samples.len() - part..]),
                most
            ]),
        );
        record.arm(name, unit, &samples);
    }
    guard.end();
    record.write(&asked.out)?;
    Ok(())
}
