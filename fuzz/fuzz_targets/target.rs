//! What a person points a command at: what is printed reads back as the same.
#![no_main]

use hugeleaf_host::Target;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(target) = text.parse::<Target>() {
        assert_eq!(target.to_string().parse::<Target>(), Ok(target));
    }
});
