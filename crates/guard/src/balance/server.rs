//! What a server is to a balancer. The kinds that there are stand in `kinds`.

use std::time::Duration;

use hugeleaf_ask::Unanswered;
use hugeleaf_host::Root;
use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

/// Time of one call to a server, all that is asked in it together.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A server whose size can be looked at. An observer has no call that changes anything, and what only watches has nothing
/// else. Every call is one [`hugeleaf_sys::Question`] and reads a bounded answer; it is made from a thread of that server's own.
pub trait Observer: Send {
    fn look(&mut self) -> Result<Look, Unanswered>;
}

/// A server whose size can be set, too.
pub trait Server: Observer {
    /// Has it take that size. It may still be under way afterwards: `Look::busy`.
    ///
    /// # Errors
    /// It refuses; where there was no answer in time ([`Unanswered::is_late`]) it may still do it.
    fn resize(&mut self, to: Bytes) -> Result<(), Unanswered>;

    /// Asked again and again after it was made smaller, until its memory is back: what a server does not do by itself
    /// to return memory is done here.
    fn give_back(&mut self) -> Result<(), Unanswered> {
        Ok(())
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Look {
    pub size: Bytes,
    /// What it can be resized by; 0 where it takes any size.
    pub granule: Bytes,
    /// Below this it would fail requests, so it is not made smaller; 0 where there is no such size.
    pub floor: Bytes,
    pub ceiling: Option<Bytes>,
    pub used: Option<Bytes>,
    /// The part of `used` that it may never have written to since it got it: its process need not hold that.
    pub untouched: Bytes,
    /// Its counters since it started.
    pub counts: Option<Counts>,
    /// What it is busy with that a resize has to wait for, or be waited for.
    pub busy: Option<String>,
    pub fixed: Option<String>,
    /// It has no limit of its own, and is to get one; until then it counts as having this size.
    pub is_unlimited: bool,
    /// Its process, as it says itself; that may be a number inside a container.
    pub pid: Option<Pid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub operations: u64,
    pub misses: u64,
}

#[derive(Debug, Clone)]
pub struct Opening {
    pub address: String,
    /// Where `/proc` is read.
    pub root: Root,
    pub set_limit: bool,
    /// True if a server that fails instead of evicting may get less than its owner gave it.
    pub below_limit: bool,
}

#[derive(Debug)]
pub struct ServerKind {
    pub names: &'static [&'static str],
    pub address: &'static str,
    pub example: &'static str,
    pub resizes: &'static str,
    pub benefit: &'static str,
    /// What a miss costs more than a hit, where nobody says.
    pub miss: Duration,
    pub processes: &'static [&'static str],
    /// Whether its resident memory is its share of what several map (the JVM maps its heap more than once).
    pub is_shared: bool,
    /// True if it loses data when it is set below its use: entries that its clients then have to make anew.
    pub evicts: bool,
    /// How long memory may take to come back after it was made smaller, before it is let be.
    pub returns: Duration,
    /// The address without its password, or what is wrong with it.
    pub check: fn(&str) -> Result<String, String>,
    pub observe: fn(&Opening) -> Box<dyn Observer>,
    pub open: fn(&Opening) -> Box<dyn Server>,
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
