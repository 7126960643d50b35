//! PostgreSQL under `hugeleaf run`: initdb, a server, pgbench, and a killed backend.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::servers::{Public, can_start};
use super::under::{Mode, UNDER};
use crate::common::{stderr, stdout};
use hugeleaf_testkit::left_to_all;
use hugeleaf_testkit::postgresql as installed;
use hugeleaf_testkit::server::{Server, ServerAccount, ShutdownSignals, folder_for};
use hugeleaf_testkit::until as wait_until;

struct Bench<'a> {
    public: &'a Public,
    way: Mode,
    bin: &'a Path,
    account: ServerAccount,
    server: Server,
}

impl<'a> Bench<'a> {
    /// Creates a cluster with initdb and starts a server on it, both in this mode.
    fn start(public: &'a Public, way: Mode, bin: &'a Path) -> Bench<'a> {
        let account = ServerAccount::first_of(&["postgres", "nobody"]);
        let folder = folder_for(account);
        let data = folder.path().join("data");
        let mut initdb = public.command(way, account, &bin.join("initdb"), folder.path());
        initdb
            .args(["-U", "postgres", "--auth=trust", "--no-sync", "--pgdata"])
            .arg(&data);
        let output = initdb.output().unwrap();
        assert!(
            output.status.success(),
            "{way:?}: {}{}",
            stdout(&output),
            stderr(&output)
        );
        let ours = stderr(&output);
        assert!(!ours.contains("hugeleaf: "), "{way:?}: {ours}");
        let mut postgres = public.command(way, account, &bin.join("postgres"), folder.path());
        postgres.arg("-D").arg(&data);
        for setting in [
            "listen_addresses=",
            "shared_buffers=96MB",
            "work_mem=64MB",
            "fsync=off",
            "max_wal_size=1GB",
            &format!("unix_socket_directories={}", folder.path().display()),
        ] {
            postgres.arg("-c").arg(setting);
        }
        let socket = folder.path().to_owned();
        let server = Server::start(&mut postgres, folder, ShutdownSignals::POSTGRESQL, || {
            let mut ready = public.command(Mode::Bare, account, &bin.join("pg_isready"), &socket);
            ready
                .arg("-h")
                .arg(&socket)
                .output()
                .unwrap()
                .status
                .success()
        });
        Bench {
            public,
            way,
            bin,
            account,
            server,
        }
    }

    /// Runs a client program and returns its output.
    fn client(&self, program: &str, words: &[&str]) -> String {
        let folder = self.server.folder();
        let path = self.bin.join(program);
        let mut command = self.public.command(self.way, self.account, &path, folder);
        command
            .args(["-U", "postgres", "-h"])
            .arg(folder)
            .args(words);
        let output = command.output().unwrap();
        let text = stdout(&output);
        assert!(
            output.status.success(),
            "{:?} {program}: {text}{}",
            self.way,
            stderr(&output)
        );
        text
    }

    fn query(&self, sql: &str) -> String {
        self.client("psql", &["-Atc", sql, "postgres"])
            .trim()
            .to_owned()
    }

    /// TPC-B always keeps four sums equal.
    fn is_consistent(&self) {
        let sums = self.query(
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), \
             (SELECT sum(bbalance) FROM pgbench_branches), \
             (SELECT sum(tbalance) FROM pgbench_tellers), \
             (SELECT coalesce(sum(delta), 0) FROM pgbench_history)",
        );
        let sums: Vec<&str> = sums.split('|').collect();
        assert_eq!(sums.len(), 4);
        assert!(
            sums.iter().all(|sum| *sum == sums[0]),
            "{:?}: {sums:?}",
            self.way
        );
        assert_ne!(self.query("SELECT count(*) FROM pgbench_history"), "0");
    }

    /// After a killed backend, the server ends the others, recreates shared memory, and recovers.
    fn survives_a_killed_backend(&self) {
        let folder = self.server.folder();
        let mut command =
            self.public
                .command(self.way, self.account, &self.bin.join("psql"), folder);
        command
            .args(["-U", "postgres", "-h"])
            .arg(folder)
            .args(["-c", "SELECT pg_sleep(600)"]);
        let mut client = command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let sleeping = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'";
        wait_until("the backend sleeps", || !self.query(sleeping).is_empty());
        let pid = Pid::from_raw(self.query(sleeping).parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        client.wait().unwrap();
        wait_until("the server is back", || {
            let path = self.bin.join("pg_isready");
            let mut ready = self.public.command(Mode::Bare, self.account, &path, folder);
            ready
                .arg("-h")
                .arg(folder)
                .output()
                .unwrap()
                .status
                .success()
        });
    }
}

fn a_full_bench(public: &Public, way: Mode, bin: &Path) {
    let mut bench = Bench::start(public, way, bin);
    bench.client("pgbench", &["-i", "-s", "5", "-q", "postgres"]);
    let output = bench.client(
        "pgbench",
        &["-n", "-c", "6", "-j", "2", "-T", "4", "postgres"],
    );
    assert!(
        output.contains("number of failed transactions: 0"),
        "{way:?}: {output}"
    );
    bench.is_consistent();
    // A sort in a backend's private memory, and parallel workers with shared memory.
    let sorted = bench.query(
        "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; \
         SELECT count(*), sum(length(s)) FROM (SELECT md5(i::text) AS s \
         FROM generate_series(1, 400000) i ORDER BY 1) t",
    );
    assert!(sorted.ends_with("400000|12800000"), "{way:?}: {sorted}");
    bench.server.assert_no_complaint(&installed::COMPLAINTS);
    bench.survives_a_killed_backend();
    bench.is_consistent();
    bench.client("pgbench", &["-n", "-c", "2", "-T", "1", "postgres"]);
    bench.is_consistent();
}

#[test]
fn initdb_and_a_full_pgbench() {
    if left_to_all("initdb_and_a_full_pgbench") {
        return;
    }
    let test = "initdb_and_a_full_pgbench";
    let bin = installed::programs();
    if !can_start(
        test,
        "PostgreSQL",
        bin.as_ref().is_some_and(|b| b.join("pgbench").exists()),
    ) {
        return;
    }
    let (bin, public) = (bin.unwrap(), Public::copy());
    let _host = hugeleaf_testkit::host_lock::shared();
    for way in UNDER {
        a_full_bench(&public, way, &bin);
    }
}
