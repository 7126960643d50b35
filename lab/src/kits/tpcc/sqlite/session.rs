//! The five transactions on one connection of SQLite, statement by statement.

use std::fmt::Write as _;

use rusqlite::{Connection, OptionalExtension, Statement};

use super::error_mapping::{explain, is_busy};
use super::status;
use crate::kits::tpcc::counters::DatabaseCounters;
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::input::{
    CustomerSelector, DeliveryInput, NewOrderInput, OrderLineInput, OrderStatusInput, PaymentInput,
    StockLevelInput, TransactionInput,
};
use crate::kits::tpcc::random::{ORIGINAL, last_name};
use crate::kits::tpcc::rules::{DISTRICTS, TransactionKind};
use crate::kits::tpcc::store::{TpccSession, TransactionResult};

/// Failure in the middle of a transaction.
enum TransactionError {
    Sql(rusqlite::Error),
    Missing(&'static str),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> TransactionError {
        TransactionError::Sql(error)
    }
}

type SessionResult<T> = Result<T, TransactionError>;

pub(super) struct SqliteSession<'c> {
    connection: &'c Connection,
    place: &'c str,
    begin: Statement<'c>,
    begin_to_read: Statement<'c>,
    commit: Statement<'c>,
    rollback: Statement<'c>,
    customers: CustomerLookup<'c>,
    new_order: NewOrderStatements<'c>,
    payment: PaymentStatements<'c>,
    order_status: OrderStatusStatements<'c>,
    delivery: DeliveryStatements<'c>,
    stock_level: StockLevelStatements<'c>,
}

impl<'c> SqliteSession<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        place: &'c str,
    ) -> rusqlite::Result<SqliteSession<'c>> {
        Ok(SqliteSession {
            connection,
            place,
            // A writer says so at once: of two that begin as readers, one would have to yield.
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            begin_to_read: connection.prepare("BEGIN")?,
            commit: connection.prepare("COMMIT")?,
            rollback: connection.prepare("ROLLBACK")?,
            customers: CustomerLookup::new(connection)?,
            new_order: NewOrderStatements::new(connection)?,
            payment: PaymentStatements::new(connection)?,
            order_status: OrderStatusStatements::new(connection)?,
            delivery: DeliveryStatements::new(connection)?,
            stock_level: StockLevelStatements::new(connection)?,
        })
    }

    /// Ends a begun transaction with the given result of its statements.
    fn end(
        &mut self,
        kind: TransactionKind,
        done: SessionResult<TransactionResult>,
    ) -> Result<TransactionResult, TpccError> {
        let done = match done {
            Ok(answer @ TransactionResult::Committed(_)) => match self.commit.execute([]) {
                Ok(_) => return Ok(answer),
                Err(error) => Err(TransactionError::Sql(error)),
            },
            other => other,
        };
        // After some errors SQLite has already rolled back.
        let rolled_back = match self.connection.is_autocommit() {
            true => Ok(0),
            false => self.rollback.execute([]),
        };
        match (done, rolled_back) {
            (Err(TransactionError::Sql(error)), _) if is_busy(&error) => {
                Ok(TransactionResult::Conflict)
            }
            (Err(TransactionError::Sql(error)), _) | (Ok(_), Err(error)) => {
                Err(explain(self.place, error))
            }
            (Err(TransactionError::Missing(what)), _) => Err(TpccError::Missing { kind, what }),
            (Ok(answer), Ok(_)) => Ok(answer),
        }
    }
}

impl TpccSession for SqliteSession<'_> {
    fn run(&mut self, input: &TransactionInput) -> Result<TransactionResult, TpccError> {
        let begin = match input {
            TransactionInput::OrderStatus(_) | TransactionInput::StockLevel(_) => {
                &mut self.begin_to_read
            }
            TransactionInput::NewOrder(_)
            | TransactionInput::Payment(_)
            | TransactionInput::Delivery(_) => &mut self.begin,
        };
        let begun = begin.execute([]).map_err(TransactionError::from);
        let done = begun.and_then(|_| match input {
            TransactionInput::NewOrder(input) => self.new_order.run(input),
            TransactionInput::Payment(input) => self.payment.run(input, &mut self.customers),
            TransactionInput::OrderStatus(input) => {
                self.order_status.run(input, &mut self.customers)
            }
            TransactionInput::Delivery(input) => self.delivery.run(input),
            TransactionInput::StockLevel(input) => self.stock_level.run(input),
        });
        self.end(input.kind(), done)
    }

    fn counters(&mut self) -> Result<DatabaseCounters, TpccError> {
        Ok(status::counters(self.connection))
    }
}

