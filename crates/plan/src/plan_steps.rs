//! Derives steps from intents: the content of each file, and the value of each knob. Pure, and the only
//! module that knows the paths that hugeleaf writes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use hugeleaf_host::{pool_file, size_folder};
use hugeleaf_units::{PageSize, Pages};

use super::managed_files::{FSTAB, GRUB, LIMITS, OURS, SYSCTL, TMPFILES, UNIT_FILE, UNITS};
use super::model::{Mount, PageCount, Plan, PoolPlan};
use super::page_counts::pages_text;
use super::step::{FollowUp, Step, StepAction};
use hugeleaf_verdict::{each_its_own, list};

const SHM_GROUP: &str = "/proc/sys/vm/hugetlb_shm_group";

/// Permissions of world-readable files.
const READABLE: u32 = 0o644;

/// Returns all steps of a plan, in execution order. Steps that may fail for lack of memory come first,
/// persistent settings last.
pub fn steps(plan: &Plan) -> Vec<Step> {
    // A pool that returns memory comes before one that needs it.
    let grows = |p: &&PoolPlan| p.was.is_none_or(|was| was <= p.pages);
    let (growing, shrinking): (Vec<&PoolPlan>, Vec<&PoolPlan>) = plan.pools.iter().partition(grows);
    let in_order = shrinking.into_iter().chain(growing);
    let mut steps: Vec<Step> = in_order.map(|p| pool(plan, p)).collect();
    for mount in &plan.mounts {
        steps.extend(mount_steps(mount));
    }
    steps.extend(plan.knobs.iter().map(|knob| {
        let id = format!("knob-{}", knob_name(&knob.path));
        setting(id, &knob.path, &knob.now, &knob.why).needing(restart(&knob.restart))
    }));
    steps.extend(plan.group.iter().map(|group| {
        let gid = group.gid.to_string();
        setting("group", Path::new(SHM_GROUP), &gid, &group.why)
    }));
    let files = [sysctl(plan), tmpfiles(plan), limits(plan), grub(plan)];
    steps.extend(files.into_iter().flatten());
    steps.extend(plan.mounts.iter().map(fstab));
    steps.extend(units(plan));
    // Ids come from the last part of a path, which may occur twice.
    each_its_own(steps.iter_mut().map(|step| &mut step.id));
    steps
}

/// Returns the key of a line in a hugeleaf file. Two lines with one key set the same thing.
pub(super) fn key(path: &Path, line: &str) -> String {
    let words = || line.split_whitespace();
    let first = |n: usize| words().take(n).collect::<Vec<_>>().join(" ");
    match path.to_str() {
        Some(TMPFILES) => words().nth(1).unwrap_or(line).to_owned(),
        Some(LIMITS) => first(3),
        Some(GRUB) => words()
            .find(|word| word.starts_with("hugepagesz="))
            .unwrap_or(line)
            .to_owned(),
        _ => {
            let key = line.split_once('=').map_or(line, |(key, _)| key);
            key.trim().replace('/', ".")
        }
    }
}

/// True if a line of a hugeleaf file sets a pool of the plan, in any file.
pub(super) fn sets_pool(plan: &Plan, line: &str) -> bool {
    let of = |pool: &PoolPlan| {
        let is_default = plan.host.default_page == Some(pool.page);
        line.contains(&format!("/{}/nr_hugepages", size_folder(pool.page)))
            || line.contains(&format!("hugepagesz={} ", pool.page))
            || (is_default && line.starts_with("vm.nr_hugepages"))
    };
    plan.pools.iter().any(of)
}

fn restart(services: &[String]) -> FollowUp {
    match services {
        [] => FollowUp::Nothing,
        some => FollowUp::Restart(some.to_vec()),
    }
}

/// Returns the content of a hugeleaf file, including lines of earlier plans. `None` if the plan adds
/// nothing to it and removes nothing.
fn with_kept(plan: &Plan, path: &str, body: String) -> Option<String> {
    let kept = plan.kept.iter().find(|k| k.path == Path::new(path));
    let lines = kept.iter().flat_map(|k| &k.lines);
    let all = lines.fold(body, |mut body, line| {
        body.push_str(line);
        body.push('\n');
        body
    });
    (kept.is_some() || !all.is_empty()).then_some(all)
}

fn file(id: &str, path: &str, body: &str, why: &str, verify: &str) -> Step {
    let what = StepAction::File {
        text: format!("{OURS}\n{body}"),
        mode: READABLE,
    };
    Step::new(id, what, path, why, verify)
}

fn setting(id: impl Into<String>, path: &Path, value: &str, why: &str) -> Step {
    let what = StepAction::Knob {
        value: value.to_owned(),
    };
    Step::new(id, what, path, why, format!("cat {}", path.display()))
}

pub fn pool_path(pool: &PoolPlan) -> PathBuf {
    pool_file(pool.page, pool.node, "nr_hugepages").into()
}

