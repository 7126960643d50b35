//! The two servers: filled once, restarted for each run on the pages of its arm.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::kits::keyed_reads::{ClientCounters, ClientLoad, KeyedTable};
use crate::kits::tpcc::{
    DatasetSpec, DriverSettings, FillProgress, MariadbSeen, MariadbServer, MariadbStore,
    MariadbWatch, ServerSettings, TableCardinality, TpccError, TpccStore, TransactionPace, check,
    data_bytes, drive, load,
};
use hugeleaf_host::process::proc_parsers::parse_status;
use hugeleaf_host::{PageUsage, Root};
use hugeleaf_sys::Kernel;
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::PageArm;

use super::arm::{AmmArm, AmmPages};
use super::load::{AmmLoad, LIGHT, NAMES, ServerActivity};
use super::{AmmSettings, rows};
use crate::experiments::oltp::{FILLED_AT, cache_pages, promote_mariadb};
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent, lacks_pool};

/// Granularity of buffer pool sizes.
const STEP: Bytes = Bytes::from_mib(8);

/// A server with both of its databases.
pub(super) struct Tenant {
    server: MariadbServer,
    table: KeyedTable,
    /// Origin of the order entry, if that is one of the loads.
    origin: Option<DatasetSpec>,
}

/// Both servers.
pub(super) struct Tenants<'a> {
    settings: &'a AmmSettings,
    machine: &'a BenchContext<'a>,
    pub(super) both: [Tenant; 2],
}

impl<'a> Tenants<'a> {
    /// Starts and fills both servers.
    pub(super) fn fill(
        settings: &'a AmmSettings,
        machine: &'a BenchContext<'a>,
        progress: &mut dyn FnMut(BenchEvent),
    ) -> Result<Tenants<'a>, BenchError> {
        let mut one = |name| fill(settings, machine, name, progress);
        let both = [one(NAMES[0])?, one(NAMES[1])?];
        Ok(Tenants {
            settings,
            machine,
            both,
        })
    }

    /// Restarts both servers on the pages of an arm, with a full cache that holds the pages they read first.
    ///
    /// # Errors
    /// [`BenchError::PagesMissing`] if the host lacks the pages of the arm.
    pub(super) fn restart(&mut self, arm: AmmArm, load: AmmLoad) -> Result<(), BenchError> {
        let (settings, machine) = (self.settings, self.machine);
        if arm.pages == AmmPages::Hugetlb {
            check_pool(settings.target, machine)?;
        }
        let sizes = arm.split(settings.target, settings.least, STEP);
        for (tenant, size) in self.both.iter_mut().zip(sizes) {
            let hugetlb = arm.pages == AmmPages::Hugetlb;
            let server = &mut tenant.server;
            let restarted = server.restart(&server_settings(settings, size, hugetlb));
            restarted.map_err(|e| ours(e.into()))?;
        }
        let does = load.phases()[0].activities;
        for ((tenant, does), size) in self.both.iter().zip(does).zip(sizes) {
            let table = &tenant.table;
            let warmed = match load.is_tpcc() {
                true => tenant.store().warm(None),
                // Full, as after a day's work. With a fixed division, pages read in later would be on base pages.
                false => (table.warm(size))
                    .and_then(|()| table.warm(part(settings.target, hot_part(does)))),
            };
            warmed.map_err(ours)?;
        }
        if arm.pages == AmmPages::Large {
            self.promote()?;
        }
        Ok(())
    }

    /// Promotes both servers. One with little resident memory may have no whole block yet.
    fn promote(&self) -> Result<(), BenchError> {
        let mut lacking = Vec::new();
        for tenant in &self.both {
            match tenant.promote(self.machine.program) {
                Err(BenchError::PagesMissing(why)) => lacking.push(why),
                moved => moved?,
            }
        }
        match lacking.len() == self.both.len() {
            true => lacking
                .pop()
                .map_or(Ok(()), |why| Err(BenchError::PagesMissing(why))),
            false => Ok(()),
        }
    }

    /// Returns the version of the servers, such as `MariaDB 10.11.19`.
    pub(super) fn version(&self) -> Result<String, BenchError> {
        self.both[0].store().version().map_err(ours)
    }
}

