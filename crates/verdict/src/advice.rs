//! Commands that change the host: each is made of a change that was checked, and no other code writes one
//! (`tidy` looks for them).
//!
//! A [`Change`] names the setting, its value and the value that it gets, how far it reaches, and what it risks.
//! [`Change::check`] refuses what this host cannot provide, and makes an [`Advice`] of the rest. [`agree`] looks at all
//! that is on one screen, and at what running programs want: of two commands that contradict each other, none is printed.

use hugeleaf_host::{Host, Pool, pool_file, thp_file};
use hugeleaf_units::{Bytes, PageSize, Pages};
use serde::Serialize;

use crate::asking::Asking;
use crate::overcommit;
use crate::plan::room;
use crate::shell_word;

/// A setting of a host: the file that the kernel shows it in, or what a program of the host sets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Setting {
    #[serde(rename = "setting")]
    path: String,
    #[serde(skip)]
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    File,
    /// The pool of one size, of one node or of all.
    Pool(PageSize, Option<u32>),
    /// Options of the mount at the path.
    Mount,
    /// Groups of a user, each by its number.
    Groups,
    /// Offloads of a network device.
    Offloads,
    Governor,
    /// Files, or SysV segments, to be removed.
    Files,
    Segments,
}

impl Setting {
    /// By the key that sysctl(8) knows, as in `vm.swappiness`.
    pub fn sysctl(key: &str) -> Setting {
        Setting::file(format!("{SYSCTL}{}", key.replace('.', "/")))
    }

    /// By its file.
    pub fn file(path: impl Into<String>) -> Setting {
        let (path, kind) = (path.into(), Kind::File);
        Setting { path, kind }
    }

    /// By its name below the folder of THP's settings, as in `enabled`.
    pub fn thp(name: &str) -> Setting {
        Setting::file(thp_file(name))
    }

    /// The number of pages of a pool.
    pub fn pool(size: PageSize, node: Option<u32>) -> Setting {
        Setting {
            path: pool_file(size, node, "nr_hugepages"),
            kind: Kind::Pool(size, node),
        }
    }

    /// Options of the mount at a folder.
    pub fn mount(at: &str) -> Setting {
        Setting::of(Kind::Mount, at)
    }

    /// The groups of a user, who is a word of a shell.
    pub fn groups(user: &str) -> Setting {
        Setting::of(Kind::Groups, user)
    }

    pub fn offloads(device: &str) -> Setting {
        Setting::of(Kind::Offloads, device)
    }

    pub fn governor() -> Setting {
        Setting::of(Kind::Governor, "")
    }

    /// Files that are to be removed: their value is the list of them.
    pub fn files() -> Setting {
        Setting::of(Kind::Files, "")
    }

    /// SysV segments that are to be removed.
    pub fn segments() -> Setting {
        Setting::of(Kind::Segments, "")
    }

    fn of(kind: Kind, path: &str) -> Setting {
        let path = path.to_owned();
        Setting { path, kind }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// The command that gives it a value.
    fn command(&self, value: &str) -> String {
        let of = shell_word(&self.path);
        match self.kind {
            Kind::File | Kind::Pool(..) => {}
            Kind::Mount => return format!("mount -o remount,{value} {of}"),
            Kind::Groups => {
                let group = format!("\"$(getent group {value} | cut -d: -f1)\"");
                return format!("usermod -aG {group} {}", self.path);
            }
            Kind::Offloads => return format!("ethtool -K {of} {value}"),
            Kind::Governor => return format!("cpupower frequency-set -g {value}"),
            Kind::Files => return format!("rm -- {value}"),
            Kind::Segments => return format!("ipcrm {value}"),
        }
        let is_momentary = [COMPACT, DROP_CACHES].contains(&&*self.path);
        match self.path.strip_prefix(SYSCTL).filter(|_| !is_momentary) {
            Some(key) => format!("sysctl -w {}={}", key.replace('/', "."), shell_word(value)),
            None => format!("echo {} > {of}", shell_word(value)),
        }
    }

    /// True if a container has it of its own.
    const fn is_of_container(&self) -> bool {
        matches!(self.kind, Kind::Groups | Kind::Files | Kind::Segments)
    }
}

const SYSCTL: &str = "/proc/sys/";
pub const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const COMPACT: &str = "/proc/sys/vm/compact_memory";

hugeleaf_units::named! {
    /// The reach of a change.
    pub enum Scope {
        Host = "host",
        /// A cgroup and all below it.
        Cgroup = "cgroup",
        /// A device or a mount.
        Device = "device",
    }
}

/// A change that is not checked yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    #[serde(flatten)]
    setting: Setting,
    /// The value now, where it is known.
    from: Option<String>,
    to: String,
    scope: Scope,
    /// The risk in a few words; nothing where there is none.
    risk: Option<&'static str>,
    /// Memory is joined first.
    #[serde(skip)]
    compacts: bool,
}

