//! Parses counters and times of the host and of a thread. The first byte selects the parser.
#![no_main]

use hugeleaf_host::process::cpu_time::parse_schedstat;
use hugeleaf_host::system::boot_time;
use hugeleaf_host::system::counters::{parse_stalled, parse_vmstat};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let text = hugeleaf_fuzz::text(data);
    match choice % 4 {
        0 => assert!(parse_vmstat(&text).count() <= text.lines().count()),
        1 => drop(parse_stalled(&text)),
        2 => drop(parse_schedstat(&text)),
        _ => drop(boot_time::parse(&text)),
    }
});
