//! `hugeleaf trace show --json`.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Held, Interval, Lock, LockAction, LockTotals, SourceState};
use hugeleaf_trace::tables::intervals::{self, CpuTime};
use hugeleaf_trace::tables::measured::{Collection, all_not_measured, not_measured};
use hugeleaf_trace::tables::memory::{SizeRow, Whose, newest, segments, sizes};
use hugeleaf_trace::tables::profile::{self, Modes, SymbolRow};
use hugeleaf_trace::tables::{Of, locks, share, work};
use hugeleaf_verdict::trace::TraceFinding;
use serde_json::{Value, json};

use super::Shown;
use super::words::{float, when};
use crate::json::Object;

/// Functions on the way to a lock that are listed.
const WAY: usize = 12;

/// The whole answer; with locks, those alone, and their events.
pub fn json(shown: &Shown<'_>, only: Option<&[&Lock]>) -> String {
    let trace = shown.trace;
    let mut answer = Object::answer();
    answer.put("trace", about(shown));
    if let Some(only) = only {
        let list: Vec<Value> = only.iter().map(|l| lock(trace, l, true)).collect();
        answer.put("locks", list);
        return answer.render();
    }
    answer.put("intervals", intervals(trace));
    type Of = fn(&Trace) -> Value;
    let parts: [(&str, Collection, Of); 8] = [
        ("cpu", Collection::CpuTime, cpu),
        ("profile", Collection::CpuSamples, profile),
        ("locks", Collection::Locks, lock_table),
        ("faults", Collection::Vmstat, faults),
        ("pages", Collection::Memory, pages),
        ("segments", Collection::Memory, segment_list),
        ("io", Collection::Io, io),
        ("memory", Collection::Vmstat, memory),
    ];
    for (name, what, of) in parts {
        put_measured(&mut answer, trace, name, what, of);
    }
    let missing = Collection::PINS.map(|what| not_measured(trace, what));
    match missing.iter().all(Option::is_some) {
        true => {
            let why = missing.into_iter().flatten().collect::<Vec<_>>().join("; ");
            answer.put("pins", Value::Null).put("pins_error", why)
        }
        false => answer.put("pins", pins(trace)),
    };
    answer
        .put("counters", counters(trace))
        .put("sources", sources(trace))
        .put("not_measured", not_measured_list(trace))
        .put("findings", findings(shown));
    answer.render()
}

/// A part of what was measured, or `null` with why it was not: an empty list and a 0 say that there was
/// nothing.
pub(super) fn put_measured(
    object: &mut Object,
    trace: &Trace,
    name: &str,
    what: Collection,
    of: fn(&Trace) -> Value,
) {
    match not_measured(trace, what) {
        None => object.put(name, of(trace)),
        Some(why) => object
            .put(name, Value::Null)
            .put(&format!("{name}_error"), why),
    };
}

/// All that was not measured.
pub(super) fn not_measured_list(trace: &Trace) -> Value {
    let all = all_not_measured(trace).into_iter();
    all.map(|(what, why)| json!({"name": what.name(), "reason": why}))
        .collect()
}

/// Who called a function.
pub fn callers_json(shown: &Shown<'_>, function: &str, callers: &profile::Callers) -> String {
    let direct = callers.direct.iter().map(|row| {
        json!({"function": row.name, "module": row.module, "kernel": row.kernel,
            "samples": row.samples})
    });
    let paths = callers.paths.iter();
    let paths = paths.map(|path| json!({"path": path.names, "samples": path.samples}));
    let mut answer = Object::answer();
    answer
        .put("trace", about(shown))
        .put("function", function)
        .put("samples", callers.samples)
        .put("callers", direct.collect::<Vec<_>>())
        .put("paths", paths.collect::<Vec<_>>());
    answer.render()
}

