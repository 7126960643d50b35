//! A MariaDB server of our own. With several arms, it is restarted for each run on other pages with
//! the same data. Its buffer pool is private memory of one process.

use crate::kits::tpcc::{MariadbServer, MariadbStore, ServerSettings, TpccError};
use hugeleaf_units::{Bytes, PageKind};

use super::pages::OltpPages;
use super::private_server::{ServerRun, promote_mariadb, promotion_took};
use super::run::fill;
use super::server_usage::tree_usage;
use super::settings::{
    DerivedSettings, EventSink, MeasuredDatabase, OltpDatabase, OltpSettings, ReadPath, ServerKind,
};
use super::watch::WatchedProcesses;
use hugeleaf_proof::bench::{BenchContext, BenchError, lacks_pool, under_run};
use hugeleaf_proof::result_format::Results;

/// `--start mariadb`.
pub(super) const KIND: ServerKind = ServerKind {
    name: "mariadb",
    warehouse: MariadbStore::WAREHOUSE,
    make: |order, machine| Box::new(MeasuredMariadb::new(order, machine)),
};

/// Size of the redo log, so that no checkpoint begins in the middle of a short interval.
const LOG: Bytes = Bytes::from_mib(512);

struct MeasuredMariadb<'a> {
    order: &'a OltpSettings,
    machine: &'a BenchContext<'a>,
    server: Option<MariadbServer>,
    /// Durations of promotions in seconds, run by run.
    promoted: Vec<f64>,
}

fn settings(order: &OltpSettings, setup: DerivedSettings) -> ServerSettings {
    // MariaDB's default bypasses the page cache.
    let method = match setup.io {
        ReadPath::Direct => "O_DIRECT",
        ReadPath::Cached | ReadPath::Buffered => "fsync",
    };
    ServerSettings {
        below: match &order.database {
            OltpDatabase::Started(_, below) => below.clone(),
            OltpDatabase::Sqlite(_) | OltpDatabase::ExternalServer(_) => std::env::temp_dir(),
        },
        cache: setup.cache,
        huge_pages: false,
        durability: order.durability,
        connections: setup.connections,
        more: vec![
            format!("innodb-flush-method={method}"),
            format!("innodb-log-file-size={}", LOG.get()),
        ],
        start_with: Vec::new(),
    }
}

/// Returns the settings that put the server on the pages of an arm.
fn with_pages(
    mut settings: ServerSettings,
    pages: OltpPages,
    machine: &BenchContext<'_>,
) -> ServerSettings {
    match (pages, pages.arm(machine.host)) {
        (OltpPages::Run, _) => settings.start_with = under_run(machine.program, &[]),
        (OltpPages::Asked(_), Some(arm)) if arm.kind == PageKind::Hugetlb => {
            settings.huge_pages = true
        }
        (OltpPages::Asked(_), Some(arm)) if arm.kind == PageKind::Thp => {
            let flags = ["--data", &arm.to_string(), "--stack", "base"];
            settings.start_with = under_run(machine.program, &flags);
        }
        _ => {}
    }
    settings
}

impl<'a> MeasuredMariadb<'a> {
    fn new(order: &'a OltpSettings, machine: &'a BenchContext<'a>) -> MeasuredMariadb<'a> {
        MeasuredMariadb {
            order,
            machine,
            server: None,
            promoted: Vec::new(),
        }
    }

    /// Returns the server, and starts it if necessary.
    fn server(&mut self, setup: DerivedSettings) -> Result<&mut MariadbServer, BenchError> {
        Ok(match &mut self.server {
            Some(server) => server,
            none => none.insert(
                MariadbServer::start(&settings(self.order, setup)).map_err(TpccError::from)?,
            ),
        })
    }

    fn store(&mut self, setup: DerivedSettings) -> Result<MariadbStore, BenchError> {
        let root = self.machine.root.clone();
        let server = self.server(setup)?;
        let store = MariadbStore::new(&server.socket()).in_folder(server.folder());
        Ok(match server.pid() {
            Some(pid) => store.with_usage(Box::new(move || tree_usage(&root, pid))),
            None => store,
        })
    }

    /// Refuses an arm whose pool is too small for the buffer pool and its additional buffers.
    fn check_pool(&self, pages: OltpPages, cache: Bytes) -> Result<(), BenchError> {
        let Some(arm) = pages.arm(self.machine.host) else {
            return Ok(());
        };
        // Its log's buffers use these pages, too. Without free pages MariaDB silently takes base
        // pages.
        let needs = cache + Bytes(cache.get() / 16);
        let lacks = lacks_pool(("mariadb", "mysql"), needs, arm, self.machine)?;
        lacks.map_or(Ok(()), |why| Err(BenchError::PagesMissing(why)))
    }

    /// Promotes the running server. Refuses the arm if none of its memory could be promoted.
    fn promote(&mut self) -> Result<(), BenchError> {
        if let Some(pid) = self.server.as_ref().and_then(MariadbServer::pid) {
            self.promoted
                .push(promote_mariadb(self.machine.program, pid)?);
        }
        Ok(())
    }
}

impl MeasuredDatabase for MeasuredMariadb<'_> {
    fn check(&self, pages: OltpPages) -> Result<(), BenchError> {
        match pages {
            OltpPages::Locked => Err(BenchError::usage(
                "bench oltp: --pages locked: not supported for a server's buffer pool",
                "hugeleaf-lab oltp --start mariadb --pages base,run,promoted,hugetlb:2M",
            )),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, progress: EventSink<'_>) -> Result<(), BenchError> {
        let (order, machine) = (self.order, self.machine);
        let setup = DerivedSettings::from_settings(order, machine)?;
        let store = self.store(setup)?;
        fill(&store, order, machine, progress).map(drop)
    }

    /// Restarts the server on other pages with the same data for an arm, and warms it.
    fn start(
        &mut self,
        pages: Option<OltpPages>,
        setup: DerivedSettings,
    ) -> Result<(), BenchError> {
        let Some(pages) = pages else {
            return self.server(setup).map(drop);
        };
        let settings = with_pages(settings(self.order, setup), pages, self.machine);
        self.check_pool(pages, setup.cache)?;
        let server = self.server(setup)?;
        server.restart(&settings).map_err(TpccError::from)?;
        self.store(setup)?.warm(setup.touch)?;
        match pages {
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
        let store = self.store(setup)?;
        let server = self.server(setup)?;
        let driven = ServerRun {
            order,
            machine,
            store: &store,
            folder: server.folder(),
            processes: WatchedProcesses::of_server(server.pid(), machine.host, false),
        };
        driven.drive(pages, setup, progress)
    }

    fn caveats(&self) -> Vec<String> {
        promotion_took(&self.promoted).into_iter().collect()
    }
}
