//! The nine tables, as both databases have them.

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// What is sold; one for all warehouses.
    Item,
    /// Warehouses.
    Warehouse,
    /// What a warehouse has of each item.
    Stock,
    /// Districts.
    District,
    /// Customers.
    Customer,
    /// Payments.
    History,
    /// Orders.
    Orders,
    /// Orders that are not delivered.
    NewOrder,
    /// What was ordered.
    OrderLine,
}

/// All of them, in the order in which they are filled.
pub const TABLES: [Table; 9] = [
    Table::Item,
    Table::Warehouse,
    Table::District,
    Table::Stock,
    Table::Customer,
    Table::History,
    Table::Orders,
    Table::NewOrder,
    Table::OrderLine,
];

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A number of four bytes.
    Int,
    /// A number of eight bytes: cents, or microseconds since 1970.
    Big,
    /// A text.
    Text,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name in the standard.
    pub name: &'static str,
    /// What it holds.
    pub holds: Type,
}

const fn int(name: &'static str) -> Column {
    let holds = Type::Int;
    Column { name, holds }
}

const fn big(name: &'static str) -> Column {
    let holds = Type::Big;
    Column { name, holds }
}

const fn text(name: &'static str) -> Column {
    let holds = Type::Text;
    Column { name, holds }
}

const ITEM: &[Column] = &[
    int("i_id"),
    int("i_im_id"),
    text("i_name"),
    big("i_price"),
    text("i_data"),
];

const WAREHOUSE: &[Column] = &[
    int("w_id"),
    text("w_name"),
    text("w_street_1"),
    text("w_street_2"),
    text("w_city"),
    text("w_state"),
    text("w_zip"),
    int("w_tax"),
    big("w_ytd"),
];

const DISTRICT: &[Column] = &[
    int("d_w_id"),
    int("d_id"),
    text("d_name"),
    text("d_street_1"),
    text("d_street_2"),
    text("d_city"),
    text("d_state"),
    text("d_zip"),
    int("d_tax"),
    big("d_ytd"),
    int("d_next_o_id"),
];

const STOCK: &[Column] = &[
    int("s_w_id"),
    int("s_i_id"),
    int("s_quantity"),
    int("s_ytd"),
    int("s_order_cnt"),
    int("s_remote_cnt"),
    text("s_dist_01"),
    text("s_dist_02"),
    text("s_dist_03"),
    text("s_dist_04"),
    text("s_dist_05"),
    text("s_dist_06"),
    text("s_dist_07"),
    text("s_dist_08"),
    text("s_dist_09"),
    text("s_dist_10"),
    text("s_data"),
];

const CUSTOMER: &[Column] = &[
    int("c_w_id"),
    int("c_d_id"),
    int("c_id"),
    text("c_last"),
    text("c_middle"),
    text("c_first"),
    text("c_street_1"),
    text("c_street_2"),
    text("c_city"),
    text("c_state"),
    text("c_zip"),
    text("c_phone"),
    big("c_since"),
    text("c_credit"),
    big("c_credit_lim"),
    int("c_discount"),
    big("c_balance"),
    big("c_ytd_payment"),
    int("c_payment_cnt"),
    int("c_delivery_cnt"),
    text("c_data"),
];

const HISTORY: &[Column] = &[
    int("h_c_id"),
    int("h_c_d_id"),
    int("h_c_w_id"),
    int("h_d_id"),
    int("h_w_id"),
    big("h_date"),
    big("h_amount"),
    text("h_data"),
];

const ORDERS: &[Column] = &[
    int("o_w_id"),
    int("o_d_id"),
    int("o_id"),
    int("o_c_id"),
    big("o_entry_d"),
    int("o_carrier_id"),
    int("o_ol_cnt"),
    int("o_all_local"),
];

const NEW_ORDER: &[Column] = &[int("no_w_id"), int("no_d_id"), int("no_o_id")];

const ORDER_LINE: &[Column] = &[
    int("ol_w_id"),
    int("ol_d_id"),
    int("ol_o_id"),
    int("ol_number"),
    int("ol_i_id"),
    int("ol_supply_w_id"),
    big("ol_delivery_d"),
    int("ol_quantity"),
    big("ol_amount"),
    text("ol_dist_info"),
];

impl Table {
    /// Its name. `order` is a word of SQL, hence the plural.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Item => "item",
            Table::Warehouse => "warehouse",
            Table::Stock => "stock",
            Table::District => "district",
            Table::Customer => "customer",
            Table::History => "history",
            Table::Orders => "orders",
            Table::NewOrder => "new_order",
            Table::OrderLine => "order_line",
        }
    }

    /// Its columns. Those of the key stand first.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Table::Item => ITEM,
            Table::Warehouse => WAREHOUSE,
            Table::Stock => STOCK,
            Table::District => DISTRICT,
            Table::Customer => CUSTOMER,
            Table::History => HISTORY,
            Table::Orders => ORDERS,
            Table::NewOrder => NEW_ORDER,
            Table::OrderLine => ORDER_LINE,
        }
    }

    /// How many columns its key has; history has none.
    const fn key_columns(self) -> usize {
        match self {
            Table::Item | Table::Warehouse => 1,
            Table::Stock | Table::District => 2,
            Table::Customer | Table::Orders | Table::NewOrder => 3,
            Table::OrderLine => 4,
            Table::History => 0,
        }
    }

    /// The columns of its key, separated by commas; `None` for history.
    pub(crate) fn key(self) -> Option<String> {
        let columns = &self.columns()[..self.key_columns()];
        (!columns.is_empty()).then(|| names(columns))
    }

    /// All column names, separated by commas.
    pub(crate) fn column_names(self) -> String {
        names(self.columns())
    }

    /// `name type, …` in words that both databases know. `NULL` is what an order without a carrier
    /// and a line that is not delivered have.
    pub(crate) fn definition(self) -> String {
        let one = |column: &Column| {
            let holds = match column.holds {
                Type::Int => "INTEGER",
                Type::Big => "BIGINT",
                Type::Text => "TEXT",
            };
            let may_be_null = matches!(column.name, "o_carrier_id" | "ol_delivery_d");
            let not_null = if may_be_null { "" } else { " NOT NULL" };
            format!("{} {holds}{not_null}", column.name)
        };
        let all: Vec<String> = self.columns().iter().map(one).collect();
        all.join(", ")
    }

    /// Rows that are narrow enough to lie in the tree of their key. A wide row there would leave
    /// room for few keys in an inner page, and make the tree deep.
    pub(crate) const fn lies_in_its_key(self) -> bool {
        matches!(self, Table::Orders | Table::NewOrder | Table::OrderLine)
    }
}

fn names(columns: &[Column]) -> String {
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
            Table::OrderLine.key().unwrap(),
            "ol_w_id, ol_d_id, ol_o_id, ol_number"
        );
        assert_eq!(Table::History.key(), None);
    }
}
