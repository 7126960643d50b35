//! Checks repository rules that no lint can express. Lints are in `[workspace.lints]` and in the files `clippy.toml`; licences and versions
//! of dependencies are in `deny.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Fails with all findings at once.
fn check(rule: &str, findings: &[String]) {
    assert!(
        findings.is_empty(),
        "{rule}:\n  {}\n",
        findings.join("\n  ")
    );
}

fn repository() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("crates/cli is two folders below the root")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns all text files of the repository except build results, with paths relative to its root.
fn all_files() -> Vec<(String, String)> {
    const BUILT: [&str; 6] = ["target", ".git", "corpus", "artifacts", ".tmp", "coverage"];
    let mut folders = vec![repository().to_owned()];
    let mut files: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !BUILT.contains(&&*entry.file_name().to_string_lossy()) {
                folders.push(entry.path());
            } else if kind.is_file() && entry.file_name() != ".git" {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    assert!(files.len() > 50, "the repository was not found");
    let files = files.into_iter().filter_map(|path| {
        let text = std::fs::read_to_string(&path).ok()?;
        let path = path.strip_prefix(repository()).unwrap();
        Some((path.display().to_string(), text))
    });
    files.collect()
}

/// Returns the sources of the product's crates. Lines of comments and tests are blank, so line numbers stay the same.
fn sources() -> Vec<(String, String)> {
    let is_source = |path: &str| {
        let is_test = ["/tests", "/testing.rs", "/testkit/"]
            .iter()
            .any(|part| path.contains(part));
        path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs") && !is_test
    };
    let files = all_files().into_iter();
    let sources = files.filter(|(path, _)| is_source(path));
    sources
        .map(|(path, text)| (path, without_comments_and_tests(&text)))
        .collect()
}

/// Relies on the format of rustfmt: an item ends with a `}` below its first line, or with a `;`.
fn without_comments_and_tests(text: &str) -> String {
    let mut test_ends: Option<String> = None;
    // The last module of a file may contain any text.
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| {
        let code = line.trim_start();
        if let Some(end) = &test_ends {
            if line == end || (code.ends_with(';') && line.len() - code.len() < end.len()) {
                test_ends = None;
            }
            return "";
        }
        if code == "#[cfg(test)]" {
            test_ends = Some(line.replace(code, "}"));
            return "";
        }
        if code.starts_with("//") { "" } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the folders of the product's crates.
fn crates() -> Vec<String> {
    let folder = std::fs::read_dir(repository().join("crates")).unwrap();
    let mut names: Vec<String> = folder
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Every command that changes a host setting is built from a checked change (`hugeleaf_verdict::advice`). The check covers the host's
/// resources, the needs of others, and the other commands on the screen.
#[test]
fn commands_that_change_the_host_are_made_in_one_place() {
    const EXCEPTIONS: [(&str, &str); 2] = [
        ("crates/verdict/src/advice.rs", "the one place"),
        (
            "crates/preload/src/",
            "what it writes into files of the kernel is no advice",
        ),
    ];
    let is_command = |line: &str| {
        let mut echoes = line.match_indices("echo ").map(|(at, _)| &line[at..]);
        let writes = |echo: &str| {
            let to = echo
                .split_once(" > ")
                .map(|(_, to)| to.starts_with(['/', '{', '$']));
            to.unwrap_or(false)
        };
        // Settings without a file are made by programs.
        const SET_BY: [&str; 7] = [
            "sysctl -w ",
            "\"mount -o remount,",
            "usermod -",
            "ethtool -K ",
            "cpupower ",
            "\"rm -- ",
            "\"ipcrm ",
        ];
        SET_BY.iter().any(|set| line.contains(set)) || echoes.any(writes)
    };
    let mut findings = Vec::new();
    for (path, code) in sources() {
        if EXCEPTIONS
            .iter()
            .any(|(begins, _)| path.starts_with(begins))
        {
            continue;
        }
        for (number, line) in code
            .lines()
            .enumerate()
            .filter(|(_, line)| is_command(line))
        {
            findings.push(format!("{path}:{}: {}", number + 1, line.trim()));
        }
    }
    check("make it of a Change (hugeleaf_verdict::advice)", &findings);
}

/// A comment swallows the command behind it, so one place joins commands.
#[test]
fn commands_are_joined_in_one_place() {
    let joins = |line: &str| {
        let mut before = line.match_indices("} && ").map(|(at, _)| &line[..at]);
        // Within a string, not between conditions.
        let is_text = before.any(|before| before.matches('"').count() % 2 == 1);
        is_text || line.contains("join(\" && \")")
    };
    let mut findings = Vec::new();
    for (path, code) in sources() {
        let lines = code.lines().enumerate().filter(|(_, line)| joins(line));
        let lines = lines.filter(|_| path != "crates/verdict/src/advice.rs");
        findings.extend(lines.map(|(number, line)| format!("{path}:{}: {line}", number + 1)));
    }
    check(
        "join it by ScreenCommand::then or sequence (hugeleaf_verdict::advice)",
        &findings,
    );
}

/// Only `hugeleaf_host::limits` reads the limits of a process, because it knows their files inside a container.
#[test]
fn limits_of_cgroups_are_read_in_one_place() {
    const EXCEPTIONS: [(&str, &str); 4] = [
        ("crates/host/src/limits/", "the one place"),
        (
            "crates/host/src/model.rs",
            "names of files in commands; it opens none",
        ),
        (
            "crates/plan/src/allowlist.rs",
            "the pattern of what a plan may write",
        ),
        (
            "crates/verdict/src/run_policy/resolve.rs",
            "the name in a sentence",
        ),
    ];
    const FILES: [&str; 6] = [
        "memory.max",
        "memory.high",
        "memory.current",
        "limit_in_bytes",
        "rsvd.",
        "cgroup.controllers",
    ];
    let mut findings = Vec::new();
    for (path, code) in sources() {
        let is_exception = |(begins, _): &(&str, &str)| path.starts_with(begins);
        if EXCEPTIONS.iter().any(is_exception) || path == "crates/host/src/limits.rs" {
            continue;
        }
        let reads = |line: &str| line.contains('"') && FILES.iter().any(|file| line.contains(file));
        let lines = code.lines().enumerate().filter(|(_, line)| reads(line));
        findings.extend(lines.map(|(number, _)| format!("{path}:{}", number + 1)));
    }
    check("ask hugeleaf_host::limits::read_limits", &findings);
}

/// Paths below `/proc` and `/sys` go through a value that `--root` sets for each reader.
#[test]
fn no_absolute_system_paths() {
    const EXCEPTIONS: [(&str, &str); 13] = [
        (
            "crates/perf/src/event.rs",
            "perf_event_open(2) acts on the running kernel",
        ),
        ("crates/preload/src/", "reads the process it is loaded into"),
        (
            "crates/sys/src/",
            "system calls act on the running kernel, whatever --root says",
        ),
        ("crates/verdict/src/", "text of commands; it reads no file"),
        (
            "crates/plan/src/allowlist.rs",
            "names of settings; it reads no file",
        ),
        (
            "crates/plan/src/kubernetes.rs",
            "names of settings; it reads no file",
        ),
        (
            "crates/plan/src/plan_steps.rs",
            "names of settings; it reads no file",
        ),
        (
            "crates/plan/src/knobs.rs",
            "names of settings; it reads no file",
        ),
        (
            "crates/plan/src/value_checks.rs",
            "names of settings; it reads no file",
        ),
        (
            "crates/plan/src/verify/drift.rs",
            "names of settings; it reads no file",
        ),
        ("crates/report/src/", "text of commands; it reads no file"),
        (
            "crates/host/src/model.rs",
            "names of settings; it opens no file",
        ),
        (
            "crates/host/src/target.rs",
            "mount points in lines of /proc/self/mounts",
        ),
    ];
    let mut findings = Vec::new();
    for (path, code) in sources() {
        if EXCEPTIONS
            .iter()
            .any(|(prefix, _)| path.starts_with(prefix))
        {
            continue;
        }
        for (number, line) in code.lines().enumerate() {
            if line.contains("\"/proc") || line.contains("\"/sys/") {
                findings.push(format!("{path}:{}", number + 1));
            }
        }
    }
    check(
        "take a Root instead of a path below /proc or /sys",
        &findings,
    );
}

/// Page sizes are facts of a host. Any other number that looks like one needs a comment on its line or on the line above: `not a page
/// size`.
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
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut findings = Vec::new();
    for (path, code) in sources() {
        if path.starts_with("crates/units") {
            continue;
        }
        let text = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in code.lines().enumerate() {
            // Every second part is within quotes.
            let bare: String = line.split('"').step_by(2).collect();
            let bare = bare.split("//").next().unwrap();
            let found = SIZES.iter().find(|size| {
                let mut found = bare.match_indices(**size);
                found.any(|(at, _)| {
                    !bare[..at].ends_with(is_part) && !bare[at + size.len()..].starts_with(is_part)
                })
            });
            let excuse = &lines[at.saturating_sub(1)..=at];
            if let Some(size) = found
                && !excuse.iter().any(|line| line.contains("not a page size"))
            {
                findings.push(format!("{path}:{}: {size}", at + 1));
            }
        }
    }
    check("ask the host for its page sizes", &findings);
}

/// Tests wait for a condition with the generous deadline of `testkit`, never for a fixed time.
#[test]
fn tests_wait_in_one_place() {
    const EXCEPTIONS: [(&str, &str); 2] = [
        ("crates/testkit/src/wait.rs", "the one place"),
        (
            "lab/vm/tests/",
            "in guests, without testkit: loops with a deadline",
        ),
    ];
    // Split, so that this file does not contain it.
    const SLEEP: &str = concat!("thread::", "sleep");
    let mut findings = Vec::new();
    for (path, text) in code_except(&EXCEPTIONS) {
        let lines = lines_of_tests(&path, &text).into_iter();
        let sleeps = lines.filter(|(_, line)| line.contains(SLEEP));
        findings.extend(sleeps.map(|(number, _)| format!("{path}:{number}")));
    }
    check("wait by hugeleaf_testkit::until or pause", &findings);
}

/// A thread that works until a flag is set outlives an assertion that fails before: the test hangs, and shows nothing.
#[test]
fn threads_beside_a_test_end_when_it_fails() {
    const EXCEPTIONS: [(&str, &str); 4] = [
        ("crates/testkit/src/repeating_thread.rs", "the one place"),
        ("crates/testkit/src/load.rs", "ends when it is dropped"),
        ("crates/trace/tests/collect.rs", "ends when it is dropped"),
        (
            "crates/units/src/panic_containment.rs",
            "the test of such a flag",
        ),
    ];
    // Split, so that this file does not contain it.
    const LOOP: &str = concat!("while ", "!");
    let mut findings = Vec::new();
    for (path, text) in code_except(&EXCEPTIONS) {
        let lines = lines_of_tests(&path, &text).into_iter();
        let loops = lines.filter(|(_, line)| line.contains(LOOP) && line.contains(".load("));
        findings.extend(loops.map(|(number, _)| format!("{path}:{number}")));
    }
    check(
        "repeat work by hugeleaf_testkit::RepeatingThread",
        &findings,
    );
}

/// Returns the code of the product and the lab, tests included, but for paths that begin as the exceptions do.
fn code_except(exceptions: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut files = all_files();
    files.retain(|(path, _)| {
        let is_ours = path.starts_with("crates/") || path.starts_with("lab/");
        let is_excused = exceptions
            .iter()
            .any(|(begins, _)| path.starts_with(begins));
        is_ours && path.ends_with(".rs") && !is_excused
    });
    files
}

/// Returns the lines of tests in a file with their numbers: all lines of a test program, the test modules of another source.
fn lines_of_tests<'t>(path: &str, text: &'t str) -> Vec<(usize, &'t str)> {
    let whole = ["/tests/", "/testkit/", "/tests.rs", "/testing.rs"];
    let product = match whole.iter().any(|part| path.contains(part)) {
        true => String::new(),
        false => without_comments_and_tests(text),
    };
    let product: Vec<&str> = product.lines().collect();
    let lines = text.lines().enumerate();
    let of_tests = lines.filter(|(at, line)| product.get(*at) != Some(line));
    of_tests
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(at, line)| (at + 1, line))
        .collect()
}

#[test]
fn a_test_module_in_a_source_is_found() {
    let text = "fn a() {}\n\n#[cfg(test)]\nmod tests {\n    // b\n    fn c() {}\n}\n";
    let lines = lines_of_tests("crates/x/src/x.rs", text);
    assert!(lines.contains(&(6, "    fn c() {}")), "{lines:?}");
    assert!(
        !lines.iter().any(|(at, _)| [1, 5].contains(at)),
        "{lines:?}"
    );
    assert_eq!(lines_of_tests("crates/x/tests/x.rs", text)[0].0, 1);
}

/// Tests write kernel settings through `testkit::host_lock`, which holds the host's lock and restores them, also after a kill.
#[test]
fn tests_write_knobs_through_the_host() {
    const EXCEPTIONS: [(&str, &str); 3] = [
        ("crates/testkit/src/host_lock.rs", "the one place"),
        ("crates/cli/tests/tidy.rs", "the texts of this rule"),
        ("lab/vm/tests/", "in guests, which no other test shares"),
    ];
    let mut findings = Vec::new();
    for (path, text) in code_except(&EXCEPTIONS) {
        let lines = lines_of_tests(&path, &text).into_iter();
        let source = lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n");
        let writes = writes_of_knobs(&source).into_iter();
        findings.extend(writes.map(|file| format!("{path}: {file}")));
        if source.contains("lock/hugeleaf.lock") {
            findings.push(format!("{path}: the host's lock"));
        }
    }
    check(
        "hold hugeleaf_testkit::host_lock::exclusive, and write by its set",
        &findings,
    );
}

/// Returns the files of calls of `fs::write` that are kernel settings: literals, and names of constants, functions and, within a function,
/// variables.
fn writes_of_knobs(source: &str) -> Vec<&str> {
    const KNOBS: [&str; 6] = [
        "\"/sys/kernel/mm",
        "\"/proc/sys/",
        "host::pool(",
        "host::POOLS",
        "host::THP",
        "pool_file(",
    ];
    let is_knob = |text: &str| {
        !text.contains("read_to_string") && KNOBS.iter().any(|knob| text.contains(knob))
    };
    let functions = functions(source);
    let returns_knob = |function: &&str| {
        let head = function.split('{').next().unwrap_or_default();
        let returned = head.split("->").nth(1).unwrap_or_default();
        let kinds = ["Path", "String", "str"];
        kinds.iter().any(|kind| returned.contains(kind)) && is_knob(function)
    };
    let mut names = BTreeSet::new();
    let constants = source.lines().filter(|line| is_knob(line));
    names.extend(constants.filter_map(|line| Some(identifier(line.split_once("const ")?.1))));
    let makers = functions.iter().copied().filter(returns_knob);
    names.extend(makers.filter_map(|text| Some(identifier(text.split_once("fn ")?.1))));
    let mut found = Vec::new();
    for function in functions {
        let statements = function.split(';');
        let lets = statements.filter_map(|statement| Some(statement.rsplit_once("let ")?.1));
        let lets = lets.filter(|rest| is_knob(rest));
        let lets = lets.map(|rest| identifier(rest.trim_start_matches("mut ")));
        let variables: BTreeSet<&str> = lets.collect();
        for (at, call) in function.match_indices("fs::write(") {
            let file = first_argument(&function[at + call.len()..]);
            let mut words = file.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_name = |word: &str| names.contains(word) || variables.contains(word);
            if is_knob(file) || words.any(is_name) {
                found.push(file);
            }
        }
    }
    found
}

/// Returns the parts of a source that begin with a function, after the part before the first.
fn functions(source: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut at) = (0, 0);
    for line in source.split_inclusive('\n') {
        let before = line.trim_start().split_once("fn ");
        if before.is_some_and(|(before, _)| before.is_empty() || before.starts_with("pub")) {
            parts.push(&source[begin..at]);
            begin = at;
        }
        at += line.len();
    }
    parts.push(&source[begin..]);
    parts
}

