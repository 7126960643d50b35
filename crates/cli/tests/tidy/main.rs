//! The style of this repository, checked. Each rule says what it protects; an exception is a line
//! in a list here, with its reason.

// A panic is how a test fails, also in its helpers.
#![allow(clippy::unwrap_used)]

mod circles;
mod dependencies;
mod source;

use source::{Blank, all_files, block_end, line_of, repository, sources, without, words};

/// Fails with all findings at once: one run shows all that is to be mended.
fn check(rule: &str, findings: &[String]) {
    assert!(
        findings.is_empty(),
        "{rule}:\n  {}\n",
        findings.join("\n  ")
    );
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The place of `/proc` and `/sys` is a value that goes from `--root` to the last reader.
#[test]
fn no_absolute_system_paths() {
    // Rooms and files that name such a path without opening it.
    const EXCEPTIONS: [(&str, &str); 7] = [
        (
            "crates/perf/src/event.rs",
            "perf_event_open(2) acts on the live kernel",
        ),
        (
            "crates/preload/src/",
            "looks at the process it is loaded into, and at nothing else",
        ),
        (
            "crates/sys/src/",
            "system calls act on the live kernel, whatever --root says",
        ),
        (
            "crates/verdict/src/",
            "the text of commands; it cannot read anything (see below)",
        ),
        (
            "crates/report/src/",
            "the text of commands; it cannot read anything (see below)",
        ),
        (
            "crates/host/src/model.rs",
            "the settings that texts name; it opens no file",
        ),
        (
            "crates/host/src/snapshot.rs",
            "the mount point in a line of /proc/self/mounts",
        ),
    ];
    let mut findings = Vec::new();
    for source in sources() {
        let path = source.path.display().to_string();
        if EXCEPTIONS
            .iter()
            .any(|(prefix, _)| path.starts_with(prefix))
        {
            continue;
        }
        for literal in ["\"/proc", "\"/sys/"] {
            for (at, _) in source.code.match_indices(literal) {
                findings.push(format!("{path}:{}", line_of(&source.code, at)));
            }
        }
    }
    check(
        "take a Root instead of a path that starts with /proc or /sys",
        &findings,
    );
}

/// Names are anybody's, and what is no page has one place that writes out what a terminal would act on: `Context::print` and
/// `tell`. Whatever is printed elsewhere has not been there.
#[test]
fn one_place_prints() {
    const EXCEPTIONS: [(&str, &str); 2] = [
        ("crates/cli/src/context.rs", "that place"),
        (
            "crates/cli/src/progress.rs",
            "bars; what they say is cleaned",
        ),
    ];
    let mut findings = Vec::new();
    for source in sources() {
        let path = source.path.display().to_string();
        let is_ours = path.starts_with("crates/cli/src/") || path.starts_with("crates/report/src/");
        if !is_ours || EXCEPTIONS.iter().any(|(file, _)| path == *file) {
            continue;
        }
        for word in ["println", "print", "eprintln", "eprint", "stdout", "stderr"] {
            for at in words(&source.bare, word) {
                let behind = &source.bare[at + word.len()..];
                let is_bar = source.bare[..at].ends_with("ProgressDrawTarget::");
                if !is_bar && (behind.starts_with('!') || behind.starts_with("()")) {
                    findings.push(format!("{path}:{}: {word}", line_of(&source.bare, at)));
                }
            }
        }
    }
    check("print by Context::print or tell", &findings);
}

/// The one reader of files that others control is `Root`, `Theirs` and `hugeleaf_sys::careful`: whoever
/// opens a path by himself may wait for a FIFO, or read without end.
#[test]
fn files_of_the_host_are_opened_in_one_place() {
    // Files that no reader of the host opens: what a person names, what this program wrote itself.
    const EXCEPTIONS: [(&str, &str); 3] = [
        ("crates/host/src/root.rs", "that place"),
        (
            "crates/host/src/system/cgroups.rs",
            "folders of the kernel, a limited number",
        ),
        (
            "crates/host/src/program.rs",
            "the program that a person is about to start as himself",
        ),
    ];
    let mut findings = Vec::new();
    for source in sources() {
        let path = source.path.display().to_string();
        let is_reader = ["crates/host/src/", "crates/trace/src/collect"]
            .iter()
            .any(|folder| path.starts_with(folder));
        if !is_reader || EXCEPTIONS.iter().any(|(file, _)| path == *file) {
            continue;
        }
        for call in [
            "fs::read(",
            "read_to_string(",
            "File::open(",
            "read_dir(",
            "OpenOptions",
        ] {
            for (at, _) in source.bare.match_indices(call) {
                if source.bare[..at].contains("mod tests {") {
                    continue;
                }
                findings.push(format!("{path}:{}: {call}", line_of(&source.bare, at)));
            }
        }
    }
    check("open it by Root, or by hugeleaf_sys::Inside", &findings);
}

/// Page sizes are facts of a host. A number that looks like one and is none says so in a comment
/// on its line or the one above: `not a page size`.
#[test]
fn no_page_size_is_hard_coded() {
    const SIZES: [&str; 12] = [
        "4096",
        "4_096",
        "0x1000",
        "65536",
        "65_536",
        "2097152",
        "2_097_152",
        "0x200000",
        "0x20_0000",
        "1 << 12",
        "1 << 21",
        "2 << 20",
    ];
    let mut findings = Vec::new();
    for source in sources() {
        if source.path.starts_with("crates/units") {
            continue;
        }
        let lines: Vec<&str> = source.text.lines().collect();
        for size in SIZES {
            for at in words(&source.bare, size) {
                let line = line_of(&source.bare, at);
                let excused = lines[line.saturating_sub(2)..line]
                    .iter()
                    .any(|l| l.contains("not a page size"));
                if !excused {
                    findings.push(format!("{}:{line}: {size}", source.path.display()));
                }
            }
        }
    }
    check("ask the host for its page sizes", &findings);
}

/// What is committed is finished.
#[test]
fn nothing_is_left_for_later() {
    let mut findings = Vec::new();
    for path in all_files() {
        if path.extension().is_none_or(|e| e != "rs") || path.ends_with("tidy/main.rs") {
            continue;
        }
        let text = std::fs::read_to_string(repository().join(&path)).unwrap();
        let bare = without(&text, Blank::CommentsAndStrings);
        for word in ["todo", "unimplemented", "dbg"] {
            for at in words(&bare, word).filter(|at| bare[at + word.len()..].starts_with('!')) {
                findings.push(format!("{}:{}", path.display(), line_of(&bare, at)));
            }
        }
        for mark in ["TODO", "FIXME", "XXX", "TEMP SKIP", "is being built\""] {
            for (at, _) in text.match_indices(mark) {
                findings.push(format!("{}:{}: {mark}", path.display(), line_of(&text, at)));
            }
        }
    }
    check("finish it, or open an issue", &findings);
}

/// A newcomer opens lib.rs first: it says what the crate is for and what it must not do.
#[test]
fn every_crate_says_what_it_is_for() {
    let mut findings = Vec::new();
    for name in crates() {
        let file = if name == "cli" { "main.rs" } else { "lib.rs" };
        let path = format!("crates/{name}/src/{file}");
        let text = read(&path);
        if !text.starts_with("//! ") {
            findings.push(format!("{path}: open with //! and what it is for"));
        }
        let head: String = text.lines().take_while(|l| l.starts_with("//!")).collect();
        if file == "lib.rs" && !(head.contains("must not") && head.contains("ain types")) {
            findings.push(format!(
                "{path}: say what it must not do, and its main types"
            ));
        }
    }
    check("lib.rs", &findings);
}

/// Files that hold unsafe code, and why they must.
const UNSAFE: [(&str, &str); 66] = [
    ("crates/sys/src/asked.rs", "between fork and exec"),
    ("crates/sys/src/careful.rs", "setfsuid of one thread"),
    ("crates/sys/src/ethtool.rs", "ioctl on network devices"),
    (
        "crates/sys/src/start.rs",
        "fork, exec, signals, set_mempolicy",
    ),
    (
        "crates/preload/src/arena.rs",
        "rights in what malloc reserved",
    ),
    ("crates/preload/src/calls.rs", "system calls without libc"),
    ("crates/preload/src/elf.rs", "tables of loaded libraries"),
    (
        "crates/preload/src/fork.rs",
        "memory that must change before a fork",
    ),
    ("crates/preload/src/heap.rs", "the program break"),
    (
        "crates/preload/src/hooks.rs",
        "functions that the program calls",
    ),
    (
        "crates/preload/src/loaded.rs",
        "entry points and the panic handler",
    ),
    (
        "crates/preload/src/patch.rs",
        "a jump at the entry of libc's functions",
    ),
    ("crates/preload/src/judge.rs", "a table that is mapped once"),
    (
        "crates/preload/src/must.rs",
        "memory that must be on larger pages",
    ),
    (
        "crates/preload/src/must_map.rs",
        "the same, as mmap and mremap ask for it",
    ),
    (
        "crates/preload/src/pool.rs",
        "mappings that are cut from reserved pages",
    ),
    ("crates/preload/src/room.rs", "what is put at an address"),
    (
        "crates/preload/src/sample.rs",
        "buffers that are mapped for a look",
    ),
    ("crates/preload/src/shared.rs", "mappings of shared memory"),
    ("crates/preload/src/stack.rs", "mappings of stacks"),
    (
        "crates/preload/src/start.rs",
        "what the loader passes to constructors",
    ),
    (
        "crates/preload/src/state.rs",
        "values that are written once",
    ),
    (
        "crates/preload/src/sweep.rs",
        "buffers that are mapped for a step",
    ),
    ("crates/preload/src/text.rs", "a program's code"),
    ("crates/preload/src/tmpfs.rs", "a child that makes a mount"),
    (
        "crates/preload/src/window.rs",
        "mappings that are cut from one",
    ),
    (
        "crates/sys/src/kernel.rs",
        "system calls without a safe wrapper",
    ),
    (
        "crates/sys/src/own_memory.rs",
        "memory of this process as a slice",
    ),
    ("crates/sys/src/usage.rs", "getrusage"),
    ("crates/sys/src/memory.rs", "mappings of this process"),
    (
        "crates/sys/src/memory_file.rs",
        "numbers that are said to be descriptors",
    ),
    ("crates/sys/src/pagemap.rs", "the PAGEMAP_SCAN ioctl"),
    ("crates/perf/src/counters.rs", "perf_event_open"),
    ("crates/perf/src/event.rs", "perf_event_open and its ioctls"),
    (
        "crates/perf/src/ring.rs",
        "a ring that the kernel writes to",
    ),
    ("crates/sys/src/populate.rs", "process_vm_writev"),
    ("crates/sys/src/process.rs", "klogctl"),
    ("crates/sys/src/remote_call.rs", "ptrace"),
    ("crates/sys/src/split.rs", "process_vm_readv"),
    (
        "crates/sys/src/space.rs",
        "addresses that this process lays out",
    ),
    (
        "crates/region/src/elastic/table.rs",
        "a table that processes share",
    ),
    ("crates/sys/src/barrier.rs", "membarrier"),
    (
        "crates/sqlite/src/cache.rs",
        "pages that SQLite holds by pointers",
    ),
    ("crates/sqlite/src/chunk.rs", "slots of a granule"),
    ("crates/sqlite/src/ffi.rs", "functions of SQLite"),
    ("crates/sqlite/src/fork.rs", "pthread_atfork"),
    (
        "crates/sqlite/src/fixed.rs",
        "memory that a caller vouches for",
    ),
    ("crates/sqlite/src/linked.rs", "functions of SQLite"),
    (
        "crates/sqlite/src/methods.rs",
        "functions that SQLite calls",
    ),
    ("crates/sqlite/src/names.rs", "a file system of SQLite"),
    ("crates/sqlite/src/node.rs", "lists of pages by pointers"),
    ("crates/sqlite/src/share.rs", "caches of other threads"),
    (
        "crates/sqlite/src/spare.rs",
        "pages of the heap by pointers",
    ),
    ("crates/capi/src/lib.rs", "the C interface"),
    ("crates/capi/src/call.rs", "pointers and text from C"),
    ("crates/capi/src/elastic.rs", "pointers from C"),
    (
        "crates/capi/src/manager.rs",
        "pointers and functions from C",
    ),
    ("crates/capi/src/region.rs", "pointers from C"),
    ("crates/capi/src/sqlite.rs", "functions from C"),
    (
        "crates/workload/src/chase/walk.rs",
        "reads from address to address",
    ),
    (
        "crates/workload/src/cache.rs",
        "options of SQLite, and memory that its cache gets",
    ),
];

#[test]
fn unsafe_code_is_listed_and_explained() {
    let mut findings = Vec::new();
    let mut found = Vec::new();
    for source in sources() {
        let path = source.path.display().to_string();
        if words(&source.bare, "unsafe").next().is_none() {
            continue;
        }
        found.push(path.clone());
        if !UNSAFE.iter().any(|(listed, _)| *listed == path) {
            findings.push(format!(
                "{path}: not in the list of files that may hold unsafe code"
            ));
        }
        if !source.text.contains("//! # Safety") {
            findings.push(format!("{path}: no `//! # Safety` header"));
        }
        if !source.text.contains("#![allow(unsafe_code)]") {
            findings.push(format!("{path}: no `#![allow(unsafe_code)]`"));
        }
    }
    let stale = UNSAFE
        .iter()
        .filter(|(path, _)| !found.iter().any(|f| f == path));
    findings.extend(stale.map(|(path, _)| format!("{path}: listed, and holds no unsafe code")));
    check("unsafe code", &findings);
}

/// Functions that are longer than a screen, and why.
const LONG: [(&str, &str, &str); 0] = [];

/// A function fits a screen.
#[test]
fn functions_fit_a_screen() {
    const SCREEN: usize = 70;
    let mut findings = Vec::new();
    for source in sources() {
        let path = source.path.display().to_string();
        for at in words(&source.bare, "fn") {
            let head = &source.bare[at..];
            let name: String = head[2..]
                .trim_start()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let open = head.find('{').unwrap_or(usize::MAX);
            if name.is_empty() || head.find(';').is_some_and(|semicolon| semicolon < open) {
                continue;
            }
            let Some(end) = block_end(&source.bare, at) else {
                continue;
            };
            let lines = source.bare[at..end].matches('\n').count() + 1;
            let excused = LONG.iter().any(|(p, n, _)| *p == path && *n == name);
            if lines > SCREEN && !excused {
                let line = line_of(&source.bare, at);
                findings.push(format!("{path}:{line}: {name} has {lines} lines"));
            }
        }
    }
    check("split it, or list it with the reason", &findings);
}

fn crates() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(repository().join("crates"))
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The crates that a crate's `[dependencies]` name, without the `hugeleaf-`; the public one, which
/// has no more name than that, by its folder.
fn uses(name: &str) -> Vec<String> {
    let manifest = read(&format!("crates/{name}/Cargo.toml"));
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| match line.strip_prefix("hugeleaf.") {
            Some(_) => Some("region"),
            None => line.strip_prefix("hugeleaf-"),
        })
        .map(|rest| {
            rest.chars()
                .take_while(char::is_ascii_alphanumeric)
                .collect()
        })
        .collect()
}

