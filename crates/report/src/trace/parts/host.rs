//! Intervals, I/O, counters, and where numbers come from.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Interval, SourceState};
use hugeleaf_trace::tables::intervals::{self, CpuTime};
use hugeleaf_trace::tables::{memory, work};
use hugeleaf_units::Bytes;

use super::super::words::{count, megabytes, part, rate, who, whole_part};
use super::{Collection, Part, missing_or, not_measured};
use crate::bench::short;
use crate::table::Align::{Left, Right};

/// User, system and idle over the whole time.
pub(in super::super) fn cpu(trace: &Trace) -> Part {
    let heads = [
        ("", Left),
        ("USER", Right),
        ("SYSTEM", Right),
        ("IDLE", Right),
        ("WAIT", Right),
        ("STEAL", Right),
        ("SYSTEM/USER", Right),
        ("CPU SECONDS", Right),
    ];
    let host = intervals::host_cpu(trace);
    let ratio = |cpu: &CpuTime| match cpu.system_over_user() {
        Some(ratio) => format!("×{}", short(ratio)),
        None => "-".to_owned(),
    };
    let all = host.total();
    let share = |time: f64| (all > 0.0).then(|| time / all);
    let mut table = Part::new("CPU time", &heads).or_empty(missing_or(
        trace,
        Collection::CpuTime,
        "no intervals",
    ));
    if all > 0.0 {
        let [user, system, idle, wait, steal] =
            [host.user, host.system, host.idle, host.wait, host.steal].map(|t| part(share(t)));
        let seconds = format!("{:.1}", host.user + host.system);
        table.rows.push(vec![
            "host".to_owned(),
            user,
            system,
            idle,
            wait,
            steal,
            ratio(&host),
            seconds,
        ]);
    }
    if let (Some(_), Some(cpu)) = (&trace.target, intervals::target_cpu(trace)) {
        let none = || String::new();
        let seconds = format!("{:.1}", cpu.user + cpu.system);
        let shares = [part(share(cpu.user)), part(share(cpu.system))];
        let mut row = vec![who(trace)];
        row.extend(shares);
        row.extend([none(), none(), none(), ratio(&cpu), seconds]);
        table.rows.push(row);
    }
    table.without_zeros(&["STEAL"])
}

/// As vmstat shows them, one a second.
pub(super) fn intervals(trace: &Trace, most: usize) -> Part {
    let heads = [
        ("AT", Right),
        ("RUN", Right),
        ("BLOCK", Right),
        ("FAULTS", Right),
        ("MAJOR", Right),
        ("SWITCHES", Right),
        ("IN", Right),
        ("OUT", Right),
        ("SWAPPED", Right),
        ("US", Right),
        ("SY", Right),
        ("ID", Right),
        ("WA", Right),
        ("ST", Right),
        ("TARGET US", Right),
        ("SY", Right),
        ("P-CPU", Right),
        ("P-MEM", Right),
        ("P-IO", Right),
        ("TABLES", Right),
        ("LARGE", Right),
    ];
    let seen =
        [Collection::CpuTime, Collection::Vmstat].map(|what| not_measured(trace, what).is_none());
    Part::new("Intervals", &heads)
        .or_empty("no intervals")
        .fill(&trace.intervals, most, |interval| row(interval, seen))
        .without_zeros(&["MAJOR", "SWAPPED", "ST", "P-CPU", "P-MEM", "P-IO"])
        .without_target(trace)
        .note(
            "FAULTS, MAJOR and SWITCHES a second; IN, OUT from and to devices a second; US to ST, and LARGE (memory \
             on large pages), in percent; P-: share of the time in which somebody waited for it (PSI).",
        )
        .note_missing(trace)
}

impl Part {
    /// What `-` means in intervals.
    fn note_missing(self, trace: &Trace) -> Part {
        let mut part = self;
        for what in [Collection::CpuTime, Collection::Vmstat] {
            if let Some(why) = not_measured(trace, what) {
                part = part.note(format!("{}: not measured: {why}.", what.name()));
            }
        }
        part
    }

