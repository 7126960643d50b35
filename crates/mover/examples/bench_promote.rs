//! Compares the speed of `promote --budget 100%` with a bare loop over the system call, on the same warm memory of another process,
//! with arms in random order.
//!
//! ```text
//! cargo run --release -p hugeleaf-mover --example bench_promote -- --out FILE \
//!     [--size 1G] [--pairs 12]
//! ```
//!
//! Prints one line per sample, and the median of the ratios within pairs with its interval. Writes the raw samples with host,
//! kernel, settings and command to FILE. Needs root (CAP_SYS_NICE). `--size 16M --pairs 1` is the smoke mode that the tests run.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;

use hugeleaf_host::{Host, Root};
use hugeleaf_mover::{DemoteOptions, Percent, PromoteOptions, demote, promote};
use hugeleaf_sys::{Advice, Kernel, OwnMapping, Pid, Sharing};
use hugeleaf_units::{Bytes, PageSize, Range};
use serde_json::{Value, json};

type Failed = Box<dyn Error>;

struct Settings {
    out: PathBuf,
    size: Bytes,
    pairs: u32,
}

/// The compared arms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    /// `promote --budget 100%` as a whole: planning, promoting, reading back.
    Promote,
    /// One call per huge page.
    LoopByPage,
    /// One call per 64 MiB.
    LoopBy64M,
}

const ARMS: [Arm; 3] = [Arm::Promote, Arm::LoopByPage, Arm::LoopBy64M];

impl Arm {
    const fn label(self) -> &'static str {
        match self {
            Arm::Promote => "promote --budget 100%",
            Arm::LoopByPage => "bare loop, one huge page a call",
            Arm::LoopBy64M => "bare loop, 64 MiB a call",
        }
    }
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, size] = arguments.as_slice()
        && word == "victim"
    {
        return victim(size.parse()?);
    }
    let settings = parse(&arguments)?;
    let bench = Bench::start(&settings)?;
    let mut samples = Vec::new();
    for pair in 0..settings.pairs {
        let mut order = ARMS;
        fastrand::shuffle(&mut order);
        for arm in order {
            let (bytes, seconds) = bench.sample(arm)?;
            let rate = bytes.as_f64() / seconds;
            println!("{pair:>3}  {:<32} {bytes:>6} {seconds:.3} s", arm.label());
            samples.push((pair, arm, bytes, seconds, rate));
        }
    }
    let rates =
        |arm: Arm| -> Vec<f64> { samples.iter().filter(|s| s.1 == arm).map(|s| s.4).collect() };
    let ours = rates(Arm::Promote);
    let mut ratios = Vec::new();
    for arm in [Arm::LoopByPage, Arm::LoopBy64M] {
        let [low, median, high] = paired(&ours, &rates(arm));
        println!(
            "bytes a second, promote over {}: {median:.3} [{low:.3}, {high:.3}] 95 %",
            arm.label()
        );
        ratios.push(json!({"over": arm.label(), "median": median, "low": low, "high": high}));
    }
    let samples = samples.iter().map(|(pair, arm, bytes, seconds, _)| {
        json!({"pair": pair, "arm": arm.label(), "bytes": bytes.get(), "seconds": seconds})
    });
    let record = bench.record(samples.collect(), ratios.into(), &settings);
    std::fs::write(&settings.out, format!("{record:#}\n"))?;
    println!("wrote {}", settings.out.display());
    Ok(())
}

/// Returns the median of the ratios within pairs, between the ends of its 95 % interval. The interval uses order statistics that
/// leave out at most 2.5 % at each end, for any noise distribution (the sign test).
fn paired(ours: &[f64], theirs: &[f64]) -> [f64; 3] {
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    let n = ratios.len();
    // P(X = k) for n fair coins, from k = 0 up.
    let mut probability = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let (mut below, mut rank) = (probability, 0);
    while below <= 0.025 && rank < n / 2 {
        rank += 1;
        let step = (n - rank + 1) as f64 / rank as f64;
        probability *= step;
        below += probability;
    }
    let end = rank.saturating_sub(1);
    [ratios[end], ratios[n / 2], ratios[n - 1 - end]]
}

fn parse(arguments: &[String]) -> Result<Settings, Failed> {
    let mut settings = Settings {
        out: PathBuf::new(),
        size: Bytes(1 << 30),
        pairs: 12,
    };
    for pair in arguments.chunks(2) {
        match pair {
            [flag, value] if flag == "--out" => settings.out = value.into(),
            [flag, value] if flag == "--size" => settings.size = value.parse()?,
            [flag, value] if flag == "--pairs" => settings.pairs = value.parse()?,
            other => return Err(format!("unknown argument {other:?}").into()),
        }
    }
    if settings.out.as_os_str().is_empty() || settings.pairs == 0 {
        return Err("usage: bench_promote --out FILE [--size 1G] [--pairs 12]".into());
    }
    Ok(settings)
}