/// Data goes one way: facts, judgement, change, proof, view.
#[test]
fn crates_use_only_what_lies_upstream() {
    let allowed: [(&str, &[&str]); 18] = [
        ("units", &[]),
        ("balance", &["units"]),
        ("preload", &[]),
        ("sys", &["units"]),
        ("perf", &["units", "sys"]),
        ("host", &["units", "sys"]),
        ("trace", &["units", "sys", "host", "perf"]),
        ("verdict", &["units", "host", "trace"]),
        ("change", &["units", "sys", "host", "verdict"]),
        ("region", &["units", "sys", "host", "balance"]),
        ("sqlite", &["sys", "region"]),
        ("capi", &["sys", "region", "sqlite"]),
        ("workload", &["units", "sys", "host", "region", "sqlite"]),
        (
            "proof",
            &[
                "units", "sys", "host", "perf", "verdict", "change", "region", "workload",
            ],
        ),
        (
            "guard",
            &[
                "units", "sys", "host", "verdict", "change", "proof", "balance",
            ],
        ),
        (
            "report",
            &[
                "units", "host", "verdict", "change", "proof", "trace", "guard",
            ],
        ),
        (
            "top",
            &[
                "units", "sys", "host", "verdict", "change", "guard", "report",
            ],
        ),
        (
            "cli",
            &[
                "units", "sys", "host", "verdict", "change", "region", "workload", "proof",
                "report", "trace", "guard", "top",
            ],
        ),
    ];
    let mut findings = Vec::new();
    for name in crates() {
        let Some((_, may)) = allowed.iter().find(|(n, _)| *n == name) else {
            findings.push(format!(
                "{name}: a new crate; say here and in ARCHITECTURE.md whom it uses"
            ));
            continue;
        };
        for used in uses(&name) {
            if !may.contains(&used.as_str()) {
                findings.push(format!("{name} uses {used}"));
            }
        }
    }
    check("the arrows of ARCHITECTURE.md", &findings);
}

