//! MariaDB with a filled table and a load.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hugeleaf_ask::QueryError;
use hugeleaf_ask::mysql::{MysqlAddress, MysqlConnection};
use hugeleaf_sys::Deadline;
use hugeleaf_units::Bytes;

use super::MariadbServer;
use crate::load::{LoadClients, TransactionFn};
use crate::server::{Server, ServerSettings};

/// Number of rows of about 700 bytes, more than the buffer pool holds, so that all of it is used.
const ROWS: u64 = 400_000;
/// Size of the buffer pool in kB.
pub const BUFFER_POOL_KB: u64 = 256 * 1024;
/// Time limit of a statement.
const DEADLINE: Duration = Duration::from_secs(600);

pub struct FilledMariadb {
    pub server: Server,
    socket: PathBuf,
}

impl FilledMariadb {
    #[track_caller]
    pub fn start() -> FilledMariadb {
        let settings = ServerSettings {
            cache: Bytes::from_kib(BUFFER_POOL_KB),
            more: vec!["innodb-log-file-size=256M".to_owned()],
            ..ServerSettings::default()
        };
        let started = MariadbServer::start(&settings).unwrap();
        let socket = started.socket();
        let mariadb = FilledMariadb {
            server: started.server,
            socket,
        };
        mariadb.fill();
        mariadb
    }

    /// Returns the metric's address for `hugeleaf prove`.
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
                .query(&statement, Deadline::new(DEADLINE))
                .unwrap_or_else(|e| panic!("{statement}: {e}"));
        }
    }

    /// Resizes the buffer pool of the running server and waits for the end.
    pub fn resize(&self, size: &str) {
        let bytes: u64 = size.trim_end_matches('M').parse::<u64>().unwrap() << 20;
        let mut connection = connect(&self.socket).unwrap();
        connection
            .query(
                &format!("SET GLOBAL innodb_buffer_pool_size = {bytes}"),
                Deadline::new(DEADLINE),
            )
            .unwrap();
        let status = "SHOW STATUS LIKE 'Innodb_buffer_pool_resize_status'";
        let done = || {
            let rows = connect(&self.socket)
                .unwrap()
                .query(status, Deadline::new(DEADLINE))
                .unwrap();
            let is_over = |text: &String| text.is_empty() || text.contains("ompleted");
            rows.first()
                .is_none_or(|row| row.get(1).is_none_or(is_over))
        };
        crate::until("it is resized", done);
    }

    /// Reads all rows to fill the buffer pool.
    pub fn read_all(&self) {
        let mut connection = connect(&self.socket).unwrap();
        connection
            .query(
                "SELECT SUM(LENGTH(more)) FROM t.rows",
                Deadline::new(DEADLINE),
            )
            .unwrap();
    }

    /// Starts clients that read a random row, check it and change it, in one transaction.
    pub fn load(&self) -> LoadClients {
        let socket = self.socket.clone();
        LoadClients::start(2, move |number| {
            let mut connection = connect(&socket).map_err(|e| e.to_string())?;
            let mut random = fastrand::Rng::with_seed(number as u64 + 1);
            let work: TransactionFn = Box::new(move || {
                let id = random.u64(1..=ROWS);
                transaction(&mut connection, id).map_err(|e| format!("row {id}: {e}"))
            });
            Ok(work)
        })
    }
}

fn transaction(connection: &mut MysqlConnection, id: u64) -> Result<(), String> {
    let mut ask = |statement: &str| {
        connection
            .query(statement, Deadline::new(DEADLINE))
            .map_err(|e| e.to_string())
    };
    ask("BEGIN")?;
    let held = ask(&format!(
        "SELECT text, LENGTH(more) FROM t.rows WHERE id = {id}"
    ))?;
    if held != [[id.to_string(), "450".to_owned()]] {
        return Err(format!("holds {held:?}"));
    }
    ask(&format!(
        "UPDATE t.rows SET changes = changes + 1 WHERE id = {id}"
    ))?;
    let changed = ask("SELECT ROW_COUNT()")?;
    if changed != [["1"]] {
        return Err(format!("{changed:?} rows changed"));
    }
    ask("COMMIT").map(drop)
}

fn connect(socket: &Path) -> Result<MysqlConnection, QueryError> {
    let address = format!("mysql://root@localhost/?socket={}", socket.display());
    MysqlConnection::open(
        &MysqlAddress::parse(&address).map_err(QueryError::new)?,
        Deadline::new(DEADLINE),
    )
}
