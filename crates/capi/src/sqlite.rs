//! `hl_sqlite_…`: SQLite's page cache, one for all connections and databases of the process.
#![allow(unsafe_code)]
//! # Safety
//! The functions in the options are SQLite's, with the types of sqlite3.h; the header says so to whoever calls.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use hugeleaf::Bytes;
use hugeleaf_sqlite::{Api, InstallError, Installed, install};

use super::call::{self, Failure, Options, guard};
use super::{hl_error, hl_status};

/// A function of whatever type; its own one is known where it is called.
pub type hl_function = Option<unsafe extern "C" fn()>;

/// What is asked for. Zero all of it, then set the rest but `most_bytes`. In C:
/// `hl_sqlite_options o = { .size = sizeof o, .target_bytes = …, .ladder = "2M", .config = (hl_function)sqlite3_config, … };`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hl_sqlite_options {
    /// `sizeof(hl_sqlite_options)`.
    pub size: usize,
    /// All databases together hold no more than this, in bytes.
    pub target_bytes: u64,
    /// The largest target that can be set later; 0 for twice the target.
    pub most_bytes: u64,
    /// The page sizes to try, from large to small, as in `hl_region_options`.
    pub ladder: *const c_char,
    /// `sqlite3_config`.
    pub config: hl_function,
    /// `sqlite3_vfs_find`.
    pub vfs_find: hl_function,
    /// `sqlite3_vfs_register`.
    pub vfs_register: hl_function,
}

// SAFETY: integers, raw pointers and optional functions, in an order that leaves no gaps, the size first.
unsafe impl Options for hl_sqlite_options {}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// The functions in the options.
fn api(given: &hl_sqlite_options) -> Result<Api, Failure> {
    let address = |function: hl_function, name: &str| match function {
        Some(function) => Ok(function as *const c_void),
        None => Err(Failure::invalid(
            format!("{name} is NULL"),
            format!("set it to (hl_function)sqlite3_{name}"),
        )),
    };
    let config = address(given.config, "config")?;
    let vfs_find = address(given.vfs_find, "vfs_find")?;
    let vfs_register = address(given.vfs_register, "vfs_register")?;
    // SAFETY: by the header these are SQLite's functions.
    let api = unsafe { Api::at(config, vfs_find, vfs_register) };
    api.ok_or_else(|| Failure::invalid("a function is NULL", "see hugeleaf.h"))
}

fn failure(error: InstallError) -> Failure {
    let text = error.to_string();
    let (text, next) = text.split_once(": ").unwrap_or((&text, "see the guide"));
    match error {
        InstallError::Elastic(error) => error.into(),
        InstallError::TooSmall { .. } => Failure::invalid(text, next),
        InstallError::Thread(_) => Failure::new(hl_status::HL_SYSTEM, text, next),
        _ => Failure::invalid(text, next),
    }
}

/// Gives SQLite one page cache for all connections and databases of this process, on the pages of the ladder, and divides it
/// among databases by what each gains. Once a process, before SQLite is first used; it initialises SQLite. It stays
/// until the process ends. Any thread.
///
/// Errors: `HL_INVALID`, also where SQLite was used before or has got a cache here already; `HL_TOO_LARGE`,
/// `HL_SHORT`, `HL_NO_SUCH_SIZE`, `HL_SYSTEM`, `HL_UNREADABLE`. SQLite keeps its own cache then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_sqlite_install(
    options: *const hl_sqlite_options,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    guard(error, || {
        // SAFETY: the caller's, as the header says.
        let given = unsafe { call::options_of(options) }?;
        // SAFETY: as above.
        let ladder = unsafe { call::ladder_of(given.ladder) }?;
        let mut options = hugeleaf_sqlite::Options::new(Bytes(given.target_bytes), ladder);
        if given.most_bytes != 0 {
            options.most = Bytes(given.most_bytes);
        }
        let installed = install(&api(&given)?, &options).map_err(failure)?;
        let _ = INSTALLED.set(installed);
        Ok(())
    })
}

/// Sets how much all databases together may hold, in bytes, up to `most_bytes` of the options. What is above it is taken
/// from them within seconds. Any thread.
///
/// Errors: `HL_INVALID` where there is no such cache, and above `most_bytes`.
#[unsafe(no_mangle)]
pub extern "C" fn hl_sqlite_set_target(
    target_bytes: u64,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    guard(error, || {
        let installed = INSTALLED.get().ok_or_else(|| {
            Failure::invalid(
                "SQLite has no cache of ours",
                "call hl_sqlite_install first",
            )
        })?;
        match installed.set_target(Bytes(target_bytes)) {
            Some(set) => Ok(set.map(drop)?),
            None => Ok(()),
        }
    })
}

/// How much all databases together hold now, in bytes; 0 where there is no such cache. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn hl_sqlite_held() -> u64 {
    INSTALLED
        .get()
        .map_or(0, |installed| installed.held().0.get())
}
