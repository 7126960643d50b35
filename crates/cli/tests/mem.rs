//! What `mem` shows of captured hosts, to the letter. `TRYCMD=overwrite cargo test --test mem`
//! writes the files anew; read the difference before committing it.
// Helpers of tests unwrap as tests do: a panic is how a test fails.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use hugeleaf_sys::{HostLock, Kernel, Mapping, RealKernel, Sharing, lock_host};
use hugeleaf_units::Bytes;

#[test]
fn mem_of_captured_hosts() {
    trycmd::TestCases::new().case("tests/cmd/mem*.trycmd");
}

/// The host's knob of one THP size, put back when dropped.
struct Knob {
    path: PathBuf,
    before: String,
    _lock: HostLock,
}

impl Knob {
    /// Locks the host and records the knob; `None` where this kernel has no such size.
    fn of(size: &str) -> Option<Knob> {
        let lock = lock_host(Path::new("/run/lock/hugeleaf.lock"), true).unwrap();
        let folder = Path::new("/sys/kernel/mm/transparent_hugepage");
        let path = folder.join(format!("hugepages-{size}/enabled"));
        let text = std::fs::read_to_string(&path).ok()?;
        let chosen = &text[text.find('[')? + 1..text.find(']')?];
        Some(Knob {
            path,
            before: chosen.to_owned(),
            _lock: lock,
        })
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        std::fs::write(&self.path, &self.before).unwrap();
        let now = std::fs::read_to_string(&self.path).unwrap();
        assert!(now.contains(&format!("[{}]", self.before)), "{now}");
    }
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
    let Some(knob) = Knob::of("64kB") else {
        println!("not run: needs a kernel with THP of 64K for private memory");
        return;
    };
    let size = Bytes::from_mib(16);
    let page = RealKernel::new().base_page().bytes();
    std::fs::write(&knob.path, "never").unwrap();
    let small = Mapping::anonymous(size, Sharing::Private).unwrap();
    small.touch(page).unwrap();
    let before = on_64k();
    std::fs::write(&knob.path, "always").unwrap();
    let large = Mapping::anonymous(size, Sharing::Private).unwrap();
    large.touch(page).unwrap();
    let after = on_64k();
    // A few may be short of contiguous memory, or lie at the ends.
    assert!(after - before >= size.get() / 4 * 3, "{before} {after}");
}
