//! Implements `hugeleaf run`.
//!
//! Judges the policy against the host, sets two environment variables, and becomes the program by exec. Process id, exit status, signals
//! and terminal therefore need no forwarding. Only with `--report` it stays as the parent process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use hugeleaf_host::limits;
use hugeleaf_host::{
    Host, ProgramError, ProgramFile, RunPageKind, find_program, has_hidden_sqlite,
};
use hugeleaf_launcher::{
    PreloadLibrary, PreparedWatch, SqliteCacheSettings, WatchReport, find_obstacle, library_for,
    place, set_numa, variables,
};
use hugeleaf_proof::{circumstances, write_whole};
use hugeleaf_report::document::TextOptions;
use hugeleaf_report::json::answer;
use hugeleaf_report::run::{ProgramExit, RecordedSettings, RunReport, hidden_sqlite_line};
use hugeleaf_report::run_preview::{RunPreview, json, mapping, missing_line, page};
use hugeleaf_sys::{ChildExit, ChildProgram, OnExisting, Pid, StagedFile, end_by, own_pid};
use hugeleaf_units::{Bytes, Ladder, PageKind, Rung};
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::run_policy::ldr_cntrl::{AixRequest, translate};
use hugeleaf_verdict::run_policy::{
    NumaPolicy, PagePolicy, PreloadObstacle, ResolvedPolicy, RunFlags, RunMemoryKind, resolve,
};

use crate::context::{Context, Failure, print_failure, print_stderr};

/// The library that is loaded into programs; empty if not built for this architecture.
const LIBRARY: PreloadLibrary = PreloadLibrary::run(include_bytes!(concat!(
    env!("OUT_DIR"),
    "/libhugeleaf_run.so"
)));

/// The library that provides the page cache for the SQLite of programs.
const SQLITE: PreloadLibrary = PreloadLibrary::sqlite(include_bytes!(concat!(
    env!("OUT_DIR"),
    "/libhugeleaf_sqlite.so"
)));

/// Exit statuses of env(1): its own failure, program not executable, program not found.
pub const OWN_FAILURE: u8 = 125;
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Minimum size of SQLite's cache. A smaller one is hard to divide.
const LEAST: Bytes = Bytes::from_mib(16);

/// Environment variables that AIX administrators set.
const LDR_CNTRL: &str = "LDR_CNTRL";
const LARGE_PAGE_DATA: &str = "LARGE_PAGE_DATA";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A ladder is a list of page sizes to try in order, e.g. 1G,2M. Base pages are the last resort, unless
the ladder ends in !, which makes its sizes mandatory. A size can name its kind: hugetlb:2M, thp:2M.
auto is the largest size that this host can give without depriving other programs; base leaves the
memory unchanged.

Examples:
  hugeleaf run -- redis-server                    huge pages for data, shared memory, large stacks
  hugeleaf run --dry-run --shm 1G,2M -- postgres  print the settings, and what is unavailable
  hugeleaf run --data 2M! --reserve 8G -- server  8G of data on 2M pages, or fail to start
  hugeleaf run --ldr-cntrl DATAPSIZE=64K@SHMPSIZE=16M -- server   as on AIX
  hugeleaf run --sqlite 2G -- python3 app.py      one page cache for all databases, on huge pages
  hugeleaf run --report pages.json -- sort big    requested and actual pages by role, at exit

Exit status: the program's own; 125 hugeleaf run failed, 126 the program cannot be executed, 127 the
program was not found.")]
pub struct Args {
    /// Pages for private memory (data, BSS, heap and the rest): a ladder, auto or base [default:
    /// auto]
    #[arg(long, value_name = "LADDER")]
    data: Option<PagePolicy>,
    /// Pages for shared memory: SysV, POSIX, memfd, shared anonymous [default: auto]
    #[arg(long, value_name = "LADDER")]
    shm: Option<PagePolicy>,
    /// Pages for the initial stack and thread stacks [default: auto]
    #[arg(long, value_name = "LADDER")]
    stack: Option<PagePolicy>,
    /// Pages for the program's code [default: unchanged]
    #[arg(long, value_name = "LADDER")]
    text: Option<PagePolicy>,
    /// Allocate this much for data before the program runs
    #[arg(long, value_name = "BYTES")]
    reserve: Option<Bytes>,
    /// Give the program's SQLite one page cache of this size for all connections and databases, on
    /// THP if data gets huge pages. Each process that uses SQLite as a shared library has its own
    #[arg(long, value_name = "BYTES")]
    sqlite: Option<Bytes>,
    /// NUMA policy: bind=NODES, prefer=NODE, interleave=NODES or local
    #[arg(long, value_name = "POLICY")]
    numa: Option<NumaPolicy>,
    /// Write requested and actual pages by role to this file at exit; - is standard error
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Apply only to executables with these names, among the program and those it starts
    #[arg(long, value_name = "EXE", num_args = 1.., value_delimiter = ',')]
    only: Vec<String>,
    /// Page sizes in AIX syntax, KEY=SIZE joined by @ [default: the variable LDR_CNTRL]
    #[arg(long, value_name = "STRING")]
    ldr_cntrl: Option<String>,
    /// Print the settings; start nothing
    #[arg(long)]
    dry_run: bool,
    /// Program and its arguments
    #[arg(value_name = "CMD", last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command. Without `--report` it returns only on failure or a dry run, because the program replaces this process.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, Failure> {
    prepare_and_start(args, context).map_err(|failure| match failure.status {
        NOT_RUNNABLE | NOT_FOUND => failure,
        _ => failure.with_status(OWN_FAILURE),
    })
}

