//! `hugeleaf check`: a host's features row by row, with their measured benefit.

use hugeleaf_host::system::system_config::FileSystemFeatures;
use hugeleaf_proof::past_gains::{GainsByArm, MeasuredGain};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::check::{CheckRow, CheckState, FileSystem, WorkloadProfile};
use serde_json::{Value as Json, json};

use crate::document::{
    Cell, ColumnShrink, CommandHint, Document, Note, StatusMark, Table, TableBuilder, fact,
};
use crate::json::{answer, merge_fields};

fn text(worth: &MeasuredGain) -> String {
    match (worth.low, worth.high) {
        (Some(low), Some(high)) => format!(
            "×{:.2} [{low:.2}, {high:.2}] {}",
            worth.ratio, worth.workload
        ),
        _ => format!("×{:.2} {}", worth.ratio, worth.workload),
    }
}

const NOT_MEASURED: &str = "not measured here";

fn worth(row: &CheckRow, measured: &GainsByArm) -> Option<String> {
    let arm = row.arm.as_ref()?;
    let Some(all) = measured.get(arm).filter(|all| !all.is_empty()) else {
        return Some(NOT_MEASURED.to_owned());
    };
    // The lowest and the highest ratio say more than a mean.
    let by = |a: &&MeasuredGain, b: &&MeasuredGain| a.ratio.total_cmp(&b.ratio);
    let (low, high) = (all.iter().min_by(by)?, all.iter().max_by(by)?);
    Some(match all.len() {
        1 => text(low),
        n => format!("{} to {} ({n} workloads)", text(low), text(high)),
    })
}

pub fn check(
    rows: &[CheckRow],
    file_systems: &[FileSystem],
    profile: Option<WorkloadProfile>,
    measured: &GainsByArm,
) -> Document {
    let count = |state: CheckState| rows.iter().filter(|row| row.state == state).count();
    let who = profile.map_or(String::new(), |profile| format!(" for {}", profile.name()));
    let mut page = Document::new(
        "Check",
        format!(
            "{} features{who}: {} to change, {} to check, {} good, {} absent, {} unknown. Nothing \
             was changed: use hugeleaf plan and apply",
            rows.len(),
            count(CheckState::Change),
            count(CheckState::Review),
            count(CheckState::Good),
            count(CheckState::Absent),
            count(CheckState::Unknown)
        ),
    );
    let mut areas: Vec<&str> = Vec::new();
    for row in rows {
        if !areas.contains(&row.area) {
            areas.push(row.area);
        }
    }
    for area in areas {
        let of_area: Vec<&CheckRow> = rows.iter().filter(|row| row.area == area).collect();
        let table = Table::from_items(of_area)
            .left("FEATURE", |row| row.what.as_str())
            .left("STATE", |row| {
                Cell::from(row.state.name()).marked(mark(row.state))
            })
            .left("VALUE", |row| row.value.as_deref().unwrap_or("-"))
            .narrow(ColumnShrink::Wrap);
        page.section(area.to_uppercase(), vec![table.into()]);
    }
    page.section("FILE SYSTEMS", vec![abilities(file_systems).into()]);
    let worths: Vec<(String, Cell)> = (rows.iter())
        .filter_map(|row| Some(fact(&row.what, worth(row, measured)?)))
        .collect();
    page.section("MEASURED GAIN OVER BASE PAGES", vec![worths.into()]);
    let mut wrong: Vec<&CheckRow> = rows
        .iter()
        .filter(|row| row.why.is_some() && row.state != CheckState::Unknown)
        .collect();
    wrong.sort_by_key(|row| row.state != CheckState::Change);
    let notes: Vec<Note> = wrong.into_iter().map(note).collect();
    page.section("FINDINGS", vec![notes.into()]);
    page
}

fn abilities(all: &[FileSystem]) -> TableBuilder<&FileSystem> {
    let yes = |known: Option<bool>| known.map(|is| if is { "yes" } else { "no" });
    fn can<T>(one: &FileSystem, of: impl Fn(&FileSystemFeatures) -> Option<T>) -> Option<T> {
        one.can.known().and_then(of)
    }
    Table::from_items(all)
        .left("AT", |one| one.at.as_str())
        .left("TYPE", |one| one.kind.as_str())
        .right("DIO ALIGNMENT", |one| {
            can(one, |can| can.direct_offset_bytes).map(by)
        })
        .right("LARGEST FILE", |one| {
            can(one, |can| can.largest_file_bytes).map(Bytes)
        })
        .left("EXTENTS", |one| yes(one.extents))
        .left("ATTRIBUTES", |one| yes(can(one, |can| can.attributes)))
        .left("ACLS", |one| yes(can(one, |can| can.acls)))
        .left("LARGE FOLIOS", |one| yes(one.large_folios))
        .left("ONLINE RESIZE", |one| one.resize)
        .left("EXTERNAL JOURNAL", |one| yes(one.journal_elsewhere))
}

/// Formats an alignment of file offsets.
fn by(bytes: u32) -> String {
    match bytes {
        0 => "none".to_owned(),
        n => Bytes(n.into()).to_string(),
    }
}

fn mark(state: CheckState) -> StatusMark {
    match state {
        CheckState::Change => StatusMark::Bad,
        CheckState::Review => StatusMark::Warn,
        CheckState::Good => StatusMark::Good,
        CheckState::Absent | CheckState::Unknown => StatusMark::Dim,
    }
}

fn note(row: &CheckRow) -> Note {
    let text = format!("{}: {}", row.what, row.why.as_deref().unwrap_or_default());
    let command = row.command.iter();
    Note {
        evidence: Vec::from_iter(row.risk.as_ref().map(|risk| format!("risk: {risk}"))),
        commands: command.map(|line| CommandHint::new("next", line)).collect(),
        ..Note::marked(row.state.name(), mark(row.state), text)
    }
}

pub fn check_json(
    rows: &[CheckRow],
    file_systems: &[FileSystem],
    profile: Option<WorkloadProfile>,
    measured: &GainsByArm,
) -> String {
    let one = |row: &CheckRow| {
        let worth = row
            .arm
            .as_ref()
            .map(|arm| measured.get(arm).map_or(&[][..], Vec::as_slice));
        merge_fields(row, json!({ "worth": worth }))
    };
    answer(&json!({
        "profile": profile,
        "features": rows.iter().map(one).collect::<Json>(),
        "file_systems": file_systems,
    }))
}
