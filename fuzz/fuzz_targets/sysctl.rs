//! Parses files of `sysctl.d`.
#![no_main]

use hugeleaf_host::system::sysctl_files::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    assert!(parse(&text, "sysctl.conf").len() <= text.lines().count());
});
