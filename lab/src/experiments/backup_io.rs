//! `hugeleaf-lab mover`: a backup server's data path, by the pages of its buffers.
//!
//! The devices are made and filled once, and the data space of each arm is taken once. Then, round by round, all
//! arms run for a while each, in a new random order. After each run the written blocks are read back and checked. An
//! arm is a way to hand buffers to devices ([`IoMode`]) on a data space ([`IoPages`]). The baseline is scattered base
//! pages in the same mode, the state of the buffers of a server that has run for long.
//!
//! Locking parts of memory splits its transparent huge pages. That mode therefore has data spaces of its own, and
//! their layout is read back before and after.

use std::time::Duration;

use crate::kits::backup_io::{
    BackupIoError, BackupIoLoad, BackupIoResult, DeviceLocation as DevicePlace, DeviceOptions,
    Devices, IoMemory, IoMode, IoPages, MeasurementEdge, measure_devices, run as move_blocks,
    verify,
};
use hugeleaf_host::Host;
use hugeleaf_sys::may_lock;
use hugeleaf_units::Bytes;
use serde_json::{Value as Json, json};

use super::host_cpu_time::{HostCpuSeconds, processors, since};
use super::io_arms::{IoArmRequest, IoArms};
use hugeleaf_proof::bench::BenchRun;
use hugeleaf_proof::bench::{BenchContext, BenchError, BenchEvent};
use hugeleaf_proof::result_format::{ArmInfo, Quantity, QuantityKind, Results, Sample};

mod rows;
mod stream_search;

use rows::{main, of_run, rate};
use stream_search::{ENOUGH, StreamSearch, worst};

#[derive(Debug, Clone)]
pub struct BackupIoSettings {
    pub modes: Vec<IoMode>,
    /// The layouts of data spaces; the first is the baseline of the others.
    pub pages: Vec<IoPages>,
    /// The places of the devices.
    pub places: Vec<DevicePlace>,
    pub readers: usize,
    pub writers: usize,
    pub each: Bytes,
    pub block: Bytes,
    pub space: Bytes,
    /// Transfers in flight per thread, in modes that use a ring.
    pub depth: usize,
    pub rounds: usize,
    pub sample: Duration,
    /// Rate of one writer in bytes a second; if set, the experiment finds the number of such writers.
    pub rate: Option<Bytes>,
    pub most_streams: usize,
    /// True if existing devices may be overwritten.
    pub overwrite: bool,
    pub seed: u64,
    pub memory_limit: Bytes,
}

impl BackupIoSettings {
    /// Returns the number of devices to write to.
    fn targets(&self) -> usize {
        match self.rate {
            Some(_) => self.writers.max(self.most_streams),
            None => self.writers,
        }
    }

    /// Returns the number of threads that move blocks at a time.
    fn threads(&self) -> usize {
        self.readers + self.targets()
    }

    /// Returns the time for which a run goes on before it is measured.
    fn warm(&self) -> Duration {
        (self.sample / 5).max(Duration::from_millis(20))
    }
}

/// Measures all arms.
///
/// # Errors
/// [`BenchError`]; all memory, devices and files are released then.
pub fn measure(
    settings: &BackupIoSettings,
    machine: &BenchContext<'_>,
    progress: &mut dyn FnMut(BenchEvent),
) -> Result<Results, BenchError> {
    let s = settings;
    let take = IoArmRequest {
        ways: &s.modes,
        pages: &s.pages,
        locks: |mode| mode == IoMode::Lock,
        place: "mode",
        space: s.space,
        block: s.block,
        seed: s.seed,
        called: "a data space",
    };
    check_room(s, take.ordinary(machine.host))?;
    check_memlock(s)?;
    let used = json!({
        "readers": s.readers, "writers": s.writers, "devices": [], "device_bytes": s.each, "block_bytes": s.block,
        "space_bytes": s.space, "depth": s.depth, "rounds": s.rounds, "sample_seconds": s.sample.as_secs_f64(),
    });
    let mut run = BenchRun::new("mover", (s.seed, used), machine, progress);
    let arms = take.take(&mut run)?;
    let samples = s.rounds
        + if s.rate.is_some() {
            stream_search::ROUNDS
        } else {
            0
        };
    for arm in &arms.all {
        run.expect(ArmInfo::named(&arm.label), arm.at.clone(), samples);
    }
    if arms.available().is_empty() {
        return run.finish(&main());
    }
    run.taking("devices");
    let wanted = DeviceOptions {
        places: s.places.clone(),
        sources: s.readers,
        targets: s.targets(),
        each: s.each,
        block: s.block,
        overwrite: s.overwrite,
        seed: s.seed,
    };
    let mut mover = BackupIoExperiment {
        settings,
        devices: Devices::make(&wanted, machine.host, machine.stop)?,
        arms,
    };
    describe(s, &mover.devices.places, &mut run.results);
    let went = mover.all(&mut run);
    run.ended(went)?;
    mover.arms.look_again(&mut run)?;
    run.results.remarks = rows::remarks(&s.modes, &run.results);
    if let Some(rate) = s
        .rate
        .filter(|_| run.results.settings.contains_key("streams"))
    {
        run.results.remarks.push(format!(
            "writers that keep up: each writes {rate} a second to a device of its own; at most {} were tried",
            mover.devices.targets.len()
        ));
    }
    caveats(&mut run);
    run.finish(&main())
}

