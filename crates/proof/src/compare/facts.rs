//! What two results were made on and with, and where that differs.

use serde_json::{Map, Value as Json};

use super::note::Note;
use crate::rows::{Results, Value};

/// What the kernel leaves of a machine's memory differs a little from boot to boot.
const MEMORY_MAY_DIFFER: f64 = 0.01;

/// A circumstance: `host.kernel`, `settings.rounds`, `knob enabled`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fact {
    /// Its name, as in the file.
    name: String,
    /// Its value.
    value: Value,
}

/// Everything that a result was made on and with.
pub(super) fn of(results: &Results) -> Vec<Fact> {
    let mut all = facts("host", &results.host);
    if let Some(target) = &results.experiment.target {
        all.push(Fact {
            name: "experiment.target".to_owned(),
            value: Value::Text(target.clone()),
        });
    }
    if let Some(Json::Object(database)) = results.settings.get("database") {
        all.extend(facts("database", database));
    }
    all.extend(facts("settings", &results.settings));
    all
}

/// Everything in a part of a result, `prefix.field` each, without what says nothing: a limit that
/// comes of the memory that was free, a folder's name.
fn facts(prefix: &str, part: &Map<String, Json>) -> Vec<Fact> {
    const NOTHING: [&str; 2] = ["settings.most_bytes", "database.name"];
    let mut facts = Vec::new();
    for (field, value) in part {
        if field == "knobs" {
            facts.extend(knobs(value));
            continue;
        }
        let name = format!("{prefix}.{field}");
        if NOTHING.contains(&name.as_str()) {
            continue;
        }
        facts.extend(Value::of_json(field, value).map(|value| Fact { name, value }));
    }
    facts
}

fn knobs(all: &Json) -> Vec<Fact> {
    let text = |knob: &Json, field: &str| Some(knob.get(field)?.as_str()?.to_owned());
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
