//! Tests that the pages planned for a program suffice, and exceed its need by at most 2 % or two pages. Each program is configured for huge
//! pages and started on exactly the planned pages. It must run on them; with fewer pages, by that margin, it fails or falls back.
//!
//! Needs root, the programs, and memory to reserve; otherwise prints "not run" with the name.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hugeleaf_host::{Root, read_memory_facts};
use hugeleaf_plan::{Plan, parse};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{self, ExclusiveHost};
use hugeleaf_testkit::jvm::{self, Jvm};
use hugeleaf_testkit::server::{
    Server, ServerAccount, ShutdownSignals, as_account, folder_for, prepare,
};
use hugeleaf_testkit::{left_to_all, mariadb, postgresql, until};
use hugeleaf_units::{Bytes, PageSize};

use crate::common::{CommandOutput, HUGELEAF, not_run};

/// The pool of the default size, unused by others; restored when dropped.
struct Pool {
    folder: PathBuf,
    page: PageSize,
    host: ExclusiveHost,
}

impl Pool {
    /// Takes the pool, or prints why it cannot hold this much memory.
    fn take(test: &str, bytes: Bytes) -> Option<Pool> {
        if !rustix::process::geteuid().is_root() {
            not_run(test, "needs root");
            return None;
        }
        let alone = host_lock::exclusive();
        let host = read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
        let Some(page) = host.memory.default_hugetlb_page.get() else {
            not_run(test, "this kernel has no hugetlb pages");
            return None;
        };
        let needed = Bytes(bytes.get() + bytes.get() / 2);
        if host
            .memory
            .available
            .get()
            .is_none_or(|available| available < needed)
        {
            not_run(test, &format!("needs {needed} of available memory"));
            return None;
        }
        let pool = Pool {
            folder: host_lock::pool(page.bytes().get()),
            page,
            host: alone,
        };
        if pool.taken() > 0 {
            not_run(test, "somebody else uses the pool");
            return None;
        }
        Some(pool)
    }

    fn number(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(name)).unwrap();
        text.trim().parse().unwrap()
    }

    /// Returns the pages in use or reserved.
    fn taken(&self) -> u64 {
        self.number("nr_hugepages") - self.number("free_hugepages") + self.number("resv_hugepages")
    }

    /// Sets the pool's size; memory may have to be compacted first.
    fn set(&self, pages: u64) {
        let got = self.host.set_pool(self.page.bytes().get(), pages);
        assert_eq!(got, pages, "pages of {} and no more", self.page);
    }

    /// Returns the pages of the plan that `hugeleaf plan` writes for these arguments, and the plan.
    fn plan(&self, arguments: &[&str]) -> (u64, Plan) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan.toml");
        let mut command = Command::new(HUGELEAF);
        command
            .arg("plan")
            .args(arguments)
            .arg("--output")
            .arg(&file);
        let shown = CommandOutput::run(&mut command).ends_in(&[0]).stdout;
        let text = std::fs::read_to_string(file).unwrap();
        let plan = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let pools = plan.pools.iter().filter(|pool| pool.page == self.page);
        let pages: u64 = pools.map(|pool| pool.pages.get()).sum();
        assert!(pages > 0, "{shown}\n{text}");
        (pages, plan)
    }

    fn planned(&self, arguments: &[&str]) -> u64 {
        self.plan(arguments).0
    }

    /// Returns the permitted number of excess pages.
    fn slack(planned: u64) -> u64 {
        (planned / 50).max(2)
    }

    /// Fails unless nearly all planned pages are used.
    #[track_caller]
    fn is_tight(&self, what: &str, planned: u64) {
        let taken = self.taken();
        println!("{what}: {planned} pages planned, {taken} taken");
        assert!(taken <= planned, "{what}: {taken} of {planned}");
        assert!(
            taken + Pool::slack(planned) >= planned,
            "{what}: {planned} pages planned, only {taken} taken"
        );
    }

    /// Fails unless all pages are free.
    #[track_caller]
    fn is_free(&self) {
        until("the pool is free again", || self.taken() == 0);
    }
}

// PostgreSQL -------------------------------------------------------------------------------------

const GB: u64 = 1 << 30;

fn postgres_command(bin: &Path, account: ServerAccount, folder: &Path) -> Command {
    let mut command = as_account(account, &bin.join("postgres"), folder);
    command.arg("-D").arg(folder.join("data"));
    command
}

