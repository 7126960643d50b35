//! Keeps lines of earlier plans in hugeleaf's files, so that a plan for one service does not remove
//! settings of another one.

use std::path::{Path, PathBuf};

use hugeleaf_host::Host;
use hugeleaf_units::Failure;

use super::allowlist::is_line;
use super::managed_files::{FILES, OURS};
use super::model::{KeptLines, Plan};
use super::plan_steps::{key, sets_pool, steps};
use super::step::StepAction;

/// Completes a plan with facts of the host on which it is applied.
///
/// A plan without a default page size would set its pool at boot by tmpfiles.d alone, and leave the number of an earlier plan
/// in sysctl.d. A plan for several hosts cannot name the lines that earlier plans left on each.
///
/// # Errors
/// As [`keep`].
pub fn complete(
    plan: &mut Plan,
    host: &Host,
    read: impl Fn(&Path) -> Option<String>,
) -> Result<(), Failure> {
    let default = host.memory.default_hugetlb_page.get();
    plan.host.default_page = plan.host.default_page.or(default);
    let is_for_several = plan.host.id.is_none() && plan.host.name.is_none();
    if is_for_several {
        keep(plan, read)
    } else {
        Ok(())
    }
}

/// Keeps the lines of hugeleaf's files that the plan does not set. `read` returns the text of a
/// file, if it exists.
///
/// # Errors
/// A line that no plan writes. A user added it to hugeleaf's file, and it would be lost.
pub fn keep(plan: &mut Plan, read: impl Fn(&Path) -> Option<String>) -> Result<(), Failure> {
    plan.kept.clear();
    let written = steps(plan);
    let of_units = written.iter().map(|step| step.path.clone());
    let mut paths: Vec<PathBuf> = FILES.iter().map(PathBuf::from).collect();
    paths.extend(of_units.filter(|path| path.starts_with("/etc/systemd")));
    for path in paths {
        let Some(text) = read(&path).filter(|text| text.starts_with(OURS)) else {
            continue;
        };
        let new = written.iter().find_map(|step| match &step.what {
            StepAction::File { text, .. } if step.path == path => Some(text.as_str()),
            _ => None,
        });
        let keys: Vec<String> = new
            .unwrap_or_default()
            .lines()
            .map(|line| key(&path, line))
            .collect();
        let (kept, dropped): (Vec<&str>, Vec<&str>) = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
            .partition(|line| !keys.contains(&key(&path, line)) && !sets_pool(plan, line));
        // Write an otherwise unchanged file only if the plan adds to it.
        if new.is_none() && dropped.is_empty() {
            continue;
        }
        if let Some(line) = kept.iter().find(|line| !is_line(&path, line)) {
            let (path, line) = (path.display(), hugeleaf_verdict::clean(line));
            return Err(Failure::missing(
                format!("{path}: no plan wrote the line '{line}', but hugeleaf owns this file"),
                format!("move that line to another file: $EDITOR {path}"),
            ));
        }
        plan.kept.push(KeptLines {
            path,
            lines: kept.into_iter().map(str::to_owned).collect(),
        });
    }
    plan.kept.retain(|kept| {
        let is_written = written.iter().any(|step| step.path == kept.path);
        !kept.lines.is_empty() || !is_written
    });
    Ok(())
}