/// Returns the identifier at the start of a text.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Returns the first argument in the rest of a source after an opening bracket.
fn first_argument(rest: &str) -> &str {
    let mut open = 0;
    let end = rest.find(|c: char| {
        match c {
            '(' | '[' => open += 1,
            ')' | ']' => open -= 1,
            _ => {}
        }
        open < 0 || (open == 0 && c == ',')
    });
    &rest[..end.unwrap_or(rest.len())]
}

#[test]
fn a_write_of_a_knob_is_found() {
    let found = |source: &str| writes_of_knobs(source).len();
    assert_eq!(found("std::fs::write(\"/proc/sys/vm/x\", \"1\");"), 1);
    assert_eq!(
        found("const A: &str = \"/sys/kernel/mm/x\";\nfn a() {\n    fs::write(A, \"1\");\n}\n"),
        1
    );
    assert_eq!(
        found(
            "fn a() {\n    let b = format!(\"/sys/kernel/mm/{c}\");\n    fs::write(&b, \"1\");\n}\n"
        ),
        1
    );
    let maker = "fn a(b: u64) -> PathBuf {\n    host::pool(b)\n}\n";
    assert_eq!(
        found(&format!(
            "{maker}fn c() {{\n    fs::write(a(1).join(\"x\"), \"1\");\n}}\n"
        )),
        1
    );
    let elsewhere = "fn a() {\n    let b = \"/proc/sys/vm/x\";\n}\nfn c(b: &Path) {\n    fs::write(b, \"1\");\n}\n";
    assert_eq!(found(elsewhere), 0);
    assert_eq!(found("fs::write(path, \"/proc/sys/vm/x\");"), 0);
}

