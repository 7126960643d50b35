//! The objects that the dynamic loader has mapped, and their slots that hold the address of an interposed function.
//!
//! # Safety
//! Tables of objects are read as the loader read them, and only while it prevents objects from being unloaded
//! (dl_iterate_phdr(3)).

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// The interposed functions of SQLite, by number.
pub const NAMES: [&CStr; 4] = [
    c"sqlite3_initialize",
    c"sqlite3_open",
    c"sqlite3_open16",
    c"sqlite3_open_v2",
];

/// An object that holds the address of an interposed function, or from which the call comes.
#[derive(Debug)]
pub struct ImportingObject {
    pub base: usize,
    /// Path of the object; empty for the program itself.
    pub path: CString,
    pub is_caller: bool,
    /// True for each interposed function whose address it holds.
    pub holds: [bool; NAMES.len()],
    /// A function of the SQLite to which it is bound.
    pub bound: Option<usize>,
}

/// An entry of a dynamic section, a symbol table or a relocation table (elf(5)).
#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_PLTRELSZ: i64 = 2;
const DT_JMPREL: i64 = 23;
/// Number of leading relocations without a symbol.
const DT_RELACOUNT: i64 = 0x6fff_fff9;

/// An object, valid during the loader's iteration.
struct MappedObject<'a> {
    info: &'a libc::dl_phdr_info,
    base: usize,
    own: &'a [usize; NAMES.len()],
}

/// A relocation against a symbol: its slot, the symbol's name, and the symbol's address if this object defines it.
struct RelocationSlot<'a> {
    slot: *mut usize,
    name: &'a CStr,
    defined: Option<usize>,
}

