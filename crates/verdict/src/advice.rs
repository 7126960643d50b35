//! Commands that change the host. Each comes from a checked change, and no other code writes one (`tidy` searches for them).
//!
//! A [`SettingChange`] names the setting, its old and new value, its scope, and its risk. [`SettingChange::check`] refuses changes that
//! this host cannot provide or that a running program does not want, and turns the rest into a [`FeasibleChange`]. [`agree`]
//! compares all advice of one screen. Contradictory commands are not printed. [`AdvisedCommand`] joins commands, and nothing else
//! does: a comment would swallow the command behind it.

use hugeleaf_host::{Host, Pool, ThpMemoryKind, pool_file, thp_file};
use hugeleaf_units::{Bytes, Failure, PageSize, Pages};
use serde::Serialize;

use crate::commit_limit;
use crate::pool_programs::PoolProgram;
use crate::reservation;
use crate::shell_word;

pub use hugeleaf_host::{AcceptedValues, SettingRequirement};

/// A setting of a host: the kernel's file for it, or an object that a tool configures.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Setting {
    #[serde(rename = "setting")]
    path: String,
    #[serde(skip)]
    kind: SettingKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SettingKind {
    File,
    /// The pool of one size, on one node or in total.
    Pool(PageSize, Option<u32>),
    /// Options of the mount at the path.
    Mount,
    /// Groups of a user, by number.
    Groups,
    /// Offloads of a network device.
    Offloads,
    Governor,
    /// Files, or SysV segments, to delete.
    Files,
    Segments,
}

impl Setting {
    /// Names a setting by its sysctl(8) key, as in `vm.swappiness`.
    pub fn sysctl(key: &str) -> Setting {
        Setting::file(format!("{SYSCTL}{}", key.replace('.', "/")))
    }

    pub fn file(path: impl Into<String>) -> Setting {
        Setting::new(SettingKind::File, path)
    }

    /// Names a THP setting by its name below the THP directory, as in `enabled`.
    pub fn thp(name: &str) -> Setting {
        Setting::file(thp_file(name))
    }

    /// Names the number of pages of a pool.
    pub fn pool(size: PageSize, node: Option<u32>) -> Setting {
        let path = pool_file(size, node, "nr_hugepages");
        Setting::new(SettingKind::Pool(size, node), path)
    }

    pub fn mount(at: &str) -> Setting {
        Setting::new(SettingKind::Mount, at)
    }

    /// Names the groups of a user. The name must already be quoted for a shell.
    pub fn groups(user: &str) -> Setting {
        Setting::new(SettingKind::Groups, user)
    }

    pub fn offloads(device: &str) -> Setting {
        Setting::new(SettingKind::Offloads, device)
    }

    pub fn governor() -> Setting {
        Setting::new(SettingKind::Governor, "")
    }

    /// Names files to delete. The value is their list.
    pub fn files() -> Setting {
        Setting::new(SettingKind::Files, "")
    }

    pub fn segments() -> Setting {
        Setting::new(SettingKind::Segments, "")
    }