/// A JVM of a test has its ready line and its end from `testkit`.
#[test]
fn tests_start_jvms_in_one_place() {
    // Split, so that this file does not contain it.
    const FINDS: &str = concat!("find_program(&[\"", "java");
    let uses = |(path, text): &(String, String)| {
        text.contains(FINDS) && path != "crates/testkit/src/jvm.rs"
    };
    let findings = all_files().into_iter().filter(uses);
    let findings: Vec<String> = findings.map(|(path, _)| path).collect();
    check("start it by hugeleaf_testkit::jvm", &findings);
}

/// Each promise has one gate, and nothing else may name the guarded call. A second way would bypass the promise.
#[test]
fn promises_have_one_gate() {
    const GATES: [(&str, &[&str], &str); 5] = [
        (
            "PmScanArg",
            &["crates/sys/src/pagemap.rs"],
            "scan page maps in parts that hold a lock for a short time",
        ),
        (
            "clear_refs",
            &["crates/mover/src/working_set.rs"],
            "estimate the walk first",
        ),
        (
            "oom_score_adj",
            &["crates/sys/src/child.rs"],
            "give back to what is started what was found",
        ),
        (
            "prometheus_client",
            &["crates/report/src/exposition.rs"],
            "escape labels in one place",
        ),
        (
            "--min-resident ",
            &["crates/verdict/src/partial_blocks.rs"],
            "name one percentage for the same blocks",
        ),
    ];
    let mut findings = Vec::new();
    for (path, text) in sources() {
        for (name, places, why) in GATES {
            if text.contains(name) && !places.contains(&path.as_str()) {
                findings.push(format!("{path}: {name}: {why}"));
            }
        }
    }
    check("go through the gate", &findings);
}

/// Only `Job::call` of `mover` acts on another process, so that every such call is bounded and counted. Clippy cannot tell
/// where in a crate a call is made.
#[test]
fn one_call_site_acts_on_other_processes() {
    const ACTS: [&str; 5] = [
        "kernel.process_madvise(",
        "kernel.split(",
        "kernel.switch_thp_on(",
        "kernel.populate(",
        "kernel.fault_in(",
    ];
    /// Arguments of the calls that only ask for permission, with a range without memory.
    const ASKS: [&str; 2] = ["process, &[], advice)", "file, process, nothing)"];
    let mut findings = Vec::new();
    let mut inside = 0;
    for (path, code) in sources() {
        if path.starts_with("crates/sys/") {
            continue;
        }
        for act in ACTS {
            for (at, _) in code.match_indices(act) {
                let arguments = &code[at + act.len()..];
                if is_within_job_call(&code[..at]) {
                    inside += 1;
                } else if !ASKS.iter().any(|asks| arguments.starts_with(asks)) {
                    findings.push(format!("{path}: {act}"));
                }
            }
        }
    }
    assert!(inside >= ACTS.len(), "the calls were not found");
    check("call it within Job::call", &findings);
}

