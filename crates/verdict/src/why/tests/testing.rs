//! Small hosts, processes and segments for tests, as on a stock machine with 4K base pages and 2M
//! huge pages. Each test changes one thing.

use hugeleaf_host::{
    Buddy, Fact, FreeBlocks, Host, KernelLimits, Khugepaged, MappingRole, MappingSettings, Memory,
    PageUsage, Pool, Process, ProcessMapping, Thp, ThpAdvice, ThpSizeSettings, VmFlags,
};
use hugeleaf_host::{PageMap, PageRun, PageState, Pid, ProcessMemoryLimits};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages, Range};

pub const K: u64 = 1024;
pub const M: u64 = 1024 * K;
pub const G: u64 = 1024 * M;

pub fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

pub fn range(start: u64, len: u64) -> Range {
    Range::new(start, start + len).unwrap()
}

fn known(text: &str) -> Fact<String> {
    Fact::Known(text.to_owned())
}

fn orders() -> Vec<ThpSizeSettings> {
    ["16K", "64K", "1M", "2M"]
        .map(|s| {
            let word = if s == "2M" { "inherit" } else { "never" };
            ThpSizeSettings {
                size: size(s),
                anon: known(word),
                shmem: known(word),
            }
        })
        .to_vec()
}

/// Returns a host with `enabled` at `madvise`, `shmem_enabled` at `never`, empty pools and free
/// memory.
pub fn host() -> Host {
    Host {
        kernel: known("6.18.0"),
        arch: known("x86_64"),
        base_page: size("4K"),
        pmd_page: Fact::Known(size("2M")),
        memory: Memory {
            total: Fact::Known(Bytes(16 * G)),
            free: Fact::Known(Bytes(4 * G)),
            available: Fact::Known(Bytes(8 * G)),
            anon: Fact::Known(Bytes(8 * G)),
            anon_huge: Fact::Known(Bytes(0)),
            file_huge: Fact::Known(Bytes(0)),
            default_hugetlb_page: Fact::Known(size("2M")),
            ..Memory::default()
        },
        page_sizes: Vec::new(),
        pools: vec![pool("2M", 0, 0, 0)],
        thp: Fact::Known(Thp {
            enabled: known("madvise"),
            defrag: known("madvise"),
            shmem_enabled: known("never"),
            khugepaged: Khugepaged {
                pages_to_scan: Fact::Known(Pages(4096)),
                scan_sleep_millis: Fact::Known(10_000),
                ..Khugepaged::default()
            },
            orders: orders(),
            ..Thp::default()
        }),
        buddy: buddy(512),
        limits: KernelLimits {
            hugetlb_shm_group: Fact::Known(0),
            min_free: Fact::Known(Bytes(64 * M)),
            ..KernelLimits::default()
        },
        cgroups: Fact::Absent,
        is_in_container: false,
        unseen_by_kubelet: Vec::new(),
        owners: Vec::new(),
        wants: Vec::new(),
        leftovers: Fact::Absent,
        memory_limits: Vec::new(),
        kernel_log: Fact::Absent,
        nodes: vec![0],
        compaction: hugeleaf_host::CompactionStalls::default(),
        virtual_machine: hugeleaf_host::system::virtual_machine::VirtualMachine::default(),
    }
}

/// Returns `blocks` free blocks of 4M, and a thousand of 4K.
pub fn buddy(blocks: u64) -> Fact<Buddy> {
    let mut counts = vec![0; 11];
    counts[0] = 1000;
    counts[10] = blocks;
    Fact::Known(Buddy {
        zones: vec![FreeBlocks {
            node: 0,
            zone: "Normal".to_owned(),
            counts,
        }],
    })
}

pub fn pool(page: &str, total: u64, free: u64, reserved: u64) -> Pool {
    Pool {
        size: size(page),
        node: None,
        total: Fact::Known(Pages(total)),
        free: Fact::Known(Pages(free)),
        reserved: Fact::Known(Pages(reserved)),
        surplus: Fact::Known(Pages(0)),
        overcommit: Fact::Known(Pages(0)),
    }
}

/// Returns the host with a changed THP setting.
pub fn with_thp(change: impl FnOnce(&mut Thp)) -> Host {
    let mut host = host();
    if let Fact::Known(thp) = &mut host.thp {
        change(thp);
    }
    host
}

pub fn word(text: &str) -> Fact<String> {
    known(text)
}

