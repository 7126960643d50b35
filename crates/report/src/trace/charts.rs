//! What is drawn of a trace, on its own page and beside another.

use hugeleaf_trace::Trace;
use hugeleaf_trace::tables::memory::{Whose, newest, sizes};
use hugeleaf_trace::tables::profile::{self, SymbolRow};
use hugeleaf_trace::tables::{Of, locks, share};
use hugeleaf_units::Bytes;
use maud::{Markup, html};

use super::plot::{Bar, Fill, Layer, Part, Stack};
use super::words::{nanos, page, part};

/// User and system time of the host over time, the user's part below, as the published charts have them.
pub(super) fn host_stack(trace: &Trace) -> Stack {
    stack(trace, |i| {
        let all =
            i.user_seconds + i.system_seconds + i.idle_seconds + i.wait_seconds + i.steal_seconds;
        Some((i.user_seconds, i.system_seconds, all))
    })
}

/// The same of the target, as a part of all CPUs.
pub(super) fn target_stack(trace: &Trace) -> Option<Stack> {
    trace.target.as_ref()?;
    let stack = stack(trace, |i| {
        let target = i.target.as_ref()?;
        let all = i.seconds * f64::from(trace.host.cpus.max(1));
        Some((target.user_seconds, target.system_seconds, all))
    });
    (!stack.spans.is_empty()).then_some(stack)
}

type Times = Option<(f64, f64, f64)>;

fn stack(trace: &Trace, times: impl Fn(&hugeleaf_trace::model::Interval) -> Times) -> Stack {
    let (mut spans, mut user, mut system) = (Vec::new(), Vec::new(), Vec::new());
    for interval in &trace.intervals {
        let Some((u, s, all)) = times(interval) else {
            continue;
        };
        // An interval without any time, idle or not, was not read: a bar of nothing would be a claim.
        if all <= 0.0 {
            continue;
        }
        let share = |part: f64| part / all;
        spans.push((interval.at_seconds, interval.at_seconds + interval.seconds));
        user.push(share(u));
        system.push(share(s));
    }
    let layer = |fill, values| Layer { fill, values };
    Stack {
        spans,
        layers: vec![layer(Fill::User, user), layer(Fill::System, system)],
    }
}

/// When the last interval ended.
pub(super) fn until(trace: &Trace) -> f64 {
    let ends = trace.intervals.iter().map(|i| i.at_seconds + i.seconds);
    ends.fold(0.0, f64::max)
}

/// What colours stand for.
pub(super) fn legend(entries: &[(Fill, String)]) -> Markup {
    html! {
        p.legend {
            @for (fill, text) in entries {
                span { span.swatch style=(format!("background: {}", fill.css())) {} (text) }
            }
        }
    }
}

pub(super) fn time_legend() -> Markup {
    legend(&[
        (Fill::System, "system, above".to_owned()),
        (Fill::User, "user, below".to_owned()),
    ])
}

/// Functions with most samples.
pub(super) fn function_bars(trace: &Trace, of: Of, most: usize) -> (Vec<Bar>, f64) {
    let all = profile::modes(trace, of).total();
    let rows = profile::by_symbol(trace, of);
    let rows: Vec<&SymbolRow> = rows.iter().filter(|r| r.samples > 0).take(most).collect();
    let bar = |row: &&SymbolRow| {
        let value = share(row.samples, all);
        Bar {
            label: row.name.clone(),
            note: format!(
                "{} {}",
                part(value),
                if row.kernel { "kernel" } else { "user" }
            ),
            parts: vec![Part {
                fill: side(row.kernel),
                value: value.unwrap_or(0.0),
            }],
        }
    };
    let bars: Vec<Bar> = rows.iter().map(bar).collect();
    let top = highest(&bars);
    (bars, top)
}

pub(super) const fn side(kernel: bool) -> Fill {
    match kernel {
        true => Fill::System,
        false => Fill::User,
    }
}

pub(super) fn highest(bars: &[Bar]) -> f64 {
    let sum = |bar: &Bar| bar.parts.iter().map(|p| p.value).sum::<f64>();
    bars.iter().map(sum).fold(0.0, f64::max)
}

