//! Advice on captured hosts, each of which once got a dangerous or a useless command.

use serde_json::Value;

use crate::common::{host_with, hugeleaf, repository, stderr, stdout};

fn answer(host: &str, arguments: &[&str]) -> Value {
    let root = repository()
        .join("fixtures")
        .join(host)
        .display()
        .to_string();
    let out = hugeleaf(&[&["--root", &root, "--json"], arguments].concat())
        .output()
        .unwrap();
    serde_json::from_str(&stdout(&out)).unwrap()
}

/// Returns the findings of a screen: id, text, command.
fn findings(host: &str, command: &str) -> Vec<[String; 3]> {
    let answer = answer(host, &[command]);
    let all = answer["findings"].as_array().unwrap().iter();
    let one =
        |f: &Value| ["id", "text", "command"].map(|k| f[k].as_str().unwrap_or_default().to_owned());
    all.map(one).collect()
}

fn why(host: &str) -> [String; 3] {
    let answer = answer(host, &["why", "1000"]);
    let verdicts = answer["processes"][0]["verdicts"]
        .as_array()
        .unwrap()
        .iter();
    let worst = verdicts.max_by_key(|v| v["bytes"].as_u64()).unwrap();
    ["id", "text", "command"].map(|key| worst[key].as_str().unwrap_or_default().to_owned())
}

#[track_caller]
fn has(all: &[[String; 3]], id: &str, text: &str, command: &str) {
    let is_it = |f: &&[String; 3]| f[0] == id;
    let found = all
        .iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("no {id}: {all:#?}"));
    assert!(
        found[1].contains(text) && found[2].contains(command),
        "{found:#?}"
    );
}

const PLAN: &str = "hugeleaf plan --output plan.toml";

/// A server sees a pool but may use no pages of it. With `huge_pages = on` it is killed by SIGBUS.
#[test]
fn inside_a_container_that_may_have_no_pages() {
    let line = "# the pod's resources.limits: hugepages-2Mi: 514Mi; or huge_pages = off";
    for host in ["advice/container", "advice/container-below"] {
        let found = why(host);
        assert_eq!(found[0], "cgroup-fault", "{host}");
        assert!(found[2].starts_with(line), "{found:?}");
        has(
            &findings(host, "verify"),
            "cgroup-limit",
            "allows 0 (the pod requests no pages of this size): it starts, and is killed (SIGBUS)",
            line,
        );
        let status = findings(host, "status");
        has(
            &status,
            "cgroup-faults-only",
            "SIGBUS",
            "# the pod's resources.limits: hugepages-2Mi; or",
        );
        // Inside the container no command may change the host.
        has(
            &status,
            "pool-unused",
            "",
            "# on the host of this container: ",
        );
    }
}

#[test]
fn a_kubelet_that_was_started_before_the_pool() {
    for command in ["status", "verify"] {
        let found = findings("advice/kubelet-before-pool", command);
        has(
            &found,
            "kubelet-before-pool",
            "the pool has 600 free",
            "systemctl restart kubelet",
        );
        assert!(
            !found.iter().any(|f| f[2].contains("nr_hugepages")),
            "{found:#?}"
        );
    }
}

/// The kubelet's limits stop the server in each of these pods, for three reasons. `why` and `verify` name the reason, and the
/// line of the pod's YAML.
#[test]
fn captured_pods() {
    const NEEDS: &str = "resources.limits: hugepages-2Mi: 514Mi";
    let cases = [
        (
            "pods/limit-0-after-resize",
            "an in-place resize of the pod set its limits to 0",
            "# delete the pod, so that it is recreated with its resources.limits: hugepages-2Mi: 516Mi",
            "cgroup-reservation",
        ),
        (
            "pods/pool-newer-than-kubelet",
            "the kubelet started before the pool had its present size",
            "# on the node: systemctl restart kubelet; then the pod's resources.limits: hugepages-2Mi: 514Mi",
            "cgroup-reservation",
        ),
        (
            "pods/pool-without-request",
            "the pod requests no pages of this size",
            "# the pod's resources.limits: hugepages-2Mi: 514Mi; or huge_pages = off",
            "cgroup-fault",
        ),
    ];
    for (host, cause, remedy, id) in cases {
        let found = why(host);
        assert_eq!(found[0], id, "{host}: {found:?}");
        assert!(
            found[1].contains(cause) && found[2].starts_with(remedy),
            "{host}: {found:#?}"
        );
        has(&findings(host, "verify"), "cgroup-limit", cause, remedy);
        // The kubelet overwrites a limit that somebody else sets.
        for command in ["status", "verify"] {
            let all = findings(host, command);
            assert!(
                !all.iter().any(|f| f[2].contains("> /sys/fs/cgroup")),
                "{host}: {all:#?}"
            );
        }
    }
    let resized = findings("pods/limit-0-after-resize", "verify");
    has(
        &resized,
        "pod-limits-zero",
        "its containers were given 516M",
        "hugepages-2Mi: 516Mi",
    );
    let newer = findings("pods/pool-newer-than-kubelet", "verify");
    has(
        &newer,
        "kubelet-before-pool",
        "allows all pods 256M on pages of 2M, but the pool has 600 pages. The kubelet started before the pool grew, and \
         offers the other 944M to no pod",
        "systemctl restart kubelet",
    );
    let without = findings("pods/pool-without-request", "status");
    has(
        &without,
        "cgroup-faults-only",
        "SIGBUS",
        "# the pod's resources.limits: hugepages-2Mi",
    );
    let without = findings("pods/pool-without-request", "verify");
    assert!(
        !without.iter().any(|f| f[0] == "kubelet-before-pool"),
        "{without:#?}"
    );
    assert!(why("pods/pool-without-request")[2].contains(NEEDS));
}

