//! Parses the header of an executable file. No input may cause a panic in the ELF reader.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = hugeleaf_host::parse_elf(data);
});
