//! Tests of plans as text: written, parsed, and refused with line and column; and of the derived
//! files, byte by byte.

use super::*;
use proptest::prelude::*;

/// Formats a step with all its content.
fn show(step: &Step) -> String {
    let what = match &step.what {
        StepAction::Knob { value } => format!("knob {value}\n"),
        StepAction::Pool { size, node, pages } => {
            format!("pool {pages} pages of {size}, node {node}\n")
        }
        StepAction::File { text, mode } => format!("file {mode:04o}\n{text}"),
        StepAction::Block { text } => format!("block\n{text}"),
        StepAction::Folder { mode } => format!("folder {mode:04o}\n"),
        StepAction::Mount { options } => format!("mount {options}\n"),
    };
    format!(
        "== {} {}\nwhy: {}\nverify: {}\nneeds: {}\n{what}",
        step.id,
        step.path.display(),
        step.why,
        step.verify,
        needs(&step.needs).unwrap_or_else(|| "nothing".to_owned())
    )
}

#[test]
fn a_full_plan_is_written_as_committed_and_reads_back() {
    let plan = full();
    let text = written(&plan);
    compare(&text, "full.toml");
    assert_eq!(parse(&text).unwrap(), plan);
}

#[test]
fn that_a_pool_gives_back_is_written_only_where_it_does_and_makes_no_step() {
    let plan = full();
    assert!(!written(&plan).contains("give_back"));
    let mut gives = plan.clone();
    gives.pools[0].give_back = true;
    let text = written(&gives);
    assert_eq!(text.matches("give_back = true").count(), 1);
    assert_eq!(parse(&text).unwrap(), gives);
    assert_eq!(steps(&gives), steps(&plan));
    let wrong = [
        ("give_back = true", "give_back = 1"),
        ("give_back", "gives_back"),
    ];
    for (right, wrong) in wrong {
        assert!(parse(&text.replace(right, wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn its_steps_are_as_committed() {
    let text: String = steps(&full()).iter().map(show).collect();
    compare(&text, "full.steps");
}

#[test]
fn an_even_default_pool_is_a_number_in_sysctl_and_others_are_lines_in_tmpfiles() {
    let text = |plan: &Plan, id: &str| {
        let found = steps(plan).into_iter().find(|s| s.id == id);
        found.map(|step| match step.what {
            StepAction::File { text, .. } => text,
            other => panic!("{other:?}"),
        })
    };
    let mut plan = usual(&host(), &[service("a", ServiceKind::SysV, GIB)]);
    let sysctl = format!("{OURS}\nvm.nr_hugepages = 512\n");
    assert_eq!(text(&plan, "sysctl"), Some(sysctl));
    assert_eq!(text(&plan, "tmpfiles"), None);
    // The kernel would spread 512 pages evenly. An uneven spread needs a line per node.
    plan.pools[0].pages = Pages(300);
    plan.pools[1].pages = Pages(212);
    assert_eq!(text(&plan, "sysctl"), None);
    let folder = |n| format!("/sys/devices/system/node/node{n}/hugepages/hugepages-2048kB");
    let tmpfiles = format!(
        "{OURS}\nw {}/nr_hugepages - - - - 300\nw {}/nr_hugepages - - - - 212\n",
        folder(0),
        folder(1)
    );
    assert_eq!(text(&plan, "tmpfiles"), Some(tmpfiles));
}

#[test]
fn gigantic_pages_are_asked_for_on_the_command_line() {
    let plan = usual(
        &host(),
        &[sized(service("a", ServiceKind::Other, 9 * GIB), "1G")],
    );
    let all = steps(&plan);
    let grub = all.iter().find(|s| s.id == "grub").unwrap();
    let StepAction::File { text, .. } = &grub.what else {
        panic!("{grub:?}")
    };
    // Node 0 gets the ninth, as with the kernel's rule.
    assert_eq!(
        text,
        &format!("{OURS}\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX hugepagesz=1G hugepages=9\"\n")
    );
    assert!(matches!(&grub.needs, FollowUp::Reboot { first } if first == "update-grub"));
    assert!(!all.iter().any(|s| s.id == "tmpfiles"));
    let mut uneven = plan;
    uneven.pools[0].pages = Pages(2);
    uneven.pools[1].pages = Pages(7);
    let text = show(steps(&uneven).iter().find(|s| s.id == "grub").unwrap());
    assert!(text.contains("hugepagesz=1G hugepages=0:2,1:7\""), "{text}");
}

#[test]
fn pages_at_boot_need_a_pool_in_the_plan() {
    let mut plan = usual(&host(), &[service("a", ServiceKind::SysV, GIB)]);
    plan.boot = Some(BootPools {
        pages: vec![size("1G")],
        grub_drop_in: true,
    });
    let error = parse(&written(&plan)).unwrap_err();
    assert!(error.what.contains("the plan has no pool of 1G"), "{error}");
}

#[test]
fn pools_that_shrink_come_first() {
    let mut plan = usual(
        &host(),
        &[
            sized(service("a", ServiceKind::MariaDb, 8 * GIB), "1G"),
            service("b", ServiceKind::SysV, GIB),
        ],
    );
    for pool in plan.pools.iter_mut().filter(|p| p.page == size("2M")) {
        pool.was = Some(Pages(5000));
    }
    let ids: Vec<String> = steps(&plan).into_iter().take(4).map(|s| s.id).collect();
    assert_eq!(
        ids,
        [
            "pool-2M-node0",
            "pool-2M-node1",
            "pool-1G-node0",
            "pool-1G-node1"
        ]
    );
}

#[test]
fn what_an_earlier_plan_gave_to_others_stays() {
    let file = "/etc/sysctl.d/60-hugeleaf.conf";
    let old = format!("{OURS}\nvm.nr_hugepages = 7\nvm.hugetlb_shm_group = 9\nkernel/shmmax = 8\n");
    let read = |path: &Path| (path == Path::new(file)).then(|| old.clone());
    let mut plan = usual(&host(), &[service("a", ServiceKind::SysV, GIB)]);
    keep(&mut plan, read).unwrap();
    let text = |plan: &Plan| {
        let all = steps(plan);
        all.iter()
            .find(|s| s.id == "sysctl")
            .map(show)
            .unwrap_or_default()
    };
    let got = text(&plan);
    assert!(
        got.ends_with("\nvm.nr_hugepages = 512\nvm.hugetlb_shm_group = 9\nkernel/shmmax = 8\n"),
        "{got}"
    );
    assert_eq!(parse(&written(&plan)).unwrap(), plan);
    let shown = write(&plan, read);
    for line in [
        "#   changes in the file:",
        "#     - vm.nr_hugepages = 7",
        "#     + vm.nr_hugepages = 512",
        "#       vm.hugetlb_shm_group = 9",
    ] {
        assert!(shown.lines().any(|l| l == line), "no '{line}' in {shown}");
    }
    // The pool moves to another file: its old line is removed, the others stay.
    plan.pools[0].pages = Pages(300);
    keep(&mut plan, read).unwrap();
    let got = text(&plan);
    assert!(
        got.ends_with(&format!(
            "{OURS}\nvm.hugetlb_shm_group = 9\nkernel/shmmax = 8\n"
        )),
        "{got}"
    );
    // A file of another owner is not adopted.
    keep(&mut plan, |path| {
        (path == Path::new(file)).then(|| "vm.swappiness = 1\n".to_owned())
    })
    .unwrap();
    assert_eq!(plan.kept, []);
    // A plan without content for a file does not change it.
    let mut redis = service("a", ServiceKind::Redis, GIB);
    redis.demands[0].place = PageSource::Thp;
    let mut other = usual(&host(), &[redis]);
    keep(&mut other, read).unwrap();
    assert_eq!(other.kept, []);
}

/// Returns the error of a good plan with one change.
fn spoilt(from: &str, to: &str) -> String {
    let text = written(&full());
    assert!(text.contains(from), "no '{from}' in the plan");
    let text = text.replacen(from, to, 1);
    let Err(error) = parse(&text) else {
        panic!("'{to}' is taken");
    };
    // The position is at the change, or in its line.
    let at = text.find(to).unwrap_or(0);
    let line = text[..at].matches('\n').count() + 1;
    let lines = to.matches('\n').count();
    assert!(
        (line..=line + lines).contains(&error.line),
        "{error}, not in line {line}:\n{}",
        text.lines().nth(error.line - 1).unwrap_or_default()
    );
    assert!(error.column > 0);
    error.to_string()
}

/// Changes of a good plan: the old text, the new text, and the error.
const NONSENSE: &[(&str, &str, &str)] = &[
    ("schema = 1", "schema = 2", "reads schema 1"),
    ("schema = 1", "schema = ", "line 3"),
    ("[host]", "[hots]", "unknown field `hots`"),
    ("nodes = [0, 1]", "nodes = []", "no node"),
    (
        "base_page = \"4K\"",
        "base_page = \"5K\"",
        "'5K' is not a page size",
    ),
    ("margin_bytes = ", "margin_bytes = -", "is negative"),
    (
        "kind = \"sysv\"",
        "kind = \"oracle\"",
        "expected one of postgresql",
    ),
    ("from = \"pool\"", "from = \"pond\"", "expected pool or thp"),
    (
        POOL,
        "page = \"2M\"\nnode = 0\nwas = 0\npages = -",
        "is negative",
    ),
    (
        POOL,
        "page = \"2M\"\nnode = 0\nwas = 0\npages = \"a\"#",
        "invalid type",
    ),
    (
        POOL,
        "page = \"2M\"\nnode = 0\nwas = 0\npages = 99999999#",
        "but the host has 64G",
    ),
    (
        POOL,
        "page = \"2M\"\nnode = 0\nwas = 0\npages = 20000#",
        "a margin of 6.4G",
    ),
    (
        POOL,
        "page = \"16M\"\nnode = 0\nwas = 0\npages = ",
        "expected one of 1G, 2M",
    ),
    (
        POOL,
        "page = \"2M\"\nnode = 7\nwas = 0\npages = ",
        "the host has no node 7",
    ),
    (
        POOL,
        "page = \"2M\"\nnod = 0\nwas = 0\npages = ",
        "unknown field `nod`",
    ),
    ("now = \"advise\"", "now = \"advise; rm\"", "one word"),
    ("now = \"advise\"", "now = \"a\\nb\"", "one word"),
    ("uid = 26", "uid = -1", "invalid value"),
    ("mode = \"0770\"", "mode = \"0999\"", "octal"),
    (
        "path = \"/mnt/huge\"",
        "path = \"/mnt/../etc\"",
        "path without ..",
    ),
    (
        "path = \"/mnt/huge\"",
        "path = \"mnt\"",
        "expected an absolute path",
    ),
    ("path = \"/sys/", "path = \"/etc/", "not a kernel setting"),
    (
        "user = \"user54321\"\nwas_b",
        "user = \"*\"\nwas_b",
        "not a user name",
    ),
    (
        "unit = \"postgresql@15-main.service\"\nenv",
        "unit = \"../x.service\"\nenv",
        "not a systemd service",
    ),
    (
        "environment = [\"M",
        "environment = [\"1M",
        "not a variable",
    ),
    ("exec_start = \"/", "exec_start = \"", "absolute path"),
    (
        "path = \"/etc/security/limits.d/60-hugeleaf.conf\"",
        "path = \"/etc/passwd\"",
        "not a file that hugeleaf",
    ),
    ("gid = 54321", "gid = true", "invalid type"),
    // Settings that no plan makes.
    (
        "path = \"/sys/kernel/mm/transparent_hugepage/shmem_enabled\"",
        "path = \"/proc/sys/kernel/core_pattern\"",
        "a plan cannot set",
    ),
    ("now = \"advise\"", "now = \"on\"", "expected one of always"),
    (
        "path = \"/mnt/huge\"",
        "path = \"/usr\"",
        "hide files that the host needs",
    ),
    (
        "\"db2 soft memlock 100\"",
        "\"* soft nofile 1\"",
        "not a line that a plan writes",
    ),
    (
        "exec_start = \"/usr/bin/hugeleaf run --stack 64K -- ",
        "exec_start = \"/bin/sh -c ",
        "absolute path to hugeleaf",
    ),
    (
        POOL,
        "page = \"2M\"\nnode = 0\nwas = 0\npages = 28000#",
        "even with force",
    ),
];

/// The start of the first 2M pool.
const POOL: &str = "page = \"2M\"\nnode = 0\nwas = 0\npages = ";

#[test]
fn nonsense_is_refused_with_its_place() {
    for (from, to, expected) in NONSENSE {
        let error = spoilt(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn no_reason_leaves_a_host_without_memory_to_live() {
    let text = written(&full()).replacen("schema = 1\n", "schema = 1\nforce = \"why not\"\n", 1);
    let with = |pages: u64| {
        let at = text.find(POOL).unwrap() + POOL.len();
        let end = at + text[at..].find('\n').unwrap();
        parse(&format!("{}{pages}{}", &text[..at], &text[end..]))
    };
    // More than the margin leaves, and up to the floor of 5 % of 64G.
    assert!(with(20_000).is_ok(), "{:?}", with(20_000));
    let error = with(28_000).unwrap_err();
    assert!(
        error.what.contains("3.2G must stay outside them"),
        "{error}"
    );
}

#[test]
fn a_line_that_somebody_added_to_a_file_of_ours_is_told_and_not_lost() {
    let file = "/etc/sysctl.d/60-hugeleaf.conf";
    let mut plan = usual(&host(), &[service("a", ServiceKind::SysV, GIB)]);
    let refusal = keep(&mut plan, |path| {
        (path == Path::new(file)).then(|| format!("{OURS}\nvm.swappiness = 1\n"))
    })
    .unwrap_err();
    assert!(
        refusal.message.contains("'vm.swappiness = 1'"),
        "{refusal:?}"
    );
    assert!(
        refusal
            .remedy
            .contains("$EDITOR /etc/sysctl.d/60-hugeleaf.conf")
    );
}

#[test]
fn a_second_one_of_its_kind_is_refused_where_it_stands() {
    let mut plan = full();
    plan.pools[2].node = Some(1);
    let text = written(&plan);
    let error = parse(&text).unwrap_err();
    assert!(
        error.what.contains("a second pool of 2M on node 1"),
        "{error}"
    );
    let second = text.lines().nth(error.line - 1).unwrap();
    assert_eq!(second, "page = \"2M\"");
    assert!(text.lines().nth(error.line).unwrap().contains("node = 1"));
}

#[test]
fn knobs_with_a_table_of_their_own_are_sent_there() {
    let mut plan = full();
    plan.knobs[0].path = "/proc/sys/vm/nr_hugepages".into();
    let error = parse(&written(&plan)).unwrap_err();
    assert!(error.what.contains("is set by [[pool]]"), "{error}");
    plan.knobs[0].path = "/proc/sys/vm/hugetlb_shm_group".into();
    let error = parse(&written(&plan)).unwrap_err();
    assert!(error.what.contains("is set by [group]"), "{error}");
}

#[test]
fn fewer_pages_than_others_hold_are_refused() {
    let mut host = host();
    fill(&mut host, "2M", 1024, 1000, 0);
    let plan = usual(&host, &[service("a", ServiceKind::SysV, GIB)]);
    let text = written(&plan).replacen("\npages = 1024\n", "\npages = 499\n", 1);
    let error = parse(&text).unwrap_err();
    assert!(
        error.what.contains("499 pages, but others hold 500"),
        "{error}"
    );
}

#[test]
fn a_smaller_pool_of_ones_own_making_is_no_nonsense() {
    let plan = usual(&host(), &[service("a", ServiceKind::SysV, GIB)]);
    let text = written(&plan).replacen("\npages = 256\n", "\npages = 10\n", 1);
    let edited = parse(&text).unwrap();
    let host = host();
    let now = CurrentHost {
        host: &host,
        identity: &identity(),
        in_force: &[],
    };
    has(
        &check(&edited, &now).unwrap(),
        "has 266 pages of 2M in pools, but its services and others need 512",
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }

    /// A plan with any one character changed is a plan, or an error with a position.
    #[test]
    fn no_edit_makes_it_panic(at in 0usize..100_000, put in any::<char>()) {
        let text = written(&full());
        let mut chars: Vec<char> = text.chars().collect();
        let at = at % chars.len();
        chars[at] = put;
        let edited: String = chars.into_iter().collect();
        match parse(&edited) {
            Ok(plan) => {
                prop_assert_eq!(parse(&written(&plan)), Ok(plan.clone()));
                let _ = steps(&plan);
            }
            Err(error) => prop_assert!(error.line > 0, "{}", error),
        }
    }
}