/// Returns true if code that follows `before` is an argument of `Job::call`.
fn is_within_job_call(before: &str) -> bool {
    let Some((_, since)) = before.rsplit_once("job.call(") else {
        return false;
    };
    let mut open = 1;
    since.chars().all(|c| {
        match c {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        open > 0
    })
}

#[test]
fn a_call_outside_of_job_call_is_found() {
    assert!(is_within_job_call("job.call(work, |kernel, process| "));
    assert!(is_within_job_call("self.job.call(work, |k, p| { f(1); "));
    assert!(!is_within_job_call("job.call(work, |k, p| f(1)); "));
    assert!(!is_within_job_call("match "));
}

/// Code loaded into other programs must not panic, and must not rely on dropped thread-local values or on the kernel's random numbers.
/// Infallible operations are written without a panic path.
#[test]
fn nothing_ends_a_program_that_it_is_loaded_into() {
    const INSIDE: [&str; 12] = [
        "crates/sqlite/",
        "crates/preload/",
        "crates/region/",
        "crates/balance/",
        "crates/sys/src/membarrier.rs",
        "crates/sys/src/prefault.rs",
        "crates/sys/src/seccomp.rs",
        "crates/sys/src/own_mapping.rs",
        "crates/sys/src/memory_file.rs",
        "crates/sys/src/pagemap.rs",
        "crates/sys/src/remote_populate.rs",
        "crates/sys/src/address_space.rs",
    ];
    const ENDS: [&str; 13] = [
        ".unwrap()",
        ".expect(",
        "panic!(",
        "assert!(",
        "assert_eq!(",
        "assert_ne!(",
        "unreachable!(",
        // Split, so that this file does not contain it.
        concat!("to", "do!("),
        "process::abort",
        // These panic if the stream is closed.
        "eprintln!(",
        "println!(",
        // These need the kernel's random numbers, which a filter may refuse.
        "HashMap",
        "HashSet",
    ];
    let mut findings = Vec::new();
    for (path, code) in sources() {
        if !INSIDE.iter().any(|inside| path.starts_with(inside)) {
            continue;
        }
        let mut of_threads = false;
        for (number, line) in code.lines().enumerate() {
            let at = format!("{path}:{}", number + 1);
            // Compiled in tests only.
            let line = line.replace("debug_assert", "");
            let ends = ENDS.iter().filter(|ends| line.contains(**ends));
            findings.extend(ends.map(|ends| format!("{at}: {ends}")));
            // A thread-local value that is dropped is gone at the end of the thread, while SQLite is still active.
            of_threads = line.starts_with("thread_local!") || (of_threads && line != "}");
            let is_kept = line.contains(": Cell<") && !line.contains("Option<Box");
            if of_threads && line.contains("static ") && !is_kept {
                findings.push(format!("{at}: a Cell of what is not dropped"));
            }
        }
    }
    check("go on where something fails", &findings);
}

/// Comments use the words of docs/reference/glossary.md, and a doc comment starts with a sentence that stands alone in an index.
#[test]
fn comments_are_in_plain_english() {
    const NO_BEGINNING: [&str; 7] = [
        "So many ", "As many ", "What ", "Whether ", "Which ", "That ", "Of ",
    ];
    // They quote a screen or a flag of the JVM.
    const QUOTES: [&str; 2] = ["crates/report/src/why.rs", "crates/host/src/demand/jvm.rs"];
    let mut findings = Vec::new();
    for (path, text) in all_files() {
        if !path.ends_with(".rs") || path == "crates/cli/tests/tidy.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                continue;
            };
            let doc = comment.strip_prefix(['/', '!']).map(str::trim_start);
            let is_odd =
                doc.is_some_and(|doc| NO_BEGINNING.iter().any(|word| doc.starts_with(word)));
            let lower = comment.to_lowercase();
            let says = NEVER.iter().find(|word| lower.contains(**word));
            if is_odd || says.is_some() && !QUOTES.contains(&path.as_str()) {
                findings.push(format!("{path}:{}: {line}", number + 1));
            }
        }
    }
    check(GLOSSARY, &findings);
}

const GLOSSARY: &str = "say it as docs/reference/glossary.md does";
/// Words for which the glossary has another.
const NEVER: [&str; 12] = [
    "large page",
    "small page",
    "normal page",
    "part on large",
    "pages that nobody",
    "is nobody's",
    "bring back",
    "stranger",
    "by itself",
    "aloud",
    "under its hands",
    "goes without",
];

/// The README, the guide, the reference, results, help texts, screens, and the texts of programs.
#[test]
fn pages_and_screens_use_the_words_of_the_glossary() {
    // They quote other systems, name what was renamed, or are made from recorded runs.
    const QUOTES: [&str; 3] = [
        "docs/reference/glossary.md",
        "docs/reference/hosts.md",
        "docs/results/always.md",
    ];
    // Tests that quote a recorded result.
    const QUOTED: &str = "The base arm is memory whose large pages were split.";
    let is_page = |path: &str| {
        let name = Path::new(path).extension().and_then(|name| name.to_str());
        let of_screens = ["crates/", "fixtures/", "lab/"]
            .iter()
            .any(|of| path.starts_with(of));
        match name {
            Some("md") => {
                !path.contains('/')
                    || path.starts_with("docs/") && !path.starts_with("docs/internals/")
            }
            Some("txt" | "trycmd") => of_screens,
            Some("toml") => path.starts_with("workloads/"),
            _ => false,
        }
    };
    let mut findings = Vec::new();
    for (path, text) in all_files() {
        let is_code = path.ends_with(".rs") && path.contains("/src/") && !path.contains("/tests");
        if !is_code && !is_page(&path) || QUOTES.contains(&path.as_str()) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let prose: String = match is_code {
                // Quotes mark literals, backquotes names.
                true if line.trim_start().starts_with("//") => continue,
                true => line.split('"').skip(1).step_by(2).collect(),
                false => line.split('`').step_by(2).collect(),
            };
            let prose = prose.to_lowercase();
            if NEVER.iter().any(|word| prose.contains(word)) && !line.contains(QUOTED) {
                findings.push(format!("{path}:{}: {line}", number + 1));
            }
        }
    }
    check(GLOSSARY, &findings);
}

/// Unfinished work is an issue, not a comment.
#[test]
fn nothing_is_left_for_later() {
    // Split, so that this file does not contain them.
    let marks = [["TO", "DO"], ["FIX", "ME"], ["X", "XX"], ["TEMP ", "SKIP"]].map(|m| m.concat());
    let mut findings = Vec::new();
    for (path, text) in all_files() {
        if !path.ends_with(".rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                findings.push(format!("{path}:{}: {line}", number + 1));
            }
        }
    }
    check("finish it, or open an issue", &findings);
}

