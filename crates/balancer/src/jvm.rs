//! A JVM: sets `SoftMaxHeapSize` by `jcmd`, if the collector respects it (ZGC, Shenandoah).
//!
//! A larger heap saves time of the collector's threads, which the kernel counts. So an observation needs no call into
//! the JVM. Only the flags are read by `jcmd`, which starts a JVM of its own, and therefore rarely.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hugeleaf_host::Root;
use hugeleaf_host::process::proc_parsers::parse_stat;
use hugeleaf_sys::{Deadline, Pid, confine, run_for_output};
use hugeleaf_units::Bytes;

use crate::process::named;
use crate::server::{
    CacheCounts, ConnectOptions, PATIENCE, ResizableServer, ServerKind, ServerObserver, ServerState,
};
use hugeleaf_ask::QueryError;

/// Interval between readings of its flags.
const FLAGS_HOLD: Duration = Duration::from_secs(30);
/// Maximum length of jcmd's answer, in bytes.
const LONGEST: usize = 256 << 10;

pub(crate) const KIND: ServerKind = ServerKind {
    names: &["jvm"],
    address: "PID, or a word of the command line that no other JVM has",
    example: "shop.jar",
    resizes: "`SoftMaxHeapSize` by jcmd, if the collector obeys it (ZGC, Shenandoah); the JVM returns memory after the collector's delay (ZUncommitDelay: 5 minutes by default)",
    benefit: "processor time of the collector's threads",
    // One tick of the kernel's clock, the unit of its processor times.
    miss: Duration::from_millis(10),
    processes: &["java"],
    is_shared: true,
    evicts: false,
    // Five minutes, plus the time until the collector checks.
    returns: Duration::from_secs(330),
    check: |address| match address.trim() {
        "" => Err("the address is empty".into()),
        name => Ok(name.to_owned()),
    },
    observe: |opening| Box::new(JvmReader::new(opening)),
    open: |opening| Box::new(Jvm(JvmReader::new(opening))),
};

/// Reads its state. The only command that it sends is `VM.flags`.
struct JvmReader {
    root: Root,
    address: String,
    /// The flags, with their process and the time of the request.
    flags: Option<(Pid, Instant, JvmFlags)>,
}

/// Sets its size.
struct Jvm(JvmReader);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct JvmFlags {
    soft_most: Option<Bytes>,
    most: Option<Bytes>,
    obeys: bool,
    collector: String,
}

/// Parses the table of `VM.flags -all` (`TYPE NAME = VALUE {…}`).
fn flags_in(table: &str) -> JvmFlags {
    let mut flags = JvmFlags::default();
    for (left, right) in table.lines().filter_map(|line| line.split_once('=')) {
        let name = left.split_ascii_whitespace().last().unwrap_or_default();
        let value = right.split_ascii_whitespace().next().unwrap_or_default();
        let bytes = || value.parse().ok().map(Bytes);
        match name {
            "SoftMaxHeapSize" => flags.soft_most = bytes().or(flags.soft_most),
            "MaxHeapSize" => flags.most = bytes().or(flags.most),
            _ => {}
        }
        let collector = name.strip_prefix("Use").and_then(|w| w.strip_suffix("GC"));
        if let Some(name) = collector
            && value == "true"
            && name != "Adaptive"
            && !name.contains("Explicit")
        {
            flags.collector = name.to_owned();
            flags.obeys |= matches!(name, "Z" | "Shenandoah");
        }
    }
    flags
}

/// Runs jcmd, and returns its output within bounds of length and time.
fn jcmd(pid: Pid, words: &[&str], question: Deadline<'_>) -> Result<String, QueryError> {
    let mut command = Command::new("jcmd");
    command
        .arg(pid.to_string())
        .args(words)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    confine(&mut command);
    let shown = words.join(" ");
    let said = run_for_output(&mut command, question, LONGEST).map_err(|e| match e.kind() {
        ErrorKind::TimedOut => QueryError::timeout(format!(
            "jcmd {pid} {shown}: no answer in {} s",
            question.time().as_secs()
        )),
        _ => QueryError::new(format!(
            "cannot run jcmd: {e}; install the JDK tools of the JVM's version"
        )),
    })?;
    match said.status.success() {
        true => Ok(said.stdout),
        false => Err(QueryError::new(format!(
            "jcmd {pid} {shown} failed ({}); run it by hand as the JVM's user",
            said.status
        ))),
    }
}

impl JvmReader {
    fn new(opening: &ConnectOptions) -> JvmReader {
        JvmReader {
            root: opening.root.clone(),
            address: opening.address.trim().to_owned(),
            flags: None,
        }
    }

