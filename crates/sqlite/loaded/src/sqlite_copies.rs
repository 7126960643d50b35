//! The copies of SQLite in this process: finds the copy for a call, and gives each copy its cache.
//!
//! # Safety
//! Handles of dlopen(3) are closed where they were opened. Functions are looked up in the object that has them, and
//! have the types of sqlite3.h.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_void};
use std::panic::catch_unwind;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use hugeleaf::{Bytes, Ladder};
use hugeleaf_sqlite::{Api, InstallError, Installed, Options};

use crate::elf_objects::{ImportingObject, NAMES, bind, users};
use crate::own;
use crate::say::say;

/// Environment variable with size and ladder: `2147483648;2M,4K`.
const VARIABLE: &str = "HUGELEAF_SQLITE";
/// Name of the SQLite library since 2004.
const LIBRARY: &CStr = c"libsqlite3.so.0";
/// Maximum number of copies per process. Any further copy keeps its own cache.
const MOST: usize = 8;

thread_local! {
    /// True while a cache is installed. SQLite then calls its own functions by name, and those calls are passed on.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A function of SQLite, in the copy that a caller gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SqliteFunction(*mut c_void);

/// An object that stays loaded as long as this value lives.
struct DlopenHandle(*mut c_void);

impl DlopenHandle {
    /// Opens a loaded object; `None` if it is unknown under this path. An empty path is the program itself.
    fn of(path: &CStr) -> Option<DlopenHandle> {
        // SAFETY: the path is a C string; null is the program.
        let handle = unsafe {
            let path = if path.is_empty() {
                null()
            } else {
                path.as_ptr()
            };
            libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
        };
        (!handle.is_null()).then(|| DlopenHandle(handle))
    }

    /// Returns a function of the object or of its dependencies; never an interposed one.
    fn function(&self, name: &CStr) -> Option<SqliteFunction> {
        // SAFETY: the handle is open, the name is a C string.
        SqliteFunction::of(unsafe { libc::dlsym(self.0, name.as_ptr()) })
    }
}

impl Drop for DlopenHandle {
    fn drop(&mut self) {
        // SAFETY: it is open, and closed once.
        unsafe { libc::dlclose(self.0) };
    }
}

impl SqliteFunction {
    fn of(address: *mut c_void) -> Option<SqliteFunction> {
        let is_ours = own().contains(&(address as usize));
        (!address.is_null() && !is_ours).then_some(SqliteFunction(address))
    }

    /// Returns the next function in the loader's global search order.
    fn next(name: &CStr) -> Option<SqliteFunction> {
        // SAFETY: the name is a C string.
        SqliteFunction::of(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) })
    }

    /// Returns the path and the load address of the object that contains it.
    fn object(self) -> Option<(CString, usize)> {
        object_of(self.0 as usize)
    }
}

fn object_of(address: usize) -> Option<(CString, usize)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the call fills it in if it returns a number other than 0; its path is a C string.
    unsafe {
        if libc::dladdr(address as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        let path = (!info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname).to_owned());
        Some((path?, info.dli_fbase as usize))
    }
}

impl ImportingObject {
    /// Returns the function that this object would have without this library. It is taken from the SQLite to which its
    /// other calls are bound, else from the next object in search order, else from its own dependencies.
    fn function(&self, name: &CStr) -> Option<SqliteFunction> {
        let bound = self.bound.and_then(object_of);
        let bound = bound.and_then(|(path, _)| DlopenHandle::of(&path)?.function(name));
        let next = || SqliteFunction::next(name);
        let needed = || DlopenHandle::of(&self.path)?.function(name);
        bound.or_else(next).or_else(needed)
    }
}

/// Returns the target of a call. Its copy of SQLite has the cache by then, if possible.
pub fn route(which: usize, caller: usize) -> Option<*const c_void> {
    let name = NAMES.get(which)?;
    let users = users(&own(), caller);
    let its = { users.iter() }.find(|user| user.is_caller && user.holds[which]);
    let found = match its {
        Some(user) => user.function(name)?,
        // The address came by dlsym(3), or by a jump from an object that called no interposed function before.
        None => SqliteFunction::next(name).or_else(|| of_others(&users, which, name))?,
    };
    if !INSIDE.replace(true) {
        serve(found);
        for user in &users {
            let to = NAMES.map(|name| user.function(name));
            let same =
                |to: &Option<SqliteFunction>| to.and_then(SqliteFunction::object) == found.object();
            if to.iter().all(same) {
                bind(
                    &own(),
                    user.base,
                    &to.map(|to| to.map_or(0, |to| to.0 as usize)),
                );
            }
        }
        INSIDE.set(false);
    }
    Some(found.0)
}