fn pool(plan: &Plan, pool: &PoolPlan) -> Step {
    let path = pool_path(pool);
    let waiting: Vec<String> = plan
        .services
        .iter()
        .filter(|s| s.restart && pool.services.contains(&s.name))
        .map(|s| s.known_as().to_owned())
        .collect();
    let node = pool.node.map_or(String::new(), |n| format!("-node{n}"));
    let whom = match pool.services.is_empty() {
        true => "the maximum observed use".to_owned(),
        false => pool.services.join(", "),
    };
    let what = StepAction::Pool {
        size: pool.page,
        node: pool.node.unwrap_or(0),
        pages: pool.pages,
    };
    let pages = pages_text(PageCount::new(pool.page, pool.pages));
    let (id, why) = (
        format!("pool-{}{node}", pool.page),
        format!("{pages} for {whom}"),
    );
    let verify = format!("cat {}", path.display());
    Step::new(id, what, path, why, verify).needing(restart(&waiting))
}

/// Returns the last parts of a knob's path, as a short name.
fn knob_name(path: &Path) -> String {
    const TOLD_BY_PARENT: [&str; 2] = ["enabled", "shmem_enabled"];
    let text = path.to_string_lossy();
    if let Some(key) = text.strip_prefix("/proc/sys/") {
        return key.replace('/', ".");
    }
    let mut parts = text.rsplit('/');
    let name = parts.next().unwrap_or_default();
    let parent = parts.next().unwrap_or_default();
    let below_thp = parent == "transparent_hugepage";
    match (TOLD_BY_PARENT.contains(&name) && !below_thp) || text.starts_with("/sys/fs/cgroup") {
        true => format!("{parent}-{name}"),
        false => name.to_owned(),
    }
}

/// Returns the pages of one size over all nodes after a boot, if one number suffices. The kernel
/// spreads `vm.nr_hugepages` evenly, and the first nodes get the remainder.
fn as_one_number(plan: &Plan, size: PageSize) -> Option<Pages> {
    let pools: Vec<&PoolPlan> = plan.of_size(size).collect();
    let total: u64 = pools.iter().map(|p| p.lasting().get()).sum();
    let nodes = pools.len() as u64;
    let whole = pools.iter().all(|p| p.node.is_none()) || pools.len() == plan.host.nodes.len();
    let even = pools.iter().all(|p| {
        let each = total.checked_div(nodes).unwrap_or(0);
        p.lasting().get() == each || p.lasting().get() == each + 1
    });
    (whole && even && nodes > 0).then_some(Pages(total))
}

fn at_boot(plan: &Plan, size: PageSize) -> bool {
    let boot = plan.boot.as_ref();
    boot.is_some_and(|boot| boot.grub_drop_in && boot.pages.contains(&size))
}

/// Returns the pages of the default size for `sysctl.d`, if one number suffices.
fn in_sysctl(plan: &Plan, size: PageSize) -> Option<Pages> {
    let is_default = plan.host.default_page == Some(size);
    as_one_number(plan, size).filter(|_| is_default && !at_boot(plan, size))
}

fn sysctl(plan: &Plan) -> Option<Step> {
    let mut body = String::new();
    if let Some(size) = plan.host.default_page
        && let Some(pages) = in_sysctl(plan, size)
    {
        let _ = writeln!(body, "vm.nr_hugepages = {pages}");
    }
    if let Some(group) = &plan.group {
        let _ = writeln!(body, "vm.hugetlb_shm_group = {}", group.gid);
    }
    for knob in &plan.knobs {
        if let Ok(key) = knob.path.strip_prefix("/proc/sys") {
            let key = key.to_string_lossy();
            // A part with dots can be recognised only if slashes separate the others.
            let key = if key.contains('.') {
                key.into_owned()
            } else {
                key.replace('/', ".")
            };
            let _ = writeln!(body, "{key} = {}", knob.now);
        }
    }
    let body = with_kept(plan, SYSCTL, body)?;
    let why = "makes pools and settings permanent";
    let verify = format!("sysctl -p {SYSCTL}");
    Some(file("sysctl", SYSCTL, &body, why, &verify))
}

fn tmpfiles(plan: &Plan) -> Option<Step> {
    let mut body = String::new();
    for pool in &plan.pools {
        if in_sysctl(plan, pool.page).is_none() && !at_boot(plan, pool.page) {
            let path = pool_path(pool);
            let _ = writeln!(body, "w {} - - - - {}", path.display(), pool.lasting());
        }
    }
    for knob in &plan.knobs {
        let lasts = knob.path.starts_with("/sys") && !knob.path.starts_with("/sys/fs/cgroup");
        if lasts {
            let _ = writeln!(body, "w {} - - - - {}", knob.path.display(), knob.now);
        }
    }
    let body = with_kept(plan, TMPFILES, body)?;
    let why = "makes settings below /sys permanent";
    let verify = format!("systemd-tmpfiles --create {TMPFILES}");
    Some(file("tmpfiles", TMPFILES, &body, why, &verify))
}