struct CustomerLookup<'c> {
    by_name: Statement<'c>,
    found: Vec<i32>,
}

impl<'c> CustomerLookup<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<CustomerLookup<'c>> {
        Ok(CustomerLookup {
            by_name: connection.prepare(
                "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? \
                 ORDER BY c_first, c_id",
            )?,
            found: Vec::new(),
        })
    }

    /// Returns the number of a customer; with several of a name, the middle one, rounded up.
    fn number(
        &mut self,
        warehouse: i32,
        district: i32,
        customer: CustomerSelector,
    ) -> SessionResult<i32> {
        let name = match customer {
            CustomerSelector::Number(number) => return Ok(number),
            CustomerSelector::Name(name) => last_name(name),
        };
        self.found.clear();
        let mut rows = self.by_name.query((warehouse, district, name))?;
        while let Some(row) = rows.next()? {
            self.found.push(row.get(0)?);
        }
        let middle = self.found.len().div_ceil(2).checked_sub(1);
        middle
            .map(|at| self.found[at])
            .ok_or(TransactionError::Missing("customer of that name"))
    }
}

struct NewOrderStatements<'c> {
    warehouse: Statement<'c>,
    district: Statement<'c>,
    next_order: Statement<'c>,
    customer: Statement<'c>,
    order: Statement<'c>,
    open: Statement<'c>,
    item: Statement<'c>,
    /// One statement for each district, since each has a column of its own.
    stock: Vec<Statement<'c>>,
    take: Statement<'c>,
    line: Statement<'c>,
    info: String,
}

impl<'c> NewOrderStatements<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<NewOrderStatements<'c>> {
        let stock = |district: i32| {
            connection.prepare(&format!(
                "SELECT s_quantity, s_dist_{district:02}, s_data FROM stock \
                 WHERE s_w_id = ? AND s_i_id = ?"
            ))
        };
        Ok(NewOrderStatements {
            warehouse: connection.prepare("SELECT w_tax FROM warehouse WHERE w_id = ?")?,
            district: connection
                .prepare("SELECT d_tax, d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?")?,
            next_order: connection.prepare(
                "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?",
            )?,
            customer: connection.prepare(
                "SELECT c_discount, c_last, c_credit FROM customer \
                 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            )?,
            order: connection.prepare("INSERT INTO orders VALUES (?, ?, ?, ?, ?, NULL, ?, ?)")?,
            open: connection.prepare("INSERT INTO new_order VALUES (?, ?, ?)")?,
            item: connection.prepare("SELECT i_price, i_name, i_data FROM item WHERE i_id = ?")?,
            stock: (1..=DISTRICTS).map(stock).collect::<Result<_, _>>()?,
            take: connection.prepare(
                "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, \
                 s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + ? \
                 WHERE s_w_id = ? AND s_i_id = ?",
            )?,
            line: connection
                .prepare("INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)")?,
            info: String::new(),
        })
    }

