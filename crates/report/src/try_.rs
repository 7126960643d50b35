//! `hugeleaf try`: the four answers on one screen.

use hugeleaf_host::{Held, Host, Process};
use hugeleaf_proof::result::BesideArm;
use hugeleaf_proof::{Arm, ResultFile, Verdict};
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::eligible::Remedy;
use hugeleaf_verdict::findings::Finding;
use hugeleaf_verdict::why::Summary;

use crate::table::{Look, Paint, percent};

/// All that was found out.
#[derive(Debug, Clone, Copy)]
pub struct Try<'a> {
    /// The host.
    pub host: &'a Host,
    /// What is to be said about it, the worst first.
    pub findings: &'a [Finding],
    /// Rows in the database.
    pub rows: u64,
    /// Its page cache.
    pub cache: Bytes,
    /// The database's process as it began, on base pages.
    pub process: &'a Process,
    /// Why it was on base pages.
    pub why: &'a Summary,
    /// What larger pages brought.
    pub result: &'a ResultFile,
    /// Where the page with samples and charts is.
    pub html: Option<&'a str>,
    /// How long all of it took, in seconds.
    pub seconds: f64,
}

/// How many caveats a screen has room for; the page has all of them.
const MOST_CAVEATS: usize = 2;

const INDENT: &str = "          ";

/// The screen: at most 40 lines.
pub fn text(it: &Try<'_>, look: Look) -> String {
    let mut out = head(it, look);
    out.push('\n');
    out.push_str(&status(it, look));
    out.push_str(&mem(it, look));
    out.push_str(&why(it, look));
    out.push_str(&prove(it, look));
    out.push('\n');
    out.push_str(&verdict(it.result, look));
    for caveat in it.result.caveats.iter().take(MOST_CAVEATS) {
        out.push_str(&look.wrap("  ", caveat));
    }
    out.push('\n');
    out.push_str(&next(it, look));
    out
}

fn head(it: &Try<'_>, look: Look) -> String {
    let title = "What larger pages do for a database on this host";
    let what = format!(
        "A SQLite database of {} rows, wholly in a page cache of {}. One thread works on rows by \
         random key: nine reads to one update. hugeleaf looked at its process and moved it as it \
         would any server's, in {:.0} s.",
        grouped(it.rows),
        it.cache,
        it.seconds
    );
    format!(
        "{}\n{}",
        look.paint(title, Paint::Bold),
        look.wrap("", &what)
    )
}

/// A paragraph under the name of the command that says more.
fn section(name: &str, text: &str, look: Look) -> String {
    let first = format!("{name:<width$}", width = INDENT.len());
    // Painted afterwards: the wrapping counts what is seen.
    let wrapped = look.wrap(&first, text);
    wrapped.replacen(name, &look.paint(name, Paint::Bold), 1)
}

fn command(command: &str, look: Look) -> String {
    let shown = format!("{INDENT}→ {command}\n");
    look.paint(&shown, Paint::Dim)
}

fn status(it: &Try<'_>, look: Look) -> String {
    let mut sizes = vec![format!("base pages of {}", it.host.base_page)];
    let mut larger = it.host.page_sizes.iter().collect::<Vec<_>>();
    larger.retain(|p| p.kind != PageKind::Base && p.enabled);
    larger.sort_by_key(|p| (p.kind, p.size));
    sizes.extend(
        larger
            .iter()
            .map(|p| format!("{} {} ({})", p.kind, p.size, p.how)),
    );
    let findings = match it.findings {
        [] => "no findings".to_owned(),
        [one] => format!("one finding: {}", one.text),
        [worst, ..] => format!("{} findings, the worst: {}", it.findings.len(), worst.text),
    };
    let mut out = section("status", &format!("{}; {findings}", sizes.join(", ")), look);
    // The database is gone when this is read: a command that names it would find nobody.
    let pid = it.process.pid.to_string();
    let worst = it.findings.first();
    if let Some(worst) = worst.filter(|f| !f.command.contains(&pid)) {
        out.push_str(&command(&worst.command, look));
    }
    out
}

fn mem(it: &Try<'_>, look: Look) -> String {
    let process = it.process;
    let held = process
        .by_page_size
        .known()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let sizes: Vec<String> = held
        .iter()
        .map(|h| match h.kind {
            PageKind::Base => format!("{} on {} pages", h.bytes, h.size),
            kind => format!("{} on {kind} {}", h.bytes, h.size),
        })
        .collect();
    let text = format!(
        "process {} held {}: {}; {} on larger pages; page tables of {}",
        process.pid,
        process.resident,
        sizes.join(", "),
        percent(Held::coverage(held)),
        process.page_tables
    );
    section("mem", &text, look)
}

