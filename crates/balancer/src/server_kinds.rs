//! The table of server kinds, from which help, errors and documents are made.

use crate::server::ServerKind;
use crate::{jvm, mariadb, memcached, postgresql, redis};

/// All kinds, in the order of help and documents.
pub static KINDS: &[ServerKind] = &[
    mariadb::KIND,
    redis::KIND,
    memcached::KIND,
    jvm::KIND,
    postgresql::KIND,
];

pub fn kind_named(name: &str) -> Option<&'static ServerKind> {
    KINDS.iter().find(|kind| kind.names.contains(&name))
}
