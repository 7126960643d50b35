//! Loads on NumPy arrays, by the pages of their memory.

use hugeleaf_proof::compare::ComparedRow;

use crate::runs::{Run, Runs, Table, over, ratio};

/// Quantities by wall time have this after the name of their load.
const BY_WALL_TIME: &str = ", wall time";

/// The arm with NumPy's own huge pages.
const NUMPY: &str = "numpy";

const ABOUT: &str = "Each process runs five loads, one after the other, on one thread and on one piece of memory. `base` is NumPy with\n\
`NUMPY_MADVISE_HUGEPAGE=0`, `numpy` is NumPy as it is: it advises huge pages for arrays from 4M. The other arms are\n\
`hugeleaf.empty` with these pages. Rates are per second of CPU time, because other programs ran on the machine; the second table of\n\
a run is per second of wall time. Above 1 is faster, and an interval that contains 1 shows no difference.\n\n\
The runs of 2026-11-29 shared two processors with builds, at a load of 16 to 26 (`bench/checks/2026-11-29-python`). That makes intervals\n\
wide. It can also favour huge pages, because other programs evict cached page-table entries. Measure on a quiet host before\n\
you rely on a size of the gain.\n\n\
- **gather**: `numpy.take` of elements at random places.\n\
- **hash join**: keys looked up in a half full hash table with linear probing; half of them are missing.\n\
- **group-by**: `numpy.add.at` to the sums of random groups.\n\
- **vector search**: ten nearest of vectors with 384 dimensions, by USearch's HNSW graphs, in segments of 256M that are used in place.\n\
- **sparse product**: SciPy's CSR matrix with eight entries a row in random columns, times a vector.\n\n";

/// Returns the section of all runs.
pub fn text(runs: &Runs) -> String {
    let mut out = ABOUT.to_owned();
    for run in runs.named("python-arrays-") {
        out.push_str(&of_run(run));
    }
    out
}

/// A comparison of two arms.
struct Comparison<'a> {
    arm: &'a str,
    over: &'a str,
    rows: Vec<ComparedRow>,
}

fn of_run(run: &Run) -> String {
    let Some(measured) = &run.results else {
        return String::new();
    };
    let arms = measured.arm_names();
    let Some((base, others)) = arms.split_first() else {
        return String::new();
    };
    let compare = |arm, base| Comparison {
        arm,
        over: base,
        rows: over(run, arm, base),
    };
    let mut all: Vec<Comparison<'_>> = others.iter().map(|arm| compare(arm, base)).collect();
    // NumPy's own huge pages are there without hugeleaf, so a gain over them is what hugeleaf adds.
    if let Some(own) = others.iter().find(|arm| *arm == NUMPY) {
        let ours = others.iter().filter(|arm| *arm != NUMPY);
        all.extend(ours.map(|arm| compare(arm, own)));
    }
    all.retain(|one| {
        one.rows
            .iter()
            .any(|row| row.quantity.main && row.ratio.is_some())
    });
    let size = run.name.trim_start_matches("python-arrays-");
    let size = size.trim_end_matches(".json");
    let mut out = format!(
        "## Memory of {}\n\n{}, {}.\n\n",
        size.replace("-pool", ", and a pool"),
        run.link(),
        rounds(&all)
    );
    let loads = loads(&all);
    for (title, suffix) in [("CPU time", ""), ("wall time", BY_WALL_TIME)] {
        out.push_str(&format!("By {title}:\n\n{}", table(&all, &loads, suffix)));
    }
    out.push_str(&losses(&all, &loads));
    for arm in others {
        if all.iter().all(|one| one.arm != arm) {
            out.push_str(&format!("- {arm} was unavailable on this host.\n"));
        }
    }
    out.push('\n');
    out
}

fn rounds(all: &[Comparison<'_>]) -> String {
    let rows = all.iter().flat_map(|one| &one.rows);
    let samples = rows.filter_map(|row| Some(row.b.as_ref()?.samples.len()));
    format!("{} interleaved rounds", samples.max().unwrap_or(0))
}

/// Returns the loads in the order of the workload file.
fn loads(all: &[Comparison<'_>]) -> Vec<String> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let names = first.rows.iter().map(|row| &row.quantity.name);
    let walls = names.filter_map(|name| name.strip_suffix(BY_WALL_TIME));
    walls.map(str::to_owned).collect()
}

impl Comparison<'_> {
    fn row(&self, load: &str, suffix: &str) -> Option<&ComparedRow> {
        let name = format!("{load}{suffix}");
        self.rows.iter().find(|row| row.quantity.name == name)
    }
}

fn table(all: &[Comparison<'_>], loads: &[String], suffix: &str) -> String {
    let heads = ["arm", "over"].into_iter();
    let heads: Vec<&str> = heads.chain(loads.iter().map(String::as_str)).collect();
    let mut table = Table::new(&heads);
    for one in all {
        let mut cells = vec![one.arm.to_owned(), one.over.to_owned()];
        let values = loads.iter().map(|load| one.row(load, suffix));
        cells.extend(values.map(|row| row.map_or_else(|| "-".to_owned(), ratio)));
        table.row(&cells);
    }
    table.text()
}

/// Names each ratio whose whole interval is below 1.
fn losses(all: &[Comparison<'_>], loads: &[String]) -> String {
    let mut out = String::new();
    for one in all {
        for load in loads {
            let effect = one.row(load, "").and_then(|row| row.effect.as_ref());
            if let Some(effect) = effect.filter(|effect| effect.high < 1.0) {
                let (arm, over, ratio) = (one.arm, one.over, effect.ratio);
                out.push_str(&format!(
                    "- **Loss:** {load} on {arm} over {over}, ×{ratio:.3} by CPU time.\n"
                ));
            }
        }
    }
    match out.is_empty() {
        true => "- No load is slower with its whole interval.\n".to_owned(),
        false => out,
    }
}
