//! From what was asked for to its result.

use std::collections::BTreeMap;

use hugeleaf_host::Root;
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_workload::described::{
    Better, Described, Figure, Loop, Measure, Running, Stage, StageError, figures,
};
use serde_json::json;

use super::arm::{LabArm, LabPages};
use super::seen::Seen;
use super::{LabSettings, unmet};
use crate::bench::measuring::Measuring;
use crate::bench::oltp::{lacks_pool, promote};
use crate::bench::{BenchError, BenchEvent, Machine, Shortage};
use crate::rows::{ArmAbout, Chart, Place, Quantity, Results, Sample};

/// After so many failures at a place an arm is left out there.
const FAILURES: usize = 2;

/// Less than this part on the pages of its arm is doubtful, and more than that on large ones where it is to be on base pages.
const ENOUGH: f64 = 0.5;
const HARDLY: f64 = 0.1;

/// A combination of what varies.
type Point = Vec<(String, String)>;

/// Has it all run.
///
/// # Errors
/// [`BenchError`].
pub fn measure(
    settings: &LabSettings<'_>,
    machine: &Machine<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    let described = settings.described;
    check(settings, machine)?;
    let points = described.points();
    let mut run = Measuring::new(
        &described.name,
        (settings.seed, said(settings)),
        machine,
        progress,
    );
    run.results.charts = charts(described);
    about(&mut run.results, settings);
    for point in &points {
        for arm in &settings.arms {
            run.expect(arm_about(arm, machine), places(point), settings.rounds);
        }
    }
    if let Some(before) = &settings.resume {
        take_up(&mut run.results, before, settings)?;
    }
    let went = stage(settings, machine, &points, &mut run);
    run.ended(went)?;
    check_samples(&run.results)?;
    if run.results.rows.iter().any(|row| row.doubtful) {
        run.explain_doubts();
    }
    run.on_a_virtual_machine(
        "what a miss of the TLB costs is the hypervisor's to say too; compare ratios, and no times.",
    );
    let main = quantity(described.main()).main();
    run.finish(&main)
}

fn check(settings: &LabSettings<'_>, machine: &Machine<'_>) -> Result<(), BenchError> {
    let described = settings.described;
    let name = &described.name;
    for (variable, arm) in settings.arms.iter().flat_map(|arm| {
        let names = arm.set.iter().map(|(variable, _)| variable);
        names.map(move |variable| (variable, arm))
    }) {
        let is_known =
            described.set.contains_key(variable) || described.sizes.contains_key(variable);
        if !is_known {
            return Err(BenchError::usage(
                format!(
                    "bench {name}: the arm {arm} sets '{variable}', which is no variable of this workload"
                ),
                format!("hugeleaf bench {name} --dry-run    # its variables and commands"),
            ));
        }
    }
    match unmet(described, machine.most, &settings.below) {
        None => Ok(()),
        Some(unmet) => Err(BenchError::missing(
            format!("bench {name}: not run: {}", unmet.what),
            unmet.next,
        )),
    }
}

/// Refuses a result of which every run has failed.
fn check_samples(results: &Results) -> Result<(), BenchError> {
    let has_any = results.rows.iter().any(|row| !row.samples.is_empty());
    let reason = results
        .rejected
        .first()
        .and_then(|rejected| rejected["reason"].as_str());
    match reason {
        Some(reason) if !has_any && !results.experiment.is_interrupted() => {
            let name = &results.experiment.name;
            Err(BenchError::no(
                format!("no run has succeeded; the first: {reason}"),
                format!("hugeleaf bench {name} --dry-run    # what it runs"),
            ))
        }
        _ => Ok(()),
    }
}

/// What was asked for, as a result keeps it.
fn said(settings: &LabSettings<'_>) -> serde_json::Value {
    let arms: BTreeMap<&str, _> = (settings.arms.iter())
        .map(|arm| {
            let set: BTreeMap<_, _> = arm.set.iter().cloned().collect();
            let environment: BTreeMap<_, _> = arm.environment.iter().cloned().collect();
            (
                arm.name.as_str(),
                json!({"set": set, "environment": environment}),
            )
        })
        .collect();
    json!({
        "rounds": settings.rounds,
        "arms_set": arms,
        "workload": settings.text,
    })
}

