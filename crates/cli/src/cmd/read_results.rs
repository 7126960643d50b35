//! Reads results from earlier runs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use hugeleaf_proof::compare::{NamedResult, ResultSet};
use hugeleaf_proof::result_format::Results;
use hugeleaf_units::Bytes;

use crate::context::Failure;

/// Maximum length of a result. A day of measurements takes a few megabytes.
const LONGEST: Bytes = Bytes::from_mib(256);

pub(super) fn read(path: &Path) -> Result<Results, Failure> {
    let shown = path.display();
    let mut text = String::new();
    let got =
        File::open(path).and_then(|file| file.take(LONGEST.get() + 1).read_to_string(&mut text));
    match got {
        Ok(_) if text.len() as u64 > LONGEST.get() => Err(Failure::no(
            format!("{shown} is longer than {LONGEST}, so it is not a result of prove or bench"),
            "name a file that --output wrote: hugeleaf bench --help",
        )),
        Ok(_) => Results::read(&text)
            .map_err(|error| Failure::no(format!("{shown}: {error}"), error.remedy)),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Err(Failure::no(
            format!("{shown} is not text, so it is not a result of prove or bench"),
            "name a file that --output wrote: hugeleaf bench --help",
        )),
        Err(e) => Err(Failure::missing(
            format!("{shown}: {e}"),
            "name a file that --output wrote, and that you may read",
        )),
    }
}

/// Returns all results in a folder by name, and the files that do not parse. Ignores names that do not end in `.json`.
pub(super) fn read_folder(folder: &Path) -> Result<ResultSet, Failure> {
    const MOST: usize = 1000;
    let failed = |e: std::io::Error| {
        Failure::missing(
            format!("{}: {e}", folder.display()),
            "name a folder with results of hugeleaf bench",
        )
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "json") && !path.is_dir() {
            paths.push(path);
        }
    }
    if paths.len() > MOST {
        let (shown, is) = (folder.display(), paths.len());
        return Err(Failure::no(
            format!("{shown} has {is} .json files; the maximum is {MOST}"),
            "name a folder with fewer results",
        ));
    }
    paths.sort();
    let mut set = ResultSet::default();
    for path in paths {
        match read(&path) {
            Ok(results) => {
                let file = path.file_name().unwrap_or_default();
                let file = file.to_string_lossy().into_owned();
                set.results.push(NamedResult { file, results });
            }
            Err(failure) => set.unread.push(failure.message),
        }
    }
    Ok(set)
}