/// lib.rs starts with the purpose of its crate, its limits and its main types.
#[test]
fn every_crate_states_its_purpose() {
    let mut findings = Vec::new();
    for name in crates().iter().filter(|name| *name != "cli") {
        let path = format!("crates/{name}/src/lib.rs");
        let text = read(&path);
        let head: String = text.lines().take_while(|l| l.starts_with("//!")).collect();
        if !(head.contains("must not") && head.contains("ain types")) {
            findings.push(path);
        }
    }
    check(
        "say what it is for, what it must not do, and its main types",
        &findings,
    );
}

/// The header of a file with unsafe code states its reason and the basis of its safety.
#[test]
fn unsafe_code_is_explained() {
    let mut findings = Vec::new();
    for (path, code) in sources() {
        let is_allowed = code.contains("#![allow(unsafe_code)]");
        let is_unsafe = code.contains("unsafe ");
        if is_allowed && !is_unsafe {
            findings.push(format!("{path}: it allows unsafe code and has none"));
        }
        if is_unsafe && !read(&path).contains("//! # Safety") {
            findings.push(format!("{path}: no section `# Safety` in its header"));
        }
    }
    check("unsafe code", &findings);
}

/// Returns the project's crates in a manifest, without the `hugeleaf-`; the public library by its folder.
fn uses(name: &str) -> Vec<String> {
    let manifest = read(format!("crates/{name}/Cargo.toml"));
    let lines = manifest.lines();
    let section = lines.skip_while(|line| line.trim() != "[dependencies]");
    let section = section.skip(1).take_while(|line| !line.starts_with('['));
    let names = section.filter_map(|line| match line.strip_prefix("hugeleaf.") {
        Some(_) => Some("region".to_owned()),
        None => {
            let rest = line.strip_prefix("hugeleaf-")?;
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric());
            Some(rest[..end.unwrap_or(rest.len())].to_owned())
        }
    });
    names.collect()
}

/// Data flows one way: facts, judgement, change, proof, view.
#[test]
fn crates_use_only_what_lies_upstream() {
    const ALLOWED: [(&str, &str); 23] = [
        ("units", ""),
        ("testkit", "ask sys units host"),
        ("balance", "units"),
        ("preload", ""),
        ("sys", "units"),
        ("perf", "units sys"),
        ("host", "units sys"),
        ("ask", "sys"),
        ("trace", "units sys host perf"),
        ("verdict", "units host trace"),
        ("mover", "units sys host verdict"),
        ("plan", "units sys host verdict"),
        ("launcher", "units sys host verdict"),
        ("balancer", "ask units sys host balance mover"),
        ("region", "units sys host balance"),
        ("sqlite", "sys region"),
        ("capi", "sys region sqlite"),
        ("workload", "units sys host region sqlite"),
        (
            "proof",
            "ask units sys host perf verdict mover region workload",
        ),
        (
            "guard",
            "ask units sys host verdict mover plan proof balancer",
        ),
        (
            "report",
            "units host verdict mover plan launcher proof trace balancer guard",
        ),
        ("top", "units sys host verdict mover guard report"),
        (
            "cli",
            "units sys host verdict mover plan launcher region workload proof report trace balancer guard top",
        ),
    ];
    let mut findings = Vec::new();
    for name in crates() {
        let Some((_, may)) = ALLOWED.iter().find(|(n, _)| *n == name) else {
            findings.push(format!(
                "{name}: a new crate; list here and in ARCHITECTURE.md which crates it uses"
            ));
            continue;
        };
        let unexpected = uses(&name)
            .into_iter()
            .filter(|used| !may.split(' ').any(|m| m == used));
        findings.extend(unexpected.map(|used| format!("{name} uses {used}")));
    }
    check("the arrows of ARCHITECTURE.md", &findings);
}

/// A program that links `hugeleaf` gets few crates: none that counts, traces, starts programs or reads the settings of servers.
#[test]
fn the_library_brings_few_crates() {
    // Five of them run in the compiler only.
    const BROUGHT: &str = "hugeleaf hugeleaf-balance hugeleaf-host hugeleaf-sys hugeleaf-units bitflags libc linux-raw-sys \
        rustix serde serde-core serde-derive thiserror thiserror-impl proc-macro2 quote syn unicode-ident";
    let tree = std::process::Command::new(env!("CARGO"))
        .current_dir(repository())
        .args("tree --locked --offline --package hugeleaf --edges normal --prefix none".split(' '))
        .args(["--format", "{lib}|{f}"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{said}");
    let text = String::from_utf8(tree.stdout).unwrap();
    let mut findings = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, features) = line.split_once('|').unwrap();
        let name = name.replace('_', "-");
        if !BROUGHT.split_whitespace().any(|known| known == name) {
            findings.push(format!("it brings {name}"));
        }
        if name == "hugeleaf-host" && features.contains("full") {
            findings
                .push("it brings readers of processes and servers (feature full of host)".into());
        }
    }
    check(
        "a feature or another crate for what the library does not need",
        &findings,
    );
}

// --- examples of the library ---

/// Public items of the library have an example that `cargo test --doc` compiles: types, traits and re-exports in their own documents,
/// methods in any example that names their type.
#[test]
fn public_items_of_the_library_have_examples() {
    let files = all_files().into_iter();
    let is_library = |path: &str| path.starts_with("crates/region/src/") && path.ends_with(".rs");
    let files: Vec<(String, String)> = files
        .filter(|(path, _)| is_library(path) && !path.contains("/tests/"))
        .collect();
    let items = public_items(&files);
    assert!(items.len() > 50, "the public items were not found");
    let examples: Vec<String> = { files.iter() }
        .flat_map(|(_, text)| examples_of(text))
        .collect();
    let mut findings = Vec::new();
    for (path, text) in &files {
        let code = without_comments_and_tests(text);
        let lines: Vec<&str> = text.lines().collect();
        let mut of_type = None;
        for (at, line) in code.lines().enumerate() {
            let name = defined(line).filter(|name| items.contains(*name));
            if let Some(name) = name
                && examples_of(&documents_above(&lines[..at])).is_empty()
            {
                findings.push(format!("{path}:{}: {name}", at + 1));
            }
            if let Some(implements) = line.strip_prefix("impl ") {
                let name = implements.strip_suffix(" {").unwrap_or_default();
                of_type = items.get(name);
            }
            let Some((name, method)) = of_type.zip(method(line)) else {
                continue;
            };
            let calls = [format!(".{method}("), format!("{name}::{method}(")];
            let has_call = |example: &String| {
                has_word(example, name) && calls.iter().any(|call| example.contains(call))
            };
            if !examples.iter().any(has_call) {
                findings.push(format!("{path}:{}: {name}::{method}", at + 1));
            }
        }
    }
    check("show its use in an example", &findings);
}

/// Returns the names that lib.rs and its public modules re-export.
fn public_items(files: &[(String, String)]) -> BTreeSet<String> {
    let mut items = BTreeSet::new();
    for (path, text) in files {
        if !path.ends_with("/lib.rs") && !path.ends_with("/balance.rs") {
            continue;
        }
        let code = without_comments_and_tests(text);
        let uses = code.split(';').filter_map(|statement| {
            let statement = statement.trim();
            statement.strip_prefix("pub use ")
        });
        let mut paths = Vec::new();
        uses.for_each(|tree| spread(Vec::new(), tree, &mut paths));
        items.extend(paths.iter().filter_map(|path| path.last().cloned()));
    }
    items
}

