//! The workloads shipped with hugeleaf: the files of `workloads/`.

use std::path::Path;

use super::spec::{WorkloadFileError, WorkloadSpec};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShippedWorkload {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        pub const SHIPPED: &[ShippedWorkload] = &[$(ShippedWorkload {
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

pub fn shipped(name: &str) -> Option<&'static ShippedWorkload> {
    SHIPPED.iter().find(|shipped| shipped.name == name)
}

impl ShippedWorkload {
    pub fn described(&self) -> Result<WorkloadSpec, WorkloadFileError> {
        WorkloadSpec::parse(Path::new(&format!("{}.toml", self.name)), self.text)
    }
}
