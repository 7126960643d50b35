//! Determines what each step would change, and its obstacles. Read-only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::allowlist::is_plain;
use crate::{Step, StepAction, hidden_by_mount};
use hugeleaf_host::Root;
use hugeleaf_sys::{
    PathError, check_trusted, effective_gid, effective_uid, probe_folder, probe_write,
};

use super::error::Obstacle;
use super::outcome::StepState;
use super::path_state::{self, FileContent, PathState, below, fresh, missing_folders};
use super::{OWNED, config_block, setting_values};
use hugeleaf_host::process::proc_parsers::own_capabilities;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPreview {
    pub step: Step,
    pub before: PathState,
    pub wanted: PathState,
    /// One of `would-change`, `already` and `not-applicable`.
    pub state: StepState,
    /// Missing parent folders that would be created, outermost first, as the host names them.
    pub makes: Vec<PathBuf>,
}

/// Returns the changes of the steps in order. Each step is compared with the state that the earlier
/// ones would leave. Impossible steps are left out and returned as obstacles.
pub fn inspect(root: &Root, steps: &[Step]) -> (Vec<StepPreview>, Vec<Obstacle>) {
    let (mut all, mut obstacles) = (Vec::new(), Vec::new());
    let mut files = BTreeMap::new();
    for step in steps {
        match preview_step(root, step, &files) {
            Ok(looked) => {
                if matches!(
                    step.what,
                    StepAction::File { .. } | StepAction::Block { .. }
                ) {
                    files.insert(step.path.clone(), looked.wanted.clone());
                }
                all.push(looked);
            }
            Err(obstacle) => obstacles.push(obstacle),
        }
    }
    (all, obstacles)
}

/// Checks one step; `files` holds the files as earlier steps would leave them.
pub fn preview_step(
    root: &Root,
    step: &Step,
    files: &BTreeMap<PathBuf, PathState>,
) -> Result<StepPreview, Obstacle> {
    let rooted = step.path.strip_prefix("/").ok();
    if !step.path.is_absolute() || !is_plain(&step.path) || step.path.parent().is_none() {
        return Err(Obstacle::BadPath(step.path.clone()));
    }
    // A knob is written in place, which could leave half of a regular file.
    let is_knob = matches!(step.what, StepAction::Knob { .. } | StepAction::Pool { .. });
    let of_kernel = |path: &Path| path.starts_with("proc/sys") || path.starts_with("sys");
    if is_knob && !rooted.is_some_and(of_kernel) {
        return Err(Obstacle::NoKnob(step.path.clone()));
    }
    let known = files.get(&step.path);
    let (before, wanted) = match &step.what {
        StepAction::Knob { value } => knob_places(root, &step.path, value)?,
        StepAction::Pool { pages, .. } => pool_places(root, &step.path, pages.get())?,
        StepAction::File { text, mode } => file_places(root, &step.path, known, text, *mode)?,
        StepAction::Block { text } => block_places(root, step, known, text)?,
        StepAction::Folder { mode } => folder_places(root, &step.path, *mode)?,
        StepAction::Mount { options } => mount_places(root, &step.path, options)?,
    };
    let state = match &before {
        _ if is_of_systemd(&step.path) && !has_systemd(root) => StepState::NotApplicable,
        before if before.is_like(&wanted) => StepState::Already,
        _ => StepState::WouldChange,
    };
    let makes = match (&step.what, state, below(root, &step.path).parent()) {
        (
            StepAction::File { .. } | StepAction::Block { .. } | StepAction::Folder { .. },
            StepState::WouldChange,
            Some(folder),
        ) => {
            let folders = missing_folders(folder);
            let real_root = root.path("");
            let named =
                |path: &PathBuf| Path::new("/").join(path.strip_prefix(&real_root).unwrap_or(path));
            folders.iter().map(named).collect()
        }
        _ => Vec::new(),
    };
    Ok(StepPreview {
        step: step.clone(),
        before,
        wanted,
        state,
        makes,
    })
}

/// Systemd runs if this folder exists, by sd_booted(3).
pub fn has_systemd(root: &Root) -> bool {
    root.path("run/systemd/system").is_dir()
}

/// True for settings of units, which have no effect without systemd.
fn is_of_systemd(path: &Path) -> bool {
    path.starts_with("/etc/systemd")
}

