//! The rows, each from the facts that it is about.

use hugeleaf_host::system::features::{Disk, DiskMount, Network};
use hugeleaf_host::{Fact, Host, thp_is_on};
use hugeleaf_units::Bytes;

use super::model::{Checked, Profile, Program, Row, State};
use crate::list;

use Profile::{Backup, Cache, Jvm, Oltp, Vector, Warehouse};

/// Page tables of more than this part of memory are worth a look.
const MANY_PAGE_TABLES: f64 = 0.01;
/// So much that waits to be written is written all at once, in a time that users notice.
const MUCH_DIRTY: Bytes = Bytes(1 << 30);
/// What a database that reads and writes asynchronously asks for (Oracle's installation guides).
const MANY_REQUESTS: u64 = 1_048_576;

const UNTIL_BOOT: &str = "until the next start only; write it into /etc/sysctl.d to keep it";

fn number(checked: &Checked<'_>, name: &str) -> Option<u64> {
    checked.features.number(&sysctl_file(name))
}

fn sysctl_file(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

/// The row of a setting by its name as in `vm.swappiness`, absent, unknown, or with its value; and its number.
fn setting(checked: &Checked<'_>, id: &'static str, what: &str, name: &str) -> (Row, Option<u64>) {
    let fact = checked.features.setting(&sysctl_file(name));
    let row = Row::new(id, what).of(fact, |row, value| {
        let words: Vec<&str> = value.split_whitespace().collect();
        row.is(format!("{name} = {}", words.join(" ")))
    });
    (row, number(checked, name))
}

fn sysctl(name: &str, value: impl std::fmt::Display) -> String {
    format!("sysctl -w {name}={value}")
}

pub(super) fn memory(checked: &Checked<'_>) -> Vec<Row> {
    let host = checked.host;
    let mut all = vec![
        pools(checked),
        thp(checked),
        thp_shared(checked),
        page_tables(host),
        hvo(checked),
    ];
    all.extend(numa(checked));
    all.push(swappiness(checked));
    all.push(dirty(checked));
    all
}

fn pools(checked: &Checked<'_>) -> Row {
    let host = checked.host;
    let row = Row::new("pools", "hugetlb pools");
    let sizes: Vec<String> = (host.totals())
        .map(|pool| format!("{} × {}", pool.all().get(), pool.size))
        .collect();
    if sizes.is_empty() {
        return row;
    }
    let mut row = row.is(sizes.join(", "));
    let default = host.memory.default_hugetlb_page.get();
    row.arm = default.map(|size| format!("hugetlb:{size}"));
    let wants = checked.running.iter().find(|program| program.pool);
    match wants.filter(|_| !host.totals().any(|pool| pool.gives_any())) {
        Some(Program { title, name, .. }) => row
            .look(format!(
                "{title} would take pages of a pool, and all pools are empty"
            ))
            .by(
                format!("hugeleaf plan {name}"),
                "memory in a pool is for nobody else",
            ),
        None => row,
    }
}

fn thp(checked: &Checked<'_>) -> Row {
    let row = Row::new("thp", "transparent huge pages, private memory");
    let Some(thp) = checked.host.thp.known() else {
        return row;
    };
    row.of(&thp.enabled, |row, setting| {
        let mut row = row.is(setting.as_str());
        row.arm = (checked.host.pmd_page.get()).map(|size| format!("thp:{size}"));
        row.when(!thp_is_on(Some(setting)), |row| {
            row.change("nobody can have them, also not programs that ask and those that are promoted by hand")
                .by(
                    "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                    "programs that ask with madvise(2) get them",
                )
        })
    })
}

fn thp_shared(checked: &Checked<'_>) -> Row {
    let row = Row::new("thp-shared", "transparent huge pages, shared memory");
    let Some(thp) = checked.host.thp.known() else {
        return row;
    };
    row.of(&thp.shmem_enabled, |row, setting| {
        row.is(setting.as_str()).when(!thp_is_on(Some(setting)), |row| {
            row.look("shared memory (PostgreSQL, ZGC heaps) cannot be on them unless it is mounted so")
                .by(
                    "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
                    "programs that ask with madvise(2) get them",
                )
        })
    })
}

fn page_tables(host: &Host) -> Row {
    let row = Row::new("page-tables", "page tables of processes");
    let (Some(tables), Some(total)) = (host.memory.page_tables.get(), host.memory.total.get())
    else {
        return row.should(State::Unknown, "/proc/meminfo does not say");
    };
    let part = tables.as_f64() / total.as_f64().max(1.0);
    row.is(format!("{tables}, {:.1} % of memory", 100.0 * part))
        .when(part > MANY_PAGE_TABLES, |row| {
            row.look("many processes map much memory on base pages; larger pages of a pool share or shrink the tables")
                .by("hugeleaf mem", "it only looks")
        })
}

fn hvo(checked: &Checked<'_>) -> Row {
    const NAME: &str = "vm.hugetlb_optimize_vmemmap";
    let what = "descriptors of pool pages given back (HVO)";
    let (row, value) = setting(checked, "hvo", what, NAME);
    let has_pool = checked.host.totals().any(|pool| pool.all().get() > 0);
    row.when(value == Some(0) && has_pool, |row| {
        row.look("1.6 % of a pool of 2M pages is spent on descriptors that nobody needs")
            .by(sysctl(NAME, 1), "making and freeing pool pages takes about twice as long, and freeing can fail where memory is short")
    })
}

fn numa(checked: &Checked<'_>) -> Vec<Row> {
    const BALANCING: &str = "kernel.numa_balancing";
    const RECLAIM: &str = "vm.zone_reclaim_mode";
    if checked.host.nodes.len() < 2 {
        return vec![Row::new("numa", "several memory nodes")];
    }
    let is_on = |value: Option<u64>| value.is_some_and(|value| value > 0);
    let what = "moving pages to who uses them";
    let (balancing, value) = setting(checked, "numa-balancing", what, BALANCING);
    let hurts = is_on(value) && checked.is_for(&[Oltp, Cache, Jvm]);
    let balancing = balancing.when(hurts, |row| {
        row.look("it takes faults to find who uses a page, and splits what it moves; a server that is bound to a node needs none of it")
            .by(sysctl(BALANCING, 0), "programs that are not bound stay with memory of another node")
    });
    let what = "reclaim before using another node";
    let (reclaim, value) = setting(checked, "zone-reclaim", what, RECLAIM);
    let reclaim = reclaim.when(is_on(value), |row| {
        row.change("a node that is full pushes its page cache out while others are free")
            .by(sysctl(RECLAIM, 0), UNTIL_BOOT)
    });
    vec![balancing, reclaim]
}

fn swappiness(checked: &Checked<'_>) -> Row {
    const NAME: &str = "vm.swappiness";
    let what = "how readily memory of programs goes to swap";
    let (row, value) = setting(checked, "swappiness", what, NAME);
    let swap = checked.host.memory.swap_total.get().unwrap_or_default();
    let is_high = value.is_some_and(|value| value > 10) && !swap.is_zero();
    row.when(is_high && checked.is_for(&[Oltp, Jvm, Cache]), |row| {
        row.look(
            "a buffer pool in swap is read twice; 1 to 10 keeps it in memory before page cache",
        )
        .by(sysctl(NAME, 10), UNTIL_BOOT)
    })
}

fn dirty(checked: &Checked<'_>) -> Row {
    let row = Row::new("dirty", "written data that waits in memory");
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
        _ => return row,
    };
    let is_much = limit > MUCH_DIRTY && checked.is_for(&[Oltp, Warehouse, Backup]);
    row.is(how).when(is_much, |row| {
        row.look(format!(
            "up to {limit} is written out at once, and those who wait for a commit wait for it"
        ))
        .by(
            "sysctl -w vm.dirty_background_bytes=268435456 vm.dirty_bytes=1073741824",
            UNTIL_BOOT,
        )
    })
}

