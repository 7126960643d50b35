//! Tests of policies on small hosts: 4K base pages, 2M THP with `madvise`, shared memory `never`, and
//! pools of 2M and 1G as each test fills them.

use hugeleaf_host::{
    Elf, ExecutableFormat, Fact, FilePrivilege, Host, PageSizeAvailability, PageSizeInfo,
    ProgramFile, Thp,
};
use hugeleaf_units::{Bytes, Failure, PageKind, Pages};
use proptest::prelude::*;

use super::ldr_cntrl::translate;
use super::*;
use crate::why::tests::testing::{self, G, M, pool, size, word};

/// Returns the host with these numbers of free 2M and 1G pages.
fn host(two_megabytes: u64, one_gigabyte: u64) -> Host {
    let mut host = testing::host();
    host.pools = vec![
        pool("2M", two_megabytes, two_megabytes, 0),
        pool("1G", one_gigabyte, one_gigabyte, 0),
    ];
    let sizes = [("2M", two_megabytes), ("1G", one_gigabyte)];
    host.page_sizes = sizes
        .map(|(text, pages)| info(text, PageKind::Hugetlb, Pages(pages).in_bytes(size(text))))
        .to_vec();
    for text in ["16K", "64K", "1M", "2M"] {
        host.page_sizes.push(info(text, PageKind::Thp, Bytes(G)));
    }
    host.page_sizes.sort_by_key(|info| (info.size, info.kind));
    host
}

fn info(text: &str, kind: PageKind, bytes: Bytes) -> PageSizeInfo {
    PageSizeInfo {
        size: size(text),
        kind,
        enabled: true,
        how: String::new(),
        available: Fact::Known(PageSizeAvailability {
            bytes,
            limited_by: "pool".to_owned(),
        }),
        if_defragmented: Fact::Absent,
        sysv_without_privilege: None,
    }
}

fn with_thp(mut host: Host, change: impl FnOnce(&mut Thp)) -> Host {
    if let Fact::Known(thp) = &mut host.thp {
        change(thp);
    }
    host
}

/// Parses a policy as typed: `("data", "2M!")`.
fn policy(wants: &[(&str, &str)]) -> RunFlags {
    let mut policy = RunFlags::default();
    for (name, want) in wants {
        let role = RunMemoryKind::ALL
            .into_iter()
            .find(|role| role.name() == *name)
            .unwrap();
        policy.wants[role as usize] = want.parse().unwrap();
    }
    policy
}

fn settled(wants: &[(&str, &str)], host: &Host) -> ResolvedPolicy {
    resolve(&policy(wants), host, None).unwrap()
}

/// Returns the attempts for each role: data, shm, stack, text.
fn tried(wants: &[(&str, &str)], host: &Host) -> [String; 4] {
    let settled = settled(wants, host);
    RunMemoryKind::ALL.map(|role| settled.settings.policy(role).to_string())
}

/// Returns the missing requests, as `asked: because`.
fn missing(wants: &[(&str, &str)], host: &Host) -> Vec<String> {
    let missing = settled(wants, host).missing;
    missing
        .iter()
        .map(|m| format!("{}: {}", m.asked, m.reason))
        .collect()
}

fn refused(wants: &[(&str, &str)], host: &Host) -> Failure {
    resolve(&policy(wants), host, None).unwrap_err()
}

#[test]
fn auto_says_nothing_whatever_the_host_lacks() {
    assert_eq!(
        tried(&[], &host(0, 0)),
        ["thp", "hugetlb:2097152,thp", "thp", "base"]
    );
    let mut bare = host(0, 0);
    bare.thp = Fact::Absent;
    bare.pools.clear();
    assert_eq!(tried(&[], &bare), ["base", "base", "base", "base"]);
    for host in [host(0, 0), host(8, 8), bare] {
        assert!(settled(&[], &host).missing.is_empty());
    }
}

#[test]
fn auto_takes_the_pool_that_has_pages() {
    assert_eq!(tried(&[], &host(8, 8))[1], "hugetlb:2097152,thp");
    assert_eq!(
        tried(&[], &host(0, 2))[1],
        "hugetlb:1073741824,hugetlb:2097152,thp"
    );
    let mut no_thp = host(8, 0);
    no_thp.thp = Fact::Absent;
    no_thp.pmd_page = Fact::Absent;
    assert_eq!(tried(&[], &no_thp)[1], "hugetlb:2097152");
}