    fn new(kind: SettingKind, path: impl Into<String>) -> Setting {
        let path = path.into();
        Setting { path, kind }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the command that sets the value.
    fn command(&self, value: &str) -> String {
        let of = shell_word(&self.path);
        match self.kind {
            SettingKind::File | SettingKind::Pool(..) => {}
            SettingKind::Mount => return format!("mount -o remount,{value} {of}"),
            SettingKind::Groups => {
                let group = format!("\"$(getent group {value} | cut -d: -f1)\"");
                return format!("usermod -aG {group} {}", self.path);
            }
            SettingKind::Offloads => return format!("ethtool -K {of} {value}"),
            SettingKind::Governor => return format!("cpupower frequency-set -g {value}"),
            SettingKind::Files => return format!("rm -- {value}"),
            SettingKind::Segments => return format!("ipcrm {value}"),
        }
        let is_momentary = [COMPACT, DROP_CACHES].contains(&&*self.path);
        let value = shell_word(value);
        match self.path.strip_prefix(SYSCTL).filter(|_| !is_momentary) {
            Some(key) => format!("sysctl -w {}={value}", key.replace('/', ".")),
            // The kernel drops clean pages only.
            None if self.path == DROP_CACHES => format!("sync && echo {value} > {of}"),
            None => format!("echo {value} > {of}"),
        }
    }

    /// True if a container has its own instance of the setting.
    const fn is_of_container(&self) -> bool {
        matches!(
            self.kind,
            SettingKind::Groups | SettingKind::Files | SettingKind::Segments
        )
    }
}

const SYSCTL: &str = "/proc/sys/";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const COMPACT: &str = "/proc/sys/vm/compact_memory";

hugeleaf_units::named! {
    /// The reach of a change.
    pub enum ChangeScope {
        Host = "host",
        /// A cgroup and its descendants.
        Cgroup = "cgroup",
        /// A device or a mount.
        Device = "device",
    }
}

/// An unchecked change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SettingChange {
    #[serde(flatten)]
    setting: Setting,
    /// The current value, if known.
    from: Option<String>,
    to: String,
    scope: ChangeScope,
    /// The risk in a few words, if any.
    risk: Option<&'static str>,
    /// Free memory is compacted first.
    #[serde(skip)]
    compacts: bool,
    /// The value in force after the change, if known: a size may inherit it.
    #[serde(skip)]
    in_force: Option<String>,
}

/// A change that this host can provide without taking memory that others need. Only checks create one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct FeasibleChange(SettingChange);

/// A command of a screen, with the changes of the host that it makes. Without a command, it is a shell comment that begins
/// with `#`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdvisedCommand {
    pub command: String,
    /// Empty if the command changes no setting.
    pub changes: Vec<FeasibleChange>,
}

impl From<FeasibleChange> for AdvisedCommand {
    fn from(advice: FeasibleChange) -> AdvisedCommand {
        vec![advice].into()
    }
}

impl From<Vec<FeasibleChange>> for AdvisedCommand {
    fn from(changes: Vec<FeasibleChange>) -> AdvisedCommand {
        let commands: Vec<String> = changes.iter().map(FeasibleChange::command).collect();
        let command = commands.join(" && ");
        AdvisedCommand { command, changes }
    }
}

impl From<String> for AdvisedCommand {
    fn from(command: String) -> AdvisedCommand {
        let changes = Vec::new();
        AdvisedCommand { command, changes }
    }
}

impl From<&str> for AdvisedCommand {
    fn from(command: &str) -> AdvisedCommand {
        command.to_owned().into()
    }
}

/// Advised changes, or the alternative if a change is refused.
impl<T: Into<AdvisedCommand>> From<Result<T, Failure>> for AdvisedCommand {
    fn from(checked: Result<T, Failure>) -> AdvisedCommand {
        checked.map_or_else(|refused| refused.remedy.into(), T::into)
    }
}

impl AdvisedCommand {
    /// Adds a command that comes after this one. Behind a comment a shell would not see it, so the comment names it.
    #[must_use]
    pub fn then(self, command: &str) -> AdvisedCommand {
        let by = if self.has_comment() {
            "; then here: "
        } else {
            " && "
        };
        self.joined(by, command)
    }

    #[must_use]
    pub fn remark(self, text: &str) -> AdvisedCommand {
        let by = if self.has_comment() { "; " } else { "    # " };
        self.joined(by, text)
    }

    fn joined(self, by: &str, text: &str) -> AdvisedCommand {
        let command = format!("{}{by}{text}", self.command);
        AdvisedCommand { command, ..self }
    }

    fn has_comment(&self) -> bool {
        self.command.starts_with('#') || self.command.contains("    # ")
    }
}