/// Runs the process whose memory is promoted: touches it, prints its address, and waits.
fn victim(size: Bytes) -> Result<(), Failed> {
    let mapping = OwnMapping::anonymous(size, Sharing::Private)?;
    mapping.touch(Kernel::new().base_page().bytes())?;
    println!("{} {}", mapping.range().start(), mapping.range().end());
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

struct Bench {
    kernel: Kernel,
    root: Root,
    host: Host,
    huge: PageSize,
    /// The range's fully covered blocks.
    memory: Range,
    child: Child,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bench {
    /// Starts the victim and warms its memory with both kinds of pages once.
    fn start(settings: &Settings) -> Result<Bench, Failed> {
        let (kernel, root) = (Kernel::new(), Root::live());
        let host = hugeleaf_host::read_host(&root, &kernel)?;
        let huge = host
            .pmd_page
            .get()
            .ok_or("no transparent huge pages here")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["victim", &format!("{:#}", settings.size)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let mut address =
            || -> Result<u64, Failed> { Ok(words.next().ok_or("no address")?.parse()?) };
        let memory = Range::new(address()?, address()?)?;
        let memory = memory.aligned_inside(huge).ok_or("--size is too small")?;
        let bench = Bench {
            kernel,
            root,
            host,
            huge,
            memory,
            child,
        };
        for arm in ARMS {
            bench.sample(arm)?;
        }
        Ok(bench)
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Promotes or demotes the memory, and reverts that outside the measured time.
    fn sample(&self, arm: Arm) -> Result<(Bytes, f64), Failed> {
        let before = self.kernel.now();
        let bytes = match arm {
            Arm::Promote => self.promote()?,
            Arm::LoopByPage => self.bare(self.huge)?,
            Arm::LoopBy64M => self.bare(PageSize::new(Bytes(64 << 20))?)?,
        };
        let seconds = (self.kernel.now() - before).as_secs_f64();
        let options = DemoteOptions {
            pace: Percent::ALL.into(),
            ..DemoteOptions::default()
        };
        let (never, mut quiet) = (
            AtomicBool::new(false),
            |_: &hugeleaf_mover::Progress<'_>| {},
        );
        demote(
            &self.kernel,
            &self.root,
            &self.host,
            &[self.pid()],
            &options,
            &mut quiet,
            &never,
        )?;
        Ok((bytes, seconds))
    }

    fn promote(&self) -> Result<Bytes, Failed> {
        let options = PromoteOptions {
            pace: Percent::ALL.into(),
            ..PromoteOptions::default()
        };
        let (never, mut quiet) = (
            AtomicBool::new(false),
            |_: &hugeleaf_mover::Progress<'_>| {},
        );
        let outcome = promote(
            &self.kernel,
            &self.root,
            &self.host,
            &[self.pid()],
            &options,
            &mut quiet,
            &never,
        )?;
        if std::env::var_os("BENCH_TIMES").is_some() {
            eprintln!(
                "     all {:.3} s, in calls {:.3} s",
                outcome.seconds,
                outcome.stalls.total.as_secs_f64()
            );
        }
        Ok(outcome.done())
    }

    /// Runs a naive loop: no plan, no check, no reading back. Each failed call is retried at most five times.
    fn bare(&self, step: PageSize) -> Result<Bytes, Failed> {
        let process = self.kernel.pidfd_open(self.pid())?;
        let mut moved = Bytes::ZERO;
        for chunk in self.memory.chunks(step) {
            for _ in 0..5 {
                let answer = self
                    .kernel
                    .process_madvise(&process, &[chunk], Advice::Collapse);
                if answer.is_ok() {
                    moved += chunk.len();
                    break;
                }
            }
        }
        Ok(moved)
    }

    fn record(&self, samples: Value, ratios: Value, settings: &Settings) -> Value {
        let thp = self.host.thp.known();
        let knob = |value: Option<&String>| value.cloned().unwrap_or_default();
        json!({
            "schema": 1,
            "experiment": {"name": "promote at full speed and a bare loop", "unit": "bytes/s", "better": "higher"},
            "command": format!(
                "bench_promote --size {} --pairs {}", settings.size, settings.pairs),
            "host": {
                "kernel": self.host.kernel.known(),
                "arch": self.host.arch.known(),
                "memory_bytes": self.host.memory.total.get().map(Bytes::get),
                "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            },
            "settings": {
                "thp_enabled": knob(thp.and_then(|t| t.enabled.known())),
                "thp_defrag": knob(thp.and_then(|t| t.defrag.known())),
                "huge_page_bytes": self.huge.bytes().get(),
                "memory_bytes": self.memory.len().get(),
                "warm": "both arms ran once before the first sample",
            },
            "ratios": ratios,
            "samples": samples,
        })
    }
}
