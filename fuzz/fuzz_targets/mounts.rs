//! Parses `mounts` and `mountinfo`.
#![no_main]

use hugeleaf_host::limits::mounts_in;
use hugeleaf_host::process::parse_mountinfo;
use hugeleaf_host::system::hugetlbfs_mounts;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    assert!(mounts_in(&text, "memory").len() <= text.lines().count());
    assert!(hugetlbfs_mounts::mounts_in(&text).len() <= text.lines().count());
    assert!(parse_mountinfo(&text).len() <= text.lines().count());
});
