//! The Redis and Valkey protocol (RESP 2) and its `INFO` command.

use std::collections::BTreeMap;

use hugeleaf_sys::Deadline;

use crate::percent_encoding::decoded;
use crate::{Endpoint, Exchange, QueryError, Transport};

/// The default port.
pub const PORT: u16 = 6379;
/// Maximum number of parts. The deepest answer is that of `CONFIG GET`, a list of texts.
const MOST_PARTS: usize = 64;

/// The address and the login of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisAddress {
    pub place: Endpoint,
    /// Empty for the default user.
    pub user: String,
    /// Secret, never shown.
    pub password: Option<String>,
    /// The database number; the default is 0.
    pub database: u32,
}

impl RedisAddress {
    /// Parses `host:port`, `/path/to.sock`, `[redis://]USER:PASSWORD@host:port/DATABASE` or
    /// `unix:///path?user=…&pass=…&db=…`. `%XX` is an encoded byte.
    ///
    /// # Errors
    /// The problem with the text, without quoting it.
    pub fn parse(text: &str) -> Result<RedisAddress, String> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None if text.starts_with('/') => ("unix", text),
            None => ("", text),
        };
        match scheme {
            "unix" | "redis+unix" | "valkey+unix" => RedisAddress::unix(rest),
            "" | "redis" | "valkey" if rest.starts_with('/') => RedisAddress::unix(rest),
            "" | "redis" | "valkey" => RedisAddress::tcp(rest, scheme.is_empty()),
            _ => Err("only redis:// and unix:// are supported, without TLS".into()),
        }
    }

    fn unix(text: &str) -> Result<RedisAddress, String> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let mut address = RedisAddress {
            place: Endpoint::Unix(decoded(path)?),
            user: String::new(),
            password: None,
            database: 0,
        };
        for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
            match name {
                "user" => address.user = decoded(value)?,
                "pass" => address.password = Some(decoded(value)?),
                "db" => address.database = database(value)?,
                _ => {}
            }
        }
        Ok(address)
    }

    /// With `must_hide`, refuses a login without a colon, because it may be only a password.
    fn tcp(text: &str, must_hide: bool) -> Result<RedisAddress, String> {
        // A password may contain an @, so the last @ counts.
        let (login, place) = match text.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, text),
        };
        let place = place.split(['?', '#']).next().unwrap_or_default();
        let (place, number) = place.split_once('/').unwrap_or((place, ""));
        let (user, password) = match login.map(|login| login.split_once(':').ok_or(login)) {
            None => (String::new(), None),
            Some(Ok((user, password))) => (decoded(user)?, Some(decoded(password)?)),
            Some(Err(_)) if must_hide => return Err("write a colon before the password".into()),
            Some(Err(user)) => (decoded(user)?, None),
        };
        Ok(RedisAddress {
            place: Endpoint::parse(place, PORT)?,
            user,
            password: password.filter(|password| !password.is_empty()),
            database: database(number.trim_end_matches('/'))?,
        })
    }
}

fn database(text: &str) -> Result<u32, String> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| "invalid database number".into()),
    }
}

pub struct RedisConnection {
    wire: Transport,
}

impl RedisConnection {
    /// Connects, logs in and selects the database.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn open(
        address: &RedisAddress,
        question: Deadline<'_>,
    ) -> Result<RedisConnection, QueryError> {
        let mut connection = RedisConnection {
            wire: Transport::connect(&address.place, question)?,
        };
        if let Some(password) = &address.password {
            let words = match address.user.as_str() {
                "" => vec!["AUTH", password],
                user => vec!["AUTH", user, password],
            };
            // The server's message may repeat the password.
            let refused = |e: QueryError| match e.timed_out {
                true => e,
                false => QueryError::new("the server refused the password"),
            };
            connection.command(&words, question).map_err(refused)?;
        }
        if address.database != 0 {
            connection.command(&["SELECT", &address.database.to_string()], question)?;
        }
        Ok(connection)
    }

    /// Sends a command and reads its answer: no text for null, one text, or a list of texts.
    ///
    /// # Errors
    /// The server's own error, or a broken connection, which is then unusable.
    pub fn command(
        &mut self,
        words: &[&str],
        question: Deadline<'_>,
    ) -> Result<Vec<String>, QueryError> {
        let mut exchange = self.wire.begin_exchange(question);
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        exchange.send(&bytes)?;
        let line = exchange.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or(("", ""));
        match kind {
            "+" | ":" => Ok(vec![rest.to_owned()]),
            "-" => Err(QueryError::new(rest)),
            "$" => Ok(text(&mut exchange, rest)?.into_iter().collect()),
            "*" => {
                let count = rest.parse().unwrap_or(0);
                let mut parts = Vec::new();
                for _ in 0..MOST_PARTS.min(count) {
                    let line = exchange.line()?;
                    let length = line.strip_prefix('$').unwrap_or_default();
                    let text = text(&mut exchange, length)?;
                    parts.push(text.ok_or_else(|| {
                        QueryError::new("the answer is not in the Redis protocol")
                    })?);
                }
                Ok(parts)
            }
            _ => Err(QueryError::new(
                "the answer is not in the Redis protocol; try: redis-cli -h HOST ping",
            )),
        }
    }

    /// Returns `INFO`, of all sections or of one.
    ///
    /// # Errors
    /// Errors of [`RedisConnection::command`].
    pub fn info(
        &mut self,
        section: Option<&str>,
        question: Deadline<'_>,
    ) -> Result<RedisInfo, QueryError> {
        let words: Vec<&str> = ["INFO"].into_iter().chain(section).collect();
        let answer = self.command(&words, question)?;
        Ok(RedisInfo::parse(answer.first().map_or("", String::as_str)))
    }
}

