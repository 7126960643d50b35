//! Parses result files. A valid result must be writable, readable again and comparable, without a panic.
#![no_main]

use hugeleaf_proof::compare::{arms, files};
use hugeleaf_proof::result_format::Results;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = std::str::from_utf8(data).unwrap_or_default();
    let Ok(results) = Results::read(text) else {
        return;
    };
    let again = Results::read(&results.to_json()).expect("it was just written");
    assert_eq!(again.rows.len(), results.rows.len());
    let _ = files(&results, &results, 0.02);
    if let [first, .., last] = results.arm_names().as_slice() {
        let _ = arms(&results, None, &[first.clone(), last.clone()], 0.02);
    }
});
