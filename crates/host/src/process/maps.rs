//! `/proc/PID/maps` and `/proc/PID/smaps` (proc(5)).

use std::io::{BufRead, Error, ErrorKind};

use hugeleaf_units::{Bytes, Range};

#[cfg(feature = "full")]
use hugeleaf_sys::Pid;

use crate::model::VmFlags;
use crate::parse_helpers::{ParseError, kib};
#[cfg(feature = "full")]
use crate::{Fact, Root, process::file_of};

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapLine {
    pub range: Range,
    /// `r`, `w`, `x`.
    pub permissions: [bool; 3],
    /// True for `s`, false for `p`.
    pub shared: bool,
    /// Offset in bytes.
    pub offset: u64,
    /// Device (major, minor) and inode. (0, 0, 0) for private anonymous memory.
    pub object: (u32, u32, u64),
    /// Path or name, as written. Empty if there is none.
    pub name: String,
}

/// Parses one line of `maps`. `line` is its number, for the error.
///
/// # Errors
/// If it is not `start-end perms offset major:minor inode [name]`.
pub fn parse_map_line(line: usize, text: &str) -> Result<MapLine, ParseError> {
    let error = |what| ParseError::new(line, what, text);
    let mut rest = text;
    // Single spaces separate the first five fields. The name is padded and may hold spaces.
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let (addresses, permissions, offset, device, inode) = (word(), word(), word(), word(), word());
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let name = rest.trim_start();
    let range = addresses.parse().map_err(|_| error("expected start-end"))?;
    let p = permissions.as_bytes();
    if p.len() != 4 {
        return Err(error("expected four permissions"));
    }
    let number = |s: &str| u32::from_str_radix(s, 16).ok();
    let device = device.split_once(':');
    let (major, minor) = device
        .and_then(|(major, minor)| Some((number(major)?, number(minor)?)))
        .ok_or_else(|| error("expected major:minor"))?;
    let inode = inode.parse().map_err(|_| error("expected an inode"))?;
    let shared = p[3] == b's';
    let offset = hex(offset).ok_or_else(|| error("expected an offset"))?;
    let (offset, object) = match !shared && major == 0 && is_zero_device(name) {
        true => (0, (0, 0, 0)),
        false => (offset, (major, minor, inode)),
    };
    Ok(MapLine {
        range,
        permissions: [p[0] == b'r', p[1] == b'w', p[2] == b'x'],
        shared,
        offset,
        object,
        name: name.to_owned(),
    })
}

/// True for the zero device. The kernel makes its private mapping anonymous (`mmap_zero`, drivers/char/mem.c), but
/// shows the device's path and a file system without a disk. In a container or chroot the path has a prefix.
pub(crate) fn is_zero_device(name: &str) -> bool {
    name.ends_with("/dev/zero")
}

/// Adds a mapping to those listed before it. A file of `/proc` that is read in several calls is no snapshot,
/// because the process keeps running. A heap that has grown between two calls is listed again, from its start,
/// with its new end. `m_start` in fs/proc/task_mmu.c searches for the mapping at the address where the last call
/// ended. Of two overlapping mappings, the later one stays whole. The earlier one is cut (`cut`) to the part below
/// it. So the ranges that are kept are in order of address and do not overlap.
fn list<T>(listed: &mut Vec<T>, new: T, range: impl Fn(&T) -> Range, cut: impl Fn(&mut T, Range)) {
    let start = range(&new).start();
    while let Some(last) = listed.last_mut() {
        if range(last).end() <= start {
            break;
        }
        match Range::new(range(last).start(), start) {
            Ok(below) => {
                cut(last, below);
                break;
            }
            Err(_) => listed.pop(),
        };
    }
    listed.push(new);
}

fn list_map(listed: &mut Vec<MapLine>, new: MapLine) {
    list(listed, new, |map| map.range, |map, below| map.range = below);
}

/// Maximum number of mappings read of a process: four times the kernel's own limit (`vm.max_map_count`).
const MOST_MAPPINGS: usize = 1 << 18;

/// Maximum total length of the names of all mappings of a process.
const MOST_NAMES: usize = 32 << 20;

/// Maximum length of a line: the fields before the name, and a path of which every byte may be escaped as four.
const LONGEST_LINE: u64 = 32 << 10;