/// Returns the command for several changes in their order, or the alternative if one of them is refused.
pub fn sequence(changes: impl IntoIterator<Item = SettingChange>, host: &Host) -> AdvisedCommand {
    let changes: Vec<SettingChange> = changes.into_iter().collect();
    let is_outside =
        |change: &SettingChange| is_of_this_host(change, host.is_in_container).is_err();
    if changes.iter().any(is_outside) {
        let commands = changes
            .iter()
            .map(|change| change.setting.command(&change.to));
        return on_the_host(&commands.collect::<Vec<_>>().join("; ")).into();
    }
    let checked = changes.into_iter().map(|change| change.check(host));
    let checked: Result<Vec<FeasibleChange>, Failure> = checked.collect();
    checked.into()
}

fn on_the_host(command: &str) -> String {
    format!("# on the host of this container: {command}")
}

/// The command for cases that one setting cannot decide, because a plan weighs the needs of all services.
pub const PLAN: &str = "hugeleaf plan --output plan.toml && hugeleaf apply plan.toml";

impl SettingChange {
    pub fn new(setting: Setting, to: impl ToString) -> SettingChange {
        SettingChange {
            setting,
            from: None,
            to: to.to_string(),
            scope: ChangeScope::Host,
            risk: None,
            compacts: false,
            in_force: None,
        }
    }

    pub fn from(self, from: impl ToString) -> SettingChange {
        let from = Some(from.to_string());
        SettingChange { from, ..self }
    }

    pub fn in_scope(self, scope: ChangeScope) -> SettingChange {
        SettingChange { scope, ..self }
    }

    pub fn at_risk(self, risk: &'static str) -> SettingChange {
        let risk = Some(risk);
        SettingChange { risk, ..self }
    }

    /// Returns the command if the change may be advised, otherwise the alternative.
    pub fn command(self, host: &Host) -> String {
        self.next(host).command
    }

    /// Returns the same as [`SettingChange::command`], with the change.
    pub fn next(self, host: &Host) -> AdvisedCommand {
        self.check(host).into()
    }

    pub fn compacting(self) -> SettingChange {
        SettingChange {
            compacts: true,
            ..self
        }
    }

    /// # Errors
    /// This host cannot provide it, it would leave too little memory for others, or a running program wants another value.
    pub fn check(self, host: &Host) -> Result<FeasibleChange, Failure> {
        provides(host, &self)?;
        is_wanted(host, &self)?;
        let in_force = in_force(host, &self.setting, &self.to).to_owned();
        let known = known_risk(&self.setting);
        Ok(FeasibleChange(SettingChange {
            risk: self.risk.or(known),
            in_force: Some(in_force),
            ..self
        }))
    }
}

/// Refuses a setting of the host inside a container.
fn is_of_this_host(change: &SettingChange, is_in_container: bool) -> Result<(), Failure> {
    if !is_in_container || change.setting.is_of_container() {
        return Ok(());
    }
    Err(Failure::missing(
        "this is a container, and the setting belongs to the host",
        on_the_host(&change.setting.command(&change.to)),
    ))
}

/// Refuses a change that the host cannot provide.
fn provides(host: &Host, change: &SettingChange) -> Result<(), Failure> {
    is_of_this_host(change, host.is_in_container)?;
    if (change.setting.path(), &*change.to) == (commit_limit::MODE, commit_limit::STRICT) {
        let instead = "hugeleaf check    # shows committed memory and the limit";
        let fits = commit_limit::strict(host).map(|_| ());
        return fits.map_err(|why| Failure::missing(why, instead));
    }
    let SettingKind::Pool(size, node) = change.setting.kind else {
        return Ok(());
    };
    let fits = match change.to.parse() {
        Ok(pages) => reservation::fits(host, size, node, Pages(pages)),
        Err(_) => Err(format!("'{}' is not a number of pages", change.to)),
    };
    fits.map_err(|why| Failure::missing(why, PLAN))
}