fn prepare_and_start(args: &Args, context: &Context) -> Result<ExitCode, Failure> {
    check(args, context)?;
    let host = hugeleaf_host::read_start_facts(&context.root, &context.kernel)?;
    let (policy, mapped) = policy(args, &host)?;
    let room = limits::read_limits(&context.root, "self")
        .memory_room()
        .get();
    check_cache(args.sqlite, &host, room)?;
    let settled = resolve(&policy, &host, room);
    let settled = match settled {
        Ok(settled) if settled.missing.is_empty() => settled,
        // Advice is printed. Only then the wants of all programs are read, which takes longer than the rest.
        _ => resolve(&policy, &context.with_wants(host), room)?,
    };
    let program = program(args, context)?;
    let obstacle = program.as_ref().and_then(|p| find_obstacle(&policy, p));
    let hides_sqlite =
        |program: &&ProgramFile| args.sqlite.is_some() && has_hidden_sqlite(&program.path);
    let hidden_sqlite = program.as_ref().filter(hides_sqlite);
    if let (Some(obstacle), Some(role)) = (&obstacle, policy.mandatory()) {
        return Err(mandatory_failed(&policy, role, obstacle));
    }
    if args.dry_run {
        return dry_run(args, context, settled, obstacle);
    }
    // The width is fixed so that logs and terminals show the same text.
    print_stderr(&mapping(&mapped, &typed(args)).text(TextOptions::plain(100)));
    print_stderr(&missing_line(&settled.missing).unwrap_or_default());
    if let Some(program) = hidden_sqlite {
        print_stderr(&format!("{}\n", hidden_sqlite_line(&program.path)));
    }
    set_numa(&policy)?;
    if args.report.is_some() {
        return start_and_watch(args, context, settled, obstacle.as_ref());
    }
    let mut command = command(args, &settled, obstacle.as_ref())?;
    if let Some(obstacle) = &obstacle {
        // Standard output belongs to the program, which keeps this process's id.
        print_stderr(&obstacle_line(obstacle, own_pid()));
    }
    Err(not_started(args, &hugeleaf_sys::exec(&mut command)))
}

/// Rejects flags that contradict each other.
fn check(args: &Args, context: &Context) -> Result<(), Failure> {
    if !args.dry_run {
        context.need_live("run")?;
    }
    if context.json && !args.dry_run {
        return Err(Failure::usage(
            "run: --json: standard output belongs to the program",
            "hugeleaf run --dry-run --json, or --report FILE, which is JSON",
        ));
    }
    // The library reads these characters as separators in its variable.
    let wrong = |name: &&String| name.is_empty() || name.contains([';', ':', '/', '=']);
    match args.only.iter().find(wrong) {
        Some(name) => Err(Failure::usage(
            format!("run: --only '{name}' is not the name of an executable file"),
            "write names without their folders, as in --only postgres,initdb",
        )),
        None => Ok(()),
    }
}

/// Checks that the cache fits into memory. Otherwise it would stay unpopulated without any message.
fn check_cache(size: Option<Bytes>, host: &Host, room: Option<Bytes>) -> Result<(), Failure> {
    let Some(size) = size else {
        return Ok(());
    };
    if size < LEAST {
        return Err(Failure::usage(
            format!("run: --sqlite {size} is too small for a cache"),
            "give 64M or more, as in: hugeleaf run --sqlite 2G -- python3 app.py",
        ));
    }
    let memory = [host.memory.total.get(), room];
    match memory.into_iter().flatten().min() {
        Some(most) if size > most => Err(Failure::usage(
            format!("run: --sqlite {size} exceeds the {most} of memory that the program can have"),
            "give less, as in: hugeleaf run --sqlite 64M -- python3 app.py",
        )),
        _ => Ok(()),
    }
}

