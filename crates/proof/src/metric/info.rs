//! The small texts that metrics are read from: Redis's INFO, a command's output. Pure.

/// A text that does not hold the number asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseInfoError {
    /// No such line.
    #[error("INFO has no line {0}")]
    NoField(String),
    /// The line's value is not a number.
    #[error("{0} is {1:?}, not a number")]
    NotANumber(String, String),
    /// Nothing was printed.
    #[error("printed nothing")]
    Nothing,
}

/// The number in the line `name:number` of a text as Redis's INFO gives it.
///
/// # Errors
/// See [`ParseInfoError`].
pub fn info_field(text: &str, name: &str) -> Result<f64, ParseInfoError> {
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
        .ok_or_else(|| ParseInfoError::NoField(name.to_owned()))?;
    finite(value).ok_or_else(|| ParseInfoError::NotANumber(name.to_owned(), shorten(value)))
}

/// The number that stands last in what a command printed.
///
/// # Errors
/// See [`ParseInfoError`].
pub fn last_number(text: &str) -> Result<f64, ParseInfoError> {
    let word = text.split_whitespace().next_back();
    let word = word.ok_or(ParseInfoError::Nothing)?;
    finite(word).ok_or_else(|| ParseInfoError::NotANumber("the output's end".into(), shorten(word)))
}

fn finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|v: &f64| v.is_finite())
}

fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_info() {
        let text = "# Stats\r\ntotal_connections_received:3\r\ntotal_commands_processed:42\r\n";
        assert_eq!(info_field(text, "total_commands_processed"), Ok(42.0));
        assert!(matches!(
            info_field(text, "total"),
            Err(ParseInfoError::NoField(_))
        ));
        assert!(matches!(
            info_field("a:b", "a"),
            Err(ParseInfoError::NotANumber(..))
        ));
    }

    #[test]
    fn reads_what_commands_print() {
        assert_eq!(last_number("42\n"), Ok(42.0));
        assert_eq!(last_number("requests done: 1.5e3\n\n"), Ok(1500.0));
        assert_eq!(last_number(" \n"), Err(ParseInfoError::Nothing));
        for bad in ["12 apples", "nan", "inf"] {
            assert!(
                matches!(last_number(bad), Err(ParseInfoError::NotANumber(..))),
                "{bad}"
            );
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", name in ".*") {
            let _ = info_field(&text, &name);
            let _ = last_number(&text);
        }

        #[test]
        fn numbers_come_back(n in 0u32.., before in "[a-z\r\n#]*") {
            let text = format!("{before}\r\nx_total:{n}\r\ny:1");
            prop_assert_eq!(info_field(&text, "x_total"), Ok(f64::from(n)));
            prop_assert_eq!(last_number(&format!("{before} {n}\n")), Ok(f64::from(n)));
        }
    }
}
