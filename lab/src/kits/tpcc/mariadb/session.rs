//! The five transactions on one connection of MariaDB, with a procedure each. The procedures follow
//! the statements of the standard, so all databases do the same work in the same order.

use ::mysql::prelude::Queryable;
use ::mysql::{Conn, Error, Params, Statement, Value};

use super::error_mapping::{explain, is_conflict};
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::input::{CustomerSelector, NewOrderInput, TransactionInput};
use crate::kits::tpcc::random::last_name;
use crate::kits::tpcc::store::{TpccSession, TransactionResult};

/// Error state of New-Order's procedure for an item that does not exist, after its rollback.
const UNUSED_ITEM: &str = "HL001";

pub(super) struct MariadbSession<'s> {
    connection: Conn,
    place: &'s str,
    new_order: Statement,
    payment: Statement,
    order_status: Statement,
    delivery: Statement,
    stock_level: Statement,
}

impl<'s> MariadbSession<'s> {
    pub(super) fn new(mut connection: Conn, place: &'s str) -> Result<MariadbSession<'s>, Error> {
        Ok(MariadbSession {
            new_order: connection.prep("CALL do_new_order(?, ?, ?, ?, ?, ?, ?, ?)")?,
            payment: connection.prep("CALL do_payment(?, ?, ?, ?, ?, ?, ?, ?)")?,
            order_status: connection.prep("CALL do_order_status(?, ?, ?, ?)")?,
            delivery: connection.prep("CALL do_delivery(?, ?, ?)")?,
            stock_level: connection.prep("CALL do_stock_level(?, ?, ?)")?,
            connection,
            place,
        })
    }

    /// Sends a call that answers with one number.
    fn send(
        &mut self,
        which: &Statement,
        values: Vec<Value>,
    ) -> Result<TransactionResult, TpccError> {
        let values = Params::Positional(values);
        match self.connection.exec_first::<i64, _, _>(which, values) {
            Ok(Some(number)) => Ok(TransactionResult::Committed(number)),
            Ok(None) => Err(TpccError::Database {
                place: self.place.to_owned(),
                reason: "a transaction ended without an answer".to_owned(),
            }),
            Err(error) if is_conflict(&error) => Ok(TransactionResult::Conflict),
            Err(Error::MySqlError(answer)) if answer.state == UNUSED_ITEM => {
                Ok(TransactionResult::RolledBack)
            }
            Err(error) => Err(explain(self.place, &error)),
        }
    }
}

/// Returns a customer as two arguments, one of which is NULL.
fn who(customer: CustomerSelector) -> [Value; 2] {
    match customer {
        CustomerSelector::Number(number) => [number.into(), Value::NULL],
        CustomerSelector::Name(name) => [Value::NULL, last_name(name).into()],
    }
}

/// Returns lines as three lists, since MariaDB's procedures take no arrays.
fn lines(order: &NewOrderInput) -> [Value; 4] {
    let list = |of: &dyn Fn(&crate::kits::tpcc::OrderLineInput) -> i32| {
        let all: Vec<String> = order.lines.iter().map(|l| of(l).to_string()).collect();
        Value::from(all.join(","))
    };
    [
        order.lines.len().into(),
        list(&|line| line.item),
        list(&|line| line.supply),
        list(&|line| line.quantity),
    ]
}

impl TpccSession for MariadbSession<'_> {
    fn run(&mut self, input: &TransactionInput) -> Result<TransactionResult, TpccError> {
        let (which, values) = match input {
            TransactionInput::NewOrder(i) => {
                let head = [i.warehouse.into(), i.district.into(), i.customer.into()];
                let all = head.into_iter().chain([i.at.into()]).chain(lines(i));
                (self.new_order.clone(), all.collect())
            }
            TransactionInput::Payment(i) => {
                let [number, name] = who(i.customer);
                let all = vec![
                    i.warehouse.into(),
                    i.district.into(),
                    i.customer_warehouse.into(),
                    i.customer_district.into(),
                    number,
                    name,
                    i.amount.into(),
                    i.at.into(),
                ];
                (self.payment.clone(), all)
            }
            TransactionInput::OrderStatus(i) => {
                let [number, name] = who(i.customer);
                let all = vec![i.warehouse.into(), i.district.into(), number, name];
                (self.order_status.clone(), all)
            }
            TransactionInput::Delivery(i) => {
                let all = vec![i.warehouse.into(), i.carrier.into(), i.at.into()];
                (self.delivery.clone(), all)
            }
            TransactionInput::StockLevel(i) => {
                let all = vec![i.warehouse.into(), i.district.into(), i.threshold.into()];
                (self.stock_level.clone(), all)
            }
        };
        self.send(&which, values)
    }
}

/// The procedures. Parameters and variables have a prefix that no column has.
pub(super) const PROCEDURES: &str = include_str!("procedures.sql");
