//! Disagreements between files, kernel and the plans in force.

use std::borrow::Cow;

use hugeleaf_host::system::settings_files::BootLoaderLine;
use hugeleaf_host::{Fact, Host, Pool, SysctlLine, pool_file, size_folder};
use hugeleaf_units::{Bytes, Pages};

use super::{AppliedPlan, AppliedStepState, PathDrift, ReleasedPages, StepKind, VerifyFacts};
use crate::Plan;
use hugeleaf_verdict::advice::{Setting, SettingChange};
use hugeleaf_verdict::findings::{Finding, Severity, boot_pools, findings, pool_short, shell_word};

/// Finds pools with fewer pages than files or the kernel command line request, and unreadable
/// facts, with the rules of `status`. A pool that cannot be read is not verified.
pub(super) fn pools(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let unread = |pages: &Fact<Pages>| pages.error().is_some();
    let host = with_given(facts);
    let mut pools = host.pools.iter();
    let is_blind = pools.any(|pool| unread(&pool.total) || unread(&pool.free));
    let mut all = findings(&host);
    all.retain(|finding| {
        const OF_POOLS: [&str; 5] = [
            "pool-leftovers",
            "pool-short",
            "kubelet-before-pool",
            "pod-limits-zero",
            "unreadable",
        ];
        OF_POOLS.contains(&finding.id)
    });
    for finding in &mut all {
        if finding.id == "unreadable" && is_blind {
            finding.severity = Severity::Problem;
        }
    }
    all
}

/// Returns the host as if the guard had given no pages back.
fn with_given<'a>(facts: &VerifyFacts<'a>) -> Cow<'a, Host> {
    let mut host = Cow::Borrowed(facts.host);
    for given in facts.given {
        for pool in &mut host.to_mut().pools {
            let holds = pool.node.is_none() || pool.node == given.node;
            if let (true, Fact::Known(total)) = (holds && pool.size == given.page, &mut pool.total)
            {
                *total += given.pages;
            }
        }
    }
    host
}

/// Returns a pool's place as if the guard had given no pages back.
fn place_with_given(facts: &VerifyFacts<'_>, place: &AppliedStepState) -> AppliedStepState {
    let mut place = place.clone();
    let of_it = |given: &&ReleasedPages| {
        let file = pool_file(given.page, given.node, "nr_hugepages");
        place.path.to_str() == Some(&file)
    };
    let given: Pages = facts.given.iter().filter(of_it).map(|g| g.pages).sum();
    let now = number(&place.now).filter(|_| given > Pages(0));
    if let Some(now) = now {
        let now = (Pages(now) + given).to_string();
        if place.wanted.as_ref() == Some(&now) {
            place.state = PathDrift::AsApplied;
        }
        place.now = Some(now);
    }
    place
}

/// Finds sysctl.d settings that are not in force. [`pools`] handles missing pages, and [`places`]
/// handles knobs set by a plan.
pub(super) fn sysctl(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let settings = facts.host.limits.sysctl.entries();
    let planned = |key: &str| {
        let knob = format!("/proc/sys/{}", key.replace('.', "/"));
        in_force_places(facts).any(|p| p.what == StepKind::Knob && p.path.to_str() == Some(&knob))
    };
    let one = |(at, setting): (usize, &SysctlLine)| {
        if planned(&setting.key) {
            return None;
        }
        let is_last = !settings[at + 1..]
            .iter()
            .any(|later| later.key == setting.key);
        let wanted: u64 = setting.value.parse().ok().filter(|_| is_last)?;
        let now = in_force(facts, &setting.key)?;
        if now == wanted || setting.key == "vm.nr_hugepages" && now < wanted {
            return None;
        }
        // The plan found these idle pages and keeps them until the next boot.
        if setting.key == "vm.nr_hugepages" && is_left_idle(facts, now, wanted) {
            return None;
        }
        let then = match setting.key.as_str() {
            "vm.nr_hugepages" => "; the pool shrinks at the next boot",
            _ => "",
        };
        let (key, path) = (&setting.key, &setting.path);
        Some(Finding::warning(
            "sysctl-drift",
            format!("{key} is {now}, but {path} sets {wanted}{then}."),
            SettingChange::new(Setting::sysctl(key), wanted)
                .from(now)
                .check(facts.host),
        ))
    };
    settings.iter().enumerate().filter_map(one).collect()
}

/// True if the newest plan for the default-size pool expects `now` pages now and `after_boot` pages
/// after the next boot.
fn is_left_idle(facts: &VerifyFacts<'_>, now: u64, after_boot: u64) -> bool {
    let default = facts.host.memory.default_hugetlb_page.get();
    let mut plans = plans(facts);
    default.is_some_and(|page| {
        let plan = plans.find(|plan| plan.of_size(page).next().is_some());
        plan.is_some_and(|plan| {
            let pages: Pages = plan.of_size(page).map(|p| p.pages).sum();
            let lasting: Pages = plan.of_size(page).map(|p| p.lasting()).sum();
            now <= pages.get() && lasting.get() == after_boot
        })
    })
}

