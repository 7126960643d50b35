//! Runs of this program as a child process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Runs the command to its end, and interrupts it once `stop` is set. It has a process group of its
/// own: Ctrl-C at the terminal reaches only this process, and a second one would end the child.
///
/// # Errors
/// It could not be started or watched.
pub(super) fn run_out(command: &mut Command, stop: &AtomicBool) -> io::Result<Output> {
    const LOOK: Duration = Duration::from_millis(20);
    command.process_group(0);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if stop.load(Ordering::Relaxed) {
                    // A child that has just ended needs no signal.
                    let _ = pidfd_send_signal(&handle, Signal::INT);
                    return;
                }
                std::thread::sleep(LOOK);
            }
        });
        let output = child.wait_with_output();
        over.store(true, Ordering::Relaxed);
        output
    })
}