/// A database author who adds `hugeleaf` gets few crates: none that counts, traces, starts programs or
/// reads what servers ask for.
#[test]
fn the_library_brings_few_crates() {
    const ITS_OWN: [&str; 5] = [
        "hugeleaf",
        "hugeleaf-balance",
        "hugeleaf-host",
        "hugeleaf-sys",
        "hugeleaf-units",
    ];
    // thiserror brings the five that follow it, which run in the compiler alone.
    const OTHERS: [&str; 13] = [
        "bitflags",
        "libc",
        "linux-raw-sys",
        "rustix",
        // Sizes and facts write themselves as JSON.
        "serde",
        "serde-core",
        "serde-derive",
        "thiserror",
        "thiserror-impl",
        "proc-macro2",
        "quote",
        "syn",
        "unicode-ident",
    ];
    let tree = std::process::Command::new(env!("CARGO"))
        .current_dir(repository())
        .args(["tree", "--locked", "--offline", "--package", "hugeleaf"])
        .args([
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{lib}|{f}",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8(tree.stdout).unwrap();
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let mut findings = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, features) = line.split_once('|').unwrap();
        let name = name.replace('_', "-");
        let is_known = ITS_OWN.iter().chain(&OTHERS).any(|known| *known == name);
        if !is_known {
            findings.push(format!("it brings {name}"));
        }
        if name == "hugeleaf-host" && features.contains("full") {
            findings.push(
                "it brings readers of processes and servers (host's feature full)".to_owned(),
            );
        }
    }
    check(
        "a feature or another crate for what the library does not need",
        &findings,
    );
}

