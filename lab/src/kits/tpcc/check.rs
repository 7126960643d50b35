//! The twelve consistency conditions (clause 3.3.2), evaluated by the database itself.
//!
//! Each is a query for violations, with the same text for all databases. Data that several queries
//! need is first put into a temporary table of the connection; the database is not changed.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::Sender;

use super::error::{TpccError, joined};
use super::store::{DatasetSpec, TpccStore};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsistencyCondition(u8);

impl ConsistencyCondition {
    pub fn all() -> impl Iterator<Item = ConsistencyCondition> {
        (1..=12).map(ConsistencyCondition)
    }

    /// Returns its number in clause 3.3.2.
    pub const fn number(self) -> u8 {
        self.0
    }

    pub const fn text(self) -> &'static str {
        match self.0 {
            1 => "W_YTD = sum(D_YTD) of the warehouse",
            2 => "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID) of the district",
            3 => "max(NO_O_ID) - min(NO_O_ID) + 1 = open orders of the district",
            4 => "sum(O_OL_CNT) = lines of the district",
            5 => "an order has no carrier if, and only if, it is open",
            6 => "O_OL_CNT = lines of the order",
            7 => "a line is not delivered if, and only if, its order has no carrier",
            8 => "W_YTD = sum(H_AMOUNT) of the warehouse",
            9 => "D_YTD = sum(H_AMOUNT) of the district",
            10 => "C_BALANCE = sum(OL_AMOUNT) delivered - sum(H_AMOUNT) of the customer",
            11 => "orders - open orders = orders delivered initially and since, of the district",
            _ => "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT) delivered to the customer",
        }
    }

    /// Returns true if it needs the lines of an order.
    const fn needs_lines(self) -> bool {
        matches!(self.0, 4 | 6 | 7 | 10 | 12)
    }

    /// Returns the query: warehouse, district, order or customer, left side, right side.
    fn sql(self, origin: &DatasetSpec) -> String {
        match self.0 {
            1 => FIRST.to_owned(),
            2 => SECOND.to_owned(),
            3 => THIRD.to_owned(),
            4 => FOURTH.to_owned(),
            5 => FIFTH.to_owned(),
            6 => SIXTH.to_owned(),
            7 => SEVENTH.to_owned(),
            8 => EIGHTH.to_owned(),
            9 => NINTH.to_owned(),
            10 => customers("c_balance", "COALESCE(got, 0) - COALESCE(paid, 0)"),
            // The standard says 2100, which holds until the first order is delivered: each delivery
            // closes an order and is counted by its customer.
            11 => ELEVENTH.replace("DELIVERED", &origin.scale.delivered().to_string()),
            _ => customers("c_balance + c_ytd_payment", "COALESCE(got, 0)"),
        }
    }
}

impl fmt::Display for ConsistencyCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "condition {}: {}", self.number(), self.text())
    }
}

/// A violated condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsistencyViolation {
    pub condition: ConsistencyCondition,
    pub count: u64,
    pub first: String,
}

impl fmt::Display for ConsistencyViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConsistencyViolation {
            condition,
            count,
            first,
        } = self;
        write!(f, "{condition}: violated {count} times, first {first}")
    }
}

/// Evaluates all conditions, as many at a time as there are processors. Returns the violated ones,
/// each once.
///
/// # Errors
/// Those of the database; [`TpccError::Stopped`].
pub fn check(
    store: &dyn TpccStore,
    origin: &DatasetSpec,
    progress: &mut dyn FnMut(usize, usize),
    stop: &AtomicBool,
) -> Result<Vec<ConsistencyViolation>, TpccError> {
    let shards = usize::try_from(origin.shards).unwrap_or(0);
    let of = shards * ConsistencyCondition::all().count();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let asking = ConsistencyCheck {
        store,
        origin,
        shards,
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        stop,
    };
    let (sender, receiver) = crossbeam_channel::unbounded();
    let mut violations = thread::scope(|scope| {
        let asking = &asking;
        let workers: Vec<_> = (0..processors.min(2 * shards))
            .map(|_| {
                let sender = sender.clone();
                scope.spawn(move || asking.work(&sender))
            })
            .collect();
        drop(sender);
        progress(0, of);
        for (done, ()) in receiver.into_iter().enumerate() {
            progress(done + 1, of);
        }
        joined(workers)
    })?
    .concat();
    violations.sort_by_key(|v| v.condition);
    violations.dedup_by(|later, first| {
        let same = later.condition == first.condition;
        first.count += if same { later.count } else { 0 };
        same
    });
    Ok(violations)
}

