//! `hugeleaf bench oltp`: whether the time goes into the database, and not into the kit that asks it.
//!
//! SQLite runs in the kit's own process, so a profile distinguishes them by function: what was compiled
//! from C in this program is SQLite, and its page cache is the database's too. PostgreSQL is distinguished
//! by process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use hugeleaf_trace::Trace;
use hugeleaf_trace::tables::Of;
use hugeleaf_trace::tables::profile::{SymbolRow, by_symbol};
use serde_json::Value;

use crate::record::{Record, median};
use crate::support::postgresql::programs;
use crate::{Asked, Failed, HUGELEAF, Mode};

/// Where the kit's own page cache is, which takes the place of SQLite's.
const CACHE: &str = "tpcc::sqlite::cache";

/// Runs both parts.
pub fn run(asked: &Asked) -> Result<(), Failed> {
    let workshop = tempfile::Builder::new()
        .prefix("hugeleaf-oltp-")
        .tempdir_in("/var/tmp")?;
    let mut record = Record::new("oltp-profile", "scripts/bench.sh oltp-profile");
    if asked.wants("sqlite") {
        sqlite(asked, workshop.path(), &mut record)?;
    }
    if asked.wants("postgres") {
        postgres(asked, workshop.path(), &mut record)?;
    }
    record.write(&asked.out).map(|_| ())
}

/// Flags of a run: warehouses that fit the cache, and no waiting for a disk.
fn load(mode: Mode) -> Vec<&'static str> {
    let size = match mode {
        Mode::Full => ["--warehouses", "10", "--shrink", "1", "--cache", "1280M"],
        Mode::Smoke => ["--warehouses", "2", "--shrink", "50", "--cache", "64M"],
    };
    let mut all = vec!["bench", "oltp", "--durability", "never", "--output"];
    all.push("/dev/null");
    all.extend(size);
    all
}

fn sqlite(asked: &Asked, folder: &Path, record: &mut Record) -> Result<(), Failed> {
    let database = format!("sqlite:{}", folder.join("data").display());
    let command = |seconds: u64| {
        let mut command = Command::new(HUGELEAF);
        command.args(load(asked.mode)).arg("--json");
        command.args(["--database", &database, "--ramp-up", "2s"]);
        command.args(["--for", &format!("{seconds}s")]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    if !command(1).status()?.success() {
        return Err("the database was not filled".into());
    }
    let seconds = match asked.mode {
        Mode::Full => 8,
        Mode::Smoke => 1,
    };
    let mut shares: [Vec<f64>; 4] = Default::default();
    for _ in 0..asked.rounds(3) {
        let mut child = command(seconds + 6).spawn()?;
        std::thread::sleep(Duration::from_secs(4));
        let file = folder.join("oltp.trace");
        let status = Command::new(HUGELEAF)
            .args(["trace", &child.id().to_string(), "--for"])
            .arg(format!("{seconds}s"))
            .arg("-o")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        let ended = child.wait()?;
        if !status.success() || !ended.success() {
            println!("not run: oltp-profile: the trace or the load was refused");
            return Ok(());
        }
        let found = shares_of(&hugeleaf_trace::read_trace(&file)?);
        for (all, share) in shares.iter_mut().zip(found) {
            all.push(share);
        }
    }
    let names = [
        "in SQLite and its page cache",
        "in the kernel, which reads and writes files for it",
        "in libc",
        "in the kit",
    ];
    for (name, all) in names.into_iter().zip(&shares) {
        record.figure(format!("SQLite, share of CPU time {name}"), median(all));
        record.arm(format!("SQLite, {name}"), "share of samples", all);
    }
    Ok(())
}

/// Database, kernel, libc, kit: shares of the samples of the target.
#[allow(clippy::cast_precision_loss)] // samples of seconds
fn shares_of(trace: &Trace) -> [f64; 4] {
    let mut sums = [0u64; 4];
    for row in by_symbol(trace, Of::Target) {
        sums[place_of(&row)] += row.samples;
    }
    let all = sums.iter().sum::<u64>().max(1) as f64;
    sums.map(|sum| sum as f64 / all)
}

fn place_of(row: &SymbolRow) -> usize {
    let module = file_of(&row.module);
    match row {
        row if row.kernel => 1,
        row if row.name.contains(CACHE) => 0,
        row if module == file_of(HUGELEAF) && is_from_c(&row.name) => 0,
        _ if module.starts_with("libc") => 2,
        _ => 3,
    }
}

fn file_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Names from Rust have a path; what has no name stands in brackets.
fn is_from_c(name: &str) -> bool {
    !name.contains("::") && !name.starts_with('[')
}

fn postgres(asked: &Asked, folder: &Path, record: &mut Record) -> Result<(), Failed> {
    if programs().is_none() {
        println!("not run: oltp-profile: PostgreSQL is not installed");
        return Ok(());
    }
    let below = folder.join("server");
    std::fs::create_dir(&below)?;
    open_to_all(folder)?;
    open_to_all(&below)?;
    let mut shares = Vec::new();
    for _ in 0..asked.rounds(2) {
        let output = Command::new(HUGELEAF)
            .args(load(asked.mode))
            .args(["--json", "--start", "postgres", "--below"])
            .arg(&below)
            .args(["--for", "8s", "--ramp-up", "2s"])
            .stderr(Stdio::null())
            .output()?;
        let result: Value = serde_json::from_slice(&output.stdout)?;
        let seconds = |name: &str| {
            let mut rows = result["rows"].as_array().into_iter().flatten();
            let row = rows.find(|row| row["quantity"]["name"] == name);
            row.and_then(|row| row["samples"][0]["value"].as_f64())
                .ok_or(format!("no row of {name}"))
        };
        let server = seconds("CPU of the server a second")?;
        let kit = seconds("CPU of the load's program a second")?;
        shares.push(server / (server + kit));
    }
    record.figure(
        "PostgreSQL, share of CPU time in the server",
        median(&shares),
    );
    record.arm("PostgreSQL, in the server", "share of CPU time", &shares);
    Ok(())
}

/// The server runs as another user.
fn open_to_all(folder: &Path) -> Result<(), Failed> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
