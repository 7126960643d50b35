//! Parses `numa_maps`.
#![no_main]

use hugeleaf_host::process::maps::{parse_node_memory, parse_policies};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    assert!(parse_policies(&text).len() <= text.lines().count());
    assert!(parse_node_memory(&text).len() <= text.lines().count());
});
