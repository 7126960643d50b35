//! The nine tables, the same in all databases.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TpccTable {
    /// Items for sale; one table for all warehouses.
    Item,
    Warehouse,
    Stock,
    District,
    Customer,
    History,
    Orders,
    /// Orders that are not delivered.
    NewOrder,
    OrderLine,
}

/// All tables, in the order in which they are filled.
pub const TABLES: [TpccTable; 9] = [
    TpccTable::Item,
    TpccTable::Warehouse,
    TpccTable::District,
    TpccTable::Stock,
    TpccTable::Customer,
    TpccTable::History,
    TpccTable::Orders,
    TpccTable::NewOrder,
    TpccTable::OrderLine,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TpccColumn {
    pub name: &'static str,
    /// Its type: `INTEGER` of four bytes, `BIGINT` of eight (cents, or microseconds since 1970), or
    /// `TEXT`.
    pub holds: &'static str,
}

impl TpccTable {
    /// Returns its name. `order` is a word of SQL, hence the plural.
    pub const fn name(self) -> &'static str {
        match self {
            TpccTable::Item => "item",
            TpccTable::Warehouse => "warehouse",
            TpccTable::Stock => "stock",
            TpccTable::District => "district",
            TpccTable::Customer => "customer",
            TpccTable::History => "history",
            TpccTable::Orders => "orders",
            TpccTable::NewOrder => "new_order",
            TpccTable::OrderLine => "order_line",
        }
    }

    /// Returns its columns in SQL types that all databases know. The columns of the key come first.
    const fn schema(self) -> &'static str {
        match self {
            TpccTable::Item => {
                "i_id INTEGER, i_im_id INTEGER, i_name TEXT, i_price BIGINT, i_data TEXT"
            }
            TpccTable::Warehouse => {
                "w_id INTEGER, w_name TEXT, w_street_1 TEXT, w_street_2 TEXT, w_city TEXT, \
                 w_state TEXT, w_zip TEXT, w_tax INTEGER, w_ytd BIGINT"
            }
            TpccTable::Stock => {
                "s_w_id INTEGER, s_i_id INTEGER, s_quantity INTEGER, s_ytd INTEGER, \
                 s_order_cnt INTEGER, s_remote_cnt INTEGER, s_dist_01 TEXT, s_dist_02 TEXT, \
                 s_dist_03 TEXT, s_dist_04 TEXT, s_dist_05 TEXT, s_dist_06 TEXT, \
                 s_dist_07 TEXT, s_dist_08 TEXT, s_dist_09 TEXT, s_dist_10 TEXT, s_data TEXT"
            }
            TpccTable::District => {
                "d_w_id INTEGER, d_id INTEGER, d_name TEXT, d_street_1 TEXT, d_street_2 TEXT, \
                 d_city TEXT, d_state TEXT, d_zip TEXT, d_tax INTEGER, d_ytd BIGINT, \
                 d_next_o_id INTEGER"
            }
            TpccTable::Customer => {
                "c_w_id INTEGER, c_d_id INTEGER, c_id INTEGER, c_last TEXT, c_middle TEXT, \
                 c_first TEXT, c_street_1 TEXT, c_street_2 TEXT, c_city TEXT, c_state TEXT, \
                 c_zip TEXT, c_phone TEXT, c_since BIGINT, c_credit TEXT, c_credit_lim BIGINT, \
                 c_discount INTEGER, c_balance BIGINT, c_ytd_payment BIGINT, \
                 c_payment_cnt INTEGER, c_delivery_cnt INTEGER, c_data TEXT"
            }
            TpccTable::History => {
                "h_c_id INTEGER, h_c_d_id INTEGER, h_c_w_id INTEGER, h_d_id INTEGER, \
                 h_w_id INTEGER, h_date BIGINT, h_amount BIGINT, h_data TEXT"
            }
            TpccTable::Orders => {
                "o_w_id INTEGER, o_d_id INTEGER, o_id INTEGER, o_c_id INTEGER, \
                 o_entry_d BIGINT, o_carrier_id INTEGER, o_ol_cnt INTEGER, \
                 o_all_local INTEGER"
            }
            TpccTable::NewOrder => "no_w_id INTEGER, no_d_id INTEGER, no_o_id INTEGER",
            TpccTable::OrderLine => {
                "ol_w_id INTEGER, ol_d_id INTEGER, ol_o_id INTEGER, ol_number INTEGER, \
                 ol_i_id INTEGER, ol_supply_w_id INTEGER, ol_delivery_d BIGINT, \
                 ol_quantity INTEGER, ol_amount BIGINT, ol_dist_info TEXT"
            }
        }
    }

    /// Returns its columns. The columns of the key come first.
    pub fn columns(self) -> Vec<TpccColumn> {
        let words = self.schema().split(", ").filter_map(|c| c.split_once(' '));
        words
            .map(|(name, holds)| TpccColumn { name, holds })
            .collect()
    }

    /// Returns the number of columns of its key; history has none.
    const fn key_columns(self) -> usize {
        match self {
            TpccTable::Item | TpccTable::Warehouse => 1,
            TpccTable::Stock | TpccTable::District => 2,
            TpccTable::Customer | TpccTable::Orders | TpccTable::NewOrder => 3,
            TpccTable::OrderLine => 4,
            TpccTable::History => 0,
        }
    }

    /// Returns the columns of its key, separated by commas; `None` for history.
    pub(crate) fn key(self) -> Option<String> {
        let columns = &self.columns()[..self.key_columns()];
        (!columns.is_empty()).then(|| names(columns))
    }

    /// Returns `name type, …`. Only an order without a carrier and an undelivered line contain
    /// `NULL`.
    pub(crate) fn definition(self) -> String {
        let may_be_null = |name| matches!(name, "o_carrier_id" | "ol_delivery_d");
        let one = |column: &TpccColumn| {
            let not_null = if may_be_null(column.name) {
                ""
            } else {
                " NOT NULL"
            };
            format!("{} {}{not_null}", column.name, column.holds)
        };
        let all: Vec<String> = self.columns().iter().map(one).collect();
        all.join(", ")
    }

    /// Returns true for rows that are narrow enough to be in the tree of their key. Wide rows leave
    /// room for few keys in an inner page, and make the tree deep.
    pub(crate) const fn is_in_its_key(self) -> bool {
        matches!(
            self,
            TpccTable::Orders | TpccTable::NewOrder | TpccTable::OrderLine
        )
    }
}

fn names(columns: &[TpccColumn]) -> String {
    let all: Vec<&str> = columns.iter().map(|c| c.name).collect();
    all.join(", ")
}

/// Indexes in addition to the keys: customers by name, and a customer's last order.
pub(crate) const MORE_INDEXES: [&str; 2] = [
    "CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first, c_id)",
    "CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_of_the_standard_once() {
        let all: Vec<&str> = TABLES
            .iter()
            .flat_map(|t| t.columns())
            .map(|c| c.name)
            .collect();
        let mut unique = all.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), all.len());
        // 9 + 11 + 21 + 8 + 3 + 8 + 10 + 5 + 17 columns of clause 1.3.
        assert_eq!(all.len(), 92);
    }

    #[test]
    fn keys_begin_with_the_warehouse() {
        assert_eq!(
            TpccTable::OrderLine.key().unwrap(),
            "ol_w_id, ol_d_id, ol_o_id, ol_number"
        );
        assert_eq!(TpccTable::History.key(), None);
    }
}
