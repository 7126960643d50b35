//! Handles that give memory to other processes: a text description and one descriptor per extent.
//!
//! A handle comes from another process and is not trusted. Each descriptor is checked for its type,
//! its length and a sealed length before it is mapped.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use hugeleaf_sys::{
    Advice, Errno, HugetlbReservation, Kernel, MemoryFile, MemorySyscalls, ReservedAddresses,
    Sharing,
};
use hugeleaf_units::{Bytes, Ladder, PageKind, PageSize, Range};

use crate::error::{MemoryError, again};
use crate::ladder_steps::LadderStep;
use crate::populate;
use crate::region::{Allocation, Region};

/// Version of the text format. Changes with every change of the format.
const VERSION: u32 = 1;
/// Maximum length of a handle's text in bytes.
pub(crate) const LONGEST: usize = 16 * 1024;
/// Maximum number of allocations; more than any ladder produces.
const MOST_ALLOCATIONS: usize = 64;

/// Shared memory on its way to another process.
///
/// A process that runs already receives it over a socket:
///
/// ```
/// use std::os::unix::net::UnixStream;
///
/// use hugeleaf::{Bytes, Handle, Region, RegionOptions};
///
/// let options = RegionOptions::new(Bytes::from_mib(4), "2M".parse()?).shared();
/// let region = Region::new(&options)?;
/// let (here, there) = UnixStream::pair()?;
/// region.handle()?.send(&here)?;
///
/// // In the other process:
/// let attached = Region::attach(&Handle::receive(&there)?)?;
/// assert_eq!(attached.len(), region.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A child process gets it in an argument or in its environment:
///
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticOptions, Handle};
///
/// let options = ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?).shared();
/// let memory = Elastic::new(&options)?;
/// // The handle lives until the child has started.
/// let handle = memory.handle()?;
/// let line = handle.inheritable()?;
/// println!("worker --memory '{line}'");
///
/// // In the child:
/// let attached = Elastic::attach(&Handle::from_inherited(&line)?)?;
/// assert_eq!(attached.max(), memory.max());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Handle {
    pub(crate) text: String,
    pub(crate) files: Vec<MemoryFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionDescription {
    pub(crate) ladder: Ladder,
    pub(crate) align: PageSize,
    /// Length, page size and kind of each allocation, in address order.
    pub(crate) allocations: Vec<(Bytes, PageSize, PageKind)>,
}

pub(crate) fn bad(what: impl Into<String>) -> MemoryError {
    MemoryError::BadHandle(what.into())
}

/// The lines of a handle's text, with one value each.
pub(crate) struct HandleLines<'a>(std::str::Lines<'a>);

impl<'a> HandleLines<'a> {
    /// Returns the lines after the first, which holds `begin` and the version.
    pub(crate) fn parse(
        text: &'a str,
        begin: &str,
        version: u32,
        else_said: &str,
    ) -> Result<HandleLines<'a>, MemoryError> {
        let mut lines = text.lines();
        let first = lines.next().and_then(|line| line.strip_prefix(begin));
        match first.and_then(|line| line.strip_prefix(' ')) {
            Some(said) if said == version.to_string() => Ok(HandleLines(lines)),
            Some(said) => Err(bad(format!(
                "it has version {said}, this library reads version {version}"
            ))),
            None => Err(bad(else_said)),
        }
    }

    /// Returns the value of the next line, which must start with `name`.
    pub(crate) fn word(&mut self, name: &str) -> Result<&'a str, MemoryError> {
        let line = self.0.next().and_then(|line| line.strip_prefix(name));
        line.ok_or_else(|| bad(format!("it lacks the line '{name}'")))
    }
}

