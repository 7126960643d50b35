//! Parses sizes, page sizes and ladders. They must survive printing and parsing unchanged.
#![no_main]

use hugeleaf_units::{Bytes, Ladder, PageSize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(bytes) = text.parse::<Bytes>() {
        assert_eq!(format!("{bytes:#}").parse(), Ok(bytes));
        let _ = bytes.to_string();
    }
    if let Ok(size) = text.parse::<PageSize>() {
        assert_eq!(size.to_string().parse(), Ok(size));
        assert!(size.divides(size.round_down(size.bytes().get())));
    }
    if let Ok(ladder) = text.parse::<Ladder>() {
        assert_eq!(ladder.to_string().parse(), Ok(ladder));
    }
});
