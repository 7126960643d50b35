//! `hugeleaf run` on a host whose knobs contradict the request.

use crate::common::{is_root, not_run, stderr};
use crate::run_compat::under::{Line, Mode, UNDER, can_run, program, same};
use hugeleaf_testkit::host_lock;

#[test]
fn a_heap_of_all_sizes_when_thp_is_always() {
    let test = "a_heap_of_all_sizes_when_thp_is_always";
    if !can_run(test) || !is_root() {
        return not_run(test, "needs root");
    }
    let guard = host_lock::exclusive();
    for mode in ["always", "never"] {
        guard.choose("enabled", mode);
        let held = program("held");
        let run = |way: Mode| {
            let mut command = way.command(&held);
            // With `never`, the requested pages are unavailable, and a message says so.
            command
                .arg("200")
                .env_remove("COMPAT_LARGE")
                .output()
                .unwrap()
        };
        let bare = run(Mode::Bare);
        assert_eq!(bare.status.code(), Some(7), "{}", stderr(&bare));
        for way in UNDER {
            same(
                &bare,
                &run(way),
                Line::Allowed,
                &format!("enabled={mode}, {way:?}"),
            );
        }
    }
}
