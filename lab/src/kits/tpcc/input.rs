//! The requests of a terminal: random inputs of the five transactions, dealt from a deck.

use std::time::{SystemTime, UNIX_EPOCH};

use super::random::{NurandConstants, Random};
use super::rules::{DISTRICTS, LINES, TableCardinality, TransactionKind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransactionInput {
    /// See [`NewOrderInput`].
    NewOrder(NewOrderInput),
    /// See [`PaymentInput`].
    Payment(PaymentInput),
    /// See [`OrderStatusInput`].
    OrderStatus(OrderStatusInput),
    /// See [`DeliveryInput`].
    Delivery(DeliveryInput),
    /// See [`StockLevelInput`].
    StockLevel(StockLevelInput),
}

impl TransactionInput {
    pub const fn kind(&self) -> TransactionKind {
        match self {
            TransactionInput::NewOrder(_) => TransactionKind::NewOrder,
            TransactionInput::Payment(_) => TransactionKind::Payment,
            TransactionInput::OrderStatus(_) => TransactionKind::OrderStatus,
            TransactionInput::Delivery(_) => TransactionKind::Delivery,
            TransactionInput::StockLevel(_) => TransactionKind::StockLevel,
        }
    }
}

/// An order is entered (clause 2.4.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewOrderInput {
    pub warehouse: i32,
    pub district: i32,
    pub customer: i32,
    /// The lines of the order. In one of a hundred orders the last item does not exist.
    pub lines: Vec<OrderLineInput>,
    /// Time of the order, in microseconds since 1970.
    pub at: i64,
}

impl NewOrderInput {
    pub fn all_local(&self) -> bool {
        self.lines.iter().all(|line| line.supply == self.warehouse)
    }
}

/// A line of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderLineInput {
    pub item: i32,
    pub supply: i32,
    pub quantity: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CustomerSelector {
    Number(i32),
    /// By last name, given by its number ([`super::last_name`]): the middle one of that name,
    /// ordered by first name.
    Name(i32),
}

/// A customer pays (clause 2.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaymentInput {
    pub warehouse: i32,
    pub district: i32,
    /// The customer's warehouse, in 15 of a hundred cases another one.
    pub customer_warehouse: i32,
    pub customer_district: i32,
    pub customer: CustomerSelector,
    pub amount: i64,
    pub at: i64,
}

/// A customer asks for the state of the last order (clause 2.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderStatusInput {
    pub warehouse: i32,
    pub district: i32,
    pub customer: CustomerSelector,
}

/// The oldest orders of all districts are delivered (clause 2.7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryInput {
    pub warehouse: i32,
    pub carrier: i32,
    pub at: i64,
}

/// Number of recently ordered items whose stock is low (clause 2.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StockLevelInput {
    pub warehouse: i32,
    pub district: i32,
    pub threshold: i32,
}

/// A terminal: its warehouses, and its requests.
#[derive(Debug)]
pub struct TpccTerminal {
    random: Random,
    constants: NurandConstants,
    scale: TableCardinality,
    /// Warehouses of the terminal, in turn.
    homes: Vec<i32>,
    /// The first and the last warehouse that it may reach.
    reach: (i32, i32),
    deck: Vec<TransactionKind>,
    dealt: usize,
    turn: usize,
}

impl TpccTerminal {
    /// Makes a terminal for the warehouses `homes`, one after the other. It reaches the warehouses
    /// from the first to the last of `reach`. An empty list stands for the first warehouse within
    /// reach.
    pub fn new(
        random: Random,
        constants: NurandConstants,
        scale: TableCardinality,
        homes: Vec<i32>,
        reach: (i32, i32),
    ) -> TpccTerminal {
        let deck: Vec<TransactionKind> = TransactionKind::ALL
            .iter()
            .flat_map(|kind| std::iter::repeat_n(*kind, kind.cards()))
            .collect();
        TpccTerminal {
            random,
            constants,
            scale,
            homes: if homes.is_empty() {
                vec![reach.0]
            } else {
                homes
            },
            reach,
            dealt: deck.len(),
            deck,
            turn: 0,
        }
    }

    /// Returns the next transaction from a deck that is shuffled again when all cards are dealt
    /// (clause 5.2.4.2), so the mix is exact after each deck.
    pub fn deal(&mut self) -> TransactionInput {
        if self.dealt == self.deck.len() {
            self.random.shuffle(&mut self.deck);
            self.dealt = 0;
        }
        let kind = self.deck[self.dealt];
        self.dealt += 1;
        let home = self.homes[self.turn % self.homes.len()];
        self.turn += 1;
        match kind {
            TransactionKind::NewOrder => TransactionInput::NewOrder(self.new_order(home)),
            TransactionKind::Payment => TransactionInput::Payment(self.payment(home)),
            TransactionKind::OrderStatus => TransactionInput::OrderStatus(OrderStatusInput {
                warehouse: home,
                district: self.random.within(1, DISTRICTS),
                customer: self.customer(),
            }),
            TransactionKind::Delivery => TransactionInput::Delivery(DeliveryInput {
                warehouse: home,
                carrier: self.random.within(1, 10),
                at: now(),
            }),
            TransactionKind::StockLevel => TransactionInput::StockLevel(StockLevelInput {
                warehouse: home,
                district: self.random.within(1, DISTRICTS),
                threshold: self.random.within(10, 20),
            }),
        }
    }

    /// Returns the keying and think times of a person at this card, in seconds. The think time is
    /// exponential and cut off at ten times its mean (clause 5.2.5.4).
    pub(crate) fn waits(&mut self, kind: TransactionKind) -> (f64, f64) {
        let (keying, mean) = kind.waits();
        let thinking = -self.random.share().ln() * mean;
        (keying, thinking.min(10.0 * mean))
    }

