//! SQLite. Of several arms each run is a process of its own, since SQLite takes its cache once in a
//! process, and since a process that has run has other memory than one that starts.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hugeleaf_proof::SizeHeld;
use hugeleaf_proof::bench::oltp::{Cell, Io, OltpResult, OltpRunError, Processes, Turn, Watcher};
use hugeleaf_proof::bench::{NotHad, is_not_had};
use hugeleaf_units::Bytes;
use hugeleaf_workload::tpcc::{SqliteCache, SqliteSettings, SqliteStore, Store, TpccError};

use super::child::{program, refusal, run_out};
use super::copier::Copier;
use super::{Args, Ground, Pages, Place, Setup, failure};
use crate::context::{Context, Failure};

/// What stands in the first line of a run that has no such pages.
const NOT_HAD: &str = "bench oltp: not had: ";

fn folder(args: &Args) -> PathBuf {
    match &args.database {
        Some(Place::Sqlite(folder)) => folder.clone(),
        _ => "hugeleaf-oltp".into(),
    }
}

fn settings(args: &Args, setup: Setup, context: &Context) -> SqliteSettings {
    SqliteSettings {
        directory: folder(args),
        files: i32::try_from(setup.connections).unwrap_or(i32::MAX),
        cache: Bytes(setup.cache.get() / setup.connections as u64),
        durability: args.durability,
        alone: false,
        warm: args.arm.is_some(),
        touched: setup.touch,
        stop: Arc::clone(&context.stop),
    }
}

/// One run, in this process.
pub(super) fn one(
    args: &Args,
    setup: Setup,
    ground: &Ground,
    context: &Context,
) -> Result<OltpResult, Failure> {
    if setup.io == Io::Direct {
        return Err(Failure::usage(
            "bench oltp: --io direct: SQLite reads through the page cache of the host",
            "hugeleaf bench oltp --io buffered, or --start postgres --io direct (from version 16)",
        ));
    }
    let cache = match args.arm {
        Some(arm) => take(arm, setup.cache, ground)?.map(|cache| (arm, cache)),
        None => None,
    };
    let fail = |error: TpccError| failure(&OltpRunError::Tpcc(error));
    let store = SqliteStore::open(settings(args, setup, context)).map_err(fail)?;
    if args.refill {
        store.remove().map_err(fail)?;
    }
    // Of a database that is there the number of files is what it is.
    let there = match store.files().len() {
        0 => store.shards(args.warehouses),
        n => i32::try_from(n).unwrap_or(i32::MAX),
    };
    let touched = setup.touch.unwrap_or(args.warehouses).min(there);
    let alone = setup.connections <= usize::try_from(touched).unwrap_or(1);
    let store = SqliteStore::open(SqliteSettings {
        alone,
        ..settings(args, setup, context)
    });
    let store = store.map_err(fail)?;
    let copier = Copier::start(args.copy_beside, &folder(args))?;
    let mut watcher = Watcher::of(Processes::Own, &context.root);
    if args.count {
        watcher = watcher.counting();
    }
    let copied = || copier.as_ref()?.copied(&context.root);
    watcher = watcher.with_copier(&copied);
    let result = super::on(&store, args, setup, ground, &mut watcher, context);
    let mut result = result.map_err(|error| failure(&error))?;
    if let Some((arm, cache)) = cache {
        read_back(&mut result, arm, cache, ground);
    }
    Ok(result)
}

/// Takes the cache of this process; `None` where it is to come from SQLite's own heap.
fn take(arm: Pages, length: Bytes, ground: &Ground) -> Result<Option<SqliteCache>, Failure> {
    hugeleaf_workload::tpcc::end_with_parent();
    let locked = match arm {
        Pages::Run => return Ok(None),
        Pages::Locked => true,
        Pages::Asked(_) | Pages::Promoted => false,
    };
    let Some(pages) = arm.arm(&ground.host) else {
        return Ok(None);
    };
    let taken = SqliteCache::install(pages, length, locked, &ground.host);
    taken.map(Some).map_err(|error| match &error {
        TpccError::Memory(reason) if is_not_had(reason) => {
            Failure::missing(format!("{NOT_HAD}{reason}"), error.next())
        }
        _ => failure(&OltpRunError::Tpcc(error)),
    })
}