fn about(results: &mut Results, settings: &LabSettings<'_>) {
    let described = settings.described;
    results.experiment.title.clone_from(&described.title);
    let restarted = match described.server {
        Some(_) => "the server is started and filled anew for each run",
        None => "each run is a process of its own",
    };
    let looped = match described.load.looped {
        Loop::Closed => "closed loop",
        Loop::Open => "open loop at a rate",
    };
    results.experiment.how = format!(
        "{}; {restarted}; {looped}; arms take turns in random order, seed {}",
        runs(settings.rounds),
        settings.seed
    );
    results
        .remarks
        .extend((!described.effect.is_empty()).then(|| described.effect.clone()));
    let more = &mut results.experiment.more;
    if !described.kind.is_empty() {
        more.insert("kind".to_owned(), json!(described.kind));
    }
}

fn runs(rounds: usize) -> String {
    match rounds {
        1 => "1 run of each arm".to_owned(),
        n => format!("{n} runs of each arm"),
    }
}

fn charts(described: &Described) -> Vec<Chart> {
    let main = &described.main().name;
    let bars = Chart::bars(main, main);
    let numeric = described.matrix.iter().find(|(_, values)| {
        values.len() > 2 && values.iter().all(|value| value.parse::<u64>().is_ok())
    });
    let curve = numeric.map(|(name, _)| Chart::by(name, main, &format!("{main} by {name}")));
    [Some(bars), curve].into_iter().flatten().collect()
}

fn arm_about(arm: &LabArm, machine: &Machine<'_>) -> ArmAbout {
    let pages = arm.pages.and_then(|pages| pages.asked(machine.host));
    match pages {
        Some(pages) => ArmAbout {
            name: arm.name.clone(),
            ..ArmAbout::of(pages)
        },
        None => ArmAbout::named(&arm.name),
    }
}

fn places(point: &Point) -> Vec<Place> {
    let place = |(name, value): &(String, String)| match value.parse() {
        Ok(number) => Place::number(name, number),
        Err(_) => Place::text(name, value),
    };
    point.iter().map(place).collect()
}

fn quantity(measure: &Measure) -> Quantity {
    match measure.better {
        Some(Better::Higher) => Quantity::rate(&measure.name, &measure.unit),
        Some(Better::Lower) => Quantity::amount(&measure.name, &measure.unit),
        None => Quantity::plain(&measure.name, &measure.unit),
    }
}

/// Takes what an earlier run has measured.
fn take_up(
    results: &mut Results,
    before: &Results,
    settings: &LabSettings<'_>,
) -> Result<(), BenchError> {
    let keys = ["workload", "arms_set", "seed", "rounds"];
    let differs = keys
        .into_iter()
        .find(|key| before.settings.get(*key) != results.settings.get(*key));
    let name = &settings.described.name;
    if let Some(key) = differs.or((before.experiment.name != *name).then_some("workload")) {
        return Err(BenchError::usage(
            format!("bench {name}: what is to be gone on with differs in {key}"),
            "give the same flags, and the file as it was; or leave --resume out",
        ));
    }
    results.rows.clone_from(&before.rows);
    results.rejected.clone_from(&before.rejected);
    results
        .experiment
        .started
        .clone_from(&before.experiment.started);
    Ok(())
}

/// One turn of an arm at a place.
struct Turn<'a> {
    settings: &'a LabSettings<'a>,
    machine: &'a Machine<'a>,
    stage: &'a Stage<'a>,
    arm: &'a LabArm,
    point: &'a Point,
    round: usize,
}