pub(super) fn disks(checked: &Checked<'_>) -> Vec<Row> {
    let mut all = vec![aio(checked), io_uring(checked)];
    for disk in &checked.features.disks {
        all.extend(of_disk(checked, disk));
    }
    all.extend(checked.features.mounts.iter().map(of_mount));
    all
}

fn aio(checked: &Checked<'_>) -> Row {
    const MOST: &str = "fs.aio-max-nr";
    let what = "asynchronous requests at a time (libaio)";
    let (row, most) = setting(checked, "aio", what, MOST);
    let now = number(checked, "fs.aio-nr").unwrap_or(0);
    match most {
        Some(most) if most < MANY_REQUESTS && checked.is_for(&[Oltp, Warehouse]) => {
            let state = if now > most / 2 {
                State::Change
            } else {
                State::Look
            };
            let why = format!(
                "{now} are reserved; a server that gets none falls back to waiting for each"
            );
            row.should(state, why)
                .by(sysctl(MOST, MANY_REQUESTS), UNTIL_BOOT)
        }
        _ => row,
    }
}

fn io_uring(checked: &Checked<'_>) -> Row {
    const NAME: &str = "kernel.io_uring_disabled";
    let (row, value) = setting(checked, "io-uring", "io_uring", NAME);
    row.when(value.is_some_and(|value| value > 0), |row| {
        row.look("programs that ask for it fall back to other ways")
            .by(sysctl(NAME, 0), "it has had more holes than other parts of the kernel: hosts with strangers leave it off")
    })
}

