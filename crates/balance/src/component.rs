//! What takes part: components, and what a granule more or less would bring each.

use std::fmt;
use std::num::NonZeroU64;

use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

/// What a component's size is a multiple of, and what it is resized by: a page of an elastic, a chunk of a buffer
/// pool (`innodb_buffer_pool_chunk_size`). Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Granule(NonZeroU64);

/// A granule of 0 bytes, of which no component can have any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoGranule;

impl fmt::Display for NoGranule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a granule of 0 bytes; give the size in which the component is resized")
    }
}

impl std::error::Error for NoGranule {}

impl Granule {
    /// A granule of that many bytes.
    ///
    /// # Errors
    /// [`NoGranule`] of 0 bytes.
    pub fn new(bytes: Bytes) -> Result<Granule, NoGranule> {
        NonZeroU64::new(bytes.0).map(Granule).ok_or(NoGranule)
    }

    /// Its size.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0.get())
    }

    /// The largest multiple that is not above `bytes`.
    #[must_use]
    pub const fn round_down(self, bytes: Bytes) -> Bytes {
        Bytes(bytes.0 - bytes.0 % self.0.get())
    }

    /// The smallest multiple that is not below `bytes`; the largest there is where that is past 2^64.
    #[must_use]
    pub fn round_up(self, bytes: Bytes) -> Bytes {
        let over = self.round_down(bytes);
        match over == bytes {
            true => bytes,
            false => self.round_down(over + self.bytes()),
        }
    }

    /// How many of them `bytes` are, with fractions.
    pub fn count(self, bytes: Bytes) -> f64 {
        bytes.as_f64() / self.bytes().as_f64()
    }
}

impl TryFrom<Bytes> for Granule {
    type Error = NoGranule;
    fn try_from(bytes: Bytes) -> Result<Granule, NoGranule> {
        Granule::new(bytes)
    }
}

impl From<Granule> for Bytes {
    fn from(granule: Granule) -> Bytes {
        granule.bytes()
    }
}

/// Something measured, with how sure it is. What is no number counts as nothing gained and everything lost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// Seconds a second per granule (or another cost, the same for all components). Not negative.
    pub value: f64,
    /// One standard error of it.
    pub error: f64,
    /// How many events it is from; older ones count less.
    pub samples: f64,
}

impl Estimate {
    /// What it is at least: one standard error less; never below 0.
    pub fn low(&self) -> f64 {
        let low = self.value - self.error.max(0.0);
        if low.is_finite() { low.max(0.0) } else { 0.0 }
    }

    /// What it is at most: one standard error more; infinite where it is no number.
    pub fn high(&self) -> f64 {
        let high = self.value.max(0.0) + self.error.max(0.0);
        match self.value.is_nan() || self.error.is_nan() {
            true => f64::INFINITY,
            false => high,
        }
    }
}

/// What more or less memory would bring a component: smoothed over time by whoever measured it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Benefit {
    /// What a granule more would save; `None` where nobody has measured it.
    pub more: Option<Estimate>,
    /// What a granule less would cost, from what the last granules really did (hits in them), not from a forecast: it
    /// is what a move is judged by afterwards. `None` where nobody has measured it.
    pub less: Option<Estimate>,
    /// What it loses altogether, in seconds a second (misses × the cost of one). Not a benefit: it only says whether
    /// it is worth a try where `more` is unknown. 0: none, or it is not to be tried.
    pub pressure: f64,
}

/// A component as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// Its name, which no other has.
    pub name: String,
    /// It is never made smaller than this.
    #[serde(rename = "least_bytes")]
    pub least: Bytes,
    /// It is never made larger than this.
    #[serde(rename = "most_bytes")]
    pub most: Bytes,
    /// The size that it is set to, as it says itself.
    #[serde(rename = "now_bytes")]
    pub now: Bytes,
    /// What it was found to hold of the memory that `now` is about (granules of an elastic, resident memory less what
    /// is there at any size, rounded to the granule); `None` where nobody looked. More than a granule above `now` is
    /// a lie.
    #[serde(rename = "measured_bytes")]
    pub measured: Option<Bytes>,
    /// What it is resized by.
    #[serde(rename = "granule_bytes")]
    pub granule: Granule,
    /// Whether it may be resized now.
    pub resizable: bool,
    /// What more or less would bring it.
    pub benefit: Benefit,
}

impl Component {
    /// What it counts as: what it says or what was found, whichever is more.
    pub fn held(&self) -> Bytes {
        self.now.max(self.measured.unwrap_or(Bytes::ZERO))
    }

    /// How much can be taken from it, in its granules.
    pub fn surplus(&self) -> Bytes {
        self.granule.round_down(self.now - self.least)
    }

    /// How much can be given to it, in its granules.
    pub fn room(&self) -> Bytes {
        self.granule.round_down(self.most - self.now)
    }

    /// Whether more was found than it says, by more than a granule.
    pub fn lies(&self) -> bool {
        let found = self.measured.unwrap_or(Bytes::ZERO);
        found > self.now + self.granule.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn granules_round_and_are_never_empty() {
        assert_eq!(Granule::new(Bytes::ZERO), Err(NoGranule));
        assert!(serde_json::from_str::<Granule>("0").is_err());
        let granule = Granule::new(Bytes(6)).unwrap();
        assert_eq!(granule.round_down(Bytes(17)), Bytes(12));
        assert_eq!(granule.round_up(Bytes(13)), Bytes(18));
        assert_eq!(granule.round_up(Bytes(12)), Bytes(12));
        let highest = granule.round_up(Bytes(u64::MAX));
        assert_eq!(highest.0 % 6, 0);
    }

    #[test]
    fn what_is_no_number_gains_nothing_and_loses_everything() {
        for (value, error) in [(f64::NAN, 0.0), (1.0, f64::NAN), (f64::INFINITY, 1.0)] {
            let estimate = Estimate {
                value,
                error,
                samples: 1.0,
            };
            assert!(estimate.low() < f64::INFINITY, "{value} {error}");
            assert!(estimate.high() >= 1.0, "{value} {error}");
        }
        let estimate = Estimate {
            value: -3.0,
            error: 1.0,
            samples: 1.0,
        };
        assert_eq!((estimate.low(), estimate.high()), (0.0, 1.0));
    }
}
