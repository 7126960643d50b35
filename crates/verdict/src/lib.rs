//! Judgement: from a snapshot to verdicts and findings.
//!
//! Pure functions: no I/O, no clock, no system call. A disputed verdict can be reproduced in a test from its
//! snapshot.
//!
//! [`eligible`] is the one place that knows what the kernel does and does not put on a huge page (a mapping, a block), what can be
//! split, and why. `why` explains it range by range; `mover` and `proof` act on it. `findings` examines a host.
//! `advice` makes every command that changes a setting: it checks a `Change` against the host's resources and against the other
//! commands of the screen. `pool_programs` knows which pool a program will use.
//!
//! `check` has one row per feature of a host. `check::judge` alone judges a setting and advises one value for all running
//! programs; what programs want is data (`data/programs.toml`), with sources. `reservation` limits the pools, for advice and for plans
//! (`hugeleaf-plan`). `predict` estimates the gain of a process, by a model with few constants fitted to proven gains.
//! `trace_findings` judges a trace: each finding names its evidence.
//!
//! A verdict has an id, a range, bytes, a text and a command. Each has a fixture that shows it and one that nearly does.
//!
//! This crate must not read the host and must not change it.
//!
//! Main types: [`why::RangeVerdict`], [`why::SegmentAccount`], [`why::Summary`], [`findings::Finding`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(not(test), warn(clippy::disallowed_types))]

pub mod advice;
pub mod check;
pub(crate) mod commit_limit;
pub mod eligible;
pub mod findings;
pub mod partial_blocks;
pub mod pod_limits;
pub mod pool_programs;
pub mod predict;
pub mod reservation;
pub mod role_results;
pub mod run_policy;
pub mod trace_findings;
pub mod unaligned_ends;
pub mod why;

/// Returns the name, with a number appended if it is taken: `db`, `db-2`.
pub fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2_u32..).map(|n| format!("{name}-{n}"));
    let mut all = std::iter::once(name.to_owned()).chain(numbered);
    all.find(|name| !taken(name)).unwrap_or_default()
}

/// Makes equal names unique by appending numbers to all but the first.
pub fn each_its_own<'a>(names: impl Iterator<Item = &'a mut String>) {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        *name = free_name(name, |name| seen.contains(name));
        seen.insert(name.clone());
    }
}

/// Joins items for a sentence: `2M, 1G`.
pub fn list(items: impl IntoIterator<Item = impl ToString>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    texts.join(", ")
}

/// Replaces control characters in untrusted text. Names of programs and files may contain anything,
/// including a line feed that would end a comment.
pub fn clean(text: &str) -> String {
    let safe = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(safe).collect()
}

/// Quotes a word for a shell. Names of processes and cgroups may contain anything, and users copy the
/// commands.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
