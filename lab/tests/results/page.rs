//! The pages: one with answers, and one per subject.

use serde_json::Value;

use hugeleaf_units::Bytes;

use crate::runs::{Run, Runs, Table};
use crate::{answers, oltp, own, programs, python, summary};

const HEAD: &str = "# Results: huge pages compared with base pages

";

const WHEN_NOT: &str = "- **Time spent waiting.** A server that spends its time in the kernel, on the network or on a disk gains only in the rest of its time. Examples: nginx, fio.\n\
- **Working sets that fit the TLB.** A few megabytes that are read repeatedly gain nothing, nor does memory that is read in order.\n\
- **Processes that fork to save data.** If a process writes to a huge page while a forked child lives, base pages map that memory until it is promoted again: [Redis](guide/redis.md).\n\
- **Short-lived memory.** The kernel clears a whole huge page before its first byte is used. A huge page that is used only in part wastes memory: [heaps that grow](results/run.md).\n\
- **Losses are in the tables**, next to gains. `hugeleaf predict` estimates the effect on your program, and `hugeleaf prove` measures it.\n\n";

const ABOUT: &str = "Most figures are ratios, because an absolute time says nothing about another machine. A ratio with an interval is a Hodges-Lehmann estimate
with its 95 % interval, unless its line says otherwise. The estimate is the median of the means of all pairs of log ratios, one log ratio for
each round or pair.

`lab/tests/results` makes all these pages from the raw runs in [bench/runs](../bench/runs). A test checks that they agree.

";

const NOT_SHOWN: &str = "- **One kind of machine.** A virtual machine with two processors, shared with neighbours. The gain of a guest\n\
  depends on the page sizes of its hypervisor, which cannot be seen from inside.\n\
- **No hardware counters.** Cycles per instruction and TLB misses (chart 2 of the DB2 9 study) are not measured. The processor of\n\
  this machine provides no counters. Of the emulated processors, only arm64 counts cycles and instructions. Its clock advances with the\n\
  instructions, so a page size cannot change their ratio, and TLB events stay at 0. On a host with counters, `hugeleaf-lab oltp --pages\n\
  base,thp:2M,hugetlb:2M` measures both for SQLite and PostgreSQL. The closest measurement here is the dependent read.\n\
- **Small memory.** The published gains are for buffer pools of 18 to 473 GB. The machine here has 24 GB of memory in all.\n\
- **No disks.** Devices are files and loop devices of the same machine, so the gain of a data path on real drives is not shown.\n\
- **Published figures come from other machines, page sizes and databases.** They are listed for reference. They set no standard for a page\n\
  size of another processor.\n\
- **No TPC-C results.** The load follows the public rules of TPC-C. Compare it only with other runs of hugeleaf.\n\
- **The best of several arms** overstates the gain, because chance favours it. Read the figures of all arms.\n";

