//! Circles between the files of a crate: two files that import each other, or more in a ring.
//!
//! An import leads to the file that has the name: one that a file passes on (`pub use`) is followed to
//! where it comes from. Passing on is no import itself, and neither is `mod`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::{Source, words};

/// A path in a crate, of a file or a name: `["why", "segment"]`; empty for the root.
type Place = Vec<String>;

/// A `use`: whether it passes the names on, and the place of each with the name it has here.
struct Import {
    passes_on: bool,
    place: Place,
}

/// The files of a crate that are part of a circle, as `why::segment`, each with those of its imports
/// that close it; the root is `crate`.
pub fn in_circles(sources: &[Source], name: &str) -> BTreeMap<String, Vec<String>> {
    let folder = format!("crates/{name}/src");
    let is_test = |s: &&Source| s.path.iter().any(|part| part == "tests");
    let own = sources
        .iter()
        .filter(|s| s.path.starts_with(&folder) && !is_test(s));
    let files: BTreeMap<Place, &str> = own
        .map(|source| (module_of(&source.path, &folder), source.bare.as_str()))
        .collect();
    let imports: BTreeMap<&Place, Vec<Import>> = files
        .iter()
        .map(|(module, bare)| (module, imports_of(module, bare, &files)))
        .collect();
    let edges: BTreeMap<&Place, BTreeSet<&Place>> = imports
        .iter()
        .map(|(module, of_file)| {
            let used = of_file.iter().filter(|import| !import.passes_on);
            let used = used.filter_map(|import| file_of(&import.place, &imports));
            (*module, used.filter(|file| file != module).collect())
        })
        .collect();
    let mut found = BTreeMap::new();
    for (file, used) in &edges {
        let closing = used.iter().filter(|used| reaches(used, file, &edges));
        let closing: Vec<String> = closing.map(|used| shown(used)).collect();
        if !closing.is_empty() {
            found.insert(shown(file), closing);
        }
    }
    found
}

fn shown(file: &Place) -> String {
    match file.is_empty() {
        true => "crate".to_owned(),
        false => file.join("::"),
    }
}

fn module_of(path: &Path, folder: &str) -> Place {
    let inside = path.strip_prefix(folder).unwrap().with_extension("");
    let mut parts: Place = inside
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib")) || parts == ["main"] {
        parts.pop();
    }
    parts
}

/// What a file imports from its own crate, by `use` and by paths in its code.
fn imports_of(module: &Place, bare: &str, files: &BTreeMap<Place, &str>) -> Vec<Import> {
    let mut imports = Vec::new();
    let mut code = bare.to_owned();
    for at in words(bare, "use") {
        let Some(end) = bare[at..].find(';').map(|i| at + i) else {
            continue;
        };
        let line = bare[..at].rsplit(['\n', ';', '}']).next().unwrap_or("");
        let mut paths = Vec::new();
        spread(Vec::new(), &bare[at + 3..end], &mut paths);
        imports.extend(paths.iter().filter_map(|path| {
            Some(Import {
                passes_on: line.trim_start().starts_with("pub"),
                place: absolute(module, path, files)?,
            })
        }));
        code.replace_range(at..end, &" ".repeat(end - at));
    }
    let part = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    let paths = code.split(part).filter(|word| word.contains("::"));
    imports.extend(paths.filter_map(|path| {
        let path: Place = path.split("::").map(str::to_owned).collect();
        Some(Import {
            passes_on: false,
            place: absolute(module, &path, files)?,
        })
    }));
    imports
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn spread(before: Place, tree: &str, out: &mut Vec<Place>) {
    let mut depth = 0;
    let branches = tree.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for branch in branches.map(str::trim).filter(|b| !b.is_empty()) {
        let (path, inner) = match branch.split_once('{') {
            Some((path, inner)) => (path, inner.trim_end().strip_suffix('}')),
            None => (branch.split(" as ").next().unwrap_or(branch), None),
        };
        let mut place = before.clone();
        let parts = path.split("::").map(str::trim);
        place.extend(parts.filter(|p| !p.is_empty()).map(str::to_owned));
        match inner {
            Some(inner) => spread(place, inner, out),
            None => {
                if place.len() > 1 && place.last().is_some_and(|p| p == "self") {
                    place.pop();
                }
                out.push(place);
            }
        }
    }
}

/// A path as from the crate's root; `None` of what is not of the crate.
fn absolute(module: &Place, path: &Place, files: &BTreeMap<Place, &str>) -> Option<Place> {
    let child = |name: &String| [module.as_slice(), std::slice::from_ref(name)].concat();
    let ups = path.iter().take_while(|part| *part == "super").count();
    let (base, rest) = match path.first()?.as_str() {
        "crate" => (&[][..], &path[1..]),
        "self" => (module.as_slice(), &path[1..]),
        "super" => (&module[..module.len().checked_sub(ups)?], &path[ups..]),
        _ if files.contains_key(&child(&path[0])) => (module.as_slice(), path.as_slice()),
        _ => return None,
    };
    Some([base, rest].concat())
}

/// The file that has what is at a place; what a file only passes on is followed.
fn file_of<'a>(place: &Place, imports: &BTreeMap<&'a Place, Vec<Import>>) -> Option<&'a Place> {
    let mut place = place.clone();
    for _ in 0..8 {
        let len = (0..=place.len()).rev();
        let mut len = len.filter(|len| imports.contains_key(&place[..*len].to_vec()));
        let len = len.next()?;
        let (file, of_file) = imports.get_key_value(&place[..len].to_vec())?;
        let name = place.get(len);
        let from = of_file
            .iter()
            .find(|import| import.passes_on && name.is_some() && import.place.last() == name);
        match from {
            Some(import) if import.place != place => place = import.place.clone(),
            _ => return Some(file),
        }
    }
    None
}

fn reaches(from: &Place, to: &Place, edges: &BTreeMap<&Place, BTreeSet<&Place>>) -> bool {
    let mut seen: BTreeSet<&Place> = BTreeSet::new();
    let mut open: Vec<&Place> = vec![from];
    while let Some(file) = open.pop() {
        if file == to {
            return true;
        }
        if seen.insert(file) {
            open.extend(&edges[file]);
        }
    }
    false
}

#[test]
fn circles_are_found_and_facades_are_none() {
    let source = |path: &str, bare: &str| Source {
        path: Path::new("crates/x/src").join(path),
        text: String::new(),
        code: String::new(),
        bare: bare.to_owned(),
    };
    let found = |files: &[Source]| -> Vec<String> { in_circles(files, "x").into_keys().collect() };
    // A folder's file that passes on what works on its types.
    let facade = [
        source("lib.rs", "mod a; use a::go;"),
        source("a.rs", "mod rules; pub use rules::go; pub struct T;"),
        source("a/rules.rs", "use super::T; pub fn go(t: T) {}"),
    ];
    assert!(found(&facade).is_empty());
    // The same where that file calls it.
    let calls = [
        source("a.rs", "mod rules; pub struct T; fn f() { rules::go(T) }"),
        source("a/rules.rs", "use super::{T, U as V};"),
    ];
    assert_eq!(found(&calls), ["a", "a::rules"]);
    // A ring by way of a name that is passed on.
    let ring = [
        source("a.rs", "use crate::b::N;"),
        source("b.rs", "mod inner; pub use inner::{self, N};"),
        source("b/inner.rs", "use crate::c::deep::{X, Y};"),
        source("c/deep.rs", "use crate::a;"),
        source("c/mod.rs", "pub mod deep;"),
    ];
    assert_eq!(found(&ring), ["a", "b::inner", "c::deep"]);
}