/// A change that this host can provide, and that leaves memory for others. Only [`Change::check`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Advice(Change);

/// Why a change is not advised, in a sentence without its end, and what to do instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub why: String,
    pub instead: String,
}

/// The command that decides where one setting alone cannot: a plan weighs the needs of all services.
pub const PLAN: &str = "hugeleaf plan --output plan.toml && hugeleaf apply plan.toml";

impl Change {
    pub fn new(setting: Setting, to: impl ToString) -> Change {
        Change {
            setting,
            from: None,
            to: to.to_string(),
            scope: Scope::Host,
            risk: None,
            compacts: false,
        }
    }

    pub fn from(self, from: impl ToString) -> Change {
        let from = Some(from.to_string());
        Change { from, ..self }
    }

    pub fn in_scope(self, scope: Scope) -> Change {
        Change { scope, ..self }
    }

    pub fn at_risk(self, risk: &'static str) -> Change {
        let risk = Some(risk);
        Change { risk, ..self }
    }

    /// The command where it may be advised, otherwise what to do instead.
    pub fn command(self, host: &Host) -> String {
        match self.check(host) {
            Ok(advice) => advice.command(),
            Err(refused) => refused.instead,
        }
    }

    /// Joins free memory first.
    pub fn compacting(self) -> Change {
        Change {
            compacts: true,
            ..self
        }
    }

    /// # Errors
    /// This host cannot provide it, or it would leave too little for others.
    pub fn check(self, host: &Host) -> Result<Advice, Refused> {
        provides(host, &self)?;
        let is_thp = self.setting.path.starts_with(&thp_file(""));
        let for_all = is_thp.then_some("it changes what every program on this host gets");
        Ok(Advice(Change {
            risk: self.risk.or(for_all),
            ..self
        }))
    }
}

/// Refuses a change that the host cannot provide.
fn provides(host: &Host, change: &Change) -> Result<(), Refused> {
    let command = change.setting.command(&change.to);
    if host.is_in_container && !change.setting.is_of_container() {
        return Err(Refused {
            why: "this is a container, and the setting is the host's".to_owned(),
            instead: format!("# on the host of this container: {command}"),
        });
    }
    if (change.setting.path(), &*change.to) == (overcommit::MODE, overcommit::STRICT) {
        let instead = "hugeleaf check    # what else is committed, and the limit".to_owned();
        return overcommit::strict(host)
            .map(|_| ())
            .map_err(|why| Refused { why, instead });
    }
    let Kind::Pool(size, node) = change.setting.kind else {
        return Ok(());
    };
    let fits = match change.to.parse() {
        Ok(pages) => room::fits(host, size, node, Pages(pages)),
        Err(_) => Err(format!("'{}' is no number of pages", change.to)),
    };
    let instead = PLAN.to_owned();
    fits.map_err(|why| Refused { why, instead })
}

impl Advice {
    /// The command, to be pasted into a shell.
    pub fn command(&self) -> String {
        let command = self.0.setting.command(&self.0.to);
        match self.0.compacts {
            true => format!("echo 1 > {COMPACT}; {command}"),
            false => command,
        }
    }

    /// Two commands contradict each other where they give one setting different values, or where one takes pages of a size
    /// into pools and the other gives some back.
    fn contradicts(&self, other: &Advice) -> bool {
        let grows = |advice: &Advice| {
            let number = |text: &str| text.parse::<u64>().ok();
            let from = advice.0.from.as_deref().and_then(number)?;
            Some(number(&advice.0.to)?.cmp(&from))
        };
        match (self.0.setting.kind, other.0.setting.kind) {
            _ if self.0.setting == other.0.setting => self.0.to != other.0.to,
            (Kind::Pool(one, _), Kind::Pool(two, _)) if one == two => {
                matches!((grows(self), grows(other)), (Some(a), Some(b)) if a == b.reverse() && a.is_ne())
            }
            _ => false,
        }
    }

