//! The programs that run inside: hugeleaf and its tests, compiled for the guest's architecture.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::architecture::Architecture;
use crate::guest_payload::GuestPayload;
use crate::missing_precondition::missing;
use crate::process::{find, need, output, program};

/// A test program: a package's folder and the name of its test program, such as `vm/every_host`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestProgram {
    /// Folder below `crates`, or `vm` for this package, which is in the lab.
    pub krate: String,
    /// Cargo's name of the program.
    pub name: String,
}

impl TestProgram {
    /// Parses `CRATE/NAME`.
    ///
    /// # Errors
    /// If the text has another form.
    pub fn parse(text: &str) -> anyhow::Result<TestProgram> {
        match text.split_once('/') {
            Some((krate, name)) if !krate.is_empty() && !name.is_empty() => Ok(TestProgram {
                krate: krate.to_owned(),
                name: name.to_owned(),
            }),
            _ => bail!("a test program is CRATE/NAME, not {text:?}"),
        }
    }
}

#[derive(Debug)]
pub struct GuestPrograms {
    architecture: Architecture,
    /// The program `hugeleaf`.
    pub hugeleaf: PathBuf,
    tests: BTreeMap<TestProgram, PathBuf>,
}

/// Compiles hugeleaf and some of its test programs.
///
/// # Errors
/// [`MissingPrecondition`](crate::missing_precondition::MissingPrecondition) if there is no compiler for that architecture; otherwise
/// the errors of cargo.
pub fn build(
    repository: &Path,
    architecture: Architecture,
    tests: &[TestProgram],
) -> anyhow::Result<GuestPrograms> {
    let cargo = Cargo {
        repository,
        architecture,
    };
    let mut found = BuiltPrograms::default();
    let of_product = || tests.iter().filter(|test| test.krate != OWN);
    if Architecture::own() == Some(architecture) {
        // With the arguments of `make test`, so that nothing is compiled twice. hugeleaf itself is
        // made next to the tests of its crate.
        let mut arguments = vec!["test", "--workspace", "--no-run", "--test", "cli"];
        arguments.extend(of_product().flat_map(|test| ["--test", &test.name]));
        cargo.makes(&arguments, &mut found)?;
    } else {
        // Only the necessary packages, since they are compiled for this purpose alone.
        let hugeleaf = ["build", "--package", "hugeleaf-cli", "--bin", "hugeleaf"];
        cargo.makes(&hugeleaf, &mut found)?;
        let crates: BTreeSet<&str> = of_product().map(|test| test.krate.as_str()).collect();
        for krate in crates {
            let package = package_of(krate);
            let mut arguments = vec!["test", "--no-run", "--package", &package];
            let of_crate = tests.iter().filter(|test| test.krate == krate);
            arguments.extend(of_crate.flat_map(|test| ["--test", &test.name]));
            cargo.makes(&arguments, &mut found)?;
        }
    }
    let own = tests.iter().filter(|test| test.krate == OWN);
    let own: Vec<&str> = own.flat_map(|test| ["--test", &test.name]).collect();
    if !own.is_empty() {
        let lab = ["test", "--manifest-path", "lab/Cargo.toml", "--no-run"];
        let arguments = [&lab[..], &["--package", "hugeleaf-vm"], &own].concat();
        cargo.makes(&arguments, &mut found)?;
    }
    for test in tests {
        if !found.tests.contains_key(test) {
            bail!("there is no test program {}/{}", test.krate, test.name);
        }
    }
    Ok(GuestPrograms {
        architecture,
        hugeleaf: found.hugeleaf.context("cargo built no hugeleaf")?,
        tests: found.tests,
    })
}

const OWN: &str = "vm";

/// Returns the name of a crate's package, by its folder.
fn package_of(krate: &str) -> String {
    match krate {
        "region" => "hugeleaf".to_owned(),
        other => format!("hugeleaf-{other}"),
    }
}

struct Cargo<'a> {
    repository: &'a Path,
    architecture: Architecture,
}

impl Cargo<'_> {
    /// Runs cargo and adds the resulting programs.
    fn makes(&self, arguments: &[&str], found: &mut BuiltPrograms) -> anyhow::Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // One target folder for both workspaces.
        let named = std::env::var_os("CARGO_TARGET_DIR");
        let target = named.unwrap_or_else(|| "target".into());
        let mut command = program(cargo, arguments);
        command
            .args(["--locked", "--quiet", "--target-dir"])
            .arg(self.repository.join(target))
            .arg("--message-format=json-render-diagnostics")
            .current_dir(self.repository)
            .stderr(Stdio::inherit());
        if Architecture::own() != Some(self.architecture) {
            foreign(&mut command, self.architecture)?;
        }
        let out = command.output().context("cargo")?;
        if !out.status.success() {
            bail!("cargo ended in {}", out.status);
        }
        found.read(&String::from_utf8_lossy(&out.stdout), self.repository);
        Ok(())
    }
}

/// Sets cargo's options for an architecture other than this machine's.
fn foreign(command: &mut Command, architecture: Architecture) -> anyhow::Result<()> {
    let target = architecture.target();
    let linker = format!("{}gcc", architecture.tool_prefix());
    need(&linker, architecture.compiler_packages())?;
    add_target(target)?;
    let variable = target.to_uppercase().replace('-', "_");
    command
        .args(["--target", target, "--profile", "guest"])
        .env(format!("CARGO_TARGET_{variable}_LINKER"), linker);
    Ok(())
}

