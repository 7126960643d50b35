//! `hl_sqlite_…`: one SQLite page cache for all connections and databases of the process.
#![allow(unsafe_code)]
//! # Safety
//! The functions in the options are SQLite's, with the types of sqlite3.h; the header requires that.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use hugeleaf::Bytes;
use hugeleaf_sqlite::{Api, InstallError, Installed, install};

use super::call::{self, CallFailure, SizedOptions, guard};
use super::{hl_error, hl_status};

/// A function of any type; the library casts it to its actual type before a call.
pub type hl_function = Option<unsafe extern "C" fn()>;

/// Options of `hl_sqlite_install`. Zero all of it, then set all fields; `most_bytes` may stay 0. In C:
/// `hl_sqlite_options o = { .size = sizeof o, .target_bytes = …, .ladder = "2M", .config = (hl_function)sqlite3_config, … };`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct hl_sqlite_options {
    /// `sizeof(hl_sqlite_options)`.
    pub size: usize,
    /// Limit for all databases together, in bytes.
    pub target_bytes: u64,
    /// Maximum target that can be set later, in bytes; 0 for twice the target.
    pub most_bytes: u64,
    /// Page sizes to try, from largest to smallest, as in `hl_region_options`.
    pub ladder: *const c_char,
    /// `sqlite3_config`.
    pub config: hl_function,
    /// `sqlite3_vfs_find`.
    pub vfs_find: hl_function,
    /// `sqlite3_vfs_register`.
    pub vfs_register: hl_function,
}

// SAFETY: integers, raw pointers and optional functions, in an order that leaves no gaps, the size first.
unsafe impl SizedOptions for hl_sqlite_options {}

static INSTALLED: OnceLock<Installed> = OnceLock::new();

/// Returns the functions in the options.
fn api(given: &hl_sqlite_options) -> Result<Api, CallFailure> {
    let address = |function: hl_function, name: &str| match function {
        Some(function) => Ok(function as *const c_void),
        None => Err(CallFailure::invalid(
            format!("{name} is NULL"),
            format!("set it to (hl_function)sqlite3_{name}"),
        )),
    };
    let config = address(given.config, "config")?;
    let vfs_find = address(given.vfs_find, "vfs_find")?;
    let vfs_register = address(given.vfs_register, "vfs_register")?;
    // SAFETY: the header requires that these are SQLite's functions.
    let api = unsafe { Api::at(config, vfs_find, vfs_register) };
    api.ok_or_else(|| CallFailure::invalid("a function is NULL", "see hugeleaf.h"))
}

fn failure(error: InstallError) -> CallFailure {
    let text = error.to_string();
    let (text, next) = text.split_once(": ").unwrap_or((&text, "see the guide"));
    match error {
        InstallError::Elastic(error) => error.into(),
        InstallError::TooSmall { .. } => CallFailure::invalid(text, next),
        InstallError::Thread(_) => CallFailure::new(hl_status::HL_SYSTEM, text, next),
        _ => CallFailure::invalid(text, next),
    }
}

/// Gives SQLite one page cache for all connections and databases of this process, on the pages of the ladder. It is
/// divided among databases by benefit. Call it once per process, before SQLite is first used; it initialises SQLite. The cache
/// stays until the process ends. Thread-safe.
///
/// Errors: `HL_INVALID`, also if SQLite is already in use or has this cache already; `HL_TOO_LARGE`, also if the target is
/// above the memory that this process can have; `HL_SHORT`, `HL_NO_SUCH_SIZE`, `HL_SYSTEM`, `HL_UNREADABLE`. SQLite then
/// keeps its own cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hl_sqlite_install(
    options: *const hl_sqlite_options,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    guard(error, || {
        // SAFETY: the caller's, as the header requires.
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

/// Sets the limit for all databases together, in bytes, up to `most_bytes` of the options. Memory above it is taken
/// from the databases within seconds. Thread-safe.
///
/// Errors: `HL_INVALID` if the cache is not installed, or the target is above `most_bytes`; `HL_TOO_LARGE` if it is above
/// the memory that this process can have.
#[unsafe(no_mangle)]
pub extern "C" fn hl_sqlite_set_target(
    target_bytes: u64,
    error: Option<&mut MaybeUninit<hl_error>>,
) -> hl_status {
    guard(error, || {
        let installed = INSTALLED.get().ok_or_else(|| {
            CallFailure::invalid("the cache is not installed", "call hl_sqlite_install first")
        })?;
        match installed.set_target(Bytes(target_bytes)) {
            Some(set) => Ok(set.map(drop)?),
            None => Ok(()),
        }
    })
}

/// Returns the memory held by all databases together, in bytes; 0 if the cache is not installed. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_sqlite_held() -> u64 {
    INSTALLED
        .get()
        .map_or(0, |installed| installed.held().0.get())
}
