//! `bench mover` as text.

use hugeleaf_proof::bench::Spread;
use hugeleaf_proof::bench::mover::{Lying, MoverArm, MoverResult, MoverSample};
use hugeleaf_proof::result::Effect;
use hugeleaf_units::Bytes;

use super::{NotHadLine, duration, ending, not_had_text, short, spread, times_base};
use crate::table::{Align, Look, Paint, Table};

/// The result on a screen.
pub fn mover_text(result: &MoverResult, look: Look) -> String {
    let mut out = String::new();
    for line in mover_headlines(result) {
        out.push_str(&look.paint(&look.wrap("", &line), Paint::Bold));
    }
    out.push_str(&look.wrap("", &mover_meaning(result)));
    out.push('\n');
    for (columns, rows) in [
        (&RATES[..], rate_rows(result)),
        (&COSTS[..], cost_rows(result)),
    ] {
        out.push_str(&table(columns, rows, look));
        out.push('\n');
    }
    for line in beside(result) {
        out.push_str(&look.wrap("beside  ", &line));
    }
    out.push_str(&not_had_text(&not_had(result), look));
    out.push_str(&look.wrap("how   ", &mover_how(result)));
    for note in notes(result) {
        out.push_str(&look.wrap("note  ", &note));
    }
    out
}

/// Columns of [`rate_rows`].
pub const RATES: [&str; 7] = [
    "MODE",
    "PAGES",
    "PIECES",
    "MiB/S",
    "×FIRST",
    "STREAMS",
    "BYSTANDER P99",
];

/// Columns of [`cost_rows`].
pub const COSTS: [&str; 10] = [
    "MODE", "PAGES", "S/GiB", "×FIRST", "HOST", "USER", "SYSTEM", "WAITING", "TRANSFER", "LOCK",
];

fn table(columns: &[&str], rows: Vec<Vec<String>>, look: Look) -> String {
    let heads: Vec<(&str, Align)> = columns
        .iter()
        .map(|head| match *head {
            "MODE" | "PAGES" => (*head, Align::Left),
            _ => (*head, Align::Right),
        })
        .collect();
    let mut table = Table::new(&heads);
    for row in rows {
        table.row(row);
    }
    table.render_as(look)
}

/// The arms of which there are samples.
pub(crate) fn measured(result: &MoverResult) -> impl Iterator<Item = &MoverArm> {
    result.arms.iter().filter(|arm| arm.spread.is_some())
}

/// The first arm of a mode: what the others of the mode are held against.
fn first<'a>(result: &'a MoverResult, mode: &str) -> Option<&'a MoverArm> {
    measured(result).find(|arm| arm.mode == mode)
}

fn modes(result: &MoverResult) -> Vec<&str> {
    let mut modes: Vec<&str> = Vec::new();
    for arm in measured(result) {
        if !modes.contains(&arm.mode.as_str()) {
            modes.push(&arm.mode);
        }
    }
    modes
}

/// A line a mode: `mover, direct: scattered 467; thp:2M 931 MiB/s, ×2.00 [1.95, 2.04] (published ×2.72)`.
pub fn mover_headlines(result: &MoverResult) -> Vec<String> {
    let line = |mode: &str| {
        let parts: Vec<String> = measured(result)
            .filter(|arm| arm.mode == mode)
            .map(|arm| {
                let median = arm.spread.as_ref().map_or(0.0, |s| s.median);
                let effect = arm
                    .effect
                    .map_or_else(String::new, |e| format!(", {}", times(&e)));
                format!("{} {} MiB/s{effect}", arm.label, short(median))
            })
            .collect();
        let published = match mode {
            "direct" | "lock" => format!(" (published: ×{})", result.published.ratio),
            _ => String::new(),
        };
        format!("mover, {mode}: {}{published}", parts.join("; "))
    };
    let lines: Vec<String> = modes(result).into_iter().map(line).collect();
    match lines.is_empty() {
        true => vec!["mover: nothing was measured".to_owned()],
        false => lines,
    }
}

/// `×2.00 [1.95, 2.04]`.
pub(crate) fn times(effect: &Effect) -> String {
    let ends = [effect.low, effect.high].map(times_base);
    let ends = ends.map(|e| e.trim_start_matches('×').to_owned());
    format!("{} [{}, {}]", times_base(effect.ratio), ends[0], ends[1])
}

