//! The difference that a step makes: line by line for a file, else the old and the new value.

use std::path::Path;

use hugeleaf_plan::host_changes::PathState;
use similar::TextDiff;

use crate::terminal_escape::{clean, screen};

pub fn step(path: &Path, before: &PathState, wanted: &PathState) -> Vec<String> {
    let shown = path.display();
    let line = match (before, wanted) {
        (PathState::File { .. } | PathState::Absent, PathState::File { .. })
        | (PathState::File { .. }, PathState::Absent) => {
            return file(&shown.to_string(), before, wanted);
        }
        (_, PathState::Folder { mode, .. }) => format!("make folder {shown} ({mode:04o})"),
        (PathState::Folder { .. }, PathState::Absent) => format!("remove folder {shown}, if empty"),
        (_, PathState::Mount { options }) => format!("mount hugetlbfs on {shown} ({options})"),
        (_, PathState::NoMount) => format!("unmount {shown}"),
        (before, wanted) => format!("{shown}: {} → {}", value(before), value(wanted)),
    };
    vec![line]
}

fn value(place: &PathState) -> String {
    match place {
        PathState::Value { value } => value.clone(),
        PathState::Pool { pages, .. } => format!("{pages} pages"),
        other => other.in_short(),
    }
}

fn file(path: &str, before: &PathState, wanted: &PathState) -> Vec<String> {
    let text = |place: &PathState| match place.as_file() {
        // Escape control characters here, so that a line of the file stays one line.
        Some((content, _)) => screen(&content.text()).into_owned(),
        None => String::new(),
    };
    let name = |place: &PathState| match place {
        PathState::Absent => "/dev/null".to_owned(),
        _ => clean(path),
    };
    let (old, new) = (text(before), text(wanted));
    let diff = TextDiff::from_lines(&old, &new);
    let unified = diff
        .unified_diff()
        .header(&name(before), &name(wanted))
        .to_string();
    unified.lines().map(str::to_owned).collect()
}
