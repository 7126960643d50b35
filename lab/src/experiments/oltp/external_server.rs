//! A server that runs already; the pages of its memory are unknown here.

use crate::kits::tpcc::PostgresStore;

use super::pages::Pages;
use super::run::run_once;
use super::settings::{DatabaseServer, EventSink, OltpSettings, Setup};
use super::watch::{Processes, Watcher};
use hugeleaf_proof::bench::{BenchError, Machine};
use hugeleaf_proof::rows::Results;

pub(super) struct ExternalServer<'a> {
    pub(super) store: PostgresStore,
    pub(super) order: &'a OltpSettings,
    pub(super) machine: &'a Machine<'a>,
}

impl DatabaseServer for ExternalServer<'_> {
    fn check(&self, _: Pages) -> Result<(), BenchError> {
        Err(BenchError::usage(
            "bench oltp: --pages: a running server has its pages already",
            "hugeleaf-lab oltp --start postgres --pages …, or without --pages",
        ))
    }

    fn fill(&mut self, _: EventSink<'_>) -> Result<(), BenchError> {
        Ok(())
    }

    fn start(&mut self, _: Option<Pages>, _: Setup) -> Result<(), BenchError> {
        if self.order.refill {
            self.store.remove()?;
        }
        Ok(())
    }

    fn drive(
        &mut self,
        _: Option<Pages>,
        setup: Setup,
        progress: EventSink<'_>,
    ) -> Result<Results, BenchError> {
        let mut watcher = Watcher::new(Processes::ExternalServer, self.machine.root);
        let (order, machine) = (self.order, self.machine);
        run_once(&self.store, order, setup, machine, &mut watcher, progress)
    }
}
