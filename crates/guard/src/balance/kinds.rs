//! The table of kinds of servers: help, errors and documents are made from it.

use super::server::ServerKind;
use super::{jvm, mariadb, memcached, postgresql, redis};

/// All kinds, in the order in which help and documents list them.
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
