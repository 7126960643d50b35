//! Transactions of a PostgreSQL database.

use std::time::Duration;

use ::postgres::config::Host;
use ::postgres::{NoTls, SimpleQueryMessage};

use super::reading::{MetricError, Opened, Reading};
use super::shown::{host_name, without};
use super::spec::{MetricKind, MetricSpec, SpecError, Typed};

pub(super) const KIND: MetricKind = MetricKind {
    names: &["postgres", "postgresql"],
    form: "postgres:DSN",
    help: "transactions a second of the database that the DSN names, less hugeleaf's own",
    example: "postgres:host=/run/postgresql dbname=shop",
    needs_address: true,
    can_be_gauge: false,
    parse,
};

fn parse(typed: &Typed<'_>) -> Result<MetricSpec, SpecError> {
    let dsn = typed.address();
    let open = move |_: &_| Ok(Box::new(connect(&dsn)?) as _);
    Ok(MetricSpec::new(shown(&typed.address()), open))
}

/// `postgres:host=… port=… user=… dbname=…`.
fn shown(dsn: &str) -> String {
    let Ok(config) = dsn.parse::<::postgres::Config>() else {
        return "postgres:…".to_owned();
    };
    let mut parts = Vec::new();
    let mut add = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            parts.push(format!("{name}={}", quoted(&values.join(","))));
        }
    };
    let host = |host: &Host| match host {
        Host::Tcp(name) => host_name(name),
        Host::Unix(path) => path.display().to_string(),
    };
    add("host", config.get_hosts().iter().map(host).collect());
    let addresses = config.get_hostaddrs().iter().map(ToString::to_string);
    add("hostaddr", addresses.collect());
    add(
        "port",
        match config.get_ports() {
            // An address without one has it all the same.
            [5432] => Vec::new(),
            ports => ports.iter().map(ToString::to_string).collect(),
        },
    );
    add(
        "user",
        config.get_user().map(str::to_owned).into_iter().collect(),
    );
    add(
        "dbname",
        config.get_dbname().map(str::to_owned).into_iter().collect(),
    );
    format!("postgres:{}", parts.join(" "))
}

/// A value as libpq reads it: in quotes where it has to be.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '\\');
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'")),
    }
}

/// From PostgreSQL 15 on a backend can be made to report at once, so that this connection's own
/// transactions are in the next reading and can be taken off exactly.
const FORCED: &str = "SELECT xact_commit + xact_rollback, pg_stat_force_next_flush() \
     FROM pg_stat_database WHERE datname = current_database()";
const PLAIN: &str = "SELECT xact_commit + xact_rollback \
     FROM pg_stat_database WHERE datname = current_database()";
const HAS_FORCE: &str = "SELECT count(*) FROM pg_proc WHERE proname = 'pg_stat_force_next_flush'";

/// By how much a counter read without forcing may seem to fall, because this connection's own
/// transactions show late.
const LATE: f64 = 8.0;

/// `postgres:DSN`: commits and rollbacks of the database that the DSN names, without its own.
fn connect(dsn: &str) -> Result<Opened, MetricError> {
    let name = shown(dsn);
    // The parser's own words may hold a part of the password.
    let unread = |_| {
        let next = "put values with blanks into quotes: password='a b'; in an address write them \
                    as %20";
        MetricError::unreachable(&name, "this is no connection string", next)
    };
    let mut config: ::postgres::Config = dsn.parse().map_err(unread)?;
    let secret = config
        .get_password()
        .map(String::from_utf8_lossy)
        .map(String::from);
    let fail = |e: ::postgres::Error| unreachable(&name, &e, secret.as_deref());
    config
        .application_name("hugeleaf")
        .connect_timeout(Duration::from_secs(5));
    let mut client = config.connect(NoTls).map_err(fail)?;
    // One statement a transaction: what is counted is what is sent.
    client
        .simple_query("SET statement_timeout = '10s'")
        .map_err(fail)?;
    let forced = number(&client.simple_query(HAS_FORCE).map_err(fail)?) == Some(1.0);
    let query = if forced { FORCED } else { PLAIN };
    // Transactions of this connection that the counter holds by the next reading, and the last one.
    let (mut own, mut last) = (0.0, 0.0);
    let shown = name.clone();
    let mut read = move || {
        let rows = client.simple_query(query);
        let rows = rows.map_err(|e| unreachable(&shown, &e, None))?;
        let total = number(&rows).ok_or_else(|| {
            let what = "pg_stat_database has no row for the current database";
            let next = "check that track_counts is on: SHOW track_counts";
            MetricError::garbage(&shown, what, next)
        })?;
        let mut value = total - own;
        own += 1.0;
        if value < last && last - value <= LATE {
            value = last;
        }
        last = value;
        Ok(Reading::Counter(value))
    };
    // The first reading settles what connecting cost; only differences are used.
    read()?;
    Ok(Opened {
        // A busy backend reports at most once a second.
        least_interval: Duration::from_secs(5),
        lag: Duration::from_secs(1),
        ..Opened::counter(name, "transactions/s", read)
    })
}

fn unreachable(name: &str, e: &::postgres::Error, secret: Option<&str>) -> MetricError {
    // The library's own text leaves the server's out.
    let reason = match (e.as_db_error(), std::error::Error::source(e)) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{e}: {source}"),
        (None, None) => e.to_string(),
    };
    let next = "try it by hand: psql 'DSN' -c 'SELECT 1'; a Unix socket is host=/run/postgresql";
    MetricError::unreachable(name, without(&reason, secret), next)
}

fn number(rows: &[SimpleQueryMessage]) -> Option<f64> {
    rows.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}
