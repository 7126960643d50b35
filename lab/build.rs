//! Gives tests and benchmarks the path of hugeleaf, next to hugeleaf-lab. `make lab` builds both.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    // target/PROFILE/build/PACKAGE/out
    let folder = Path::new(&out).ancestors().nth(3).expect("cargo's layout");
    let program = folder.join("hugeleaf");
    println!(
        "cargo::rustc-env=CARGO_BIN_EXE_hugeleaf={}",
        program.display()
    );
}
