//! `bench --list` and `bench FILE --dry-run`: workloads described by files, and the requirements that a host
//! lacks.

use hugeleaf_proof::bench::workload_file::WorkloadSpec;
use hugeleaf_units::Failure;
use serde_json::{Value as Json, json};

use crate::document::{
    Cell, ColumnShrink, CommandHint, ContentBlock, Document, StatusMark, Table, fact, listed,
};
use crate::json::{answer, merge_fields};

pub fn list(all: &[(WorkloadSpec, Option<Failure>)]) -> Document {
    let mut page = Document::new(
        "Workloads",
        "Shipped workloads. Each runs real software in several arms: hugeleaf bench NAME",
    );
    page.add(
        Table::from_items(all)
            .left("NAME", |(described, _)| described.name.as_str())
            .left("KIND", |(described, _)| described.kind.as_str())
            .narrow(ColumnShrink::Drop(1))
            .left("STATE", |(_, unmet)| match unmet {
                None => Cell::from("ready").marked(StatusMark::Good),
                Some(unmet) => Cell::from(unmet.message.as_str()).marked(StatusMark::Bad),
            })
            .left("MEASUREMENT", |(described, _)| described.title.as_str())
            .narrow(ColumnShrink::Wrap),
    );
    let mut packages: Vec<&str> = (all.iter())
        .filter(|(_, unmet)| unmet.is_some())
        .flat_map(|(described, _)| described.needs.packages.iter().map(String::as_str))
        .collect();
    packages.sort_unstable();
    packages.dedup();
    if !packages.is_empty() {
        let install = format!("apt-get install {}", packages.join(" "));
        page.add(vec![
            CommandHint::new("next", install).noted("needed packages"),
        ]);
    }
    page
}

pub fn list_json(all: &[(WorkloadSpec, Option<Failure>)]) -> String {
    let all: Vec<Json> = all
        .iter()
        .map(|(described, unmet)| about(described, unmet.as_ref()))
        .collect();
    answer(&json!({ "workloads": all }))
}

fn about(described: &WorkloadSpec, unmet: Option<&Failure>) -> Json {
    json!({
        "name": described.name,
        "title": described.title,
        "kind": described.kind,
        "packages": described.needs.packages,
        "ready": unmet.is_none(),
        "missing": unmet.map(|unmet| &unmet.message),
        "next": unmet.map(|unmet| &unmet.remedy),
    })
}

pub fn describe_workload(described: &WorkloadSpec, unmet: Option<&Failure>) -> Document {
    let mut page = Document::new(&described.name, &described.title);
    page.add(ContentBlock::Facts(facts(described, unmet)));
    let set = described.set.iter().map(|(name, value)| fact(name, value));
    let sizes = described.sizes.iter();
    let sizes = sizes.map(|(name, size)| fact(name, size.to_string()));
    let matrix = described.matrix.iter();
    let matrix = matrix.map(|(name, all)| fact(name, all.join(", ")));
    let variables: Vec<_> = set.chain(sizes).chain(matrix).collect();
    page.section("VARIABLES", vec![variables.into()]);
    for (what, command) in described.commands() {
        let lines = command.trim_end().lines().map(str::to_owned).collect();
        page.section(what.to_uppercase(), vec![ContentBlock::Lines(lines)]);
    }
    for (name, text) in &described.files {
        let lines = text.trim_end().lines().map(str::to_owned).collect();
        page.section(format!("FILE {name}"), vec![ContentBlock::Lines(lines)]);
    }
    page
}

fn facts(described: &WorkloadSpec, unmet: Option<&Failure>) -> Vec<(String, Cell)> {
    let needs = &described.needs;
    let runs_as = match needs.root {
        true => "root",
        false => "nobody, if hugeleaf runs as root",
    };
    let figures = (described.measures.iter()).map(|measure| match measure.unit.as_str() {
        "" => measure.name.clone(),
        unit => format!("{} ({unit})", measure.name),
    });
    let missing = unmet.map_or("nothing".to_owned(), |unmet| {
        format!("{}: {}", unmet.message, unmet.remedy)
    });
    let all = [
        ("shows", described.effect.clone()),
        ("programs", needs.programs.join(", ")),
        ("packages", needs.packages.join(", ")),
        ("memory", listed("", needs.memory)),
        ("disk", listed("", needs.disk)),
        ("runs as", runs_as.to_owned()),
        ("figures", listed("", figures)),
        ("missing", missing),
    ];
    (all.into_iter())
        .filter(|(_, text)| !text.is_empty())
        .map(|(label, text)| fact(label, text))
        .collect()
}

pub fn one_json(described: &WorkloadSpec, unmet: Option<&Failure>) -> String {
    let commands: Vec<Json> = (described.commands().into_iter())
        .map(|(what, command)| json!({ "what": what, "command": command }))
        .collect();
    let more = json!({
        "commands": commands,
        "files": described.files,
        "set": described.set,
        "matrix": described.matrix,
    });
    answer(&merge_fields(about(described, unmet), more))
}
