//! Charts of a trace, on its own page and in a comparison.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Interval, StackSample};
use hugeleaf_trace::tables::memory::{PageSizeRow, held, newest, sizes};
use hugeleaf_trace::tables::profile::{self, SymbolRow};
use hugeleaf_trace::tables::{TableScope, locks, memory_scope, share};
use hugeleaf_units::Bytes;

use super::format::{count, nanos, page, part, side, who};
use crate::document::{Axis, AxisUnit, Chart, ChartKind, FlameGraph, Point, Series, StackFrame};

const BARS: usize = 12;

type UserSystemTotal = (f64, f64, f64);

/// Returns user and system time as shares of all CPUs, with user time below as in published charts. Charts of
/// several traces have the same end, so that they can be compared.
pub(super) fn cpu_times<const N: usize>(
    traces: [(String, &Trace); N],
    times: fn(&Trace, &Interval) -> Option<UserSystemTotal>,
) -> [Chart; N] {
    let all = traces.iter().flat_map(|(_, trace)| &trace.intervals);
    let until = all.map(|i| i.at_seconds + i.seconds).fold(0.0, f64::max);
    let mut charts = traces.map(|(title, trace)| cpu_time(title, trace, times));
    let highest = |chart: &Chart| {
        let [user, system] = [0, 1].map(|at: usize| &chart.series[at].points);
        let both = user.iter().zip(system).map(|(a, b)| a.y + b.y);
        both.fold(0.0, f64::max)
    };
    let top = charts.iter().map(highest).fold(0.0, f64::max);
    let ends = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
    let fits = ends.into_iter().find(|end| top <= end * 0.98);
    let top = fits.unwrap_or(1.0);
    for chart in &mut charts {
        (chart.x.end, chart.y.end) = (Some(until), Some(top));
    }
    charts
}

fn cpu_time(
    title: String,
    trace: &Trace,
    times: fn(&Trace, &Interval) -> Option<UserSystemTotal>,
) -> Chart {
    let mut series = ["user", "system"].map(|name| Series::new(name, Vec::new()));
    for interval in &trace.intervals {
        // An interval without any time, idle included, was not read; a bar of 0 would be false.
        let Some((user, system, all)) = times(trace, interval).filter(|(.., all)| *all > 0.0)
        else {
            continue;
        };
        for (series, time) in series.iter_mut().zip([user, system]) {
            series.points.push(Point {
                width: interval.seconds,
                ..Point::at(interval.at_seconds, (time / all).clamp(0.0, 1.0))
            });
        }
    }
    Chart {
        title,
        kind: ChartKind::Layers,
        x: Axis::named("seconds"),
        y: Axis {
            unit: AxisUnit::Percent,
            level: Some(0.0),
            ..Axis::default()
        },
        series: series.into(),
    }
}

pub(super) fn host_times(_: &Trace, i: &Interval) -> Option<UserSystemTotal> {
    let all = i.user_seconds + i.system_seconds + i.idle_seconds + i.wait_seconds + i.steal_seconds;
    Some((i.user_seconds, i.system_seconds, all))
}

pub(super) fn target_times(trace: &Trace, i: &Interval) -> Option<UserSystemTotal> {
    let target = i.target.as_ref().filter(|_| trace.target.is_some())?;
    let all = i.seconds * f64::from(trace.host.cpus.max(1));
    Some((target.user_seconds, target.system_seconds, all))
}

/// A bar: its name, a value for each series (`None` if missing), and the texts at its end.
pub(super) type ChartBar<const N: usize> = (String, [Option<f64>; N], [String; N]);

/// Returns bars of some series, as many as are readable; the table has the others.
pub(super) fn bars<const N: usize>(
    title: impl Into<String>,
    kind: ChartKind,
    names: [&str; N],
    bars: impl IntoIterator<Item = ChartBar<N>>,
) -> Chart {
    let mut chart = Chart {
        title: title.into(),
        kind,
        series: names.map(|name| Series::new(name, Vec::new())).into(),
        ..Chart::default()
    };
    for ((label, values, notes), at) in bars.into_iter().take(BARS).zip(0u32..) {
        let x = f64::from(at);
        chart.x.steps.push((x, label));
        for ((series, value), note) in chart.series.iter_mut().zip(values).zip(notes) {
            series.points.extend(value.map(|y| Point {
                note,
                ..Point::at(x, y)
            }));
        }
    }
    chart
}

pub(super) fn functions(trace: &Trace, of: TableScope) -> Chart {
    let all = profile::modes(trace, of).total();
    let rows = profile::by_symbol(trace, of);
    let leaves = rows.into_iter().filter(|r| r.samples > 0);
    let bar = |row: SymbolRow| {
        let value = share(row.samples, all);
        let values = match row.kernel {
            true => [None, value],
            false => [value, None],
        };
        let note = format!("{} {}", part(value), side(row.kernel));
        (row.name, values, [note.clone(), note])
    };
    let names = ["user", "kernel"];
    bars("", ChartKind::Stacks, names, leaves.map(bar))
}