/// Returns the risk that each change of the setting has.
fn known_risk(setting: &Setting) -> Option<&'static str> {
    match (setting.path(), setting.kind) {
        (DROP_CACHES, _) => Some("programs read files from disk again"),
        (COMPACT, _) => Some("programs may stall meanwhile"),
        (_, SettingKind::Mount) => Some("affects every program that uses the mount"),
        (path, _) if path.starts_with(&thp_file("")) => Some("affects every program on this host"),
        _ => None,
    }
}

/// Refuses a value that a running program does not want.
fn is_wanted(host: &Host, change: &SettingChange) -> Result<(), Failure> {
    let Some(want) = unwanted(host, &change.setting, &change.to) else {
        return Ok(());
    };
    let (who, path) = (&want.who, change.setting.path());
    Err(Failure::missing(
        format!("{who} wants another value"),
        format!("hugeleaf check    # {who} wants another value of {path}"),
    ))
}

/// Returns the value in force after a change. A THP size may inherit the value for all sizes.
fn in_force<'v>(host: &'v Host, setting: &Setting, to: &'v str) -> &'v str {
    let top = host.thp.known().zip(thp_use(&setting.path));
    let top = top.and_then(|(thp, of)| thp.global_setting(of).text());
    top.filter(|_| to == INHERIT).unwrap_or(to)
}

const INHERIT: &str = "inherit";

/// Returns the kind of memory whose huge pages the file enables, for all sizes or for one.
fn thp_use(file: &str) -> Option<ThpMemoryKind> {
    let name = file.strip_prefix(&thp_file(""))?.rsplit('/').next();
    let mut all = [ThpMemoryKind::Private, ThpMemoryKind::Shared].into_iter();
    all.find(|of| name == Some(of.knob()))
}

impl FeasibleChange {
    /// Returns the command, ready to paste into a shell.
    pub fn command(&self) -> String {
        let command = self.0.setting.command(&self.0.to);
        match self.0.compacts {
            true => format!("echo 1 > {COMPACT}; {command}"),
            false => command,
        }
    }

    /// True if the commands set one setting to different values, or one grows and the other shrinks pools of one size.
    fn contradicts(&self, other: &FeasibleChange) -> bool {
        let grows = |advice: &FeasibleChange| {
            let number = |text: &str| text.parse::<u64>().ok();
            let from = advice.0.from.as_deref().and_then(number)?;
            Some(number(&advice.0.to)?.cmp(&from))
        };
        match (self.0.setting.kind, other.0.setting.kind) {
            _ if self.0.setting == other.0.setting => self.0.to != other.0.to,
            (SettingKind::Pool(one, _), SettingKind::Pool(two, _)) if one == two => {
                matches!((grows(self), grows(other)), (Some(a), Some(b)) if a == b.reverse() && a.is_ne())
            }
            _ => false,
        }
    }

    pub const fn setting(&self) -> &Setting {
        &self.0.setting
    }

    pub const fn scope(&self) -> ChangeScope {
        self.0.scope
    }

    pub const fn risk(&self) -> Option<&'static str> {
        self.0.risk
    }
}

