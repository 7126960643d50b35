//! Parses `maps`. Ranges must keep the order and number of the lines.
#![no_main]

use hugeleaf_host::process::maps::read_maps;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    if let Ok(Ok(maps)) = read_maps(&mut text.as_bytes()) {
        // A line is cut after 32K.
        let most: usize = text.lines().map(|line| 1 + line.len() / (32 << 10)).sum();
        assert!(maps.len() <= most);
    }
});
