//! What a terminal is sent. Names of processes, files, units and mappings are anybody's: characters
//! in them that a terminal would act on, or that change the order or the presence of others, are
//! written out, as JSON does it: `\u001b`. Every text and every page of HTML
//! passes through [`screen`] on its way out; [`clean`] is for a part of a line, before its width is counted.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr;

/// The codes that [`crate::page::View`] writes, and the one that ends them.
const PAINTS: [&str; 6] = [
    "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m",
];

/// A part of a line with all such characters written out, ends of lines too.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        push(&mut out, c);
    }
    out
}

/// Whole lines for a terminal. Ends of lines and tabs stay; where `colour` is used, so do the codes that
/// this program paints with, and no others.
pub fn screen(text: &str, colour: bool) -> Cow<'_, str> {
    if !text.contains(|c| acts(c) && !matches!(c, '\n' | '\t')) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let paint = match c {
            '\x1b' if colour => PAINTS.iter().find(|paint| rest.starts_with(**paint)),
            _ => None,
        };
        if let Some(paint) = paint {
            out.push_str(paint);
            rest = &rest[paint.len()..];
            continue;
        }
        match c {
            '\n' | '\t' => out.push(c),
            c => push(&mut out, c),
        }
        rest = &rest[c.len_utf8()..];
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

/// Whether a terminal, or whoever draws text, does something else with it than show it: control
/// characters, and those that Unicode calls default ignorable or that change the direction.
fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Columns that a text takes on a terminal: two of most characters of East Asia.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The text in at most so many columns: the end of a long one is replaced by `…`.
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
        assert_eq!(screen(hostile, false), format!("{shown}\nd\te"));
        assert_eq!(clean(hostile), format!("{shown}\\u000ad\\u0009e"));
        assert_eq!(clean("Ärger 漢字 █· – … €"), "Ärger 漢字 █· – … €");
    }

    #[test]
    fn paint_stays_where_colour_is_used_and_only_there() {
        let painted = "\x1b[1mHEAD\x1b[0m \x1b[5m\x1b[2J";
        let rest = "\\u001b[5m\\u001b[2J";
        assert_eq!(screen(painted, true), format!("\x1b[1mHEAD\x1b[0m {rest}"));
        assert_eq!(
            screen(painted, false),
            format!("\\u001b[1mHEAD\\u001b[0m {rest}")
        );
    }

    proptest! {
        #[test]
        fn nothing_else_changes(text in "(?s).*", colour: bool) {
            let out = screen(&text, colour).into_owned();
            let bare = PAINTS.iter().fold(out.clone(), |out, paint| out.replace(paint, ""));
            prop_assert!(bare.chars().all(|c| matches!(c, '\n' | '\t') || !acts(c)));
            if !text.chars().any(acts) {
                prop_assert_eq!(&out, &text);
            }
            // What was written out is not written out again.
            prop_assert_eq!(screen(&out, colour), out.as_str());
        }

        /// JSON stays JSON of the same values.
        #[test]
        fn json_means_the_same(text in "(?s).*") {
            let json = serde_json::json!({ "name": text }).to_string();
            let back: serde_json::Value = serde_json::from_str(&screen(&json, false)).unwrap();
            prop_assert_eq!(back["name"].as_str(), Some(text.as_str()));
        }
    }
}