fn stage(
    settings: &LabSettings<'_>,
    machine: &Machine<'_>,
    points: &[Point],
    run: &mut Measuring<'_>,
) -> Result<(), BenchError> {
    let described = settings.described;
    let stage = Stage::new(described, &settings.below, machine.stop);
    let stage = stage.map_err(|e| failed(described, "its folder", e))?;
    if let Some(prepare) = &described.prepare {
        run.taking(format!("{}: preparing", described.name));
        let variables = variables(settings, machine, &LabArm::default(), &Point::new(), 0);
        let prepared = stage.run(("prepare", prepare), (&variables, &[]), None, &mut |_| {});
        prepared.map_err(|e| failed(described, "preparing it", e))?;
    }
    let arms = 0..settings.arms.len();
    let cells: Vec<(usize, usize)> = arms
        .flat_map(|arm| (0..points.len()).map(move |p| (arm, p)))
        .collect();
    let mut failures: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let main = &described.main().name;
    let mut last = None;
    run.rounds(settings.rounds, &cells, |run, round, cell| {
        if last.replace(round).is_some_and(|last| last != round) {
            keep(settings, &run.results);
        }
        let (arm, point) = (&settings.arms[cell.0], &points[cell.1]);
        let at = places(point);
        let known = run.results.row(&arm.name, &at, main);
        let is_there = known.is_some_and(|row| row.samples.iter().any(|s| s.round == Some(round)));
        if is_there || failures.get(&cell).is_some_and(|n| *n >= FAILURES) {
            run.skip(1);
            return Ok(());
        }
        run.step(format!("round {}: {arm}{}", round + 1, in_words(point)));
        let turn = Turn {
            settings,
            machine,
            stage: &stage,
            arm,
            point,
            round,
        };
        match turn.take() {
            Ok(samples) => add(&mut run.results, &turn, &at, samples),
            Err(BenchError::Lacking(why)) => {
                run.lacks(&arm.name, &at, &why);
                failures.insert(cell, FAILURES);
            }
            Err(BenchError::Stopped) => return Err(BenchError::Stopped),
            Err(error) => {
                reject(run, &turn, &at, &error);
                let failed = failures.entry(cell).or_default();
                *failed += 1;
                if *failed >= FAILURES {
                    run.lacks(
                        &arm.name,
                        &at,
                        &Shortage {
                            from: Bytes::ZERO,
                            reason: error.to_string(),
                            next: error.next(),
                        },
                    );
                }
            }
        }
        Ok(())
    })
}

/// What there is so far, as a result that can be gone on with.
fn keep(settings: &LabSettings<'_>, results: &Results) {
    let mut results = results.clone();
    "interrupted".clone_into(&mut results.experiment.ending);
    (settings.keep)(&results);
}

fn in_words(point: &Point) -> String {
    point
        .iter()
        .map(|(name, value)| format!(", {name} {value}"))
        .collect()
}

fn reject(run: &mut Measuring<'_>, turn: &Turn<'_>, at: &[Place], error: &BenchError) {
    let reason = error.to_string();
    (run.progress)(BenchEvent::Note(format!(
        "round {}, {}: no sample: {reason}",
        turn.round + 1,
        turn.arm
    )));
    let at: serde_json::Map<_, _> = at
        .iter()
        .map(|place| (place.name.clone(), place.value.to_json()))
        .collect();
    run.results.rejected.push(json!({
        "arm": turn.arm.name, "at": at, "round": turn.round, "reason": reason,
    }));
}

fn failed(described: &Described, what: &str, error: StageError) -> BenchError {
    let name = &described.name;
    match error {
        StageError::Stopped => BenchError::Stopped,
        StageError::Lacking { said } => BenchError::Lacking(Shortage {
            from: Bytes::ZERO,
            reason: said,
            next: format!("hugeleaf bench {name} --dry-run    # what it runs"),
        }),
        error => BenchError::missing(
            format!("bench {name}: {what}: {error}"),
            format!("hugeleaf bench {name} --dry-run    # what it runs"),
        ),
    }
}

