//! A sample host with all kinds of programs.

use std::sync::{Arc, LazyLock};

use hugeleaf_guard::status::{JobProgress, PoolStatus};
use hugeleaf_host::{Root, read_host};
use hugeleaf_mover::Outcome;
use hugeleaf_report::promote::{BootTaskRunner, HostCommands};
use hugeleaf_sys::Kernel;
use hugeleaf_units::{Bytes, PageSize};

use crate::actions::ActionContext;
use crate::app::{App, AppConfig, AppEvent, ReplayState};
use crate::model::{
    GuardSummary, HostSample, HostStats, KernelEventRates, OperationProgress, ProcessTreeMemory,
    ScanCost, TreeSample,
};

pub fn program(pid: u32, name: &str, small_mib: u64, large_mib: u64) -> TreeSample {
    TreeSample {
        pid,
        start_ticks: u64::from(pid) * 100,
        processes: 1,
        pids: vec![pid],
        name: name.into(),
        unit: Some(format!("{name}.service")),
        user: Some("db".into()),
        resident_bytes: Bytes::from_mib(small_mib + large_mib + 3),
        threads: 3,
        cpu: Some(0.0),
        started_seconds: f64::from(pid),
        held_at_seconds: None,
        held: Some(ProcessTreeMemory {
            base_bytes: Bytes::from_mib(small_mib),
            huge_bytes: Bytes::from_mib(large_mib),
            page_tables_bytes: Bytes::from_kib(small_mib * 2 + 80),
            thp_disabled: false,
        }),
        unreadable: None,
        guard: None,
    }
}

pub fn sample() -> HostSample {
    let mut init = program(1, "systemd", 0, 0);
    (init.unit, init.user) = (Some("init.scope".into()), Some("root".into()));
    let mut redis = program(977, "redis-server", 40, 1984);
    redis.cpu = Some(0.08);
    let mut maria = program(1021, "mariadbd", 3072, 1024);
    (maria.cpu, maria.threads) = (Some(1.37), 42);
    let mut postgres = program(2210, "postgres", 512, 0);
    (postgres.processes, postgres.cpu) = (14, Some(0.21));
    postgres.unit = Some("postgresql@15-main.service".into());
    let mut java = program(3003, "java", 2048, 0);
    java.held = java.held.map(|held| ProcessTreeMemory {
        thp_disabled: true,
        ..held
    });
    let mut hidden = program(4004, "vault", 0, 0);
    (hidden.held, hidden.unreadable) = (None, Some("/proc/4004/maps: Permission denied".into()));
    let mut new = program(5005, "sh", 0, 0);
    (new.held, new.cpu, new.unit, new.user) = (None, None, None, None);
    HostSample {
        at: "2026-07-01T12:03:11+02:00".into(),
        since_boot_seconds: 90_000.0,
        host: host(),
        guard: None,
        programs: vec![init, redis, maria, postgres, java, hidden, new],
        moves: Vec::new(),
        cost: ScanCost {
            every_seconds: 1.0,
            cpu: Some(0.012),
        },
        problems: Vec::new(),
    }
}

fn host() -> HostStats {
    HostStats {
        kernel: "6.18.4".into(),
        huge_page_bytes: Some(Bytes(2 << 20)),
        memory_bytes: Bytes::from_mib(16_000),
        available_bytes: Bytes::from_mib(6200),
        private_bytes: Bytes::from_mib(7400),
        private_huge_bytes: Bytes::from_mib(2950),
        shared_bytes: Bytes::from_mib(640),
        shared_huge_bytes: Bytes::from_mib(58),
        page_tables_bytes: Bytes::from_mib(37),
        pools: vec![PoolStatus {
            page_bytes: Bytes(2 << 20),
            node: None,
            total: 256,
            free: 40,
            reserved: 12,
            surplus: 0,
        }],
        thp: Some("madvise".into()),
        thp_shared: Some("never".into()),
        rates: Some(KernelEventRates {
            faults: 12.4,
            fallbacks: 0.5,
            collapses: 0.0,
            compactions: 0.0,
        }),
        stalled_memory: Some(0.0),
        stalled_processors: Some(0.118),
        stalled_io: Some(0.01),
    }
}

/// Returns a sample with a guard, two promotions and a problem.
pub fn busy() -> HostSample {
    let mut sample = sample();
    sample.guard = Some(GuardSummary {
        acts: true,
        paused: false,
        rules: 3,
        kept: 2,
        next: 1,
    });
    sample.problems = vec!["the memory of 1 of 7 process trees cannot be read: run as root".into()];
    sample.moves = vec![OperationProgress {
        pid: 977,
        name: "redis-server".into(),
        what: "promote".into(),
        by: "guard".into(),
        status: JobProgress {
            stage: "promoting".into(),
            ..JobProgress::default()
        },
        budget_percent: 10,
    }];
    for (program, stand) in
        sample
            .programs
            .iter_mut()
            .zip(["skipped", "promoting", "candidate", "managed"])
    {
        program.guard = Some(stand.into());
    }
    sample
}

pub fn moving() -> OperationProgress {
    OperationProgress {
        pid: 1021,
        name: "mariadbd".into(),
        what: "promote".into(),
        by: "top".into(),
        status: JobProgress {
            stage: "moving".into(),
            done_bytes: Bytes::from_mib(1200),
            total_bytes: Bytes::from_mib(3072),
            seconds: 12.0,
            call_seconds: 1.1,
            longest_stall_seconds: 0.003,
            ..JobProgress::default()
        },
        budget_percent: 10,
    }
}

/// Returns the outcome of a dry run that promotes the largest program.
pub fn outcome() -> Outcome {
    let bytes = Bytes::from_mib(3072);
    Outcome {
        processes: Vec::new(),
        totals: hugeleaf_mover::OutcomeTotals {
            requested: bytes,
            ..hugeleaf_mover::OutcomeTotals::default()
        },
        skipped: Vec::new(),
        interrupted: false,
        stopped_by: None,
        dry_run: true,
        estimated_seconds: Some(30.0),
        seconds: 0.1,
        stalls: hugeleaf_mover::StallStats::default(),
        held: hugeleaf_mover::HeldBeforeSplit::default(),
        paused_seconds: 0.0,
        huge_page: PageSize::new(Bytes(2 << 20)).unwrap(),
        at_least: None,
    }
}

static COMMANDS: LazyLock<HostCommands> = LazyLock::new(|| {
    let host = read_host(&Root::live(), &Kernel::new()).unwrap();
    HostCommands::new(&host, "hugeleaf".into(), BootTaskRunner::Unknown)
});

pub fn config(colour: bool) -> AppConfig {
    AppConfig {
        can_move: true,
        why_not: "",
        colour,
        commands: COMMANDS.clone(),
    }
}

/// Returns a view of a size that has received a sample.
pub fn app(size: (u16, u16), colour: bool, sample: HostSample) -> App {
    let mut app = App::new(config(colour), None);
    app.on(AppEvent::Size(size.0, size.1));
    app.on(AppEvent::Scanned(Box::new(sample)));
    app
}

pub fn playing(scans: usize) -> App {
    let mut app = App::new(config(false), Some(ReplayState::new(scans)));
    app.on(AppEvent::Played(0, Box::new(sample())));
    app
}

pub fn tools() -> ActionContext {
    let root = Root::live();
    let kernel = Kernel::new();
    let host = read_host(&root, &kernel).unwrap();
    ActionContext {
        commands: COMMANDS.clone(),
        root,
        kernel: Arc::new(kernel),
        host,
        guard: None,
    }
}
