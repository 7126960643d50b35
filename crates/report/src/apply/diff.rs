//! The difference that a step makes: line by line for a file, else the old and the new value.

use std::path::Path;

use hugeleaf_plan::host::Place;
use similar::TextDiff;

use crate::screen::{clean, screen};

pub fn step(path: &Path, before: &Place, wanted: &Place) -> Vec<String> {
    let shown = path.display();
    let line = match (before, wanted) {
        (Place::File { .. } | Place::Absent, Place::File { .. })
        | (Place::File { .. }, Place::Absent) => {
            return file(&shown.to_string(), before, wanted);
        }
        (_, Place::Folder { mode, .. }) => format!("make folder {shown} ({mode:04o})"),
        (Place::Folder { .. }, Place::Absent) => format!("remove folder {shown}, if empty"),
        (_, Place::Mount { options }) => format!("mount hugetlbfs on {shown} ({options})"),
        (_, Place::NoMount) => format!("unmount {shown}"),
        (before, wanted) => format!("{shown}: {} → {}", value(before), value(wanted)),
    };
    vec![line]
}

fn value(place: &Place) -> String {
    match place {
        Place::Value { value } => value.clone(),
        Place::Pool { pages, .. } => format!("{pages} pages"),
        other => other.in_short(),
    }
}

fn file(path: &str, before: &Place, wanted: &Place) -> Vec<String> {
    let text = |place: &Place| match place.as_file() {
        // Escape control characters here, so that a line of the file stays one line.
        Some((content, _)) => screen(&content.text()).into_owned(),
        None => String::new(),
    };
    let name = |place: &Place| match place {
        Place::Absent => "/dev/null".to_owned(),
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
