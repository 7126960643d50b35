//! The rows, each from the facts that it concerns.

use hugeleaf_host::system::system_config::{Disk, DiskMount, NetworkDevice};
use hugeleaf_host::{Fact, Host};
use hugeleaf_units::Bytes;

use super::judge::{advise, judge_setting};
use super::model::{
    CheckInput, CheckRow, CheckState, RunningProgram, SettingDemand, WorkloadProfile,
};
use super::programs::lacks_pool;
use super::setting_lookup::{BASE_PAGE, sysctl_file};
use crate::advice::{AcceptedValues, ChangeScope, Setting, SettingChange};
use crate::findings::shell_word;
use crate::findings::thp::{
    DEFRAG_WITHOUT_STALLS, defrag_stalls, ignored_max_ptes_none, too_large,
};
use crate::list;

use WorkloadProfile::{Backup, Cache, Jvm, Oltp, Vector, Warehouse};

/// Share of page tables in memory that deserves a closer look.
const MANY_PAGE_TABLES: f64 = 0.01;
/// Dirty memory whose write-back takes a time that users notice.
const MUCH_DIRTY: Bytes = Bytes(1 << 30);
/// The limit for databases with asynchronous I/O (Oracle's installation guides).
const MANY_REQUESTS: u64 = 1_048_576;
/// The kernel's default since 5.4.
// not a page size
const MANY_CONNECTIONS: u64 = 4096;
/// The kernel's default for few processors, and the maximum on 64 bits (include/linux/threads.h).
const FEW_THREADS: u64 = 32_768;
const MOST_PIDS: u64 = 4_194_304;
const MANY_THREADS: u64 = 1_000_000;

fn number(checked: &CheckInput<'_>, name: &str) -> Option<u64> {
    checked.features.number(&sysctl_file(name))
}

pub(super) fn memory(checked: &CheckInput<'_>) -> Vec<CheckRow> {
    let host = checked.host;
    let mut all = vec![
        base_page(checked),
        pools(checked),
        thp(checked),
        thp_shared(checked),
        defrag(checked),
        max_ptes_none(checked),
        page_tables(host),
        hvo(checked),
    ];
    all.extend(numa(checked));
    all.extend([swappiness(checked), overcommit(checked), dirty(checked)]);
    all
}

fn base_page(checked: &CheckInput<'_>) -> CheckRow {
    judge_setting(
        checked,
        CheckRow::new("base-page", "base page"),
        BASE_PAGE,
        None,
    )
}

fn pools(checked: &CheckInput<'_>) -> CheckRow {
    let host = checked.host;
    let row = CheckRow::new("pools", "hugetlb pools");
    let sizes: Vec<String> = (host.totals())
        .map(|pool| format!("{} × {}", pool.all().get(), pool.size))
        .collect();
    if sizes.is_empty() {
        return row;
    }
    let mut row = row.with_value(sizes.join(", "));
    let default = host.memory.default_hugetlb_page.get();
    row.arm = default.map(|size| format!("hugetlb:{size}"));
    let Some(server) = lacks_pool(checked) else {
        return row;
    };
    let name = server.processes.first().map_or("", |process| &process.name);
    row.review(format!(
        "{} can use pool pages, but all pools are empty",
        server.program.title
    ))
    .with_command(
        format!("hugeleaf plan {}", shell_word(name)),
        "other programs cannot use pool memory",
    )
}

fn thp(checked: &CheckInput<'_>) -> CheckRow {
    let row = CheckRow::new("thp", "transparent huge pages, private memory");
    let too_large = too_large(checked.host)
        .map(|why| SettingDemand::own(one_of(&["madvise", "never"]), CheckState::Review, why));
    let off = || {
        let why =
            "programs that request them with madvise(2) get none; hugeleaf promote still works";
        SettingDemand::general(one_of(&["madvise", "always"]), CheckState::Review, why)
    };
    let mut row = judge_setting(
        checked,
        row,
        "thp.enabled",
        Some(too_large.unwrap_or_else(off)),
    );
    if row.value.is_some() {
        row.arm = (checked.host.pmd_page.get()).map(|size| format!("thp:{size}"));
    }
    row
}

