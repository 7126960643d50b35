//! Parses trace files: any file is read or refused. A valid trace must be judged, written and read again without a panic.
#![no_main]

use std::io::Write as _;
use std::path::Path;

use hugeleaf_trace::file::{read_from, write_to};
use hugeleaf_verdict::trace_findings::findings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("a.trace");
    let _ = read_from(data, path);
    // The same as what is packed: nobody finds a checksum by chance.
    let file = b"hugeleaf trace 2\n".to_vec();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(data).expect("memory can be packed");
    let file = packed.finish().expect("memory can be packed");
    let Ok(trace) = read_from(&file[..], path) else {
        return;
    };
    let _ = findings(&trace);
    let mut again = Vec::new();
    write_to(&mut again, &trace).expect("memory can be written");
    let again = read_from(&again[..], path).expect("it was just written");
    // Not equality: not-a-number is no number's equal.
    assert_eq!(again.symbols, trace.symbols);
    assert_eq!(again.stacks, trace.stacks);
});
