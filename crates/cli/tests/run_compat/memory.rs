//! Compares memory calls with a model and with the kernel's guarantees.

use std::process::Output;

use super::numbers::{no_more, nth_number, number};
use super::pools::Pool;
use super::under::{Line, Mode, UNDER, can_run, compare, program, same};
use crate::common::{not_run, stderr, stdout};

/// Runs a program, which must succeed.
fn good(way: Mode, name: &str, words: &[&str]) -> Output {
    let output = way.command(program(name)).args(words).output().unwrap();
    let said = format!(
        "{name} {words:?} {way:?}: {}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(output.status.success(), "{said}");
    assert_eq!(stderr(&output), "", "{said}");
    output
}

/// Returns the number of random calls; HUGELEAF_STEPS overrides it.
fn steps() -> String {
    std::env::var("HUGELEAF_STEPS")
        .unwrap_or_else(|_| hugeleaf_testkit::size("20000", "100000").to_owned())
}

/// Returns the seed of the first model: random, and printed on failure.
fn seed() -> u32 {
    std::env::var("HUGELEAF_SEED")
        .map_or_else(|_| fastrand::u32(1..1_000_000), |s| s.parse().unwrap())
}

/// Parts of reserved pages cannot be unmapped or protected by anyone, so the pool is empty here.
fn against_the_model(test: &str, threads: &str) {
    let Some(_pool) = Pool::of(test, 0) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let seed = seed().to_string();
    println!("seed {seed}: HUGELEAF_SEED={seed} runs it again");
    let model = program("model");
    let run = |way: Mode| {
        let mut command = way.command(&model);
        command.args([&seed, &steps(), threads]).arg(&file);
        if way == Mode::Defaults {
            // The model sometimes holds too little memory for the defaults to take effect.
            command.env_remove("COMPAT_LARGE");
        }
        command.output().unwrap()
    };
    let bare = run(Mode::Bare);
    assert!(bare.status.success(), "{}", stderr(&bare));
    for way in UNDER {
        same(
            &bare,
            &run(way),
            Line::None,
            &format!("seed {seed}, {threads} threads, {way:?}"),
        );
    }
}

#[test]
fn random_calls_on_parts_are_as_the_model_has_them() {
    let test = "random_calls_on_parts_are_as_the_model_has_them";
    if can_run(test) {
        against_the_model(test, "1");
    }
}

#[test]
fn random_calls_of_four_threads_are_as_the_model_has_them() {
    let test = "random_calls_of_four_threads_are_as_the_model_has_them";
    if can_run(test) {
        against_the_model(test, "4");
    }
}

#[test]
fn the_break_grows_and_shrinks() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_run("the_break_grows_and_shrinks") {
        compare(&program("breaks"), &["10000"], 0, Line::None, |_| ());
    }
}

/// Threads share the heap whose end the library moves, together with threads that map memory and fork.
#[test]
fn threads_share_the_heap() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_run("threads_share_the_heap") {
        compare(
            &program("heaps"),
            &["6", hugeleaf_testkit::size("500", "1500")],
            0,
            Line::None,
            |_| (),
        );
    }
}

#[test]
fn shared_memory_of_every_kind() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_run("shared_memory_of_every_kind") {
        compare(&program("sharing"), &["24"], 0, Line::None, |_| ());
    }
}

#[test]
fn all_memory_locked() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "all_memory_locked";
    if !can_run(test) {
        return;
    }
    let bare = Mode::Bare
        .command(program("locked"))
        .arg("200")
        .output()
        .unwrap();
    if bare.status.code() == Some(2) {
        return not_run(test, "needs the right to lock memory");
    }
    for way in UNDER {
        let under = good(way, "locked", &["200"]);
        assert_eq!(number(&under, "held"), number(&bare, "held"));
        for word in ["resident", "locked"] {
            no_more(
                &format!("{way:?}: {word}"),
                number(&bare, word),
                number(&under, word),
                5,
                4,
            );
        }
    }
}

#[test]
fn a_program_that_reads_its_own_maps() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("a_program_that_reads_its_own_maps") {
        return;
    }
    let bare = good(Mode::Bare, "ownmaps", &["200"]);
    for way in UNDER {
        let under = good(way, "ownmaps", &["200"]);
        for word in ["before", "after"] {
            no_more(
                &format!("{way:?}: {word}"),
                number(&bare, word),
                number(&under, word),
                5,
                4,
            );
        }
    }
}

/// The kernel cannot move two mappings in one call, so the library must not split one.
#[test]
fn a_mapping_that_advice_cut_is_moved_as_one() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("a_mapping_that_advice_cut_is_moved_as_one") {
        return;
    }
    let said = |way| stdout(&good(way, "cutup", &[]));
    println!("bare: {}", said(Mode::Bare).trim());
    for way in UNDER {
        assert_eq!(said(way), "moved\n", "{way:?}");
    }
}

#[test]
fn as_many_mappings_as_bare() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if !can_run("as_many_mappings_as_bare") {
        return;
    }
    let bare = good(Mode::Bare, "manymaps", &[]);
    for way in UNDER {
        let under = good(way, "manymaps", &[]);
        for round in 0..2 {
            let (had, has) = (
                nth_number(&bare, "mappings", round),
                nth_number(&under, "mappings", round),
            );
            println!("{way:?}: {has} mappings, bare {had}");
            // Allows for the library's own mappings.
            assert!(has + 40 >= had, "{way:?}: {has} mappings, bare {had}");
        }
    }
}
