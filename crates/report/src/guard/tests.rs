//! A guard in a mix of all states.

use hugeleaf_guard::status::{
    GuardCost, GuardStatus, HostStatus, PoolCheckStatus, PoolStatus, ProcessTreeStatus,
    ReturnedPagesStatus,
};
use hugeleaf_guard::{
    CoverageAt, Evidence, GuardCounters, LogEntry, PoolFinding, Proof, RememberedVerdict,
    RuleAction, TestVerdict, TreeState, TreeStatus,
};
use hugeleaf_proof::Verdict;
use hugeleaf_proof::stats::BetterDirection;
use hugeleaf_units::Bytes;

fn proven() -> TestVerdict {
    TestVerdict {
        verdict: Verdict::Faster,
        ratio: 1.12,
        low: 1.07,
        high: 1.16,
        pairs: 12,
        metric: "redis:127.0.0.1:6379".into(),
        better: Some(BetterDirection::Higher),
        at: 1_800_000_000,
    }
}

pub fn program(pid: u32, name: &str, state: TreeState) -> ProcessTreeStatus {
    let is_kept = state == TreeState::Managed;
    ProcessTreeStatus {
        pid,
        processes: 1,
        name: name.into(),
        group: format!("{name}.service"),
        pod_uid: None,
        container_id: None,
        user: Some("db".into()),
        action: if state == TreeState::Candidate {
            RuleAction::Watch
        } else {
            RuleAction::Promote
        },
        budget_percent: 10,
        standing: TreeStatus {
            state,
            reason: if state == TreeState::Skipped {
                "too-idle".into()
            } else {
                String::new()
            },
            text: match state {
                TreeState::Skipped => "uses 3 % of a processor; the rule requires 10%".into(),
                TreeState::Managed => {
                    "4G of 4G on huge pages, 12 % faster (CI 7 to 16 %), ×1.12 [1.07, 1.16]".into()
                }
                _ => "1G of 1G on base pages".into(),
            },
            rule: format!("guard.toml rule 1: name {name}"),
        },
        base_bytes: Bytes::from_mib(if is_kept { 12 } else { 1024 }),
        huge_bytes: Bytes::from_mib(if is_kept { 4096 } else { 0 }),
        misaligned_bytes: Bytes::ZERO,
        coverage: Some(if is_kept { 0.997 } else { 0.0 }),
        page_tables_bytes: Bytes::from_mib(9),
        cpu: Some(0.42),
        age_seconds: 86_400.0,
        promoted_bytes: Bytes::from_mib(if is_kept { 4096 } else { 0 }),
        grown_bytes: Bytes::ZERO,
        promotions: u64::from(is_kept),
        proof: if is_kept {
            "12 % faster (CI 7 to 16 %), ×1.12 [1.07, 1.16]".into()
        } else {
            "unproven".into()
        },
        proof_detail: if is_kept {
            Proof::Proven(proven())
        } else {
            Proof::Unproven
        },
        touched_bytes_per_second: None,
        coverage_history: [(60.0, 0.0), (65.0, 0.1), (75.0, 0.6), (105.0, 0.997)]
            .map(|(at_seconds, coverage)| CoverageAt {
                at_seconds,
                coverage,
            })
            .to_vec(),
        job: None,
    }
}

#[expect(clippy::too_many_lines, reason = "one value")]
pub fn status() -> GuardStatus {
    GuardStatus {
        schema: 1,
        balance: vec![crate::balance::tests::status()],
        version: "0.1.0".into(),
        pid: 4711,
        started: "2026-11-24T10:00:00Z".into(),
        started_seconds: 1_795_514_400.0,
        at: "2026-11-24T12:00:00Z".into(),
        files: vec!["/etc/hugeleaf/guard.toml".into()],
        acts: true,
        read_only: false,
        rules: 3,
        paused_since: None,
        problems: Vec::new(),
        cost: GuardCost {
            scan_seconds: 0.012,
            wait_seconds: 5.0,
            scans: 1440,
            cpu_seconds: 19.5,
            resident_bytes: Bytes::from_mib(14),
            pool_check_seconds: 0.06,
            pool_check_wait_seconds: 60.0,
        },
        host: HostStatus {
            kernel: "6.18.0".into(),
            huge_page_bytes: Bytes::from_mib(2),
            stalled: Some(0.0),
            waiting: Some(0.31),
            page_tables_bytes: Some(Bytes::from_mib(80)),
            pools: vec![PoolStatus {
                page_bytes: Bytes::from_mib(2),
                node: None,
                total: 100,
                free: 40,
                reserved: 30,
                surplus: 0,
            }],
            events: [("thp_collapse_alloc".to_owned(), 2048)].into(),
            ..HostStatus::default()
        },
        pools: PoolCheckStatus {
            checked: Some("2026-11-24T11:59:30Z".into()),
            findings: vec![PoolFinding {
                id: "pool-short".into(),
                severity: "problem".into(),
                text: "/etc asks for 100 pages of 2M, the pool has 90: 10 short (20M).".into(),
                command: "echo 1 > /proc/sys/vm/compact_memory".into(),
            }],
            given: vec![ReturnedPagesStatus {
                page_bytes: Bytes::from_mib(2),
                node: Some(0),
                had: 100,
                pages: 75,
            }],
        },
        programs: vec![
            program(12, "redis-server", TreeState::Queued),
            program(11, "mariadbd", TreeState::Managed),
            program(13, "java", TreeState::Skipped),
            program(14, "python3", TreeState::Candidate),
        ],
        seen: 412,
        counts: GuardCounters {
            promotions: 7,
            promoted: Bytes::from_mib(9000),
            faster: 1,
            slower: 2,
            ..GuardCounters::default()
        },
        remembered: vec![RememberedVerdict {
            group: "mariadbd.service".into(),
            name: "mariadbd".into(),
            file: None,
            held: Bytes::from_mib(4108),
            kernel: "6.18.0".into(),
            proven: proven(),
            reverted: false,
            evidence: Evidence::default(),
        }],
        series: 200,
        log: vec![LogEntry {
            at: "2026-11-24T11:00:00Z".into(),
            what: "promoted".into(),
            pid: Some(11),
            name: "mariadbd".into(),
            group: "mariadbd.service".into(),
            rule: "guard.toml rule 1: name mariadbd".into(),
            text: "1G of 1G to huge pages".into(),
            bytes: Some(Bytes::from_mib(1024)),
            seconds: Some(9.5),
        }],
    }
}