/// Returns process 100, `server`, child of 1, with these segments.
pub fn process(segments: Vec<ProcessMapping>) -> Process {
    let resident = segments.iter().map(|s| s.resident).sum();
    Process {
        pid: Pid(100),
        parent: Pid(1),
        name: "server".to_owned(),
        command_line: "/usr/bin/server".to_owned(),
        uid: 999,
        start_ticks: 1,
        threads: 1,
        thp_disabled: Fact::Known(false),
        resident,
        resident_anon: resident,
        limits: ProcessMemoryLimits {
            memlock: Fact::Known(Bytes(8 * M)),
            ..ProcessMemoryLimits::default()
        },
        groups: vec![999],
        segments,
        ..Process::default()
    }
}

/// Resident and exclusive.
pub const OWN: PageState = PageState::PRESENT.with(PageState::EXCLUSIVE);

/// Returns private anonymous memory, fully resident and exclusive.
pub fn anon(start: u64, len: u64) -> ProcessMapping {
    let range = range(start, len);
    let mut segment = ProcessMapping {
        range,
        role: MappingRole::Anon,
        name: String::new(),
        permissions: [true, true, false],
        shared: false,
        offset: 0,
        object: (0, 0, 0),
        request: MappingSettings::default(),
        flags: VmFlags(vec![*b"rd", *b"wr"]),
        thp_eligible: Fact::Known(false),
        collapses: Fact::Absent,
        resident: range.len(),
        pss: range.len(),
        anonymous: range.len(),
        shared_with_others: Bytes(0),
        locked: Bytes(0),
        swapped: Bytes(0),
        swapped_pss: Bytes(0),
        merged: Bytes(0),
        by_page_size: Vec::new(),
        pages: Fact::Absent,
        file_system: None,
        mount_huge: None,
    };
    set_pages(&mut segment, vec![(range, OWN)]);
    segment
}

/// Returns shared anonymous memory, whose alignment depends on `start`.
pub fn shm(start: u64, len: u64) -> ProcessMapping {
    let mut segment = anon(start, len);
    segment.role = MappingRole::Shm;
    segment.shared = true;
    segment.name = "/dev/zero (deleted)".to_owned();
    segment.object = (0, 1, 77);
    segment.anonymous = Bytes(0);
    let range = segment.range;
    set_pages(
        &mut segment,
        vec![(range, PageState::PRESENT.with(PageState::FILE))],
    );
    segment
}

/// Returns a mapping of a file on ext4, executable or not.
pub fn file(start: u64, len: u64, role: MappingRole) -> ProcessMapping {
    let mut segment = shm(start, len);
    segment.role = role;
    segment.shared = role == MappingRole::File;
    segment.permissions = [true, role == MappingRole::Data, role == MappingRole::Text];
    segment.name = "/usr/bin/server".to_owned();
    segment.object = (8, 1, 4711);
    segment.file_system = Some("ext4".to_owned());
    segment
}

/// Sets the pages of a segment, and the derived counters.
pub fn set_pages(segment: &mut ProcessMapping, runs: Vec<(Range, PageState)>) {
    let mut by_page_size = Vec::new();
    let (mut resident, mut swapped, mut shared) = (Bytes(0), Bytes(0), Bytes(0));
    let mut map = PageMap {
        runs: Vec::new(),
        huge_known: true,
        exclusive_known: true,
    };
    for (range, state) in runs {
        let bytes = range.len();
        map.runs.push(PageRun { range, state });
        if state.has(PageState::SWAPPED) {
            swapped += bytes;
        } else if state.has(PageState::PRESENT) && !state.has(PageState::ZERO) {
            resident += bytes;
            if !state.has(PageState::EXCLUSIVE) {
                shared += bytes;
            }
            let huge = state.has(PageState::HUGE);
            let (page, kind) = match huge {
                true => ("2M", PageKind::Thp),
                false => ("4K", PageKind::Base),
            };
            PageUsage::add(&mut by_page_size, size(page), kind, bytes);
        }
    }
    segment.resident = resident;
    segment.pss = resident;
    segment.swapped = swapped;
    segment.shared_with_others = shared;
    segment.by_page_size = by_page_size;
    segment.pages = Fact::Known(map);
}

pub fn flagged(mut segment: ProcessMapping, flag: &[u8; 2]) -> ProcessMapping {
    segment.flags.0.push(*flag);
    match flag {
        b"hg" => segment.request.advised = ThpAdvice::Huge,
        b"nh" => segment.request.advised = ThpAdvice::NoHuge,
        _ => {}
    }
    segment
}
