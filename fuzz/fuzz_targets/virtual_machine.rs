//! Parses the command line of QEMU and finds the RAM of its guest among mappings; parses what a guest knows of its hypervisor.
#![no_main]

use hugeleaf_host::process::maps::read_maps;
use hugeleaf_host::process::{guest_ram, parse_guest_backends};
use hugeleaf_host::system::virtual_machine::{parse_balloon_features, parse_hypervisor_flag};
use libfuzzer_sys::fuzz_target;

const MAPS: &str = "\
7f0000000000-7f0040000000 rw-p 00000000 00:00 0 
7f0040000000-7f0080000000 rw-s 00000000 00:01 12 /memfd:memory-backend-memfd (deleted)
7f0080000000-7f0088000000 rw-p 00000000 00:00 0 
";

fuzz_target!(|data: &[u8]| {
    let line = String::from_utf8_lossy(data);
    let _ = (parse_hypervisor_flag(&line), parse_balloon_features(&line));
    let Ok(Ok(maps)) = read_maps(&mut MAPS.as_bytes()) else {
        return;
    };
    for line in [line.clone(), format!("qemu-kvm\0{line}").into()] {
        let backends = parse_guest_backends(&line);
        assert!(backends.len() <= line.len() + 1);
        for ram in guest_ram(&backends, maps.iter()) {
            assert!(maps.iter().any(|map| map.range == ram.range));
        }
    }
});