fn fill(
    settings: &AmmSettings,
    machine: &BenchContext<'_>,
    name: &str,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Tenant, BenchError> {
    let half = Bytes(settings.target.get() / 2);
    let server = MariadbServer::start(&server_settings(settings, half, false))
        .map_err(|e| ours(e.into()))?;
    // A table is as large as the target, so no buffer pool ever holds all of it.
    let table = KeyedTable::new(&server.socket(), settings.target);
    let mut shown = |done, of| {
        let what = format!("filling {name}: reads by key");
        progress(BenchEvent::At { done, of, what });
    };
    if settings.loads.iter().any(|load| !load.is_tpcc()) {
        table.fill(&mut shown, machine.stop).map_err(ours)?;
    }
    let mut tenant = Tenant {
        server,
        table,
        origin: None,
    };
    if settings.loads.iter().any(|load| load.is_tpcc()) {
        let mut shown = |event| {
            if let FillProgress::At { done, of, part } = event {
                let what = format!("filling {name}: {part}");
                let (done, of) = (done as u64, of as u64);
                progress(BenchEvent::At { done, of, what });
            }
        };
        let origin = origin(settings);
        let filled = load(&tenant.store(), &origin, true, &mut shown, machine.stop);
        tenant.origin = Some(filled.map_err(ours)?);
    }
    Ok(tenant)
}

/// Returns an origin with as many warehouses as fit a busy server's frequently read data.
fn origin(settings: &AmmSettings) -> DatasetSpec {
    let scale = TableCardinality::shrunk(settings.shrink);
    let each = data_bytes(MariadbStore::WAREHOUSE, 1, scale);
    let much = hot_part(AmmLoad::Tpcc.phases()[0].activities[0]);
    let fit = part(settings.target, much).get() / each.get().max(1);
    let fit = i32::try_from(fit).unwrap_or(i32::MAX).max(1);
    DatasetSpec {
        warehouses: settings.warehouses.unwrap_or(fit),
        shards: 1,
        scale,
        seed: settings.seed,
        filled_at: FILLED_AT,
    }
}

fn server_settings(settings: &AmmSettings, size: Bytes, hugetlb: bool) -> ServerSettings {
    ServerSettings {
        below: settings.parent_folder.clone(),
        cache: size,
        huge_pages: hugetlb,
        durability: settings.durability,
        connections: 2 * settings.connections + 8,
        // Reads of pages outside the buffer pool reach the disk, not the page cache. Little memory is used besides
        // the buffer pool.
        more: [
            "innodb-flush-method=O_DIRECT",
            "innodb-log-file-size=128M",
            "key-buffer-size=1M",
            "aria-pagecache-buffer-size=8M",
        ]
        .map(str::to_owned)
        .to_vec(),
        start_with: Vec::new(),
    }
}

/// Refuses the arm if the pool is too small for both buffer pools and their additional buffers.
fn check_pool(target: Bytes, machine: &BenchContext<'_>) -> Result<(), BenchError> {
    let Some(size) = machine.host.pmd_page.get() else {
        return Err(BenchError::usage(
            "bench amm: the size of this host's huge pages is unknown",
            "hugeleaf-lab amm --arms manual:base,amm:base",
        ));
    };
    let arm = PageArm {
        size,
        kind: PageKind::Hugetlb,
    };
    let needs = Bytes(target.get() + target.get() / 16);
    let lacks = lacks_pool(("mariadb", "mysql"), needs, arm, machine)?;
    lacks.map_or(Ok(()), |why| Err(BenchError::PagesMissing(why)))
}

/// Returns a server's frequently read data, as a part of the target.
fn hot_part(does: ServerActivity) -> f64 {
    match does {
        ServerActivity::Busy(part) => part,
        ServerActivity::Light | ServerActivity::Report | ServerActivity::Flood => LIGHT,
    }
}

// A target is far below 2^52 bytes.
#[allow(clippy::cast_possible_truncation)]
fn part(target: Bytes, part: f64) -> Bytes {
    Bytes((target.get() as f64 * part) as u64)
}

/// Converts an error of the load to one of this benchmark.
pub(super) fn ours(error: TpccError) -> BenchError {
    match error {
        TpccError::Stopped => BenchError::Stopped,
        TpccError::NotInstalled { package, .. } => BenchError::missing(
            format!("bench amm: {error}"),
            format!("apt-get install {package}"),
        ),
        error => BenchError::missing(format!("bench amm: {error}"), error.next()),
    }
}

impl Tenant {
    pub(super) fn store(&self) -> MariadbStore {
        MariadbStore::new(&self.server.socket()).in_folder(self.server.folder())
    }

    pub(super) fn address(&self) -> String {
        self.server.address()
    }

    pub(super) fn watch(&self) -> Result<MariadbWatch, BenchError> {
        MariadbWatch::open(&self.server.socket()).map_err(ours)
    }

    fn promote(&self, program: &Path) -> Result<(), BenchError> {
        let Some(pid) = self.server.pid() else {
            return Ok(());
        };
        promote_mariadb(program, pid).map(drop)
    }

    /// Returns the resident memory of the server, including hugetlb pages.
    pub(super) fn resident(&self, root: &Root) -> Option<Bytes> {
        let pid = self.server.pid()?;
        let status = root.parse(format!("proc/{pid}/status"), parse_status);
        let status = status.known()?;
        Some(status.resident? + status.hugetlb.unwrap_or(Bytes::ZERO))
    }

    pub(super) fn pages(&self, machine: &BenchContext<'_>) -> Option<Vec<PageUsage>> {
        let pids = [self.server.pid()?];
        cache_pages(machine.root, &Kernel::new(), machine.host, &pids, false)
    }

    /// Runs one connection's work of a phase, until `stop`.
    pub(super) fn work(
        &self,
        does: ServerActivity,
        settings: &AmmSettings,
        (connection, seed): (usize, u64),
        done: &ClientCounters,
        stop: &AtomicBool,
    ) -> Result<(), TpccError> {
        let target = settings.target;
        let work = match does {
            ServerActivity::Busy(often) => ClientLoad::Busy(part(target, often)),
            ServerActivity::Light => ClientLoad::Light(part(target, LIGHT)),
            ServerActivity::Report => ClientLoad::Report,
            ServerActivity::Flood => ClientLoad::Flood,
        };
        let seed = seed.wrapping_mul(1000).wrapping_add(connection as u64);
        self.table.work(work, seed, done, stop)
    }

    /// Runs the order entry for a phase.
    pub(super) fn enter_orders(
        &self,
        does: ServerActivity,
        settings: &AmmSettings,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<(), TpccError> {
        /// Part of the standard's keying and think time: two or three transactions a second.
        const UNHURRIED: f64 = 0.02;
        let is_busy = matches!(does, ServerActivity::Busy(_));
        let run = DriverSettings {
            connections: if is_busy { settings.connections } else { 1 },
            ramp_up: Duration::ZERO,
            time: settings.phase,
            pace: match is_busy {
                true => TransactionPace::Full,
                false => TransactionPace::People(UNHURRIED),
            },
            touched: None,
            seed,
        };
        let Some(origin) = &self.origin else {
            return Ok(());
        };
        match drive(&self.store(), origin, run, &mut (), &mut |_, _| {}, stop) {
            // A short phase of an unhurried terminal may contain no order.
            Err(TpccError::NoOrders(_)) if !is_busy => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Checks that the order entry has left the database consistent.
    pub(super) fn check_orders(&self, stop: &AtomicBool) -> Result<(), BenchError> {
        let Some(origin) = &self.origin else {
            return Ok(());
        };
        let found = check(&self.store(), origin, &mut |_, _| {}, stop).map_err(ours)?;
        match found.first() {
            None => Ok(()),
            Some(first) => Err(BenchError::no(
                format!("bench amm: the database is not consistent: {first}"),
                "run it again; report it if it happens again",
            )),
        }
    }
}

/// Reads the state of both servers.
pub(super) fn sample(
    tenants: &[Tenant; 2],
    watches: &mut [MariadbWatch; 2],
    root: &Root,
) -> Result<rows::ServersSample, BenchError> {
    let [first, second] = watches;
    let seen: [MariadbSeen; 2] = [
        first.sample().map_err(ours)?,
        second.sample().map_err(ours)?,
    ];
    let resident = tenants.each_ref().map(|tenant| tenant.resident(root));
    Ok(rows::ServersSample {
        counters: seen[0].counters + seen[1].counters,
        commits: seen[0].commits + seen[1].commits,
        pools: seen.map(|seen| seen.pool),
        resident: resident[0].zip(resident[1]).map(|(a, b)| a + b),
        ..rows::ServersSample::default()
    })
}
