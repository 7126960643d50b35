//! Parses `guard.toml`. Every part of a valid rule must be printable; an error must name a position in the file.
#![no_main]

use std::path::PathBuf;

use hugeleaf_guard::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::parse(&[(PathBuf::from("/guard.toml"), text.to_owned())]) {
        Ok(config) => {
            // The last rule is everybody's.
            assert!(
                config
                    .rules
                    .last()
                    .is_some_and(|rule| rule.matcher.is_empty())
            );
            for rule in &config.rules {
                assert!(rule.limits.scans > 0 && !rule.label.is_empty());
                let _ = rule.matcher.to_string();
            }
        }
        Err(error) => {
            let (line, column) = error.at.unwrap_or((1, 1));
            assert!(
                line >= 1 && column >= 1 && line <= text.lines().count() + 1,
                "{error}"
            );
        }
    }
});
