//! An arm: pages, a setting, a binary, a command.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use hugeleaf_host::Host;
use hugeleaf_units::PageKind;
use hugeleaf_workload::{AskedPages, PageArm};

use crate::bench::{BenchContext, under_run};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkloadArm {
    pub name: String,
    /// Its pages; `None` for the program's own.
    pub pages: Option<ArmPageSource>,
    pub set: Vec<(String, String)>,
    pub environment: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmPageSource {
    /// A size and kind, provided by `hugeleaf run`; base pages by disabling THP.
    Asked(AskedPages),
    /// The default of `hugeleaf run`.
    Run,
    Promoted,
}

impl FromStr for ArmPageSource {
    type Err = String;

    fn from_str(text: &str) -> Result<ArmPageSource, String> {
        match text {
            "run" => Ok(ArmPageSource::Run),
            "promoted" => Ok(ArmPageSource::Promoted),
            _ => {
                let asked = text.parse().map(ArmPageSource::Asked);
                asked.map_err(|e| format!("{e}, run or promoted"))
            }
        }
    }
}

impl ArmPageSource {
    pub fn label(self, host: &Host) -> String {
        match self {
            ArmPageSource::Asked(asked) => PageArm::resolve(asked, host).to_string(),
            ArmPageSource::Run => "run".to_owned(),
            ArmPageSource::Promoted => "promoted".to_owned(),
        }
    }

    /// Returns the name by which a file rules these pages out.
    pub(super) fn kind(self, host: &Host) -> &'static str {
        match self {
            ArmPageSource::Run => "run",
            ArmPageSource::Promoted => "promoted",
            ArmPageSource::Asked(asked) => PageArm::resolve(asked, host).kind.name(),
        }
    }

    /// Returns the required size and kind; `None` if any huge page will do.
    pub(super) fn required_pages(self, host: &Host) -> Option<PageArm> {
        match self {
            ArmPageSource::Asked(asked) => Some(PageArm::resolve(asked, host)),
            ArmPageSource::Run | ArmPageSource::Promoted => None,
        }
    }

    pub(super) fn is_base(self, host: &Host) -> bool {
        self.required_pages(host)
            .is_some_and(|arm| arm.kind == PageKind::Base)
    }

    pub(super) fn start_with(self, machine: &BenchContext<'_>) -> Vec<OsString> {
        match (self, self.required_pages(machine.host)) {
            (ArmPageSource::Run, _) => under_run(machine.program, &[]),
            (_, Some(arm)) if arm.kind != PageKind::Base => {
                let ladder = arm.to_string();
                under_run(machine.program, &["--data", &ladder, "--shm", &ladder])
            }
            _ => Vec::new(),
        }
    }
}

impl FromStr for WorkloadArm {
    type Err = String;

    /// Parses `NAME=KEY=VALUE`, with a variable of the workload, `pages`, or `env.NAME` as key.
    fn from_str(text: &str) -> Result<WorkloadArm, String> {
        let wrong =
            || format!("'{text}' is not NAME=KEY=VALUE, as in new=server=/opt/new/bin/server");
        let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (key, value) = rest.split_once('=').ok_or_else(wrong)?;
        if name.is_empty() || key.is_empty() {
            return Err(wrong());
        }
        let mut arm = WorkloadArm {
            name: name.to_owned(),
            ..WorkloadArm::default()
        };
        match (key, key.strip_prefix("env.")) {
            ("pages", _) => arm.pages = Some(value.parse()?),
            (_, Some(variable)) => arm
                .environment
                .push((variable.to_owned(), value.to_owned())),
            _ => arm.set.push((key.to_owned(), value.to_owned())),
        }
        Ok(arm)
    }
}

impl fmt::Display for WorkloadArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Joins arms of the same name, in order of first occurrence.
pub fn merged(parts: impl IntoIterator<Item = WorkloadArm>) -> Vec<WorkloadArm> {
    let mut all: Vec<WorkloadArm> = Vec::new();
    for part in parts {
        match all.iter_mut().find(|arm| arm.name == part.name) {
            Some(arm) => {
                arm.pages = part.pages.or(arm.pages);
                arm.set.extend(part.set);
                arm.environment.extend(part.environment);
            }
            None => all.push(part),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_may_be_a_setting_a_binary_or_pages() {
        let parts = [
            "old=server=/a b=c",
            "new=server=/d",
            "new=pages=promoted",
            "new=env.X=1",
        ];
        let arms = merged(parts.map(|part| part.parse().unwrap()));
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(arms.len(), 2);
        assert_eq!(arms[0].set, [pair("server", "/a b=c")]);
        assert_eq!(
            (arms[1].pages, arms[1].set.len()),
            (Some(ArmPageSource::Promoted), 1)
        );
        assert_eq!(arms[1].environment, [pair("X", "1")]);
        for text in ["", "old", "old=x", "=x=y", "a==y", "a=pages=large"] {
            assert!(text.parse::<WorkloadArm>().is_err(), "{text}");
        }
    }
}
