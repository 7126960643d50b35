//! Parses `fdinfo` of an io_uring.
#![no_main]

use hugeleaf_host::process::parse_registered;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for range in parse_registered(&hugeleaf_fuzz::text(data)) {
        assert!(range.start() < range.end());
    }
});