fn one_of(values: &[&str]) -> AcceptedValues {
    AcceptedValues::OneOf(values.iter().map(|value| (*value).to_owned()).collect())
}

fn thp_shared(checked: &CheckInput<'_>) -> CheckRow {
    let row = CheckRow::new("thp-shared", "transparent huge pages, shared memory");
    let why =
        "shared memory (PostgreSQL, ZGC heaps) gets none, except on a tmpfs mounted with huge=";
    let on = one_of(&["advise", "always", "within_size", "force"]);
    let ask = SettingDemand::general(on, CheckState::Review, why);
    judge_setting(checked, row, "thp.shmem_enabled", Some(ask))
}

fn defrag(checked: &CheckInput<'_>) -> CheckRow {
    let row = CheckRow::new("thp-defrag", "compaction for transparent huge pages");
    let ask = defrag_stalls(checked.host).then(|| {
        let why = "each page fault that could get a huge page waits for memory compaction";
        let others = one_of(&[DEFRAG_WITHOUT_STALLS, "madvise", "defer", "never"]);
        SettingDemand::general(others, CheckState::Review, why)
    });
    judge_setting(checked, row, "thp.defrag", ask)
}

fn max_ptes_none(checked: &CheckInput<'_>) -> CheckRow {
    let row = CheckRow::new(
        "max-ptes-none",
        "missing base pages that khugepaged may fill",
    );
    let row = judge_setting(checked, row, "thp.khugepaged/max_ptes_none", None);
    let is_good = row.state == CheckState::Good;
    match ignored_max_ptes_none(checked.host).filter(|_| is_good) {
        Some(why) => row.review(why),
        None => row,
    }
}

fn page_tables(host: &Host) -> CheckRow {
    let row = CheckRow::new("page-tables", "page tables of processes");
    let (Some(tables), Some(total)) = (host.memory.page_tables.get(), host.memory.total.get())
    else {
        return row.with_state(CheckState::Unknown, "not in /proc/meminfo");
    };
    let part = tables.as_f64() / total.as_f64().max(1.0);
    row.with_value(format!("{tables}, {:.1} % of memory", 100.0 * part))
        .when(part > MANY_PAGE_TABLES, |row| {
            row.review("many processes map much memory on base pages; huge pages of a pool share or shrink the tables")
                .with_command("hugeleaf mem", "none, it only reads")
        })
}

fn hvo(checked: &CheckInput<'_>) -> CheckRow {
    let what = "redundant struct pages (HVO)";
    let has_pool = checked.host.totals().any(|pool| pool.all().get() > 0);
    let ask = has_pool.then(|| {
        let why = "they take 1.6 % of a pool of 2M pages";
        SettingDemand::general(AcceptedValues::AtLeast(1), CheckState::Review, why)
    });
    judge_setting(
        checked,
        CheckRow::new("hvo", what),
        "vm.hugetlb_optimize_vmemmap",
        ask,
    )
}

fn numa(checked: &CheckInput<'_>) -> Vec<CheckRow> {
    if checked.host.nodes.len() < 2 {
        return vec![CheckRow::new("numa", "several NUMA nodes")];
    }
    let off = |state, why: &str| SettingDemand::general(AcceptedValues::AtMost(0), state, why);
    let balancing = checked.is_for(&[Oltp, Cache, Jvm]).then(|| {
        off(CheckState::Review, "it samples accesses by page faults, and splits huge pages that it migrates; a server bound to a node does not need it")
    });
    let reclaim = off(
        CheckState::Change,
        "a full node drops its page cache while other nodes have free memory",
    );
    vec![
        judge_setting(
            checked,
            CheckRow::new("numa-balancing", "NUMA balancing"),
            "kernel.numa_balancing",
            balancing,
        ),
        judge_setting(
            checked,
            CheckRow::new("zone-reclaim", "reclaim before use of other nodes"),
            "vm.zone_reclaim_mode",
            Some(reclaim),
        ),
    ]
}

