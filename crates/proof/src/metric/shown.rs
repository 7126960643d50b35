//! What is shown of an address: never a password. Each metric reads its own with the parser of the driver
//! that gets it, and puts it together again from the parts that are no secret; of one that cannot be read
//! only its kind is shown. Of commands the usual places of passwords are left out.

use super::spec::MetricSpec;

/// In place of a secret.
const HIDDEN: &str = "***";

/// A metric as it may be shown, from what a person typed after `--metric`.
pub fn shown(text: &str) -> String {
    text.parse::<MetricSpec>()
        .map_or_else(|_| kind(text), |spec| spec.shown().to_owned())
}

/// The words of a command line, as they may be shown and kept.
pub fn shown_command(words: &[String]) -> Vec<String> {
    let mut is_value = false;
    let mut shown_word = |word: &String| {
        let is_metric = std::mem::replace(&mut is_value, is_address(word));
        match word.split_once('=') {
            _ if is_metric => shown(word),
            Some((flag, value)) if is_address(flag) => format!("{flag}={}", shown(value)),
            _ => redact(word),
        }
    };
    words.iter().map(&mut shown_word).collect()
}

/// Whether a flag takes an address as metrics do.
fn is_address(flag: &str) -> bool {
    matches!(flag, "--metric" | "--database")
}

/// What is shown of a text that is none of the addresses, or a broken one: all of it where it has no place
/// for a password, else its kind.
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

/// A host, where it is one: what a password with an odd character leaves in its place is none.
pub(super) fn host_name(host: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    match host.chars().all(is_part) {
        true => host.to_owned(),
        false => HIDDEN.to_owned(),
    }
}

/// What an error says, without a secret that is known.
pub(super) fn without(text: &str, secret: Option<&str>) -> String {
    match secret.filter(|secret| !secret.is_empty()) {
        Some(secret) => text.replace(secret, HIDDEN),
        None => text.to_owned(),
    }
}

/// A command, without what stands between `:` and `@` of an address, behind `password=` and the names
/// of variables like it, behind `-p` of MySQL's programs and behind `-a` of redis-cli. Best effort: what else a
/// command says is shown, so a password is better in a file.
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

/// Hides what stands behind `name` and an equals sign.
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

/// Hides the word behind a flag.
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

/// How long a value is: up to a blank or what ends it in an address, unless it is in quotes or behind a
/// backslash.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_secret_is_shown() {
        for (text, want) in [
            (
                "postgres:host=h password=se user=x",
                "postgres:host=h user=x",
            ),
            ("postgres:password = 'a b' host=h", "postgres:host=h"),
            (r"postgres:password='it\'s a b' host=h", "postgres:host=h"),
            (
                r"postgres:host=h password=a\ b dbname=d",
                "postgres:host=h dbname=d",
            ),
            (
                "postgres://u:se%2Fcr%40t@h:5433/db",
                "postgres:host=h port=5433 user=u dbname=db",
            ),
            (
                "postgres:host=/run/pg dbname='a b'",
                "postgres:host=/run/pg dbname='a b'",
            ),
            ("postgres:host=h password=my secret", "postgres:…"),
            (
                "postgres://u:p@ss@h/db",
                "postgres:host=*** user=u dbname=db",
            ),
            ("redis://:se@h:1", "redis://h:1"),
            ("redis://me:se@h:1/3", "redis://me@h:1/3"),
            ("redis:/run/redis.sock", "unix:///run/redis.sock"),
            ("redis:h:1?x", "redis://h:1"),
            ("mysql://root@h", "mysql://root@h"),
            (
                "mysql:root:s%40e@h:3307/d#Com_commit",
                "mysql://root@h:3307/d#Com_commit",
            ),
            (
                "mysql:/run/my.sock",
                "mysql://localhost?socket=/run/my.sock",
            ),
            (
                "http://u:se@h:9/m?token=se#a_total",
                "http://h:9/m?…#a_total",
            ),
            (
                "gauge:lower:http://u:se@h:9/m#a",
                "gauge:lower:http://h:9/m#a",
            ),
            ("cmd:echo 1", "cmd:echo 1"),
            ("cpi", "cpi"),
            ("tps", "tps"),
            ("oracle:u/se@h", "oracle:…"),
            ("gauge:cmd:true", "gauge:cmd:true"),
            ("https://u:se@h/x#a", "https:…"),
        ] {
            assert_eq!(shown(text), want, "{text}");
        }
    }

    #[test]
    fn commands_lose_their_passwords() {
        for (text, want) in [
            ("psql 'host=h password=se'", "psql 'host=h password=***"),
            ("PGPASSWORD=se psql -c x", "PGPASSWORD=*** psql -c x"),
            ("MYSQL_PWD='a b' mysql", "MYSQL_PWD=*** mysql"),
            ("mysql -uroot -pse -e x", "mysql -uroot -p*** -e x"),
            ("redis-cli -a se info", "redis-cli -a *** info"),
            ("curl http://u:se@h/x", "curl http://u:***@h/x"),
            (
                r#"psql "host=h password = 'it\'s' user=x""#,
                r#"psql "host=h password=*** user=x""#,
            ),
            ("echo 1", "echo 1"),
        ] {
            assert_eq!(redact(text), want, "{text}");
        }
    }

    #[test]
    fn a_command_line_is_kept_without_them() {
        let words = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
        let line =
            words("hugeleaf|prove|1|--metric|postgres:host=h password=a b|--metric=redis://:se@h");
        let want = words("hugeleaf|prove|1|--metric|postgres:…|--metric=redis://h:6379");
        assert_eq!(shown_command(&line), want);
    }

    fn percent(text: &str) -> String {
        text.bytes().map(|byte| format!("%{byte:02X}")).collect()
    }

    proptest! {
        /// Whatever the password is, and however it is written.
        #[test]
        fn no_password_is_shown(secret in "[A-Z][-A-Z0-9 '\"\\\\@/:#?&=%;ä]{5,20}[A-Z]", broken: bool) {
            let quoted = secret.replace('\\', "\\\\").replace('\'', "\\'");
            let coded = percent(&secret);
            let tail = if broken { " 'x" } else { "" };
            for text in [
                format!("postgres:host=h password='{quoted}' user=u{tail}"),
                format!("postgres:host=h password = '{quoted}'{tail}"),
                format!("postgres://u:{coded}@h/d{tail}"),
                format!("redis://:{coded}@h:1/2{tail}"),
                format!("redis:redis://me:{coded}@h{tail}"),
                format!("mysql://u:{coded}@h/d{tail}"),
                format!("mysql:u:{coded}@h#Com_commit{tail}"),
                format!("http://u:{coded}@h/m#a{tail}"),
                format!("gauge:lower:http://u:{coded}@h/m?key={coded}#a{tail}"),
            ] {
                let mut all = shown(&text);
                all += &shown_command(&["--metric".to_owned(), text.clone()]).concat();
                all += &shown_command(&[format!("--metric={text}")]).concat();
                if let Err(error) = text.parse::<MetricSpec>() {
                    all += &error.to_string();
                }
                prop_assert!(!all.contains(&secret) && !all.contains(&coded), "{text}: {all}");
            }
        }

        #[test]
        fn nothing_panics(text in "(?s).*", kind in "(postgres|redis|mysql|cmd|http|gauge|walk-cycles):.*") {
            let _ = (shown(&text), shown(&kind), redact(&text), redact(&kind));
        }
    }
}
