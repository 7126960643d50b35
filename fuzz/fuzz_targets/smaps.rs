//! Parses `smaps` and `smaps_rollup`.
#![no_main]

use hugeleaf_host::process::maps::parse_smaps;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    if let Ok(entries) = parse_smaps(&text) {
        assert!(entries.len() <= text.lines().count());
    }
});