fn chosen(text: &str) -> &str {
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text.trim(), |(word, _)| word)
}

fn of_disk(checked: &Checked<'_>, disk: &Disk) -> Vec<Row> {
    let name = &disk.name;
    let scheduler = Row::new("scheduler", format!("{name}: scheduler"));
    let scheduler = scheduler.of(&disk.scheduler, |row, text| {
        let (word, rotates) = (chosen(text), disk.rotates.get().unwrap_or(false));
        let row = row.is(text.as_str());
        let next = |wanted: &str| format!("echo {wanted} > /sys/block/{name}/queue/scheduler");
        match (word, rotates) {
            ("none" | "noop", true) => row
                .look("a disk that turns gains by requests in order: mq-deadline")
                .by(next("mq-deadline"), "a request may wait for others"),
            ("bfq" | "cfq", false) => row
                .look("being fair takes processor time that a fast disk has no need of: none")
                .by(next("none"), "one program may take the disk from others"),
            _ => row,
        }
    });
    let mut depth = Row::new("queue-depth", format!("{name}: requests that may wait"));
    if let Some(requests) = disk.requests.get() {
        depth = depth.is(requests.to_string());
    }
    let mut ahead = Row::new("read-ahead", format!("{name}: read ahead"));
    if let Some(kib) = disk.read_ahead_kib.get() {
        let row = ahead.is(Bytes::from_kib(kib).to_string());
        let next = |kib: u64| format!("echo {kib} > /sys/block/{name}/queue/read_ahead_kb");
        ahead = match checked.profile {
            Some(Backup | Warehouse) if kib < 1024 => row
                .look("long reads through the page cache gain by 1M or more")
                .by(next(2048), "small reads at random read more than they use"),
            Some(Oltp | Vector) if kib > 256 => row
                .look("reads of one block drag others in")
                .by(next(128), "long reads through the page cache get slower"),
            _ => row,
        };
    }
    vec![scheduler, depth, ahead]
}

/// File systems of which direct I/O and large folios are known (Documentation/filesystems; kernel-notes).
fn of_mount(mount: &DiskMount) -> Row {
    let has = |option: &str| mount.options.split(',').any(|o| o == option);
    let direct = match mount.kind.as_str() {
        "ext4" | "xfs" | "btrfs" | "f2fs" => "direct I/O",
        "zfs" => "direct I/O from OpenZFS 2.3 on",
        "overlay" | "9p" | "fuse" | "virtiofs" => "direct I/O as the file system below has it",
        _ => "direct I/O not known",
    };
    let times = match (has("noatime"), has("relatime")) {
        (true, _) => "noatime",
        (_, true) => "relatime",
        _ => "atime of each read",
    };
    let row = Row::new("mount", format!("{}: {}", mount.at, mount.kind));
    let row = row.is(format!("{times}; {direct}"));
    if has("nobarrier") || has("barrier=0") {
        return row
            .change("commits are said to be on the disk before they are: a power cut loses them")
            .by(
                format!("mount -o remount,barrier {}", mount.at),
                "commits take as long as they take",
            );
    }
    row.when(!matches!(times, "noatime" | "relatime"), |row| {
        row.look("each read is also a write").by(
            format!("mount -o remount,relatime {}", mount.at),
            "programs that look for files nobody reads see less",
        )
    })
}

