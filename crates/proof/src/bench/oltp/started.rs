//! What servers that are started on the pages of an arm have alike: the program they are started
//! with, the pool they need, the move to large pages while they run, and the look at what it came to.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use hugeleaf_host::{Held, Host, read_host};
use hugeleaf_sys::Kernel;
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::why::available;
use hugeleaf_workload::PageArm;
use hugeleaf_workload::tpcc::Store;

use super::child::{program, refusal};
use super::copier::Copier;
use super::order::{Order, Progress, Setup};
use super::pages::Pages;
use super::run::run_once;
use super::watch::{Processes, Watcher};
use crate::bench::{BenchError, Machine, Shortage};
use crate::rows::Results;
use crate::spread::Spread;

/// So much of a server's memory has to be on the pages of an arm: where it begins and ends a block
/// may be shared with what is smaller.
const NEARLY_ALL: f64 = 0.99;

/// A server of this host that is about to be driven.
pub(super) struct Driven<'a> {
    pub order: &'a Order,
    pub machine: &'a Machine<'a>,
    pub store: &'a dyn Store,
    /// Where its files are.
    pub folder: &'a Path,
    /// What is looked at meanwhile.
    pub processes: Processes<'a>,
}

impl Driven<'_> {
    /// Runs the load once, with a copy next to it where the order wants one. Whether it was on the pages of the arm is read
    /// back.
    pub fn drive(
        self,
        pages: Option<Pages>,
        setup: Setup,
        progress: Progress<'_>,
    ) -> Result<Results, BenchError> {
        let (order, machine) = (self.order, self.machine);
        let copier = Copier::start(order.copy_beside, self.folder)?;
        let copied = || copier.as_ref()?.copied(machine.root);
        let mut watcher = Watcher::of(self.processes, machine.root).with_copier(&copied);
        if pages.is_some() && order.translation {
            watcher = watcher.counting();
        }
        let mut run = run_once(self.store, order, setup, machine, &mut watcher, progress)?;
        for seen in &mut run.layouts {
            seen.verified = pages.map(|pages| is_on(&seen.pages, pages, machine.host));
        }
        Ok(run)
    }
}

/// How long promotions of the running server took, in seconds; `None` where there was none.
pub(super) fn promotion_took(seconds: &[f64]) -> Option<String> {
    let spread = Spread::of(seconds)?;
    Some(format!(
        "promoting the running server took {:.1} s (median of {}), before the load",
        spread.median,
        seconds.len()
    ))
}

/// This very program's `run`, with these flags, before the command of a server.
pub(in crate::bench) fn under_run(flags: &[&str]) -> Result<Vec<OsString>, BenchError> {
    let flags = flags.iter().map(OsString::from);
    let head = [program()?.into(), "run".into()].into_iter();
    Ok(head.chain(flags).chain(["--".into()]).collect())
}

