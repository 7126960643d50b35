//! Raw samples as stored: rows of a result, with host, kernel, settings and the exact command.

use std::path::{Path, PathBuf};
use std::process::Command;

use hugeleaf_host::{Root, read_host};
use hugeleaf_proof::result_format::{ArmInfo, Quantity, ResultRow, Results, Sample, fields};
use hugeleaf_proof::{MedianInterval, circumstances};
use hugeleaf_sys::Kernel;
use serde_json::{Map, Value, json};

use crate::Failed;

/// The file of one benchmark.
pub struct Record {
    results: Results,
    summary: Map<String, Value>,
}

impl Record {
    /// Makes an empty record.
    pub fn new(name: impl Into<String>, command: impl Into<String>) -> Record {
        let mut results = Results::empty(&name.into(), "");
        let command: String = command.into();
        results.command = command.split_whitespace().map(str::to_owned).collect();
        Record {
            results,
            summary: Map::new(),
        }
    }

    /// Adds the raw samples of one arm, in the order of measurement. The label is `ARM: QUANTITY`, or `ARM` alone. A
    /// sample that is not a number is omitted, and its round with it.
    pub fn arm(&mut self, label: impl Into<String>, unit: &str, samples: &[f64]) {
        let label = label.into();
        let unit_alone = if unit == "seconds" { "time" } else { unit };
        let (arm, quantity) = label.split_once(": ").unwrap_or((&label, unit_alone));
        if self.results.arms.iter().all(|known| known.name != arm) {
            self.results.arms.push(ArmInfo::named(arm));
        }
        let values = samples.iter().enumerate();
        let finite = values.filter(|(_, value)| value.is_finite());
        let samples = finite.map(|(round, value)| Sample::new(round, *value));
        let quantity = Quantity::of_unit(quantity, unit);
        let row = ResultRow::new(arm, Vec::new(), quantity, samples.collect());
        self.results.rows.push(row);
    }

    /// Adds and prints a figure derived from the samples.
    pub fn figure(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        let (name, value) = (name.into(), value.into());
        println!("  {name}: {value}");
        self.summary.insert(name, value);
    }

    /// Writes `FOLDER/NAME.json`.
    pub fn write(self, folder: &Path) -> Result<PathBuf, Failed> {
        std::fs::create_dir_all(folder)?;
        let mut results = self.results;
        let file = folder.join(format!("{}.json", results.experiment.name));
        let root = Root::live();
        let host = read_host(&root, &Kernel::new())?;
        let here = circumstances(&root, &host, &[]);
        results.experiment.started = here.started;
        results.host = fields(&here.host);
        results.settings = settings();
        results
            .analysis
            .insert("summary".to_owned(), self.summary.into());
        std::fs::write(&file, results.to_json())?;
        println!("  written: {}", file.display());
        Ok(file)
    }
}

fn line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Returns the active knobs, as in their files.
fn settings() -> Map<String, Value> {
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let mut settings = Map::new();
    for name in [
        "enabled",
        "shmem_enabled",
        "defrag",
        "hugepages-2048kB/enabled",
    ] {
        settings.insert(name.to_owned(), json!(line(&format!("{folder}/{name}"))));
    }
    for name in ["vm.nr_hugepages", "vm.overcommit_memory", "vm.swappiness"] {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        settings.insert(name.to_owned(), json!(line(&path)));
    }
    let swap = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let swap = swap
        .lines()
        .find_map(|line| line.strip_prefix("SwapTotal:"));
    settings.insert("swap".to_owned(), json!(swap.map(str::trim)));
    // On a virtual machine whose hypervisor reclaims free memory: in blocks from this order on.
    let reporting = "/sys/module/page_reporting/parameters/page_reporting_order";
    if Path::new(reporting).exists() {
        settings.insert("page_reporting_order".to_owned(), json!(line(reporting)));
    }
    settings
}

/// Returns the first line of a program's version output.
pub fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    text.ok()
        .and_then(|t| t.lines().next().map(str::to_owned))
        .unwrap_or_default()
}

/// Returns the median; NaN without samples.
pub fn median(samples: &[f64]) -> f64 {
    let spread = MedianInterval::from_samples(samples);
    spread.map_or(f64::NAN, |spread| spread.median)
}

/// Returns the median of ratios within pairs, and its 95 % interval. The ends are order statistics that exclude at
/// most 2.5 % each, for any noise (the sign test).
pub fn paired(mut ratios: Vec<f64>) -> [f64; 3] {
    ratios.sort_by(f64::total_cmp);
    let n = ratios.len();
    // P(X = k) of n fair coins, from k = 0 up.
    let mut probability = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let (mut below, mut rank) = (probability, 0);
    while below <= 0.025 && rank < n / 2 {
        rank += 1;
        let step = (n - rank + 1) as f64 / rank as f64;
        probability *= step;
        below += probability;
    }
    let end = rank.saturating_sub(1);
    [ratios[end], median(&ratios), ratios[n - 1 - end]]
}