/// Returns the function from the objects that hold the interposed address; the object loaded last takes precedence.
fn of_others(users: &[ImportingObject], which: usize, name: &CStr) -> Option<SqliteFunction> {
    let mut all = { users.iter().rev() }.filter(|user| user.holds[which]);
    let held = all.find_map(|user| user.function(name));
    let caller = || users.iter().find(|user| user.is_caller)?.function(name);
    held.or_else(caller)
        .or_else(|| DlopenHandle::of(LIBRARY)?.function(name))
}

/// A lock among threads. A forked child has none of the other threads and does not wait for them.
struct ForkSafeLock;

static TURN: AtomicU32 = AtomicU32::new(0);

impl ForkSafeLock {
    fn take() -> ForkSafeLock {
        let own = std::process::id();
        loop {
            let (ok, fail) = (Ordering::Acquire, Ordering::Relaxed);
            match TURN.compare_exchange(0, own, ok, fail) {
                Ok(_) => return ForkSafeLock,
                Err(other) if other != own => {
                    let _ = TURN.compare_exchange(other, 0, ok, fail);
                }
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for ForkSafeLock {
    fn drop(&mut self) {
        TURN.store(0, Ordering::Release);
    }
}

/// Gives the copy of SQLite that contains this function its cache, once.
fn serve(found: SqliteFunction) {
    /// Load addresses of the copies already handled.
    static KNOWN: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
    let Some((path, base)) = found.object() else {
        return;
    };
    let is_it = |place: &AtomicUsize| place.load(Ordering::Acquire) == base;
    if KNOWN.iter().any(is_it) {
        return;
    }
    // Calls to the loader come first: a thread that loads an object may wait for this lock.
    let functions = DlopenHandle::of(&path).map(|handle| {
        [
            c"sqlite3_config",
            c"sqlite3_vfs_find",
            c"sqlite3_vfs_register",
        ]
        .map(|name| {
            let function = handle.function(name);
            function.filter(|function| function.object().is_some_and(|(_, at)| at == base))
        })
    });
    let _turn = ForkSafeLock::take();
    let place = KNOWN
        .iter()
        .find(|place| is_it(place) || place.load(Ordering::Relaxed) == 0);
    let Some(place) = place.filter(|place| !is_it(place)) else {
        return;
    };
    let outcome = match functions {
        Some([Some(config), Some(find), Some(register)]) => {
            // SAFETY: these are SQLite's functions of these names.
            let api = unsafe { Api::at(config.0, find.0, register.0) };
            let given = api.map(|api| catch_unwind(|| give(&api, base)));
            given
                .unwrap_or(Ok(Ok(())))
                .unwrap_or_else(|_| Err("internal error".to_owned()))
        }
        _ => Err("it lacks the functions to set a cache".to_owned()),
    };
    place.store(base, Ordering::Release);
    if let Err(why) = outcome {
        say(&format!(
            "{}: {why}; it keeps its own cache",
            path.to_string_lossy()
        ));
    }
}

/// Gives a copy of SQLite its cache; the first call creates the cache.
fn give(api: &Api, base: usize) -> Result<(), String> {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    let Ok(wanted) = std::env::var(VARIABLE) else {
        return Ok(());
    };
    let in_use = "it was used before a cache could be set";
    let cache = api.cache().ok_or(in_use)?;
    if object_of(cache as usize).is_some_and(|(_, at)| at != base) {
        return Err("the program has set a cache of its own".to_owned());
    }
    if let Some(installed) = INSTALLED.get() {
        return installed.serve(api).map_err(|e| e.to_string());
    }
    let (bytes, ladder) = wanted
        .split_once(';')
        .ok_or("HUGELEAF_SQLITE is malformed")?;
    let bytes: u64 = bytes.parse().map_err(|e| format!("{bytes}: {e}"))?;
    let ladder: Ladder = ladder.parse().map_err(|e| format!("{e}"))?;
    match hugeleaf_sqlite::install(api, &Options::new(Bytes(bytes), ladder)) {
        Ok(installed) => {
            let _ = INSTALLED.set(installed);
            Ok(())
        }
        Err(InstallError::Refused(_)) => Err(in_use.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
