//! Metrics of the guard and of its host, for Prometheus. Labels are units, pods or process names, never PIDs. Their
//! number is bounded by the rules; the rest is summed as `other`.

use std::collections::{BTreeMap, BTreeSet};

use hugeleaf_guard::status::{GuardStatus, PoolCheckStatus, PoolStatus};
use hugeleaf_guard::{PoolFinding, Proof, TreeState};
use hugeleaf_units::{Bytes, PageSize};

use crate::exposition::MetricFamily;
use crate::verify::findings_by_kind;

const OTHER: &str = "other";

/// Returns all metrics; process trees of at most `series` units have samples of their own.
pub fn metrics(status: &GuardStatus, series: usize) -> Vec<MetricFamily> {
    let groups = groups(status, series);
    let mut all = vec![info(status)];
    all.extend(pools(&status.host.pools));
    all.extend(pool_findings(&status.pools));
    all.push(findings_by_kind(
        (status.pools.findings.iter()).map(|finding| (&*finding.id, &*finding.severity)),
    ));
    all.extend(by_group(&groups));
    all.push(pod_info(status, &groups));
    all.push(process_trees(status));
    all.extend(counts(status));
    all.extend(proofs(status, series));
    all.extend(host(status));
    all.extend(itself(status));
    all.extend(old_names(status, &groups));
    all.extend(crate::balance::metrics(&status.balance));
    all
}

/// Returns the metrics for node_exporter's textfile: without those of the process, which node_exporter exports of itself.
pub fn textfile_metrics(status: &GuardStatus, series: usize) -> Vec<MetricFamily> {
    let mut all = metrics(status, series);
    all.retain(|family| !family.name().starts_with("process_"));
    all
}

fn info(status: &GuardStatus) -> MetricFamily {
    let labels = [
        ("version", status.version.as_str()),
        ("kernel", status.host.kernel.as_str()),
        ("mode", mode(status)),
    ];
    MetricFamily::gauge(
        "hugeleaf_info",
        "Version, kernel and mode of the guard: acting, watching or paused",
    )
    .with_sample(labels, 1.0)
}

fn mode(status: &GuardStatus) -> &'static str {
    match (&status.paused_since, status.acts) {
        (Some(_), _) => "paused",
        (None, true) => "acting",
        (None, false) => "watching",
    }
}

fn pools(pools: &[PoolStatus]) -> Vec<MetricFamily> {
    let mut memory = MetricFamily::gauge(
        "hugeleaf_pool_memory_bytes",
        "Hugetlb pages by size and node: used, reserved, and unused (neither); they add up to the pool",
    );
    // Its own family: with both words in one family, sums over the states would count unused pages twice.
    let mut old = MetricFamily::gauge(
        "hugeleaf_pool_bytes",
        "Deprecated: hugeleaf_pool_memory_bytes, with state=\"unused\" for free",
    );
    let mut surplus = MetricFamily::gauge(
        "hugeleaf_pool_surplus_bytes",
        "Surplus hugetlb pages beyond the size of the pool; included in the pool's bytes",
    );
    for pool in pools {
        let size = size_of(pool.page_bytes);
        let node = node_of(pool.node);
        let bytes = |pages: u64| pages as f64 * pool.page_bytes.as_f64();
        let reserved = pool.reserved.min(pool.free);
        let states = [
            ("used", "used", pool.total.saturating_sub(pool.free)),
            ("reserved", "reserved", reserved),
            ("unused", "free", pool.free - reserved),
        ];
        for (state, old_state, pages) in states {
            let labels = |state: &'static str| {
                [
                    ("page_size", size.as_str()),
                    ("node", node.as_str()),
                    ("state", state),
                ]
            };
            memory.add(labels(state), bytes(pages));
            old.add(labels(old_state), bytes(pages));
        }
        surplus.add([("page_size", &size), ("node", &node)], bytes(pool.surplus));
    }
    vec![memory, old, surplus]
}