fn postgres_configured(folder: &Path, buffers_gb: u64) {
    let text = format!(
        "listen_addresses = ''\nunix_socket_directories = '{}'\nshared_buffers = {buffers_gb}GB\n\
         huge_pages = on\nfsync = off\nautovacuum = off\n",
        folder.display()
    );
    std::fs::write(folder.join("data/postgresql.conf"), text).unwrap();
}

fn postgresql_of(buffers_gb: u64) {
    let test = format!("postgresql_starts_on_exactly_the_plan_{buffers_gb}_gb");
    let Some(bin) = postgresql::programs() else {
        return not_run(&test, "needs PostgreSQL");
    };
    let Some(pool) = Pool::take(&test, Bytes(buffers_gb * GB)) else {
        return;
    };
    let account = ServerAccount::first_of(&["postgres", "nobody"]);
    let folder = folder_for(account);
    let data = folder.path().join("data");
    postgresql::init(&bin, account, folder.path());
    postgres_configured(folder.path(), buffers_gb);
    let data = data.to_str().unwrap();
    let planned = pool.planned(&["--postgres", data]);

    pool.set(planned - Pool::slack(planned) - 1);
    let refused = CommandOutput::run(&mut postgres_command(&bin, account, folder.path()));
    assert_ne!(refused.status, 0);
    assert!(
        refused.stderr.contains("could not map"),
        "{}",
        refused.stderr
    );

    pool.set(planned);
    let mut command = postgres_command(&bin, account, folder.path());
    let socket = folder.path().join(".s.PGSQL.5432");
    let server = Server::start(&mut command, folder, ShutdownSignals::POSTGRESQL, || {
        socket.exists()
    });
    pool.is_tight(&test, planned);
    // The plan for the running server is measured, and gives the same number.
    let (again, plan) = pool.plan(&["--postgres", data]);
    assert_eq!(again, planned);
    // The server's own report is used too.
    let source = &plan.services[0].demands[0].source;
    let said = source.contains("reports shared_memory_size = ") && source.contains("mapping");
    assert!(said, "{source}");
    drop(server);
    pool.is_free();
}

#[test]
fn postgresql_starts_on_exactly_the_plan_1_gb() {
    postgresql_of(1);
}

#[test]
fn postgresql_starts_on_exactly_the_plan_4_gb() {
    if left_to_all("postgresql_starts_on_exactly_the_plan_4_gb") {
        return;
    }
    postgresql_of(4);
}

#[test]
fn postgresql_starts_on_exactly_the_plan_8_gb() {
    if left_to_all("postgresql_starts_on_exactly_the_plan_8_gb") {
        return;
    }
    postgresql_of(8);
}

// MariaDB ----------------------------------------------------------------------------------------

fn mariadb_of(test: &str, settings: &str) {
    let Some((program, install)) = mariadb::programs() else {
        return not_run(test, "needs MariaDB");
    };
    let Some(pool) = Pool::take(test, Bytes(GB)) else {
        return;
    };
    let account = ServerAccount::first_of(&["mysql", "nobody"]);
    let home = folder_for(account);
    let (data, socket) = (home.path().join("data"), home.path().join("socket"));
    prepare(mariadb::install_on(
        &mut as_account(account, &install, home.path()),
        &data,
    ));
    let options = home.path().join("options.cnf");
    let text = format!(
        "[mysqld]\ndatadir = {}\nsocket = {}\nskip-networking\nskip-log-bin\nlarge-pages\n{settings}",
        data.display(),
        socket.display()
    );
    std::fs::write(&options, text).unwrap();
    let start = || {
        let folder = folder_for(account);
        let mut command = as_account(account, &program, folder.path());
        command.arg(format!("--defaults-file={}", options.display()));
        let server = Server::start(&mut command, folder, ShutdownSignals::TERM, || {
            mariadb::is_ready(&socket)
        });
        let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
        (server, log)
    };
    let planned = pool.planned(&[&format!("--mariadb={}", options.display())]);

    pool.set(planned);
    let (mut server, log) = start();
    pool.is_tight(test, planned);
    assert!(!log.contains("Couldn't allocate"), "{log}");
    assert_eq!(pool.planned(&[&server.pid().to_string()]), planned);
    server.assert_no_complaint(&mariadb::COMPLAINTS);
    let had = pool.taken();
    drop(server);
    pool.is_free();

    // With fewer pages it falls back; only some mappings report it.
    pool.set(planned - Pool::slack(planned) - 1);
    let (server, _) = start();
    assert!(pool.taken() < had, "{} of {had}", pool.taken());
    drop(server);
    pool.is_free();
}