/// Installs Rust's libraries for a target by rustup, if they are missing.
fn add_target(target: &str) -> anyhow::Result<()> {
    let root = output(&mut program("rustc", &["--print", "sysroot"]))?;
    let libraries = Path::new(root.trim()).join("lib/rustlib").join(target);
    if libraries.join("lib").is_dir() {
        return Ok(());
    }
    let remedy = format!("rustup target add {target}");
    if find("rustup").is_none() {
        return Err(missing(
            format!("Rust has no libraries for {target}"),
            remedy,
        ));
    }
    output(&mut program("rustup", &["target", "add", target]))
        .map(|_| ())
        .map_err(|e| missing(format!("Rust's libraries for {target}: {e:#}"), remedy))
}

#[derive(Default)]
struct BuiltPrograms {
    hugeleaf: Option<PathBuf>,
    tests: BTreeMap<TestProgram, PathBuf>,
}

impl BuiltPrograms {
    fn read(&mut self, messages: &str, repository: &Path) {
        for line in messages.lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let Some(file) = message["executable"].as_str().map(PathBuf::from) else {
                continue;
            };
            let target = &message["target"];
            let name = target["name"].as_str().unwrap_or_default();
            match target["kind"][0].as_str() {
                // The program itself, not its unit tests.
                Some("bin") if name == "hugeleaf" && message["profile"]["test"] == false => {
                    self.hugeleaf = Some(file)
                }
                Some("test") => {
                    if let Some(krate) = krate_of(&message, repository) {
                        let name = name.to_owned();
                        self.tests.insert(TestProgram { krate, name }, file);
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the crate's folder below `crates` or `lab`, from the path of its manifest.
fn krate_of(message: &Value, repository: &Path) -> Option<String> {
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let below = |folder| manifest.strip_prefix(repository.join(folder));
    let inside = below("crates").or_else(|_| below("lab")).ok()?;
    Some(inside.parent()?.to_string_lossy().into_owned())
}

impl GuestPrograms {
    /// Adds hugeleaf and the files that its tests read to a guest.
    ///
    /// # Errors
    /// If there is no room.
    pub fn add_to(&self, guest: &GuestPayload, repository: &Path) -> anyhow::Result<()> {
        let copy = guest.add_of_repository(&self.hugeleaf)?;
        self.strip(&copy);
        guest.add(&copy, "bin")?;
        for folder in ["fixtures", "crates/cli/tests"] {
            guest.add_of_repository(&repository.join(folder))?;
        }
        Ok(())
    }

    /// Adds a test program to a guest, and returns its path there.
    ///
    /// # Errors
    /// If it was not compiled, or there is no room.
    pub fn add_test(&self, guest: &GuestPayload, test: &TestProgram) -> anyhow::Result<PathBuf> {
        let file = self.tests.get(test).context("not compiled")?;
        let copy = guest.add_of_repository(file)?;
        self.strip(&copy);
        guest.folder_of_repository(&scratch(file))?;
        Ok(file.clone())
    }

    /// Removes line tables, since a guest reads its disk slowly. Without the tool they stay.
    fn strip(&self, file: &Path) {
        let tool = match Architecture::own() == Some(self.architecture) {
            true => "strip".to_owned(),
            false => format!("{}strip", self.architecture.tool_prefix()),
        };
        let _ = output(program(tool, &["--strip-debug"]).arg(file));
    }
}

/// Returns the folder in which a test program may leave files, as set by cargo at compile time
/// (CARGO_TARGET_TMPDIR): `target/tmp` of `target/debug/deps/PROGRAM`.
pub fn scratch(program: &Path) -> PathBuf {
    let target = program.ancestors().nth(3).unwrap_or(program);
    target.join("tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_and_its_scratch_share_a_target() {
        let scratch = scratch(Path::new("/r/target/arm/guest/deps/mover-1"));
        assert_eq!(scratch, Path::new("/r/target/arm/tmp"));
    }

    #[test]
    fn what_cargo_says_is_sorted() {
        let line = |kind: &str, name: &str, test: bool, krate: &str, file: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "executable": file,
                "manifest_path": format!("/r/crates/{krate}/Cargo.toml"),
                "target": {"kind": [kind], "name": name}, "profile": {"test": test},
            })
            .to_string()
        };
        let messages = [
            line("bin", "hugeleaf", true, "cli", "/unit"),
            line("bin", "hugeleaf", false, "cli", "/hugeleaf"),
            line("bin", "hugeleaf-vm", false, "../lab/vm", "/another"),
            line("test", "oltp", true, "cli", "/a"),
            line("test", "oltp", true, "workload", "/b"),
            "no json".to_owned(),
        ]
        .join("\n");
        let mut found = BuiltPrograms::default();
        found.read(&messages, Path::new("/r"));
        assert_eq!(found.hugeleaf, Some(PathBuf::from("/hugeleaf")));
        let test = TestProgram::parse("workload/oltp").unwrap();
        assert_eq!(found.tests[&test], PathBuf::from("/b"));
        assert!(TestProgram::parse("oltp").is_err() && TestProgram::parse("/x").is_err());
    }
}
