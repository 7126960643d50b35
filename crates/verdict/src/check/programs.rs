//! Settings that running programs want, from a data file with sources.

use hugeleaf_host::system::running_programs::{NAME_LENGTH, RunningProcess};
use hugeleaf_host::{Fact, Pid};
use serde::Deserialize;

use super::model::{
    CheckInput, CheckRow, CheckState, DocumentedRequirement, KnownProgram, ProgramRequirement,
    RunningProgram, SettingDemand,
};
use super::setting_lookup::{file, value};
use crate::advice;
use crate::list;

pub fn programs() -> Vec<KnownProgram> {
    #[derive(Deserialize)]
    struct ProgramsFile {
        program: Vec<KnownProgram>,
    }
    let source = include_str!("../../data/programs.toml");
    // The file is compiled in, and a test parses it.
    toml::from_str::<ProgramsFile>(source).map_or_else(|_| Vec::new(), |file| file.program)
}

/// Returns the packages of the program that a process may belong to; `None` for an unknown program.
pub fn packages<'a>(
    all: &'a [KnownProgram],
    name: &str,
    path: Option<&str>,
) -> Option<&'a [String]> {
    let program = all.iter().find(|program| program.is_named(name, path))?;
    Some(&program.packages)
}

/// Returns the programs of the processes, without those that another program starts as its parts.
pub fn servers(programs: &[KnownProgram], all: &[RunningProcess]) -> Vec<RunningProgram> {
    let of = |process: &RunningProcess| programs.iter().position(|program| program.is(process));
    let parent = |pid: Pid| all.iter().find(|process| process.pid == pid);
    let is_part = |process: &RunningProcess| {
        let parents = std::iter::successors(parent(process.parent), |next| parent(next.parent));
        // An exited process with a reused PID could make a cycle of parents.
        let mut owners = parents
            .take(all.len())
            .filter_map(|process| Some(&programs[of(process)?]));
        let is_it = |name: &String| fits(name, &process.name, process.executable.as_deref());
        owners.any(|owner| owner.starts.iter().any(is_it))
    };
    let mut servers: Vec<(usize, Vec<RunningProcess>)> = Vec::new();
    for process in all.iter().filter(|process| !is_part(process)) {
        let Some(at) = of(process) else { continue };
        match servers.iter_mut().find(|(known, _)| *known == at) {
            Some((_, processes)) => processes.push(process.clone()),
            None => servers.push((at, vec![process.clone()])),
        }
    }
    servers.sort_by_key(|(at, _)| *at);
    let server = |(at, processes): (usize, _)| RunningProgram {
        program: programs[at].clone(),
        processes,
    };
    servers.into_iter().map(server).collect()
}

/// True if a process with this `comm` and executable has the name. The kernel truncates `comm`.
fn fits(name: &str, comm: &str, path: Option<&str>) -> bool {
    let file = path.and_then(|path| path.rsplit('/').next());
    match name.strip_suffix('*') {
        Some(start) => comm.starts_with(start),
        None => comm == name.get(..NAME_LENGTH).unwrap_or(name) || file == Some(name),
    }
}

impl KnownProgram {
    fn is_named(&self, comm: &str, path: Option<&str>) -> bool {
        let is_there = |part: &String| path.is_some_and(|path| path.contains(part.as_str()));
        let is_named = self.names.iter().any(|name| fits(name, comm, path));
        is_named && self.path.as_ref().is_none_or(is_there)
    }

    fn is(&self, process: &RunningProcess) -> bool {
        let has = |part: &String| process.arguments.join(" ").contains(part.as_str());
        self.is_named(&process.name, process.executable.as_deref())
            && self.argument.as_ref().is_none_or(has)
    }
}

impl DocumentedRequirement {
    fn wanted(&self) -> advice::AcceptedValues {
        match (self.least, self.most) {
            (Some(least), _) => advice::AcceptedValues::AtLeast(least),
            (None, Some(most)) => advice::AcceptedValues::AtMost(most),
            (None, None) => advice::AcceptedValues::OneOf(self.values.clone()),
        }
    }

    /// True if the want covers this version and architecture; `None` if they are unknown.
    fn applies(&self, version: Option<u32>, arch: Option<&str>) -> Option<bool> {
        let is_of_arch = match (self.arch.is_empty(), arch) {
            (true, _) => Some(true),
            (false, arch) => arch.map(|arch| self.arch.iter().any(|one| one == arch)),
        };
        let is_of_version = match (self.since.is_some() || self.until.is_some(), version) {
            (false, _) => Some(true),
            (true, version) => version.map(|version| {
                self.since.is_none_or(|since| version >= since)
                    && self.until.is_none_or(|until| version <= until)
            }),
        };
        match (is_of_arch, is_of_version) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        }
    }

    /// Formats `up to 7`, `from 8 on x86_64, aarch64`.
    fn condition(&self) -> String {
        let version = match (self.since, self.until) {
            (Some(since), _) => format!(" from {since}"),
            (None, Some(until)) => format!(" up to {until}"),
            (None, None) => String::new(),
        };
        match self.arch.is_empty() {
            true => version,
            false => format!("{version} on {}", list(&self.arch)),
        }
    }
}

impl RunningProgram {
    /// Returns the oldest version of its processes, if all are known.
    fn version(&self) -> Option<u32> {
        let versions = self.processes.iter().map(|process| process.version);
        versions.collect::<Option<Vec<u32>>>()?.into_iter().min()
    }