fn knob_places(root: &Root, path: &Path, value: &str) -> Result<(PathState, PathState), Obstacle> {
    let text = path_state::read_knob(&below(root, path)).map_err(Obstacle::Denied)?;
    let text = text.ok_or_else(|| Obstacle::Missing(path.to_owned()))?;
    let choices = setting_values::choices(&text);
    if !choices.is_empty() && !choices.contains(&value) {
        return Err(Obstacle::NoChoice {
            path: path.to_owned(),
            value: value.to_owned(),
            choices: choices.into_iter().map(str::to_owned).collect(),
        });
    }
    let of = |value: &str| PathState::Value {
        value: value.to_owned(),
    };
    Ok((of(setting_values::value(&text)), of(value)))
}

fn pool_places(root: &Root, path: &Path, pages: u64) -> Result<(PathState, PathState), Obstacle> {
    let before = path_state::read_pool(&below(root, path)).map_err(Obstacle::Denied)?;
    let before = before.ok_or_else(|| Obstacle::Missing(path.to_owned()))?;
    Ok((before, PathState::Pool { pages, surplus: 0 }))
}

fn file_places(
    root: &Root,
    path: &Path,
    known: Option<&PathState>,
    text: &str,
    mode: u32,
) -> Result<(PathState, PathState), Obstacle> {
    if !text.starts_with(OWNED) {
        return Err(Obstacle::NotMarked(path.to_owned()));
    }
    let before = match known {
        Some(place) => place.clone(),
        None => path_state::read_file(&below(root, path)).map_err(Obstacle::Denied)?,
    };
    let meta = match &before {
        PathState::Absent => fresh(mode),
        PathState::File { content, .. } if content.0.starts_with(OWNED.as_bytes()) => {
            before.as_file().map_or(fresh(mode), |(_, meta)| meta)
        }
        PathState::File { .. } => return Err(Obstacle::Foreign(path.to_owned())),
        other => return Err(in_the_way(path, other)),
    };
    let wanted = PathState::file(FileContent::from(text), &meta);
    Ok((before, wanted))
}

fn block_places(
    root: &Root,
    step: &Step,
    known: Option<&PathState>,
    text: &str,
) -> Result<(PathState, PathState), Obstacle> {
    let before = match known {
        Some(place) => place.clone(),
        None => {
            path_state::read_file(&real_path(root, &step.path, true)).map_err(Obstacle::Denied)?
        }
    };
    let (content, meta) = match (before.as_file(), &before) {
        (Some((content, meta)), _) => (content.0.clone(), meta),
        (None, PathState::Absent) => (Vec::new(), fresh(0o644)),
        (None, other) => return Err(in_the_way(&step.path, other)),
    };
    let with = config_block::put(&content, &step.id, text).map_err(|broken| Obstacle::Broken {
        path: step.path.clone(),
        broken,
    })?;
    let wanted = PathState::file(FileContent(with), &meta);
    Ok((before, wanted))
}

/// Returns the real path of a step. Links to the file of a block are followed, because a rename would
/// replace the link.
pub fn real_path(root: &Root, path: &Path, is_block: bool) -> PathBuf {
    let path = below(root, path);
    match is_block {
        true => std::fs::canonicalize(&path).unwrap_or(path),
        false => path,
    }
}

fn in_the_way(path: &Path, found: &PathState) -> Obstacle {
    let found = match found {
        PathState::Folder { .. } => "a folder",
        PathState::File { .. } => "a file",
        _ => return Obstacle::Special(path.to_owned()),
    };
    Obstacle::WrongKind {
        path: path.to_owned(),
        found,
    }
}

fn folder_places(root: &Root, path: &Path, mode: u32) -> Result<(PathState, PathState), Obstacle> {
    let before = path_state::read_file(&below(root, path)).map_err(Obstacle::Denied)?;
    if !matches!(before, PathState::Absent | PathState::Folder { .. }) {
        return Err(in_the_way(path, &before));
    }
    let (uid, gid) = (effective_uid(), effective_gid());
    Ok((before, PathState::Folder { mode, uid, gid }))
}

fn mount_places(
    root: &Root,
    path: &Path,
    options: &str,
) -> Result<(PathState, PathState), Obstacle> {
    let before = path_state::read_mount(root, path);
    let wanted = PathState::Mount {
        options: options.to_owned(),
    };
    let found = match &before {
        PathState::OtherMount { kind } => kind.clone(),
        PathState::Mount { options } if !before.is_like(&wanted) => {
            format!("hugetlbfs ({options})")
        }
        PathState::Mount { .. } => return Ok((before, wanted)),
        _ => return mount_point(root, path).map(|()| (before, wanted)),
    };
    Err(Obstacle::OtherMount {
        path: path.to_owned(),
        found,
    })
}

