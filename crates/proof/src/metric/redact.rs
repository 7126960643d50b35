//! Display of addresses, never with a password. Each metric parses its own with the parser of its driver, and
//! formats the parts that are not secret. For an unreadable address only its kind is shown. For a metric's command
//! its program is shown, for other commands all but the usual places of passwords.

const HIDDEN: &str = "***";

/// Returns the display form of a text that is not a valid address: the whole text if it has no place for a password,
/// else its kind.
pub(super) fn kind(text: &str) -> String {
    let text = text.trim();
    let may_hide = |c: char| c.is_whitespace() || matches!(c, '@' | '=' | '?' | '\'' | '"' | '%');
    if !text.contains(may_hide) {
        return text.to_owned();
    }
    let is_part = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let kind: String = text.chars().take_while(is_part).take(20).collect();
    match kind.len() == text.len() {
        true => kind,
        false => format!(
            "{kind}{}…",
            if text[kind.len()..].starts_with(':') {
                ":"
            } else {
                ""
            }
        ),
    }
}

/// Returns the host if valid: a password with an unusual character may leave an invalid one.
pub(super) fn host_name(host: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    match host.chars().all(is_part) {
        true => host.to_owned(),
        false => HIDDEN.to_owned(),
    }
}

/// Removes a known secret from an error message.
pub(super) fn redact_secret(text: &str, secret: Option<&str>) -> String {
    match secret.filter(|secret| !secret.is_empty()) {
        Some(secret) => text.replace(secret, HIDDEN),
        None => text.to_owned(),
    }
}

/// Formats a metric's command as `cmd:` and its program, because any word can hold a password. `cat` and a path hold
/// none.
pub(super) fn command(command: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+');
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["cat", path] if path.starts_with('/') && path.chars().all(is_plain) => {
            format!("cmd:cat {path}")
        }
        [program] if program.chars().all(is_plain) => format!("cmd:{program}"),
        [program, ..] if program.chars().all(is_plain) => format!("cmd:{program} …"),
        _ => "cmd:…".to_owned(),
    }
}

/// Hides the parts of a command between `:` and `@` of an address, after `password=` and the names of similar
/// variables, after `-p` of MySQL's programs and after `-a` of redis-cli. Best effort: the rest of a command is
/// shown, so a password is safer in a file.
pub fn redact(text: &str) -> String {
    let mut out = authorities(text);
    for name in ["password", "passwd", "pwd", "auth", "secret", "token"] {
        out = assigned(&out, name);
    }
    let is_mysql = ["mysql", "mariadb"].iter().any(|name| out.contains(name));
    if is_mysql {
        out = flagged(&out, " -p");
    }
    if out.contains("redis-cli") {
        out = flagged(&out, " -a ");
    }
    out
}

/// Hides the passwords of all `scheme://user:password@host`.
fn authorities(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out += before;
        let word = after
            .find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"'))
            .unwrap_or(after.len());
        let (address, behind) = after.split_at(word);
        match (address.rfind('@'), address.find(':')) {
            (Some(end), Some(colon)) if colon < end => {
                out += &format!("{}:{HIDDEN}{}", &address[..colon], &address[end..]);
            }
            _ => out += address,
        }
        rest = behind;
    }
    out + rest
}

/// Hides the value after `name` and an equals sign.
fn assigned(text: &str, name: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.to_ascii_lowercase().find(name) {
        let (before, after) = rest.split_at(at + name.len());
        out += before;
        let value = after.trim_start();
        rest = match value.strip_prefix('=') {
            Some(value) => {
                let value = value.trim_start();
                out += &format!("={HIDDEN}");
                &value[length_of_value(value)..]
            }
            None => after,
        };
    }
    out + rest
}

fn flagged(text: &str, flag: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(flag) {
        let (before, value) = rest.split_at(at + flag.len());
        out += before;
        let length = length_of_value(value);
        if length > 0 {
            out += HIDDEN;
        }
        rest = &value[length..];
    }
    out + rest
}

/// Returns the length of a value: up to a blank or the end of an address part, unless quoted or after a backslash.
fn length_of_value(text: &str) -> usize {
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (_, '\\') => {
                chars.next();
            }
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, c) if c.is_whitespace() || matches!(c, '&' | '#' | ';') => return at,
            (None, _) => {}
        }
    }
    text.len()
}