    pub const fn setting(&self) -> &Setting {
        &self.0.setting
    }

    pub const fn risk(&self) -> Option<&'static str> {
        self.0.risk
    }
}

/// Services that start programs at fixed times on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    Systemd,
    Cron,
    Unknown,
}

/// Lets programs that ask for it have shared memory on huge pages, at each start of the host.
pub fn shmem_at_boot(host: &Host, by: Scheduler) -> String {
    let change = Change::new(Setting::thp("shmem_enabled"), "advise");
    let (path, to) = (change.setting.path.clone(), change.to.clone());
    let command = match change.check(host) {
        Ok(advice) => advice.command(),
        Err(refused) => return refused.instead,
    };
    match by {
        Scheduler::Systemd => {
            format!("echo 'w {path} - - - - {to}' > /etc/tmpfiles.d/hugeleaf.conf")
        }
        Scheduler::Cron => format!("echo '@reboot root {command}' > /etc/cron.d/hugeleaf-shmem"),
        Scheduler::Unknown => format!("{command}    # at boot, before what maps it starts"),
    }
}

/// A cgroup's limit on memory with another value: only processes of the cgroup are affected.
pub fn raised_limit(file: &str, limit: u64) -> String {
    Setting::file(file).command(&limit.to_string())
}

/// Joins free memory, so that larger blocks are there.
pub fn compact(host: &Host) -> String {
    Change::new(Setting::file(COMPACT), 1).command(host)
}

/// A pool with as many pages as the reader knows that a program needs.
pub fn some_pages(host: &Host, size: PageSize) -> String {
    let all = host.pool(size).map_or(Pages(0), Pool::all);
    let existing = match all {
        Pages(0) => String::new(),
        all => format!("{all} and "),
    };
    let most = room::most_pages(host, size, None).ok();
    let most = most.map_or(String::new(), |most| format!(", {most} at most"));
    let command = Setting::pool(size, None).command("N");
    format!("{command}    # N: {existing}as many as the program needs{most}")
}

/// A pod's line for so many bytes on pages of a size, as in `hugepages-2Mi: 514Mi`.
pub fn pod_line(size: PageSize, bytes: Bytes) -> String {
    let mebibyte = Bytes::from_mib(1).get();
    let amount = match bytes.get() {
        n if n % mebibyte == 0 => format!("{}Mi", n / mebibyte),
        n => n.to_string(),
    };
    format!("hugepages-{size}i: {amount}")
}

/// The way past a limit on pages of a pool for a program in a container: its manager sets the limit, and refuses or
/// overwrites what others write into the cgroup.
pub fn of_container(size: PageSize, needs: Option<Bytes>, program: &str) -> String {
    let off = Asking::of(program).map_or(
        "servers that take none (PostgreSQL: huge_pages = off)",
        |program| program.off,
    );
    let line = needs.map_or_else(
        || format!("hugepages-{size}i"),
        |needs| pod_line(size, needs),
    );
    format!("# the pod's resources.limits: {line}; or {off}; then start the container anew")
}

/// A setting that a running program wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The program, as the screen names it.
    pub who: String,
    pub setting: Setting,
    pub values: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// One of these, the best first.
    OneOf(Vec<String>),
    AtMost(u64),
    AtLeast(u64),
}

impl Wanted {
    /// The values at its edges: where several agree on any, they agree on one of these.
    pub(crate) fn edges(&self) -> Vec<String> {
        match self {
            Wanted::OneOf(values) => values.clone(),
            Wanted::AtLeast(edge) | Wanted::AtMost(edge) => vec![edge.to_string()],
        }
    }