#[test]
fn a_size_means_another_kind_for_each_role() {
    let wants = [
        ("data", "2M"),
        ("shm", "1G,2M"),
        ("stack", "thp:2M"),
        ("text", "2M"),
    ];
    let host = host(8, 2);
    assert_eq!(
        tried(&wants, &host),
        [
            "thp",
            "hugetlb:1073741824,hugetlb:2097152,thp",
            "thp",
            "thp"
        ]
    );
    assert!(settled(&wants, &host).missing.is_empty());
    assert_eq!(
        tried(&[("data", "hugetlb:2M!")], &host)[0],
        "hugetlb:2097152,!"
    );
    assert_eq!(
        tried(&[("data", "base"), ("shm", "4K")], &host)[..2],
        ["base", "base"]
    );
    assert_eq!(tried(&[("shm", "thp:2M")], &host)[1], "thp");
}

#[test]
fn what_is_known_not_to_be_had_is_named() {
    let host = host(0, 0);
    assert_eq!(
        missing(&[("shm", "1G,2M")], &host),
        ["--shm 1G: the pool of 1G pages is empty"]
    );
    // The second rung is a fallback, and is not missed while the first is available.
    assert!(missing(&[("data", "2M,64K"), ("shm", "2M,1G")], &host).is_empty());
    assert_eq!(
        missing(&[("data", "1G,2M"), ("stack", "64K")], &host),
        [
            "--data 1G: the largest transparent huge page is 2M",
            "--stack 64K: hugepages-64kB/enabled is never",
        ]
    );
    let found = settled(&[("stack", "64K")], &host).missing;
    assert_eq!(
        found[0].command,
        "echo always > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled"
    );
}

/// The knob of a THP size enables it, regardless of the pools.
#[test]
fn small_shared_memory_names_the_knob_of_its_size() {
    let set = |own: &str, top: &str| {
        with_thp(host(0, 0), |thp| {
            thp.orders[1].shmem = word(own);
            thp.shmem_enabled = word(top);
        })
    };
    let found = settled(&[("shm", "64K")], &set("never", "never")).missing;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].reason, "hugepages-64kB/shmem_enabled is never");
    assert_eq!(
        found[0].command,
        "echo always > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled"
    );
    assert_eq!(
        missing(&[("shm", "64K")], &set("inherit", "never")),
        ["--shm 64K: hugepages-64kB/shmem_enabled is inherit, and shmem_enabled is never"]
    );
    assert!(missing(&[("shm", "64K")], &set("always", "never")).is_empty());
    // A size without THP is the pool's.
    assert_eq!(
        missing(&[("shm", "16G,2M")], &set("never", "never")),
        ["--shm 16G: this host has no pool of 16G pages, only of 2M, 1G"]
    );
}

#[test]
fn a_smaller_size_that_is_on_needs_nothing() {
    let host = with_thp(host(0, 0), |thp| thp.orders[1].anon = word("always"));
    assert!(missing(&[("data", "64K")], &host).is_empty());
    assert_eq!(tried(&[("data", "64K")], &host)[0], "base");
    let refusal = refused(&[("data", "64K!")], &host);
    assert!(refusal.message.contains("--data 64K!"), "{refusal:?}");
}

#[test]
fn what_must_be_had_and_is_not_is_refused() {
    let host_without = host(0, 0);
    for (role, ladder, because) in [
        ("data", "1G!", "the largest transparent huge page is 2M"),
        ("data", "hugetlb:2M!", "the pool of 2M pages is empty"),
        ("shm", "1G!", "the pool of 1G pages is empty"),
        ("shm", "hugetlb:2M,hugetlb:1G!", "is empty"),
        ("shm", "16M!", "the largest transparent huge page is 2M"),
        ("text", "hugetlb:2M!", "code comes from a file"),
        ("stack", "2K!", "the smallest page here is 4K"),
    ] {
        let refusal = refused(&[(role, ladder)], &host_without);
        let what = format!("run: --{role} {ladder} is required");
        assert!(refusal.message.starts_with(&what), "{refusal:?}");
        assert!(
            refusal.message.contains(because) || ladder == "16M!",
            "{refusal:?}"
        );
        assert!(!refusal.remedy.is_empty(), "{refusal:?}");
    }
    // One rung of several is enough. Earlier rungs are reported.
    assert_eq!(missing(&[("shm", "1G,2M!")], &host_without).len(), 1);
    assert_eq!(
        tried(&[("shm", "1G,2M!")], &host_without)[1],
        "hugetlb:2097152,thp,!"
    );
    let mut no_thp = host(0, 0);
    no_thp.thp = Fact::Absent;
    assert!(
        refused(&[("data", "2M!")], &no_thp)
            .message
            .contains("no transparent huge pages")
    );
}

