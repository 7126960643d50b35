//! MariaDB with a table and a load on it.

use std::path::{Path, PathBuf};

use hugeleaf_units::Bytes;
use mysql::prelude::Queryable;

use super::MariadbServer;
use crate::load::{Load, Transaction};
use crate::server::{Server, ServerSettings};

/// Rows of 700 bytes and a little: more than the buffer pool holds, so that all of it is used.
const ROWS: u64 = 400_000;
/// The buffer pool in kB, as the kernel counts.
pub const BUFFER_POOL_KB: u64 = 256 * 1024;

/// MariaDB with a table.
pub struct MariaDb {
    /// The process and its folder.
    pub server: Server,
    socket: PathBuf,
}

impl MariaDb {
    /// Starts it and fills the table.
    #[track_caller]
    pub fn start() -> MariaDb {
        let settings = ServerSettings {
            cache: Bytes::from_kib(BUFFER_POOL_KB),
            more: vec!["innodb-log-file-size=256M".to_owned()],
            ..ServerSettings::default()
        };
        let started = MariadbServer::start(&settings).unwrap();
        let socket = started.socket();
        let mariadb = MariaDb {
            server: started.server,
            socket,
        };
        mariadb.fill();
        mariadb
    }

    /// The metric's address for `hugeleaf prove`.
    pub fn address(&self) -> String {
        format!("mysql://root@localhost/?socket={}", self.socket.display())
    }

    fn fill(&self) {
        let mut connection = connect(&self.socket).unwrap();
        for statement in [
            "CREATE DATABASE t".to_owned(),
            "USE t".to_owned(),
            "CREATE TABLE t.rows (id INT PRIMARY KEY, changes INT, text CHAR(250) CHARACTER SET \
             latin1, more VARCHAR(450) CHARACTER SET latin1) ENGINE=InnoDB"
                .to_owned(),
            format!("INSERT INTO t.rows SELECT seq, 0, seq, REPEAT('.', 450) FROM seq_1_to_{ROWS}"),
            "SELECT SUM(LENGTH(more)) FROM t.rows".to_owned(),
        ] {
            connection
                .query_drop(&statement)
                .unwrap_or_else(|e| panic!("{statement}: {e}"));
        }
    }

    /// Another size of the buffer pool, while it works; waits until that is done.
    pub fn resize(&self, size: &str) {
        let bytes: u64 = size.trim_end_matches('M').parse::<u64>().unwrap() << 20;
        let mut connection = connect(&self.socket).unwrap();
        connection
            .query_drop(format!("SET GLOBAL innodb_buffer_pool_size = {bytes}"))
            .unwrap();
        let status = "SHOW STATUS LIKE 'Innodb_buffer_pool_resize_status'";
        let done = || {
            let row: Option<(String, String)> =
                connect(&self.socket).unwrap().query_first(status).unwrap();
            row.is_none_or(|(_, text)| text.is_empty() || text.contains("ompleted"))
        };
        crate::until("it is resized", done);
    }

    /// Reads all rows, so that the buffer pool is full of them.
    pub fn read_all(&self) {
        let mut connection = connect(&self.socket).unwrap();
        connection
            .query_drop("SELECT SUM(LENGTH(more)) FROM t.rows")
            .unwrap();
    }

    /// Clients that read a random row, check it and change it, in one transaction.
    pub fn load(&self) -> Load {
        let socket = self.socket.clone();
        Load::start(2, move |number| {
            let mut connection = connect(&socket).map_err(|e| e.to_string())?;
            let mut random = fastrand::Rng::with_seed(number as u64 + 1);
            let work: Transaction = Box::new(move || {
                let id = random.u64(1..=ROWS);
                transaction(&mut connection, id).map_err(|e| format!("row {id}: {e}"))
            });
            Ok(work)
        })
    }
}

fn transaction(connection: &mut mysql::Conn, id: u64) -> Result<(), String> {
    let text = |e: mysql::Error| e.to_string();
    connection.query_drop("BEGIN").map_err(text)?;
    let row: Option<(String, u64)> = connection
        .query_first(format!(
            "SELECT text, LENGTH(more) FROM t.rows WHERE id = {id}"
        ))
        .map_err(text)?;
    if row != Some((id.to_string(), 450)) {
        return Err(format!("holds {row:?}"));
    }
    connection
        .query_drop(format!(
            "UPDATE t.rows SET changes = changes + 1 WHERE id = {id}"
        ))
        .map_err(text)?;
    if connection.affected_rows() != 1 {
        return Err(format!("{} rows changed", connection.affected_rows()));
    }
    connection.query_drop("COMMIT").map_err(text)
}

fn connect(socket: &Path) -> Result<mysql::Conn, mysql::Error> {
    let options = mysql::OptsBuilder::new()
        .user(Some("root"))
        .socket(Some(socket.display().to_string()));
    mysql::Conn::new(options)
}
