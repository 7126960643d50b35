//! A PostgreSQL server of our own. Of several arms it is started anew for each run, with the same
//! data and other pages.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use hugeleaf_host::{Held, Host, read_host};
use hugeleaf_sys::RealKernel;
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::why::available;
use hugeleaf_workload::tpcc::{PostgresServer, PostgresStore, ServerSettings, Warmed};

use super::child::{program, refusal};
use super::copier::Copier;
use super::order::{Database, Io, Order, Progress, Server, ServerKind, Setup};
use super::pages::Pages;
use super::run::{fill, run_once};
use super::server::tree_usage;
use super::watch::{Processes, Watcher};
use crate::bench::{BenchError, Machine, Shortage};
use crate::rows::Results;
use crate::spread::Spread;

/// `--start postgres`.
pub(super) const KIND: ServerKind = ServerKind {
    name: "postgres",
    warehouse: PostgresStore::WAREHOUSE,
    make: |order, machine| Box::new(Postgres::new(order, machine)),
};

/// From this version on PostgreSQL can read its files past the page cache.
const DIRECT_FROM: u32 = 16;

/// So much of its shared memory has to be on the pages of an arm: where it begins and ends a block
/// may be shared with what is smaller.
const NEARLY_ALL: f64 = 0.99;

fn settings(order: &Order, setup: Setup) -> ServerSettings {
    ServerSettings {
        below: match &order.database {
            Database::Started(_, below) => below.clone(),
            Database::Sqlite(_) | Database::Elsewhere(_) => std::env::temp_dir(),
        },
        shared_buffers: setup.cache,
        huge_pages: false,
        durability: order.durability,
        connections: setup.connections,
        more: match setup.io {
            Io::Direct => vec!["debug_io_direct=data".to_owned()],
            Io::Cached | Io::Buffered => Vec::new(),
        },
        start_with: Vec::new(),
    }
}

fn start(order: &Order, setup: Setup) -> Result<PostgresServer, BenchError> {
    if setup.io == Io::Direct {
        let version = PostgresServer::version()?;
        if version < DIRECT_FROM {
            return Err(BenchError::missing(
                format!(
                    "bench oltp: --io direct: PostgreSQL {version} reads through the page cache; \
                     {DIRECT_FROM} can do otherwise"
                ),
                format!("--io buffered, or: apt-get install postgresql-{DIRECT_FROM}"),
            ));
        }
    }
    Ok(PostgresServer::start(&settings(order, setup))?)
}

fn store_of(
    server: &PostgresServer,
    order: &Order,
    machine: &Machine<'_>,
) -> Result<PostgresStore, BenchError> {
    let store = PostgresStore::new(&server.dsn(), order.durability)?;
    let store = store.in_folder(server.folder());
    Ok(match server.pid() {
        Some(pid) => {
            let root = machine.root.clone();
            store.with_usage(Box::new(move || tree_usage(&root, pid)))
        }
        None => store,
    })
}

fn processes<'h>(server: &PostgresServer, host: &'h Host) -> Processes<'h> {
    match server.pid() {
        Some(pid) => Processes::Server { pid, host },
        None => Processes::Elsewhere,
    }
}

/// It, once it has been started.
struct Postgres<'a> {
    order: &'a Order,
    machine: &'a Machine<'a>,
    server: Option<PostgresServer>,
    /// Seconds that promoting it took, run by run.
    promoted: Vec<f64>,
    warmed: Option<Warmed>,
}

