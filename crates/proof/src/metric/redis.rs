//! Commands of a Redis server.

use hugeleaf_ask::Endpoint;
use hugeleaf_ask::redis::{RedisAddress, RedisConnection};
use hugeleaf_sys::Deadline;

use super::reading::{Metric, MetricError, Reading};
use super::redact::redact_secret;
use super::spec::{MetricArgument, MetricKind, MetricSpec, MetricSpecError};

pub(super) const KIND: MetricKind = MetricKind {
    names: &["redis"],
    form: "redis:ADDRESS",
    help: "commands per second; the address is `host:port`, `/path/to.sock` or `redis://…`",
    example: "redis:localhost:6379",
    needs_address: true,
    can_be_gauge: false,
    parse,
};

fn parse(typed: &MetricArgument<'_>) -> Result<MetricSpec, MetricSpecError> {
    let address = RedisAddress::parse(&typed.address());
    let shown = shown(&address);
    let open = move |_: &_, question: Deadline<'_>| connect(&address, question);
    Ok(MetricSpec::new(shown, open))
}

/// Formats `redis://user@host:port/database`, or `unix://` and the path of a socket.
fn shown(address: &Result<RedisAddress, String>) -> String {
    let Ok(address) = address else {
        return "redis:…".to_owned();
    };
    let user = match address.user.as_str() {
        "" => String::new(),
        user => format!("{user}@"),
    };
    let database = match address.database {
        0 => String::new(),
        number => format!("/{number}"),
    };
    match &address.place {
        Endpoint::Unix(path) => format!("unix://{path}{database}"),
        place @ Endpoint::Tcp { .. } => format!("redis://{user}{place}{database}"),
    }
}

/// Connects to `redis:ADDRESS`: commands processed, without its own.
fn connect(
    address: &Result<RedisAddress, String>,
    question: Deadline<'_>,
) -> Result<Metric, MetricError> {
    let name = shown(address);
    let fail = |reason: &str| unreachable(&name, reason);
    let address = address.as_ref().map_err(|why| fail(why))?;
    let secret = address.password.as_deref();
    let mut connection = RedisConnection::open(address, question)
        .map_err(|e| fail(&redact_secret(&e.what, secret)))?;
    let mut own = 0.0;
    let read = {
        let name = name.clone();
        move |question: Deadline<'_>| {
            let info = connection.info(Some("stats"), question);
            let info = info.map_err(|e| unreachable(&name, &e.what))?;
            let next = "check that this is a Redis server: redis-cli info stats";
            let total = info
                .number("total_commands_processed")
                .map_err(|what| MetricError::garbage(&name, what, next))?;
            // A count of commands; exact up to 2^53.
            let value = total as f64 - own;
            own += 1.0;
            Ok(Reading::Counter(value))
        }
    };
    Ok(Metric::counter(name, "commands/s", read))
}

fn unreachable(name: &str, reason: &str) -> MetricError {
    let next = "try it by hand: redis-cli -u URL ping; an address is host:port, /path/to.sock or \
                redis://:PASSWORD@host:port";
    MetricError::unreachable(name, reason, next)
}
