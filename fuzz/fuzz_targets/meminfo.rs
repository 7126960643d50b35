//! Parses `meminfo` of the host and of a node.
#![no_main]

use hugeleaf_host::system::meminfo::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    assert!(parse(&text).len() <= text.lines().count());
});