fn pool_findings(pools: &PoolCheckStatus) -> Vec<MetricFamily> {
    let mut findings = MetricFamily::gauge(
        "hugeleaf_pool_findings",
        "Number of findings on pools, services and plans; hugeleaf guard status lists them",
    );
    for severity in ["problem", "warning"] {
        let of = |finding: &&PoolFinding| finding.severity == severity;
        let count = pools.findings.iter().filter(of).count();
        findings.add([("severity", severity)], count as f64);
    }
    let mut given = MetricFamily::gauge(
        "hugeleaf_pool_given_bytes",
        "Hugetlb pages released under memory pressure, to be allocated again later",
    );
    for pool in &pools.given {
        let size = size_of(pool.page_bytes);
        let node = node_of(pool.node);
        let pages = pool.had.saturating_sub(pool.pages);
        given.add(
            [("page_size", &size), ("node", &node)],
            pages as f64 * pool.page_bytes.as_f64(),
        );
    }
    vec![findings, given]
}

fn size_of(page: Bytes) -> String {
    PageSize::new(page).map_or_else(|_| String::new(), |size| size.to_string())
}

fn node_of(node: Option<u32>) -> String {
    node.map_or_else(|| "all".to_owned(), |node| node.to_string())
}

/// Sums over the process trees of a unit, pod or name.
#[derive(Default)]
struct TreeSums {
    small: Bytes,
    large: Bytes,
    tables: Bytes,
    moved: Bytes,
    misaligned: Bytes,
}

fn groups(status: &GuardStatus, series: usize) -> BTreeMap<String, TreeSums> {
    let mut all: BTreeMap<&str, TreeSums> = BTreeMap::new();
    for program in &status.programs {
        all.entry(&program.group).or_default().join(&TreeSums {
            small: program.base_bytes,
            large: program.huge_bytes,
            tables: program.page_tables_bytes,
            moved: program.promoted_bytes,
            misaligned: program.misaligned_bytes,
        });
    }
    let mut sorted: Vec<(&str, TreeSums)> = all.into_iter().collect();
    sorted.sort_by_key(|(name, group)| (std::cmp::Reverse(group.small + group.large), *name));
    let mut groups: BTreeMap<String, TreeSums> = BTreeMap::new();
    for (n, (name, group)) in sorted.into_iter().enumerate() {
        let name = if n < series { name } else { OTHER };
        groups.entry(name.to_owned()).or_default().join(&group);
    }
    groups
}

impl TreeSums {
    fn join(&mut self, other: &TreeSums) {
        self.small += other.small;
        self.large += other.large;
        self.tables += other.tables;
        self.moved += other.moved;
        self.misaligned += other.misaligned;
    }
}

fn by_group(groups: &BTreeMap<String, TreeSums>) -> Vec<MetricFamily> {
    let mut memory = MetricFamily::gauge(
        "hugeleaf_eligible_bytes",
        "Memory that could be on huge pages, by the pages that it is on; their sum is the total",
    );
    let mut tables = MetricFamily::gauge(
        "hugeleaf_page_tables_bytes",
        "Page tables of a unit's processes",
    );
    let mut moved = MetricFamily::gauge(
        "hugeleaf_managed_bytes",
        "Memory promoted in a unit's running processes",
    );
    let mut misaligned = MetricFamily::gauge(
        "hugeleaf_misaligned_bytes",
        "Shared memory on base pages that no promotion can move, because address and offset differ; a part of the eligible memory",
    );
    for (name, group) in groups {
        memory.add([("unit", name), ("pages", "base")], group.small.as_f64());
        memory.add([("unit", name), ("pages", "huge")], group.large.as_f64());
        tables.add([("unit", name)], group.tables.as_f64());
        moved.add([("unit", name)], group.moved.as_f64());
        misaligned.add([("unit", name)], group.misaligned.as_f64());
    }
    vec![memory, tables, moved, misaligned]
}

/// Returns the pods and containers of units, to join other metrics with those of kube-state-metrics.
fn pod_info(status: &GuardStatus, groups: &BTreeMap<String, TreeSums>) -> MetricFamily {
    let mut family = MetricFamily::gauge(
        "hugeleaf_pod_info",
        "Pod and container of a unit; container_id is empty if unknown",
    );
    let of_pods = status.programs.iter().filter_map(|program| {
        let container = program.container_id.as_deref().unwrap_or_default();
        Some((&*program.group, program.pod_uid.as_deref()?, container))
    });
    // Process trees of one container share a sample.
    let distinct: BTreeSet<_> = of_pods
        .filter(|(unit, ..)| groups.contains_key(*unit))
        .collect();
    for (unit, pod_uid, container) in distinct {
        let labels = [
            ("unit", unit),
            ("pod_uid", pod_uid),
            ("container_id", container),
        ];
        family.add(labels, 1.0);
    }
    family
}

