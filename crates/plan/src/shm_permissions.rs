//! The permissions that a user lacks for SysV segments on hugetlb pages, and the change that grants
//! them: the group of `vm.hugetlb_shm_group`, memlock, or CAP_IPC_LOCK (mm: `can_do_hugetlb_shm`,
//! `user_shm_lock`). Mappings and memfds need none of these.

use hugeleaf_host::Host;
use hugeleaf_host::demand::{Service, ServiceKind, User};
use hugeleaf_units::Bytes;

use super::model::{PageCount, Plan, ServicePlan, ShmGroupSetting, UserMemlock};
use super::plan_input::unit_entry;

/// True if the service is known to use shmget with SHM_HUGETLB.
fn makes_segments(service: &Service) -> bool {
    match service.kind {
        ServiceKind::SysV => true,
        // MySQL does, but MariaDB maps its memory.
        ServiceKind::MariaDb => service.name.contains("mysql"),
        // A demand in bytes for a user, so the program's method is unknown.
        ServiceKind::Other => !service.is_running(),
        _ => false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShmPermissions {
    all: bool,
    group: bool,
    memlock: bool,
}

fn has(user: &User, host: &Host, needed: Bytes) -> ShmPermissions {
    let group = host.limits.hugetlb_shm_group.get();
    let in_group = |gid: u64| {
        let own = user.groups.iter().chain([&user.gid]);
        own.into_iter().any(|g| u64::from(*g) == gid)
    };
    ShmPermissions {
        all: user.uid == 0 || user.ipc_lock,
        group: group.is_some_and(in_group),
        memlock: user.memlock.get().is_some_and(|most| most >= needed),
    }
}

pub(super) fn rights(plan: &mut Plan, host: &Host, service: &Service, index: usize) {
    let planned = &plan.services[index];
    let needed: Bytes = planned.pages().map(PageCount::bytes).sum();
    let Some(user) = service.user.as_ref().filter(|_| makes_segments(service)) else {
        return;
    };
    let has = has(user, host, needed);
    if has.all || needed.is_zero() || (has.group && has.memlock) {
        return;
    }
    let why = why(user, host, &has, planned, needed);
    let shm_group = host.limits.hugetlb_shm_group.get();
    // Zero is the kernel's default. Another group was configured and stays.
    let free = shm_group == Some(0) && plan.group.as_ref().is_none_or(|g| g.gid == user.gid);
    if !has.group && free {
        plan.group = Some(ShmGroupSetting {
            gid: user.gid,
            was: shm_group.and_then(|g| u32::try_from(g).ok()),
            why: why.clone(),
        });
    }
    if has.memlock {
        return;
    }
    // Some programs check their limit first, and use no huge pages below it.
    let (unit, name) = (planned.unit.clone(), planned.name.clone());
    match (unit, user.name.clone()) {
        (Some(unit), _) => {
            let entry = unit_entry(plan, &unit, &name);
            entry.memlock = entry.memlock.max(Some(needed));
            entry.why = why;
        }
        (None, Some(name)) if super::name_syntax::is_user(&name).is_ok() => {
            limit(plan, name, user.memlock.get(), needed, why);
        }
        // limits.conf accepts a number too, but no user logs in by number.
        (None, _) => {}
    }
}

/// Adds the needs of a user's services, because the kernel counts per user.
fn limit(plan: &mut Plan, user: String, was: Option<Bytes>, needed: Bytes, why: String) {
    match plan.limits.iter_mut().find(|l| l.user == user) {
        Some(limit) => limit.memlock += needed,
        None => plan.limits.push(UserMemlock {
            user,
            was: was.filter(|b| b.get() <= i64::MAX.unsigned_abs()),
            memlock: needed,
            why,
        }),
    }
}

fn why(
    user: &User,
    host: &Host,
    has: &ShmPermissions,
    service: &ServicePlan,
    needed: Bytes,
) -> String {
    let name = user.name.as_deref().unwrap_or("its user");
    let uid = user.uid;
    let mut lacks = vec!["has no CAP_IPC_LOCK".to_owned()];
    if !has.group {
        lacks.push(match host.limits.hugetlb_shm_group.get() {
            Some(gid) => format!("is not in group {gid} of vm.hugetlb_shm_group"),
            None => "is not known to be in the group of vm.hugetlb_shm_group".to_owned(),
        });
    }
    if !has.memlock {
        lacks.push(match user.memlock.get() {
            Some(most) => format!("may lock {most}"),
            None => "may lock only the kernel's default".to_owned(),
        });
    }
    let whole = format!(
        "{name} (uid {uid}) {}; {} needs SysV segments of {needed} on hugetlb pages",
        lacks.join(", "),
        service.name
    );
    hugeleaf_verdict::clean(&whole)
}
