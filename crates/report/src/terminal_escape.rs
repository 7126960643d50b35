//! Escaping for terminals. Names of processes, files, units and mappings are untrusted. Characters that control a
//! terminal, or that change the order or presence of others, are escaped as in JSON: `\u001b`. Renderers of
//! [`crate::document`] escape each part by [`clean`] before they compute its width. Text printed without a page passes
//! through [`screen`].

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

/// Escapes all such characters in a part of a line, line ends included.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        push(&mut out, c);
    }
    out
}

/// Escapes whole lines for a terminal; line ends and tabs stay.
pub fn screen(text: &str) -> Cow<'_, str> {
    let stays = |c: char| matches!(c, '\n' | '\t');
    if !text.contains(|c| acts(c) && !stays(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match stays(c) {
            true => out.push(c),
            false => push(&mut out, c),
        }
    }
    Cow::Owned(out)
}

fn push(out: &mut String, c: char) {
    if !acts(c) {
        out.push(c);
        return;
    }
    for unit in c.encode_utf16(&mut [0; 2]) {
        *out += &format!("\\u{unit:04x}");
    }
}

/// True if a terminal or text renderer interprets the character instead of showing it: control characters, and those
/// that Unicode calls default ignorable or that change the direction.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the width of a text in terminal columns: two for most characters of East Asia.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text to at most `columns`; `…` replaces the end of a long one.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        let mut more = kept.clone();
        more.push(c);
        if width(&more) >= columns {
            break;
        }
        kept = more;
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_acts_on_is_written_out() {
        let hostile = "a\x1b]0;x\x07b\x7f\u{9b}31m\u{202e}c\u{200b}\u{e0041}\r\nd\te";
        let shown = "a\\u001b]0;x\\u0007b\\u007f\\u009b31m\\u202ec\\u200b\\udb40\\udc41\\u000d";
        assert_eq!(screen(hostile), format!("{shown}\nd\te"));
        assert_eq!(clean(hostile), format!("{shown}\\u000ad\\u0009e"));
        assert_eq!(clean("Ärger 漢字 █· – … €"), "Ärger 漢字 █· – … €");
    }

    proptest! {
        #[test]
        fn nothing_else_changes(text in "(?s).*") {
            let out = screen(&text).into_owned();
            prop_assert!(out.chars().all(|c| matches!(c, '\n' | '\t') || !acts(c)));
            if !text.chars().any(acts) {
                prop_assert_eq!(&out, &text);
            }
            // Escaping twice changes nothing.
            prop_assert_eq!(screen(&out), out.as_str());
        }

        /// Escaped JSON is JSON of the same values.
        #[test]
        fn json_means_the_same(text in "(?s).*") {
            let json = serde_json::json!({ "name": text }).to_string();
            let back: serde_json::Value = serde_json::from_str(&screen(&json)).unwrap();
            prop_assert_eq!(back["name"].as_str(), Some(text.as_str()));
        }
    }
}