/// Reads the lines of a file whose length a process controls.
///
/// # Errors
/// Those of read(2). Also if the file exceeds the limits above.
fn each_line(
    reader: &mut dyn BufRead,
    mut take: impl FnMut(usize, &str) -> Result<usize, ParseError>,
) -> std::io::Result<Result<(), ParseError>> {
    use std::io::Read;
    let (mut line, mut number, mut mappings, mut names) = (Vec::new(), 0, 0, 0);
    loop {
        line.clear();
        let length = (&mut *reader)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(Ok(()));
        }
        number += 1;
        let text = String::from_utf8_lossy(&line);
        match take(number, text.strip_suffix('\n').unwrap_or(&text)) {
            Ok(0) => {}
            Ok(name) => {
                mappings += 1;
                names += name - 1;
            }
            Err(error) => return Ok(Err(error)),
        }
        if mappings > MOST_MAPPINGS || names > MOST_NAMES {
            return Err(Error::new(
                ErrorKind::FileTooLarge,
                format!("skipped: more than {MOST_MAPPINGS} mappings, or more than 32M of names"),
            ));
        }
    }
}

/// Reads `/proc/PID/maps` line by line. Ranges are in order of address and do not overlap, even if the process changed
/// them meanwhile.
///
/// # Errors
/// Those of read(2), or too many mappings. The inner error is the first line that does not parse.
pub fn read_maps(reader: &mut dyn BufRead) -> std::io::Result<Result<Vec<MapLine>, ParseError>> {
    let mut maps = Vec::new();
    let read = each_line(reader, |number, line| {
        let map = parse_map_line(number, line)?;
        let name = map.name.len();
        list_map(&mut maps, map);
        Ok(name + 1)
    })?;
    Ok(read.map(|()| maps))
}

/// One mapping of `/proc/PID/smaps`, or the sum of them in `smaps_rollup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmapsEntry {
    pub map: MapLine,
    pub counts: SmapsCounts,
    /// `VmFlags`.
    pub flags: VmFlags,
    /// `THPeligible`.
    pub thp_eligible: Option<bool>,
}

/// The counters of one mapping. A counter that the kernel does not print is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SmapsCounts {
    /// `KernelPageSize`. 0 if not printed.
    pub kernel_page: Bytes,
    /// `Referenced`: touched since its bits were cleared (`clear_refs`), or at all.
    pub referenced: Bytes,
    /// `Rss`, which excludes hugetlb pages.
    pub resident: Bytes,
    /// `Pss`.
    pub pss: Bytes,
    /// `Shared_Clean` + `Shared_Dirty`.
    pub shared: Bytes,
    /// `Anonymous`.
    pub anonymous: Bytes,
    /// `KSM`. `None` if the kernel does not print it (before Linux 6.7).
    pub merged: Option<Bytes>,
    /// `AnonHugePages` + `ShmemPmdMapped` + `FilePmdMapped`.
    pub pmd_mapped: Bytes,
    /// `Shared_Hugetlb` + `Private_Hugetlb`.
    pub hugetlb: Bytes,
    /// `Shared_Hugetlb`: mapped more than once.
    pub hugetlb_shared: Bytes,
    /// `Swap`.
    pub swapped: Bytes,
    /// `SwapPss`: proportional share of swapped memory.
    pub swapped_pss: Bytes,
    /// `Locked`.
    pub locked: Bytes,
}

impl SmapsCounts {
    /// Returns upper bounds of the counters for a part of `len` bytes, because the location of the pages within
    /// the mapping is not reported.
    fn within(self, len: Bytes) -> SmapsCounts {
        let part = |bytes: Bytes| match self.resident > len {
            true => bytes.scaled(len, self.resident),
            false => bytes,
        };
        SmapsCounts {
            kernel_page: self.kernel_page,
            referenced: part(self.referenced),
            resident: part(self.resident),
            pss: part(self.pss),
            shared: part(self.shared),
            anonymous: part(self.anonymous),
            merged: self.merged.map(part),
            pmd_mapped: part(self.pmd_mapped),
            hugetlb: self.hugetlb.min(len),
            hugetlb_shared: self.hugetlb_shared.min(len),
            swapped: self.swapped.min(len - part(self.resident)),
            swapped_pss: self.swapped_pss.min(len - part(self.resident)),
            locked: self.locked.min(len),
        }
    }
}