/// Returns the risks of the changes that one command makes.
pub fn risks<'a>(changes: impl IntoIterator<Item = &'a FeasibleChange>) -> Option<String> {
    let mut all: Vec<&str> = changes
        .into_iter()
        .filter_map(FeasibleChange::risk)
        .collect();
    all.dedup();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Services that run commands at fixed times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootTaskRunner {
    Systemd,
    Cron,
    Unknown,
}

/// Returns the command that lets programs request huge pages for shared memory, at each boot.
pub fn shmem_at_boot(host: &Host, by: BootTaskRunner) -> AdvisedCommand {
    let change = SettingChange::new(Setting::thp("shmem_enabled"), "advise");
    let (path, to) = (change.setting.path.clone(), change.to.clone());
    let next = match change.check(host) {
        Ok(advice) => AdvisedCommand::from(advice),
        Err(refused) => return refused.remedy.into(),
    };
    let command = match by {
        BootTaskRunner::Systemd => {
            // Not the file of applied plans, which this would overwrite.
            format!("echo 'w {path} - - - - {to}' > /etc/tmpfiles.d/hugeleaf-shmem.conf")
        }
        BootTaskRunner::Cron => {
            let now = &next.command;
            format!("echo '@reboot root {now}' > /etc/cron.d/hugeleaf-shmem")
        }
        BootTaskRunner::Unknown => return next.remark("at boot, before the programs that use it"),
    };
    AdvisedCommand { command, ..next }
}

/// Returns the command that raises a cgroup's memory limit. Only processes of the cgroup are affected. The limit of a
/// container is set by its creator.
pub fn raised_limit(file: &str, limit: Bytes, is_in_container: bool) -> AdvisedCommand {
    let change = SettingChange::new(Setting::file(file), limit.get()).in_scope(ChangeScope::Cgroup);
    match is_of_this_host(&change, is_in_container) {
        Ok(()) => FeasibleChange(change).into(),
        Err(_) => format!("# start the container with a memory limit of {limit}").into(),
    }
}

/// Returns the change that compacts free memory into larger blocks.
pub fn compaction() -> SettingChange {
    SettingChange::new(Setting::file(COMPACT), 1)
}

/// Returns the change that drops the page cache, to free memory for compaction.
pub fn dropped_caches() -> SettingChange {
    SettingChange::new(Setting::file(DROP_CACHES), 1)
}

/// Returns the command for a pool whose number of pages only the user knows.
pub fn some_pages(host: &Host, size: PageSize) -> String {
    let all = host.pool(size).map_or(Pages(0), Pool::all);
    let existing = match all {
        Pages(0) => String::new(),
        all => format!("{all} and "),
    };
    let most = reservation::most_pages(host, size, None).ok();
    let most = most.map_or(String::new(), |most| format!(", {most} at most"));
    let change = SettingChange::new(Setting::pool(size, None), "N");
    let command = match is_of_this_host(&change, host.is_in_container) {
        Ok(()) => change.setting.command(&change.to),
        Err(refused) => refused.remedy,
    };
    let remark = format!("N: {existing}as many as the program needs{most}");
    AdvisedCommand::from(command).remark(&remark).command
}

/// Formats a pod's line for `bytes` on pages of a size, as in `hugepages-2Mi: 514Mi`.
pub fn pod_line(size: PageSize, bytes: Bytes) -> String {
    let mebibyte = Bytes::from_mib(1).get();
    let amount = match bytes.get() {
        n if n % mebibyte == 0 => format!("{}Mi", n / mebibyte),
        n => n.to_string(),
    };
    format!("hugepages-{size}i: {amount}")
}

/// Returns the remedy for a hugetlb limit of a program in a container. Its manager sets the limit, and refuses or overwrites
/// other values in the cgroup.
pub fn of_container(size: PageSize, needs: Option<Bytes>, program: &str) -> String {
    let off = PoolProgram::of(program).map_or(
        "servers that use none (PostgreSQL: huge_pages = off)",
        |program| program.off,
    );
    let line = needs.map_or_else(
        || format!("hugepages-{size}i"),
        |needs| pod_line(size, needs),
    );
    format!("# the pod's resources.limits: {line}; or {off}; then recreate the container")
}

/// Returns the remedy for a pod whose limits on pages of a size were set to 0. Its containers may have this much.
pub fn of_resized_pod(size: PageSize, given: Bytes) -> String {
    let line = pod_line(size, given);
    format!("# delete the pod, so that it is recreated with its resources.limits: {line}")
}

/// Compares the commands of one screen. Returns, in the same order, `None` for each printable command and otherwise the
/// reason. Two commands that set one setting to different values contradict each other. A command also contradicts a program
/// that wants another value.
pub fn agree(all: &[&FeasibleChange], wants: &[SettingRequirement]) -> Vec<Option<String>> {
    let against = |advice: &&FeasibleChange| {
        let other = all.iter().find(|other| other.contradicts(advice));
        let other = other.map(|_| "another finding here advises the opposite".to_owned());
        let to = advice.0.in_force.as_ref().unwrap_or(&advice.0.to);
        let want = want_against(advice.setting(), to, wants);
        other.or_else(|| want.map(|want| format!("{} wants another value", want.who)))
    };
    all.iter().map(against).collect()
}

/// Returns the reason of [`agree`] against each command of one screen, given the changes that it makes.
pub fn agree_commands(
    all: &[Vec<&FeasibleChange>],
    wants: &[SettingRequirement],
) -> Vec<Option<String>> {
    let mut against = agree(&all.concat(), wants).into_iter();
    let first = |changes: &Vec<&FeasibleChange>| {
        let reasons: Vec<_> = against.by_ref().take(changes.len()).collect();
        reasons.into_iter().flatten().next()
    };
    all.iter().map(first).collect()
}

/// Returns the want of a running program that contradicts a value of a setting.
pub fn unwanted<'a>(host: &'a Host, setting: &Setting, to: &str) -> Option<&'a SettingRequirement> {
    want_against(setting, in_force(host, setting, to), &host.wants)
}

