//! Parses a value of `--metric`. Its displayed form must not contain a password.
#![no_main]

use hugeleaf_proof::MetricSpec;
use hugeleaf_proof::metric::redact;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = text.parse::<MetricSpec>() {
        let _ = error.to_string();
    }
    let _ = redact(text);
    if text.bytes().all(|b| b.is_ascii_alphanumeric()) {
        // Marked, so that it is found only where it was put.
        let password = format!("Zq7{text}");
        for address in [
            format!("mysql://u:{password}@h/d"),
            format!("postgres:host=h password={password} dbname=d"),
            format!("postgres:password='{password}'"),
        ] {
            assert!(!redact(&address).contains(&password), "{address}");
        }
    }
});
