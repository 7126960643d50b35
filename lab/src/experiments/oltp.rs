//! `hugeleaf-lab oltp`: orders a minute on a real database, with the cost of each transaction.
//!
//! A missing database is filled, then driven, then checked against its twelve consistency
//! conditions. If one of them fails, there is no result. The rules of the load are those of
//! [`crate::kits::tpcc`].

mod background_copy;
mod child;
mod derived_settings;
mod embedded;
mod experiment;
mod external_server;
mod mariadb;
mod pages;
mod postgres;
mod private_server;
mod rows;
mod run;
mod server_usage;
mod settings;
mod translation_cost;
mod watch;

pub use background_copy::{COPIER, copy_until_ended};
pub use experiment::{SERVERS, measure};
pub use pages::OltpPages;
pub use settings::{OltpDatabase, OltpSettings, ReadPath, ServerKind};

pub(super) use private_server::promote_mariadb;
pub(super) use run::FILLED_AT;
pub(super) use server_usage::cache_pages;
