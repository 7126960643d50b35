//! `hugeleaf try`: status, mem, why and prove in minutes, on a database that it brings along.

mod metric;
mod steps;

use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use hugeleaf_change::Percent;
use hugeleaf_host::{Fact, Host, Looking, Process, TargetError, read_owners, read_process};
use hugeleaf_proof::{
    Ending, Event, LiveSubject, ResultFile, Settings as ProofSettings, circumstances, write_whole,
};
use hugeleaf_report::json::SCHEMA;
use hugeleaf_report::mem::Mem;
use hugeleaf_report::page::View;
use hugeleaf_report::prove::whole_page;
use hugeleaf_report::status::status_json;
use hugeleaf_report::try_::{Try, page};
use hugeleaf_report::why::Why;
use hugeleaf_sys::Kernel;
use hugeleaf_units::Bytes;
use hugeleaf_verdict::findings::{Finding, findings};
use hugeleaf_verdict::why::{Account, account, summarise};
use hugeleaf_workload::{ChildError, Oltp, Program, Progress, Settings, Stage, default_cache};
use serde_json::{Value, json};

use crate::context::{Context, Failure, Status};
use metric::Operations;
use steps::Steps;

/// What the rows hold and which keys are drawn: the same in every `try`.
const SEED: u64 = 1;

/// So many intervals fit into the time, in addition to the moving between them; at least 16 are needed.
const INTERVALS: u32 = 50;
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(1);

/// How long all of it is to take, and how long there is at least to measure.
const WHOLE: Duration = Duration::from_secs(210);
const LEAST: Duration = Duration::from_secs(60);

/// A screen that is wider than this is not read more easily.
const WIDEST: usize = 100;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hugeleaf try                     a quarter of free memory, at most 3G; under four minutes
  hugeleaf try --cache 512M --for 30s
Needs no privilege: the database moves its own memory when asked.
Exit status: 0 whatever the experiment says; prove answers by its status.")]
pub struct Args {
    /// Size of the database's page cache [default: a quarter of free memory, at most 3G]
    #[arg(long, value_name = "SIZE")]
    cache: Option<Bytes>,
    /// How long to measure [default: what is left of 3.5 minutes]; ends earlier once the result
    /// is within ±3 %
    #[arg(long = "for", value_name = "TIME", value_parser = crate::context::parse_time)]
    time: Option<Duration>,
    /// Where to write the page with samples and charts
    #[arg(long, value_name = "PATH", default_value = "hugeleaf-try.html")]
    html: PathBuf,
}

/// Runs it.
pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    context.need_live("try")?;
    let began = context.kernel.now();
    let settings = settings(args, context, &context.host()?)?;
    check_writable(&args.html)?;
    context.stop_on_signals()?;
    let mut steps = Steps::new(5);
    let workload = start(settings, context, &mut steps)?;
    let built = Built {
        rows: workload.ready().rows,
        cache: workload.ready().segment.len(),
    };
    steps.begin("status, mem and why of it", 1);
    let seen = look(context, &workload)?;
    let left = WHOLE
        .saturating_sub(context.kernel.now() - began)
        .max(LEAST);
    let time = args.time.unwrap_or(left);
    let result = prove(time, context, &workload, &seen.host, &mut steps)?;
    steps.clear();
    workload.stop();
    let page = whole_page(&result).html();
    write_whole(&args.html, &page).map_err(|e| cannot_write(&args.html, &e.reason))?;
    let seconds = (context.kernel.now() - began).as_secs_f64();
    Context::print(&match context.json {
        true => answer(&seen, &result, &built, seconds),
        false => screen(args, &seen, &result, &built, seconds),
    })?;
    Ok(Status::Good)
}

/// What was built.
struct Built {
    rows: u64,
    cache: Bytes,
}

/// What `status`, `mem` and `why` say while the database works.
struct Seen {
    host: Host,
    findings: Vec<Finding>,
    process: Process,
    accounts: Vec<Account>,
}

