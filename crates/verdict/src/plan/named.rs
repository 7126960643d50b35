//! Names as a plan may hold them: of users, units and variables.

use regex::Regex;

pub(super) fn is(text: &str, pattern: &str) -> bool {
    Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|whole| whole.is_match(text))
}

/// Nothing where a value is as it must be, else what is wrong with it.
pub(super) fn need(is_good: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if is_good { Ok(()) } else { Err(wrong()) }
}

/// A user as limits.conf(5) takes one: no wildcard, no group.
pub(super) fn is_user(text: &str) -> Result<(), String> {
    need(is(text, "[A-Za-z0-9_][A-Za-z0-9_.$-]*"), || {
        format!("'{text}' is no name of a user")
    })
}

/// A service's unit: its name becomes a folder's.
pub(super) fn is_unit(text: &str) -> Result<(), String> {
    let is_folder = matches!(text, "..service" | "...service");
    need(
        is(text, r"[A-Za-z0-9:_.\\@-]+\.service") && !is_folder,
        || format!("'{text}' is no service of systemd; expected a name as in redis.service"),
    )
}

/// `NAME=value` as `Environment=` takes it between double quotes.
pub(super) fn is_variable(text: &str) -> Result<(), String> {
    is_text(text)?;
    need(is(text, r#"[A-Za-z_][A-Za-z0-9_]*=[^"\\%]*"#), || {
        format!("'{text}' is no variable; expected NAME=value without quotes, \\ and %")
    })
}

/// Words end up in comments of files, one a line: a line break would end the comment.
pub(super) fn is_text(text: &str) -> Result<(), String> {
    match text.chars().find(|c| c.is_control()) {
        None => Ok(()),
        Some(c) => Err(format!("{c:?} in a text; expected a single line")),
    }
}
