//! One turn of an arm at a place: start, fill, warm, load, scan, check, stop.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use hugeleaf_host::Root;
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::shell_word;
use hugeleaf_workload::workload_file::{
    LoadOutput, MetricValue, Runner, RunnerError, RunningServer, Script, figures,
};

use super::WorkloadBenchSettings;
use super::arm::{ArmPageSource, WorkloadArm};
use super::peak_memory::PeakMemory;
use crate::bench::{BenchContext, BenchError, MissingPages, lacks_pool, promote};

pub(super) type MatrixPoint = Vec<(String, String)>;

pub(super) struct ArmRun<'a> {
    pub(super) settings: &'a WorkloadBenchSettings<'a>,
    pub(super) machine: &'a BenchContext<'a>,
    pub(super) stage: &'a Runner<'a>,
    pub(super) arm: &'a WorkloadArm,
    pub(super) round: usize,
    pub(super) variables: Vec<(String, String)>,
}

pub(super) fn variables(
    settings: &WorkloadBenchSettings<'_>,
    machine: &BenchContext<'_>,
    arm: &WorkloadArm,
    point: &MatrixPoint,
    round: usize,
) -> Vec<(String, String)> {
    let described = settings.described;
    let mut all: BTreeMap<String, String> = described.set.clone();
    for (name, size) in &described.sizes {
        all.insert(name.clone(), size.resolve(machine.most).get().to_string());
    }
    all.extend(point.iter().cloned());
    // The first value of each list is the default, which an arm may override.
    for (name, values) in &described.matrix {
        all.entry(name.clone()).or_insert_with(|| values[0].clone());
    }
    all.extend(arm.set.iter().cloned());
    for name in described.sizes.keys() {
        let mib = all.get(name).and_then(|bytes| bytes.parse::<u64>().ok());
        all.extend(mib.map(|bytes| (format!("{name}_mib"), (bytes >> 20).to_string())));
    }
    all.insert("round".to_owned(), round.to_string());
    let pages = arm
        .pages
        .map_or_else(|| "own".to_owned(), |pages| pages.label(machine.host));
    all.insert("pages".to_owned(), pages);
    all.extend(arm.environment.iter().cloned());
    all.into_iter().collect()
}

pub(super) struct ArmRunResult {
    pub(super) figures: Vec<MetricValue>,
    pub(super) counted: BTreeMap<String, f64>,
    pub(super) seen: PeakMemory,
    pub(super) promoted_seconds: Option<f64>,
}

