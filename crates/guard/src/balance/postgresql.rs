//! PostgreSQL: shown with its size, and never resized: `shared_buffers` changes only with a restart, and what a reload
//! changes (`work_mem`, `maintenance_work_mem`) is no cache that could be moved to somebody else.

use std::time::Duration;

use ::postgres::config::Host;
use ::postgres::{Client, Config, NoTls, SimpleQueryMessage};
use hugeleaf_units::Bytes;

use super::server::{Look, Opening, PATIENCE, Server, ServerKind};
use hugeleaf_ask::Unanswered;

pub(crate) const KIND: ServerKind = ServerKind {
    names: &["postgresql", "postgres"],
    address: "what libpq takes: host=… user=… dbname=…",
    example: "host=/run/postgresql user=postgres",
    resizes: "nothing: `shared_buffers` changes only with a restart, so it is shown, and its size is kept for it",
    benefit: "not measured",
    miss: Duration::from_micros(100),
    processes: &["postgres"],
    is_shared: true,
    returns: Duration::from_secs(45),
    check: |address| {
        let config = address.parse::<Config>();
        let config = config.map_err(|_| "this is no address")?;
        match config.get_hosts() {
            [] => Err("this names no host".into()),
            _ => Ok(shown(&config)),
        }
    },
    is_apart: true,
    open: |opening: &Opening| {
        Box::new(PostgreSql {
            address: opening.address.clone(),
            client: None,
        })
    },
};

fn shown(config: &Config) -> String {
    let hosts: Vec<String> = (config.get_hosts().iter())
        .map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    format!("host={}", hosts.join(","))
}

struct PostgreSql {
    address: String,
    client: Option<Client>,
}

impl PostgreSql {
    fn client(&mut self) -> Result<&mut Client, Unanswered> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            let config = self.address.parse::<Config>();
            let mut config = config.map_err(|_| Unanswered::new("this is no address"))?;
            config.connect_timeout(PATIENCE);
            // A statement that waits ends by itself: this one looks at settings alone.
            config.options(&format!("-c statement_timeout={}", PATIENCE.as_millis()));
            let client = config.connect(NoTls);
            // Its words hold neither the password nor the address.
            self.client = Some(client.map_err(|e| Unanswered::new(e.to_string()))?);
        }
        let client = self.client.as_mut();
        client.ok_or_else(|| Unanswered::new("not connected"))
    }
}

const BUFFERS: &str = "SELECT pg_size_bytes(current_setting('shared_buffers'))";

impl Server for PostgreSql {
    fn look(&mut self) -> Result<Look, Unanswered> {
        let asked = self.client()?.simple_query(BUFFERS);
        let rows = asked.map_err(|e| {
            self.client = None;
            Unanswered::new(e.to_string())
        })?;
        let text = rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let bytes = text.and_then(|text| text.parse().ok());
        let bytes = bytes.ok_or_else(|| Unanswered::new("it says no size of shared_buffers"))?;
        Ok(Look {
            size: Bytes(bytes),
            fixed: Some(
                "its shared_buffers changes only with a restart; what a reload changes is no cache"
                    .into(),
            ),
            ..Look::default()
        })
    }

    fn resize(&mut self, _to: Bytes) -> Result<(), Unanswered> {
        Err(Unanswered::new(
            "shared_buffers changes only with a restart",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let check = KIND.check;
        assert_eq!(
            check("host=/run/pg user=a password=secret"),
            Ok("host=/run/pg".into())
        );
        assert!(check("host=a nonsense").is_err());
    }
}
