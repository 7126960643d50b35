//! Valid names of users, units and variables in a plan.

use regex::Regex;

pub(super) fn is(text: &str, pattern: &str) -> bool {
    Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|whole| whole.is_match(text))
}

/// Returns `Ok` for a valid value, otherwise the defect.
pub(super) fn need(is_good: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if is_good { Ok(()) } else { Err(wrong()) }
}

/// Checks a user for limits.conf(5): no wildcard, no group.
pub(super) fn is_user(text: &str) -> Result<(), String> {
    need(is(text, "[A-Za-z0-9_][A-Za-z0-9_.$-]*"), || {
        format!("'{text}' is not a user name")
    })
}

/// Checks a service's unit, whose name becomes a directory name.
pub(super) fn is_unit(text: &str) -> Result<(), String> {
    let is_folder = matches!(text, "..service" | "...service");
    need(
        is(text, r"[A-Za-z0-9:_.\\@-]+\.service") && !is_folder,
        || format!("'{text}' is not a systemd service; expected a name as in redis.service"),
    )
}

/// Checks `NAME=value` for `Environment=` in double quotes.
pub(super) fn is_variable(text: &str) -> Result<(), String> {
    is_text(text)?;
    need(is(text, r#"[A-Za-z_][A-Za-z0-9_]*=[^"\\%]*"#), || {
        format!("'{text}' is not a variable; expected NAME=value without quotes, \\ or %")
    })
}

/// Checks a text for a comment line in a file, which a line break would end.
pub(super) fn is_text(text: &str) -> Result<(), String> {
    match text.chars().find(|c| c.is_control()) {
        None => Ok(()),
        Some(c) => Err(format!(
            "control character {c:?} in a text; expected a single line"
        )),
    }
}