fn look(context: &Context, workload: &Oltp) -> Result<Seen, Failure> {
    let mut host = context.host()?;
    if let Fact::Known(owners) = read_owners(&context.root) {
        host.owners = owners;
    }
    let pid = workload.pid();
    let process = read_process(&context.root, &context.kernel, &host, pid, Looking::Pages)
        .map_err(TargetError::from)?;
    Ok(Seen {
        findings: findings(&host),
        accounts: account(&host, &process, &pid.to_string()),
        host,
        process,
    })
}

/// Measures it on base and on large pages, and leaves it as it was.
fn prove(
    time: Duration,
    context: &Context,
    workload: &Oltp,
    host: &Host,
    steps: &mut Steps,
) -> Result<ResultFile, Failure> {
    let kernel = workload.kernel();
    let pids = [workload.pid()];
    let (root, name) = (&context.root, "the database of hugeleaf try");
    let mut subject = LiveSubject::new(&kernel, root, host, name, &pids, Percent::ALL);
    let mut metric = Operations(workload.client());
    let interval = (time / INTERVALS).clamp(SHORTEST, LONGEST);
    let settings = ProofSettings {
        interval,
        settle: interval / 4,
        limit: time,
        ..ProofSettings::default()
    };
    let command: Vec<String> = std::env::args().collect();
    let circumstances = circumstances(root, host, &command);
    steps.begin("prove: measure on base and large pages", time.as_secs());
    let result = hugeleaf_proof::run(
        &mut subject,
        &mut metric,
        &kernel,
        &settings,
        &circumstances,
        &mut |event| show(steps, &event),
        &context.stop,
    )
    .map_err(|e| Failure::missing(format!("try: {e}"), e.next()))?;
    match result.experiment.ending {
        Ending::Interrupted => Err(Failure::no("try: stopped on request", "hugeleaf try")),
        _ => Ok(result),
    }
}

/// How far the experiment is.
fn show(steps: &Steps, event: &Event<'_>) {
    match event {
        Event::Measuring { pairs, elapsed, .. } => {
            steps.at(elapsed.as_secs(), format!("{pairs} pairs"));
        }
        Event::Paired {
            pairs,
            interval,
            elapsed,
        } => {
            let so_far = interval.map_or_else(String::new, |i| {
                let width = (i.half_width().exp() - 1.0) * 100.0;
                format!(": ×{:.2} ±{width:.0} %", i.center.exp())
            });
            steps.at(elapsed.as_secs(), format!("{pairs} pairs{so_far}"));
        }
        _ => {}
    }
}

/// The screen.
fn screen(args: &Args, seen: &Seen, result: &ResultFile, built: &Built, seconds: f64) -> String {
    let html = args.html.display().to_string();
    let it = Try {
        host: &seen.host,
        findings: &seen.findings,
        rows: built.rows,
        cache: built.cache,
        process: &seen.process,
        why: &summarise(&[(&seen.process, &seen.accounts)]),
        result,
        html: &html,
        seconds,
    };
    page(&it).text(View {
        width: Context::width().min(WIDEST),
        ..Context::view(true)
    })
}

/// The answers of all four commands, each as that command gives it.
fn answer(seen: &Seen, result: &ResultFile, built: &Built, seconds: f64) -> String {
    let processes = std::slice::from_ref(&seen.process);
    let mem = Mem {
        host: &seen.host,
        processes,
        shared: &[],
        targeted: true,
        accounts: std::slice::from_ref(&seen.accounts),
        roles: &[],
    };
    let why = Why {
        judged: &[(&seen.process, &seen.accounts)],
        unread: &[],
    };
    // Whole answers, as they are: what is null in them stays.
    let answer = json!({
        "schema": SCHEMA,
        "workload": {
            "name": "oltp",
            "rows": built.rows,
            "cache_bytes": built.cache,
            "seed": SEED,
        },
        "status": value(&status_json(&seen.host, &seen.findings)),
        "mem": value(&mem.json()),
        "why": value(&why.json()),
        "prove": value(&result.to_json()),
        "seconds": seconds,
    });
    format!("{answer:#}\n")
}

