//! The experiment of `hugeleaf try`: how fast an embedded database works on base and on large pages.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_change::Percent;
use hugeleaf_host::{Host, Root};
use hugeleaf_workload::{ChildError, Client, Oltp};

use crate::metric::{Kind, Metric, MetricError, Reading};
use crate::stats::Better;
use crate::{Event, LiveSubject, ProveError, ResultFile, Settings, circumstances};

/// So many intervals fit into the time, in addition to the moving between them; at least 16 are needed.
const INTERVALS: u32 = 50;
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(1);

/// Measures the database for at most that long, and leaves it as it was.
pub fn measure(
    workload: &Oltp,
    (root, host): (&Root, &Host),
    time: Duration,
    progress: &mut dyn FnMut(Event<'_>),
    stop: &AtomicBool,
) -> Result<ResultFile, ProveError> {
    let kernel = workload.kernel();
    let pids = [workload.pid()];
    let name = "the database of hugeleaf try";
    let mut subject = LiveSubject::new(&kernel, root, host, name, &pids, Percent::ALL);
    let mut metric = Operations(workload.client());
    let interval = (time / INTERVALS).clamp(SHORTEST, LONGEST);
    let settings = Settings {
        interval,
        settle: interval / 4,
        limit: time,
        ..Settings::default()
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

/// Operations per second of processor time that the database used: whoever else wants the
/// processors meanwhile does not count, and neither does when the answer is read. With a processor
/// to itself, that is operations per second.
struct Operations(Arc<Client>);

const NAME: &str = "sqlite";

impl Metric for Operations {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn unit(&self) -> String {
        "operations/CPU s".to_owned()
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn kind(&self) -> Kind {
        Kind::Ratio
    }

    // Counts up to 2^53 are exact, which is centuries of operations and months of nanoseconds.
    fn read(&mut self) -> Result<Reading, MetricError> {
        let unreachable = |error: ChildError| MetricError::Unreachable {
            metric: NAME.to_owned(),
            reason: error.to_string(),
            next: "hugeleaf try".to_owned(),
        };
        let stats = self.0.stats().map_err(unreachable)?;
        Ok(Reading::Ratio {
            above: stats.operations as f64,
            below: stats.cpu_nanoseconds as f64 / 1e9,
        })
    }
}
