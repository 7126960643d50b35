//! The system call filters (seccomp(2)) of the calling thread.
//!
//! Code inside another program must not make a call that a filter may refuse, because a filter may answer with SIGSYS.
//! `prctl(PR_GET_SECCOMP)` may be refused in the same way. Reading the kernel's status file takes three calls that every
//! program makes to read files.
#![allow(unsafe_code)]
//! # Safety
//! The calls take a C string and a buffer whose real length is passed with it.

/// The filters of a thread. A program can add filters and never remove one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeccompFilters {
    mode: u32,
    /// Number of filters. 0 before Linux 5.9, which does not report it.
    count: u32,
}

impl SeccompFilters {
    /// Returns the filters of the calling thread, or `None` if the kernel does not report them.
    pub fn of_thread() -> Option<SeccompFilters> {
        const PART: usize = 2 << 10;
        let mut text = [0; 2 * PART];
        // SAFETY: the path is a C string; without O_CREAT there is no third argument.
        let file = unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            libc::open(c"/proc/thread-self/status".as_ptr(), flags)
        };
        if file < 0 {
            return None;
        }
        let mut found = None;
        // The list of the user's groups comes first and may be long. Parts overlap, so that no line is cut.
        for part in 0..256 {
            // SAFETY: the buffer has this length.
            let read = unsafe {
                let at = libc::off_t::from(part) * PART as libc::off_t;
                libc::pread(file, text.as_mut_ptr().cast(), text.len(), at)
            };
            let text = &text[..usize::try_from(read).unwrap_or(0)];
            found = SeccompFilters::parse(text);
            if found.is_some() || text.len() <= PART {
                break;
            }
        }
        // SAFETY: it was opened above.
        unsafe { libc::close(file) };
        found
    }

    pub const fn is_none(self) -> bool {
        self.mode == 0
    }

    fn parse(status: &[u8]) -> Option<SeccompFilters> {
        let field = |name: &str| {
            let mut lines = status.split(|byte| *byte == b'\n');
            let value = lines.find_map(|line| line.strip_prefix(name.as_bytes()))?;
            str::from_utf8(value).ok()?.trim().parse().ok()
        };
        let mode = field("Seccomp:")?;
        let count = field("Seccomp_filters:").unwrap_or(0);
        Some(SeccompFilters { mode, count })
    }
}

/// Installs a filter in the calling thread of a test that answers one system call with EPERM.
#[cfg(test)]
pub(crate) fn refuse_in_this_thread(call: libc::c_long) {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let number = u32::try_from(call).unwrap();
    let refused = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: 4,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the filter and its steps live until the calls return; both act on this thread only.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter),
            0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_more_is_another_answer() {
        let before = SeccompFilters::of_thread().unwrap();
        let after = std::thread::spawn(|| {
            refuse_in_this_thread(libc::SYS_membarrier);
            SeccompFilters::of_thread().unwrap()
        });
        assert_ne!(after.join().unwrap(), before);
        assert_eq!(SeccompFilters::of_thread().unwrap(), before);
    }

    #[test]
    fn reads_what_kernels_write() {
        let old = b"NoNewPrivs:\t0\nSeccomp:\t2\nSpeculation_Store_Bypass:\tvulnerable\n";
        let new = b"Groups:\t0 \nSeccomp:\t0\nSeccomp_filters:\t0\n";
        let filters = |mode, count| Some(SeccompFilters { mode, count });
        assert_eq!(SeccompFilters::parse(old), filters(2, 0));
        assert_eq!(SeccompFilters::parse(new), filters(0, 0));
        assert!(SeccompFilters::parse(new).unwrap().is_none());
        assert_eq!(SeccompFilters::parse(b"Name:\tSeccomp:\n"), None);
    }
}