    fn without_target(mut self, trace: &Trace) -> Part {
        if trace.target.is_none()
            && let Some(at) = self.heads.iter().position(|(head, _)| *head == "TARGET US")
        {
            self.heads.drain(at..at + 2);
            self.rows.iter_mut().for_each(|row| {
                row.drain(at..at + 2);
            });
        }
        self
    }
}

fn row(interval: &Interval, [stat, vmstat]: [bool; 2]) -> Vec<String> {
    let cpu = CpuTime::of(interval);
    let share = |time| whole_part(cpu.share(time));
    let seconds = interval.seconds;
    let or_dash = |seen: bool, text: String| if seen { text } else { "-".to_owned() };
    let flow = |bytes: u64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let a_second = || Bytes((Bytes(bytes).as_f64() / seconds) as u64).to_string();
        match vmstat && seconds > 0.0 {
            true => a_second(),
            false => "-".to_owned(),
        }
    };
    let target = interval.target.as_ref();
    let psi = interval.pressure.as_ref();
    let large = memory::coverage(&interval.host_by_size);
    let mut cells = vec![
        format!("{:.0}", interval.at_seconds + seconds),
        or_dash(stat, interval.runnable.to_string()),
        or_dash(stat, interval.blocked.to_string()),
        or_dash(vmstat, whole_rate(interval.faults, seconds)),
        or_dash(vmstat, whole_rate(interval.faults_major, seconds)),
        or_dash(stat, whole_rate(interval.context_switches, seconds)),
        flow(interval.page_in_bytes),
        flow(interval.page_out_bytes),
        flow(
            interval
                .swap_in_bytes
                .saturating_add(interval.swap_out_bytes),
        ),
    ];
    cells.extend([cpu.user, cpu.system, cpu.idle, cpu.wait, cpu.steal].map(share));
    cells.push(target.map_or("-".to_owned(), |t| share(t.user_seconds)));
    cells.push(target.map_or("-".to_owned(), |t| share(t.system_seconds)));
    cells.extend([
        whole_part(psi.map(|p| p.cpu_some)),
        whole_part(psi.map(|p| p.memory_some)),
        whole_part(psi.map(|p| p.io_some)),
        interval
            .page_tables_bytes
            .map_or("-".to_owned(), |b| Bytes(b).to_string()),
        whole_part(large),
    ]);
    cells
}

fn whole_rate(n: u64, seconds: f64) -> String {
    match seconds > 0.0 {
        true => crate::prove::number((super::super::words::float(n) / seconds).round()),
        false => "-".to_owned(),
    }
}

pub(super) fn io(trace: &Trace, most: usize) -> Part {
    let heads = [
        ("THREAD", Right),
        ("PROCESS", Right),
        ("READS", Right),
        ("READ", Right),
        ("OF EACH", Right),
        ("WRITES", Right),
        ("WRITTEN", Right),
        ("OF EACH", Right),
        ("A SECOND", Right),
        ("NAME", Left),
    ];
    let each = |bytes: u64, calls: u64| match bytes.checked_div(calls) {
        Some(each) => Bytes(each).to_string(),
        None => "-".to_owned(),
    };
    let mut table = Part::new("I/O by thread", &heads)
        .or_empty(missing_or(
            trace,
            Collection::Io,
            "the target's threads read and wrote nothing",
        ))
        .fill(work::io_by_thread(trace), most, |row| {
            let (read, written) = work::moved(&row.io);
            let a_second = match trace.seconds > 0.0 {
                true => megabytes(
                    super::super::words::float(read.saturating_add(written)) / trace.seconds,
                ),
                false => "-".to_owned(),
            };
            vec![
                row.tid.to_string(),
                row.pid.to_string(),
                count(row.io.read_calls),
                Bytes(read).to_string(),
                each(read, row.io.read_calls),
                count(row.io.write_calls),
                Bytes(written).to_string(),
                each(written, row.io.write_calls),
                a_second,
                row.name,
            ]
        });
    if let Some(work) = work::work(trace) {
        table = table.note(work_line(trace, &work));
    }
    table
}