pub(super) fn network(checked: &Checked<'_>) -> Vec<Row> {
    const BACKLOG: &str = "net.core.somaxconn";
    let what = "connections that wait to be accepted";
    let (backlog, value) = setting(checked, "somaxconn", what, BACKLOG);
    let backlog = backlog.when(value.is_some_and(|value| value <= 511), |row| {
        row.look("many clients that connect at once are turned away; servers ask for 511 and more")
            .by(sysctl(BACKLOG, 8192), UNTIL_BOOT)
    });
    let what = "waiting for packets without sleeping";
    let (poll, _) = setting(checked, "busy-poll", what, "net.core.busy_poll");
    let mut all = vec![backlog, poll];
    for device in &checked.features.network {
        let what = format!("{}: queues, longest packet", device.name);
        let row = Row::new("network-device", what);
        all.push(match (device.queues.get(), device.mtu.get()) {
            (Some(1), Some(mtu)) => row.is(format!("1 queue, {mtu}")),
            (Some(queues), Some(mtu)) => row.is(format!("{queues} queues, {mtu}")),
            _ => row,
        });
        all.push(offloads(device));
    }
    all
}

fn offloads(device: &Network) -> Row {
    const WHY: &str = "the processor does it, packet by packet; where the device offers it (no [fixed] in ethtool -k) it costs \
                       nothing there";
    const RISK: &str =
        "a driver with faults loses packets: watch ethtool -S; until the next start only";
    let what = format!("{}: what it does by itself", device.name);
    Row::new("network-offloads", what).of(&device.offloads, |row, known| {
        let off: Vec<&str> = (known.iter())
            .filter(|(_, on)| !**on)
            .map(|(name, _)| name.as_str())
            .collect();
        match off.is_empty() {
            true => row.is("checksums, cutting and gathering of packets"),
            false => row.is(format!("without {}", off.join(", "))).look(WHY).by(
                format!("ethtool -K {} rx on tx on tso on gro on", device.name),
                RISK,
            ),
        }
    })
}

pub(super) fn processors(checked: &Checked<'_>) -> Vec<Row> {
    vec![
        clock(checked),
        governor(checked),
        weaknesses(checked),
        preemption(checked),
        threads(checked),
    ]
}

fn clock(checked: &Checked<'_>) -> Row {
    const FOLDER: &str = "sys/devices/system/clocksource/clocksource0";
    let row = Row::new("clock", "clock");
    let current = checked
        .features
        .setting(&format!("{FOLDER}/current_clocksource"));
    let offered = checked
        .features
        .setting(&format!("{FOLDER}/available_clocksource"));
    let offered = offered.known().map_or("", String::as_str);
    row.of(current, |row, name| {
        let row = row.is(name.as_str());
        if !matches!(
            name.as_str(),
            "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies"
        ) {
            return row;
        }
        let row = row.change(
            "reading it is a system call and slow: databases read the clock for every statement",
        );
        let better = offered
            .split_whitespace()
            .find(|name| matches!(*name, "tsc" | "kvm-clock" | "arch_sys_counter"));
        match better {
            Some(better) => row.by(
                format!("echo {better} > /{FOLDER}/current_clocksource"),
                "the kernel may have left it because it was not steady: its log says so",
            ),
            None => row,
        }
    })
}

fn governor(checked: &Checked<'_>) -> Row {
    let row = Row::new("governor", "frequency");
    let all = &checked.features.governors;
    if all.is_empty() {
        return row;
    }
    let names = all.iter().map(|(name, count)| format!("{name} on {count}"));
    let is_fast = |name: &String| matches!(name.as_str(), "performance" | "schedutil");
    row.is(list(names)).when(!all.keys().all(is_fast), |row| {
        row.look("processors that are slowed down while they wait take time to be fast again")
            .by(
                "cpupower frequency-set -g performance",
                "it takes more power",
            )
    })
}

