//! What the library knows in a running program, and the one lock around it.
//!
//! # Safety
//!
//! The settings and their text are written once, by the constructor while it is the only thread
//! (it stands aside where it is not), and only read afterwards.

#![allow(unsafe_code)]

use crate::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::cell::UnsafeCell;
use core::ops::Range;

use crate::settings::Settings;

struct Once(UnsafeCell<Settings<'static>>);

// SAFETY: written only by `set`, in the constructor, while there is one thread.
unsafe impl Sync for Once {}

/// Ones that ask for nothing.
pub const IDLE: Settings<'static> = Settings {
    base: 1,
    ..Settings::NOTHING
};

static SETTINGS: Once = Once(UnsafeCell::new(IDLE));

/// The settings; until they are set, ones that ask for nothing.
#[inline(always)]
pub fn settings() -> &'static Settings<'static> {
    // SAFETY: not written any more once a second thread can exist.
    unsafe { &*SETTINGS.0.get() }
}

/// Sets them.
///
/// # Safety
///
/// To be called in the library's constructor only, while there is one thread.
pub unsafe fn set(settings: Settings<'static>) {
    // SAFETY: by the caller nobody reads at the same time.
    unsafe { *SETTINGS.0.get() = settings };
}

/// The settings' text with the variable's name before it. A copy, because servers write their
/// titles over the environment they were started with; and contiguous, so that a viewer can
/// find it in this process's memory.
struct Text(UnsafeCell<[u8; 1024]>);

// SAFETY: as above.
unsafe impl Sync for Text {}

static TEXT: Text = Text(UnsafeCell::new([0; 1024]));

/// Keeps the text of `HUGELEAF_RUN=…`, and gives the part behind `skip` bytes of it; `None` where
/// it is too long.
///
/// # Safety
///
/// To be called in the library's constructor only, once, before anybody else knows of the text.
pub unsafe fn keep(text: &[u8], skip: usize) -> Option<&'static [u8]> {
    // SAFETY: by the caller nobody reads at the same time.
    let kept: &'static mut [u8; 1024] = unsafe { &mut *TEXT.0.get() };
    let room = kept.get_mut(..text.len())?;
    for (to, from) in room.iter_mut().zip(text) {
        *to = *from;
    }
    room.get(skip..)
}

/// Libc's code: from, to; and where its break is (`__curbrk`). Zero: it was not found.
static LIBC: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// Tells where libc's code is, and its variable `__curbrk`.
pub fn set_libc((start, end): (usize, usize), curbrk: usize) {
    for (known, value) in LIBC.iter().zip([start, end, curbrk]) {
        known.store(value, Ordering::Relaxed);
    }
}

pub fn libc_text() -> Range<usize> {
    LIBC[0].load(Ordering::Relaxed)..LIBC[1].load(Ordering::Relaxed)
}

/// Where what libc uses of the heap ends; zero where that is not known, or it has none yet.
pub fn libc_break() -> usize {
    match LIBC[2].load(Ordering::Relaxed) {
        0 => 0,
        // SAFETY: libc's variable, found by its symbol before anything calls here.
        at => unsafe { (at as *const usize).read_volatile() },
    }
}

/// Moves libc's break. Only where there is one.
pub fn set_libc_break(to: usize) {
    // SAFETY: as above.
    unsafe { (LIBC[2].load(Ordering::Relaxed) as *mut usize).write_volatile(to) };
}

/// A lock that is never waited for long: who does not get it goes without, which every caller
/// can (a call is then made as the program asked for it). So neither a signal handler that
/// interrupts its holder nor a child forked while another thread held it can hang.
pub struct Lock(AtomicBool);

impl Lock {
    pub const fn new() -> Lock {
        Lock(AtomicBool::new(false))
    }

    /// Takes it, or gives up after some thousand looks.
    pub fn take(&self) -> Option<Held<'_>> {
        for _ in 0..5000 {
            if !self.0.swap(true, Ordering::Acquire) {
                return Some(Held(self));
            }
            core::hint::spin_loop();
        }
        None
    }

    /// Opens it in a forked child, whose one thread does not hold it.
    pub fn reopen(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Default for Lock {
    fn default() -> Lock {
        Lock::new()
    }
}

/// A lock that is held until this is dropped.
pub struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// The lock of the windows, arenas and segments.
pub static LOCK: Lock = Lock::new();

/// Whether private memory is handed out on large pages now.
pub static GROWING: AtomicBool = AtomicBool::new(false);

/// Whether the process may make no more calls than the program asks for.
static ASIDE: AtomicBool = AtomicBool::new(false);

/// From now on only the program's own calls are made: it has a filter of system calls, which may
/// end it at one that it does not make by itself.
pub fn stand_aside() {
    ASIDE.store(true, Ordering::Relaxed);
    GROWING.store(false, Ordering::Relaxed);
}

#[inline(always)]
pub fn stood_aside() -> bool {
    ASIDE.load(Ordering::Relaxed)
}

/// Resident private bytes when that was last looked at.
pub static RESIDENT: AtomicUsize = AtomicUsize::new(0);

#[inline(always)]
pub fn growing() -> bool {
    GROWING.load(Ordering::Relaxed)
}

/// The next multiple of a power of two, or `None` above the address space.
#[inline(always)]
pub fn up(value: usize, to: usize) -> Option<usize> {
    Some(value.checked_add(to.wrapping_sub(1))? & !to.wrapping_sub(1))
}

/// The multiple of a power of two at or below a value.
#[inline(always)]
pub const fn down(value: usize, to: usize) -> usize {
    value & !to.wrapping_sub(1)
}
