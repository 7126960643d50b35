//! Runs each shipped workload at a small size: it must prepare, run and yield its figures, and its check must succeed. After the result is
//! damaged, the check must fail. Uses the real software if it is installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use hugeleaf_units::Bytes;
use hugeleaf_workload::workload_file::{Runner, RunnerError, SHIPPED, Script, figures, shipped};

/// Sizes with run times of seconds, and the command that damages the checked result.
struct Small {
    name: &'static str,
    set: &'static [(&'static str, &'static str)],
    breaks: &'static str,
}

const SMALL: &[Small] = &[
    Small {
        name: "compile",
        set: &[("functions", "1")],
        breaks: r#"printf '#!/bin/sh\nexit 3\n' >"$work/large""#,
    },
    Small {
        name: "duckdb",
        set: &[("scale", "1")],
        breaks: r#"echo "answer 0" >"$work/out""#,
    },
    Small {
        name: "files",
        set: &[("size", "8m"), ("seconds", "1")],
        breaks: r#"sed -i 's/"error" : 0/"error" : 5/' "$work/out""#,
    },
    Small {
        name: "filesystems",
        set: &[("seconds", "1")],
        breaks: r#"sed -i 's/"error" : 0/"error" : 5/' "$work/out""#,
    },
    Small {
        name: "jobs",
        set: &[("each", "1"), ("jobs", "2")],
        breaks: r#"echo x >>"$work/job2/sum""#,
    },
    Small {
        name: "jvm",
        set: &[("heap", "512m"), ("seconds", "1"), ("workers", "2")],
        breaks: r#"echo "wrong 1" >"$work/out""#,
    },
    Small {
        name: "mariadb",
        set: &[
            ("pool", "128M"),
            ("tables", "1"),
            ("rows", "5000"),
            ("seconds", "1"),
        ],
        breaks: r#"mariadb --socket="$work/s" lab -e "DELETE FROM sbtest1 LIMIT 1""#,
    },
    Small {
        name: "memcached",
        set: &[("keys", "20000"), ("requests", "50000")],
        breaks: r#"python3 -c "import socket, os; s = socket.socket(socket.AF_UNIX); s.connect(os.environ['work'] + '/s'); s.sendall(b'flush_all\r\n'); s.recv(9)""#,
    },
    Small {
        name: "nginx",
        set: &[("count", "1000"), ("seconds", "1"), ("port", "18082")],
        breaks: r#"mv "$work/www/0/7.html" "$work/www/0/other""#,
    },
    Small {
        name: "node",
        set: &[("rows", "10000")],
        breaks: r#"echo "right false" >"$work/out""#,
    },
    Small {
        name: "orders",
        set: &[
            ("items", "5000"),
            ("shared_buffers", "64MB"),
            ("seconds", "2"),
            ("port", "18083"),
        ],
        breaks: r#". "$files/bin.sh"; psql -qc "DELETE FROM orders WHERE id = (SELECT max(id) FROM orders)""#,
    },
    Small {
        name: "pgbench",
        set: &[
            ("scale", "2"),
            ("shared_buffers", "128MB"),
            ("seconds", "1"),
            ("clients", "2"),
        ],
        breaks: r#". "$files/bin.sh"; psql -qc "DELETE FROM pgbench_accounts WHERE aid = 1""#,
    },
    Small {
        name: "python",
        set: &[("rows", "10000")],
        breaks: r#"echo "right False" >"$work/out""#,
    },
    Small {
        name: "redis",
        set: &[("keys", "20000"), ("requests", "50000")],
        breaks: r#"redis-cli -s "$work/s" del key:000000000007"#,
    },
    Small {
        name: "schedulers",
        set: &[("seconds", "1")],
        breaks: r#"sed -i 's/"error" : 0/"error" : 5/' "$work/out""#,
    },
    Small {
        name: "sort",
        set: &[("lines", "50000")],
        breaks: r#"echo 0 >>"$work/sorted""#,
    },
    Small {
        name: "sqlite",
        set: &[("rows", "20000"), ("reads", "5000")],
        breaks: r#"echo "right False" >"$work/out""#,
    },
    Small {
        name: "vectors",
        set: &[("vectors", "5000"), ("queries", "500")],
        breaks: r#"sed -i 's/^found .*/found 899/' "$work/out""#,
    },
];

