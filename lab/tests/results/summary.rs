//! The table of published or required values, and the values measured here.

use hugeleaf_proof::compare::{ComparedRow, SideSamples};

use crate::runs::{Run, Runs, Table, interval, over, ratio};

/// Requirement for a figure.
#[derive(Clone, Copy)]
enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    Nothing,
}

struct Line {
    what: String,
    published: &'static str,
    wanted: Wanted,
    /// Lower end, middle, upper end; all equal without an interval.
    here: Option<[f64; 3]>,
    text: Option<String>,
    file: String,
}

impl Line {
    fn says(&self) -> &'static str {
        let Some([low, middle, high]) = self.here else {
            return "not measured yet";
        };
        let (is_met, is_sure) = match self.wanted {
            Wanted::Nothing => return "-",
            Wanted::AtLeast(wanted) => (middle >= wanted, low >= wanted || high < wanted),
            Wanted::AtMost(wanted) => (middle <= wanted, high <= wanted || low > wanted),
        };
        match (is_met, is_sure) {
            (true, true) => "reached",
            (true, false) => "reached (the interval includes a miss)",
            (false, true) => "**missed**",
            (false, false) => "**missed** (the interval includes the target)",
        }
    }
}

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Returns lower end, middle and upper end of a row's ratio; all equal without an interval.
pub fn ends(row: &ComparedRow) -> Option<[f64; 3]> {
    match (&row.effect, row.ratio) {
        (Some(e), _) => Some([e.low, e.ratio, e.high]),
        (None, ratio) => ratio.map(|r| [r, r, r]),
    }
}

/// Formats `, 10 pairs`; empty for counted values.
fn pairs_of(row: &ComparedRow) -> String {
    let samples = |side: &Option<SideSamples>| side.as_ref().map_or(0, |side| side.samples.len());
    match samples(&row.a).min(samples(&row.b)) {
        0 | 1 => String::new(),
        pairs => format!(", {pairs} pairs"),
    }
}

/// Returns the row of a quantity, or the main one, of one arm relative to another. It is at the last place of a result,
/// or at the place with these values.
pub fn row_of(
    run: &Run,
    (large, small): (&str, &str),
    places: &[&str],
    quantity: Option<&str>,
) -> Option<ComparedRow> {
    let rows = over(run, large, small).into_iter();
    rows.filter(|row| match quantity {
        Some(name) => row.quantity.name == name,
        None => row.quantity.main,
    })
    .filter(|row| {
        let has = |place: &&str| row.at.iter().any(|at| at.value.to_string() == **place);
        places.iter().all(has)
    })
    .rfind(|row| row.ratio.is_some())
}

/// Formats a ratio of two arms for a line.
fn shown(row: &ComparedRow, (large, small): (&str, &str)) -> Option<([f64; 3], String)> {
    let text = format!("{large} over {small}: {}{}", ratio(row), pairs_of(row));
    Some((ends(row)?, text))
}

/// Returns the largest gain of any arm over the first.
fn best(run: &Run) -> Option<(String, [f64; 3])> {
    let arms = run.results.as_ref()?.arm_names();
    let first = arms.first()?;
    let gains = arms.iter().skip(1).filter(|arm| *arm != "locked");
    gains
        .filter_map(|arm| Some((arm.clone(), ends(&row_of(run, (arm, first), &[], None)?)?)))
        .max_by(|(_, a), (_, b)| a[1].total_cmp(&b[1]))
}

