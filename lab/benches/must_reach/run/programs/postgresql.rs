//! PostgreSQL: buffers that all of its processes share, and a sort in the memory of one of them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use hugeleaf_units::Bytes;
use postgres::{Client, NoTls};
use rustix::process::Signal;
use tempfile::TempDir;

use super::{Made, Need, PRIVATE, Program, SHARED, Taken, server_command};
use crate::run::arms::{Arm, ours, peers};
use crate::run::host::Host;
use crate::run::{done, look, number};
use crate::support::postgresql::programs;
use crate::support::server::{Account, Server, folder_for};
use crate::{Failed, Mode};

const FILL: &str = "fill, bytes/s";
const SELECT: &str = "select, transactions/s";
const SORT: &str = "sort, rows/s";

/// A cluster on disk that servers are started on one after the other.
pub struct Cluster {
    bin: PathBuf,
    data: TempDir,
    account: Account,
    buffers: Bytes,
    sort_rows: u32,
    seconds: u32,
}

/// PostgreSQL with buffers that are full.
pub fn postgresql(mode: Mode) -> Result<Made, Failed> {
    match Cluster::new(mode)? {
        Some(cluster) => Ok(Ok(Box::new(cluster))),
        None => Ok(Err("it is not installed")),
    }
}

/// A server on a cluster.
pub struct Running {
    pub server: Server,
    socket: String,
}

impl Running {
    pub fn connect(&self) -> Result<Client, Failed> {
        Ok(connect(&self.socket)?)
    }
}

fn connect(socket: &str) -> Result<Client, postgres::Error> {
    Client::connect(
        &format!("host={socket} user=postgres dbname=postgres"),
        NoTls,
    )
}

impl Cluster {
    /// Makes one whose table of accounts and its index are about as large as the buffers.
    pub fn new(mode: Mode) -> Result<Option<Cluster>, Failed> {
        let Some(bin) = programs() else {
            return Ok(None);
        };
        let account = Account::first_of(&["postgres", "nobody"]);
        let data = folder_for(account);
        // pgbench counts in steps of 100,000 rows, 15 MB with their index.
        let (buffers, scale, sort_rows, seconds) = match mode {
            Mode::Full => (Bytes::from_mib(1024), "66", 4_500_000, 4),
            Mode::Smoke => (Bytes::from_mib(32), "1", 20_000, 1),
        };
        let bare = Arm::bare();
        let mut initdb = server_command(&bare, account, &bin.join("initdb"));
        let folder = data.path().join("data");
        done(
            initdb
                .args([
                    "--username=postgres",
                    "--auth=trust",
                    "--no-sync",
                    "--pgdata",
                ])
                .arg(&folder),
        )?;
        let cluster = Cluster {
            bin,
            data,
            account,
            buffers,
            sort_rows,
            seconds,
        };
        let running = cluster.start(&bare)?;
        done(&mut cluster.pgbench(&running, &["-i", "-q", "-I", "dtGvp", "-s", scale]))?;
        running
            .connect()?
            .batch_execute("CREATE EXTENSION pg_prewarm; CHECKPOINT")?;
        Ok(Some(cluster))
    }

    /// Shared memory that it asks for: the buffers and what goes with them.
    pub fn shared(&self) -> Bytes {
        Bytes(self.buffers.get() + self.buffers.get() / 16 + Bytes::from_mib(16).get())
    }

