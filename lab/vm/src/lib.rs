//! Real kernels in virtual machines, for tests and for looking around.
//!
//! A host is a file in `lab/vm/hosts`: which kernel, how much memory on which nodes, what is installed.
//! From it come a kernel and a userland out of Debian's packages, a virtual machine under QEMU, one
//! command that runs inside under a time limit, and its output, files and exit status.
//!
//! This crate must not change the machine that it runs on: packages are unpacked into a cache, none
//! is installed, nothing is mounted, and guests have no network. What the tests inside check is in
//! `lab/vm/tests/every_host`; nothing here knows what hugeleaf does.
//!
//! Main types: [`HostFile`](host::HostFile), [`Cache`](cache::Cache), [`Guest`](guest::Guest),
//! [`Ended`](qemu::Ended).

pub mod architecture;
pub mod cache;
pub mod debian;
pub mod guest;
pub mod harness;
pub mod host;
pub mod image;
pub mod kernel;
pub mod missing;
pub mod process;
pub mod programs;
pub mod qemu;
pub mod results;
pub mod suite;
