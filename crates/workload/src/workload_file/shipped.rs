//! The workloads shipped with hugeleaf: the files of `workloads/`.

use std::path::Path;

use super::file::{FileError, WorkloadSpec};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shipped {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
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

pub fn shipped(name: &str) -> Option<&'static Shipped> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

impl Shipped {
    pub fn described(&self) -> Result<WorkloadSpec, FileError> {
        WorkloadSpec::parse(Path::new(&format!("{}.toml", self.name)), self.text)
    }
}
