//! Transactions of a PostgreSQL database.

use std::time::Duration;

use ::postgres::config::Host;
use ::postgres::{Client, NoTls, SimpleQueryMessage};

use super::shown::{host_name, without};
use super::spec::Typed;
use super::{Kind, Metric, MetricError, MetricKind, MetricSpec, Reading, SpecError};
use crate::stats::Better;

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
    let open = move |_: &_| Ok(Box::new(Postgres::connect(&dsn)?) as _);
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

/// `postgres:DSN`: commits and rollbacks of the database that the DSN names, without its own.
struct Postgres {
    client: Client,
    name: String,
    query: &'static str,
    /// Transactions of this connection that the counter holds by the next reading.
    own: f64,
    last: f64,
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

impl Postgres {
    fn connect(dsn: &str) -> Result<Postgres, MetricError> {
        let name = shown(dsn);
        // The parser's own words may hold a part of the password.
        let unread = |_| MetricError::Unreachable {
            metric: name.clone(),
            reason: "this is no connection string".to_owned(),
            next:
                "put values with blanks into quotes: password='a b'; in an address write them as \
                   %20"
                .into(),
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
        let mut postgres = Postgres {
            client,
            name,
            query: if forced { FORCED } else { PLAIN },
            own: 0.0,
            last: 0.0,
        };
        // The first reading settles what connecting cost; only differences are used.
        postgres.read()?;
        Ok(postgres)
    }
}

fn unreachable(name: &str, e: &::postgres::Error, secret: Option<&str>) -> MetricError {
    // The library's own text leaves the server's out.
    let reason = match (e.as_db_error(), std::error::Error::source(e)) {
        (Some(db), _) => db.message().to_owned(),
        (None, Some(source)) => format!("{e}: {source}"),
        (None, None) => e.to_string(),
    };
    MetricError::Unreachable {
        metric: name.to_owned(),
        reason: without(&reason, secret).replace('\n', " "),
        next: "try it by hand: psql 'DSN' -c 'SELECT 1'; \
               a Unix socket is host=/run/postgresql"
            .into(),
    }
}

fn number(rows: &[SimpleQueryMessage]) -> Option<f64> {
    rows.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}

impl Metric for Postgres {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn unit(&self) -> String {
        "transactions/s".into()
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn kind(&self) -> Kind {
        Kind::Counter
    }

    /// A busy backend reports at most once a second.
    fn least_interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn lag(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn read(&mut self) -> Result<Reading, MetricError> {
        let rows = self
            .client
            .simple_query(self.query)
            .map_err(|e| unreachable(&self.name, &e, None))?;
        let total = number(&rows).ok_or_else(|| MetricError::Garbage {
            metric: self.name.clone(),
            what: "pg_stat_database has no row for the current database".into(),
            next: "check that track_counts is on: SHOW track_counts".into(),
        })?;
        let mut value = total - self.own;
        self.own += 1.0;
        if value < self.last && self.last - value <= LATE {
            value = self.last;
        }
        self.last = value;
        Ok(Reading::Counter(value))
    }
}
