//! Findings about a host as a whole: what is wrong, wasted or without effect, each with the
//! command that changes it or looks further.
//!
//! Every rule is a function from a [`Host`](hugeleaf_host::Host) to findings, in the module of what it speaks of. Each
//! rule's test has a host that shows it and one that nearly does.

mod cgroups;
mod dead;
mod memory;
mod pools;
mod rules;
mod thp;
mod unreadable;

pub use memory::{Holder, by_name};
pub(crate) use pools::boot_pools;
pub use rules::findings;

hugeleaf_units::named! {
    /// How bad a finding is. The worst is the smallest, so that it sorts first.
    pub enum Severity {
        /// Something fails, or will.
        Problem = "problem",
        /// Something is lost or wasted.
        Warning = "warning",
        /// Worth knowing.
        Note = "note",
    }
}

/// Something about a host that its owner should know.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// Names the rule; does not change between versions.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found, with the numbers: one or two sentences.
    pub text: String,
    /// What to run about it.
    pub command: String,
}

impl Finding {
    pub(crate) fn new(
        severity: Severity,
        id: &'static str,
        text: impl Into<String>,
        command: impl Into<String>,
    ) -> Finding {
        Finding {
            id,
            severity,
            text: text.into(),
            command: command.into(),
        }
    }

    pub(crate) fn problem(
        id: &'static str,
        text: impl Into<String>,
        command: impl Into<String>,
    ) -> Finding {
        Finding::new(Severity::Problem, id, text, command)
    }

    pub(crate) fn warning(
        id: &'static str,
        text: impl Into<String>,
        command: impl Into<String>,
    ) -> Finding {
        Finding::new(Severity::Warning, id, text, command)
    }

    pub(crate) fn note(
        id: &'static str,
        text: impl Into<String>,
        command: impl Into<String>,
    ) -> Finding {
        Finding::new(Severity::Note, id, text, command)
    }
}

/// A word as a shell takes it. Names of processes and cgroups may hold anything, and commands are
/// there to be copied.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
pub(crate) mod testing {
    //! A host on which every rule is quiet, to be spoilt by one thing at a time.

    use hugeleaf_host::{
        Buddy, Fact, FreeBlocks, Host, Khugepaged, Limits, Memory, Pool, Thp, ThpOrder,
    };
    use hugeleaf_units::{Bytes, PageSize, Pages};

    use super::Finding;

    pub fn size(text: &str) -> PageSize {
        text.parse().unwrap()
    }

    pub fn word(text: &str) -> Fact<String> {
        Fact::Known(text.to_owned())
    }

    pub fn gib(n: u64) -> Fact<Bytes> {
        Fact::Known(Bytes(n << 30))
    }

    /// A pool's total, all of it in use.
    pub fn pool(text: &str, node: Option<u32>, total: u64) -> Pool {
        Pool {
            size: size(text),
            node,
            total: Fact::Known(Pages(total)),
            free: Fact::Known(Pages(0)),
            reserved: Fact::Known(Pages(0)),
            surplus: Fact::Known(Pages(0)),
            overcommit: Fact::Known(Pages(0)),
        }
    }

    fn order(text: &str, anon: &str, shmem: &str) -> ThpOrder {
        ThpOrder {
            size: size(text),
            anon: word(anon),
            shmem: word(shmem),
        }
    }

    /// 64 GiB on two nodes, 4K base pages, a pool of 4096 pages of 2M in full use, THP on.
    pub fn healthy() -> Host {
        Host {
            kernel: word("6.12.0"),
            arch: word("x86_64"),
            base_page: size("4K"),
            pmd_page: Fact::Known(size("2M")),
            memory: Memory {
                total: gib(64),
                free: gib(10),
                available: gib(40),
                page_tables: Fact::Known(Bytes(100 << 20)),
                anon: gib(8),
                anon_huge: gib(7),
                shmem: gib(1),
                shmem_huge: gib(0),
                default_hugetlb_page: Fact::Known(size("2M")),
                ..Memory::default()
            },
            page_sizes: Vec::new(),
            pools: vec![
                pool("2M", None, 4096),
                pool("2M", Some(0), 2048),
                pool("2M", Some(1), 2048),
                pool("1G", None, 0),
            ],
            thp: Fact::Known(Thp {
                enabled: word("madvise"),
                defrag: word("madvise"),
                shmem_enabled: word("advise"),
                use_zero_page: Fact::Known(true),
                shrink_underused: Fact::Known(true),
                khugepaged: Khugepaged {
                    defrag: Fact::Known(true),
                    pages_to_scan: Fact::Known(Pages(4096)),
                    scan_sleep_millis: Fact::Known(10_000),
                    alloc_sleep_millis: Fact::Known(60_000),
                    max_ptes_none: Fact::Known(Pages(511)),
                    ..Khugepaged::default()
                },
                orders: vec![
                    order("64K", "never", "never"),
                    order("2M", "inherit", "inherit"),
                ],
            }),
            buddy: Fact::Known(Buddy {
                zones: vec![FreeBlocks {
                    node: 0,
                    zone: "Normal".to_owned(),
                    counts: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2560],
                }],
            }),
            limits: Limits {
                sysctl: Fact::Known(Vec::new()),
                boot: word("root=/dev/sda1 quiet"),
                ..Limits::default()
            },
            cgroups: Fact::Absent,
            owners: Vec::new(),
            memory_limits: Vec::new(),
            kernel_log: Fact::Known(Vec::new()),
            nodes: vec![0, 1],
        }
    }

    /// The same with arm64's sizes for base pages of 16K: full huge pages of 32M, and contiguous
    /// entries of 2M that are off as THP.
    pub fn arm64_16k() -> Host {
        let mut host = healthy();
        host.base_page = size("16K");
        host.pmd_page = Fact::Known(size("32M"));
        host.pools = vec![pool("2M", None, 0), pool("32M", None, 0)];
        thp(&mut host).orders = vec![
            order("64K", "never", "never"),
            order("2M", "never", "never"),
            order("32M", "inherit", "inherit"),
        ];
        host
    }

    /// The THP settings, to be changed.
    pub fn thp(host: &mut Host) -> &mut Thp {
        match &mut host.thp {
            Fact::Known(thp) => thp,
            _ => panic!("no THP"),
        }
    }

    pub fn ids(findings: impl IntoIterator<Item = Finding>) -> Vec<&'static str> {
        findings.into_iter().map(|f| f.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::Fact;

    #[test]
    fn a_healthy_host_has_no_findings() {
        assert_eq!(findings(&testing::healthy()), []);
    }

    #[test]
    fn no_name_becomes_a_command() {
        assert_eq!(
            shell_word("/sys/fs/cgroup/a.slice"),
            "/sys/fs/cgroup/a.slice"
        );
        assert_eq!(shell_word("a b'; rm x"), "'a b'\\''; rm x'");
        assert_eq!(shell_word(""), "''");
    }

    #[test]
    fn the_worst_comes_first_and_every_finding_has_a_command() {
        let mut host = testing::healthy();
        host.memory.page_tables = testing::gib(8);
        testing::thp(&mut host).defrag = testing::word("always");
        testing::thp(&mut host).enabled = testing::word("never");
        host.pools[0].free = Fact::Known(hugeleaf_units::Pages(10));
        let all = findings(&host);
        assert_eq!(all[0].id, "page-tables");
        assert!(
            all.is_sorted_by_key(|f| f.severity) && all.len() >= 3,
            "{all:?}"
        );
        assert!(
            all.iter()
                .all(|f| !f.command.is_empty() && !f.text.is_empty())
        );
    }
}