/// With `never`, memory is not huge on first touch. A later collapse is enough unless huge pages are
/// required.
#[test]
fn never_leaves_collapse() {
    let never = with_thp(host(0, 0), |thp| thp.enabled = word("never"));
    let found = settled(&[("data", "2M")], &never);
    assert!(
        !found.settings.touch && found.missing.is_empty(),
        "{found:?}"
    );
    let refusal = refused(&[("data", "2M!")], &never);
    assert!(refusal.remedy.starts_with("echo madvise > "), "{refusal:?}");
    let own = with_thp(host(0, 0), |thp| {
        thp.enabled = word("never");
        thp.orders[3].anon = word("madvise");
    });
    assert!(settled(&[("data", "2M!")], &own).settings.touch);
}

#[test]
fn shared_memory_follows_its_own_knobs() {
    let with = |text: &str| with_thp(host(0, 0), |thp| thp.shmem_enabled = word(text));
    for (text, touch) in [
        ("never", false),
        ("advise", true),
        ("force", true),
        ("deny", false),
    ] {
        assert_eq!(
            settled(&[], &with(text)).settings.shmem_touch,
            touch,
            "{text}"
        );
    }
    let denied = with("deny");
    assert_eq!(tried(&[], &denied)[1], "hugetlb:2097152");
    assert_eq!(missing(&[("shm", "thp:2M")], &denied).len(), 1);
}

#[test]
fn from_which_size_on() {
    let bytes = |settled: &ResolvedPolicy| {
        let s = &settled.settings;
        [s.data_after, s.shm_after, s.stack_after].map(|b| b.map(|b| b.get() / M))
    };
    let host = host(8, 2);
    assert_eq!(bytes(&settled(&[], &host)), [Some(32), Some(2), Some(32)]);
    let wants = [("data", "2M"), ("shm", "hugetlb:1G"), ("stack", "base")];
    assert_eq!(bytes(&settled(&wants, &host)), [Some(2), Some(1024), None]);
}

#[test]
fn only_nodes_that_there_are() {
    let mut asked = policy(&[]);
    asked.numa = Some("bind=0,7".parse().unwrap());
    let refusal = resolve(&asked, &host(0, 0), None).unwrap_err();
    assert!(refusal.message.contains("no node 7"), "{refusal:?}");
    assert!(refusal.remedy.ends_with(": 0"), "{refusal:?}");
    asked.numa = Some("local".parse().unwrap());
    assert!(resolve(&asked, &host(0, 0), None).is_ok());
}

#[test]
fn a_reserve_must_be_there() {
    let reserve = |wants: &[(&str, &str)], bytes: u64, room: Option<u64>, host: &Host| {
        let mut policy = policy(wants);
        policy.reserve = Some(Bytes(bytes));
        resolve(&policy, host, room.map(Bytes))
    };
    let host = host(512, 0);
    assert!(reserve(&[], G, None, &host).unwrap().missing.is_empty());
    // 8G are available.
    assert!(
        reserve(&[], 9 * G, None, &host)
            .unwrap_err()
            .message
            .contains("8G of memory")
    );
    assert!(
        reserve(&[], G, Some(M), &host)
            .unwrap_err()
            .message
            .contains("room for 1M")
    );
    assert!(reserve(&[("data", "base")], G, None, &host).is_err());
    // 1G are in the pool.
    let from_pool = [("data", "hugetlb:2M!")];
    assert!(
        reserve(&from_pool, G, None, &host)
            .unwrap()
            .missing
            .is_empty()
    );
    let refusal = reserve(&from_pool, G + 3 * M, None, &host).unwrap_err();
    assert!(
        refusal.message.contains("512 free pages of 2M, 2 too few"),
        "{refusal:?}"
    );
    assert!(refusal.remedy.starts_with("echo 514 > "), "{refusal:?}");
    let short = reserve(&[("data", "hugetlb:2M,2M")], 2 * G, None, &host).unwrap();
    assert_eq!(short.missing[0].asked, "--reserve 2G");
}

#[test]
fn the_variable_that_the_library_reads() {
    let mut asked = policy(&[("data", "2M!"), ("shm", "1G,2M")]);
    asked.only = vec!["postgres".to_owned(), "initdb".to_owned()];
    asked.reserve = Some(Bytes(64 * M));
    let mut settings = resolve(&asked, &host(8, 2), None).unwrap().settings;
    settings.report = Some("/run/x/socket".to_owned());
    assert_eq!(
        settings.to_string(),
        "v=1;base=4096;pmd=2097152;data_after=2097152;shm_after=2097152;stack_after=33554432;\
         reserve=67108864;data=thp,!;shm=hugetlb:1073741824,hugetlb:2097152,thp;stack=thp;text=base;\
         touch=1;shmem_touch=0;only=postgres:initdb;report=/run/x/socket;\
         asked_data=2M!;asked_shm=1G,2M;asked_stack=auto;asked_text=auto"
    );
}

