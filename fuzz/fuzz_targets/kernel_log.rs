//! Parses the kernel log.
#![no_main]

use hugeleaf_host::system::kernel_log::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    assert!(parse(&text).len() <= text.lines().count());
});
