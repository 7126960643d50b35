//! The PostgreSQL protocol, limited to queries that return a number. Without TLS.
//!
//! Logins: none (`trust`, `peer`), `scram-sha-256`, `md5` and `password`. Passwords are used as written. A password with
//! non-ASCII characters works only if it is already in the normal form of SASLprep.

mod address;
mod scram;

use hugeleaf_sys::Deadline;
use md5::{Digest, Md5};

pub use address::{PostgresAddress, PostgresHost};
use scram::Scram;

use crate::{Endpoint, Exchange, QueryError, Transport};

/// The default port.
pub const PORT: u16 = 5432;
/// Protocol version 3.0.
const VERSION: u32 = 3 << 16;

pub struct PostgresConnection {
    /// `None` after an answer broke off, because the next bytes would belong to the previous query.
    wire: Option<Transport>,
}

impl PostgresConnection {
    /// Connects to the first host that accepts the login. Several hosts share the time. The server cancels a statement
    /// after the time of the whole question.
    ///
    /// # Errors
    /// No server can be reached, or the last one refuses.
    pub fn open(
        address: &PostgresAddress,
        question: Deadline<'_>,
    ) -> Result<PostgresConnection, QueryError> {
        if address.needs_tls {
            return Err(QueryError::new(
                "the address requires TLS, which is unsupported: use the server's socket, or sslmode=prefer",
            ));
        }
        let mut failed = QueryError::new("both host and hostaddr are missing");
        let places = address.places()?;
        for (at, place) in places.iter().enumerate() {
            let its = question.share_for(places.len() - at);
            match PostgresConnection::open_at(place, address, its) {
                Ok(connection) => return Ok(connection),
                Err(e) => failed = e,
            }
        }
        Err(failed)
    }

    fn open_at(
        place: &Endpoint,
        address: &PostgresAddress,
        question: Deadline<'_>,
    ) -> Result<PostgresConnection, QueryError> {
        let mut wire = Transport::connect(place, question)?;
        log_in(&mut wire.begin_exchange(question), address)?;
        let mut connection = PostgresConnection { wire: Some(wire) };
        let limit = question.time().as_millis();
        connection.query(&format!("SET statement_timeout = {limit}"), question)?;
        if let Some(writes) = address.writes {
            let says = connection.query("SHOW transaction_read_only", question)?;
            if (says.as_deref() == Some("off")) != writes {
                return Err(QueryError::new(format!(
                    "{place}: the session does not match target_session_attrs"
                )));
            }
        }
        Ok(connection)
    }

    /// Returns the first value of the first row of a statement.
    ///
    /// # Errors
    /// The server's own error, or a broken connection, which is then unusable.
    pub fn query(
        &mut self,
        statement: &str,
        question: Deadline<'_>,
    ) -> Result<Option<String>, QueryError> {
        let broke = || QueryError::new("the connection broke earlier");
        let mut wire = self.wire.take().ok_or_else(broke)?;
        let answer = first(&mut wire.begin_exchange(question), statement)?;
        self.wire = Some(wire);
        answer
    }
}

fn invalid_answer() -> QueryError {
    QueryError::new("the answer is not in the PostgreSQL protocol")
}

/// Reads a message: its kind and its bytes.
fn message(wire: &mut Exchange<'_>) -> Result<(u8, Vec<u8>), QueryError> {
    let head = wire.bytes(5)?;
    let [kind, a, b, c, d] = head[..] else {
        return Err(invalid_answer());
    };
    let length = u32::from_be_bytes([a, b, c, d]).checked_sub(4);
    Ok((
        kind,
        wire.bytes(length.ok_or_else(invalid_answer)? as usize)?,
    ))
}

fn send(wire: &mut Exchange<'_>, kind: Option<u8>, body: &[u8]) -> Result<(), QueryError> {
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    let kind = Vec::from_iter(kind);
    wire.send(&[&kind, &length.to_be_bytes()[..], body].concat())
}

/// Returns the server's message from the fields of an error.
fn refused(fields: &[u8]) -> QueryError {
    let mut texts = fields.split(|byte| *byte == 0);
    let words = texts.find_map(|field| field.strip_prefix(b"M"));
    words.map_or_else(invalid_answer, |words| {
        QueryError::new(String::from_utf8_lossy(words))
    })
}

