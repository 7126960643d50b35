//! The initial rows of a database (clause 4.3.3.1).
//!
//! Every row follows from the seed and its place. All databases thus get the same rows, and filling
//! can continue after an interruption.

use super::random::{NurandConstants, Random, last_name};
use super::rules::{DISTRICTS, LINES, NAMES, TableCardinality};
use super::store::DatasetSpec;
use super::tables::TpccTable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number; money is in cents, a rate in hundredths of a percent.
    Int(i64),
    Text(&'a str),
    /// SQL NULL.
    Null,
}

impl From<i32> for FieldValue<'_> {
    fn from(number: i32) -> Self {
        FieldValue::Int(number.into())
    }
}

impl From<i64> for FieldValue<'_> {
    fn from(number: i64) -> Self {
        FieldValue::Int(number)
    }
}

impl<'a> From<&'a String> for FieldValue<'a> {
    fn from(text: &'a String) -> Self {
        FieldValue::Text(text)
    }
}

impl<'a> From<&'a str> for FieldValue<'a> {
    fn from(text: &'a str) -> Self {
        FieldValue::Text(text)
    }
}

/// Makes a row, an array of fields, from values of several types.
macro_rules! row {
    ($($value:expr),* $(,)?) => { &[$(FieldValue::from($value)),*] };
}

/// Receiver of the rows; an error ends their production.
type RowSink<'a, E> = dyn FnMut(&[FieldValue<'_>]) -> Result<(), E> + 'a;

#[derive(Debug, Clone, Copy)]
pub struct RowGenerator {
    scale: TableCardinality,
    seed: u64,
    constants: NurandConstants,
    now: i64,
}

impl RowGenerator {
    /// Describes the rows that belong to an origin.
    pub fn new(origin: &DatasetSpec) -> RowGenerator {
        RowGenerator {
            scale: origin.scale,
            seed: origin.seed,
            constants: NurandConstants::for_load(origin.seed),
            now: origin.filled_at,
        }
    }

    /// Returns the number of rows of a table per warehouse, or the number of all items. The number
    /// of lines is random; the expected number is returned.
    pub fn expected(scale: TableCardinality, table: TpccTable) -> u64 {
        let customers = i64::from(DISTRICTS) * i64::from(scale.customers);
        let rows = match table {
            TpccTable::Item | TpccTable::Stock => i64::from(scale.items),
            TpccTable::Warehouse => 1,
            TpccTable::District => DISTRICTS.into(),
            TpccTable::Customer | TpccTable::History | TpccTable::Orders => customers,
            TpccTable::NewOrder => i64::from(DISTRICTS) * i64::from(scale.undelivered),
            TpccTable::OrderLine => customers * 10,
        };
        rows.unsigned_abs()
    }

    /// Makes all rows of a table for a warehouse, in the order of their keys. Items belong to no
    /// warehouse; theirs is 0.
    ///
    /// # Errors
    /// The error that `out` returns.
    pub fn rows<E>(
        &self,
        table: TpccTable,
        warehouse: i32,
        out: &mut RowSink<'_, E>,
    ) -> Result<(), E> {
        match table {
            TpccTable::Item => self.items(out),
            TpccTable::Warehouse => self.warehouse(warehouse, out),
            TpccTable::District => self.districts(warehouse, out),
            TpccTable::Stock => self.stock(warehouse, out),
            TpccTable::Customer => self.customers(warehouse, out),
            TpccTable::History => self.history(warehouse, out),
            TpccTable::Orders => self.orders(warehouse, out),
            TpccTable::NewOrder => self.new_orders(warehouse, out),
            TpccTable::OrderLine => self.lines(warehouse, out),
        }
    }

    fn random(&self, table: TpccTable, warehouse: i32, district: i32) -> Random {
        let part = |n: i32| u64::from(n.unsigned_abs());
        Random::new(self.seed, &[table as u64, part(warehouse), part(district)])
    }

    fn items<E>(&self, out: &mut RowSink<'_, E>) -> Result<(), E> {
        let mut random = self.random(TpccTable::Item, 0, 0);
        let (mut name, mut data) = (String::new(), String::new());
        for item in 1..=self.scale.items {
            random.letters(&mut name, 14, 24);
            random.data(&mut data);
            let image = random.within(1, 10_000);
            let price = random.within(100, 10_000);
            out(row![item, image, &name, price, &data])?;
        }
        Ok(())
    }

    fn warehouse<E>(&self, warehouse: i32, out: &mut RowSink<'_, E>) -> Result<(), E> {
        let mut random = self.random(TpccTable::Warehouse, warehouse, 0);
        let mut name = String::new();
        random.letters(&mut name, 6, 10);
        let [street_1, street_2, city, state, zip] = &address(&mut random);
        let tax = random.within(0, 2000);
        // 300,000.00 with the standard's rows.
        let year_to_date = i64::from(DISTRICTS) * self.payments_at_first();
        out(row![
            warehouse,
            &name,
            street_1,
            street_2,
            city,
            state,
            zip,
            tax,
            year_to_date
        ])
    }

    fn districts<E>(&self, warehouse: i32, out: &mut RowSink<'_, E>) -> Result<(), E> {
        let mut random = self.random(TpccTable::District, warehouse, 0);
        let mut name = String::new();
        for district in 1..=DISTRICTS {
            random.letters(&mut name, 6, 10);
            let [street_1, street_2, city, state, zip] = &address(&mut random);
            let tax = random.within(0, 2000);
            out(row![
                warehouse,
                district,
                &name,
                street_1,
                street_2,
                city,
                state,
                zip,
                tax,
                self.payments_at_first(),
                self.scale.customers + 1,
            ])?;
        }
        Ok(())
    }