/// Fills in the title, the method and the charts of the results.
fn describe(s: &BackupIoSettings, devices: &[String], results: &mut Results) {
    results.experiment.title = format!(
        "a backup server's data path: readers {}, writers {}, on {}; blocks of {}, each checked; read and written \
         together",
        s.readers,
        s.writers,
        devices.join(", "),
        s.block
    );
    results.experiment.how = format!(
        "buffers are slots of one data space of {}, used in rotation; each device has {}; {} rounds of {:.2} s, the \
         arms in a new random order in each, from seed {}; written data is read back after each sample; with \
         io_uring, {} transfers in flight per thread, otherwise one",
        s.space,
        s.each,
        s.rounds,
        s.sample.as_secs_f64(),
        s.seed,
        s.depth
    );
    let devices = devices.to_vec().into();
    results.settings.insert("devices".to_owned(), devices);
    results.charts = rows::charts();
}

/// Refuses settings that exceed the memory limit.
fn check_room(settings: &BackupIoSettings, spaces: Bytes) -> Result<(), BenchError> {
    let mut asked = spaces;
    if settings.places.contains(&DevicePlace::Memory) {
        let threads = settings.threads() as u64;
        asked += Bytes(settings.each.get().saturating_mul(threads));
    }
    if asked <= settings.memory_limit {
        return Ok(());
    }
    Err(BenchError::TooLarge {
        what: format!("data spaces of {} and devices", settings.space),
        asked,
        most: settings.memory_limit,
    })
}

/// Refuses settings that would lock more memory than this process may.
fn check_memlock(settings: &BackupIoSettings) -> Result<(), BenchError> {
    let Some(most) = may_lock() else {
        return Ok(());
    };
    for mode in &settings.modes {
        let each = match mode {
            IoMode::Lock => settings.block,
            IoMode::UringRegistered => settings.space,
            IoMode::Direct | IoMode::Uring => continue,
        };
        let asked = Bytes(each.get().saturating_mul(settings.threads() as u64));
        if asked > most {
            let mode = mode.name();
            return Err(BackupIoError::MemlockLimit { mode, asked, most }.into());
        }
    }
    Ok(())
}

struct BackupIoExperiment<'a> {
    settings: &'a BackupIoSettings,
    devices: Devices,
    arms: IoArms<IoMode>,
}

