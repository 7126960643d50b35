//! Parses short inputs of metrics: server addresses, INFO of Redis, command output.
#![no_main]

use hugeleaf_ask::{mysql, postgres, redis};
use hugeleaf_proof::metric::last_number;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    let _ = redis::RedisInfo::parse(&text).number("total_commands_processed");
    let _ = redis::RedisAddress::parse(&text);
    let _ = mysql::MysqlAddress::parse(&text);
    let _ = postgres::PostgresAddress::parse(&text);
    if let Ok(number) = last_number(&text) {
        assert!(number.is_finite());
    }
});
