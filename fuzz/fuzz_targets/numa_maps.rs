//! Parses `numa_maps`.
#![no_main]

use hugeleaf_host::process::maps::parse_policies;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    assert!(parse_policies(&text).len() <= text.lines().count());
});
