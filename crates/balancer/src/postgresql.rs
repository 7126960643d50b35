//! PostgreSQL: shows its size, but never resizes it. `shared_buffers` changes only with a restart, and the settings
//! that a reload changes (`work_mem`, `maintenance_work_mem`) size no cache whose memory could go to another server.

use std::time::Duration;

use hugeleaf_ask::QueryError;
use hugeleaf_ask::postgres::{PostgresAddress, PostgresConnection, PostgresHost};
use hugeleaf_sys::Deadline;
use hugeleaf_units::Bytes;

use crate::server::{
    ConnectOptions, PATIENCE, ResizableServer, ServerKind, ServerObserver, ServerState,
};

pub(crate) const KIND: ServerKind = ServerKind {
    names: &["postgresql", "postgres"],
    address: "libpq connection string: host=… user=… dbname=…",
    example: "host=/run/postgresql user=postgres",
    resizes: "none: `shared_buffers` changes only with a restart; its size is shown and deducted from the target",
    benefit: "not measured",
    miss: Duration::from_micros(100),
    processes: &["postgres"],
    is_shared: true,
    evicts: false,
    returns: Duration::from_secs(45),
    check: |address| {
        let address = PostgresAddress::parse(address)?;
        let hosts = address.hosts.iter().map(|host| match host {
            PostgresHost::Tcp(name) | PostgresHost::Unix(name) => name.as_str(),
        });
        match address.hosts.is_empty() {
            true => Err("the host is missing".into()),
            false => Ok(format!("host={}", hosts.collect::<Vec<_>>().join(","))),
        }
    },
    observe: |opening| Box::new(PostgresqlReader::new(opening)),
    open: |opening| Box::new(PostgreSql(PostgresqlReader::new(opening))),
};

/// Reads its size. The only statement that it sends is [`BUFFERS`].
struct PostgresqlReader {
    address: Result<PostgresAddress, &'static str>,
    connection: Option<PostgresConnection>,
}

/// Refuses every size.
struct PostgreSql(PostgresqlReader);

impl PostgresqlReader {
    fn new(opening: &ConnectOptions) -> PostgresqlReader {
        PostgresqlReader {
            address: PostgresAddress::parse(&opening.address),
            connection: None,
        }
    }
}

const BUFFERS: &str = "SELECT pg_size_bytes(current_setting('shared_buffers'))";

impl ServerObserver for PostgresqlReader {
    fn observe(&mut self) -> Result<ServerState, QueryError> {
        let question = Deadline::new(PATIENCE);
        // After an error it reconnects.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let address = self.address.as_ref();
                let address = address.map_err(|why| QueryError::new(*why))?;
                PostgresConnection::open(address, question)?
            }
        };
        let text = connection.query(BUFFERS, question)?;
        self.connection = Some(connection);
        let bytes = text.and_then(|text| text.parse().ok());
        let bytes = bytes.ok_or_else(|| QueryError::new("the server reports no shared_buffers"))?;
        Ok(ServerState {
            size: Bytes(bytes),
            fixed: Some(
                "its shared_buffers changes only with a restart; reloadable settings size no cache"
                    .into(),
            ),
            ..ServerState::default()
        })
    }
}

impl ResizableServer for PostgreSql {
    fn observer(&mut self) -> &mut dyn ServerObserver {
        &mut self.0
    }

    fn resize(&mut self, _to: Bytes) -> Result<(), QueryError> {
        Err(QueryError::new(
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
