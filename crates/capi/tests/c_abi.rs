//! The C interface as a C program sees it: the header, both libraries, the examples, and errors. All C code
//! is compiled with warnings as errors, and run.
// Tests and their helpers fail by a panic, so helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const C: [&str; 6] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"];

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn repository() -> PathBuf {
    here().ancestors().nth(2).unwrap().to_owned()
}

/// Checks that a program answers `--version`. If not, prints that the test was not run.
fn has(test: &str, program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let is_there = found.is_ok_and(|out| out.status.success());
    if !is_there {
        println!("not run: {test}: needs {program}");
    }
    is_there
}

/// Runs a command; panics with its output if it fails.
fn run(command: &mut Command) -> Output {
    let out = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (said, cried) = (lossy(&out.stdout), lossy(&out.stderr));
    assert!(
        out.status.success(),
        "{command:?}\n{}\n{said}{cried}",
        out.status
    );
    out
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The folder with libhugeleaf_c.a and libhugeleaf_c.so, which Cargo built before this test.
fn built() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.parent().unwrap().to_owned()
}

/// Compiles a C program with the static library.
fn compiled(source: &Path, to: &Path) -> PathBuf {
    let program = to.join(source.file_stem().unwrap());
    run(Command::new("cc")
        .args(C)
        .arg("-I")
        .arg(here().join("include"))
        .arg("-I")
        .arg(here().join("tests/c_abi"))
        .arg(source)
        .arg(built().join("libhugeleaf_c.a"))
        .args(["-pthread", "-lm", "-o"])
        .arg(&program));
    program
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn the_header_is_what_the_code_says() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    // cbindgen follows the `mod`s of that file.
    let made = cbindgen::Builder::new()
        .with_config(config)
        .with_src(here().join("src/lib.rs"));
    let mut text = Vec::new();
    made.generate().unwrap().write(&mut text);
    let text = String::from_utf8(text).unwrap();
    let path = here().join("include/hugeleaf.h");
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "include/hugeleaf.h is not what src says: \
         HUGELEAF_BLESS=1 cargo test -p hugeleaf-capi --test c_abi header"
    );
}

#[test]
fn the_header_is_c_and_cplusplus() {
    let test = "the_header_is_c_and_cplusplus";
    let to = folder();
    for (compiler, file, standard) in [
        ("cc", "one.c", "-std=c99"),
        ("cc", "two.c", "-std=c11"),
        ("c++", "one.cpp", "-std=c++11"),
        ("c++", "two.cpp", "-std=c++20"),
    ] {
        if !has(test, compiler) {
            continue;
        }
        let source = to.path().join(file);
        // Twice, to check the include guard.
        let text = "#include <hugeleaf.h>\n#include <hugeleaf.h>\n\
                    int main(void) { return hl_version() == 0; }\n";
        std::fs::write(&source, text).unwrap();
        let warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"];
        run(Command::new(compiler)
            .arg(standard)
            .args(warnings)
            .arg("-I")
            .arg(here().join("include"))
            .arg(source));
    }
}

