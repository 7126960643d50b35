//! SQLite. With several arms, each run is a process of its own: SQLite allocates its cache once per
//! process, and memory differs between a used process and a new one.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hugeleaf_units::{Bytes, Failure};
use hugeleaf_workload::SqlitePageCache;

use crate::kits::tpcc::{SqliteSettings, SqliteStore, TpccError, TpccStore, install_cache};

use super::background_copy::BackgroundCopy;
use super::child::run_out;
use super::pages::OltpPages;
use super::rows::AS_IT_IS;
use super::run::{fill, run_once};
use super::settings::{DerivedSettings, EventSink, MeasuredDatabase, OltpSettings, ReadPath};
use super::watch::{DatabaseWatcher, WatchedProcesses};
use hugeleaf_proof::bench::{BenchContext, BenchError, MissingPages, is_unavailable, refusal};
use hugeleaf_proof::result_format::{PageLayout, Results};

/// Beginning of the first line of a run whose pages are unavailable.
const UNAVAILABLE: &str = "bench oltp: unavailable: ";

/// Takes the cache of this process; `None` if it is to come from SQLite's own heap.
fn take(
    arm: OltpPages,
    length: Bytes,
    machine: &BenchContext<'_>,
) -> Result<Option<SqlitePageCache>, BenchError> {
    let _ = hugeleaf_workload::child::end_with_parent();
    let locked = match arm {
        OltpPages::Run => return Ok(None),
        OltpPages::Locked => true,
        OltpPages::Asked(_) | OltpPages::Promoted => false,
    };
    let Some(pages) = arm.arm(machine.host) else {
        return Ok(None);
    };
    let taken = install_cache(pages, length, locked, machine.host);
    taken.map(Some).map_err(|error| match &error {
        TpccError::Memory(reason) if is_unavailable(reason) => {
            BenchError::missing(format!("{UNAVAILABLE}{reason}"), error.next())
        }
        _ => error.into(),
    })
}

/// Stores the pages of the cache at the end.
fn read_back(
    run: &mut Results,
    arm: OltpPages,
    cache: &SqlitePageCache,
    machine: &BenchContext<'_>,
) {
    let (Some(asked), Ok(Some(held))) = (arm.arm(machine.host), cache.pages()) else {
        return;
    };
    let on = |h: &&hugeleaf_host::PageUsage| h.size == asked.size && h.kind == asked.kind;
    let seen: u64 = held.iter().filter(on).map(|h| h.bytes.get()).sum();
    run.layouts = vec![PageLayout {
        verified: Some(seen == cache.length().get()),
        ..PageLayout::new(AS_IT_IS, &[], "end", held)
    }];
    if cache.heap_pages() > 0 {
        run.caveats.push(format!(
            "{} pages of the database did not fit in the cache and are on the heap",
            cache.heap_pages()
        ));
    }
}

pub(super) struct MeasuredSqlite<'a> {
    pub(super) folder: &'a Path,
    pub(super) order: &'a OltpSettings,
    pub(super) machine: &'a BenchContext<'a>,
}