/// Writes down what the cache lay on, at the end.
fn read_back(result: &mut OltpResult, arm: Pages, cache: SqliteCache, ground: &Ground) {
    let (Some(asked), Ok(Some(held))) = (arm.arm(&ground.host), cache.pages()) else {
        return;
    };
    let pages = SizeHeld::all(&held);
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

/// Several arms.
pub(super) struct Embedded<'a> {
    args: &'a Args,
    setup: Setup,
    context: &'a Context,
}

impl<'a> Embedded<'a> {
    /// Fills the database where need be.
    pub(super) fn new(
        args: &'a Args,
        setup: Setup,
        context: &'a Context,
    ) -> Result<Embedded<'a>, Failure> {
        if args.pages.contains(&Pages::Promoted) {
            return Err(Failure::usage(
                "bench oltp: --pages promoted is for a server: SQLite's cache is memory of this very program",
                "hugeleaf bench oltp --start postgres --pages base,promoted, or --pages base,run",
            ));
        }
        let filled = SqliteStore::open(SqliteSettings {
            cache: Bytes::from_mib(64),
            ..settings(args, setup, context)
        })
        .and_then(|store| {
            if args.refill {
                store.remove()?;
            }
            super::fill(&store, args, context)
        });
        filled.map_err(|e| failure(&OltpRunError::Tpcc(e)))?;
        Ok(Embedded {
            args,
            setup,
            context,
        })
    }

    /// One run, in a process of its own.
    pub(super) fn turn(&self, cell: Cell<'_>) -> Result<Turn, Failure> {
        let lost = |e: std::io::Error| {
            Failure::missing(format!("bench oltp: a run of its own: {e}"), "run it again")
        };
        let program = program()?;
        let mut command = Command::new(&program);
        if cell.label == "run" {
            // Itself it is started by run, and told that it is.
            command.args(["run", "--"]).arg(&program);
        }
        let command = self.arguments(&mut command, cell);
        let output = run_out(command, &self.context.stop).map_err(lost)?;
        read(&output, self.context)
    }

    fn arguments<'c>(&self, command: &'c mut Command, cell: Cell<'_>) -> &'c mut Command {
        let (args, setup) = (self.args, self.setup.at(self.args, cell.at));
        let (time, ramp_up) = (args.time.as_millis(), args.ramp_up.as_millis());
        command
            .args(["bench", "oltp", "--json", "--no-load"])
            .args(["--output", "/dev/null", "--arm", cell.label])
            .args(["--connections", &setup.connections.to_string()])
            .args(["--warehouses", &args.warehouses.to_string()])
            .args(["--for", &format!("{time}ms")])
            .args(["--ramp-up", &format!("{ramp_up}ms")])
            .args(["--cache", &setup.cache.get().to_string()])
            .args(["--durability", args.durability.name()])
            .args(["--think", &args.think.to_string()])
            .args(["--shrink", &args.shrink.to_string()])
            .args(["--seed", &args.seed.to_string()])
            .stdin(Stdio::null());
        if let Some(Place::Sqlite(folder)) = &args.database {
            command.args(["--database", &format!("sqlite:{}", folder.display())]);
        }
        if let Some(touch) = setup.touch {
            command.args(["--touch", &touch.to_string()]);
        }
        if let Some(length) = args.copy_beside {
            command.args(["--copy-beside", &length.get().to_string()]);
        }
        if setup.io == Io::Direct {
            command.args(["--io", "direct"]);
        }
        if !args.no_translation {
            command.arg("--count");
        }
        command
    }
}

fn read(output: &Output, context: &Context) -> Result<Turn, Failure> {
    if output.status.success() {
        let result = serde_json::from_slice(&output.stdout);
        return result.map(|r| Turn::Ran(Box::new(r))).map_err(|e| {
            Failure::missing(format!("bench oltp: the answer of a run: {e}"), "report it")
        });
    }
    let (what, next) = refusal(output);
    let (what, next) = (what.unwrap_or_default(), next.unwrap_or_default());
    if let Some(reason) = what.strip_prefix(NOT_HAD) {
        return Ok(Turn::NotHad(NotHad {
            from_bytes: 0,
            reason: reason.to_owned(),
            next,
        }));
    }
    if context.stop.load(Ordering::Relaxed) {
        return Ok(Turn::Stopped);
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
