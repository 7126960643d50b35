use proptest::prelude::*;

use super::*;
use crate::process::maps::read_maps;

const GIB: u64 = 1 << 30;

fn backend(id: &str, size: u64, kind: BackendKind) -> MemoryBackend {
    MemoryBackend {
        id: (!id.is_empty()).then(|| id.to_owned()),
        size: Bytes(size),
        kind,
    }
}

fn parsed(line: &str) -> Vec<MemoryBackend> {
    parse_guest_backends(&line.replace(' ', "\0"))
}

fn maps(text: &str) -> Vec<MapLine> {
    read_maps(&mut text.as_bytes()).unwrap().unwrap()
}

fn found(line: &str, text: &str) -> Vec<(u64, Option<String>)> {
    let all = guest_ram(&parsed(line), maps(text).iter());
    all.into_iter()
        .map(|ram| (ram.range.start(), ram.backend))
        .collect()
}

#[test]
fn sizes_of_ram_without_a_backend() {
    for (line, size) in [
        ("qemu-system-x86_64", 128 << 20),
        ("/usr/bin/qemu-system-aarch64 -m 512", 512 << 20),
        ("/usr/libexec/qemu-kvm -m 2G", 2 * GIB),
        (
            "kvm -m size=2097152k,slots=16,maxmem=1099511627776k",
            2 * GIB,
        ),
        ("qemu-system-x86_64 --m 1024M,slots=2", GIB),
        // The flags before have no value.
        ("qemu-system-x86_64 -nographic -S -m 1g -enable-kvm", GIB),
    ] {
        assert_eq!(
            parsed(line),
            [backend("", size, BackendKind::Anonymous)],
            "{line}"
        );
    }
    let path = BackendKind::File("/dev/hugepages".to_owned());
    assert_eq!(
        parsed("qemu-system-x86_64 -m 1G -mem-path /dev/hugepages"),
        [backend("", GIB, path)]
    );
}

#[test]
fn backends_replace_the_ram_of_the_machine() {
    assert_eq!(
        parsed(
            "qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=pc.ram,size=1G,share=on -machine q35,memory-backend=pc.ram"
        ),
        [backend("pc.ram", GIB, BackendKind::Memfd)]
    );
    let ram = |id| backend(id, 2 * GIB, BackendKind::Anonymous);
    assert_eq!(
        parsed(
            "qemu-system-x86_64 -m 4G -object qom-type=memory-backend-ram,id=ram-node0,size=2147483648 \
             -object memory-backend-ram,size=2048M,id=ram-node1 -numa node,nodeid=0,memdev=ram-node0"
        ),
        [ram("ram-node0"), ram("ram-node1")]
    );
    // A module that is plugged in adds to it.
    assert_eq!(
        parsed(
            "qemu-system-x86_64 -m 1G,slots=2,maxmem=4G -object memory-backend-file,id=dimm1,mem-path=/srv/a,,b,size=2G -device pc-dimm,memdev=dimm1"
        ),
        [
            backend("", GIB, BackendKind::Anonymous),
            backend("dimm1", 2 * GIB, BackendKind::File("/srv/a,b".to_owned()))
        ]
    );
}

#[test]
fn libvirt_and_kubevirt_write_json() {
    let line = concat!(
        "/usr/libexec/qemu-kvm\0-name\0guest=default_vm1,debug-threads=on\0-S\0",
        "-object\0{\"qom-type\":\"secret\",\"id\":\"masterKey0\",\"format\":\"raw\"}\0",
        "-machine\0pc-q35-rhel9.4.0,usb=off,dump-guest-core=off,memory-backend=pc.ram\0",
        "-accel\0kvm\0-m\0size=4194304k,slots=16,maxmem=16777216k\0",
        "-object\0{\"qom-type\":\"memory-backend-memfd\",\"id\":\"pc.ram\",\"share\":true,",
        "\"x-use-canonical-path-for-ramblock-id\":false,\"size\":4294967296}\0",
        "-object\0{\"qom-type\":\"memory-backend-file\",\"id\":\"dimm0\",\"mem-path\":",
        "\"/dev/hugepages/libvirt/qemu/1-default_vm1\",\"prealloc\":true,\"size\":1073741824}\0"
    );
    let folder = "/dev/hugepages/libvirt/qemu/1-default_vm1".to_owned();
    assert_eq!(
        parse_guest_backends(line),
        [
            backend("pc.ram", 4 * GIB, BackendKind::Memfd),
            backend("dimm0", GIB, BackendKind::File(folder))
        ]
    );
}

#[test]
fn other_programs_have_no_guest() {
    for line in [
        "",
        "postgres -m 512",
        "/usr/bin/qemu-img convert -m 16 a b",
        "/usr/bin/qemu-nbd -m 1G",
        "sh -c qemu-system-x86_64 -m 1G",
    ] {
        assert_eq!(parsed(line), [], "{line}");
    }
}

const RAM: &str = "\
55d000000000-55d000010000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0040000000 rwxp 00000000 00:00 0 
7f0080000000-7f00c0000000 rw-p 00000000 00:00 0 
7f00c0000000-7f00c0001000 ---p 00000000 00:00 0 
7f0100000000-7f0100020000 rw-p 00000000 00:00 0 
";

