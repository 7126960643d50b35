//! Brings a place into its wanted state, both for a step and for its undo.

use std::path::{Path, PathBuf};

use hugeleaf_sys::{
    Errno, FileMeta, HostChange, Kernel, SysError, draft_beside, is_draft_of, metadata_at,
};

use super::outcome::StepState;
use super::path_state::{self, PathState, below};
use super::preview::real_path;
use super::{ChangeContext, set_pool_size, setting_values};

#[derive(Debug, Clone, Copy)]
pub struct PathChange<'a> {
    pub path: &'a Path,
    pub now: &'a PathState,
    pub target: &'a PathState,
    /// True for a block in a file that belongs to others: links are followed.
    pub is_block: bool,
    pub drop_caches: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepResult {
    pub after: PathState,
    /// One of `done`, `short`, `in-use` and `differs`.
    pub state: StepState,
    pub attempts: u32,
}

/// Makes the change, and reads back the result.
///
/// # Errors
/// Those of the kernel and of reading back. The place then has its old or its new content, never half
/// of a file.
pub fn execute(
    context: &mut ChangeContext<'_>,
    change: PathChange<'_>,
) -> Result<StepResult, SysError> {
    let path = real_path(context.root, change.path, change.is_block);
    match (change.now, change.target) {
        (_, PathState::Pool { pages, .. }) => return make_pool(context, &path, *pages, change),
        (_, PathState::Value { value }) => {
            context.kernel.change(HostChange::Write(&path, value))?
        }
        (PathState::Folder { .. }, PathState::Absent) => {
            context.kernel.change(HostChange::RemoveFolder(&path))?;
            sync_above(context.kernel, &path)?;
        }
        (_, PathState::Absent) => {
            context.kernel.change(HostChange::Remove(&path))?;
            sync_above(context.kernel, &path)?;
        }
        (_, PathState::Folder { mode, uid, gid }) => {
            context
                .kernel
                .change(HostChange::MakeFolder(&path, *mode, Some((*uid, *gid))))?;
            sync_above(context.kernel, &path)?;
        }
        (_, PathState::Mount { options }) => {
            context.kernel.change(HostChange::Mount(&path, options))?
        }
        (PathState::Mount { .. }, PathState::NoMount) => {
            context.kernel.change(HostChange::Unmount(&path))?
        }
        (_, PathState::File { .. }) => {
            if let Some((content, look)) = change.target.as_file() {
                replace(context, &path, &content.0, &look)?;
            }
        }
        _ => {
            let shown = path.display().to_string();
            return Err(SysError::new("change", shown, Errno::INVAL));
        }
    }
    let after = read_again(context, change.path, change.target, &path)?;
    let state = match after.is_like(change.target) {
        true => StepState::Done,
        false => StepState::Differs,
    };
    Ok(StepResult {
        after,
        state,
        attempts: 1,
    })
}

fn make_pool(
    context: &mut ChangeContext<'_>,
    path: &Path,
    wanted: u64,
    change: PathChange<'_>,
) -> Result<StepResult, SysError> {
    let got = set_pool_size::set(context, path, wanted, change.drop_caches)?;
    let had_surplus = matches!(change.now, PathState::Pool { surplus, .. } if *surplus > 0);
    let state = match got.pages {
        pages if pages < wanted => StepState::Short,
        pages if pages > wanted => StepState::Differs,
        _ if got.surplus > 0 && !had_surplus => StepState::InUse,
        _ => StepState::Done,
    };
    Ok(StepResult {
        after: PathState::Pool {
            pages: got.pages,
            surplus: got.surplus,
        },
        state,
        attempts: got.attempts,
    })
}

/// Reads the current state of a place of the same kind as `like`.
///
/// # Errors
/// Those of reading it; ENOENT for a knob or pool that is gone.
pub fn read_again(
    context: &ChangeContext<'_>,
    path: &Path,
    like: &PathState,
    real: &Path,
) -> Result<PathState, SysError> {
    let gone = || SysError::new("read", real.display().to_string(), Errno::NOENT);
    match like {
        PathState::Value { .. } => {
            let text = path_state::read_knob(real)?.ok_or_else(gone)?;
            let value = setting_values::value(&text).to_owned();
            Ok(PathState::Value { value })
        }
        PathState::Pool { .. } => path_state::read_pool(real)?.ok_or_else(gone),
        PathState::Mount { .. } | PathState::NoMount | PathState::OtherMount { .. } => {
            Ok(path_state::read_mount(context.root, path))
        }
        _ => path_state::read_file(real),
    }
}

/// Replaces or creates a file atomically. The new content is first written next to it under a random
/// name.
fn replace(
    context: &mut ChangeContext<'_>,
    path: &Path,
    content: &[u8],
    look: &FileMeta,
) -> Result<(), SysError> {
    remove_drafts(context, path)?;
    let draft = draft_beside(path);
    let made = context
        .kernel
        .change(HostChange::Create(&draft, content, look))
        .and_then(|()| context.kernel.change(HostChange::Rename(&draft, path)));
    if let Err(error) = made {
        // Report the first error; undo looks for the draft again.
        let _ = remove_drafts(context, path);
        return Err(error);
    }
    sync_above(context.kernel, path)
}

pub fn remove_drafts(context: &mut ChangeContext<'_>, path: &Path) -> Result<(), SysError> {
    let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    #[expect(clippy::disallowed_methods, reason = "reads what a step changes")]
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(path_state::unreadable(folder, &e)),
    };
    for entry in entries.flatten() {
        if is_draft_of(&entry.file_name(), file) {
            context.kernel.change(HostChange::Remove(&entry.path()))?;
        }
    }
    Ok(())
}

fn sync_above(kernel: &Kernel, path: &Path) -> Result<(), SysError> {
    match path.parent() {
        Some(folder) => kernel.change(HostChange::SyncFolder(folder)),
        None => Ok(()),
    }
}

/// Creates folders that everybody may read, outermost first, and syncs them to disk.
pub fn make_folders(kernel: &Kernel, folders: &[PathBuf]) -> Result<(), SysError> {
    for folder in folders {
        match kernel.change(HostChange::MakeFolder(folder, 0o755, None)) {
            Err(e) if e.errno == Errno::EXIST => {}
            other => other?,
        }
        sync_above(kernel, folder)?;
    }
    Ok(())
}

/// Removes folders that a step had created, innermost first. Returns those that are not empty, because
/// others have put files there.
pub fn remove_above(
    context: &mut ChangeContext<'_>,
    folders: &[PathBuf],
) -> Result<Vec<PathBuf>, SysError> {
    let mut kept = Vec::new();
    for folder in folders.iter().rev() {
        let real = below(context.root, folder);
        if metadata_at(&real)?.is_none() {
            continue;
        }
        match context.kernel.change(HostChange::RemoveFolder(&real)) {
            Ok(()) => sync_above(context.kernel, &real)?,
            Err(e) if matches!(e.errno, Errno::NOTEMPTY | Errno::EXIST) => {
                kept.push(folder.clone());
            }
            Err(e) => return Err(e),
        }
    }
    Ok(kept)
}