fn log_in(wire: &mut Exchange<'_>, address: &PostgresAddress) -> Result<(), QueryError> {
    let user = address.user()?;
    let mut start = VERSION.to_be_bytes().to_vec();
    let settings = [
        ("user", Some(user.as_str())),
        ("client_encoding", Some("UTF8")),
        ("database", address.database.as_deref()),
        ("options", address.options.as_deref()),
        (
            "application_name",
            Some(address.application.as_deref().unwrap_or("hugeleaf")),
        ),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            start.extend(format!("{name}\0{value}\0").as_bytes());
        }
    }
    start.push(0);
    send(wire, None, &start)?;
    let mut scram = None;
    loop {
        match message(wire)? {
            (b'R', body) => answer(wire, address, &user, &body, &mut scram)?,
            (b'E', fields) => return Err(refused(&fields)),
            // Ready. If SCRAM was started, the server must have proven itself too.
            (b'Z', _) if scram.as_ref().is_none_or(Scram::is_done) => return Ok(()),
            // Settings, cancellation key, notices, protocol version.
            (b'S' | b'K' | b'N' | b'v', _) => {}
            _ => return Err(invalid_answer()),
        }
    }
}

/// Responds to an authentication request.
fn answer(
    wire: &mut Exchange<'_>,
    address: &PostgresAddress,
    user: &str,
    body: &[u8],
    scram: &mut Option<Scram>,
) -> Result<(), QueryError> {
    let (kind, rest) = body.split_at_checked(4).ok_or_else(invalid_answer)?;
    let password = || {
        let password = address.password.as_deref();
        password.ok_or_else(|| QueryError::new("the server asks for a password, and none is given"))
    };
    match (kind[3], rest) {
        (0, _) => Ok(()),
        (3, _) => send(wire, Some(b'p'), &[password()?, b"\0"].concat()),
        (5, salt) => {
            let inner = hex(&Md5::digest([password()?, user.as_bytes()].concat()));
            let outer = hex(&Md5::digest([inner.as_bytes(), salt].concat()));
            send(wire, Some(b'p'), format!("md5{outer}\0").as_bytes())
        }
        (10, offers) => {
            let name = scram::NAME.as_bytes();
            if !offers.split(|byte| *byte == 0).any(|offer| offer == name) {
                return Err(QueryError::new("the server does not offer SCRAM-SHA-256"));
            }
            let begun = scram.insert(Scram::begin(password()?)?);
            let first = begun.first();
            let length = u32::try_from(first.len()).unwrap_or_default();
            let body = [name, b"\0", &length.to_be_bytes(), first.as_bytes()].concat();
            send(wire, Some(b'p'), &body)
        }
        (11, challenge) => {
            let begun = scram.as_mut().ok_or_else(invalid_answer)?;
            let last = begun.answer(challenge).ok_or_else(invalid_answer)?;
            send(wire, Some(b'p'), last.as_bytes())
        }
        (12, proof) => match scram.as_mut().is_some_and(|begun| begun.check(proof)) {
            true => Ok(()),
            false => Err(QueryError::new(
                "the server did not prove that it knows the password",
            )),
        },
        (other, _) => Err(QueryError::new(format!(
            "the server asks for login method {other}, which is unsupported: give the user scram-sha-256 or peer in pg_hba.conf"
        ))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the first value or the server's own error. The outer error means a broken connection.
fn first(
    wire: &mut Exchange<'_>,
    statement: &str,
) -> Result<Result<Option<String>, QueryError>, QueryError> {
    send(wire, Some(b'Q'), format!("{statement}\0").as_bytes())?;
    let mut answer = Ok(None);
    loop {
        match message(wire)? {
            (b'D', row) => {
                let value = value(&row).ok_or_else(invalid_answer)?;
                answer = answer.map(|first: Option<String>| first.or(value));
            }
            (b'E', fields) => answer = Err(refused(&fields)),
            (b'Z', _) => return Ok(answer),
            // Columns, end of a statement, notices, settings, notifications, empty statement.
            (b'T' | b'C' | b'N' | b'S' | b'A' | b'I', _) => {}
            _ => return Err(invalid_answer()),
        }
    }
}

/// Parses the first value of a row. The inner `None` is NULL or a row without columns.
fn value(row: &[u8]) -> Option<Option<String>> {
    let (columns, rest) = row.split_first_chunk()?;
    if u16::from_be_bytes(*columns) == 0 {
        return Some(None);
    }
    let (length, rest) = rest.split_first_chunk()?;
    match usize::try_from(i32::from_be_bytes(*length)) {
        Ok(length) => Some(Some(
            String::from_utf8_lossy(rest.get(..length)?).into_owned(),
        )),
        Err(_) => Some(None),
    }
}

#[cfg(test)]
mod tests;
