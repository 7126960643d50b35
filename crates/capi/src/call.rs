//! Common parts of all calls: errors as numbers and text, a barrier for panics, and checks of
//! pointers and text.
#![allow(unsafe_code)]
//! # Safety
//! A pointer that is not NULL points to what the header says, for the length it says: this module
//! cannot check that. Values are copied before they are examined, and only into types for which
//! every bit pattern is a value.

use std::any::{Any, TypeId};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use hugeleaf::{Handle, Ladder, MemoryError, ParseError};

/// Size of a text in bytes, with the terminating 0.
pub const HL_TEXT: usize = 256;

/// Result of a call. The numbers are stable.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum hl_status {
    /// The call succeeded.
    HL_OK = 0,
    /// An argument is invalid: NULL, an undefined number, text that is not UTF-8, a length of 0 or
    /// not a multiple, a ladder that cannot be parsed.
    HL_INVALID = 1,
    /// The ladder is mandatory and this host has none of its page sizes.
    HL_NO_SUCH_SIZE = 2,
    /// The ladder is mandatory and could not be satisfied for all of the memory.
    HL_SHORT = 3,
    /// The request exceeds the available memory.
    HL_TOO_LARGE = 4,
    /// The request exceeds the limit of locked memory (RLIMIT_MEMLOCK).
    HL_LOCK_LIMIT = 5,
    /// The handle is malformed, has another version, or does not match its descriptors.
    HL_BAD_HANDLE = 6,
    /// The memory is private and cannot be given to other processes.
    HL_NOT_SHARED = 7,
    /// A system call failed; `sys_errno` has the reason.
    HL_SYSTEM = 8,
    /// The host's page sizes and limits could not be read.
    HL_UNREADABLE = 9,
    /// The array is too small for all values; those in it are valid.
    HL_MORE = 10,
    /// A granule is not held under that number: it was returned, transferred or never taken, it
    /// belongs to another component, or the list names it twice.
    HL_NOT_HELD = 11,
    /// The request exceeds the target of the elastic.
    HL_OVER_TARGET = 12,
    /// All granules of the elastic are held.
    HL_FULL = 13,
    /// The component does not exist.
    HL_NO_COMPONENT = 14,
    /// The table has no room for another component or process.
    HL_TOO_MANY = 15,
    /// The component has a fixed size and cannot take or return again, or it exists with the other
    /// value of `resizable`.
    HL_FIXED_SIZE = 16,
    /// The elastic belongs to the process that created this one by fork(2): attach a handle.
    HL_FORKED = 17,
    /// Another process holds the table's lock and makes no progress.
    HL_STUCK = 18,
    /// The table has contents that this library does not write.
    HL_DAMAGED = 19,
    /// The granules are not held any more, but the system did not accept all of their memory;
    /// `sys_errno` has the reason. The next take or recover tries again.
    HL_NOT_YET_BACK = 20,
    /// A fault of the library: an internal check failed. Report `what`; stop using the object.
    HL_PANIC = 99,
}

use hl_status::*;

/// Error details of a call, in memory of the caller. Each call that gets one fills it in. After
/// `HL_OK` the texts are empty. Texts are UTF-8, end in 0, and end in "…" if they are truncated.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct hl_error {
    /// Same value as the result of the call.
    pub status: hl_status,
    /// Error of the kernel (errno(3)) for `HL_SYSTEM` and `HL_NOT_YET_BACK`, else 0.
    pub sys_errno: i32,
    /// Failure with the call, the value or the limit.
    pub what: [c_char; HL_TEXT],
    /// Next action: a command, or a different request.
    pub next: [c_char; HL_TEXT],
}

/// Returns a short text for any status number. The text is static. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn hl_status_text(status: i32) -> *const c_char {
    let text = match STATUS_TEXTS.iter().find(|(s, _)| *s as i32 == status) {
        Some((_, text)) => text,
        None => c"unknown status",
    };
    text.as_ptr()
}

