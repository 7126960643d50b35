//! Parses `smaps` and `smaps_rollup`.
#![no_main]

use hugeleaf_host::process::maps::read_smaps_lines;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    if let Ok(Ok(entries)) = read_smaps_lines(&mut text.as_bytes()) {
        // A line is cut after 32K.
        let most: usize = text.lines().map(|line| 1 + line.len() / (32 << 10)).sum();
        assert!(entries.len() <= most);
    }
});