#[test]
fn mariadb_starts_on_exactly_the_plan() {
    mariadb_of(
        "mariadb_starts_on_exactly_the_plan",
        "innodb-buffer-pool-size = 512M\n",
    );
}

#[test]
fn mariadb_of_other_sizes_starts_on_exactly_the_plan() {
    if left_to_all("mariadb_of_other_sizes_starts_on_exactly_the_plan") {
        return;
    }
    mariadb_of(
        "mariadb_of_other_sizes_starts_on_exactly_the_plan",
        "innodb-buffer-pool-size = 300M\nkey-buffer-size = 96M\nkey-cache-segments = 2\n\
         aria-pagecache-buffer-size = 200M\ninnodb-log-buffer-size = 5M\n",
    );
}

// JVM --------------------------------------------------------------------------------------------

/// Starts a JVM that also warns of pages that it did not get.
fn waiting(java: &Path, flags: &[&str]) -> Jvm {
    let flags = [flags, &["-Xlog:pagesize=warning"]].concat();
    Jvm::waiting(java, &flags).unwrap()
}

fn jvm_of(test: &str, flags: &str) {
    let Some(java) = jvm::program() else {
        return not_run(test, "needs a JDK");
    };
    let Some(pool) = Pool::take(test, Bytes(2 * GB)) else {
        return;
    };
    let flags: Vec<&str> = flags.split(' ').chain(["-XX:+UseLargePages"]).collect();
    let named = format!("{} {}", java.display(), flags.join(" "));
    let planned = pool.planned(&["--java", &named]);

    pool.set(planned);
    let jvm = waiting(&java, &flags);
    assert_eq!(jvm.said, [""; 0], "{test}");
    pool.is_tight(test, planned);
    let had = pool.taken();
    assert_eq!(pool.planned(&[&jvm.pid().to_string()]), planned);
    drop(jvm);
    pool.is_free();

    pool.set(planned - Pool::slack(planned) - 1);
    // It still starts, partly on base pages.
    let jvm = waiting(&java, &flags);
    assert!(pool.taken() < had, "{} of {had}", pool.taken());
    drop(jvm);
    pool.is_free();
}

#[test]
fn a_jvm_with_g1_starts_on_exactly_the_plan() {
    jvm_of(
        "a_jvm_with_g1_starts_on_exactly_the_plan",
        "-Xmx1g -XX:+UseG1GC",
    );
}

#[test]
fn a_jvm_with_a_small_code_cache_starts_on_exactly_the_plan() {
    if left_to_all("a_jvm_with_a_small_code_cache_starts_on_exactly_the_plan") {
        return;
    }
    jvm_of(
        "a_jvm_with_a_small_code_cache_starts_on_exactly_the_plan",
        "-Xms64m -Xmx700m -XX:+UseG1GC -XX:ReservedCodeCacheSize=64m",
    );
}

#[test]
fn a_jvm_with_the_parallel_collector_starts_on_exactly_the_plan() {
    if left_to_all("a_jvm_with_the_parallel_collector_starts_on_exactly_the_plan") {
        return;
    }
    jvm_of(
        "a_jvm_with_the_parallel_collector_starts_on_exactly_the_plan",
        "-Xmx1g -XX:+UseParallelGC",
    );
}

/// From this heap size on, the block offset table takes pages too.
#[test]
fn a_larger_jvm_with_the_parallel_collector_starts_on_exactly_the_plan() {
    if left_to_all("a_larger_jvm_with_the_parallel_collector_starts_on_exactly_the_plan") {
        return;
    }
    jvm_to_the_page(
        "a_larger_jvm_with_the_parallel_collector_starts_on_exactly_the_plan",
        &[
            "-Xmx1534m -XX:+UseParallelGC",
            "-Xmx2g -XX:+UseParallelGC",
            "-Xmx2g -Xmn64m -XX:+UseParallelGC",
            "-Xmx2g -XX:+UseSerialGC",
        ],
    );
}

