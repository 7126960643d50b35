//! Messages of `hugeleaf run` before a process starts. Standard error gets unavailable requests and
//! the meaning of LDR_CNTRL; `--dry-run` prints all settings.

use std::collections::BTreeMap;

use hugeleaf_host::RunPageKind;
use hugeleaf_units::Bytes;
use hugeleaf_verdict::run_policy::ldr_cntrl::AixRequest;
use hugeleaf_verdict::run_policy::{PagePolicy, ResolvedPolicy, RunMemoryKind, UnavailableRequest};
use serde_json::json;

use crate::document::{ContentBlock, Document, Note, StatusMark, Table};
use crate::json::answer;

#[derive(Debug, Clone)]
pub struct RunPreview {
    pub command: Vec<String>,
    /// Variables and their values, in display order.
    pub environment: Vec<(String, String)>,
    pub settled: ResolvedPolicy,
    /// Reason why nothing can be loaded into the process; `None` if it can.
    pub obstacle: Option<String>,
}

impl RunPreview {
    /// Returns the alternatives of a role in words: `pool 2M`, `THP 2M`.
    fn ways(&self, role: RunMemoryKind) -> Vec<String> {
        let in_words = |way: &RunPageKind| match (way, self.settled.settings.pmd) {
            (RunPageKind::Hugetlb(size), _) => format!("pool {size}"),
            (RunPageKind::Thp, Some(pmd)) => format!("THP {pmd}"),
            (RunPageKind::Thp, None) => "THP".to_owned(),
        };
        let rungs = self.settled.settings.policy(role);
        rungs.ways.iter().map(in_words).collect()
    }

    fn after(&self, role: RunMemoryKind) -> Option<Bytes> {
        let settings = &self.settled.settings;
        match role {
            RunMemoryKind::Data => settings.data_after,
            RunMemoryKind::Shm => settings.shm_after,
            RunMemoryKind::Stack => settings.stack_after,
            RunMemoryKind::Text => None,
        }
    }
}

/// Returns one line on explicit requests that are unavailable; `None` if all are available.
pub fn missing_line(missing: &[UnavailableRequest]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let in_words = |m: &UnavailableRequest| {
        format!(
            "{} is unavailable, because {}; next: {}",
            m.asked, m.reason, m.command
        )
    };
    let items: Vec<String> = missing.iter().map(in_words).collect();
    Some(format!("hugeleaf: run: {}\n", items.join(" | ")))
}

/// Returns the meaning of each LDR_CNTRL item on this host; `beaten` are overriding flags.
pub fn mapping(mapped: &[AixRequest], beaten: &[(RunMemoryKind, PagePolicy)]) -> Document {
    let here = |item: &&AixRequest| match beaten.iter().find(|(role, _)| *role == item.role) {
        Some((role, want)) => format!("--{role} {want} (the flag)"),
        None => format!("--{} {}", item.role, item.request),
    };
    let mut page = Document::default();
    page.add(
        Table::from_items(mapped)
            .left("LDR_CNTRL", |item| item.key)
            .right("VALUE", |item| &item.value)
            .left("FLAG", here),
    );
    page
}

pub fn page(start: &RunPreview) -> Document {
    let variable = |(name, value): &(String, String)| format!("{name}={value}");
    let unavailable = |missing: &UnavailableRequest| {
        let text = format!("{}: {}", missing.asked, missing.reason);
        Note::marked("unavailable", StatusMark::Warn, text).run("next", &missing.command)
    };
    let roles = Table::from_items(RunMemoryKind::ALL)
        .left("ROLE", |role| role.name())
        .left("ASKED", |role| &start.settled.settings.policy(*role).typed)
        .right("FROM", |role| start.after(*role))
        .left("TRIES", |role| tries(start, *role));
    let missing: Vec<Note> = start.settled.missing.iter().map(unavailable).collect();
    let obstacle = start.obstacle.clone().unwrap_or_default();
    let mut page = Document::new("Settings of hugeleaf run", "");
    page.add(ContentBlock::Lines(
        start.environment.iter().map(variable).collect(),
    ))
    .section("", vec![roles.into()])
    .section("", vec![missing.into()])
    .section("", vec![obstacle.into()]);
    page
}

fn tries(start: &RunPreview, role: RunMemoryKind) -> String {
    let ways = start.ways(role).join(", then ");
    match (
        ways.is_empty(),
        start.settled.settings.policy(role).mandatory,
    ) {
        (true, _) => "unchanged".to_owned(),
        (false, true) => format!("{ways}, or nothing"),
        (false, false) => ways,
    }
}

pub fn json(start: &RunPreview) -> String {
    let environment: BTreeMap<&String, &String> =
        (start.environment.iter().map(|(name, value)| (name, value))).collect();
    let role = |role: RunMemoryKind| {
        json!({
            "role": role,
            "asked": start.settled.settings.policy(role).typed,
            "tries": start.ways(role),
            "mandatory": start.settled.settings.policy(role).mandatory,
            "after_bytes": start.after(role),
        })
    };
    answer(&json!({
        "command": start.command,
        "environment": environment,
        "roles": RunMemoryKind::ALL.map(role),
        "missing": start.settled.missing,
        "obstacle": start.obstacle,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::TextOptions;

    fn missing(asked: &str) -> UnavailableRequest {
        UnavailableRequest {
            asked: asked.to_owned(),
            reason: "the pool is empty".to_owned(),
            command: "fill it".to_owned(),
        }
    }

    #[test]
    fn what_is_missing_is_one_line() {
        assert_eq!(missing_line(&[]), None);
        assert_eq!(
            missing_line(&[missing("--shm 1G")]).unwrap(),
            "hugeleaf: run: --shm 1G is unavailable, because the pool is empty; next: fill it\n"
        );
        let two = missing_line(&[missing("--shm 1G"), missing("--data 1G")]).unwrap();
        assert_eq!(two.lines().count(), 1, "{two}");
    }

    #[test]
    fn the_mapping_is_a_table_and_flags_beat_it() {
        let mapped = |key, role: RunMemoryKind, here: &str| AixRequest {
            key,
            value: "16M".to_owned(),
            role,
            request: here.parse().unwrap(),
        };
        let items = [
            mapped("DATAPSIZE", RunMemoryKind::Data, "2M"),
            mapped("SHMPSIZE", RunMemoryKind::Shm, "2M"),
        ];
        assert_eq!(
            mapping(&items, &[(RunMemoryKind::Shm, PagePolicy::Base)])
                .text(TextOptions::plain(100)),
            "LDR_CNTRL  VALUE  FLAG\n\
             DATAPSIZE    16M  --data 2M\n\
             SHMPSIZE     16M  --shm base (the flag)\n"
        );
    }
}
