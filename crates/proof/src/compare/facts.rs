//! What two results were made on and with, and where that differs.

use hugeleaf_units::Bytes;
use serde::Serialize;

use super::Note;

/// What the kernel leaves of a machine's memory differs a little from boot to boot.
const MEMORY_MAY_DIFFER: f64 = 0.01;

/// A circumstance: `host.kernel`, `settings.rounds`, `knob enabled`.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Its name, as in the file.
    pub name: String,
    /// Its value.
    pub value: Value,
}

/// A value that is shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Bytes.
    Bytes(Bytes),
    /// A plain number.
    Number(f64),
    /// Anything else.
    Text(String),
}

impl Value {
    /// A count.
    #[allow(clippy::cast_precision_loss)] // threads, processes, connections
    pub fn count(n: u64) -> Value {
        Value::Number(n as f64)
    }

    /// The same as a value of a file.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Value::Bytes(bytes) => bytes.get().into(),
            Value::Number(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(53) => {
                #[allow(clippy::cast_possible_truncation)]
                let whole = *number as i64;
                whole.into()
            }
            Value::Number(number) => (*number).into(),
            Value::Text(text) => text.clone().into(),
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Bytes(bytes) => f.pad(&bytes.to_string()),
            Value::Number(number) if number.fract() == 0.0 || number.abs() < 0.001 => {
                f.pad(&number.to_string())
            }
            Value::Number(number) => {
                let text = format!("{number:.4}");
                f.pad(text.trim_end_matches('0'))
            }
            Value::Text(text) => f.pad(text),
        }
    }
}

/// Everything in a part of a result, `prefix.field` each, without what says nothing: a limit that
/// comes of the memory that was free, a folder's name.
pub(super) fn facts(prefix: &str, part: &impl Serialize) -> Vec<Fact> {
    const NOTHING: [&str; 2] = ["settings.most_bytes", "database.name"];
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(part) else {
        return Vec::new();
    };
    let mut facts = Vec::new();
    for (field, value) in fields {
        if field == "knobs" {
            facts.extend(knobs(&value));
            continue;
        }
        let name = format!("{prefix}.{field}");
        if NOTHING.contains(&name.as_str()) {
            continue;
        }
        facts.extend(of_json(&field, &value).map(|value| Fact { name, value }));
    }
    facts
}

fn knobs(all: &serde_json::Value) -> Vec<Fact> {
    let text = |knob: &serde_json::Value, field: &str| Some(knob.get(field)?.as_str()?.to_owned());
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .filter_map(|knob| {
            Some(Fact {
                name: format!("knob {}", text(knob, "name")?),
                value: Value::Text(text(knob, "value")?),
            })
        })
        .collect()
}

fn of_json(field: &str, value: &serde_json::Value) -> Option<Value> {
    use serde_json::Value as Json;
    match value {
        Json::Null | Json::Object(_) => None,
        Json::Number(n) => match n.as_u64() {
            Some(bytes) if field.ends_with("_bytes") => Some(Value::Bytes(Bytes(bytes))),
            _ => n.as_f64().map(Value::Number),
        },
        Json::String(text) => Some(Value::Text(text.clone())),
        Json::Bool(is) => Some(Value::Text(if *is { "yes" } else { "no" }.to_owned())),
        Json::Array(all) => {
            let all = all.iter().map(|v| v.as_str().map(str::to_owned));
            let all: Option<Vec<String>> = all.collect();
            Some(Value::Text(all?.join(", ")))
        }
    }
}

/// What differs, in the order of A, then what only B tells.
pub(super) fn differences(a: &[Fact], b: &[Fact]) -> Vec<Note> {
    let of = |facts: &[Fact], name: &str| -> Option<Value> {
        let fact = facts.iter().find(|fact| fact.name == name)?;
        Some(fact.value.clone())
    };
    let only_b = b.iter().filter(|fact| of(a, &fact.name).is_none());
    a.iter()
        .chain(only_b)
        .map(|fact| (&fact.name, of(a, &fact.name), of(b, &fact.name)))
        .filter(|(name, a, b)| !are_alike(name, a.as_ref(), b.as_ref()))
        .map(|(name, a, b)| Note::Differs {
            name: name.clone(),
            a,
            b,
        })
        .collect()
}

fn are_alike(name: &str, a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a, b) {
        (Some(Value::Bytes(a)), Some(Value::Bytes(b))) if name == "host.memory_bytes" => {
            let (small, large) = ((*a).min(*b), (*a).max(*b));
            (large - small).as_f64() <= MEMORY_MAY_DIFFER * large.as_f64()
        }
        _ => a == b,
    }
}
