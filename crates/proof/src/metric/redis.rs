//! Commands of a Redis server.

use std::time::Duration;

use super::info::info_field;
use super::shown::{host_name, without};
use super::spec::Typed;
use super::{Kind, Metric, MetricError, MetricKind, MetricSpec, Reading, SpecError};
use crate::stats::Better;

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) const KIND: MetricKind = MetricKind {
    names: &["redis"],
    form: "redis:ADDRESS",
    help: "commands a second; the address is `host:port`, `/path/to.sock` or `redis://…`",
    example: "redis:localhost:6379",
    needs_address: true,
    can_be_gauge: false,
    parse,
};

fn parse(typed: &Typed<'_>) -> Result<MetricSpec, SpecError> {
    let url = url(&typed.address());
    let shown = shown(&url);
    let open = move |_: &_| Ok(Box::new(Redis::connect(&url)?) as _);
    Ok(MetricSpec::new(shown, open))
}

/// An address as the Redis library takes it: a bare path is a Unix socket, `host:port` is TCP.
fn url(text: &str) -> String {
    if text.starts_with('/') {
        format!("unix://{text}")
    } else if text.contains("://") {
        text.to_owned()
    } else {
        format!("redis://{text}")
    }
}

/// `redis://user@host:port/database`, or `unix://` and the path of a socket.
fn shown(url: &str) -> String {
    use ::redis::{ConnectionAddr, IntoConnectionInfo};
    let Ok(info) = url.into_connection_info() else {
        return "redis:…".to_owned();
    };
    let settings = info.redis_settings();
    let user = settings
        .username()
        .map_or(String::new(), |user| format!("{user}@"));
    let database = match settings.db() {
        0 => String::new(),
        number => format!("/{number}"),
    };
    match info.addr() {
        ConnectionAddr::Unix(path) => format!("unix://{}{database}", path.display()),
        ConnectionAddr::Tcp(host, port) => {
            format!("redis://{user}{}:{port}{database}", host_name(host))
        }
        _ => "redis:…".to_owned(),
    }
}

/// `redis:ADDRESS`: commands processed, without its own.
struct Redis {
    connection: ::redis::Connection,
    name: String,
    own: f64,
}

impl Redis {
    fn connect(url: &str) -> Result<Redis, MetricError> {
        let name = shown(url);
        // The parser's own words may hold a part of the password.
        let unread = |_| unreachable(&name, "this is no address");
        let client = ::redis::Client::open(url).map_err(unread)?;
        let secret = client.get_connection_info().redis_settings().password();
        let secret = secret.map(str::to_owned);
        let fail = |e: ::redis::RedisError| {
            unreachable(&name, &without(&e.to_string(), secret.as_deref()))
        };
        let connection = client.get_connection_with_timeout(PATIENCE).map_err(fail)?;
        connection.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
        connection.set_write_timeout(Some(PATIENCE)).map_err(fail)?;
        Ok(Redis {
            connection,
            name,
            own: 0.0,
        })
    }
}

fn unreachable(name: &str, reason: &str) -> MetricError {
    MetricError::Unreachable {
        metric: name.to_owned(),
        reason: reason.replace('\n', " "),
        next: "try it by hand: redis-cli -u URL ping; an address is host:port, /path/to.sock or \
               redis://:PASSWORD@host:port"
            .into(),
    }
}

impl Metric for Redis {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn unit(&self) -> String {
        "commands/s".into()
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn kind(&self) -> Kind {
        Kind::Counter
    }

    fn read(&mut self) -> Result<Reading, MetricError> {
        let text: String = ::redis::cmd("INFO")
            .arg("stats")
            .query(&mut self.connection)
            .map_err(|e| unreachable(&self.name, &e.to_string()))?;
        let total =
            info_field(&text, "total_commands_processed").map_err(|e| MetricError::Garbage {
                metric: self.name.clone(),
                what: e.to_string(),
                next: "check that this is a Redis server: redis-cli info stats".into(),
            })?;
        let value = total - self.own;
        self.own += 1.0;
        Ok(Reading::Counter(value))
    }
}
