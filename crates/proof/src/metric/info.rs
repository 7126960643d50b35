//! The small texts that metrics are read from: Redis's INFO, a command's output. Pure.

/// The number in the line `name:number` of a text as Redis's INFO gives it.
///
/// # Errors
/// What the text has instead.
pub fn info_field(text: &str, name: &str) -> Result<f64, String> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    let value = value.ok_or_else(|| format!("INFO has no line {name}"))?;
    finite(name, value)
}

/// The number that stands last in what a command printed.
///
/// # Errors
/// What it printed instead.
pub fn last_number(text: &str) -> Result<f64, String> {
    let word = text.split_whitespace().next_back();
    finite("the output's end", word.ok_or("printed nothing")?)
}

fn finite(what: &str, text: &str) -> Result<f64, String> {
    let number = text.trim().parse().ok().filter(|v: &f64| v.is_finite());
    let short = || text.chars().take(60).collect::<String>();
    number.ok_or_else(|| format!("{what} is {:?}, not a number", short()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_info() {
        let text = "# Stats\r\ntotal_connections_received:3\r\ntotal_commands_processed:42\r\n";
        assert_eq!(info_field(text, "total_commands_processed"), Ok(42.0));
        let error = |text, name| info_field(text, name).unwrap_err();
        assert_eq!(error(text, "total"), "INFO has no line total");
        assert_eq!(error("a:b", "a"), "a is \"b\", not a number");
    }

    #[test]
    fn reads_what_commands_print() {
        assert_eq!(last_number("42\n"), Ok(42.0));
        assert_eq!(last_number("requests done: 1.5e3\n\n"), Ok(1500.0));
        assert_eq!(last_number(" \n"), Err("printed nothing".to_owned()));
        for bad in ["12 apples", "nan", "inf"] {
            let error = last_number(bad).unwrap_err();
            assert!(error.ends_with("not a number"), "{bad}: {error}");
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
