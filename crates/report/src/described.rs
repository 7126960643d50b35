//! `bench --list` and `bench FILE --dry-run`: workloads that files describe, and what a host lacks for them.

use hugeleaf_proof::bench::described::{Described, Unmet};
use serde_json::{Value as Json, json};

use crate::json::answer;
use crate::page::{Block, Cell, Command, Mark, Narrow, Page, Table};

pub fn list(all: &[(Described, Option<Unmet>)]) -> Page {
    let mut page = Page::new(
        "Workloads",
        "Workloads that come with hugeleaf. Each starts real software on the pages of several arms: hugeleaf bench NAME",
    );
    page.add(
        Table::of(all)
            .left("NAME", |(described, _)| described.name.as_str())
            .left("STANDS FOR", |(described, _)| described.kind.as_str())
            .narrow(Narrow::Goes(1))
            .left("HERE", |(_, unmet)| match unmet {
                None => Cell::from("ready").marked(Mark::Good),
                Some(unmet) => Cell::from(unmet.what.as_str()).marked(Mark::Bad),
            })
            .left("WHAT IS MEASURED", |(described, _)| {
                described.title.as_str()
            })
            .narrow(Narrow::Wraps)
            .done(),
    );
    let mut packages: Vec<&str> = (all.iter())
        .filter(|(_, unmet)| unmet.is_some())
        .flat_map(|(described, _)| described.needs.packages.iter().map(String::as_str))
        .collect();
    packages.sort_unstable();
    packages.dedup();
    if !packages.is_empty() {
        page.add(Block::Commands(vec![Command {
            label: "next".to_owned(),
            line: format!("apt-get install {}", packages.join(" ")),
            note: "what is missing".to_owned(),
        }]));
    }
    page
}

pub fn list_json(all: &[(Described, Option<Unmet>)]) -> String {
    let all: Vec<Json> = all
        .iter()
        .map(|(described, unmet)| about(described, unmet.as_ref()))
        .collect();
    answer(&json!({ "workloads": all }))
}

fn about(described: &Described, unmet: Option<&Unmet>) -> Json {
    json!({
        "name": described.name,
        "title": described.title,
        "kind": described.kind,
        "packages": described.needs.packages,
        "ready": unmet.is_none(),
        "missing": unmet.map(|unmet| &unmet.what),
        "next": unmet.map(|unmet| &unmet.next),
    })
}

pub fn one(described: &Described, unmet: Option<&Unmet>) -> Page {
    let mut page = Page::new(&described.name, &described.title);
    page.add(Block::Facts(facts(described, unmet)));
    if !described.set.is_empty() || !described.sizes.is_empty() || !described.matrix.is_empty() {
        let set = described
            .set
            .iter()
            .map(|(name, value)| (name, value.clone()));
        let sizes = described
            .sizes
            .iter()
            .map(|(name, size)| (name, size.to_string()));
        let matrix = described
            .matrix
            .iter()
            .map(|(name, all)| (name, all.join(", ")));
        let all = set.chain(sizes).chain(matrix);
        let all = all
            .map(|(name, value)| (name.clone(), Cell::from(value)))
            .collect();
        page.section("VARIABLES", vec![Block::Facts(all)]);
    }
    for (what, command) in described.commands() {
        let lines = command.trim_end().lines().map(str::to_owned).collect();
        page.section(what.to_uppercase(), vec![Block::Lines(lines)]);
    }
    for (name, text) in &described.files {
        let lines = text.trim_end().lines().map(str::to_owned).collect();
        page.section(format!("FILE {name}"), vec![Block::Lines(lines)]);
    }
    page
}

fn facts(described: &Described, unmet: Option<&Unmet>) -> Vec<(String, Cell)> {
    let needs = &described.needs;
    let mut all: Vec<(&str, String)> = Vec::new();
    all.push(("shows", described.effect.clone()));
    let joined = |words: &[String]| words.join(", ");
    all.push(("programs", joined(&needs.programs)));
    all.push(("packages", joined(&needs.packages)));
    all.push((
        "memory",
        needs.memory.map_or(String::new(), |size| size.to_string()),
    ));
    all.push((
        "disk",
        needs.disk.map_or(String::new(), |size| size.to_string()),
    ));
    all.push((
        "runs as",
        if needs.root {
            "root"
        } else {
            "nobody, where hugeleaf runs as root"
        }
        .to_owned(),
    ));
    let figures = described
        .measures
        .iter()
        .map(|measure| match measure.unit.as_str() {
            "" => measure.name.clone(),
            unit => format!("{} ({unit})", measure.name),
        });
    all.push(("figures", figures.collect::<Vec<_>>().join(", ")));
    let missing = unmet.map_or("nothing".to_owned(), |unmet| {
        format!("{}: {}", unmet.what, unmet.next)
    });
    all.push(("missing", missing));
    (all.into_iter())
        .filter(|(_, text)| !text.is_empty())
        .map(|(label, text)| (label.to_owned(), Cell::from(text)))
        .collect()
}

pub fn one_json(described: &Described, unmet: Option<&Unmet>) -> String {
    let commands: Vec<Json> = (described.commands().into_iter())
        .map(|(what, command)| json!({ "what": what, "command": command }))
        .collect();
    let Json::Object(mut all) = about(described, unmet) else {
        return String::new();
    };
    all.insert("commands".to_owned(), commands.into());
    all.insert("files".to_owned(), json!(described.files));
    all.insert("set".to_owned(), json!(described.set));
    all.insert("matrix".to_owned(), json!(described.matrix));
    answer(&Json::Object(all))
}