fn limits(plan: &Plan) -> Option<Step> {
    let mut body = String::new();
    for limit in &plan.limits {
        // limits.conf(5) counts in units of 1024 bytes.
        let kib = limit.memlock.get().div_ceil(1024);
        for kind in ["soft", "hard"] {
            let _ = writeln!(body, "{} {kind} memlock {kib}", limit.user);
        }
    }
    let body = with_kept(plan, LIMITS, body)?;
    let user = plan.limits.first().map_or("USER", |first| &first.user);
    let why = "lets the users lock the memory of their segments";
    let verify = format!("su {user} -s /bin/sh -c 'ulimit -l'");
    Some(file("limits", LIMITS, &body, why, &verify).needing(FollowUp::Login))
}

fn options(mount: &Mount) -> String {
    let mut options = format!("pagesize={}", mount.page);
    if let Some(uid) = mount.uid {
        let _ = write!(options, ",uid={uid}");
    }
    if let Some(gid) = mount.gid {
        let _ = write!(options, ",gid={gid}");
    }
    let _ = write!(options, ",mode={:04o}", mount.mode);
    if let Some(size) = mount.size {
        let _ = write!(options, ",size={:#}", size);
    }
    options
}

fn path_name(path: &Path) -> String {
    path.to_string_lossy().trim_matches('/').replace('/', "-")
}

fn mount_steps(mount: &Mount) -> [Step; 2] {
    /// Nobody needs to see a mount point's directory before the mount.
    const CLOSED: u32 = 0o755;
    let name = path_name(&mount.path);
    let verify = format!("findmnt {}", mount.path.display());
    let (page, path) = (mount.page, &mount.path);
    let folder = StepAction::Folder { mode: CLOSED };
    let mounted = StepAction::Mount {
        options: options(mount),
    };
    let why_folder = format!("the mount point of a hugetlbfs with pages of {page}");
    let why = format!("files on pages of {page} for programs that need a path");
    [
        Step::new(format!("folder-{name}"), folder, path, why_folder, &verify),
        Step::new(format!("mount-{name}"), mounted, path, why, &verify),
    ]
}

/// One block per mount, so that a later plan replaces only its own.
fn fstab(mount: &Mount) -> Step {
    // nofail: a host without the pages still boots.
    let (path, options) = (mount.path.display(), options(mount));
    let id = format!("fstab-{}", path_name(&mount.path));
    let text = format!("hugetlbfs {path} hugetlbfs {options},nofail 0 0\n");
    let why = "mounts the hugetlbfs again after a reboot";
    Step::new(
        id,
        StepAction::Block { text },
        FSTAB,
        why,
        "findmnt --verify --fstab",
    )
}

/// Returns the kernel command line for the sizes of [`super::BootPools`], one text per size, by node if they
/// differ (Documentation/admin-guide/kernel-parameters.txt).
pub fn boot_arguments(plan: &Plan) -> Vec<String> {
    let sizes = plan.boot.iter().flat_map(|boot| &boot.pages);
    let arguments = sizes.map(|size| {
        let pools = plan.of_size(*size);
        let by_node: Vec<String> = pools
            .filter_map(|p| Some(format!("{}:{}", p.node?, p.lasting())))
            .collect();
        let count = match as_one_number(plan, *size) {
            Some(pages) => pages.to_string(),
            None => by_node.join(","),
        };
        format!("hugepagesz={size} hugepages={count}")
    });
    arguments.collect()
}

fn grub(plan: &Plan) -> Option<Step> {
    let boot = plan.boot.as_ref().filter(|boot| boot.grub_drop_in);
    let mut body = String::new();
    if boot.is_some() {
        for arguments in boot_arguments(plan) {
            let _ = writeln!(
                body,
                "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {arguments}\""
            );
        }
    }
    let body = with_kept(plan, GRUB, body)?;
    let sizes = list(boot.iter().flat_map(|boot| &boot.pages));
    let why = format!("pages of {sizes} are guaranteed only before memory is fragmented");
    let needs = FollowUp::Reboot {
        first: "update-grub".to_owned(),
    };
    Some(file("grub", GRUB, &body, &why, "cat /proc/cmdline").needing(needs))
}

fn units(plan: &Plan) -> impl Iterator<Item = Step> + '_ {
    plan.units.iter().map(|unit| {
        let mut body = "[Service]\n".to_owned();
        if let Some(memlock) = unit.memlock {
            let _ = writeln!(body, "LimitMEMLOCK={memlock:#}");
        }
        for variable in &unit.environment {
            let _ = writeln!(body, "Environment=\"{variable}\"");
        }
        if let Some(command) = &unit.exec_start {
            // The empty value clears the unit's own command, because systemd refuses two.
            let _ = writeln!(body, "ExecStart=\nExecStart={command}");
        }
        let path = format!("{UNITS}/{}.d/{UNIT_FILE}", unit.unit);
        let body = with_kept(plan, &path, body).unwrap_or_default();
        let verify = format!("systemctl cat '{}'", unit.unit);
        let id = format!("unit-{}", unit.unit);
        let needs = FollowUp::Restart(vec![unit.unit.clone()]);
        file(&id, &path, &body, &unit.why, &verify).needing(needs)
    })
}
