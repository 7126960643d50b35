//! Time until a user gets an answer from `status`, and from `mem PID` of a large process.

use std::path::Path;

use crate::holders::Holder;
use crate::record::{Record, median};
use crate::timing::{Arm, interleave};
use crate::{Failed, HUGELEAF, Mode};

/// Runs the benchmark.
pub fn run(mode: Mode, out: &Path) -> Result<(), Failed> {
    let (size, rounds) = match mode {
        Mode::Full => ("4G", 30),
        Mode::Smoke => ("8M", 1),
    };
    let mut holder = Holder::start("-", size, "0", false)?;
    holder.wait_ready()?;
    let pid = holder.pid().to_string();
    let mut record = Record::new("latency", "make bench");
    let mut arms = [
        Arm::new("status", HUGELEAF, &["status"]),
        Arm::new(&format!("mem PID of {size}"), HUGELEAF, &["mem", &pid]),
        Arm::new("mem", HUGELEAF, &["mem"]),
    ];
    interleave(&mut arms, rounds)?;
    for arm in &arms {
        let worst = arm.seconds.iter().copied().fold(0.0, f64::max);
        record.figure(format!("{}, median", arm.label), median(&arm.seconds));
        record.figure(format!("{}, worst", arm.label), worst);
        record.arm(arm.label.clone(), "seconds", &arm.seconds);
    }
    record.write(out)?;
    Ok(())
}
