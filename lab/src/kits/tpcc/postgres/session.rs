//! The five transactions on one connection of PostgreSQL, with a function each. The functions follow
//! the statements of the standard, so all databases do the same work in the same order.

use ::postgres::error::SqlState;
use ::postgres::types::ToSql;
use ::postgres::{Client, Error, Statement};

use super::error_mapping::explain;
use crate::kits::tpcc::counters::DatabaseCounters;
use crate::kits::tpcc::error::TpccError;
use crate::kits::tpcc::input::{CustomerSelector, TransactionInput};
use crate::kits::tpcc::random::last_name;
use crate::kits::tpcc::store::{TpccSession, TransactionResult};

/// Error state of New-Order's function for an item that does not exist. The server then rolls the
/// transaction back.
const UNUSED_ITEM: &str = "HL001";

pub(super) struct PostgresSession<'s> {
    client: Client,
    place: &'s str,
    new_order: Statement,
    payment: Statement,
    order_status: Statement,
    delivery: Statement,
    stock_level: Statement,
    items: Vec<i32>,
    supplies: Vec<i32>,
    quantities: Vec<i32>,
}

impl<'s> PostgresSession<'s> {
    pub(super) fn new(mut client: Client, place: &'s str) -> Result<PostgresSession<'s>, Error> {
        Ok(PostgresSession {
            new_order: client.prepare("SELECT do_new_order($1, $2, $3, $4, $5, $6, $7)")?,
            payment: client.prepare("SELECT do_payment($1, $2, $3, $4, $5, $6, $7, $8)")?,
            order_status: client.prepare("SELECT do_order_status($1, $2, $3, $4)")?,
            delivery: client.prepare("SELECT do_delivery($1, $2, $3)")?,
            stock_level: client.prepare("SELECT do_stock_level($1, $2, $3)")?,
            client,
            place,
            items: Vec::new(),
            supplies: Vec::new(),
            quantities: Vec::new(),
        })
    }
}

/// Sends a statement that answers with one number.
fn send(
    client: &mut Client,
    place: &str,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
) -> Result<TransactionResult, TpccError> {
    let error = match client.query_one(statement, values) {
        Ok(row) => return Ok(TransactionResult::Committed(row.get(0))),
        Err(error) => error,
    };
    match error.code() {
        Some(code)
            if *code == SqlState::T_R_SERIALIZATION_FAILURE
                || *code == SqlState::T_R_DEADLOCK_DETECTED =>
        {
            Ok(TransactionResult::Conflict)
        }
        Some(code) if code.code() == UNUSED_ITEM => Ok(TransactionResult::RolledBack),
        _ => Err(explain(place, &error)),
    }
}

/// Returns a customer as two arguments, one of which is NULL.
fn who(customer: CustomerSelector) -> (Option<i32>, Option<&'static str>) {
    match customer {
        CustomerSelector::Number(number) => (Some(number), None),
        CustomerSelector::Name(name) => (None, Some(last_name(name))),
    }
}

impl TpccSession for PostgresSession<'_> {
    fn run(&mut self, input: &TransactionInput) -> Result<TransactionResult, TpccError> {
        let (client, place) = (&mut self.client, self.place);
        let mut send =
            |statement, values: &[&(dyn ToSql + Sync)]| send(client, place, statement, values);
        match input {
            TransactionInput::NewOrder(i) => {
                let (items, supplies, quantities) =
                    (&mut self.items, &mut self.supplies, &mut self.quantities);
                items.clear();
                supplies.clear();
                quantities.clear();
                for line in &i.lines {
                    items.push(line.item);
                    supplies.push(line.supply);
                    quantities.push(line.quantity);
                }
                send(
                    &self.new_order,
                    &[
                        &i.warehouse,
                        &i.district,
                        &i.customer,
                        &i.at,
                        items,
                        supplies,
                        quantities,
                    ],
                )
            }
            TransactionInput::Payment(i) => {
                let (number, name) = who(i.customer);
                let (c_w, c_d) = (&i.customer_warehouse, &i.customer_district);
                send(
                    &self.payment,
                    &[
                        &i.warehouse,
                        &i.district,
                        c_w,
                        c_d,
                        &number,
                        &name,
                        &i.amount,
                        &i.at,
                    ],
                )
            }
            TransactionInput::OrderStatus(i) => {
                let (number, name) = who(i.customer);
                send(
                    &self.order_status,
                    &[&i.warehouse, &i.district, &number, &name],
                )
            }
            TransactionInput::Delivery(i) => {
                send(&self.delivery, &[&i.warehouse, &i.carrier, &i.at])
            }
            TransactionInput::StockLevel(i) => send(
                &self.stock_level,
                &[&i.warehouse, &i.district, &i.threshold],
            ),
        }
    }

    /// Flushes the statistics. PostgreSQL counts for the database as a whole, and counts a
    /// connection's work up to a second late. From version 15 on it can be told to do so immediately.
    fn counters(&mut self) -> Result<DatabaseCounters, TpccError> {
        let flushed = self
            .client
            .batch_execute("SELECT pg_stat_force_next_flush()");
        match flushed {
            Err(error) if error.code().is_none() => Err(explain(self.place, &error)),
            // Earlier versions do not have this function.
            _ => Ok(DatabaseCounters::default()),
        }
    }
}

/// The functions. Parameters and variables have a prefix that no column has.
pub(super) const FUNCTIONS: &str = include_str!("functions.sql");
