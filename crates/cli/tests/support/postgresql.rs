//! PostgreSQL: its buffers are shared anonymous memory, mapped by every backend.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use postgres::{Client, NoTls};
use rustix::process::Signal;

use super::find_program;
use super::load::{Load, Transaction};
use super::server::{Account, Server, as_account, folder_for, prepare};

/// Rows of 500 bytes and a little: more than the buffers hold, so that all of them are used.
const ROWS: i32 = 600_000;
/// The shared buffers in kB, as the kernel counts.
pub const SHARED_BUFFERS_KB: u64 = 256 * 1024;
/// Backends that the load keeps busy.
const CLIENTS: usize = 3;

/// What its log says when something went wrong.
pub const COMPLAINTS: [&str; 4] = ["ERROR:", "FATAL:", "PANIC:", "terminated by signal"];

/// PostgreSQL with a table.
pub struct PostgreSql {
    pub server: Server,
    /// The client that filled the table. Its backend has touched all buffers, as backends that
    /// live long come to do.
    filler: Mutex<Client>,
}

/// The folder of its programs, where it is installed; the newest version.
pub fn programs() -> Option<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("postgres").exists() && bin.join("initdb").exists())
        .collect();
    versions.sort();
    let beside = || {
        let postgres = find_program(&["postgres"])?;
        let bin = postgres.parent()?.to_owned();
        bin.join("initdb").exists().then_some(bin)
    };
    versions.pop().or_else(beside)
}

/// Makes a cluster in `folder/data` that lets everybody in.
pub fn init(bin: &Path, account: Account, folder: &Path) {
    prepare(
        as_account(account, &bin.join("initdb"), folder)
            .args(["--username=postgres", "--auth=trust", "--no-sync", "-D"])
            .arg(folder.join("data")),
    );
}

impl PostgreSql {
    /// Starts it on a Unix socket with `huge_pages=off` and fills the table. Durability is off: a
    /// test's data are worth nothing, and the disk is not what is tested.
    pub fn start(bin: &Path) -> PostgreSql {
        let account = Account::first_of(&["postgres", "nobody"]);
        let folder = folder_for(account);
        let data = folder.path().join("data");
        init(bin, account, folder.path());
        let socket = folder.path().display().to_string();
        let mut command = as_account(account, &bin.join("postgres"), folder.path());
        command.arg("-D").arg(&data);
        for setting in [
            "listen_addresses=",
            &format!("unix_socket_directories={socket}"),
            &format!("shared_buffers={SHARED_BUFFERS_KB}kB"),
            "huge_pages=off",
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
            "autovacuum=off",
            "max_wal_size=4GB",
        ] {
            command.arg("-c").arg(setting);
        }
        let server = Server::start(&mut command, folder, Signal::INT, || {
            connect(&socket).is_ok()
        });
        let mut filler = connect(&socket).unwrap();
        fill(&mut filler);
        PostgreSql {
            server,
            filler: Mutex::new(filler),
        }
    }

    /// The process id of the backend that filled the table.
    pub fn backend_that_touched_all(&self) -> u32 {
        let mut filler = self.filler.lock().unwrap();
        let row = filler.query_one("SELECT pg_backend_pid()", &[]).unwrap();
        u32::try_from(row.get::<_, i32>(0)).unwrap()
    }

    /// The metric's address for `hugeleaf prove`.
    pub fn address(&self) -> String {
        address(&self.server.folder().display().to_string())
    }

    /// What a backend that starts now has of the buffers on large pages once it has read the whole
    /// table, in kB.
    pub fn huge_kb_of_a_new_backend(&self) -> u64 {
        let mut client = connect(&self.server.folder().display().to_string()).unwrap();
        let row = client
            .query_one("SELECT pg_backend_pid(), count(text) FROM rows", &[])
            .unwrap();
        assert_eq!(row.get::<_, i64>(1), i64::from(ROWS));
        let pid = u32::try_from(row.get::<_, i32>(0)).unwrap();
        super::facts::largest_shared(pid).kb("ShmemPmdMapped")
    }

    /// Clients that read a random row, check it and change it, in one transaction.
    pub fn load(&self) -> Load {
        let socket = self.server.folder().display().to_string();
        Load::start(CLIENTS, move |number| {
            let mut client = connect(&socket).map_err(|e| e.to_string())?;
            let mut random = fastrand::Rng::with_seed(number as u64 + 1);
            let work: Transaction = Box::new(move || {
                let id = random.i32(1..=ROWS);
                transaction(&mut client, id).map_err(|e| format!("row {id}: {e}"))
            });
            Ok(work)
        })
    }
}

fn fill(client: &mut Client) {
    for statement in [
        "CREATE TABLE rows (id int PRIMARY KEY, changes int, text text)".to_owned(),
        format!(
            "INSERT INTO rows SELECT i, 0, rpad(i::text, 500, '.') FROM generate_series(1, {ROWS}) i"
        ),
    ] {
        client
            .batch_execute(&statement)
            .unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
}

fn transaction(client: &mut Client, id: i32) -> Result<(), String> {
    let text = |e: postgres::Error| e.to_string();
    let mut transaction = client.transaction().map_err(text)?;
    let row = transaction
        .query_one("SELECT text FROM rows WHERE id = $1", &[&id])
        .map_err(text)?;
    let held: &str = row.get(0);
    if held.len() != 500 || held.trim_end_matches('.') != id.to_string() {
        return Err(format!("holds {held:?}"));
    }
    let changed = transaction
        .execute(
            "UPDATE rows SET changes = changes + 1 WHERE id = $1",
            &[&id],
        )
        .map_err(text)?;
    if changed != 1 {
        return Err(format!("{changed} rows changed"));
    }
    transaction.commit().map_err(text)
}

fn address(socket: &str) -> String {
    format!("host={socket} user=postgres dbname=postgres")
}

fn connect(socket: &str) -> Result<Client, postgres::Error> {
    Client::connect(&address(socket), NoTls)
}
