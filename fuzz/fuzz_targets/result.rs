//! Result files: what was read can be written and read again.
#![no_main]

use hugeleaf_proof::ResultFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(result) = serde_json::from_slice::<ResultFile>(data) {
        let _ = result.log_ratios();
        let again: ResultFile =
            serde_json::from_str(&result.to_json()).expect("it was just written");
        // Not equality: the last digit of a number may change on its way.
        assert_eq!(again.pairs.len(), result.pairs.len());
    }
});