impl BackupIoExperiment<'_> {
    /// Measures all rounds, then the streams, with the bare devices before and after the rounds.
    fn all(&mut self, run: &mut BenchRun<'_>) -> Result<(), BenchError> {
        let available = self.arms.available();
        self.device_baseline(run)?;
        run.rounds(self.settings.rounds, &available, |run, round, of| {
            let arm = &self.arms.all[of.0];
            run.step(format!("{} on {}", arm.way, arm.label));
            self.sample(run, round, of)
        })?;
        self.device_baseline(run)?;
        let Some(rate) = self.settings.rate else {
            return Ok(());
        };
        let mut steps = vec![Vec::new(); self.arms.all.len()];
        let went = run.rounds(stream_search::ROUNDS, &available, |run, _, of| {
            let arm = &self.arms.all[of.0];
            run.step(format!("streams of {rate}, {} on {}", arm.way, arm.label));
            self.streams(run, rate, of, &mut steps[of.0])
        });
        let tried = self
            .arms
            .all
            .iter()
            .zip(steps)
            .filter(|(_, steps)| !steps.is_empty());
        let tried = tried.map(|(arm, steps)| {
            json!({
                "arm": arm.label, "mode": arm.way.name(), "rate_bytes": rate,
                "most_tried": self.devices.targets.len(), "steps": steps,
            })
        });
        run.results
            .settings
            .insert("streams".to_owned(), tried.collect());
        went
    }

    fn load<'d>(
        devices: &'d Devices,
        s: &BackupIoSettings,
        mode: IoMode,
        targets: usize,
        host: &Host,
    ) -> BackupIoLoad<'d> {
        BackupIoLoad {
            mode,
            depth: s.depth,
            block: s.block,
            rate: None,
            sources: &devices.sources,
            targets: &devices.targets[..targets.min(devices.targets.len())],
            warm: s.warm(),
            time: s.sample,
            base: host.base_page,
        }
    }

    /// Measures the devices without a data path. Threads and transfers are the same, from huge pages; nothing is
    /// checked or handed on.
    fn device_baseline(&mut self, run: &mut BenchRun<'_>) -> Result<(), BenchError> {
        /// A longer run shows nothing more.
        const LONGEST: Duration = Duration::from_secs(1);
        let s = self.settings;
        let mut load = BackupIoExperiment::load(
            &self.devices,
            s,
            IoMode::Direct,
            s.writers,
            run.machine.host,
        );
        load.time = load.time.min(LONGEST);
        if let Some(memory) = self.arms.largest() {
            let (moved, time) = measure_devices(memory, &load, run.machine.stop)?;
            rows::add_bare(&mut run.results, rate(moved, time));
        }
        Ok(())
    }

    fn sample(
        &mut self,
        run: &mut BenchRun<'_>,
        round: usize,
        (arm, space): (usize, usize),
    ) -> Result<(), BenchError> {
        let (s, arm, host) = (self.settings, &self.arms.all[arm], run.machine.host);
        let load = BackupIoExperiment::load(&self.devices, s, arm.way, s.writers, host);
        let at_seconds = Some(run.seconds());
        let (label, at) = (arm.label.clone(), arm.at.clone());
        let (moved, processors) = one_run(self.arms.memory(space), &load, run.machine)?;
        for (quantity, value) in of_run(&moved, processors) {
            let sample = Sample {
                at_seconds,
                ..Sample::new(round, value)
            };
            run.results.add(&label, &at, quantity, sample);
        }
        Ok(())
    }

    /// Searches the number of streams of an arm.
    fn streams(
        &mut self,
        run: &mut BenchRun<'_>,
        rate: Bytes,
        (arm, space): (usize, usize),
        steps: &mut Vec<Json>,
    ) -> Result<(), BenchError> {
        let (s, arm, host) = (self.settings, &self.arms.all[arm], run.machine.host);
        let (mode, label, at) = (arm.way, arm.label.clone(), arm.at.clone());
        let guess = rows::written_over(&run.results, (&label, &at), rate);
        let mut search = StreamSearch::new(guess, self.devices.targets.len());
        let mut tried = Vec::new();
        while let Some(count) = search.next() {
            let load = BackupIoLoad {
                rate: Some(rate),
                ..BackupIoExperiment::load(&self.devices, s, mode, count, host)
            };
            let (moved, _) = one_run(self.arms.memory(space), &load, run.machine)?;
            let worst = worst(&moved, rate, load.block);
            search.saw(count, worst >= ENOUGH);
            tried.push(json!({
                "streams": count, "worst_share": worst, "sustained": worst >= ENOUGH,
            }));
        }
        steps.push(tried.into());
        let kept_up = Quantity {
            kind: QuantityKind::Amount,
            ..Quantity::rate("writers that keep up", "")
        };
        let best = Sample::from(search.best() as f64);
        run.results.add(&label, &at, kept_up, best);
        Ok(())
    }
}

/// Makes one run, and reads its written blocks back.
fn one_run(
    memory: &mut IoMemory,
    load: &BackupIoLoad<'_>,
    machine: &BenchContext<'_>,
) -> Result<(BackupIoResult, Option<HostCpuSeconds>), BenchError> {
    let (mut begin, mut end) = (None, None);
    let mut edge = |edge: MeasurementEdge| match edge {
        MeasurementEdge::Begin => begin = processors(machine.root),
        MeasurementEdge::End => end = processors(machine.root),
    };
    let moved = move_blocks(memory, load, machine.stop, &mut edge)?;
    verify(memory, load.targets, load.block)?;
    let host = begin.zip(end).map(|(begin, end)| since(end, begin));
    Ok((moved, host))
}

fn caveats(run: &mut BenchRun<'_>) {
    run.on_a_virtual_machine(
        "the hypervisor emulates its devices, and each segment of a transfer takes a descriptor of its \
         own.",
    );
    let results = &mut run.results;
    let is_lock = |place: &hugeleaf_proof::result_format::Parameter| {
        place.value.to_string() == IoMode::Lock.name()
    };
    let mut rows = results.rows.iter();
    if rows.any(|row| row.arm.starts_with("hugetlb") && row.at.iter().any(is_lock)) {
        results.caveats.push(
            "Locking hugetlb pages costs next to nothing, because they are always in memory: the \
             kernel has nothing to do. It is not the same work done faster."
                .to_owned(),
        );
    }
}
