//! Ladders that end in `!`: each kind of memory is on huge pages, or refused, or named, as the
//! tables in `docs/guide/run.md` say. Also tested under limits and after a fork.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use super::numbers::{huge, number};
use super::pools::Pool;
use super::under::{Mode, can_run, clean, program};
use crate::common::{is_root, not_run, stderr, stdout, works};
use hugeleaf_testkit::process_facts;

const RUN: &str = env!("CARGO_BIN_EXE_hugeleaf");

/// Runs `hugeleaf run FLAG LADDER -- PROGRAM WORDS`.
fn run(words: &[&str], program: &Path, own: &[&str]) -> Output {
    let mut command = Command::new(RUN);
    command.arg("run").args(words).arg("--").arg(program);
    clean(command.args(own));
    command.output().unwrap()
}

/// Returns the rows of the table with this head: kind, and a cell for each column.
fn table(head: &str) -> BTreeMap<String, Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/run.md");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(head));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| -> Vec<String> {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('`', "")).collect()
    };
    let rows: BTreeMap<_, _> = rows
        .map(|row| {
            let mut cells = cells(row);
            (cells.remove(0), cells)
        })
        .collect();
    assert!(!rows.is_empty(), "no table '{head}'");
    rows
}

/// Compares the program's statement about each kind with a column of a table.
#[track_caller]
fn holds(table: &BTreeMap<String, Vec<String>>, column: usize, output: &Output, lines: usize) {
    let said = format!("{}{}", stdout(output), stderr(output));
    assert!(output.status.success(), "{said}");
    let mut seen = 0;
    for line in stdout(output).lines() {
        let (kind, got) = line.rsplit_once(' ').unwrap();
        let row = table
            .get(kind)
            .unwrap_or_else(|| panic!("{kind} is in no row"));
        let expected = match row[column].as_str() {
            "covered" => "large",
            "refused" => "refused",
            "named" => "base",
            other => panic!("{kind}: '{other}'"),
        };
        assert_eq!(got, expected, "{kind}\n{said}");
        seen += 1;
    }
    // Some CPUs lack a kind.
    assert!(seen + 1 >= table.len(), "{seen} of {} kinds", table.len());
    let own = stderr(output);
    assert_eq!(own.lines().count(), lines, "{own}");
    assert!(own.lines().all(|line| line.starts_with("hugeleaf: run: ")));
}

#[test]
fn private_memory_is_as_the_table_says() {
    let test = "private_memory_is_as_the_table_says";
    if !can_run(test) {
        return;
    }
    let Some(pool) = Pool::of(test, 96) else {
        return;
    };
    let (kinds, size) = (program("kinds"), format!("{}K", huge() / 1024));
    let rows = table("| private memory |");
    let own = ["private", "16"];
    // The message names MAP_GROWSDOWN.
    holds(
        &rows,
        0,
        &run(&["--data", &format!("{size}!")], &kinds, &own),
        1,
    );
    let output = run(&["--data", &format!("hugetlb:{size}!")], &kinds, &own);
    // The message names MAP_GROWSDOWN, refusals, small mappings, and the move before the fork.
    holds(&rows, 1, &output, 4);
    pool.is_whole(test);
}

#[test]
fn shared_memory_is_as_the_table_says() {
    let test = "shared_memory_is_as_the_table_says";
    if !can_run(test) {
        return;
    }
    let Some(pool) = Pool::of(test, 96) else {
        return;
    };
    let (kinds, size) = (program("kinds"), format!("{}K", huge() / 1024));
    let rows = table("| shared memory |");
    let own = ["shared", "16"];
    let ladders = [(format!("thp:{size}!"), 0), (format!("{size}!"), 0)];
    for (ladder, column) in ladders {
        holds(&rows, column, &run(&["--shm", &ladder], &kinds, &own), 0);
    }
    let output = run(&["--shm", &format!("hugetlb:{size}!")], &kinds, &own);
    holds(&rows, 1, &output, 1);
    pool.is_whole(test);
}

