//! Numbers of the standard: how many rows, which mix.

use std::fmt;

/// Districts of a warehouse (clause 1.2).
pub const DISTRICTS: i32 = 10;

/// The most lines of an order (clause 2.4.1.3), and the fewest.
pub(crate) const LINES: (i32, i32) = (5, 15);

/// Last names there are: three syllables out of ten (clause 4.3.2.3).
pub(crate) const NAMES: i32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An order of five to fifteen items is entered.
    NewOrder,
    Payment,
    /// A customer asks how the last order stands.
    OrderStatus,
    /// The oldest order of each district is delivered.
    Delivery,
    /// How many of the items ordered last are short.
    StockLevel,
}

impl Kind {
    /// All of them, in the order of the standard.
    pub const ALL: [Kind; 5] = [
        Kind::NewOrder,
        Kind::Payment,
        Kind::OrderStatus,
        Kind::Delivery,
        Kind::StockLevel,
    ];

    /// Its name, as the standard writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "New-Order",
            Kind::Payment => "Payment",
            Kind::OrderStatus => "Order-Status",
            Kind::Delivery => "Delivery",
            Kind::StockLevel => "Stock-Level",
        }
    }

    /// Its place in [`Kind::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Cards in a deck of 23 (clause 5.2.4.2): with it the shares are those of clause 5.2.3.
    pub(crate) const fn cards(self) -> usize {
        match self {
            Kind::NewOrder | Kind::Payment => 10,
            Kind::OrderStatus | Kind::Delivery | Kind::StockLevel => 1,
        }
    }

    /// Seconds in which a person types it in, and the mean of those in which the person thinks
    /// about the answer (clause 5.2.5.7).
    pub(crate) const fn waits(self) -> (f64, f64) {
        match self {
            Kind::NewOrder => (18.0, 12.0),
            Kind::Payment => (3.0, 12.0),
            Kind::OrderStatus => (2.0, 10.0),
            Kind::Delivery | Kind::StockLevel => (2.0, 5.0),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How many rows there are for each warehouse and district (clause 1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Items, and with them rows of stock in each warehouse.
    pub items: i32,
    /// Customers of a district, and orders in it at the start: one of each customer.
    pub customers: i32,
    /// Orders of a district that are not delivered at the start.
    pub undelivered: i32,
}

impl Scale {
    pub const STANDARD: Scale = Scale {
        items: 100_000,
        customers: 3000,
        undelivered: 900,
    };

    /// The standard's rows divided by `by`, to try something out: its results say nothing about
    /// memory. 1 is the standard; more than 100, which leaves 30 customers a district, is taken as
    /// 100.
    pub fn shrunk(by: i32) -> Scale {
        let by = by.clamp(1, 100);
        let whole = Scale::STANDARD;
        Scale {
            items: whole.items / by,
            customers: whole.customers / by,
            undelivered: whole.undelivered / by,
        }
    }

    pub(crate) fn names(self) -> i32 {
        NAMES.min(self.customers)
    }

    /// Orders of a district that are delivered at the start.
    pub(crate) const fn delivered(self) -> i32 {
        self.customers - self.undelivered
    }
}