/// Processes with most samples: kernel and user side by side in one bar.
pub(super) fn process_bars(trace: &Trace, most: usize) -> (Vec<Bar>, f64) {
    let all = profile::counted(trace).busy;
    let rows = profile::by_process(trace);
    let bar = |row: &profile::ProcessRow| {
        let value = |fill, n| Part {
            fill,
            value: share(n, all).unwrap_or(0.0),
        };
        let modes = row.modes;
        let part_of = |n| part(share(n, all));
        Bar {
            label: row.name.clone(),
            note: format!(
                "{} user, {} kernel",
                part_of(modes.user),
                part_of(modes.kernel)
            ),
            parts: vec![
                value(Fill::User, modes.user),
                value(Fill::System, modes.kernel),
                value(Fill::Faint, modes.other),
            ],
        }
    };
    let visible = rows
        .iter()
        .filter(|row| share(row.modes.total(), all).is_some_and(|s| s >= 0.001));
    let bars: Vec<Bar> = visible.take(most).map(bar).collect();
    let top = highest(&bars);
    (bars, top)
}

/// Locks that were waited for longest.
pub(super) fn lock_bars(trace: &Trace, most: usize) -> (Vec<Bar>, f64) {
    let table = locks::table(trace);
    let bar = |row: &locks::LockRow<'_>| Bar {
        label: match row.function {
            Some(function) => format!("{function}, {}", locks::label(row.lock)),
            None => locks::label(row.lock),
        },
        note: format!(
            "{}, {}",
            nanos(row.lock.totals.waited_nanos),
            part(row.share)
        ),
        parts: vec![Part {
            fill: Fill::System,
            value: row.share.unwrap_or(0.0),
        }],
    };
    // What cannot be seen as a bar is in the table.
    let visible = table
        .rows
        .iter()
        .filter(|row| row.share.is_some_and(|s| s >= 0.001));
    let bars: Vec<Bar> = visible.take(most).map(bar).collect();
    let top = highest(&bars);
    (bars, top)
}

/// Memory by page size: a bar for each time, a colour for each size. Names and the colours' meaning.
pub(super) struct SizeBars {
    pub(super) bars: Vec<Bar>,
    pub(super) top: f64,
    pub(super) legend: Vec<(Fill, String)>,
}

/// Bars of named states: sizes are coloured alike in all of them.
pub(super) fn size_bars(states: &[(String, Vec<(String, u64)>)]) -> SizeBars {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in states.iter().flat_map(|(_, rows)| rows) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let fill = |name: &str| Fill::Rung(names.iter().position(|n| *n == name).unwrap_or(0));
    let bars = states.iter().map(|(label, rows)| Bar {
        label: label.clone(),
        note: Bytes(rows.iter().map(|(_, b)| b).sum()).to_string(),
        parts: rows
            .iter()
            .map(|(name, bytes)| Part {
                fill: fill(name),
                value: Bytes(*bytes).as_f64(),
            })
            .collect(),
    });
    let bars: Vec<Bar> = bars.collect();
    SizeBars {
        top: highest(&bars),
        bars,
        legend: names
            .iter()
            .map(|n| (fill(n), format!("pages of {n}")))
            .collect(),
    }
}

/// Whose memory is drawn: the target's where there is one.
pub(super) const fn whose(trace: &Trace) -> Whose {
    match trace.target {
        Some(_) => Whose::Target,
        None => Whose::Host,
    }
}

/// Memory before and after, as far as it was read.
pub(super) fn own_sizes(trace: &Trace) -> SizeBars {
    let rows = sizes(trace, whose(trace));
    let column = |of: fn(&hugeleaf_trace::tables::memory::SizeRow) -> Option<u64>| {
        let cells = rows
            .iter()
            .filter_map(|r| Some((page(r.page_bytes, &r.kind), of(r)?)));
        cells.filter(|(_, bytes)| *bytes > 0).collect::<Vec<_>>()
    };
    let states = [
        ("before".to_owned(), column(|r| r.before)),
        ("after".to_owned(), column(|r| r.after)),
    ];
    let read: Vec<_> = states
        .into_iter()
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    size_bars(&read)
}

/// Memory at the end of a trace, by name of page size.
pub(super) fn last_sizes(trace: &Trace) -> Vec<(String, u64)> {
    let held = newest(trace).and_then(|s| hugeleaf_trace::tables::memory::held(s, whose(trace)));
    let mut held = held.unwrap_or_default();
    held.retain(|h| h.bytes > 0);
    held.sort_by_key(|h| h.page_bytes);
    held.iter()
        .map(|h| (page(h.page_bytes, &h.kind), h.bytes))
        .collect()
}
