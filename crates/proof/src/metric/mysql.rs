//! Statements of a MySQL or MariaDB server.
//!
//! The default counts `Questions`: statements that clients sent, whatever they do and however
//! transactions are drawn around them. `Com_commit` and `Com_rollback` count explicit transactions
//! only, so under autocommit they stand still; who runs explicit ones names them:
//! `mysql:DSN#Com_commit+Com_rollback`.

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};

use super::reading::{MetricError, Opened, PATIENCE, Reading};
use super::shown::{host_name, without};
use super::spec::{MetricKind, MetricSpec, SpecError, Typed};

pub(super) const KIND: MetricKind = MetricKind {
    names: &["mysql"],
    form: "mysql:DSN[#VARIABLE+…]",
    help: "statements a second, or the rise of the status variables named; the DSN is `mysql://user@host` or \
           a socket's path",
    example: "mysql:/run/mysqld/mysqld.sock#Com_commit+Com_rollback",
    needs_address: true,
    can_be_gauge: false,
    parse,
};

fn parse(typed: &Typed<'_>) -> Result<MetricSpec, SpecError> {
    let (dsn, variables) = match typed.rest.split_once('#') {
        Some((dsn, names)) => (dsn, names.split('+').map(str::to_owned).collect()),
        None => (typed.rest, vec![STATEMENTS.to_owned()]),
    };
    let is_name =
        |v: &String| !v.is_empty() && v.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !variables.iter().all(is_name) {
        return Err(typed.malformed("a status variable is letters, digits and _"));
    }
    let url = url(dsn);
    let shown = with_variables(shown(&url), &variables);
    let open = move |_: &_| Ok(Box::new(connect(&url, &variables)?) as _);
    Ok(MetricSpec::new(shown, open))
}

/// An address as the MySQL library takes it: a bare path is a Unix socket.
fn url(dsn: &str) -> String {
    if dsn.starts_with('/') && !dsn.starts_with("//") {
        format!("mysql://localhost?socket={}", percent(dsn))
    } else if let Some(rest) = dsn.strip_prefix("//") {
        format!("mysql://{rest}")
    } else if dsn.starts_with("mysql://") {
        dsn.to_owned()
    } else {
        format!("mysql://{dsn}")
    }
}

fn percent(path: &str) -> String {
    path.bytes()
        .map(|b| match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                char::from(b).to_string()
            }
            _ => format!("%{b:02X}"),
        })
        .collect()
}

/// The status variable that is counted unless others are named.
const STATEMENTS: &str = "Questions";

fn with_variables(address: String, variables: &[String]) -> String {
    match variables {
        [one] if one == STATEMENTS => address,
        several => format!("{address}#{}", several.join("+")),
    }
}

/// `mysql://user@host:port/database?socket=…`.
fn shown(url: &str) -> String {
    let Ok(options) = ::mysql::Opts::from_url(url) else {
        return "mysql:…".to_owned();
    };
    let user = options
        .get_user()
        .map_or(String::new(), |user| format!("{user}@"));
    let port = match options.get_tcp_port() {
        3306 => String::new(),
        port => format!(":{port}"),
    };
    let database = options
        .get_db_name()
        .map_or(String::new(), |name| format!("/{name}"));
    let socket = options
        .get_socket()
        .map_or(String::new(), |path| format!("?socket={path}"));
    let host = host_name(&options.get_ip_or_hostname());
    format!("mysql://{user}{host}{port}{database}{socket}")
}

/// `mysql:DSN[#VARIABLE+…]`: status variables of the server less those of its own session.
fn connect(url: &str, variables: &[String]) -> Result<Opened, MetricError> {
    let address = shown(url);
    // The parser's own words may hold a part of the password.
    let unread = |_| unreachable(&address, "this is no address");
    let options = Opts::from_url(url).map_err(unread)?;
    let secret = options.get_pass().map(str::to_owned);
    let options = OptsBuilder::from_opts(options)
        .tcp_connect_timeout(Some(PATIENCE))
        .read_timeout(Some(PATIENCE))
        .write_timeout(Some(PATIENCE));
    let fail =
        |e: ::mysql::Error| unreachable(&address, &without(&e.to_string(), secret.as_deref()));
    let mut connection = Conn::new(options).map_err(fail)?;
    let unit = match variables {
        [one] if one == STATEMENTS => "statements/s",
        _ => "1/s",
    };
    let (name, variables) = (
        with_variables(address.clone(), variables),
        variables.to_vec(),
    );
    // The session's own share is asked for right behind the server's sum: both hold every
    // statement of this connection but a constant number, which a difference takes away.
    let read = move || {
        let all = sum(&mut connection, &address, "GLOBAL", &variables)?;
        let own = sum(&mut connection, &address, "SESSION", &variables)?;
        Ok(Reading::Counter(all - own))
    };
    Ok(Opened::counter(name, unit, read))
}

/// The sum of the variables of one scope, `GLOBAL` or `SESSION`.
fn sum(
    connection: &mut Conn,
    address: &str,
    scope: &str,
    variables: &[String],
) -> Result<f64, MetricError> {
    let names: Vec<String> = variables.iter().map(|v| format!("'{v}'")).collect();
    let names = names.join(",");
    let query = format!("SHOW {scope} STATUS WHERE Variable_name IN ({names})");
    let rows: Vec<(String, String)> =
        (connection.query(query)).map_err(|e| unreachable(address, &e.to_string()))?;
    let next = "see which there are: mysql -e 'SHOW GLOBAL STATUS'";
    let garbage = |what: String| MetricError::garbage(address, what, next);
    if rows.len() != variables.len() {
        let names = variables.join(", ");
        return Err(garbage(format!("the server lacks a variable of {names}")));
    }
    let number = |(name, value): (String, String)| {
        let number = value.parse::<f64>();
        number.map_err(|_| garbage(format!("{name} is {value:?}, not a number")))
    };
    rows.into_iter().map(number).sum()
}

fn unreachable(name: &str, reason: &str) -> MetricError {
    let next = "try it by hand: mysql -h HOST -u USER -p -e 'SHOW GLOBAL STATUS'; an address is \
                mysql://USER:PASSWORD@HOST:PORT or /path/to.sock";
    MetricError::unreachable(name, reason, next)
}
