//! YAML from JSON values: the only escaper of that format.

use serde_json::Value;

const INDENT: &str = "  ";

/// Returns a value as a YAML document without a marker.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    node(&mut out, value, 0);
    out
}

/// Writes a value on lines of its own.
fn node(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                begin(out, depth);
                out.push_str(&scalar(key));
                out.push(':');
                after(out, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                begin(out, depth);
                out.push('-');
                after_dash(out, item, depth + 1);
            }
        }
        other => {
            begin(out, depth);
            out.push_str(&inline(other));
            out.push('\n');
        }
    }
}

fn begin(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n(INDENT, depth));
}

/// Writes the value of a key.
fn after(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(text) if is_block(text) => {
            out.push_str(" |\n");
            for line in text.lines() {
                if !line.is_empty() {
                    begin(out, depth);
                }
                out.push_str(line);
                out.push('\n');
            }
        }
        value if is_nested(value) => {
            out.push('\n');
            node(out, value, depth);
        }
        value => {
            out.push(' ');
            out.push_str(&inline(value));
            out.push('\n');
        }
    }
}

/// Writes an item of a list; its first line stands beside the dash.
fn after_dash(out: &mut String, item: &Value, depth: usize) {
    let mut lines = String::new();
    node(&mut lines, item, depth);
    out.push(' ');
    out.push_str(lines.trim_start());
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

/// True for a text that fits a literal block as it is: whole lines, the first without a blank in front.
fn is_block(text: &str) -> bool {
    let is_plain = |line: &str| !line.chars().any(char::is_control);
    text.ends_with('\n')
        && !text.ends_with("\n\n")
        && !text.starts_with([' ', '\n'])
        && text.split_terminator('\n').all(is_plain)
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // Empty lists and objects, numbers, booleans and null are written as in JSON.
        other => other.to_string(),
    }
}

/// Returns a text, in quotes unless every reader of YAML takes it for a text. Quotes are those of JSON.
fn scalar(text: &str) -> String {
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let quantity = text.strip_suffix("Mi");
    let is_quantity =
        quantity.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    let is_text = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(is_safe)
        && !WORDS.contains(&&*text.to_ascii_lowercase());
    match is_text || is_quantity {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_values() {
        let value = json!({
            "kind": "Pod",
            "list": [{ "more": { "x": "514Mi" }, "name": "a" }, "b", [1, 2]],
            "none": {},
            "text": "# a \n\n  b: c\n",
        });
        let expected = "kind: Pod\nlist:\n  - more:\n      x: 514Mi\n    name: a\n  - b\n  - - 1\n    - 2\n\
                        none: {}\ntext: |\n  # a \n\n    b: c\n";
        assert_eq!(document(&value), expected);
    }

    #[test]
    fn texts_that_look_like_something_else_are_quoted() {
        for text in [
            "", "no", "True", "1", "1e3", "0x1f", "-", "a: b", "a #b", "a\n", "\u{85}",
        ] {
            assert!(scalar(text).starts_with('"'), "{text}");
        }
        assert_eq!(scalar("hugepages-2Mi"), "hugepages-2Mi");
        assert_eq!(scalar("hugeleaf/plan"), "hugeleaf/plan");
        assert!(!is_block(" a\n") && !is_block("a") && !is_block("a\u{7}\n") && !is_block("a\n\n"));
    }
}