#[test]
fn all_of_them_are_tried() {
    let names = |all: &mut dyn Iterator<Item = &'static str>| all.collect::<Vec<_>>();
    assert_eq!(
        names(&mut SMALL.iter().map(|s| s.name)),
        names(&mut SHIPPED.iter().map(|s| s.name))
    );
    for shipped in SHIPPED {
        let described = shipped.described().unwrap();
        assert!(
            !described.effect.is_empty() && !described.kind.is_empty(),
            "{}",
            shipped.name
        );
        assert!(described.check.is_some(), "{}", shipped.name);
        assert!(!described.needs.packages.is_empty(), "{}", shipped.name);
    }
}

/// Slowest workloads; the others use a stage in the same ways.
const LONG: [&str; 4] = ["compile", "duckdb", "jvm", "node"];

#[expect(clippy::too_many_lines, reason = "one run")]
fn try_out(name: &str) {
    if LONG.contains(&name) && hugeleaf_testkit::left_to_all(name) {
        return;
    }
    let small = SMALL.iter().find(|small| small.name == name).unwrap();
    let mut described = shipped(name).unwrap().described().unwrap();
    let memory = Bytes::from_mib(4 << 10);
    if let Some(unmet) = described.needs.unmet_here(memory, Path::new("/var/tmp")) {
        println!("not run: {name}: {}", unmet.message);
        return;
    }
    let mut variables: BTreeMap<String, String> = described.set.clone();
    for (name, size) in &described.sizes {
        variables.insert(name.clone(), size.resolve(memory).get().to_string());
    }
    for (name, values) in &described.matrix {
        variables.insert(name.clone(), values[0].clone());
    }
    variables.extend(
        small
            .set
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    variables.insert("pages".into(), "base".into());
    variables.insert("round".into(), "0".into());
    let variables: Vec<_> = variables.into_iter().collect();

    let check = described.check.take().unwrap();
    let whole = described.load.script.clone();
    let broken = Script {
        run: format!("{}\n{}", whole.run.trim_end(), small.breaks),
        ..whole.clone()
    };
    let stop = AtomicBool::new(false);
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    // Commands run as nobody and need access to the folder.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    {
        let stage = Runner::new(&described, folder.path(), &stop).unwrap();
        let mut nobody = |_| {};
        let with: (&[(String, String)], &[std::ffi::OsString]) = (&variables, &[]);
        if let Some(prepare) = &described.prepare {
            match stage.run(("prepare", prepare), with, None, &mut nobody) {
                // These packages come over the network, which may be missing.
                Err(error @ RunnerError::Failed { .. }) if matches!(name, "orders" | "duckdb") => {
                    println!("not run: {name}: {error}");
                    return;
                }
                prepared => drop(prepared.unwrap()),
            }
        }
        for (load, succeeds) in [(&whole, true), (&broken, false)] {
            let server = stage.start(&variables, &[]).unwrap();
            let fill = described
                .server
                .as_ref()
                .and_then(|server| server.fill.as_ref());
            if let Some(fill) = fill {
                stage
                    .run(("fill", fill), with, server.as_ref(), &mut nobody)
                    .unwrap();
            }
            let ended = match stage.run(("load", load), with, server.as_ref(), &mut nobody) {
                Err(RunnerError::Lacking { said }) => {
                    println!("not run: {name}: {said}");
                    return;
                }
                ended => ended.unwrap(),
            };
            let found = figures(&described.measures, &ended).unwrap();
            assert!(found[0].value > 0.0, "{found:?}");
            let checked = stage.run(("check", &check), with, server.as_ref(), &mut nobody);
            assert_eq!(checked.is_ok(), succeeds, "{:?}", checked.err());
            if let Some(server) = server {
                server.stop().unwrap();
            }
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

macro_rules! shipped_ones {
    ($($name:ident),*) => { $(
        #[test]
        fn $name() {
            try_out(stringify!($name));
        }
    )* };
}

shipped_ones!(
    compile,
    duckdb,
    files,
    filesystems,
    jobs,
    jvm,
    mariadb,
    memcached,
    nginx,
    node,
    orders,
    pgbench,
    python,
    redis,
    schedulers,
    sort,
    sqlite,
    vectors
);
