//! A thread for each server, so that a server never blocks the others.
//!
//! A thread that hangs in a call is abandoned, so it holds no shared resource.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use hugeleaf_host::Root;

use crate::component::WorkerReport;
use crate::config::BalancedServer;
use crate::process::{find, see};
use crate::server::{ConnectOptions, ResizableServer, ServerObserver};
use hugeleaf_units::Bytes;
use hugeleaf_units::panic_containment::{FAULT, caught};

/// Next work of the thread: at most one of each, so that work does not accumulate while it hangs.
#[derive(Debug, Default)]
struct WorkerMailbox {
    look: bool,
    resize: Option<(u64, Bytes)>,
    returns: bool,
    end: bool,
    report: WorkerReport,
}

#[derive(Debug, Default)]
struct SharedMailbox {
    slot: Mutex<WorkerMailbox>,
    called: Condvar,
}

impl SharedMailbox {
    fn slot(&self) -> MutexGuard<'_, WorkerMailbox> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's access to its server.
pub(crate) enum ServerAccess {
    Observer(Box<dyn ServerObserver>),
    Server(Box<dyn ResizableServer>),
}

impl ServerAccess {
    fn observer(&mut self) -> &mut dyn ServerObserver {
        match self {
            ServerAccess::Observer(observer) => observer.as_mut(),
            ServerAccess::Server(server) => server.observer(),
        }
    }
}

/// A server's thread. After a drop it ends with its current call.
pub(crate) struct Worker {
    shared: Arc<SharedMailbox>,
}

impl Worker {
    /// Starts a thread. A watched server has only an observer, which cannot change it.
    pub fn start(
        member: &BalancedServer,
        root: &Root,
        folder: &Path,
        acts: bool,
        began: Instant,
    ) -> std::io::Result<Worker> {
        let opening = ConnectOptions {
            address: member.address.clone(),
            root: root.clone(),
            folder: Some(folder.to_owned()),
            set_limit: member.set_limit,
            below_limit: member.below_limit,
        };
        let server = match acts {
            true => ServerAccess::Server((member.kind.open)(&opening)),
            false => ServerAccess::Observer((member.kind.observe)(&opening)),
        };
        let (names, is_shared) = (member.kind.processes, member.kind.is_shared);
        let root = root.clone();
        Worker::run(server, began, move |said| {
            find(&root, names, said).and_then(|pid| see(&root, pid, is_shared))
        })
    }

    pub(crate) fn run(
        mut server: ServerAccess,
        began: Instant,
        process: impl Fn(Option<hugeleaf_sys::Pid>) -> Option<crate::process::ProcessSeen>
        + Send
        + 'static,
    ) -> std::io::Result<Worker> {
        let shared = Arc::new(SharedMailbox::default());
        let its = Arc::downgrade(&shared);
        std::thread::Builder::new()
            .name("hugeleaf-server".into())
            .spawn(move || {
                while let Some(work) = next(&its) {
                    let done = caught(|| step(&mut server, &its, &work, began, &process));
                    if let (None, Some(shared)) = (done, its.upgrade()) {
                        shared.slot().report.trouble = Some(FAULT.into());
                    }
                }
            })?;
        Ok(Worker { shared })
    }

    pub fn request_observation(&self) {
        self.shared.slot().look = true;
        self.shared.called.notify_all();
    }

    pub fn resize(&self, id: u64, to: Bytes, returns: bool) {
        let mut slot = self.shared.slot();
        slot.resize = Some((id, to));
        slot.returns = returns;
        slot.report.answer = None;
        self.shared.called.notify_all();
    }

    pub fn report(&self) -> WorkerReport {
        self.shared.slot().report.clone()
    }

    pub fn returned(&self) {
        self.shared.slot().returns = false;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.slot().end = true;
        self.shared.called.notify_all();
    }
}

struct WorkItem {
    resize: Option<(u64, Bytes)>,
    returns: bool,
}

fn next(shared: &Weak<SharedMailbox>) -> Option<WorkItem> {
    let shared = shared.upgrade()?;
    let slot = shared.slot();
    let is_idle = |slot: &mut WorkerMailbox| !slot.look && slot.resize.is_none() && !slot.end;
    let waited = shared.called.wait_while(slot, is_idle);
    let mut slot = waited.unwrap_or_else(PoisonError::into_inner);
    if slot.end {
        return None;
    }
    slot.look = false;
    Some(WorkItem {
        resize: slot.resize.take(),
        returns: slot.returns,
    })
}

fn step(
    server: &mut ServerAccess,
    shared: &Weak<SharedMailbox>,
    work: &WorkItem,
    began: Instant,
    process: &dyn Fn(Option<hugeleaf_sys::Pid>) -> Option<crate::process::ProcessSeen>,
) {
    let mut answer = None;
    if let ServerAccess::Server(server) = server {
        answer = work.resize.map(|(id, to)| (id, server.resize(to)));
        if work.returns && work.resize.is_none() {
            // Its answer is not needed, because returned memory is measured.
            let _ = server.give_back();
        }
    }
    let looked = server.observer().observe();
    let at = began.elapsed();
    let Some(shared) = shared.upgrade() else {
        return;
    };
    let located = looked.as_ref().ok().and_then(|look| process(look.pid));
    let mut slot = shared.slot();
    if answer.is_some() {
        slot.report.answer = answer;
    }
    match looked {
        Ok(look) => {
            slot.report.trouble = None;
            slot.report.seen = Some((at, look, located));
        }
        Err(error) => slot.report.trouble = Some(error.what),
    }
}