    fn run(&mut self, input: &NewOrderInput) -> SessionResult<TransactionResult> {
        let (w, d) = (input.warehouse, input.district);
        let tax = self.warehouse.query_row([w], |row| row.get(0));
        let w_tax: i64 = found("warehouse", tax)?;
        let both = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let district = self.district.query_row([w, d], both);
        let (d_tax, order): (i64, i32) = found("district", district)?;
        self.next_order.execute([w, d])?;
        let customer = self.customer.query_row([w, d, input.customer], |row| {
            // Values that a terminal would show are fetched, too.
            row.get_ref(1)?.as_str()?;
            row.get_ref(2)?.as_str()?;
            row.get(0)
        });
        let discount: i64 = found("customer", customer)?;
        let count = i32::try_from(input.lines.len()).unwrap_or(i32::MAX);
        let local = i32::from(input.all_local());
        self.order
            .execute((w, d, order, input.customer, input.at, count, local))?;
        self.open.execute([w, d, order])?;
        let mut sum = 0;
        for (number, line) in (1..).zip(&input.lines) {
            match self.enter(input, order, number, line)? {
                Some(amount) => sum += amount,
                None => return Ok(TransactionResult::RolledBack),
            }
        }
        let total = total(sum, discount, w_tax + d_tax);
        Ok(TransactionResult::Committed(total + i64::from(order)))
    }

    /// Enters a line and returns its amount, or `None` if the item does not exist.
    fn enter(
        &mut self,
        input: &NewOrderInput,
        order: i32,
        number: i32,
        line: &OrderLineInput,
    ) -> SessionResult<Option<i64>> {
        let item = self.item.query_row([line.item], |row| {
            row.get_ref(1)?.as_str()?;
            let original = row.get_ref(2)?.as_str()?.contains(ORIGINAL);
            Ok((row.get::<_, i64>(0)?, original))
        });
        let Some((price, original)) = item.optional()? else {
            return Ok(None);
        };
        let at = usize::try_from(input.district - 1).unwrap_or(0);
        let info = &mut self.info;
        let (stock, quantity) = (&mut self.stock[at], line.quantity);
        let left = stock.query_row([line.supply, line.item], |row| {
            info.clear();
            info.push_str(row.get_ref(1)?.as_str()?);
            // "B" if both are original, "G" otherwise; displayed only, never stored.
            let brand = original && row.get_ref(2)?.as_str()?.contains(ORIGINAL);
            std::hint::black_box(brand);
            row.get::<_, i32>(0)
        });
        let left = found("stock", left)?;
        let left = match left >= quantity + 10 {
            true => left - quantity,
            false => left - quantity + 91,
        };
        let remote = i32::from(line.supply != input.warehouse);
        self.take
            .execute([left, quantity, remote, line.supply, line.item])?;
        let amount = i64::from(quantity) * price;
        self.line.execute((
            input.warehouse,
            input.district,
            order,
            number,
            line.item,
            line.supply,
            quantity,
            amount,
            self.info.as_str(),
        ))?;
        Ok(Some(amount))
    }
}

/// Returns the amount of an order in cents; rates are in hundredths of a percent.
fn total(sum: i64, discount: i64, tax: i64) -> i64 {
    const WHOLE: i64 = 10_000;
    sum * (WHOLE - discount) * (WHOLE + tax) / (WHOLE * WHOLE)
}

/// Returns a row that must exist.
fn found<T>(what: &'static str, asked: rusqlite::Result<T>) -> SessionResult<T> {
    match asked {
        Err(rusqlite::Error::QueryReturnedNoRows) => Err(TransactionError::Missing(what)),
        other => Ok(other?),
    }
}

struct PaymentStatements<'c> {
    pay_warehouse: Statement<'c>,
    warehouse: Statement<'c>,
    pay_district: Statement<'c>,
    district: Statement<'c>,
    customer: Statement<'c>,
    pay: Statement<'c>,
    data: Statement<'c>,
    pay_with_data: Statement<'c>,
    history: Statement<'c>,
    text: String,
}

