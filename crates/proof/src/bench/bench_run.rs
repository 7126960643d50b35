//! A benchmark under way: its machine, its results so far, and the code that all benchmarks share.

use std::sync::atomic::Ordering;
use std::time::Instant;

use fastrand::Rng;
use hugeleaf::MemoryError;
use hugeleaf_units::Bytes;
use hugeleaf_workload::PageArm;
use serde_json::{Value as Json, json};

use super::{BenchContext, BenchError, BenchEvent, MissingPages, is_unavailable};
use crate::median_interval::CONFIDENCE;
use crate::result_format::{
    self, ArmInfo, Parameter, Quantity, ResultRow, Results, UnavailableArm,
};

pub struct BenchRun<'a> {
    pub machine: &'a BenchContext<'a>,
    pub random: Rng,
    pub results: Results,
    pub progress: &'a mut dyn FnMut(BenchEvent),
    began: Instant,
    /// Each arm at each place, in display order.
    cells: Vec<(String, Vec<Parameter>)>,
    done: u64,
    of: u64,
}

impl<'a> BenchRun<'a> {
    pub fn new(
        name: &str,
        (seed, settings): (u64, Json),
        machine: &'a BenchContext<'a>,
        progress: &'a mut dyn FnMut(BenchEvent),
    ) -> BenchRun<'a> {
        let about = machine.circumstances;
        let mut results = Results::empty(name, &about.started);
        results.host = result_format::fields(&about.host);
        results.settings = result_format::fields(&settings);
        results.settings.extend(result_format::fields(&json!({
            "seed": seed, "confidence": CONFIDENCE, "knobs": about.knobs,
            "version": env!("CARGO_PKG_VERSION"),
        })));
        results.command.clone_from(&about.command);
        BenchRun {
            machine,
            random: Rng::with_seed(seed),
            results,
            progress,
            began: Instant::now(),
            cells: Vec::new(),
            done: 0,
            of: 0,
        }
    }

    /// Announces an arm at a place, and its number of samples.
    pub fn expect(&mut self, arm: ArmInfo, at: Vec<Parameter>, samples: usize) {
        self.cells.push((arm.name.clone(), at));
        self.of += samples as u64;
        if self.results.arms.iter().all(|known| known.name != arm.name) {
            self.results.arms.push(arm);
        }
    }

    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub fn go_on(&self) -> Result<(), BenchError> {
        match self.machine.stop.load(Ordering::Relaxed) {
            true => Err(BenchError::Stopped),
            false => Ok(()),
        }
    }

    pub fn taking(&mut self, what: impl ToString) {
        (self.progress)(BenchEvent::Taking(what.to_string()));
    }

    pub fn step(&mut self, what: String) {
        let (done, of) = (self.done, self.of);
        (self.progress)(BenchEvent::At { done, of, what });
        self.done += 1;
    }

    pub fn skip(&mut self, samples: usize) {
        self.done += samples as u64;
    }

    /// Runs all turns, each round in a new random order, so that drift affects all alike.
    pub fn rounds<T: Copy>(
        &mut self,
        rounds: usize,
        all: &[T],
        mut turn: impl FnMut(&mut Self, usize, T) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        for round in 0..rounds {
            let mut order = all.to_vec();
            self.random.shuffle(&mut order);
            for one in order {
                self.go_on()?;
                turn(self, round, one)?;
            }
        }
        Ok(())
    }

    pub fn count(&mut self, arm: &str, at: &[Parameter], quantity: Quantity, value: f64) {
        let quantity = quantity.counted();
        self.results.add(arm, at, quantity, value.into());
    }

    /// Records an unavailable arm, at a place or from some length on. Of several lengths the smallest is
    /// kept, with reason and remedy of the largest.
    pub fn lacks(&mut self, arm: &str, at: &[Parameter], why: &MissingPages) {
        let unavailable = &mut self.results.unavailable;
        if unavailable.iter().all(|known| known.arm != arm) {
            (self.progress)(BenchEvent::Unavailable {
                arm: arm.to_owned(),
                reason: why.reason.clone(),
            });
        }
        let known = unavailable.iter().position(|u| u.arm == arm && u.at == at);
        let known = known.map(|known| unavailable.remove(known).from_bytes);
        unavailable.push(UnavailableArm {
            arm: arm.to_owned(),
            at: at.to_vec(),
            from_bytes: known.unwrap_or(u64::MAX).min(why.from.get()),
            reason: why.reason.clone(),
            next: why.next.clone(),
        });
    }

    /// Marks rows at a place, and at places within it, as not verified to be on their pages.
    pub fn doubt(&mut self, arm: &str, at: &[Parameter], note: Option<&String>) {
        for row in &mut self.results.rows {
            if row.arm == arm && row.at.starts_with(at) {
                row.doubtful = true;
                row.note = note.cloned();
            }
        }
    }

    /// Adds a caveat that explains doubtful points.
    pub fn explain_doubts(&mut self) {
        if self.results.rows.iter().any(|row| row.doubtful) {
            let caveat = "Points marked ? were not verified to be on the pages of their arm.";
            self.results.caveats.push(caveat.to_owned());
        }
    }

    pub fn on_a_virtual_machine(&mut self, caveat: &str) {
        if self.machine.circumstances.host.is_virtual == Some(true) {
            let caveats = &mut self.results.caveats;
            caveats.push(format!("This is a virtual machine: {caveat}"));
        }
    }

    /// Records the end of the measurement; if it was stopped, its results so far are kept.
    ///
    /// # Errors
    /// The error that ended it, unless it was stopped.
    pub fn ended(&mut self, went: Result<(), BenchError>) -> Result<(), BenchError> {
        let Err(error) = went else {
            return Ok(());
        };
        let is_stop = match &error {
            BenchError::Stopped => true,
            // Ctrl-C on a terminal signals all processes at once.
            BenchError::Unreadable(_) => self.go_on().is_err(),
            _ => false,
        };
        if !is_stop {
            return Err(error);
        }
        "interrupted".clone_into(&mut self.results.experiment.ending);
        Ok(())
    }

    /// Returns the result. Each arm and place without data gets an empty row of `main`.
    pub fn finish(self, main: &Quantity) -> Result<Results, BenchError> {
        let mut results = self.results;
        let lacking = results.unavailable.first();
        match lacking.filter(|_| !results.experiment.is_interrupted()) {
            _ if results.rows.iter().any(|row| !row.samples.is_empty()) => {}
            Some(first) => {
                return Err(BenchError::NoData {
                    arm: first.arm.clone(),
                    reason: first.reason.clone(),
                    next: first.next.clone(),
                });
            }
            None => return Err(BenchError::Stopped),
        }
        for (arm, at) in &self.cells {
            let mut rows = results.rows.iter();
            if !rows.any(|row| row.arm == *arm && row.at == *at) {
                let row = ResultRow::new(arm, at.clone(), main.clone(), Vec::new());
                results.rows.push(row);
            }
        }
        let order = |arm: &String, at: &[Parameter]| {
            let mut cells = self.cells.iter();
            let position = cells.position(|cell| cell.0 == *arm && cell.1.starts_with(at));
            position.unwrap_or(usize::MAX)
        };
        results.rows.sort_by_key(|row| order(&row.arm, &row.at));
        let layouts = &mut results.layouts;
        layouts.sort_by_key(|layout| (order(&layout.arm, &layout.at), layout.round));
        results.experiment.duration_seconds = Some(self.began.elapsed().as_secs_f64());
        Ok(results)
    }
}

impl ArmInfo {
    pub fn from_arm(arm: PageArm) -> ArmInfo {
        ArmInfo {
            name: arm.to_string(),
            page_bytes: Some(arm.size),
            kind: Some(arm.kind),
        }
    }
}

impl MissingPages {
    /// Describes the lack of memory of some length.
    ///
    /// # Errors
    /// Any error except the lack of such pages; it ends the run.
    pub fn from_error(length: Bytes, error: MemoryError) -> Result<MissingPages, MemoryError> {
        match is_unavailable(&error) {
            true => Ok(MissingPages {
                from: length,
                reason: error.to_string(),
                next: error.next(),
            }),
            false => Err(error),
        }
    }
}
