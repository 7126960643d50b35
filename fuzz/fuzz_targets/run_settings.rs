//! Parses the settings of `hugeleaf run`. They must survive printing and parsing unchanged.
#![no_main]

use hugeleaf_host::process::{find_variable, parse_run_settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    let value = find_variable(&text, "HUGELEAF_RUN").unwrap_or(&text);
    if let Ok(settings) = parse_run_settings(value) {
        let again = parse_run_settings(&settings.to_string());
        assert_eq!(again.as_ref(), Ok(&settings), "{value}");
    }
});
