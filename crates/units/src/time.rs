//! One parser for times, and the formats in which screens show them.

use std::time::Duration;

/// Parses `500ms`, `2s`, `3m`, `6h`, `7d` or a plain number of seconds. Fractions are allowed; zero is not.
///
/// # Errors
/// Names the rejected text and the accepted formats.
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

/// Serializes a time as a number of seconds, as everywhere in JSON: `#[serde(with = "hugeleaf_units::time::seconds")]`.
pub mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    /// # Errors
    /// Errors of the deserializer; a number that is negative or not finite.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
    }
}

/// Formats a measured time with three significant digits, in minutes from 90 s on: `1.93 s`, `312 µs`, `3.3 min`.
pub fn measured(seconds: f64) -> String {
    let (factor, unit) = match seconds.abs() {
        s if s >= 90.0 => return minutes(seconds),
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e3, "ms"),
        s if s >= 1e-6 => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    let value = seconds * factor;
    match value.abs() {
        v if v >= 100.0 => format!("{:.0} {unit}", value.round()),
        v if v >= 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

/// Formats whole seconds, or minutes with one decimal from 90 s on: `45 s`, `3.3 min`.
pub fn minutes(seconds: f64) -> String {
    if seconds < 90.0 {
        return format!("{seconds:.0} s");
    }
    match seconds / 60.0 {
        long if long >= 1e15 => format!("{long:.2e} min"),
        minutes => format!("{minutes:.1} min"),
    }
}

/// Formats a time for a table: `500 ms`, `1.5 s`, `12 µs`. Zero is `0 ms`, a non-finite time is `-`.
pub fn coarse(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "-".to_owned(),
        s if s >= 600.0 => format!("{:.0} min", s / 60.0),
        s if s >= 1.0 => format!("{} s", format!("{s:.1}").trim_end_matches(".0")),
        s if s >= 1e-3 || s <= 0.0 => format!("{:.0} ms", s * 1e3),
        s if s >= 1e-6 => format!("{:.0} µs", s * 1e6),
        s => format!("{:.0} ns", s * 1e9),
    }
}

/// Formats a duration of work: `870 µs`, `12 ms`, `3.1 s`, `45 s`, `12 min`.
pub fn format_elapsed(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// Returns an age as one whole number, rounded down, and its unit: `(45, "s")`, `(12, "min")`, `(3, "h")`.
pub fn age(seconds: u64) -> (u64, &'static str) {
    match seconds {
        s @ ..120 => (s, "s"),
        s @ 120..7200 => (s / 60, "min"),
        s => (s / 3600, "h"),
    }
}

/// Formats a kernel interval in its two largest units, minutes rounded up: `10 s`, `4 min`, `2 h 30 min`.
pub fn interval(seconds: u64) -> String {
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Formats whole seconds in two units: `40 s`, `1 min 40 s`, `2 h 5 min`.
pub fn exact(seconds: u64) -> String {
    let (first, name, rest, name_of_rest) = match seconds {
        ..60 => (seconds, "s", 0, ""),
        60..3600 => (seconds / 60, "min", seconds % 60, "s"),
        _ => (seconds / 3600, "h", seconds % 3600 / 60, "min"),
    };
    match rest {
        0 => format!("{first} {name}"),
        rest => format!("{first} {name} {rest} {name_of_rest}"),
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

    #[test]
    fn printers() {
        for (seconds, text) in [
            (0.0451, "45.1 ms"),
            (0.000_002, "2.00 µs"),
            (0.0, "0.00 ns"),
            (-0.312, "-312 ms"),
            (12.34, "12.3 s"),
            (200.0, "3.3 min"),
        ] {
            assert_eq!(measured(seconds), text);
        }
        for (seconds, text) in [
            (0.0, "0 ms"),
            (0.000_012, "12 µs"),
            (0.5, "500 ms"),
            (1.5, "1.5 s"),
            (599.0, "599 s"),
            (600.0, "10 min"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(coarse(seconds), text);
        }
        for (seconds, text) in [
            (0.000_87, "870 µs"),
            (0.012, "12 ms"),
            (3.12, "3.1 s"),
            (45.0, "45 s"),
            (720.0, "12 min"),
        ] {
            assert_eq!(format_elapsed(seconds), text);
        }
        assert_eq!(
            [age(119), age(120), age(7200)],
            [(119, "s"), (2, "min"), (2, "h")]
        );
        assert_eq!(
            [exact(0), exact(100), exact(120), exact(7500), exact(7205)],
            ["0 s", "1 min 40 s", "2 min", "2 h 5 min", "2 h"]
        );
        assert_eq!(
            [interval(10), interval(61), interval(9000)],
            ["10 s", "2 min", "2 h 30 min"]
        );
    }
}