/// What was traced, where and when; the comparison uses it too.
pub(super) fn about(shown: &Shown<'_>) -> Value {
    let trace = shown.trace;
    let mut about = Object::new();
    about
        .put("file", shown.file)
        .put("version", trace.tool_version.as_str())
        .put("command", trace.command.clone())
        .put("started", when(trace))
        .put("seconds", trace.seconds)
        .put("asked_seconds", trace.asked_seconds)
        .put(
            "ending",
            serde_json::to_value(trace.ending).unwrap_or(Value::Null),
        )
        .put_some("clock_note", trace.clock_note.clone())
        .put("notes", trace.notes.clone());
    if let Some(target) = &trace.target {
        about.put("target", json!({"text": target.text, "pids": target.pids}));
    }
    let host = &trace.host;
    let mut of = Object::new();
    of.put("name", host.name.as_str())
        .put("kernel", host.kernel.as_str())
        .put("arch", host.arch.as_str())
        .put_some("cpu_model", host.cpu_model.clone())
        .put("cpus", host.cpus)
        .put_some("memory_bytes", host.memory_bytes)
        .put("base_page_bytes", host.base_page_bytes)
        .put_some("pmd_page_bytes", host.pmd_page_bytes)
        .put("nodes", host.nodes.clone())
        .put_some("virtual", host.virtual_machine);
    about.put("host", of.build());
    about.build()
}

fn cpu_time(cpu: &CpuTime, is_host: bool) -> Value {
    let mut object = Object::new();
    object
        .put("user_seconds", cpu.user)
        .put("system_seconds", cpu.system);
    if is_host {
        object
            .put("idle_seconds", cpu.idle)
            .put("wait_seconds", cpu.wait)
            .put("steal_seconds", cpu.steal);
    }
    object
        .put_some("system_over_user", cpu.system_over_user())
        .put_some("user_share", cpu.share(cpu.user).filter(|_| is_host))
        .put_some("system_share", cpu.share(cpu.system).filter(|_| is_host));
    object.build()
}

pub(super) fn cpu(trace: &Trace) -> Value {
    let mut object = Object::new();
    object.put("host", cpu_time(&intervals::host_cpu(trace), true));
    if let (Some(_), Some(cpu)) = (&trace.target, intervals::target_cpu(trace)) {
        object.put("target", cpu_time(&cpu, false));
    }
    object.build()
}

fn held(table: &[Held]) -> Value {
    let row = |h: &Held| json!({"page_bytes": h.page_bytes, "kind": h.kind, "bytes": h.bytes});
    table.iter().map(row).collect()
}

pub(super) fn intervals(trace: &Trace) -> Value {
    let seen = [Collection::CpuTime, Collection::Vmstat, Collection::Io]
        .map(|what| not_measured(trace, what).is_none());
    trace.intervals.iter().map(|i| interval(i, seen)).collect()
}

fn interval(interval: &Interval, [stat, vmstat, io]: [bool; 3]) -> Value {
    let mut object = Object::new();
    object
        .put("at_seconds", interval.at_seconds)
        .put("seconds", interval.seconds);
    if stat {
        object
            .put("user_seconds", interval.user_seconds)
            .put("system_seconds", interval.system_seconds)
            .put("idle_seconds", interval.idle_seconds)
            .put("wait_seconds", interval.wait_seconds)
            .put("steal_seconds", interval.steal_seconds)
            .put("runnable", interval.runnable)
            .put("blocked", interval.blocked)
            .put("context_switches", interval.context_switches)
            .put("forks", interval.forks);
    }
    if vmstat {
        object
            .put("faults", interval.faults)
            .put("faults_major", interval.faults_major)
            .put("page_in_bytes", interval.page_in_bytes)
            .put("page_out_bytes", interval.page_out_bytes)
            .put("swap_in_bytes", interval.swap_in_bytes)
            .put("swap_out_bytes", interval.swap_out_bytes);
    }
    object
        .put_some("page_tables_bytes", interval.page_tables_bytes)
        .put("by_page_size", held(&interval.host_by_size));
    let faults = interval.faults_by_size.iter().filter(|_| vmstat);
    let faults: Vec<Value> = faults
        .map(|f| json!({"page_bytes": f.page_bytes, "count": f.count}))
        .collect();
    object.put("faults_by_size", faults);
    if let Some(p) = &interval.pressure {
        object.put(
            "pressure",
            json!({"cpu_some": p.cpu_some, "memory_some": p.memory_some, "memory_full": p.memory_full,
                "io_some": p.io_some, "io_full": p.io_full}),
        );
    }
    if let Some(t) = &interval.target {
        let mut target = json!({"processes": t.processes, "user_seconds": t.user_seconds,
            "system_seconds": t.system_seconds, "faults_minor": t.faults_minor,
            "faults_major": t.faults_major, "page_tables_bytes": t.page_tables_bytes,
            "locked_bytes": t.locked_bytes, "pinned_bytes": t.pinned_bytes,
            "by_page_size": held(&t.by_size)});
        if let Some(target) = target.as_object_mut().filter(|_| io) {
            target.insert("read_bytes".to_owned(), t.read_bytes.into());
            target.insert("write_bytes".to_owned(), t.write_bytes.into());
        }
        object.put("target", target);
    }
    object.build()
}

