//! Numbers and times in readable form.

use std::fmt::Display;

/// Formats a ratio to the percent.
pub(crate) fn ratio(value: f64) -> String {
    if !(0.1..10.0).contains(&value) {
        return number(value);
    }
    format!("{value:.2}")
}

/// Numbers from here on are written with an exponent.
const LONG: f64 = 1e15;

/// Formats a number with about four significant digits, and thousands separators from 10,000 on.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        s if s == 0.0 || (1000.0..LONG).contains(&s) || !s.is_finite() => 0,
        s if s >= LONG => return format!("{value:.2e}"),
        s if s >= 100.0 => 1,
        s if s >= 10.0 => 2,
        s if s >= 0.01 => 3,
        _ => return format!("{value:.2e}"),
    };
    let text = format!("{value:.decimals$}");
    if size >= 10_000.0 && value.is_finite() {
        return thousands(&text);
    }
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

pub(crate) fn thousands(digits: &str) -> String {
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        let left = digits.len() - i;
        if i > 0 && left.is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats a count with its noun: `1 node`, `2 nodes`.
pub fn counted<N: Display + PartialEq + From<u8>>(n: N, what: &str) -> String {
    let s = if n == N::from(1) { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// Joins items after an introduction; empty without items.
pub fn listed<T: ToString>(before: &str, items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.is_empty() {
        true => String::new(),
        false => format!("{before}{}", items.join(", ")),
    }
}

/// Formats three significant digits: `1.93`, `312`.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => number(value.round()),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_012, "1.20e-5"),
            (0.25, "0.25"),
            (3.0, "3"),
            (12.345, "12.35"),
            (1234.5, "1234"),
            (12_345.0, "12,345"),
            (-1_234_567.0, "-1,234,567"),
            (2_680_318_123.0, "2,680,318,123"),
            (1e308, "1.00e308"),
            (-2e15, "-2.00e15"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
        assert_eq!(ratio(1.118), "1.12");
        assert_eq!(ratio(12.5), "12.5");
    }
}
