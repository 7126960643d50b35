//! `/proc/PID/maps` and `/proc/PID/smaps` (proc(5)).

use hugeleaf_units::{Bytes, Range};

use crate::model::VmFlags;
use crate::parse::{ParseError, kib};

/// One line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapLine {
    /// Where.
    pub range: Range,
    /// `r`, `w`, `x`.
    pub permissions: [bool; 3],
    /// `s` rather than `p`.
    pub shared: bool,
    /// Offset in bytes.
    pub offset: u64,
    /// Device (major, minor) and inode.
    pub object: (u32, u32, u64),
    /// Path or name, as written; empty where there is none.
    pub name: String,
}

/// Parses one line of `maps`; `line` is its number, for the error.
///
/// # Errors
/// Where it is not `start-end perms offset major:minor inode [name]`.
pub fn parse_map_line(line: usize, text: &str) -> Result<MapLine, ParseError> {
    let error = |what| ParseError::new(line, what, text);
    let mut rest = text;
    // Single spaces part the first five fields; the name is padded and may hold spaces.
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        word
    };
    let (addresses, permissions, offset, device, inode) = (word(), word(), word(), word(), word());
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let range = addresses
        .split_once('-')
        .and_then(|(start, end)| Range::new(hex(start)?, hex(end)?).ok())
        .ok_or_else(|| error("expected start-end"))?;
    let p = permissions.as_bytes();
    if p.len() != 4 {
        return Err(error("expected four permissions"));
    }
    let device = device
        .split_once(':')
        .and_then(|(major, minor)| {
            Some((
                u32::from_str_radix(major, 16).ok()?,
                u32::from_str_radix(minor, 16).ok()?,
            ))
        })
        .ok_or_else(|| error("expected major:minor"))?;
    Ok(MapLine {
        range,
        permissions: [p[0] == b'r', p[1] == b'w', p[2] == b'x'],
        shared: p[3] == b's',
        offset: hex(offset).ok_or_else(|| error("expected an offset"))?,
        object: (
            device.0,
            device.1,
            inode.parse().map_err(|_| error("expected an inode"))?,
        ),
        name: rest.trim_start().to_owned(),
    })
}

/// Parses `/proc/PID/maps`.
///
/// # Errors
/// The first line that is none.
pub fn parse_maps(text: &str) -> Result<Vec<MapLine>, ParseError> {
    text.lines()
        .enumerate()
        .map(|(i, line)| parse_map_line(i + 1, line))
        .collect()
}

/// One mapping of `/proc/PID/smaps`, or the sum of them in `smaps_rollup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmapsEntry {
    /// The line that heads it.
    pub map: MapLine,
    /// Its counters.
    pub counts: SmapsCounts,
    /// `VmFlags`.
    pub flags: VmFlags,
    /// `THPeligible`.
    pub thp_eligible: Option<bool>,
}

/// The counters of one mapping. What a kernel does not print is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SmapsCounts {
    /// `KernelPageSize`; 0 where not printed.
    pub kernel_page: Bytes,
    /// `Rss`: hugetlb pages are not in it.
    pub resident: Bytes,
    /// `Pss`.
    pub pss: Bytes,
    /// `Shared_Clean` + `Shared_Dirty`.
    pub shared: Bytes,
    /// `Private_Clean` + `Private_Dirty`.
    pub private: Bytes,
    /// `Anonymous`.
    pub anonymous: Bytes,
    /// `KSM`.
    pub merged: Bytes,
    /// `AnonHugePages` + `ShmemPmdMapped` + `FilePmdMapped`.
    pub pmd_mapped: Bytes,
    /// `Shared_Hugetlb` + `Private_Hugetlb`.
    pub hugetlb: Bytes,
    /// `Swap`.
    pub swapped: Bytes,
    /// `Locked`.
    pub locked: Bytes,
}

/// Parses `/proc/PID/smaps` or `smaps_rollup`. Unknown lines are passed over.
///
/// # Errors
/// A heading that is none, a counter that is not kB, or a counter before the first heading.
pub fn parse_smaps(text: &str) -> Result<Vec<SmapsEntry>, ParseError> {
    let mut entries: Vec<SmapsEntry> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let number = i + 1;
        // A counter starts with a name in capitals, a heading with a lower-case hex address.
        if !line.starts_with(|c: char| c.is_ascii_uppercase()) {
            entries.push(SmapsEntry {
                map: parse_map_line(number, line)?,
                counts: SmapsCounts::default(),
                flags: VmFlags::default(),
                thp_eligible: None,
            });
            continue;
        }
        let Some(entry) = entries.last_mut() else {
            return Err(ParseError::new(number, "expected a mapping first", line));
        };
        let Some((name, value)) = line.split_once(':') else {
            continue; // Cut off in the middle of a name: nothing to learn from it.
        };
        counter(entry, number, name, value)?;
    }
    Ok(entries)
}

fn counter(entry: &mut SmapsEntry, line: usize, name: &str, value: &str) -> Result<(), ParseError> {
    let counts = &mut entry.counts;
    match name {
        "KernelPageSize" => counts.kernel_page = kib(line, value)?,
        "Rss" => counts.resident = kib(line, value)?,
        "Pss" => counts.pss = kib(line, value)?,
        "Shared_Clean" | "Shared_Dirty" => counts.shared += kib(line, value)?,
        "Private_Clean" | "Private_Dirty" => counts.private += kib(line, value)?,
        "Anonymous" => counts.anonymous = kib(line, value)?,
        "KSM" => counts.merged = kib(line, value)?,
        "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => {
            counts.pmd_mapped += kib(line, value)?;
        }
        "Shared_Hugetlb" | "Private_Hugetlb" => counts.hugetlb += kib(line, value)?,
        "Swap" => counts.swapped = kib(line, value)?,
        "Locked" => counts.locked = kib(line, value)?,
        "THPeligible" => entry.thp_eligible = Some(value.trim() == "1"),
        "VmFlags" => {
            entry.flags = VmFlags(
                value
                    .split_ascii_whitespace()
                    .filter_map(|flag| flag.as_bytes().try_into().ok())
                    .collect(),
            );
        }
        _ => {}
    }
    Ok(())
}

/// The NUMA policies of `/proc/PID/numa_maps` (numa(7)) by start address, where they are not
/// `default`. Lines that are none are passed over: the file is optional.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn policies() {
        let text = "7f00 interleave:0-1 anon=3\n7f10 default file=/x\nbad\n";
        assert_eq!(
            parse_policies(text),
            [(0x7f00, "interleave:0-1".to_owned())]
        );
    }

    proptest! {
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
            let _ = parse_policies(&text);
        }
    }
}
