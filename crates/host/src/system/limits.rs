//! Limits and knobs outside THP and the pools that bear on large pages.

use hugeleaf_units::{Bytes, Pages};

use super::files;
use crate::fact::Fact;
use crate::model::Limits;
use crate::process::stat::parse_memlock;
use crate::root::Root;

pub fn read(root: &Root) -> Limits {
    let number = |name: &str| files::number(root, format!("proc/sys/{name}"));
    Limits {
        hugetlb_shm_group: number("vm/hugetlb_shm_group"),
        shmmax: number("kernel/shmmax").map(Bytes),
        shmall: number("kernel/shmall").map(Pages),
        overcommit_memory: number("vm/overcommit_memory"),
        min_free: number("vm/min_free_kbytes").map(Bytes::from_kib),
        compaction_proactiveness: number("vm/compaction_proactiveness"),
        memlock: memlock(root),
        boot: files::line(root, "proc/cmdline"),
        sysctl: super::sysctl::read(root),
    }
}

fn memlock(root: &Root) -> Fact<Bytes> {
    let limits = root.parse("proc/self/limits", parse_memlock);
    limits.and_then(|(soft, _)| soft.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memlock_is_a_number_or_unlimited() {
        let line =
            |soft| format!("Max stack size 1 2 bytes\nMax locked memory   {soft}   7 bytes\n");
        assert_eq!(
            parse_memlock(&line("8388608")).unwrap().0,
            Some(Bytes(8 << 20))
        );
        assert_eq!(
            parse_memlock(&line("unlimited")).unwrap().0,
            Some(Bytes(u64::MAX))
        );
        assert_eq!(parse_memlock(&line("x")).unwrap_err().line, 2);
        assert!(parse_memlock("Max locked memory").is_err());
        assert_eq!(parse_memlock("Max stack size 1").unwrap(), (None, None));
    }
}
