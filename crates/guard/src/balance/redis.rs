//! Redis and Valkey: `maxmemory`, with respect for what happens at that limit (`maxmemory-policy`).
//!
//! Where nothing may be evicted, a limit below what is in use makes every write fail: so there it is never set lower.
//! Evicting frees memory inside the allocator; whether it is returned depends on how values lie, and is measured by who
//! balances.

use std::time::Duration;

use hugeleaf_sys::{Pid, Question};
use hugeleaf_units::Bytes;

use super::server::{Counts, Look, Opening, PATIENCE, Server, ServerKind};
use hugeleaf_ask::{Unanswered, redis};

/// Where writes fail at the limit, so much of what is in use stays on top of it, one part in so many.
const HEADROOM: u64 = 8;

pub(crate) const KIND: ServerKind = ServerKind {
    names: &["redis", "valkey"],
    address: "host:port, a socket's path, or redis://USER:PASSWORD@host:port",
    example: "localhost:6379",
    resizes: "`maxmemory`; below what is in use only where its policy may evict; 0 (no limit) is left alone without `set_limit`",
    benefit: "`keyspace_hits` and `keyspace_misses`",
    miss: Duration::from_millis(1),
    processes: &["redis-server", "valkey-server"],
    is_shared: false,
    returns: Duration::from_secs(45),
    check: |address| redis::Address::parse(address).map(|address| address.place.to_string()),
    open: |opening: &Opening| {
        Box::new(Redis {
            address: redis::Address::parse(&opening.address),
            set_limit: opening.set_limit,
            connection: None,
        })
    },
};

struct Redis {
    address: Result<redis::Address, String>,
    set_limit: bool,
    connection: Option<redis::Connection>,
}

impl Redis {
    fn with<T>(
        &mut self,
        question: Question<'_>,
        run: impl FnOnce(&mut redis::Connection) -> Result<T, Unanswered>,
    ) -> Result<T, Unanswered> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let address = self.address.as_ref();
                let address = address.map_err(|e| Unanswered::new(e.clone()))?;
                redis::Connection::open(address, question)?
            }
        };
        let done = run(&mut connection)?;
        self.connection = Some(connection);
        Ok(done)
    }

    fn ask(&mut self, words: &[&str], question: Question<'_>) -> Result<(), Unanswered> {
        self.with(question, |connection| connection.ask(words, question))
            .map(drop)
    }

    fn set(&mut self, to: Bytes, question: Question<'_>) -> Result<(), Unanswered> {
        let bytes = to.get().to_string();
        self.ask(&["CONFIG", "SET", "maxmemory", &bytes], question)
    }
}

struct Info(redis::Info);

impl Info {
    fn number(&self, name: &str) -> Result<u64, Unanswered> {
        let number = self.0.number(name);
        number.map_err(|e| Unanswered::new(format!("{e}; is it Redis? Try: redis-cli info")))
    }

    /// The part of keys that may be evicted under a policy.
    fn evictable(&self, policy: &str) -> f64 {
        if policy.starts_with("allkeys") {
            return 1.0;
        }
        if !policy.starts_with("volatile") {
            return 0.0;
        }
        let (mut keys, mut expires) = (0.0, 0.0);
        let databases = self.0.0.iter().filter(|(name, _)| name.starts_with("db"));
        for (_, value) in databases {
            for (name, count) in value.split(',').filter_map(|part| part.split_once('=')) {
                let count: f64 = count.parse().unwrap_or(0.0);
                match name {
                    "keys" => keys += count,
                    "expires" => expires += count,
                    _ => {}
                }
            }
        }
        if keys > 0.0 { expires / keys } else { 0.0 }
    }

    fn busy(&self) -> Option<String> {
        let is = |name: &str| self.0.get(name) == Some("1");
        let saves = is("rdb_bgsave_in_progress") || is("aof_rewrite_in_progress");
        match (is("loading"), saves) {
            (true, _) => Some("it loads its data".into()),
            // What is evicted meanwhile is copied first, because the child still has it.
            (_, true) => Some("a child of it saves".into()),
            _ => None,
        }
    }

