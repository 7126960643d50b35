//! Real-time priority of a thread.
#![allow(unsafe_code)]
//! # Safety
//! The calls take numbers and a structure of this stack, which the kernel reads or fills before they return.
//! They are made as bare system calls, because musl's functions of these names always answer ENOSYS.

use std::marker::PhantomData;

use crate::SysError;
use crate::error::last_errno;

/// The kernel's `struct sched_param`. That of musl has more fields.
#[repr(C)]
struct SchedParam {
    priority: i32,
}

/// Gives its thread precedence over all threads without real-time priority (sched(7), `SCHED_FIFO`) until dropped.
/// Child threads do not inherit it. Bound to its thread.
#[derive(Debug)]
pub struct RealTimePriority {
    policy: i32,
    priority: i32,
    _of_this_thread: PhantomData<*const ()>,
}

impl RealTimePriority {
    /// Raises the priority of this thread.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_NICE, past RLIMIT_RTPRIO, or in a control group without real-time runtime.
    pub fn new() -> Result<RealTimePriority, SysError> {
        let mut param = SchedParam { priority: 0 };
        // SAFETY: see above.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        // SAFETY: see above.
        unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut param) };
        let before = RealTimePriority {
            policy: i32::try_from(policy).unwrap_or(libc::SCHED_OTHER),
            priority: param.priority,
            _of_this_thread: PhantomData,
        };
        set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1)?;
        Ok(before)
    }
}

impl Drop for RealTimePriority {
    fn drop(&mut self) {
        // Restoring the former policy is always allowed.
        let _ = set(self.policy, self.priority);
    }
}

fn set(policy: i32, priority: i32) -> Result<(), SysError> {
    let param = SchedParam { priority };
    // SAFETY: see above.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param) } {
        0 => Ok(()),
        _ => Err(SysError::new(
            "sched_setscheduler",
            format!("to policy {policy}"),
            last_errno(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i64 {
        // SAFETY: takes a number.
        unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }
    }

    #[test]
    fn afterwards_it_is_as_it_was() {
        let before = policy();
        match RealTimePriority::new() {
            Ok(first) => {
                let fifo = i64::from(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK);
                assert_eq!(policy(), fifo);
                let child = std::thread::spawn(policy).join().unwrap();
                assert_eq!(child, i64::from(libc::SCHED_OTHER));
                drop(first);
            }
            Err(error) => {
                println!("not run: the part of afterwards_it_is_as_it_was with the right: {error}")
            }
        }
        assert_eq!(policy(), before);
    }
}