/// Checks a mount point. It must hide nothing that the host needs, must not be a link, and must be
/// empty or not exist.
pub fn mount_point(root: &Root, path: &Path) -> Result<(), Obstacle> {
    let no = |why: String| Obstacle::NoMountPoint {
        path: path.to_owned(),
        why,
    };
    if let Some(why) = hidden_by_mount(path) {
        return Err(no(why));
    }
    let real = below(root, path);
    let there = real.ancestors().find(|at| at.symlink_metadata().is_ok());
    let there = there.unwrap_or(Path::new("/"));
    // On a captured host only paths below its own root are its own.
    let above = root.path("").canonicalize();
    let is_itself = match (there.canonicalize(), above) {
        (Ok(found), Ok(above)) => {
            let expected = there.strip_prefix(root.path("")).unwrap_or(there);
            found == above.join(expected)
        }
        _ => false,
    };
    if !is_itself {
        return Err(no(format!("{} is a link to another path", there.display())));
    }
    // The mount is repeated at each boot, at a place that a replaced link would choose.
    let above = real.ancestors().skip(1).find(|at| at.exists());
    above.map_or(Ok(()), |folder| check_trusted(folder).map_err(others))?;
    #[expect(clippy::disallowed_methods, reason = "reads what a step changes")]
    let is_empty = std::fs::read_dir(&real).is_ok_and(|mut all| all.next().is_none());
    match real.exists() && !is_empty {
        true => Err(Obstacle::NotEmpty(path.to_owned())),
        false => Ok(()),
    }
}

/// Checks that the changing steps could be made now, as far as this is possible without making them.
pub fn probe(root: &Root, looked: &[StepPreview]) -> Vec<Obstacle> {
    let changing = looked.iter().filter(|l| l.state == StepState::WouldChange);
    changing.filter_map(|l| probe_one(root, l).err()).collect()
}

fn probe_one(root: &Root, looked: &StepPreview) -> Result<(), Obstacle> {
    let is_block = matches!(looked.step.what, StepAction::Block { .. });
    let path = real_path(root, &looked.step.path, is_block);
    match (&looked.step.what, &looked.before) {
        (StepAction::Knob { .. } | StepAction::Pool { .. }, _) => {
            probe_write(&path).map_err(Obstacle::Denied)
        }
        (StepAction::Mount { .. }, _) if !may_mount(root) => {
            Err(Obstacle::MayNotMount(looked.step.path.clone()))
        }
        (StepAction::Mount { .. }, _) => Ok(()),
        (_, PathState::File { .. }) if path.exists() => {
            probe_write(&path).map_err(Obstacle::Denied)?;
            check_trusted(&path).map_err(others)?;
            probe_above(&path)
        }
        _ => probe_above(&path),
    }
}

fn probe_above(path: &Path) -> Result<(), Obstacle> {
    let above = path.ancestors().skip(1).find(|at| at.exists());
    above.map_or(Ok(()), |folder| {
        probe_folder(folder).map_err(Obstacle::Denied)?;
        check_trusted(folder).map_err(others)
    })
}

fn others(error: PathError) -> Obstacle {
    match error {
        PathError::Call(error) => Obstacle::Denied(error),
        other => Obstacle::Others(other),
    }
}

/// True if this process has CAP_SYS_ADMIN. If that cannot be read, the call will report it.
fn may_mount(root: &Root) -> bool {
    const CAP_SYS_ADMIN: u32 = 21; // include/uapi/linux/capability.h
    own_capabilities(root).is_none_or(|set| set >> CAP_SYS_ADMIN & 1 == 1)
}

/// A setting that the kernel recalculates when THP is switched on or off, unless it was set by hand.
pub const SIDE_EFFECTS: &str = "proc/sys/vm/min_free_kbytes";

/// Returns the value that the kernel may change along with this knob.
pub fn side_effect_of(root: &Root, path: &Path) -> Option<String> {
    let is_thp = path.starts_with(Path::new("/").join("sys/kernel/mm/transparent_hugepage"));
    let text = is_thp.then(|| root.read(SIDE_EFFECTS))?;
    text.known().map(|value| value.trim().to_owned())
}
