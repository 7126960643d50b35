//! Compares the output of `mem` for captured hosts exactly. `TRYCMD=overwrite cargo test -p hugeleaf-cli --test cli mem::` rewrites the
//! files; review the difference before committing it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hugeleaf_sys::{Kernel, OwnMapping, Sharing};
use hugeleaf_testkit::host_lock;
use hugeleaf_units::Bytes;

#[test]
fn mem_of_captured_hosts() {
    trycmd::TestCases::new().case("tests/cmd/mem*.trycmd");
}

/// Returns the bytes that `mem --orders` shows on THP of 64K for this process.
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
        println!(
            "not run: orders_tells_64k_pages_from_base_pages: needs root, to set a knob and to read page flags"
        );
        return;
    }
    let knob = "hugepages-64kB/enabled";
    if !Path::new("/sys/kernel/mm/transparent_hugepage")
        .join(knob)
        .exists()
    {
        println!(
            "not run: orders_tells_64k_pages_from_base_pages: needs a kernel with THP of 64K for private memory"
        );
        return;
    }
    let host = host_lock::exclusive();
    // With THP set to always, memory would be on 2M pages instead.
    host.choose("enabled", "madvise");
    let size = Bytes::from_mib(16);
    let page = Kernel::new().base_page().bytes();
    host.choose(knob, "never");
    let small = OwnMapping::anonymous(size, Sharing::Private).unwrap();
    small.touch(page).unwrap();
    let before = on_64k();
    host.choose(knob, "always");
    let large = OwnMapping::anonymous(size, Sharing::Private).unwrap();
    large.touch(page).unwrap();
    let after = on_64k();
    // Some blocks may lack contiguous memory or be at the ends.
    assert!(after - before >= size.get() / 4 * 3, "{before} {after}");
}

/// Compiles and starts the program; `None` without a C compiler.
fn growing(folder: &Path) -> Option<Child> {
    let program = folder.join("growing");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mem/growing.c");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(source);
    if !compiler.status().is_ok_and(|status| status.success()) {
        return None;
    }
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    Some(child)
}

/// The kernel lists a heap twice if it grows meanwhile; no byte may count twice.
#[test]
fn a_process_that_grows_meanwhile_counts_once() {
    let test = "a_process_that_grows_meanwhile_counts_once";
    let folder = tempfile::tempdir().unwrap();
    let Some(mut child) = growing(folder.path()) else {
        println!("not run: {test}: needs a C compiler");
        return;
    };
    let pid = child.id().to_string();
    let mut twice = 0;
    for _ in 0..hugeleaf_testkit::size(40, 200) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hugeleaf"));
        let output = command.args(["mem", "--json", &pid]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let process = &answer["processes"][0];
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let sum = |table: &serde_json::Value| -> u64 {
            let table = table.as_array().unwrap();
            table.iter().map(|held| number(&held["bytes"])).sum()
        };
        let segments = process["segments"].as_array().unwrap();
        let overlap = segments
            .windows(2)
            .any(|pair| number(&pair[0]["end"]) > number(&pair[1]["start"]));
        let total = sum(&answer["totals"]["by_page_size"]);
        let resident = number(&process["resident_bytes"]);
        let more = sum(&process["by_page_size"]) > resident || total > resident;
        twice += usize::from(overlap || more);
        for segment in segments {
            let length = number(&segment["end"]) - number(&segment["start"]);
            assert!(number(&segment["resident_bytes"]) <= length, "{segment}");
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(twice, 0, "reads that counted something twice");
}
