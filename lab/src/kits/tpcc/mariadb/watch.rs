//! Samples of a running server once a second, on one connection.

use std::collections::BTreeMap;
use std::path::Path;

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error};
use hugeleaf_units::Bytes;

use super::error_mapping::explain;
use super::{COUNTED, counters_in};
use crate::kits::tpcc::counters::DatabaseCounters;
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::mariadb_options;

#[derive(Debug)]
pub struct MariadbWatch {
    connection: Conn,
    place: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MariadbSeen {
    /// Reads and writes since its start.
    pub counters: DatabaseCounters,
    /// Transactions committed since its start.
    pub commits: u64,
    /// Current size of its buffer pool.
    pub pool: Bytes,
}

impl MariadbWatch {
    /// Connects to the server whose superuser connects on a socket without a password.
    ///
    /// # Errors
    /// Those of the database.
    pub fn open(socket: &Path) -> Result<MariadbWatch, TpccError> {
        let place = format!("mariadb at {}", socket.display());
        let connection = Conn::new(mariadb_options(socket)).map_err(|e| explain(&place, &e))?;
        Ok(MariadbWatch { connection, place })
    }

    /// Reads the current values.
    ///
    /// # Errors
    /// Those of the database; [`TpccError::Database`] if it does not report one of the values.
    pub fn sample(&mut self) -> Result<MariadbSeen, TpccError> {
        const COMMITS: &str = "Com_commit";
        const POOL: &str = "innodb_buffer_pool_size";
        let names = COUNTED.join("','");
        let status = format!("SHOW GLOBAL STATUS WHERE Variable_name IN ('{names}','{COMMITS}')");
        let size = format!("SHOW GLOBAL VARIABLES LIKE '{POOL}'");
        let ask = || -> Result<BTreeMap<String, String>, Error> {
            let mut all: Vec<(String, String)> = self.connection.query(status)?;
            all.extend(self.connection.query::<(String, String), _>(size)?);
            Ok(all.into_iter().collect())
        };
        let all = ask().map_err(|e| explain(&self.place, &e))?;
        let number = |name: &str| -> Result<u64, TpccError> {
            let number = all.get(name).and_then(|text| text.parse().ok());
            number.ok_or_else(|| TpccError::Database {
                place: self.place.clone(),
                reason: format!("it does not report {name}"),
            })
        };
        Ok(MariadbSeen {
            counters: counters_in(&all),
            commits: number(COMMITS)?,
            pool: Bytes(number(POOL)?),
        })
    }
}