/// What the target moved and what that cost, in a sentence.
pub(in super::super) fn work_line(trace: &Trace, work: &work::Work) -> String {
    let mut text = format!(
        "{} moved {} in {} reads and {} writes: {}",
        who(trace),
        Bytes(work.moved_bytes()),
        count(work.read_calls),
        count(work.write_calls),
        megabytes(work.bytes_a_second)
    );
    if let Some(seconds) = work.cpu_seconds_a_gigabyte {
        text += &format!(", {} CPU seconds a GB", short(seconds));
    }
    text + "."
}

pub(super) fn counters(trace: &Trace) -> Part {
    let heads = [
        ("COUNTER", Left),
        ("COUNT", Right),
        ("A SECOND", Right),
        ("COUNTED", Right),
        ("HERE", Left),
    ];
    let mut table = Part::new("Counters of the CPU", &heads)
        .or_empty(missing_or(trace, Collection::Counters, "none on this host"))
        .fill(&trace.counters, usize::MAX, |counter| {
            let here = match &counter.state {
                SourceState::Used => counter.event.clone(),
                SourceState::NotHere { reason } => format!("not on this host: {reason}"),
                SourceState::Refused { reason, .. } => format!("refused: {reason}"),
                SourceState::Off => "switched off".to_owned(),
            };
            vec![
                counter.name.clone(),
                counter.value.map_or("-".to_owned(), count),
                counter
                    .value
                    .map_or("-".to_owned(), |v| rate(v, trace.seconds)),
                part(counter.running_share),
                here,
            ]
        });
    let value = |name: &str| {
        let counter = trace.counters.iter().find(|c| c.name == name);
        counter.and_then(|c| c.value).filter(|v| *v > 0)
    };
    let float = super::super::words::float;
    if let (Some(cycles), Some(instructions)) = (value("cycles"), value("instructions")) {
        table = table.note(format!(
            "{:.2} cycles an instruction.",
            float(cycles) / float(instructions)
        ));
    }
    if let (Some(cycles), Some(walks)) = (value("cycles"), value("page_walk_cycles")) {
        let share = float(walks) / float(cycles);
        table = table.note(format!(
            "Walks of page tables: {} of all cycles.",
            part(Some(share))
        ));
    } else if let (Some(instructions), Some(walks)) =
        (value("instructions"), value("page_walks_data"))
    {
        table = table.note(format!(
            "Walks of page tables for data: {} in 1000 instructions. This CPU counts walks and not their cycles.",
            short(1000.0 * float(walks) / float(instructions))
        ));
    }
    table
}

pub(super) fn sources(trace: &Trace) -> Part {
    let heads = [
        ("SOURCE", Left),
        ("EVENTS", Right),
        ("LOST", Right),
        ("OF THE TIME", Right),
        ("STATE", Left),
    ];
    let mut table = Part::new("Where the numbers come from", &heads)
        .or_empty("not recorded")
        .fill(&trace.sources, usize::MAX, |source| {
            let state = match &source.state {
                SourceState::Used => "used".to_owned(),
                SourceState::NotHere { reason } => format!("not on this host: {reason}"),
                SourceState::Refused { reason, remedy } => format!("refused: {reason}; {remedy}"),
                SourceState::Off => "switched off by a flag".to_owned(),
            };
            let events = |n: u64| match source.state {
                SourceState::Used => count(n),
                _ => "-".to_owned(),
            };
            vec![
                source.name.clone(),
                events(source.events),
                events(source.lost),
                match source.state {
                    SourceState::Used => part(source.share_of_time.or(Some(1.0))),
                    _ => "-".to_owned(),
                },
                state,
            ]
        });
    for note in trace.clock_note.iter().chain(&trace.notes) {
        table = table.note(note);
    }
    table
}
