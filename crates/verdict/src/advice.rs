//! Commands that change the host: each is made of a change that was checked, and no other code writes one
//! (`tidy` looks for them).
//!
//! A [`Change`] names the setting, its value and the value that it gets, how far it reaches, and what it risks.
//! [`Change::check`] refuses what this host cannot provide, and makes an [`Advice`] of the rest. [`agree`] looks at all
//! that is on one screen, and at what running programs want: of two commands that contradict each other, none is printed.

use hugeleaf_host::{Host, pool_file, thp_file};
use hugeleaf_units::{PageSize, Pages};
use serde::Serialize;

use crate::findings::shell_word;
use crate::plan::room;

/// A setting of a host: the file that the kernel shows it in.
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

    pub fn path(&self) -> &str {
        &self.path
    }

    /// The command that gives it a value.
    fn command(&self, value: &str) -> String {
        match self.path.strip_prefix(SYSCTL) {
            Some(key) => format!("sysctl -w {}={}", key.replace('/', "."), shell_word(value)),
            None => format!("echo {} > {}", shell_word(value), shell_word(&self.path)),
        }
    }
}

const SYSCTL: &str = "/proc/sys/";

hugeleaf_units::named! {
    /// How far a change reaches.
    pub enum Scope {
        Host = "host",
        /// A cgroup and all below it.
        Cgroup = "cgroup",
        /// A device or a mount.
        Device = "device",
    }
}

/// A change that nobody has checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub setting: Setting,
    /// The value now, where it is known.
    pub from: Option<String>,
    pub to: String,
    pub scope: Scope,
    /// What it may harm, in a few words; nothing where it harms nobody.
    pub risk: Option<&'static str>,
}

/// A change that this host can provide, and that leaves memory for others. Only [`Change::check`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    #[serde(flatten)]
    setting: Setting,
    from: Option<String>,
    to: String,
    scope: Scope,
    risk: Option<&'static str>,
}

/// Why a change is not advised, in a sentence without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub why: String,
}

impl Change {
    pub fn new(setting: Setting, to: impl ToString) -> Change {
        Change {
            setting,
            from: None,
            to: to.to_string(),
            scope: Scope::Host,
            risk: None,
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

    /// # Errors
    /// Where this host cannot provide it, or where it would leave too little for others.
    pub fn check(self, host: &Host) -> Result<Advice, Refused> {
        provides(host, &self)?;
        let Change {
            setting,
            from,
            to,
            scope,
            risk,
        } = self;
        Ok(Advice {
            setting,
            from,
            to,
            scope,
            risk,
        })
    }
}

/// What a host does not have, or does not have enough of.
fn provides(host: &Host, change: &Change) -> Result<(), Refused> {
    match change.setting.kind {
        Kind::Pool(size, node) => {
            let pages = change.to.parse().map_err(|_| Refused {
                why: format!("'{}' is no number of pages", change.to),
            })?;
            room::fits(host, size, node, Pages(pages)).map_err(|why| Refused { why })
        }
        Kind::File => Ok(()),
    }
}

impl Advice {
    /// The command, to be pasted into a shell.
    pub fn command(&self) -> String {
        self.setting.command(&self.to)
    }

    pub const fn setting(&self) -> &Setting {
        &self.setting
    }

    pub const fn risk(&self) -> Option<&'static str> {
        self.risk
    }
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
    fn allows(&self, value: &str) -> bool {
        let number = value.parse::<u64>().ok();
        match self {
            Wanted::OneOf(values) => values.iter().any(|v| v == value),
            Wanted::AtMost(most) => number.is_some_and(|n| n <= *most),
            Wanted::AtLeast(least) => number.is_some_and(|n| n >= *least),
        }
    }
}

/// Which of the commands of one screen may stand: in the same order, nothing for one that may, and otherwise why not.
/// Two that give one setting different values contradict each other, and so do a command and a program that wants
/// something else.
pub fn agree(all: &[&Advice], wants: &[Want]) -> Vec<Option<String>> {
    let against = |advice: &&Advice| {
        let same = |setting: &Setting| *setting == advice.setting;
        let others = all.iter();
        let other = others
            .into_iter()
            .find(|o| same(&o.setting) && o.to != advice.to);
        let other = other.map(|o| format!("{} is advised as well", o.command()));
        let mut wants = wants.iter().filter(|want| same(&want.setting));
        let want = wants.find(|want| !want.values.allows(&advice.to));
        other.or_else(|| want.map(|want| format!("{} wants it otherwise", want.who)))
    };
    all.iter().map(against).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::testing::{healthy, size};

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
        let (one, two) = (overcommit(1), overcommit(2));
        let other = advice(Change::new(Setting::sysctl("vm.swappiness"), 1));
        let found = agree(&[&one, &other, &two, &one], &[]);
        let stands: Vec<bool> = found.iter().map(Option::is_none).collect();
        assert_eq!(stands, [false, true, false, false]);
        let want = Want {
            who: "PostgreSQL".to_owned(),
            setting: Setting::sysctl("vm.overcommit_memory"),
            values: Wanted::OneOf(vec!["2".to_owned()]),
        };
        assert!(agree(&[&one], std::slice::from_ref(&want))[0].is_some());
        assert!(agree(&[&two], &[want])[0].is_none());
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
