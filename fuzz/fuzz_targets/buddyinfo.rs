//! Parses `buddyinfo`. Free memory in blocks of at least one size must not grow with that size.
#![no_main]

use hugeleaf_host::system::buddy::parse;
use hugeleaf_units::{Bytes, PageSize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    let Ok(buddy) = parse(&text) else { return };
    for base in [12, 14, 16] {
        let base = PageSize::new(Bytes(1 << base)).expect("a power of two");
        let mut before = buddy.free_for(base, base);
        for shift in base.bytes().get().trailing_zeros()..40 {
            let size = PageSize::new(Bytes(1 << shift)).expect("a power of two");
            let free = buddy.free_for(size, base);
            assert!(free <= before);
            before = free;
        }
    }
});