fn swappiness(checked: &CheckInput<'_>) -> CheckRow {
    let swap = checked.host.memory.swap_total.get().unwrap_or_default();
    let ask = (!swap.is_zero() && checked.is_for(&[Oltp, Jvm, Cache])).then(|| {
        let why =
            "a swapped-out buffer pool is read twice; 1 to 10 keeps it, and drops page cache first";
        SettingDemand::general(AcceptedValues::AtMost(10), CheckState::Review, why)
    });
    judge_setting(
        checked,
        CheckRow::new("swappiness", "swappiness"),
        "vm.swappiness",
        ask,
    )
}

fn overcommit(checked: &CheckInput<'_>) -> CheckRow {
    let row = CheckRow::new("overcommit", "memory overcommit");
    judge_setting(checked, row, "vm.overcommit_memory", None)
}

fn dirty(checked: &CheckInput<'_>) -> CheckRow {
    let row = CheckRow::new("dirty", "dirty page limits");
    let bytes = number(checked, "vm.dirty_background_bytes").filter(|bytes| *bytes > 0);
    let ratio = number(checked, "vm.dirty_background_ratio");
    let available = checked.host.memory.available.get();
    let (limit, how) = match (bytes, ratio, available) {
        (Some(bytes), _, _) => (Bytes(bytes), format!("vm.dirty_background_bytes = {bytes}")),
        (None, Some(ratio), Some(available)) => {
            let limit = Bytes(available.get() / 100 * ratio);
            (
                limit,
                format!("vm.dirty_background_ratio = {ratio}, here {limit}"),
            )
        }
        _ => {
            let ratio = checked
                .features
                .setting(&sysctl_file("vm.dirty_background_ratio"));
            return row.with_fact(ratio, |row, _| row);
        }
    };
    let row = row.with_value(how);
    if limit <= MUCH_DIRTY || !checked.is_for(&[Oltp, Warehouse, Backup]) {
        return row;
    }
    let to = [
        ("vm.dirty_background_bytes", Bytes(256 << 20)),
        ("vm.dirty_bytes", Bytes(1 << 30)),
    ];
    let changes = to.map(|(name, bytes)| SettingChange::new(Setting::sysctl(name), bytes.get()));
    let why = format!("up to {limit} is written at once, and commits wait for it");
    let risk = "lost at the next boot; bursts of writes wait earlier";
    advise(checked, row.review(why), changes, risk)
}

pub(super) fn disks(checked: &CheckInput<'_>) -> Vec<CheckRow> {
    let (features, mut all) = (checked.features, vec![aio(checked), io_uring(checked)]);
    all.extend(each("disks", &features.disks, |disk| {
        of_disk(checked, disk)
    }));
    all.extend(each("mounts", &features.mounts, |mount| {
        vec![of_mount(checked, mount)]
    }));
    all
}

/// Returns the rows of each item, or one row with the reason why nothing is known.
fn each<T>(
    id: &'static str,
    all: &Fact<Vec<T>>,
    rows: impl Fn(&T) -> Vec<CheckRow>,
) -> Vec<CheckRow> {
    match all {
        Fact::Known(all) => all.iter().flat_map(rows).collect(),
        Fact::Absent => Vec::new(),
        other => vec![CheckRow::new(id, id).with_fact(other, |row, _| row)],
    }
}