    fn new_order(&mut self, home: i32) -> NewOrderInput {
        let random = &mut self.random;
        let district = random.within(1, DISTRICTS);
        let customer = random.customer(self.constants, self.scale);
        let count = random.within(LINES.0, LINES.1);
        let unused = random.percent(1);
        let mut lines = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        for number in 1..=count {
            let item = match unused && number == count {
                true => self.scale.items + 1,
                false => self.random.item(self.constants, self.scale),
            };
            let supply = match self.random.percent(1) {
                true => self.another(home),
                false => home,
            };
            let quantity = self.random.within(1, 10);
            lines.push(OrderLineInput {
                item,
                supply,
                quantity,
            });
        }
        NewOrderInput {
            warehouse: home,
            district,
            customer,
            lines,
            at: now(),
        }
    }

    fn payment(&mut self, home: i32) -> PaymentInput {
        let district = self.random.within(1, DISTRICTS);
        let (customer_warehouse, customer_district) = match self.random.percent(15) {
            true => (self.another(home), self.random.within(1, DISTRICTS)),
            false => (home, district),
        };
        PaymentInput {
            warehouse: home,
            district,
            customer_warehouse,
            customer_district,
            customer: self.customer(),
            amount: self.random.within(100, 500_000).into(),
            at: now(),
        }
    }

    fn customer(&mut self) -> CustomerSelector {
        match self.random.percent(60) {
            true => CustomerSelector::Name(self.random.name(self.constants, self.scale)),
            false => CustomerSelector::Number(self.random.customer(self.constants, self.scale)),
        }
    }

    /// Returns another warehouse within reach, or this one if there is no other.
    fn another(&mut self, home: i32) -> i32 {
        let (first, last) = self.reach;
        if first >= last {
            return home;
        }
        let drawn = self.random.within(first, last - 1);
        if drawn >= home { drawn + 1 } else { drawn }
    }
}

/// Returns microseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(seed: u64, homes: Vec<i32>, reach: (i32, i32)) -> TpccTerminal {
        let load = NurandConstants::for_load(seed);
        TpccTerminal::new(
            Random::new(seed, &[1]),
            NurandConstants::for_run(load, seed),
            TableCardinality::STANDARD,
            homes,
            reach,
        )
    }

    /// Shares of clause 5.2.3, and the required shares of the inputs.
    #[test]
    fn the_mix_and_the_inputs_are_the_standards() {
        const DRAWS: u32 = 230_000;
        let mut terminal = terminal(3, (1..=5).collect(), (1, 5));
        let mut kinds = [0u32; 5];
        let (mut lines, mut remote, mut unused) = (0u32, 0u32, 0u32);
        let (mut elsewhere, mut by_name) = (0u32, 0u32);
        for _ in 0..DRAWS {
            let input = terminal.deal();
            kinds[input.kind().index()] += 1;
            match input {
                TransactionInput::NewOrder(order) => {
                    assert!((5..=15).contains(&order.lines.len()));
                    lines += u32::try_from(order.lines.len()).unwrap();
                    let far = order.lines.iter().filter(|l| l.supply != order.warehouse);
                    remote += u32::try_from(far.count()).unwrap();
                    unused += u32::from(order.lines.iter().any(|l| l.item > 100_000));
                }
                TransactionInput::Payment(payment) => {
                    elsewhere += u32::from(payment.customer_warehouse != payment.warehouse);
                    by_name += u32::from(matches!(payment.customer, CustomerSelector::Name(_)));
                    assert!((100..=500_000).contains(&payment.amount));
                }
                _ => {}
            }
        }
        assert_eq!(kinds, [100_000, 100_000, 10_000, 10_000, 10_000]);
        let near = |what: &str, got: u32, of: u32, low: f64, high: f64| {
            let share = 100.0 * f64::from(got) / f64::from(of);
            assert!((low..=high).contains(&share), "{what}: {share} %");
        };
        // The bounds of clause 5.5.1.5 (the reports for an auditor).
        near("rolled back", unused, kinds[0], 0.9, 1.1);
        near("remote lines", remote, lines, 0.95, 1.05);
        near("lines an order", lines, kinds[0] * 10, 95.0, 105.0);
        near("remote payments", elsewhere, kinds[1], 14.0, 16.0);
        near("customers by name", by_name, kinds[1], 57.0, 63.0);
    }

    #[test]
    fn with_one_warehouse_nothing_is_remote() {
        let mut terminal = terminal(4, vec![7], (7, 7));
        for _ in 0..2300 {
            match terminal.deal() {
                TransactionInput::NewOrder(order) => assert!(order.all_local()),
                TransactionInput::Payment(payment) => assert_eq!(payment.customer_warehouse, 7),
                _ => {}
            }
        }
    }

    #[test]
    fn another_warehouse_is_never_this_one_and_any_of_the_others() {
        let mut terminal = terminal(5, vec![3], (2, 5));
        let mut seen = [0; 6];
        for _ in 0..1000 {
            seen[usize::try_from(terminal.another(3)).unwrap()] += 1;
        }
        assert_eq!((seen[0], seen[1], seen[3]), (0, 0, 0));
        assert!(seen[2] > 0 && seen[4] > 0 && seen[5] > 0, "{seen:?}");
    }

    #[test]
    fn a_seed_repeats_the_run() {
        let run = |seed| {
            let mut terminal = terminal(seed, vec![1], (1, 1));
            (0..50).map(|_| terminal.deal().kind()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
