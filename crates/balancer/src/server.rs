//! The interface between a server and a balancer. `server_kinds` lists the kinds.

use std::path::PathBuf;
use std::time::Duration;

use hugeleaf_ask::QueryError;
use hugeleaf_host::Root;
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

/// Time limit of one call to a server, for all requests in it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A server whose size can be read. An observer has no call that changes anything, and a watching balancer has only observers.
/// Every call is one [`hugeleaf_sys::Deadline`], reads a bounded answer, and runs in a thread of that server's own.
pub trait ServerObserver: Send {
    fn observe(&mut self) -> Result<ServerState, QueryError>;
}

/// A server whose size can also be set. It has an observer and is none, so that it cannot be handed out as one. It opens a
/// connection of its own for each change, because a server may close one that was idle.
pub trait ResizableServer: Send {
    fn observer(&mut self) -> &mut dyn ServerObserver;

    fn observe(&mut self) -> Result<ServerState, QueryError> {
        self.observer().observe()
    }

    /// Sets its size. The change may still be in progress afterwards: the observed state says `busy`.
    ///
    /// # Errors
    /// The server refuses. Without an answer in time ([`QueryError::timed_out`]) it may still make the change.
    fn resize(&mut self, to: Bytes) -> Result<(), QueryError>;

    /// Helps a server to return memory that it does not return without help. Called repeatedly after a reduction until its
    /// memory is returned.
    fn give_back(&mut self) -> Result<(), QueryError> {
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerState {
    pub size: Bytes,
    /// Step of its size; 0 if it accepts any size.
    pub granule: Bytes,
    /// Size below which requests would fail, so it is not reduced further; 0 if there is none.
    pub floor: Bytes,
    pub ceiling: Option<Bytes>,
    pub used: Option<Bytes>,
    /// True if it unmaps what a reduction removes: then its size alone proves the return. Its process may fall by less,
    /// because pages of its size that were never written to take in what was moved (tested: MariaDB 10.11.19).
    pub unmaps: bool,
    /// Its counters since its start.
    pub counts: Option<CacheCounts>,
    /// Activity that conflicts with a resize.
    pub busy: Option<String>,
    pub fixed: Option<String>,
    /// True if it has no limit yet and must get one. Until then this size is assumed.
    pub is_unlimited: bool,
    /// The process id that it reports, which may be an id inside a container.
    pub pid: Option<Pid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    pub operations: u64,
    pub misses: u64,
}

#[derive(Debug, Clone)]
pub struct ConnectOptions {
    pub address: String,
    /// The root whose `/proc` is read.
    pub root: Root,
    /// The run folder, in which a server's kind records its owner's limit; `None` to record nothing.
    pub folder: Option<PathBuf>,
    pub set_limit: bool,
    /// True if a server that fails instead of evicting may get less than its configured limit.
    pub below_limit: bool,
}

#[derive(Debug)]
pub struct ServerKind {
    pub names: &'static [&'static str],
    pub address: &'static str,
    pub example: &'static str,
    pub resizes: &'static str,
    pub benefit: &'static str,
    /// Default for the cost of a miss beyond that of a hit.
    pub miss: Duration,
    pub processes: &'static [&'static str],
    /// True if its resident memory is the proportional share (the JVM maps its heap more than once).
    pub is_shared: bool,
    /// True if a size below its use loses data, which its clients must then recreate.
    pub evicts: bool,
    /// Longest time for memory to be returned after a reduction, before the server is skipped.
    pub returns: Duration,
    /// Returns the address without its password, or an error.
    pub check: fn(&str) -> Result<String, String>,
    pub observe: fn(&ConnectOptions) -> Box<dyn ServerObserver>,
    pub open: fn(&ConnectOptions) -> Box<dyn ResizableServer>,
}

impl PartialEq for ServerKind {
    fn eq(&self, other: &ServerKind) -> bool {
        self.names == other.names
    }
}

impl ServerKind {
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}