/// Files that import each other are read together or not at all.
#[test]
fn files_do_not_import_in_circles() {
    let sources = sources();
    let mut findings = Vec::new();
    for name in crates() {
        let found = circles::in_circles(&sources, &name);
        findings.extend(found.iter().map(|(file, used)| {
            format!(
                "{name}: {file} is in a circle by its import of {}",
                used.join(", ")
            )
        }));
    }
    check("have what both need in a file of its own", &findings);
}

/// A reader never writes, a judge does neither, a view never touches the system.
#[test]
fn rooms_keep_to_their_business() {
    const WRITING: [&str; 4] = ["fs::write", "File::create", "OpenOptions", "create_dir"];
    const READING: [&str; 7] = [
        "std::fs",
        "File::open",
        "read_to_string",
        "read_host",
        "read_process",
        "RealKernel",
        "std::net",
    ];
    let mut findings = Vec::new();
    for source in sources() {
        let room = source.path.components().nth(1).unwrap();
        let room = room.as_os_str().to_string_lossy().into_owned();
        let forbidden: Vec<&str> = match room.as_str() {
            "units" | "balance" | "verdict" | "report" => [&WRITING[..], &READING[..]].concat(),
            "host" => WRITING.to_vec(),
            _ => continue,
        };
        for word in forbidden {
            for (at, _) in source.bare.match_indices(word) {
                let line = line_of(&source.bare, at);
                findings.push(format!("{}:{line}: {word}", source.path.display()));
            }
        }
    }
    check("move it to the room whose business it is", &findings);
}