/// Compares the value in force with the wants. A want for huge pages names the file in force of the full size, and holds for
/// the files of all sizes.
fn want_against<'a>(
    setting: &Setting,
    in_force: &str,
    wants: &'a [SettingRequirement],
) -> Option<&'a SettingRequirement> {
    let of = thp_use(&setting.path);
    let is_same = |want: &SettingRequirement| {
        want.file == setting.path || (of.is_some() && thp_use(&want.file) == of)
    };
    let is_file = setting.kind == SettingKind::File;
    let mut all = wants.iter().filter(|want| is_file && is_same(want));
    all.find(|want| !want.values.allows(in_force))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::testing::{healthy, size};
    use hugeleaf_host::Fact;
    use proptest::prelude::*;

    fn advice(change: SettingChange) -> FeasibleChange {
        change.check(&healthy()).unwrap()
    }

    #[test]
    fn a_command_says_how_the_setting_is_set() {
        let one = advice(SettingChange::new(Setting::sysctl("vm.swappiness"), 1));
        assert_eq!(one.command(), "sysctl -w vm.swappiness=1");
        let one = advice(SettingChange::new(Setting::thp("enabled"), "madvise"));
        assert_eq!(
            one.command(),
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        );
    }

    #[test]
    fn two_values_of_one_setting_contradict_each_other() {
        let overcommit = |n: u64| {
            advice(SettingChange::new(
                Setting::sysctl("vm.overcommit_memory"),
                n,
            ))
        };
        let (one, two) = (overcommit(1), overcommit(0));
        let other = advice(SettingChange::new(Setting::sysctl("vm.swappiness"), 1));
        let found = agree(&[&one, &other, &two, &one], &[]);
        let stands: Vec<bool> = found.iter().map(Option::is_none).collect();
        assert_eq!(stands, [false, true, false, false]);
        let want = SettingRequirement {
            who: "ClickHouse".to_owned(),
            file: "/proc/sys/vm/overcommit_memory".to_owned(),
            values: AcceptedValues::OneOf(vec!["0".to_owned()]),
        };
        assert!(agree(&[&one], std::slice::from_ref(&want))[0].is_some());
        assert!(agree(&[&two], &[want])[0].is_none());
    }

    #[test]
    fn programs_set_what_has_no_file() {
        let mut host = healthy();
        let commands = |host: &Host| {
            let settings = [
                (Setting::mount("/a b"), "relatime"),
                (Setting::offloads("eth0"), "tso on"),
                (Setting::governor(), "performance"),
                (Setting::groups("$(id -nu 7)"), "70"),
                (Setting::files(), "/dev/hugepages/a"),
                (Setting::segments(), "-m 7"),
            ];
            settings.map(|(setting, to)| SettingChange::new(setting, to).command(host))
        };
        let on_host = [
            "mount -o remount,relatime '/a b'",
            "ethtool -K eth0 tso on",
            "cpupower frequency-set -g performance",
            "usermod -aG \"$(getent group 70 | cut -d: -f1)\" $(id -nu 7)",
            "rm -- /dev/hugepages/a",
            "ipcrm -m 7",
        ];
        assert_eq!(commands(&host), on_host);
        let one = |to: &str| advice(SettingChange::new(Setting::mount("/data"), to));
        assert!(agree(&[&one("relatime"), &one("noatime")], &[])[0].is_some());
        host.is_in_container = true;
        for (inside, outside) in commands(&host).iter().zip(on_host).skip(3) {
            assert_eq!(inside, outside);
        }
        for inside in &commands(&host)[..3] {
            assert!(inside.starts_with("# on the host of this container: "));
        }
        let at_boot = shmem_at_boot(&host, BootTaskRunner::Cron).command;
        assert!(at_boot.starts_with("# on the host"));
    }

    #[test]
    fn a_container_changes_nothing_of_its_host() {
        let mut host = healthy();
        host.is_in_container = true;
        let refused = SettingChange::new(Setting::thp("enabled"), "madvise").check(&host);
        let instead = refused.unwrap_err().remedy;
        assert!(
            instead.starts_with("# on the host of this container: echo madvise > "),
            "{instead}"
        );
    }

    #[test]
    fn what_slows_a_host_down_states_its_risk() {
        let mount = SettingChange::new(Setting::mount("/dev/shm"), "huge=advise");
        for change in [compaction(), dropped_caches(), mount] {
            assert!(advice(change.clone()).risk().is_some(), "{change:?}");
        }
        let both = [advice(dropped_caches()), advice(compaction())];
        assert_eq!(
            risks(&both).unwrap(),
            "programs read files from disk again; programs may stall meanwhile"
        );
        let group = advice(SettingChange::new(Setting::groups("x"), 70));
        assert_eq!(risks([&group]), None);
    }

    proptest! {
        /// All printable pool commands together can be executed, regardless of their number. Each leaves as much memory as
        /// plans leave.
        #[test]
        fn what_may_be_printed_fits_and_agrees(
            pages in 0_u64..40_000,
            asked in proptest::collection::vec((0_u64..40_000, proptest::option::of(0_u32..2)), 1..6),
        ) {
            let mut host = healthy();
            host.pools[0].total = Fact::Known(Pages(pages));
            let used = size("2M").bytes() * pages + Bytes(8 << 30);
            host.memory.available = Fact::Known(host.memory.total.get().unwrap() - used);
            let change = |(to, node): (u64, Option<u32>)| {
                let from = match node {
                    None => pages,
                    Some(_) => 2048,
                };
                SettingChange::new(Setting::pool(size("2M"), node), to).from(from).check(&host).ok()
            };
            let advised: Vec<FeasibleChange> = asked.into_iter().filter_map(change).collect();
            let all: Vec<&FeasibleChange> = advised.iter().collect();
            let stands = agree(&all, &[]);
            let printed: Vec<&FeasibleChange> = all.iter().zip(&stands).filter(|(_, s)| s.is_none()).map(|(a, _)| *a).collect();
            for one in &printed {
                let own = if one.setting().path.contains("/node/") { 2048 } else { pages };
                let to: u64 = one.0.to.parse().unwrap();
                let grown = size("2M").bytes() * to.saturating_sub(own);
                let left = host.memory.available.get().unwrap() - grown;
                prop_assert!(grown.is_zero() || left >= Bytes(6 << 30), "{one:?} leaves {left}");
                prop_assert!(printed.iter().all(|other| !one.contradicts(other)));
            }
        }
    }

    #[test]
    fn a_pool_that_does_not_fit_is_no_advice() {
        let pool = |pages: u64| SettingChange::new(Setting::pool(size("2M"), None), pages);
        let host = healthy();
        assert!(pool(4096).check(&host).is_ok());
        let all = size("2M").pages_for(host.memory.total.get().unwrap());
        assert!(pool(all.get()).check(&host).is_err());
    }
}
