//! Parses `/proc/locks`, the list of file locks and their holders.
#![no_main]

use hugeleaf_proof::experiment_lock::flocks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    assert!(flocks(&text).len() <= text.lines().count());
});
