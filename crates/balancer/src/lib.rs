//! `hugeleaf balance`: one memory target for several servers, divided by the benefit of memory to each.
//!
//! `config` parses the configuration, `server` has the traits (an [`ServerObserver`] reads and cannot write, a
//! [`ResizableServer`] is resized), and `server_kinds` the table of server kinds. `owner_limit` remembers the limit that a
//! server's owner set. `component` and `controller` decide from what the servers' threads report, by the policy of
//! `hugeleaf-balance`, which the library has too (pure, with simulated faults). `worker` is one thread per server, so that
//! none blocks another, and `target_loop` one per target. The guard and `hugeleaf balance` run the same code.
//!
//! This crate must not print and must not render. Memory is promoted only through `hugeleaf-mover`.
//!
//! Main types: [`BalanceTarget`], [`ResizableServer`], [`Controller`], [`BalanceStatus`].

#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod component;
mod config;
mod controller;
mod jvm;
mod mariadb;
mod memcached;
mod owner_limit;
mod postgresql;
mod process;
mod redis;
mod server;
mod server_kinds;
mod status;
mod target_loop;
#[cfg(test)]
mod tests;
mod worker;

pub use config::{BalanceAction, BalanceTarget, BalancedServer, PagePreference, TargetToml};
pub use controller::{Controller, LogEvent};
pub use hugeleaf_balance::{OracleViews, ResizeOperation};
pub use server::{ConnectOptions, ResizableServer, ServerKind, ServerObserver};
pub use server_kinds::{KINDS, kind_named};
pub use status::{BalanceStatus, ComponentStatus};
pub use target_loop::{RunContext, run};
