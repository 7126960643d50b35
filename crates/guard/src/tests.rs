//! Synthetic process trees for tests.

use std::time::Duration;

use hugeleaf_sys::Pid;
use hugeleaf_units::Bytes;

use hugeleaf_host::ForkTreeId;

use crate::observation::{ObservedTree, TreeDetail};

/// Returns a busy server that has run for an hour, with a gigabyte on base pages and no detailed scan.
pub fn seen(pid: u32) -> ObservedTree {
    ObservedTree {
        id: ForkTreeId {
            pid,
            start_ticks: 100,
        },
        pids: vec![Pid(pid)],
        name: "server".into(),
        program_name: None,
        unit: None,
        cgroup: None,
        pod: None,
        uid: 112,
        user: None,
        is_own: false,
        age: Duration::from_secs(3600),
        cpu: Some(0.5),
        resident: Bytes::from_mib(1024),
        closer: None,
    }
}

/// Returns a detailed scan with these megabytes on base and huge pages.
pub fn closer(small: u64, large: u64) -> TreeDetail {
    TreeDetail {
        small: Bytes::from_mib(small),
        large: Bytes::from_mib(large),
        ..TreeDetail::default()
    }
}

pub fn who(pid: u32) -> hugeleaf_mover::ProcessIdentity {
    let mut who = hugeleaf_mover::ProcessIdentity::default();
    who.pid = hugeleaf_sys::Pid(pid);
    who
}
