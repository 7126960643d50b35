//! A server that runs already; the pages of its memory are unknown here.

use crate::kits::tpcc::PostgresStore;

use super::pages::OltpPages;
use super::run::run_once;
use super::settings::{DerivedSettings, EventSink, MeasuredDatabase, OltpSettings};
use super::watch::{DatabaseWatcher, WatchedProcesses};
use hugeleaf_proof::bench::{BenchContext, BenchError};
use hugeleaf_proof::result_format::Results;

pub(super) struct ExternalServer<'a> {
    pub(super) store: PostgresStore,
    pub(super) order: &'a OltpSettings,
    pub(super) machine: &'a BenchContext<'a>,
}

impl MeasuredDatabase for ExternalServer<'_> {
    fn check(&self, _: OltpPages) -> Result<(), BenchError> {
        Err(BenchError::usage(
            "bench oltp: --pages: a running server has its pages already",
            "hugeleaf-lab oltp --start postgres --pages …, or without --pages",
        ))
    }

    fn fill(&mut self, _: EventSink<'_>) -> Result<(), BenchError> {
        Ok(())
    }

    fn start(&mut self, _: Option<OltpPages>, _: DerivedSettings) -> Result<(), BenchError> {
        if self.order.refill {
            self.store.remove()?;
        }
        Ok(())
    }

    fn drive(
        &mut self,
        _: Option<OltpPages>,
        setup: DerivedSettings,
        progress: EventSink<'_>,
    ) -> Result<Results, BenchError> {
        let mut watcher = DatabaseWatcher::new(WatchedProcesses::ExternalServer, self.machine.root);
        let (order, machine) = (self.order, self.machine);
        run_once(&self.store, order, setup, machine, &mut watcher, progress)
    }
}
