//! Parses `maps`. Ranges must keep the order and number of the lines.
#![no_main]

use hugeleaf_host::process::maps::parse_maps;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    if let Ok(maps) = parse_maps(&text) {
        assert!(maps.len() <= text.lines().count());
    }
});