/// Returns the names of the functions in the header.
fn functions() -> Vec<String> {
    let header = std::fs::read_to_string(here().join("include/hugeleaf.h")).unwrap();
    let names = header.lines().filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        (!line.starts_with([' ', '/', '#']) && name.starts_with("hl_")).then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn the_library_offers_what_the_header_says_and_nothing_else() {
    let test = "the_library_offers_what_the_header_says_and_nothing_else";
    if !has(test, "nm") {
        return;
    }
    let out = run(Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(built().join("libhugeleaf_c.so")));
    let mut offered: Vec<String> = lossy(&out.stdout)
        .lines()
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect();
    let mut said = functions();
    offered.sort();
    said.sort();
    assert!(said.len() > 10, "{said:?}");
    assert_eq!(offered, said);
}

#[test]
fn every_function_is_in_the_reference() {
    let text = std::fs::read_to_string(repository().join("docs/reference/c-api.md")).unwrap();
    for name in functions() {
        assert!(text.contains(&format!("`{name}`")), "{name} is missing");
    }
    let named = text.split('`').filter(|word| word.starts_with("hl_"));
    let header = std::fs::read_to_string(here().join("include/hugeleaf.h")).unwrap();
    for name in named {
        assert!(header.contains(name), "{name} is not in the header");
    }
}

/// Runs a C test program, which counts failed checks.
fn holds(test: &str, source: &str) {
    if !has(test, "cc") {
        return;
    }
    ends_well(source, [""; 0]);
}

/// Compiles a C test program and runs it with these arguments. No check fails in it.
fn ends_well(source: &str, arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) {
    let to = folder();
    let program = compiled(&here().join("tests/c_abi").join(source), to.path());
    let out = run(Command::new(program).args(arguments));
    assert_eq!(lossy(&out.stdout), "0 failures\n");
}

#[test]
fn what_c_gets_wrong_is_told() {
    let _host = hugeleaf_testkit::host_lock::shared();
    holds("what_c_gets_wrong_is_told", "errors.c");
}

#[test]
fn other_processes_attach() {
    let _host = hugeleaf_testkit::host_lock::shared();
    holds("other_processes_attach", "attach.c");
}

#[test]
fn components_take_and_give_back() {
    let _host = hugeleaf_testkit::host_lock::shared();
    holds("components_take_and_give_back", "elastic.c");
}

#[test]
fn a_manager_moves_memory_to_who_gains() {
    let _host = hugeleaf_testkit::host_lock::shared();
    holds("a_manager_moves_memory_to_who_gains", "manager.c");
}

#[test]
fn sqlite_has_its_cache_from_c() {
    holds("sqlite_has_its_cache_from_c", "sqlite.c");
}

/// Tests invalid numbers, names, handles and times, and also forks, signals and unloading.
#[test]
fn a_program_that_attacks_it_ends_well() {
    if !has("a_program_that_attacks_it_ends_well", "cc") {
        return;
    }
    let _host = hugeleaf_testkit::host_lock::shared();
    let to = folder();
    let program = compiled(&here().join("tests/c_abi/attack.c"), to.path());
    for part in [
        "sizes",
        "many",
        "targets",
        "forks",
        "interrupted",
        "twice",
        "handles",
        "unloaded",
    ] {
        let mut attack = Command::new(&program);
        attack.arg(part);
        if part == "unloaded" {
            attack.arg(built().join("libhugeleaf_c.so"));
        }
        assert_eq!(lossy(&run(&mut attack).stdout), "0 failures\n", "{part}");
    }
}

/// Other programs take the pages that it returned to a pool.
#[test]
fn a_pool_that_others_take_leaves_memory_whole() {
    let test = "a_pool_that_others_take_leaves_memory_whole";
    let page = 2 << 20;
    if !has(test, "cc") {
        return;
    }
    let Some(host) = hugeleaf_testkit::host_lock::alone_as_root(test) else {
        return;
    };
    if !hugeleaf_testkit::host_lock::pool(page).is_dir()
        || hugeleaf_testkit::host_lock::has_pool_in_use()
    {
        return hugeleaf_testkit::not_run(test, "needs a pool of 2M that nobody uses");
    }
    if host.set_pool(page, 8) != 8 {
        return hugeleaf_testkit::not_run(test, "no memory for eight huge pages");
    }
    ends_well("attack.c", ["pool"]);
}

/// The memory limit of its cgroup falls while it holds memory.
#[test]
fn a_limit_that_is_lowered_refuses_and_kills_nobody() {
    let test = "a_limit_that_is_lowered_refuses_and_kills_nobody";
    if !has(test, "cc") {
        return;
    }
    let Some(_host) = hugeleaf_testkit::host_lock::alone_as_root(test) else {
        return;
    };
    let name = format!("hugeleaf-attack-{}", std::process::id());
    let limit = hugeleaf::Bytes::from_mib(256);
    let Some(cgroup) = hugeleaf_testkit::cgroup::MemoryCgroup::new(&name, limit) else {
        return hugeleaf_testkit::not_run(test, "no memory cgroup can be made");
    };
    ends_well(
        "attack.c",
        [PathBuf::from("limit"), cgroup.processes(), cgroup.limit()],
    );
}

/// Returns the C and the Rust program of one example.
fn both(test: &str, name: &str, to: &Path) -> Option<[PathBuf; 2]> {
    let rust = built()
        .with_file_name("examples")
        .join(format!("rust-{name}"));
    let next = "cargo test -p hugeleaf-capi builds it, without --test";
    assert!(rust.is_file(), "{}: {next}", rust.display());
    let source = here().join("examples").join(format!("{name}.c"));
    has(test, "cc").then(|| [compiled(&source, to), rust])
}

#[test]
fn the_buffer_shows_what_it_is_on() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let to = folder();
    let Some(programs) = both("the_buffer_shows_what_it_is_on", "buffer", to.path()) else {
        return;
    };
    let said = |arguments: &[&str]| {
        let texts = programs.iter().map(|program| {
            let out = run(Command::new(program).args(arguments));
            assert!(lossy(&out.stderr).contains("populated 100 %"));
            lossy(&out.stdout)
        });
        let texts: Vec<String> = texts.collect();
        assert_eq!(texts[0], texts[1], "C and Rust differ");
        texts[0].clone()
    };
    // No host has such pages, and no huge page fits into this size, so all hosts give the same result.
    let odd = said(&["1", "1E"]);
    assert!(
        odd.starts_with("length: 1048576 of 1048576 populated\n"),
        "{odd}"
    );
    assert!(odd.contains("extent: 1024K on base pages of "), "{odd}");
    assert!(odd.contains("why: this host has no pages of 1E\n"), "{odd}");
    assert!(odd.ends_with("coverage: 0.000\n"), "{odd}");
    assert!(said(&["4", "1E", "shared"]).contains("extent: 4096K on base pages of "));
    for program in &programs {
        let out = Command::new(program).args(["9", "1E!"]).output().unwrap();
        let cried = lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{cried}");
        assert!(
            cried.contains("this host has no page size of '1E!'"),
            "{cried}"
        );
        assert!(cried.contains("try: hugeleaf status"), "{cried}");
    }
}

