//! Parses the journal of `apply`. Any bytes must be read safely. Any record that JSON can hold must survive a write and a
//! read unchanged, whatever surrounds it.
#![no_main]

use hugeleaf_plan::host_changes::{JournalRecord, parse_records, record_line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (records, _, damage) = parse_records(bytes);
    if damage.is_empty() {
        let lines = bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        assert_eq!(records.len(), lines.count());
    }
    // Hardly any input has a checksum that fits: these are given one.
    let records: Vec<JournalRecord> = bytes
        .split(|b| *b == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let numbered = (1..).zip(&records);
    let mut text: String = numbered.map(|(n, record)| record_line(n, record)).collect();
    let (again, last, damage) = parse_records(text.as_bytes());
    assert!(damage.is_empty());
    assert_eq!((again, last), (records.clone(), records.len() as u64));
    // A line that was cut off costs no other.
    text.push_str("0000");
    assert_eq!(parse_records(text.as_bytes()).0, records);
});
