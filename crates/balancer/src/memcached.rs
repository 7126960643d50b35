//! memcached: sets `cache_memlimit`.
//!
//! A lower limit alone frees nothing, because pages stay in their size class. So pages of the largest class are moved
//! to the pool of free pages, from which memcached returns memory above its limit.

use hugeleaf_units::Bytes;

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_sys::{Deadline, Pid};

use self::connection::{MemcachedConnection, MemcachedStatsSection, StatsConnection};
use crate::server::{
    CacheCounts, ConnectOptions, PATIENCE, ResizableServer, ServerKind, ServerObserver, ServerState,
};
use hugeleaf_ask::{Endpoint, QueryError};

/// Unit of the limit, and size of the pages that move between classes.
const UNIT: Bytes = Bytes::from_mib(1);
const PORT: u16 = 11211;
/// Maximum number of pages moved per call, so that an observation is not delayed.
const MOVED_AT_ONCE: usize = 64;

pub(crate) const KIND: ServerKind = ServerKind {
    names: &["memcached"],
    address: "host:port or a socket path",
    example: "localhost:11211",
    resizes: "`cache_memlimit`, in whole MiB; the balancer moves slab pages above it out of their classes",
    benefit: "`get_hits` and `get_misses`",
    miss: Duration::from_millis(1),
    processes: &["memcached"],
    is_shared: false,
    evicts: true,
    returns: Duration::from_secs(45),
    check: |address| Endpoint::parse(address, PORT).map(|place| place.to_string()),
    observe: |opening| Box::new(MemcachedReader::new(opening)),
    open: |opening| Box::new(Memcached(MemcachedReader::new(opening))),
};

/// Reads its state. Its connection sends `stats` only.
struct MemcachedReader {
    place: Result<Endpoint, String>,
    connection: Option<StatsConnection>,
}

/// Sets its size.
struct Memcached(MemcachedReader);

impl MemcachedReader {
    fn new(opening: &ConnectOptions) -> MemcachedReader {
        MemcachedReader {
            place: Endpoint::parse(&opening.address, PORT),
            connection: None,
        }
    }

    fn place(&self) -> Result<&Endpoint, QueryError> {
        let place = self.place.as_ref();
        place.map_err(|e| QueryError::new(e.clone()))
    }

    fn stats(
        &mut self,
        topic: MemcachedStatsSection,
        question: Deadline<'_>,
    ) -> Result<MemcachedStats, QueryError> {
        // After an error it reconnects.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => StatsConnection::open(self.place()?, question)?,
        };
        let lines = connection.stats(topic, question)?;
        self.connection = Some(connection);
        Ok(MemcachedStats(statistics(&lines)))
    }
}

