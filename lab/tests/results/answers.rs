//! The ten lines at the top of the page: question, answer, certainty, command. All of them,
//! including the words of an answer, are made from the runs, so none can be older than its figures.

use hugeleaf_report::compare::three;

use crate::runs::{Run, Runs, Table, share};
use crate::summary::{ends, row_of};

/// Direction of a ratio for a positive answer.
#[derive(Clone, Copy)]
enum Better {
    Higher,
    Lower,
    /// Neither: the question is if there is any difference.
    Equal,
}

/// A ratio and its interval, of a run.
struct Figure<'a> {
    of: String,
    ends: [f64; 3],
    run: &'a Run,
}

impl Figure<'_> {
    /// Returns the answer of its interval; `None` if it contains both answers.
    fn answers(&self, better: Better) -> Option<bool> {
        let [low, _, high] = self.ends;
        let differs = match (low > 1.0, high < 1.0) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        match better {
            Better::Lower => differs.map(|is_higher| !is_higher),
            Better::Higher | Better::Equal => differs,
        }
    }

    /// Formats `SQLite ×1.04, 1.02 to 1.07`, as a link to the samples.
    fn text(&self) -> String {
        let [low, middle, high] = self.ends.map(three);
        let of = match self.of.as_str() {
            "" => String::new(),
            of => format!("{of} "),
        };
        let span = match low == high {
            true => ", counted".to_owned(),
            false => format!(", {low} to {high}"),
        };
        format!("[{of}×{middle}{span}](../bench/runs/{})", self.run.path())
    }
}

/// Returns the common answer of all these figures.
fn answer(figures: &[Figure<'_>], better: Better) -> String {
    let of = |wanted| {
        let all = figures.iter().map(|figure| figure.answers(better));
        all.filter(|answer| *answer == wanted).count()
    };
    let (yes, no, all) = (of(Some(true)), of(Some(false)), figures.len());
    let middles: Vec<f64> = figures.iter().map(|f| f.ends[1]).collect();
    let least = middles.iter().copied().fold(f64::INFINITY, f64::min);
    let most = middles.iter().copied().fold(0.0, f64::max);
    let size = match three(least) == three(most) {
        true => format!("×{}", three(least)),
        false => format!("×{} to ×{}", three(least), three(most)),
    };
    let not_shown = match better {
        Better::Equal => "no difference shown",
        _ => "not shown",
    };
    match (yes, no) {
        (0, 0) => format!("{not_shown}: {size}"),
        (0, no) if no == all => format!("no, the opposite: {size}"),
        (yes, 0) if yes == all => format!("yes: {size}"),
        (yes, 0) => format!("yes in {yes} of {all}, {not_shown} in the others: {size}"),
        (yes, no) => format!("yes in {yes} of {all}, the opposite in {no}: {size}"),
    }
}

/// Experiments that were commands of `hugeleaf bench` when some runs were made.
const OF_THE_LAB: [&str; 5] = ["amm", "mover", "oltp", "pagetables", "pin"];

/// Returns the command without its settings, as it is typed today; the appendix has it as recorded.
fn command(run: &Run) -> String {
    let command = run.command();
    let words: Vec<&str> = command
        .split(' ')
        .take_while(|word| !word.starts_with('-'))
        .collect();
    match words.as_slice() {
        ["hugeleaf", "bench", name, ..] if OF_THE_LAB.contains(name) => {
            format!("`hugeleaf-lab {}`", words[2..].join(" "))
        }
        _ => format!("`{}`", words.join(" ")),
    }
}

/// Returns a line of the table.
fn line(question: &str, better: Better, figures: &[Figure<'_>]) -> [String; 4] {
    let Some(first) = figures.first() else {
        let none = "not measured yet".to_owned();
        return [question.to_owned(), none, "-".to_owned(), "-".to_owned()];
    };
    let texts: Vec<String> = figures.iter().map(Figure::text).collect();
    [
        question.to_owned(),
        answer(figures, better),
        texts.join("; "),
        command(first.run),
    ]
}

/// Returns the ratio of two arms in every run of this file's name that has an interval, or a count.
/// The row is at the last place, or at the place with these values.
fn arms<'a>(runs: &'a Runs, name: &str, pair: (&str, &str), at: &[&str]) -> Vec<Figure<'a>> {
    let name = format!("{name}.json");
    let of_run = |run: &'a Run| {
        let row = row_of(run, pair, at, None)?;
        let of = String::new();
        ends(&row).map(|ends| Figure { of, ends, run })
    };
    let all = runs.all.iter().filter(|run| run.name == name);
    all.filter_map(of_run).collect()
}

/// Returns the throughput under `run` relative to the bare program, for each program.
fn programs<'a>(found: impl Iterator<Item = &'a Run>, arm: &str) -> Vec<Figure<'a>> {
    let of_run = |run: &'a Run| {
        let ends = run.three(Some(arm), "work, operations/s, over bare")?;
        let (_, program) = run.name.trim_end_matches(".json").split_once('-')?;
        let of = program.to_owned();
        Some(Figure { of, ends, run })
    };
    found.filter_map(of_run).collect()
}