/// Returns the name of the type, trait or re-export of one other crate that a line defines.
fn defined(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    if let Some(path) = rest.strip_prefix("use hugeleaf_") {
        return path.strip_suffix(';')?.rsplit("::").next();
    }
    let (kind, name) = rest.split_once(' ')?;
    let is_item = ["struct", "enum", "trait", "type", "const", "fn"].contains(&kind);
    is_item
        .then(|| name.split(|c| !is_part(c)).next())
        .flatten()
}

fn method(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("    pub ")?;
    let name = rest.trim_start_matches("const ").strip_prefix("fn ")?;
    name.split(['(', '<']).next()
}

fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|found| found == word)
}

/// Returns the doc comment that ends above an item, without its attributes.
fn documents_above(lines: &[&str]) -> String {
    let above = lines.iter().rev();
    let above = above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
    let mut above: Vec<&str> = above.copied().collect();
    above.reverse();
    above.join("\n")
}

/// Returns the examples in doc comments that rustdoc compiles.
fn examples_of(text: &str) -> Vec<String> {
    let mut examples = Vec::new();
    let mut open: Option<(bool, String)> = None;
    for line in text.lines() {
        let line = line.trim_start();
        let Some(doc) = { line.strip_prefix("///") }.or(line.strip_prefix("//!")) else {
            continue;
        };
        match (doc.trim_start().strip_prefix("```"), &mut open) {
            (Some(kind), None) => open = Some((["", "no_run"].contains(&kind), String::new())),
            (Some(_), Some(_)) => examples.extend(open.take().filter(|(runs, _)| *runs)),
            (None, Some((_, example))) => {
                example.push_str(doc);
                example.push('\n');
            }
            (None, None) => {}
        }
    }
    examples.into_iter().map(|(_, example)| example).collect()
}

/// `cargo test --doc` builds and starts a program for each crate, so it is off where no example runs.
#[test]
fn crates_without_examples_have_no_doc_tests() {
    let files = all_files();
    let (mut findings, mut crates) = (Vec::new(), 0);
    for (path, manifest) in &files {
        let Some(folder) = path.strip_suffix("Cargo.toml") else {
            continue;
        };
        let source = format!("{folder}src/");
        if !files
            .iter()
            .any(|(path, _)| *path == format!("{source}lib.rs"))
        {
            continue;
        }
        crates += 1;
        let mut of_crate =
            { files.iter() }.filter(|(path, _)| path.starts_with(&source) && path.ends_with(".rs"));
        let has_examples = of_crate.any(|(_, text)| !examples_of(text).is_empty());
        let is_off = manifest.lines().any(|line| line == "doctest = false");
        if has_examples == is_off {
            findings.push(format!(
                "{path}: examples: {has_examples}, doc tests: {}",
                !is_off
            ));
        }
    }
    assert!(crates > 20, "the crates were not found");
    check(
        "set doctest = false without examples, and only then",
        &findings,
    );
}

/// clippy reads one `clippy.toml` per crate, so those of crates repeat the root's.
#[test]
fn the_lints_of_a_crate_include_those_of_all() {
    let list = |path: &str| -> BTreeSet<String> {
        let lines = read(path);
        let lines = lines.lines().map(str::trim);
        lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect()
    };
    let general = list("clippy.toml");
    let mut findings = Vec::new();
    for name in crates() {
        let path = format!("crates/{name}/clippy.toml");
        if repository().join(&path).exists() {
            let of_crate = list(&path);
            let missing = general.difference(&of_crate);
            findings.extend(missing.map(|line| format!("{path}: {line}")));
        }
    }
    check("repeat the line", &findings);
}

/// Scripts count skipped tests by the start of their line, so the line has one form.
#[test]
fn tests_that_cannot_run_say_so_in_one_form() {
    let mut findings = Vec::new();
    for (path, text) in all_files() {
        let is_counted = path.starts_with("crates/") || path.starts_with("lab/tests/");
        if !is_counted || !path.ends_with(".rs") || path.ends_with("/tidy.rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let Some(said) = line.split("\"not run: ").nth(1) else {
                continue;
            };
            let name = said.split([':', '"']).next().unwrap();
            let is_name = |c: char| c.is_alphanumeric() || "_-{}.".contains(c);
            let is_good = name.starts_with("the part of ") || name.chars().all(is_name);
            if !is_good || !said[name.len()..].starts_with(": ") {
                findings.push(format!("{path}:{}", number + 1));
            }
        }
    }
    check(
        "say \"not run: NAME: REASON\" or \"not run: the part of NAME …: REASON\"",
        &findings,
    );
}

/// Texts must not contain paths of one machine or a package source other than the public one.
#[test]
fn no_text_names_one_machine() {
    // Split, so that this file does not contain them.
    let folders = [["/wo", "rk/"], ["/tmp/br", "ief"], ["/ro", "ot/."]].map(|f| f.concat());
    let mut findings = Vec::new();
    for (path, text) in all_files() {
        for folder in &folders {
            // Part of a longer path or address is another folder.
            let mut found = text.match_indices(folder);
            let is_whole =
                |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '.');
            if found.any(|(at, _)| is_whole(at)) {
                findings.push(format!("{path}: {folder}"));
            }
        }
        if path.ends_with("Cargo.lock") {
            let sources = text.lines().filter(|line| line.starts_with("source = "));
            let public = "registry+https://github.com/rust-lang/crates.io-index";
            let foreign = sources.filter(|line| !line.contains(public));
            findings.extend(foreign.map(|line| format!("{path}: {line}")));
        }
        // A registry is a setting of one machine; the variables of a build are not.
        let section = |line: &str| line.starts_with('[') && line != "[env]";
        if path.contains(".cargo/") && text.lines().any(section) {
            findings.push(format!("{path}: settings of one machine"));
        }
    }
    check("name nothing that only one machine has", &findings);
}

/// The changelog lists the changes of the current version.
#[test]
fn the_changelog_has_an_entry() {
    let text = read("CHANGELOG.md");
    let entry = text.split("\n## ").nth(1).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let is_current = entry.starts_with(version) || entry.starts_with("Unreleased");
    assert!(
        is_current && entry.contains("\n- "),
        "its first entry lists no change of version {version}"
    );
}

/// Declared and existing fuzz targets are the same.
#[test]
fn fuzz_targets_are_declared() {
    let manifest = read("fuzz/Cargo.toml");
    let lines = manifest.lines();
    let declared = lines.filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
    let declared: BTreeSet<String> = declared.map(|l| l.trim_end_matches('"').into()).collect();
    let folder = std::fs::read_dir(repository().join("fuzz/fuzz_targets")).unwrap();
    let present: BTreeSet<String> = folder
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(declared, present);
}

// --- circles of imports ---

