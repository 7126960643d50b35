//! The guard's state file, and what it answers: anything may stand there, and what is read is written again as it was.
#![no_main]

use hugeleaf_guard::{State, Status};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(state) = serde_json::from_slice::<State>(data) {
        let text = serde_json::to_vec(&state).unwrap();
        let again: State = serde_json::from_slice(&text).unwrap();
        assert_eq!(again, state);
    }
    let _ = serde_json::from_slice::<Status>(data);
});