    /// True if a setting affects any of its processes. THP does not affect processes that disabled it, swappiness does not without
    /// swap, and network settings do not in another network namespace.
    fn is_affected(&self, checked: &CheckInput<'_>, setting: &str) -> bool {
        let by = |process: &RunningProcess| match setting.split('.').next() {
            Some("thp") => process.thp_disabled != Fact::Known(true),
            Some("net") => process.shares_network != Fact::Known(false),
            _ => true,
        };
        let is_off = matches!(setting, "thp.defrag" | "thp.khugepaged/max_ptes_none")
            && value(checked, "thp.enabled").text() == Some("never");
        let swap = checked.host.memory.swap_total.get();
        let is_without_swap = setting == "vm.swappiness" && swap.is_some_and(|s| s.is_zero());
        self.processes.iter().any(by) && !is_off && !is_without_swap
    }
}

/// Returns the wants of running programs, selected by `applies`.
fn wants<'a>(
    checked: &CheckInput<'a>,
    setting: &str,
    applies: Option<bool>,
) -> Vec<(&'a RunningProgram, &'a DocumentedRequirement)> {
    let arch = checked.host.arch.text();
    let servers = checked.servers.known().into_iter().flatten();
    let affected = servers.filter(|server| server.is_affected(checked, setting));
    let of =
        |server: &'a RunningProgram| server.program.want.iter().map(move |want| (server, want));
    let asked = affected.flat_map(of).filter(|(server, want)| {
        want.setting == setting && want.applies(server.version(), arch) == applies
    });
    asked.collect()
}

/// Returns the demands of running programs on a setting, for judging and for listing.
pub(super) fn demands(
    checked: &CheckInput<'_>,
    setting: &str,
) -> (Vec<SettingDemand>, Vec<ProgramRequirement>) {
    let state = match setting.starts_with("thp.") {
        true => CheckState::Change,
        false => CheckState::Review,
    };
    let one = |(server, want): &(&RunningProgram, &DocumentedRequirement)| {
        let (title, wants) = (&server.program.title, want.wanted());
        let listed = ProgramRequirement {
            program: title.clone(),
            wants: wants.to_string(),
            source: want.source.clone(),
        };
        let why = format!("{title} wants {wants} ({})", want.source);
        (SettingDemand::own(wants, state, why), listed)
    };
    wants(checked, setting, Some(true)).iter().map(one).unzip()
}

/// Returns the wants for which it is unknown if they apply.
pub(super) fn undecided(checked: &CheckInput<'_>, setting: &str) -> Vec<SettingDemand> {
    let one = |(server, want): (&RunningProgram, &DocumentedRequirement)| {
        let (title, wants) = (&server.program.title, want.wanted());
        let why = format!(
            "{title}{} wants {wants} ({})",
            want.condition(),
            want.source
        );
        SettingDemand::own(wants, CheckState::Review, why)
    };
    let all = wants(checked, setting, None);
    all.into_iter().map(one).collect()
}

/// Returns all wants of running programs, including those for which it is unknown if they apply.
pub(super) fn all_wants(checked: &CheckInput<'_>) -> Vec<advice::SettingRequirement> {
    let arch = checked.host.arch.text();
    let servers = checked.servers.known().into_iter().flatten();
    let of = |server: &RunningProgram| {
        let applies = |want: &&DocumentedRequirement| {
            want.applies(server.version(), arch) != Some(false)
                && server.is_affected(checked, &want.setting)
        };
        let one = |want: &DocumentedRequirement| advice::SettingRequirement {
            who: server.program.title.clone(),
            file: file(checked, &want.setting),
            values: want.wanted(),
        };
        let wants = server.program.want.iter().filter(applies).map(one);
        wants.collect::<Vec<_>>()
    };
    servers.flat_map(of).collect()
}

/// Returns a program that would use pool pages, while all pools are empty.
pub(super) fn lacks_pool<'a>(checked: &CheckInput<'a>) -> Option<&'a RunningProgram> {
    let mut servers = checked.servers.known().into_iter().flatten();
    let has_pool = checked.host.totals().any(|pool| pool.gives_any());
    servers.find(|server| server.program.pool && !has_pool)
}

/// Returns a row per program with the settings that it wants otherwise. The rows of these settings have the advice.
pub(super) fn rows(checked: &CheckInput<'_>) -> Vec<CheckRow> {
    let servers = match checked.servers {
        Fact::Known(servers) => servers,
        other => {
            return vec![
                CheckRow::new("programs", "running programs").with_fact(other, |row, _| row),
            ];
        }
    };
    servers
        .iter()
        .map(|server| of_program(checked, server))
        .collect()
}

fn of_program(checked: &CheckInput<'_>, server: &RunningProgram) -> CheckRow {
    let (version, arch) = (server.version(), checked.host.arch.text());
    let wrong = server.program.want.iter().filter_map(|want| {
        let value = value(checked, &want.setting);
        let is_wrong = want.applies(version, arch) == Some(true)
            && server.is_affected(checked, &want.setting)
            && !want.wanted().allows(value.text()?);
        is_wrong.then_some(want.setting.as_str())
    });
    let wrong: Vec<&str> = wrong.collect();
    let known = version.map_or(String::new(), |version| format!(" {version}"));
    let row = CheckRow::new("program", format!("{}{known}", server.program.title));
    match wrong.is_empty() {
        true => row.with_value("all settings have the values that it wants"),
        false => CheckRow {
            state: CheckState::Review,
            ..row.with_value(format!("it wants other values of {}", wrong.join(", ")))
        },
    }
}