    /// Returns the initial payments of the customers of a district: 10.00 each. With the standard's
    /// rows that is 30,000.00, as the standard says.
    fn payments_at_first(&self) -> i64 {
        i64::from(self.scale.customers) * 1000
    }

    fn stock<E>(&self, warehouse: i32, out: &mut RowSink<'_, E>) -> Result<(), E> {
        let mut random = self.random(TpccTable::Stock, warehouse, 0);
        let mut names: [String; 10] = Default::default();
        let mut data = String::new();
        for item in 1..=self.scale.items {
            let quantity = random.within(10, 100);
            for name in &mut names {
                random.letters(name, 24, 24);
            }
            random.data(&mut data);
            let [a, b, c, d, e, f, g, h, i, j] = &names;
            out(row![
                warehouse, item, quantity, 0, 0, 0, a, b, c, d, e, f, g, h, i, j, &data
            ])?;
        }
        Ok(())
    }

    fn customers<E>(&self, warehouse: i32, out: &mut RowSink<'_, E>) -> Result<(), E> {
        let (mut first, mut phone, mut data) = (String::new(), String::new(), String::new());
        for district in 1..=DISTRICTS {
            let mut random = self.random(TpccTable::Customer, warehouse, district);
            for customer in 1..=self.scale.customers {
                // Each name once, then the frequent ones more often.
                let name = match customer {
                    ..=NAMES => customer - 1,
                    _ => random.name(self.constants, self.scale),
                };
                random.letters(&mut first, 8, 16);
                let [street_1, street_2, city, state, zip] = &address(&mut random);
                random.digits(&mut phone, 16, 16);
                let credit = if random.percent(10) { "BC" } else { "GC" };
                let discount = random.within(0, 5000);
                random.letters(&mut data, 300, 500);
                let (limit, balance, paid) = (5_000_000_i64, -1000_i64, 1000_i64);
                out(row![
                    warehouse,
                    district,
                    customer,
                    last_name(name),
                    "OE",
                    &first,
                    street_1,
                    street_2,
                    city,
                    state,
                    zip,
                    &phone,
                    self.now,
                    credit,
                    limit,
                    discount,
                    balance,
                    paid,
                    1,
                    0,
                    &data,
                ])?;
            }
        }
        Ok(())
    }

    fn history<E>(&self, warehouse: i32, out: &mut RowSink<'_, E>) -> Result<(), E> {
        let mut data = String::new();
        for district in 1..=DISTRICTS {
            let mut random = self.random(TpccTable::History, warehouse, district);
            for customer in 1..=self.scale.customers {
                random.letters(&mut data, 12, 24);
                let amount = 1000_i64;
                out(row![
                    customer, district, warehouse, district, warehouse, self.now, amount, &data
                ])?;
            }
        }
        Ok(())
    }

    fn orders<E>(&self, warehouse: i32, out: &mut RowSink<'_, E>) -> Result<(), E> {
        for district in 1..=DISTRICTS {
            let mut random = self.random(TpccTable::Orders, warehouse, district);
            let mut customers: Vec<i32> = (1..=self.scale.customers).collect();
            random.shuffle(&mut customers);
            let lines = self.lines_of(warehouse, district);
            for ((order, customer), lines) in (1..).zip(customers).zip(lines) {
                let carrier = match order <= self.scale.delivered() {
                    true => FieldValue::from(random.within(1, 10)),
                    false => FieldValue::Null,
                };
                let (w, d) = (FieldValue::from(warehouse), FieldValue::from(district));
                let (o, c) = (FieldValue::from(order), FieldValue::from(customer));
                out(&[w, d, o, c, self.now.into(), carrier, lines.into(), 1.into()])?;
            }
        }
        Ok(())
    }

    /// Returns the number of lines of each order of a district. Orders and lines are made
    /// separately, and both need it.
    fn lines_of(&self, warehouse: i32, district: i32) -> Vec<i32> {
        let part = |n: i32| u64::from(n.unsigned_abs());
        let mut random = Random::new(self.seed, &[0x11E5, part(warehouse), part(district)]);
        (0..self.scale.customers)
            .map(|_| random.within(LINES.0, LINES.1))
            .collect()
    }

    fn new_orders<E>(&self, warehouse: i32, out: &mut RowSink<'_, E>) -> Result<(), E> {
        for district in 1..=DISTRICTS {
            for order in self.scale.delivered() + 1..=self.scale.customers {
                out(row![warehouse, district, order])?;
            }
        }
        Ok(())
    }

    fn lines<E>(&self, warehouse: i32, out: &mut RowSink<'_, E>) -> Result<(), E> {
        let mut info = String::new();
        for district in 1..=DISTRICTS {
            let mut random = self.random(TpccTable::OrderLine, warehouse, district);
            for (order, lines) in (1..).zip(self.lines_of(warehouse, district)) {
                for number in 1..=lines {
                    let item = random.within(1, self.scale.items);
                    let (delivered, amount) = match order <= self.scale.delivered() {
                        true => (FieldValue::from(self.now), 0),
                        false => (FieldValue::Null, random.within(1, 999_999)),
                    };
                    random.letters(&mut info, 24, 24);
                    out(&[
                        warehouse.into(),
                        district.into(),
                        order.into(),
                        number.into(),
                        item.into(),
                        warehouse.into(),
                        delivered,
                        5.into(),
                        amount.into(),
                        (&info).into(),
                    ])?;
                }
            }
        }
        Ok(())
    }
}

/// Returns two streets, a city, a state and a zip code.
fn address(random: &mut Random) -> [String; 5] {
    let mut address: [String; 5] = Default::default();
    for part in &mut address[..3] {
        random.letters(part, 10, 20);
    }
    random.letters(&mut address[3], 2, 2);
    random.zip(&mut address[4]);
    address
}