/// An answer as a part of another one.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// Makes sure that the page can be written before minutes are spent on it.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let is_new = !path.exists();
    OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .map_err(|e| cannot_write(path, &e.to_string()))?;
    if is_new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

fn cannot_write(path: &Path, reason: &str) -> Failure {
    Failure::missing(
        format!("try: {}: {reason}", path.display()),
        "hugeleaf try --html FILE    # where there is room and you may write",
    )
}

/// The database that fits this host, or why none does.
fn settings(args: &Args, context: &Context, host: &Host) -> Result<Settings, Failure> {
    let Some(align) = host.pmd_page.get() else {
        return Err(Failure::missing(
            "try: this kernel has no transparent huge pages to move a database to",
            "hugeleaf status    # which page sizes it has",
        ));
    };
    if !context.kernel.knows_collapse() {
        return Err(Failure::missing(
            "try: madvise(MADV_COLLAPSE): this kernel does not know it",
            "boot Linux 6.1 or later; until then: hugeleaf status",
        ));
    }
    let memory = &host.memory;
    let Some(available) = memory.available.get().or(memory.free.get()) else {
        return Err(match memory.available.error() {
            Some(error) => error.clone().into(),
            None => Failure::missing(
                "try: /proc/meminfo does not say how much memory is free",
                "hugeleaf try --cache 512M",
            ),
        });
    };
    // A container may have less than the host.
    let room = hugeleaf_host::system::memory_room(&context.root).get();
    let available = room.map_or(available, |room| room.min(available));
    let cache = args.cache.unwrap_or_else(|| default_cache(available));
    // What the database needs in addition to its pages, and what a host should never be without.
    let beside = Bytes(cache.get() / 32) + Bytes::from_mib(64);
    if cache + beside > available {
        return Err(Failure::missing(
            format!("try: a page cache of {cache} does not fit: {available} of memory is free"),
            format!("hugeleaf try --cache {}", default_cache(available)),
        ));
    }
    Ok(Settings {
        cache,
        align,
        seed: SEED,
    })
}

/// Starts the database and shows how it fills.
fn start(settings: Settings, context: &Context, steps: &mut Steps) -> Result<Oltp, Failure> {
    let program = Program {
        path: context.root.path("proc/self/exe"),
        arguments: vec!["workload".into(), "oltp".into()],
    };
    let mut stage = None;
    let started = Oltp::spawn(settings, &program, &mut |p: Progress| {
        if stage != Some(p.stage) {
            stage = Some(p.stage);
            let what = match p.stage {
                Stage::Populate => format!("take {} of memory", settings.cache),
                Stage::Fill => "fill a database with rows".to_owned(),
                Stage::Warm => "put it to work".to_owned(),
            };
            steps.begin(&what, p.total);
        }
        let note = match p.stage {
            Stage::Populate | Stage::Fill => Bytes(p.done).to_string(),
            Stage::Warm => String::new(),
        };
        steps.at(p.done, note);
        if context.stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    steps.clear();
    started.map_err(failure)
}

/// Why the database did not come up, and what to try.
fn failure(error: ChildError) -> Failure {
    let what = format!("try: {error}");
    match error {
        ChildError::TooSmall { least, .. } => Failure::missing(
            what,
            format!("free some memory, or: hugeleaf try --cache {least}"),
        ),
        ChildError::Stopped => Failure::no(what, "hugeleaf try"),
        ChildError::Ended { .. } => Failure::missing(
            what,
            "hugeleaf try --cache 256M    # a limit on memory may be below what is free",
        ),
        _ => Failure::missing(what, "hugeleaf try --cache 256M"),
    }
}
