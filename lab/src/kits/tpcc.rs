//! `hugeleaf-lab oltp`: an order-entry load after the public rules of TPC-C (revision 5.11 of the
//! standard), on an embedded database and on a server.
//!
//! It is a fair-use kit, as DBT-2 is one: nine tables, five transactions in the standard's mix, its
//! random numbers, its consistency conditions. Its results are no TPC-C results, may not be compared
//! with published ones, and are only meant to be compared with one another: one database, on pages
//! of one size and of another.
//!
//! What a database has to offer is a [`Store`]: [`SqliteStore`], [`PostgresStore`] and [`MariadbStore`] are the three.
//! The rows ([`Population`]), what a terminal asks for ([`Terminal`]), the load ([`load`]), the run
//! ([`drive`]) and the conditions ([`check`]) are the same code for all.
//!
//! Where it differs from the standard: a terminal waits for nothing unless [`Pace`] says so;
//! Delivery is done at once and not queued; nothing is displayed; money is counted in whole cents
//! and rates in hundredths of a percent, so that no rounding differs between databases; SQLite has
//! one writer a database, so warehouses are spread over several databases, and what the standard
//! calls a remote warehouse is another one of the same database.
//!
//! Nothing here compares, judges or draws.

mod check;
mod counters;
mod drive;
mod error;
mod input;
mod load;
mod mariadb;
mod population;
mod postgres;
mod random;
mod rules;
mod sqlite;
mod store;
mod tables;

pub use check::{Condition, Violation, check};
pub use counters::{CounterError, Counters};
pub use drive::{Latency, Onlooker, Outcome, Pace, Run, drive};
pub use error::TpccError;
pub use hugeleaf_testkit::mariadb::MariadbServer;
pub use hugeleaf_testkit::postgresql::PostgresServer;
pub use hugeleaf_testkit::server::ServerSettings;
pub use input::{
    Customer, Delivery, Input, Line, NewOrder, OrderStatus, Payment, StockLevel, Terminal,
};
pub use load::{LoadEvent, Room, data_bytes, load, room_for, warehouses_in};
pub(crate) use mariadb::explain as explain_mariadb;
pub(crate) use mariadb::options as mariadb_options;
pub use mariadb::{MariadbSeen, MariadbStore, MariadbWatch};
pub use population::{Field, Population};
pub use postgres::{PostgresStore, Warm, Warmed};
pub use random::{Constants, Random, last_name};
pub use rules::{DISTRICTS, Kind, Scale};
pub use sqlite::{SqliteSettings, SqliteStore, install_cache};
pub use store::free_bytes;
pub use store::{Answer, Durability, Loader, Origin, Part, Session, Store};
pub use tables::{Column, TABLES, Table};