/// The plan is exact: one page fewer would not suffice.
fn jvm_to_the_page(test: &str, all: &[&str]) {
    let Some(java) = jvm::program() else {
        return not_run(test, "needs a JDK");
    };
    let Some(pool) = Pool::take(test, Bytes(2 * GB + GB / 2)) else {
        return;
    };
    for flags in all {
        let flags: Vec<&str> = flags.split(' ').chain(["-XX:+UseLargePages"]).collect();
        let named = format!("{} {}", java.display(), flags.join(" "));
        // Idle pages would stay in the plan.
        pool.set(0);
        let planned = pool.planned(&["--java", &named]);
        pool.set(planned + 8);
        let jvm = waiting(&java, &flags);
        assert_eq!(pool.taken(), planned, "{flags:?}");
        drop(jvm);
        pool.is_free();
    }
}

/// ZGC takes its heap from the pool as it grows, so missing pages are not a shortage yet.
#[test]
fn a_jvm_with_zgc_is_not_short_before_it_has_grown() {
    let test = "a_jvm_with_zgc_is_not_short_before_it_has_grown";
    let Some(java) = jvm::program() else {
        return not_run(test, "needs a JDK");
    };
    let Some(pool) = Pool::take(test, Bytes(2 * GB)) else {
        return;
    };
    let flags = ["-Xmx1g", "-XX:+UseZGC", "-XX:+UseLargePages"];
    let named = format!("{} {}", java.display(), flags.join(" "));
    let planned = pool.planned(&["--java", &named]);
    pool.set(planned);
    let jvm = waiting(&java, &flags);
    assert!(pool.taken() < planned, "it has all of its heap already");
    let mut verify = Command::new(HUGELEAF);
    let answer = CommandOutput::run(verify.args(["verify", "--json"])).json();
    let services = answer["services"].as_array().unwrap();
    let ours = services.iter().filter(|s| s["pids"][0] == jvm.pid());
    for service in ours {
        assert_eq!(service["short_pages"], 0, "{service:#}");
    }
    drop(jvm);
    pool.is_free();
}

#[test]
fn a_jvm_with_the_serial_collector_starts_on_exactly_the_plan() {
    if left_to_all("a_jvm_with_the_serial_collector_starts_on_exactly_the_plan") {
        return;
    }
    jvm_of(
        "a_jvm_with_the_serial_collector_starts_on_exactly_the_plan",
        "-Xmx512m -XX:+UseSerialGC",
    );
}

#[test]
fn a_jvm_with_shenandoah_starts_on_exactly_the_plan() {
    if left_to_all("a_jvm_with_shenandoah_starts_on_exactly_the_plan") {
        return;
    }
    jvm_of(
        "a_jvm_with_shenandoah_starts_on_exactly_the_plan",
        "-Xmx1g -XX:+UseShenandoahGC",
    );
}

// SysV -------------------------------------------------------------------------------------------

/// The running program that creates segments.
struct Segments {
    child: Child,
    said: String,
}

impl Segments {
    fn start(program: &Path, sizes: &[u64], huge: bool) -> Segments {
        let mut child = Command::new(program)
            .args(huge.then_some("huge"))
            .args(sizes.iter().map(u64::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        Segments { child, said }
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn a_sysv_program_starts_on_exactly_the_plan() {
    let test = "a_sysv_program_starts_on_exactly_the_plan";
    let Some(pool) = Pool::take(test, Bytes(GB)) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("segments");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan_sizes/segments.c");
    let compiled = Command::new("cc")
        .arg("-o")
        .arg(&program)
        .arg(source)
        .status();
    assert!(compiled.unwrap().success());
    let page = pool.page.bytes().get();
    // Whole pages, one byte more, one byte less.
    let sizes = [200 * page, 100 * page + 1, 50 * page - 1];
    let segments = Segments::start(&program, &sizes, false);
    assert_eq!(segments.said, "ready\n");
    let planned = pool.planned(&[&segments.child.id().to_string()]);
    assert_eq!(planned, 200 + 101 + 50);
    drop(segments);

    pool.set(planned - 1);
    let refused = Segments::start(&program, &sizes, true);
    assert!(
        refused.said.contains("Cannot allocate memory"),
        "{}",
        refused.said
    );
    drop(refused);
    pool.set(planned);
    let segments = Segments::start(&program, &sizes, true);
    assert_eq!(segments.said, "ready\n");
    pool.is_tight(test, planned);
    let (again, plan) = pool.plan(&[&segments.child.id().to_string()]);
    assert_eq!(again, planned);
    assert_eq!(plan.services[0].demands[0].pages[0].page, pool.page);
    drop(segments);
    pool.is_free();
}
