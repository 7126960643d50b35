//! Circumstances of two results, and their differences.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::result_format::{ParameterValue, Results};

/// The memory that the kernel leaves of a machine varies a little between boots.
const MEMORY_MAY_DIFFER: f64 = 0.01;

/// Circumstances by their names in the file: `host.kernel`, `settings.rounds`, `knob enabled`.
type EnvironmentFacts = Vec<(String, ParameterValue)>;

/// A circumstance that differs, with its value in A and in B.
pub(super) type EnvironmentDifference = (String, Option<ParameterValue>, Option<ParameterValue>);

/// Returns the differences in the order of A, then those only B reports.
pub(super) fn differences(a: &Results, b: &Results) -> Vec<EnvironmentDifference> {
    let (a, b) = (of(a), of(b));
    let by_name = |facts: &EnvironmentFacts| -> HashMap<String, ParameterValue> {
        facts.iter().cloned().collect()
    };
    let (in_a, in_b) = (by_name(&a), by_name(&b));
    let only_b = b.iter().filter(|fact| !in_a.contains_key(&fact.0));
    let all = a.iter().chain(only_b);
    all.map(|(name, _)| {
        (
            name.clone(),
            in_a.get(name).cloned(),
            in_b.get(name).cloned(),
        )
    })
    .filter(|(name, a, b)| !are_alike(name, a.as_ref(), b.as_ref()))
    .collect()
}

/// Returns all circumstances of a result.
fn of(results: &Results) -> EnvironmentFacts {
    let mut all = facts("host", &results.host);
    let target = results.experiment.target.iter();
    all.extend(target.map(|text| {
        (
            "experiment.target".to_owned(),
            ParameterValue::Text(text.clone()),
        )
    }));
    if let Some(Json::Object(database)) = results.settings.get("database") {
        all.extend(facts("database", database));
    }
    all.extend(facts("settings", &results.settings));
    all
}

/// Returns all circumstances in a part of a result as `prefix.field`, without meaningless ones: a
/// limit derived from free memory, the name of a folder.
fn facts(prefix: &str, part: &Map<String, Json>) -> EnvironmentFacts {
    const NOTHING: [&str; 2] = ["settings.most_bytes", "database.name"];
    let mut facts = Vec::new();
    for (field, value) in part {
        let name = format!("{prefix}.{field}");
        match value {
            Json::Array(knobs) if field == "knobs" => facts.extend(knobs.iter().filter_map(knob)),
            _ if NOTHING.contains(&name.as_str()) => {}
            _ => facts.extend(ParameterValue::of_json(field, value).map(|value| (name, value))),
        }
    }
    facts
}

fn knob(knob: &Json) -> Option<(String, ParameterValue)> {
    let text = |field: &str| Some(knob.get(field)?.as_str()?.to_owned());
    Some((
        format!("knob {}", text("name")?),
        ParameterValue::Text(text("value")?),
    ))
}

fn are_alike(name: &str, a: Option<&ParameterValue>, b: Option<&ParameterValue>) -> bool {
    match (a, b) {
        (Some(ParameterValue::Bytes(a)), Some(ParameterValue::Bytes(b)))
            if name == "host.memory_bytes" =>
        {
            let (small, large) = ((*a).min(*b), (*a).max(*b));
            (large - small).as_f64() <= MEMORY_MAY_DIFFER * large.as_f64()
        }
        _ => a == b,
    }
}
