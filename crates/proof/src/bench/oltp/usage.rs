//! Processor time of a server and of its children.

use hugeleaf_host::Root;
use hugeleaf_sys::ticks_per_second;

use super::server::children;

/// Microseconds that a process, its children that live and those that it has buried have used, in
/// user mode and in the kernel; `None` where it cannot be read. Grandchildren count once they are
/// buried: a database's server has none.
pub fn tree_usage(root: &Root, pid: u32) -> Option<(u64, u64)> {
    let mut sum = of_one(root, pid, true)?;
    for child in children(root, pid)? {
        // One that has just ended is in the parent's account.
        if let Some((user, system)) = of_one(root, child, false) {
            sum = (sum.0 + user, sum.1 + system);
        }
    }
    Some(sum)
}

fn of_one(root: &Root, pid: u32, with_buried: bool) -> Option<(u64, u64)> {
    let text = root.read(format!("proc/{pid}/stat"));
    parse(text.known()?, ticks_per_second(), with_buried)
}

/// Fields 14 to 17 of proc_pid_stat(5): utime, stime, cutime, cstime, in ticks.
fn parse(text: &str, ticks: u64, with_buried: bool) -> Option<(u64, u64)> {
    // The name, in parentheses, may hold anything.
    let rest = &text[text.rfind(')')? + 1..];
    let fields: Vec<u64> = rest
        .split_ascii_whitespace()
        .skip(11)
        .take(4)
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, system, buried_user, buried_system] = fields[..] else {
        return None;
    };
    let micros = |ticked: u64| ticked.checked_mul(1_000_000)?.checked_div(ticks);
    match with_buried {
        true => Some((
            micros(user.checked_add(buried_user)?)?,
            micros(system.checked_add(buried_system)?)?,
        )),
        false => Some((micros(user)?, micros(system)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_times_are_found_behind_any_name() {
        let line = "12 (a ) b) S 1 12 12 0 -1 4194560 8 7 6 5 100 50 30 20 20 0 1 0 99 8192 77";
        assert_eq!(parse(line, 100, false), Some((1_000_000, 500_000)));
        assert_eq!(parse(line, 100, true), Some((1_300_000, 700_000)));
        for bad in [
            "",
            "12 (a",
            "12 (a) S 1 2",
            "12 (a) S 1 2 3 4 5 6 7 8 9 10 x 1 1 1",
        ] {
            assert_eq!(parse(bad, 100, true), None, "{bad}");
        }
        assert_eq!(parse(line, 0, true), None);
    }

    #[test]
    fn this_process_has_used_some() {
        let mut sum = 0u64;
        for n in 0..50_000_000u64 {
            sum = std::hint::black_box(sum ^ n);
        }
        let (user, system) = tree_usage(&Root::live(), std::process::id()).unwrap();
        assert!(user + system > 0);
    }
}