/// The variables of its commands.
fn variables(
    settings: &LabSettings<'_>,
    machine: &Machine<'_>,
    arm: &LabArm,
    point: &Point,
    round: usize,
) -> Vec<(String, String)> {
    let described = settings.described;
    let mut all: BTreeMap<String, String> = described.set.clone();
    for (name, size) in &described.sizes {
        all.insert(name.clone(), size.of(machine.most).get().to_string());
    }
    all.extend(point.iter().cloned());
    // Before any arm, what takes several values has its first.
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

/// What a turn came to.
struct Taken {
    figures: Vec<Figure>,
    counted: BTreeMap<String, f64>,
    seen: Seen,
    promoted_seconds: Option<f64>,
}

impl Turn<'_> {
    fn take(&self) -> Result<Taken, BenchError> {
        let (host, described) = (self.machine.host, self.settings.described);
        self.fits()?;
        let variables = variables(
            self.settings,
            self.machine,
            self.arm,
            self.point,
            self.round,
        );
        let start_with = match self.arm.pages {
            Some(pages) => pages.start_with(host)?,
            None => Vec::new(),
        };
        let own = |what| move |e| failed(described, what, e);
        let thp_off = ThpOff::during(self.arm.pages.is_some_and(|pages| pages.is_base(host)));
        let server = self
            .stage
            .start(&variables, &start_with)
            .map_err(own("the server"))?;
        drop(thp_off);
        let mut nobody = |_| {};
        let fill = described
            .server
            .as_ref()
            .and_then(|server| server.fill.as_ref());
        if let Some(fill) = fill {
            let ran = self.stage.run(
                ("fill", fill),
                (&variables, &[]),
                server.as_ref(),
                &mut nobody,
            );
            ran.map_err(own("filling it"))?;
        }
        let mut seen = Seen::default();
        let promoted_seconds = self.warm(&variables, server.as_ref(), &mut seen)?;
        let root = Root::live();
        let is_subject = server.is_none();
        let thp_off =
            ThpOff::during(is_subject && self.arm.pages.is_some_and(|pages| pages.is_base(host)));
        let before: &[_] = if is_subject { &start_with } else { &[] };
        let ended = {
            let mut watch = |pid| seen.look(&root, host, pid);
            // A server is looked at when the load is over.
            let watch: &mut dyn FnMut(u32) = if is_subject { &mut watch } else { &mut nobody };
            let load = ("load", &described.load.script);
            let ended = self
                .stage
                .run(load, (&variables, before), server.as_ref(), watch);
            ended.map_err(own("the load"))?
        };
        drop(thp_off);
        if let Some(pid) = server.as_ref().and_then(Running::pid) {
            seen.look_now(&root, host, pid);
        }
        if let Some(check) = &described.check {
            let checked = self.stage.run(
                ("check", check),
                (&variables, &[]),
                server.as_ref(),
                &mut nobody,
            );
            checked.map_err(own("its result is wrong"))?;
        }
        let figures = figures(&described.measures, &ended.ran);
        let figures = figures.map_err(|e| BenchError::missing(
            format!("bench {}: {e}", described.name),
            format!("hugeleaf bench {} --dry-run    # what it runs, and where its figures come from", described.name),
        ))?;
        if let Some(server) = server {
            server.stop().map_err(own("the server"))?;
        }
        Ok(Taken {
            figures,
            counted: ended.ran.counted,
            seen,
            promoted_seconds,
        })
    }

    /// Refuses pages that the file rules out, or that the pool does not have.
    fn fits(&self) -> Result<(), BenchError> {
        let (host, described) = (self.machine.host, self.settings.described);
        let Some(pages) = self.arm.pages else {
            return Ok(());
        };
        let lacking = |reason: String, next: String| {
            Err(BenchError::Lacking(Shortage {
                from: Bytes::ZERO,
                reason,
                next,
            }))
        };
        if let Some(reason) = described.unfit.get(pages.kind(host)) {
            return lacking(
                reason.clone(),
                "hugeleaf bench with other --pages".to_owned(),
            );
        }
        if pages == LabPages::Promoted && described.server.is_none() {
            let reason = "it ends by itself: there is no server to promote".to_owned();
            return lacking(reason, "hugeleaf bench with --pages run".to_owned());
        }
        let Some(arm) = pages
            .asked(host)
            .filter(|arm| arm.kind == PageKind::Hugetlb)
        else {
            return Ok(());
        };
        let needs = described.needs.large.or(described.needs.memory);
        let needs = needs.map_or(Bytes::ZERO, |size| size.of(self.machine.most));
        match lacks_pool((&described.name, "nobody"), needs, arm, self.machine)? {
            Some(why) => Err(BenchError::Lacking(why)),
            None => Ok(()),
        }
    }

    /// Runs what warms it. Of a server that is looked at, and promoted where the arm says so, while it has its connections:
    /// a process of its own for each may be all that maps its memory.
    fn warm(
        &self,
        variables: &[(String, String)],
        server: Option<&Running>,
        seen: &mut Seen,
    ) -> Result<Option<f64>, BenchError> {
        let (host, described) = (self.machine.host, self.settings.described);
        let wants = self.arm.pages == Some(LabPages::Promoted);
        let mut promoted = None;
        let root = Root::live();
        if let Some(warm) = &described.load.warm {
            let mut watch = |pid| {
                if wants && promoted.is_none() {
                    promoted = Some(promote_tree(pid));
                }
                seen.look(&root, host, pid);
            };
            let mut nobody = |_| {};
            let watch: &mut dyn FnMut(u32) = if server.is_some() {
                &mut watch
            } else {
                &mut nobody
            };
            let ran = self
                .stage
                .run(("warm", warm), (variables, &[]), server, watch);
            ran.map_err(|e| failed(described, "warming it", e))?;
        }
        match (promoted, server.and_then(Running::pid)) {
            (Some(promoted), _) => promoted.map(Some),
            (None, Some(pid)) if wants => promote_tree(pid).map(Some),
            _ => Ok(None),
        }
    }
}