/// What a test could not run is counted by the beginning of its line, so that has one form.
#[test]
fn what_is_not_run_is_said_in_one_form() {
    // Who reads such lines or says them of a whole host; benchmarks are not counted.
    const EXCEPTIONS: [&str; 6] = [
        "lab/benches/",
        "lab/vm/src/harness.rs",
        "lab/vm/src/results.rs",
        "lab/vm/src/main.rs",
        "lab/vm/tests/count.rs",
        "crates/cli/tests/tidy/main.rs",
    ];
    let mut findings = Vec::new();
    for path in all_files() {
        let shown = path.display().to_string();
        if !shown.ends_with(".rs") || EXCEPTIONS.iter().any(|e| shown.starts_with(e)) {
            continue;
        }
        let text = std::fs::read_to_string(repository().join(&path)).unwrap();
        let code = without(&text, Blank::Comments);
        for (at, words) in code.match_indices("not run: ") {
            let said = &code[at + words.len()..];
            let name = said.split([':', '"']).next().unwrap();
            let is_name = |c: char| c.is_alphanumeric() || "_-{}.".contains(c);
            let good = code[..at].ends_with('"')
                && said[name.len()..].starts_with(": ")
                && (name.starts_with("the part of ") || name.chars().all(is_name));
            if !good && !code[..at].ends_with("does ") {
                findings.push(format!("{shown}:{}", line_of(&code, at)));
            }
        }
    }
    check(
        "say \"not run: NAME: REASON\" or \"not run: the part of NAME …: REASON\"",
        &findings,
    );
}