/// Reads `/proc/PID/smaps` or `smaps_rollup` line by line. Skips unknown lines. Ranges are in order of address and do
/// not overlap, even if the process changed them meanwhile.
///
/// # Errors
/// Those of read(2), or too many mappings. The inner error is a bad heading, a counter that is not in kB, or a counter
/// before the first heading.
pub fn read_smaps_lines(
    reader: &mut dyn BufRead,
) -> std::io::Result<Result<Vec<SmapsEntry>, ParseError>> {
    let mut entries = Vec::new();
    let read = each_line(reader, |number, line| {
        smaps_line(&mut entries, number, line)
    })?;
    Ok(read.map(|()| entries))
}

/// Parses one line. Returns the length of the mapping's name plus one for a heading, 0 for other lines.
fn smaps_line(
    entries: &mut Vec<SmapsEntry>,
    number: usize,
    line: &str,
) -> Result<usize, ParseError> {
    // A counter starts with a name in capitals, a heading with a lower-case hex address.
    if !line.starts_with(|c: char| c.is_ascii_uppercase()) {
        let entry = SmapsEntry {
            map: parse_map_line(number, line)?,
            counts: SmapsCounts::default(),
            flags: VmFlags::default(),
            thp_eligible: None,
        };
        let name = entry.map.name.len();
        let cut = |entry: &mut SmapsEntry, below: Range| {
            entry.map.range = below;
            entry.counts = entry.counts.within(below.len());
        };
        list(entries, entry, |entry| entry.map.range, cut);
        return Ok(name + 1);
    }
    let Some(entry) = entries.last_mut() else {
        return Err(ParseError::new(number, "expected a mapping first", line));
    };
    // A line without a colon was cut off within a name and holds no value.
    if let Some((name, value)) = line.split_once(':') {
        counter(entry, number, name, value)?;
    }
    Ok(0)
}

fn counter(entry: &mut SmapsEntry, line: usize, name: &str, value: &str) -> Result<(), ParseError> {
    let counts = &mut entry.counts;
    match name {
        "KernelPageSize" => counts.kernel_page = kib(line, value)?,
        "Rss" => counts.resident = kib(line, value)?,
        "Pss" => counts.pss = kib(line, value)?,
        "Shared_Clean" | "Shared_Dirty" => counts.shared += kib(line, value)?,
        "Referenced" => counts.referenced = kib(line, value)?,
        "Anonymous" => counts.anonymous = kib(line, value)?,
        "KSM" => counts.merged = Some(kib(line, value)?),
        "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => {
            counts.pmd_mapped += kib(line, value)?;
        }
        "Private_Hugetlb" => counts.hugetlb += kib(line, value)?,
        "Shared_Hugetlb" => {
            counts.hugetlb_shared = kib(line, value)?;
            counts.hugetlb += counts.hugetlb_shared;
        }
        "Swap" => counts.swapped = kib(line, value)?,
        "SwapPss" => counts.swapped_pss = kib(line, value)?,
        "Locked" => counts.locked = kib(line, value)?,
        "THPeligible" => entry.thp_eligible = Some(value.trim() == "1"),
        "VmFlags" => {
            let flags = value.split_ascii_whitespace();
            entry.flags = VmFlags(
                flags
                    .filter_map(|flag| flag.as_bytes().try_into().ok())
                    .collect(),
            );
        }
        _ => {}
    }
    Ok(())
}

/// Parses the NUMA policies of `/proc/PID/numa_maps` (numa(7)) by start address, without those that are `default`.
/// Skips bad lines, because the file is optional.
pub fn parse_policies(text: &str) -> Vec<(u64, String)> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let start = u64::from_str_radix(words.next()?, 16).ok()?;
            let policy = words.next()?;
            (policy != "default").then(|| (start, policy.to_owned()))
        })
        .collect()
}

/// Memory of a mapping by node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingNodes {
    pub start: u64,
    pub nodes: Vec<(u32, Bytes)>,
}

/// Parses the memory by node of `/proc/PID/numa_maps`. Skips bad lines, and mappings without memory.
pub fn parse_node_memory(text: &str) -> Vec<MappingNodes> {
    text.lines().filter_map(node_memory).collect()
}

