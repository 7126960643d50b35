//! Implements `hugeleaf try`: status, mem, why and prove within minutes on an embedded database.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use hugeleaf_host::{Fact, Host, ReadDetail, TargetError, read_owners, read_process};
use hugeleaf_proof::stats::percent;
use hugeleaf_proof::{ExperimentEnd, ExperimentEvent, try_experiment, write_whole};
use hugeleaf_report::document::TextOptions;
use hugeleaf_report::prove::whole_page;
use hugeleaf_report::try_::{TryView, json, page};
use hugeleaf_sys::{OnExisting, StagedFile};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::findings::findings;
use hugeleaf_verdict::why::account;
use hugeleaf_workload::{
    ChildCommand, ChildError, OltpProcess, StartupProgress, StartupStage, WorkloadSettings,
    default_cache,
};

use crate::context::{CommandStatus, Context, Failure, print_stderr};
use crate::progress::{Bar, BarLayout};

/// Seed of the rows and the drawn keys; the same in every `try`.
const SEED: u64 = 1;

/// Target duration of the whole run, and minimum duration of the measurement.
const WHOLE: Duration = Duration::from_secs(210);
const LEAST: Duration = Duration::from_secs(60);

/// Maximum width of the screen in columns; wider text is hard to read.
const WIDEST: usize = 100;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hugeleaf try                     a page cache of a quarter of free memory; under 4 minutes
  hugeleaf try --cache 512M --for 30s

No privilege is needed: the database promotes its own memory on request.
Exit status: 0 whatever the result. The status of prove depends on the verdict.")]
pub struct Args {
    /// Page cache size of the database [default: a quarter of free memory, at most 3G]
    #[arg(long, value_name = "SIZE")]
    cache: Option<Bytes>,
    /// Measurement time [default: the rest of 3.5 minutes, at least 60s]; stops early once the
    /// interval is within ±3 %
    #[arg(long = "for", value_name = "TIME", value_parser = hugeleaf_units::parse_time)]
    time: Option<Duration>,
    /// HTML page with samples and charts
    #[arg(long, value_name = "PATH", default_value = "hugeleaf-try.html")]
    html: PathBuf,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    context.need_live("try")?;
    let began = context.kernel.now();
    let settings = settings(args, context, &context.host()?)?;
    // An unwritable file must fail before minutes are spent on the experiment.
    StagedFile::begin(&args.html, OnExisting::Replaced)
        .map_err(|e| cannot_write(&args.html, &e.reason()))?;
    context.stop_on_signals()?;
    let mut steps = StepProgress::default();
    let workload = start(settings, context, &mut steps)?;
    steps.begin("run status, mem and why", 1);
    let mut host = context.with_wants(context.host()?);
    if let Fact::Known(owners) = read_owners(&context.root) {
        host.owners = owners;
    }
    let pid = workload.pid();
    let process = read_process(
        &context.root,
        &context.kernel,
        &host,
        pid,
        ReadDetail::Pages,
    )
    .map_err(TargetError::from)?;
    let accounts = account(&host, &process, &pid.to_string());
    let left = WHOLE.saturating_sub(context.kernel.now() - began);
    let time = args.time.unwrap_or(left.max(LEAST));
    steps.begin("prove: measure on base and huge pages", time.as_secs());
    let result = try_experiment::measure(
        &workload,
        (&context.root, &host),
        time,
        &mut |event| show(&steps, &event),
        &context.stop,
    )
    .map_err(|e| Failure::missing(format!("try: {e}"), e.next()))?;
    if result.experiment.ending == ExperimentEnd::Interrupted {
        return Err(Failure::no("try: stopped on request", "hugeleaf try"));
    }
    steps.clear();
    let (rows, cache) = (workload.ready().rows, workload.ready().segment.len());
    workload.stop();
    let html = whole_page(&result).html();
    write_whole(&args.html, &html).map_err(|e| cannot_write(&args.html, &e.reason))?;
    let it = TryView {
        host: &host,
        findings: &findings(&host),
        rows,
        cache,
        process: &process,
        accounts: &accounts,
        result: &result,
        html: &args.html.display().to_string(),
        seconds: (context.kernel.now() - began).as_secs_f64(),
    };
    let view = TextOptions {
        width: Context::width().min(WIDEST),
        ..Context::view(true)
    };
    context.answer(view, || json(&it, SEED), || page(&it))?;
    Ok(CommandStatus::Good)
}