/// Runs a program that takes more than the pool has, and forks.
#[test]
fn a_short_pool_is_an_end_that_is_said_and_not_one_of_forks() {
    let test = "a_short_pool_is_an_end_that_is_said_and_not_one_of_forks";
    if !can_run(test) {
        return;
    }
    let Some(pool) = Pool::of(test, 50) else {
        return;
    };
    let ladder = format!("hugetlb:{}K!", huge() / 1024);
    let hold = program("hold");
    let pages = (50 * huge()) >> 20;
    let wanted = (pages * 2).to_string();
    for limit in [None, Some(3 << 30), Some(1 << 30)] {
        let mut command = match limit {
            Some(_) if !works("prlimit", &["--version"]) => {
                let part = format!("the part of {test} with a limit");
                not_run(&part, "needs prlimit (util-linux)");
                continue;
            }
            Some(bytes) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--as={bytes}")).arg(RUN);
                command
            }
            None => Command::new(RUN),
        };
        command.args(["run", "--data", &ladder, "--"]).arg(&hold);
        clean(command.arg(&wanted));
        let output = command.output().unwrap();
        let said = format!("{limit:?}: {}{}", stdout(&output), stderr(&output));
        assert!(output.status.success(), "{said}");
        assert_eq!(number(&output, "reserved"), pages, "{said}");
        assert!(stdout(&output).contains("in the child some"), "{said}");
        assert!(stdout(&output).contains("after the fork some"), "{said}");
        let own = stderr(&output);
        assert!(own.contains("--data: huge pages are mandatory"), "{said}");
        assert!(own.contains("fork: private memory copied"), "{said}");
        assert_eq!(own.lines().count(), 2, "{said}");
    }
    pool.is_whole(test);
}

/// With too few addresses for a heap of reserved pages, no memory silently uses other pages.
#[test]
fn without_room_for_its_heap_a_mandatory_program_gets_none() {
    let test = "without_room_for_its_heap_a_mandatory_program_gets_none";
    if !can_run(test) {
        return;
    }
    if !works("prlimit", &["--version"]) {
        return not_run(test, "needs prlimit (util-linux)");
    }
    let Some(_pool) = Pool::of(test, 50) else {
        return;
    };
    let ladder = format!("hugetlb:{}K!", huge() / 1024);
    let mut command = Command::new(RUN);
    // Only the program may lack addresses, so the limit is set between `run` and the program.
    command
        .args(["run", "--data", &ladder, "--only", "hold", "--", "prlimit"])
        .arg(format!("--as={}", 3 * huge()))
        .arg(program("hold"))
        .arg("8");
    clean(&mut command);
    let output = command.output().unwrap();
    let said = format!("{}{}", stdout(&output), stderr(&output));
    if !output.status.success() && stdout(&output).is_empty() {
        return not_run(test, &format!("libc does not start in so little: {said}"));
    }
    assert!(stdout(&output).contains("got 0 of 8"), "{said}");
    assert!(said.contains("--data: huge pages are mandatory"), "{said}");
}

#[test]
fn a_part_that_is_replaced_leaves_one_mapping() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_part_that_is_replaced_leaves_one_mapping";
    if !can_run(test) {
        return;
    }
    let replaced = program("replaced");
    let bare = Mode::Bare.command(&replaced).output().unwrap();
    assert!(bare.status.success(), "{}", stderr(&bare));
    let size = format!("{}K", process_facts::huge_page_kb().unwrap());
    for ladder in ["auto", &size, &format!("{size}!")] {
        let under = run(&["--data", ladder], &replaced, &[]);
        assert_eq!(
            stdout(&under),
            stdout(&bare),
            "{ladder}: {}",
            stderr(&under)
        );
        assert_eq!(stderr(&under), "", "{ladder}");
    }
}

/// When the place was unmapped first, about one run in three ended in another thread's memory.
#[test]
fn a_pool_that_says_no_leaves_no_gap() {
    let test = "a_pool_that_says_no_leaves_no_gap";
    if !can_run(test) {
        return;
    }
    let Some(pool) = Pool::of(test, 4) else {
        return;
    };
    let ladder = format!("hugetlb:{}K", huge() / 1024);
    for _ in 0..hugeleaf_testkit::size(2, 6) {
        let output = run(&["--data", &ladder], &program("gaps"), &["2000"]);
        let said = format!("{}{}", stdout(&output), stderr(&output));
        assert!(output.status.success(), "{}: {said}", output.status);
    }
    pool.is_whole(test);
}

/// A mount's own option takes precedence over `shmem_enabled`, also without `!`.
#[test]
fn a_mount_that_gives_huge_pages_to_who_advises_gives_them() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_mount_that_gives_huge_pages_to_who_advises_gives_them";
    if !can_run(test) {
        return;
    }
    if !is_root() || !works("unshare", &["--version"]) {
        return not_run(test, "needs root and unshare (util-linux)");
    }
    let run = |option: &str, words: &[&str]| {
        let script = format!("mount -t tmpfs -o {option} none /dev/shm && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "sh"]);
        command.args(words).arg(program("kinds"));
        clean(command.args(["shared", "16"]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        let line = text.lines().find(|line| line.starts_with("POSIX "));
        line.unwrap().to_owned()
    };
    let under = [RUN, "run", "--"];
    assert_eq!(run("huge=advise", &[]), "POSIX base");
    assert_eq!(run("huge=advise", &under), "POSIX large");
    assert_eq!(run("huge=never", &under), "POSIX base");
}