/// Returns the number between two texts of an output line.
fn number(line: &str, before: &str, after: &str) -> u64 {
    let found = line
        .split_once(before)
        .and_then(|(_, rest)| rest.split_once(after));
    let (number, _) = found.unwrap_or_else(|| panic!("no '{before}…{after}' in '{line}'"));
    number
        .trim()
        .parse()
        .unwrap_or_else(|e| panic!("{e}: '{line}'"))
}

/// Returns name, size in K and resizability of a line of the cache's table. Checks that the sizes by page add
/// up to it.
fn line_of_table(line: &str) -> (&str, u64, &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let kib = |word: &str| -> u64 { word.strip_suffix('K').unwrap().parse().unwrap() };
    let on_pages = words.windows(2).filter(|pair| pair[1] == "on");
    let on_pages: u64 = on_pages.map(|pair| kib(pair[0])).sum();
    assert_eq!(kib(words[1]), on_pages, "{line}");
    (words[0], on_pages, words[2])
}

#[test]
fn the_cache_grows_and_shrinks_under_load() {
    let _host = hugeleaf_testkit::host_lock::shared();
    let to = folder();
    let test = "the_cache_grows_and_shrinks_under_load";
    let Some(programs) = both(test, "cache", to.path()) else {
        return;
    };
    // Not from a pool: other tests use pools at the same time.
    for sharing in ["private", "shared"] {
        for program in &programs {
            let out = run(Command::new(program).args(["8", "thp:2M", sharing]));
            let text = lossy(&out.stdout);
            let lines: Vec<&str> = text.lines().collect();
            let held: Vec<u64> = [0, 2, 4]
                .map(|i| number(lines[i], "found, ", "K held"))
                .into();
            assert_eq!(held, [8192, 4096, 8192], "{text}");
            assert!(number(lines[2], "load: ", " %") < number(lines[0], "load: ", " %"));
            for load in [0, 2, 4] {
                assert!(lines[load].ends_with(" 0 wrong"), "{text}");
            }
            let lowered = "target 4096K: 4096K above it, 4096K returned";
            assert_eq!(lines[1], lowered, "{text}");
            assert_eq!(lines[3], "target 8192K: 0K above it, 0K returned");
            assert_eq!(line_of_table(lines[6]), ("index", 2048, "no"), "{text}");
            assert_eq!(line_of_table(lines[7]), ("entries", 6144, "yes"), "{text}");
        }
    }
    for program in &programs {
        let out = Command::new(program).args(["8", "2M,1G"]).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        assert!(lossy(&out.stderr).contains("try: write the sizes from large to small"));
    }
}

