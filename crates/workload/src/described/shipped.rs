//! Those that come with hugeleaf: the files of `workloads/`.

use std::path::Path;

use super::file::{Described, FileError};

/// A workload that comes with hugeleaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    /// Its name, as `hugeleaf bench NAME` takes it.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// All of them, by name.
        pub const SHIPPED: &[Shipped] = &[$(Shipped {
            name: $name,
            text: include_str!(concat!("../../../../workloads/", $name, ".toml")),
        }),*];
    };
}

shipped![
    "compile",
    "duckdb",
    "files",
    "filesystems",
    "jobs",
    "jvm",
    "mariadb",
    "memcached",
    "nginx",
    "node",
    "orders",
    "pgbench",
    "python",
    "redis",
    "schedulers",
    "sort",
    "sqlite",
    "vectors",
];

/// The one of a name.
pub fn shipped(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

impl Shipped {
    /// What its file describes.
    ///
    /// # Errors
    /// None: tests read all of them.
    pub fn described(&self) -> Result<Described, FileError> {
        Described::parse(Path::new(&format!("{}.toml", self.name)), self.text)
    }
}