    pub(crate) fn allows(&self, value: &str) -> bool {
        let number = value.parse::<u64>().ok();
        match self {
            Wanted::OneOf(values) => values.iter().any(|v| v == value),
            Wanted::AtMost(most) => number.is_some_and(|n| n <= *most),
            Wanted::AtLeast(least) => number.is_some_and(|n| n >= *least),
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::OneOf(values) => f.write_str(&values.join(" or ")),
            Wanted::AtLeast(least) => write!(f, "at least {least}"),
            Wanted::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

/// Judges the commands of one screen together: in the same order, nothing for one that may be printed, otherwise the reason.
/// Two that give one setting different values contradict each other, and so do a command and a program that wants
/// something else.
pub fn agree(all: &[&Advice], wants: &[Want]) -> Vec<Option<String>> {
    let against = |advice: &&Advice| {
        let other = all.iter().find(|other| other.contradicts(advice));
        let other = other.map(|_| "other findings here ask for the opposite".to_owned());
        let want = unwanted(advice.setting(), &advice.0.to, wants);
        other.or_else(|| want.map(|want| format!("{} wants it otherwise", want.who)))
    };
    all.iter().map(against).collect()
}

/// Returns the want of a running program that a value of a setting contradicts.
pub fn unwanted<'a>(setting: &Setting, to: &str, wants: &'a [Want]) -> Option<&'a Want> {
    let against = |want: &&Want| want.setting == *setting && !want.values.allows(to);
    wants.iter().find(against)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::testing::{healthy, size};
    use hugeleaf_host::Fact;
    use proptest::prelude::*;

    fn advice(change: Change) -> Advice {
        change.check(&healthy()).unwrap()
    }

    #[test]
    fn a_command_says_how_the_setting_is_set() {
        let one = advice(Change::new(Setting::sysctl("vm.swappiness"), 1));
        assert_eq!(one.command(), "sysctl -w vm.swappiness=1");
        let one = advice(Change::new(Setting::thp("enabled"), "madvise"));
        assert_eq!(
            one.command(),
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        );
    }

    #[test]
    fn two_values_of_one_setting_contradict_each_other() {
        let overcommit = |n: u64| advice(Change::new(Setting::sysctl("vm.overcommit_memory"), n));
        let (one, two) = (overcommit(1), overcommit(0));
        let other = advice(Change::new(Setting::sysctl("vm.swappiness"), 1));
        let found = agree(&[&one, &other, &two, &one], &[]);
        let stands: Vec<bool> = found.iter().map(Option::is_none).collect();
        assert_eq!(stands, [false, true, false, false]);
        let want = Want {
            who: "ClickHouse".to_owned(),
            setting: Setting::sysctl("vm.overcommit_memory"),
            values: Wanted::OneOf(vec!["0".to_owned()]),
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
            settings.map(|(setting, to)| Change::new(setting, to).command(host))
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
        let one = |to: &str| advice(Change::new(Setting::mount("/data"), to));
        assert!(agree(&[&one("relatime"), &one("noatime")], &[])[0].is_some());
        host.is_in_container = true;
        for (inside, outside) in commands(&host).iter().zip(on_host).skip(3) {
            assert_eq!(inside, outside);
        }
        for inside in &commands(&host)[..3] {
            assert!(inside.starts_with("# on the host of this container: "));
        }
        assert!(shmem_at_boot(&host, Scheduler::Cron).starts_with("# on the host"));
    }

    #[test]
    fn a_container_changes_nothing_of_its_host() {
        let mut host = healthy();
        host.is_in_container = true;
        let refused = Change::new(Setting::thp("enabled"), "madvise").check(&host);
        let instead = refused.unwrap_err().instead;
        assert!(
            instead.starts_with("# on the host of this container: echo madvise > "),
            "{instead}"
        );
    }

    proptest! {
        /// However many commands there are for pools: those that may be printed can all be followed, and each leaves
        /// as much memory as plans leave.
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
                Change::new(Setting::pool(size("2M"), node), to).from(from).check(&host).ok()
            };
            let advised: Vec<Advice> = asked.into_iter().filter_map(change).collect();
            let all: Vec<&Advice> = advised.iter().collect();
            let stands = agree(&all, &[]);
            let printed: Vec<&Advice> = all.iter().zip(&stands).filter(|(_, s)| s.is_none()).map(|(a, _)| *a).collect();
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
        let pool = |pages: u64| Change::new(Setting::pool(size("2M"), None), pages);
        let host = healthy();
        assert!(pool(4096).check(&host).is_ok());
        let all = size("2M").pages_for(host.memory.total.get().unwrap());
        assert!(pool(all.get()).check(&host).is_err());
    }
}
