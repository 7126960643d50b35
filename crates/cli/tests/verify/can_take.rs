//! `verify --can-take` on captured hosts. The table of situations is tested in the crate `plan`.

use serde_json::Value;

use super::answer;
use crate::common::{refused, repository, run};

/// Judges a cache on a captured host; returns the answer and the exit status.
#[track_caller]
fn judged(host: &str, flags: &[&str]) -> (Value, i32) {
    let root = repository().join("fixtures").join(host);
    let mut all = vec![
        "verify",
        "--json",
        "--root",
        root.to_str().unwrap(),
        "--can-take",
    ];
    all.extend(flags);
    answer(&run(&all))
}

const TWO_NODES: &str = "x86-4k-two-nodes";

#[test]
fn the_number_that_decides_is_named() {
    // 1200 of the 6000 free pages of 2M are reserved; 5000 are on node 0. The pool of 1G is in use.
    for (flags, decides, short) in [
        (&["8G"][..], "reserved", 0),
        (&["8G", "--sizes", "1G,2M"], "reserved", 0),
        (&["10G"], "reserved", 320_u64 << 21),
        (&["20G"], "free", (10240 - 6000) << 21),
        (&["4G", "--node-each"], "node", 1024 << 21),
        (&["4G", "--node", "0"], "node", 0),
        (&["8G", "--sizes", "1G"], "default-size", 8 << 30),
        (&["4G", "--pin"], "memlock", (4 << 30) - (64 << 20)),
        (&["4G", "--pin", "--ranks", "64"], "reserved", 0),
    ] {
        let (answer, status) = judged(TWO_NODES, flags);
        assert_eq!(answer["decides"]["id"], decides, "{flags:?}: {answer:#}");
        assert_eq!(
            answer["decides"]["short_bytes"], short,
            "{flags:?}: {answer:#}"
        );
        assert_eq!(answer["can_take"], short == 0, "{flags:?}");
        assert_eq!(status, i32::from(short > 0), "{flags:?}");
    }
}

#[test]
fn limits_are_those_of_the_named_process() {
    let host = "why/container-limits";
    let (own, _) = judged(host, &["512M"]);
    let (of_pod, status) = judged(host, &["512M", "--limits-of", "1000"]);
    let ids = |answer: &Value| -> Vec<String> {
        let checks = answer["checks"].as_array().unwrap();
        let id = |check: &Value| check["id"].as_str().unwrap().to_owned();
        checks.iter().map(id).collect()
    };
    assert!(
        !ids(&own).iter().any(|id| id.starts_with("cgroup")),
        "{own:#}"
    );
    assert!(
        ids(&of_pod).iter().any(|id| id.starts_with("cgroup")),
        "{of_pod:#}"
    );
    assert_eq!(status, 1, "{of_pod:#}");
    let decides = of_pod["decides"]["id"].as_str().unwrap();
    assert!(decides.starts_with("cgroup"), "{of_pod:#}");
}

#[test]
fn flags_that_cannot_be_meant_are_refused() {
    let root = repository().join("fixtures").join(TWO_NODES);
    let root = root.to_str().unwrap();
    for (flags, status, words) in [
        (&["--can-take", "0"][..], 2, "nothing to judge"),
        (&["--can-take", "1G", "--node", "7"], 2, "no node 7"),
        (&["--can-take", "1G", "--ranks", "0"], 2, "number of ranks"),
        (
            &["--can-take", "1G", "--ranks", "9999999"],
            2,
            "number of ranks",
        ),
        (
            &["--can-take", "1G", "--node", "0", "--node-each"],
            2,
            "--node-each",
        ),
        (&["--can-take", "1G", "--mount", "/mnt"], 2, "no hugetlbfs"),
        (&["--can-take", "1G", "--since", "2h"], 2, "--since"),
        (&["--ranks", "2"], 2, "--can-take"),
        (&["--can-take", "1G", "--limits-of", "4999"], 3, "has ended"),
        (&["--can-take", "99999999999999G"], 2, "size"),
    ] {
        let mut all = vec!["verify", "--root", root];
        all.extend(flags);
        refused(&run(&all), status, &[words]);
    }
}

#[test]
fn the_largest_request_is_only_a_no() {
    let most = u64::MAX.to_string();
    for ranks in ["1", "10000"] {
        let flags = [
            most.as_str(),
            "--ranks",
            ranks,
            "--sizes",
            "1G,2M",
            "--node-each",
        ];
        let (answer, status) = judged(TWO_NODES, &flags);
        assert_eq!(
            (&answer["can_take"], status),
            (&Value::from(false), 1),
            "{answer:#}"
        );
    }
}