/// Returns the line on the worst seconds of a server during its promotion, relative to those
/// before. It has the smallest and the largest of the rounds, next to the same without promotion.
fn disturbed(runs: &Runs) -> [String; 4] {
    let question =
        "Does promotion disturb a server? Worst 3 s during promotion over worst 3 s before";
    let (mut answers, mut sure, mut by) = (Vec::new(), Vec::new(), "-".to_owned());
    for server in ["mariadb", "redis"] {
        let Some(run) = runs.find(&format!("promote-{server}")) else {
            continue;
        };
        let rounds = |key: &str| {
            let rounds = run.value["summary"][key].as_array()?;
            let mut all: Vec<f64> = rounds
                .iter()
                .filter_map(serde_json::Value::as_f64)
                .collect();
            all.sort_by(f64::total_cmp);
            Some([*all.first()?, *all.get(all.len() / 2)?, *all.last()?].map(three))
        };
        let moved = rounds("worst 3 s, promoting over still, by round");
        let still = rounds("worst 3 s, still over still, by round");
        let (Some([low, middle, high]), Some([least, _, most])) = (moved, still) else {
            continue;
        };
        answers.push(format!("{server} ×{middle}"));
        sure.push(format!(
            "[{server} rounds {low} to {high}; {least} to {most} without promotion](../bench/runs/{})",
            run.path()
        ));
        by = command(run);
    }
    if answers.is_empty() {
        answers.push("not measured yet".to_owned());
        sure.push("-".to_owned());
    }
    [question.to_owned(), answers.join(", "), sure.join("; "), by]
}

/// Returns the rates of effects that `prove` calls wrongly, and of existing ones that it covers.
fn wrong(runs: &Runs) -> [String; 4] {
    let question = "How often is `prove` wrong?".to_owned();
    let run = runs.find("simulate");
    let of = |effect: f64, key: &str| {
        let rows = run?.value["rows"].as_array()?;
        let mut rows = rows.iter().map(|row| &row["summary"]);
        rows.find(|s| s["effect"].as_f64() == Some(effect))?[key].as_f64()
    };
    let calls = of(1.0, "faster").zip(of(1.0, "slower"));
    let (Some(run), Some((faster, slower)), Some(covered)) = (run, calls, of(1.05, "covered"))
    else {
        let none = "not measured yet".to_owned();
        return [question, none, "-".to_owned(), "-".to_owned()];
    };
    let experiments = run.value["experiments"].as_u64().unwrap_or(0);
    let sure = format!(
        "[{experiments} simulated experiments per effect; the interval covers ×1.05 in {}](../bench/runs/{})",
        share(covered),
        run.path()
    );
    let answer = format!(
        "{} report an effect that does not exist",
        share(faster + slower)
    );
    [question, answer, sure, command(run)]
}

/// Returns the table.
pub fn text(runs: &Runs) -> String {
    use Better::{Equal, Higher, Lower};
    let sqlite = arms(runs, "oltp-sqlite", ("thp:2M", "base"), &[]);
    let postgres = arms(runs, "oltp-postgres", ("hugetlb:2M", "base"), &[]);
    let live = arms(runs, "oltp-postgres", ("promoted", "hugetlb:2M"), &[]);
    let read = arms(runs, "chase", ("thp:2M", "base"), &[]);
    let moved = arms(runs, "mover-read", ("hugetlb:2M", "scattered"), &["direct"]);
    let tables = arms(runs, "pagetables", ("hugetlb:2M", "base"), &[]);
    let run = programs(runs.named("run-"), "run, thp");
    let always = programs(runs.named("always-"), "run");
    let lines = [
        line(
            "Is SQLite faster on 2M pages, with all its data in its cache?",
            Higher,
            &sqlite,
        ),
        line(
            "Is PostgreSQL faster with its shared buffers on 2M pages?",
            Higher,
            &postgres,
        ),
        line(
            "Does a PostgreSQL promoted while it runs differ from one started on a pool?",
            Equal,
            &live,
        ),
        line(
            "Does a dependent read from a large memory take less time?",
            Lower,
            &read,
        ),
        line(
            "Does a backup server read more per second with direct I/O if its buffers are on 2M pages?",
            Higher,
            &moved,
        ),
        line(
            "Do 1024 processes that share 1 GB have smaller page tables?",
            Lower,
            &tables,
        ),
        line("Is an unmodified program faster under `run`?", Higher, &run),
        line("Is it also faster if THP is `always`?", Higher, &always),
        disturbed(runs),
        wrong(runs),
    ];
    let mut table = Table::new(&["question", "answer", "95 % interval", "command"]);
    for line in &lines {
        table.row(line);
    }
    table.text()
}