/// Returns the policy of LDR_CNTRL, with the flags taking precedence.
fn policy(args: &Args, host: &Host) -> Result<(RunFlags, Vec<AixRequest>), Failure> {
    let variable = |name: &str| {
        let value = std::env::var_os(name).map(|value| lossy(&value));
        value.filter(|value| !value.trim().is_empty())
    };
    // The flag replaces both variables, which form one setting.
    let (text, large) = match &args.ldr_cntrl {
        Some(text) => (text.clone(), None),
        None => (
            variable(LDR_CNTRL).unwrap_or_default(),
            variable(LARGE_PAGE_DATA),
        ),
    };
    let mapped = translate(&text, large.as_deref(), host)?;
    let mut policy = RunFlags {
        reserve: args.reserve,
        numa: args.numa.clone(),
        only: args.only.clone(),
        ..RunFlags::default()
    };
    for item in &mapped {
        policy.wants[item.role as usize] = item.request.clone();
    }
    for (role, want) in typed(args) {
        policy.wants[role as usize] = want;
    }
    Ok((policy, mapped))
}

fn typed(args: &Args) -> Vec<(RunMemoryKind, PagePolicy)> {
    [
        (RunMemoryKind::Data, &args.data),
        (RunMemoryKind::Shm, &args.shm),
        (RunMemoryKind::Stack, &args.stack),
        (RunMemoryKind::Text, &args.text),
    ]
    .into_iter()
    .filter_map(|(role, want)| Some((role, want.clone()?)))
    .collect()
}

/// Returns the executable to run; `None` for a captured host, whose programs are not present.
fn program(args: &Args, context: &Context) -> Result<Option<ProgramFile>, Failure> {
    let Some(name) = args.command.first().filter(|_| context.root.is_live()) else {
        return Ok(None);
    };
    // The default of execvp(3) without PATH.
    let search = std::env::var("PATH").unwrap_or_else(|_| "/bin:/usr/bin".to_owned());
    match find_program(Path::new(name), &search) {
        Ok(program) => Ok(Some(program)),
        Err(error) => {
            let status = match error {
                ProgramError::NotFound { .. } => NOT_FOUND,
                ProgramError::NotRunnable { .. } => NOT_RUNNABLE,
            };
            let next = "name a program that this user may run, as in: hugeleaf run -- redis-server";
            Err(Failure::usage(format!("run: {error}"), next).with_status(status))
        }
    }
}

fn mandatory_failed(policy: &RunFlags, role: RunMemoryKind, obstacle: &PreloadObstacle) -> Failure {
    let want = policy.want(role);
    let next = match obstacle.can_promote {
        true => "omit the !, and once the program runs: hugeleaf promote PID",
        false => "omit the !, or build the program without the sanitizer",
    };
    let because = &obstacle.reason;
    Failure::usage(
        format!("run: --{role} {want} is required but unavailable: {because}"),
        next,
    )
}

/// Returns the message for a program that runs without the library.
fn obstacle_line(obstacle: &PreloadObstacle, pid: Pid) -> String {
    let next = match obstacle.can_promote {
        true => format!("once it has grown: hugeleaf promote {pid}"),
        false => "the program runs unchanged".to_owned(),
    };
    format!("hugeleaf: run: {}; {next}\n", obstacle.reason)
}

fn command(
    args: &Args,
    settled: &ResolvedPolicy,
    obstacle: Option<&PreloadObstacle>,
) -> Result<Command, Failure> {
    let library = library_for(obstacle, &LIBRARY, false)?;
    let sqlite = sqlite(args, settled, false)?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    command.envs(variables(settled, library, sqlite.as_ref())?);
    Ok(command)
}

/// Returns SQLite's cache if requested, on the page sizes of data. Pools are excluded: a forked child has a gap in place of its parent's
/// private pool pages, and touches it when it closes an inherited connection.
fn sqlite(
    args: &Args,
    settled: &ResolvedPolicy,
    is_dry: bool,
) -> Result<Option<SqliteCacheSettings>, Failure> {
    /// Maximum page size as a divisor of the cache. Larger pages are hard to move between databases.
    const PART: u64 = 32;
    let Some(size) = args.sqlite else {
        return Ok(None);
    };
    let settings = &settled.settings;
    let base = settings.base.ok_or_else(|| {
        Failure::missing(
            "run: --sqlite: the size of a base page is unknown",
            "hugeleaf status",
        )
    })?;
    let asked = settings.policy(RunMemoryKind::Data);
    let rung = |way: &RunPageKind| {
        let size = settings.pmd?;
        let is_it = match way {
            RunPageKind::Hugetlb(pool) => *pool == size,
            RunPageKind::Thp => true,
        };
        is_it.then_some(Rung {
            size,
            kind: Some(PageKind::Thp),
        })
    };
    let fits = |rung: &Rung| rung.size.bytes().get() <= size.get() / PART;
    let mut rungs: Vec<Rung> = asked.ways.iter().filter_map(rung).filter(fits).collect();
    rungs.dedup();
    let is_mandatory = asked.mandatory && !rungs.is_empty();
    if rungs.is_empty() {
        rungs.push(Rung {
            size: base,
            kind: None,
        });
    }
    Ok(Some(SqliteCacheSettings {
        library: place(&SQLITE, is_dry)?,
        size,
        ladder: Ladder::new(rungs, is_mandatory),
    }))
}