fn plans<'a>(facts: &VerifyFacts<'a>) -> impl Iterator<Item = &'a Plan> {
    facts
        .applied
        .iter()
        .filter_map(|one| one.plan.as_ref().ok())
}

/// True if a pool lost only idle pages, which no file requests again after a boot.
fn lost_idle_only(facts: &VerifyFacts<'_>, place: &AppliedStepState) -> bool {
    let mut pools = plans(facts).flat_map(|plan| &plan.pools);
    let pool = pools.find(|pool| crate::pool_path(pool) == place.path);
    let (Some(pool), Some(now)) = (pool, number(&place.now)) else {
        return false;
    };
    (pool.lasting().get()..=pool.pages.get()).contains(&now)
}

fn in_force(facts: &VerifyFacts<'_>, key: &str) -> Option<u64> {
    let limits = &facts.host.limits;
    let default = facts.host.memory.default_hugetlb_page.get();
    let pool = || facts.host.pool(default?);
    match key {
        "vm.nr_hugepages" => pool()?.total.get().and(Some(pool()?.persistent().get())),
        "vm.nr_overcommit_hugepages" => pool()?.overcommit.get().map(Pages::get),
        "vm.hugetlb_shm_group" => limits.hugetlb_shm_group.get(),
        "kernel.shmmax" => limits.shmmax.get().map(Bytes::get),
        "kernel.shmall" => limits.shmall.get().map(Pages::get),
        _ => None,
    }
}

/// Finds knobs that differ from their tmpfiles.d value. [`places`] handles knobs set by a plan.
pub(super) fn tmpfiles(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let lines = facts.settings.tmpfiles.entries();
    let planned = |knob: &str| {
        let mut places = in_force_places(facts);
        places.any(|place| place.path.to_str() == Some(knob))
    };
    lines
        .iter()
        .enumerate()
        .filter(|(at, line)| !lines[at + 1..].iter().any(|later| later.knob == line.knob))
        .filter(|(_, line)| !planned(&line.knob))
        .filter_map(|(_, line)| {
            let now = match &line.now {
                Fact::Known(now) if *now == line.value => return None,
                Fact::Known(now) => format!("is {now}"),
                Fact::Absent => "does not exist".to_owned(),
                Fact::Unreadable(error) => format!("could not be read ({error})"),
            };
            let (knob, path, value) = (&line.knob, &line.path, &line.value);
            let whom = by_whom(facts, knob);
            Some(Finding::warning(
                "knob-reset",
                format!("{knob} {now}, but {path} sets it to {value}{whom}."),
                format!("systemd-tmpfiles --create {}", shell_word(path)),
            ))
        })
        .collect()
}

fn by_whom(facts: &VerifyFacts<'_>, knob: &str) -> String {
    match facts.settings.tuned.known() {
        Some(profile) if knob.contains("transparent_hugepage") => {
            format!("; tuned's profile {profile} may have set it")
        }
        _ => String::new(),
    }
}

/// Returns every path that a plan in force set, as its newest plan left it.
fn in_force_places<'a>(facts: &VerifyFacts<'a>) -> impl Iterator<Item = &'a AppliedStepState> {
    let applied = facts.applied;
    applied.iter().enumerate().flat_map(move |(at, one)| {
        one.places.iter().filter(move |place| {
            let newer = applied[..at].iter().flat_map(|newer| &newer.places);
            !newer
                .into_iter()
                .any(|other| other.path == place.path && other.what == place.what)
        })
    })
}

/// Finds paths that differ from the state that a plan in force left.
pub(super) fn places(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let newest = facts.applied.first();
    let host = with_given(facts);
    // The directory of any node.
    let is_of = |place: &AppliedStepState, pool: &Pool| {
        let folder = size_folder(pool.size);
        place.path.iter().any(|part| part.to_str() == Some(&folder))
    };
    let is_reported = |place: &&AppliedStepState| {
        let mut pools = host.totals();
        let is_short = |pool: &Pool| is_of(place, pool) && pool_short(&host, pool).is_some();
        place.what == StepKind::Pool && pools.any(is_short)
    };
    in_force_places(facts)
        .filter(|place| !is_reported(place))
        .filter_map(|place| match place.what {
            StepKind::Pool => place_finding(facts, newest, &place_with_given(facts, place)),
            _ => place_finding(facts, newest, place),
        })
        .collect()
}

fn place_finding(
    facts: &VerifyFacts<'_>,
    newest: Option<&AppliedPlan>,
    place: &AppliedStepState,
) -> Option<Finding> {
    let path = place.path.display();
    let is = match &place.state {
        PathDrift::AsApplied | PathDrift::NotApplicable => return None,
        PathDrift::Unread(why) => {
            return Some(not_verified(format!("{path} could not be read: {why}.")));
        }
        PathDrift::Gone => "is gone".to_owned(),
        PathDrift::Changed => match &place.now {
            Some(now) => format!("is {now}"),
            None => "was changed".to_owned(),
        },
    };
    let wanted = match &place.wanted {
        Some(wanted) => format!(", but the plan set {wanted}"),
        None => ", but the plan wrote it".to_owned(),
    };
    let (id, severity, whom) = match place.what {
        // The mount reports it.
        StepKind::Folder => return None,
        StepKind::Mount => ("mount-missing", Severity::Problem, String::new()),
        StepKind::Knob => (
            "knob-reset",
            Severity::Warning,
            by_whom(facts, &path.to_string()),
        ),
        StepKind::File => ("file-changed", Severity::Warning, String::new()),
        StepKind::Pool if lost_idle_only(facts, place) => return None,
        StepKind::Pool => ("pool-changed", pool_severity(place), String::new()),
    };
    Some(Finding::new(
        severity,
        id,
        format!("{path} {is}{wanted}{whom}."),
        newest.map_or_else(String::new, |applied| {
            format!("hugeleaf apply {}", plan_copy(applied))
        }),
    ))
}

