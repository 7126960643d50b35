//! Memory pinned by io_uring: buffers that a program has registered with a ring
//! (io_uring_register(2)). `VmPin` counts them on some kernels only: Linux 7.3 counts none for root.

use hugeleaf_sys::Pid;
use hugeleaf_units::Range;

use crate::fact::Fact;
use crate::process::file_of;
use crate::root::Root;

/// Maximum number of open files examined per process, so that no process can keep a reader busy.
const MOST_FILES: usize = 1 << 14;

const MOST_BUFFERS: usize = 1 << 16;

/// Returns the buffers registered by rings of a process, in order of address. Absent if its files
/// cannot be listed.
pub(crate) fn read_registered(root: &Root, pid: Pid) -> Fact<Vec<Range>> {
    root.list(file_of(pid, "fdinfo")).map(|names| {
        let files = names.iter().take(MOST_FILES);
        let mut buffers: Vec<Range> = files
            .filter(|name| is_ring(root, pid, name))
            .map(|name| root.read(file_of(pid, &format!("fdinfo/{name}"))))
            .flat_map(|text| parse_registered(&text.or_default()))
            .take(MOST_BUFFERS)
            .collect();
        buffers.sort_by_key(|range| range.start());
        buffers
    })
}

/// True if an open file is a ring. A captured host has no links, so all files are parsed.
fn is_ring(root: &Root, pid: Pid, name: &str) -> bool {
    if !root.is_live() {
        return true;
    }
    let link = root.path(file_of(pid, &format!("fd/{name}")));
    std::fs::read_link(link).is_ok_and(|to| to.as_os_str() == "anon_inode:[io_uring]")
}

/// Parses the lines `INDEX: 0xADDRESS/LENGTH` after `UserBufs:` in the fdinfo of a ring
/// (io_uring/fdinfo.c). Skips lines of another form, because a slot may be empty.
pub fn parse_registered(text: &str) -> Vec<Range> {
    let mut lines = text.lines();
    if !lines.any(|line| line.starts_with("UserBufs:")) {
        return Vec::new();
    }
    lines
        .take_while(|line| line.starts_with(' '))
        .filter_map(|line| {
            let (_, buffer) = line.split_once(": ")?;
            let (start, length) = buffer.trim().strip_prefix("0x")?.split_once('/')?;
            let start = u64::from_str_radix(start, 16).ok()?;
            Range::new(start, start.checked_add(length.parse().ok()?)?).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RING: &str = "pos:\t0\nSqThread:\t-1\nUserFiles:\t1\n    0: pipe\nUserBufs:\t3\n    \
        0: 0x7f1db1400000/65536\n    1: <none>\n   12: 0x1000/16\nPollList:\n    0: 0x9000/1\n";

    #[test]
    fn buffers_are_read_and_nothing_else() {
        let range = |start, end| Range::new(start, end).unwrap();
        assert_eq!(
            parse_registered(RING),
            [
                range(0x7f1d_b140_0000, 0x7f1d_b141_0000),
                range(0x1000, 0x1010)
            ]
        );
        assert!(parse_registered("pos:\t0\n    0: 0x1000/16\n").is_empty());
        assert!(parse_registered("UserBufs:\t1\n    0: 0xffffffffffffffff/16\n").is_empty());
    }

    #[test]
    fn a_captured_host_has_the_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert_eq!(read_registered(&root, Pid(7)), Fact::Absent);
        let files = folder.path().join("proc/7/fdinfo");
        std::fs::create_dir_all(&files).unwrap();
        std::fs::write(files.join("3"), "pos:\t0\n").unwrap();
        std::fs::write(files.join("4"), RING).unwrap();
        let known = read_registered(&root, Pid(7));
        let starts: Vec<u64> = known.known().unwrap().iter().map(|r| r.start()).collect();
        assert_eq!(starts, [0x1000, 0x7f1d_b140_0000]);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*") {
            let _ = parse_registered(&format!("UserBufs:\n{text}"));
        }
    }
}