impl<'a> Postgres<'a> {
    fn new(order: &'a Order, machine: &'a Machine<'a>) -> Postgres<'a> {
        Postgres {
            order,
            machine,
            server: None,
            promoted: Vec::new(),
            warmed: None,
        }
    }

    /// It; started where it is not.
    fn server(&mut self, setup: Setup) -> Result<&mut PostgresServer, BenchError> {
        Ok(match &mut self.server {
            Some(server) => server,
            none => none.insert(start(self.order, setup)?),
        })
    }

    /// Refuses an arm whose pool has too little for the shared memory.
    fn check_pool(
        &mut self,
        pages: Pages,
        setup: Setup,
        settings: &ServerSettings,
    ) -> Result<(), BenchError> {
        let arm = pages.arm(self.machine.host);
        let Some(arm) = arm.filter(|arm| arm.kind == PageKind::Hugetlb) else {
            return Ok(());
        };
        // Before version 15 it does not say; its own tables are a small part of it.
        let needs = self.server(setup)?.shared_memory(settings)?;
        let needs =
            needs.unwrap_or(settings.shared_buffers + Bytes(settings.shared_buffers.get() / 16));
        let pages = needs.get().div_ceil(arm.size.bytes().get());
        let host = read_host(self.machine.root, &RealKernel::new()).map_err(|error| {
            BenchError::missing(format!("bench oltp: {error}"), "hugeleaf status")
        })?;
        let mut pools = host.pools.iter();
        let pool = pools.find(|pool| pool.size == arm.size && pool.node.is_none());
        let free = pool.map_or(0, |pool| available(pool).get());
        if free >= pages {
            return Ok(());
        }
        Err(BenchError::Lacking(Shortage {
            from: needs,
            reason: format!(
                "{needs} of shared memory take {pages} pages of {}, and {free} of the pool are free",
                arm.size
            ),
            next: format!(
                "hugeleaf plan --bytes {} --sizes {arm} --name postgres --user postgres --output \
                 pool.toml, then hugeleaf apply pool.toml",
                Bytes(pages * arm.size.bytes().get())
            ),
        }))
    }

    /// Moves the running server to large pages, as a person would. Refuses
    /// the arm where none of it could be moved.
    fn promote(&mut self) -> Result<(), BenchError> {
        let lost = |e: std::io::Error| {
            BenchError::missing(format!("bench oltp: hugeleaf promote: {e}"), "run it again")
        };
        let Some(pid) = self.server.as_ref().and_then(PostgresServer::pid) else {
            return Ok(());
        };
        let began = std::time::Instant::now();
        let output = Command::new(program()?)
            .args(["promote", "--json", "--budget", "100%"])
            .arg(format!("tree:{pid}"))
            .stdin(Stdio::null())
            .output()
            .map_err(lost)?;
        // Less than all of it is seen when the pages are read back.
        if matches!(output.status.code(), Some(0 | 1)) {
            if let Some(why) = moved_none(&output.stdout) {
                return Err(BenchError::Lacking(why));
            }
            self.promoted.push(began.elapsed().as_secs_f64());
            return Ok(());
        }
        let (what, next) = refusal(&output);
        Err(BenchError::missing(
            what.unwrap_or_else(|| format!("promote: {}", output.status)),
            next.unwrap_or_else(|| "hugeleaf status".to_owned()),
        ))
    }
}

impl Server for Postgres<'_> {
    fn check(&self, pages: Pages) -> Result<(), BenchError> {
        let host = self.machine.host;
        let why = match (pages, pages.arm(host)) {
            (Pages::Locked, _) => "a server's shared memory is not locked by a setting",
            (Pages::Asked(_), Some(arm))
                if arm.kind == PageKind::Thp && host.pmd_page.get() != Some(arm.size) =>
            {
                "shared memory is put on the full transparent huge page only"
            }
            _ => return Ok(()),
        };
        Err(BenchError::usage(
            format!("bench oltp: --pages {}: {why}", pages.label(host)),
            "hugeleaf bench oltp --start postgres --pages base,run,promoted,hugetlb:2M",
        ))
    }

    fn fill(&mut self, progress: Progress<'_>) -> Result<(), BenchError> {
        let (order, machine) = (self.order, self.machine);
        let setup = Setup::of(order, machine)?;
        let store = store_of(self.server(setup)?, order, machine)?;
        fill(&store, order, machine, progress).map(drop)
    }

    /// An arm is restarted with the same data and other pages, and warmed.
    fn start(&mut self, pages: Option<Pages>, setup: Setup) -> Result<(), BenchError> {
        let (order, machine) = (self.order, self.machine);
        let Some(pages) = pages else {
            return self.server(setup).map(drop);
        };
        let settings = with_pages(settings(order, setup), pages, machine.host)?;
        self.check_pool(pages, setup, &settings)?;
        let server = self.server(setup)?;
        server.restart(&settings)?;
        let store = store_of(server, order, machine)?;
        let warm = store.warm(setup.touch)?;
        self.warmed = Some(warm.how());
        match pages {
            // While it is connected, as a server's own connections are: what nobody has in its page
            // tables is left alone.
            Pages::Promoted => self.promote(),
            _ => Ok(()),
        }
    }

    fn drive(
        &mut self,
        pages: Option<Pages>,
        setup: Setup,
        progress: Progress<'_>,
    ) -> Result<Results, BenchError> {
        let (order, machine) = (self.order, self.machine);
        let server = self.server(setup)?;
        let store = store_of(server, order, machine)?;
        let copier = Copier::start(order.copy_beside, server.folder())?;
        let copied = || copier.as_ref()?.copied(machine.root);
        let watched = processes(server, machine.host);
        let mut watcher = Watcher::of(watched, machine.root).with_copier(&copied);
        if pages.is_some() && order.translation {
            watcher = watcher.counting();
        }
        let mut run = run_once(&store, order, setup, machine, &mut watcher, progress)?;
        for seen in &mut run.layouts {
            seen.verified = pages.map(|pages| is_on(&seen.pages, pages, machine.host));
        }
        Ok(run)
    }

    fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if let Some(seconds) = Spread::of(&self.promoted) {
            caveats.push(format!(
                "promoting the running server took {:.1} s (median of {}), before the load",
                seconds.median,
                self.promoted.len()
            ));
        }
        if self.warmed == Some(Warmed::ByKeys) {
            caveats.push(
                "the cache was filled by reading tables through their keys, not block by block"
                    .to_owned(),
            );
        }
        caveats
    }
}

