//! Compiles the library that `hugeleaf run` loads into programs (`crates/preload/src/loaded.rs`).
//!
//! The program embeds the result. The library is no ordinary dependency, because it runs inside other processes. It is built without the
//! standard library, optimised in every profile, and checked for panics. For an unsupported architecture the build writes an empty file
//! instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCES: &str = "../preload/src";
const FILE: &str = "libhugeleaf_run.so";
const SQLITE_FILE: &str = "libhugeleaf_sqlite.so";

/// Name of a function that exists nowhere; only the panic handler calls it.
const PANIC: &[u8] = b"hugeleaf_run_must_not_panic";

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(variable("OUT_DIR")).join(FILE);
    let sqlite = out.with_file_name(SQLITE_FILE);
    let architecture = variable("CARGO_CFG_TARGET_ARCH");
    if variable("CARGO_CFG_TARGET_OS") != "linux"
        || !["x86_64", "aarch64"].contains(&architecture.as_str())
    {
        for library in [&out, &sqlite] {
            fs::write(library, b"").expect("OUT_DIR can be written");
        }
        return;
    }
    // Both run in parallel because little else is left to compile at this point.
    std::thread::scope(|both| {
        both.spawn(|| compile_sqlite(&sqlite));
        compile(&out);
    });
    let library = fs::read(&out).expect("the library was compiled");
    let panics = library.windows(PANIC.len()).any(|bytes| bytes == PANIC);
    assert!(
        !panics,
        "the library that is loaded into programs can panic"
    );
}

/// Compiles the library that `run --sqlite` loads. It is a separate package with the standard library, always optimised, and never linked
/// with SQLite. A static program targets another C library than the loaded one. If that target is not installed, an empty file takes the
/// library's place.
fn compile_sqlite(out: &Path) {
    const PACKAGE: &str = "../sqlite/loaded";
    for used in ["sqlite", "region", "balance", "host", "sys", "units"] {
        println!("cargo::rerun-if-changed=../{used}/src");
    }
    println!("cargo::rerun-if-changed={PACKAGE}/src");
    println!("cargo::rerun-if-changed={PACKAGE}/Cargo.toml");
    let target = variable("TARGET").replace("-musl", "-gnu");
    let folder = PathBuf::from(variable("OUT_DIR")).join("sqlite");
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args([
        "build",
        "--release",
        "--quiet",
        "--locked",
        "--target",
        &target,
    ]);
    cargo
        .arg("--manifest-path")
        .arg(format!("{PACKAGE}/Cargo.toml"));
    cargo.arg("--target-dir").arg(&folder);
    // These settings apply to the program only: a linter in place of the compiler, and flags for a static build.
    for of_others in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR"] {
        cargo.env_remove(of_others);
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", path_remappings().join("\x1f"));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        let key = target.to_uppercase().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{key}_LINKER"), linker);
    }
    let output = cargo.output().expect("cargo can be started");
    let made = folder
        .join(&target)
        .join("release")
        .join("libhugeleaf_sqlite_loaded.so");
    if output.status.success() && fs::copy(&made, out).is_ok() {
        return;
    }
    let is_static = variable("TARGET") != target;
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(
        is_static,
        "what run --sqlite loads does not compile:\n{words}"
    );
    println!("cargo::warning=run --sqlite is left out of this build: rustup target add {target}");
    fs::write(out, b"").expect("OUT_DIR can be written");
}

/// Returns the compiler flags that replace the build machine's folders. The embedded libraries need them too, or the program would differ
/// from one build machine to the next.
fn path_remappings() -> Vec<String> {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let flags = flags.split('\x1f');
    let remappings = flags.filter(|flag| flag.starts_with("--remap-path-prefix="));
    remappings.map(str::to_owned).collect()
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn compile(out: &Path) {
    // One mapping for all read-only segments. Not every linker supports the option.
    if !compiles(out, &["link-arg=-Wl,--no-rosegment"]) {
        assert!(
            compiles(out, &[]),
            "the library that is loaded into programs does not compile"
        );
    }
}

fn compiles(out: &Path, more: &[&str]) -> bool {
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition", "2024", "--crate-type", "cdylib"]);
    rustc.args(["--crate-name", "hugeleaf_run", "--target"]);
    rustc.arg(variable("TARGET"));
    for option in [
        "opt-level=3",
        "panic=abort",
        "lto=fat",
        "codegen-units=1",
        "strip=symbols",
        "overflow-checks=off",
        "debug-assertions=off",
        // The library is loaded into programs of any C library, so it is never linked with one. A static target must be told to produce a
        // shared library.
        "target-feature=-crt-static",
        "link-arg=-nostdlib",
        "link-arg=-nostartfiles",
        "link-arg=-Wl,--hash-style=gnu",
        // Each segment is a mapping in every program, so the library has as few as possible.
        "link-arg=-Wl,-z,noseparate-code",
        "link-arg=-Wl,-z,norelro",
        // Runs the library's constructor before all others, so that no thread exists yet.
        "link-arg=-Wl,-z,initfirst",
    ]
    .iter()
    .chain(more)
    {
        rustc.args(["-C", option]);
    }
    rustc.args(path_remappings());
    rustc.arg(format!("-Clink-arg=-Wl,-soname,{FILE}"));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    rustc.arg("-o").arg(out);
    rustc.arg(Path::new(SOURCES).join("loaded.rs"));
    let output = rustc.output().expect("rustc can be started");
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}