    fn look(&self, set_limit: bool) -> Result<Look, Unanswered> {
        let (limit, used) = (self.number("maxmemory")?, self.number("used_memory")?);
        let policy = self.0.get("maxmemory_policy").unwrap_or_default();
        let (hits, misses) = (
            self.number("keyspace_hits")?,
            self.number("keyspace_misses")?,
        );
        let kept = 1.0 - self.evictable(policy);
        let headroom = Bytes(used / HEADROOM);
        let floor = match kept > 0.0 {
            true => Bytes(used).scaled(Bytes(part(kept)), Bytes(PARTS)) + headroom,
            false => Bytes::ZERO,
        };
        let no_limit = (limit == 0 && !set_limit).then(|| {
            "its maxmemory is 0, which is no limit; let it be, or add set_limit = true to its [[balance.component]]".to_owned()
        });
        Ok(Look {
            // One without a limit counts as what it uses.
            size: Bytes(if limit == 0 { used } else { limit }),
            floor,
            used: Some(Bytes(used)),
            counts: Some(Counts {
                operations: hits.saturating_add(misses),
                misses,
            }),
            busy: self.busy(),
            fixed: no_limit,
            pid: u32::try_from(self.number("process_id")?).ok().map(Pid),
            ..Look::default()
        })
    }
}

/// Shares are counted in these, so that sizes stay whole numbers.
const PARTS: u64 = 1024;

fn part(share: f64) -> u64 {
    let parts = (share.clamp(0.0, 1.0) * 1024.0).ceil();
    // Between 0 and 1024.
    #[allow(clippy::cast_possible_truncation)]
    let parts = parts as u64;
    parts.min(PARTS)
}

impl Server for Redis {
    fn look(&mut self) -> Result<Look, Unanswered> {
        let question = Question::new(PATIENCE);
        let info = Info(self.with(question, |connection| connection.info(None, question))?);
        let look = info.look(self.set_limit)?;
        if self.set_limit && info.number("maxmemory")? == 0 {
            // Its limit is what it uses and a part more: it is said as a size, and policies evict from there on.
            let limit = look.size + Bytes(look.size.get() / HEADROOM);
            self.set(limit, question)?;
            return Ok(Look {
                size: limit,
                ..look
            });
        }
        Ok(look)
    }

    fn resize(&mut self, to: Bytes) -> Result<(), Unanswered> {
        // What is in use may have grown since the last look: where nothing may be evicted, every write would fail.
        let look = self.look()?;
        if to < look.size && to < look.floor {
            return Err(Unanswered::new(format!(
                "it uses {} and its policy may not evict that, so a limit of {to} would make writes fail",
                look.used.unwrap_or_default()
            )));
        }
        self.set(to, Question::new(PATIENCE))
    }

    fn give_back(&mut self) -> Result<(), Unanswered> {
        self.ask(&["MEMORY", "PURGE"], Question::new(PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nprocess_id:7\r\nmaxmemory:1000\r\nused_memory:800\r\nmaxmemory_policy:POLICY\r\nkeyspace_hits:5\r\nkeyspace_misses:3\r\nrdb_bgsave_in_progress:0\r\ndb0:keys=10,expires=5,avg_ttl=0\r\n";

    fn look(policy: &str, change: (&str, &str), set_limit: bool) -> Look {
        let text = INFO.replace("POLICY", policy).replace(change.0, change.1);
        Info(redis::Info::parse(&text)).look(set_limit).unwrap()
    }

    #[test]
    fn the_policy_is_respected() {
        let none = ("", "");
        assert_eq!(look("allkeys-lru", none, false).floor, Bytes::ZERO);
        assert_eq!(look("noeviction", none, false).floor, Bytes(900));
        assert_eq!(look("volatile-lru", none, false).floor, Bytes(500));
        let all = ("expires=5", "expires=0");
        assert_eq!(look("volatile-lru", all, false).floor, Bytes(900));
    }

    #[test]
    fn no_limit_is_left_alone_unless_the_rule_says_so() {
        let unlimited = ("maxmemory:1000", "maxmemory:0");
        let alone = look("allkeys-lru", unlimited, false);
        assert!(alone.fixed.unwrap().contains("set_limit"));
        assert_eq!(alone.size, Bytes(800));
        assert_eq!(look("allkeys-lru", unlimited, true).fixed, None);
        let saving = ("rdb_bgsave_in_progress:0", "rdb_bgsave_in_progress:1");
        assert!(look("allkeys-lru", saving, false).busy.is_some());
    }
}
