//! A PostgreSQL server of our own. With several arms, it is restarted for each run on other pages
//! with the same data.

use crate::kits::tpcc::{PostgresServer, PostgresStore, ServerSettings, TpccError, WarmMethod};
use hugeleaf_units::{Bytes, PageKind};

use super::pages::OltpPages;
use super::private_server::{ServerRun, promotion_took};
use super::run::fill;
use super::server_usage::tree_usage;
use super::settings::{
    DerivedSettings, EventSink, MeasuredDatabase, OltpDatabase, OltpSettings, ReadPath, ServerKind,
};
use super::watch::WatchedProcesses;
use hugeleaf_proof::bench::{BenchContext, BenchError, lacks_pool, promote, under_run};
use hugeleaf_proof::result_format::Results;

/// `--start postgres`.
pub(super) const KIND: ServerKind = ServerKind {
    name: "postgres",
    warehouse: PostgresStore::WAREHOUSE,
    make: |order, machine| Box::new(MeasuredPostgres::new(order, machine)),
};

/// First version of PostgreSQL that can read its files past the page cache.
const DIRECT_FROM: u32 = 16;

fn settings(order: &OltpSettings, setup: DerivedSettings) -> ServerSettings {
    ServerSettings {
        below: match &order.database {
            OltpDatabase::Started(_, below) => below.clone(),
            OltpDatabase::Sqlite(_) | OltpDatabase::ExternalServer(_) => std::env::temp_dir(),
        },
        cache: setup.cache,
        huge_pages: false,
        durability: order.durability,
        connections: setup.connections,
        more: match setup.io {
            ReadPath::Direct => vec!["debug_io_direct=data".to_owned()],
            ReadPath::Cached | ReadPath::Buffered => Vec::new(),
        },
        start_with: Vec::new(),
    }
}

fn start(order: &OltpSettings, setup: DerivedSettings) -> Result<PostgresServer, BenchError> {
    if setup.io == ReadPath::Direct {
        let version = PostgresServer::version().map_err(TpccError::from)?;
        if version < DIRECT_FROM {
            return Err(BenchError::missing(
                format!(
                    "bench oltp: --io direct: PostgreSQL {version} reads through the page cache; direct I/O \
                     needs {DIRECT_FROM}"
                ),
                format!("--io buffered, or: apt-get install postgresql-{DIRECT_FROM}"),
            ));
        }
    }
    Ok(PostgresServer::start(&settings(order, setup)).map_err(TpccError::from)?)
}

fn store_of(
    server: &PostgresServer,
    order: &OltpSettings,
    machine: &BenchContext<'_>,
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

struct MeasuredPostgres<'a> {
    order: &'a OltpSettings,
    machine: &'a BenchContext<'a>,
    server: Option<PostgresServer>,
    /// Durations of promotions in seconds, run by run.
    promoted: Vec<f64>,
    warmed: Option<WarmMethod>,
}