impl<'c> PaymentStatements<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<PaymentStatements<'c>> {
        Ok(PaymentStatements {
            pay_warehouse: connection
                .prepare("UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?")?,
            warehouse: connection.prepare(
                "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse \
                 WHERE w_id = ?",
            )?,
            pay_district: connection
                .prepare("UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?")?,
            district: connection.prepare(
                "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district \
                 WHERE d_w_id = ? AND d_id = ?",
            )?,
            customer: connection.prepare(
                "SELECT c_balance, c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, \
                 c_city, c_state, c_zip, c_phone, c_since, c_credit_lim, c_discount \
                 FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            )?,
            pay: connection.prepare(
                "UPDATE customer SET c_balance = c_balance - ?1, \
                 c_ytd_payment = c_ytd_payment + ?1, c_payment_cnt = c_payment_cnt + 1 \
                 WHERE c_w_id = ?2 AND c_d_id = ?3 AND c_id = ?4",
            )?,
            data: connection.prepare(
                "SELECT c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            )?,
            pay_with_data: connection.prepare(
                "UPDATE customer SET c_balance = c_balance - ?1, \
                 c_ytd_payment = c_ytd_payment + ?1, c_payment_cnt = c_payment_cnt + 1, \
                 c_data = ?5 WHERE c_w_id = ?2 AND c_d_id = ?3 AND c_id = ?4",
            )?,
            history: connection.prepare("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?,
            text: String::new(),
        })
    }

    fn run(
        &mut self,
        input: &PaymentInput,
        customers: &mut CustomerLookup<'_>,
    ) -> SessionResult<TransactionResult> {
        let (w, d, amount) = (input.warehouse, input.district, input.amount);
        let (c_w, c_d) = (input.customer_warehouse, input.customer_district);
        let c = customers.number(c_w, c_d, input.customer)?;
        let customer = self.customer.query_row([c_w, c_d, c], |row| {
            let bad = row.get_ref(1)?.as_str()? == "BC";
            Ok((row.get::<_, i64>(0)?, bad))
        });
        let (balance, bad) = found("customer", customer)?;
        match bad {
            false => self.pay.execute((amount, c_w, c_d, c))?,
            true => self.pay_and_note(input, c)?,
        };
        self.pay_district.execute((amount, w, d))?;
        self.pay_warehouse.execute((amount, w))?;
        let text = &mut self.text;
        text.clear();
        let warehouse = self.warehouse.query_row([w], |row| {
            text.push_str(row.get_ref(0)?.as_str()?);
            Ok(())
        });
        found("warehouse", warehouse)?;
        text.push_str("    ");
        let district = self.district.query_row([w, d], |row| {
            text.push_str(row.get_ref(0)?.as_str()?);
            Ok(())
        });
        found("district", district)?;
        self.history
            .execute((c, c_d, c_w, d, w, input.at, amount, self.text.as_str()))?;
        Ok(TransactionResult::Committed(
            balance - amount + i64::from(c),
        ))
    }

    /// Pays, and notes the payment in the data of a customer with bad credit (clause 2.5.2.2).
    fn pay_and_note(&mut self, input: &PaymentInput, c: i32) -> SessionResult<usize> {
        const LONGEST: usize = 500;
        let (c_w, c_d) = (input.customer_warehouse, input.customer_district);
        let text = &mut self.text;
        text.clear();
        let _ = write!(
            text,
            "{c} {c_d} {c_w} {} {} {} ",
            input.district, input.warehouse, input.amount
        );
        self.data.query_row([c_w, c_d, c], |row| {
            text.push_str(row.get_ref(0)?.as_str()?);
            Ok(())
        })?;
        // The text is ASCII.
        text.truncate(LONGEST);
        let paid = (input.amount, c_w, c_d, c, text.as_str());
        Ok(self.pay_with_data.execute(paid)?)
    }
}

struct OrderStatusStatements<'c> {
    customer: Statement<'c>,
    order: Statement<'c>,
    lines: Statement<'c>,
}

impl<'c> OrderStatusStatements<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<OrderStatusStatements<'c>> {
        Ok(OrderStatusStatements {
            customer: connection.prepare(
                "SELECT c_balance, c_first, c_middle, c_last FROM customer \
                 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            )?,
            order: connection.prepare(
                "SELECT o_id, o_entry_d, o_carrier_id FROM orders \
                 WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1",
            )?,
            lines: connection.prepare(
                "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
                 FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            )?,
        })
    }