impl RegionDescription {
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "hugeleaf-region {VERSION}\nladder {}\nalign {}\n",
            self.ladder,
            self.align.bytes().get()
        );
        for (length, page, kind) in &self.allocations {
            let (length, page) = (length.get(), page.bytes().get());
            text.push_str(&format!("piece {kind} {page} {length}\n"));
        }
        text.push_str("end\n");
        text
    }

    /// Parses exactly the output of [`RegionDescription::text`].
    pub(crate) fn parse(text: &str) -> Result<RegionDescription, MemoryError> {
        let mut lines = HandleLines::parse(
            text,
            "hugeleaf-region",
            VERSION,
            "it is not the handle of a region",
        )?;
        let ladder = lines.word("ladder ")?.parse();
        let ladder = ladder.map_err(|e| bad(format!("{e}")))?;
        let align = size_of(lines.word("align ")?)?;
        let mut allocations = Vec::new();
        for line in lines.0 {
            if line == "end" {
                return match allocations.is_empty() {
                    false => Ok(RegionDescription {
                        ladder,
                        align,
                        allocations,
                    }),
                    true => Err(bad("it has no extents")),
                };
            }
            if allocations.len() == MOST_ALLOCATIONS {
                return Err(bad(format!("it has more than {MOST_ALLOCATIONS} extents")));
            }
            // Allocations on growing pages would not be aligned to their size.
            let most = allocations.last().map_or(align, |(_, page, _)| *page);
            let allocation = allocation_of(line, most)?;
            if allocations.is_empty() && allocation.1 != align {
                return Err(bad("its alignment does not match its pages"));
            }
            allocations.push(allocation);
        }
        Err(bad("it is truncated"))
    }
}

fn size_of(word: &str) -> Result<PageSize, MemoryError> {
    let bytes = word
        .parse()
        .map_err(|_| bad(format!("'{word}' is not a size")))?;
    PageSize::new(Bytes(bytes)).map_err(|e| bad(e.to_string()))
}

/// Parses an allocation on pages of at most `most`.
fn allocation_of(line: &str, most: PageSize) -> Result<(Bytes, PageSize, PageKind), MemoryError> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["piece", kind, page, length] = words.as_slice() else {
        return Err(bad(format!("'{line}' is not an extent")));
    };
    let kinds = [PageKind::Base, PageKind::Thp, PageKind::Hugetlb];
    let kind = kinds.into_iter().find(|k| k.name() == *kind);
    let kind = kind.ok_or_else(|| bad(format!("'{line}' has no kind")))?;
    let page = size_of(page)?;
    let length: u64 = length
        .parse()
        .map_err(|_| bad(format!("'{line}' has no length")))?;
    match length > 0 && page.divides(length) && page <= most {
        true => Ok((Bytes(length), page, kind)),
        false => Err(bad(format!("'{line}' is inconsistent"))),
    }
}

impl Handle {
    /// Sends the handle over a Unix stream socket, in one message.
    ///
    /// # Errors
    /// Errors of sendmsg(2).
    pub fn send(&self, socket: &UnixStream) -> Result<(), MemoryError> {
        let files: Vec<&MemoryFile> = self.files.iter().collect();
        let memory = MemorySyscalls::new();
        Ok(again(|| {
            memory.send_files(socket, self.text.as_bytes(), &files)
        })?)
    }

    /// Receives a handle from [`Handle::send`].
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`] if the other side closed the socket or sent something else;
    /// errors of recvmsg(2).
    pub fn receive(socket: &UnixStream) -> Result<Handle, MemoryError> {
        let memory = MemorySyscalls::new();
        let (text, files) = again(|| memory.receive_files(socket, LONGEST))?;
        if text.is_empty() {
            return Err(bad("the other process closed the connection"));
        }
        let text = String::from_utf8(text).map_err(|_| bad("it is not text"))?;
        Ok(Handle { text, files })
    }

    /// Makes the descriptors inheritable and returns a line for an environment variable or
    /// argument. Children that this process starts from now on inherit them. The handle must live
    /// until they have started. Other programs started meanwhile inherit them too, and the memory
    /// stays until the last process has closed them.
    ///
    /// # Errors
    /// Errors of fcntl(2).
    pub fn inheritable(&self) -> Result<String, MemoryError> {
        let mut line = String::from("fds");
        for file in &self.files {
            let fd = file.file();
            hugeleaf_sys::keep_on_exec(fd)?;
            line.push_str(&format!(" {}", fd.as_raw_fd()));
        }
        line.push(';');
        line.push_str(&self.text.replace('\n', ";"));
        Ok(line)
    }

    /// Parses a line of [`Handle::inheritable`] in the child. The descriptors are duplicated; the
    /// inherited ones stay open.
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`] if the line is malformed or its descriptors are not open here.
    pub fn from_inherited(line: &str) -> Result<Handle, MemoryError> {
        let parts = line
            .strip_prefix("fds")
            .and_then(|rest| rest.split_once(';'));
        let (numbers, text) = parts.ok_or_else(|| bad("it is not such a line"))?;
        let mut files = Vec::new();
        for number in numbers.split_ascii_whitespace() {
            let fd = number
                .parse()
                .map_err(|_| bad(format!("'{number}' is not a descriptor")))?;
            let file = hugeleaf_sys::duplicate_raw(fd);
            let file = file.map_err(|_| bad(format!("descriptor {fd} is not open")))?;
            files.push(MemoryFile::from_fd(file));
        }
        Ok(Handle {
            text: text.replace(';', "\n"),
            files,
        })
    }
}

