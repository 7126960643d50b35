//! What `mem` shows of captured hosts, to the letter. `TRYCMD=overwrite cargo test --test mem`
//! writes the files anew; read the difference before committing it.
// Helpers of tests unwrap as tests do: a panic is how a test fails.
#![allow(clippy::unwrap_used)]

#[path = "support/host.rs"]
mod host;

use std::path::Path;
use std::process::Command;

use host::HostGuard;
use hugeleaf_sys::{Kernel, Mapping, RealKernel, Sharing};
use hugeleaf_units::Bytes;

#[test]
fn mem_of_captured_hosts() {
    trycmd::TestCases::new().case("tests/cmd/mem*.trycmd");
}

/// Bytes that `mem --orders` of this very process shows on THP of 64K.
fn on_64k() -> u64 {
    let pid = std::process::id().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_hugeleaf"))
        .args(["mem", "--orders", "--json", &pid])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = answer["processes"][0]["by_page_size"].as_array().unwrap();
    let mine = |held: &&serde_json::Value| held["page_bytes"] == 65536 && held["kind"] == "thp";
    table
        .iter()
        .find(mine)
        .map_or(0, |held| held["bytes"].as_u64().unwrap())
}

#[test]
fn orders_tells_64k_pages_from_base_pages() {
    if hugeleaf_sys::effective_uid() != 0 {
        println!("not run: needs root, to set a knob and to read page flags");
        return;
    }
    let knob = "hugepages-64kB/enabled";
    if !Path::new("/sys/kernel/mm/transparent_hugepage")
        .join(knob)
        .exists()
    {
        println!("not run: needs a kernel with THP of 64K for private memory");
        return;
    }
    let host = HostGuard::lock();
    // Where THP is always on, memory would be on 2M instead.
    host.choose("enabled", "madvise");
    let size = Bytes::from_mib(16);
    let page = RealKernel::new().base_page().bytes();
    host.choose(knob, "never");
    let small = Mapping::anonymous(size, Sharing::Private).unwrap();
    small.touch(page).unwrap();
    let before = on_64k();
    host.choose(knob, "always");
    let large = Mapping::anonymous(size, Sharing::Private).unwrap();
    large.touch(page).unwrap();
    let after = on_64k();
    // A few may be short of contiguous memory, or lie at the ends.
    assert!(after - before >= size.get() / 4 * 3, "{before} {after}");
}
