//! The table that the page begins with: what was published or wanted, and what was measured here.

use hugeleaf_proof::compare::{ComparedRow, Side};

use crate::runs::{Run, Runs, Table, interval, over, ratio};

/// What a figure is held against.
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
    /// Lower end, middle, upper end; the ends are the middle where there is no interval.
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
            (true, false) => "reached, the interval does not exclude less",
            (false, true) => "**missed**",
            (false, false) => "**missed**, the interval does not exclude it",
        }
    }
}

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn ends(row: &ComparedRow) -> Option<[f64; 3]> {
    match (&row.effect, row.ratio) {
        (Some(e), _) => Some([e.low, e.ratio, e.high]),
        (None, ratio) => ratio.map(|r| [r, r, r]),
    }
}

/// `, 10 pairs`; nothing of what was counted.
fn pairs_of(row: &ComparedRow) -> String {
    let samples = |side: &Option<Side>| side.as_ref().map_or(0, |side| side.samples.len());
    match samples(&row.a).min(samples(&row.b)) {
        0 | 1 => String::new(),
        pairs => format!(", {pairs} pairs"),
    }
}

/// The main row of one arm over another at the last place of a result; with these values of its places, where some are asked for.
fn main_row(run: &Run, large: &str, small: &str, places: &[String]) -> Option<ComparedRow> {
    let rows = over(run, large, small).into_iter();
    rows.filter(|row| row.quantity.is_main)
        .filter(|row| {
            let has = |place: &String| row.at.iter().any(|at| at.value.to_string() == *place);
            places.iter().all(has)
        })
        .rfind(|row| row.ratio.is_some())
}

/// The largest gain of any arm over the first.
fn best(run: &Run) -> Option<(String, [f64; 3])> {
    let arms = run.measured.as_ref()?.arms();
    let first = arms.first()?;
    let gains = arms.iter().skip(1).filter(|arm| *arm != "locked");
    gains
        .filter_map(|arm| Some((arm.clone(), ends(&main_row(run, arm, first, &[])?)?)))
        .max_by(|(_, a), (_, b)| a[1].total_cmp(&b[1]))
}