pub(super) fn not_verified(text: String) -> Finding {
    Finding::note("not-verified", text, "sudo hugeleaf verify")
}

fn plan_copy(applied: &AppliedPlan) -> String {
    shell_word(&applied.plan_copy.display().to_string())
}

fn number(text: &Option<String>) -> Option<u64> {
    let digits = text.as_ref()?.chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().ok()
}

/// Missing pages are a shortfall, additional pages only a note.
fn pool_severity(place: &AppliedStepState) -> Severity {
    match (number(&place.now), number(&place.wanted)) {
        (Some(now), Some(wanted)) if now > wanted => Severity::Note,
        _ => Severity::Problem,
    }
}

/// Finds pools that the boot loader's files request, but the running kernel's command line does
/// not.
pub(super) fn boot(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let Some(running) = facts.host.limits.boot.text() else {
        return Vec::new();
    };
    let default = facts.host.memory.default_hugetlb_page.get();
    let has = boot_pools(running, default);
    let one = |line: &BootLoaderLine| {
        let wanted = boot_pools(&line.arguments, default);
        let missing = wanted.iter().filter(|pool| !has.contains(pool));
        let missing = missing.map(|(size, pages)| super::pages_text(Pages(*pages), *size));
        let missing = missing.collect::<Vec<String>>().join(" and ");
        (!missing.is_empty()).then(|| {
            Finding::warning(
                "boot-drift",
                format!(
                    "{} asks for {missing} at boot, but the running kernel was started without \
                     them.",
                    line.path
                ),
                "update-grub    # then reboot",
            )
        })
    };
    facts
        .settings
        .boot
        .entries()
        .iter()
        .filter_map(one)
        .collect()
}

/// Finds incomplete applies, and damaged journals and plans.
pub(super) fn journal(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for applied in facts.applied {
        let (id, undo) = (applied.id, format!("hugeleaf undo {}", applied.id));
        if !applied.is_complete {
            found.push(Finding::warning(
                "apply-incomplete",
                format!("Apply {id} of {} is incomplete.", applied.time),
                format!("hugeleaf apply {}    # or: {undo}", plan_copy(applied)),
            ));
        }
        let journal = applied.damage.iter();
        let journal =
            journal.map(|damage| format!("The journal of apply {id} is damaged: {damage}."));
        let plan = applied.plan.as_ref().err();
        let plan = plan.map(|why| format!("The plan of apply {id} cannot be read: {why}."));
        let damaged = journal.chain(plan);
        found.extend(damaged.map(|text| Finding::warning("journal-damaged", text, undo.as_str())));
    }
    found
}

/// Finds kernel log messages about short pools and failed allocations in the relevant period.
pub(super) fn kernel_log(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let since = facts.log_since.zip(facts.booted);
    let is_recent = |line: &&String| match (since, seconds_of(line)) {
        (Some((since, booted)), Some(at)) => booted.saturating_add(at) >= since,
        _ => true,
    };
    let recent = facts.host.kernel_log.entries().iter().filter(is_recent);
    // A program got its segments by a deprecated permission.
    let is_obsolete = |line: &&String| line.contains("Using mlock ulimits for SHM_HUGETLB");
    let (obsolete, short): (Vec<&String>, Vec<&String>) = recent.partition(is_obsolete);
    let finding = |lines: &[&String], severity, what: &str| {
        let last = lines.last()?;
        let count = match lines.len() {
            1 => "1 line".to_owned(),
            n => format!("{n} lines"),
        };
        Some(Finding::new(
            severity,
            "kernel-log",
            format!("The kernel log has {count} about {what}. The last: {last}"),
            "dmesg | grep -iE 'hugetlb|page allocation failure'",
        ))
    };
    let of_short = "missing or refused huge pages";
    let of_obsolete = "SysV segments that only memlock allowed, which is deprecated";
    let found = [
        finding(&short, Severity::Warning, of_short),
        finding(&obsolete, Severity::Note, of_obsolete),
    ];
    found.into_iter().flatten().collect()
}

/// Returns the time of a log line in whole seconds since boot: `[86211.100211] …`.
fn seconds_of(line: &str) -> Option<u64> {
    let stamp = line.trim_start().strip_prefix('[')?;
    let (stamp, _) = stamp.split_once(']')?;
    stamp.trim().split('.').next()?.parse().ok()
}