fn modes(object: &mut Object, modes: &Modes, all: u64) {
    object
        .put("samples", modes.total())
        .put("kernel_samples", modes.kernel)
        .put("user_samples", modes.user)
        .put("other_samples", modes.other)
        .put_some("share", share(modes.total(), all));
}

pub(super) fn function(row: &SymbolRow, all: u64) -> Value {
    let mut object = Object::new();
    object
        .put("function", row.name.as_str())
        .put("module", row.module.as_str())
        .put("kernel", row.kernel)
        .put("samples", row.samples)
        .put("with_callees_samples", row.with_callees)
        .put_some("share", share(row.samples, all));
    object.build()
}

fn profile(trace: &Trace) -> Value {
    let counted = profile::counted(trace);
    let processes = profile::by_process(trace).into_iter().map(|row| {
        let mut object = Object::new();
        object
            .put("name", row.name.as_str())
            .put("processes", row.processes)
            .put("in_target", row.in_target);
        modes(&mut object, &row.modes, counted.busy);
        object.build()
    });
    let threads = profile::by_thread(trace, Of::Host).into_iter().map(|row| {
        let mut object = Object::new();
        object
            .put("pid", row.pid)
            .put("tid", row.tid)
            .put("name", row.name.as_str());
        modes(&mut object, &row.modes, counted.busy);
        object.build()
    });
    let functions = |of| -> Value {
        let all = profile::modes(trace, of).total();
        let rows = profile::by_symbol(trace, of);
        let leaves = rows.iter().filter(|row| row.samples > 0);
        leaves.map(|row| function(row, all)).collect()
    };
    let mut object = Object::new();
    object
        .put("sampled_by", trace.sampled_by.as_str())
        .put("samples_a_second", trace.samples_a_second)
        .put("busy_samples", counted.busy)
        .put("idle_samples", counted.idle)
        .put("processes", processes.collect::<Vec<_>>())
        .put("threads", threads.collect::<Vec<_>>())
        .put("functions", functions(Of::Host));
    if trace.target.is_some() {
        object.put("target_functions", functions(Of::Target));
    }
    object.build()
}

fn totals(object: &mut Object, totals: &LockTotals) {
    let seconds = |nanos: u64| float(nanos) / 1e9;
    object
        .put("contentions", totals.contentions)
        .put("waited_seconds", seconds(totals.waited_nanos))
        .put_some("mean_seconds", totals.mean_nanos().map(seconds))
        .put("longest_seconds", seconds(totals.longest_nanos));
}

fn lock_table(trace: &Trace) -> Value {
    let table = locks::table(trace);
    let mut object = Object::new();
    totals(&mut object, &table.all);
    let mut others = Object::new();
    others.put("locks", table.others_count);
    totals(&mut others, &table.others);
    let list: Vec<Value> = table
        .rows
        .iter()
        .map(|row| lock(trace, row.lock, false))
        .collect();
    object.put("locks", list).put("others", others.build());
    object.build()
}

fn lock(trace: &Trace, lock: &Lock, with_events: bool) -> Value {
    let all = locks::table(trace).all.waited_nanos;
    let mut object = Object::new();
    object
        .put("address", lock.address)
        .put_some("name", lock.name.clone())
        .put("kind", lock.kind.name())
        .put_some("function", locks::function(trace, lock));
    totals(&mut object, &lock.totals);
    object
        .put_some("share", share(lock.totals.waited_nanos, all))
        .put("failed", lock.failed);
    let threads = locks::by_thread(trace, Some(lock)).into_iter().map(|row| {
        let mut object = Object::new();
        object
            .put("pid", row.pid)
            .put("tid", row.tid)
            .put("name", row.name.as_str());
        totals(&mut object, &row.totals);
        object.build()
    });
    let callers = locks::by_caller(trace, Some(lock), WAY)
        .into_iter()
        .map(|row| {
            let mut object = Object::new();
            object
                .put("function", row.function.as_str())
                .put("kind", row.kind.name())
                .put("path", row.path.clone());
            totals(&mut object, &row.totals);
            object.build()
        });
    object
        .put("threads", threads.collect::<Vec<_>>())
        .put("callers", callers.collect::<Vec<_>>())
        .put("callers_estimated", lock.callers_estimated);
    if with_events {
        object
            .put("events", events(trace, lock))
            .put("events_left_out", lock.events_left_out);
    }
    object.build()
}

