//! Shared by all parsers: an error with line and item, and the fields of `Name: value`.

use hugeleaf_units::Bytes;

/// A parse error with its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}, got '{got}'")]
pub struct ParseError {
    /// Line number, from 1.
    pub line: usize,
    pub what: &'static str,
    /// Text found there, cut to 80 characters.
    pub got: String,
}

impl ParseError {
    /// Makes an error for `line` (from 1), where `what` was expected and `got` was found.
    pub fn new(line: usize, what: &'static str, got: &str) -> ParseError {
        ParseError {
            line,
            what,
            got: got.chars().take(80).collect(),
        }
    }
}

/// Parses the single number in a file such as `nr_hugepages`.
pub fn number(text: &str) -> Result<u64, ParseError> {
    text.trim()
        .parse()
        .map_err(|_| ParseError::new(1, "expected a number", text.trim()))
}

/// Parses the chosen word of a setting such as `always [madvise] never`.
pub fn chosen(text: &str) -> Result<String, ParseError> {
    let word = text.split_once('[').and_then(|(_, at)| at.split_once(']'));
    word.map(|(word, _)| word.to_owned())
        .ok_or_else(|| ParseError::new(1, "expected a [chosen] word", text.trim()))
}

/// Parses `1234 kB` as bytes. The unit may be missing if the number is 0 (proc(5)).
pub fn kib(line: usize, value: &str) -> Result<Bytes, ParseError> {
    let mut words = value.split_ascii_whitespace();
    let number = words.next().and_then(|n| n.parse::<u64>().ok());
    match (number, words.next()) {
        (Some(n), Some("kB")) => Ok(Bytes::from_kib(n)),
        (Some(0), None) => Ok(Bytes::ZERO),
        _ => Err(ParseError::new(
            line,
            "expected a number of kB",
            value.trim(),
        )),
    }
}

/// A line of `mountinfo` (proc_pid_mountinfo(5)). Blanks in paths are escaped.
#[cfg_attr(
    not(feature = "full"),
    expect(dead_code, reason = "limits need some of the fields")
)]
pub struct MountLine<'a> {
    pub device: &'a str,
    /// The folder of the file system that is mounted.
    pub top: &'a str,
    pub at: &'a str,
    /// Options of this mount.
    pub options: &'a str,
    pub file_system: &'a str,
    pub source: &'a str,
    /// Options of the file system.
    pub file_system_options: &'a str,
}

impl<'a> MountLine<'a> {
    /// Parses a line. `None` if it has another form.
    pub fn parse(line: &'a str) -> Option<MountLine<'a>> {
        let (mount, source) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        // Splits at each single blank, because a source may be empty.
        let mut source = source.split(' ');
        Some(MountLine {
            device: mount.next()?,
            top: mount.next()?,
            at: mount.next()?,
            options: mount.next()?,
            file_system: source.next()?,
            source: source.next()?,
            // The source may hold blanks.
            file_system_options: source.next_back().unwrap_or_default(),
        })
    }
}

/// Iterates over the lines of a `Name: value` file, numbered from 1. Skips lines of another shape,
/// since kernels add lines over time.
pub fn fields(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    text.lines().enumerate().filter_map(|(i, line)| {
        let (name, value) = line.split_once(':')?;
        Some((i + 1, name.trim(), value.trim()))
    })
}

/// Decodes a number of at most eight bytes, big or little endian.
pub(crate) fn whole_number(bytes: &[u8], is_big_endian: bool) -> u64 {
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    match is_big_endian {
        true => bytes.iter().fold(0, add),
        false => bytes.iter().rev().fold(0, add),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::cgroup_paths::unescape;
    use proptest::prelude::*;

    #[test]
    fn knobs_and_sizes() {
        assert_eq!(chosen("always [madvise] never\n").unwrap(), "madvise");
        assert!(chosen("always madvise").is_err());
        assert!(chosen("a [b").is_err());
        assert_eq!(kib(1, "  12 kB").unwrap(), Bytes(12288));
        assert!(kib(1, "12 MB").is_err());
        assert_eq!(number("7\n").unwrap(), 7);
    }

    #[test]
    fn lines_of_mountinfo() {
        let line = "39 24 0:38 / /mnt/big\\040pages rw,relatime shared:9 - hugetlbfs none \
                    rw,gid=26,mode=770,pagesize=1024M";
        let mount = MountLine::parse(line).unwrap();
        let expected = ("/mnt/big pages", "rw,relatime", "hugetlbfs");
        let at = unescape(mount.at);
        assert_eq!((&*at, mount.options, mount.file_system), expected);
        assert_eq!(
            mount.file_system_options,
            "rw,gid=26,mode=770,pagesize=1024M"
        );
        assert!(MountLine::parse("39 24 0:38 / /mnt").is_none());
    }

    proptest! {
        #[test]
        fn lines_of_mounts_never_panic(text in "[ \\\\0-9a-z,=/-]{0,60}") {
            let _ = MountLine::parse(&text).map(|mount| unescape(mount.at));
        }
    }
}
