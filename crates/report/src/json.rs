//! The JSON conventions of all commands: `"schema": 2` first, bytes as integers in `*_bytes`, times in
//! `*_seconds`. An absent value is missing, and an unreadable one is `null` with the reason in a sibling
//! `*_error`.
//!
//! Models derive `Serialize`, with field names for the answer. [`answer`] makes the text. A `None` is left out
//! like [`hugeleaf_host::Fact::Absent`].
//!
//! ```
//! use hugeleaf_host::Fact;
//! use hugeleaf_units::Bytes;
//! #[derive(serde::Serialize)]
//! struct Swap {
//!     #[serde(rename = "swap_bytes")]
//!     total: Fact<Bytes>,
//!     #[serde(rename = "swap_free_bytes")]
//!     free: Fact<Bytes>,
//! }
//! let swap = Swap { total: Fact::Known(Bytes(1 << 30)), free: Fact::Absent };
//! let text = hugeleaf_report::json::answer(&swap);
//! assert_eq!(text, "{\n  \"schema\": 2,\n  \"swap_bytes\": 1073741824\n}\n");
//! ```

use hugeleaf_host::fact::UNREADABLE;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The version of every JSON answer; it rises when a field is removed or changes its meaning.
pub const SCHEMA: u64 = 2;

/// Returns a whole answer as indented text that ends with a newline: `"schema"` and the fields of the model,
/// which must be a struct.
pub fn answer(model: &impl Serialize) -> String {
    let whole = merge_fields(json!({ "schema": SCHEMA }), model);
    // `{:#}` is indented JSON; it cannot fail on values made in memory.
    format!("{:#}\n", value(&whole))
}

/// Joins the fields of two models, such as a model's own and those that a view adds.
pub fn merge_fields(first: impl Serialize, second: impl Serialize) -> Value {
    let mut all = fields(first);
    all.extend(fields(second));
    Value::Object(all)
}

/// Returns the fields of a model; empty if it is not a struct, which does not occur.
pub(crate) fn fields(model: impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(model) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

pub fn value(model: &impl Serialize) -> Value {
    // Serializing fails only for keys that are not text, which no model has.
    let mut value = serde_json::to_value(model).unwrap_or_default();
    resolve(&mut value);
    value
}

/// Removes absent values, and replaces unreadable ones by `null` with the reason in a sibling.
fn resolve(value: &mut Value) {
    match value {
        Value::Array(all) => {
            for one in all {
                if unreadable(one).is_some() {
                    *one = Value::Null;
                }
                resolve(one);
            }
        }
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (name, mut value) in old {
                match unreadable(&mut value) {
                    Some(reason) => {
                        fields.insert(name.clone(), Value::Null);
                        fields.insert(format!("{name}_error"), reason);
                    }
                    None if value.is_null() => {}
                    None => {
                        resolve(&mut value);
                        fields.insert(name, value);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Returns the reason if the value is unreadable.
fn unreadable(value: &mut Value) -> Option<Value> {
    value.get_mut(UNREADABLE).map(Value::take)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::{Fact, PageUsage, ReadError};
    use hugeleaf_units::{Bytes, PageKind};

    #[test]
    fn a_model_says_what_is_known_absent_and_unreadable() {
        #[derive(Serialize)]
        struct Inner {
            #[serde(rename = "a_bytes")]
            a: Fact<Bytes>,
            b: Fact<u64>,
            c: Fact<Option<u64>>,
            d: Option<&'static str>,
            e: Vec<Fact<u64>>,
        }
        #[derive(Serialize)]
        struct Outer {
            #[serde(flatten)]
            inner: Inner,
        }
        let denied = ReadError {
            path: "/proc/x".into(),
            reason: "Permission denied".to_owned(),
            denied: true,
        };
        let outer = Outer {
            inner: Inner {
                a: Fact::Known(Bytes(0)),
                b: Fact::Unreadable(denied.clone()),
                c: Fact::Known(None),
                d: None,
                e: vec![Fact::Known(1), Fact::Unreadable(denied), Fact::Absent],
            },
        };
        assert_eq!(
            answer(&outer),
            "{\n  \"schema\": 2,\n  \"a_bytes\": 0,\n  \"b\": null,\n  \"b_error\": \"/proc/x: Permission denied\",\n  \"e\": [\n    1,\n    null,\n    null\n  ]\n}\n"
        );
    }

    #[test]
    fn page_sizes_are_numbers_and_kinds_words() {
        let held = PageUsage {
            size: "2M".parse().unwrap(),
            kind: PageKind::Thp,
            bytes: Bytes(4 << 20),
        };
        let expected = json!([{"page_bytes": 2_097_152, "kind": "thp", "bytes": 4_194_304}]);
        assert_eq!(value(&[held]), expected);
    }
}
