//! Draws the lines of the host.

use hugeleaf_report::document::{Cell, StatusMark, counted};
use hugeleaf_report::terminal_escape::{clean, width};
use hugeleaf_units::Bytes;
use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::styled_text::{BOLD, DrawOptions, put, put_right};
use crate::app::App;
use crate::history::spark;
use crate::model::{GuardSummary, HostSample, HostStats};

const LABEL: usize = 10;

pub(super) fn draw(app: &App, theme: DrawOptions, buffer: &mut Buffer) {
    title(app, theme, buffer);
    let Some(sample) = &app.sample else { return };
    let host = &sample.host;
    let mut lines = vec![
        ("MEMORY", memory(host), StatusMark::Plain),
        ("HUGE", large(host), StatusMark::Plain),
        ("POOLS", pools(host), StatusMark::Plain),
        ("THP", thp(host), StatusMark::Plain),
        ("PRESSURE", pressure(host), pressed(host)),
    ];
    if let Some(guard) = &sample.guard {
        let mark = if guard.paused {
            StatusMark::Warn
        } else {
            StatusMark::Plain
        };
        lines.push(("GUARD", self::guard(guard), mark));
    }
    if let Some(problem) = sample.problems.first() {
        lines.push(("NOTE", clean(problem), StatusMark::Warn));
    }
    for (y, (label, text, mark)) in lines.iter().enumerate() {
        put(buffer, 0, y + 1, label, BOLD);
        let end = put(buffer, LABEL, y + 1, text, theme.mark(*mark));
        if *label == "HUGE" {
            let room = theme.width.saturating_sub(end + 2).min(60);
            let spark = spark(&app.history.host, 1.0, room);
            put(buffer, end + 2, y + 1, &spark, Style::new());
        }
    }
}

fn title(app: &App, theme: DrawOptions, buffer: &mut Buffer) {
    let end = put(buffer, 0, 0, "hugeleaf top", BOLD);
    let Some(sample) = &app.sample else { return };
    let programs = counted(sample.programs.len(), "process tree");
    let kernel = format!("Linux {}, {programs}", clean(&sample.host.kernel));
    let right = right(app, sample);
    let room = theme.width.saturating_sub(width(&right) + 2);
    if end + 2 + width(&kernel) <= room {
        put(buffer, end + 2, 0, &kernel, Style::new());
    }
    put_right(buffer, theme, 0, &right, Style::new());
}

/// Returns the time and the scan interval. For a recording, returns its position.
fn right(app: &App, sample: &HostSample) -> String {
    // The time of day of "2026-07-01T12:03:11+02:00". A recording is untrusted.
    let time = clean(sample.at.get(11..19).unwrap_or(""));
    match app.playing {
        Some(playing) => {
            let date = clean(sample.at.get(..10).unwrap_or(""));
            let how = match (playing.paused, playing.is_at_end()) {
                (_, true) => "the end".to_owned(),
                (true, _) => "paused".to_owned(),
                _ => format!("×{}", playing.speed()),
            };
            format!(
                "scan {} of {}, {how}  {date} {time}",
                playing.at + 1,
                playing.scans
            )
        }
        None => {
            let every = Cell::seconds(sample.cost.every_seconds);
            let cpu = sample
                .cost
                .cpu
                .map(|cpu| format!(", {:.1} % CPU", cpu * 100.0));
            format!("every {every}{}  {time}", cpu.unwrap_or_default())
        }
    }
}

fn memory(host: &HostStats) -> String {
    format!(
        "{}, {} available; {} private, {} shared, {} page tables",
        host.memory_bytes,
        host.available_bytes,
        host.private_bytes,
        host.shared_bytes,
        host.page_tables_bytes
    )
}

fn large(host: &HostStats) -> String {
    let pooled = host.pooled();
    let large = host.private_huge_bytes + host.shared_huge_bytes + pooled;
    let all = host.private_bytes + host.shared_bytes + pooled;
    format!(
        "{} of {all} ({}) on huge pages",
        large,
        Cell::percent(host.coverage())
    )
}

fn pools(host: &HostStats) -> String {
    let used: Vec<String> = (host.pools.iter())
        .filter(|pool| pool.total > 0)
        .map(|pool| {
            let mut text = format!(
                "{} pages of {}: {} free",
                pool.total, pool.page_bytes, pool.free
            );
            if pool.reserved > 0 {
                text += &format!(", {} of them reserved", pool.reserved);
            }
            if pool.surplus > 0 {
                text += &format!(", {} surplus", pool.surplus);
            }
            text
        })
        .collect();
    match used.is_empty() {
        true => "no hugetlb pages".to_owned(),
        false => used.join("; "),
    }
}

fn thp(host: &HostStats) -> String {
    let Some(enabled) = &host.thp else {
        return "not in this kernel".to_owned();
    };
    let shared = host.thp_shared.as_deref().unwrap_or("-");
    let mut text = format!("{}, shared {}", clean(enabled), clean(shared));
    if let Some(rates) = host.rates {
        let shown = [
            (rates.faults, "at first touch"),
            (rates.fallbacks, "fell back"),
            (rates.collapses, "collapsed"),
            (rates.compactions, "compactions"),
        ];
        let shown: Vec<String> = (shown.iter().filter(|(rate, _)| *rate > 0.0))
            .map(|(rate, what)| format!("{} {what}", per_second(*rate)))
            .collect();
        match shown.is_empty() {
            true => text += "; no events",
            false => text += &format!("; {}", shown.join(", ")),
        }
    }
    text
}

fn per_second(rate: f64) -> String {
    match rate {
        rate if rate < 9.95 => format!("{rate:.1}/s"),
        rate => format!("{rate:.0}/s"),
    }
}

fn pressure(host: &HostStats) -> String {
    let parts = [
        (host.stalled_memory, "memory"),
        (host.stalled_processors, "a processor"),
        (host.stalled_io, "I/O"),
    ];
    let waits: Vec<String> = (parts.iter())
        .filter_map(|(part, what)| Some(format!("{what} {}", Cell::percent(Some((*part)?)))))
        .collect();
    match waits.is_empty() {
        true => "not known yet, or not reported by this kernel".to_owned(),
        false => format!("tasks wait for {} of the time", waits.join(", ")),
    }
}

/// Warns if memory is short, or if tasks stall for it.
fn pressed(host: &HostStats) -> StatusMark {
    let short = host.available_bytes < Bytes(host.memory_bytes.get() / 20);
    match host.stalled_memory.is_some_and(|part| part > 0.1) || short {
        true => StatusMark::Warn,
        false => StatusMark::Plain,
    }
}

fn guard(guard: &GuardSummary) -> String {
    let does = match (guard.paused, guard.acts) {
        (true, _) => "paused",
        (false, true) => "acting by its rules",
        (false, false) => "watching only",
    };
    format!(
        "{does}; {} process trees managed, {} queued or candidate",
        guard.kept, guard.next
    )
}
