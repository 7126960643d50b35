//! Going first where several threads want a processor.

use rustix::process::{getpriority_process, setpriority_process};

/// Nobody of the ordinary class comes before it.
const FIRST: i32 = -20;

/// While it lives, the thread that took it goes before all others of its class (nice -20). Without CAP_SYS_NICE it
/// changes nothing.
#[derive(Debug)]
pub struct Precedence {
    /// What the thread had; nothing where it could not be changed.
    was: Option<i32>,
    /// Of a thread, and not of its process (setpriority(2), "C library/kernel differences"): it stays there.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl Precedence {
    /// Takes it.
    pub fn take() -> Precedence {
        let was = getpriority_process(None).ok();
        Precedence {
            was: was.filter(|_| setpriority_process(None, FIRST).is_ok()),
            _of_this_thread: std::marker::PhantomData,
        }
    }
}

impl Drop for Precedence {
    fn drop(&mut self) {
        if let Some(was) = self.was {
            // Going back is everybody's right.
            let _ = setpriority_process(None, was);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_a_thread_and_ends() {
        let before = getpriority_process(None).unwrap();
        let first = Precedence::take();
        let now = getpriority_process(None).unwrap();
        assert!(now == FIRST || now == before);
        let elsewhere = std::thread::spawn(|| getpriority_process(None).unwrap());
        // A thread that it starts meanwhile has what it has.
        assert_eq!(elsewhere.join().unwrap(), now);
        drop(first);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
