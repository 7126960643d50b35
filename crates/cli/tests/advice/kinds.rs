//! The kinds of printed commands, and the test that runs each on a host.

use Held::{Asks, NotHere, Run};

/// Check that a kind of command gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// This test makes the program print it, runs it, and checks the effect.
    Run(&'static str),
    /// It only shows something. It runs unchanged, or is parsed if it has placeholders.
    Asks,
    /// It cannot run on a test host, for this reason. It is parsed.
    NotHere(&'static str),
}

const POOLS: Held = Run("a_pool_gets_the_pages_that_were_said");
const LEFT_OVER: Held = Run("pages_that_no_process_holds_are_named_and_freed");
const KNOBS: Held = Run("a_knob_says_what_was_said");
const FILES: Held = Run("files_that_are_not_in_force_are_put_in_force");
const ACCOUNTS: Held = NotHere("it changes an account of the host for good");
const SERVICE: Held = NotHere("it starts a service of the host anew");
const SERVER: Held = NotHere("it asks a server by an address that the person has");

/// Each command, with `*` for any text; the first match counts.
pub const KINDS: [(&str, Held); 58] = [
    // Pools.
    ("echo all on huge pages", Asks),
    (
        "printf '*' > /etc/systemd/system/*",
        NotHere("it leaves units on the host"),
    ),
    (
        "echo '*' > /etc/cron.d/*",
        NotHere("it leaves a file for cron on the host; its line is parsed"),
    ),
    (
        "echo '*' > /etc/tmpfiles.d/*",
        NotHere("it leaves a file below /etc on the host; its line is parsed"),
    ),
    (
        "echo 600000 > /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs",
        KNOBS,
    ),
    ("echo * > *", POOLS),
    // Settings.
    ("sysctl -p *", FILES),
    (
        "ethtool -K * *",
        NotHere("it changes a network device of the host, which may be how the host is reached"),
    ),
    ("sysctl kernel.*=*", KNOBS),
    ("sysctl -w *=*", KNOBS),
    ("sysctl fs.file-max", Asks),
    ("systemd-tmpfiles --create *", FILES),
    (
        "mount -t tracefs nodev /sys/kernel/tracing",
        Run("mounts_and_limits_take_the_words"),
    ),
    (
        "mount -o remount,*",
        Run("mounts_and_limits_take_the_words"),
    ),
    ("umount *", Run("mounts_and_limits_take_the_words")),
    ("ulimit *", Run("mounts_and_limits_take_the_words")),
    ("setcap *", Run("a_capability_lets_an_ordinary_user_look")),
    (
        "update-grub",
        NotHere("it writes the boot loader's configuration"),
    ),
    ("usermod *", ACCOUNTS),
    ("systemctl list-units *", Asks),
    ("systemctl cat *", Asks),
    ("systemctl daemon-reload*", SERVICE),
    ("systemctl restart *", SERVICE),
    ("systemctl start *", SERVICE),
    ("systemctl enable *", SERVICE),
    ("pg_ctl restart *", SERVICE),
    (
        "kill -INT *",
        NotHere(
            "it ends the experiment of another prove; that memory is put back then has tests there",
        ),
    ),
    (
        "kill -CONT *",
        NotHere("it is for a process that somebody stopped"),
    ),
    ("rm -- *", LEFT_OVER),
    ("ipcrm *", LEFT_OVER),
    ("mv *", Run("a_file_in_the_way_is_moved_aside")),
    (
        "chmod go-w *",
        Run("a_plan_that_others_can_change_is_made_ones_own"),
    ),
    (
        "cp * ~/",
        Run("a_plan_that_others_can_change_is_made_ones_own"),
    ),
    ("apt-get install *", NotHere("it installs a program")),
    ("$EDITOR *", NotHere("it opens an editor")),
    // Commands that only show something.
    (
        "su * -s /bin/sh -c 'ulimit -l'",
        Run("steps_are_shown_by_their_commands"),
    ),
    ("cat *", Run("steps_are_shown_by_their_commands")),
    ("findmnt *", Run("steps_are_shown_by_their_commands")),
    ("df *", Asks),
    ("dmesg *", Asks),
    ("journalctl -u *", Asks),
    ("fuser *", Asks),
    ("getent *", Asks),
    ("grep *", Asks),
    ("ipcs -m", Asks),
    ("head -n *", Asks),
    ("ls *", Asks),
    ("namei -l *", Asks),
    ("lsattr *", Asks),
    ("ps *", Asks),
    ("curl -sS *", SERVER),
    ("mysql *", SERVER),
    ("psql *", SERVER),
    ("redis-cli *", SERVER),
    ("echo stats | nc *", SERVER),
    ("jcmd * *", NotHere("it asks a JVM that runs")),
    ("hugeleaf", Run("flags_that_are_printed_are_taken")),
    ("hugeleaf *", Run("flags_that_are_printed_are_taken")),
];

/// Returns the programs that commands begin with.
pub fn programs() -> Vec<&'static str> {
    let first = |kind: &'static str| kind.split_whitespace().next();
    KINDS.iter().filter_map(|(kind, _)| first(kind)).collect()
}

/// Returns the kind of a command, with its check.
pub fn kind(command: &str) -> Option<&'static (&'static str, Held)> {
    KINDS.iter().find(|(pattern, _)| fits(pattern, command))
}

/// Returns true if a text matches a pattern, with `*` for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let parts: Vec<&str> = pattern.split('*').collect();
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return false;
    };
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    if parts.len() == 1 {
        return rest.is_empty();
    }
    for part in &parts[1..parts.len() - 1] {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}