#[test]
fn ram_is_the_mapping_of_exactly_that_size() {
    let id = || Some("ram0".to_owned());
    let line = |size| {
        format!(
            "qemu-system-x86_64 -machine pc,memory-backend=ram0 -object memory-backend-ram,id=ram0,size={size}"
        )
    };
    // The first mapping of 1G is code that QEMU translated.
    assert_eq!(found(&line("1G"), RAM), [(0x7f00_8000_0000, id())]);
    assert_eq!(found(&line("1023M"), RAM), []);
    assert_eq!(
        found("qemu-system-x86_64 -m 1G", RAM),
        [(0x7f00_8000_0000, None)]
    );
    // Advice for a part of it divides the mapping.
    let divided = RAM.replace(
        "7f0080000000-7f00c0000000 rw-p 00000000 00:00 0 \n",
        "7f0080000000-7f0090000000 rw-p 00000000 00:00 0 \n7f0090000000-7f00c0000000 rw-p 00000000 00:00 0 \n",
    );
    let whole = guest_ram(&parsed(&line("1G")), maps(&divided).iter());
    assert_eq!(
        whole[0].range,
        Range::new(0x7f00_8000_0000, 0x7f00_c000_0000).unwrap()
    );
    // Other memory may touch it on both sides.
    let heap = "7f0070000000-7f0080000000 rw-p 00000000 00:00 0 \n7f0080000000";
    let beside = |text: &str| text.replace("7f0080000000", heap).replace("---p", "rw-p");
    for text in [RAM, &divided] {
        let beside = guest_ram(&parsed(&line("1G")), maps(&beside(text)).iter());
        assert_eq!(beside, whole, "{text}");
    }
    // With two candidates, one is something else, and neither is named.
    let two = RAM.replace("rwxp", "rw-p");
    assert_eq!(found(&line("1G"), &two), []);
}

#[test]
fn shared_ram_is_told_by_its_object() {
    let text = "\
7f0000000000-7f0040000000 rw-p 00000000 00:00 0 
7f0080000000-7f00c0000000 rw-s 00000000 00:01 12 /memfd:memory-backend-memfd (deleted)
7f0100000000-7f0140000000 rw-s 00000000 00:30 13 /dev/hugepages/qemu_back_mem.dimm0.Xy12ab (deleted)
7f0180000000-7f01c0000000 rw-s 00000000 08:01 14 /srv/guest.ram
";
    let line = "qemu-system-x86_64 -machine memory-backend=a -object memory-backend-";
    let at = |kind: &str| found(&format!("{line}{kind},id=a,size=1G"), text);
    let a = || Some("a".to_owned());
    assert_eq!(at("memfd"), [(0x7f00_8000_0000, a())]);
    assert_eq!(
        at("file,mem-path=/dev/hugepages/"),
        [(0x7f01_0000_0000, a())]
    );
    assert_eq!(
        at("file,mem-path=/srv/guest.ram"),
        [(0x7f01_8000_0000, a())]
    );
    assert_eq!(at("file,mem-path=/srv/other"), []);
}

#[test]
fn equal_backends_are_not_told_apart() {
    let text = "\
7f0000000000-7f0040000000 rw-s 00000000 00:01 12 /memfd:memory-backend-memfd (deleted)
7f0080000000-7f00c0000000 rw-s 00000000 00:01 13 /memfd:memory-backend-memfd (deleted)
";
    let line = "qemu-system-x86_64 -numa node,memdev=a -object memory-backend-memfd,id=a,size=1G -object memory-backend-memfd,id=b,size=1G";
    assert_eq!(
        found(line, text),
        [(0x7f00_0000_0000, None), (0x7f00_8000_0000, None)]
    );
}

#[test]
fn damaged_arguments_are_skipped() {
    for line in [
        "qemu-system-x86_64 -m",
        "qemu-system-x86_64 -m 99999999999999999999G",
        "qemu-system-x86_64 -m 18446744073709551615",
        "qemu-system-x86_64 -m ,,,,= -object ,",
        "qemu-system-x86_64 -object memory-backend-ram,id=a,size=-1",
        "qemu-system-x86_64 -object {\"qom-type\":\"memory-backend-ram\",\"id\":7,\"size\":1}",
        "qemu-system-x86_64 -object {\"size\":1",
        "qemu-system-x86_64 -object memory-backend-file,id=a,size=1G",
        "qemu-system-x86_64 -- - -- --",
    ] {
        assert_eq!(
            parsed(line),
            [backend("", DEFAULT_RAM.get(), BackendKind::Anonymous)],
            "{line}"
        );
    }
}

proptest! {
    /// No command line and no list of mappings panics, and RAM lies within the mappings.
    #[test]
    fn any_command_line(
        arguments in prop::collection::vec(
            prop_oneof![
                Just("-m".to_owned()), Just("-object".to_owned()), Just("-numa".to_owned()),
                "[a-z=,{}\":0-9]{0,40}", ".{0,30}",
            ], 0..12),
        lengths in prop::collection::vec(1u64..5, 0..8),
    ) {
        let line = format!("qemu-system-x86_64\0{}", arguments.join("\0"));
        let backends = parse_guest_backends(&line);
        let mut at = 0x1000_0000;
        let mut text = String::new();
        for length in lengths {
            text += &format!("{at:x}-{:x} rw-p 00000000 00:00 0 \n", at + (length << 27));
            at += (length << 27) + 0x1000;
        }
        let maps = read_maps(&mut text.as_bytes()).unwrap().unwrap_or_default();
        for ram in guest_ram(&backends, maps.iter()) {
            prop_assert!(maps.iter().any(|map| map.range.start() == ram.range.start()));
        }
    }
}
