//! Statements of a MySQL or MariaDB server.
//!
//! The default counts `Questions`: statements that clients sent, whatever they do and however
//! transactions are drawn around them. `Com_commit` and `Com_rollback` count explicit transactions
//! only, so under autocommit they stand still; who runs explicit ones names them:
//! `mysql:DSN#Com_commit+Com_rollback`.

use std::time::Duration;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Opts, OptsBuilder};

use super::shown::{host_name, without};
use super::spec::Typed;
use super::{Kind, Metric, MetricError, MetricKind, MetricSpec, Reading, SpecError};
use crate::stats::Better;

const PATIENCE: Duration = Duration::from_secs(10);

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
    let open = move |_: &_| Ok(Box::new(Mysql::connect(&url, &variables)?) as _);
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
struct Mysql {
    connection: Conn,
    name: String,
    variables: Vec<String>,
}

impl Mysql {
    fn connect(url: &str, variables: &[String]) -> Result<Mysql, MetricError> {
        let name = shown(url);
        // The parser's own words may hold a part of the password.
        let unread = |_| unreachable(&name, "this is no address".to_owned());
        let options = Opts::from_url(url).map_err(unread)?;
        let secret = options.get_pass().map(str::to_owned);
        let options = OptsBuilder::from_opts(options)
            .tcp_connect_timeout(Some(PATIENCE))
            .read_timeout(Some(PATIENCE))
            .write_timeout(Some(PATIENCE));
        let connection = Conn::new(options)
            .map_err(|e| unreachable(&name, without(&e.to_string(), secret.as_deref())))?;
        Ok(Mysql {
            connection,
            name,
            variables: variables.to_vec(),
        })
    }

    /// The sum of the variables of one scope, `GLOBAL` or `SESSION`.
    fn sum(&mut self, scope: &str) -> Result<f64, MetricError> {
        let names: Vec<String> = self.variables.iter().map(|v| format!("'{v}'")).collect();
        let query = format!(
            "SHOW {scope} STATUS WHERE Variable_name IN ({})",
            names.join(",")
        );
        let rows: Vec<(String, String)> = self
            .connection
            .query(query)
            .map_err(|e| unreachable(&self.name, e.to_string()))?;
        let garbage = |what: String| MetricError::Garbage {
            metric: self.name.clone(),
            what,
            next: "see which there are: mysql -e 'SHOW GLOBAL STATUS'".into(),
        };
        if rows.len() != self.variables.len() {
            let names = self.variables.join(", ");
            return Err(garbage(format!("the server lacks a variable of {names}")));
        }
        let mut sum = 0.0;
        for (name, value) in rows {
            let value: f64 = value
                .parse()
                .map_err(|_| garbage(format!("{name} is {value:?}, not a number")))?;
            sum += value;
        }
        Ok(sum)
    }
}

fn unreachable(name: &str, reason: String) -> MetricError {
    MetricError::Unreachable {
        metric: name.to_owned(),
        reason: reason.replace('\n', " "),
        next: "try it by hand: mysql -h HOST -u USER -p -e 'SHOW GLOBAL STATUS'; \
               an address is mysql://USER:PASSWORD@HOST:PORT or /path/to.sock"
            .into(),
    }
}

impl Metric for Mysql {
    fn name(&self) -> String {
        with_variables(self.name.clone(), &self.variables)
    }

    fn unit(&self) -> String {
        match self.variables.as_slice() {
            [one] if one == STATEMENTS => "statements/s".into(),
            _ => "1/s".into(),
        }
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn kind(&self) -> Kind {
        Kind::Counter
    }

    /// The session's own share is asked for right behind the server's sum: both hold every
    /// statement of this connection but a constant number, which a difference takes away.
    fn read(&mut self) -> Result<Reading, MetricError> {
        let all = self.sum("GLOBAL")?;
        let own = self.sum("SESSION")?;
        Ok(Reading::Counter(all - own))
    }
}
