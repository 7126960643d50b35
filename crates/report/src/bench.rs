//! `hugeleaf bench`: results as text. The pages are in [`crate::bench_html`].

mod chart;
pub(crate) mod chase;
pub(crate) mod mover;
pub(crate) mod oltp;
pub(crate) mod pagetables;
pub(crate) mod pin;

use hugeleaf_proof::bench::{BenchEnding, NotHad, Spread};
use hugeleaf_units::Bytes;

use crate::prove::{number, ratio, time};
use crate::table::Look;

pub use chase::{chase_headline, chase_how, chase_meaning, chase_rows, chase_text};
pub use mover::{mover_headlines, mover_text};
pub use oltp::{oltp_headline, oltp_text};
pub use pagetables::{
    COLUMNS as PAGETABLES_COLUMNS, pagetables_headline, pagetables_how, pagetables_meaning,
    pagetables_rows, pagetables_text,
};
pub use pin::{pin_headlines, pin_text};

/// Three digits that mean something: `1.93`, `312`.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => number(value.round()),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A time in the unit that fits it.
pub(crate) fn duration(seconds: f64) -> String {
    let (factor, unit) = match seconds.abs() {
        s if s >= 90.0 => return time(seconds),
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e3, "ms"),
        s if s >= 1e-6 => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    format!("{} {unit}", short(seconds * factor))
}

/// `312 [309, 318]`; the median alone where there is no interval.
pub(crate) fn spread(spread: &Spread) -> String {
    match (spread.low, spread.high) {
        (Some(low), Some(high)) => {
            format!("{} [{}, {}]", short(spread.median), short(low), short(high))
        }
        _ => short(spread.median),
    }
}

/// A ratio to base pages, small ones too: `×0.67`, `×0.0039`.
pub(crate) fn times_base(value: f64) -> String {
    match value {
        v if v > 0.0 && v < 0.1 => {
            let decimals = digits_for(v);
            format!("×{v:.decimals$}")
        }
        v => format!("×{}", ratio(v)),
    }
}

/// Decimals that leave two digits of a number below 1.
fn digits_for(value: f64) -> usize {
    let mut decimals = 1;
    let mut value = value;
    while value < 1.0 && decimals < 9 {
        value *= 10.0;
        decimals += 1;
    }
    decimals
}

/// An arm that could not be had: its name, from which length on where it was had below, why, and
/// the next step.
pub struct NotHadLine {
    /// `hugetlb:2M` or `hugetlb:2M from 128M on`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// What to do.
    pub next: String,
}

impl NotHadLine {
    fn of(label: &str, had_some: bool, not_had: &NotHad) -> NotHadLine {
        let from = Bytes(not_had.from_bytes);
        NotHadLine {
            what: match had_some {
                true => format!("{label} from {from} on"),
                false => label.to_owned(),
            },
            reason: not_had.reason.clone(),
            next: not_had.next.clone(),
        }
    }
}

fn not_had_text(lines: &[NotHadLine], look: Look) -> String {
    let mut out = String::new();
    for line in lines {
        let text = format!("{}: {}", line.what, line.reason);
        out.push_str(&look.wrap("not had  ", &text));
        out.push_str(&look.wrap("  next   ", &line.next));
    }
    out
}

fn ending(ending: BenchEnding, seconds: f64) -> String {
    match ending {
        BenchEnding::Done => format!("took {}", duration(seconds)),
        BenchEnding::Interrupted => format!("interrupted after {}", duration(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(short(1.934), "1.93");
        assert_eq!(short(42.55), "42.5");
        assert_eq!(short(311.6), "312");
        assert_eq!(duration(0.0451), "45.1 ms");
        assert_eq!(duration(0.000_002), "2.00 µs");
        assert_eq!(duration(200.0), "3.3 min");
        assert_eq!(times_base(0.667), "×0.67");
        assert_eq!(times_base(0.003_912), "×0.0039");
        assert_eq!(times_base(0.0), "×0");
    }
}
