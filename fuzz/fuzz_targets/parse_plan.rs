//! Parses plan files. A plan must survive a write and a read unchanged, and its steps must stay in the paths that a plan may
//! write.
#![no_main]

use hugeleaf_plan::{parse, steps, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    let Ok(plan) = parse(&text) else { return };
    assert_eq!(parse(&write(&plan, |_| None)).as_ref(), Ok(&plan), "{text}");
    for step in steps(&plan) {
        let path = step.path.to_str().expect("paths come from text");
        let is_mount = plan.mounts.iter().any(|m| m.path == step.path);
        let allowed = ["/sys/", "/proc/sys/", "/etc/"];
        assert!(
            is_mount || allowed.iter().any(|folder| path.starts_with(folder)),
            "{path}"
        );
        assert!(!path.contains("/../"), "{path}");
    }
});