impl<'a> MeasuredPostgres<'a> {
    fn new(order: &'a OltpSettings, machine: &'a BenchContext<'a>) -> MeasuredPostgres<'a> {
        MeasuredPostgres {
            order,
            machine,
            server: None,
            promoted: Vec::new(),
            warmed: None,
        }
    }

    /// Returns the server, and starts it if necessary.
    fn server(&mut self, setup: DerivedSettings) -> Result<&mut PostgresServer, BenchError> {
        Ok(match &mut self.server {
            Some(server) => server,
            none => none.insert(start(self.order, setup)?),
        })
    }

    /// Refuses an arm whose pool is too small for the shared memory.
    fn check_pool(
        &mut self,
        pages: OltpPages,
        setup: DerivedSettings,
        settings: &ServerSettings,
    ) -> Result<(), BenchError> {
        let arm = pages.arm(self.machine.host);
        let Some(arm) = arm.filter(|arm| arm.kind == PageKind::Hugetlb) else {
            return Ok(());
        };
        // Versions before 15 do not report it; the server's own tables are a small part of it.
        let needs = self.server(setup)?.shared_memory(settings);
        let needs = needs.map_err(TpccError::from)?;
        let needs = needs.unwrap_or(settings.cache + Bytes(settings.cache.get() / 16));
        let lacks = lacks_pool(("postgres", "postgres"), needs, arm, self.machine)?;
        lacks.map_or(Ok(()), |why| Err(BenchError::PagesMissing(why)))
    }

    /// Promotes the running server. Refuses the arm if none of its memory could be promoted.
    fn promote(&mut self) -> Result<(), BenchError> {
        // With the knob at never, the kernel does not align shared memory. With advise, base pages
        // stay base because the server does not request huge pages.
        const NONE: (&str, &str) = (
            "its shared memory is misaligned, or the kernel does not collapse it",
            "before the server starts: echo advise > \
             /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        );
        let Some(pid) = self.server.as_ref().and_then(PostgresServer::pid) else {
            return Ok(());
        };
        self.promoted.push(promote(
            self.machine.program,
            &[&format!("tree:{pid}")],
            NONE,
        )?);
        Ok(())
    }
}

impl MeasuredDatabase for MeasuredPostgres<'_> {
    fn check(&self, pages: OltpPages) -> Result<(), BenchError> {
        let host = self.machine.host;
        let why = match (pages, pages.arm(host)) {
            (OltpPages::Locked, _) => "not supported for a server's shared memory",
            (OltpPages::Asked(_), Some(arm))
                if arm.kind == PageKind::Thp && host.pmd_page.get() != Some(arm.size) =>
            {
                "shared memory can only use the full transparent huge page size"
            }
            _ => return Ok(()),
        };
        Err(BenchError::usage(
            format!("bench oltp: --pages {}: {why}", pages.label(host)),
            "hugeleaf-lab oltp --start postgres --pages base,run,promoted,hugetlb:2M",
        ))
    }

    fn fill(&mut self, progress: EventSink<'_>) -> Result<(), BenchError> {
        let (order, machine) = (self.order, self.machine);
        let setup = DerivedSettings::from_settings(order, machine)?;
        let store = store_of(self.server(setup)?, order, machine)?;
        fill(&store, order, machine, progress).map(drop)
    }

    /// Restarts the server on other pages with the same data for an arm, and warms it.
    fn start(
        &mut self,
        pages: Option<OltpPages>,
        setup: DerivedSettings,
    ) -> Result<(), BenchError> {
        let (order, machine) = (self.order, self.machine);
        let Some(pages) = pages else {
            return self.server(setup).map(drop);
        };
        let settings = with_pages(settings(order, setup), pages, machine);
        self.check_pool(pages, setup, &settings)?;
        let server = self.server(setup)?;
        server.restart(&settings).map_err(TpccError::from)?;
        let store = store_of(server, order, machine)?;
        let warm = store.warm(setup.touch)?;
        self.warmed = Some(warm.how());
        match pages {
            // Promoted while the store is connected, as a server's own connections are: memory that
            // is in no page table is skipped.
            OltpPages::Promoted => self.promote(),
            _ => Ok(()),
        }
    }

    fn drive(
        &mut self,
        pages: Option<OltpPages>,
        setup: DerivedSettings,
        progress: EventSink<'_>,
    ) -> Result<Results, BenchError> {
        let (order, machine) = (self.order, self.machine);
        let server = self.server(setup)?;
        let store = store_of(server, order, machine)?;
        let driven = ServerRun {
            order,
            machine,
            store: &store,
            folder: server.folder(),
            processes: WatchedProcesses::of_server(server.pid(), machine.host, true),
        };
        driven.drive(pages, setup, progress)
    }

    fn caveats(&self) -> Vec<String> {
        let mut caveats: Vec<String> = promotion_took(&self.promoted).into_iter().collect();
        if self.warmed == Some(WarmMethod::ByKeys) {
            caveats.push(
                "the cache was filled by reading tables by key, not block by block".to_owned(),
            );
        }
        caveats
    }
}

/// Returns the settings that put a server on the pages of an arm.
fn with_pages(
    mut settings: ServerSettings,
    pages: OltpPages,
    machine: &BenchContext<'_>,
) -> ServerSettings {
    match (pages, pages.arm(machine.host)) {
        (OltpPages::Run, _) => settings.start_with = under_run(machine.program, &[]),
        (OltpPages::Asked(_), Some(arm)) if arm.kind == PageKind::Hugetlb => {
            let kibibytes = arm.size.bytes().get() / 1024;
            settings.huge_pages = true;
            settings.more.push(format!("huge_page_size={kibibytes}kB"));
        }
        (OltpPages::Asked(_), Some(arm)) if arm.kind == PageKind::Thp => {
            let arm = arm.to_string();
            let flags = ["--shm", &arm, "--data", "base", "--stack", "base"];
            settings.start_with = under_run(machine.program, &flags);
        }
        _ => {}
    }
    settings
}
