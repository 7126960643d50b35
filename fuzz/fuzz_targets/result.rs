//! Result files: what was read can be written and read again, and any of any kind be compared.
#![no_main]

use hugeleaf_proof::ResultFile;
use hugeleaf_proof::compare::{Asked, Measured, arms, files};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(result) = serde_json::from_slice::<ResultFile>(data) {
        let _ = result.log_ratios();
        let again: ResultFile =
            serde_json::from_str(&result.to_json()).expect("it was just written");
        // Not equality: the last digit of a number may change on its way.
        assert_eq!(again.pairs.len(), result.pairs.len());
    }
    let Ok(measured) = std::str::from_utf8(data)
        .map_err(|_| ())
        .and_then(|text| Measured::read(text).map_err(|_| ()))
    else {
        return;
    };
    let asked = Asked { equal: 0.02 };
    let _ = files(&measured, &measured, asked);
    if let [first, .., last] = measured.arms().as_slice() {
        let _ = arms(&measured, None, &[first.clone(), last.clone()], asked);
    }
});
