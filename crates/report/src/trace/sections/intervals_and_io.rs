//! Intervals, I/O, counters, and the sources of the numbers.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{EventSource, Interval, Pressure, SourceState, TargetInterval};
use hugeleaf_trace::tables::interval_totals::{self, CpuTime};
use hugeleaf_trace::tables::not_measured::{TraceDataKind, not_measured};
use hugeleaf_trace::tables::{io_and_pins, memory};
use hugeleaf_units::Bytes;

use super::super::charts;
use super::super::format::{
    bytes, count, drawn_table, float, flow, is_measured, missing_or, part, rate, table, who,
    whole_part,
};
use crate::document::{Cell, ContentBlock, Section, Table, short};

/// Returns user, system and idle time over the whole trace.
pub(crate) fn cpu(trace: &Trace) -> Section {
    let host = interval_totals::host_cpu(trace);
    let all = host.total();
    let share = |time: f64| part((all > 0.0).then(|| time / all));
    let target = interval_totals::target_cpu(trace).filter(|_| trace.target.is_some());
    // Idle time exists for the host only, not for a process tree.
    let of_host = |is_host: bool, time: f64| match is_host {
        true => share(time),
        false => Cell::empty(),
    };
    let rows = (all > 0.0).then(|| (true, "host".to_owned(), host));
    let rows = rows
        .into_iter()
        .chain(target.map(|cpu| (false, who(trace), cpu)));
    let rows = Table::from_items(rows)
        .left("", |(_, name, _)| name.clone())
        .right("USER", |(.., cpu)| share(cpu.user))
        .right("SYSTEM", |(.., cpu)| share(cpu.system))
        .right("IDLE", |(is_host, _, cpu)| of_host(*is_host, cpu.idle))
        .right("WAIT", |(is_host, _, cpu)| of_host(*is_host, cpu.wait))
        .nonzero_column("STEAL", |(is_host, _, cpu)| of_host(*is_host, cpu.steal))
        .right("SYSTEM/USER", |(.., cpu)| {
            Cell::ratio(cpu.system_over_user())
        })
        .right("CPU SECONDS", |(.., cpu)| {
            Cell::decimal(Some(cpu.user + cpu.system), 1)
        });
    let none = missing_or(trace, TraceDataKind::CpuTime, "no intervals");
    table("CPU time", rows, none)
}

/// Returns one interval a second, in the style of vmstat.
pub(super) fn intervals(trace: &Trace) -> Section {
    let sources = [TraceDataKind::CpuTime, TraceDataKind::Vmstat];
    let [has_stat, has_vmstat] = sources.map(|what| is_measured(trace, what));
    let has_target = trace.target.is_some();
    let share = |i: &Interval, time: f64| whole_part(CpuTime::from_interval(i).share(time));
    let known = |seen: bool, n: u64| seen.then_some(n);
    let a_second = |seen: bool, i: &Interval, n: u64| {
        let rate = (seen && i.seconds > 0.0).then(|| (float(n) / i.seconds).round());
        Cell::number(rate)
    };
    #[allow(clippy::cast_possible_truncation)]
    let flow = |i: &Interval, n: u64| {
        let is_known = has_vmstat && i.seconds > 0.0;
        bytes(is_known.then(|| (float(n) / i.seconds) as u64))
    };
    let psi = |i: &Interval, of: fn(&Pressure) -> f64| whole_part(i.pressure.as_ref().map(of));
    let rows = Table::from_items(&trace.intervals)
        .right("AT", |i| Cell::decimal(Some(i.at_seconds + i.seconds), 0))
        .right("RUN", |i| known(has_stat, i.runnable))
        .right("BLOCK", |i| known(has_stat, i.blocked))
        .right("FAULTS", |i| a_second(has_vmstat, i, i.faults))
        .nonzero_column("MAJOR", |i| a_second(has_vmstat, i, i.faults_major))
        .right("SWITCHES", |i| a_second(has_stat, i, i.context_switches))
        .right("IN", |i| flow(i, i.page_in_bytes))
        .right("OUT", |i| flow(i, i.page_out_bytes))
        .nonzero_column("SWAPPED", |i| {
            flow(i, i.swap_in_bytes.saturating_add(i.swap_out_bytes))
        })
        .right("US", |i| share(i, i.user_seconds))
        .right("SY", |i| share(i, i.system_seconds))
        .right("ID", |i| share(i, i.idle_seconds))
        .right("WA", |i| share(i, i.wait_seconds))
        .nonzero_column("ST", |i| share(i, i.steal_seconds))
        .when(has_target, |rows| {
            let of = |i: &&Interval, time: fn(&TargetInterval) -> f64| {
                i.target.as_ref().map(|target| share(i, time(target)))
            };
            rows.right("TARGET US", |i| of(i, |target| target.user_seconds))
                .right("SY", |i| of(i, |target| target.system_seconds))
        })
        .nonzero_column("P-CPU", |i| psi(i, |p| p.cpu_some))
        .nonzero_column("P-MEM", |i| psi(i, |p| p.memory_some))
        .nonzero_column("P-IO", |i| psi(i, |p| p.io_some))
        .right("TABLES", |i| bytes(i.page_tables_bytes))
        .right("HUGE", |i| whole_part(memory::coverage(&i.host_by_size)));
    let mut notes = vec![
        "FAULTS, MAJOR and SWITCHES a second; IN, OUT from and to devices a second; US to ST, and \
         HUGE (memory on huge pages), in percent; P-: share of the time in which some task waited \
         for it (PSI)."
            .to_owned(),
    ];
    // Explain the meaning of `-`.
    for what in sources {
        let why = not_measured(trace, what);
        notes.extend(why.map(|why| format!("{}: not measured: {why}.", what.name())));
    }
    drawn_table("Intervals", over_time(trace), rows, "no intervals").noted(notes)
}

