//! Statements of a MySQL or MariaDB server.
//!
//! The default counts `Questions`: statements that clients sent, of any kind and in any
//! transaction. `Com_commit` and `Com_rollback` count explicit transactions only, so they are
//! constant under autocommit. A user of explicit transactions names them:
//! `mysql:DSN#Com_commit+Com_rollback`.

use hugeleaf_ask::mysql::{MysqlAddress, MysqlConnection, PORT};
use hugeleaf_sys::Deadline;

use super::reading::{Metric, MetricError, Reading};
use super::redact::{host_name, redact_secret};
use super::spec::{MetricArgument, MetricKind, MetricSpec, MetricSpecError};

pub(super) const KIND: MetricKind = MetricKind {
    names: &["mysql"],
    form: "mysql:DSN[#VARIABLE+…]",
    help: "statements per second, or the summed rate of the named status variables; the DSN is \
           `mysql://user@host` or the path of a socket",
    example: "mysql:/run/mysqld/mysqld.sock#Com_commit+Com_rollback",
    needs_address: true,
    can_be_gauge: false,
    parse,
};

fn parse(typed: &MetricArgument<'_>) -> Result<MetricSpec, MetricSpecError> {
    let (dsn, variables) = match typed.rest.split_once('#') {
        Some((dsn, names)) => (dsn, names.split('+').map(str::to_owned).collect()),
        None => (typed.rest, vec![STATEMENTS.to_owned()]),
    };
    let is_name =
        |v: &String| !v.is_empty() && v.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !variables.iter().all(is_name) {
        return Err(typed.malformed("a status variable has only letters, digits and _"));
    }
    let address = MysqlAddress::parse(dsn);
    let shown = with_variables(shown(&address), &variables);
    let open = move |_: &_, question: Deadline<'_>| connect(&address, &variables, question);
    Ok(MetricSpec::new(shown, open))
}

/// The default status variable.
const STATEMENTS: &str = "Questions";

fn with_variables(address: String, variables: &[String]) -> String {
    match variables {
        [one] if one == STATEMENTS => address,
        several => format!("{address}#{}", several.join("+")),
    }
}

/// Formats `mysql://user@host:port/database?socket=…`.
fn shown(address: &Result<MysqlAddress, String>) -> String {
    let Ok(address) = address else {
        return "mysql:…".to_owned();
    };
    let part = |before: &str, text: &str, after: &str| match text {
        "" => String::new(),
        text => format!("{before}{text}{after}"),
    };
    let user = part("", &address.user, "@");
    let host = match address.host.contains(':') {
        true => format!("[{}]", host_name(&address.host)),
        false => host_name(&address.host),
    };
    let port = match address.port {
        PORT => String::new(),
        port => format!(":{port}"),
    };
    let database = part("/", address.database.as_deref().unwrap_or_default(), "");
    let socket = part(
        "?socket=",
        address.socket.as_deref().unwrap_or_default(),
        "",
    );
    format!("mysql://{user}{host}{port}{database}{socket}")
}

/// Connects to `mysql:DSN[#VARIABLE+…]`: status variables of the server minus those of this
/// session.
fn connect(
    address: &Result<MysqlAddress, String>,
    variables: &[String],
    question: Deadline<'_>,
) -> Result<Metric, MetricError> {
    let shown = shown(address);
    let fail = |reason: &str| unreachable(&shown, reason);
    let address = address.as_ref().map_err(|why| fail(why))?;
    let secret = address.password.as_deref();
    let mut connection = MysqlConnection::open(address, question)
        .map_err(|e| fail(&redact_secret(&e.what, secret)))?;
    let unit = match variables {
        [one] if one == STATEMENTS => "statements/s",
        _ => "1/s",
    };
    let (name, variables) = (with_variables(shown.clone(), variables), variables.to_vec());
    // Ask for the session's share right after the server's sum: both then hold all statements of
    // this connection except a constant number, which cancels in a difference.
    let read = move |question: Deadline<'_>| {
        let mut sum = |scope| sum(&mut connection, &shown, (scope, &variables), question);
        let (all, own) = (sum("GLOBAL")?, sum("SESSION")?);
        Ok(Reading::Counter(all - own))
    };
    Ok(Metric::counter(name, unit, read))
}

/// Returns the sum of the variables of one scope, `GLOBAL` or `SESSION`.
fn sum(
    connection: &mut MysqlConnection,
    address: &str,
    (scope, variables): (&str, &[String]),
    question: Deadline<'_>,
) -> Result<f64, MetricError> {
    let names: Vec<String> = variables.iter().map(|v| format!("'{v}'")).collect();
    let names = names.join(",");
    let query = format!("SHOW {scope} STATUS WHERE Variable_name IN ({names})");
    let rows = connection.query(&query, question);
    let rows = rows.map_err(|e| unreachable(address, &e.what))?;
    let next = "list them: mysql -e 'SHOW GLOBAL STATUS'";
    let garbage = |what: String| MetricError::garbage(address, what, next);
    if rows.len() != variables.len() {
        let names = variables.join(", ");
        return Err(garbage(format!(
            "the server lacks some of the variables {names}"
        )));
    }
    let number = |row: Vec<String>| match row.as_slice() {
        [name, value] => {
            let number = value.parse::<f64>();
            number.map_err(|_| garbage(format!("{name} is {value:?}, not a number")))
        }
        _ => Err(garbage("the server sent an unexpected answer".to_owned())),
    };
    rows.into_iter().map(number).sum()
}

fn unreachable(name: &str, reason: &str) -> MetricError {
    let next = "try it by hand: mysql -h HOST -u USER -p -e 'SHOW GLOBAL STATUS'; an address is \
                mysql://USER:PASSWORD@HOST:PORT or /path/to.sock";
    MetricError::unreachable(name, reason, next)
}
