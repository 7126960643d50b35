//! Experiments with servers: uses of hugeleaf (`run`, `promote`) and of a pool.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hugeleaf_host::process::proc_parsers::parse_status;
use hugeleaf_host::{Root, read_host};
use hugeleaf_sys::{Deadline, Kernel, run_for_output};
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::why::available;
use hugeleaf_workload::PageArm;

use super::{BenchContext, BenchError, MissingPages};

/// Returns the words of `hugeleaf run` with these flags, before the command of a server. `program` is hugeleaf.
pub fn under_run(program: &Path, flags: &[&str]) -> Vec<OsString> {
    let flags = flags.iter().map(OsString::from);
    let head = [program.into(), "run".into()].into_iter();
    head.chain(flags).chain(["--".into()]).collect()
}

/// Returns the shortage if the pool has too little for `needs` on pages of `arm`. `None` if it suffices, or if the arm
/// needs no pool. Name and user of the server are for the remedy.
pub fn lacks_pool(
    (name, user): (&str, &str),
    needs: Bytes,
    arm: PageArm,
    machine: &BenchContext<'_>,
) -> Result<Option<MissingPages>, BenchError> {
    if arm.kind != PageKind::Hugetlb {
        return Ok(None);
    }
    let pages = needs.get().div_ceil(arm.size.bytes().get());
    let host = read_host(machine.root, &Kernel::new())
        .map_err(|error| BenchError::missing(format!("bench: {error}"), "hugeleaf status"))?;
    let mut pools = host.pools.iter();
    let pool = pools.find(|pool| pool.size == arm.size && pool.node.is_none());
    let free = pool.map_or(0, |pool| available(pool).get());
    let short = || MissingPages {
        from: needs,
        reason: format!(
            "{needs} of shared memory take {pages} pages of {}, but only {free} of the pool are free",
            arm.size
        ),
        next: format!(
            "hugeleaf plan --bytes {} --sizes {arm} --name {name} --user {user} --output pool.toml, \
             then hugeleaf apply pool.toml",
            Bytes(pages * arm.size.bytes().get())
        ),
    };
    Ok((free < pages).then(short))
}

/// Maximum duration of one promotion: a terabyte at 1 GB/s, twice.
const LONGEST: Duration = Duration::from_secs(2000);
/// Maximum length of its answer in bytes.
const ANSWER: usize = 16 << 20;

/// The likely reason why no memory of a server was promoted, and the next step.
pub type NoPromotionReason<'a> = (&'a str, &'a str);

/// Promotes a running server by hugeleaf (`program`); `target` is as `promote` takes it. Returns the seconds it took.
///
/// # Errors
/// [`BenchError::PagesMissing`] with the reason in `none` if no memory was promoted.
pub fn promote(
    program: &Path,
    target: &[&str],
    none: NoPromotionReason<'_>,
) -> Result<f64, BenchError> {
    let lost = |e: std::io::Error| {
        BenchError::missing(format!("bench: hugeleaf promote: {e}"), "run it again")
    };
    let began = Instant::now();
    let mut command = Command::new(program);
    command
        .args(["promote", "--json", "--budget", "100%"])
        .args(target)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = run_for_output(&mut command, Deadline::new(LONGEST), ANSWER).map_err(lost)?;
    // Partial success is visible when the pages are read back.
    if matches!(output.status.code(), Some(0 | 1)) {
        return match moved_none(output.stdout.as_bytes(), none) {
            Some(why) => Err(BenchError::PagesMissing(why)),
            None => Ok(began.elapsed().as_secs_f64()),
        };
    }
    let (what, next) = refusal(&output.stderr);
    Err(BenchError::missing(
        what.unwrap_or_else(|| format!("promote: {}", output.status)),
        next.unwrap_or_else(|| "hugeleaf status".to_owned()),
    ))
}

/// Returns the shortage if `promote` promoted no memory, else `None`.
fn moved_none(answer: &[u8], (reason, next): NoPromotionReason<'_>) -> Option<MissingPages> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    let processes = answer["processes"].as_array()?;
    let bytes = |field: &str| {
        processes
            .iter()
            .filter_map(|p| p[field].as_u64())
            .sum::<u64>()
    };
    (bytes("done_bytes") + bytes("already_bytes") == 0).then(|| MissingPages {
        from: Bytes::ZERO,
        reason: format!("no memory of the running server could be promoted: {reason}"),
        next: next.to_owned(),
    })
}

/// Returns the two lines of hugeleaf's error message: what failed, and what to do next.
pub fn refusal(text: &str) -> (Option<String>, Option<String>) {
    let line = |start: &str| {
        let mut lines = text.lines();
        lines.find_map(|l| l.strip_prefix(start)).map(str::to_owned)
    };
    (line("hugeleaf: "), line("  next: "))
}

/// Returns the page tables of these processes together; `None` if all are unreadable. A process that has ended has none.
pub fn page_tables(root: &Root, pids: &[u32]) -> Option<Bytes> {
    let of = |pid: &u32| {
        let status = root.parse(format!("proc/{pid}/status"), parse_status);
        status.known()?.page_tables
    };
    let all: Vec<Bytes> = pids.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| all.into_iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promotion_that_moves_nothing_is_not_had() {
        let none = br#"{"processes": [{"done_bytes": 0, "already_bytes": 0}]}"#;
        assert!(
            moved_none(none, ("why", "shmem_enabled"))
                .unwrap()
                .next
                .contains("shmem_enabled")
        );
        let some = br#"{"processes": [{"done_bytes": 0}, {"done_bytes": 2, "already_bytes": 0}]}"#;
        assert_eq!(moved_none(some, ("", "")), None);
        assert_eq!(moved_none(b"no JSON", ("", "")), None);
    }

    #[test]
    fn this_process_has_page_tables_and_one_that_is_not_there_has_none() {
        let root = Root::live();
        assert!(page_tables(&root, &[std::process::id()]).unwrap() > Bytes(0));
        assert_eq!(page_tables(&root, &[u32::MAX]), None);
    }
}
