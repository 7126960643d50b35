//! Cost of `top`: its share of a processor with 1,000 sleeping processes, in a terminal of 80×24 and in one of 120×40.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::guard::used;
use crate::record::{Record, median};
use crate::{Failed, HUGELEAF, Mode};
use hugeleaf_testkit::ChildGuard;
use hugeleaf_testkit::terminal::Terminal;

/// The first scans are not counted, because they also read the user and the unit of each process.
const WARM: Duration = Duration::from_secs(5);

/// Reads the output of a terminal for a time.
fn draw(terminal: &mut Terminal, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        terminal.take(Duration::from_millis(50));
    }
}

/// Runs the benchmark.
pub fn run(mode: Mode, out: &Path) -> Result<(), Failed> {
    let (count, sample, rounds) = match mode {
        Mode::Full => (1000, Duration::from_secs(30), 6),
        Mode::Smoke => (20, Duration::from_secs(1), 1),
    };
    let mut record = Record::new("top", "make bench");
    let sleeper = |_| -> Result<ChildGuard, Failed> {
        let mut sleep = Command::new("sleep");
        Ok(ChildGuard(sleep.arg("3600").stdin(Stdio::null()).spawn()?))
    };
    let sleepers = (0..count).map(sleeper).collect::<Result<Vec<_>, _>>()?;
    for size in [(80, 24), (120, 40)] {
        let mut terminal = Terminal::start(Path::new(HUGELEAF), &["top", "--read-only"], size);
        draw(&mut terminal, WARM);
        let pid = terminal.child.0.id();
        let mut shares = Vec::new();
        for _ in 0..rounds {
            let (before, began) = (used(pid)?, Instant::now());
            draw(&mut terminal, sample);
            shares.push((used(pid)? - before) / began.elapsed().as_secs_f64() * 100.0);
        }
        terminal.types("q");
        let label = format!("{}x{}", size.0, size.1);
        record.figure(
            format!("{count} processes, {label}: percent of a processor"),
            median(&shares),
        );
        record.arm(label, "percent", &shares);
        terminal.end();
    }
    drop(sleepers);
    record.write(out)?;
    Ok(())
}