/// All statuses with their texts.
const STATUS_TEXTS: [(hl_status, &CStr); 22] = [
    (HL_OK, c"done"),
    (HL_INVALID, c"invalid argument"),
    (HL_NO_SUCH_SIZE, c"this host has no such page size"),
    (HL_SHORT, c"not enough pages of the mandatory sizes"),
    (HL_TOO_LARGE, c"more than the available memory"),
    (HL_LOCK_LIMIT, c"more than the limit of locked memory"),
    (HL_BAD_HANDLE, c"not a handle of this library"),
    (HL_NOT_SHARED, c"the memory is private"),
    (HL_SYSTEM, c"a system call failed"),
    (HL_UNREADABLE, c"the host could not be read"),
    (HL_MORE, c"the array is too small"),
    (HL_NOT_HELD, c"a granule is not held under that number"),
    (HL_OVER_TARGET, c"more than the target allows"),
    (HL_FULL, c"all granules are held"),
    (HL_NO_COMPONENT, c"no such component"),
    (HL_TOO_MANY, c"the table is full"),
    (HL_FIXED_SIZE, c"the component has a fixed size"),
    (HL_FORKED, c"this process is a forked copy: attach a handle"),
    (HL_STUCK, c"another process holds the table's lock"),
    (HL_DAMAGED, c"the table is damaged"),
    (HL_NOT_YET_BACK, c"returned, but not all of it is freed yet"),
    (HL_PANIC, c"internal error of the library"),
];

/// A failed call, before conversion to numbers and text.
#[derive(Debug)]
pub(super) struct CallFailure {
    pub(super) status: hl_status,
    pub(super) errno: i32,
    pub(super) what: String,
    pub(super) next: String,
}

impl CallFailure {
    pub(super) fn new(
        status: hl_status,
        what: impl Into<String>,
        next: impl Into<String>,
    ) -> CallFailure {
        CallFailure {
            status,
            errno: 0,
            what: what.into(),
            next: next.into(),
        }
    }

    pub(super) fn invalid(what: impl Into<String>, next: impl Into<String>) -> CallFailure {
        CallFailure::new(HL_INVALID, what, next)
    }

    fn null(name: &str) -> CallFailure {
        CallFailure::invalid(format!("{name} is NULL"), "see hugeleaf.h")
    }

    fn panic(payload: &(dyn Any + Send)) -> CallFailure {
        let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref()) {
            (Some(text), _) => (*text).to_owned(),
            (None, Some(text)) => String::clone(text),
            (None, None) => "panic without a message".to_owned(),
        };
        CallFailure::new(HL_PANIC, text, "report it, with the output on stderr")
    }
}

impl From<MemoryError> for CallFailure {
    fn from(error: MemoryError) -> CallFailure {
        let status = match &error {
            MemoryError::Empty
            | MemoryError::NotAMultiple { .. }
            | MemoryError::Unordered(_)
            | MemoryError::NoSuchNode { .. }
            | MemoryError::NoNodes => HL_INVALID,
            MemoryError::TooLarge { .. } => HL_TOO_LARGE,
            MemoryError::NoSuchSize(_) => HL_NO_SUCH_SIZE,
            MemoryError::Short { .. } => HL_SHORT,
            MemoryError::MemlockLimit { .. } => HL_LOCK_LIMIT,
            MemoryError::BadHandle(_) => HL_BAD_HANDLE,
            MemoryError::NotShared | MemoryError::NotInherited => HL_NOT_SHARED,
            MemoryError::Sys(_) => HL_SYSTEM,
            MemoryError::Unreadable(_) => HL_UNREADABLE,
            // A newer error than this list; its text describes it.
            _ => HL_SYSTEM,
        };
        let errno = match &error {
            MemoryError::Sys(error) => error.errno.raw_os_error(),
            _ => 0,
        };
        CallFailure {
            status,
            errno,
            what: error.to_string(),
            next: error.next(),
        }
    }
}

