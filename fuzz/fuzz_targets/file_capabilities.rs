//! Parses the extended attribute with the capabilities of an executable.
#![no_main]

use hugeleaf_sys::FileCapabilities;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(held) = FileCapabilities::parse(data) {
        let line = held.with(&["cap_sys_nice"]);
        assert!(line.contains("cap_sys_nice") && line.contains("=ep"));
        assert!(!line.contains('\n'));
    }
});
