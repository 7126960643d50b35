//! Hosts of the test kit, and the ids of findings.

pub use hugeleaf_testkit::healthy_host_fixture::*;

use crate::findings::Finding;

pub fn ids(findings: impl IntoIterator<Item = Finding>) -> Vec<&'static str> {
    findings.into_iter().map(|f| f.id).collect()
}