fn events(trace: &Trace, lock: &Lock) -> Value {
    let event = |event: &hugeleaf_trace::model::LockEvent| {
        let mut object = Object::new();
        let what = match event.what {
            LockAction::Waits => "waits",
            LockAction::Got => "got",
            LockAction::GaveUp => "gave-up",
        };
        object
            .put("at_seconds", float(event.at_nanos) / 1e9)
            .put("what", what)
            .put("pid", trace.processes[event.process as usize].pid)
            .put("tid", event.tid)
            .put("cpu", event.cpu);
        if event.what != LockAction::Waits {
            object.put("waited_seconds", float(event.waited_nanos) / 1e9);
        }
        let function = event
            .function
            .map(|f| trace.symbols[f as usize].name.clone());
        object.put_some("function", function);
        object.build()
    };
    lock.events.iter().map(event).collect()
}

fn faults(trace: &Trace) -> Value {
    let sizes = intervals::faults_by_size(trace);
    let row = |f: &hugeleaf_trace::model::SizeCount| json!({"page_bytes": f.page_bytes, "count": f.count});
    json!({"by_page_size": sizes.iter().map(row).collect::<Vec<_>>()})
}

fn size_rows(rows: &[SizeRow]) -> Value {
    let row = |row: &SizeRow| {
        let mut object = Object::new();
        object
            .put("page_bytes", row.page_bytes)
            .put("kind", row.kind.as_str())
            .put_some("before_bytes", row.before)
            .put_some("after_bytes", row.after);
        object.build()
    };
    rows.iter().map(row).collect()
}

pub(super) fn pages(trace: &Trace) -> Value {
    let mut object = Object::new();
    object.put("host", size_rows(&sizes(trace, Whose::Host)));
    if trace.target.is_some() {
        object.put("target", size_rows(&sizes(trace, Whose::Target)));
    }
    let tables = |state: &Option<hugeleaf_trace::model::MemoryState>| {
        state.as_ref().and_then(|m| m.page_tables_bytes)
    };
    object
        .put_some("page_tables_before_bytes", tables(&trace.memory_before))
        .put_some("page_tables_after_bytes", tables(&trace.memory_after));
    object.build()
}

fn segment_list(trace: &Trace) -> Value {
    let rows = newest(trace).map_or(Vec::new(), segments);
    let row = |row: &hugeleaf_trace::tables::memory::SegmentRow<'_>| {
        let s = row.segment;
        json!({"pid": row.pid, "start": s.start, "end": s.end, "role": s.role, "name": s.name,
            "resident_bytes": s.resident_bytes, "locked_bytes": s.locked_bytes, "asked": s.asked,
            "by_page_size": held(&s.by_page_size)})
    };
    rows.iter().map(row).collect()
}

fn memory(trace: &Trace) -> Value {
    let counter = |c: &hugeleaf_trace::model::MemoryCounter| {
        let mut object = Object::new();
        object
            .put("name", c.name.as_str())
            .put_some("page_bytes", c.page_bytes)
            .put("total", c.total)
            .put("by_interval", c.by_interval.clone());
        object.build()
    };
    let event = |e: &hugeleaf_trace::model::MemoryEvent| {
        let mut object = Object::new();
        let process = e.process.map(|p| &trace.processes[p as usize]);
        object
            .put("name", e.name.as_str())
            .put("detail", e.detail.as_str())
            .put_some("pid", process.map(|p| p.pid))
            .put_some("process", process.map(|p| p.name.clone()))
            .put_some("tid", e.tid)
            .put("count", e.count)
            .put_some("pages", e.pages)
            .put_some("seconds", e.nanos.map(|n| float(n) / 1e9));
        object.build()
    };
    json!({
        "counters": trace.memory_counters.iter().map(counter).collect::<Vec<_>>(),
        "events": trace.memory_events.iter().map(event).collect::<Vec<_>>(),
    })
}