fn node_memory(line: &str) -> Option<MappingNodes> {
    let mut words = line.split_ascii_whitespace();
    let start = u64::from_str_radix(words.next()?, 16).ok()?;
    let (mut nodes, mut page) = (Vec::new(), None);
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        let node = name.strip_prefix('N').and_then(|node| node.parse().ok());
        match (node, name) {
            (Some(node), _) => nodes.push((node, value.parse::<u64>().ok()?)),
            (None, "kernelpagesize_kB") => page = Some(Bytes::from_kib(value.parse().ok()?)),
            _ => {}
        }
    }
    let page = page?;
    let nodes: Vec<(u32, Bytes)> = nodes
        .into_iter()
        .map(|(n, pages)| (n, page * pages))
        .collect();
    (!nodes.is_empty()).then_some(MappingNodes { start, nodes })
}

/// Returns the mappings of a process, without counters.
#[cfg(feature = "full")]
pub(crate) fn mappings(root: &Root, pid: Pid) -> Fact<Vec<MapLine>> {
    match root.parse_lines(file_of(pid, "maps"), read_maps) {
        // A captured host may have smaps alone.
        Fact::Absent => root
            .parse_lines(file_of(pid, "smaps"), read_smaps_lines)
            .map(|entries| entries.into_iter().map(|e| e.map).collect()),
        maps => maps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_by_node_is_in_pages_of_the_kernel() {
        let text = "7f00 bind:1 file=/anon_hugepage\\040(deleted) huge dirty=3 N0=1 N1=2 kernelpagesize_kB=2048\n\
                    8000 default anon=5 N0=5 kernelpagesize_kB=4\n9000 default\nx default N0=1 kernelpagesize_kB=4\n";
        let mapping = |start, nodes: &[(u32, u64)]| MappingNodes {
            start,
            nodes: nodes
                .iter()
                .map(|(n, kib)| (*n, Bytes::from_kib(*kib)))
                .collect(),
        };
        let expected = [
            mapping(0x7f00, &[(0, 2048), (1, 4096)]),
            mapping(0x8000, &[(0, 20)]),
        ];
        assert_eq!(parse_node_memory(text), expected);
    }

    fn parse_maps(text: &str) -> Result<Vec<MapLine>, ParseError> {
        read_maps(&mut text.as_bytes()).unwrap()
    }

    fn parse_smaps(text: &str) -> Result<Vec<SmapsEntry>, ParseError> {
        read_smaps_lines(&mut text.as_bytes()).unwrap()
    }

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-s 00001000 00:01 2051                       /dev/zero (deleted)
Size:               4096 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                4096 kB
Pss:                2048 kB
Shared_Dirty:       4096 kB
ShmemPmdMapped:     2048 kB
Novelty:              12 parsecs
THPeligible:           1
VmFlags: rd wr sh mr mw me ms hg 
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]
Rss:                  12 kB
";

    #[test]
    fn reads_a_mapping() {
        let entries = parse_smaps(SMAPS).unwrap();
        assert_eq!(entries.len(), 2);
        let e = &entries[0];
        assert_eq!(e.map.name, "/dev/zero (deleted)");
        assert_eq!(e.map.object, (0, 1, 2051));
        assert_eq!(e.map.offset, 0x1000);
        assert!(e.map.shared && e.map.permissions == [true, true, false]);
        assert_eq!(e.counts.resident, Bytes::from_mib(4));
        assert_eq!(e.counts.pmd_mapped, Bytes::from_mib(2));
        assert!(e.flags.has("hg") && !e.flags.has("nh"));
        assert_eq!(e.thp_eligible, Some(true));
        assert_eq!(entries[1].counts.resident, Bytes::from_kib(12));
        assert_eq!(entries[1].thp_eligible, None);
    }

    #[test]
    fn refuses_what_is_none() {
        assert!(parse_smaps("Rss: 12 kB\n").is_err());
        assert!(parse_smaps("7f00-7e00 rw-p 0 00:00 0\n").is_err());
        assert!(parse_maps("nonsense\n").is_err());
        let bad_count = SMAPS.replace("Rss:                4096 kB", "Rss:  many kB");
        assert_eq!(parse_smaps(&bad_count).unwrap_err().line, 5);
    }

    #[test]
    fn a_list_without_end_is_no_list() {
        let name = "x".repeat(4000); // not a page size: a long path
        let line = |n: u64| {
            let at = n << 16; // not a page size: only far enough apart
            format!("{at:x}-{:x} rw-p 0 00:00 0 {name}\nRss: 0 kB\n", at + 1)
        };
        let few: String = (0..100).map(line).collect();
        assert_eq!(
            read_smaps_lines(&mut few.as_bytes())
                .unwrap()
                .unwrap()
                .len(),
            100
        );
        let many: String = (0..9000).map(line).collect();
        let error = read_smaps_lines(&mut many.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("32M"), "{error}");
    }

    #[test]
    fn policies() {
        let text = "7f00 interleave:0-1 anon=3\n7f10 default file=/x\nbad\n";
        assert_eq!(
            parse_policies(text),
            [(0x7f00, "interleave:0-1".to_owned())]
        );
    }

    /// The text shows a heap that grew twice while it was read.
    #[test]
    fn a_mapping_that_grew_meanwhile_counts_once() {
        let heap = |end: u64, kib: u64| {
            format!(
                "00400000-{end:08x} rw-p 00000000 00:00 0 [heap]\nRss: {kib} kB\nAnonHugePages: {kib} kB\n"
            )
        };
        let text = heap(0x80_0000, 4096) + &heap(0xa0_0000, 6144) + &heap(0xc0_0000, 8192);
        let entries = parse_smaps(&text).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].map.range.end(), 0xc0_0000);
        assert_eq!(entries[0].counts.resident, Bytes::from_mib(8));
        // A mapping that lost its upper part holds no more than the rest can.
        let text = heap(0xc0_0000, 8192) + "00800000-00c00000 rw-p 0 00:00 0\nRss: 4 kB\n";
        let entries = parse_smaps(&text).unwrap();
        let counts = entries[0].counts;
        assert_eq!(entries[0].map.range.len(), Bytes::from_mib(4));
        assert_eq!(
            (counts.resident, counts.pmd_mapped),
            (Bytes::from_mib(4), Bytes::from_mib(4))
        );
        assert_eq!(entries[1].counts.resident, Bytes::from_kib(4));
    }

    proptest! {
        /// Checks any order of ranges. Kept ranges are in order of address, no byte is in two entries, and none
        /// holds more than its length. The last one listed stays unchanged.
        #[test]
        fn no_byte_is_in_two_mappings(listed in prop::collection::vec((0u64..64, 1u64..32, 0u64..200), 1..40)) {
            let line = |(start, len, kib): &(u64, u64, u64)| {
                let (start, end) = (start << 12, (start + len) << 12);
                let most = len * 4;
                format!("{start:x}-{end:x} rw-p 0 00:00 0\nRss: {} kB\nAnonHugePages: {} kB\n",
                    (*kib).min(most), (*kib / 2).min(most))
            };
            let text: String = listed.iter().map(line).collect();
            let entries = parse_smaps(&text).unwrap();
            let maps: String = text.lines().filter(|l| l.contains("rw-p")).map(|l| format!("{l}\n")).collect();
            let maps = parse_maps(&maps).unwrap();
            prop_assert_eq!(entries.iter().map(|e| e.map.clone()).collect::<Vec<_>>(), maps.clone());
            for pair in maps.windows(2) {
                prop_assert!(pair[0].range.end() <= pair[1].range.start());
            }
            for entry in &entries {
                let counts = entry.counts;
                prop_assert!(counts.resident <= entry.map.range.len() && counts.pmd_mapped <= counts.resident);
            }
            let (start, len, _) = listed.last().unwrap();
            prop_assert_eq!(maps.last().unwrap().range, Range::new(start << 12, (start + len) << 12).unwrap());
        }

        #[test]
        fn a_cut_file_never_panics(cut in 0usize..600) {
            let cut = cut.min(SMAPS.len());
            let _ = parse_smaps(&SMAPS[..cut]);
            let _ = parse_maps(&SMAPS[..cut]);
        }

        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = parse_smaps(&text);
            let _ = parse_maps(&text);
            let _ = (parse_policies(&text), parse_node_memory(&text));
        }
    }
}