/// Returns the translation of LDR_CNTRL, as `KEY=--role want`.
fn translated(text: &str, large: Option<&str>, host: &Host) -> Vec<String> {
    let mapped = translate(text, large, host).unwrap();
    mapped
        .iter()
        .map(|m| format!("{}=--{} {}", m.key, m.role, m.request))
        .collect()
}

#[test]
fn ldr_cntrl_in_the_sizes_of_this_host() {
    let host = host(0, 0);
    assert_eq!(
        translated(
            "DATAPSIZE=64K@TEXTPSIZE=64K@STACKPSIZE=16M@SHMPSIZE=16G",
            None,
            &host
        ),
        [
            "DATAPSIZE=--data 64K",
            "TEXTPSIZE=--text base",
            "STACKPSIZE=--stack 2M",
            "SHMPSIZE=--shm 1G,2M",
        ]
    );
    assert_eq!(
        translated("SHMPSIZE=16M@DATAPSIZE=4K", None, &host),
        ["SHMPSIZE=--shm 2M", "DATAPSIZE=--data base"]
    );
    assert_eq!(
        translated("LARGE_PAGE_DATA=M", None, &host),
        ["LARGE_PAGE_DATA=--data 2M!"]
    );
    assert_eq!(
        translated("SHMPSIZE=64K", Some("Y"), &host),
        ["SHMPSIZE=--shm 64K", "LARGE_PAGE_DATA=--data 2M"]
    );
    assert_eq!(
        translated("LARGE_PAGE_DATA=N@", None, &host),
        ["LARGE_PAGE_DATA=--data base"]
    );
    assert!(translated("", None, &host).is_empty());
}

#[test]
fn ldr_cntrl_on_other_hosts() {
    let mut bare = host(0, 0);
    bare.thp = Fact::Absent;
    bare.pools.clear();
    bare.page_sizes.clear();
    assert_eq!(
        translated("DATAPSIZE=16M@SHMPSIZE=16G", None, &bare),
        ["DATAPSIZE=--data base", "SHMPSIZE=--shm base"]
    );
    // A required size is requested by name, and refused by name.
    let mapped = translate("LARGE_PAGE_DATA=M", None, &bare).unwrap();
    let mut policy = RunFlags::default();
    policy.wants[mapped[0].role as usize] = mapped[0].request.clone();
    assert!(resolve(&policy, &bare, None).is_err());
    let mut large_base = host(0, 0);
    large_base.base_page = size("64K");
    assert_eq!(
        translated("STACKPSIZE=4K@DATAPSIZE=64K", None, &large_base),
        ["STACKPSIZE=--stack base", "DATAPSIZE=--data base"]
    );
}

#[test]
fn ldr_cntrl_that_means_nothing() {
    for (text, large, words) in [
        ("DATAPSIZE=16M@LARGE_PAGE_DATA=Y", None, "together"),
        ("DATAPSIZE=16M", Some("M"), "together"),
        ("MAXDATA=0x80000000", None, "MAXDATA"),
        ("DATAPSIZE", None, "DATAPSIZE"),
        ("DATAPSIZE=2M", None, "2M"),
        ("DATAPSIZE=", None, "DATAPSIZE="),
        ("LARGE_PAGE_DATA=yes", None, "yes"),
        ("SHMPSIZE=4K@SHMPSIZE=64K", None, "twice"),
        ("LARGE_PAGE_DATA=Y", Some("Y"), "twice"),
    ] {
        let refusal = translate(text, large, &host(0, 0)).unwrap_err();
        assert!(refusal.message.contains(words), "{text}: {refusal:?}");
        assert!(!refusal.remedy.is_empty());
    }
    let refusal = translate("USERREGS=1", None, &host(0, 0)).unwrap_err();
    for key in [
        "DATAPSIZE",
        "TEXTPSIZE",
        "STACKPSIZE",
        "SHMPSIZE",
        "LARGE_PAGE_DATA",
    ] {
        assert!(refusal.remedy.contains(key), "{refusal:?}");
    }
}

fn program(interpreter: Option<&str>, needed: &[&str]) -> ProgramFile {
    ProgramFile {
        path: "/opt/db/server".into(),
        scripts: Vec::new(),
        format: ExecutableFormat::Elf(Elf {
            bits: 64,
            machine: 62,
            interpreter: interpreter.map(str::to_owned),
            needed: needed.iter().map(|n| (*n).to_owned()).collect(),
        }),
        privilege: None,
    }
}

