//! Transactions of a PostgreSQL database.

use std::time::Duration;

use hugeleaf_ask::QueryError;
use hugeleaf_ask::postgres::{PORT, PostgresAddress, PostgresConnection, PostgresHost};
use hugeleaf_sys::Deadline;

use super::reading::{Metric, MetricError, Reading};
use super::redact::{host_name, redact_secret};
use super::spec::{MetricArgument, MetricKind, MetricSpec, MetricSpecError};

pub(super) const KIND: MetricKind = MetricKind {
    names: &["postgres", "postgresql"],
    form: "postgres:DSN",
    help: "transactions per second of the database in the DSN, without hugeleaf's own",
    example: "postgres:host=/run/postgresql dbname=shop",
    needs_address: true,
    can_be_gauge: false,
    parse,
};

fn parse(typed: &MetricArgument<'_>) -> Result<MetricSpec, MetricSpecError> {
    let address = PostgresAddress::parse(&typed.address()).ok();
    let shown = shown(address.as_ref());
    let open = move |_: &_, question: Deadline<'_>| connect(address.as_ref(), question);
    Ok(MetricSpec::new(shown, open))
}

/// Formats `postgres:host=… port=… user=… dbname=…`.
fn shown(address: Option<&PostgresAddress>) -> String {
    let Some(address) = address else {
        return "postgres:…".to_owned();
    };
    let host = |host: &PostgresHost| match host {
        PostgresHost::Tcp(name) => host_name(name),
        PostgresHost::Unix(path) => path.clone(),
    };
    let ports = match address.ports.as_slice() {
        // The default port is omitted, because it is implied.
        [PORT] => Vec::new(),
        ports => ports.iter().map(ToString::to_string).collect(),
    };
    let all = [
        ("host", address.hosts.iter().map(host).collect()),
        (
            "hostaddr",
            address.addresses.iter().map(ToString::to_string).collect(),
        ),
        ("port", ports),
        ("user", Vec::from_iter(address.user.clone())),
        ("dbname", Vec::from_iter(address.database.clone())),
    ];
    let written = all.into_iter().filter(|(_, values)| !values.is_empty());
    let parts = written.map(|(name, values)| format!("{name}={}", quoted(&values.join(","))));
    format!("postgres:{}", parts.collect::<Vec<_>>().join(" "))
}

/// Quotes a value for libpq if necessary.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '\\');
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'")),
    }
}

/// From PostgreSQL 15 on, a backend can be made to report at once. Then this connection's own
/// transactions are in the next reading and can be subtracted exactly.
const FORCED: &str = "SELECT xact_commit + xact_rollback, pg_stat_force_next_flush() \
     FROM pg_stat_database WHERE datname = current_database()";
const PLAIN: &str = "SELECT xact_commit + xact_rollback \
     FROM pg_stat_database WHERE datname = current_database()";
const HAS_FORCE: &str = "SELECT count(*) FROM pg_proc WHERE proname = 'pg_stat_force_next_flush'";

/// Maximum apparent decrease of an unforced counter, because this connection's own transactions
/// show late.
const LATE: f64 = 8.0;

/// Connects to `postgres:DSN`: commits and rollbacks of the DSN's database, without this
/// connection's own.
fn connect(
    address: Option<&PostgresAddress>,
    question: Deadline<'_>,
) -> Result<Metric, MetricError> {
    let name = shown(address);
    let address = address.ok_or_else(|| {
        let next = "quote values with blanks: password='a b'; in an address write the blanks \
                    as %20";
        MetricError::unreachable(&name, "this is not a connection string", next)
    })?;
    let secret = address.password.as_deref().map(String::from_utf8_lossy);
    let fail = |e: QueryError| unreachable(&name, &redact_secret(&e.what, secret.as_deref()));
    // One statement per transaction, so that the sent statements are the counted ones.
    let mut connection = PostgresConnection::open(address, question).map_err(fail)?;
    let forced = connection.query(HAS_FORCE, question).map_err(fail)?;
    let query = match forced.as_deref() {
        Some("1") => FORCED,
        _ => PLAIN,
    };
    // This connection's transactions in the counter by the next reading, and the last value.
    let (mut own, mut last) = (0.0, 0.0);
    let shown = name.clone();
    let mut read = move |question: Deadline<'_>| {
        let total = connection.query(query, question);
        let total = total.map_err(|e| unreachable(&shown, &e.what))?;
        let total = total
            .and_then(|text| text.parse::<f64>().ok())
            .ok_or_else(|| {
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
    // The first reading settles the cost of connecting; only differences are used.
    read(question)?;
    Ok(Metric {
        // A busy backend reports at most once a second.
        least_interval: Duration::from_secs(5),
        lag: Duration::from_secs(1),
        ..Metric::counter(name, "transactions/s", read)
    })
}

fn unreachable(name: &str, reason: &str) -> MetricError {
    let next = "try it by hand: psql 'DSN' -c 'SELECT 1'; a Unix socket is host=/run/postgresql";
    MetricError::unreachable(name, reason, next)
}
