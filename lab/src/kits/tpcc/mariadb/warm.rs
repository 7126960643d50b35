//! Preparation before each run of a comparison, so that all runs begin alike.

use ::mysql::Error;
use ::mysql::prelude::Queryable;

use super::MariadbStore;
use super::error_mapping::explain;
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::tables::{MORE_INDEXES, TABLES, TpccTable};

impl MariadbStore {
    /// Reads tables and indexes into the server's cache as far as they fit, of the first `touched`
    /// warehouses or of all.
    ///
    /// # Errors
    /// Those of the database.
    pub fn warm(&self, touched: Option<i32>) -> Result<(), TpccError> {
        let mut connection = self.connect()?;
        let mut read = || -> Result<(), Error> {
            // A page that is read once stays, as if it had been read often.
            connection.query_drop("SET GLOBAL innodb_old_blocks_time = 0")?;
            for scan in scans(touched) {
                connection.query_drop(scan)?;
            }
            connection.query_drop("SET GLOBAL innodb_old_blocks_time = DEFAULT")
        };
        read().map_err(|e| explain(&self.name, &e))
    }
}

/// Returns the scans, which read the last column so that only the tree of the key can serve.
fn scans(touched: Option<i32>) -> Vec<String> {
    let some = |first: &str| match touched {
        Some(last) => format!(" WHERE {first} <= {last}"),
        None => String::new(),
    };
    let rows = TABLES.into_iter().map(|table| {
        let (name, columns) = (table.name(), table.columns());
        let (first, last) = (columns[0].name, columns[columns.len() - 1].name);
        let some = match table {
            // One table for all warehouses, and one without a key.
            TpccTable::Item | TpccTable::History => String::new(),
            _ => some(first),
        };
        format!(
            "SELECT count({last}) FROM {name}{}{some}",
            without_more(name)
        )
    });
    let indexes = MORE_INDEXES.into_iter().filter_map(|sql| {
        let mut words = sql.split_ascii_whitespace().skip(2);
        let (index, table) = (words.next()?, words.nth(1)?);
        let table = TABLES.into_iter().find(|t| t.name() == table)?;
        let first = table.columns()[0].name;
        Some(format!(
            "SELECT count({first}) FROM {} FORCE INDEX ({index}){}",
            table.name(),
            some(first)
        ))
    });
    rows.chain(indexes).collect()
}

/// Excludes the index that a table has besides its key.
fn without_more(table: &str) -> String {
    let of = format!(" ON {table} ");
    let index = MORE_INDEXES.into_iter().find(|sql| sql.contains(&of));
    let index = index.and_then(|sql| sql.split(' ').nth(2));
    index.map_or_else(String::new, |index| format!(" IGNORE INDEX ({index})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_what_is_touched_is_read() {
        let all = scans(None);
        assert_eq!(all.len(), TABLES.len() + MORE_INDEXES.len());
        assert!(all.iter().all(|sql| !sql.contains("WHERE")), "{all:?}");
        let some = scans(Some(3));
        let customers = some.iter().find(|sql| sql.contains("FROM customer IGNORE"));
        assert_eq!(
            customers.unwrap(),
            "SELECT count(c_data) FROM customer IGNORE INDEX (customer_by_name) WHERE c_w_id <= 3"
        );
        assert!(some.iter().any(|sql| {
            sql.ends_with("FROM orders FORCE INDEX (orders_by_customer) WHERE o_w_id <= 3")
        }));
    }
}