struct ConsistencyCheck<'a> {
    store: &'a dyn TpccStore,
    origin: &'a DatasetSpec,
    shards: usize,
    next: AtomicUsize,
    failed: AtomicBool,
    stop: &'a AtomicBool,
}

impl ConsistencyCheck<'_> {
    /// Processes one part after the other: first the lines of each database, which take longest,
    /// then the other conditions of each.
    fn work(&self, sender: &Sender<()>) -> Result<Vec<ConsistencyViolation>, TpccError> {
        let mut found = Vec::new();
        loop {
            let part = self.next.fetch_add(1, Ordering::Relaxed);
            if part >= 2 * self.shards {
                return Ok(found);
            }
            let asked = self.ask(part % self.shards, part < self.shards, sender);
            if asked.is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
            found.extend(asked?);
        }
    }

    /// Evaluates the conditions on the lines of one database, or all other conditions.
    fn ask(
        &self,
        shard: usize,
        lines: bool,
        sender: &Sender<()>,
    ) -> Result<Vec<ConsistencyViolation>, TpccError> {
        let mut database = self
            .store
            .loader(i32::try_from(shard).unwrap_or(i32::MAX))?;
        if lines {
            database.execute(LINES)?;
        }
        let mut found = Vec::new();
        for condition in ConsistencyCondition::all().filter(|c| c.needs_lines() == lines) {
            if self.stop.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed) {
                return Err(TpccError::Stopped);
            }
            let rows = database.ask(&limited(&condition.sql(self.origin)))?;
            if let Some(row) = rows.first() {
                let count = row.first().copied().flatten().unwrap_or(1).unsigned_abs();
                found.push(ConsistencyViolation {
                    condition,
                    count,
                    first: described(row),
                });
            }
            // Without the caller nobody receives the progress.
            let _ = sender.send(());
        }
        Ok(found)
    }
}

/// Limits a query to the first violation, with the number of violations.
fn limited(sql: &str) -> String {
    format!("SELECT count(*) OVER () AS n, x.* FROM ({sql}) AS x ORDER BY 2, 3, 4 LIMIT 1")
}

fn described(row: &[Option<i64>]) -> String {
    let number = |at: usize| match row.get(at).copied().flatten() {
        Some(number) => number.to_string(),
        None => "nothing".to_owned(),
    };
    let mut place = format!("warehouse {}", number(1));
    for (at, name) in [(2, "district"), (3, "number")] {
        if row.get(at).copied().flatten().is_some_and(|n| n != 0) {
            place.push_str(&format!(", {name} {}", number(at)));
        }
    }
    format!("in {place}: {} and {}", number(4), number(5))
}

/// Makes a table of the lines of each order for five of the conditions. Lines are most of the rows,
/// and are thus read once instead of five times.
const LINES: &str = "
    CREATE TEMPORARY TABLE kit_lines (k_w_id INTEGER, k_d_id INTEGER, k_o_id INTEGER, k_lines BIGINT,
        k_delivered BIGINT, k_amount BIGINT, PRIMARY KEY (k_w_id, k_d_id, k_o_id));
    INSERT INTO kit_lines SELECT ol_w_id, ol_d_id, ol_o_id, count(*), count(ol_delivery_d),
            CAST(sum(CASE WHEN ol_delivery_d IS NULL THEN 0 ELSE ol_amount END) AS BIGINT)
        FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id;
    ANALYZE kit_lines";

const FIRST: &str = "
    SELECT w_id AS w, 0 AS d, 0 AS n, w_ytd AS a, CAST(COALESCE(s, 0) AS BIGINT) AS b
    FROM warehouse LEFT JOIN
        (SELECT d_w_id, sum(d_ytd) AS s FROM district GROUP BY d_w_id) AS districts
        ON d_w_id = w_id
    WHERE w_ytd <> COALESCE(s, 0)";

const SECOND: &str = "
    SELECT d_w_id AS w, d_id AS d, 0 AS n, d_next_o_id - 1 AS a,
        CASE WHEN d_next_o_id - 1 <> COALESCE(last_order, 0) THEN last_order ELSE last_open END AS b
    FROM district
    LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last_order FROM orders
            GROUP BY o_w_id, o_d_id) AS x
        ON o_w_id = d_w_id AND o_d_id = d_id
    LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last_open FROM new_order
            GROUP BY no_w_id, no_d_id) AS y
        ON no_w_id = d_w_id AND no_d_id = d_id
    WHERE d_next_o_id - 1 <> COALESCE(last_order, 0) OR d_next_o_id - 1 <> last_open";

