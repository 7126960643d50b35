//! Memlock limits of users in `/etc/security/limits.conf` and `limits.d` (limits.conf(5)).

use hugeleaf_units::Bytes;

use super::file_readers;
use crate::fact::Fact;
use crate::root::Root;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemlockLine {
    pub path: String,
    /// The domain that it applies to: a user, `@group`, `*`, or a range of ids.
    pub domain: String,
    pub soft: bool,
    pub hard: bool,
    /// The limit. `u64::MAX` is unlimited.
    pub limit: Bytes,
}

/// Returns the lines in the order in which they are read. Of two with equal domains, the later
/// wins.
pub fn read(root: &Root) -> Fact<Vec<MemlockLine>> {
    file_readers::paths_in(root, "etc/security/limits.d", ".conf").and_then(|more| {
        let first = "etc/security/limits.conf".to_owned();
        file_readers::parse_each(root, std::iter::once(first).chain(more), parse)
    })
}

/// Parses the lines of one file on memlock. Like pam_limits, skips lines that it does not
/// understand.
pub fn parse(text: &str, path: &str) -> Vec<MemlockLine> {
    let parse = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [domain, kind, "memlock", value] = words[..] else {
            return None;
        };
        let (soft, hard) = match kind {
            "soft" => (true, false),
            "hard" => (false, true),
            "-" => (true, true),
            _ => return None,
        };
        Some(MemlockLine {
            path: path.to_owned(),
            domain: domain.to_owned(),
            soft,
            hard,
            limit: limit_of(value)?,
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Parses a limit in kB, as in the file.
fn limit_of(value: &str) -> Option<Bytes> {
    match value {
        "unlimited" | "infinity" | "-1" => Some(Bytes(u64::MAX)),
        kib => kib.parse().ok().map(Bytes::from_kib),
    }
}

/// Returns the soft and hard limit of an account whose groups have these names. Its own lines
/// precede those of its groups, and those precede `*` (pam_limits keeps that order, whatever comes
/// later).
pub fn limits_of(
    lines: &[MemlockLine],
    name: &str,
    groups: &[String],
) -> (Option<Bytes>, Option<Bytes>) {
    let rank = |domain: &str| match domain.strip_prefix('@') {
        Some(group) => groups.iter().any(|g| g == group).then_some(1),
        None if domain == name => Some(2),
        None => (domain == "*").then_some(0),
    };
    let best = |wanted: fn(&MemlockLine) -> bool| {
        let matching = lines.iter().filter(|line| wanted(line));
        matching
            .filter_map(|line| Some((rank(&line.domain)?, line.limit)))
            .max_by_key(|(rank, _)| *rank)
            .map(|(_, limit)| limit)
    };
    (best(|line| line.soft), best(|line| line.hard))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ones_own_line_before_the_groups_and_the_later_of_equals() {
        let text = "# postgres - memlock 1\n* soft memlock 64 # few\n@dba - memlock 1024\n\
            postgres soft memlock unlimited\nredis soft memlock 10\nredis soft memlock 20\n\
            postgres soft nofile 5\nx memlock 5\n";
        let lines = parse(text, "/etc/security/limits.conf");
        assert_eq!(lines.len(), 5);
        let dba = ["dba".to_owned()];
        let most = Some(Bytes(u64::MAX));
        let mib = Some(Bytes::from_kib(1024));
        assert_eq!(limits_of(&lines, "postgres", &dba), (most, mib));
        assert_eq!(limits_of(&lines, "oracle", &dba), (mib, mib));
        let redis = (Some(Bytes::from_kib(20)), None);
        assert_eq!(limits_of(&lines, "redis", &[]), redis);
        let anybody = (Some(Bytes::from_kib(64)), None);
        assert_eq!(limits_of(&lines, "nobody", &[]), anybody);
    }

    proptest! {
        #[test]
        fn never_panics(text in "([a-z@*#0-9 -]*\n?)*") {
            let lines = parse(&text, "");
            let _ = limits_of(&lines, "a", &[]);
        }
    }
}
