//! Parses short inputs of metrics: server addresses, INFO of Redis, command output.
#![no_main]

use hugeleaf_ask::{mysql, postgres, redis};
use hugeleaf_proof::metric::last_number;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    let _ = redis::Info::parse(&text).number("total_commands_processed");
    let _ = redis::Address::parse(&text);
    let _ = mysql::Address::parse(&text);
    let _ = postgres::Address::parse(&text);
    if let Ok(number) = last_number(&text) {
        assert!(number.is_finite());
    }
});
