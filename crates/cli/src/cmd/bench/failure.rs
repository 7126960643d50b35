//! Why there is no result, as a command says it.

use hugeleaf_proof::bench::BenchError;
use hugeleaf_workload::mover::MoverError;

use crate::context::Failure;

/// The failure of a benchmark of this name.
pub(super) fn failure(name: &str, error: &BenchError) -> Failure {
    let what = format!("bench {name}: {error}");
    if let BenchError::Refused(refusal) = error {
        return Failure::missing(&refusal.what, &refusal.next).with_status(refusal.status);
    }
    match error {
        BenchError::Stopped | BenchError::Mover(MoverError::Stopped) => {
            let what = format!("bench {name}: {}", BenchError::Stopped);
            Failure::no(what, format!("hugeleaf bench {name}"))
        }
        BenchError::Mover(MoverError::There { .. } | MoverError::Alignment { .. }) => {
            Failure::usage(what, error.next())
        }
        error => Failure::missing(what, error.next()),
    }
}
