//! JSON as all commands write it: `"schema": 1` first, bytes as integers in `*_bytes`, times in
//! `*_seconds`; what a host does not have is missing, and what could not be read is `null` with
//! the reason next to it in `*_error`.
//!
//! Models write themselves: each derives `Serialize`, with the name that a field has in an answer where that is
//! not its own. [`answer`] makes the text. A `None` is left out like [`hugeleaf_host::Fact::Absent`].
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
//! assert_eq!(text, "{\n  \"schema\": 1,\n  \"swap_bytes\": 1073741824\n}\n");
//! ```
//!
//! By hand, until the last command has gone:
//!
//! ```
//! use hugeleaf_report::json::Object;
//! let mut host = Object::new();
//! host.put("memory_bytes", 1_u64 << 30);
//! let mut answer = Object::answer();
//! answer.put("host", host.build());
//! assert_eq!(
//!     answer.render(),
//!     "{\n  \"schema\": 1,\n  \"host\": {\n    \"memory_bytes\": 1073741824\n  }\n}\n"
//! );
//! ```

use hugeleaf_host::fact::UNREADABLE;
use hugeleaf_units::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

/// The version of every JSON answer; raised when a field changes its meaning or goes.
pub const SCHEMA: u64 = 1;

/// A whole answer as text, indented, the last line ended: `"schema"` and the fields of the model, which
/// must be a struct.
pub fn answer(model: &impl Serialize) -> String {
    let mut whole = Map::new();
    whole.insert("schema".to_owned(), SCHEMA.into());
    if let Value::Object(fields) = value(model) {
        whole.extend(fields);
    }
    // `{:#}` is indented JSON; it cannot fail on values made in memory.
    format!("{:#}\n", Value::Object(whole))
}

/// A model as it stands in an answer.
pub fn value(model: &impl Serialize) -> Value {
    // It fails for keys that are no texts, which no model has.
    let mut value = serde_json::to_value(model).unwrap_or_default();
    resolve(&mut value);
    value
}

/// Leaves out what is absent, and writes `null` with the reason next to it for what could not be read.
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

/// The reason, where the value stands for what could not be read.
fn unreadable(value: &mut Value) -> Option<Value> {
    value.get_mut(UNREADABLE).map(Value::take)
}

/// A JSON object. Keys stay in the order they were put.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Object(Map<String, Value>);

impl Object {
    /// An empty object.
    pub fn new() -> Object {
        Object::default()
    }

    /// A whole answer: an object that begins with `"schema"`.
    pub fn answer() -> Object {
        let mut object = Object::new();
        object.put("schema", SCHEMA);
        object
    }

    /// Puts a value under a name.
    pub fn put(&mut self, name: &str, value: impl Into<Value>) -> &mut Object {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// A number of bytes; the name ends in `bytes`.
    pub fn put_bytes(&mut self, name: &str, bytes: Bytes) -> &mut Object {
        debug_assert!(name.ends_with("bytes"), "{name}");
        self.put(name, bytes.get())
    }

    /// Puts a value where there is one.
    pub fn put_some(&mut self, name: &str, value: Option<impl Into<Value>>) -> &mut Object {
        match value {
            Some(value) => self.put(name, value),
            None => self,
        }
    }

    /// The object as a value to put into another.
    pub fn build(self) -> Value {
        Value::Object(self.0)
    }

    /// The object as text, indented, the last line ended.
    pub fn render(self) -> String {
        // `{:#}` is indented JSON; it cannot fail on values made in memory.
        format!("{:#}\n", self.build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_host::{Fact, Held, ReadError};
    use hugeleaf_units::PageKind;
    use serde_json::json;

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
        let denied = ReadError::Io {
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
            "{\n  \"schema\": 1,\n  \"a_bytes\": 0,\n  \"b\": null,\n  \"b_error\": \"/proc/x: Permission denied\",\n  \"e\": [\n    1,\n    null,\n    null\n  ]\n}\n"
        );
    }

    #[test]
    fn an_answer_begins_with_its_schema() {
        let mut answer = Object::answer();
        answer.put("a", 1);
        assert_eq!(answer.render(), "{\n  \"schema\": 1,\n  \"a\": 1\n}\n");
    }

    #[test]
    fn page_sizes_are_numbers_and_kinds_words() {
        let held = Held {
            size: "2M".parse().unwrap(),
            kind: PageKind::Thp,
            bytes: Bytes(4 << 20),
        };
        let expected = json!([{"page_bytes": 2_097_152, "kind": "thp", "bytes": 4_194_304}]);
        assert_eq!(value(&[held]), expected);
    }
}
