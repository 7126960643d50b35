//! `hugeleaf run` on a host whose knobs say something else: a program of its own, because whoever changes what the
//! whole host does with huge pages has no other test beside it that needs them (cargo runs test programs one by one,
//! the tests of a program side by side).

// A panic is how a test fails, in its helpers too.
#![allow(clippy::unwrap_used)]

mod cli_support;
#[allow(dead_code)] // what stands there is shared by tests that each use a part
mod support;
#[path = "run_compat/under.rs"]
#[allow(dead_code)] // of run_compat, which uses all of it
mod under;

use cli_support::{is_root, not_run, stderr};
use support::host::HostGuard;
use under::{Line, Mode, UNDER, can_run, program, same};

#[test]
fn a_heap_of_all_sizes_when_thp_is_always() {
    let test = "a_heap_of_all_sizes_when_thp_is_always";
    if !can_run(test) || !is_root() {
        return not_run(test, "needs root");
    }
    let guard = HostGuard::lock();
    for mode in ["always", "never"] {
        guard.choose("enabled", mode);
        let held = program("held");
        let run = |way: Mode| {
            let mut command = way.command(&held);
            // With `never`, what is available is not what was asked for, and that is said.
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
