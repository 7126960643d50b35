//! Locates libc and its functions in this process: program headers from `dl_iterate_phdr(3)`,
//! symbols from libc's own hash table (`DT_GNU_HASH`).
//!
//! # Safety
//! Reads tables of libraries that the dynamic loader has mapped and relocated.
//! It trusts their addresses, as the loader does; lengths are bounded if the format has a bound.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_int, c_void};

unsafe extern "C" {
    fn dl_iterate_phdr(
        each: extern "C" fn(*const DlPhdrInfo, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

#[repr(C)]
struct DlPhdrInfo {
    base: usize,
    name: *const c_char,
    headers: *const ElfProgramHeader,
    count: u16,
}

/// A program header of a 64-bit object (`elf(5)`).
#[repr(C)]
struct ElfProgramHeader {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_size: usize,
    memory_size: usize,
    alignment: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    information: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;

/// The facts about the process that the constructor needs.
#[derive(Default)]
pub struct ProcessImage {
    pub libc: Option<LoadedObject>,
    pub any_libc: Option<LoadedObject>,
    /// True if a sanitizer's library is loaded, or the program contains one.
    pub sanitized: bool,
    /// Address ranges of the program's text (zero: none).
    pub text: [(usize, usize); 4],
    /// Address ranges of the program's own variables (zero: none).
    pub data: [(usize, usize); 4],
    objects: usize,
}

#[derive(Clone, Copy)]
pub struct LoadedObject {
    base: usize,
    dynamic: usize,
    pub text: (usize, usize),
    pub text_offset: usize,
    /// Path that it was loaded from, if the loader reports it.
    pub file: Option<&'static CStr>,
}

pub fn process() -> ProcessImage {
    let mut process = ProcessImage::default();
    let data = &raw mut process;
    // SAFETY: the callback is given the process above, for as long as the call takes.
    unsafe { dl_iterate_phdr(each, data.cast()) };
    process
}

/// State of a search behind this library, in the loader's order.
struct NextSymbolSearch {
    name: &'static [u8],
    own: usize,
    passed: bool,
    found: usize,
}

/// Returns the function that the program would call without this library, unless it is libc's.
/// Another library must receive its call (`RTLD_NEXT` of dlsym(3)).
pub fn find_next_function(name: &'static [u8], own: usize) -> Option<usize> {
    let mut behind = NextSymbolSearch {
        name,
        own,
        passed: false,
        found: 0,
    };
    let data = &raw mut behind;
    // SAFETY: the callback is given the search above, for as long as the call takes.
    unsafe { dl_iterate_phdr(look_behind, data.cast()) };
    (behind.found != 0).then_some(behind.found)
}

extern "C" fn look_behind(
    information: *const DlPhdrInfo,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description; data is the `NextSymbolSearch` of above.
    let (object, behind) =
        unsafe { (object(&*information), &mut *data.cast::<NextSymbolSearch>()) };
    if (object.text.0..object.text.1).contains(&behind.own) {
        behind.passed = true;
        return 0;
    }
    let Some((function, _)) = object.symbol(behind.name).filter(|_| behind.passed) else {
        return 0;
    };
    if !is_libc(object.name()) {
        behind.found = function;
    }
    1
}

pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(b"")
}

fn is_libc(name: &[u8]) -> bool {
    name.starts_with(b"libc.so") || name.starts_with(b"ld-musl")
}

extern "C" fn each(information: *const DlPhdrInfo, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description; data is the `ProcessImage` of `process`.
    let (information, process) = unsafe { (&*information, &mut *data.cast::<ProcessImage>()) };
    let object = object(information);
    let first = process.objects == 0;
    process.objects += 1;
    if first {
        ranges(information, process);
    }
    let name = object.name();
    if name == b"libc.so.6" {
        process.libc = Some(object);
    }
    if is_libc(name) {
        process.any_libc = Some(object);
    }
    let sanitizers: [&[u8]; 4] = [b"libasan.", b"libtsan.", b"libmsan.", b"libclang_rt."];
    let named = sanitizers.iter().any(|known| name.starts_with(known));
    let inside: [&[u8]; 3] = [b"__asan_init", b"__tsan_init", b"__msan_init"];
    let contains = first && inside.iter().any(|name| object.symbol(name).is_some());
    process.sanitized |= named || contains;
    0
}

impl DlPhdrInfo {
    fn headers(&self) -> &[ElfProgramHeader] {
        // SAFETY: the loader passes `count` headers.
        unsafe { core::slice::from_raw_parts(self.headers, usize::from(self.count)) }
    }
}

fn object(information: &DlPhdrInfo) -> LoadedObject {
    let name = information.name;
    let mut object = LoadedObject {
        base: information.base,
        dynamic: 0,
        text: (0, 0),
        text_offset: 0,
        // SAFETY: a string that ends in zero and lives as long as the object is loaded.
        file: (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }),
    };
    for header in information.headers() {
        let start = information.base.wrapping_add(header.address);
        if header.kind == DYNAMIC {
            object.dynamic = start;
        }
        if header.kind == LOAD && header.flags & 1 != 0 {
            object.text = (start, start.wrapping_add(header.memory_size));
            object.text_offset = header.offset;
        }
    }
    object
}

fn ranges(information: &DlPhdrInfo, process: &mut ProcessImage) {
    let (mut texts, mut variables) = (process.text.iter_mut(), process.data.iter_mut());
    let loaded = information.headers().iter();
    for header in loaded.filter(|header| header.kind == LOAD) {
        let start = information.base.wrapping_add(header.address);
        let range = (start, start.wrapping_add(header.memory_size));
        let to = match header.flags & 7 {
            5 => texts.next(),
            6 => variables.next(),
            _ => None,
        };
        if let Some(to) = to {
            *to = range;
        }
    }
}

impl LoadedObject {
    /// Returns the name of its file, or an empty name if the loader does not report it.
    fn name(&self) -> &'static [u8] {
        self.file.map_or(b"", |path| file_name(path.to_bytes()))
    }

    /// Returns the address and length of an exported function or variable.
    pub fn symbol(&self, name: &[u8]) -> Option<(usize, usize)> {
        const STRINGS: usize = 5;
        const SYMBOLS: usize = 6;
        const GNU_HASH: usize = 0x6fff_fef5;
        let (mut strings, mut symbols, mut hash) = (0, 0, 0);
        if self.dynamic == 0 {
            return None;
        }
        for index in 0..256 {
            let entry = self.dynamic + index * 16;
            // SAFETY: the table ends in an entry of kind zero, where this loop ends too.
            let (kind, value) = unsafe { (word(entry), word(entry + 8)) };
            match kind {
                0 => break,
                STRINGS => strings = value,
                SYMBOLS => symbols = value,
                GNU_HASH => hash = value,
                _ => {}
            }
        }
        // Glibc's loader has added the base to these. Other loaders have not.
        let at = |value: usize| {
            if value < self.base {
                value + self.base
            } else {
                value
            }
        };
        if strings == 0 || symbols == 0 || hash == 0 {
            return None;
        }
        // SAFETY: tables of an object that is loaded and relocated.
        unsafe { self.look_up(name, at(strings), at(symbols), at(hash)) }
    }

    /// Looks up a name in the GNU hash table: a header of four 32-bit words, a filter of 64-bit
    /// words, buckets, and one word per symbol whose last bit ends a chain.
    unsafe fn look_up(
        &self,
        name: &[u8],
        strings: usize,
        symbols: usize,
        hash: usize,
    ) -> Option<(usize, usize)> {
        let wanted = name.iter().fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
        });
        // SAFETY: the caller passes the object's tables.
        unsafe {
            let (count, offset, filter) = (half(hash), half(hash + 4), half(hash + 8));
            let buckets = hash + 16 + filter as usize * 8;
            let chains = buckets + count as usize * 4;
            let bucket = wanted.checked_rem(count)?;
            let mut index = half(buckets + bucket as usize * 4);
            while index >= offset {
                let chain = half(chains + (index - offset) as usize * 4);
                let symbol = &*((symbols + index as usize * 24) as *const Symbol);
                if chain | 1 == wanted | 1 && symbol.section != 0 {
                    let text = CStr::from_ptr((strings + symbol.name as usize) as *const c_char);
                    if text.to_bytes() == name {
                        return Some((self.base.wrapping_add(symbol.value), symbol.size));
                    }
                }
                if chain & 1 == 1 {
                    break;
                }
                index = index.checked_add(1)?;
            }
        }
        None
    }
}

unsafe fn word(at: usize) -> usize {
    // SAFETY: the caller passes the address of a word of a loaded table.
    unsafe { (at as *const usize).read_unaligned() }
}

unsafe fn half(at: usize) -> u32 {
    // SAFETY: the caller passes the address of a word of a loaded table.
    unsafe { (at as *const u32).read_unaligned() }
}
