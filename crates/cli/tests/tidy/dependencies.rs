//! What may be a dependency, by `deny.toml`: the part of `make deny` that needs no other program than cargo.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::source::repository;
use crate::{check, read};

/// The words of a list in `deny.toml`.
fn words(of: &Value) -> Vec<&str> {
    let list = of.as_array().unwrap();
    list.iter().map(|word| word.as_str().unwrap()).collect()
}

fn deny() -> Value {
    toml::from_str(&read("deny.toml")).unwrap()
}

/// What cargo resolves for the targets of `deny.toml`, our own crates left out.
fn packages(deny: &Value) -> Vec<Value> {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo
        .current_dir(repository())
        .args(["metadata", "--locked", "--format-version", "1"]);
    for target in words(&deny["graph"]["targets"]) {
        cargo.args(["--filter-platform", target]);
    }
    let output = cargo.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .filter(|package| !package["source"].is_null())
        .cloned()
        .collect()
}

/// Whether a licence expression (SPDX; an old `/` is an OR) is met by licences that are allowed.
fn is_met(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    // The last operator outside of brackets that binds least.
    let mut depth = 0;
    let mut split = |operators: &[&str]| {
        (0..expression.len()).rev().find_map(|at| {
            match expression.as_bytes()[at] {
                b')' => depth += 1,
                b'(' => depth -= 1,
                _ => {}
            }
            let rest = expression.get(at..)?;
            let operator = operators
                .iter()
                .find(|o| depth == 0 && rest.starts_with(**o))?;
            Some((&expression[..at], &rest[operator.len()..]))
        })
    };
    if let Some((one, other)) = split(&[" OR ", "/"]) {
        return is_met(one, allowed) || is_met(other, allowed);
    }
    if let Some((one, other)) = split(&[" AND "]) {
        return is_met(one, allowed) && is_met(other, allowed);
    }
    let word = expression.trim();
    match word.strip_prefix('(').and_then(|w| w.strip_suffix(')')) {
        Some(inner) => is_met(inner, allowed),
        None => allowed(word),
    }
}

#[test]
fn licences_are_those_of_the_list() {
    let deny = deny();
    let general = words(&deny["licenses"]["allow"]);
    let exceptions = deny["licenses"]["exceptions"].as_array().unwrap();
    let mut unused: BTreeSet<&str> = (exceptions.iter())
        .map(|e| e["crate"].as_str().unwrap())
        .collect();
    let mut findings = Vec::new();
    for package in packages(&deny) {
        let name = package["name"].as_str().unwrap();
        let exception = exceptions.iter().find(|e| e["crate"] == name);
        let allowed = |licence: &str| {
            general.contains(&licence)
                || exception.is_some_and(|e| words(&e["allow"]).contains(&licence))
        };
        unused.remove(name);
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_met(licence, &allowed) {
            findings.push(format!("{name}: {licence}"));
        }
    }
    findings.extend(
        unused
            .iter()
            .map(|name| format!("{name}: is none any more")),
    );
    check(
        "a licence for deny.toml, with its reason, or no such dependency",
        &findings,
    );
}

#[test]
fn sources_are_the_registry() {
    let deny = deny();
    let registries = words(&deny["sources"]["allow-registry"]);
    let mut findings = Vec::new();
    for package in packages(&deny) {
        let source = package["source"].as_str().unwrap();
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        if !registries.contains(&registry) {
            findings.push(format!("{}: {source}", package["name"]));
        }
    }
    check("dependencies come from the registry", &findings);
}

#[test]
fn a_crate_is_compiled_in_one_version() {
    let deny = deny();
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages(&deny) {
        let word = |key: &str| package[key].as_str().unwrap().to_owned();
        versions
            .entry(word("name"))
            .or_default()
            .push(word("version"));
    }
    let mut skipped: BTreeSet<&str> = words(&deny["bans"]["skip"]).into_iter().collect();
    let mut findings = Vec::new();
    for (name, mut versions) in versions.into_iter().filter(|(_, v)| v.len() > 1) {
        versions.retain(|version| {
            let full = format!("{name}@{version}");
            let of_it = |skip: &&&str| {
                let rest = full.strip_prefix(**skip);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let skip = skipped.iter().find(of_it).copied();
            !skip.is_some_and(|skip| skipped.remove(skip))
        });
        if versions.len() > 1 {
            findings.push(format!("{name} {}", versions.join(" and ")));
        }
    }
    findings.extend(
        skipped
            .iter()
            .map(|skip| format!("{skip} is in one version by now")),
    );
    check(
        "one version of a crate, or the older one in deny.toml",
        &findings,
    );
}

#[test]
fn licence_expressions_are_read() {
    let mit = |licence: &str| licence == "MIT" || licence == "Zlib";
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR MIT) AND Zlib", true),
        ("(GPL-3.0 OR MIT) AND LGPL-2.1", false),
        ("Zlib AND (MIT OR GPL-3.0)", true),
        // AND binds more.
        ("MIT OR GPL-3.0 AND LGPL-2.1", true),
        ("GPL-3.0 WITH MIT", false),
    ] {
        assert_eq!(is_met(expression, &mit), met, "{expression}");
    }
}
