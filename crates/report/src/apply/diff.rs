//! The difference that a step makes: of a file line by line, of anything else old and new value.

use std::path::Path;

use hugeleaf_change::host::Place;
use similar::TextDiff;

use crate::table::{Look, Paint};

/// A step's difference, ended by a line feed.
pub fn step(path: &Path, before: &Place, wanted: &Place, look: Look) -> String {
    let shown = path.display().to_string();
    match (before, wanted) {
        (Place::File { .. } | Place::Absent, Place::File { .. })
        | (Place::File { .. }, Place::Absent) => file(&shown, before, wanted, look),
        (_, Place::Folder { mode, .. }) => line(
            &format!("make folder {shown} ({mode:04o})"),
            Paint::Good,
            look,
        ),
        (Place::Folder { .. }, Place::Absent) => line(
            &format!("remove folder {shown}, if empty"),
            Paint::Bad,
            look,
        ),
        (_, Place::Mount { options }) => {
            let text = format!("mount hugetlbfs on {shown} ({options})");
            line(&text, Paint::Good, look)
        }
        (_, Place::NoMount) => line(&format!("unmount {shown}"), Paint::Bad, look),
        (before, wanted) => {
            let text = format!("{shown}: {} → {}", value(before), value(wanted));
            line(&text, Paint::Good, look)
        }
    }
}

fn line(text: &str, paint: Paint, look: Look) -> String {
    format!("{}\n", look.paint(&crate::table::clean(text), paint))
}

fn value(place: &Place) -> String {
    match place {
        Place::Value { value } => value.clone(),
        Place::Pool { pages, .. } => format!("{pages} pages"),
        other => other.in_short(),
    }
}

fn file(path: &str, before: &Place, wanted: &Place, look: Look) -> String {
    let text = |place: &Place| match place.as_file() {
        Some((content, _)) => plain(&content.text()),
        None => String::new(),
    };
    let name = |place: &Place| match place {
        Place::Absent => "/dev/null".to_owned(),
        _ => path.to_owned(),
    };
    let (old, new) = (text(before), text(wanted));
    let diff = TextDiff::from_lines(&old, &new);
    let unified = diff
        .unified_diff()
        .header(&name(before), &name(wanted))
        .to_string();
    let painted = unified.lines().map(|line| {
        let paint = match line.as_bytes().first() {
            _ if line.starts_with("+++") || line.starts_with("---") => Paint::Bold,
            Some(b'+') => Paint::Good,
            Some(b'-') => Paint::Bad,
            _ => return format!("{line}\n"),
        };
        format!("{}\n", look.paint(line, paint))
    });
    painted.collect()
}

/// The lines with what could steer a terminal written out.
fn plain(text: &str) -> String {
    crate::screen::screen(text, false).into_owned()
}
