use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// A number of bytes, from 0 to 2^64 - 1.
///
/// Displays in the largest unit that leaves at least one whole, with at most one decimal (`4.2G`,
/// `512K`, `0`). `{:#}` displays the exact number. JSON holds the exact number.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// Returns the exact number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Converts `n` units of 1024 bytes, the unit of `/proc/meminfo`, `smaps` and `status`
    /// (proc(5): "kB" there means 1024 bytes). Saturates.
    pub const fn from_kib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1024))
    }

    /// Converts `n` units of 1024 * 1024 bytes. Saturates.
    pub const fn from_mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1024 * 1024))
    }

    /// True if the number is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns `self / whole`, at most 1.0 if `self` is at most `whole`. `None` if `whole` is zero.
    pub fn share_of(self, whole: Bytes) -> Option<f64> {
        (whole.0 > 0).then(|| self.0 as f64 / whole.0 as f64)
    }

    /// Returns `self` times `part` / `whole`, rounded down. At most `self` if `part` is at most
    /// `whole`. Zero if `whole` is zero.
    #[must_use]
    pub fn scaled(self, part: Bytes, whole: Bytes) -> Bytes {
        let product = u128::from(self.0) * u128::from(part.0);
        let scaled = product.checked_div(u128::from(whole.0)).unwrap_or(0);
        Bytes(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Converts to a floating-point number, for ratios and charts.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

/// Implements saturating sums, differences and multiples. Counters of a live system are not read at
/// one instant, and a file may contain any number.
macro_rules! saturating {
    ($count:ident) => {
        impl std::ops::Add for $count {
            type Output = $count;
            fn add(self, other: $count) -> $count {
                $count(self.0.saturating_add(other.0))
            }
        }

        impl std::ops::AddAssign for $count {
            fn add_assign(&mut self, other: $count) {
                *self = *self + other;
            }
        }

        impl std::ops::Sub for $count {
            type Output = $count;
            fn sub(self, other: $count) -> $count {
                $count(self.0.saturating_sub(other.0))
            }
        }

        impl std::ops::Mul<u64> for $count {
            type Output = $count;
            fn mul(self, times: u64) -> $count {
                $count(self.0.saturating_mul(times))
            }
        }

        impl std::iter::Sum for $count {
            fn sum<I: Iterator<Item = $count>>(iter: I) -> $count {
                iter.fold($count(0), std::ops::Add::add)
            }
        }
    };
}
pub(crate) use saturating;

saturating!(Bytes);

const UNITS: [(char, u32); 6] = [
    ('K', 10),
    ('M', 20),
    ('G', 30),
    ('T', 40),
    ('P', 50),
    ('E', 60),
];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.pad(&self.0.to_string());
        }
        f.pad(&human(self.0))
    }
}

/// Uses the largest unit in which the number, rounded to a tenth, is at least 1. Whole from 100 on.
fn human(n: u64) -> String {
    if n < 1024 {
        return n.to_string();
    }
    let mut chosen = UNITS[0];
    for unit in UNITS {
        if n >> unit.1 > 0 {
            chosen = unit;
        }
    }
    // 1023.96M would print as 1024.0M; use the next unit instead.
    if tenths(n, chosen.1) >= 10_240
        && let Some(next) = UNITS.iter().find(|u| u.1 > chosen.1)
    {
        chosen = *next;
    }
    let t = tenths(n, chosen.1);
    let unit = chosen.0;
    if t.is_multiple_of(10) || t >= 1000 {
        format!("{}{unit}", (t + 5) / 10)
    } else {
        format!("{}.{}{unit}", t / 10, t % 10)
    }
}

/// Returns `n / 2^shift` in tenths, rounded to nearest.
fn tenths(n: u64, shift: u32) -> u64 {
    let scaled = u128::from(n) * 10 + (1u128 << (shift - 1));
    u64::try_from(scaled >> shift).unwrap_or(u64::MAX)
}

impl FromStr for Bytes {
    type Err = ParseError;

    /// Parses `4096`, `64K`, `64k`, `2M`, `2MB`, `2MiB`, `1G`. Units are powers of 1024.
    fn from_str(text: &str) -> Result<Bytes, ParseError> {
        let error = || {
            ParseError(format!(
                "'{text}' is not a size; write a whole number with K, M, G or T, as in 64K"
            ))
        };
        let trimmed = text.trim();
        let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = trimmed.split_at(digits);
        let number: u64 = number.parse().map_err(|_| error())?;
        let suffix = suffix.to_ascii_uppercase();
        let suffix = suffix
            .strip_suffix("IB")
            .or(suffix.strip_suffix('B'))
            .unwrap_or(&suffix);
        let shift = match suffix {
            "" => 0,
            _ => UNITS
                .iter()
                .find(|(unit, _)| suffix.len() == 1 && suffix.starts_with(*unit))
                .map(|(_, shift)| *shift)
                .ok_or_else(error)?,
        };
        number
            .checked_mul(1u64 << shift)
            .map(Bytes)
            .ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prints_as_people_write() {
        // Python's tests read the same table.
        let table = include_str!("../../../fixtures/sizes.tsv");
        let rows = table.lines().filter(|line| !line.starts_with('#'));
        for row in rows {
            let (n, text) = row.split_once('\t').unwrap();
            assert_eq!(Bytes(n.parse().unwrap()).to_string(), text, "{n}");
        }
        assert_eq!(format!("{:#}", Bytes(2 << 20)), "2097152");
        assert_eq!(format!("{:>6}", Bytes(2 << 20)), "    2M");
    }

    #[test]
    fn reads_what_people_write() {
        for text in ["2M", "2m", "2MB", "2MiB", "2048K", "2097152", " 2M "] {
            assert_eq!(text.parse(), Ok(Bytes(2 << 20)), "{text}");
        }
        for text in [
            "",
            "M",
            "2X",
            "2.5M",
            "-1",
            "99999999999999999999",
            "99999999999E",
            "2KM",
        ] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(Bytes(1).share_of(Bytes(4)), Some(0.25));
        assert_eq!(Bytes(1).share_of(Bytes(0)), None);
        assert_eq!(Bytes(10).scaled(Bytes(2), Bytes(3)), Bytes(6));
        assert_eq!(
            Bytes(u64::MAX).scaled(Bytes(u64::MAX), Bytes(u64::MAX)),
            Bytes(u64::MAX)
        );
        assert_eq!(Bytes(u64::MAX).scaled(Bytes(2), Bytes(1)), Bytes(u64::MAX));
        assert_eq!(Bytes(10).scaled(Bytes(2), Bytes(0)), Bytes(0));
    }

    proptest! {
        #[test]
        fn whole_units_come_back(n in 1u64..1024, unit in 0usize..6) {
            let (letter, shift) = UNITS[unit];
            if let Some(bytes) = n.checked_mul(1 << shift) && bytes >> shift == n {
                let text = format!("{n}{letter}");
                prop_assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)));
                prop_assert_eq!(Bytes(bytes).to_string(), text);
            }
        }

        #[test]
        fn never_panics(text in ".*") {
            let _ = text.parse::<Bytes>();
        }
    }
}