fn over_time(trace: &Trace) -> Vec<ContentBlock> {
    let host = ("The host, of all CPUs".to_owned(), trace);
    let own = (format!("{}, of all CPUs", who(trace)), trace);
    let [host] = charts::cpu_times([host], charts::host_times);
    let [own] = charts::cpu_times([own], charts::target_times);
    vec![host.into(), own.into()]
}

pub(super) fn io(trace: &Trace) -> Section {
    let moved = |row: &io_and_pins::IoRow| io_and_pins::moved(&row.io);
    let each = |n: u64, calls: u64| bytes(n.checked_div(calls));
    let a_second = |row: &io_and_pins::IoRow| {
        let (read, written) = moved(row);
        (trace.seconds > 0.0).then(|| flow(float(read.saturating_add(written)) / trace.seconds))
    };
    let rows = Table::from_items(io_and_pins::io_by_thread(trace))
        .right("THREAD", |row| row.tid)
        .right("PROCESS", |row| row.pid)
        .right("READS", |row| count(row.io.read_calls))
        .right("READ", |row| Bytes(moved(row).0))
        .right("MEAN", |row| each(moved(row).0, row.io.read_calls))
        .right("WRITES", |row| count(row.io.write_calls))
        .right("WRITTEN", |row| Bytes(moved(row).1))
        .right("MEAN", |row| each(moved(row).1, row.io.write_calls))
        .right("A SECOND", a_second)
        .left("NAME", |row| row.name.clone());
    let none = "the target's threads read and wrote nothing";
    let none = missing_or(trace, TraceDataKind::Io, none);
    let work = io_and_pins::work(trace).map(|work| work_line(trace, &work));
    table("I/O by thread", rows, none).noted(work)
}

/// Returns a sentence on the data that the target moved, and its cost.
pub(crate) fn work_line(trace: &Trace, work: &io_and_pins::IoTotals) -> String {
    let cost = work.cpu_seconds_a_gigabyte;
    let cost = cost.map(|seconds| format!(", {} CPU seconds a GB", short(seconds)));
    format!(
        "{} moved {} in {} reads and {} writes: {}{}.",
        who(trace),
        Bytes(work.moved_bytes()),
        count(work.read_calls),
        count(work.write_calls),
        flow(work.bytes_a_second),
        cost.unwrap_or_default()
    )
}

fn state(state: &SourceState, used: &str) -> String {
    match state {
        SourceState::Used => used.to_owned(),
        SourceState::NotHere { reason } => format!("not on this host: {reason}"),
        SourceState::Refused { reason, remedy } => match remedy.is_empty() {
            true => format!("refused: {reason}"),
            false => format!("refused: {reason}; {remedy}"),
        },
        SourceState::Off => "disabled by a flag".to_owned(),
    }
}

pub(super) fn counters(trace: &Trace) -> Section {
    let rows = Table::from_items(&trace.counters)
        .left("COUNTER", |counter| counter.name.clone())
        .right("COUNT", |counter| counter.value.map(count))
        .right("A SECOND", |counter| {
            counter.value.map(|n| rate(n, trace.seconds))
        })
        .right("TIME SHARE", |counter| part(counter.running_share))
        .left("STATE", |counter| state(&counter.state, &counter.event));
    let value = |name: &str| {
        let counter = trace.counters.iter().find(|c| c.name == name)?;
        counter.value.filter(|n| *n > 0).map(float)
    };
    let mut notes = Vec::new();
    let (cycles, instructions) = (value("cycles"), value("instructions"));
    if let (Some(cycles), Some(instructions)) = (cycles, instructions) {
        notes.push(format!(
            "{:.2} cycles an instruction.",
            cycles / instructions
        ));
    }
    if let (Some(cycles), Some(walks)) = (cycles, value("page_walk_cycles")) {
        notes.push(format!(
            "Page table walks: {} of all cycles.",
            part(Some(walks / cycles))
        ));
    } else if let (Some(instructions), Some(walks)) = (instructions, value("page_walks_data")) {
        notes.push(format!(
            "Page table walks for data: {} in 1000 instructions. This CPU does not count cycles.",
            short(1000.0 * walks / instructions)
        ));
    }
    let none = missing_or(trace, TraceDataKind::Counters, "none on this host");
    table("Counters of the CPU", rows, none).noted(notes)
}

pub(super) fn sources(trace: &Trace) -> Section {
    let used = |source: &EventSource| source.state == SourceState::Used;
    let rows = Table::from_items(&trace.sources)
        .left("SOURCE", |source| source.name.clone())
        .right("EVENTS", |source| {
            used(source).then(|| count(source.events))
        })
        .right("LOST", |source| used(source).then(|| count(source.lost)))
        .right("TIME SHARE", |source| {
            used(source).then(|| part(source.share_of_time.or(Some(1.0))))
        })
        .left("STATE", |source| state(&source.state, "used"));
    let notes = trace.clock_note.iter().chain(&trace.notes).cloned();
    table("Sources of the numbers", rows, "not recorded").noted(notes)
}