fn aio(checked: &CheckInput<'_>) -> CheckRow {
    const MOST: &str = "fs.aio-max-nr";
    let row = CheckRow::new("aio", "maximum asynchronous requests (libaio)");
    let now = number(checked, "fs.aio-nr").unwrap_or(0);
    let ask = checked.is_for(&[Oltp, Warehouse]).then(|| {
        let is_near = number(checked, MOST).is_some_and(|most| now > most / 2);
        let state = if is_near {
            CheckState::Change
        } else {
            CheckState::Review
        };
        let why =
            format!("{now} are reserved; a server that gets none falls back to synchronous I/O");
        SettingDemand::general(AcceptedValues::AtLeast(MANY_REQUESTS), state, why)
    });
    judge_setting(checked, row, MOST, ask)
}

fn io_uring(checked: &CheckInput<'_>) -> CheckRow {
    let why = "programs that request it fall back to other I/O interfaces";
    let ask = SettingDemand::general(AcceptedValues::AtMost(0), CheckState::Review, why);
    judge_setting(
        checked,
        CheckRow::new("io-uring", "io_uring"),
        "kernel.io_uring_disabled",
        Some(ask),
    )
}

fn chosen(text: &str) -> &str {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text.trim(), |(word, _)| word)
}

fn of_disk(checked: &CheckInput<'_>, disk: &Disk) -> Vec<CheckRow> {
    let name = &disk.name;
    let scheduler = CheckRow::new("scheduler", format!("{name}: scheduler"));
    let scheduler = scheduler.with_fact(&disk.scheduler, |row, text| {
        let row = row.with_value(text.as_str());
        let offered = |wanted: &str| {
            let mut words = text.split_whitespace();
            words.any(|word| word.trim_matches(['[', ']']) == wanted)
        };
        let next = |row: CheckRow, wanted: &str, risk: &str| {
            let file = Setting::file(format!("/sys/block/{name}/queue/scheduler"));
            let change = SettingChange::new(file, wanted).in_scope(ChangeScope::Device);
            advise(checked, row, [change], risk)
        };
        match (chosen(text), disk.rotates.get()) {
            ("none" | "noop", Some(true)) if offered("mq-deadline") => next(
                row.review("use mq-deadline: a rotating disk is faster with ordered requests"),
                "mq-deadline",
                "a request may wait for others",
            ),
            ("bfq" | "cfq", Some(false)) if offered("none") => next(
                row.review("use none: fair scheduling only costs CPU time on a fast disk"),
                "none",
                "one program may monopolize the disk",
            ),
            _ => row,
        }
    });
    let depth = CheckRow::new("queue-depth", format!("{name}: queue depth"));
    let depth = depth.with_fact(&disk.requests, |row, requests| {
        row.with_value(requests.to_string())
    });
    let ahead = CheckRow::new("read-ahead", format!("{name}: read-ahead"));
    let ahead = ahead.with_fact(&disk.read_ahead_kib, |row, kib| {
        let row = row.with_value(Bytes::from_kib(*kib).to_string());
        let next = |row: CheckRow, kib: u64, risk: &str| {
            let file = Setting::file(format!("/sys/block/{name}/queue/read_ahead_kb"));
            let change = SettingChange::new(file, kib).in_scope(ChangeScope::Device);
            advise(checked, row, [change], risk)
        };
        match checked.profile {
            Some(Backup | Warehouse) if *kib < 1024 => next(
                row.review("long reads through the page cache are faster with 1M or more"),
                2048,
                "small random reads fetch more than they use",
            ),
            Some(Oltp | Vector) if *kib > 256 => next(
                row.review("a read of one block also fetches others"),
                128,
                "long reads through the page cache get slower",
            ),
            _ => row,
        }
    });
    vec![scheduler, depth, ahead]
}

