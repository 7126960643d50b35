//! Numbers of the standard: rows, and the mix of transactions.

use std::fmt;

/// Districts of a warehouse (clause 1.2).
pub const DISTRICTS: i32 = 10;

/// Minimum and maximum number of lines of an order (clause 2.4.1.3).
pub(crate) const LINES: (i32, i32) = (5, 15);

/// Number of last names: three syllables out of ten (clause 4.3.2.3).
pub(crate) const NAMES: i32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransactionKind {
    /// An order of five to fifteen items is entered.
    NewOrder,
    Payment,
    /// A customer asks for the state of the last order.
    OrderStatus,
    /// The oldest order of each district is delivered.
    Delivery,
    /// Number of recently ordered items whose stock is low.
    StockLevel,
}

impl TransactionKind {
    /// All kinds, in the order of the standard.
    pub const ALL: [TransactionKind; 5] = [
        TransactionKind::NewOrder,
        TransactionKind::Payment,
        TransactionKind::OrderStatus,
        TransactionKind::Delivery,
        TransactionKind::StockLevel,
    ];

    /// Returns its name, as the standard writes it.
    pub const fn name(self) -> &'static str {
        match self {
            TransactionKind::NewOrder => "New-Order",
            TransactionKind::Payment => "Payment",
            TransactionKind::OrderStatus => "Order-Status",
            TransactionKind::Delivery => "Delivery",
            TransactionKind::StockLevel => "Stock-Level",
        }
    }

    /// Returns its index in [`TransactionKind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns its cards in a deck of 23 (clause 5.2.4.2), which gives the shares of clause 5.2.3.
    pub(crate) const fn cards(self) -> usize {
        match self {
            TransactionKind::NewOrder | TransactionKind::Payment => 10,
            TransactionKind::OrderStatus
            | TransactionKind::Delivery
            | TransactionKind::StockLevel => 1,
        }
    }

    /// Returns the keying time and the mean think time of a person, in seconds (clause 5.2.5.7).
    pub(crate) const fn waits(self) -> (f64, f64) {
        match self {
            TransactionKind::NewOrder => (18.0, 12.0),
            TransactionKind::Payment => (3.0, 12.0),
            TransactionKind::OrderStatus => (2.0, 10.0),
            TransactionKind::Delivery | TransactionKind::StockLevel => (2.0, 5.0),
        }
    }
}

impl fmt::Display for TransactionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of rows for each warehouse and district (clause 1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCardinality {
    /// Number of items, and thus of stock rows in each warehouse.
    pub items: i32,
    /// Customers of a district, and its initial orders: one of each customer.
    pub customers: i32,
    /// Orders of a district that are initially not delivered.
    pub undelivered: i32,
}

impl TableCardinality {
    pub const STANDARD: TableCardinality = TableCardinality {
        items: 100_000,
        customers: 3000,
        undelivered: 900,
    };

    /// Divides the standard's rows by `by`, for trials only: such results say nothing about memory.
    /// 1 is the standard. Values above 100, which leaves 30 customers a district, are taken as 100.
    pub fn shrunk(by: i32) -> TableCardinality {
        let by = by.clamp(1, 100);
        let whole = TableCardinality::STANDARD;
        TableCardinality {
            items: whole.items / by,
            customers: whole.customers / by,
            undelivered: whole.undelivered / by,
        }
    }

    pub(crate) fn names(self) -> i32 {
        NAMES.min(self.customers)
    }

    /// Returns the number of orders of a district that are initially delivered.
    pub(crate) const fn delivered(self) -> i32 {
        self.customers - self.undelivered
    }
}
