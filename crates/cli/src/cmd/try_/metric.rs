//! The database's operations as a metric for `prove`.

use std::sync::Arc;

use hugeleaf_proof::metric::{Kind, Metric, MetricError, Reading};
use hugeleaf_proof::stats::Better;
use hugeleaf_workload::{ChildError, Client};

/// Operations per second of processor time that the database used: whoever else wants the
/// processors meanwhile does not count, and neither does when the answer is read. With a processor
/// to itself, that is operations per second.
pub struct Operations(pub Arc<Client>);

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
    #[allow(clippy::cast_precision_loss)]
    fn read(&mut self) -> Result<Reading, MetricError> {
        let stats = self.0.stats().map_err(unreachable)?;
        Ok(Reading::Ratio {
            above: stats.operations as f64,
            below: stats.cpu_nanoseconds as f64 / 1e9,
        })
    }
}

fn unreachable(error: ChildError) -> MetricError {
    MetricError::Unreachable {
        metric: NAME.to_owned(),
        reason: error.to_string(),
        next: "hugeleaf try".to_owned(),
    }
}
