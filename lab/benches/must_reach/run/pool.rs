//! Shared memory with a pool that holds nothing, half, or two thirds of the demand. The program
//! must run with the same result as without hugeleaf, and `mem` must report its pages.

use std::path::PathBuf;
use std::process::Command;

use hugeleaf_units::Bytes;
use serde_json::{Value, json};

use super::arms::Arm;
use super::host::Host;
use super::look::{Look, look, resident};
use super::talk::{Talk, after};
use super::{compile, folder};
use crate::record::Record;
use crate::{Asked, Failed, HUGELEAF, Mode};

/// Result of one run.
struct Ran {
    check: String,
    look: Look,
    resident: u64,
    /// Roles reported by `hugeleaf mem`.
    roles: Value,
}

/// A program with shared memory: one process and its child.
struct Subject {
    program: PathBuf,
    /// Kind of memory.
    kind: &'static str,
    /// Size of the memory.
    bytes: Bytes,
}

impl Subject {
    fn run(&self, arm: &Arm) -> Result<Ran, Failed> {
        let mut command = arm.command(&self.program.to_string_lossy());
        command.arg(self.kind).arg(self.bytes.get().to_string());
        let mut talk = Talk::start(&mut command)?;
        let said = talk.until_ready()?;
        let ran = Ran {
            check: after(&said, "check").unwrap_or_default().to_owned(),
            look: look(talk.pid())?,
            resident: resident(talk.pid())?,
            roles: roles(talk.pid())?,
        };
        talk.tell("\n")?;
        talk.until_end()?;
        Ok(ran)
    }
}

/// Runs the benchmark.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let Some(host) = Host::lock("run-pool")? else {
        return Ok(());
    };
    let workshop = folder()?;
    let bytes = Bytes::from_mib(if asked.mode == Mode::Full { 1024 } else { 32 });
    let Some(program) = compile(workshop.path(), "shared", include_str!("shared.c"))? else {
        println!("not run: run-pool: needs a C compiler");
        return Ok(());
    };
    let subjects = ["sysv", "anonymous"].map(|kind| Subject {
        program: program.clone(),
        kind,
        bytes,
    });
    let mut record = Record::new("run-pool", "scripts/bench.sh run-pool");
    let mut wrong = Vec::new();
    for subject in subjects.iter().filter(|s| asked.wants(s.kind)) {
        short(subject, &host, &mut record, &mut wrong)?;
    }
    record.figure("wrong", wrong);
    record.write(&asked.out)?;
    Ok(())
}

/// Runs one program with each of the pools.
fn short(
    subject: &Subject,
    host: &Host,
    record: &mut Record,
    wrong: &mut Vec<String>,
) -> Result<(), Failed> {
    let name = subject.kind;
    host.warm(subject.bytes)?;
    let bare = subject.run(&Arm::bare())?;
    let arm = Arm::pool();
    let need = subject.bytes.get();
    for (label, pages) in [
        ("drained", 0),
        ("half of need", need / 2),
        ("two thirds of need", need / 3 * 2),
        ("all of need", need),
    ] {
        if host.is_asked_to_end() {
            return Err("ended by a signal".into());
        }
        host.warm(subject.bytes)?;
        let _pool = host.fill_pool(Bytes(pages))?;
        let case = format!("{name}, pool {label}");
        match subject.run(&arm) {
            Ok(ran) => {
                let is_right = ran.check == bare.check;
                if !is_right {
                    wrong.push(format!("{case}: {} and not {}", ran.check, bare.check));
                }
                record.figure(case, figures(&ran, &bare, is_right));
            }
            Err(e) => wrong.push(format!("{case}: {e}")),
        }
    }
    Ok(())
}

fn figures(ran: &Ran, bare: &Ran, is_right: bool) -> Value {
    json!({
        "same_result_as_bare": is_right,
        "shared_resident_bytes": ran.look.shared.resident,
        "shared_hugetlb_bytes": ran.look.shared.hugetlb,
        "shared_thp_bytes": ran.look.shared.thp,
        "shared_on_large": ran.look.shared.coverage(),
        "resident_over_bare": ran.resident as f64 / bare.resident as f64,
        "mem_says": ran.roles,
    })
}

/// Returns the roles of a process as reported by `hugeleaf mem`; null if there are none.
fn roles(pid: u32) -> Result<Value, Failed> {
    let pid = pid.to_string();
    let output = Command::new(HUGELEAF)
        .args(["mem", "--json", &pid])
        .output()?;
    let json: Value = serde_json::from_slice(&output.stdout)?;
    Ok(json["processes"][0]["roles"].clone())
}