/// Runs a call. Catches panics and writes the failure to `error` if it is given.
pub(super) fn guard(
    error: Option<&mut MaybeUninit<hl_error>>,
    body: impl FnOnce() -> Result<(), CallFailure>,
) -> hl_status {
    let outcome = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|payload| Err(CallFailure::panic(payload.as_ref())));
    let failure = match outcome {
        Ok(()) => CallFailure::new(HL_OK, "", ""),
        Err(failure) => failure,
    };
    if let Some(error) = error {
        error.write(hl_error {
            status: failure.status,
            sys_errno: failure.errno,
            what: text(&failure.what),
            next: text(&failure.next),
        });
    }
    failure.status
}

/// Runs a call with a result, which goes to `to`; `to` must be given.
pub(super) fn answer<T>(
    error: Option<&mut MaybeUninit<hl_error>>,
    to: Option<&mut MaybeUninit<T>>,
    name: &str,
    body: impl FnOnce() -> Result<T, CallFailure>,
) -> hl_status {
    guard(error, || {
        let to = given(to, name)?;
        to.write(body()?);
        Ok(())
    })
}

/// Runs a call on an object, which must be given.
pub(super) fn call_on<T>(
    error: Option<&mut MaybeUninit<hl_error>>,
    object: Option<T>,
    name: &str,
    body: impl FnOnce(T) -> Result<(), CallFailure>,
) -> hl_status {
    guard(error, || body(given(object, name)?))
}

/// Objects owned by callers, by address and type.
static HANDED_OUT: Mutex<BTreeSet<(usize, TypeId)>> = Mutex::new(BTreeSet::new());

/// Gives ownership of an object to the caller, until [`free`].
pub(super) fn hand_out<T: 'static>(object: T) -> *mut T {
    let object = Box::into_raw(Box::new(object));
    let mut all = HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert((object.addr(), TypeId::of::<T>()));
    object
}

/// Frees an object. Ignores unknown and freed pointers: another object may use that memory.
pub(super) fn free<T: 'static>(object: *mut T) {
    guard(None, || {
        let mut all = HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
        let was_there = all.remove(&(object.addr(), TypeId::of::<T>()));
        drop(all);
        if was_there {
            // SAFETY: `hand_out` made it of a box of this type, and the list has it only once.
            drop(unsafe { Box::from_raw(object) });
        }
        Ok(())
    });
}

/// Converts a text for C. If it is too long, it is truncated at a character and ends in "…".
pub(super) fn text<const ROOM: usize>(text: &str) -> [c_char; ROOM] {
    const CUT: &str = "…";
    let mut out = [0; ROOM];
    let bytes: Vec<u8> = match text.len() < ROOM {
        true => text.bytes().collect(),
        false => {
            let most = (0..ROOM - CUT.len()).rev();
            let end = most.into_iter().find(|at| text.is_char_boundary(*at));
            let kept = &text[..end.unwrap_or(0)];
            kept.bytes().chain(CUT.bytes()).collect()
        }
    };
    for (to, byte) in out.iter_mut().zip(bytes) {
        // An embedded 0 would end the text in C.
        *to = c_char::from_ne_bytes([if byte == 0 { b'?' } else { byte }]);
    }
    out
}

/// Refuses NULL for an object or the place of a result.
pub(super) fn given<T>(pointer: Option<T>, name: &str) -> Result<T, CallFailure> {
    pointer.ok_or_else(|| CallFailure::null(name))
}

/// Refuses NULL for an output pointer.
pub(super) fn check_out<T>(to: *const T, name: &str) -> Result<(), CallFailure> {
    match to.is_null() {
        true => Err(CallFailure::null(name)),
        false => Ok(()),
    }
}

/// Returns an array of the caller, refused if longer than `most`; empty for a count of 0.
///
/// # Safety
/// `pointer` is NULL, or points to `count` values that no code changes while the result lives.
pub(super) unsafe fn array<'a, T>(
    pointer: *const T,
    count: usize,
    most: usize,
    name: &str,
) -> Result<&'a [T], CallFailure> {
    if count > most {
        return Err(CallFailure::invalid(
            format!("{count} {name} exceed the maximum of {most}"),
            "pass the number of elements in the array",
        ));
    }
    match (count, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(CallFailure::null(name)),
        // SAFETY: by this function's contract.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(pointer, count) }),
    }
}

