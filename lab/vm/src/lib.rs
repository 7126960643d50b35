//! Real kernels in virtual machines, for tests and for interactive use.
//!
//! A host is a file in `lab/vm/hosts`: its kernel, its memory and nodes, its installed packages. From
//! it come a kernel and a userland of Debian's packages, and a virtual machine under QEMU. One command
//! runs inside under a time limit, and its output, files and exit status are returned.
//!
//! This crate must not change the machine that it runs on. Packages are unpacked into a cache, none is
//! installed, nothing is mounted, and guests have no network. The checks of the tests inside are in
//! `lab/vm/tests/every_host`; this crate is independent of hugeleaf's functions.
//!
//! Main types: [`GuestConfigFile`](guest_config::GuestConfigFile), [`ArtifactCache`](cache::ArtifactCache), [`GuestPayload`](guest_payload::GuestPayload),
//! [`GuestExit`](qemu::GuestExit).

pub mod architecture;
pub mod cache;
pub mod debian;
pub mod guest_config;
pub mod guest_payload;
pub mod guest_runner;
pub mod harness_output;
pub mod image;
pub mod kernel;
pub mod missing_precondition;
pub mod process;
pub mod programs;
pub mod qemu;
pub mod results;
