//! Converts errors of experiments into failures of a command.

use hugeleaf_proof::bench::BenchError;

use crate::context::Failure;

pub fn failure(name: &str, error: &BenchError) -> Failure {
    let what = format!("bench {name}: {error}");
    match error {
        BenchError::Refused(failure) => failure.clone(),
        BenchError::Part(failure) => Failure {
            message: what,
            ..failure.clone()
        },
        BenchError::Stopped => Failure::no(what, format!("hugeleaf bench {name}")),
        error => Failure::missing(what, error.next()),
    }
}