/// Fills the caller's array up to its capacity and writes the number of values to `room`.
///
/// # Safety
/// `room` is NULL, or the caller's own and the length of `array`, which is then the caller's own
/// or, with a room of 0, NULL.
pub(super) unsafe fn fill<T>(
    array: *mut T,
    room: *mut usize,
    name: &str,
    values: impl ExactSizeIterator<Item = T>,
) -> Result<(), CallFailure> {
    check_out(room, "count")?;
    // SAFETY: not NULL, so it is the caller's own by this function's contract.
    let had = unsafe { room.read() };
    if had > 0 {
        check_out(array, name)?;
    }
    let there_are = values.len();
    // SAFETY: as above.
    unsafe { room.write(there_are) };
    for (at, value) in values.take(had).enumerate() {
        // SAFETY: `at` is less than the length that the caller stated for the array.
        unsafe { array.add(at).write(value) };
    }
    match there_are > had {
        true => Err(CallFailure::new(
            HL_MORE,
            format!("{there_are} {name}, room for {had}"),
            "call again with a larger array; with a count of 0 the call returns the number",
        )),
        false => Ok(()),
    }
}

/// Returns a text of the caller.
///
/// # Safety
/// `pointer` is NULL, or points to bytes that end in 0, which no code changes while the result
/// lives.
pub(super) unsafe fn text_of<'a>(
    pointer: *const c_char,
    name: &str,
) -> Result<&'a str, CallFailure> {
    check_out(pointer, name)?;
    // SAFETY: by this function's contract.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str()
        .map_err(|_| CallFailure::invalid(format!("{name} is not valid UTF-8"), "use ASCII"))
}

/// Parses a ladder of the caller.
///
/// # Safety
/// As [`text_of`].
pub(super) unsafe fn ladder_of(pointer: *const c_char) -> Result<Ladder, CallFailure> {
    // SAFETY: by this function's contract.
    let text = unsafe { text_of(pointer, "ladder") }?;
    text.parse().map_err(|e: ParseError| {
        CallFailure::invalid(e.to_string(), "write sizes from large to small: 1G,2M")
    })
}

/// Option structures that start with their size, and for which all zeroes are a value.
///
/// # Safety
/// The type holds integers, raw pointers and `Option`s of functions only, has no gaps between its
/// fields, and starts with its size as a `usize`.
pub(super) unsafe trait SizedOptions: Sized + Copy {}

/// Reads options from an older or a newer header: missing fields are 0, unknown ones must be 0.
///
/// # Safety
/// `pointer` is NULL, or points to a `usize`, and that number of bytes in total is readable there.
pub(super) unsafe fn options_of<T: SizedOptions>(pointer: *const T) -> Result<T, CallFailure> {
    // SAFETY: by this function's contract; a first field of its size is at the start.
    let size = *given(unsafe { pointer.cast::<usize>().as_ref() }, "options")?;
    let known = size_of::<T>();
    let least = size_of::<usize>();
    // A forgotten size is 0 or arbitrary; no structure of this library grows to this.
    let most = known * 16;
    if size < least || size > most {
        return Err(CallFailure::invalid(
            format!("options.size is {size}"),
            "set it to sizeof(the structure)",
        ));
    }
    // SAFETY: the caller has `size` bytes there.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    if bytes.iter().skip(known).any(|byte| *byte != 0) {
        return Err(CallFailure::invalid(
            format!("options of {size} bytes, this library knows only {known}"),
            "use a newer library, or leave the newer fields 0",
        ));
    }
    // SAFETY: all zeroes are a value of the type, by the trait's contract.
    let mut options: T = unsafe { std::mem::zeroed() };
    let to = std::ptr::from_mut(&mut options).cast::<u8>();
    // SAFETY: no more than the size of either; every bit pattern that a caller can have there is a
    // value of the type.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), size.min(known)) };
    Ok(options)
}

