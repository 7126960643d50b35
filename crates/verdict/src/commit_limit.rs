//! Judges whether a host can bear `vm.overcommit_memory=2`, which refuses allocations beyond CommitLimit (mm/util.c,
//! __vm_enough_memory), and how far pools may grow in that mode. Pure.

use hugeleaf_host::{Fact, Host};
use hugeleaf_units::{Bytes, Failure};

/// The file of the setting.
pub(crate) const MODE: &str = "/proc/sys/vm/overcommit_memory";
pub(crate) const STRICT: &str = "2";

/// Minimum ratio of CommitLimit to committed memory for advising the mode. Commitments change by the hour, and allocations beyond
/// the limit fail.
const ROOM: u64 = 2;
/// Percentage of CommitLimit above which allocations are about to fail.
pub(crate) const NEARLY_ALL: u64 = 90;
/// The same for a pool that was planned earlier: half of the margin may have been committed since.
pub(crate) const NEARLY_ALL_LATER: u64 = 95;

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
    let pools = host.in_pools();
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
    (committed.share_of(limit)? > NEARLY_ALL as f64 / 100.0).then(|| {
        format!("with {STRICT} allocations beyond CommitLimit are refused, and {committed} of {limit} are committed")
    })
}

/// Returns the memory by which pools may grow so that at most `percent` of CommitLimit stays committed; `None` if the mode is
/// not strict, or pools do not lower CommitLimit. Each page lowers it by `vm.overcommit_ratio` percent of its size (mm/util.c,
/// vm_commit_limit). The memory of a program that moves to a pool is committed until the program restarts.
///
/// # Errors
/// The mode is strict, and a figure is unknown.
pub(crate) fn pool_growth(host: &Host, percent: u64) -> Result<Option<Bytes>, Failure> {
    let (memory, limits) = (&host.memory, &host.limits);
    let mode = limits.overcommit_memory.get().map(|mode| mode.to_string());
    if mode.as_deref() != Some(STRICT) {
        return Ok(None);
    }
    let ratio = known("vm.overcommit_ratio", &limits.overcommit_ratio)?;
    if ratio == 0 {
        return Ok(None);
    }
    let limit = known("CommitLimit", &memory.commit_limit)?;
    let committed = known("Committed_AS", &memory.committed)?;
    let spare = limit - committed.scaled(Bytes(100), Bytes(percent));
    Ok(Some(spare.scaled(Bytes(100), Bytes(ratio))))
}

fn known<T: Copy>(name: &str, fact: &Fact<T>) -> Result<T, Failure> {
    fact.get().ok_or_else(|| {
        let why = fact
            .error()
            .map_or("it is unknown".to_owned(), ToString::to_string);
        Failure::missing(
            format!(
                "cannot read {name}, which bounds pools under vm.overcommit_memory={STRICT}: {why}"
            ),
            "cat /proc/meminfo /proc/sys/vm/overcommit_ratio    # pools lower CommitLimit",
        )
    })
}

/// Describes the bound of CommitLimit on pools, with the figures and the remedy, without a full stop.
pub fn commit_bound(host: &Host) -> String {
    let figure = |fact: &Fact<Bytes>| {
        let known = fact.get();
        known.map_or("an unknown amount".to_owned(), |bytes| bytes.to_string())
    };
    let (limit, committed) = (&host.memory.commit_limit, &host.memory.committed);
    format!(
        "vm.overcommit_memory is {STRICT}, each page of a pool lowers CommitLimit ({}), and {} are \
         committed; add swap or raise vm.overcommit_ratio first",
        figure(limit),
        figure(committed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{Setting, SettingChange, some_pages};
    use crate::findings::tests::testing::{gib, healthy, size};

    #[test]
    fn no_path_advises_what_makes_allocations_fail() {
        let mut host = healthy();
        let advised = |host: &Host, to: u64| {
            let change = SettingChange::new(Setting::sysctl("vm.overcommit_memory"), to);
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
        // A pool lowers the limit.
        let pool = |host: &Host, pages: u64| {
            let change = SettingChange::new(Setting::pool(size("2M"), None), pages);
            change
                .check(host)
                .map(|_| ())
                .map_err(|refused| refused.message)
        };
        assert_eq!(pool(&host, 12_289), Ok(()), "the mode is not strict");
        host.limits.overcommit_memory = Fact::Known(2);
        let unknown = pool(&host, 12_288).unwrap_err();
        assert!(
            unknown.contains("cannot read vm.overcommit_ratio"),
            "{unknown}"
        );
        host.limits.overcommit_ratio = Fact::Known(50);
        // 18G are 90 % of 20G: the limit may fall by 8G, and the pool grow by 16G.
        host.memory.committed = gib(18);
        assert_eq!(pool(&host, 12_288), Ok(()));
        let why = pool(&host, 12_289).unwrap_err();
        assert!(why.contains("at most 12288 pages"), "{why}");
        assert!(
            why.contains("lowers CommitLimit (28G), and 18G are committed"),
            "{why}"
        );
        assert!(some_pages(&host, size("2M")).ends_with(", 12288 at most"));
        host.memory.committed = gib(26);
        assert!(pool(&host, 4096).is_ok() && pool(&host, 4097).is_err());
        host.memory.committed = Fact::Absent;
        assert!(
            pool(&host, 4097)
                .unwrap_err()
                .contains("cannot read Committed_AS")
        );
        // With vm.overcommit_kbytes, which sets the ratio to 0, pools do not lower the limit.
        host.limits.overcommit_ratio = Fact::Known(0);
        assert_eq!(pool(&host, 12_289), Ok(()));
    }
}