/// Parses lines of the form `STAT NAME VALUE`.
fn statistics(lines: &[String]) -> BTreeMap<String, String> {
    let pairs = lines.iter().filter_map(|line| {
        let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
        Some((name.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

struct MemcachedStats(BTreeMap<String, String>);

impl MemcachedStats {
    fn number(&self, name: &str) -> Result<u64, QueryError> {
        let value = self.0.get(name).and_then(|text| text.parse().ok());
        value.ok_or_else(|| {
            QueryError::new(format!(
                "no {name} in its answer; check that it is memcached: echo stats | nc HOST PORT"
            ))
        })
    }
}

fn largest_class(slabs: &MemcachedStats) -> Option<(u32, Bytes)> {
    let pages = slabs.0.iter().filter_map(|(name, value)| {
        let class = name.strip_suffix(":total_pages")?.parse::<u32>().ok()?;
        Some((value.parse::<u64>().ok()?, class))
    });
    let (_, class) = pages.max()?;
    Some((class, Bytes(slabs.number("total_malloced").ok()?)))
}

impl ServerObserver for MemcachedReader {
    fn observe(&mut self) -> Result<ServerState, QueryError> {
        let question = Deadline::new(PATIENCE);
        let stats = self.stats(MemcachedStatsSection::General, question)?;
        let (hits, misses) = (stats.number("get_hits")?, stats.number("get_misses")?);
        let slabs = self.stats(MemcachedStatsSection::Slabs, question)?;
        let held = slabs.number("total_malloced").unwrap_or(0);
        Ok(ServerState {
            size: Bytes(stats.number("limit_maxbytes")?),
            granule: UNIT,
            used: Some(Bytes(held)),
            counts: Some(CacheCounts {
                operations: hits.saturating_add(misses),
                misses,
            }),
            pid: u32::try_from(stats.number("pid")?).ok().map(Pid),
            ..ServerState::default()
        })
    }
}

impl ResizableServer for Memcached {
    fn observer(&mut self) -> &mut dyn ServerObserver {
        &mut self.0
    }

    fn resize(&mut self, to: Bytes) -> Result<(), QueryError> {
        let question = Deadline::new(PATIENCE);
        let mut connection = MemcachedConnection::open(self.0.place()?, question)?;
        let command = format!("cache_memlimit {}", to.get() / UNIT.get());
        match connection.order(&command, question)?.as_str() {
            "OK" => Ok(()),
            other => Err(QueryError::new(format!("{command}: {other}"))),
        }
    }

    fn give_back(&mut self) -> Result<(), QueryError> {
        let question = Deadline::new(PATIENCE);
        let stats = self.0.stats(MemcachedStatsSection::General, question)?;
        let limit = Bytes(stats.number("limit_maxbytes")?);
        let mut connection = MemcachedConnection::open(self.0.place()?, question)?;
        for _ in 0..MOVED_AT_ONCE {
            let slabs = self.0.stats(MemcachedStatsSection::Slabs, question)?;
            let Some((class, held)) = largest_class(&slabs) else {
                return Ok(());
            };
            if held <= limit {
                return Ok(());
            }
            // memcached moves pages in a thread of its own, and answers BUSY while it works.
            let said = connection.order(&format!("slabs reassign {class} 0"), question)?;
            match said.as_str() {
                "OK" => {}
                busy if busy.starts_with("BUSY") => {}
                // Other answers show up in the memory that it still holds.
                _ => return Ok(()),
            }
            let ended = |e: std::io::Error| QueryError::new(e.to_string());
            question
                .wait(&mut [], Duration::from_millis(5))
                .map_err(ended)?;
        }
        Ok(())
    }
}

/// Connections. Their fields are private to this module, so no other code of this file can send anything else over them.
mod connection {
    use hugeleaf_ask::{Endpoint, QueryError, Transport};
    use hugeleaf_sys::Deadline;

    /// Can send any command.
    pub(super) struct MemcachedConnection(Transport);

    impl MemcachedConnection {
        pub(super) fn open(
            place: &Endpoint,
            question: Deadline<'_>,
        ) -> Result<MemcachedConnection, QueryError> {
            Transport::connect(place, question).map(MemcachedConnection)
        }

        /// Sends a command with an answer of one line.
        pub(super) fn order(
            &mut self,
            command: &str,
            question: Deadline<'_>,
        ) -> Result<String, QueryError> {
            let lines = self.ask(command, false, question)?;
            Ok(lines.into_iter().next().unwrap_or_default())
        }

        /// Sends a command, and reads the answer: up to `END`, or a single line. After an error the connection is unusable.
        fn ask(
            &mut self,
            command: &str,
            is_list: bool,
            question: Deadline<'_>,
        ) -> Result<Vec<String>, QueryError> {
            let mut exchange = self.0.begin_exchange(question);
            exchange.send(format!("{command}\r\n").as_bytes())?;
            let mut lines = Vec::new();
            loop {
                let line = exchange.line()?;
                let is_refused = line.starts_with("ERROR") || line.contains("_ERROR ");
                if is_refused {
                    return Err(QueryError::new(format!("{command}: {line}")));
                }
                let is_end = line == "END";
                if !is_end {
                    lines.push(line);
                }
                if is_end || !is_list {
                    return Ok(lines);
                }
            }
        }
    }

    /// The statistics that are read.
    #[derive(Debug, Clone, Copy)]
    pub(super) enum MemcachedStatsSection {
        General,
        Slabs,
    }

    /// Can send `stats` only.
    pub(super) struct StatsConnection(MemcachedConnection);

    impl StatsConnection {
        pub(super) fn open(
            place: &Endpoint,
            question: Deadline<'_>,
        ) -> Result<StatsConnection, QueryError> {
            MemcachedConnection::open(place, question).map(StatsConnection)
        }

        pub(super) fn stats(
            &mut self,
            topic: MemcachedStatsSection,
            question: Deadline<'_>,
        ) -> Result<Vec<String>, QueryError> {
            let command = match topic {
                MemcachedStatsSection::General => "stats",
                MemcachedStatsSection::Slabs => "stats slabs",
            };
            self.0.ask(command, true, question)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_counters_are_read() {
        let text = "STAT 1:total_pages 3\nSTAT 12:total_pages 61\nSTAT 12:used_chunks 9\nSTAT total_malloced 67108864";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let stats = MemcachedStats(statistics(&lines));
        assert_eq!(largest_class(&stats), Some((12, Bytes::from_mib(64))));
        assert!(stats.number("get_hits").is_err());
        assert_eq!(largest_class(&MemcachedStats(BTreeMap::new())), None);
    }
}