fn weaknesses(checked: &Checked<'_>) -> Row {
    let row = Row::new("mitigations", "mitigations of processor weaknesses");
    row.of(&checked.features.weaknesses, |row, all| {
        let mitigated = all.values().filter(|text| text.starts_with("Mitigation"));
        let open = all
            .iter()
            .filter(|(_, text)| text.starts_with("Vulnerable"));
        let open: Vec<&str> = open.map(|(name, _)| name.as_str()).collect();
        let value = format!("{} mitigated, {} open", mitigated.count(), open.len());
        row.is(value).when(!open.is_empty(), |row| {
            let open = open.join(", ");
            row.look(format!(
                "open: {open}; on a host of strangers that is a risk, and it is faster"
            ))
        })
    })
}

fn preemption(checked: &Checked<'_>) -> Row {
    let row = Row::new("preemption", "preemption of the kernel");
    if let Fact::Known(text) = checked.features.setting("sys/kernel/debug/sched/preempt") {
        return row.is(chosen(&text.replace('(', "[").replace(')', "]")));
    }
    let version = checked.features.setting("proc/version");
    let word = version.known().and_then(|text| {
        let mut words = text.split_whitespace();
        words.find(|word| word.starts_with("PREEMPT"))
    });
    match (version, word) {
        (Fact::Known(_), Some(word)) => row.is(word.trim_matches(['(', ')'])),
        (Fact::Known(_), None) => row.is("none"),
        _ => row,
    }
}

fn threads(checked: &Checked<'_>) -> Row {
    let what = "threads of the host";
    let (row, _) = setting(checked, "threads", what, "kernel.threads-max");
    match number(checked, "kernel.pid_max") {
        Some(pids @ ..=32_768) => row
            .look(format!(
                "kernel.pid_max = {pids}: as many threads can be at a time"
            ))
            .by(sysctl("kernel.pid_max", 4_194_304), UNTIL_BOOT),
        _ => row,
    }
}

pub(super) fn limits(checked: &Checked<'_>) -> Vec<Row> {
    let of = |id, name, what, least| of_limit(checked, id, name, what, least);
    vec![
        of(
            "open-files",
            "Max open files",
            "files that a program may open",
            Some(60_000),
        ),
        of(
            "processes",
            "Max processes",
            "processes of a user",
            Some(5000),
        ),
        of(
            "memlock",
            "Max locked memory",
            "memory that a program may lock",
            None,
        ),
        maps(checked),
        shared(checked),
    ]
}

/// A limit of this shell. Services have those of their units.
fn of_limit(
    checked: &Checked<'_>,
    id: &'static str,
    name: &str,
    what: &str,
    least: Option<u64>,
) -> Row {
    Row::new(id, what).of(&checked.features.limits, |row, limits| {
        let Some((_, soft, hard)) = limits.iter().find(|limit| limit.0 == name) else {
            return row;
        };
        let row = row.is(format!("{soft}, at most {hard}"));
        match least.filter(|least| hard.parse::<u64>().is_ok_and(|hard| hard < *least)) {
            Some(least) => row.look(format!("a server with many clients asks for {least} and more: LimitNOFILE= and LimitNPROC= of its unit")),
            None => row,
        }
    })
}

fn maps(checked: &Checked<'_>) -> Row {
    const NAME: &str = "vm.max_map_count";
    let (row, value) = setting(checked, "maps", "mappings of a process", NAME);
    let is_low = value.is_some_and(|value| value < 262_144);
    row.when(is_low && checked.is_for(&[Jvm, Vector, Warehouse]), |row| {
        row.look("a large heap that gives memory back in pieces runs out of mappings, and then out of memory")
            .by(sysctl(NAME, 262_144), UNTIL_BOOT)
    })
}

fn shared(checked: &Checked<'_>) -> Row {
    const NAME: &str = "kernel.shmmax";
    let (row, most) = setting(checked, "shared-memory", "largest SysV segment", NAME);
    match (most, checked.host.memory.total.get()) {
        (Some(most), Some(total)) if Bytes(most) < Bytes(total.get() / 2) => row
            .look("a segment for half of the memory would be refused")
            .by(sysctl(NAME, total.get()), UNTIL_BOOT),
        _ => row,
    }
}
