//! Commands of a Redis server.

use super::info::info_field;
use super::reading::{MetricError, Opened, PATIENCE, Reading};
use super::shown::{host_name, without};
use super::spec::{MetricKind, MetricSpec, SpecError, Typed};

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
    let open = move |_: &_| Ok(Box::new(connect(&url)?) as _);
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
fn connect(url: &str) -> Result<Opened, MetricError> {
    let name = shown(url);
    // The parser's own words may hold a part of the password.
    let unread = |_| unreachable(&name, "this is no address");
    let client = ::redis::Client::open(url).map_err(unread)?;
    let secret = client.get_connection_info().redis_settings().password();
    let secret = secret.map(str::to_owned);
    let fail =
        |e: ::redis::RedisError| unreachable(&name, &without(&e.to_string(), secret.as_deref()));
    let mut connection = client.get_connection_with_timeout(PATIENCE).map_err(fail)?;
    connection.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    connection.set_write_timeout(Some(PATIENCE)).map_err(fail)?;
    let mut own = 0.0;
    let read = {
        let name = name.clone();
        move || {
            let info = ::redis::cmd("INFO").arg("stats").query(&mut connection);
            let text: String = info.map_err(|e| unreachable(&name, &e.to_string()))?;
            let next = "check that this is a Redis server: redis-cli info stats";
            let total = info_field(&text, "total_commands_processed")
                .map_err(|what| MetricError::garbage(&name, what, next))?;
            let value = total - own;
            own += 1.0;
            Ok(Reading::Counter(value))
        }
    };
    Ok(Opened::counter(name, "commands/s", read))
}

fn unreachable(name: &str, reason: &str) -> MetricError {
    let next = "try it by hand: redis-cli -u URL ping; an address is host:port, /path/to.sock or \
                redis://:PASSWORD@host:port";
    MetricError::unreachable(name, reason, next)
}
