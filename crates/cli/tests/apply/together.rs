//! Successive plans for services that are not running: each service gets its own pages.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use super::namespace::Namespace;
use crate::common::{good, not_run, refused};
use hugeleaf_testkit::postgresql;
use hugeleaf_testkit::server::{Server, ServerAccount, ShutdownSignals, as_account, folder_for};

/// A PostgreSQL cluster that requires huge pages. Its settings are in a file that the main one
/// includes, as in Debian.
struct Cluster {
    bin: PathBuf,
    account: ServerAccount,
    home: TempDir,
}

impl Cluster {
    fn new(bin: &Path) -> Cluster {
        let account = ServerAccount::first_of(&["postgres", "nobody"]);
        let home = folder_for(account);
        postgresql::init(bin, account, home.path());
        let cluster = Cluster {
            bin: bin.to_owned(),
            account,
            home,
        };
        let (data, socket) = (cluster.data(), cluster.home.path().display());
        std::fs::create_dir(format!("{data}/conf.d")).unwrap();
        std::fs::write(format!("{data}/postgresql.conf"), "include_dir 'conf.d'\n").unwrap();
        let text = format!(
            "listen_addresses = ''\nunix_socket_directories = '{socket}'\nshared_buffers = 64MB\n\
             huge_pages = on\nfsync = off\n"
        );
        std::fs::write(format!("{data}/conf.d/pages.conf"), text).unwrap();
        cluster
    }

    fn data(&self) -> String {
        self.home.path().join("data").display().to_string()
    }

    fn start(&self) -> Server {
        let mut command = as_account(self.account, &self.bin.join("postgres"), self.home.path());
        command.arg("-D").arg(self.data());
        let socket = self.home.path().join(".s.PGSQL.5432");
        let folder = folder_for(self.account);
        Server::start(&mut command, folder, ShutdownSignals::POSTGRESQL, || {
            socket.exists()
        })
    }
}

fn plan(host: &Namespace, cluster: &Cluster, name: &str) -> (String, Value) {
    let file = host.folder.path().join(name).display().to_string();
    let data = cluster.data();
    let json = good(&host.hugeleaf(&["plan", "--postgres", &data, "--json", "--output", &file]));
    (file, serde_json::from_str(&json).unwrap())
}

fn pages(plan: &Value) -> u64 {
    let pools = plan["pools"].as_array().unwrap();
    pools
        .iter()
        .map(|pool| pool["pages"].as_u64().unwrap())
        .sum()
}

fn findings(out: &Output) -> Vec<String> {
    let answer: Value = serde_json::from_slice(&out.stdout).unwrap();
    let found = answer["findings"].as_array().unwrap().clone();
    let ids = found.iter().map(|f| f["id"].as_str().unwrap().to_owned());
    // Ignores findings about other programs of this host.
    let ours = [
        "pool-too-small",
        "restart-would-fail",
        "service-short",
        "started-before-pool",
    ];
    ids.filter(|id| ours.contains(&id.as_str())).collect()
}

#[test]
fn two_stopped_clusters_each_get_pages_of_their_own() {
    let test = "two_stopped_clusters_each_get_pages_of_their_own";
    let Some(bin) = postgresql::programs() else {
        return not_run(test, "needs PostgreSQL");
    };
    let Some(host) = Namespace::new(test, "") else {
        return;
    };
    let pool = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    if pool.trim() != "0" {
        return not_run(test, "somebody else has a pool on this host");
    }
    let (one, two) = (Cluster::new(&bin), Cluster::new(&bin));
    let (first, of_first) = plan(&host, &one, "first.toml");
    let (blind, _) = plan(&host, &two, "blind.toml");
    good(&host.hugeleaf(&["apply", &first]));
    // An older plan that does not know the first one.
    let said = host.hugeleaf(&["apply", &blind]);
    refused(&said, 3, &["apply 1 promises", "hugeleaf plan --output"]);

    let (second, of_second) = plan(&host, &two, "second.toml");
    let (needed, both) = (pages(&of_first), pages(&of_second));
    assert_eq!(both, 2 * needed, "{of_second:#}");
    good(&host.hugeleaf(&["apply", &second]));
    assert_eq!(findings(&host.hugeleaf(&["verify", "--json"])), [""; 0]);
    let servers = (one.start(), two.start());
    assert_eq!(findings(&host.hugeleaf(&["verify", "--json"])), [""; 0]);
    // With both running there is nothing to do.
    let (third, of_third) = plan(&host, &one, "third.toml");
    assert_eq!(pages(&of_third), both, "{of_third:#}");
    good(&host.hugeleaf(&["apply", &third]));
    drop(servers);

    // With a pool for one stopped cluster only, verify reports that the other lacks pages.
    host.shell(&format!("echo {needed} > /proc/sys/vm/nr_hugepages"));
    let found = findings(&host.hugeleaf(&["verify", "--json"]));
    assert_eq!(found, ["pool-too-small"]);
    host.shell(&format!("echo {both} > /proc/sys/vm/nr_hugepages"));

    let out = host.hugeleaf(&["undo", "1"]);
    refused(&out, 3, &["came after 1", "hugeleaf undo"]);
    good(&host.hugeleaf(&["undo", "--all"]));
    host.assert_etc_as_before("undone");
    host.assert_knobs_as_before("undone");
}