/// Recorded remarks and names whose words have changed since, and the words of today.
const REWORDED: [(&str, &str); 21] = [
    (" on large pages", " on huge pages"),
    ("mimalloc, large pages", "mimalloc, large OS pages"),
    (
        "what a page of the guest gains depends on the pages of the machine below, which cannot be seen from here.",
        "the gain of a huge page also depends on the page sizes of the hypervisor, which the guest cannot see.",
    ),
    (
        "its devices are other programs' files, and each piece of a transfer is handed to them by its own descriptor.",
        "its devices are files of other programs, and each extent of a transfer takes a descriptor of its own.",
    ),
    (
        "Locking hugetlb pages is cheap because the kernel has nothing to do: they are always in memory. It is not a cheaper way to do the same.",
        "Locking hugetlb pages is cheap because they are always in memory, so the kernel has nothing to do. It is not the same work done faster.",
    ),
    (
        "times include what the machine below does for new entries of page tables.",
        "times include the hypervisor's work for new page-table entries.",
    ),
    (
        "mlock of hugetlb pages is nothing to do: they always stay in memory, and the kernel returns at once.",
        "mlock of hugetlb pages returns at once, because they always stay in memory.",
    ),
    (
        "splits its mapping, so from the second time on base pages are locked there, however large the page is.",
        "splits its mapping. From the second call on, base pages are locked there, whatever the page size.",
    ),
    (
        "direct is a whole read, device included; what pinning costs is in its processor time.",
        "`direct` is a whole read, device included. The cost of pinning is in its CPU time.",
    ),
    (
        "a load after the rules of TPC-C, and no TPC-C result: compare it with others of hugeleaf only",
        "the load follows the rules of TPC-C, but this is no TPC-C result: compare it only with other results of hugeleaf",
    ),
    (
        "what the standard calls a remote warehouse is one of the same database",
        "a remote warehouse of the standard is in the same database",
    ),
    (
        "The base arm is memory whose large pages were split: it is still contiguous. Where a processor joins neighbouring base pages in its TLB, and for direct I/O, the gain over memory that never was large can be more than this.",
        "The base arm is memory whose huge pages were split, so it is still contiguous. The gain over memory that was never on huge pages can be larger: for direct I/O, and on processors that merge neighbouring base pages in the TLB.",
    ),
    (
        "this metric tells nothing over shorter ones.",
        "this metric has no meaning over shorter ones.",
    ),
    (
        "They map it again as they touch it; nothing is measured until that is nearly over.",
        "They map it again at the next touch. Measurement begins when that is nearly complete.",
    ),
    (
        "its disk is its host's, so that a page which is not in a buffer pool costs more or less than on a disk of your own.",
        "its disk belongs to the hypervisor, so a miss in the buffer pool costs more or less than on a disk of your own.",
    ),
    (
        "what a miss of the TLB costs is the hypervisor's to say too; compare ratios, and no times.",
        "the cost of a TLB miss also depends on the hypervisor. Compare ratios, not times.",
    ),
    (
        "Points marked ? were not seen to be on the pages of their arm.",
        "Points marked ? were not verified to be on the pages of their arm.",
    ),
    (
        "short programs live on what starting and ending costs; larger pages help them little and may cost.",
        "the cost of short programs is mostly start and exit. Huge pages help them little and may cost time.",
    ),
    (
        "It shows what larger pages do not do.",
        "It shows the limits of huge pages.",
    ),
    (
        "Translation in a heap of small pages that the engine cuts up itself",
        "Translation in a heap that the engine divides into small regions",
    ),
    (
        "every connection maps the shared buffers by itself.",
        "every connection has page tables of its own for the shared buffers.",
    ),
];

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
        subject("programs", "Programs by page size", programs::all(runs)),
        subject(
            "databases",
            "Is a database faster on huge pages?",
            oltp::text(runs),
        ),
        subject(
            "memory",
            "What is the gain of moving memory between servers?",
            amm(runs),
        ),
        subject(
            "sqlite",
            "What does SQLite gain from one cache on huge pages?",
            own::figures(runs, &["sqlite-"]),
        ),
        subject(
            "run",
            "What does a program gain under run?",
            own::programs(runs),
        ),
        subject("always", "What if THP is always on?", own::always(runs)),
        subject("python", "What do NumPy arrays gain?", python::text(runs)),
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
            "How accurate is predict?",
            programs::predicted(runs),
        ),
        subject(
            "promotion",
            "What do promotion and the library cost?",
            own::promotion(runs),
        ),
        subject(
            "guard",
            "What does the guard achieve, and what does it cost?",
            own::figures(runs, &["guard-", "top"]),
        ),
        subject("trace", "What does a trace cost?", own::trace(runs)),
        subject(
            "sure",
            "How fast are the screens, and how reliable is prove?",
            own::looking(runs) + &own::prove(runs),
        ),
        subject("published", "Published and measured", summary::text(runs)),
        subject("limits", "What the results do not show", limits()),
        subject(
            MACHINES,
            "Machines and commands",
            hosts(runs) + RECORDED + &commands(runs),
        ),
    ]
}

/// The page that lists all runs.
pub const MACHINES: &str = "machines";

/// Makes the pages of the runs, each with its path below the repository.
pub fn pages(runs: &Runs) -> Vec<(String, String)> {
    let subjects = subjects(runs);
    let mut first = [
        HEAD,
        &programs::summary(runs),
        "## Memory that gains little or nothing\n\n",
        WHEN_NOT,
    ]
    .concat();
    first.push_str("## Ten questions\n\nA ratio compares two arms that took turns on one machine. It is huge pages over base pages unless the question says\notherwise. *Not shown* means that the interval contains ×1. Each figure links to its raw samples.\n\n");
    first.push_str(&answers::text(runs));
    first.push_str("## Pages by subject\n\n");
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
        for (recorded, today) in REWORDED {
            *text = text.replace(recorded, today);
        }
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
    const ABOUT: &str = "Two MariaDB servers share a memory target. It is divided by hand (`manual`) or by `hugeleaf balance` (`amm`). The memory is on base pages (`base`),\n\
        promoted (`large`) or in the pool (`hugetlb`). Rows without a phase cover the whole load. The raw runs have the values of each second.\n\n";
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
        "In bytes, for a region of {region}. The published figures are for Linux 2.6, with entries of 4 bytes: 1 GB for 1024 processes on 1 GB, and\n\
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
    let mut out = "Caveats recorded with the results:\n\n".to_owned();
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
const RECORDED: &str = "Commands are shown as recorded. `hugeleaf bench oltp`, `amm`, `mover`, `pin` and `pagetables` are `hugeleaf-lab oltp`\nand so on today.\n\n";

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