/// Moves a server with all that it started; how long it took, in seconds.
fn promote_tree(pid: u32) -> Result<f64, BenchError> {
    let none = (
        "no block of it is wholly in memory, or the kernel does not collapse it",
        "hugeleaf why, while it runs, says why",
    );
    promote(&["--switch-thp-on", &format!("tree:{pid}")], none)
}

/// Transparent huge pages are off for what this process starts, until this is dropped (PR_SET_THP_DISABLE is kept
/// across fork and execve, prctl(2)).
struct ThpOff(bool);

impl ThpOff {
    fn during(wanted: bool) -> ThpOff {
        // Where the kernel refuses, what is read back says so.
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

/// Adds a turn's figures.
fn add(results: &mut Results, turn: &Turn<'_>, at: &[Place], taken: Taken) {
    let (arm, described) = (turn.arm, turn.settings.described);
    let mut put = |quantity: Quantity, value: f64| {
        results.add(&arm.name, at, quantity, Sample::of(turn.round, value));
    };
    let figures = described.measures.iter().zip(&taken.figures).enumerate();
    for (n, (measure, figure)) in figures {
        let quantity = quantity(measure);
        put(
            if n == 0 { quantity.main() } else { quantity },
            figure.value,
        );
    }
    let side = [
        ("cpu", "processor time", "s"),
        ("faults", "page faults", ""),
    ];
    for (counter, name, unit) in side {
        if let Some(value) = taken.counted.get(counter) {
            put(Quantity::amount(name, unit), *value);
        }
    }
    let asked = arm.pages.and_then(|pages| pages.asked(turn.machine.host));
    let part = taken.seen.part(asked);
    if let Some(part) = part {
        put(
            Quantity::amount("resident", "bytes"),
            taken.seen.resident.as_f64(),
        );
        put(
            Quantity::amount("page tables", "bytes"),
            taken.seen.page_tables.as_f64(),
        );
        put(Quantity::plain("part on large pages", ""), part);
    }
    if let Some(seconds) = taken.promoted_seconds {
        put(Quantity::plain("promoting", "s"), seconds);
    }
    let doubt = doubt(arm, asked.map(|arm| arm.kind), part);
    let main = &described.main().name;
    let mut rows = results.rows.iter_mut();
    if let Some(why) = doubt
        && let Some(row) =
            rows.find(|row| row.arm == arm.name && row.at == at && row.quantity.name == *main)
    {
        row.doubtful = true;
        row.note = Some(why);
    }
}

/// Why its memory may not have been on the pages of its arm.
fn doubt(arm: &LabArm, kind: Option<PageKind>, part: Option<f64>) -> Option<String> {
    let part = part.filter(|_| arm.pages.is_some())?;
    let percent = 100.0 * part;
    match kind {
        Some(PageKind::Base) if part > HARDLY => {
            Some(format!("{percent:.0} % of it was on large pages"))
        }
        Some(PageKind::Base) => None,
        _ if part < ENOUGH => Some(format!("{percent:.0} % of it was on these pages")),
        _ => None,
    }
}
