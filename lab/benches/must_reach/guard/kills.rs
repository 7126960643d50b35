//! Kills a guard at random moments while programs grow. The programs must not change except for their pages, and a
//! counter may only go back with a visible restart.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kit::{self, Guarding, Place, Worker};
use crate::record::Record;
use crate::{Asked, Failed};

/// Runs the benchmark with the given number of kills.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let kills = asked.rounds(200);
    let Some(_host) = kit::can_change("guard-kills") else {
        return Ok(());
    };
    let mut record = Record::new("guard-kills", "make bench");
    let place = Place::new();
    let address = format!("127.0.0.1:{}", kit::free_port());
    let rules = kit::rule("kill-*", "")
        .replace("budget = '100%'", "budget = '20%'")
        .replace("'off'", &format!("'{address}'"));
    let mut workers: Vec<Worker> = (0..4)
        .map(|n| Worker::start(&place, &format!("kill-{n}"), "-", 1.0))
        .collect();
    let mut random = fastrand::Rng::with_seed(1);
    let (mut disturbed, mut backwards, mut scraped) = (0, Vec::new(), 0);
    let mut last: (f64, BTreeMap<String, f64>) = Default::default();
    for kill in 0..kills {
        let guard = Guarding::start(&place, &rules);
        let one = &mut workers[kill % 4];
        // There is always something to move, but never much in total: a large worker is restarted.
        match one.resident() > 600 << 20 {
            true => *one = Worker::start(&place, &format!("kill-{}", kill % 4), "-", 1.0),
            false => one.tell("grow 48"),
        }
        std::thread::sleep(Duration::from_millis(random.u64(0..2500)));
        let page = guard.page(&address, "/metrics");
        scraped += 1;
        let (started, counters) = counters(&page);
        if started <= last.0 {
            backwards.push(format!("kill {kill}: the start did not change"));
        }
        last = (started, counters);
        // Read twice from one guard, whose counters must not go back.
        std::thread::sleep(Duration::from_millis(random.u64(0..500)));
        let (again, later) = self::counters(&guard.page(&address, "/metrics"));
        for (name, before) in &last.1 {
            let now = later.get(name).copied().unwrap_or(0.0);
            if again == started && now < *before {
                backwards.push(format!("kill {kill}: {name} from {before} to {now}"));
            }
        }
        guard.kill();
        for worker in &mut workers {
            disturbed += usize::from(worker.is_stopped_or_traced());
            // It answers, and finds everything that it wrote.
            worker.tell("");
        }
    }
    record.figure("kills", kills);
    record.figure("programs stopped, traced or damaged", disturbed);
    record.figure("scrapes", scraped * 2);
    record.figure("counters that went back", backwards.len());
    record.figure("which", backwards);
    record.write(&asked.out)?;
    Ok(())
}

/// Returns the start time of the guard, and all of its counters.
fn counters(page: &str) -> (f64, BTreeMap<String, f64>) {
    let all: BTreeMap<String, f64> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        })
        .collect();
    let started = all.get("process_start_time_seconds").copied();
    let counting = |(name, _): &(String, f64)| {
        name.split('{')
            .next()
            .is_some_and(|n| n.ends_with("_total"))
    };
    (
        started.unwrap_or(0.0),
        all.into_iter().filter(counting).collect(),
    )
}
