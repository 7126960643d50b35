//! Parses the memory demands that programs report, and the kernel's list of SysV segments. The first byte selects the
//! parser.
#![no_main]

use hugeleaf_host::demand::{
    parse_java_sizes, parse_mariadb_options, parse_postgres_setting, sysv,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let text = hugeleaf_fuzz::text(data);
    let lines = text.lines().count();
    match choice % 4 {
        0 => assert!(parse_java_sizes(&text).regions.len() <= lines),
        1 => assert!(parse_mariadb_options(&text).len() <= lines),
        2 => {
            if let Some(value) = parse_postgres_setting(&text, "huge_pages") {
                // Escapes get shorter.
                assert!(value.len() <= text.len());
            }
        }
        _ => {
            if let Ok(segments) = sysv::parse(&text) {
                assert!(segments.len() <= lines);
            }
        }
    }
});