/// Direct I/O and large folios of file systems (Documentation/filesystems; kernel-notes).
fn of_mount(checked: &CheckInput<'_>, mount: &DiskMount) -> CheckRow {
    let has = |option: &str| mount.options.split(',').any(|o| o == option);
    let direct = match mount.kind.as_str() {
        "ext4" | "xfs" | "btrfs" | "f2fs" => "direct I/O",
        "zfs" => "direct I/O from OpenZFS 2.3 on",
        "overlay" | "9p" | "fuse" | "virtiofs" => "direct I/O by the underlying file system",
        _ => "direct I/O unknown",
    };
    let times = match (has("noatime"), has("relatime")) {
        (true, _) => "noatime",
        (_, true) => "relatime",
        _ => "strictatime",
    };
    let remounted = |row, option, risk| {
        let change =
            SettingChange::new(Setting::mount(&mount.at), option).in_scope(ChangeScope::Device);
        advise(checked, row, [change], risk)
    };
    let row = CheckRow::new("mount", format!("{}: {}", mount.at, mount.kind));
    let row = row.with_value(format!("{times}; {direct}"));
    if has("nobarrier") || has("barrier=0") {
        let row =
            row.change("commits are reported before they are on disk: a power failure loses them");
        return remounted(row, "barrier", "commits wait for the disk");
    }
    row.when(!matches!(times, "noatime" | "relatime"), |row| {
        let row = row.review("each read also writes the access time");
        let risk = "programs that search for unused files get less exact access times";
        remounted(row, "relatime", risk)
    })
}

pub(super) fn network(checked: &CheckInput<'_>) -> Vec<CheckRow> {
    let backlog = CheckRow::new("somaxconn", "maximum length of accept queues");
    // Above the usual demands of servers, which the programs' own wants cover.
    let why =
        "connections are refused if many clients connect at once; servers ask for 511 or more";
    let ask = SettingDemand::general(
        AcceptedValues::AtLeast(MANY_CONNECTIONS),
        CheckState::Review,
        why,
    );
    let poll = CheckRow::new("busy-poll", "busy polling for packets");
    let mut all = vec![
        judge_setting(checked, backlog, "net.core.somaxconn", Some(ask)),
        judge_setting(checked, poll, "net.core.busy_poll", None),
    ];
    all.extend(each(
        "network-devices",
        &checked.features.network,
        |device| {
            let what = format!("{}: queues, MTU", device.name);
            let row = CheckRow::new("network-device", what);
            let row = match (device.queues.get(), device.mtu.get()) {
                (Some(1), Some(mtu)) => row.with_value(format!("1 queue, {mtu}")),
                (Some(queues), Some(mtu)) => row.with_value(format!("{queues} queues, {mtu}")),
                _ => row,
            };
            vec![row, offloads(checked, device)]
        },
    ));
    all
}

fn offloads(checked: &CheckInput<'_>, device: &NetworkDevice) -> CheckRow {
    const WHY: &str = "the CPU does this work for each packet; a device that offers it (no \
                       [fixed] in ethtool -k) needs no CPU time";
    const RISK: &str = "a faulty driver loses packets: watch ethtool -S; lost at the next boot";
    let what = format!("{}: NIC offloads", device.name);
    CheckRow::new("network-offloads", what).with_fact(&device.offloads, |row, known| {
        let off: Vec<&str> = (known.iter())
            .filter(|(_, on)| !**on)
            .map(|(name, _)| *name)
            .collect();
        match off.is_empty() {
            true => row.with_value("all on"),
            false => {
                let row = row
                    .with_value(format!("without {}", off.join(", ")))
                    .review(WHY);
                let setting = Setting::offloads(&device.name);
                let change = SettingChange::new(setting, "rx on tx on tso on gro on");
                advise(checked, row, [change.in_scope(ChangeScope::Device)], RISK)
            }
        }
    })
}

pub(super) fn processors(checked: &CheckInput<'_>) -> Vec<CheckRow> {
    vec![
        clock(checked),
        governor(checked),
        weaknesses(checked),
        preemption(checked),
        threads(checked),
    ]
}