fn show(steps: &StepProgress, event: &ExperimentEvent<'_>) {
    match event {
        ExperimentEvent::Measuring { pairs, elapsed, .. } => {
            steps.at(elapsed.as_secs(), &format!("{pairs} pairs"));
        }
        ExperimentEvent::Paired {
            pairs,
            interval,
            elapsed,
        } => {
            let so_far = interval.map_or_else(String::new, |i| {
                let width = (i.half_width().exp() - 1.0) * 100.0;
                format!(": {} % ±{width:.0} %", percent(i.center.exp()))
            });
            steps.at(elapsed.as_secs(), &format!("{pairs} pairs{so_far}"));
        }
        _ => {}
    }
}

fn cannot_write(path: &Path, reason: &str) -> Failure {
    Failure::missing(
        format!("try: {}: {reason}", path.display()),
        "hugeleaf try --html FILE    # a writable file, with free space",
    )
}

/// Returns settings of a database that fits this host.
fn settings(args: &Args, context: &Context, host: &Host) -> Result<WorkloadSettings, Failure> {
    let Some(align) = host.pmd_page.get() else {
        return Err(Failure::missing(
            "try: this kernel has no transparent huge pages",
            "hugeleaf status    # lists its page sizes",
        ));
    };
    if !context.kernel.supports_collapse() {
        return Err(Failure::missing(
            "try: this kernel does not have madvise(MADV_COLLAPSE)",
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
    // A container may have less memory than the host.
    let room = hugeleaf_host::limits::read_limits(&context.root, "self")
        .memory_room()
        .get();
    let available = room.map_or(available, |room| room.min(available));
    let cache = args.cache.unwrap_or_else(|| default_cache(available));
    // The database needs memory beside its pages, and the host needs a reserve.
    let beside = Bytes(cache.get() / 32) + Bytes::from_mib(64);
    if cache + beside > available {
        return Err(Failure::missing(
            format!("try: a page cache of {cache} does not fit: {available} of memory is free"),
            format!("hugeleaf try --cache {}", default_cache(available)),
        ));
    }
    Ok(WorkloadSettings {
        cache,
        align,
        seed: SEED,
    })
}

fn start(
    settings: WorkloadSettings,
    context: &Context,
    steps: &mut StepProgress,
) -> Result<OltpProcess, Failure> {
    let program = ChildCommand {
        path: context.root.path("proc/self/exe"),
        arguments: vec!["workload".into(), "oltp".into()],
    };
    let mut stage = None;
    let started = OltpProcess::spawn(settings, &program, &mut |p: StartupProgress| {
        if stage != Some(p.stage) {
            stage = Some(p.stage);
            let what = match p.stage {
                StartupStage::Populate => format!("allocate {} of memory", settings.cache),
                StartupStage::Fill => "fill a database with rows".to_owned(),
                StartupStage::Warm => "run the workload".to_owned(),
            };
            steps.begin(&what, p.total);
        }
        let note = match p.stage {
            StartupStage::Populate | StartupStage::Fill => Bytes(p.done).to_string(),
            StartupStage::Warm => String::new(),
        };
        steps.at(p.done, &note);
        if context.stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    steps.clear();
    started.map_err(failure)
}

/// Converts a failed start of the database into a failure with a remedy.
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
            "hugeleaf try --cache 256M    # a memory limit may be below free memory",
        ),
        _ => Failure::missing(what, "hugeleaf try --cache 256M"),
    }
}

/// Progress in five numbered steps: a bar on a terminal; in a pipe one plain line per step, and one every ten seconds. It goes to stderr to keep
/// the answer on stdout clean.
#[derive(Default)]
struct StepProgress {
    bar: Option<Bar>,
    number: usize,
}

impl StepProgress {
    /// Begins the next step, which ends at `total`.
    fn begin(&mut self, what: &str, total: u64) {
        self.clear();
        self.number += 1;
        let step = format!("[{}/5] {what}", self.number);
        let bar = Bar::new(BarLayout::Step, total);
        bar.set_prefix(&step);
        if !bar.is_drawn() {
            print_stderr(&step);
        }
        self.bar = Some(bar);
    }

    fn at(&self, done: u64, note: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(note);
        }
    }

    fn clear(&mut self) {
        self.bar = None;
    }
}
