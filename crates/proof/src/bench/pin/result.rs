//! The result of `bench pin`, as it is kept.

use hugeleaf_host::Host;
use hugeleaf_units::Bytes;
use hugeleaf_workload::mover::IoPages;
use hugeleaf_workload::pin::{Method, Pinned};

use super::settings::PinSettings;
use crate::bench::mover::PhysicalLayout;
use crate::bench::{CONFIDENCE, Measured, Shortage, Spread};

/// What was measured.
pub(super) struct PinResult<'a> {
    pub(super) measured: Measured<'a, PinSettings, PinArm>,
    /// What direct reads read.
    pub(super) devices: Vec<String>,
}

/// A way of pinning on a kind of pages.
#[derive(Debug, Clone, PartialEq)]
pub struct PinArm {
    /// `scattered`, `split`, `thp:2M`, `hugetlb:2M`.
    pub label: String,
    /// `mlock`, `uring`, `direct`.
    pub method: String,
    /// Pages that a buffer lies on: what has to be handled one by one.
    pub units: u64,
    /// Whether the kernel has nothing to do: hugetlb pages always stay in memory, and mlock(2) on
    /// them returns at once.
    pub nothing_to_do: bool,
    /// By number of threads, fewest first.
    pub points: Vec<PinPoint>,
    /// The layout of the memory before the first sample.
    pub before: Option<PhysicalLayout>,
    /// And after the last.
    pub after: Option<PhysicalLayout>,
    /// Why it was unavailable.
    pub shortage: Option<Shortage>,
}

/// So many threads at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct PinPoint {
    /// How many.
    pub threads: usize,
    /// Microseconds that a thread takes for one, mean of each sample.
    pub samples: Vec<f64>,
    /// Microseconds of processors for one, of each sample.
    pub processor_samples: Vec<f64>,
    /// How often a thread waited, for one, of each sample.
    pub waits_samples: Vec<f64>,
    /// How many were pinned in each sample.
    pub counts: Vec<u64>,
    /// The round of each sample.
    pub rounds: Vec<usize>,
    /// How much longer one takes than alone, over what it would where threads only share the
    /// processors: 1 is no contention.
    pub contention: Option<f64>,
    /// What the model says, from the first pages with as many threads.
    pub model_micros: Option<f64>,
}

/// The published pseudo-code and what it says of a buffer of 256K: one turn of the lock a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The loop, in words.
    pub text: String,
    /// Its rows.
    pub published: Vec<ModelRow>,
}

/// A row of the published table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelRow {
    /// Size of a page.
    pub page_bytes: u64,
    /// Turns of the lock for 256K.
    pub units: u64,
}

impl Model {
    pub(super) fn published() -> Model {
        let row = |page: Bytes, units| ModelRow {
            page_bytes: page.get(),
            units,
        };
        Model {
            text: "while there are pages to pin: lock the segment, pin a page, unlock the segment"
                .to_owned(),
            published: vec![
                row(Bytes::from_kib(4), 64),
                row(Bytes::from_kib(64), 4),
                row(Bytes::from_mib(16), 1),
            ],
        }
    }
}

pub(super) fn empty_arms(settings: &PinSettings, host: &Host) -> Vec<PinArm> {
    let mut arms = Vec::new();
    for method in &settings.methods {
        for pages in &settings.pages {
            arms.push(empty_arm(*method, *pages, settings, host));
        }
    }
    arms
}

fn empty_arm(method: Method, pages: IoPages, settings: &PinSettings, host: &Host) -> PinArm {
    let point = |threads: &usize| PinPoint {
        threads: *threads,
        samples: Vec::new(),
        processor_samples: Vec::new(),
        waits_samples: Vec::new(),
        counts: Vec::new(),
        rounds: Vec::new(),
        contention: None,
        model_micros: None,
    };
    PinArm {
        label: pages.to_string(),
        method: method.to_string(),
        units: pages.mapped(host).size.pages_for(settings.block).get(),
        nothing_to_do: method == Method::Mlock && pages.is_pool(),
        points: settings.threads.iter().map(point).collect(),
        before: None,
        after: None,
        shortage: None,
    }
}