fn clock(checked: &CheckInput<'_>) -> CheckRow {
    const FOLDER: &str = "sys/devices/system/clocksource/clocksource0";
    let row = CheckRow::new("clock", "clock");
    let current = checked
        .features
        .setting(&format!("{FOLDER}/current_clocksource"));
    let offered = checked
        .features
        .setting(&format!("{FOLDER}/available_clocksource"));
    let offered = offered.known().map_or("", String::as_str);
    row.with_fact(current, |row, name| {
        let row = row.with_value(name.as_str());
        if !matches!(
            name.as_str(),
            "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies"
        ) {
            return row;
        }
        let row = row.change(
            "reading it is a slow system call: databases read the clock for every statement",
        );
        let better = offered
            .split_whitespace()
            .find(|name| matches!(*name, "tsc" | "kvm-clock" | "arch_sys_counter"));
        match better {
            Some(better) => {
                let file = Setting::file(format!("/{FOLDER}/current_clocksource"));
                let risk = "the kernel may have rejected that clock as unstable: see its log";
                advise(checked, row, [SettingChange::new(file, better)], risk)
            }
            None => row,
        }
    })
}

fn governor(checked: &CheckInput<'_>) -> CheckRow {
    CheckRow::new("governor", "cpufreq governor").with_fact(
        &checked.features.governors,
        |row, all| {
            let names = all.iter().map(|(name, count)| format!("{name} on {count}"));
            let is_fast = |name: &String| matches!(name.as_str(), "performance" | "schedutil");
            row.with_value(list(names))
                .when(!all.keys().all(is_fast), |row| {
                    let why = "CPUs that clock down while idle take time to reach full frequency";
                    let change = SettingChange::new(Setting::governor(), "performance");
                    advise(checked, row.review(why), [change], "uses more power")
                })
        },
    )
}

fn weaknesses(checked: &CheckInput<'_>) -> CheckRow {
    let row = CheckRow::new("mitigations", "mitigations of CPU vulnerabilities");
    row.with_fact(&checked.features.weaknesses, |row, all| {
        let named = |is: MitigationState| -> Vec<&str> {
            let some = all.iter().filter(|(_, text)| weakness(text) == is);
            some.map(|(name, _)| name.as_str()).collect()
        };
        let (open, unknown) = (
            named(MitigationState::Open),
            named(MitigationState::Unknown),
        );
        let mitigated = named(MitigationState::Mitigated).len();
        let value = format!(
            "{mitigated} mitigated, {} open, {} unknown",
            open.len(),
            unknown.len()
        );
        row.with_value(value).when(!open.is_empty(), |row| {
            let open = list(&open);
            row.review(format!(
                "open, at least in part: {open}; faster, but a risk on multi-tenant hosts"
            ))
        })
    })
}

#[derive(PartialEq)]
enum MitigationState {
    None,
    Mitigated,
    /// Also partly open: `KVM: Vulnerable`, `Mitigation: Clear CPU buffers; SMT vulnerable`.
    Open,
    /// `Unknown: Dependent on hypervisor status`, and any unknown text.
    Unknown,
}

/// Classifies the texts of arch/x86/kernel/cpu/bugs.c and arch/arm64/kernel/proton-pack.c.
fn weakness(text: &str) -> MitigationState {
    let text = text.to_ascii_lowercase();
    match text {
        _ if text.contains("vulnerable") => MitigationState::Open,
        _ if text.starts_with("not affected") => MitigationState::None,
        _ if text.contains("mitigation") => MitigationState::Mitigated,
        _ => MitigationState::Unknown,
    }
}

fn preemption(checked: &CheckInput<'_>) -> CheckRow {
    let row = CheckRow::new("preemption", "kernel preemption");
    if let Fact::Known(text) = checked.features.setting("sys/kernel/debug/sched/preempt") {
        return row.with_value(chosen(&text.replace('(', "[").replace(')', "]")));
    }
    let version = checked.features.setting("proc/version");
    row.with_fact(version, |row, text| {
        let mut words = text.split_whitespace();
        let word = words.find(|word| word.starts_with("PREEMPT"));
        row.with_value(word.map_or("none", |word| word.trim_matches(['(', ')'])))
    })
}

