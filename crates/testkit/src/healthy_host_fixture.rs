//! A host without findings, as a value. Tests change one thing at a time.

use hugeleaf_host::{
    Buddy, CompactionStalls, Fact, FreeBlocks, Host, KernelLimits, Khugepaged, Memory, Pool, Thp,
    ThpSizeSettings,
};
use hugeleaf_units::{Bytes, PageSize, Pages};

pub fn size(text: &str) -> PageSize {
    text.parse().unwrap()
}

pub fn word(text: &str) -> Fact<String> {
    Fact::Known(text.to_owned())
}

pub fn gib(n: u64) -> Fact<Bytes> {
    Fact::Known(Bytes(n << 30))
}

/// Returns a pool with this total, all of it in use.
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

fn order(text: &str, anon: &str, shmem: &str) -> ThpSizeSettings {
    ThpSizeSettings {
        size: size(text),
        anon: word(anon),
        shmem: word(shmem),
    }
}

/// Returns a host with 64 GiB on two nodes, 4K base pages, a fully used pool of 4096 pages of 2M,
/// and THP on.
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
        limits: KernelLimits {
            sysctl: Fact::Known(Vec::new()),
            boot: word("root=/dev/sda1 quiet"),
            ..KernelLimits::default()
        },
        cgroups: Fact::Absent,
        is_in_container: false,
        unseen_by_kubelet: Vec::new(),
        owners: Vec::new(),
        wants: Vec::new(),
        leftovers: Fact::Absent,
        memory_limits: Vec::new(),
        kernel_log: Fact::Known(Vec::new()),
        nodes: vec![0, 1],
        compaction: CompactionStalls::default(),
        virtual_machine: hugeleaf_host::system::virtual_machine::VirtualMachine::default(),
    }
}

/// Like [`healthy`], with arm64's sizes for 16K base pages: full huge pages of 32M, and contiguous
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

pub fn thp(host: &mut Host) -> &mut Thp {
    match &mut host.thp {
        Fact::Known(thp) => thp,
        _ => panic!("no THP"),
    }
}
