//! Applied plans that are not undone, as kept in the journal, and the current state of the host compared with them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::verify::{self, PathDrift, ReleasedPages, StepKind, VerifyFacts, VerifyReport};
use crate::{Plan, PlanInForce, Step, parse, steps};
use hugeleaf_host::demand::read_services;
use hugeleaf_host::system::running_programs::read_running;
use hugeleaf_host::system::{boot_time, kubelet, settings_files::read_settings};
use hugeleaf_host::{Fact, Host, Root, size_in_path};
use hugeleaf_sys::Kernel;
use hugeleaf_units::PageSize;
use hugeleaf_verdict::check::{RunningProgram, packages, programs, servers, wants};

use crate::host_changes::{
    AppliedStep, JOURNAL, JournaledApply, Obstacle, PathState, StepPreview, StepState, applied,
    inspect,
};

/// Returns the plan of an apply, or the reason why its copy next to the journal cannot be read.
fn plan_of(one: &JournaledApply) -> Result<Plan, String> {
    if one.is_newer {
        return Err("a newer hugeleaf applied it".to_owned());
    }
    match &one.plan {
        Fact::Known(text) => parse(text).map_err(|error| error.to_string()),
        Fact::Absent => Err("its copy is missing".to_owned()),
        Fact::Unreadable(error) => Err(error.to_string()),
    }
}

/// Returns all applies in force, newest first. An unreadable journal counts as one apply with unknown content.
pub fn in_force(root: &Root) -> Vec<PlanInForce> {
    match applied(root) {
        Fact::Known(all) => {
            let in_force = all.iter().filter(|one| !one.undone);
            in_force
                .map(|one| PlanInForce {
                    id: one.head.id,
                    plan: plan_of(one),
                })
                .collect()
        }
        Fact::Absent => Vec::new(),
        Fact::Unreadable(error) => vec![PlanInForce {
            id: 0,
            plan: Err(error.to_string()),
        }],
    }
}

/// Returns all applies in force, newest first, with each step compared with the current host.
pub fn standing(root: &Root) -> Fact<Vec<verify::AppliedPlan>> {
    applied(root).map(|all| {
        let in_force = all.iter().filter(|one| !one.undone);
        in_force.map(|one| compared_with_host(root, one)).collect()
    })
}

/// Gathers the huge pages of services, the applied plans and the configuration files, and judges them. Kernel log
/// lines before `log_since` (seconds since 1970) are ignored; by default those before the newest apply. `given`
/// lists pool pages that the guard returned.
pub fn verify(
    root: &Root,
    kernel: &Kernel,
    host: &Host,
    log_since: Option<u64>,
    given: &[ReleasedPages],
) -> VerifyReport {
    let found = read_services(root, kernel, host);
    let units: Vec<&str> = found
        .services
        .iter()
        .filter_map(|s| s.unit.as_deref())
        .collect();
    let settings = read_settings(root, &units);
    let applied = standing(root);
    let asked = found
        .unread
        .iter()
        .map(|error| format!("A service cannot be queried: {error}"));
    let journal = applied.error();
    let journal = journal.map(|error| format!("The applied plans are unknown: {error}"));
    let unread: Vec<String> = asked.chain(journal).collect();
    let applied = applied.known().map_or(&[][..], Vec::as_slice);
    let newest = applied.first().and_then(|one| seconds_of(&one.time));
    verify::verify(&VerifyFacts {
        host,
        services: &found.services,
        unread: &unread,
        applied,
        settings: &settings,
        booted: boot_time::read(root).get(),
        log_since: log_since.or(newest),
        given,
        wants: &wants(host, &servers_here(root)),
    })
}

/// Returns the running programs with known requirements on the host.
pub fn servers_here(root: &Root) -> Fact<Vec<RunningProgram>> {
    let known = programs();
    let running = read_running(root, |name, path| packages(&known, name, path));
    running.map(|all| servers(&known, &all))
}

