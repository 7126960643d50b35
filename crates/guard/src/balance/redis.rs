//! Redis and Valkey: `maxmemory`, with respect for what happens at that limit (`maxmemory-policy`).
//!
//! Where nothing may be evicted, a limit below what is in use makes every write fail: so there it is never set lower.
//! Evicting frees memory inside the allocator; whether it is returned depends on how values lie, and is measured by who
//! balances.

use std::collections::BTreeMap;
use std::time::Duration;

use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

use super::server::{Counts, Look, Opening, Server, ServerError, ServerKind};
use super::wire::{Place, Wire};

const PORT: u16 = 6379;
/// Where writes fail at the limit, so much of what is in use stays on top of it, one part in so many.
const HEADROOM: u64 = 8;
/// No answer is deeper than that of `CONFIG GET`: a list of texts.
const MOST_PARTS: usize = 64;

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
    check: |address| Address::parse(address).map(|address| address.place.shown()),
    is_apart: false,
    open: |opening: &Opening| {
        Box::new(Redis {
            address: Address::parse(&opening.address),
            set_limit: opening.set_limit,
            wire: None,
        })
    },
};

/// Where it is, and who asks.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    place: Place,
    user: String,
    password: Option<String>,
}

impl Address {
    fn parse(text: &str) -> Result<Address, String> {
        let rest = text.strip_prefix("redis://").unwrap_or(text);
        let rest = rest.strip_prefix("unix://").unwrap_or(rest);
        if rest.contains("://") {
            return Err("only redis:// and unix:// are spoken, without TLS".into());
        }
        // A path may hold an @; a password may as well, so the last one counts.
        let (login, place) = match rest.rsplit_once('@').filter(|_| !rest.starts_with('/')) {
            Some((login, place)) => (Some(login), place),
            None => (None, rest),
        };
        let place = match rest.starts_with('/') {
            true => place,
            false => place.split('/').next().unwrap_or(place),
        };
        let (user, password) = match login.map(|login| login.split_once(':')) {
            None => (String::new(), None),
            Some(Some((user, password))) => (user.to_owned(), Some(password.to_owned())),
            Some(None) => return Err("a password stands behind a colon".into()),
        };
        Ok(Address {
            place: Place::parse(place, PORT)?,
            user,
            password,
        })
    }
}

struct Redis {
    address: Result<Address, String>,
    set_limit: bool,
    wire: Option<Wire>,
}

