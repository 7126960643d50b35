//! Connection strings in libpq syntax: `host=… user='…'`, or `postgres://user:password@host:port/database?…`. Pure.

use std::net::IpAddr;

use super::PORT;
use crate::percent_encoding::{decoded, decoded_bytes};
use crate::{Endpoint, QueryError};

/// A host's name or address, or the directory of its Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostgresHost {
    Tcp(String),
    Unix(String),
}

/// The addresses and the login of servers. No `Debug`, because it holds a password.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PostgresAddress {
    /// Hosts, in the order of connection attempts.
    pub hosts: Vec<PostgresHost>,
    /// Addresses of the hosts, used instead of name lookups.
    pub addresses: Vec<IpAddr>,
    /// One port for all hosts, or one per host.
    pub ports: Vec<u16>,
    pub user: Option<String>,
    /// Secret, never shown.
    pub password: Option<Vec<u8>>,
    /// The database. The default is the user's name.
    pub database: Option<String>,
    pub(super) options: Option<String>,
    pub(super) application: Option<String>,
    pub(super) needs_tls: bool,
    /// `Some(true)` requires a read-write session, `Some(false)` a read-only one.
    pub(super) writes: Option<bool>,
}

impl PostgresAddress {
    /// Parses a connection string.
    ///
    /// # Errors
    /// The problem with the text, without quoting it.
    pub fn parse(text: &str) -> Result<PostgresAddress, &'static str> {
        let mut address = PostgresAddress::default();
        let url = text
            .strip_prefix("postgres://")
            .or(text.strip_prefix("postgresql://"));
        match url {
            Some(rest) => address.url(rest)?,
            None => address.words(text)?,
        }
        Ok(address)
    }

    /// Parses a URL as libpq does. Its syntax is lenient: the login ends at the first @.
    fn url(&mut self, text: &str) -> Result<(), &'static str> {
        let mut rest = text;
        if let Some((login, behind)) = text.split_once('@') {
            rest = behind;
            let (user, password) = login
                .split_once(':')
                .map_or((login, None), |(u, p)| (u, Some(p)));
            self.user = Some(decoded(user)?);
            self.password = password.map(decoded_bytes);
        }
        let (hosts, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        for host in hosts.split(',').filter(|_| !hosts.is_empty()) {
            let (host, port) = match host.strip_prefix('[') {
                Some(inner) => {
                    let (host, port) = inner.split_once(']').ok_or("a host lacks its closing ]")?;
                    match port.strip_prefix(':') {
                        None if !port.is_empty() => return Err("a host lacks its closing ]"),
                        port => (host, port),
                    }
                }
                None => host
                    .split_once(':')
                    .map_or((host, None), |(h, p)| (h, Some(p))),
            };
            self.host(&decoded(host)?);
            match port {
                Some(port) => self.set("port", &decoded(port)?)?,
                None => self.ports.push(PORT),
            }
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let database = path.strip_prefix('/').unwrap_or_default();
        if !database.is_empty() {
            self.database = Some(decoded(database)?);
        }
        for pair in query.split('&').filter(|_| !query.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or("an option lacks a value")?;
            match decoded(name)?.as_str() {
                "host" => self.host(&decoded(value)?),
                name => self.set(name, &decoded(value)?)?,
            }
        }
        Ok(())
    }

    /// Parses `name=value` words. Blanks may surround the sign. Values with blanks are quoted.
    fn words(&mut self, text: &str) -> Result<(), &'static str> {
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let (name, behind) = rest.split_once('=').ok_or("a word lacks a value")?;
            let name = name.trim_end();
            if name.is_empty() || name.contains(char::is_whitespace) {
                return Err("a word lacks a value");
            }
            let behind = behind.trim_start();
            let quoted = behind.strip_prefix('\'');
            let is_end = |c: char| match quoted {
                Some(_) => c == '\'',
                None => c.is_whitespace(),
            };
            let behind = quoted.unwrap_or(behind);
            let (mut value, mut characters) = (String::new(), behind.chars());
            let mut is_ended = quoted.is_none();
            rest = "";
            while let Some(c) = characters.next() {
                match c {
                    c if is_end(c) => {
                        (is_ended, rest) = (true, characters.as_str());
                        break;
                    }
                    '\\' => value.extend(characters.next()),
                    c => value.push(c),
                }
            }
            if !is_ended || (quoted.is_none() && value.is_empty()) {
                return Err("a value is empty or lacks its closing quote");
            }
            self.set(name, &value)?;
            rest = rest.trim_start();
        }
        Ok(())
    }

    fn host(&mut self, host: &str) {
        self.hosts.push(match host.starts_with('/') {
            true => PostgresHost::Unix(host.to_owned()),
            false => PostgresHost::Tcp(host.to_owned()),
        });
    }

    /// Sets an option. Tuning options of a connection are checked and ignored.
    fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        const WRONG: &str = "an option has an invalid value";
        let text = || Some(value.to_owned());
        let one_of = |known: &[&str]| known.contains(&value).then_some(()).ok_or(WRONG);
        match name {
            "user" => self.user = text(),
            "password" => self.password = Some(value.as_bytes().to_vec()),
            "dbname" => self.database = text(),
            "options" => self.options = text(),
            "application_name" => self.application = text(),
            "host" => value.split(',').for_each(|host| self.host(host)),
            "hostaddr" => {
                for address in value.split(',') {
                    self.addresses.push(address.parse().map_err(|_| WRONG)?);
                }
            }
            "port" => {
                for port in value.split(',') {
                    self.ports.push(match port {
                        "" => PORT,
                        port => port.parse().map_err(|_| WRONG)?,
                    });
                }
            }
            "sslmode" => {
                one_of(&["disable", "prefer", "require"])?;
                self.needs_tls |= value == "require";
            }
            "channel_binding" => {
                one_of(&["disable", "prefer", "require"])?;
                self.needs_tls |= value == "require";
            }
            "target_session_attrs" => {
                one_of(&["any", "read-write", "read-only"])?;
                self.writes = (value != "any").then_some(value == "read-write");
            }
            "sslnegotiation" => one_of(&["postgres", "direct"])?,
            "load_balance_hosts" => one_of(&["disable", "random"])?,
            "connect_timeout"
            | "tcp_user_timeout"
            | "keepalives"
            | "keepalives_idle"
            | "keepalives_interval"
            | "keepalives_retries" => {
                value.parse::<i64>().map_err(|_| WRONG)?;
            }
            _ => return Err("unknown option in the address"),
        }
        Ok(())
    }

    /// Returns the addresses of the servers, in the order of connection attempts.
    pub(super) fn places(&self) -> Result<Vec<Endpoint>, QueryError> {
        let (hosts, addresses) = (self.hosts.len(), self.addresses.len());
        let count = hosts.max(addresses);
        if hosts.min(addresses) > 0 && hosts != addresses {
            return Err(QueryError::new(format!(
                "number of hosts ({hosts}) is different from number of hostaddrs ({addresses})"
            )));
        }
        if self.ports.len() > 1 && self.ports.len() != count {
            return Err(QueryError::new("invalid number of ports"));
        }
        let place = |at: usize| {
            let port = self.ports.get(at).or(self.ports.first());
            let port = port.copied().unwrap_or(PORT);
            match (self.addresses.get(at), self.hosts.get(at)) {
                (Some(address), _) => Endpoint::Tcp {
                    host: address.to_string(),
                    port,
                },
                (None, Some(PostgresHost::Unix(folder))) => {
                    Endpoint::Unix(format!("{folder}/.s.PGSQL.{port}"))
                }
                (None, host) => Endpoint::Tcp {
                    host: match host {
                        Some(PostgresHost::Tcp(name)) => name.clone(),
                        _ => String::new(),
                    },
                    port,
                },
            }
        };
        Ok((0..count).map(place).collect())
    }

    /// Returns the login user. The default is the user of this process.
    pub(super) fn user(&self) -> Result<String, QueryError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|name| !name.is_empty());
        match &self.user {
            Some(user) => Ok(user.clone()),
            None if rustix::process::geteuid().is_root() => Ok("root".to_owned()),
            None => (variable("USER").or_else(|| variable("LOGNAME")))
                .ok_or_else(|| QueryError::new("the address names no user: add user=NAME")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> PostgresAddress {
        PostgresAddress::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn words() {
        let address =
            parsed(r"host=/run/pg,db port = 1,2 user='a b' password=x\'\ y dbname='it\'s'");
        let hosts = vec![
            PostgresHost::Unix("/run/pg".into()),
            PostgresHost::Tcp("db".into()),
        ];
        assert_eq!(
            (address.hosts.clone(), address.ports.clone()),
            (hosts, vec![1, 2])
        );
        assert_eq!(address.user.as_deref(), Some("a b"));
        assert_eq!(address.password.as_deref(), Some(b"x' y".as_slice()));
        assert_eq!(address.database.as_deref(), Some("it's"));
        let places: Vec<String> = (address.places().unwrap().iter())
            .map(Endpoint::to_string)
            .collect();
        assert_eq!(places, ["/run/pg/.s.PGSQL.1", "db:2"]);
        let numbers = parsed("hostaddr=::1,127.0.0.1 port=7 host=a,b")
            .places()
            .unwrap();
        assert_eq!(numbers[0].to_string(), "[::1]:7");
        assert_eq!(numbers[1].to_string(), "127.0.0.1:7");
        assert!(parsed("").places().unwrap().is_empty());
        assert!(parsed("host=a,b hostaddr=::1").places().is_err());
        assert!(parsed("host=a port=1,2").places().is_err());
        for bad in [
            "nonsense",
            "host",
            "host=",
            "=a",
            "host='a",
            "host=h password=my secret",
            "hostaddr=a",
            "port=x",
            "sslmode=allow",
            "color=red",
            "connect_timeout=soon",
        ] {
            assert!(PostgresAddress::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn urls() {
        let address = parsed(
            "postgres://u:se%2Fcr%40t@h:5433,[::1]/db?application_name=a%20b&sslmode=require",
        );
        assert_eq!(address.password.as_deref(), Some(b"se/cr@t".as_slice()));
        assert_eq!(address.ports, [5433, 5432]);
        assert_eq!(address.database.as_deref(), Some("db"));
        assert_eq!(address.application.as_deref(), Some("a b"));
        assert!(address.needs_tls);
        let socket = parsed("postgresql:///db?host=%2Frun%2Fpg&target_session_attrs=read-only");
        assert_eq!(socket.hosts, [PostgresHost::Unix("/run/pg".into())]);
        assert_eq!((socket.user.clone(), socket.writes), (None, Some(false)));
        for bad in [
            "postgres://[::1",
            "postgres://[::1]x",
            "postgres://h?a",
            "postgres://h:x",
        ] {
            assert!(PostgresAddress::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".*", scheme in "(postgres://|host=|)") {
            if let Ok(address) = PostgresAddress::parse(&format!("{scheme}{text}")) {
                let _ = address.places();
            }
        }

        #[test]
        fn quoted_values_come_back(value in ".*") {
            let quoted = value.replace('\\', "\\\\").replace('\'', "\\'");
            prop_assert_eq!(parsed(&format!("dbname='{quoted}' user=u")).database, Some(value));
        }
    }
}
