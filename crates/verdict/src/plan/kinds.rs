//! The version of a plan file, and the names of kinds in it.

use hugeleaf_host::demand::{Place, ServiceKind};

/// The version of plan files that this program writes and reads.
pub const SCHEMA: u64 = 1;

/// All kinds, to look one up by its name.
pub(super) const KINDS: [ServiceKind; 8] = [
    ServiceKind::PostgreSql,
    ServiceKind::MariaDb,
    ServiceKind::Jvm,
    ServiceKind::Redis,
    ServiceKind::SysV,
    ServiceKind::Container,
    ServiceKind::Mover,
    ServiceKind::Other,
];

/// The name of a kind of service in plans and in JSON.
pub const fn kind_name(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::PostgreSql => "postgresql",
        ServiceKind::MariaDb => "mariadb",
        ServiceKind::Jvm => "jvm",
        ServiceKind::Redis => "redis",
        ServiceKind::SysV => "sysv",
        ServiceKind::Container => "container",
        ServiceKind::Mover => "mover",
        ServiceKind::Other => "other",
    }
}

/// The name of a place in plans and in JSON.
pub const fn place_name(place: Place) -> &'static str {
    match place {
        Place::Pool => "pool",
        Place::Thp => "thp",
    }
}