/// Returns the sizes whose pools were changed after the kubelet of this host had started; none without a kubelet.
pub fn unseen_by_kubelet(root: &Root) -> Vec<PageSize> {
    let all = applied(root).or_default();
    let changed: Vec<_> = (all.iter())
        .map(|one| (one, changed_pools(one)))
        .filter(|(_, sizes)| !sizes.is_empty())
        .collect();
    // Finding the kubelet takes longer than all of the above.
    let Some(started) = (!changed.is_empty())
        .then(|| kubelet::start_time(root).get())
        .flatten()
    else {
        return Vec::new();
    };
    let is_later = |time: &str| seconds_of(time).is_some_and(|time| time >= started);
    let mut unseen = BTreeSet::new();
    for (one, sizes) in changed {
        let ended = one.ended.as_deref().unwrap_or(&one.head.time);
        // What was made and undone since is as the kubelet has seen it.
        if is_later(ended) && !(one.undone && is_later(&one.head.time)) {
            unseen.extend(sizes);
        }
    }
    unseen.into_iter().collect()
}

/// Returns the sizes of the pools that an apply has changed.
fn changed_pools(one: &JournaledApply) -> BTreeSet<PageSize> {
    let pools = one.steps.iter().filter(|step| {
        let begun = step.begun.as_ref().map(|begun| words(&begun.before));
        let is_pool = StepKind::of_step(&step.listed.what) == StepKind::Pool;
        is_pool && begun.is_some_and(|before| before != step.after.as_ref().and_then(words))
    });
    pools
        .filter_map(|step| size_in_path(&step.listed.path))
        .collect()
}

fn seconds_of(time: &str) -> Option<u64> {
    let time: jiff::Timestamp = time.parse().ok()?;
    u64::try_from(time.as_second()).ok()
}

fn compared_with_host(root: &Root, one: &JournaledApply) -> verify::AppliedPlan {
    let plan = plan_of(one);
    let planned = plan.as_ref().map(steps).unwrap_or_default();
    let places = one
        .steps
        .iter()
        .filter(|step| is_in_force(step.listed.state))
        .filter_map(|step| {
            let planned = planned
                .iter()
                .find(|planned| planned.id == step.listed.id)?;
            Some(place_of(root, planned, step))
        });
    verify::AppliedPlan {
        id: one.head.id,
        time: one.head.time.clone(),
        plan_copy: Path::new("/")
            .join(JOURNAL)
            .join(format!("{:04}.toml", one.head.id)),
        places: places.collect(),
        plan,
        is_complete: one.complete == Some(true),
        damage: one.damage.clone(),
    }
}

const fn is_in_force(state: StepState) -> bool {
    matches!(
        state,
        StepState::Already
            | StepState::Done
            | StepState::Short
            | StepState::InUse
            | StepState::Differs
    )
}

fn place_of(root: &Root, planned: &Step, step: &AppliedStep) -> verify::AppliedStepState {
    let (looked, obstacles) = inspect(root, std::slice::from_ref(planned));
    let (now, stands) = match (looked.first(), obstacles.first()) {
        (Some(looked), _) => (words(&looked.before), stands(looked)),
        (None, Some(Obstacle::Missing(_))) => (None, PathDrift::Gone),
        (None, Some(Obstacle::Denied(error))) => (None, PathDrift::Unread(error.to_string())),
        (None, Some(other)) => (Some(other.to_string()), PathDrift::Changed),
        (None, None) => (None, PathDrift::Gone),
    };
    verify::AppliedStepState {
        id: step.listed.id.clone(),
        what: StepKind::of_step(&step.listed.what),
        path: step.listed.path.clone(),
        before: step.begun.as_ref().and_then(|begun| words(&begun.before)),
        wanted: step.begun.as_ref().and_then(|begun| words(&begun.wanted)),
        now,
        state: stands,
    }
}

fn stands(looked: &StepPreview) -> PathDrift {
    match (looked.state, &looked.before) {
        (StepState::Already, _) => PathDrift::AsApplied,
        (StepState::NotApplicable, _) => PathDrift::NotApplicable,
        (_, PathState::Absent | PathState::NoMount) => PathDrift::Gone,
        _ => PathDrift::Changed,
    }
}

/// Formats a place as one word; `None` for files, which have many.
fn words(place: &PathState) -> Option<String> {
    match place {
        PathState::Value { value } => Some(value.clone()),
        PathState::Pool { pages, .. } => Some(pages.to_string()),
        PathState::Mount { options } => Some(options.clone()),
        PathState::OtherMount { kind } => Some(kind.clone()),
        _ => None,
    }
}
