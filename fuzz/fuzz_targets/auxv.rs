//! Parses `auxv`, which holds the base page size of a captured host.
#![no_main]

use hugeleaf_host::system::auxv::base_page;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = base_page(data);
});