#[test]
fn a_file_that_asks_for_more_than_there_is() {
    for command in ["status", "verify"] {
        let found = findings("advice/too-many-pages", command);
        has(
            &found,
            "pool-short",
            "It does not fit: 8000 pages of 2M take 15.6G",
            PLAN,
        );
        assert!(
            !found.iter().any(|f| f[2].starts_with("echo")),
            "{found:#?}"
        );
    }
    let notes = answer("advice/too-many-pages", &["plan"])["notes"].to_string();
    assert!(
        notes.contains("90-db.conf sets vm.nr_hugepages = 8000")
            && notes.contains("remove that line"),
        "{notes}"
    );
}

#[test]
fn a_pool_of_another_size_than_the_default_one() {
    let setting = "huge_page_size = 2MB, huge_pages = on";
    let found = why("advice/default-1g");
    assert!(
        found[1].contains("asks for pages of 1G") && found[2].contains(setting),
        "{found:?}"
    );
    has(
        &findings("advice/default-1g", "verify"),
        "service-short",
        "the pool of 2M has 600 free",
        setting,
    );
    // Pages that the server can be configured to use do not count as unused.
    has(
        &findings("advice/default-1g", "verify"),
        "pool-unused",
        "343 pages of 2M",
        "",
    );
    let notes = answer("advice/default-1g", &["plan"])["notes"].to_string();
    assert!(
        notes.contains("shared_buffers larger by 495MB would fill them"),
        "{notes}"
    );
}

/// No screen has one command that takes pages into a pool and another that frees pages of that size.
#[test]
fn no_screen_contradicts_itself() {
    let hosts = [
        "x86-4k-two-nodes",
        "arm64-16k",
        "arm64-64k",
        "dead-knobs",
        "x86-old-kernel",
        "x86-7.3-two-nodes",
        "advice/too-many-pages",
    ];
    for host in hosts {
        for command in ["status", "verify"] {
            let answer = answer(host, &[command]);
            let all = answer["findings"].as_array().unwrap().iter();
            let pools = all.filter_map(|f| {
                let path = f["change"]["setting"].as_str()?;
                let size = path
                    .split('/')
                    .find(|part| part.starts_with("hugepages-"))?;
                let number = |key: &str| f["change"][key].as_str()?.parse::<u64>().ok();
                Some((size.to_owned(), number("to")?.cmp(&number("from")?)))
            });
            let pools: Vec<_> = pools.collect();
            for (size, way) in &pools {
                let against = pools.iter().any(|(s, w)| s == size && w != way);
                assert!(!against, "{host} {command}: {answer:#}");
            }
            // With unused pages, no command may take more.
            let ids = answer["findings"].as_array().unwrap().iter();
            let unused = ids.filter(|f| f["id"] == "pool-unused").count();
            assert!(
                unused == 0
                    || pools.is_empty()
                    || host != "x86-4k-two-nodes"
                    || pools.iter().all(|(s, _)| s != "hugepages-2048kB"),
                "{answer:#}"
            );
        }
    }
}

/// `run` reads the wants of running programs before it prints a command.
#[test]
fn no_command_of_run_is_against_a_running_program() {
    let enabled = "sys/kernel/mm/transparent_hugepage/enabled";
    let host = host_with("why/small-steps", &[(enabled, "always madvise [never]\n")]);
    let root = host.path();
    let said = || {
        let root = root.to_str().unwrap();
        let ladder = ["run", "--dry-run", "--root", root, "--data", "2M!"];
        let mut program = hugeleaf(&[&ladder[..], &["--", "true"]].concat());
        stderr(&program.output().unwrap())
    };
    assert!(said().contains("next: echo madvise > "), "{}", said());
    std::fs::create_dir(root.join("proc/4242")).unwrap();
    std::fs::write(root.join("proc/4242/comm"), "tikv-server\n").unwrap();
    let reason = "next: hugeleaf check    # TiKV wants another value of ";
    assert!(said().contains(reason), "{}", said());
}
