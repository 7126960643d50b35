//! The roles of a process under `hugeleaf run`: asked, got, missing, why.

use hugeleaf_host::Held;
use hugeleaf_units::{Bytes, PageKind};
use hugeleaf_verdict::roles::RoleState;

use crate::table::{Align, Look, Table};

/// A sentence in fewer columns is hard to read: it then goes below its row.
const LEAST: usize = 30;

/// The table, and below it what can be done.
pub fn text(roles: &[RoleState], width: usize) -> String {
    let heads = ["ROLE", "ASKED", "GOT", "MISSING"];
    let align = |i| if i == 3 { Align::Right } else { Align::Left };
    let heads: Vec<(&str, Align)> = heads
        .iter()
        .enumerate()
        .map(|(i, head)| (*head, align(i)))
        .collect();
    let mut table = Table::new(&heads);
    for state in roles {
        table.row([
            state.role.name().to_owned(),
            state.asked.clone(),
            got(&state.got),
            missing(state.missing),
        ]);
    }
    let table = table.render(width);
    let lines: Vec<&str> = table.lines().collect();
    let across = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0) + 2;
    let look = Look::plain(width);
    let sentences = std::iter::once(Some("WHY".to_owned())).chain(roles.iter().map(why));
    let mut text = String::new();
    for (line, sentence) in lines.iter().zip(sentences) {
        let padded = format!("{line:across$}");
        text.push_str(&match sentence {
            Some(sentence) if across + LEAST <= width => look.wrap(&padded, &sentence),
            Some(head) if head == "WHY" => format!("{line}\n"),
            Some(sentence) => format!("{line}\n{}", look.wrap("      ", &sentence)),
            None => format!("{line}\n"),
        });
    }
    for state in roles {
        if let Some(command) = worth_typing(state) {
            // Not wrapped: it is to be copied.
            text.push_str(&format!("next, for {}: {command}\n", state.role));
        }
    }
    text
}

/// `2M 1.2G · 4K 13M`, the largest pages first. A pool's pages are named so.
fn got(table: &[Held]) -> String {
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

fn missing(bytes: Bytes) -> String {
    if bytes.is_zero() {
        "-".to_owned()
    } else {
        bytes.to_string()
    }
}

/// Why something is missing; of what cannot be on such pages, how much there is.
fn why(state: &RoleState) -> Option<String> {
    let small =
        (!state.small.is_zero()).then(|| format!("{} in pieces smaller than a page", state.small));
    match (&state.reason, small) {
        (Some(reason), Some(small)) => Some(format!("{reason}; {small}")),
        (Some(reason), None) => Some(reason.clone()),
        (None, small) => small,
    }
}

fn worth_typing(state: &RoleState) -> Option<&str> {
    let command = state.command.as_deref()?;
    (command != "# nothing to do").then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_verdict::run::RunRole;

    fn state(role: RunRole, missing: u64, reason: Option<&str>) -> RoleState {
        let held = |size: &str, kind, mib| Held {
            size: size.parse().unwrap(),
            kind,
            bytes: Bytes::from_mib(mib),
        };
        RoleState {
            role,
            asked: "auto".to_owned(),
            got: vec![
                held("4K", PageKind::Base, 13),
                held("2M", PageKind::Thp, 1200),
                held("2M", PageKind::Hugetlb, 64),
            ],
            missing: Bytes::from_mib(missing),
            small: Bytes::from_mib(1),
            reason: reason.map(str::to_owned),
            command: reason.map(|_| "hugeleaf promote 1".to_owned()),
        }
    }

    #[test]
    fn sentences_hang_in_their_column_or_below_it() {
        let roles = [
            state(
                RunRole::Data,
                12,
                Some("a reason of some words that goes on"),
            ),
            state(RunRole::Text, 0, None),
        ];
        assert_eq!(
            text(&roles, 90),
            "\
ROLE  ASKED  GOT                                MISSING  WHY
data  auto   hugetlb 2M 64M · 2M 1.2G · 4K 13M      12M  a reason of some words that goes
                                                         on; 1M in pieces smaller than a
                                                         page
text  auto   hugetlb 2M 64M · 2M 1.2G · 4K 13M        -  1M in pieces smaller than a page
next, for data: hugeleaf promote 1
"
        );
        let narrow = text(&roles, 60);
        assert!(narrow.contains("\n      a reason"), "{narrow}");
        assert!(narrow.ends_with("next, for data: hugeleaf promote 1\n"));
    }
}
