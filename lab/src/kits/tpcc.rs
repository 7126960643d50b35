//! `hugeleaf-lab oltp`: an order-entry load after the public rules of TPC-C (revision 5.11 of the standard), on an
//! embedded database and on a server.
//!
//! It is a fair-use kit like DBT-2: nine tables, five transactions in the standard's mix, its random numbers, its
//! consistency conditions. Its results are not TPC-C results and may not be compared with published ones. They may
//! only be compared with one another: one database on different page sizes.
//!
//! A [`TpccStore`] is a database under this load: [`SqliteStore`], [`PostgresStore`] or [`MariadbStore`]. All stores share
//! the code of the rows ([`RowGenerator`]), the inputs ([`TpccTerminal`]), the load ([`load`]), the run ([`drive`]) and the
//! conditions ([`check`]).
//!
//! Differences from the standard: a terminal does not wait unless [`TransactionPace`] requests it; Delivery is done at once and
//! not queued; nothing is displayed. Money is in whole cents and rates in hundredths of a percent, so that no rounding
//! differs between databases. SQLite has one writer per database, so warehouses are spread over several databases. A
//! remote warehouse of the standard is then another warehouse of the same database.
//!
//! The kit does not compare, judge or draw.

mod check;
mod counters;
mod drive;
mod error;
mod fill;
mod input;
mod mariadb;
mod population;
mod postgres;
mod random;
mod rules;
mod sqlite;
mod store;
mod tables;

pub use check::{ConsistencyCondition, ConsistencyViolation, check};
pub use counters::{CounterResetError, DatabaseCounters};
pub use drive::{
    DriverResult, DriverSettings, MeasurementObserver, TransactionPace, TransactionStats, drive,
};
pub use error::TpccError;
pub(crate) use error::joined;
pub use fill::{FillProgress, data_bytes, load, warehouses_in};
pub use hugeleaf_testkit::mariadb::MariadbServer;
pub use hugeleaf_testkit::postgresql::PostgresServer;
pub use hugeleaf_testkit::server::ServerSettings;
pub use input::{
    CustomerSelector, DeliveryInput, NewOrderInput, OrderLineInput, OrderStatusInput, PaymentInput,
    StockLevelInput, TpccTerminal, TransactionInput,
};
pub(crate) use mariadb::explain as explain_mariadb;
pub(crate) use mariadb::options as mariadb_options;
pub use mariadb::{MariadbSeen, MariadbStore, MariadbWatch};
pub use population::{FieldValue, RowGenerator};
pub use postgres::{PostgresStore, WarmConnection, WarmMethod};
pub use random::{NurandConstants, Random, last_name};
pub use rules::{DISTRICTS, TableCardinality, TransactionKind};
pub use sqlite::{SqliteSettings, SqliteStore, install_cache};
pub use store::free_bytes;
pub use store::{
    DatasetSpec, Durability, FillUnit, TpccLoader, TpccSession, TpccStore, TransactionResult,
};
pub use tables::{TABLES, TpccColumn, TpccTable};