#[allow(clippy::cast_precision_loss)]
impl PinArm {
    /// Whether there is no sample of it.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(|point| point.samples.is_empty())
    }

    pub(super) fn saw(&mut self, threads: usize, round: usize, pinned: &Pinned) {
        let points = &mut self.points;
        let Some(point) = points.iter_mut().find(|point| point.threads == threads) else {
            return;
        };
        let count = pinned.count.max(1) as f64;
        point.samples.push(pinned.each.mean * 1e6);
        let processor = pinned.usage.processor().as_secs_f64();
        point.processor_samples.push(processor * 1e6 / count);
        point.waits_samples.push(pinned.usage.waits as f64 / count);
        point.counts.push(pinned.count);
        point.rounds.push(round);
    }
}

/// What contention and the model come to, of each number of threads.
#[allow(clippy::cast_precision_loss)]
pub(super) fn compare(arms: &mut [PinArm], cpus: usize) {
    for arm in arms.iter_mut() {
        let mut points = arm.points.iter();
        let alone = points.find(|point| point.threads == 1);
        let alone = alone.and_then(PinPoint::median);
        for point in &mut arm.points {
            let shared = (point.threads as f64 / cpus.max(1) as f64).max(1.0);
            let median = point.median().zip(alone);
            point.contention = median.map(|(median, alone)| median / (alone * shared));
        }
    }
    let all = arms.to_vec();
    for arm in arms.iter_mut() {
        let Some(first) = all.iter().find(|first| first.method == arm.method) else {
            continue;
        };
        for point in &mut arm.points {
            let mut points = first.points.iter();
            let of_first = points.find(|p| p.threads == point.threads);
            let parts = arm.units as f64 / first.units.max(1) as f64;
            point.model_micros = of_first
                .and_then(PinPoint::median)
                .map(|median| median * parts);
        }
    }
}

impl PinPoint {
    fn median(&self) -> Option<f64> {
        Some(Spread::of(&self.samples, CONFIDENCE)?.median)
    }
}

pub(super) fn caveats(arms: &[PinArm], host: &Host) -> Vec<String> {
    let mut caveats = Vec::new();
    let measured = || arms.iter().filter(|arm| !arm.is_empty());
    if measured().any(|arm| arm.nothing_to_do) {
        caveats.push(
            "mlock of hugetlb pages is nothing to do: they always stay in memory, and the kernel \
             returns at once. It is not the same work done faster."
                .to_owned(),
        );
    }
    if measured().any(|arm| arm.method == "direct") {
        caveats.push(
            "direct is a whole read, device included; what pinning costs is in its processor time."
                .to_owned(),
        );
    }
    if host.pmd_page.get().is_some() && measured().any(|arm| arm.method == "mlock") {
        caveats.push(
            "mlock of a part of a transparent huge page splits its mapping, so from the second time \
             on base pages are locked there, however large the page is."
                .to_owned(),
        );
    }
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(label: &str, units: u64, micros: &[(usize, f64)]) -> PinArm {
        let point = |(threads, us): &(usize, f64)| PinPoint {
            threads: *threads,
            samples: (0..6).map(|n| us * (1.0 + f64::from(n) / 100.0)).collect(),
            processor_samples: vec![*us; 6],
            waits_samples: vec![0.0; 6],
            counts: vec![10; 6],
            rounds: (0..6).collect(),
            contention: None,
            model_micros: None,
        };
        PinArm {
            label: label.to_owned(),
            method: "uring".to_owned(),
            units,
            nothing_to_do: false,
            points: micros.iter().map(point).collect(),
            before: None,
            after: None,
            shortage: None,
        }
    }

    #[test]
    fn the_model_goes_by_units_and_contention_by_processors() {
        let mut arms = vec![
            arm("scattered", 64, &[(1, 8.0), (4, 32.0)]),
            arm("hugetlb:2M", 1, &[(1, 1.0), (4, 2.0)]),
        ];
        compare(&mut arms, 2);
        let [small, large] = [&arms[0].points, &arms[1].points];
        let near = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < b * 0.02;
        // Four threads on two processors take twice as long without any contention.
        assert!(near(small[1].contention, 2.0) && near(large[1].contention, 1.0));
        assert!(near(large[0].model_micros, 8.2 / 64.0));
        assert_eq!(Model::published().published[1].units, 4);
    }
}
