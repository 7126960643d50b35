//! Python with threads, other programs and several processes.

use std::path::PathBuf;

use super::under::{Line, Mode, UNDER, can_run, same};
use crate::common::{not_run, stderr, stdout};
use hugeleaf_testkit::find_program;

fn runs_alike(test: &str, script: &str) {
    let Some(python) = find_program(&["/usr/bin/python3", "python3"]) else {
        return not_run(test, "needs python3");
    };
    if !can_run(test) {
        return;
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/run_compat/python")
        .join(script);
    let run = |way: Mode| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = way.command(&python);
        command
            .arg(&path)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let bare = run(Mode::Bare);
    assert_eq!(
        bare.status.code(),
        Some(3),
        "bare: {}{}",
        stdout(&bare),
        stderr(&bare)
    );
    for way in UNDER {
        same(&bare, &run(way), Line::None, &format!("{script}, {way:?}"));
    }
}

#[test]
fn threads_and_other_programs() {
    let _host = hugeleaf_testkit::host_lock::shared();
    runs_alike("threads_and_other_programs", "threads.py");
}

#[test]
fn several_processes() {
    let _host = hugeleaf_testkit::host_lock::shared();
    runs_alike("several_processes", "processes.py");
}