impl MappedObject<'_> {
    fn headers(&self) -> &[libc::Elf64_Phdr] {
        let count = usize::from(self.info.dlpi_phnum);
        match self.info.dlpi_phdr.is_null() {
            true => &[],
            // SAFETY: the loader provides both.
            false => unsafe { std::slice::from_raw_parts(self.info.dlpi_phdr, count) },
        }
    }

    fn address(&self, of: u64) -> usize {
        self.base.wrapping_add(usize::try_from(of).unwrap_or(0))
    }

    fn contains(&self, address: usize) -> bool {
        self.headers().iter().any(|header| {
            let start = self.address(header.p_vaddr);
            let length = usize::try_from(header.p_memsz).unwrap_or(0);
            header.p_type == libc::PT_LOAD && (start..start + length).contains(&address)
        })
    }

    /// Returns true if the loader made the page read-only after relocation.
    fn is_protected(&self, address: usize) -> bool {
        let page = page();
        let part = |address: usize| address / page;
        self.headers().iter().any(|header| {
            let start = self.address(header.p_vaddr);
            let end = start + usize::try_from(header.p_memsz).unwrap_or(0);
            header.p_type == libc::PT_GNU_RELRO && (part(start)..part(end)).contains(&part(address))
        })
    }

    /// Calls `each` with the slots that are bound to a function of SQLite.
    fn places(&self, mut each: impl FnMut(RelocationSlot<'_>)) {
        let dynamic = self.headers().iter();
        let mut dynamic = dynamic.filter(|header| header.p_type == libc::PT_DYNAMIC);
        let Some(dynamic) = dynamic.next() else {
            return;
        };
        let (mut symbols, mut names) = (0, 0);
        let (mut all, mut calls) = ([0; 3], [0; 2]);
        // Some C libraries keep the addresses of the file, others add the load address.
        let address = |value: usize| match value < self.base {
            true => self.base + value,
            false => value,
        };
        // SAFETY: the section ends in an entry of tag 0, at the latest in its last place.
        unsafe {
            let mut entry = self.address(dynamic.p_vaddr) as *const DynamicEntry;
            while (*entry).tag != 0 {
                let value = (*entry).value;
                match (*entry).tag {
                    DT_STRTAB => names = address(value),
                    DT_SYMTAB => symbols = address(value),
                    DT_RELA => all[0] = address(value),
                    DT_RELASZ => all[1] = value,
                    DT_RELACOUNT => all[2] = value,
                    DT_JMPREL => calls[0] = address(value),
                    DT_PLTRELSZ => calls[1] = value,
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        if symbols == 0 || names == 0 {
            return;
        }
        for (table, length, skipped) in [(calls[0], calls[1], 0), (all[0], all[1], all[2])] {
            if table == 0 {
                continue;
            }
            for at in skipped..length / size_of::<Relocation>() {
                // SAFETY: the section states the number of entries; a symbol that one names is in the symbol table, its
                // name a C string of the string table.
                unsafe {
                    let relocation = &*(table as *const Relocation).add(at);
                    let symbol = (relocation.info >> 32) as usize;
                    if symbol == 0 {
                        continue;
                    }
                    let symbol = &*(symbols as *const Symbol).add(symbol);
                    let name = CStr::from_ptr((names + symbol.name as usize) as *const c_char);
                    if !name.to_bytes().starts_with(b"sqlite3_") {
                        continue;
                    }
                    let slot = self.base.wrapping_add(relocation.offset) as *mut usize;
                    let defined = (symbol.section != 0).then(|| self.base + symbol.value);
                    each(RelocationSlot {
                        slot,
                        name,
                        defined,
                    });
                }
            }
        }
    }

    /// Returns the number of the interposed function whose address a slot holds.
    fn ours(&self, place: &RelocationSlot<'_>) -> Option<usize> {
        // SAFETY: the loader writes a whole word there, at load or at the first call.
        let value = unsafe { place.slot.read_volatile() };
        let at = NAMES.iter().position(|name| *name == place.name)?;
        (self.own[at] == value).then_some(at)
    }

    fn user(&self, caller: usize) -> Option<ImportingObject> {
        let mut user = ImportingObject {
            base: self.base,
            path: CString::default(),
            is_caller: self.contains(caller),
            holds: [false; NAMES.len()],
            bound: None,
        };
        self.places(|place| {
            if let Some(at) = self.ours(&place) {
                user.holds[at] = true;
                return;
            }
            // SAFETY: as of `ours`.
            let value = unsafe { place.slot.read_volatile() };
            // With lazy binding, a function that was not called yet may point into this object and not to its target.
            let is_bound = !self.contains(value) || place.defined == Some(value);
            if is_bound && value != 0 && !self.own.contains(&value) {
                user.bound = Some(value);
            }
        });
        let is_wanted = user.is_caller || user.holds.contains(&true);
        if is_wanted && !self.info.dlpi_name.is_null() {
            // SAFETY: the loader's path, a C string.
            user.path = unsafe { CStr::from_ptr(self.info.dlpi_name) }.to_owned();
        }
        is_wanted.then_some(user)
    }

    /// Replaces the addresses of interposed functions by those in `to`.
    fn bind(&self, to: &[usize; NAMES.len()]) {
        self.places(|place| {
            let Some(at) = self.ours(&place) else {
                return;
            };
            let wanted = to[at];
            if wanted == 0 {
                return;
            }
            let is_protected = self.is_protected(place.slot as usize);
            if is_protected && !protect(place.slot, libc::PROT_READ | libc::PROT_WRITE) {
                return;
            }
            // SAFETY: it is a word of the object's data, which is writable now; other threads read it as a whole.
            unsafe {
                let slot = &*place.slot.cast::<std::sync::atomic::AtomicUsize>();
                slot.store(wanted, std::sync::atomic::Ordering::Release);
            }
            if is_protected {
                protect(place.slot, libc::PROT_READ);
            }
        });
    }
}

fn page() -> usize {
    // SAFETY: it takes a number. If the page size is unknown, no page is changed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(usize::MAX)
}

/// Sets the access rights of the page of an address.
fn protect(address: *mut usize, rights: c_int) -> bool {
    let page = page();
    let start = address as usize / page * page;
    // SAFETY: the page is mapped, and its content stays.
    unsafe { libc::mprotect(start as *mut c_void, page, rights) == 0 }
}

/// Calls `each` with all objects, in the loader's order.
fn all(mut each: impl FnMut(&libc::dl_phdr_info)) {
    extern "C" fn one<F: FnMut(&libc::dl_phdr_info)>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's description, and the function passed below.
        unsafe { (*data.cast::<F>())(&*info) };
        0
    }
    fn callback<F: FnMut(&libc::dl_phdr_info)>(
        _: &F,
    ) -> extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        one::<F>
    }
    // SAFETY: `each` lives until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(callback(&each)), (&raw mut each).cast()) };
}

fn base_of(info: &libc::dl_phdr_info) -> usize {
    usize::try_from(info.dlpi_addr).unwrap_or(0)
}

/// Returns the objects that may have called an interposed function; `own` holds the addresses of those functions.
pub fn users(own: &[usize; NAMES.len()], caller: usize) -> Vec<ImportingObject> {
    let mut users = Vec::new();
    all(|info| {
        let base = base_of(info);
        let object = MappedObject { info, base, own };
        // Skips this library, which has their addresses too.
        if !object.contains(bind as *const () as usize) {
            users.extend(object.user(caller));
        }
    });
    users
}

/// Binds an object to these functions instead of the interposed ones; 0 leaves the interposed one.
pub fn bind(own: &[usize; NAMES.len()], base: usize, to: &[usize; NAMES.len()]) {
    all(|info| {
        if base_of(info) == base {
            MappedObject { info, base, own }.bind(to);
        }
    });
}
