//! One run: all phases of a load, on servers started for it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::kits::keyed_reads::ClientCounters;
use crate::kits::tpcc::{MariadbWatch, TpccError, joined};
use hugeleaf_units::{Bytes, PageKind};
use tempfile::TempDir;

use super::AmmSettings;
use super::arm::AmmArm;
use super::balance_process::BalanceProcess;
use super::load::{AmmLoad, LoadPhase, ServerActivity};
use super::rows::{PhaseSeen, RunSeen, ServersSample};
use super::tenant::{Tenant, Tenants, ours, sample};
use hugeleaf_proof::bench::{BenchContext, BenchError};

#[derive(Debug, Clone, Copy)]
pub(super) struct AmmRun<'a> {
    pub(super) settings: &'a AmmSettings,
    pub(super) machine: &'a BenchContext<'a>,
    pub(super) arm: AmmArm,
    pub(super) load: AmmLoad,
    /// Differs from round to round, and is the same for all arms.
    pub(super) seed: u64,
}

#[derive(Default)]
struct LoadControl {
    done: [ClientCounters; 2],
    stop: AtomicBool,
    failed: AtomicBool,
}

impl AmmRun<'_> {
    /// Restarts the servers and runs all phases.
    ///
    /// # Errors
    /// [`BenchError::PagesMissing`] if the host lacks the pages of the arm.
    pub(super) fn measure(&self, tenants: &mut Tenants<'_>) -> Result<RunSeen, BenchError> {
        tenants.restart(self.arm, self.load)?;
        let both = &tenants.both;
        let mut watches = [both[0].watch()?, both[1].watch()?];
        let folder = private_folder(&self.settings.parent_folder)?;
        let mut balancer = match self.arm.automatic {
            true => {
                let addresses = both.each_ref().map(Tenant::address);
                let about = (self.arm.pages, self.programs(both));
                Some(BalanceProcess::start(
                    (self.settings, self.machine.program),
                    about,
                    addresses,
                    folder.path(),
                )?)
            }
            false => None,
        };
        let began = Instant::now();
        let mut phases = Vec::new();
        for phase in self.load.phases() {
            let looks = self.phase(phase, both, (&mut watches, balancer.as_mut()), began)?;
            let name = phase.name;
            phases.push(PhaseSeen { name, looks });
        }
        let large = self.part_on_large(both);
        let log = balancer.map(BalanceProcess::end);
        if self.load.is_tpcc() {
            for tenant in both {
                tenant.check_orders(self.machine.stop)?;
            }
        }
        Ok(RunSeen { phases, large, log })
    }

    /// Returns the memory of both servers besides their buffer pools, with room for connections.
    fn programs(&self, both: &[Tenant; 2]) -> Bytes {
        const CONNECTIONS: Bytes = Bytes::from_mib(8);
        let of = |tenant: &Tenant| {
            let resident = tenant.resident(self.machine.root)?;
            let pool: Bytes = (tenant.pages(self.machine)?.iter())
                .map(|held| held.bytes)
                .sum();
            Some(Bytes(resident.get().saturating_sub(pool.get())))
        };
        let held: Bytes = both.iter().filter_map(of).sum();
        held + CONNECTIONS
    }

    /// Returns the part of both buffer pools that is on huge pages.
    fn part_on_large(&self, both: &[Tenant; 2]) -> Option<f64> {
        let all: Option<Vec<_>> = both.iter().map(|t| t.pages(self.machine)).collect();
        let all = all?.concat();
        let sum = |of: &dyn Fn(PageKind) -> bool| -> Bytes {
            let held = all.iter().filter(|held| of(held.kind));
            held.map(|held| held.bytes).sum()
        };
        let (large, all) = (sum(&|kind| kind != PageKind::Base), sum(&|_| true));
        (!all.is_zero()).then(|| large.as_f64() / all.as_f64())
    }

    fn phase(
        &self,
        phase: &LoadPhase,
        both: &[Tenant; 2],
        (watches, balancer): (&mut [MariadbWatch; 2], Option<&mut BalanceProcess>),
        began: Instant,
    ) -> Result<Vec<ServersSample>, BenchError> {
        let shared = LoadControl::default();
        thread::scope(|scope| {
            let shared = &shared;
            let mut workers = Vec::new();
            for (which, tenant) in both.iter().enumerate() {
                let connections = match phase.activities[which] {
                    // The run of the order entry opens its own connections.
                    ServerActivity::Busy(_) if !self.load.is_tpcc() => self.settings.connections,
                    _ => 1,
                };
                for connection in 0..connections {
                    let work = move || self.work(phase, tenant, (which, connection), shared);
                    workers.push(scope.spawn(work));
                }
            }
            let watched = self.watch(both, (watches, balancer), shared, began);
            // The order entry ends on its own, after completing its open transactions.
            let is_over = watched.is_err() || !self.load.is_tpcc();
            shared.stop.store(is_over, Ordering::Relaxed);
            match (watched, joined(workers)) {
                // If a connection failed, its error explains more than the end of the watch.
                (Err(BenchError::Stopped) | Ok(_), Err(error)) => Err(ours(error)),
                (watched, _) => watched,
            }
        })
    }

    /// Runs one connection for a phase, or all connections of a server that enters orders.
    fn work(
        &self,
        phase: &LoadPhase,
        tenant: &Tenant,
        (which, connection): (usize, usize),
        shared: &LoadControl,
    ) -> Result<(), TpccError> {
        let (does, settings) = (phase.activities[which], self.settings);
        let seed = self.seed.wrapping_mul(2).wrapping_add(which as u64);
        let stop = &shared.stop;
        let worked = match self.load.is_tpcc() {
            true => tenant.enter_orders(does, settings, seed, stop),
            false => tenant.work(
                does,
                settings,
                (connection, seed),
                &shared.done[which],
                stop,
            ),
        };
        if worked.is_err() {
            shared.failed.store(true, Ordering::Relaxed);
        }
        worked
    }

    /// Reads the state of both servers once a second until the phase is over.
    fn watch(
        &self,
        both: &[Tenant; 2],
        (watches, mut balancer): (&mut [MariadbWatch; 2], Option<&mut BalanceProcess>),
        shared: &LoadControl,
        began: Instant,
    ) -> Result<Vec<ServersSample>, BenchError> {
        let mut seen = || {
            let at = began.elapsed().as_secs_f64();
            let look = sample(both, watches, self.machine.root)?;
            let each = shared.done.each_ref().map(ClientCounters::reads);
            let operations = match self.load.is_tpcc() {
                true => look.commits,
                false => each.iter().sum(),
            };
            let others = shared.done.iter().map(ClientCounters::others).sum();
            Ok::<ServersSample, BenchError>(ServersSample {
                at,
                operations,
                each,
                others,
                ..look
            })
        };
        let (start, mut looks) = (Instant::now(), vec![seen()?]);
        for second in 1..=self.settings.phase.as_secs().max(1) {
            self.sleep_until(start + Duration::from_secs(second), shared)?;
            if let Some(balancer) = &mut balancer {
                balancer.check()?;
            }
            looks.push(seen()?);
        }
        Ok(looks)
    }

    fn sleep_until(&self, when: Instant, shared: &LoadControl) -> Result<(), BenchError> {
        const SLICE: Duration = Duration::from_millis(20);
        loop {
            let is_over = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            if is_over(self.machine.stop) || is_over(&shared.failed) {
                return Err(BenchError::Stopped);
            }
            let left = when.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(SLICE));
        }
    }
}

/// Makes a private folder for the balancer's file and log; removed when dropped.
fn private_folder(parent: &Path) -> Result<TempDir, BenchError> {
    let made = tempfile::Builder::new()
        .prefix("hugeleaf-amm-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(parent);
    made.map_err(|e| {
        BenchError::missing(
            format!("bench amm: {e}"),
            "name a writable folder: --below DIR",
        )
    })
}