/// Why the pool has too little for `needs`, of which a server of this name and user is to be on pages
/// of `arm`; `None` where it has enough, or where they are not of a pool.
pub(in crate::bench) fn lacks_pool(
    (name, user): (&str, &str),
    needs: Bytes,
    arm: PageArm,
    machine: &Machine<'_>,
) -> Result<Option<Shortage>, BenchError> {
    if arm.kind != PageKind::Hugetlb {
        return Ok(None);
    }
    let pages = needs.get().div_ceil(arm.size.bytes().get());
    let host = read_host(machine.root, &Kernel::new())
        .map_err(|error| BenchError::missing(format!("bench: {error}"), "hugeleaf status"))?;
    let mut pools = host.pools.iter();
    let pool = pools.find(|pool| pool.size == arm.size && pool.node.is_none());
    let free = pool.map_or(0, |pool| available(pool).get());
    let short = || Shortage {
        from: needs,
        reason: format!(
            "{needs} of shared memory take {pages} pages of {}, and {free} of the pool are free",
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

/// MariaDB switches transparent huge pages off for itself, also those that others ask for.
pub(in crate::bench) fn promote_mariadb(pid: u32) -> Result<f64, BenchError> {
    promote(&["--switch-thp-on", &pid.to_string()], NOT_WHOLE)
}

/// Why nothing of a server may have been moved, and what to do next.
pub(in crate::bench) type MovedNone<'a> = (&'a str, &'a str);

/// Of a server whose cache is private memory: small parts of it are left as they are.
const NOT_WHOLE: MovedNone<'static> = (
    "no block of its cache is wholly in memory, or the kernel does not collapse it",
    "ask for more data, which fills its cache; hugeleaf why mariadbd, while it runs, says the rest",
);

/// Moves a running server, which is named as `promote` takes it, to large pages, and returns the seconds it took.
///
/// # Errors
/// [`BenchError::Lacking`] where none of it could be moved, for which `none` has the reason.
pub(in crate::bench) fn promote(target: &[&str], none: MovedNone<'_>) -> Result<f64, BenchError> {
    let lost = |e: std::io::Error| {
        BenchError::missing(format!("bench: hugeleaf promote: {e}"), "run it again")
    };
    let began = Instant::now();
    let output = Command::new(program()?)
        .args(["promote", "--json", "--budget", "100%"])
        .args(target)
        .stdin(Stdio::null())
        .output()
        .map_err(lost)?;
    // Less than all of it is seen when the pages are read back.
    if matches!(output.status.code(), Some(0 | 1)) {
        return match moved_none(&output.stdout, none) {
            Some(why) => Err(BenchError::Lacking(why)),
            None => Ok(began.elapsed().as_secs_f64()),
        };
    }
    let (what, next) = refusal(&output);
    Err(BenchError::missing(
        what.unwrap_or_else(|| format!("promote: {}", output.status)),
        next.unwrap_or_else(|| "hugeleaf status".to_owned()),
    ))
}

/// Why `promote` has moved nothing; `None` where it has.
fn moved_none(answer: &[u8], (reason, next): MovedNone<'_>) -> Option<Shortage> {
    let answer: serde_json::Value = serde_json::from_slice(answer).ok()?;
    let processes = answer["processes"].as_array()?;
    let bytes = |field: &str| {
        processes
            .iter()
            .filter_map(|p| p[field].as_u64())
            .sum::<u64>()
    };
    (bytes("done_bytes") + bytes("already_bytes") == 0).then(|| Shortage {
        from: Bytes::ZERO,
        reason: format!("nothing of the running server could be moved: {reason}"),
        next: next.to_owned(),
    })
}

/// Whether nearly all of it is on the pages of an arm. `run` takes what large pages there are.
pub(in crate::bench) fn is_on(held: &[Held], pages: Pages, host: &Host) -> bool {
    let sum = |of: &dyn Fn(&&Held) -> bool| -> Bytes {
        held.iter().filter(of).map(|held| held.bytes).sum()
    };
    let arm = pages.arm(host);
    let on = sum(&|held| match pages {
        Pages::Run => held.kind != PageKind::Base,
        _ => arm.is_some_and(|arm| held.size == arm.size && held.kind == arm.kind),
    });
    let all = sum(&|_| true);
    // Sizes of memory are far below 2^52 bytes.
    #[allow(clippy::cast_precision_loss)]
    let nearly_all = on.get() as f64 >= NEARLY_ALL * all.get() as f64;
    !all.is_zero() && nearly_all
}

#[cfg(test)]
mod tests {
    use super::*;

    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::Kernel;
    use hugeleaf_units::PageSize;

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
    fn nearly_all_is_all() {
        let fixture = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/x86-4k-two-nodes"
        );
        let host = read_host(&Root::at(fixture), &Kernel::new()).unwrap();
        let held = |size: PageSize, kind, mebibytes: u64| Held {
            size,
            kind,
            bytes: Bytes::from_mib(mebibytes),
        };
        let (base, large) = (host.base_page, host.pmd_page.get().unwrap());
        let small = |mebibytes| held(base, PageKind::Base, mebibytes);
        let thp = |mebibytes| held(large, PageKind::Thp, mebibytes);
        let pool = |mebibytes| held(large, PageKind::Hugetlb, mebibytes);
        let promoted = |held: &[Held]| is_on(held, Pages::Promoted, &host);
        assert!(promoted(&[small(10), thp(990)]));
        assert!(!promoted(&[small(11), thp(989)]));
        // Of a pool is not transparent, but to run both are large; of nothing nothing can be determined.
        assert!(!promoted(&[pool(990)]) && is_on(&[pool(990)], Pages::Run, &host));
        assert!(!promoted(&[]) && !is_on(&[small(1)], Pages::Run, &host));
    }
}
