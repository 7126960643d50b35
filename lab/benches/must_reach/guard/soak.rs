//! Hours with programs that start, end, fork and reuse PIDs, and with metrics that fail. The guard's memory,
//! descriptors, log and state must stay constant, and memory that no rule names must stay unchanged.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hugeleaf_host::process::maps::read_smaps_lines;
use serde_json::{Value, json};

use super::{Holder, compile, mib, named, used};
use crate::kit::{self, Guarding, Place};
use crate::record::{Record, median};
use crate::{Asked, Failed, Mode};

/// Number of programs that start in two hours.
const PROGRAMS: u32 = 10_000;
const MINUTES: usize = 120;
/// Lifetime of each program.
const LIFE: Duration = Duration::from_secs(30);
/// One program in this number is large enough to be promoted.
const LARGE: u32 = 20;

/// Metrics that fail in different ways: an error, a hang, no number, no server, a constant number.
const METRICS: [&str; 5] = [
    "cmd:false",
    "cmd:sleep 1000",
    "cmd:echo none",
    "http://127.0.0.1:1/metrics#x",
    "cmd:echo 7",
];

/// Runs for as many minutes as there are rounds.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let (minutes, minute) = match asked.mode {
        Mode::Full => (asked.rounds(MINUTES), Duration::from_secs(60)),
        Mode::Smoke => (2, Duration::from_secs(2)),
    };
    // Runs without the host's lock, which others need. It changes no setting, and only its own programs' pages.
    if hugeleaf_sys::effective_uid() != 0 {
        println!("not run: guard-soak: needs root");
        return Ok(());
    }
    let mut record = Record::new("guard-soak", "make soak");
    let place = Place::new();
    let guard = Guarding::start(&place, &rules());
    let pause = Duration::from_secs(60) * u32::try_from(MINUTES)? / PROGRAMS;
    let mut crowd = Processes::new(&place, pause)?;
    let mut samples = Samples::default();
    for _ in 0..minutes {
        let (before, began) = (used(guard.pid())?, Instant::now());
        crowd.come_and_go(minute)?;
        let processor = (used(guard.pid())? - before) / began.elapsed().as_secs_f64() * 100.0;
        let now = samples.take(&place, guard.pid(), processor)?;
        crowd.compare_moved(&guard)?;
        println!("  {} programs: {now:.1?}", crowd.started);
    }
    let status = guard.status();
    record.figure("promotions", status["counts"]["promotions"].clone());
    record.figure("problems", status["problems"].clone());
    crowd.figures(&mut record);
    samples.figures(&mut record);
    guard.end();
    record.write(&asked.out)?;
    Ok(())
}

fn rules() -> String {
    let address = format!("127.0.0.1:{}", kit::free_port());
    let rule = "action = 'promote'\nmin_bytes = '64M'\nmin_age = '5s'\nmin_cpu = '0%'\nlooks = 1\nbudget = '100%'\n";
    let mut text = format!(
        "schema = 1\nevery = '1s'\nlisten = '{address}'\nlog_bytes = '256K'\npause_memory = '100%'\n\
         pause_cpu = '1000%'\ncpu = '100%'\n[[rule]]\nname = 'soak-*'\n{rule}"
    );
    for (n, metric) in METRICS.iter().enumerate() {
        text += &format!(
            "[[rule]]\nname = 'failing{n}-*'\n{rule}metric = '{metric}'\n\
             prove = {{ pairs = 8, every = '1m', over = '0s', interval = '1s' }}\n"
        );
    }
    text
}

/// A program, and its initial huge pages.
struct Alive {
    since: Instant,
    holder: Holder,
    is_large: bool,
    /// Set for a program that no rule names.
    huge: Option<u64>,
}

#[derive(Default)]
struct Processes {
    program: PathBuf,
    pause: Duration,
    alive: VecDeque<Alive>,
    started: u32,
    /// Unmanaged programs that got the PID of a promoted program, and those that lost huge pages until their end.
    reused_pids: u32,
    lost_huge: u32,
    /// Promoted memory, as reported by the guard, minus huge pages of those programs, in bytes.
    excess: Vec<f64>,
}

impl Processes {
    fn new(place: &Place, pause: Duration) -> Result<Processes, Failed> {
        Ok(Processes {
            program: compile(
                "benches/must_reach/guard/churn.c",
                Path::new(&place.path("")),
            )?,
            pause,
            ..Processes::default()
        })
    }