/// Returns the failure of exec, with the exit status of env(1).
fn not_started(args: &Args, error: &std::io::Error) -> Failure {
    let name = args.command[0].to_string_lossy();
    let status = match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUNNABLE,
    };
    let look = format!("file {}", shell_word(&name));
    Failure::usage(format!("run: {name}: {error}"), look).with_status(status)
}

/// Starts the program as a child, watches it, and exits with its status.
fn start_and_watch(
    args: &Args,
    context: &Context,
    mut settled: ResolvedPolicy,
    obstacle: Option<&PreloadObstacle>,
) -> Result<ExitCode, Failure> {
    let file = args.report.as_deref().unwrap_or(Path::new("-"));
    // The program may run for hours, so an unwritable file must fail first.
    if file != Path::new("-") {
        let draft = StagedFile::begin(file, OnExisting::Replaced);
        draft.map_err(|e| cannot_write(&format!("{}: {}", file.display(), e.reason())))?;
    }
    let host = hugeleaf_host::read_memory_facts(&context.root, &context.kernel)?;
    let host = context.with_wants(host);
    let command_line: Vec<String> = args.command.iter().map(lossy).collect();
    let circumstances = circumstances(&context.root, &host, &command_line);
    let watcher = PreparedWatch::new(&context.root, host)?;
    settled.settings.report = Some(watcher.socket().display().to_string());
    let mut command = command(args, &settled, obstacle)?;
    let started = ChildProgram::start(&mut command).map_err(|error| not_started(args, &error))?;
    if let Some(obstacle) = obstacle {
        print_stderr(&obstacle_line(obstacle, started.pid()));
    }
    // Without /dev/null the streams stay open here too, which does no harm.
    let _ = started.leave_streams();
    let watch = watcher.begin(
        started.pid(),
        &settled.settings.to_string(),
        args.sqlite.is_some(),
    );
    let ended = started.wait().map_err(|error| {
        Failure::missing(
            format!("run: {error}"),
            "hugeleaf mem    # checks that it still runs",
        )
    })?;
    let report = |(seconds, found): (f64, WatchReport)| RunReport {
        command: circumstances.command,
        started: circumstances.started,
        seconds,
        exit: match ended {
            ChildExit::Status(status) => ProgramExit::Status(status),
            ChildExit::Signal(signal) => ProgramExit::Signal(signal),
        },
        host: circumstances.host,
        settings: RecordedSettings {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            knobs: circumstances.knobs,
        },
        found,
    };
    let report = watch.finish().map(report);
    // The program's exit status is returned even if the report fails.
    if let Err(failure) = report.and_then(|report| write(file, &report)) {
        print_failure(&failure);
    }
    match ended {
        ChildExit::Status(status) => Ok(ExitCode::from(status)),
        ChildExit::Signal(signal) => end_by(signal),
    }
}

fn write(file: &Path, report: &RunReport) -> Result<(), Failure> {
    if file == Path::new("-") {
        print_stderr(&report.page().text(TextOptions::plain(Context::width())));
        return Ok(());
    }
    write_whole(file, &answer(report)).map_err(|error| cannot_write(&error.to_string()))
}

fn cannot_write(what: &str) -> Failure {
    Failure::missing(
        format!("run: --report {what}"),
        "name a file in a folder that this user may write to, or - for standard error",
    )
}

fn lossy(text: &OsString) -> String {
    text.to_string_lossy().into_owned()
}

fn dry_run(
    args: &Args,
    context: &Context,
    settled: ResolvedPolicy,
    obstacle: Option<PreloadObstacle>,
) -> Result<ExitCode, Failure> {
    let library = library_for(obstacle.as_ref(), &LIBRARY, true)?;
    let sqlite = sqlite(args, &settled, true)?;
    let environment = variables(&settled, library, sqlite.as_ref())?.into_iter();
    let environment = environment.map(|(name, value)| (name.to_owned(), lossy(&value)));
    let start = RunPreview {
        command: args.command.iter().map(lossy).collect(),
        environment: environment.collect(),
        obstacle: obstacle.map(|o| o.reason),
        settled,
    };
    context.answer(Context::view(true), || json(&start), || page(&start))?;
    Ok(ExitCode::SUCCESS)
}