const GLIBC: Option<&str> = Some("/lib64/ld-linux-x86-64.so.2");

#[test]
fn programs_that_take_no_library() {
    let because = |program: &ProgramFile| obstacle(program, "x86_64").map(|o| o.reason);
    assert_eq!(
        because(&program(GLIBC, &["libc.so.6", "libubsan.so.1"])),
        None
    );
    let with = |interpreter, needed: &[&str]| because(&program(interpreter, needed)).unwrap();
    assert!(with(None, &[]).contains("statically"));
    assert!(with(Some("/lib/ld-musl-x86_64.so.1"), &[]).contains("musl"));
    assert!(with(Some("/system/bin/linker64"), &[]).contains("glibc"));
    assert!(with(GLIBC, &["libasan.so.8"]).contains("sanitizer"));
    let mut other = program(GLIBC, &[]);
    assert!(
        obstacle(&other, "aarch64")
            .unwrap()
            .reason
            .contains("aarch64")
    );
    if let ExecutableFormat::Elf(elf) = &mut other.format {
        elf.bits = 32;
    }
    assert!(because(&other).unwrap().contains("32-bit"));
    other.privilege = Some(FilePrivilege::User(0));
    assert!(because(&other).unwrap().contains("setuid"));
}

#[test]
fn what_is_not_known_stands_in_no_way() {
    let mut unknown = program(GLIBC, &[]);
    unknown.format = ExecutableFormat::Unknown("denied".to_owned());
    assert_eq!(obstacle(&unknown, "x86_64"), None);
    unknown.format = ExecutableFormat::Other;
    assert_eq!(obstacle(&unknown, "x86_64"), None);
    // The loader of glibc, started directly, loads the library.
    let mut loader = program(None, &[]);
    loader.path = "/lib64/ld-linux-x86-64.so.2".into();
    assert_eq!(obstacle(&loader, "x86_64"), None);
    loader.path = "/sbin/ldconfig".into();
    assert!(obstacle(&loader, "x86_64").is_some());
}

#[test]
fn flags_print_as_they_are_read() {
    for text in ["auto", "base", "1G,2M!", "hugetlb:2M,thp:2M"] {
        assert_eq!(text.parse::<PagePolicy>().unwrap().to_string(), text);
    }
    for text in ["bind=0,2", "prefer=1", "local"] {
        assert_eq!(text.parse::<NumaPolicy>().unwrap().to_string(), text);
    }
    assert_eq!(
        "interleave=2-3,0".parse::<NumaPolicy>().unwrap().nodes(),
        [0, 2, 3]
    );
    for text in ["", "2X", "auto!", "base,2M"] {
        let error = text.parse::<PagePolicy>().unwrap_err().to_string();
        assert!(error.contains("auto"), "{error}");
    }
    for text in [
        "",
        "bind",
        "bind=",
        "prefer=0,1",
        "bind=2-1",
        "nodes=0",
        "bind=0-99999999",
        "local=0",
    ] {
        assert!(text.parse::<NumaPolicy>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(data in ".{0,20}", numa in ".{0,20}", cntrl in "[A-Z_=@0-9KMG]{0,40}") {
        let _ = data.parse::<PagePolicy>();
        let _ = numa.parse::<NumaPolicy>();
        let _ = translate(&cntrl, None, &host(0, 0));
    }

    /// For any request, a mandatory size is available or refused, and a value never contains its own
    /// terminator.
    #[test]
    fn settings_keep_their_shape(
        rungs in prop::collection::vec((0u32..36, 0usize..3), 1..4), mandatory: bool, role in 0usize..4
    ) {
        let words: Vec<String> = rungs
            .iter()
            .map(|(shift, kind)| format!("{}{}", ["", "thp:", "hugetlb:"][*kind], 1u64 << shift))
            .collect();
        let text = format!("{}{}", words.join(","), if mandatory { "!" } else { "" });
        prop_assume!(text.parse::<PagePolicy>().is_ok());
        let role = RunMemoryKind::ALL[role];
        if let Ok(found) = resolve(&policy(&[(role.name(), &text)]), &host(4, 0), None) {
            let printed = found.settings.to_string();
            prop_assert!(printed.split(';').all(|item| item.split('=').count() == 2), "{}", printed);
            let base = found.settings.policy(role).ways.is_empty();
            prop_assert!(!mandatory || !base || text.contains(&"4096".to_owned()), "{}", text);
        }
    }
}
