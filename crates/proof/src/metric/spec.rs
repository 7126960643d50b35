//! What a person types after `--metric`, parsed. No input or output.

use super::prometheus::{ParseSelectorError, Selector};
use super::shown::kind as kind_of;
use crate::stats::Better;

/// A metric as it was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricSpec {
    /// `postgres:DSN`: transactions per second of the database that the DSN names.
    Postgres {
        /// As libpq takes it: `host=/run/postgresql user=me dbname=db` or `postgres://…`.
        dsn: String,
    },
    /// `redis:ADDR`: commands per second.
    Redis {
        /// `redis://…`, `unix:///path` or `redis+unix:///path`.
        url: String,
    },
    /// `mysql:DSN` or `mysql:DSN#VARIABLE[+VARIABLE…]`: client statements per second, or the rise
    /// of the status variables named.
    Mysql {
        /// `mysql://user:password@host:port` or with `?socket=/path`.
        url: String,
        /// Status variables, summed; `Questions` unless named.
        variables: Vec<String>,
    },
    /// `cmd:COMMAND`: a shell command that prints a rising number, or with `gauge:` a value.
    Command {
        /// What `sh -c` gets.
        command: String,
        /// Which way the value gets better; `None` for a rising counter.
        gauge: Option<Better>,
    },
    /// `http://…#metric`: a metric in Prometheus text.
    Http {
        /// Where, without the part behind `#`.
        url: String,
        /// What.
        selector: Selector,
        /// Which way a gauge gets better.
        gauge: Option<Better>,
    },
    /// `cpi`: cycles per instruction in user mode.
    Cpi,
    /// `walk-cycles[:rHEX]`: the share of cycles with a page walk under way.
    WalkCycles {
        /// The raw event, as perf writes it after `r`; `None` chooses by processor.
        event: Option<u64>,
    },
}

/// Why a text names no metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It starts with no kind known.
    #[error(
        "--metric '{0}': not one of postgres:, redis:, mysql:, cmd:, http://, \
         gauge:lower:…, gauge:higher:…, cpi, walk-cycles"
    )]
    UnknownKind(String),
    /// Nothing after the colon.
    #[error("--metric {0} lacks what comes after the colon")]
    Empty(String),
    /// `gauge:` without the direction.
    #[error("--metric {0}: a gauge needs a direction: gauge:lower:… or gauge:higher:…")]
    NoDirection(String),
    /// `gauge:` before something that has its own direction.
    #[error("--metric {0}: only cmd: and http:// can be gauges")]
    NotAGauge(String),
    /// `http://…` without `#metric`.
    #[error("--metric {0}: say which metric of the page: http://HOST:PORT/metrics#NAME")]
    NoSelector(String),
    /// What stands behind `#` cannot be read.
    #[error("--metric {0}: {1}")]
    Selector(String, ParseSelectorError),
    /// https.
    #[error(
        "--metric {0}: https is not supported; name the plain address or read it with cmd:curl"
    )]
    Https(String),
    /// `walk-cycles:` with something that is no raw event.
    #[error("--metric {0}: a raw event is r and hexadecimal digits, as perf writes it: r1008")]
    RawEvent(String),
    /// A status variable with odd characters.
    #[error("--metric {0}: a status variable is letters, digits and _")]
    Variable(String),
}

impl std::str::FromStr for MetricSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<MetricSpec, SpecError> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix("gauge:") {
            return gauge(text, rest);
        }
        match text {
            "cpi" => return Ok(MetricSpec::Cpi),
            "walk-cycles" => return Ok(MetricSpec::WalkCycles { event: None }),
            _ => {}
        }
        let unknown = || SpecError::UnknownKind(kind_of(text));
        let (kind, rest) = text.split_once(':').ok_or_else(unknown)?;
        if rest.trim().is_empty() {
            return Err(SpecError::Empty(kind_of(text)));
        }
        match kind {
            "postgres" | "postgresql" => Ok(MetricSpec::Postgres {
                // `postgres://…` is a DSN by itself.
                dsn: if rest.starts_with("//") { text } else { rest }.to_owned(),
            }),
            "redis" => Ok(MetricSpec::Redis {
                url: redis_url(if rest.starts_with("//") { text } else { rest }),
            }),
            "mysql" => mysql(text, rest),
            "cmd" => Ok(MetricSpec::Command {
                command: rest.to_owned(),
                gauge: None,
            }),
            "http" => http(text, rest, None),
            "https" => Err(SpecError::Https(kind_of(text))),
            "walk-cycles" => rest
                .strip_prefix('r')
                .and_then(|hex| u64::from_str_radix(hex, 16).ok())
                .map(|event| MetricSpec::WalkCycles { event: Some(event) })
                .ok_or_else(|| SpecError::RawEvent(kind_of(text))),
            _ => Err(unknown()),
        }
    }
}

/// `gauge:lower:cmd:…`; `gauge:cmd:…:lower` means the same.
fn gauge(text: &str, rest: &str) -> Result<MetricSpec, SpecError> {
    let words = [("lower", Better::Lower), ("higher", Better::Higher)];
    let found = words.into_iter().find_map(|(word, better)| {
        let inner = rest
            .strip_prefix(word)
            .and_then(|r| r.strip_prefix(':'))
            .or_else(|| rest.strip_suffix(word).and_then(|r| r.strip_suffix(':')))?;
        Some((inner, better))
    });
    let (inner, better) = found.ok_or_else(|| SpecError::NoDirection(kind_of(text)))?;
    match inner.split_once(':') {
        Some((_, "")) => Err(SpecError::Empty(kind_of(text))),
        Some(("cmd", command)) => Ok(MetricSpec::Command {
            command: command.to_owned(),
            gauge: Some(better),
        }),
        Some(("http", rest)) => http(text, rest, Some(better)),
        Some(("https", _)) => Err(SpecError::Https(kind_of(text))),
        _ => Err(SpecError::NotAGauge(kind_of(text))),
    }
}