impl Region {
    /// Returns a handle for other processes.
    ///
    /// # Errors
    /// [`MemoryError::NotShared`]; EMFILE.
    pub fn handle(&self) -> Result<Handle, MemoryError> {
        if self.sharing != Sharing::Shared {
            return Err(MemoryError::NotShared);
        }
        let memory = self.space.memory();
        let mut files = Vec::new();
        for allocation in &self.allocations {
            let file = allocation.file.as_ref().ok_or(MemoryError::NotShared)?;
            files.push(memory.duplicate(file)?);
        }
        let allocations = self.allocations.iter();
        let sizes = allocations.clone().map(|p| p.step.size);
        let description = RegionDescription {
            ladder: self.ladder.clone(),
            align: sizes.max().unwrap_or(self.base),
            allocations: allocations
                .map(|p| (p.range.len(), p.step.size, p.step.kind))
                .collect(),
        };
        Ok(Handle {
            text: description.text(),
            files,
        })
    }

    /// Maps the region of a handle, aligned to its largest pages. The memory already exists; only
    /// page tables of this process are populated.
    ///
    /// # Errors
    /// [`MemoryError::BadHandle`] if the descriptors do not match the description; errors of the
    /// system calls.
    pub fn attach(handle: &Handle) -> Result<Region, MemoryError> {
        Region::attach_with(handle, &MemorySyscalls::new())
    }

    /// As [`Region::attach`], with the given system calls, which may be behind a gate.
    pub(crate) fn attach_with(
        handle: &Handle,
        memory: &MemorySyscalls,
    ) -> Result<Region, MemoryError> {
        let description = RegionDescription::parse(&handle.text)?;
        if description.allocations.len() != handle.files.len() {
            return Err(bad(format!(
                "it has {} extents and {} descriptors",
                description.allocations.len(),
                handle.files.len()
            )));
        }
        let host = hugeleaf_host::read_memory_facts(&hugeleaf_host::Root::live(), &Kernel::new())?;
        let each = description.allocations.iter().zip(&handle.files);
        let mut length = 0u64;
        for (allocation, file) in each.clone() {
            check(memory, file, allocation, host.base_page)?;
            length = length
                .checked_add(allocation.0.get())
                .ok_or_else(|| bad("it is too long"))?;
        }
        let space = memory.reserve_addresses(Bytes(length), description.align)?;
        let mut allocations = Vec::new();
        let mut at = 0;
        for (allocation, file) in each {
            let range = space
                .part(at, allocation.0)
                .ok_or_else(|| bad("it is too long"))?;
            at += allocation.0.get();
            allocations.push(map_allocation(&space, range, allocation, file)?);
        }
        Ok(Region {
            space,
            allocations,
            asked: description.ladder.rungs()[0],
            ladder: description.ladder,
            sharing: Sharing::Shared,
            base: host.base_page,
            huge: host.pmd_page.get(),
        })
    }
}

