//! The MariaDB and MySQL protocol, limited to queries that return a few texts. Without TLS.
//!
//! Logins: `mysql_native_password`, `caching_sha2_password`, and plugins for which the server trusts the socket
//! (`unix_socket`, `auth_socket`). With `caching_sha2_password`, MySQL asks for the password itself if it has not seen the
//! user since its start. The password is sent over a Unix socket only.

use hugeleaf_sys::Deadline;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::percent_encoding::decoded;
use crate::{Endpoint, Exchange, QueryError, Transport};

/// The default port.
pub const PORT: u16 = 3306;

/// The address and the login of a server. No `Debug`, because it holds a password.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct MysqlAddress {
    /// The host as written, even if a socket is used.
    pub host: String,
    pub port: u16,
    /// The path of a Unix socket. It takes precedence over host and port.
    pub socket: Option<String>,
    /// Empty if the address names no user.
    pub user: String,
    /// Secret, never shown.
    pub password: Option<String>,
    pub database: Option<String>,
}

impl MysqlAddress {
    /// Parses `/path/to.sock` or `[mysql://]USER:PASSWORD@host:port/DATABASE?socket=/path`. `%XX` is an encoded byte,
    /// except in a bare path.
    ///
    /// # Errors
    /// The problem with the text, without quoting it.
    pub fn parse(text: &str) -> Result<MysqlAddress, String> {
        if text.starts_with('/') && !text.starts_with("//") {
            return Ok(MysqlAddress {
                host: "localhost".to_owned(),
                port: PORT,
                socket: Some(text.to_owned()),
                ..MysqlAddress::default()
            });
        }
        let rest = text.strip_prefix("mysql:").unwrap_or(text);
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        if rest.contains("://") {
            return Err("only mysql:// is supported".into());
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        // A password may contain an @, so the last @ counts.
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let Endpoint::Tcp { host, port } = Endpoint::parse(place, PORT)? else {
            return Err("invalid address".into());
        };
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decoded(password)?)),
            None => (login, None),
        };
        let mut address = MysqlAddress {
            host,
            port,
            user: decoded(user)?,
            password: password.filter(|password| !password.is_empty()),
            database: Some(decoded(database)?).filter(|name| !name.is_empty()),
            ..MysqlAddress::default()
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            address.set(pair)?;
        }
        Ok(address)
    }

    /// Parses `name=value`. Tuning options of a connection are accepted and ignored.
    fn set(&mut self, pair: &str) -> Result<(), String> {
        const TUNE: [&str; 13] = [
            "check_health",
            "max_allowed_packet",
            "pool_max",
            "pool_min",
            "prefer_socket",
            "reset_connection",
            "secure_auth",
            "stmt_cache_size",
            "tcp_connect_timeout_ms",
            "tcp_keepalive_probe_count",
            "tcp_keepalive_probe_interval_secs",
            "tcp_keepalive_time_ms",
            "tcp_user_timeout_ms",
        ];
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(&value.replace('+', " "))?;
        match name {
            "socket" => self.socket = Some(value),
            "user" => self.user = value,
            "password" => self.password = Some(value),
            "host" => self.host = value,
            "port" => self.port = value.parse().map_err(|_| "invalid port")?,
            "db_name" => self.database = Some(value),
            name if TUNE.contains(&name) => {}
            _ => return Err("unknown option in the address".into()),
        }
        Ok(())
    }

    pub fn place(&self) -> Endpoint {
        match &self.socket {
            Some(path) => Endpoint::Unix(path.clone()),
            None => Endpoint::Tcp {
                host: self.host.clone(),
                port: self.port,
            },
        }
    }
}

/// Requested protocol capabilities: long passwords, all column flags, the 4.1 protocol, transactions in the status, plugin
/// logins.
const CAPABILITIES: u32 = 1 | 4 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19;
const CONNECT_WITH_DATABASE: u32 = 1 << 3;
const UTF8: u8 = 45;
const QUIT: u8 = 1;
const QUERY: u8 = 3;
/// Length of the server's challenge in bytes.
const SALT: usize = 20;
/// Maximum number of columns. All queries have fewer.
const MOST_COLUMNS: u64 = 64;

const OK: u8 = 0;
const MORE: u8 = 1;
const NULL: u8 = 0xfb;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

pub struct MysqlConnection {
    /// `None` after an answer broke off, because the next bytes would belong to the previous query.
    wire: Option<Transport>,
}

/// Rows of texts. NULL is an empty text.
pub type Rows = Vec<Vec<String>>;