    fn pid(&self) -> Result<Pid, QueryError> {
        if let Ok(number) = self.address.parse() {
            return Ok(Pid(number));
        }
        let found = named(&self.root, KIND.processes, &self.address);
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(QueryError::new(format!(
                "no JVM has '{}' in its command line",
                self.address
            ))),
            several => Err(QueryError::new(format!(
                "{} JVMs have '{}' in their command lines; use a word that only one of them has, or a PID",
                several.len(),
                self.address
            ))),
        }
    }

    fn flags(&mut self, pid: Pid) -> Result<JvmFlags, QueryError> {
        if let Some((of, at, flags)) = &self.flags
            && *of == pid
            && at.elapsed() < FLAGS_HOLD
        {
            return Ok(flags.clone());
        }
        let table = jcmd(pid, &["VM.flags", "-all"], Deadline::new(PATIENCE))?;
        let flags = flags_in(&table);
        self.flags = Some((pid, Instant::now(), flags.clone()));
        Ok(flags)
    }

    /// Returns the processor times of all its threads and of its collector threads, in ticks.
    fn times(&self, pid: Pid) -> Result<CacheCounts, QueryError> {
        let folder = format!("proc/{pid}/task");
        let tasks = self.root.list(&folder).known().cloned();
        let tasks = tasks.ok_or_else(|| QueryError::new(format!("process {pid} has ended")))?;
        let mut counts = CacheCounts::default();
        for task in tasks {
            let stat = self.root.parse(format!("{folder}/{task}/stat"), parse_stat);
            let Some(stat) = stat.known() else { continue };
            let ticks = stat.user_ticks + stat.system_ticks;
            counts.operations += ticks;
            if is_collector(&stat.name) {
                counts.misses += ticks;
            }
        }
        Ok(counts)
    }
}

/// Recognises collector threads by HotSpot's names, which the kernel cuts to 15 characters.
fn is_collector(name: &str) -> bool {
    // `ZWorker#0`, `ZUncommitter`, `ZStat`: a Z and a capital letter.
    let of_z = name.strip_prefix('Z').unwrap_or_default();
    of_z.starts_with(char::is_uppercase)
        || ["GC ", "G1 ", "Shenandoah"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

impl ServerObserver for JvmReader {
    fn observe(&mut self) -> Result<ServerState, QueryError> {
        let pid = self.pid()?;
        let counts = self.times(pid)?;
        let flags = self.flags(pid)?;
        let most = flags.most.unwrap_or_default();
        Ok(ServerState {
            size: flags.soft_most.unwrap_or(most),
            ceiling: flags.most,
            counts: Some(counts),
            fixed: (!flags.obeys || flags.soft_most.is_none()).then(|| {
                format!(
                    "its collector ({}) does not obey SoftMaxHeapSize; start the JVM with -XX:+UseZGC or -XX:+UseShenandoahGC",
                    flags.collector
                )
            }),
            pid: Some(pid),
            ..ServerState::default()
        })
    }
}

impl ResizableServer for Jvm {
    fn observer(&mut self) -> &mut dyn ServerObserver {
        &mut self.0
    }

    fn resize(&mut self, to: Bytes) -> Result<(), QueryError> {
        let pid = self.0.pid()?;
        self.0.flags = None;
        let size = to.get().to_string();
        let said = jcmd(
            pid,
            &["VM.set_flag", "SoftMaxHeapSize", &size],
            Deadline::new(PATIENCE),
        )?;
        // Its exit status is 0 even on failure.
        match said.to_ascii_lowercase().contains("successful") {
            true => Ok(()),
            false => Err(QueryError::new(format!(
                "VM.set_flag SoftMaxHeapSize {size}: {}",
                said.lines().nth(1).unwrap_or("no answer")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_whether_the_collector_obeys() {
        let table = "[Global flags]\n   size_t MaxHeapSize     = 1073741824   {product} {command line}\n   size_t SoftMaxHeapSize = 536870912 {manageable} {ergonomic}\n     bool UseG1GC = false {product}\n     bool UseZGC = true {product} {command line}\n";
        let flags = flags_in(table);
        assert_eq!(flags.soft_most, Some(Bytes::from_mib(512)));
        assert_eq!(flags.most, Some(Bytes::from_mib(1024)));
        assert!(flags.obeys && flags.collector == "Z");
        let table = "size_t MaxHeapSize = 5 {product}\nbool UseSerialGC = true {product}\n";
        let serial = flags_in(table);
        assert!(!serial.obeys && serial.collector == "Serial");
    }

    #[test]
    fn threads_of_collectors() {
        for name in [
            "GC Thread#0",
            "ZWorker#1",
            "ZUncommitter",
            "Shenandoah GC T",
            "G1 Conc#0",
        ] {
            assert!(is_collector(name), "{name}");
        }
        for name in [
            "main",
            "Zeta worker"[..5].trim(),
            "C2 CompilerThre",
            "VM Thread",
        ] {
            assert!(!is_collector(name), "{name}");
        }
    }
}
