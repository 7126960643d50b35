//! SysV segments: `/proc/sysvipc/shm`, attached or not.

use std::collections::BTreeMap;

use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

use crate::fact::Fact;
use crate::parse_helpers::ParseError;
use crate::root::Root;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SysvSegment {
    /// Its id, which is its inode in `/proc/PID/maps`.
    pub id: u64,
    pub bytes: Bytes,
    pub creator: Pid,
    pub attached: u64,
    /// Bytes in memory. Zero if the kernel does not report it.
    pub resident: Bytes,
    pub uid: u32,
    pub gid: u32,
}

/// Returns all segments of this IPC namespace. Absent without SysV IPC.
pub fn read(root: &Root) -> Fact<Vec<SysvSegment>> {
    root.parse("proc/sysvipc/shm", parse)
}

/// Parses `/proc/sysvipc/shm`. A heading names the columns, because kernels may add some.
///
/// # Errors
/// If a column is missing, or a line has no number in one.
pub fn parse(text: &str) -> Result<Vec<SysvSegment>, ParseError> {
    let mut lines = text.lines().enumerate();
    let Some((_, heading)) = lines.next() else {
        return Ok(Vec::new());
    };
    let columns: BTreeMap<&str, usize> = heading
        .split_ascii_whitespace()
        .enumerate()
        .map(|(i, name)| (name, i))
        .collect();
    lines
        .map(|(i, line)| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let number = |name: &'static str| -> Result<u64, ParseError> {
                let word = columns.get(name).and_then(|at| words.get(*at));
                word.and_then(|word| word.parse().ok()).ok_or_else(|| {
                    ParseError::new(i + 1, "expected a number in every column", line)
                })
            };
            let small = |name| -> Result<u32, ParseError> {
                u32::try_from(number(name)?)
                    .map_err(|_| ParseError::new(i + 1, "expected an id", line))
            };
            Ok(SysvSegment {
                id: number("shmid")?,
                bytes: Bytes(number("size")?),
                creator: Pid(small("cpid")?),
                attached: number("nattch")?,
                resident: Bytes(number("rss").unwrap_or_default()),
                uid: small("uid")?,
                gid: small("gid")?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n\
      -559038737         32  1600            8388608000  4711  4711      2 54321   500 54321   500 1 0 1 4096 0\n";

    #[test]
    fn columns_are_found_by_name() {
        let found = parse(TEXT).unwrap();
        let segment = SysvSegment {
            id: 32,
            bytes: Bytes(8_388_608_000),
            creator: Pid(4711),
            attached: 2,
            resident: Bytes(4096),
            uid: 54321,
            gid: 500,
        };
        assert_eq!(found, [segment]);
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse("key shmid\n 1").unwrap_err().line, 2);
    }

    proptest! {
        #[test]
        fn never_panics(text in "(?s).*", rest in "[0-9 \n-]*") {
            let _ = parse(&text);
            let heading = TEXT.lines().next().unwrap();
            let _ = parse(&format!("{heading}\n{rest}"));
        }
    }
}
