//! Permissions of a service: memlock, the group for SysV segments, cgroup limits.

use hugeleaf_host::demand::{Service, ServiceKind, User};
use hugeleaf_host::system::pam_limits::limits_of;
use hugeleaf_host::{HugetlbLimit, HugetlbLimitKind};
use hugeleaf_units::Bytes;

use super::{PLAN, ServiceRow, VerifyFacts};
use hugeleaf_verdict::advice::{ChangeScope, Setting, SettingChange};
use hugeleaf_verdict::findings::{AdvisedCommand, Finding, shell_word};
use hugeleaf_verdict::pod_limits::PodLimitCause;

/// Finds a limit of its cgroup or a parent that is below the request.
pub(super) fn cgroup(
    facts: &VerifyFacts<'_>,
    service: &Service,
    row: &ServiceRow,
) -> Option<Finding> {
    let groups = service.limits.hugetlb.iter();
    let mut limits =
        groups.flat_map(|cgroup| cgroup.hugetlb.iter().map(move |limit| (cgroup, limit)));
    limits.find_map(|(cgroup, limit)| {
        let asked = row.asked.iter().find(|pages| pages.page == limit.size)?;
        let asked = asked.bytes();
        let (of, allowed, then) = too_low(limit, asked)?;
        let setting = Setting::file(cgroup.limit_file(limit.size, of));
        let raised = SettingChange::new(setting, format!("{asked:#}")).from(allowed.get());
        let in_container = service.limits.is_in_container;
        let cause = in_container
            .then(|| PodLimitCause::of(facts.host, &service.limits, limit.size));
        let next: AdvisedCommand = match cause {
            Some(cause) => cause
                .remedy(limit.size, asked, program(service.kind))
                .into(),
            None => raised
                .in_scope(ChangeScope::Cgroup)
                .check(facts.host)
                .into(),
        };
        let why = cause.map_or_else(String::new, |cause| format!(" ({})", cause.text()));
        Some(Finding::problem(
            "cgroup-limit",
            format!(
                "{} asks for {asked} on pages of {}, but its cgroup {} allows {allowed}{why}: {then}.",
                row.name, limit.size, cgroup.path
            ),
            next,
        ))
    })
}

/// Returns the process name of a program that is configured for pool pages.
pub(super) const fn program(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::PostgreSql => "postgres",
        ServiceKind::MariaDb => "mariadbd",
        ServiceKind::Jvm => "java",
        _ => "",
    }
}

/// Returns the limit below the request, and its consequence.
fn too_low(limit: &HugetlbLimit, asked: Bytes) -> Option<(HugetlbLimitKind, Bytes, &'static str)> {
    let mut both = [
        (
            HugetlbLimitKind::Reservations,
            "its start fails, or falls back to base pages",
        ),
        (
            HugetlbLimitKind::Faults,
            "it starts, and is killed (SIGBUS) when it touches more",
        ),
    ]
    .into_iter();
    both.find_map(|(of, then)| {
        let allowed = limit.limit(of).get().flatten();
        Some((of, allowed.filter(|allowed| *allowed < asked)?, then))
    })
}

/// Finds a missing permission for SysV hugetlb segments. They need CAP_IPC_LOCK or the group
/// `vm.hugetlb_shm_group`. A sufficient memlock limit works too, but is deprecated (mm/hugetlb,
/// fs/hugetlbfs: can_do_hugetlb_shm, user_shm_lock).
pub(super) fn segments(
    facts: &VerifyFacts<'_>,
    service: &Service,
    row: &ServiceRow,
) -> Option<Finding> {
    if service.kind != ServiceKind::SysV {
        return None;
    }
    let user = service.user.as_ref()?;
    let group = facts.host.limits.hugetlb_shm_group.get()?;
    let is_member = user.groups.iter().any(|g| u64::from(*g) == group);
    let needed = ServiceRow::bytes(&row.asked);
    if user.ipc_lock || is_member || user.memlock.get().is_some_and(|limit| limit >= needed) {
        return None;
    }
    let name = name_of(user);
    let memlock = match user.memlock.get() {
        Some(limit) => format!("may lock {limit}"),
        None => "has no memlock limit of its own".to_owned(),
    };
    if group != 0 {
        return Some(Finding::problem(
            "group-missing",
            format!(
                "{} asks for {needed} in SysV segments on huge pages, but its user {name} is not \
                 in group {group} (vm.hugetlb_shm_group), and {memlock}.",
                row.name
            ),
            SettingChange::new(Setting::groups(&shell_word(&name)), group).check(facts.host),
        ));
    }
    Some(Finding::problem(
        "memlock-small",
        format!(
            "{} asks for {needed} in SysV segments on huge pages, but its user {name} {memlock}, \
             and no group may have them (vm.hugetlb_shm_group is 0).",
            row.name
        ),
        PLAN,
    ))
}

fn name_of(user: &User) -> String {
    user.name.clone().unwrap_or_else(|| user.uid.to_string())
}

/// Finds limits from files that a running service lacks because it started before.
pub(super) fn limits_not_taken(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let one = |service: &Service| {
        let user = service.user.as_ref().filter(|_| service.is_running())?;
        let has = user.memlock.get()?;
        let (wanted, file) = limit_in_files(facts, service, user)?;
        let gives = match wanted.get() {
            u64::MAX => "unlimited".to_owned(),
            _ => wanted.to_string(),
        };
        (has < wanted && !user.ipc_lock).then(|| {
            Finding::warning(
                "limit-not-taken",
                format!(
                    "{} may lock {has}, but the limit in {file} is {gives}: it was started before \
                     that was written, or systemd has not read the file.",
                    service.name
                ),
                match &service.unit {
                    Some(unit) => format!(
                        "systemctl daemon-reload && systemctl restart {}",
                        shell_word(unit)
                    ),
                    None => format!("log in again as {}, and restart it", name_of(user)),
                },
            )
        })
    };
    facts.services.iter().filter_map(one).collect()
}

/// Returns the soft memlock limit at the next start, and its file. A unit has its own limit.
/// Processes started by users have the limit of PAM.
fn limit_in_files(
    facts: &VerifyFacts<'_>,
    service: &Service,
    user: &User,
) -> Option<(Bytes, String)> {
    if let Some(unit) = &service.unit {
        let file = facts
            .settings
            .units
            .iter()
            .find(|file| file.unit == *unit)?;
        return Some((file.memlock?.0, file.memlock_file.clone()?));
    }
    let lines = facts.settings.memlock.known()?;
    let name = user.name.as_deref()?;
    let (soft, _) = limits_of(lines, name, &[]);
    let own = lines
        .iter()
        .rfind(|line| line.soft && line.domain == name)?;
    Some((soft?, own.path.clone()))
}