fn why(it: &Try<'_>, look: Look) -> String {
    let line = it
        .why
        .lines
        .iter()
        .find(|l| l.id.remedy() != Remedy::Nothing);
    let Some(line) = line else {
        return section("why", "nothing kept it from larger pages", look);
    };
    let text = format!(
        "{} was not on larger pages ({}): {}",
        line.bytes,
        line.id.name(),
        line.text
    );
    section("why", &text, look)
}

fn prove(it: &Try<'_>, look: Look) -> String {
    let result = it.result;
    let text = format!(
        "{} pairs of {:.1} s intervals on {} and {} pages, in random order; medians:",
        result.pairs.len(),
        result.settings.interval_seconds,
        it.host.base_page,
        large_name(it)
    );
    let mut out = section("prove", &text, look);
    for (arm, name) in [
        (Arm::Base, it.host.base_page.to_string()),
        (Arm::Large, large_name(it)),
    ] {
        let Some(median) = result.arm(arm).and_then(|a| median(&a.samples)) else {
            continue;
        };
        let mut line = format!(
            "{INDENT}{name:<6}{:>11} {}",
            rate(median),
            result.experiment.unit
        );
        if let Some(beside) = result.beside.iter().find(|b| b.label == arm) {
            line.push_str(&moved(beside));
        }
        line.push('\n');
        out.push_str(&line);
    }
    out
}

/// What else moved, as far as there is room.
fn moved(beside: &BesideArm) -> String {
    let mut text = String::new();
    for (name, bytes) in [
        ("resident", beside.resident_bytes),
        ("page tables", beside.page_tables_bytes),
    ] {
        if let Some(bytes) = bytes {
            text.push_str(&format!(", {name} {}", Bytes(bytes)));
        }
    }
    if let Some(cpus) = beside.system_cpus {
        text.push_str(&format!(", system CPU {:.1} %", cpus * 100.0));
    }
    text
}

/// The middle of the samples; `None` of none.
fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((sorted.get(low)? + sorted.get(high)?) / 2.0)
}

fn verdict(result: &ResultFile, look: Look) -> String {
    let (paint, meaning) = match result.verdict {
        Verdict::Faster => (Paint::Good, "larger pages make this database faster here"),
        Verdict::Slower => (Paint::Bad, "larger pages make this database slower here"),
        Verdict::Same => (
            Paint::Bold,
            "larger pages make no difference to this database here",
        ),
        Verdict::Unclear => (
            Paint::Warn,
            "the samples scatter too much to say; give it longer: hugeleaf try --for 5m",
        ),
    };
    let mut headline = result.verdict.to_string().to_uppercase();
    if let Some(effect) = &result.effect {
        headline.push_str(&format!(
            "   ×{:.3}   between ×{:.3} and ×{:.3} at {:.0} % confidence",
            effect.ratio,
            effect.low,
            effect.high,
            effect.confidence * 100.0
        ));
    }
    format!("  {}\n  {meaning}\n", look.paint(&headline, paint))
}

fn next(it: &Try<'_>, look: Look) -> String {
    let mut out = look.paint("On a server of your own, without a restart:", Paint::Bold) + "\n";
    for (command, what) in [
        ("hugeleaf mem", "who holds how much on which pages"),
        ("hugeleaf why PID", "why, and what to do about it"),
        (
            "hugeleaf prove PID --metric METRIC",
            "what larger pages would bring it",
        ),
        ("hugeleaf promote PID", "move it"),
    ] {
        out.push_str(&format!("  {command:<36}{what}\n"));
    }
    if let Some(html) = it.html {
        out.push_str(&format!("Samples and charts: {html}\n"));
    }
    out
}

fn large_name(it: &Try<'_>) -> String {
    let size = it.host.pmd_page.get();
    size.map_or_else(|| "large".to_owned(), |size| size.to_string())
}

/// A rate to three digits or to the unit, in groups of three.
fn rate(value: f64) -> String {
    if value.is_finite() && (100.0..1e15).contains(&value) {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        return grouped(value.round() as u64);
    }
    format!("{value:.3}")
}

/// A count in groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