fn pins(trace: &Trace) -> Value {
    let row = |row: work::PinRow| {
        let mut object = Object::new();
        object
            .put("call", row.call.as_str())
            .put("calls", row.calls)
            .put_some("bytes", row.bytes)
            .put_some("failed", row.failed)
            .put("estimated", row.estimated)
            .put("threads", row.threads);
        object.build()
    };
    work::pins(trace).into_iter().map(row).collect()
}

pub(super) fn io(trace: &Trace) -> Value {
    let mut object = Object::new();
    if let Some(work) = work::work(trace) {
        object
            .put("read_calls", work.read_calls)
            .put("write_calls", work.write_calls)
            .put("read_bytes", work.read_bytes)
            .put("write_bytes", work.write_bytes)
            .put("bytes_a_second", work.bytes_a_second)
            .put_some("cpu_seconds_a_gigabyte", work.cpu_seconds_a_gigabyte);
    }
    let thread = |row: work::IoRow| {
        let (read, written) = work::moved(&row.io);
        json!({"pid": row.pid, "tid": row.tid, "name": row.name,
            "read_calls": row.io.read_calls, "write_calls": row.io.write_calls,
            "read_bytes": read, "write_bytes": written,
            "device_read_bytes": row.io.device_read_bytes,
            "device_write_bytes": row.io.device_write_bytes})
    };
    let threads: Vec<Value> = work::io_by_thread(trace).into_iter().map(thread).collect();
    object.put("threads", threads);
    object.build()
}

fn state(object: &mut Object, state: &SourceState) {
    match state {
        SourceState::Used => object.put("state", "used"),
        SourceState::NotHere { reason } => object
            .put("state", "not-here")
            .put("reason", reason.as_str()),
        SourceState::Refused { reason, remedy } => object
            .put("state", "refused")
            .put("reason", reason.as_str())
            .put("remedy", remedy.as_str()),
        SourceState::Off => object.put("state", "off"),
    };
}

fn counters(trace: &Trace) -> Value {
    let row = |counter: &hugeleaf_trace::model::Counter| {
        let mut object = Object::new();
        object
            .put("name", counter.name.as_str())
            .put("event", counter.event.as_str());
        state(&mut object, &counter.state);
        object
            .put_some("value", counter.value)
            .put_some("running_share", counter.running_share);
        object.build()
    };
    trace.counters.iter().map(row).collect()
}

fn sources(trace: &Trace) -> Value {
    let row = |source: &hugeleaf_trace::model::Source| {
        let mut object = Object::new();
        object.put("name", source.name.as_str());
        state(&mut object, &source.state);
        object
            .put("events", source.events)
            .put("lost", source.lost)
            .put_some("share_of_time", source.share_of_time);
        object.build()
    };
    trace.sources.iter().map(row).collect()
}

pub(super) fn findings(shown: &Shown<'_>) -> Value {
    let row = |finding: &TraceFinding| {
        let effects: Vec<&str> = finding.effects.iter().map(|e| e.name()).collect();
        json!({"id": finding.id, "severity": finding.severity.name(), "effects": effects,
            "text": finding.text, "evidence": finding.evidence, "command": shown.command(finding)})
    };
    shown.findings.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use hugeleaf_verdict::trace::findings as judge;

    #[test]
    fn everything_is_there_and_what_is_absent_is_missing() {
        let trace = testing::pinning();
        let findings = judge(&trace);
        let shown = Shown {
            trace: &trace,
            findings: &findings,
            file: "f.trace",
        };
        let value: Value = serde_json::from_str(&json(&shown, None)).unwrap();
        assert_eq!(value["schema"], 1);
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
        let shown = Shown {
            trace: &trace,
            findings: &[],
            file: "f",
        };
        let value: Value = serde_json::from_str(&json(&shown, None)).unwrap();
        assert!(value["cpu"].get("target").is_none());
        assert!(value["io"].get("bytes_a_second").is_none());
    }
}
