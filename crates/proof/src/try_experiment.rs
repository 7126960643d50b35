//! The experiment of `hugeleaf try`: the speed of an embedded database on base and on huge pages.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_host::{Host, Root};
use hugeleaf_mover::Percent;
use hugeleaf_sys::Deadline;
use hugeleaf_workload::{ChildError, ControlClient, OltpProcess};

use crate::metric::{Metric, MetricError, Reading, ReadingKind};
use crate::{
    ExperimentEvent, ExperimentSettings, LiveSubject, ProveError, ProveResult, circumstances,
};

/// Number of intervals that fit into the time, besides promoting and demoting; at least 16 are needed.
const INTERVALS: u32 = 50;
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(1);

/// Target of the result.
pub const TARGET: &str = "the database of hugeleaf try";

/// Measures the database for at most `time`, and restores its memory.
pub fn measure(
    workload: &OltpProcess,
    (root, host): (&Root, &Host),
    time: Duration,
    progress: &mut dyn FnMut(ExperimentEvent<'_>),
    stop: &AtomicBool,
) -> Result<ProveResult, ProveError> {
    let kernel = workload.kernel();
    let pids = [workload.pid()];
    let mut subject = LiveSubject::new(&kernel, root, host, TARGET, &pids, Percent::ALL.into());
    let mut metric = operations(workload.client());
    let interval = (time / INTERVALS).clamp(SHORTEST, LONGEST);
    let settings = ExperimentSettings {
        interval,
        settle: interval / 4,
        limit: time,
        ..ExperimentSettings::default()
    };
    let command: Vec<String> = std::env::args().collect();
    let circumstances = circumstances(root, host, &command);
    crate::run(
        &mut subject,
        &mut metric,
        &kernel,
        &settings,
        &circumstances,
        progress,
        stop,
    )
}

/// Creates the metric: operations per second of CPU time that the database used. Other users of the
/// CPUs do not matter, nor does the time of a reading. With a CPU to itself, it is operations per
/// second.
fn operations(client: Arc<ControlClient>) -> Metric {
    const NAME: &str = "sqlite";
    // Counts up to 2^53 are exact: centuries of operations, months of nanoseconds.
    let read = move |_: Deadline<'_>| {
        let fail = |e: ChildError| MetricError::unreachable(NAME, e.to_string(), "hugeleaf try");
        let stats = client.stats().map_err(fail)?;
        Ok(Reading::Ratio {
            above: stats.operations as f64,
            below: stats.cpu_nanoseconds as f64 / 1e9,
        })
    };
    Metric {
        kind: ReadingKind::Ratio,
        ..Metric::counter(NAME, "operations/CPU s", read)
    }
}
