//! Times as people write them.

use std::time::Duration;

/// Reads `500ms`, `2s`, `3m`, `6h`, `7d` or a plain number of seconds; fractions too. Above zero.
///
/// # Errors
/// What was written, and what may be.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let error = || format!("'{text}' is not a time; write 500ms, 2s, 3m, 6h or 7d");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| error())?;
    let seconds = match &text[digits..] {
        "ms" => number / 1000.0,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return Err(error()),
    };
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| error())?;
    if time.is_zero() {
        Err(error())
    } else {
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, millis) in [
            ("500ms", 500),
            ("1.5s", 1500),
            ("3m", 180_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(
                parse_time(text).unwrap(),
                Duration::from_millis(millis),
                "{text}"
            );
        }
        for text in ["", "s", "0", "-1s", "1y", "1e400s", "."] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