const THIRD: &str = "
    SELECT no_w_id AS w, no_d_id AS d, 0 AS n, max(no_o_id) - min(no_o_id) + 1 AS a,
        count(*) AS b
    FROM new_order GROUP BY no_w_id, no_d_id
    HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)";

const FOURTH: &str = "
    SELECT d_w_id AS w, d_id AS d, 0 AS n, CAST(COALESCE(s, 0) AS BIGINT) AS a,
        COALESCE(c, 0) AS b
    FROM district
    LEFT JOIN (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS s FROM orders
            GROUP BY o_w_id, o_d_id) AS x
        ON o_w_id = d_w_id AND o_d_id = d_id
    LEFT JOIN (SELECT k_w_id, k_d_id, CAST(sum(k_lines) AS BIGINT) AS c FROM kit_lines
            GROUP BY k_w_id, k_d_id) AS y
        ON k_w_id = d_w_id AND k_d_id = d_id
    WHERE COALESCE(s, 0) <> COALESCE(c, 0)";

const FIFTH: &str = "
    SELECT o_w_id AS w, o_d_id AS d, o_id AS n, o_carrier_id AS a, no_o_id AS b
    FROM orders LEFT JOIN new_order
        ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
    WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)";

const SIXTH: &str = "
    SELECT o_w_id AS w, o_d_id AS d, o_id AS n, o_ol_cnt AS a, COALESCE(k_lines, 0) AS b
    FROM orders LEFT JOIN kit_lines
        ON k_w_id = o_w_id AND k_d_id = o_d_id AND k_o_id = o_id
    WHERE o_ol_cnt <> COALESCE(k_lines, 0)";

const SEVENTH: &str = "
    SELECT o_w_id AS w, o_d_id AS d, o_id AS n, o_carrier_id AS a, k_delivered AS b
    FROM orders JOIN kit_lines
        ON k_w_id = o_w_id AND k_d_id = o_d_id AND k_o_id = o_id
    WHERE (o_carrier_id IS NULL AND k_delivered > 0)
        OR (o_carrier_id IS NOT NULL AND k_delivered < k_lines)";

const EIGHTH: &str = "
    SELECT w_id AS w, 0 AS d, 0 AS n, w_ytd AS a, CAST(COALESCE(s, 0) AS BIGINT) AS b
    FROM warehouse LEFT JOIN
        (SELECT h_w_id, sum(h_amount) AS s FROM history GROUP BY h_w_id) AS payments
        ON h_w_id = w_id
    WHERE w_ytd <> COALESCE(s, 0)";

const NINTH: &str = "
    SELECT d_w_id AS w, d_id AS d, 0 AS n, d_ytd AS a, CAST(COALESCE(s, 0) AS BIGINT) AS b
    FROM district LEFT JOIN
        (SELECT h_w_id, h_d_id, sum(h_amount) AS s FROM history
            GROUP BY h_w_id, h_d_id) AS payments
        ON h_w_id = d_w_id AND h_d_id = d_id
    WHERE d_ytd <> COALESCE(s, 0)";

const ELEVENTH: &str = "
    SELECT d_w_id AS w, d_id AS d, 0 AS n, COALESCE(entered, 0) - COALESCE(open, 0) AS a,
        CAST(DELIVERED + COALESCE(c, 0) AS BIGINT) AS b
    FROM district
    LEFT JOIN (SELECT o_w_id, o_d_id, count(*) AS entered FROM orders GROUP BY o_w_id, o_d_id) AS x
        ON o_w_id = d_w_id AND o_d_id = d_id
    LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS open FROM new_order
            GROUP BY no_w_id, no_d_id) AS y
        ON no_w_id = d_w_id AND no_d_id = d_id
    LEFT JOIN (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS c FROM customer
            GROUP BY c_w_id, c_d_id) AS z
        ON c_w_id = d_w_id AND c_d_id = d_id
    WHERE COALESCE(entered, 0) - COALESCE(open, 0) <> DELIVERED + COALESCE(c, 0)";

/// Returns the query of conditions 10 and 12: deliveries to a customer, and payments.
fn customers(left: &str, right: &str) -> String {
    format!(
        "SELECT c_w_id AS w, c_d_id AS d, c_id AS n, {left} AS a, CAST({right} AS BIGINT) AS b
         FROM customer
         LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history
                 GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS payments
             ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
         LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(k_amount) AS got
                 FROM orders JOIN kit_lines
                     ON k_w_id = o_w_id AND k_d_id = o_d_id AND k_o_id = o_id
                 GROUP BY o_w_id, o_d_id, o_c_id) AS deliveries
             ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
         WHERE {left} <> {right}"
    )
}