impl MysqlConnection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn open(
        address: &MysqlAddress,
        question: Deadline<'_>,
    ) -> Result<MysqlConnection, QueryError> {
        let mut wire = Transport::connect(&address.place(), question)?;
        log_in(&mut wire.begin_exchange(question), address)?;
        Ok(MysqlConnection { wire: Some(wire) })
    }

    /// Executes one statement.
    ///
    /// # Errors
    /// The server's own error, or a broken connection, which is then unusable.
    pub fn query(&mut self, statement: &str, question: Deadline<'_>) -> Result<Rows, QueryError> {
        let broke = || QueryError::new("the connection broke earlier");
        let mut wire = self.wire.take().ok_or_else(broke)?;
        let answer = rows(&mut wire.begin_exchange(question), statement)?;
        self.wire = Some(wire);
        answer
    }

    /// Announces that no statement follows. Otherwise the server logs an aborted connection.
    pub fn close(mut self, question: Deadline<'_>) {
        if let Some(wire) = &mut self.wire {
            // The server also notices the end of the connection.
            let _ = send(&mut wire.begin_exchange(question), 0, &[QUIT]);
        }
    }
}

/// A connection that can send `SHOW` statements only.
pub struct MysqlShowConnection(MysqlConnection);

impl MysqlShowConnection {
    /// Connects like [`MysqlConnection::open`].
    ///
    /// # Errors
    /// Errors of [`MysqlConnection::open`].
    pub fn open(
        address: &MysqlAddress,
        question: Deadline<'_>,
    ) -> Result<MysqlShowConnection, QueryError> {
        MysqlConnection::open(address, question).map(MysqlShowConnection)
    }

    /// Executes `SHOW` with the rest of the statement, without that word.
    ///
    /// # Errors
    /// Errors of [`MysqlConnection::query`].
    pub fn show(&mut self, rest: &'static str, question: Deadline<'_>) -> Result<Rows, QueryError> {
        self.0.query(&format!("SHOW {rest}"), question)
    }
}

/// Reads a packet: its number in the exchange, and its bytes.
fn packet(wire: &mut Exchange<'_>) -> Result<(u8, Vec<u8>), QueryError> {
    let head = wire.bytes(4)?;
    let [a, b, c, number] = head[..] else {
        return Err(invalid_answer());
    };
    let length = u32::from_le_bytes([a, b, c, 0]);
    Ok((number, wire.bytes(length as usize)?))
}

fn send(wire: &mut Exchange<'_>, number: u8, body: &[u8]) -> Result<(), QueryError> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let [a, b, c, 0] = length.to_le_bytes() else {
        return Err(QueryError::new("the statement is too long"));
    };
    wire.send(&[&[a, b, c, number], body].concat())
}

fn invalid_answer() -> QueryError {
    QueryError::new("the answer is not in the MariaDB or MySQL protocol")
}

/// A cursor that takes bytes from the front.
struct PacketCursor<'a>(&'a [u8]);

impl<'a> PacketCursor<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], QueryError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(invalid_answer)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, QueryError> {
        Ok(self.bytes(1)?[0])
    }

    /// Takes a text that ends with a zero byte or at the end.
    fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0);
        let (text, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest.get(1..).unwrap_or_default();
        text
    }

    /// Takes a length-encoded integer.
    fn number(&mut self) -> Result<u64, QueryError> {
        let count = match self.byte()? {
            small @ ..=0xfa => return Ok(u64::from(small)),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            _ => return Err(invalid_answer()),
        };
        let mut number = [0; 8];
        number[..count].copy_from_slice(self.bytes(count)?);
        Ok(u64::from_le_bytes(number))
    }

    fn counted(&mut self) -> Result<String, QueryError> {
        if self.0.first() == Some(&NULL) {
            self.byte()?;
            return Ok(String::new());
        }
        let count = usize::try_from(self.number()?).map_err(|_| invalid_answer())?;
        Ok(String::from_utf8_lossy(self.bytes(count)?).into_owned())
    }
}

/// Formats `ERROR 1045 (28000): Access denied …` from the bytes after the packet's first byte.
fn refused(body: &[u8]) -> QueryError {
    let mut rest = PacketCursor(body);
    let Ok([low, high]) = rest.bytes(2) else {
        return invalid_answer();
    };
    let code = u16::from_le_bytes([*low, *high]);
    let state = match rest.0 {
        [b'#', text @ ..] if text.len() >= 5 => {
            rest.0 = &text[5..];
            format!(" ({})", String::from_utf8_lossy(&text[..5]))
        }
        _ => String::new(),
    };
    let text = String::from_utf8_lossy(rest.0);
    QueryError::new(format!("ERROR {code}{state}: {text}"))
}

/// Returns the challenge and the authentication plugin of the server's greeting.
fn greeting(body: &[u8]) -> Result<(Vec<u8>, Vec<u8>), QueryError> {
    let mut rest = PacketCursor(body);
    match rest.byte()? {
        10 => {}
        ERROR => return Err(refused(rest.0)),
        _ => return Err(invalid_answer()),
    }
    rest.text();
    rest.bytes(4)?;
    let mut salt = rest.bytes(8)?.to_vec();
    // Filler, capabilities, character set, status, more capabilities, length of the challenge, reserved bytes.
    rest.bytes(1 + 2 + 1 + 2 + 2 + 1 + 10)?;
    salt.extend(rest.text());
    Ok((salt, rest.text().to_vec()))
}

