//! Judging a process: each of its segments alone, then what holds for all of them together.

use hugeleaf_host::{Host, Process};

use super::{Account, Case, Verdict, segment, smallest_large_page, words};

/// Judges every segment of a process that was read page by page; one account a segment, in the
/// same order. `target` is how commands name the process, as in `1234` or `tree:1234`.
pub fn account(host: &Host, process: &Process, target: &str) -> Vec<Account> {
    let case = Case {
        host,
        process,
        target,
        pmd: host.pmd_page.get(),
        smallest: smallest_large_page(host),
    };
    let mut found: Vec<segment::Found> = process
        .segments
        .iter()
        .map(|s| segment::examine(&case, s))
        .collect();
    segment::place_pinned(&case, &mut found);
    segment::check_free_blocks(&case, &mut found);
    segment::check_memory_limit(&case, &mut found);
    found
        .into_iter()
        .zip(&process.segments)
        .map(|(found, segment)| words::put(&case, segment, found))
        .collect()
}

/// The verdicts of a process, in order of address.
pub fn judge(host: &Host, process: &Process) -> Vec<Verdict> {
    account(host, process, &process.pid.to_string())
        .into_iter()
        .flat_map(|a| a.verdicts)
        .collect()
}