fn process_trees(status: &GuardStatus) -> MetricFamily {
    let mut family = MetricFamily::gauge(
        "hugeleaf_process_trees",
        "Process trees scanned in detail, by state",
    );
    for state in TreeState::ALL {
        family.add([("state", state.name())], status.count(state) as f64);
    }
    family
}

/// Returns the name of a state in the deprecated `hugeleaf_programs`.
const fn old_state(state: TreeState) -> &'static str {
    match state {
        TreeState::Promoting => "moving",
        TreeState::Reverting => "reverting",
        TreeState::Testing => "testing",
        TreeState::Queued => "next",
        TreeState::Candidate => "would",
        TreeState::Managed => "kept",
        TreeState::AlreadyHuge => "large",
        TreeState::Skipped => "no",
    }
}

fn counts(status: &GuardStatus) -> Vec<MetricFamily> {
    let counts = &status.counts;
    let mut tests = MetricFamily::counter("hugeleaf_tests", "Completed tests, by verdict");
    for (verdict, n) in [
        ("faster", counts.faster),
        ("slower", counts.slower),
        ("same", counts.same),
        ("unclear", counts.unclear),
        ("dropped", counts.dropped),
    ] {
        tests.add([("verdict", verdict)], n as f64);
    }
    vec![
        MetricFamily::counter("hugeleaf_promotions", "Promotions")
            .with_sample([], counts.promotions as f64),
        MetricFamily::counter("hugeleaf_promoted_bytes", "Memory promoted")
            .with_sample([], counts.promoted.as_f64()),
        MetricFamily::counter("hugeleaf_promotions_short", "Incomplete promotions")
            .with_sample([], counts.short as f64),
        MetricFamily::counter("hugeleaf_demotions", "Demotions")
            .with_sample([], counts.demotions as f64),
        MetricFamily::counter(
            "hugeleaf_grown_bytes",
            "Memory added to processes by promotion; 0 unless a rule allows it",
        )
        .with_sample([], counts.grown.as_f64()),
        MetricFamily::counter(
            "hugeleaf_stall_seconds",
            "Time in calls that promote or demote, in which processes may have stalled",
        )
        .with_sample([], counts.stalled.as_secs_f64()),
        MetricFamily::gauge(
            "hugeleaf_longest_stall_seconds",
            "Longest such call since the guard's state began",
        )
        .with_sample([], counts.longest_stall.as_secs_f64()),
        tests,
    ]
}

fn proofs(status: &GuardStatus, series: usize) -> Vec<MetricFamily> {
    let mut ratio = MetricFamily::gauge(
        "hugeleaf_proof_ratio",
        "Result of the last test of a unit, huge over base pages, with its 95 % interval",
    );
    let mut gain = MetricFamily::gauge(
        "hugeleaf_proof_gain_ratio",
        "The same result as a gain: above 1 is faster on huge pages, for metrics of either direction",
    );
    let mut at = MetricFamily::gauge(
        "hugeleaf_proof_timestamp_seconds",
        "Time of that test, in seconds since 1970",
    );
    let mut proven = BTreeMap::new();
    for program in &status.programs {
        if let Proof::Proven(proof) = &program.proof_detail {
            proven.insert(program.group.as_str(), proof);
        }
    }
    for (group, proof) in proven.into_iter().take(series) {
        let verdict = proof.verdict.to_string();
        let labels = |bound| {
            [
                ("unit", group),
                ("verdict", verdict.as_str()),
                ("bound", bound),
            ]
        };
        let bounds = ["low", "estimate", "high"];
        for (bound, value) in bounds.into_iter().zip([proof.low, proof.ratio, proof.high]) {
            ratio.add(labels(bound), value);
        }
        for (bound, value) in bounds.into_iter().zip(proof.gain().into_iter().flatten()) {
            gain.add(labels(bound), value);
        }
        at.add([("unit", group)], proof.at as f64);
    }
    vec![ratio, gain, at]
}