/// Path of a file or name in a crate: `["why", "segment"]`; empty for the root.
type Place = Vec<String>;

/// A name that a file imports from its own crate; it may be re-exported.
struct Import {
    is_reexport: bool,
    place: Place,
}

/// Returns what a document has between backquotes, without its blocks of text.
fn quoted(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose
        .flat_map(|part| part.split('`').skip(1).step_by(2))
        .collect()
}

/// Each row of the list of attacks names a test, and a test that was renamed or removed keeps no promise. A name of four words, or of
/// two in a module, is a test or a function. The modules, files and types before it are those in which it is defined.
#[test]
fn tests_in_the_list_of_attacks_exist() {
    const OTHERS: [&str; 3] = [
        "perf_event_max_sample_rate", // of the kernel
        "stack_grow_into_huge",       // of libhugetlbfs
        "zeros_given_back_bytes",     // of JSON
    ];
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let files = all_files();
    let code = files.iter().filter(|(path, _)| {
        let folders = ["crates/", "lab/", "fuzz/", "python/", "scripts/"];
        folders.iter().any(|folder| path.starts_with(folder)) && !path.ends_with(".md")
    });
    let mut defined: BTreeMap<&str, Vec<&(String, String)>> = BTreeMap::new();
    for file in code {
        for mark in ["fn ", "def "] {
            for rest in file.1.split(mark).skip(1) {
                let name = rest.split(|c: char| !is_of_name(c)).next().unwrap();
                defined.entry(name).or_default().push(file);
            }
        }
    }
    let mut findings = Vec::new();
    let list = read("docs/internals/attacks.md");
    for quoted in quoted(&list) {
        let (before, name) = quoted.rsplit_once([':', ' ', '/']).unwrap_or(("", quoted));
        let modules: Vec<&str> = before
            .split([':', ' ', '/', '.'])
            .filter(|part| !part.is_empty() && *part != "rs")
            .collect();
        let is_lower = |module: &&str| module.starts_with(|c: char| c.is_ascii_lowercase());
        let in_module = before.ends_with(':') && modules.last().is_some_and(is_lower);
        let least = if in_module { 1 } else { 3 };
        let is_test = name.chars().all(is_of_name) && name.matches('_').count() >= least;
        let is_in = |(path, text): &&(String, String)| {
            modules.iter().all(|module| {
                let is_file = path.split(['/', '.']).any(|part| part == *module);
                let mut kinds = ["mod", "struct", "enum", "trait", "impl"].iter();
                is_file || kinds.any(|kind| text.contains(&format!("{kind} {module}")))
            })
        };
        let is_there = { defined.get(name) }.is_some_and(|places| places.iter().any(is_in));
        if is_test && !OTHERS.contains(&name) && !is_there {
            findings.push(quoted.to_owned());
        }
    }
    check("no function has that name in that place", &findings);
}

/// A merge that keeps both versions of a changed row leaves the old one behind.
#[test]
fn attacks_are_listed_once() {
    let list = read("docs/internals/attacks.md");
    let rows = list.lines().filter(|line| line.starts_with("| "));
    let attempts = rows.filter_map(|row| row.split(" | ").next());
    let mut seen = BTreeSet::new();
    let twice = attempts.filter(|attempt| *attempt != "| attempt" && !seen.insert(*attempt));
    let findings: Vec<String> = twice.map(str::to_owned).collect();
    check("keep the newer of both rows", &findings);
}

/// Paths in the documents for developers are below the root or `crates/`. Of one with a name to fill in, the folder exists.
#[test]
fn paths_in_documents_for_developers_exist() {
    const MADE: [&str; 1] = ["target/docs"];
    let exists = |path: &str| {
        let mut roots = ["", "crates"].iter();
        roots.any(|root| repository().join(root).join(path).exists())
    };
    let mut findings = Vec::new();
    for document in ["HACKING.md", "ARCHITECTURE.md"] {
        let text = read(document);
        for quoted in quoted(&text) {
            let path = quoted.split_whitespace().next().unwrap_or_default();
            let is_path =
                path.contains('/') && !path.starts_with('/') && !path.contains([':', '=']);
            let to_fill_in = ["NAME", "DATE", "*"]
                .iter()
                .filter_map(|mark| path.find(mark));
            let known = match to_fill_in.min() {
                Some(at) => path[..at].rsplit_once('/').map_or("", |(folder, _)| folder),
                None => path,
            };
            if is_path && !MADE.contains(&path) && !exists(known) {
                findings.push(format!("{document}: {path}"));
            }
        }
    }
    check("there is no such path", &findings);
}

/// A newcomer reads these pages in full, and follows the walk of a promotion with each file open once.
#[test]
fn first_pages_are_short_and_the_walk_names_each_file_once() {
    let mut findings = Vec::new();
    for document in ["HACKING.md", "ARCHITECTURE.md"] {
        let bytes = read(document).len();
        if bytes >= 8192 {
            findings.push(format!("{document}: {bytes} bytes, at most 8191"));
        }
    }
    let lines = read("README.md").lines().count();
    if lines > 130 {
        findings.push(format!("README.md: {lines} lines, at most 130"));
    }
    let text = read("ARCHITECTURE.md");
    let (_, walk) = text.split_once("\n## The walk of ").unwrap();
    let (walk, _) = walk.split_once("\n\nThese ").unwrap();
    let mut files = quoted(walk);
    files.retain(|name| name.ends_with(".rs"));
    let named = files.len();
    files.sort_unstable();
    files.dedup();
    if named != files.len() || named > 25 {
        findings.push(format!(
            "the walk names {} files in {named} places, at most 25 files once each",
            files.len()
        ));
    }
    for file in files.iter().filter(|name| !name.contains('/')) {
        if !repository().join("crates/mover/src").join(file).exists() {
            findings.push(format!("the walk: no {file} in mover/src"));
        }
    }
    check("shorten the page, or mend the walk", &findings);
}

/// Code that shares memory between threads or processes of programs runs under Miri and both sanitizers.
#[test]
fn shared_memory_is_checked_by_miri_and_sanitizers() {
    let mut findings = Vec::new();
    for (script, mark) in [
        ("scripts/sanitize.sh", "packages=("),
        ("scripts/test-all.sh", "miri test"),
    ] {
        let text = read(script);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(mark)).collect();
        let lines = lines.join(" ").replace(['(', ')'], " ");
        let words: Vec<&str> = lines.split_whitespace().collect();
        for package in ["hugeleaf", "hugeleaf-sqlite", "hugeleaf-balance"] {
            if !words.windows(2).any(|two| two == ["--package", package]) {
                findings.push(format!("{script}: {package}"));
            }
        }
    }
    check("run its tests there", &findings);
}

