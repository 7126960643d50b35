//! Metrics with an address: of a server, a command or a page.

use super::spec::MetricKind;

/// The metrics in the order of help and documents.
pub(super) static SERVERS: &[MetricKind] = &[
    super::postgres::KIND,
    super::redis::KIND,
    super::mysql::KIND,
    super::command::KIND,
    super::http::KIND,
];

pub(super) fn names<'a>(kinds: impl IntoIterator<Item = &'a MetricKind>) -> Vec<String> {
    kinds.into_iter().map(MetricKind::name).collect()
}
