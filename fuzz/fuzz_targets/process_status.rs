//! Parses `stat` and `status` of a process. A name may hold any byte: brackets, spaces, line breaks.
#![no_main]

use hugeleaf_host::process::proc_parsers::{parse_stat, parse_status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    let _ = parse_stat(&text);
    let _ = parse_status(&text);
});
