//! Judges whether a host can bear `vm.overcommit_memory=2`, which refuses allocations beyond CommitLimit (mm/util.c,
//! __vm_enough_memory). Pure.

use hugeleaf_host::Host;
use hugeleaf_units::Bytes;

/// The file of the setting.
pub(crate) const MODE: &str = "/proc/sys/vm/overcommit_memory";
pub(crate) const STRICT: &str = "2";

/// Minimum ratio of CommitLimit to committed memory for advising the mode. Commitments change by the hour, and allocations beyond
/// the limit fail.
const ROOM: u64 = 2;
/// Share of CommitLimit above which allocations are about to fail.
const NEARLY_ALL: f64 = 0.9;

/// Returns the risk of the mode on this host, with the figures.
///
/// # Errors
/// The reason why the host cannot bear it, in a sentence without a full stop.
pub(crate) fn strict(host: &Host) -> Result<String, String> {
    let (memory, refused) = (
        &host.memory,
        "allocations beyond CommitLimit would be refused",
    );
    let (Some(limit), Some(committed)) = (memory.commit_limit.get(), memory.committed.get()) else {
        return Err(format!(
            "{refused}, and CommitLimit and Committed_AS are unknown"
        ));
    };
    let swap = match memory.swap_total.get() {
        Some(Bytes::ZERO) => "no swap".to_owned(),
        Some(swap) => format!("{swap} of swap"),
        None => "an unknown amount of swap".to_owned(),
    };
    let pools: Bytes = (host.totals()).map(|pool| pool.all().of(pool.size)).sum();
    let has = format!(
        "the limit is {limit}, with {swap} and {pools} in pools, which lower it; {committed} are \
         committed"
    );
    match committed.get().saturating_mul(ROOM) <= limit.get() {
        true => Ok(format!("{refused}: {has}")),
        false => Err(format!(
            "{refused}: {has}; add swap or raise vm.overcommit_ratio first"
        )),
    }
}

/// Returns why allocations are about to fail, if the mode is strict.
pub(crate) fn nearly_full(host: &Host) -> Option<String> {
    let (limit, committed) = (
        host.memory.commit_limit.get()?,
        host.memory.committed.get()?,
    );
    (committed.share_of(limit)? > NEARLY_ALL).then(|| {
        format!("with {STRICT} allocations beyond CommitLimit are refused, and {committed} of {limit} are committed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{Change, Setting};
    use crate::findings::tests::testing::{gib, healthy};

    #[test]
    fn no_path_advises_what_makes_allocations_fail() {
        let mut host = healthy();
        let advised = |host: &Host, to: u64| {
            let change = Change::new(Setting::sysctl("vm.overcommit_memory"), to);
            change.check(host).is_ok()
        };
        assert!(!advised(&host, 2) && advised(&host, 1), "nothing is known");
        host.memory.commit_limit = gib(28);
        host.memory.committed = gib(14);
        assert!(advised(&host, 2));
        assert!(strict(&host).unwrap().contains("the limit is 28G,"));
        host.memory.committed = gib(15);
        assert!(!advised(&host, 2) && nearly_full(&host).is_none());
        host.memory.committed = gib(26);
        assert!(nearly_full(&host).unwrap().contains("26G of 28G"));
    }
}
