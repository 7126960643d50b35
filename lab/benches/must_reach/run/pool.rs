//! Shared memory when the pool holds nothing, half, or two thirds of what is needed: the program
//! must run, come to the same result as it does bare, and `mem` must say what it got.

use std::process::Command;

use hugeleaf_units::Bytes;
use serde_json::{Value, json};

use super::arms::{Arm, RUN_POOL, ours};
use super::host::Host;
use super::look::{Look, look, resident};
use super::programs::Cluster;
use super::talk::{Talk, after};
use super::{Workshop, number};
use crate::record::Record;
use crate::{Asked, Failed, HUGELEAF, Mode};

/// What one run came to.
struct Ran {
    check: String,
    look: Look,
    resident: u64,
    /// What `hugeleaf mem` says of its roles.
    roles: Value,
}

/// A program with shared memory.
enum Subject {
    /// One process and its child; the kind of memory.
    Plain(std::path::PathBuf, &'static str, Bytes),
    PostgreSql(Box<Cluster>),
}

impl Subject {
    fn name(&self) -> &'static str {
        match self {
            Subject::Plain(_, kind, _) => kind,
            Subject::PostgreSql(_) => "postgresql",
        }
    }

    /// Shared memory that it needs.
    fn need(&self) -> Bytes {
        match self {
            Subject::Plain(_, _, bytes) => *bytes,
            Subject::PostgreSql(cluster) => cluster.shared(),
        }
    }

    fn run(&self, arm: &Arm) -> Result<Ran, Failed> {
        match self {
            Subject::Plain(program, kind, bytes) => {
                let mut command = arm.command(&program.to_string_lossy());
                let mut talk = Talk::start(command.args([kind, bytes.get().to_string().as_str()]))?;
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
            Subject::PostgreSql(cluster) => {
                let running = cluster.start(arm)?;
                let mut client = running.connect()?;
                let (pid, _) = cluster.fill(&mut client)?;
                let row = client.query_one(
                    "SELECT count(*)::text, sum(aid)::text, sum(abalance)::text \
                     FROM pgbench_accounts",
                    &[],
                )?;
                let parts: [String; 3] = [row.get(0), row.get(1), row.get(2)];
                Ok(Ran {
                    check: parts.join(" "),
                    look: look(pid)?,
                    resident: resident(running.server.pid())?,
                    roles: roles(pid)?,
                })
            }
        }
    }
}

/// Runs them.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let Some(host) = Host::lock("run-pool")? else {
        return Ok(());
    };
    let workshop = Workshop::new()?;
    let bytes = Bytes::from_mib(if asked.mode == Mode::Full { 1024 } else { 32 });
    let mut subjects = Vec::new();
    match workshop.compile("shared", include_str!("shared.c"))? {
        Some(program) => subjects
            .extend(["sysv", "anonymous"].map(|kind| Subject::Plain(program.clone(), kind, bytes))),
        None => println!("not run: sysv, anonymous: need a C compiler"),
    }
    match asked
        .wants("postgresql")
        .then(|| Cluster::new(asked.mode))
        .transpose()?
    {
        Some(Some(cluster)) => subjects.push(Subject::PostgreSql(Box::new(cluster))),
        Some(None) => println!("not run: postgresql: it is not installed"),
        None => {}
    }
    let mut record = Record::new("run-pool", "scripts/bench.sh run-pool");
    let mut wrong = Vec::new();
    for subject in subjects.iter().filter(|s| asked.wants(s.name())) {
        short(subject, &host, &mut record, &mut wrong)?;
    }
    record.figure("wrong", wrong);
    record.write(&asked.out)?;
    Ok(())
}

/// One program with each of the pools.
fn short(
    subject: &Subject,
    host: &Host,
    record: &mut Record,
    wrong: &mut Vec<String>,
) -> Result<(), Failed> {
    let name = subject.name();
    host.warm(subject.need())?;
    let bare = subject.run(&Arm::bare())?;
    let arm = ours(host, true)
        .into_iter()
        .find(|arm| arm.label == RUN_POOL)
        .ok_or("no such arm")?;
    let need = subject.need().get();
    for (label, pages) in [
        ("drained", 0),
        ("half of need", need / 2),
        ("two thirds of need", need / 3 * 2),
        ("all of need", need),
    ] {
        if host.is_asked_to_end() {
            return Err("ended by a signal".into());
        }
        host.warm(subject.need())?;
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
        "resident_over_bare": number(ran.resident) / number(bare.resident),
        "mem_says": ran.roles,
    })
}

/// The roles of a process as `hugeleaf mem` has them; null where it says none.
fn roles(pid: u32) -> Result<Value, Failed> {
    let pid = pid.to_string();
    let output = Command::new(HUGELEAF)
        .args(["mem", "--json", &pid])
        .output()?;
    let json: Value = serde_json::from_slice(&output.stdout)?;
    Ok(json["processes"][0]["roles"].clone())
}