/// What the numbers are.
pub fn mover_meaning(result: &MoverResult) -> String {
    let s = &result.settings;
    let first = measured(result)
        .next()
        .map_or("-", |arm| arm.label.as_str());
    format!(
        "{}, {}, on {}; blocks of {}, each checked; read and written together (more is \
         better): the median of {} samples with its interval; × is over {first} in the same mode and \
         rounds",
        count(s.readers, "reader"),
        count(s.writers, "writer"),
        s.devices.join(", "),
        Bytes(s.block_bytes),
        s.rounds
    )
}

fn count(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// A row an arm, as [`RATES`].
pub fn rate_rows(result: &MoverResult) -> Vec<Vec<String>> {
    let row = |arm: &MoverArm| {
        let p99 = middle(arm, |s| Some(s.bystander.p99_seconds));
        vec![
            arm.mode.clone(),
            label(arm),
            pieces(arm.before.as_ref()),
            arm.spread.as_ref().map_or_else(dash, spread),
            arm.effect.as_ref().map_or_else(dash, times),
            streams(arm),
            p99.map_or_else(dash, |s| duration(s.median)),
        ]
    };
    measured(result).map(row).collect()
}

/// A row an arm, as [`COSTS`].
pub fn cost_rows(result: &MoverResult) -> Vec<Vec<String>> {
    let share = |part: f64| format!("{:.0} %", part * 100.0);
    let row = |arm: &MoverArm| {
        let of = |value: fn(&MoverSample) -> Option<f64>| middle(arm, value).map(|s| s.median);
        let cost = arm.processor_seconds_per_gib.as_ref();
        vec![
            arm.mode.clone(),
            arm.label.clone(),
            cost.map_or_else(dash, |s| short(s.median)),
            arm.processor_effect.as_ref().map_or_else(dash, times),
            arm.host_seconds_per_gib
                .map_or_else(dash, |s| short(s.median)),
            of(|s| Some(s.user_seconds / s.seconds)).map_or_else(dash, share),
            of(|s| Some(s.system_seconds / s.seconds)).map_or_else(dash, share),
            of(|s| Some(s.waiting_share)).map_or_else(dash, share),
            of(|s| Some(s.io.mean_seconds)).map_or_else(dash, duration),
            of(|s| Some(s.lock?.mean_seconds)).map_or_else(dash, duration),
        ]
    };
    measured(result).map(row).collect()
}

fn dash() -> String {
    "-".to_owned()
}

/// The name of an arm, marked where it was not seen to be what its name says.
fn label(arm: &MoverArm) -> String {
    let sure = arm.before.as_ref().is_none_or(|lying| lying.verified);
    match sure {
        true => arm.label.clone(),
        false => format!("{} ?", arm.label),
    }
}

fn pieces(lying: Option<&Lying>) -> String {
    let pieces = lying.and_then(|lying| lying.pieces_a_block);
    pieces.map_or_else(|| "?".to_owned(), |p| format!("{p:.1}"))
}

fn streams(arm: &MoverArm) -> String {
    let Some((streams, median)) = arm.streams.as_ref().and_then(|s| Some((s, s.median()?))) else {
        return dash();
    };
    match median >= streams.most_tried {
        true => format!("{median} or more"),
        false => median.to_string(),
    }
}

fn middle(arm: &MoverArm, value: fn(&MoverSample) -> Option<f64>) -> Option<Spread> {
    let values: Vec<f64> = arm.raw.iter().filter_map(value).collect();
    Spread::of(&values, hugeleaf_proof::bench::CONFIDENCE)
}

/// What stands beside the figures: the bare devices, what was published, and which of the things
/// that people call a large page it is.
pub fn beside(result: &MoverResult) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(bare) = Spread::of(&result.bare.samples, hugeleaf_proof::bench::CONFIDENCE) {
        lines.push(format!(
            "the devices alone, from the last of the pages, nothing checked: {} MiB/s",
            short(bare.median)
        ));
    }
    let p = &result.published;
    lines.push(format!(
        "published for a backup server (256K, 2 readers, 5 and 7 writers): {} to {} MiB/s, ×{}",
        p.small_mib_per_second, p.large_mib_per_second, p.ratio
    ));
    lines.extend(
        modes(result)
            .into_iter()
            .filter_map(|m| contiguity(result, m)),
    );
    lines.extend(modes(result).into_iter().filter_map(|m| locking(result, m)));
    if let Some(arm) = measured(result).find(|arm| arm.streams.is_some()) {
        let rate = arm.streams.as_ref().map_or(0, |s| s.rate_bytes);
        lines.push(format!(
            "STREAMS is how many writers at {} a second, each to a device of its own, all kept up",
            Bytes(rate)
        ));
    }
    lines
}

