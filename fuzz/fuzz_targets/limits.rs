//! Parses `limits` of a process.
#![no_main]

use hugeleaf_host::process::proc_parsers::parse_memlock;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = parse_memlock(&hugeleaf_fuzz::text(data));
});
