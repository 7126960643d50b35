//! Parses the fields of one line of `/proc/PID/maps` (`proc(5)`) that a sweep needs. Pure.
//!
//! The other crates use `hugeleaf_host::process::maps`. This library is compiled alone, without std and without
//! an allocator, and cannot use it.

/// A mapping of this process that may be promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotableMapping {
    pub start: usize,
    pub end: usize,
    pub shared: bool,
}

/// Returns the mapping of a line if it is readable and writable private anonymous memory (including the heap,
/// not stacks) or shared memory.
pub fn movable(line: &[u8]) -> Option<PromotableMapping> {
    let line = MapsLine::parse(line)?;
    let shared = match line.rights {
        b"rw-p" if line.is_memory() => false,
        b"rw-s" if line.is_shared_memory() => true,
        _ => return None,
    };
    let (start, end) = line.range()?;
    (start < end).then_some(PromotableMapping { start, end, shared })
}

/// Returns the range of a line if it is readable and writable private anonymous memory.
pub fn private_memory(line: &[u8]) -> Option<(usize, usize)> {
    let line = MapsLine::parse(line)?;
    let usable = line.rights.starts_with(b"rw") && line.rights.get(3) == Some(&b'p');
    line.range().filter(|_| usable && line.is_memory())
}

struct MapsLine<'a> {
    range: &'a [u8],
    rights: &'a [u8],
    inode: &'a [u8],
    name: &'a [u8],
}

impl MapsLine<'_> {
    fn parse(line: &[u8]) -> Option<MapsLine<'_>> {
        let fields = line.split(|byte| *byte == b' ');
        let mut fields = fields.filter(|field| !field.is_empty());
        Some(MapsLine {
            range: fields.next()?,
            rights: fields.next()?,
            inode: fields.nth(2)?,
            name: fields.next().unwrap_or(b""),
        })
    }

    fn range(&self) -> Option<(usize, usize)> {
        let dash = self.range.iter().position(|byte| *byte == b'-')?;
        let (start, end) = (self.range.get(..dash)?, self.range.get(dash + 1..)?);
        Some((hexadecimal(start)?, hexadecimal(end)?))
    }

    fn is_memory(&self) -> bool {
        let no_file = self.name.is_empty() || self.name == b"[heap]";
        self.inode == b"0" && (no_file || self.name.starts_with(b"[anon:"))
    }

    fn is_shared_memory(&self) -> bool {
        let zero: &[u8] = b"/dev/zero";
        let known = [zero, b"/memfd:", b"/SYSV", b"/dev/shm/", b"/hugeleaf-shm"];
        known.iter().any(|known| self.name.starts_with(known))
    }
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
            Some(PromotableMapping {
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
