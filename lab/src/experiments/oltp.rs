//! `hugeleaf-lab oltp`: orders a minute on a real database, with what each transaction cost.
//!
//! The database is filled where it is not, driven, and then asked for its twelve consistency
//! conditions; where one does not hold there is no result. The rules of the load are those of
//! [`crate::kits::tpcc`].

mod child;
mod copier;
mod cost;
mod elsewhere;
mod embedded;
mod mariadb;
mod measure;
mod order;
mod pages;
mod postgres;
mod rows;
mod run;
mod server;
mod setup;
mod started;
mod watch;

pub use copier::{COPIER, copy_until_ended};
pub use measure::{SERVERS, measure};
pub use order::{Database, Io, Order, ServerKind};
pub use pages::Pages;

pub(super) use run::FILLED_AT;
pub(super) use server::cache_pages;
pub(super) use started::promote_mariadb;
