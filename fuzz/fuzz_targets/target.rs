//! Parses a target of a command. It must survive printing and parsing unchanged.
#![no_main]

use hugeleaf_host::Target;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(target) = text.parse::<Target>() {
        assert_eq!(target.to_string().parse::<Target>(), Ok(target));
    }
});
