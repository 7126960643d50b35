use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bytes::saturating;
use crate::{Bytes, ParseError};

/// The size of a page in bytes: a power of two. The available sizes are a fact about a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes")]
pub struct PageSize(u64);

fn no_size(text: impl fmt::Display) -> ParseError {
    ParseError(format!(
        "'{text}' is not a page size; write a power of two, as in 64K, 2M or 1G"
    ))
}

impl PageSize {
    /// Creates a page size of `bytes`.
    ///
    /// # Errors
    /// `bytes` is not a power of two.
    pub fn new(bytes: Bytes) -> Result<PageSize, ParseError> {
        match bytes.0.is_power_of_two() {
            true => Ok(PageSize(bytes.0)),
            false => Err(no_size(format_args!("{bytes:#}"))),
        }
    }

    /// Returns the size in bytes; never 0.
    pub const fn bytes(self) -> Bytes {
        Bytes(self.0)
    }

    /// True if an address or a length is a multiple of this size.
    pub const fn divides(self, n: u64) -> bool {
        n & (self.0 - 1) == 0
    }

    /// Returns the largest multiple that is at most `n`.
    pub const fn round_down(self, n: u64) -> u64 {
        n & !(self.0 - 1)
    }

    /// Returns the smallest multiple that is at least `n`. `None` if that exceeds 2^64 - 1.
    pub const fn round_up(self, n: u64) -> Option<u64> {
        match n.checked_add(self.0 - 1) {
            Some(sum) => Some(self.round_down(sum)),
            None => None,
        }
    }

    /// Returns the number of pages of this size that hold `bytes`, rounded up.
    pub const fn pages_for(self, bytes: Bytes) -> Pages {
        Pages(bytes.0.div_ceil(self.0))
    }

    /// Returns the number of pages of size `smaller` in this page size; 0 if `smaller` is larger.
    pub const fn ratio_to(self, smaller: PageSize) -> u64 {
        self.0 / smaller.0
    }
}

impl TryFrom<Bytes> for PageSize {
    type Error = ParseError;
    fn try_from(bytes: Bytes) -> Result<PageSize, ParseError> {
        PageSize::new(bytes)
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

impl FromStr for PageSize {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<PageSize, ParseError> {
        let bytes: Bytes = text.parse().map_err(|_| no_size(text))?;
        PageSize::new(bytes).map_err(|_| no_size(text))
    }
}

/// A number of pages, of a size given by the context.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Pages(pub u64);

impl Pages {
    /// Returns the number of pages.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the size in bytes of this number of pages of `size`. Saturates.
    pub const fn in_bytes(self, size: PageSize) -> Bytes {
        Bytes(self.0.saturating_mul(size.0))
    }
}

saturating!(Pages);

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

crate::named! {
    /// The mechanism that provides a page.
    #[derive(Deserialize)]
    pub enum PageKind {
        /// Base pages, the kernel's smallest size.
        Base = "base",
        /// Transparent huge pages of any order. The smaller orders are called mTHP.
        Thp = "thp",
        /// The reserved pool (hugetlb).
        Hugetlb = "hugetlb",
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two() {
        assert!(PageSize::new(Bytes(0)).is_err());
        assert!(PageSize::new(Bytes(3)).is_err());
        assert_eq!("64K".parse::<PageSize>().unwrap().bytes(), Bytes(65536));
        assert!("65K".parse::<PageSize>().is_err());
        assert_eq!("2M".parse::<PageSize>().unwrap().to_string(), "2M");
    }

    #[test]
    fn rounding() {
        let p: PageSize = "16K".parse().unwrap();
        assert_eq!(p.round_down(16385), 16384);
        assert_eq!(p.round_up(16385), Some(32768));
        assert_eq!(p.round_up(u64::MAX), None);
        assert_eq!(p.pages_for(Bytes(1)), Pages(1));
        assert_eq!(Pages(3).in_bytes(p), Bytes(49152));
        assert!(p.divides(32768) && !p.divides(4096));
        assert_eq!("2M".parse::<PageSize>().unwrap().ratio_to(p), 128);
    }
}
