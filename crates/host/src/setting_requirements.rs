//! Settings that running programs want. `hugeleaf_verdict::check` knows them; here they are facts that each advice is
//! checked against.

use std::fmt;

/// A setting that a running program wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRequirement {
    /// The program's name on screens.
    pub who: String,
    /// The file of the setting.
    pub file: String,
    pub values: AcceptedValues,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptedValues {
    /// One of these values, best first.
    OneOf(Vec<String>),
    AtMost(u64),
    AtLeast(u64),
}

impl AcceptedValues {
    /// Returns the values at its edges. If several wants share a value, they share one of these.
    pub fn edges(&self) -> Vec<String> {
        match self {
            AcceptedValues::OneOf(values) => values.clone(),
            AcceptedValues::AtLeast(edge) | AcceptedValues::AtMost(edge) => vec![edge.to_string()],
        }
    }

    pub fn allows(&self, value: &str) -> bool {
        let number = value.parse::<u64>().ok();
        match self {
            AcceptedValues::OneOf(values) => values.iter().any(|v| v == value),
            AcceptedValues::AtMost(most) => number.is_some_and(|n| n <= *most),
            AcceptedValues::AtLeast(least) => number.is_some_and(|n| n >= *least),
        }
    }
}

impl fmt::Display for AcceptedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptedValues::OneOf(values) => f.write_str(&values.join(" or ")),
            AcceptedValues::AtLeast(least) => write!(f, "at least {least}"),
            AcceptedValues::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}
