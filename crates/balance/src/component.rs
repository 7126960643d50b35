//! Components, and the benefit of a granule more or less to each.

use std::fmt;
use std::num::NonZeroU64;

use hugeleaf_units::Bytes;
use serde::{Deserialize, Serialize};

/// Unit of a component's size and of its resizes: a page of an elastic, a chunk of a buffer pool
/// (`innodb_buffer_pool_chunk_size`). Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct Granule(NonZeroU64);

/// Error for a granule of 0 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoGranule;

impl fmt::Display for NoGranule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("granule of 0 bytes: give the unit in which the component is resized")
    }
}

impl std::error::Error for NoGranule {}

impl Granule {
    /// Creates a granule of that many bytes.
    ///
    /// # Errors
    /// [`NoGranule`] for 0 bytes.
    pub fn new(bytes: Bytes) -> Result<Granule, NoGranule> {
        NonZeroU64::new(bytes.0).map(Granule).ok_or(NoGranule)
    }

    /// Returns its size in bytes.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0.get())
    }

    /// Returns the largest multiple not above `bytes`.
    #[must_use]
    pub const fn round_down(self, bytes: Bytes) -> Bytes {
        Bytes(bytes.0 - bytes.0 % self.0.get())
    }

    /// Returns the smallest multiple not below `bytes`; the largest possible one if that exceeds 2^64.
    #[must_use]
    pub fn round_up(self, bytes: Bytes) -> Bytes {
        let over = self.round_down(bytes);
        match over == bytes {
            true => bytes,
            false => self.round_down(over + self.bytes()),
        }
    }

    /// Returns the number of granules in `bytes`, with fractions.
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

/// A measured value with its uncertainty. NaN counts as no gain and as total loss.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// Seconds per second and granule (or another cost, the same for all components). Not negative.
    pub value: f64,
    /// Standard error of the value.
    pub error: f64,
    /// Number of events behind it; older ones count less.
    pub samples: f64,
}

impl Estimate {
    /// Returns the lower bound: one standard error less, and never below 0.
    pub fn low(&self) -> f64 {
        let low = self.value - self.error.max(0.0);
        if low.is_finite() { low.max(0.0) } else { 0.0 }
    }

    /// Returns the upper bound: one standard error more; infinite for NaN.
    pub fn high(&self) -> f64 {
        let high = self.value.max(0.0) + self.error.max(0.0);
        match self.value.is_nan() || self.error.is_nan() {
            true => f64::INFINITY,
            false => high,
        }
    }
}

/// Benefit of more or less memory to a component, smoothed over time by its measurement.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Benefit {
    /// Saving by one granule more; `None` if not measured.
    pub more: Option<Estimate>,
    /// Cost of one granule less, from the measured hits in the last granules and not from a forecast. A move is
    /// judged by it afterwards. `None` if not measured.
    pub less: Option<Estimate>,
    /// Total loss, in seconds per second (misses × the cost of one). It is no benefit, and only tells if a try is
    /// worthwhile while `more` is unknown. 0 means no loss, or no tries.
    pub pressure: f64,
}

/// Current state of a component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Component {
    /// Name, unique among components.
    pub name: String,
    /// Minimum size.
    #[serde(rename = "least_bytes")]
    pub min: Bytes,
    /// Maximum size.
    #[serde(rename = "most_bytes")]
    pub max: Bytes,
    /// Configured size, as reported.
    #[serde(rename = "now_bytes")]
    pub size: Bytes,
    /// Measured memory within `now` (granules of an elastic, or resident memory without overhead, rounded to the
    /// granule); `None` if not measured. More than a granule above `now` contradicts the reported size.
    #[serde(rename = "measured_bytes")]
    pub measured: Option<Bytes>,
    /// Resize step.
    #[serde(rename = "granule_bytes")]
    pub granule: Granule,
    /// True if it may be resized now.
    pub resizable: bool,
    /// Benefit of more or less memory.
    pub benefit: Benefit,
}

impl Component {
    /// Returns the memory that it counts as: the larger of reported and measured size.
    pub fn held(&self) -> Bytes {
        self.size.max(self.measured.unwrap_or(Bytes::ZERO))
    }

    /// Returns the memory that can be taken from it, in its granules.
    pub fn surplus(&self) -> Bytes {
        self.granule.round_down(self.size - self.min)
    }

    /// Returns the memory that can be given to it, in its granules.
    pub fn room(&self) -> Bytes {
        self.granule.round_down(self.max - self.size)
    }

    /// Returns true if its measured memory exceeds the reported size by more than a granule.
    pub fn exceeds_reported(&self) -> bool {
        let found = self.measured.unwrap_or(Bytes::ZERO);
        found > self.size + self.granule.bytes()
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
