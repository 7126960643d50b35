//! Parses the guard's state file and its status answer. A state must survive a write and a read unchanged.
#![no_main]

use hugeleaf_guard::{GuardState, GuardStatus};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = serde_json::from_slice::<GuardState>(data) {
        let text = serde_json::to_vec(&state).unwrap();
        let again: GuardState = serde_json::from_slice(&text).unwrap();
        assert_eq!(again, state);
    }
    let _ = serde_json::from_slice::<GuardStatus>(data);
});