/// Returns the processes with most samples, with user, kernel and other stacked in one bar.
pub(super) fn processes(trace: &Trace) -> Chart {
    let all = profile::counted(trace).busy;
    let rows = profile::by_process(trace).into_iter();
    let visible = rows.filter(|row| share(row.modes.total(), all).is_some_and(|s| s >= 0.001));
    let bar = |row: profile::ProcessRow| {
        let modes = row.modes;
        let [user, kernel, other] = [modes.user, modes.kernel, modes.other].map(|n| share(n, all));
        let note = format!("{} user, {} kernel", part(user), part(kernel));
        (
            row.name,
            [user, kernel, other.filter(|o| *o > 0.0)],
            [note.clone(), note.clone(), note],
        )
    };
    let names = ["user", "kernel", "other"];
    bars("", ChartKind::Stacks, names, visible.map(bar))
}

/// Returns the locks with the longest waits. Those too small for a bar are in the table only.
pub(super) fn lock_waits(trace: &Trace) -> Chart {
    let rows = locks::table(trace).rows.into_iter();
    let visible = rows.filter(|row| row.share.is_some_and(|s| s >= 0.001));
    let bar = |row: locks::LockRow<'_>| {
        let label = match row.function {
            Some(function) => format!("{function}, {}", locks::label(row.lock)),
            None => locks::label(row.lock),
        };
        let note = format!(
            "{}, {}",
            nanos(row.lock.totals.waited_nanos),
            part(row.share)
        );
        (label, [row.share], [note])
    };
    let title = "Time waited, by lock";
    bars(title, ChartKind::Stacks, ["waited"], visible.map(bar))
}

/// Returns the stacks of the target's samples, or of all samples without a target.
pub fn flames(trace: &Trace) -> FlameGraph {
    let samples = profile::modes(trace, TableScope::Target).total();
    let stack = |sample: &StackSample| {
        let process = StackFrame {
            name: trace.processes[sample.process as usize].name.clone(),
            kernel: false,
        };
        let frames = &trace.stacks[sample.stack as usize].frames;
        let frames = frames.iter().rev().map(|place| {
            let symbol = &trace.symbols[*place as usize];
            StackFrame {
                name: symbol.name.clone(),
                kernel: symbol.kernel,
            }
        });
        let frames = std::iter::once(process).chain(frames);
        (frames.collect(), sample.count)
    };
    FlameGraph {
        title: format!("{}: {} CPU samples", who(trace), count(samples)),
        stacks: profile::busy(trace, TableScope::Target)
            .map(stack)
            .collect(),
    }
}

type MemoryByPageSize<'a> = (&'a str, Vec<(String, u64)>);

/// Returns memory by page size: a bar for each named state, a series for each size.
pub(super) fn page_sizes(states: &[MemoryByPageSize<'_>]) -> Chart {
    let mut sizes: Vec<&str> = Vec::new();
    for (size, _) in states.iter().flat_map(|(_, rows)| rows) {
        if !sizes.contains(&size.as_str()) {
            sizes.push(size);
        }
    }
    let read = states.iter().filter(|(_, rows)| !rows.is_empty());
    let read = read.zip(0u32..);
    let points = |size: &str| {
        let of = |((_, rows), at): (&MemoryByPageSize<'_>, u32)| {
            let (_, bytes) = rows.iter().find(|(name, _)| name == size)?;
            Some(Point {
                note: Bytes(rows.iter().map(|(_, bytes)| bytes).sum()).to_string(),
                ..Point::at(f64::from(at), Bytes(*bytes).as_f64())
            })
        };
        read.clone().filter_map(of).collect()
    };
    let name = |size: &&str| format!("pages of {size}");
    let series = sizes
        .iter()
        .map(|size| Series::new(name(size), points(size)));
    let steps = read
        .clone()
        .map(|((name, _), at)| (f64::from(at), (*name).to_owned()));
    Chart {
        kind: ChartKind::Stacks,
        x: Axis {
            steps: steps.collect(),
            ..Axis::default()
        },
        series: series.collect(),
        ..Chart::default()
    }
}

/// Returns memory before and after, as far as it was readable.
pub(super) fn own_sizes(trace: &Trace) -> Chart {
    let rows = sizes(trace, memory_scope(trace));
    let column = |of: fn(&PageSizeRow) -> Option<u64>| {
        let cells = rows
            .iter()
            .filter_map(|r| Some((page(r.page_bytes, &r.kind), of(r)?)));
        cells.filter(|(_, bytes)| *bytes > 0).collect::<Vec<_>>()
    };
    page_sizes(&[
        ("before", column(|r| r.before)),
        ("after", column(|r| r.after)),
    ])
}

pub(super) fn last_sizes(trace: &Trace) -> Vec<(String, u64)> {
    let held = newest(trace).and_then(|s| held(s, memory_scope(trace)));
    let mut held = held.unwrap_or_default();
    held.retain(|h| h.bytes > 0);
    held.sort_by_key(|h| h.page_bytes);
    held.iter()
        .map(|h| (page(h.page_bytes, &h.kind), h.bytes))
        .collect()
}
