//! `hugeleaf status --json`.

use hugeleaf_host::{Host, MemoryLimit};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::findings::{Finding, Holder, by_name};
use serde::Serialize;

#[derive(Serialize)]
struct Answer<'a> {
    host: WholeHost<'a>,
    findings: &'a [Finding],
}

/// A host with what only `status` reads.
#[derive(Serialize)]
struct WholeHost<'a> {
    #[serde(flatten)]
    host: &'a Host,
    memory_limits: Vec<Limit<'a>>,
    holders: Vec<Holder>,
}

#[derive(Serialize)]
struct Limit<'a> {
    #[serde(flatten)]
    limit: &'a MemoryLimit,
    room_bytes: Bytes,
}

/// The whole answer. A limit that is not set is missing, as all that is absent.
pub fn status(host: &Host, findings: &[Finding]) -> String {
    let limits = host.memory_limits.iter().map(|l| Limit {
        limit: l,
        room_bytes: l.room_at_most(),
    });
    crate::json::answer(&Answer {
        host: WholeHost {
            host,
            memory_limits: limits.collect(),
            holders: by_name(&host.owners),
        },
        findings,
    })
}