fn http(text: &str, rest: &str, gauge: Option<Better>) -> Result<MetricSpec, SpecError> {
    let (address, selector) = rest
        .split_once('#')
        .ok_or_else(|| SpecError::NoSelector(kind_of(text)))?;
    // `http:http://host/…` is taken too: the kind, then a whole address.
    let address = address.strip_prefix("http:").unwrap_or(address);
    if address.starts_with("https:") {
        return Err(SpecError::Https(kind_of(text)));
    }
    let address = address.trim_start_matches('/');
    if address.is_empty() {
        return Err(SpecError::Empty(kind_of(text)));
    }
    let selector = selector
        .parse()
        .map_err(|e| SpecError::Selector(kind_of(text), e))?;
    Ok(MetricSpec::Http {
        url: format!("http://{address}"),
        selector,
        gauge,
    })
}

fn mysql(text: &str, rest: &str) -> Result<MetricSpec, SpecError> {
    let (dsn, variables) = match rest.split_once('#') {
        Some((dsn, names)) => (dsn, names.split('+').map(str::to_owned).collect()),
        None => (rest, vec!["Questions".to_owned()]),
    };
    let is_name =
        |v: &String| !v.is_empty() && v.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !variables.iter().all(is_name) {
        return Err(SpecError::Variable(kind_of(text)));
    }
    let url = if dsn.starts_with('/') && !dsn.starts_with("//") {
        // A bare path is a Unix socket.
        format!("mysql://localhost?socket={}", percent(dsn))
    } else if let Some(rest) = dsn.strip_prefix("//") {
        format!("mysql://{rest}")
    } else if dsn.starts_with("mysql://") {
        dsn.to_owned()
    } else {
        format!("mysql://{dsn}")
    };
    Ok(MetricSpec::Mysql { url, variables })
}

/// An address as the Redis library takes it: a bare path is a Unix socket, `host:port` is TCP.
fn redis_url(text: &str) -> String {
    if text.starts_with('/') {
        format!("unix://{text}")
    } else if text.contains("://") {
        text.to_owned()
    } else {
        format!("redis://{text}")
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_type() {
        let command = |c: &str, gauge| MetricSpec::Command {
            command: c.into(),
            gauge,
        };
        let redis = |u: &str| MetricSpec::Redis { url: u.into() };
        let postgres = |d: &str| MetricSpec::Postgres { dsn: d.into() };
        let mysql = |u: &str, v: &[&str]| MetricSpec::Mysql {
            url: u.into(),
            variables: v.iter().map(|v| (*v).to_owned()).collect(),
        };
        for (text, spec) in [
            (
                "postgres:host=/run/pg dbname=a",
                postgres("host=/run/pg dbname=a"),
            ),
            ("postgres://u:p@h/db", postgres("postgres://u:p@h/db")),
            ("redis:localhost:6379", redis("redis://localhost:6379")),
            ("redis:/run/redis.sock", redis("unix:///run/redis.sock")),
            ("redis://h:1/0", redis("redis://h:1/0")),
            ("redis:redis://h:1", redis("redis://h:1")),
            (
                "mysql:root@h:3306",
                mysql("mysql://root@h:3306", &["Questions"]),
            ),
            (
                "mysql://root@h/x",
                mysql("mysql://root@h/x", &["Questions"]),
            ),
            (
                "mysql:/run/my.sock#Com_commit+Com_rollback",
                mysql(
                    "mysql://localhost?socket=/run/my.sock",
                    &["Com_commit", "Com_rollback"],
                ),
            ),
            ("cmd:cat /tmp/n", command("cat /tmp/n", None)),
            ("gauge:lower:cmd:p99", command("p99", Some(Better::Lower))),
            (
                "gauge:cmd:p99 a:b:lower",
                command("p99 a:b", Some(Better::Lower)),
            ),
            ("gauge:higher:cmd:x", command("x", Some(Better::Higher))),
            ("cpi", MetricSpec::Cpi),
            (
                "walk-cycles:r1001008",
                MetricSpec::WalkCycles {
                    event: Some(0x100_1008),
                },
            ),
        ] {
            assert_eq!(text.parse(), Ok(spec), "{text}");
        }
        for text in [
            "http://h:9/metrics#a_total",
            "http:h:9/metrics#a_total",
            "http:http://h:9/metrics#a_total",
        ] {
            match text.parse() {
                Ok(MetricSpec::Http {
                    url, gauge: None, ..
                }) => {
                    assert_eq!(url, "http://h:9/metrics", "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn refuses_the_rest_by_name() {
        for (text, want) in [
            ("", "not one of"),
            ("tps", "not one of"),
            ("oracle:x", "not one of"),
            ("cmd:", "lacks"),
            ("gauge:cmd:x", "direction"),
            ("gauge:lower:redis:x", "only cmd"),
            ("gauge:lower:cmd:", "lacks"),
            ("http://h/metrics", "which metric"),
            ("https://h/metrics#a", "https"),
            ("walk-cycles:x", "raw event"),
            ("mysql:h#a;b", "status variable"),
        ] {
            let e = text.parse::<MetricSpec>().unwrap_err().to_string();
            assert!(e.contains(want), "{text}: {e}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", kind in "(postgres|redis|mysql|cmd|http|gauge|walk-cycles):.*") {
            let _ = text.parse::<MetricSpec>();
            let _ = kind.parse::<MetricSpec>();
        }
    }
}