/// A connection that can send `INFO` only.
pub struct RedisInfoConnection(RedisConnection);

impl RedisInfoConnection {
    /// Connects like [`RedisConnection::open`].
    ///
    /// # Errors
    /// Errors of [`RedisConnection::open`].
    pub fn open(
        address: &RedisAddress,
        question: Deadline<'_>,
    ) -> Result<RedisInfoConnection, QueryError> {
        RedisConnection::open(address, question).map(RedisInfoConnection)
    }

    /// Returns `INFO`, of all sections or of one.
    ///
    /// # Errors
    /// Errors of [`RedisConnection::command`].
    pub fn info(
        &mut self,
        section: Option<&str>,
        question: Deadline<'_>,
    ) -> Result<RedisInfo, QueryError> {
        self.0.info(section, question)
    }
}

/// Reads a text of `length` bytes and its line end. `None` if the length is negative.
fn text(exchange: &mut Exchange<'_>, length: &str) -> Result<Option<String>, QueryError> {
    let Ok(length) = length.parse::<usize>() else {
        return Ok(None);
    };
    let bytes = exchange.bytes(length.saturating_add(2))?;
    Ok(Some(String::from_utf8_lossy(&bytes[..length]).into_owned()))
}

/// The `name:value` lines of `INFO`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisInfo(pub BTreeMap<String, String>);

impl RedisInfo {
    /// Parses the answer to `INFO`.
    pub fn parse(text: &str) -> RedisInfo {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let owned = |(name, value): (&str, &str)| (name.trim().to_owned(), value.trim().to_owned());
        RedisInfo(lines.map(owned).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns a field as a whole number.
    ///
    /// # Errors
    /// The field is missing or not a number.
    pub fn number(&self, name: &str) -> Result<u64, String> {
        let value = self.get(name);
        let value = value.ok_or_else(|| format!("INFO has no line {name}"))?;
        let short = || value.chars().take(60).collect::<String>();
        let number = value.parse();
        number.map_err(|_| format!("{name} is {:?}, not a number", short()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn addresses_and_their_passwords() {
        let address = RedisAddress::parse("redis://me:s:e@cret@host:1/2").unwrap();
        assert_eq!(address.place.to_string(), "host:1");
        assert_eq!((address.user.as_str(), address.database), ("me", 2));
        assert_eq!(address.password.as_deref(), Some("s:e@cret"));
        let path = RedisAddress::parse("/run/a@b.sock").unwrap();
        assert_eq!(path.place, Endpoint::Unix("/run/a@b.sock".into()));
        let coded = RedisAddress::parse("redis+unix:///run/a%20b?user=u&pass=%40%&db=3").unwrap();
        assert_eq!(coded.place.to_string(), "/run/a b");
        assert_eq!((coded.user.as_str(), coded.database), ("u", 3));
        assert_eq!(coded.password.as_deref(), Some("@%"));
        for bad in ["rediss://host", "secret@host", "host/x", "redis://", "a:b@"] {
            assert!(RedisAddress::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn info_is_read() {
        let text = "# Stats\r\ntotal_connections_received:3\r\ntotal_commands_processed:42\r\n";
        let info = RedisInfo::parse(text);
        assert_eq!(info.number("total_commands_processed"), Ok(42));
        let error = |text, name| RedisInfo::parse(text).number(name).unwrap_err();
        assert_eq!(error(text, "total"), "INFO has no line total");
        assert_eq!(error("a:b", "a"), "a is \"b\", not a number");
    }

    /// Returns the result of a query to a server that sends these bytes and hangs up.
    fn answered(bytes: Vec<u8>) -> Result<Vec<String>, QueryError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let _ = theirs.read(&mut [0; 64]);
            let _ = theirs.write_all(&bytes);
        });
        let wire = Transport::from_stream(ours, "redis");
        let question = Deadline::new(std::time::Duration::from_secs(60));
        let answer = RedisConnection { wire }.command(&["INFO"], question);
        server.join().unwrap();
        answer
    }

    #[test]
    fn answers() {
        let read = |text: &str| answered(text.as_bytes().to_vec());
        assert_eq!(read("+OK\r\n"), Ok(vec!["OK".into()]));
        assert_eq!(read("$4\r\na\r\nb\r\n"), Ok(vec!["a\r\nb".into()]));
        assert_eq!(read("$-1\r\n"), Ok(vec![]));
        let list = read("*2\r\n$1\r\na\r\n$1\r\nb\r\n");
        assert_eq!(list, Ok(vec!["a".into(), "b".into()]));
        assert_eq!(read("-NOAUTH\r\n").unwrap_err().what, "NOAUTH");
        for bad in [
            "HTTP/1.1 400\r\n",
            "$99999999999\r\n",
            "*1\r\n:1\r\n",
            "$4\r\na",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".*", scheme in "(redis://|unix://|)", bytes: Vec<u8>) {
            let _ = RedisAddress::parse(&format!("{scheme}{text}"));
            let _ = RedisInfo::parse(&text).number("a");
            let _ = answered(bytes);
        }

        #[test]
        fn numbers_come_back(n: u64, before in "[a-z\r\n#]*") {
            let info = RedisInfo::parse(&format!("{before}\r\nx_total:{n}\r\ny:1"));
            prop_assert_eq!(info.number("x_total"), Ok(n));
        }
    }
}