/// Returns the ratio of the first pair of arms that each result of this kind has.
fn arms_lines(
    runs: &Runs,
    begin: &str,
    (what, published, wanted): (&str, &'static str, Wanted),
    pairs: &[(&str, &str)],
) -> Vec<Line> {
    let found = runs.named(begin).filter_map(|run| {
        let mut pairs = pairs.iter();
        pairs.find_map(|arms| {
            let (here, text) = shown(&row_of(run, *arms, &[], None)?, *arms)?;
            Some((here, text, run))
        })
    });
    lines(begin, (what, published, wanted), found)
}

/// Returns a line for each of these figures, or one that reports a missing measurement.
fn lines<'a>(
    begin: &str,
    (what, published, wanted): (&str, &'static str, Wanted),
    found: impl Iterator<Item = ([f64; 3], String, &'a Run)>,
) -> Vec<Line> {
    let line = |here, text, file| Line {
        what: what.to_owned(),
        published,
        wanted,
        here,
        text,
        file,
    };
    let mut lines: Vec<Line> = found
        .map(|(here, text, run)| line(Some(here), Some(text), run.link()))
        .collect();
    if lines.is_empty() {
        lines.push(line(None, None, format!("`{begin}*.json`")));
    }
    lines
}

#[expect(clippy::too_many_lines, reason = "one table")]
fn oltp(runs: &Runs) -> Vec<Line> {
    use Wanted::{AtLeast, Nothing};
    let of_sqlite: [(_, &[(&str, &str)]); 3] = [
        (
            (
                "64K over 4K (DB2 9, 473 GB of buffer pool)",
                "+13 %",
                AtLeast(1.13),
            ),
            &[("thp:64K", "base")],
        ),
        (
            ("16M over 64K (DB2 9)", "+8 %", AtLeast(1.08)),
            &[("thp:2M", "thp:64K"), ("hugetlb:2M", "thp:64K")],
        ),
        (
            ("16G over 16M (DB2 9)", "+3 %", AtLeast(1.03)),
            &[("hugetlb:1G", "hugetlb:2M")],
        ),
    ];
    let mut all: Vec<Line> = of_sqlite
        .into_iter()
        .flat_map(|(about, pairs)| arms_lines(runs, "oltp-sqlite", about, pairs))
        .collect();
    let ladder = runs.named("oltp-sqlite").filter_map(|run| {
        let (arm, here) = best(run)?;
        Some((here, format!("{arm} over base: {}", interval(here)), run))
    });
    all.extend(lines(
        "oltp-sqlite",
        (
            "the whole ladder, 4K to 16G (DB2 9); here SQLite, best arm",
            "×1.26",
            AtLeast(1.26),
        ),
        ladder,
    ));
    all.extend(arms_lines(
        runs,
        "oltp-postgres",
        ("PostgreSQL, hugetlb over base", "-", AtLeast(1.0)),
        &[("hugetlb:2M", "base")],
    ));
    all.extend(arms_lines(
        runs,
        "oltp-postgres",
        (
            "PostgreSQL, promoted live over hugetlb at start",
            "-",
            AtLeast(0.98),
        ),
        &[("promoted", "hugetlb:2M")],
    ));
    all.extend(arms_lines(
        runs,
        "oltp-connections",
        (
            "PostgreSQL with 32 connections, promoted live over base",
            "-",
            AtLeast(1.0),
        ),
        &[("promoted", "base")],
    ));
    all.push(by_cache(runs));
    all.extend(arms_lines(
        runs,
        "chase",
        (
            "cycles per instruction with 64K (DB2 9); here a dependent read, largest working set",
            "-11 %",
            Nothing,
        ),
        &[("thp:2M", "base"), ("hugetlb:2M", "base")],
    ));
    all
}

/// Returns the gain by the size of the cache: the best arm at the smallest and the largest.
fn by_cache(runs: &Runs) -> Line {
    let found = runs.named("oltp-cache").find_map(|run| {
        let (arm, here) = best(run)?;
        let first = run.results.as_ref()?.arm_names().first()?.clone();
        let rows = over(run, &arm, &first);
        let at = |row: &ComparedRow| Some((row.at.first()?.value.to_string(), ratio(row)));
        let mains = rows
            .iter()
            .filter(|row| row.quantity.main && row.ratio.is_some());
        let mains: Vec<(String, String)> = mains.filter_map(at).collect();
        let ((small, of_small), (large, of_large)) = (mains.first()?, mains.last()?);
        let text = format!("{arm} over {first}: {of_small} at {small}, {of_large} at {large}");
        Some((run, text, here))
    });
    Line {
        what: "64K over 4K with 18 GB and with 473 GB of buffer pool (DB2 9); here by size of the cache"
            .to_owned(),
        published: "+5 %, +13 %",
        wanted: Wanted::Nothing,
        here: found.as_ref().map(|(_, _, here)| *here),
        text: found.as_ref().map(|(_, text, _)| text.clone()),
        file: found.map_or_else(|| "`oltp-cache*.json`".to_owned(), |(run, ..)| run.link()),
    }
}

/// Describes a run of the mover: blocks, threads, devices.
fn mover(run: &Run, mode: &str) -> String {
    let s = &run.value["settings"];
    let of = |name: &str| s[name].as_u64().unwrap_or(0);
    format!(
        "{}K blocks, {}, {}, {mode} on {}",
        of("block_bytes") / 1024,
        count(of("readers"), "reader"),
        count(of("writers"), "writer"),
        match s["devices"][0].as_str() {
            Some(place) if place.starts_with("files") => "files",
            place => place.unwrap_or("-"),
        },
    )
}

/// Returns a line for each run of the mover, in the first of these modes that it has.
fn mover_lines(
    runs: &Runs,
    (what, published, wanted): (&str, &'static str, Wanted),
    modes: &[&str],
    quantity: Option<&str>,
) -> Vec<Line> {
    let of_run = |run: &Run| {
        let small = run.results.as_ref()?.arm_names().first()?.clone();
        let arms = ("hugetlb:2M", small.as_str());
        let mut modes = modes.iter();
        let (mode, row) =
            modes.find_map(|mode| Some((*mode, row_of(run, arms, &[mode], quantity)?)))?;
        let (here, text) = shown(&row, arms)?;
        Some(Line {
            what: format!("{what}, {}", mover(run, mode)),
            published,
            wanted,
            here: Some(here),
            text: Some(text),
            file: run.link(),
        })
    };
    runs.named("mover").filter_map(of_run).collect()
}

fn moving(runs: &Runs) -> Vec<Line> {
    use Wanted::{AtLeast, AtMost, Nothing};
    let mut all = mover_lines(
        runs,
        ("data moved", "×2.72", AtLeast(2.72)),
        &["direct", "uring-registered"],
        None,
    );
    all.extend(mover_lines(
        runs,
        ("CPU a GiB", "-", AtMost(0.5)),
        &["direct"],
        Some("CPU of the process a GiB"),
    ));
    all.extend(mover_lines(
        runs,
        ("data moved", "-", AtLeast(5.0)),
        &["lock"],
        None,
    ));
    for (method, threads, published, wanted) in [
        ("uring", "1", "-", AtMost(0.2)),
        ("uring", "8", "-", AtMost(0.2)),
        ("mlock", "8", "lock cycles: 1/64", Nothing),
    ] {
        let found = runs.named("pin").filter_map(|run| {
            let arms = ("hugetlb:2M", "scattered");
            let row = row_of(run, arms, &[method, threads], None)?;
            let (here, text) = shown(&row, arms)?;
            Some((here, text, run))
        });
        let what = format!("time to pin 256K, {method}, threads: {threads}");
        all.extend(lines("pin", (&what, published, wanted), found));
    }
    all.extend(arms_lines(
        runs,
        "pagetables",
        (
            "page tables of 1024 processes on 1 GB (published: 1 GB on 4K, with entries of 4 bytes)",
            "-",
            AtMost(0.01),
        ),
        &[("hugetlb:2M", "base"), ("thp:2M", "base")],
    ));
    all
}

/// Groups lines of several hosts or runs on the same subject, in the order of their first lines.
fn grouped(lines: impl Iterator<Item = Line>) -> Vec<Vec<Line>> {
    let mut groups: Vec<Vec<Line>> = Vec::new();
    for line in lines {
        match groups
            .iter_mut()
            .find(|g| g[0].what == line.what && g[0].published == line.published)
        {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    groups
}

/// Returns the measured values, with the arms only once if they are the same in all.
fn figures(lines: &[Line]) -> String {
    fn text(line: &Line) -> &str {
        line.text.as_deref().unwrap_or("-")
    }
    let arms = text(&lines[0]).split_once(": ").map(|(arms, _)| arms);
    let prefix = arms.map(|arms| format!("{arms}: ")).unwrap_or_default();
    match lines.iter().all(|l| text(l).starts_with(&prefix)) {
        true => prefix.clone() + &joined(lines, |l| &text(l)[prefix.len()..]),
        false => joined(lines, text),
    }
}

fn joined(lines: &[Line], cell: impl Fn(&Line) -> &str) -> String {
    let cells: Vec<&str> = lines.iter().map(cell).collect();
    cells.join("; ")
}

/// Returns the table.
pub fn text(runs: &Runs) -> String {
    let mut table = Table::new(&[
        "comparison",
        "published",
        "measured",
        "result",
        "raw samples",
    ]);
    for lines in grouped(oltp(runs).into_iter().chain(moving(runs))) {
        let line = &lines[0];
        let wanted = match line.wanted {
            Wanted::AtLeast(x) if line.published == "-" => format!("required: at least {x}"),
            Wanted::AtMost(x) if line.published == "-" => format!("required: at most {x}"),
            _ => line.published.to_owned(),
        };
        let here = figures(&lines);
        // Only once if they are all the same.
        let same = lines.iter().all(|l| l.says() == line.says());
        let says = match same {
            true => line.says().to_owned(),
            false => joined(&lines, |l| l.says()),
        };
        let files = joined(&lines, |l| &l.file);
        table.row(&[line.what.clone(), wanted, here, says, files]);
    }
    let none = [
        (
            "TLB misses with 64K (DB2 9)",
            "-13 %",
            "not measured: no machine here has counters; on one that has, `hugeleaf-lab oltp --pages` measures them",
        ),
        (
            "1G and 2M over 2M THP, 8 programs (Trident, MICRO'21)",
            "+18 % in the mean",
            "not run",
        ),
        (
            "requests a second (Temeraire, OSDI'21)",
            "+7.7 %",
            "not run",
        ),
        (
            "automatic promotion, TPC-E (ASO/DSO on AIX)",
            "about +5 %",
            "not run",
        ),
        (
            "Oracle 11g, automatic memory management without huge pages over manual with huge pages, TPS",
            "905 over 872",
            "two servers instead of one process: `hugeleaf-lab amm`, arm `amm:base` over `manual:hugetlb`",
        ),
        (
            "OLTP, Linux 2.6 over 2.4, not cached / cached (DBT-2)",
            "+8.6 % / +20.0 %",
            "only one kernel here; `hugeleaf compare A B` makes such a table",
        ),
    ];
    for (what, published, why) in none {
        table.row(&[what, published, "-", why, "-"]);
    }
    table.text()
}
