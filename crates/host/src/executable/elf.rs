//! ELF facts that decide the behaviour of a loader (elf(5)). Pure: the caller passes a read
//! function, which is used for headers and names only.

use crate::parse_helpers::whole_number;

/// Limits for the dynamic section and for program headers: far above the output of linkers, and low
/// enough to be fast.
const MOST_HEADERS: usize = 1024;
const MOST_HEADER: usize = 256;
const MOST_DYNAMIC: usize = 64 * 1024; // not a page size: bytes of one section
const MOST_NAME: usize = 1024;
const MOST_NEEDED: usize = 512;
const MOST_SYMBOLS: usize = 64 << 20; // bytes of the symbol table, or of its names

pub(super) const MAGIC: &[u8] = b"\x7fELF";

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// 32 or 64.
    pub bits: u8,
    /// Processor architecture (`e_machine`).
    pub machine: u16,
    /// The requested loader (`PT_INTERP`). `None` for a static program.
    pub interpreter: Option<String>,
    /// Names of the required libraries (`DT_NEEDED`).
    pub needed: Vec<String>,
}

/// The reason why bytes are not an ELF file that a kernel would run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The magic number is missing.
    #[error("not an ELF file")]
    NotElf,
    /// The file ends inside this part.
    #[error("the ELF file ends inside its {0}")]
    Short(&'static str),
    /// This part has an impossible value.
    #[error("the ELF file has an invalid {0}")]
    Wrong(&'static str),
}

/// Reads up to a number of bytes at an offset. Returns fewer, or none, at the end of the file.
pub(super) type ReadAt<'a> = &'a dyn Fn(u64, usize) -> Vec<u8>;

/// Parses an ELF file that is in memory.
///
/// # Errors
/// [`ElfError`]. Any bytes may be passed.
pub fn parse_elf(bytes: &[u8]) -> Result<Elf, ElfError> {
    parse(&|offset, length| {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let end = start.saturating_add(length).min(bytes.len());
        bytes[start..end].to_vec()
    })
}

/// A number format: 32 or 64 bits, little or big endian.
#[derive(Clone, Copy)]
struct ElfEncoding {
    wide: bool,
    little: bool,
}

struct ProgramHeader {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

impl ElfEncoding {
    /// Returns the number of `width` bytes at `at`.
    fn number(
        self,
        bytes: &[u8],
        at: usize,
        width: usize,
        of: &'static str,
    ) -> Result<u64, ElfError> {
        let field = bytes.get(at..at + width).ok_or(ElfError::Short(of))?;
        Ok(whole_number(field, !self.little))
    }

    /// Returns the address-sized number at one offset in 32-bit files and at another in 64-bit
    /// ones.
    fn word(self, bytes: &[u8], at: (usize, usize), of: &'static str) -> Result<u64, ElfError> {
        match self.wide {
            false => self.number(bytes, at.0, 4, of),
            true => self.number(bytes, at.1, 8, of),
        }
    }

    /// Returns the two-byte number at one offset in 32-bit files and at another in 64-bit ones.
    fn half(self, bytes: &[u8], at: (usize, usize), of: &'static str) -> Result<u16, ElfError> {
        let at = if self.wide { at.1 } else { at.0 };
        let value = self.number(bytes, at, 2, of)?;
        u16::try_from(value).map_err(|_| ElfError::Wrong(of))
    }
}

/// The number format, the architecture and the program headers of a file.
struct ElfHeaders {
    layout: ElfEncoding,
    machine: u16,
    parts: Vec<ProgramHeader>,
}

impl ElfHeaders {
    fn of_kind(&self, kind: u32) -> Option<&ProgramHeader> {
        self.parts.iter().find(|part| part.kind == kind)
    }
}

fn headers(read: ReadAt<'_>) -> Result<ElfHeaders, ElfError> {
    const HEADER: &str = "header";
    let header = read(0, 64);
    if !header.starts_with(MAGIC) {
        return Err(ElfError::NotElf);
    }
    let class = *header.get(4).ok_or(ElfError::Short(HEADER))?;
    let order = *header.get(5).ok_or(ElfError::Short(HEADER))?;
    let layout = ElfEncoding {
        wide: match class {
            1 => false,
            2 => true,
            _ => return Err(ElfError::Wrong("class")),
        },
        little: match order {
            1 => true,
            2 => false,
            _ => return Err(ElfError::Wrong("byte order")),
        },
    };
    Ok(ElfHeaders {
        machine: layout.half(&header, (18, 18), HEADER)?,
        parts: parts(read, layout, &header)?,
        layout,
    })
}

pub(super) fn parse(read: ReadAt<'_>) -> Result<Elf, ElfError> {
    let headers = headers(read)?;
    let interpreter = match headers.of_kind(PT_INTERP) {
        Some(part) => Some(name_at(read, part.offset, part.length, "interpreter")?),
        None => None,
    };
    let needed = match headers.of_kind(PT_DYNAMIC) {
        Some(part) => needed(read, &headers, part)?,
        None => Vec::new(),
    };
    Ok(Elf {
        bits: if headers.layout.wide { 64 } else { 32 },
        machine: headers.machine,
        interpreter,
        needed,
    })
}

/// Returns true if other objects can call a function of this 64-bit object by its name.
pub(super) fn exports(read: ReadAt<'_>, name: &str) -> Result<bool, ElfError> {
    const SYMBOLS: &str = "symbol table";
    const SYMBOL: usize = 24; // bytes of an Elf64_Sym
    let headers = headers(read)?;
    let Some(dynamic) = headers.of_kind(PT_DYNAMIC) else {
        return Ok(false);
    };
    let (mut symbols, mut names, mut length) = (0, 0, 0);
    for (tag, value) in dynamic_entries(read, headers.layout, dynamic)? {
        match tag {
            DT_SYMTAB => symbols = value,
            DT_STRTAB => names = value,
            DT_STRSZ => length = value,
            _ => {}
        }
    }
    let bytes = |address: u64, length: u64| {
        let offset = offset_of(address, &headers.parts).ok_or(ElfError::Wrong(SYMBOLS))?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(read(offset, length.min(MOST_SYMBOLS)))
    };
    // Linkers place the names after the symbols. Bytes of other tables between the two match no name.
    let table = bytes(symbols, names.saturating_sub(symbols))?;
    let names = bytes(names, length)?;
    let named = |symbol: &[u8]| -> Result<bool, ElfError> {
        let at = headers.layout.number(symbol, 0, 4, SYMBOLS)?;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let rest = names
            .get(at..)
            .and_then(|rest| rest.strip_prefix(name.as_bytes()));
        let section = headers.layout.number(symbol, 6, 2, SYMBOLS)?;
        Ok(section != 0 && rest.is_some_and(|rest| rest.first() == Some(&0)))
    };
    for symbol in table.chunks_exact(SYMBOL) {
        if named(symbol)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn parts(
    read: ReadAt<'_>,
    layout: ElfEncoding,
    header: &[u8],
) -> Result<Vec<ProgramHeader>, ElfError> {
    const HEADERS: &str = "program headers";
    let offset = layout.word(header, (28, 32), HEADERS)?;
    let length = usize::from(layout.half(header, (42, 54), HEADERS)?);
    let count = usize::from(layout.half(header, (44, 56), HEADERS)?);
    if count == 0 {
        return Ok(Vec::new());
    }
    let least = if layout.wide { 56 } else { 32 };
    if !(least..=MOST_HEADER).contains(&length) || count > MOST_HEADERS {
        return Err(ElfError::Wrong(HEADERS));
    }
    let table = read(offset, length * count);
    let mut parts = Vec::with_capacity(count);
    for i in 0..count {
        let entry = table.get(i * length..).ok_or(ElfError::Short(HEADERS))?;
        let kind = layout.number(entry, 0, 4, HEADERS)?;
        parts.push(ProgramHeader {
            kind: u32::try_from(kind).unwrap_or(u32::MAX),
            offset: layout.word(entry, (4, 8), HEADERS)?,
            address: layout.word(entry, (8, 16), HEADERS)?,
            length: layout.word(entry, (16, 32), HEADERS)?,
        });
    }
    Ok(parts)
}

/// Returns tags and values of the dynamic section.
fn dynamic_entries(
    read: ReadAt<'_>,
    layout: ElfEncoding,
    dynamic: &ProgramHeader,
) -> Result<Vec<(u64, u64)>, ElfError> {
    const SECTION: &str = "dynamic section";
    let width = if layout.wide { 16 } else { 8 };
    let length = usize::try_from(dynamic.length)
        .unwrap_or(usize::MAX)
        .min(MOST_DYNAMIC);
    let section = read(dynamic.offset, length);
    let mut entries = Vec::new();
    for entry in section.chunks_exact(width) {
        let tag = layout.word(entry, (0, 0), SECTION)?;
        if tag == DT_NULL {
            break;
        }
        entries.push((tag, layout.word(entry, (4, 8), SECTION)?));
    }
    Ok(entries)
}

/// Returns the names of the libraries that the dynamic section requires.
fn needed(
    read: ReadAt<'_>,
    headers: &ElfHeaders,
    dynamic: &ProgramHeader,
) -> Result<Vec<String>, ElfError> {
    let (mut names, mut table) = (Vec::new(), None);
    for (tag, value) in dynamic_entries(read, headers.layout, dynamic)? {
        match tag {
            DT_NEEDED if names.len() < MOST_NEEDED => names.push(value),
            DT_STRTAB => table = Some(value),
            _ => {}
        }
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let address = table.ok_or(ElfError::Wrong("string table"))?;
    let table = offset_of(address, &headers.parts).ok_or(ElfError::Wrong("string table"))?;
    let name = |at: &u64| {
        let offset = table.checked_add(*at).ok_or(ElfError::Wrong("name"))?;
        name_at(read, offset, u64::MAX, "names")
    };
    names.iter().map(name).collect()
}

/// Returns the file offset of an address of the program.
fn offset_of(address: u64, parts: &[ProgramHeader]) -> Option<u64> {
    parts
        .iter()
        .filter(|part| part.kind == PT_LOAD)
        .find_map(|part| {
            let inside = address.checked_sub(part.address)?;
            (inside < part.length).then(|| part.offset.checked_add(inside))?
        })
}

/// Reads a name that ends with a zero byte, or with its part.
fn name_at(read: ReadAt<'_>, offset: u64, most: u64, of: &'static str) -> Result<String, ElfError> {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(MOST_NAME);
    let bytes = read(offset, length);
    let name = bytes.split(|b| *b == 0).next().unwrap_or_default();
    if name.is_empty() {
        return Err(ElfError::Short(of));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a 64-bit little-endian file with one loaded part, a loader and one library.
    fn file(interpreter: &str, library: &str) -> Vec<u8> {
        let header = |kind: u32, offset: u64, length: u64| {
            let mut entry = Vec::new();
            entry.extend(kind.to_le_bytes());
            entry.extend(0u32.to_le_bytes());
            for number in [offset, offset, offset, length, length, 1] {
                entry.extend(number.to_le_bytes());
            }
            entry
        };
        let start = 64 + 3 * 56;
        let names = format!("{interpreter}\0{library}\0");
        let dynamic = start + names.len() as u64;
        let mut bytes = MAGIC.to_vec();
        bytes.extend([2, 1, 1]);
        bytes.resize(64, 0);
        bytes[18] = 62;
        bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
        bytes[54] = 56;
        bytes[56] = 3;
        bytes.extend(header(PT_LOAD, 0, dynamic));
        bytes.extend(header(PT_INTERP, start, interpreter.len() as u64 + 1));
        bytes.extend(header(PT_DYNAMIC, dynamic, 48));
        bytes.extend(names.as_bytes());
        for (tag, value) in [
            (DT_NEEDED, interpreter.len() as u64 + 1),
            (DT_STRTAB, start),
            (DT_NULL, 0),
        ] {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn loader_and_libraries() {
        let elf = parse_elf(&file("/lib/ld-musl-x86_64.so.1", "libasan.so.8")).unwrap();
        assert_eq!(elf.interpreter.as_deref(), Some("/lib/ld-musl-x86_64.so.1"));
        assert_eq!(elf.needed, ["libasan.so.8"]);
        assert_eq!((elf.bits, elf.machine), (64, 62));
    }

    #[test]
    fn what_is_no_program() {
        assert_eq!(parse_elf(b"#!/bin/sh"), Err(ElfError::NotElf));
        assert_eq!(parse_elf(b""), Err(ElfError::NotElf));
        assert_eq!(parse_elf(b"\x7fELF"), Err(ElfError::Short("header")));
        assert_eq!(parse_elf(b"\x7fELF\x09\x01"), Err(ElfError::Wrong("class")));
    }

    #[test]
    fn a_name_outside_the_file_is_an_error() {
        let mut bytes = file("/lib/ld.so", "libc.so.6");
        let at = bytes.len() - 40;
        bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(parse_elf(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_elf(&bytes);
        }

        #[test]
        fn never_panics_on_a_damaged_file(
            at in 0usize..320, byte: u8, length in 0usize..400, name in "[a-z./]{1,40}"
        ) {
            let mut bytes = file("/lib64/ld-linux-x86-64.so.2", &name);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(length);
            let read = |offset: u64, length: usize| {
                let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
                rest.map_or(Vec::new(), |rest| rest[..length.min(rest.len())].to_vec())
            };
            let _ = exports(&read, "sqlite3_open");
            if let Ok(elf) = parse_elf(&bytes) {
                prop_assert!(elf.needed.len() <= MOST_NEEDED);
            }
        }

        #[test]
        fn names_come_back(interpreter in "/[a-z/]{1,60}", library in "lib[a-z]{1,60}\\.so") {
            let elf = parse_elf(&file(&interpreter, &library)).unwrap();
            prop_assert_eq!(elf.interpreter, Some(interpreter));
            prop_assert_eq!(elf.needed, [library]);
        }
    }
}