/// Files that import each other can only be read together.
#[test]
fn files_do_not_import_in_circles() {
    let sources = sources();
    let mut findings = Vec::new();
    for name in crates() {
        let folder = format!("crates/{name}/src/");
        let files = sources
            .iter()
            .filter_map(|(path, code)| Some((module_of(path.strip_prefix(&folder)?), &**code)));
        let found = circles(&files.collect());
        findings.extend(found.iter().map(|(file, used)| {
            format!(
                "{name}: {file} closes a circle by its import of {}",
                used.join(", ")
            )
        }));
    }
    check("move what both need into a file of its own", &findings);
}

fn module_of(path: &str) -> Place {
    let parts = path.trim_end_matches(".rs").split('/');
    let mut parts: Place = parts.map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// Returns the files in import cycles, as `why::segment`, each with the imports that close one.
fn circles(files: &BTreeMap<Place, &str>) -> BTreeMap<String, Vec<String>> {
    let imports: BTreeMap<&Place, Vec<Import>> = files
        .iter()
        .map(|(module, code)| (module, imports_of(module, code, files)))
        .collect();
    let edges: BTreeMap<&Place, BTreeSet<&Place>> = imports
        .iter()
        .map(|(module, of_file)| {
            let used = of_file.iter().filter(|import| !import.is_reexport);
            let used = used.filter_map(|import| file_of(&import.place, &imports));
            (*module, used.filter(|file| file != module).collect())
        })
        .collect();
    let shown = |file: &Place| match file.is_empty() {
        true => "crate".to_owned(),
        false => file.join("::"),
    };
    let closing = edges.iter().map(|(file, used)| {
        let closing = used.iter().filter(|used| reaches(used, file, &edges));
        (shown(file), closing.map(|used| shown(used)).collect())
    });
    closing
        .filter(|(_, used): &(String, Vec<String>)| !used.is_empty())
        .collect()
}

/// Returns the modules that a file imports from its own crate, by `use` and by paths in its code.
fn imports_of(module: &Place, code: &str, files: &BTreeMap<Place, &str>) -> Vec<Import> {
    let mut imports = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let mut words = statement.match_indices("use ");
        let start = words.find(|(at, _)| !statement[..*at].ends_with(is_part));
        let Some((at, _)) = start.filter(|_| statement.ends_with(';')) else {
            rest.push_str(statement);
            continue;
        };
        let (before, tree) = statement.split_at(at);
        let line = before.rsplit(['\n', '}']).next().unwrap_or("");
        let mut paths = Vec::new();
        spread(Vec::new(), &tree[4..tree.len() - 1], &mut paths);
        let of_crate = paths
            .iter()
            .filter_map(|path| absolute(module, path, files));
        imports.extend(of_crate.map(|place| Import {
            is_reexport: line.trim_start().starts_with("pub"),
            place,
        }));
        rest.push_str(before);
    }
    let is_end = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    let paths = rest.split(is_end).filter(|word| word.contains("::"));
    let paths = paths.map(|path| path.split("::").map(str::to_owned).collect());
    let of_crate = paths.filter_map(|path| absolute(module, &path, files));
    imports.extend(of_crate.map(|place| Import {
        is_reexport: false,
        place,
    }));
    imports
}

/// Expands `a::{b, c::{d, e}}` to `a::b`, `a::c::d`, `a::c::e`.
fn spread(before: Place, tree: &str, out: &mut Vec<Place>) {
    let mut depth = 0;
    let branches = tree.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for branch in branches.map(str::trim).filter(|b| !b.is_empty()) {
        let (path, inner) = match branch.split_once('{') {
            Some((path, inner)) => (path, inner.trim_end().strip_suffix('}')),
            None => (branch.split(" as ").next().unwrap_or(branch), None),
        };
        let mut place = before.clone();
        let parts = path.split("::").map(str::trim);
        place.extend(parts.filter(|p| !p.is_empty()).map(str::to_owned));
        match inner {
            Some(inner) => spread(place, inner, out),
            None => {
                if place.len() > 1 && place.last().is_some_and(|p| p == "self") {
                    place.pop();
                }
                out.push(place);
            }
        }
    }
}

/// Returns a path from the crate's root; `None` for a path into another crate.
fn absolute(module: &Place, path: &Place, files: &BTreeMap<Place, &str>) -> Option<Place> {
    let child = |name: &String| [module.as_slice(), std::slice::from_ref(name)].concat();
    let ups = path.iter().take_while(|part| *part == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&[][..], &path[1..]),
        "self" => (module.as_slice(), &path[1..]),
        "super" => (&module[..module.len().checked_sub(ups)?], &path[ups..]),
        _ if files.contains_key(&child(&path[0])) => (module.as_slice(), path.as_slice()),
        _ => return None,
    };
    Some([base, rest].concat())
}

/// Returns the file that defines the name at a place, following re-exports.
fn file_of<'a>(place: &Place, imports: &BTreeMap<&'a Place, Vec<Import>>) -> Option<&'a Place> {
    let mut place = place.clone();
    for _ in 0..8 {
        let mut len = (0..=place.len()).rev();
        let len = len.find(|len| imports.contains_key(&place[..*len].to_vec()))?;
        let (file, of_file) = imports.get_key_value(&place[..len].to_vec())?;
        let name = place.get(len);
        let from = of_file
            .iter()
            .find(|import| import.is_reexport && name.is_some() && import.place.last() == name);
        match from {
            Some(import) if import.place != place => place = import.place.clone(),
            _ => return Some(file),
        }
    }
    None
}

fn reaches(from: &Place, to: &Place, edges: &BTreeMap<&Place, BTreeSet<&Place>>) -> bool {
    let mut seen: BTreeSet<&Place> = BTreeSet::new();
    let mut open: Vec<&Place> = vec![from];
    while let Some(file) = open.pop() {
        if file == to {
            return true;
        }
        if seen.insert(file) {
            open.extend(&edges[file]);
        }
    }
    false
}

#[test]
fn circles_are_found_and_facades_are_none() {
    let found = |files: &[(&str, &'static str)]| -> Vec<String> {
        let files = files.iter().map(|(path, code)| (module_of(path), *code));
        circles(&files.collect()).into_keys().collect()
    };
    // A folder's file that re-exports functions on its types.
    let facade = [
        ("lib.rs", "mod a; use a::go;"),
        ("a.rs", "mod rules; pub use rules::go; pub struct T;"),
        ("a/rules.rs", "use super::T; pub fn go(t: T) {}"),
    ];
    assert!(found(&facade).is_empty());
    // The same if that file calls the function.
    let calls = [
        ("a.rs", "mod rules; pub struct T; fn f() { rules::go(T) }"),
        ("a/rules.rs", "use super::{T, U as V};"),
    ];
    assert_eq!(found(&calls), ["a", "a::rules"]);
    // A ring through a re-export.
    let ring = [
        ("a.rs", "use crate::b::N;"),
        ("b.rs", "mod inner; pub use inner::{self, N};"),
        ("b/inner.rs", "use crate::c::deep::{X, Y};"),
        ("c/deep.rs", "use crate::a;"),
        ("c/mod.rs", "pub mod deep;"),
    ];
    assert_eq!(found(&ring), ["a", "b::inner", "c::deep"]);
}