    fn pgbench(&self, running: &Running, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.bin.join("pgbench"));
        command
            .args(["-h", &running.socket, "-U", "postgres"])
            .args(arguments)
            .arg("postgres");
        command
    }

    /// Starts a server. It is not to ask for large pages by itself: what the arm does is measured.
    pub fn start(&self, arm: &Arm) -> Result<Running, Failed> {
        let folder = folder_for(self.account);
        let socket = folder.path().display().to_string();
        let mut command = server_command(arm, self.account, &self.bin.join("postgres"));
        command.arg("-D").arg(self.data.path().join("data"));
        for setting in [
            "listen_addresses=",
            &format!("unix_socket_directories={socket}"),
            &format!("shared_buffers={}kB", self.buffers.get() / 1024),
            "huge_pages=off",
            "work_mem=600MB",
            "max_parallel_workers_per_gather=0",
            "jit=off",
            "fsync=off",
            "full_page_writes=off",
            "autovacuum=off",
            "max_wal_size=4GB",
        ] {
            command.arg("-c").arg(setting);
        }
        let server = Server::start(&mut command, folder, Signal::INT, || {
            connect(&socket).is_ok()
        });
        Ok(Running { server, socket })
    }

    /// Reads table and index into the buffers; the process that did, whose page tables then map
    /// all of them, and the blocks read.
    pub fn fill(&self, client: &mut Client) -> Result<(u32, i64), Failed> {
        let row = client.query_one(
            "SELECT pg_backend_pid(), \
             pg_prewarm('pgbench_accounts_pkey') + pg_prewarm('pgbench_accounts')",
            &[],
        )?;
        Ok((u32::try_from(row.get::<_, i32>(0))?, row.get(1)))
    }
}

impl Program for Cluster {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn file(&self) -> &'static str {
        "run-postgresql"
    }

    fn need(&self) -> Need {
        Need {
            all: Bytes(self.shared().get() + Bytes::from_mib(700).get()),
            shared: self.shared(),
        }
    }

    fn shares(&self) -> &'static [&'static str] {
        &[PRIVATE, SHARED]
    }

    fn rates(&self) -> &'static [&'static str] {
        &[FILL, SELECT, SORT]
    }

    fn arms(&self, host: &Host) -> Vec<Arm> {
        [ours(host, true), peers()].concat()
    }

    fn sample(&self, arm: &Arm) -> Result<Taken, Failed> {
        let running = self.start(arm)?;
        let mut taken = Taken::default();
        let mut filler = running.connect()?;
        let start = Instant::now();
        let (pid, blocks) = self.fill(&mut filler)?;
        let block: i32 = filler
            .query_one("SELECT current_setting('block_size')::int", &[])?
            .get(0);
        let bytes = number(u64::try_from(blocks * i64::from(block))?);
        taken.rate(FILL, bytes / start.elapsed().as_secs_f64());
        taken.shared(look::look(pid)?);
        let seconds = self.seconds.to_string();
        let said = done(&mut self.pgbench(
            &running,
            &[
                "-n", "-S", "-M", "prepared", "-c", "2", "-j", "2", "-T", &seconds,
            ],
        ))?;
        taken.rate(SELECT, tps(&said)?);
        // The sort is done when its first row comes, and holds its memory until the cursor ends.
        let mut sorter = running.connect()?;
        let start = Instant::now();
        let rows = self.sort_rows;
        sorter.batch_execute(&format!(
            "BEGIN; DECLARE sorted CURSOR FOR \
             SELECT n::bigint * 7919 % 1000003 AS key, repeat('.', 40) AS text \
             FROM (SELECT generate_series(1, {rows}) AS n OFFSET 0) AS numbers ORDER BY key, n"
        ))?;
        let first = sorter.query_one("FETCH 1 FROM sorted", &[])?;
        taken.rate(SORT, f64::from(rows) / start.elapsed().as_secs_f64());
        let pid: i32 = sorter.query_one("SELECT pg_backend_pid()", &[])?.get(0);
        taken.private(look::look(u32::try_from(pid)?)?);
        taken.resident(running.server.pid())?;
        let accounts = filler.query_one("SELECT sum(aid)::text FROM pgbench_accounts", &[])?;
        taken.check = format!(
            "{} {}",
            first.get::<_, i64>(0),
            accounts.get::<_, String>(0)
        );
        Ok(taken)
    }
}

/// The rate that pgbench says.
fn tps(said: &str) -> Result<f64, Failed> {
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
    let text = line.and_then(|l| l.split_whitespace().next());
    Ok(text
        .ok_or_else(|| format!("pgbench said {said:?}"))?
        .parse()?)
}
