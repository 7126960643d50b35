//! `hugeleaf trace show --json`: the rows of the tables, joined to an answer.

use hugeleaf_host::fact::UNREADABLE;
use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Interval, Lock, LockAction, LockEvent, MemoryEvent, MemoryState};
use hugeleaf_trace::tables::interval_totals::{self, CpuTime};
use hugeleaf_trace::tables::locks::LockWaitsJson;
use hugeleaf_trace::tables::memory::{newest, segments, sizes};
use hugeleaf_trace::tables::not_measured::{TraceDataKind, all_not_measured, not_measured};
use hugeleaf_trace::tables::profile;
use hugeleaf_trace::tables::{TableScope, io_and_pins, locks, share};
use serde::Serialize;
use serde_json::{Value, json};

use super::TraceView;
use super::format::{float, when};
use crate::json::{answer, fields, merge_fields};

const DEPTH: usize = 12;

/// Returns the whole answer; with `only`, just these locks and their events.
pub fn json(shown: &TraceView<'_>, only: Option<&[&Lock]>) -> String {
    let trace = shown.trace;
    if let Some(only) = only {
        let list: Value = only.iter().map(|l| lock(trace, l, true)).collect();
        return answer(&json!({ "trace": about(shown), "locks": list }));
    }
    let measured = |what, of| measured(trace, what, of);
    let no_pins = TraceDataKind::PINS.map(|what| not_measured(trace, what));
    let pins = match no_pins.into_iter().collect::<Option<Vec<String>>>() {
        Some(why) => missing(&why.join("; ")),
        None => json!(io_and_pins::pins(trace)),
    };
    answer(&json!({
        "trace": about(shown),
        "intervals": intervals(trace),
        "cpu": measured(TraceDataKind::CpuTime, cpu),
        "profile": measured(TraceDataKind::CpuSamples, profile),
        "locks": measured(TraceDataKind::Locks, lock_table),
        "faults": measured(TraceDataKind::Vmstat, |t| json!({"by_page_size": interval_totals::faults_by_size(t)})),
        "pages": measured(TraceDataKind::Memory, pages),
        "segments": measured(TraceDataKind::Memory, |t| json!(newest(t).map_or(Vec::new(), segments))),
        "io": measured(TraceDataKind::Io, io),
        "memory": measured(TraceDataKind::Vmstat, memory),
        "pins": pins,
        "counters": trace.counters.iter().map(with_state).collect::<Value>(),
        "sources": trace.sources.iter().map(with_state).collect::<Value>(),
        "not_measured": not_measured_list(trace),
        "findings": findings(shown),
    }))
}

/// Returns `null` with a reason, for data that was not measured. An empty list or a 0 means that nothing occurred.
pub(super) fn missing(why: &str) -> Value {
    json!({ UNREADABLE: why })
}

/// Returns a measured part, or the reason why it was not measured.
pub(super) fn measured(trace: &Trace, what: TraceDataKind, of: fn(&Trace) -> Value) -> Value {
    not_measured(trace, what).map_or_else(|| of(trace), |why| missing(&why))
}

pub(super) fn not_measured_list(trace: &Trace) -> Value {
    let all = all_not_measured(trace).into_iter();
    all.map(|(what, why)| json!({"name": what.name(), "reason": why}))
        .collect()
}

pub fn callers_json(shown: &TraceView<'_>, function: &str, callers: &profile::Callers) -> String {
    let direct = callers.direct.iter().map(|row| {
        json!({"function": row.name, "module": row.module, "kernel": row.kernel, "samples": row.samples})
    });
    answer(&json!({
        "trace": about(shown),
        "function": function,
        "samples": callers.samples,
        "callers": direct.collect::<Value>(),
        "paths": callers.paths,
    }))
}

/// Returns target, host and time of the trace; the comparison uses it too.
pub(super) fn about(shown: &TraceView<'_>) -> Value {
    let (trace, host) = (shown.trace, &shown.trace.host);
    json!({
        "file": shown.file,
        "version": trace.tool_version,
        "command": trace.command,
        "started": when(trace),
        "seconds": trace.seconds,
        "asked_seconds": trace.asked_seconds,
        "ending": trace.ending,
        "clock_note": trace.clock_note,
        "notes": trace.notes,
        "target": trace.target,
        "host": {
            "name": host.name,
            "kernel": host.kernel,
            "arch": host.arch,
            "cpu_model": host.cpu_model,
            "cpus": host.cpus,
            "memory_bytes": host.memory_bytes,
            "base_page_bytes": host.base_page_bytes,
            "pmd_page_bytes": host.pmd_page_bytes,
            "nodes": host.nodes,
            "virtual": host.virtual_machine,
        },
    })
}

