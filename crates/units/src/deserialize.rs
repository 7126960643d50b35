//! Values that configuration files write as strings.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::parse_time;

/// Parses and checks a value that is written as a string.
///
/// # Errors
/// Those of the deserializer, and those of `test`.
pub fn checked<'de, D: Deserializer<'de>, T>(
    from: D,
    test: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    test(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// Parses an optional value that is written as a string.
///
/// # Errors
/// Those of the deserializer, and those of the value's [`FromStr`].
pub fn some<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    checked(from, |text| {
        text.parse().map(Some).map_err(|e: T::Err| e.to_string())
    })
}

/// Parses a time, as in `5s`.
///
/// # Errors
/// Those of the deserializer, and of [`parse_time`].
pub fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    checked(from, parse_time)
}
