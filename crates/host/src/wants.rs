//! Settings that running programs want. `hugeleaf_verdict::check` knows them; here they are facts that each advice is
//! checked against.

use std::fmt;

/// A setting that a running program wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The program's name on screens.
    pub who: String,
    /// The file of the setting.
    pub file: String,
    pub values: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// One of these values, best first.
    OneOf(Vec<String>),
    AtMost(u64),
    AtLeast(u64),
}

impl Wanted {
    /// Returns the values at its edges. If several wants share a value, they share one of these.
    pub fn edges(&self) -> Vec<String> {
        match self {
            Wanted::OneOf(values) => values.clone(),
            Wanted::AtLeast(edge) | Wanted::AtMost(edge) => vec![edge.to_string()],
        }
    }

    pub fn allows(&self, value: &str) -> bool {
        let number = value.parse::<u64>().ok();
        match self {
            Wanted::OneOf(values) => values.iter().any(|v| v == value),
            Wanted::AtMost(most) => number.is_some_and(|n| n <= *most),
            Wanted::AtLeast(least) => number.is_some_and(|n| n >= *least),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::OneOf(values) => f.write_str(&values.join(" or ")),
            Wanted::AtLeast(least) => write!(f, "at least {least}"),
            Wanted::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}