/// Each thread has a PID, so the smaller of two limits counts.
fn threads(checked: &CheckInput<'_>) -> CheckRow {
    const PIDS: &str = "kernel.pid_max";
    const THREADS: &str = "kernel.threads-max";
    let row = CheckRow::new("threads", "maximum number of threads");
    let (pids, threads) = (number(checked, PIDS), number(checked, THREADS));
    let is_threads = threads.is_some() && threads < Some(pids.unwrap_or(u64::MAX));
    let (setting, most) = match is_threads {
        true => (THREADS, MANY_THREADS),
        false => (PIDS, MOST_PIDS),
    };
    let ask = pids
        .min(threads)
        .or(pids)
        .is_some_and(|limit| limit <= FEW_THREADS)
        .then(|| {
            let why = "a server with many clients, or many containers, runs out of threads";
            SettingDemand::general(AcceptedValues::AtLeast(most), CheckState::Review, why)
        });
    judge_setting(checked, row, setting, ask)
}

pub(super) fn limits(checked: &CheckInput<'_>) -> Vec<CheckRow> {
    let servers = checked.servers.known().into_iter().flatten();
    let mut all: Vec<CheckRow> = servers.flat_map(of_server).collect();
    all.extend([maps(checked), shared(checked)]);
    all
}

/// Returns rows for the limits of a server's own processes. The limits of this shell do not apply to a
/// service.
fn of_server(server: &RunningProgram) -> Vec<CheckRow> {
    let all = [
        ("open-files", "Max open files", "open files", Some(60_000)),
        (
            "processes",
            "Max processes",
            "processes of its user",
            Some(5000),
        ),
        ("memlock", "Max locked memory", "locked memory", None),
    ];
    let one = |(id, name, what, least): (_, &str, &str, Option<u64>)| {
        let row = CheckRow::new(id, format!("{}: {what}", server.program.title));
        let Some(process) = server.processes.first() else {
            return row;
        };
        row.with_fact(&process.limits, |row, limits| {
            let Some(limit) = limits.iter().find(|limit| limit.name == name) else {
                return row.with_state(CheckState::Unknown, format!("{name} is missing from its limits"));
            };
            let row = row.with_value(format!("{}, at most {}", limit.soft, limit.hard));
            let is_low = |least: &u64| limit.hard.parse::<u64>().is_ok_and(|hard| hard < *least);
            match least.filter(is_low) {
                Some(least) => row.review(format!("a server with many clients needs {least} or more: set LimitNOFILE= and LimitNPROC= of its unit")),
                None => row,
            }
        })
    };
    all.map(one).into()
}

fn maps(checked: &CheckInput<'_>) -> CheckRow {
    let ask = checked.is_for(&[Jvm, Vector, Warehouse]).then(|| {
        let why =
            "a large heap that returns memory in parts runs out of mappings, and then of memory";
        SettingDemand::general(AcceptedValues::AtLeast(262_144), CheckState::Review, why)
    });
    judge_setting(
        checked,
        CheckRow::new("maps", "maximum mappings of a process"),
        "vm.max_map_count",
        ask,
    )
}

fn shared(checked: &CheckInput<'_>) -> CheckRow {
    let total = checked.host.memory.total.get();
    let is_low = |total: &Bytes| {
        let most = number(checked, "kernel.shmmax");
        most.is_some_and(|most| most < total.get() / 2)
    };
    let ask = total.filter(is_low).map(|total| {
        let why = "a segment of half of the memory would be refused";
        SettingDemand::general(
            AcceptedValues::AtLeast(total.get()),
            CheckState::Review,
            why,
        )
    });
    judge_setting(
        checked,
        CheckRow::new("shared-memory", "largest SysV segment"),
        "kernel.shmmax",
        ask,
    )
}
