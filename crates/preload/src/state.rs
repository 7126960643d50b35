//! The library's state in a running program, and the lock that protects it.
//!
//! # Safety
//! The settings and their text are written once, by the constructor while it is the only thread (it
//! stays inactive if it is not), and only read afterwards.

#![allow(unsafe_code)]

use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::cell::UnsafeCell;
use core::ops::Range;

use crate::settings::LaunchSettings;

struct WriteOnce<T>(UnsafeCell<T>);

// SAFETY: written only by `set` and `keep`, in the constructor, while there is one thread.
unsafe impl<T: Sync> Sync for WriteOnce<T> {}

/// Settings that disable the library.
pub const IDLE: LaunchSettings<'static> = LaunchSettings {
    base: 1,
    ..LaunchSettings::NOTHING
};

static SETTINGS: WriteOnce<LaunchSettings<'static>> = WriteOnce(UnsafeCell::new(IDLE));

/// Returns the settings, or idle ones until they are set.
#[inline(always)]
pub fn settings() -> &'static LaunchSettings<'static> {
    // SAFETY: no longer written once a second thread can exist.
    unsafe { &*SETTINGS.0.get() }
}

/// Sets the settings.
///
/// # Safety
/// Call it only in the library's constructor, while there is one thread.
pub unsafe fn set(settings: LaunchSettings<'static>) {
    // SAFETY: the caller ensures that there is no concurrent reader.
    unsafe { *SETTINGS.0.get() = settings };
}

/// The settings' text, prefixed with the variable's name.
/// It is a copy, because servers overwrite their environment with process titles. It is contiguous,
/// so that a viewer can find it in this process's memory.
static TEXT: WriteOnce<[u8; 1024]> = WriteOnce(UnsafeCell::new([0; 1024]));

/// Keeps the text of `HUGELEAF_RUN=…` and returns the part after `skip` bytes.
/// `None` if it is too long.
///
/// # Safety
/// Call it only in the library's constructor, once, before any other code knows the text.
pub unsafe fn keep(text: &[u8], skip: usize) -> Option<&'static [u8]> {
    // SAFETY: the caller ensures that there is no concurrent reader.
    let kept: &'static mut [u8; 1024] = unsafe { &mut *TEXT.0.get() };
    let room = kept.get_mut(..text.len())?;
    for (to, from) in room.iter_mut().zip(text) {
        *to = *from;
    }
    room.get(skip..)
}

/// Start and end of libc's code, and the address of its break variable (`__curbrk`).
/// Zero if not found.
static LIBC: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// Sets the range of libc's code and the address of its variable `__curbrk`.
pub fn set_libc((start, end): (usize, usize), curbrk: usize) {
    for (known, value) in LIBC.iter().zip([start, end, curbrk]) {
        known.store(value, Ordering::Relaxed);
    }
}

pub fn libc_text() -> Range<usize> {
    LIBC[0].load(Ordering::Relaxed)..LIBC[1].load(Ordering::Relaxed)
}

/// Returns libc's break. Zero if it is unknown or libc has no heap yet.
pub fn libc_break() -> usize {
    match LIBC[2].load(Ordering::Relaxed) {
        0 => 0,
        // SAFETY: libc's variable, found by its symbol before the first call of this function.
        at => unsafe { (at as *const usize).read_volatile() },
    }
}

/// Sets libc's break. Only if its variable was found.
pub fn set_libc_break(to: usize) {
    // SAFETY: as above.
    unsafe { (LIBC[2].load(Ordering::Relaxed) as *mut usize).write_volatile(to) };
}

/// A lock with bounded waiting.
/// A caller that does not get it makes the program's original call instead. So neither a signal
/// handler that interrupts its holder nor a child forked while another thread held it can hang.
pub struct Lock(AtomicBool);

impl Lock {
    pub(crate) const fn new() -> Lock {
        Lock(AtomicBool::new(false))
    }

    /// Takes the lock, or gives up after some thousand attempts.
    pub fn take(&self) -> Option<LockGuard<'_>> {
        for _ in 0..5000 {
            if !self.0.swap(true, Ordering::Acquire) {
                return Some(LockGuard(self));
            }
            core::hint::spin_loop();
        }
        None
    }

    /// Releases the lock in a forked child, whose only thread does not hold it.
    pub fn reopen(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A held lock, released when dropped.
pub struct LockGuard<'a>(&'a Lock);

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// The lock of the windows, arenas and segments.
pub static LOCK: Lock = Lock::new();

/// True while private memory is allocated on huge pages.
pub static GROWING: AtomicBool = AtomicBool::new(false);

/// True if the process may make only the program's own calls.
static ASIDE: AtomicBool = AtomicBool::new(false);

/// Restricts the library to the program's own calls.
/// A system call filter may kill the program for any other call.
pub fn deactivate() {
    ASIDE.store(true, Ordering::Relaxed);
    GROWING.store(false, Ordering::Relaxed);
}

#[inline(always)]
pub fn is_inactive() -> bool {
    ASIDE.load(Ordering::Relaxed)
}

/// Resident private bytes at the last check.
pub static RESIDENT: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
pub fn growing() -> bool {
    GROWING.load(Ordering::Relaxed)
}

/// Returns the next multiple of a power of two, or `None` above the address space.
#[inline(always)]
pub fn round_up(value: usize, to: usize) -> Option<usize> {
    Some(value.checked_add(to.wrapping_sub(1))? & !to.wrapping_sub(1))
}

/// Returns the multiple of a power of two at or below a value.
#[inline(always)]
pub const fn round_down(value: usize, to: usize) -> usize {
    value & !to.wrapping_sub(1)
}
