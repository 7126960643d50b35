//! Judges a setting of the host and advises a value, by the row's own rule, by the wants of the running programs, and by the limits
//! of the host. No other module does, so a screen has one value per setting. If no value suits all, the row has no value and lists
//! the conflicting wants.

use hugeleaf_host::Fact;
use hugeleaf_units::Failure;

use super::model::{CheckInput, CheckRow, CheckState, SettingDemand};
use super::programs;
use super::setting_lookup::{BASE_PAGE, file, value};
use crate::advice::{AcceptedValues, AdvisedCommand, FeasibleChange, Setting, SettingChange};
use crate::commit_limit;
use crate::list;

const UNTIL_BOOT: &str = "lost at the next boot; write it to /etc/sysctl.d to make it permanent";

/// Risks of settings, besides the loss at the next boot.
const RISKS: &[(&str, &str)] = &[
    ("thp.enabled", "affects every program on this host"),
    (
        "thp.shmem_enabled",
        "programs that request huge pages with madvise(2) get them",
    ),
    (
        "thp.defrag",
        "changes page-fault latency for every program on this host",
    ),
    (
        "thp.khugepaged/max_ptes_none",
        "changes which memory khugepaged promotes, for every program on this host",
    ),
    (
        "vm.hugetlb_optimize_vmemmap",
        "allocating and freeing pool pages takes about twice as long, and freeing can fail if \
         memory is short",
    ),
    (
        "vm.swappiness",
        "lost at the next boot; near 0, programs are OOM-killed rather than swapped out",
    ),
    (
        "kernel.numa_balancing",
        "unbound programs keep their memory on remote nodes",
    ),
    (
        "kernel.io_uring_disabled",
        "io_uring has had more vulnerabilities than other kernel parts: a risk on multi-tenant \
         hosts",
    ),
];

/// Returns a value that suits all demands; `None` if there is none. The first demand chooses among several.
fn agreed<'a>(asks: impl IntoIterator<Item = &'a SettingDemand> + Clone) -> Option<String> {
    let mut edges = asks.clone().into_iter().flat_map(|ask| ask.wants.edges());
    edges.find(|value| asks.clone().into_iter().all(|ask| ask.wants.allows(value)))
}

/// Judges a setting and fills in value, state, reason and command. The row is absent or unknown like the value.
pub(super) fn judge_setting(
    checked: &CheckInput<'_>,
    row: CheckRow,
    setting: &str,
    rule: Option<SettingDemand>,
) -> CheckRow {
    row.with_fact(&value(checked, setting), |row, value| {
        let shown = match setting {
            name if name.starts_with("thp.") => value.clone(),
            BASE_PAGE => checked.host.base_page.to_string(),
            name => format!("{name} = {value}"),
        };
        let (mut asks, wants) = programs::demands(checked, setting);
        asks.extend(rule);
        asks.extend(nearly_full(checked, setting));
        let mut row = judged(row.with_value(shown), value, &asks);
        row.wants = wants;
        let (doubts, state) = (programs::undecided(checked, setting), row.state);
        let doubts: Vec<SettingDemand> = (doubts.into_iter())
            .filter(|ask| !ask.wants.allows(value))
            .collect();
        let doubt = format!(
            "{}; its version is unknown",
            list(doubts.iter().map(|ask| &ask.why))
        );
        match (row.why.clone(), doubts.is_empty()) {
            (None, true) => row,
            (None, false) => row.review(doubt),
            (Some(why), false) => row.with_state(state, format!("{why}; {doubt}")),
            (Some(why), true) => advised(checked, row, setting, &why, &asks),
        }
    })
}

/// Judges the row by the demands, without a command.
fn judged(row: CheckRow, value: &str, asks: &[SettingDemand]) -> CheckRow {
    let asks = in_effect(asks);
    let wrong = asks.iter().filter(|ask| !ask.wants.allows(value));
    let wrong: Vec<&SettingDemand> = wrong.copied().collect();
    if wrong.is_empty() {
        return row;
    }
    if agreed(asks.iter().copied()).is_none() {
        let all = list(asks.iter().map(|ask| &ask.why));
        return row.change(format!("no value suits all: {all}"));
    }
    let own: Vec<&SettingDemand> = (wrong.iter().copied())
        .filter(|ask| !ask.is_general)
        .collect();
    let told = if own.is_empty() { &wrong } else { &own };
    let why = list(told.iter().map(|ask| &ask.why));
    match wrong.iter().any(|ask| ask.state == CheckState::Change) {
        true => row.change(why),
        false => row.review(why),
    }
}

/// Returns all demands, without the general rules if these contradict running programs.
fn in_effect(asks: &[SettingDemand]) -> Vec<&SettingDemand> {
    let own: Vec<&SettingDemand> = asks.iter().filter(|ask| !ask.is_general).collect();
    match agreed(asks) {
        None if !own.is_empty() => own,
        _ => asks.iter().collect(),
    }
}

fn advised(
    checked: &CheckInput<'_>,
    row: CheckRow,
    setting: &str,
    why: &str,
    asks: &[SettingDemand],
) -> CheckRow {
    let state = row.state;
    let without = |row: CheckRow, reason: &str| row.with_state(state, format!("{why}. {reason}"));
    let Some(to) = agreed(in_effect(asks)) else {
        return without(row, way_out(setting));
    };
    if setting == BASE_PAGE {
        return without(row, "Another base page size needs another kernel");
    }
    let known = RISKS.iter().find(|(name, _)| *name == setting);
    let mut risk = known.map_or(UNTIL_BOOT, |(_, risk)| risk).to_owned();
    let is_strict = (setting, to.as_str()) == ("vm.overcommit_memory", commit_limit::STRICT);
    if is_strict && programs::lacks_pool(checked).is_some() {
        return without(
            row,
            "No command: a pool lowers CommitLimit, so plan the pool first",
        );
    }
    if let (true, Ok(of_it)) = (is_strict, commit_limit::strict(checked.host)) {
        risk = of_it;
    }
    let change = SettingChange::new(Setting::file(file(checked, setting)), to);
    let change = match value(checked, setting) {
        Fact::Known(value) => change.from(value),
        _ => change,
    };
    advise(checked, row, [change], risk)
}

/// Adds the command for these changes to the row, or the reason why this host cannot have them.
pub(super) fn advise(
    checked: &CheckInput<'_>,
    row: CheckRow,
    changes: impl IntoIterator<Item = SettingChange>,
    risk: impl Into<String>,
) -> CheckRow {
    let checked = changes.into_iter().map(|change| change.check(checked.host));
    let (state, why) = (row.state, row.why.clone().unwrap_or_default());
    match checked.collect::<Result<Vec<FeasibleChange>, Failure>>() {
        Ok(all) => row.with_command(AdvisedCommand::from(all).command, risk),
        Err(refused) => row.with_state(state, format!("{why}. No command: {}", refused.message)),
    }
}

fn way_out(setting: &str) -> &'static str {
    match setting {
        "thp.enabled" => {
            "Set the value for one program, and override it for the other in its unit \
             (MemoryTHP=) or with hugeleaf run"
        }
        _ => "Choose one program, or move the other to another host",
    }
}

/// Demands non-strict overcommit if allocations are about to fail, even if a program wants it.
fn nearly_full(checked: &CheckInput<'_>, setting: &str) -> Option<SettingDemand> {
    let why =
        commit_limit::nearly_full(checked.host).filter(|_| setting == "vm.overcommit_memory")?;
    let others = AcceptedValues::OneOf(vec!["0".to_owned(), "1".to_owned()]);
    Some(SettingDemand::own(others, CheckState::Change, why))
}
