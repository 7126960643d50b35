//! Metrics that a server, a command or a page gives: those with an address.

use super::spec::MetricKind;

/// These, in the order in which help and documents list them.
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
