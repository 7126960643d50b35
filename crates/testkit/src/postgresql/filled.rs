//! PostgreSQL with a filled table and a load.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use hugeleaf_ask::QueryError;
use hugeleaf_ask::postgres::{PostgresAddress, PostgresConnection};
use hugeleaf_sys::Deadline;
use hugeleaf_units::Bytes;

use super::{PostgresServer, dsn};
use crate::load::{LoadClients, TransactionFn};
use crate::server::{Server, ServerSettings};

/// Number of rows of about 500 bytes, more than the buffers hold, so that all of them are used.
const ROWS: i32 = 600_000;
/// Size of the shared buffers in kB.
pub const SHARED_BUFFERS_KB: u64 = 256 * 1024;
const CLIENTS: usize = 3;
/// Time limit of a statement.
const DEADLINE: Duration = Duration::from_secs(600);

pub struct FilledPostgres {
    pub server: Server,
    /// The client that filled the table. Its backend has touched all buffers, as long-lived
    /// backends eventually do.
    filler: Mutex<PostgresConnection>,
}

impl FilledPostgres {
    /// Starts the server with base pages (`huge_pages=off`) and fills the table.
    #[track_caller]
    pub fn start() -> FilledPostgres {
        let settings = ServerSettings {
            cache: Bytes::from_kib(SHARED_BUFFERS_KB),
            ..ServerSettings::default()
        };
        let PostgresServer { server, .. } = PostgresServer::start(&settings).unwrap();
        let mut filler = connect(server.folder()).unwrap();
        fill(&mut filler);
        FilledPostgres {
            server,
            filler: Mutex::new(filler),
        }
    }

    /// Returns the process id of the backend that filled the table.
    pub fn backend_that_touched_all(&self) -> u32 {
        let mut filler = self.filler.lock().unwrap();
        let pid = filler
            .query("SELECT pg_backend_pid()", Deadline::new(DEADLINE))
            .unwrap();
        pid.unwrap().parse().unwrap()
    }

    /// Returns the metric's address for `hugeleaf prove`.
    pub fn address(&self) -> String {
        dsn(self.server.folder())
    }

    /// Returns the huge-page memory of a new backend in the buffers after it has read the whole
    /// table, in kB.
    pub fn huge_kb_of_a_new_backend(&self) -> u64 {
        let mut client = connect(self.server.folder()).unwrap();
        let query = "SELECT concat(pg_backend_pid(), ' ', count(text)) FROM rows";
        let answer = client
            .query(query, Deadline::new(DEADLINE))
            .unwrap()
            .unwrap();
        let (pid, rows) = answer.split_once(' ').unwrap();
        assert_eq!(rows.parse(), Ok(ROWS));
        let pid = pid.parse().unwrap();
        crate::process_facts::largest_shared(pid).kb("ShmemPmdMapped")
    }

    /// Starts clients that read a random row, check it and change it, in one transaction.
    pub fn load(&self) -> LoadClients {
        let socket = self.server.folder().to_owned();
        LoadClients::start(CLIENTS, move |number| {
            let mut client = connect(&socket).map_err(|e| e.to_string())?;
            let mut random = fastrand::Rng::with_seed(number as u64 + 1);
            let work: TransactionFn = Box::new(move || {
                let id = random.i32(1..=ROWS);
                transaction(&mut client, id).map_err(|e| format!("row {id}: {e}"))
            });
            Ok(work)
        })
    }
}

fn fill(client: &mut PostgresConnection) {
    for statement in [
        "CREATE TABLE rows (id int PRIMARY KEY, changes int, text text)".to_owned(),
        format!(
            "INSERT INTO rows SELECT i, 0, rpad(i::text, 500, '.') FROM generate_series(1, {ROWS}) i"
        ),
    ] {
        client
            .query(&statement, Deadline::new(DEADLINE))
            .unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
}

fn transaction(client: &mut PostgresConnection, id: i32) -> Result<(), String> {
    let mut ask = |statement: &str| {
        client
            .query(statement, Deadline::new(DEADLINE))
            .map_err(|e| e.to_string())
    };
    ask("BEGIN")?;
    let held = ask(&format!("SELECT text FROM rows WHERE id = {id}"))?.unwrap_or_default();
    if held.len() != 500 || held.trim_end_matches('.') != id.to_string() {
        return Err(format!("holds {held:?}"));
    }
    let update = format!("UPDATE rows SET changes = changes + 1 WHERE id = {id} RETURNING id");
    let changed = ask(&update)?;
    if changed != Some(id.to_string()) {
        return Err(format!("{changed:?} changed"));
    }
    ask("COMMIT").map(drop)
}

fn connect(folder: &Path) -> Result<PostgresConnection, QueryError> {
    let address = PostgresAddress::parse(&dsn(folder)).map_err(QueryError::new)?;
    PostgresConnection::open(&address, Deadline::new(DEADLINE))
}
