//! Correctness of tests: programs that are by construction a tenth slower, or a tenth faster, on huge pages.

use crate::kit::{self, Guarding, Place, Worker};
use crate::record::{Record, median};
use crate::{Asked, Failed, Mode};

/// Runs the given number of tests for each direction.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let rounds = asked.rounds(10);
    let Some(_host) = kit::can_change("guard-proofs") else {
        return Ok(());
    };
    let (pairs, interval) = match asked.mode {
        Mode::Full => (12, "500ms"),
        Mode::Smoke => (8, "100ms"),
    };
    let mut record = Record::new("guard-proofs", "make bench");
    for (name, speed) in [("slower", 0.9), ("faster", 1.1)] {
        let (mut right, mut again, mut ratios) = (0, 0, Vec::new());
        for _ in 0..rounds {
            let place = Place::new();
            let counter = place.path("counter");
            let mut worker = Worker::start(&place, name, &counter, speed);
            worker.tell("grow 100");
            let test = format!(
                "metric = 'cmd:cat {counter}'\nkeep = 'unless-slower'\n\
                 prove = {{ pairs = {pairs}, every = '7d', over = '0s', interval = '{interval}', hold = '5s' }}"
            );
            let guard = Guarding::start(&place, &kit::rule(name, &test));
            guard.wait_long_for("it is tested", |s| {
                ["slower", "faster", "same", "unclear", "dropped"]
                    .iter()
                    .any(|verdict| s["counts"][*verdict].as_u64() > Some(0))
            });
            // Time for further scans: a slower program is demoted, and not promoted again.
            std::thread::sleep(std::time::Duration::from_secs(5));
            let status = guard.status();
            let is_large = worker.huge() > 90 << 20;
            let as_it_should = is_large == (speed > 1.0);
            right += usize::from(as_it_should);
            again += usize::from(status["counts"]["promotions"].as_u64() > Some(1));
            let ratio = &status["remembered"][0]["proven"]["ratio"];
            ratios.extend(ratio.as_f64());
            println!(
                "  {name}: large: {is_large}, {}",
                status["remembered"][0]["proven"]
            );
            worker.tell("");
            guard.end();
        }
        record.figure(format!("{name}: right of {rounds}"), right);
        record.figure(format!("{name}: tried again"), again);
        record.figure(format!("{name}: ratio, median"), median(&ratios));
        record.arm(name, "ratio", &ratios);
    }
    record.write(&asked.out)?;
    Ok(())
}