/// Duplicates the caller's socket; the caller's descriptor is unchanged.
pub(super) fn socket_of(descriptor: i32) -> Result<UnixStream, CallFailure> {
    let copy = hugeleaf_sys::duplicate_raw(descriptor).map_err(MemoryError::from)?;
    Ok(UnixStream::from(copy))
}

/// Parses a line that a parent passed on.
///
/// # Safety
/// As [`text_of`].
pub(super) unsafe fn inherited(line: *const c_char) -> Result<Handle, CallFailure> {
    // SAFETY: by this function's contract.
    let line = unsafe { text_of(line, "line") }?;
    Ok(Handle::from_inherited(line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read<const N: usize>(text: &[c_char; N]) -> String {
        let bytes: Vec<u8> = text.iter().map(|c| c.to_ne_bytes()[0]).collect();
        let text = CStr::from_bytes_until_nul(&bytes).unwrap();
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn statuses_have_texts_and_numbers_of_their_own() {
        for (i, (status, text)) in STATUS_TEXTS.iter().enumerate() {
            assert!(!text.is_empty());
            let others = &STATUS_TEXTS[..i];
            assert!(others.iter().all(|(other, _)| other != status));
            assert!(others.iter().all(|(_, other)| other != text));
        }
    }

    fn call(error: &mut hl_error, body: impl FnOnce() -> Result<(), CallFailure>) -> hl_status {
        let mut written = MaybeUninit::new(*error);
        let status = guard(Some(&mut written), body);
        // SAFETY: it was initialised before the call.
        *error = unsafe { written.assume_init() };
        status
    }

    #[test]
    fn a_panic_ends_here() {
        let mut error = hl_error {
            status: HL_OK,
            sys_errno: 1,
            what: [0; HL_TEXT],
            next: [0; HL_TEXT],
        };
        let status = call(&mut error, || panic!("number {}", 7));
        assert_eq!((status, error.status), (HL_PANIC, HL_PANIC));
        assert_eq!(read(&error.what), "number 7");
        let status = call(&mut error, || Ok(()));
        assert_eq!((status, error.sys_errno), (HL_OK, 0));
        assert_eq!(read(&error.what), "");
        let status = guard(None, || panic!("unseen"));
        assert_eq!(status, HL_PANIC);
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Sample {
        size: usize,
        one: u64,
        two: u64,
    }
    // SAFETY: integers alone, without gaps, the size first.
    unsafe impl SizedOptions for Sample {}

    fn sample(size: usize, newer: u64) -> Result<(u64, u64), CallFailure> {
        let given = [size as u64, 11, 22, newer];
        // SAFETY: four words; `size` is at most that many bytes, or is refused.
        let read = unsafe { options_of(given.as_ptr().cast::<Sample>()) };
        read.map(|s| (s.one, s.two))
    }

    #[test]
    fn options_grow_in_both_directions() {
        assert_eq!(sample(24, 0).unwrap(), (11, 22));
        assert_eq!(sample(16, 0).unwrap(), (11, 0));
        assert_eq!(sample(32, 0).unwrap(), (11, 22));
        assert!(sample(32, 1).unwrap_err().what.contains("knows only 24"));
        for forgotten in [0, 7, usize::MAX] {
            let failure = sample(forgotten, 0).unwrap_err();
            assert_eq!(failure.status, HL_INVALID);
        }
    }

    proptest! {
        #[test]
        fn texts_are_cut_at_a_character(long in "\\PC{0,300}") {
            let short: [c_char; 32] = text(&long);
            let short = read(&short);
            match long.len() < 32 {
                true => prop_assert_eq!(short, long),
                false => {
                    let kept = short.strip_suffix('…').unwrap();
                    prop_assert!(long.starts_with(kept) && kept.len() > 32 - 8);
                }
            }
        }
    }
}