impl ArmRun<'_> {
    pub(super) fn take(&self) -> Result<ArmRunResult, BenchError> {
        self.fits()?;
        let described = self.settings.described;
        let start_with = match self.arm.pages {
            Some(pages) => pages.start_with(self.machine),
            None => Vec::new(),
        };
        let server = self.started(&start_with)?;
        let fill = described
            .server
            .as_ref()
            .and_then(|server| server.fill.as_ref());
        self.run("fill", fill, server.as_ref())?;
        let mut seen = PeakMemory::default();
        let promoted_seconds = self.warm(server.as_ref(), &mut seen)?;
        let ran = self.load(&start_with, server.as_ref(), &mut seen)?;
        self.run("check", described.check.as_ref(), server.as_ref())?;
        let figures = figures(&described.measures, &ran);
        let figures = figures.map_err(|e| {
            let name = &described.name;
            BenchError::missing(
                format!("bench {name}: {e}"),
                self.settings
                    .dry_run("shows its commands and the source of its figures"),
            )
        })?;
        if let Some(server) = server {
            server
                .stop()
                .map_err(|e| failed(self.settings, "server", e))?;
        }
        Ok(ArmRunResult {
            figures,
            counted: ran.counted,
            seen,
            promoted_seconds,
        })
    }

    fn is_base(&self) -> bool {
        let pages = self.arm.pages;
        pages.is_some_and(|pages| pages.is_base(self.machine.host))
    }

    fn started(&self, start_with: &[OsString]) -> Result<Option<RunningServer>, BenchError> {
        let _off = ThpOff::during(self.is_base());
        let started = self.stage.start(&self.variables, start_with);
        started.map_err(|e| failed(self.settings, "server", e))
    }

    fn run(
        &self,
        what: &'static str,
        script: Option<&Script>,
        server: Option<&RunningServer>,
    ) -> Result<(), BenchError> {
        let Some(script) = script else {
            return Ok(());
        };
        let with = (self.variables.as_slice(), &[][..]);
        let ran = self.stage.run((what, script), with, server, &mut |_| {});
        ran.map(drop).map_err(|e| failed(self.settings, what, e))
    }

    /// Runs the load. Without a server the load itself is the subject and is scanned meanwhile; a server is scanned after the
    /// load.
    fn load(
        &self,
        start_with: &[OsString],
        server: Option<&RunningServer>,
        seen: &mut PeakMemory,
    ) -> Result<LoadOutput, BenchError> {
        let (root, host) = (Root::live(), self.machine.host);
        let load = ("load", &self.settings.described.load.script);
        let is_subject = server.is_none();
        let _off = ThpOff::during(is_subject && self.is_base());
        let before = if is_subject { start_with } else { &[] };
        let mut watch = |pid| {
            if is_subject {
                seen.sample(&root, host, pid);
            }
        };
        let with = (self.variables.as_slice(), before);
        let ran = self.stage.run(load, with, server, &mut watch);
        let ran = ran.map_err(|e| failed(self.settings, "load", e))?;
        if let Some(pid) = server.and_then(RunningServer::pid) {
            seen.look_now(&root, host, pid);
        }
        Ok(ran)
    }

    /// Refuses pages that the file rules out or that the pool lacks.
    fn fits(&self) -> Result<(), BenchError> {
        let (host, described) = (self.machine.host, self.settings.described);
        let Some(pages) = self.arm.pages else {
            return Ok(());
        };
        let lacking = |reason: String, next: String| {
            Err(BenchError::PagesMissing(MissingPages {
                from: Bytes::ZERO,
                reason,
                next,
            }))
        };
        if let Some(reason) = described.unfit.get(pages.kind(host)) {
            return lacking(
                reason.clone(),
                self.settings.dry_run("shows the pages it excludes"),
            );
        }
        if pages == ArmPageSource::Promoted && described.server.is_none() {
            let reason = "it has no server that could be promoted".to_owned();
            let given = shell_word(self.settings.given);
            return lacking(reason, format!("hugeleaf bench {given} --pages run"));
        }
        let Some(arm) = pages
            .required_pages(host)
            .filter(|arm| arm.kind == PageKind::Hugetlb)
        else {
            return Ok(());
        };
        let needs = described.needs.large.or(described.needs.memory);
        let needs = needs.map_or(Bytes::ZERO, |size| size.resolve(self.machine.most));
        match lacks_pool((&described.name, "nobody"), needs, arm, self.machine)? {
            Some(why) => Err(BenchError::PagesMissing(why)),
            None => Ok(()),
        }
    }

    /// Runs the warm-up. A server is scanned, and promoted if the arm requires it, while it has its connections: processes of
    /// connections may be the only ones that map its memory.
    fn warm(
        &self,
        server: Option<&RunningServer>,
        seen: &mut PeakMemory,
    ) -> Result<Option<f64>, BenchError> {
        let (host, described) = (self.machine.host, self.settings.described);
        let wants = self.arm.pages == Some(ArmPageSource::Promoted);
        let mut promoted = None;
        let root = Root::live();
        if let Some(warm) = &described.load.warm {
            let mut watch = |pid| {
                if wants && promoted.is_none() {
                    promoted = Some(promote_tree(self.machine.program, pid));
                }
                seen.sample(&root, host, pid);
            };
            let mut nobody = |_| {};
            let watch: &mut dyn FnMut(u32) = if server.is_some() {
                &mut watch
            } else {
                &mut nobody
            };
            let with = (self.variables.as_slice(), &[][..]);
            let ran = self.stage.run(("warm", warm), with, server, watch);
            ran.map_err(|e| failed(self.settings, "warm", e))?;
        }
        match (promoted, server.and_then(RunningServer::pid)) {
            (Some(promoted), _) => promoted.map(Some),
            (None, Some(pid)) if wants => promote_tree(self.machine.program, pid).map(Some),
            _ => Ok(None),
        }
    }
}

/// Promotes a server's process tree, and returns the duration in seconds.
fn promote_tree(program: &Path, pid: u32) -> Result<f64, BenchError> {
    let none = (
        "no block of it is fully resident, or the kernel refuses to collapse it",
        "run hugeleaf why while it runs",
    );
    promote(program, &["--switch-thp-on", &format!("tree:{pid}")], none)
}

/// Disables THP for processes that this process starts, until dropped (PR_SET_THP_DISABLE is kept across fork and execve,
/// prctl(2)).
struct ThpOff(bool);

impl ThpOff {
    fn during(wanted: bool) -> ThpOff {
        // If the kernel refuses, reading the pages back reveals it.
        ThpOff(wanted && rustix::thread::disable_transparent_huge_pages(true).is_ok())
    }
}

impl Drop for ThpOff {
    fn drop(&mut self) {
        if self.0 {
            let _ = rustix::thread::disable_transparent_huge_pages(false);
        }
    }
}

pub(super) fn failed(
    settings: &WorkloadBenchSettings<'_>,
    what: &str,
    error: RunnerError,
) -> BenchError {
    let name = &settings.described.name;
    match error {
        RunnerError::Stopped => BenchError::Stopped,
        RunnerError::Lacking { said } => BenchError::PagesMissing(MissingPages {
            from: Bytes::ZERO,
            reason: said,
            next: settings.dry_run("shows its commands"),
        }),
        error => BenchError::missing(
            format!("bench {name}: {}", words(what, &error)),
            settings.dry_run("shows its commands"),
        ),
    }
}

fn words(what: &str, error: &RunnerError) -> String {
    match what {
        "check" => format!("its result is wrong: {error}"),
        _ => error.to_string(),
    }
}