/// Maps one allocation of another process's region and populates the page tables of this process.
fn map_allocation(
    space: &ReservedAddresses,
    range: Range,
    (_, page, kind): &(Bytes, PageSize, PageKind),
    file: &MemoryFile,
) -> Result<Allocation, MemoryError> {
    let file = space.memory().duplicate(file)?;
    space
        .map_file(range, &file, 0, HugetlbReservation::None)
        .map_err(|error| match error.errno {
            // The file was opened read-only or sealed against writing.
            Errno::ACCESS | Errno::PERM => bad("a descriptor is not writable"),
            _ => error.into(),
        })?;
    if *kind == PageKind::Thp {
        // Without this advice some kernels map the huge page as base pages. A failure is harmless.
        let _ = space.advise(range, Advice::HugePage);
    }
    populate::populate_in_steps(space, range, *page)?;
    let step = LadderStep {
        size: *page,
        kind: *kind,
        named: true,
    };
    Ok(Allocation {
        range,
        step,
        file: Some(file),
        why: None,
    })
}

/// Checks that a descriptor matches its description and can no longer be truncated. Every mapped
/// page then exists and stays.
fn check(
    memory: &MemorySyscalls,
    file: &MemoryFile,
    (length, page, kind): &(Bytes, PageSize, PageKind),
    base: PageSize,
) -> Result<(), MemoryError> {
    if *page < base || (*page == base) != (*kind == PageKind::Base) {
        return Err(bad(format!("this host has no {kind} pages of {page}")));
    }
    let pool = (*kind == PageKind::Hugetlb).then_some(*page);
    // Missing memory would be taken from the pool at the first access, or raise SIGBUS.
    match held_in(memory, file, pool, *length)? >= *length {
        true => Ok(()),
        false => Err(bad("a descriptor holds less memory than stated")),
    }
}

/// Returns the memory that a descriptor holds. Its page kind must match and its length be sealed.
pub(crate) fn held_in(
    memory: &MemorySyscalls,
    file: &MemoryFile,
    pool: Option<PageSize>,
    length: Bytes,
) -> Result<Bytes, MemoryError> {
    let facts = memory.facts(file);
    let facts = facts.map_err(|_| bad("a descriptor is not memory"))?;
    if facts.hugetlb != pool {
        return Err(bad("a descriptor has another kind of pages than stated"));
    }
    if facts.length != length || !facts.keeps_length {
        let said = "a descriptor has another length than stated, or can be truncated";
        return Err(bad(said));
    }
    Ok(facts.held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> RegionDescription {
        RegionDescription {
            ladder: "1G,2M".parse().unwrap(),
            align: "1G".parse().unwrap(),
            allocations: vec![
                (Bytes(2 << 30), "1G".parse().unwrap(), PageKind::Hugetlb),
                (Bytes(12 << 20), "2M".parse().unwrap(), PageKind::Thp),
                (Bytes(4096), "4K".parse().unwrap(), PageKind::Base),
            ],
        }
    }

    #[test]
    fn reads_what_it_writes() {
        assert_eq!(
            RegionDescription::parse(&sample().text()).unwrap(),
            sample()
        );
    }

    #[test]
    fn other_versions_and_forgeries_are_told() {
        let text = sample().text();
        let newer = text.replacen("region 1", "region 2", 1);
        let error = RegionDescription::parse(&newer).unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
        for (from, to) in [
            ("end\n", ""),
            ("piece thp 2097152 12582912", "piece thp 2097152 12582913"),
            ("piece thp", "piece odd"),
            ("align 1073741824", "align 4096"),
            ("align 1073741824", "align 2147483648"),
            (
                "piece base 4096 4096",
                "piece hugetlb 1073741824 1073741824",
            ),
            ("align 1073741824", "align 0"),
            ("12582912", "0"),
        ] {
            let forged = text.replacen(from, to, 1);
            assert!(matches!(
                RegionDescription::parse(&forged),
                Err(MemoryError::BadHandle(_))
            ));
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).{0,200}") {
            let _ = RegionDescription::parse(&text);
            let _ = Handle::from_inherited(&text);
        }

        #[test]
        fn nothing_cut_is_taken(cut in 0usize..80) {
            let text = sample().text();
            if let Some(short) = text.get(..cut) {
                prop_assert!(RegionDescription::parse(short).is_err());
            }
        }
    }
}