impl MeasuredSqlite<'_> {
    fn settings(&self, setup: DerivedSettings) -> SqliteSettings {
        SqliteSettings {
            directory: self.folder.to_owned(),
            files: i32::try_from(setup.connections).unwrap_or(i32::MAX),
            cache: Bytes(setup.cache.get() / setup.connections as u64),
            durability: self.order.durability,
            alone: false,
            warm: self.order.arm.is_some(),
            touched: setup.touch,
            stop: Arc::clone(self.machine.stop),
        }
    }

    fn here(&self, setup: DerivedSettings, progress: EventSink<'_>) -> Result<Results, BenchError> {
        let (order, machine) = (self.order, self.machine);
        let cache = match order.arm {
            Some(arm) => take(arm, setup.cache, machine)?.map(|cache| (arm, cache)),
            None => None,
        };
        let store = SqliteStore::open(self.settings(setup))?;
        if order.refill {
            store.remove()?;
        }
        // An existing database keeps its number of files.
        let there = match store.files().len() {
            0 => store.shards(order.warehouses),
            n => i32::try_from(n).unwrap_or(i32::MAX),
        };
        let touched = setup.touch.unwrap_or(order.warehouses).min(there);
        let alone = setup.connections <= usize::try_from(touched).unwrap_or(1);
        let store = SqliteStore::open(SqliteSettings {
            alone,
            ..self.settings(setup)
        })?;
        let copier = BackgroundCopy::start(order.copy_beside, self.folder)?;
        let mut watcher = DatabaseWatcher::new(WatchedProcesses::Own, machine.root);
        watcher.count = order.count;
        let copied = || copier.as_ref()?.copied(machine.root);
        watcher.copied = Some(&copied);
        let mut run = run_once(&store, order, setup, machine, &mut watcher, progress)?;
        if let Some((arm, cache)) = cache {
            read_back(&mut run, arm, &cache, machine);
        }
        Ok(run)
    }

    /// Makes one run in a process of its own.
    fn in_a_process(&self, label: &str, setup: DerivedSettings) -> Result<Results, BenchError> {
        let lost = |e: std::io::Error| {
            BenchError::missing(
                format!("bench oltp: cannot start a run: {e}"),
                "run it again",
            )
        };
        let program = std::env::current_exe().map_err(lost)?;
        let hugeleaf = self.machine.program;
        let mut command = match label {
            // The lab is itself started by run, and its flags say so.
            "run" => {
                let mut command = Command::new(hugeleaf);
                command.args(["run", "--"]).arg(&program);
                command
            }
            _ => Command::new(&program),
        };
        command.arg("oltp").arg("--hugeleaf").arg(hugeleaf);
        let command = self.arguments(&mut command, label, setup);
        let output = run_out(command, self.machine.stop).map_err(lost)?;
        read(&output, self.machine)
    }

    fn arguments<'c>(
        &self,
        command: &'c mut Command,
        label: &str,
        setup: DerivedSettings,
    ) -> &'c mut Command {
        let order = self.order;
        let (time, ramp_up) = (order.time.as_millis(), order.ramp_up.as_millis());
        command
            .args(["--json", "--no-load"])
            .args(["--output", "/dev/null", "--arm", label])
            .args(["--connections", &setup.connections.to_string()])
            .args(["--warehouses", &order.warehouses.to_string()])
            .args(["--for", &format!("{time}ms")])
            .args(["--ramp-up", &format!("{ramp_up}ms")])
            .args(["--cache", &setup.cache.get().to_string()])
            .args(["--durability", order.durability.name()])
            .args(["--think", &order.think.to_string()])
            .args(["--shrink", &order.shrink.to_string()])
            .args(["--seed", &order.seed.to_string()])
            .stdin(Stdio::null());
        command.args(["--database", &format!("sqlite:{}", self.folder.display())]);
        if let Some(touch) = setup.touch {
            command.args(["--touch", &touch.to_string()]);
        }
        if let Some(length) = order.copy_beside {
            command.args(["--copy-beside", &length.get().to_string()]);
        }
        if setup.io == ReadPath::Direct {
            command.args(["--io", "direct"]);
        }
        if order.translation {
            command.arg("--count");
        }
        command
    }
}

impl MeasuredDatabase for MeasuredSqlite<'_> {
    fn check(&self, pages: OltpPages) -> Result<(), BenchError> {
        match pages {
            OltpPages::Promoted => Err(BenchError::usage(
                "bench oltp: --pages promoted is for a server: SQLite's cache is memory of this process",
                "hugeleaf-lab oltp --start postgres --pages base,promoted, or --pages base,run",
            )),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, progress: EventSink<'_>) -> Result<(), BenchError> {
        let (order, machine) = (self.order, self.machine);
        let store = SqliteStore::open(SqliteSettings {
            cache: Bytes::from_mib(64),
            ..self.settings(DerivedSettings::from_settings(order, machine)?)
        })?;
        if order.refill {
            store.remove()?;
        }
        fill(&store, order, machine, progress).map(drop)
    }

    /// Checks the flags only: the run's process starts when it is driven.
    fn start(
        &mut self,
        pages: Option<OltpPages>,
        setup: DerivedSettings,
    ) -> Result<(), BenchError> {
        if pages.is_none() && setup.io == ReadPath::Direct {
            return Err(BenchError::usage(
                "bench oltp: --io direct: SQLite reads through the page cache of the host",
                "hugeleaf-lab oltp --io buffered, or --start postgres --io direct (from version 16)",
            ));
        }
        Ok(())
    }

    fn drive(
        &mut self,
        pages: Option<OltpPages>,
        setup: DerivedSettings,
        progress: EventSink<'_>,
    ) -> Result<Results, BenchError> {
        match pages {
            Some(pages) => self.in_a_process(&pages.label(self.machine.host), setup),
            None => self.here(setup, progress),
        }
    }
}

fn read(output: &Output, machine: &BenchContext<'_>) -> Result<Results, BenchError> {
    if output.status.success() {
        let answer = serde_json::from_slice(&output.stdout);
        let what = |e| format!("bench oltp: invalid output of a run: {e}");
        return answer.map_err(|e: serde_json::Error| BenchError::missing(what(e), "report it"));
    }
    let (what, next) = refusal(&String::from_utf8_lossy(&output.stderr));
    let (what, next) = (what.unwrap_or_default(), next.unwrap_or_default());
    if let Some(reason) = what.strip_prefix(UNAVAILABLE) {
        return Err(BenchError::PagesMissing(MissingPages {
            from: Bytes::ZERO,
            reason: reason.to_owned(),
            next,
        }));
    }
    if machine.stop.load(Ordering::Relaxed) {
        return Err(BenchError::Stopped);
    }
    let what = match what.is_empty() {
        true => format!("bench oltp: a run ended with {}", output.status),
        false => what,
    };
    let status = output
        .status
        .code()
        .and_then(|code| u8::try_from(code).ok());
    let status = status.unwrap_or(3);
    Err(Failure::missing(what, next).with_status(status).into())
}