    fn run(
        &mut self,
        input: &OrderStatusInput,
        customers: &mut CustomerLookup<'_>,
    ) -> SessionResult<TransactionResult> {
        let (w, d) = (input.warehouse, input.district);
        let c = customers.number(w, d, input.customer)?;
        let customer = self.customer.query_row([w, d, c], |row| row.get(0));
        let balance: i64 = found("customer", customer)?;
        let order = self.order.query_row([w, d, c], |row| row.get(0));
        let order: i32 = found("order", order)?;
        let mut sum = balance + i64::from(order);
        let mut rows = self.lines.query([w, d, order])?;
        while let Some(row) = rows.next()? {
            let mut line = 0;
            for at in 0..4 {
                line += row.get::<_, i64>(at)?;
            }
            sum += line;
        }
        Ok(TransactionResult::Committed(sum))
    }
}

struct DeliveryStatements<'c> {
    oldest: Statement<'c>,
    close: Statement<'c>,
    customer: Statement<'c>,
    carry: Statement<'c>,
    deliver: Statement<'c>,
    sum: Statement<'c>,
    charge: Statement<'c>,
}

impl<'c> DeliveryStatements<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<DeliveryStatements<'c>> {
        Ok(DeliveryStatements {
            oldest: connection.prepare(
                "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? \
                 ORDER BY no_o_id LIMIT 1",
            )?,
            close: connection.prepare(
                "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?",
            )?,
            customer: connection.prepare(
                "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
            )?,
            carry: connection.prepare(
                "UPDATE orders SET o_carrier_id = ? \
                 WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
            )?,
            deliver: connection.prepare(
                "UPDATE order_line SET ol_delivery_d = ? \
                 WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            )?,
            sum: connection.prepare(
                "SELECT sum(ol_amount) FROM order_line \
                 WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
            )?,
            charge: connection.prepare(
                "UPDATE customer SET c_balance = c_balance + ?, \
                 c_delivery_cnt = c_delivery_cnt + 1 \
                 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            )?,
        })
    }

    fn run(&mut self, input: &DeliveryInput) -> SessionResult<TransactionResult> {
        let w = input.warehouse;
        let mut delivered = 0;
        for d in 1..=DISTRICTS {
            let oldest = self.oldest.query_row([w, d], |row| row.get::<_, i32>(0));
            // A district without open orders is skipped.
            let Some(order) = oldest.optional()? else {
                continue;
            };
            self.close.execute([w, d, order])?;
            let customer = self.customer.query_row([w, d, order], |row| row.get(0));
            let c: i32 = found("order", customer)?;
            self.carry.execute([input.carrier, w, d, order])?;
            self.deliver.execute((input.at, w, d, order))?;
            let sum: Option<i64> = self.sum.query_row([w, d, order], |row| row.get(0))?;
            let sum = sum.ok_or(TransactionError::Missing("line of an order"))?;
            self.charge.execute((sum, w, d, c))?;
            delivered += sum + i64::from(order);
        }
        Ok(TransactionResult::Committed(delivered))
    }
}

struct StockLevelStatements<'c> {
    next: Statement<'c>,
    short: Statement<'c>,
}

impl<'c> StockLevelStatements<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<StockLevelStatements<'c>> {
        Ok(StockLevelStatements {
            next: connection
                .prepare("SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?")?,
            // CROSS JOIN makes SQLite keep this order of the two tables.
            short: connection.prepare(
                "SELECT count(DISTINCT s_i_id) FROM order_line CROSS JOIN stock \
                 WHERE ol_w_id = ?1 AND ol_d_id = ?2 AND ol_o_id >= ?3 - 20 AND ol_o_id < ?3 \
                 AND s_w_id = ?1 AND s_i_id = ol_i_id AND s_quantity < ?4",
            )?,
        })
    }

    fn run(&mut self, input: &StockLevelInput) -> SessionResult<TransactionResult> {
        let (w, d) = (input.warehouse, input.district);
        let next = self.next.query_row([w, d], |row| row.get(0));
        let next: i32 = found("district", next)?;
        let short = self
            .short
            .query_row([w, d, next, input.threshold], |row| row.get(0))?;
        Ok(TransactionResult::Committed(short))
    }
}
