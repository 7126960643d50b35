//! `hugeleaf balance`: one memory target for several servers, divided by the benefit of memory to each.
//!
//! `rules` parses the configuration, `server` has the trait, `kinds` the table of kinds. `controller` decides (pure, by
//! `hugeleaf-balance`). `run` has one thread per target and per server, so that no server blocks another.

mod component;
mod controller;
mod jvm;
mod kinds;
mod mariadb;
mod memcached;
mod postgresql;
mod process;
mod redis;
mod rules;
mod run;
mod server;
mod status;
#[cfg(test)]
mod tests;
mod worker;

pub use controller::{Core, Said};
pub use hugeleaf_balance::{ResizeOperation, View};
pub use kinds::{KINDS, kind_named};
pub(crate) use rules::WrittenTarget;
pub use rules::{BalanceAction, Member, PagePreference, Target};
pub use run::{Run, run};
pub use server::{Observer, Opening, Server, ServerKind};
pub use status::{BalanceStatus, ComponentStatus};
