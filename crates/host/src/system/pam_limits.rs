//! What `/etc/security/limits.conf` and `limits.d` give users to lock (limits.conf(5)).

use hugeleaf_units::Bytes;

use super::files;
use crate::fact::Fact;
use crate::root::Root;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemlockLine {
    pub path: String,
    /// Whom it is for: a user, `@group`, `*`, or a range of ids.
    pub domain: String,
    pub soft: bool,
    pub hard: bool,
    /// How much; `u64::MAX` is unlimited.
    pub limit: Bytes,
}

/// The lines in the order in which they are read: the later of two with equal domains holds.
pub fn read(root: &Root) -> Fact<Vec<MemlockLine>> {
    files::paths_in(root, "etc/security/limits.d", ".conf").and_then(|more| {
        let first = "etc/security/limits.conf".to_owned();
        files::parse_each(root, std::iter::once(first).chain(more), parse)
    })
}

/// The lines of one file that speak of memlock; pam_limits passes over what it does not
/// understand, and so does this.
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

/// A limit in kB as the file has it.
fn limit_of(value: &str) -> Option<Bytes> {
    match value {
        "unlimited" | "infinity" | "-1" => Some(Bytes(u64::MAX)),
        kib => kib.parse().ok().map(Bytes::from_kib),
    }
}

/// Soft and hard limit of an account whose groups have these names: its own lines before those of
/// its groups, those before `*` (pam_limits keeps that order whatever comes later).
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