fn log_in(wire: &mut Exchange<'_>, address: &MysqlAddress) -> Result<(), QueryError> {
    let (number, body) = packet(wire)?;
    let (salt, plugin) = greeting(&body)?;
    let password = address.password.as_deref().unwrap_or_default();
    let proof = proof(&plugin, password, &salt).unwrap_or_default();
    let (flags, database) = match &address.database {
        Some(name) => (CAPABILITIES | CONNECT_WITH_DATABASE, format!("{name}\0")),
        None => (CAPABILITIES, String::new()),
    };
    let mut answer = flags.to_le_bytes().to_vec();
    answer.extend((1u32 << 24).to_le_bytes());
    answer.push(UTF8);
    answer.extend([0; 23]);
    answer.extend(format!("{}\0", address.user).as_bytes());
    // At most 32 bytes.
    answer.push(u8::try_from(proof.len()).unwrap_or_default());
    answer.extend(proof);
    answer.extend(database.as_bytes());
    answer.extend(&plugin);
    answer.push(0);
    send(wire, number.wrapping_add(1), &answer)?;
    loop {
        let (number, body) = packet(wire)?;
        let number = number.wrapping_add(1);
        let mut rest = PacketCursor(&body);
        match (rest.byte()?, rest.0) {
            (OK, _) => return Ok(()),
            (ERROR, text) => return Err(refused(text)),
            // The server switches to another plugin, with a new challenge.
            (END, _) => {
                let plugin = rest.text();
                let salt = &rest.0[..rest.0.len().min(SALT)];
                let proof = self::proof(plugin, password, salt)?;
                send(wire, number, &proof)?;
            }
            // caching_sha2_password: either the server knows the user, or it needs the password itself.
            (MORE, [3]) => {}
            (MORE, [4]) if address.socket.is_some() => {
                send(wire, number, format!("{password}\0").as_bytes())?;
            }
            (MORE, [4]) => {
                return Err(QueryError::new(
                    "the server asks for the plain password, which is never sent over TCP without TLS: use its socket, or log \
                     in once with mysql (caching_sha2_password then knows the user)",
                ));
            }
            _ => return Err(invalid_answer()),
        }
    }
}

/// Returns the response of an authentication plugin to the challenge.
fn proof(plugin: &[u8], password: &str, salt: &[u8]) -> Result<Vec<u8>, QueryError> {
    let salt = salt.get(..SALT).unwrap_or(salt);
    match plugin {
        b"unix_socket" | b"auth_socket" => Ok(Vec::new()),
        b"mysql_native_password" | b"caching_sha2_password" | b"" if password.is_empty() => {
            Ok(Vec::new())
        }
        b"mysql_native_password" | b"" => {
            let once = Sha1::digest(password);
            let twice = Sha1::digest(once);
            Ok(xor(&once, &Sha1::digest([salt, &twice].concat())))
        }
        b"caching_sha2_password" => {
            let once = Sha256::digest(password);
            let twice = Sha256::digest(once);
            Ok(xor(&once, &Sha256::digest([&twice, salt].concat())))
        }
        other => Err(QueryError::new(format!(
            "the server asks for login plugin {}, which is unsupported: give the user mysql_native_password or unix_socket",
            String::from_utf8_lossy(other)
        ))),
    }
}

/// Combines the bytes of both by exclusive or.
fn xor(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

/// Returns the rows or the server's own error. The outer error means a broken connection.
fn rows(wire: &mut Exchange<'_>, statement: &str) -> Result<Result<Rows, QueryError>, QueryError> {
    send(wire, 0, &[&[QUERY], statement.as_bytes()].concat())?;
    let (_, body) = packet(wire)?;
    let columns = match body.split_first() {
        Some((&OK, _)) => return Ok(Ok(Vec::new())),
        Some((&ERROR, text)) => return Ok(Err(refused(text))),
        // A request for a file (`LOAD DATA LOCAL`) fails here too: it is not a number.
        _ => PacketCursor(&body).number()?,
    };
    if columns > MOST_COLUMNS {
        return Err(invalid_answer());
    }
    for _ in 0..columns {
        packet(wire)?;
    }
    let mut rows = Vec::new();
    let is_end = |body: &[u8]| body.first() == Some(&END) && body.len() < 9;
    // One end packet follows the columns, another one the rows.
    if !is_end(&packet(wire)?.1) {
        return Err(invalid_answer());
    }
    loop {
        let (_, body) = packet(wire)?;
        match body.split_first() {
            Some((&ERROR, text)) => return Ok(Err(refused(text))),
            _ if is_end(&body) => return Ok(Ok(rows)),
            _ => {
                let mut rest = PacketCursor(&body);
                rows.push(
                    (0..columns)
                        .map(|_| rest.counted())
                        .collect::<Result<_, _>>()?,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
