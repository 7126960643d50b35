//! Parses sizes in workload files, and defines the files' errors.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use hugeleaf_units::Bytes;
use hugeleaf_units::deserialize::checked;
use serde::{Deserialize, Deserializer};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SizeSpec {
    Bytes(Bytes),
    /// A fraction of the usable memory, from 0 to 1.
    Part(f64),
}

impl SizeSpec {
    /// Returns the size in bytes, with `most` as the usable memory.
    pub fn resolve(self, most: Bytes) -> Bytes {
        match self {
            SizeSpec::Bytes(bytes) => bytes,
            #[allow(clippy::cast_possible_truncation)]
            // A part of a host's memory is far below 2^52 bytes.
            SizeSpec::Part(part) => Bytes((most.get() as f64 * part) as u64),
        }
    }
}

impl FromStr for SizeSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeSpec, String> {
        let Some(percent) = text.strip_suffix('%') else {
            let bytes: Result<Bytes, _> = text.parse();
            return bytes
                .map(SizeSpec::Bytes)
                .map_err(|_| format!("'{text}' is neither a size (1G) nor a percentage (10%)"));
        };
        let part = percent.trim().parse::<f64>().ok();
        match part.filter(|part| (0.0..=100.0).contains(part)) {
            Some(part) => Ok(SizeSpec::Part(part / 100.0)),
            None => Err(format!("'{text}' is not a percentage from 0% to 100%")),
        }
    }
}

impl<'de> Deserialize<'de> for SizeSpec {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SizeSpec, D::Error> {
        checked(from, SizeSpec::from_str)
    }
}

impl fmt::Display for SizeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeSpec::Bytes(bytes) => bytes.fmt(f),
            SizeSpec::Part(part) => write!(f, "{:.0}%", part * 100.0),
        }
    }
}

pub(super) type SpannedError = (Range<usize>, String);

pub(super) fn wrong<T>(span: Range<usize>, what: impl Into<String>) -> Result<T, SpannedError> {
    Err((span, what.into()))
}
