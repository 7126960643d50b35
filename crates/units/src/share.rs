//! A share of something, as in `10%`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A share, 0.0 or more: `10%` is 0.1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
pub struct Share(
    /// The share: 1.0 is all.
    pub f64,
);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounded to three decimals, which is more than users enter.
        write!(f, "{}%", (self.0 * 1e5).round() / 1e3)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let number = text
            .trim()
            .strip_suffix('%')
            .and_then(|t| t.trim().parse::<f64>().ok());
        match number.filter(|n| n.is_finite() && (0.0..=1e6).contains(n)) {
            Some(percent) => Ok(Share(percent / 100.0)),
            None => Err(format!("'{text}' is not a percentage, as in 10% or 0.5%")),
        }
    }
}