/// How much of the gain is there already where huge pages are split: contiguity alone.
fn contiguity(result: &MoverResult, mode: &str) -> Option<String> {
    /// Below it, parts of a gain are parts of noise.
    const WORTH: f64 = 1.1;
    let arms = || measured(result).filter(|arm| arm.mode == mode);
    first(result, mode).filter(|arm| arm.label == "scattered")?;
    let split = arms().find(|arm| arm.label == "split")?.effect?;
    let whole = arms().find(|arm| arm.label.starts_with("thp:") && is_huge(arm))?;
    let gain = whole.effect?;
    // Of a gain that may be none there are no parts.
    if gain.ratio < WORTH || gain.low <= 1.0 {
        return None;
    }
    let part = (split.ratio.ln() / gain.ratio.ln() * 100.0).clamp(0.0, 100.0);
    Some(format!(
        "{mode}: {part:.0} % of the gain of {} is contiguity (split, which keeps only that: {}); the \
         rest is translation and the unit of pinning",
        whole.label,
        times(&split)
    ))
}

/// Whether it was on one piece a block before.
fn is_huge(arm: &MoverArm) -> bool {
    let pieces = arm.before.as_ref().and_then(|lying| lying.pieces_a_block);
    pieces.is_none_or(|pieces| pieces < 1.5)
}

fn locking(result: &MoverResult, mode: &str) -> Option<String> {
    let arms = measured(result).filter(|arm| arm.mode == mode);
    let parts: Vec<String> = arms
        .filter_map(|arm| Some(format!("{} {}", arm.label, times(&arm.lock_effect?))))
        .collect();
    (!parts.is_empty()).then(|| {
        format!(
            "{mode}: time to lock and unlock a buffer, over the first (less is better): {}; on \
             hugetlb the kernel has nothing to do, which is not the same work done faster",
            parts.join(", ")
        )
    })
}

