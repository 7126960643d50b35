//! One line of `/proc/PID/maps` (`proc(5)`), as far as a sweep must know it. Pure.

/// A mapping of this process that may be moved to larger pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: usize,
    /// The address after its last.
    pub end: usize,
    /// Whether it is memory that processes share.
    pub shared: bool,
}

/// The mapping of a line that is private anonymous memory (heap included, stacks not) or shared
/// memory, and can be read and written; otherwise `None`.
pub fn movable(line: &[u8]) -> Option<Mapping> {
    let mut fields = line
        .split(|byte| *byte == b' ')
        .filter(|field| !field.is_empty());
    let range = fields.next()?;
    let rights = fields.next()?;
    let inode = fields.nth(2)?;
    let name = fields.next().unwrap_or(b"");
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let start = hexadecimal(range.get(..dash)?)?;
    let end = hexadecimal(range.get(dash + 1..)?)?;
    let shared = match rights {
        b"rw-p" if inode == b"0" && is_memory(name) => false,
        b"rw-s" if is_shared_memory(name) => true,
        _ => return None,
    };
    (start < end).then_some(Mapping { start, end, shared })
}

/// Where the mapping of a line lies, if it is private anonymous memory that can be read and written.
pub fn private_memory(line: &[u8]) -> Option<(usize, usize)> {
    let mut fields = line
        .split(|byte| *byte == b' ')
        .filter(|field| !field.is_empty());
    let (range, rights) = (fields.next()?, fields.next()?);
    let (inode, name) = (fields.nth(2)?, fields.next().unwrap_or(b""));
    let dash = range.iter().position(|byte| *byte == b'-')?;
    let (start, end) = (range.get(..dash)?, range.get(dash + 1..)?);
    let usable = rights.starts_with(b"rw") && rights.get(3) == Some(&b'p');
    let is_it = usable && inode == b"0" && is_memory(name);
    is_it.then_some((hexadecimal(start)?, hexadecimal(end)?))
}

fn is_memory(name: &[u8]) -> bool {
    name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:")
}

fn is_shared_memory(name: &[u8]) -> bool {
    [
        &b"/dev/zero"[..],
        b"/memfd:",
        b"/SYSV",
        b"/dev/shm/",
        b"/hugeleaf-shm",
    ]
    .iter()
    .any(|known| name.starts_with(known))
}

fn hexadecimal(text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0_usize;
    for byte in text {
        let digit = char::from(*byte).to_digit(16)?;
        value = value.checked_mul(16)?.checked_add(digit as usize)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn heap_anonymous_and_shared_memory_are_movable() {
        let private = |start, end| {
            Some(Mapping {
                start,
                end,
                shared: false,
            })
        };
        assert_eq!(
            movable(b"1000-3000 rw-p 00000000 00:00 0 "),
            private(0x1000, 0x3000)
        );
        assert_eq!(
            movable(b"a000-c000 rw-p 00000000 00:00 0      [heap]"),
            private(0xa000, 0xc000)
        );
        let shared = movable(b"1000-3000 rw-s 00000000 00:01 2060  /dev/zero (deleted)").unwrap();
        assert!(shared.shared);
        assert!(movable(b"1000-3000 rw-s 00000000 00:01 3 /hugeleaf-shm (deleted)").is_some());
    }

    #[test]
    fn stacks_files_and_guards_are_not() {
        for line in [
            &b"1000-3000 rw-p 00000000 00:00 0 [stack]"[..],
            b"1000-3000 ---p 00000000 00:00 0 ",
            b"1000-3000 rw-p 00000000 08:01 77 /usr/lib/libc.so.6",
            b"1000-3000 rw-s 00000000 08:01 77 /var/lib/data",
            b"3000-1000 rw-p 00000000 00:00 0 ",
            b"",
            b"nonsense",
        ] {
            assert_eq!(movable(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn private_memory_can_be_written_and_belongs_to_no_file() {
        let memory = |line: &[u8]| private_memory(line);
        assert_eq!(
            memory(b"1000-3000 rwxp 00000000 00:00 0 "),
            Some((0x1000, 0x3000))
        );
        assert_eq!(memory(b"1000-3000 r--p 00000000 00:00 0 "), None);
        assert_eq!(
            memory(b"1000-3000 rw-s 00000000 00:01 2060  /dev/zero (deleted)"),
            None
        );
        assert_eq!(
            memory(b"1000-3000 rw-p 00000000 08:01 77 /usr/lib/libc.so.6"),
            None
        );
    }

    proptest! {
        #[test]
        fn no_line_makes_it_fail(line in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = (movable(&line), private_memory(&line));
        }
    }
}