/// Texts are for readers anywhere: no path of one machine, no package source but the public one.
#[test]
fn no_text_names_one_machine() {
    // Written in two halves, so that this file does not find itself.
    let folders = [
        ["/wo", "rk/"].concat(),
        ["/tmp/br", "ief"].concat(),
        ["/ro", "ot/."].concat(),
    ];
    let mut findings = Vec::new();
    for path in all_files() {
        let Ok(text) = std::fs::read_to_string(repository().join(&path)) else {
            continue;
        };
        let shown = path.display();
        for folder in &folders {
            for (at, _) in text.match_indices(folder.as_str()) {
                // A part of a longer path or address is another folder.
                let whole = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '.');
                if whole {
                    findings.push(format!("{shown}:{}: {folder}", line_of(&text, at)));
                }
            }
        }
        if path.ends_with("Cargo.lock") {
            let foreign = text.lines().filter(|line| {
                line.starts_with("source = ")
                    && !line.contains("registry+https://github.com/rust-lang/crates.io-index")
            });
            findings.extend(foreign.map(|line| format!("{shown}: {line}")));
        }
        if path.components().any(|c| c.as_os_str() == ".cargo") {
            findings.push(format!("{shown}: settings of one machine"));
        }
    }
    check("name nothing that only one machine has", &findings);
}

/// The changes of the version that is being built are written down.
#[test]
fn the_changelog_has_an_entry() {
    let text = read("CHANGELOG.md");
    let version = env!("CARGO_PKG_VERSION");
    let entry = text
        .split("\n## ")
        .nth(1)
        .expect("CHANGELOG.md has no `## ` heading");
    assert!(
        entry.starts_with(version) || entry.starts_with("Unreleased"),
        "the first entry of CHANGELOG.md is not of version {version}"
    );
    assert!(
        entry.contains("\n- "),
        "the first entry of CHANGELOG.md lists nothing"
    );
}

/// Each fuzz target that is declared exists, and each that exists is declared.
#[test]
fn fuzz_targets_are_declared() {
    let manifest = read("fuzz/Cargo.toml");
    let declared: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"))
        .filter_map(|rest| rest.strip_suffix(".rs\""))
        .collect();
    let mut present: Vec<String> = std::fs::read_dir(repository().join("fuzz/fuzz_targets"))
        .unwrap()
        .map(|e| {
            e.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    present.sort();
    let mut sorted = declared.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, present);
}

/// The checks above stand on this: code distinguished from comments, strings and tests.
#[test]
fn comments_and_strings_are_told_apart() {
    let text = "let a = \"/* no */ \\\" x\"; // \"c\nlet b = r#\"q\"q\"#; /* a /* b */ c */ let c = 'x'; fn f<'a>() {}";
    let code = without(text, Blank::Comments);
    assert!(code.contains("/* no */") && !code.contains("// \"c") && !code.contains("b */"));
    let bare = without(text, Blank::CommentsAndStrings);
    assert!(!bare.contains("no") && !bare.contains("q\"q") && bare.contains("fn f<'a>() {}"));
    assert_eq!(bare.len(), text.len());
}
