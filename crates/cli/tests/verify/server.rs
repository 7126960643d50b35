//! Running servers: started before their pool was filled, restarted, and deprived of their pages
//! during use.

use std::os::unix::process::CommandExt;

use hugeleaf_host::demand::{SOURCES, ServiceSelector, read_source};
use hugeleaf_host::{Root, read_memory_facts};
use hugeleaf_sys::Kernel;
use hugeleaf_testkit::host_lock::{self, ExclusiveHost};
use hugeleaf_testkit::jvm::{self, Jvm};
use hugeleaf_units::{Bytes, PageSize};

use super::{answer, ids};
use crate::common::{self, NOBODY, is_root, not_run, public_copy, run};
use hugeleaf_testkit::postgresql;
use hugeleaf_testkit::server::{Server, ServerAccount, ShutdownSignals, as_account, folder_for};

/// The pool of the default size; restored when dropped.
pub struct Pool {
    host: ExclusiveHost,
    pub page: PageSize,
}

impl Pool {
    /// Takes the host's lock and its pool, or prints why it cannot.
    pub fn take(test: &str) -> Option<Pool> {
        if !is_root() {
            not_run(test, "needs root");
            return None;
        }
        let alone = host_lock::exclusive();
        let host = read_memory_facts(&Root::live(), &Kernel::new()).unwrap();
        let Some(page) = host.memory.default_hugetlb_page.get() else {
            not_run(test, "this kernel has no hugetlb pages");
            return None;
        };
        let file = host_lock::pool(page.bytes().get()).join("nr_hugepages");
        let before = std::fs::read_to_string(&file).unwrap();
        if before.trim() != "0" {
            not_run(test, "somebody else has a pool on this host");
            return None;
        }
        Some(Pool { host: alone, page })
    }

    pub fn set(&self, pages: u64) {
        self.host.set_pool(self.page.bytes().get(), pages);
    }
}

/// Returns the names of the findings without `not-verified`: on a busy host, programs of other tests may not answer in time.
fn of_own(found: &serde_json::Value) -> Vec<&str> {
    let all = ids(found).into_iter();
    all.filter(|id| *id != "not-verified").collect()
}

#[test]
fn a_server_without_its_pages_restarted_and_robbed_of_them() {
    let test = "a_server_without_its_pages_restarted_and_robbed_of_them";
    let Some(bin) = postgresql::programs() else {
        return not_run(test, "needs PostgreSQL");
    };
    let Some(pool) = Pool::take(test) else {
        return;
    };
    let account = ServerAccount::first_of(&["postgres", "nobody"]);
    let home = folder_for(account);
    let data = home.path().join("data");
    postgresql::init(&bin, account, home.path());
    let sockets = home.path().display();
    let text = format!(
        "listen_addresses = ''\nunix_socket_directories = '{sockets}'\nshared_buffers = 256MB\n\
         huge_pages = try\nfsync = off\n"
    );
    std::fs::write(data.join("postgresql.conf"), text).unwrap();
    let start = || {
        let mut command = as_account(account, &bin.join("postgres"), home.path());
        command.arg("-D").arg(&data);
        let socket = home.path().join(".s.PGSQL.5432");
        let folder = folder_for(account);
        Server::start(&mut command, folder, ShutdownSignals::POSTGRESQL, || {
            socket.exists()
        })
    };
    let (root, kernel) = (Root::live(), Kernel::new());
    let host = read_memory_facts(&root, &kernel).unwrap();
    let kind = SOURCES.iter().find(|kind| kind.flag == "postgres");
    let source = ServiceSelector::Flag(kind.unwrap(), data.clone().into());
    let demand = read_source(&root, &kernel, &host, &source).unwrap();
    let pages = pool.page.pages_for(demand[0].demands[0].bytes()).get();
    // Excludes other lines of the kernel's log.
    let verify = || answer(&run(&["verify", "--json", "--since", "1s"]));

    let server = start();
    let (found, status) = verify();
    assert_eq!(
        (of_own(&found), status),
        (vec!["service-short"], 1),
        "{found:#}"
    );
    let service = &found["services"][0];
    assert_eq!(service["short_pages"], pages);
    assert_eq!(service["pids"][0], server.pid());
    assert!(service["since"].is_string());

    pool.set(pages);
    let (found, status) = verify();
    assert_eq!(
        (of_own(&found), status),
        (vec!["started-before-pool"], 1),
        "{found:#}"
    );

    drop(server);
    let server = start();
    let (found, status) = verify();
    assert_eq!((of_own(&found), status), (vec![], 0), "{found:#}");
    assert_eq!(found["services"][0]["got"][0]["pages"], pages);

    // Its pages stay as surplus, and are freed when it releases them.
    pool.set(0);
    let (found, status) = verify();
    assert_eq!(
        (of_own(&found), status),
        (vec!["restart-would-fail"], 1),
        "{found:#}"
    );
    assert_eq!(found["services"][0]["short_pages"], 0);
    drop(server);
}

/// A JVM starts without its pages, regardless of its flags.
#[test]
fn a_jvm_without_its_pages() {
    let test = "a_jvm_without_its_pages";
    let Some(java) = jvm::program() else {
        return not_run(test, "needs a JDK");
    };
    let Some(pool) = Pool::take(test) else {
        return;
    };
    let flags = [
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:ReservedCodeCacheSize=64m",
        "-XX:+UseLargePages",
    ];
    let jvm = Jvm::waiting(&java, &flags).unwrap();
    let verify = || answer(&run(&["verify", "--json", "--since", "1s"]));
    let (found, status) = verify();
    assert_eq!(
        (of_own(&found), status),
        (vec!["service-short"], 1),
        "{found:#}"
    );
    let service = &found["services"][0];
    assert_eq!(
        (&service["kind"], &service["pids"][0]),
        (&"jvm".into(), &jvm.pid().into())
    );
    let pages = pool.page.pages_for(Bytes::from_mib(256 + 64)).get();
    assert_eq!(service["short_pages"], pages);
    pool.set(pages);
    assert_eq!(of_own(&verify().0), ["started-before-pool"]);
}

#[test]
fn an_ordinary_user_gets_an_answer_too() {
    let test = "an_ordinary_user_gets_an_answer_too";
    if !is_root() {
        return not_run(test, "needs root, to become another user");
    }
    let (_folder, program) = public_copy();
    let mut command = common::program(&program, &["verify", "--json"]);
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    let (found, status) = answer(&output);
    assert_eq!(found["good"], status == 0);
}
