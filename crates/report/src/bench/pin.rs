//! `bench pin` as text.

use hugeleaf_proof::bench::pin::{PinArm, PinPoint, PinResult};
use hugeleaf_units::Bytes;

use super::mover::times;
use super::{NotHadLine, duration, ending, not_had_text, short, spread, times_base};
use crate::table::{Align, Look, Paint, Table};

/// The result on a screen.
pub fn pin_text(result: &PinResult, look: Look) -> String {
    let mut out = String::new();
    for line in pin_headlines(result) {
        out.push_str(&look.paint(&look.wrap("", &line), Paint::Bold));
    }
    out.push_str(&look.wrap("", &pin_meaning(result)));
    out.push('\n');
    let heads: Vec<(&str, Align)> = COLUMNS
        .iter()
        .map(|head| match *head {
            "HOW" | "PAGES" => (*head, Align::Left),
            _ => (*head, Align::Right),
        })
        .collect();
    let mut table = Table::new(&heads);
    for row in pin_rows(result) {
        table.row(row);
    }
    out.push_str(&table.render_as(look));
    out.push('\n');
    for line in beside(result) {
        out.push_str(&look.wrap("model  ", &line));
    }
    out.push_str(&not_had_text(&not_had(result), look));
    out.push_str(&look.wrap("how   ", &pin_how(result)));
    for note in notes(result) {
        out.push_str(&look.wrap("note  ", &note));
    }
    out
}

/// The columns of [`pin_rows`].
pub const COLUMNS: [&str; 9] = [
    "HOW", "PAGES", "UNITS", "THREADS", "µS EACH", "×FIRST", "MODEL", "CPU µS", "CONTEND",
];

/// The arms of which there are samples.
pub(crate) fn measured(result: &PinResult) -> impl Iterator<Item = &PinArm> {
    result.arms.iter().filter(|arm| !arm.is_empty())
}

/// A line a way of pinning, with one thread: `pin by uring: scattered 7.80 µs; hugetlb:2M 1.40 µs, ×0.18`.
pub fn pin_headlines(result: &PinResult) -> Vec<String> {
    let mut methods: Vec<&str> = Vec::new();
    for arm in measured(result) {
        if !methods.contains(&arm.method.as_str()) {
            methods.push(&arm.method);
        }
    }
    let line = |method: &str| {
        let parts: Vec<String> = measured(result)
            .filter(|arm| arm.method == method)
            .filter_map(|arm| {
                let point = arm.points.iter().find(|p| !p.samples.is_empty())?;
                Some(headline_part(arm, point))
            })
            .collect();
        let block = Bytes(result.settings.block_bytes);
        format!("{block} pinned by {method}: {}", parts.join("; "))
    };
    let lines: Vec<String> = methods.into_iter().map(line).collect();
    match lines.is_empty() {
        true => vec!["pin: nothing was measured".to_owned()],
        false => lines,
    }
}

fn headline_part(arm: &PinArm, point: &PinPoint) -> String {
    let median = point.spread.as_ref().map(|s| s.median);
    let effect = point
        .effect
        .map_or_else(String::new, |e| format!(", {}", times(&e)));
    let nothing = if arm.nothing_to_do {
        " (nothing to do)"
    } else {
        ""
    };
    let median = median.map_or("not measured".to_owned(), |m| format!("{} µs", short(m)));
    format!("{} {median}{effect}{nothing}", arm.label)
}

/// What the numbers are.
pub fn pin_meaning(result: &PinResult) -> String {
    let first = measured(result)
        .next()
        .map_or("-", |arm| arm.label.as_str());
    format!(
        "time to pin {} and let it go, a thread (less is better): the median of {} samples with its \
         interval; × is over {first} with as many threads, MODEL what the published loop makes of it",
        Bytes(result.settings.block_bytes),
        result.settings.rounds
    )
}

/// A row an arm and number of threads, as [`COLUMNS`].
pub fn pin_rows(result: &PinResult) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for arm in measured(result) {
        for point in arm.points.iter().filter(|p| !p.samples.is_empty()) {
            rows.push(row(arm, point));
        }
    }
    rows
}

fn row(arm: &PinArm, point: &PinPoint) -> Vec<String> {
    let dash = || "-".to_owned();
    let sure = arm.before.as_ref().is_none_or(|lying| lying.verified);
    vec![
        arm.method.clone(),
        format!("{}{}", arm.label, if sure { "" } else { " ?" }),
        match arm.nothing_to_do {
            true => "none".to_owned(),
            false => arm.units.to_string(),
        },
        point.threads.to_string(),
        point.spread.as_ref().map_or_else(dash, spread),
        point.effect.as_ref().map_or_else(dash, times),
        point.model_micros.map_or_else(dash, short),
        point
            .processor
            .as_ref()
            .map_or_else(dash, |s| short(s.median)),
        point.contention.map_or_else(dash, times_base),
    ]
}

/// The published model.
pub fn beside(result: &PinResult) -> Vec<String> {
    let rows: Vec<String> = (result.model.published.iter())
        .map(|row| format!("{} on {}", row.units, Bytes(row.page_bytes)))
        .collect();
    vec![
        format!(
            "published: {}; turns for 256K: {}",
            result.model.text,
            rows.join(", ")
        ),
        "MODEL is the time of the first pages by the number of units; CONTEND is the time over that \
         of one thread, less what sharing the processors explains: ×1 is none"
            .to_owned(),
    ]
}

/// Kinds of pages that were not had, each once.
pub fn not_had(result: &PinResult) -> Vec<NotHadLine> {
    let mut lines: Vec<NotHadLine> = Vec::new();
    for arm in &result.arms {
        if let Some(why) = &arm.not_had
            && lines.iter().all(|line| line.what != arm.label)
        {
            lines.push(NotHadLine::of(&arm.label, false, why));
        }
    }
    lines
}

/// How it was measured.
pub fn pin_how(result: &PinResult) -> String {
    let s = &result.settings;
    let read = match s.devices.is_empty() {
        true => String::new(),
        false => format!("; direct reads {}", s.devices.join(", ")),
    };
    format!(
        "all threads pin parts of one space of {}, each its own; {} rounds of {}, all in a new order in \
         each, drawn from seed {}{read}; {}",
        Bytes(s.space_bytes),
        s.rounds,
        duration(s.sample_seconds),
        s.seed,
        ending(result.experiment.ending, result.experiment.duration_seconds)
    )
}

/// What a reader must know, and whether the memory still lies as it did.
pub fn notes(result: &PinResult) -> Vec<String> {
    let mut notes = result.caveats.clone();
    for arm in measured(result) {
        let note = |lying: &Option<_>| -> Option<String> {
            let lying: &hugeleaf_proof::bench::mover::Lying = lying.as_ref()?;
            lying.note.clone()
        };
        let line = match (note(&arm.before), note(&arm.after)) {
            (Some(note), _) => format!("{}, {}: {note}", arm.method, arm.label),
            (None, Some(note)) => format!("{}, {}: afterwards {note}", arm.method, arm.label),
            (None, None) if arm.units == 1 => {
                format!(
                    "{}, {}: afterwards still on its pages",
                    arm.method, arm.label
                )
            }
            (None, None) => continue,
        };
        notes.push(line);
    }
    notes
}
