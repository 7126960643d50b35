//! Parses `smaps` and `smaps_rollup`.
#![no_main]

use hugeleaf_host::process::maps::read_smaps_lines;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    if let Ok(Ok(entries)) = read_smaps_lines(&mut text.as_bytes()) {
        assert!(entries.len() <= text.lines().count());
    }
});
