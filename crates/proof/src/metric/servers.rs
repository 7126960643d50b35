//! Metrics that a server, a command or a page gives: those with an address.

use super::spec::MetricKind;
use super::{command, http, mysql, postgres, redis};

/// These, in the order in which help and documents list them.
pub(super) static SERVERS: &[MetricKind] = &[
    postgres::KIND,
    redis::KIND,
    mysql::KIND,
    command::KIND,
    http::KIND,
];

/// Names of kinds, as they are typed.
pub(super) fn names<'a>(kinds: impl IntoIterator<Item = &'a MetricKind>) -> Vec<String> {
    kinds.into_iter().map(MetricKind::name).collect()
}
