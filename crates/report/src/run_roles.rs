//! The roles of a process under `hugeleaf run`: requested, granted and missing memory, with
//! reasons.

use hugeleaf_host::PageUsage;
use hugeleaf_units::PageKind;
use hugeleaf_verdict::role_results::RoleResult;

use crate::document::{Cell, ColumnShrink, CommandHint, ContentBlock, Table};

pub fn blocks(roles: &[RoleResult]) -> Vec<ContentBlock> {
    let table = Table::from_items(roles)
        .left("ROLE", |state| state.role.name())
        .left("ASKED", |state| state.asked.clone())
        .left("GOT", |state| got(&state.got))
        .right("MISSING", |state| Cell::some_bytes(state.missing))
        .left("REASON", |state| why(state))
        .narrow(ColumnShrink::Wrap);
    let next = |state: &RoleResult| {
        let command = state.command.as_deref()?;
        let label = format!("next, for {}", state.role);
        (command != "# nothing to do").then(|| CommandHint::new(label, command))
    };
    vec![
        table.into(),
        roles.iter().filter_map(next).collect::<Vec<_>>().into(),
    ]
}

/// Formats granted memory, largest pages first: `2M 1.2G · 4K 13M`. Pages of a pool are marked.
fn got(table: &[PageUsage]) -> String {
    if table.is_empty() {
        return "-".to_owned();
    }
    let parts: Vec<String> = table
        .iter()
        .rev()
        .map(|held| match held.kind {
            PageKind::Hugetlb => format!("hugetlb {} {}", held.size, held.bytes),
            PageKind::Thp | PageKind::Base => format!("{} {}", held.size, held.bytes),
        })
        .collect();
    parts.join(" · ")
}

/// Returns the reason for missing memory, and the amount in ranges too small for such pages.
fn why(state: &RoleResult) -> String {
    let small =
        (!state.too_small.is_zero()).then(|| format!("{} in too small ranges", state.too_small));
    let parts: Vec<String> = state.reason.iter().cloned().chain(small).collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, TextOptions};
    use hugeleaf_units::Bytes;
    use hugeleaf_verdict::run_policy::RunMemoryKind;

    fn text(roles: &[RoleResult], width: usize) -> String {
        let mut page = Document::default();
        for block in blocks(roles) {
            page.add(block);
        }
        page.text(TextOptions::plain(width))
    }

    fn state(role: RunMemoryKind, missing: u64, reason: Option<&str>) -> RoleResult {
        let held = |size: &str, kind, mib| PageUsage {
            size: size.parse().unwrap(),
            kind,
            bytes: Bytes::from_mib(mib),
        };
        RoleResult {
            role,
            asked: "auto".to_owned(),
            got: vec![
                held("4K", PageKind::Base, 13),
                held("2M", PageKind::Thp, 1200),
                held("2M", PageKind::Hugetlb, 64),
            ],
            missing: Bytes::from_mib(missing),
            too_small: Bytes::from_mib(1),
            reason: reason.map(str::to_owned),
            command: reason.map(|_| "hugeleaf promote 1".to_owned()),
        }
    }

    #[test]
    fn sentences_hang_in_their_column_or_below_it() {
        let roles = [
            state(
                RunMemoryKind::Data,
                12,
                Some("a reason of some words that goes on"),
            ),
            state(RunMemoryKind::Text, 0, None),
        ];
        assert_eq!(
            text(&roles, 90),
            "\
ROLE  ASKED  GOT                                MISSING  REASON
data  auto   hugetlb 2M 64M · 2M 1.2G · 4K 13M      12M  a reason of some words that goes
                                                         on; 1M in too small ranges
text  auto   hugetlb 2M 64M · 2M 1.2G · 4K 13M        -  1M in too small ranges
next, for data: hugeleaf promote 1
"
        );
        let narrow = text(&roles, 60);
        assert!(narrow.contains("\n      a reason"), "{narrow}");
        assert!(narrow.ends_with("next, for data: hugeleaf promote 1\n"));
    }
}
