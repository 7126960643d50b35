//! Parses the pages of a captured process. They must survive a write and a read unchanged.
#![no_main]

use hugeleaf_host::process::pagemap_text::{parse_pages, write_pages};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(runs) = parse_pages(&hugeleaf_fuzz::text(data)) {
        assert_eq!(parse_pages(&write_pages(&runs)), Ok(runs));
    }
});