#[test]
fn every_status_is_in_the_reference_with_its_number() {
    let text = std::fs::read_to_string(repository().join("docs/reference/c-api.md")).unwrap();
    let header = std::fs::read_to_string(here().join("include/hugeleaf.h")).unwrap();
    let (_, from) = header.split_once("enum hl_status").unwrap();
    let (statuses, _) = from.split_once("};").unwrap();
    let mut seen = 0;
    for line in statuses.lines() {
        let Some((name, number)) = line.split_once(" = ") else {
            continue;
        };
        let (name, number) = (name.trim(), number.trim_end_matches(','));
        assert!(text.contains(&format!("| {number} | `{name}` |")), "{name}");
        seen += 1;
    }
    assert!(seen > 20, "{seen}");
}

/// Returns the runnable blocks of the guide in one language.
fn blocks(language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("docs/guide/library.md")).unwrap();
    let mark = format!("```{language} run\n");
    let blocks = text.split(&mark).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_guides_c_is_c() {
    let test = "the_guides_c_is_c";
    let (to, blocks) = (folder(), blocks("c"));
    assert!(!blocks.is_empty());
    for (i, block) in blocks.iter().enumerate().filter(|_| has(test, "cc")) {
        let source = to.path().join(format!("block{i}.c"));
        std::fs::write(&source, block).unwrap();
        run(&mut Command::new(compiled(&source, to.path())));
    }
}

/// The guide's own commands: they install the library and build with it as its users do.
#[test]
fn what_is_installed_can_be_built_with() {
    let test = "what_is_installed_can_be_built_with";
    if !has(test, "cc") || !has(test, "pkg-config") {
        return;
    }
    let to = folder();
    let blocks = blocks("sh");
    assert_eq!(blocks.len(), 1);
    run(Command::new("bash")
        .args(["-euo", "pipefail", "-c", &blocks[0]])
        .current_dir(repository())
        .env("PREFIX", to.path())
        .env("BUILT", built()));
    for program in ["shared", "static"] {
        let out = run(Command::new(to.path().join(program)).args(["4", "1E"]));
        assert!(lossy(&out.stdout).starts_with("length: 4194304 of "));
    }
    // The program asks for the version of the interface that it was built with, not for a full version.
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    let library = to.path().join(format!("lib/libhugeleaf.so.{major}"));
    let full = to
        .path()
        .join(format!("lib/libhugeleaf.so.{}", env!("CARGO_PKG_VERSION")));
    assert!(library.is_symlink() && full.is_file());
    std::fs::remove_file(to.path().join("lib/libhugeleaf.so")).unwrap();
    run(Command::new(to.path().join("shared")).args(["4", "1E"]));
    std::fs::remove_file(&library).unwrap();
    let out = Command::new(to.path().join("shared")).output().unwrap();
    assert!(!out.status.success());
    let cried = lossy(&out.stderr);
    assert!(
        cried.contains(&format!("libhugeleaf.so.{major}")),
        "{cried}"
    );
    let version = run(Command::new("pkg-config")
        .args(["--modversion", "hugeleaf"])
        .env("PKG_CONFIG_PATH", to.path().join("lib/pkgconfig")));
    assert_eq!(lossy(&version.stdout).trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_installer_says_what_is_wrong() {
    let script = repository().join("scripts/install-library.sh");
    let to = folder();
    let out = Command::new(&script).arg("relative").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let out = Command::new(&script)
        .args([to.path(), to.path()])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(3));
    assert!(lossy(&out.stderr).contains("has no libhugeleaf_c.so"));
}