pub(super) fn cpu(trace: &Trace) -> Value {
    let time = |cpu: &CpuTime, is_host: bool| {
        let of_host = |value: f64| is_host.then_some(value);
        json!({
            "user_seconds": cpu.user,
            "system_seconds": cpu.system,
            "idle_seconds": of_host(cpu.idle),
            "wait_seconds": of_host(cpu.wait),
            "steal_seconds": of_host(cpu.steal),
            "system_over_user": cpu.system_over_user(),
            "user_share": cpu.share(cpu.user).and_then(of_host),
            "system_share": cpu.share(cpu.system).and_then(of_host),
        })
    };
    let target = interval_totals::target_cpu(trace).filter(|_| trace.target.is_some());
    json!({
        "host": time(&interval_totals::host_cpu(trace), true),
        "target": target.map(|cpu| time(&cpu, false)),
    })
}

/// Fields of intervals from `/proc/stat`, and those from `/proc/vmstat`.
const STAT: [&str; 9] = [
    "user_seconds",
    "system_seconds",
    "idle_seconds",
    "wait_seconds",
    "steal_seconds",
    "runnable",
    "blocked",
    "context_switches",
    "forks",
];
const VMSTAT: [&str; 6] = [
    "faults",
    "faults_major",
    "page_in_bytes",
    "page_out_bytes",
    "swap_in_bytes",
    "swap_out_bytes",
];

/// Returns the intervals without unmeasured fields; 0 would be false.
pub(super) fn intervals(trace: &Trace) -> Value {
    let lacks = |what| not_measured(trace, what).is_some();
    let all = [
        TraceDataKind::CpuTime,
        TraceDataKind::Vmstat,
        TraceDataKind::Io,
    ];
    let [stat, vmstat, io] = all.map(lacks);
    let interval = |interval: &Interval| {
        let mut of = fields(interval);
        let held = of.remove("host_by_size");
        of.insert("by_page_size".to_owned(), held.into());
        of.retain(|name, _| {
            !(stat && STAT.contains(&name.as_str()) || vmstat && VMSTAT.contains(&name.as_str()))
        });
        if vmstat {
            of.insert("faults_by_size".to_owned(), json!([]));
        }
        if let Some(Value::Object(target)) = of.get_mut("target") {
            let held = target.remove("by_size");
            target.insert("by_page_size".to_owned(), held.into());
            target.retain(|name, _| !(io && matches!(name.as_str(), "read_bytes" | "write_bytes")));
        }
        Value::Object(of)
    };
    trace.intervals.iter().map(interval).collect()
}

fn shared(row: impl Serialize, samples: u64, all: u64) -> Value {
    merge_fields(row, json!({ "share": share(samples, all) }))
}

pub(super) fn functions(trace: &Trace, of: TableScope) -> Value {
    let all = profile::modes(trace, of).total();
    let rows = profile::by_symbol(trace, of).into_iter();
    let rows = rows.filter(|row| row.samples > 0);
    rows.map(|row| shared(&row, row.samples, all)).collect()
}

fn profile(trace: &Trace) -> Value {
    let counted = profile::counted(trace);
    let processes = profile::by_process(trace).into_iter();
    let processes = processes.map(|row| shared(&row, row.modes.total(), counted.busy));
    let threads = profile::by_thread(trace, TableScope::Host).into_iter();
    let threads = threads.map(|row| shared(&row, row.modes.total(), counted.busy));
    json!({
        "sampled_by": trace.sampled_by,
        "samples_a_second": trace.samples_a_second,
        "busy_samples": counted.busy,
        "idle_samples": counted.idle,
        "processes": processes.collect::<Value>(),
        "threads": threads.collect::<Value>(),
        "functions": functions(trace, TableScope::Host),
        "target_functions": trace.target.as_ref().map(|_| functions(trace, TableScope::Target)),
    })
}

fn lock_table(trace: &Trace) -> Value {
    let table = locks::table(trace);
    let others = json!({ "locks": table.others_count });
    let list = table.rows.iter().map(|row| lock(trace, row.lock, false));
    let more = json!({
        "locks": list.collect::<Value>(),
        "others": merge_fields(LockWaitsJson::from(&table.others), others),
    });
    merge_fields(LockWaitsJson::from(&table.all), more)
}

fn lock(trace: &Trace, lock: &Lock, with_events: bool) -> Value {
    let all = locks::table(trace).all.waited_nanos;
    let more = json!({
        "address": lock.address,
        "name": lock.name,
        "kind": lock.kind.name(),
        "function": locks::function(trace, lock),
        "share": share(lock.totals.waited_nanos, all),
        "failed": lock.failed,
        "threads": locks::by_thread(trace, Some(lock)),
        "callers": locks::by_caller(trace, Some(lock), DEPTH),
        "callers_estimated": lock.callers_estimated,
        "events": with_events.then(|| lock.events.iter().map(|e| event(trace, e)).collect::<Value>()),
        "events_left_out": with_events.then_some(lock.events_left_out),
    });
    merge_fields(LockWaitsJson::from(&lock.totals), more)
}