/// An answer, flattened: a text, or a list of texts.
fn read(wire: &mut Wire) -> Result<Vec<String>, ServerError> {
    let line = wire.line()?;
    let number = |text: &str| text.parse::<i64>().unwrap_or(-1);
    let (kind, rest) = line.split_at_checked(1).unwrap_or(("", ""));
    match kind {
        "+" | ":" => Ok(vec![rest.to_owned()]),
        "-" => Err(ServerError::new(rest)),
        "$" => match usize::try_from(number(rest)) {
            Ok(count) => {
                let mut text = wire.bytes(count.saturating_add(2))?;
                text.truncate(text.trim_end_matches(['\r', '\n']).len());
                Ok(vec![text])
            }
            Err(_) => Ok(Vec::new()),
        },
        "*" => {
            let count = usize::try_from(number(rest)).unwrap_or(0);
            let mut parts = Vec::new();
            for _ in 0..count.min(MOST_PARTS) {
                let line = wire.line()?;
                let length = line.strip_prefix('$').map_or(-1, number);
                let length = usize::try_from(length)
                    .map_err(|_| ServerError::new("its answer is none of Redis"))?;
                let text = wire.bytes(length.saturating_add(2))?;
                parts.push(text.trim_end_matches(['\r', '\n']).to_owned());
            }
            Ok(parts)
        }
        _ => Err(ServerError::new(
            "its answer is none of Redis; try: redis-cli -h HOST ping",
        )),
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

impl Redis {
    fn connect(&self) -> Result<Wire, ServerError> {
        let address = self.address.as_ref();
        let address = address.map_err(|e| ServerError::new(e.clone()))?;
        let mut wire = Wire::connect(&address.place)?;
        if let Some(password) = &address.password {
            let words = match address.user.as_str() {
                "" => vec!["AUTH", password],
                user => vec!["AUTH", user, password],
            };
            wire.send(&command(&words))?;
            // Its words may repeat what was sent.
            read(&mut wire).map_err(|_| ServerError::new("it refuses the password"))?;
        }
        Ok(wire)
    }

    /// After a connection that broke it connects anew; an answer that is an error keeps it.
    fn ask(&mut self, words: &[&str]) -> Result<Vec<String>, ServerError> {
        let mut wire = match self.wire.take() {
            Some(wire) => wire,
            None => self.connect()?,
        };
        wire.send(&command(words))?;
        let answer = read(&mut wire)?;
        self.wire = Some(wire);
        Ok(answer)
    }

    fn set(&mut self, to: Bytes) -> Result<(), ServerError> {
        let bytes = to.get().to_string();
        self.ask(&["CONFIG", "SET", "maxmemory", &bytes])?;
        Ok(())
    }
}

/// `NAME:VALUE` lines of `INFO`.
struct Info(BTreeMap<String, String>);

impl Info {
    fn parse(text: &str) -> Info {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Info(
            lines
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
        )
    }

    fn number(&self, name: &str) -> Result<u64, ServerError> {
        let value = self.0.get(name).and_then(|text| text.parse().ok());
        value.ok_or_else(|| {
            ServerError::new(format!(
                "it says no number for {name}; is it Redis? Try: redis-cli info"
            ))
        })
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
        let databases = self.0.iter().filter(|(name, _)| name.starts_with("db"));
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
        let is = |name: &str| self.0.get(name).is_some_and(|value| value == "1");
        let saves = is("rdb_bgsave_in_progress") || is("aof_rewrite_in_progress");
        match (is("loading"), saves) {
            (true, _) => Some("it loads its data".into()),
            // What is evicted meanwhile is copied first, because the child still has it.
            (_, true) => Some("a child of it saves".into()),
            _ => None,
        }
    }

    fn look(&self, set_limit: bool) -> Result<Look, ServerError> {
        let (limit, used) = (self.number("maxmemory")?, self.number("used_memory")?);
        let empty = String::new();
        let policy = self.0.get("maxmemory_policy").unwrap_or(&empty);
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
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let parts = parts as u64;
    parts.min(PARTS)
}

impl Server for Redis {
    fn look(&mut self) -> Result<Look, ServerError> {
        let answer = self.ask(&["INFO"])?;
        let info = Info::parse(answer.first().map_or("", String::as_str));
        let look = info.look(self.set_limit)?;
        if self.set_limit && info.number("maxmemory")? == 0 {
            // Its limit is what it uses and a part more: it is said as a size, and policies evict from there on.
            let limit = look.size + Bytes(look.size.get() / HEADROOM);
            self.set(limit)?;
            return Ok(Look {
                size: limit,
                ..look
            });
        }
        Ok(look)
    }

    fn resize(&mut self, to: Bytes) -> Result<(), ServerError> {
        // What is in use may have grown since the last look: where nothing may be evicted, every write would fail.
        let look = self.look()?;
        if to < look.size && to < look.floor {
            return Err(ServerError::new(format!(
                "it uses {} and its policy may not evict that, so a limit of {to} would make writes fail",
                look.used.unwrap_or_default()
            )));
        }
        self.set(to)
    }

    fn give_back(&mut self) -> Result<(), ServerError> {
        self.ask(&["MEMORY", "PURGE"]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nprocess_id:7\r\nmaxmemory:1000\r\nused_memory:800\r\nmaxmemory_policy:POLICY\r\nkeyspace_hits:5\r\nkeyspace_misses:3\r\nrdb_bgsave_in_progress:0\r\ndb0:keys=10,expires=5,avg_ttl=0\r\n";

    fn look(policy: &str, change: (&str, &str), set_limit: bool) -> Look {
        let text = INFO.replace("POLICY", policy).replace(change.0, change.1);
        Info::parse(&text).look(set_limit).unwrap()
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

    #[test]
    fn addresses_and_their_passwords() {
        let address = Address::parse("redis://me:s:e@cret@host:1/0").unwrap();
        assert_eq!(address.place.shown(), "host:1");
        assert_eq!(address.user, "me");
        assert_eq!(address.password.as_deref(), Some("s:e@cret"));
        let path = Address::parse("/run/a@b.sock").unwrap();
        assert_eq!(path.place.shown(), "/run/a@b.sock");
        assert!(Address::parse("rediss://host").is_err());
        assert!(Address::parse("secret@host").is_err());
    }
}
