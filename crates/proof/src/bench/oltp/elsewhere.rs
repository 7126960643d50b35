//! A server that runs already: what its memory is on is nobody's to say here.

use hugeleaf_workload::tpcc::PostgresStore;

use super::arms::Turn;
use super::order::{Order, Progress, Refusal, Server, Setup, run_once};
use super::pages::Pages;
use super::watch::{Processes, Watcher};
use crate::bench::{Machine, Shortage};

pub(super) struct Elsewhere<'a> {
    store: PostgresStore,
    order: &'a Order,
    machine: &'a Machine<'a>,
}

impl<'a> Elsewhere<'a> {
    pub(super) fn new(
        dsn: &str,
        order: &'a Order,
        machine: &'a Machine<'a>,
    ) -> Result<Elsewhere<'a>, Refusal> {
        Ok(Elsewhere {
            store: PostgresStore::new(dsn, order.durability)?,
            order,
            machine,
        })
    }
}

impl Server for Elsewhere<'_> {
    fn check(&self, _: Pages) -> Result<(), Refusal> {
        Err(Refusal::usage(
            "bench oltp: --pages: a server that runs has its pages already",
            "hugeleaf bench oltp --start postgres --pages …, or without --pages",
        ))
    }

    fn fill(&mut self, _: Progress<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    fn start(&mut self, _: Option<Pages>, _: Setup) -> Result<Option<Shortage>, Refusal> {
        if self.order.refill {
            self.store.remove()?;
        }
        Ok(None)
    }

    fn drive(
        &mut self,
        _: Option<Pages>,
        setup: Setup,
        progress: Progress<'_>,
    ) -> Result<Turn, Refusal> {
        let mut watcher = Watcher::of(Processes::Elsewhere, self.machine.root);
        let (order, machine) = (self.order, self.machine);
        let ran = run_once(&self.store, order, setup, machine, &mut watcher, progress)?;
        Ok(Turn::Ran(Box::new(ran)))
    }
}