fn event(trace: &Trace, event: &LockEvent) -> Value {
    let has_waited = event.what != LockAction::Waits;
    let symbol = |place: u32| trace.symbols[place as usize].name.as_str();
    json!({
        "at_seconds": float(event.at_nanos) / 1e9,
        "what": event.what,
        "pid": trace.processes[event.process as usize].pid,
        "tid": event.tid,
        "cpu": event.cpu,
        "waited_seconds": has_waited.then_some(float(event.waited_nanos) / 1e9),
        "function": event.function.map(symbol),
    })
}

pub(super) fn pages(trace: &Trace) -> Value {
    let tables = |state: &Option<MemoryState>| state.as_ref().and_then(|m| m.page_tables_bytes);
    json!({
        "host": sizes(trace, TableScope::Host),
        "target": trace.target.as_ref().map(|_| sizes(trace, TableScope::Target)),
        "page_tables_before_bytes": tables(&trace.memory_before),
        "page_tables_after_bytes": tables(&trace.memory_after),
    })
}

fn memory(trace: &Trace) -> Value {
    let event = |e: &MemoryEvent| {
        let process = e.process.map(|p| &trace.processes[p as usize]);
        json!({
            "name": e.name,
            "detail": e.detail,
            "pid": process.map(|p| p.pid),
            "process": process.map(|p| &p.name),
            "tid": e.tid,
            "count": e.count,
            "pages": e.pages,
            "seconds": e.nanos.map(|n| float(n) / 1e9),
        })
    };
    let events = trace.memory_events.iter().map(event);
    json!({ "counters": trace.memory_counters, "events": events.collect::<Value>() })
}

pub(super) fn io(trace: &Trace) -> Value {
    let thread = |row: io_and_pins::IoRow| {
        // Bytes moved, which are not always visible in the calls.
        let (read, written) = io_and_pins::moved(&row.io);
        merge_fields(row, json!({ "read_bytes": read, "write_bytes": written }))
    };
    let threads = io_and_pins::io_by_thread(trace).into_iter().map(thread);
    merge_fields(
        io_and_pins::work(trace),
        json!({ "threads": threads.collect::<Value>() }),
    )
}

/// Returns a source or a counter, with its state among its own fields.
fn with_state(model: &impl Serialize) -> Value {
    let mut of = fields(model);
    if let Some(Value::Object(mut state)) = of.remove("state") {
        let is = state.remove("is");
        of.insert("state".to_owned(), is.into());
        of.extend(state);
    }
    Value::Object(of)
}

pub(super) fn findings(shown: &TraceView<'_>) -> Value {
    let row = |finding: &hugeleaf_verdict::trace_findings::TraceFinding| {
        let effects: Vec<&str> = finding.effects.iter().map(|e| e.name()).collect();
        json!({"id": finding.id, "severity": finding.severity.name(), "effects": effects,
            "text": finding.text, "evidence": finding.evidence, "command": shown.command(finding)})
    };
    shown.findings.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing;
    use super::*;
    use hugeleaf_verdict::trace_findings::findings as judge;

    #[test]
    fn everything_is_there_and_what_is_absent_is_missing() {
        let trace = testing::pinning();
        let findings = judge(&trace);
        let shown = TraceView {
            trace: &trace,
            findings: &findings,
            file: "f.trace",
        };
        let value: Value = serde_json::from_str(&json(&shown, None)).unwrap();
        assert_eq!(value["schema"], 2);
        assert_eq!(value["trace"]["target"]["text"], "mover");
        let over = value["cpu"]["target"]["system_over_user"].as_f64().unwrap();
        assert!((over - 5.0).abs() < 1e-9);
        assert_eq!(
            value["profile"]["functions"][0]["function"],
            "mlock_pte_range"
        );
        assert_eq!(value["locks"]["locks"][0]["share"], 1.0);
        assert!(value["locks"]["locks"][0].get("events").is_none());
        assert_eq!(value["pages"]["target"][0]["kind"], "base");
        assert_eq!(value["io"]["read_calls"], 1000);
        assert_eq!(value["sources"][0]["state"], "not-here");
        assert_eq!(value["findings"][0]["id"], "pin-locking");
        let only = [&trace.locks[0]];
        let value: Value = serde_json::from_str(&json(&shown, Some(&only))).unwrap();
        assert_eq!(value["locks"][0]["events"][1]["what"], "got");
        assert!(value.get("cpu").is_none());
    }

    #[test]
    fn an_empty_trace_is_an_answer() {
        let trace = Trace::default();
        let shown = TraceView {
            trace: &trace,
            findings: &[],
            file: "f",
        };
        let value: Value = serde_json::from_str(&json(&shown, None)).unwrap();
        assert!(value["cpu"].get("target").is_none());
        assert!(value["io"].get("bytes_a_second").is_none());
    }
}
