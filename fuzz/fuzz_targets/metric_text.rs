//! The small texts that metrics are read from: INFO of Redis, the output of a command.
#![no_main]

use hugeleaf_proof::metric::{info_field, last_number};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    for number in [
        info_field(&text, "total_commands_processed"),
        last_number(&text),
    ] {
        if let Ok(number) = number {
            assert!(number.is_finite());
        }
    }
});
