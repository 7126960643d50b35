//! The head of a program's file: no bytes make the reader of ELF fail.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = hugeleaf_host::parse_elf(data);
});
