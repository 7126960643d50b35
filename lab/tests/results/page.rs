//! The pages: one with answers, and one per subject.

use serde_json::Value;

use hugeleaf_units::Bytes;

use crate::runs::{Run, Runs, Table};
use crate::{answers, oltp, own, programs, summary};

const HEAD: &str = "# What larger pages bring

";

const WHEN_NOT: &str = "- **What waits wins nothing there.** A server that spends its time in the kernel, on the network or on a disk computes faster in the rest only: nginx, fio.\n\
- **What fits the TLB wins nothing.** A few megabytes that are read again and again, or memory that is read in order.\n\
- **What forks to save loses them.** A huge page that is written to while a forked child lives is mapped by base pages from then on, until it is promoted again: [Redis](guide/redis.md).\n\
- **What is made and thrown away.** A huge page has to be cleared whole before its first byte is used, and one of which little is used is memory wasted: [heaps that grow](results/run.md).\n\
- **Losses are in the tables** like gains. `hugeleaf prove` measures yours; `hugeleaf predict` says beforehand what may be expected.\n\n";

const ABOUT: &str = "A time by itself says nothing about another machine and is not here. A ratio with an interval is a Hodges-Lehmann estimate, the median
of the means of all pairs of log ratios of rounds or pairs, with its 95 % interval, unless its line says otherwise; a median is called one.

All these pages are made from the raw runs under [bench/runs](../bench/runs) by `lab/tests/results`, and a test compares them with them.

";

const NOT_SHOWN: &str = "- **One kind of machine.** A virtual machine with two processors, shared with neighbours. What a guest gains depends on the pages\n\
  that its host has beneath; that cannot be seen from inside.\n\
- **No hardware counters.** Cycles per instruction and TLB misses (chart 2 of the DB2 9 study) are not here. This machine's processor lets\n\
  none be counted; of the emulated ones only arm64 counts cycles and instructions, and there the clock goes by instructions, so that a page size\n\
  cannot move their ratio, and events of the TLB open and stay at 0. Where a host counts them, `hugeleaf-lab oltp --pages\n\
  base,thp:2M,hugetlb:2M` fills that chart, on SQLite and on PostgreSQL. A dependent read is the nearest thing here.\n\
- **Small memory.** The published gains are of buffer pools of 18 to 473 GB; here there are 24 in all.\n\
- **No disks.** Devices are files and loop devices of the same machine: what a data path gains on real drives is not shown.\n\
- **Published figures are others' machines, page sizes and databases.** They stand next to ours for reference, and are no yardstick for a page\n\
  size of another processor.\n\
- **No TPC-C results.** The load follows its public rules. Compare it with other runs of hugeleaf only.\n\
- **The best of several arms** is more than a single one would give by chance. Look at the table below it.\n";

/// Path of the page with answers, below the repository.
pub const FIRST: &str = "docs/results.md";

/// Folder of the other pages.
pub const SUBJECTS: &str = "docs/results";

/// Content of a page of its own.
struct Subject {
    /// File name without its extension.
    file: &'static str,
    title: &'static str,
    text: String,
}

fn subjects(runs: &Runs) -> Vec<Subject> {
    let subject = |file, title, text| Subject { file, title, text };
    let moving = || [results(runs, "mover"), results(runs, "pin")].concat();
    let tables = || results(runs, "pagetables") + &page_tables(runs);
    let limits = || format!("{NOT_SHOWN}\n{}", caveats(runs));
    vec![
        subject("programs", "Any program, by page size", programs::all(runs)),
        subject(
            "databases",
            "Is a database faster on huge pages?",
            oltp::text(runs),
        ),
        subject(
            "memory",
            "What does memory bring that moves between servers?",
            amm(runs),
        ),
        subject(
            "sqlite",
            "What does SQLite gain on one cache on huge pages?",
            own::figures(runs, &["sqlite-"]),
        ),
        subject(
            "run",
            "What does a program gain under run?",
            own::programs(runs),
        ),
        subject("always", "And where THP is always on?", own::always(runs)),
        subject(
            "reads",
            "What does a dependent read cost?",
            results(runs, "chase"),
        ),
        subject(
            "data-path",
            "What does it cost to pin and move data?",
            moving(),
        ),
        subject("page-tables", "How large are page tables?", tables()),
        subject(
            "predict",
            "What did predict say, and what was proven?",
            programs::predicted(runs),
        ),
        subject(
            "promotion",
            "What do promotion and the library cost?",
            own::promotion(runs),
        ),
        subject(
            "guard",
            "What does the guard keep, and what does it cost?",
            own::figures(runs, &["guard-", "top"]),
        ),
        subject("trace", "What does a trace cost?", own::trace(runs)),
        subject(
            "sure",
            "How fast are the screens, and how sure is prove?",
            own::looking(runs) + &own::prove(runs),
        ),
        subject("published", "Published and measured", summary::text(runs)),
        subject("limits", "What it does not show", limits()),
        subject(
            MACHINES,
            "On what, and how to repeat it",
            hosts(runs) + RECORDED + &commands(runs),
        ),
    ]
}

/// The page that lists all runs.
pub const MACHINES: &str = "machines";

