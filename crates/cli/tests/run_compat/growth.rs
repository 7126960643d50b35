//! Growing memory: a program that uses only part of its allocations must not grow, and one that
//! uses them fully must be on huge pages.

use std::process::Output;

use super::numbers::number;
use super::under::{Mode, can_run, program};
use crate::common::{not_run, stderr};
use hugeleaf_testkit::process_facts;

const MIB: u64 = 1 << 20;

/// The patterns assume huge pages of 2M, on a host with THP on request.
fn can_tell(test: &str) -> bool {
    if !can_run(test) {
        return false;
    }
    if process_facts::huge_page_kb() != Some(2048) {
        not_run(test, "needs huge pages of 2M");
        return false;
    }
    true
}

fn run(way: Mode, name: &str, words: &str) -> Output {
    let mut command = way.command(program(name));
    let output = command.args(words.split(' ')).output().unwrap();
    let said = format!("{name} {words} {way:?}: {}", stderr(&output));
    assert!(output.status.success(), "{said}");
    assert_eq!(stderr(&output), "", "{said}");
    output
}

/// Returns the items to try: the first ones, which differ most, or all.
fn tried<T>(all: &[T], first: usize) -> &[T] {
    &all[..hugeleaf_testkit::size(first, all.len())]
}

/// Runs each bare and with the defaults; it may grow by at most 10 % and 32M.
#[track_caller]
fn stay_small(all: &[&str], first: usize) {
    let mut too_much = Vec::new();
    for words in tried(all, first) {
        let bare = number(&run(Mode::Bare, "uses", words), "resident");
        let under = number(&run(Mode::Defaults, "uses", words), "resident");
        println!("{words}: bare {}M, under {}M", bare / MIB, under / MIB);
        if under > bare + bare / 10 + 32 * MIB {
            too_much.push(*words);
        }
    }
    assert_eq!(too_much, Vec::<&str>::new(), "see the numbers above");
}

/// Runs the first ones of a list, or all, each with its minimum coverage in percent.
#[track_caller]
fn are_covered(name: &str, all: &[(&str, u64)], first: usize) {
    for (words, least) in tried(all, first) {
        is_covered(name, words, *least);
    }
}

/// Fails unless the coverage is at least `least` percent.
#[track_caller]
fn is_covered(name: &str, words: &str, least: u64) {
    let under = run(Mode::Defaults, name, words);
    let (resident, huge) = (number(&under, "resident"), number(&under, "huge"));
    let percent = huge * 100 / resident;
    println!("{name} {words}: {percent} % of {}M", resident / MIB);
    assert!(percent >= least, "{name} {words}: {percent} %, not {least}");
}

#[test]
fn parts_of_pieces_stay_parts() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_tell("parts_of_pieces_stay_parts") {
        let ways = [
            "each 1024 64 100 malloc",
            "each 1024 256 200 map",
            "each 64 4 100 malloc",
            "each 65536 64 20 map",
            "threads 64 4 60 malloc",
            "each 8192 64 100 map",
            "each 2048 64 60 malloc",
            "each 256 16 60 malloc",
            "each 1024 64 100 map",
            "each 32 4 100 malloc",
            "each 4096 512 200 malloc",
        ];
        stay_small(&ways, 5);
    }
}

#[test]
fn parts_all_over_a_piece_or_used_late_stay_parts() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_tell("parts_all_over_a_piece_or_used_late_stay_parts") {
        let ways = [
            "scattered 1024 512 200 map",
            "late 1024 64 50 malloc",
            "late 65536 64 20 map",
            "scattered 2048 128 60 map",
            "late 8192 64 50 map",
        ];
        stay_small(&ways, 3);
    }
}

#[test]
fn a_program_that_changes_its_ways_stays_small() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_tell("a_program_that_changes_its_ways_stays_small") {
        let ways = [
            "whole-then-part 1024 64 100 malloc",
            "whole-then-part 8192 64 100 map",
            "part-then-whole 1024 64 100 malloc",
            "in-turn 64 8 200 malloc",
            "whole-then-others 1024 16 40 map",
            "whole-then-most 1024 0 300 map",
            "whole-then-part 1024 64 300 map",
            "whole-then-part 256 16 100 map",
            "whole-then-part 64 4 100 malloc",
            "whole-then-part 65536 64 128 map",
            "part-then-whole 8192 64 100 map",
            "in-turn 1024 64 200 malloc",
            "whole-then-others 256 32 200 map",
            "whole-then-others 1024 16 200 malloc",
            "whole-then-most 4096 0 200 malloc",
        ];
        stay_small(&ways, 6);
    }
}

/// A single large mapping counts as used until another allocation is made.
#[test]
fn a_large_mapping_gives_back_what_it_does_not_use() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let test = "a_large_mapping_gives_back_what_it_does_not_use";
    if !can_tell(test) {
        return;
    }
    let tried = run(Mode::Bare, "uses", "zeros-go 0 0 0 map");
    if number(&tried, "zeros-go") != 1 {
        return not_run(
            test,
            "this kernel keeps zeros of the huge pages that it splits",
        );
    }
    stay_small(
        &["one-large 524288 0 40 map", "scattered 65536 512 10 map"],
        2,
    );
}

#[test]
fn what_is_used_as_a_whole_is_on_huge_pages() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_tell("what_is_used_as_a_whole_is_on_huge_pages") {
        let ways = [
            ("each 1024 1024 500 map", 98),
            ("each 64 64 300 malloc", 92),
            ("each 65536 65536 640 malloc", 98),
            ("threads 64 64 400 malloc", 80),
            // Zeros in a huge page look unused, so these are promoted by the sweep.
            ("each 1024 1024 400 zeros", 90),
            ("each 1024 1024 500 malloc", 98),
            ("each 256 256 400 map", 98),
            ("each 64 64 300 map", 97),
            ("each 1 1 300 malloc", 92),
            ("each 8192 8192 500 malloc", 98),
        ];
        are_covered("uses", &ways, 5);
    }
}

#[test]
fn memory_that_is_committed_in_parts_is_on_huge_pages() {
    let _host = hugeleaf_testkit::host_lock::shared();
    if can_tell("memory_that_is_committed_in_parts_is_on_huge_pages") {
        let ways = [
            ("rights-64K 256", 85),
            ("address-1M 256", 85),
            ("break-64K 256", 85),
            ("grown 256", 85),
            // All at once, so a momentary lack of contiguous memory reduces coverage.
            ("populated 256", 45),
            ("rights-once 256", 98),
            ("rights-1M 256", 85),
            ("address-once 256", 98),
            ("break-once 256", 98),
        ];
        are_covered("commits", &ways, 5);
    }
}
