//! A report with one of every kind of entry.

use hugeleaf_host::demand::ServiceKind;
use hugeleaf_host::{Fact, Pid};
use hugeleaf_plan::PageCount;
use hugeleaf_plan::verify::{
    AppliedStepState, NewestApply, PathDrift, PoolRow, ServiceRow, StepKind, VerifyReport,
};
use hugeleaf_units::Pages;
use hugeleaf_verdict::findings::{Finding, Severity};

pub(crate) fn report() -> VerifyReport {
    let of = |pages: u64, size: &str| PageCount {
        page: size.parse().unwrap(),
        pages: Pages(pages),
    };
    let row = |name: &str, pid: Option<u32>, got: Vec<PageCount>, short: u64| ServiceRow {
        name: name.to_owned(),
        kind: ServiceKind::PostgreSql,
        unit: Some(format!("{name}.service")),
        is_found: true,
        pids: pid.map(Pid).into_iter().collect(),
        since: Fact::from(pid.map(|_| 1_790_000_000)),
        asked: vec![of(4200, "2M")],
        got,
        short: Pages(short),
        reason: (short > 0).then(|| "the pool is empty".to_owned()),
    };
    VerifyReport {
        services: vec![
            row("postgresql@15-main", Some(41), Vec::new(), 4200),
            row("good", Some(42), vec![of(4200, "2M")], 0),
            row("odd \"name\"\\\n", None, Vec::new(), 0),
        ],
        pools: vec![
            PoolRow {
                page: "2M".parse().unwrap(),
                total: Pages(4300),
                free: Pages(4000),
                reserved: Pages(3900),
                surplus: Pages(0),
                unused: Pages(100),
            },
            PoolRow {
                page: "1G".parse().unwrap(),
                total: Pages(0),
                free: Pages(0),
                reserved: Pages(0),
                surplus: Pages(0),
                unused: Pages(0),
            },
        ],
        steps: vec![AppliedStepState {
            id: "knob-shmem_enabled".to_owned(),
            what: StepKind::Knob,
            path: "/sys/kernel/mm/transparent_hugepage/shmem_enabled".into(),
            before: Some("never".to_owned()),
            wanted: Some("advise".to_owned()),
            now: Some("never".to_owned()),
            state: PathDrift::Changed,
        }],
        plan: Some(NewestApply {
            id: 3,
            time: "2026-11-20T10:00:00Z".to_owned(),
        }),
        findings: vec![Finding {
            advice: None,
            id: "service-short",
            severity: Severity::Problem,
            text: "postgresql@15-main asked for 8.2G and got nothing.".to_owned(),
            command: "systemctl restart postgresql@15-main.service".to_owned(),
        }],
    }
}
