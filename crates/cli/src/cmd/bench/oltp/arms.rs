//! Page sizes of SQLite's cache: this program runs itself once for each run, since SQLite takes its
//! cache once in a process, and since a process that has run has other memory than one that starts.

use std::process::{Command, Output, Stdio};

use hugeleaf_proof::SizeHeld;
use hugeleaf_proof::bench::oltp::{OltpResult, Turn, in_turn};
use hugeleaf_proof::bench::{BenchEvent, NotHad, is_not_had};
use hugeleaf_units::Bytes;
use hugeleaf_workload::PageArm;
use hugeleaf_workload::tpcc::{SqliteCache, SqliteSettings, SqliteStore, TpccError};

use super::{Args, Bar, Ground, OltpRunError, Pages, Place, failure};
use crate::context::{Context, Failure};

/// What stands in the first line of a run that has no such pages.
const NOT_HAD: &str = "bench oltp: not had: ";

/// Takes the cache of this process.
pub(super) fn take(arm: Pages, length: Bytes, ground: &Ground) -> Result<SqliteCache, Failure> {
    hugeleaf_workload::tpcc::end_with_parent();
    let pages = PageArm::of(arm.asked, &ground.host);
    SqliteCache::install(pages, length, arm.locked, &ground.host).map_err(|error| match &error {
        TpccError::Memory(reason) if is_not_had(reason) => {
            Failure::missing(format!("{NOT_HAD}{reason}"), error.next())
        }
        _ => failure(&OltpRunError::Tpcc(error)),
    })
}

/// Writes down what the cache lay on, at the end.
pub(super) fn read_back(result: &mut OltpResult, arm: Pages, cache: SqliteCache, ground: &Ground) {
    let asked = PageArm::of(arm.asked, &ground.host);
    let Ok(Some(held)) = cache.pages() else {
        return;
    };
    let pages = held.iter().map(|h| SizeHeld::new(h.size, h.kind, h.bytes));
    let pages: Vec<SizeHeld> = pages.collect();
    let on = |h: &&hugeleaf_host::Held| h.size == asked.size && h.kind == asked.kind;
    let seen: u64 = held.iter().filter(on).map(|h| h.bytes.get()).sum();
    for run in &mut result.runs {
        run.pages.clone_from(&pages);
        run.verified = Some(seen == cache.length().get());
    }
    if cache.outside() > 0 {
        result.caveats.push(format!(
            "{} pages of the database did not fit the cache and came from the heap",
            cache.outside()
        ));
    }
}

/// Fills the database where need be, then has all arms run in turn.
pub(super) fn run(
    args: &Args,
    connections: usize,
    ground: &Ground,
    context: &Context,
) -> Result<OltpResult, Failure> {
    let folder = match &args.database {
        Some(Place::Sqlite(folder)) => folder.clone(),
        None => "hugeleaf-oltp".into(),
        Some(Place::Postgres(_)) => {
            return Err(Failure::usage(
                "bench oltp: --pages is about SQLite's cache; a server has settings of its own",
                "hugeleaf run --shm 2M -- postgres …, then hugeleaf bench oltp --database \
                 postgres:DSN",
            ));
        }
    };
    fill(args, &folder, connections, context).map_err(|e| failure(&OltpRunError::Tpcc(e)))?;
    let labels: Vec<String> = args.pages.iter().map(|p| p.label(&ground.host)).collect();
    let bar = Bar::new();
    let whole = (labels.len() * args.rounds) as u64;
    let mut done = 0;
    let mut turn = |label: &str, round: usize| {
        let what = format!("round {}: {label}", round + 1);
        bar.show(&BenchEvent::At {
            done,
            of: whole,
            what,
        });
        done += 1;
        one(args, label, connections, context)
    };
    let result = in_turn(&labels, args.rounds, args.seed, &mut turn, &context.stop)?;
    let mut result = result.ok_or_else(|| {
        Failure::no(
            "bench oltp: none of the pages asked for were had, or it was stopped",
            "hugeleaf status    # what pages there are",
        )
    })?;
    result.command = std::env::args().collect();
    Ok(result)
}

/// Fills it before the first run: its pages are not to be those of a cache.
fn fill(
    args: &Args,
    folder: &std::path::Path,
    connections: usize,
    context: &Context,
) -> Result<(), TpccError> {
    let store = SqliteStore::open(SqliteSettings {
        directory: folder.to_owned(),
        files: i32::try_from(connections).unwrap_or(i32::MAX),
        cache: Bytes::from_mib(64),
        durability: args.durability,
        alone: false,
        warm: false,
    })?;
    if args.refill {
        store.remove()?;
    }
    let bar = Bar::new();
    let wanted = super::origin(&store, args);
    hugeleaf_workload::tpcc::load(
        &store,
        &wanted,
        !args.no_load,
        &mut |event| super::show(&bar, &super::OltpEvent::Filling(event)),
        &context.stop,
    )
    .map(drop)
}

/// One run, in a process of its own.
fn one(args: &Args, label: &str, connections: usize, context: &Context) -> Result<Turn, Failure> {
    let lost = |e: std::io::Error| {
        Failure::missing(format!("bench oltp: a run of its own: {e}"), "run it again")
    };
    let program = std::env::current_exe().map_err(lost)?;
    let mut command = Command::new(program);
    command
        .args([
            "bench",
            "oltp",
            "--json",
            "--no-load",
            "--output",
            "/dev/null",
        ])
        .args(["--arm", label])
        .args(["--connections", &connections.to_string()])
        .args(["--warehouses", &args.warehouses.to_string()])
        .args(["--for", &format!("{}ms", args.time.as_millis())])
        .args(["--ramp-up", &format!("{}ms", args.ramp_up.as_millis())])
        .args(["--cache", &args.cache.get().to_string()])
        .args(["--durability", args.durability.name()])
        .args(["--think", &args.think.to_string()])
        .args(["--shrink", &args.shrink.to_string()])
        .args(["--seed", &args.seed.to_string()])
        .stdin(Stdio::null());
    if let Some(Place::Sqlite(folder)) = &args.database {
        command.args(["--database", &format!("sqlite:{}", folder.display())]);
    }
    if let Some(touch) = args.touch {
        command.args(["--touch", &touch.to_string()]);
    }
    let output = command.output().map_err(lost)?;
    read(&output, context)
}

fn read(output: &Output, context: &Context) -> Result<Turn, Failure> {
    if output.status.success() {
        let result = serde_json::from_slice(&output.stdout);
        return result.map(|r| Turn::Ran(Box::new(r))).map_err(|e| {
            Failure::missing(format!("bench oltp: the answer of a run: {e}"), "report it")
        });
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = |start: &str| {
        let mut lines = text.lines();
        lines
            .find_map(|l| l.strip_prefix(start))
            .unwrap_or("")
            .to_owned()
    };
    let (what, next) = (line("hugeleaf: "), line("  next: "));
    if let Some(reason) = what.strip_prefix(NOT_HAD) {
        return Ok(Turn::NotHad(NotHad {
            from_bytes: 0,
            reason: reason.to_owned(),
            next,
        }));
    }
    if context.stop.load(std::sync::atomic::Ordering::Relaxed) {
        return Err(Failure::no(
            "bench oltp: stopped on request",
            "run it again",
        ));
    }
    let what = match what.is_empty() {
        true => format!("bench oltp: a run ended with {}", output.status),
        false => what,
    };
    Err(Failure::missing(what, next).with_status(status_of(output)))
}

fn status_of(output: &Output) -> u8 {
    let code = output
        .status
        .code()
        .and_then(|code| u8::try_from(code).ok());
    code.unwrap_or(3)
}