fn host(status: &GuardStatus) -> Vec<MetricFamily> {
    let mut events = MetricFamily::counter(
        "hugeleaf_kernel_events",
        "The kernel's counters of THP and compaction (/proc/vmstat)",
    );
    for (name, n) in &status.host.events {
        events.add([("event", name)], *n as f64);
    }
    let mut pressure = MetricFamily::gauge(
        "hugeleaf_pressure_ratio",
        "Share of time since the last scan in which some task waited (PSI)",
    );
    for (resource, part) in [
        ("memory", status.host.stalled),
        ("cpu", status.host.waiting),
    ] {
        if let Some(part) = part {
            pressure.add([("resource", resource)], part);
        }
    }
    let mut tables = MetricFamily::gauge(
        "hugeleaf_host_page_tables_bytes",
        "Page tables of the whole host",
    );
    if let Some(bytes) = status.host.page_tables_bytes {
        tables.add([], bytes.as_f64());
    }
    vec![events, pressure, tables]
}

/// Returns the metrics of earlier builds that have another name now. They are exported until the first release.
fn old_names(status: &GuardStatus, groups: &BTreeMap<String, TreeSums>) -> Vec<MetricFamily> {
    let mut memory = MetricFamily::gauge(
        "hugeleaf_memory_bytes",
        "Deprecated: hugeleaf_eligible_bytes, with pages=\"base\" for small",
    );
    let mut moved =
        MetricFamily::gauge("hugeleaf_moved_bytes", "Deprecated: hugeleaf_managed_bytes");
    for (name, group) in groups {
        memory.add([("unit", name), ("pages", "small")], group.small.as_f64());
        memory.add([("unit", name), ("pages", "huge")], group.large.as_f64());
        moved.add([("unit", name)], group.moved.as_f64());
    }
    let mut programs = MetricFamily::gauge(
        "hugeleaf_programs",
        "Deprecated: hugeleaf_process_trees, with state=\"managed\" for kept",
    );
    for state in TreeState::ALL {
        programs.add([("state", old_state(state))], status.count(state) as f64);
    }
    let cost = &status.cost;
    vec![
        memory,
        moved,
        programs,
        MetricFamily::counter("hugeleaf_looks", "Deprecated: hugeleaf_scans_total")
            .with_sample([], cost.scans as f64),
        MetricFamily::gauge(
            "hugeleaf_look_cpu_seconds",
            "Deprecated: hugeleaf_scan_cpu_seconds",
        )
        .with_sample([], cost.scan_seconds),
        MetricFamily::gauge(
            "hugeleaf_look_wait_seconds",
            "Deprecated: hugeleaf_scan_wait_seconds",
        )
        .with_sample([], cost.wait_seconds),
    ]
}

fn itself(status: &GuardStatus) -> Vec<MetricFamily> {
    let cost = &status.cost;
    let mut all = vec![
        MetricFamily::gauge(
            "hugeleaf_problems",
            "Number of problems; hugeleaf guard status lists them",
        )
        .with_sample([], status.problems.len() as f64),
        MetricFamily::counter("hugeleaf_scans", "Scans of the host")
            .with_sample([], cost.scans as f64),
        MetricFamily::gauge("hugeleaf_scan_cpu_seconds", "Processor time of a scan")
            .with_sample([], cost.scan_seconds),
        MetricFamily::gauge("hugeleaf_scan_wait_seconds", "Time between two scans")
            .with_sample([], cost.wait_seconds),
        MetricFamily::gauge(
            "hugeleaf_pool_check_cpu_seconds",
            "Processor time of a check of pools, services and plans",
        )
        .with_sample([], cost.pool_check_seconds),
    ];
    // Process metrics have standard names; a restart shows in the start time.
    if status.pid != 0 {
        all.extend([
            MetricFamily::counter("process_cpu_seconds", "Processor time of the guard")
                .with_sample([], cost.cpu_seconds),
            MetricFamily::gauge(
                "process_resident_memory_bytes",
                "Resident memory of the guard",
            )
            .with_sample([], cost.resident_bytes.as_f64()),
            MetricFamily::gauge(
                "process_start_time_seconds",
                "Start time of the guard, in seconds since 1970",
            )
            .with_sample([], status.started_seconds),
        ]);
    }
    all
}

#[cfg(test)]
mod tests;