/// Why `promote` has moved nothing; `None` where it has.
fn moved_none(answer: &[u8]) -> Option<Shortage> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    let processes = answer["processes"].as_array()?;
    let bytes = |field: &str| {
        processes
            .iter()
            .filter_map(|p| p[field].as_u64())
            .sum::<u64>()
    };
    (bytes("done_bytes") + bytes("already_bytes") == 0).then(|| Shortage {
        from: Bytes::ZERO,
        reason: "nothing of the running server could be moved: its shared memory is at an address \
                 that does not agree with its offset, or the kernel does not collapse it"
            .to_owned(),
        // Where the knob is never the kernel aligns no shared memory, and base pages stay base
        // pages with advise, because the server asks for none.
        next: "before the server starts: echo advise > \
               /sys/kernel/mm/transparent_hugepage/shmem_enabled"
            .to_owned(),
    })
}

/// Settings with which a server comes to be on the pages of an arm.
fn with_pages(
    mut settings: ServerSettings,
    pages: Pages,
    host: &Host,
) -> Result<ServerSettings, BenchError> {
    let run = |flags: &[String]| -> Result<Vec<OsString>, BenchError> {
        let flags = flags.iter().map(OsString::from);
        Ok([program()?.into(), "run".into()]
            .into_iter()
            .chain(flags)
            .chain(["--".into()])
            .collect())
    };
    match (pages, pages.arm(host)) {
        (Pages::Run, _) => settings.start_with = run(&[])?,
        (Pages::Asked(_), Some(arm)) if arm.kind == PageKind::Hugetlb => {
            let kibibytes = arm.size.bytes().get() / 1024;
            settings.huge_pages = true;
            settings.more.push(format!("huge_page_size={kibibytes}kB"));
        }
        (Pages::Asked(_), Some(arm)) if arm.kind == PageKind::Thp => {
            let flags = [
                "--shm",
                &arm.to_string(),
                "--data",
                "base",
                "--stack",
                "base",
            ];
            settings.start_with = run(&flags.map(str::to_owned))?;
        }
        _ => {}
    }
    Ok(settings)
}

/// Whether nearly all of it is on the pages of an arm. `run` takes what large pages there are.
fn is_on(held: &[Held], pages: Pages, host: &Host) -> bool {
    let sum = |of: &dyn Fn(&&Held) -> bool| -> Bytes {
        held.iter().filter(of).map(|held| held.bytes).sum()
    };
    let arm = pages.arm(host);
    let on = sum(&|held| match pages {
        Pages::Run => held.kind != PageKind::Base,
        _ => arm.is_some_and(|arm| held.size == arm.size && held.kind == arm.kind),
    });
    let all = sum(&|_| true);
    // Sizes of memory are far below 2^52 bytes.
    #[allow(clippy::cast_precision_loss)]
    let nearly_all = on.get() as f64 >= NEARLY_ALL * all.get() as f64;
    !all.is_zero() && nearly_all
}

#[cfg(test)]
mod tests {
    use super::*;

    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::RealKernel;
    use hugeleaf_units::PageSize;

    #[test]
    fn a_promotion_that_moves_nothing_is_not_had() {
        let none = br#"{"processes": [{"done_bytes": 0, "already_bytes": 0}]}"#;
        assert!(moved_none(none).unwrap().next.contains("shmem_enabled"));
        let some = br#"{"processes": [{"done_bytes": 0}, {"done_bytes": 2, "already_bytes": 0}]}"#;
        assert_eq!(moved_none(some), None);
        assert_eq!(moved_none(b"no JSON"), None);
    }

    #[test]
    fn nearly_all_is_all() {
        let fixture = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/x86-4k-two-nodes"
        );
        let host = read_host(&Root::at(fixture), &RealKernel::new()).unwrap();
        let held = |size: PageSize, kind, mebibytes: u64| Held {
            size,
            kind,
            bytes: Bytes::from_mib(mebibytes),
        };
        let (base, large) = (host.base_page, host.pmd_page.get().unwrap());
        let small = |mebibytes| held(base, PageKind::Base, mebibytes);
        let thp = |mebibytes| held(large, PageKind::Thp, mebibytes);
        let pool = |mebibytes| held(large, PageKind::Hugetlb, mebibytes);
        let promoted = |held: &[Held]| is_on(held, Pages::Promoted, &host);
        assert!(promoted(&[small(10), thp(990)]));
        assert!(!promoted(&[small(11), thp(989)]));
        // Of a pool is not transparent, but to run both are large; of nothing nothing can be determined.
        assert!(!promoted(&[pool(990)]) && is_on(&[pool(990)], Pages::Run, &host));
        assert!(!promoted(&[]) && !is_on(&[small(1)], Pages::Run, &host));
    }
}