/// Of a ratio between two arms, the first pair of names that a result of this kind has.
fn arms_line(
    runs: &Runs,
    begin: &str,
    (what, published, wanted): (&str, &'static str, Wanted),
    pairs: &[(&str, &str)],
) -> Line {
    let found = runs.named(begin).find_map(|run| {
        let mut pairs = pairs.iter();
        pairs.find_map(|(large, small)| {
            let row = main_row(run, large, small, &[])?;
            Some((
                run,
                format!("{large} over {small}: {}", ratio(&row)),
                ends(&row)?,
            ))
        })
    });
    Line {
        what: what.to_owned(),
        published,
        wanted,
        here: found.as_ref().map(|(_, _, here)| *here),
        text: found.as_ref().map(|(_, text, _)| text.clone()),
        file: found.map_or_else(|| format!("`{begin}*.json`"), |(run, ..)| run.link()),
    }
}

fn oltp(runs: &Runs) -> Vec<Line> {
    use Wanted::{AtLeast, Nothing};
    let of_sqlite: [(_, &[(&str, &str)]); 3] = [
        (
            (
                "64K over 4K (DB2 9, 473 GB of buffer pool)",
                "+13 %",
                AtLeast(1.13),
            ),
            &[("64K", "base")],
        ),
        (
            ("16M over 64K (the same)", "+8 %", AtLeast(1.08)),
            &[("thp:2M", "64K"), ("hugetlb:2M", "64K")],
        ),
        (
            ("16G over 16M (the same)", "+3 %", AtLeast(1.03)),
            &[("hugetlb:1G", "hugetlb:2M")],
        ),
    ];
    let mut lines: Vec<Line> = of_sqlite
        .into_iter()
        .map(|(about, pairs)| arms_line(runs, "oltp-sqlite", about, pairs))
        .collect();
    let ladder = runs
        .named("oltp-sqlite")
        .find_map(|run| Some((run, best(run)?)));
    lines.push(Line {
        what: "the whole ladder, 4K to 16G (the same); here the best arm, SQLite".to_owned(),
        published: "×1.26",
        wanted: AtLeast(1.26),
        here: ladder.as_ref().map(|(_, (_, here))| *here),
        text: (ladder.as_ref())
            .map(|(_, (arm, here))| format!("{arm} over base: {}", interval(*here))),
        file: ladder.map_or_else(|| "`oltp-sqlite*.json`".to_owned(), |(run, _)| run.link()),
    });
    lines.push(arms_line(
        runs,
        "oltp-postgres",
        ("PostgreSQL, hugetlb over base", "-", AtLeast(1.0)),
        &[("hugetlb:2M", "base")],
    ));
    lines.push(arms_line(
        runs,
        "oltp-postgres",
        (
            "PostgreSQL, promoted live over hugetlb at start",
            "-",
            AtLeast(0.98),
        ),
        &[("promoted", "hugetlb:2M")],
    ));
    lines.push(by_cache(runs));
    lines.push(arms_line(
        runs,
        "chase",
        (
            "cycles per instruction with 64K (the same); here a dependent read, largest working set",
            "-11 %",
            Nothing,
        ),
        &[("thp:2M", "base"), ("hugetlb:2M", "base")],
    ));
    lines
}

/// What the gain does with the size of the cache: the best arm at the smallest and the largest.
fn by_cache(runs: &Runs) -> Line {
    let found = runs.named("oltp-cache").find_map(|run| {
        let (arm, here) = best(run)?;
        let first = run.measured.as_ref()?.arms().first()?.clone();
        let rows = over(run, &arm, &first);
        let at = |row: &ComparedRow| Some((row.at.first()?.value.to_string(), ratio(row)));
        let mains = rows
            .iter()
            .filter(|row| row.quantity.is_main && row.ratio.is_some());
        let mains: Vec<(String, String)> = mains.filter_map(at).collect();
        let ((small, of_small), (large, of_large)) = (mains.first()?, mains.last()?);
        let text = format!("{arm} over {first}: {of_small} at {small}, {of_large} at {large}");
        Some((run, text, here))
    });
    Line {
        what: "64K over 4K with 18 GB of buffer pool, against 473 GB; here by size of the cache"
            .to_owned(),
        published: "+5 %, +13 %",
        wanted: Wanted::Nothing,
        here: found.as_ref().map(|(_, _, here)| *here),
        text: found.as_ref().map(|(_, text, _)| text.clone()),
        file: found.map_or_else(|| "`oltp-cache*.json`".to_owned(), |(run, ..)| run.link()),
    }
}

fn moving(runs: &Runs) -> Vec<Line> {
    let mut lines = Vec::new();
    for run in runs.named("mover") {
        let arms = run.measured.as_ref().map(|m| m.arms()).unwrap_or_default();
        let small = arms.first().cloned().unwrap_or_default();
        let direct = ["direct", "uring-registered"];
        let row = direct
            .iter()
            .find_map(|mode| main_row(run, "hugetlb:2M", &small, &[(*mode).to_owned()]));
        let Some(row) = row else {
            continue;
        };
        let s = &run.value["settings"];
        let of = |name: &str| s[name].as_u64().unwrap_or(0);
        lines.push(Line {
            what: format!(
                "data moved, {}K blocks, {}, {}, {} on {}",
                of("block_bytes") / 1024,
                count(of("readers"), "reader"),
                count(of("writers"), "writer"),
                row.at
                    .first()
                    .map(|at| at.value.to_string())
                    .unwrap_or_default(),
                s["devices"][0].as_str().unwrap_or("-"),
            ),
            published: "×2.72",
            wanted: Wanted::AtLeast(2.72),
            here: ends(&row),
            text: Some(format!(
                "hugetlb:2M over {small}: {}{}",
                ratio(&row),
                pairs_of(&row)
            )),
            file: run.link(),
        });
    }
    for (method, threads, published, wanted) in [
        ("uring", 1, "-", Wanted::AtMost(0.2)),
        ("uring", 8, "-", Wanted::AtMost(0.2)),
        ("mlock", 8, "turns of the lock: 1/64", Wanted::Nothing),
    ] {
        let places = [method.to_owned(), threads.to_string()];
        let found = runs.named("pin").find_map(|run| {
            let row = main_row(run, "hugetlb:2M", "scattered", &places)?;
            Some((run, row))
        });
        lines.push(Line {
            what: format!("time to pin 256K, {method}, {}", count(threads, "thread")),
            published,
            wanted,
            here: found.as_ref().and_then(|(_, row)| ends(row)),
            text: found.as_ref().map(|(_, row)| {
                let pairs = pairs_of(row);
                format!("hugetlb:2M over scattered: {}{pairs}", ratio(row))
            }),
            file: found.map_or_else(|| "`pin*.json`".to_owned(), |(run, _)| run.link()),
        });
    }
    lines.push(arms_line(
        runs,
        "pagetables",
        (
            "page tables of 1024 processes on 1 GB (published: 1 GB on 4K, with entries of 4 bytes)",
            "-",
            Wanted::AtMost(0.01),
        ),
        &[("hugetlb:2M", "base"), ("thp:2M", "base")],
    ));
    lines
}

/// The table.
pub fn text(runs: &Runs) -> String {
    let mut table = Table::new(&["what", "published", "here", "", "raw samples"]);
    for line in oltp(runs).into_iter().chain(moving(runs)) {
        let wanted = match line.wanted {
            Wanted::AtLeast(x) if line.published == "-" => format!("wanted: at least {x}"),
            Wanted::AtMost(x) if line.published == "-" => format!("wanted: at most {x}"),
            _ => line.published.to_owned(),
        };
        let here = line.text.clone().unwrap_or_else(|| "-".to_owned());
        table.row(&[
            line.what.clone(),
            wanted,
            here,
            line.says().to_owned(),
            line.file,
        ]);
    }
    let none = [
        (
            "TLB misses with 64K (DB2 9)",
            "-13 %",
            "this host has no counters for them",
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
            "Oracle 11g, automatic memory without huge pages over manual with them, TPS",
            "905 over 872",
            "not run; the columns of that table are in each result of `bench oltp`",
        ),
        (
            "OLTP, Linux 2.6 over 2.4, not cached / cached (DBT-2)",
            "+8.6 % / +20.0 %",
            "one kernel here; `hugeleaf compare A B` makes such a table",
        ),
    ];
    for (what, published, why) in none {
        table.row(&[what, published, "-", why, "-"]);
    }
    table.text()
}