/// Makes the pages of the runs, each with its path below the repository.
pub fn pages(runs: &Runs) -> Vec<(String, String)> {
    let subjects = subjects(runs);
    let mut first = [HEAD, &programs::summary(runs), "## When not\n\n", WHEN_NOT].concat();
    first.push_str("## Ten questions\n\nA ratio is of two arms that took turns on one machine: what it says of huge pages over base pages unless the question says\notherwise; *not shown* is an interval with ×1 in it. Each leads to its raw samples.\n\n");
    first.push_str(&answers::text(runs));
    first.push_str("## A page a subject\n\n");
    for Subject { file, title, .. } in &subjects {
        first.push_str(&format!("- [{title}](results/{file}.md)\n"));
    }
    first.push_str("\n## How to read a figure\n\n");
    first.push_str(ABOUT);
    let mut pages = vec![(FIRST.to_owned(), first)];
    // These pages are one folder further down.
    let moved = |text: &str| {
        text.replace("](../", "](../../")
            .replace("](guide/", "](../guide/")
    };
    pages.extend(subjects.iter().map(|Subject { file, title, text }| {
        let text = format!(
            "# {title}\n\n[All results](../results.md)\n\n{}",
            moved(text)
        );
        (format!("{SUBJECTS}/{file}.md"), text)
    }));
    for (_, text) in &mut pages {
        // Recorded names of quantities keep the words of their time.
        *text = text.replace(" on large pages", " on huge pages");
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    pages
}

fn results(runs: &Runs, begin: &str) -> String {
    let mut files = runs.named(begin).peekable();
    if files.peek().is_none() {
        return format!("`{begin}*.json`: not measured yet.\n\n");
    }
    files.map(oltp::of_run).collect()
}

/// Returns the section on two servers that share a target, with their usage in each phase.
fn amm(runs: &Runs) -> String {
    const ABOUT: &str = "Two MariaDB servers share a target: divided by hand (`manual`) or by `hugeleaf balance` (`amm`), on base pages (`base`), promoted ones (`large`)\n\
        or pages of the pool (`hugetlb`). Rows without a phase are of the whole load. Second by second it is in the raw runs.\n\n";
    ABOUT.to_owned() + &results(runs, "amm")
}

/// Returns the page tables of processes that share a region, in bytes; equal on all hosts.
fn page_tables(runs: &Runs) -> String {
    let Some(run) = runs.find("pagetables") else {
        return String::new();
    };
    let Some(results) = &run.results else {
        return String::new();
    };
    let last = |arm: &String| {
        let mut rows = results
            .rows
            .iter()
            .filter(|row| row.quantity.main && !row.samples.is_empty());
        rows.rfind(|row| row.arm == *arm)
    };
    let region = Bytes(run.value["settings"]["region_bytes"].as_u64().unwrap_or(0));
    let mut out = format!(
        "What that came to in bytes, on a region of {region}. Published for Linux 2.6, with entries of 4 bytes: 1 GB for 1024 processes on 1 GB, and\n\
         16 MB for each process on 16 GB. Entries have 8 bytes now.\n\n"
    );
    for arm in results.arm_names() {
        if let Some((row, place)) = last(&arm).and_then(|row| Some((row, row.at.first()?))) {
            #[allow(clippy::cast_possible_truncation)] // page tables grew
            let grown = Bytes(row.values().iter().sum::<f64>() as u64);
            out.push_str(&format!(
                "- {arm}, {} processes: {grown} in all\n",
                place.value
            ));
        }
    }
    out + "\n"
}

/// Returns the caveats of the results themselves.
fn caveats(runs: &Runs) -> String {
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for run in &runs.all {
        let caveats = run.value["caveats"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        for text in caveats.iter().filter_map(Value::as_str) {
            match said.iter_mut().find(|(known, _)| known == text) {
                Some((_, files)) => files.push(run.name.clone()),
                None => said.push((text.to_owned(), vec![run.name.clone()])),
            }
        }
    }
    let mut out = "What the results themselves say:\n\n".to_owned();
    for (text, files) in said {
        out.push_str(&format!("- {text} ({})\n", files.join(", ")));
    }
    out + "\n"
}

/// Describes a machine.
fn host(run: &Run) -> String {
    let host = &run.value["host"];
    if let Some(text) = host.as_str() {
        return format!(
            "{text}, Linux {}",
            run.value["kernel"].as_str().unwrap_or("-")
        );
    }
    if host.is_null() {
        return "computed from recordings".to_owned();
    }
    let word = |key: &str| host[key].as_str().unwrap_or("processor unknown").to_owned();
    let cpus = host["cpus"].as_u64().unwrap_or(0);
    let memory = host["memory_bytes"].as_u64().map(Bytes);
    let memory = memory.map_or_else(|| "-".to_owned(), |memory| memory.to_string());
    format!(
        "{}, {cpus} processors, {memory}, Linux {}",
        word("processor"),
        word("kernel")
    )
}

fn hosts(runs: &Runs) -> String {
    let mut hosts: Vec<(String, Vec<String>)> = Vec::new();
    for run in &runs.all {
        let words = host(run);
        match hosts.iter_mut().find(|(known, _)| *known == words) {
            Some((_, files)) => files.push(run.link()),
            None => hosts.push((words, vec![run.link()])),
        }
    }
    let mut table = Table::new(&["machine", "runs"]);
    for (words, files) in hosts {
        table.row(&[words, files.join(", ")]);
    }
    table.text()
}

/// Note on commands of runs that are older than the lab.
const RECORDED: &str = "Commands are as they were recorded: `hugeleaf bench oltp`, `amm`, `mover`, `pin` and `pagetables` are `hugeleaf-lab oltp`\nand so on today.\n\n";

fn commands(runs: &Runs) -> String {
    let mut table = Table::new(&["run", "command"]);
    for run in &runs.all {
        let command = match run.command() {
            command if command.is_empty() => "made by the tests of `prove`".to_owned(),
            command => format!("`{command}`"),
        };
        table.row(&[run.link(), command]);
    }
    table.text()
}