    fn come_and_go(&mut self, time: Duration) -> Result<(), Failed> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            let next = Instant::now() + self.pause;
            self.end_the_old()?;
            self.start_one()?;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    /// Starts a program under a new name, so that units appear and disappear too.
    fn start_one(&mut self) -> Result<(), Failed> {
        let n = self.started;
        self.started += 1;
        let is_large = n.is_multiple_of(LARGE);
        let name = match n / LARGE % 4 {
            0 if is_large => format!("failing{}-{n}", n as usize / 80 % METRICS.len()),
            _ => format!("soak-{n}"),
        };
        let children = if n.is_multiple_of(LARGE * 3) {
            "2"
        } else {
            "0"
        };
        let size = if is_large { "96" } else { "8" };
        let link = named(&self.program, &name)?;
        let holder = Holder::spawn(&link, &[size, children, "base"])?;
        std::fs::remove_file(link)?;
        self.alive.push_back(Alive {
            since: Instant::now(),
            holder,
            is_large,
            huge: None,
        });
        Ok(())
    }

    fn end_the_old(&mut self) -> Result<(), Failed> {
        while self
            .alive
            .front()
            .is_some_and(|old| old.since.elapsed() > LIFE)
        {
            let Some(old) = self.alive.pop_front() else {
                break;
            };
            if let Some(began_with) = old.huge {
                self.lost_huge += u32::from(huge_bytes(old.holder.pid())? < began_with);
            }
            let pid = old.holder.pid();
            drop(old.holder);
            if old.is_large {
                self.follow(pid)?;
            }
        }
        Ok(())
    }

    /// Starts an unmanaged program with that PID, and with huge pages like the program before.
    fn follow(&mut self, pid: u32) -> Result<(), Failed> {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string())?;
        let link = named(&self.program, &format!("stranger-{}", self.started))?;
        let holder = Holder::spawn(&link, &["32", "0", "huge"])?;
        std::fs::remove_file(link)?;
        self.reused_pids += u32::from(holder.pid() == pid);
        let huge = Some(huge_bytes(holder.pid())?);
        self.alive.push_back(Alive {
            since: Instant::now(),
            holder,
            is_large: false,
            huge,
        });
        Ok(())
    }

    /// Compares the guard's promoted memory with smaps.
    fn compare_moved(&mut self, guard: &Guarding<'_>) -> Result<(), Failed> {
        let status = guard.status();
        for alive in self.alive.iter().filter(|alive| alive.is_large) {
            let moved = guard
                .program(&status, alive.holder.pid())
                .map_or(0, |program| {
                    program["promoted_bytes"].as_u64().unwrap_or_default()
                });
            // The guard counts a process tree.
            let pid = alive.holder.pid();
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            let mut huge = huge_bytes(pid)?;
            for child in children.split_whitespace() {
                huge += huge_bytes(child.parse()?)?;
            }
            self.excess.push(moved.saturating_sub(huge) as f64);
        }
        Ok(())
    }

    fn figures(&self, record: &mut Record) {
        record.figure("programs that came and went", self.started);
        record.figure(
            "strangers that got the PID of one that had been moved",
            self.reused_pids,
        );
        record.figure("strangers that lost huge pages", self.lost_huge);
        let most = self.excess.iter().copied().fold(0.0, f64::max);
        record.figure("bytes said to be moved beyond smaps, at most", most);
        record.figure("comparisons with smaps", self.excess.len());
    }
}

fn huge_bytes(pid: u32) -> Result<u64, Failed> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(read_smaps_lines(&mut text.as_bytes())??
        .iter()
        .map(|sum| sum.counts.pmd_mapped.get())
        .sum())
}

/// Values that must stay flat, one sample a minute.
#[derive(Default)]
struct Samples([Vec<f64>; 6]);

impl Samples {
    const NAMES: [(&'static str, &'static str); 6] = [
        ("resident", "MiB"),
        ("descriptors", ""),
        ("threads", ""),
        ("log", "KiB"),
        ("state", "KiB"),
        ("processor", "percent"),
    ];

    fn take(&mut self, place: &Place, pid: u32, processor: f64) -> Result<[f64; 6], Failed> {
        let entries = |folder: &str| -> Result<f64, Failed> {
            Ok(std::fs::read_dir(format!("/proc/{pid}/{folder}"))?.count() as f64)
        };
        let kib = |name: &str| {
            std::fs::metadata(place.path(name)).map_or(0.0, |file| file.len() as f64 / 1024.0)
        };
        let now = [
            mib(pid, "VmRSS")?,
            entries("fd")?,
            entries("task")?,
            kib("log/guard.jsonl") + kib("log/guard.jsonl.1"),
            kib("state/guard.json"),
            processor,
        ];
        for (samples, value) in self.0.iter_mut().zip(now) {
            samples.push(value);
        }
        Ok(now)
    }

    fn figures(&self, record: &mut Record) {
        for ((name, unit), samples) in Samples::NAMES.into_iter().zip(&self.0) {
            let part = (samples.len() / 4).max(1);
            let most = samples.iter().copied().fold(0.0, f64::max);
            let quarters: [Value; 3] = [
                json!(median(&samples[..part])),
                json!(median(&samples[samples.len() - part..])),
                json!(most),
            ];
            record.figure(
                format!("{name}: first quarter, last quarter, most"),
                quarters.to_vec(),
            );
            record.arm(name, unit, samples);
        }
    }
}
