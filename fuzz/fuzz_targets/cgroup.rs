//! Parses `cgroup` of a process, and the limits of a hugetlb controller.
#![no_main]

use hugeleaf_host::limits::cgroup_in;
use hugeleaf_host::limits::hugetlb::{hits_of, limit_of};
use hugeleaf_host::process::proc_parsers::{parse_cgroup, unit_of};
use hugeleaf_units::{Bytes, PageSize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    if let Some(line) = parse_cgroup(&text) {
        let _ = unit_of(line.path);
    }
    let _ = unit_of(&text);
    let _ = (cgroup_in(&text, 1, "hugetlb"), cgroup_in(&text, 2, ""));
    let _ = hits_of(&text);
    for shift in [16, 21, 30] {
        if let Ok(size) = PageSize::new(Bytes(1 << shift)) {
            let _ = limit_of(&text, size);
        }
    }
});
