//! Names as a plan may hold them: of users, units and variables.

/// A user as limits.conf(5) takes one: no wildcard, no group.
pub(super) fn is_user(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.$".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    match begins && text.chars().all(plain) {
        true => Ok(()),
        false => Err(format!("'{text}' is no name of a user")),
    }
}

/// A service's unit: its name becomes a folder's.
pub(super) fn is_unit(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let named = text
        .strip_suffix(".service")
        .is_some_and(|n| !n.is_empty() && n != "." && n != "..");
    match named && text.chars().all(plain) {
        true => Ok(()),
        false => Err(format!(
            "'{text}' is no service of systemd; expected a name as in redis.service"
        )),
    }
}

/// `NAME=value` as `Environment=` takes it between double quotes.
pub(super) fn is_variable(text: &str) -> Result<(), String> {
    is_text(text)?;
    let name = text.split_once('=').map_or("", |(name, _)| name);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let named = !name.is_empty() && name.chars().all(plain) && !name.starts_with(char::is_numeric);
    match named && !text.contains(['"', '\\', '%']) {
        true => Ok(()),
        false => Err(format!(
            "'{text}' is no variable; expected NAME=value without quotes, \\ and %"
        )),
    }
}

/// Words end up in comments of files, one a line: a line break would end the comment.
pub(super) fn is_text(text: &str) -> Result<(), String> {
    match text.chars().find(|c| c.is_control()) {
        None => Ok(()),
        Some(c) => Err(format!("{c:?} in a text; expected a single line")),
    }
}