/// Arms that were not had, each once.
pub fn not_had(result: &MoverResult) -> Vec<NotHadLine> {
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
pub fn mover_how(result: &MoverResult) -> String {
    let s = &result.settings;
    format!(
        "buffers are slots of one data space of {}, taken in turn; each device has {}; {} rounds of \
         {}, the arms in a new order in each, drawn from seed {}; what was written is read back after \
         each sample; {}; PIECES is stretches of neighbouring frames in a block; S/GiB is seconds of \
         processors for a GiB in this process, HOST in all of the host, where the kernel's own threads \
         are in; USER and SYSTEM are parts of one processor; LOCK is locking and unlocking; {}",
        Bytes(s.space_bytes),
        Bytes(s.device_bytes),
        s.rounds,
        duration(s.sample_seconds),
        s.seed,
        match s.depth {
            1 => "one transfer under way a thread".to_owned(),
            n => format!("through a ring, {n} transfers under way a thread, else one"),
        },
        ending(result.experiment.ending, result.experiment.duration_seconds)
    )
}

/// What a reader must know.
pub fn notes(result: &MoverResult) -> Vec<String> {
    let mut notes = result.caveats.clone();
    for arm in measured(result) {
        let before = arm.before.as_ref();
        if let Some(note) = before.and_then(|lying| lying.note.as_ref()) {
            notes.push(format!("{}, {}: {note}", arm.mode, arm.label));
            continue;
        }
        if let Some(note) = arm.after.as_ref().and_then(|lying| lying.note.as_ref()) {
            let why = match arm.mode.as_str() {
                "lock" => ": locking a part of a huge page splits its mapping",
                _ => "",
            };
            notes.push(format!(
                "{}, {}: afterwards {note}{why}",
                arm.mode, arm.label
            ));
        }
    }
    notes.dedup();
    notes
}

/// A result for tests of views.
#[cfg(test)]
pub(crate) fn example() -> MoverResult {
    use serde_json::{Value, json};
    let times = |s: f64| json!({"count": 10, "mean_seconds": s, "median_seconds": s, "p99_seconds": s, "max_seconds": s});
    let arm = |label: &str, rate: f64, ratio: Option<f64>, pieces: f64, after: Option<&str>| {
        let effect = |r: f64| {
            json!({"ratio": r, "low": r * 0.95, "high": r * 1.05, "confidence": 0.95,
                "method": "signed-rank"})
        };
        let spread = |v: f64| json!({"median": v, "low": v * 0.9, "high": v * 1.1});
        let mut arm = json!({
            "label": label, "mode": "lock", "samples": [rate],
            "raw": [{"round": 0, "at_seconds": 0.0, "seconds": 1.0, "read_bytes": 1_u64 << 30,
                "written_bytes": 0, "mib_per_second": rate, "user_seconds": 0.1,
                "system_seconds": 0.4, "waiting_share": 0.75, "waits": 9, "io": times(0.0005),
                "lock": times(0.00005), "bystander": times(0.0001)}],
            "spread": spread(rate), "processor_seconds_per_gib": spread(0.5),
            "streams": {"rate_bytes": 30_u64 << 20, "most_tried": 8, "samples": [4, 8, 8], "steps": []},
            "before": {"pages": [], "pieces_a_block": pieces, "verified": true},
            "after": {"pages": [], "verified": after.is_none(), "note": after},
        });
        if let Some(ratio) = ratio {
            arm["effect"] = effect(ratio);
            arm["processor_effect"] = effect(1.0 / ratio);
            arm["lock_effect"] = effect(0.1);
        }
        arm
    };
    let not_had: Value = json!({"label": "hugetlb:2M", "mode": "lock", "samples": [], "raw": [],
        "not_had": {"from_bytes": 1, "reason": "no page <b>", "next": "echo 6 > pool"}});
    let split = "64M of 64M were not on thp:2M";
    let result = json!({
        "schema": 1,
        "experiment": {"name": "mover", "unit": "MiB/s", "better": "higher",
            "started": "2026-01-31T12:00:00Z", "duration_seconds": 61.2, "ending": "done"},
        "arms": [arm("scattered", 467.0, None, 64.0, None),
            arm("split", 900.0, Some(1.8), 1.0, None),
            arm("thp:2M", 931.0, Some(2.0), 1.0, Some(split)), not_had],
        "bare": {"samples": [1800.0]},
        "published": {"small_mib_per_second": 139.0, "large_mib_per_second": 378.0, "ratio": 2.72},
        "caveats": ["This is a virtual machine."],
        "host": {"kernel": "6.18.0", "arch": "x86_64", "cpus": 2, "nodes": 1,
            "base_page_bytes": 1_u64 << 14, "large_page_bytes": 2_u64 << 30},
        "settings": {"readers": 2, "writers": 1, "devices": ["files in /backup"],
            "device_bytes": 1_u64 << 26, "block_bytes": 1_u64 << 18, "space_bytes": 1_u64 << 26, "depth": 4,
            "rounds": 9, "sample_seconds": 0.5, "seed": 7, "confidence": 0.95, "knobs": [],
            "version": "0.1.0"},
        "command": ["hugeleaf", "bench", "mover"]
    });
    serde_json::from_value(result).expect("the example is a result")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_says_what_it_is() {
        let text = mover_text(&example(), Look::plain(110));
        let begin = "\
mover, lock: scattered 467 MiB/s; split 900 MiB/s, ×1.80 [1.71, 1.89]; thp:2M 931 MiB/s, ×2.00 [1.90, 2.10]
(published: ×2.72)
2 readers, 1 writer, on files in /backup; ";
        assert!(text.starts_with(begin), "{text}");
        for line in [
            "lock  scattered    64.0   467 [420, 514]                   -        8 or more         100 µs",
            "lock: 85 % of the gain of thp:2M is contiguity",
            "not had  hugetlb:2M: no page <b>\n  next   echo 6 > pool\n",
            "locking a part of a huge page splits",
            "the devices alone, from the last of the pages, nothing checked: 1800 MiB/s",
        ] {
            let squeeze = |t: &str| t.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                squeeze(&text).contains(&squeeze(line)),
                "{line} is missing in\n{text}"
            );
        }
    }

    #[test]
    fn the_page_is_whole() {
        let page = crate::bench_html::mover_html(&example());
        let svg = page.split("<svg").nth(1).unwrap();
        let bars: Vec<f64> = svg
            .split("<rect")
            .skip(1)
            .filter_map(|bar| {
                bar.split_once("width=\"")?
                    .1
                    .split('"')
                    .next()?
                    .parse()
                    .ok()
            })
            .collect();
        // 467 of 931 MiB a second, as long as they are.
        let (first, longest) = (bars[0], bars.iter().copied().fold(0.0, f64::max));
        assert!((first / longest - 0.502).abs() < 0.002, "{bars:?}");
        assert!(svg.contains(">467<") && svg.contains(">931<"), "{svg}");
        assert!(page.contains("no page &lt;b&gt;"), "{page}");
    }
}
