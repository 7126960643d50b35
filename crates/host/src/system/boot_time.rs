//! Boot time of the host, the origin of process start times and of the kernel's log.

use crate::fact::Fact;
use crate::parse_helpers::ParseError;
use crate::root::Root;

/// Returns the boot time in seconds since 1970.
pub fn read(root: &Root) -> Fact<u64> {
    root.parse("proc/stat", parse)
}

/// Parses the `btime` line of `/proc/stat`.
///
/// # Errors
/// If there is none.
pub fn parse(text: &str) -> Result<u64, ParseError> {
    let line = text.lines().find_map(|line| line.strip_prefix("btime "));
    line.and_then(|n| n.trim().parse().ok())
        .ok_or_else(|| ParseError::new(1, "expected a line 'btime SECONDS'", ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_line_is_found() {
        assert_eq!(parse("cpu 1\nbtime 1700000000\n").unwrap(), 1_700_000_000);
        assert!(parse("cpu 1\n").is_err());
        assert!(read(&Root::at("/nowhere")).is_absent());
    }

    proptest! {
        #[test]
        fn never_panics(text in "(?s).*") {
            let _ = parse(&text);
        }
    }
}
