//! The base page size of a captured host, which no system call can return.

use hugeleaf_units::{Bytes, PageSize};

use crate::fact::{Fact, ReadError};
use crate::parse_helpers::{fields, kib, whole_number};
use crate::root::Root;

/// AT_PAGESZ in `elf.h`.
const AT_PAGESZ: u64 = 6;
/// Highest key in an auxiliary vector of any kernel, with a margin (AT_MINSIGSTKSZ is 51).
const HIGHEST_KEY: u64 = 63;

/// Locations in a capture. Every process has the same base page.
const AUXV: [&str; 2] = ["proc/self/auxv", "proc/1/auxv"];

/// Returns the base page size in a captured auxiliary vector, else the smallest page size of any
/// captured mapping.
///
/// # Errors
/// If the capture has neither.
pub fn captured_base_page(root: &Root) -> Result<PageSize, ReadError> {
    let from_auxv = AUXV
        .iter()
        .find_map(|path| base_page(&root.read_bytes(path).ok()?));
    from_auxv
        .or_else(|| smallest_mapped(root))
        .ok_or_else(|| missing(root))
}

/// Names the file that a capture lacks, or that is unreadable, when the base page size is unknown.
fn missing(root: &Root) -> ReadError {
    let (path, reason) = match (root.list("proc"), root.bytes(AUXV[0])) {
        (Fact::Unreadable(error), _) | (_, Fact::Unreadable(error)) => return error,
        (Fact::Absent, _) => (
            "proc",
            "missing: a capture has its files of /proc, /sys and /etc in folders of these names, and \
             at least proc/self/auxv, which has the size of the base page",
        ),
        (_, Fact::Absent) => (
            AUXV[0],
            "missing, and no proc/PID/smaps has a KernelPageSize: a capture needs one of them for the \
             size of the base page",
        ),
        _ => (AUXV[0], "has no size of the base page (AT_PAGESZ)"),
    };
    ReadError::new(root.path(path), reason)
}

/// Parses AT_PAGESZ of an auxiliary vector (proc(5)), of either word size and byte order, because
/// the capture may come from another architecture.
pub fn base_page(auxv: &[u8]) -> Option<PageSize> {
    for is_big_endian in [false, true] {
        for width in [8, 4] {
            let word = |bytes: &[u8]| whole_number(bytes, is_big_endian);
            let pairs: Vec<(u64, u64)> = auxv
                .chunks_exact(2 * width)
                .map(|pair| (word(&pair[..width]), word(&pair[width..])))
                .take_while(|(key, _)| *key != 0)
                .collect();
            // With the wrong width or order, keys have impossible values.
            if pairs.iter().any(|(key, _)| *key > HIGHEST_KEY) {
                continue;
            }
            let found = pairs.iter().find(|(key, _)| *key == AT_PAGESZ);
            if let Some(size) = found.and_then(|(_, n)| PageSize::new(Bytes(*n)).ok()) {
                return Some(size);
            }
        }
    }
    None
}

/// Returns the smallest `KernelPageSize` in any smaps of the capture.
fn smallest_mapped(root: &Root) -> Option<PageSize> {
    let names = root.list("proc").or_default();
    let is_process = |name: &&String| *name == "self" || name.parse::<u32>().is_ok();
    let smaps = |name: &String| root.read(format!("proc/{name}/smaps")).known().cloned();
    names
        .iter()
        .filter(is_process)
        .filter_map(smaps)
        .filter_map(|text| smallest_in(&text))
        .min()
}

fn smallest_in(smaps: &str) -> Option<PageSize> {
    fields(smaps)
        .filter(|(_, name, _)| *name == "KernelPageSize")
        .filter_map(|(line, _, value)| PageSize::new(kib(line, value).ok()?).ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words<const N: usize>(pairs: &[u64], word: impl Fn(u64) -> [u8; N]) -> Vec<u8> {
        pairs.iter().flat_map(|n| word(*n)).collect()
    }

    #[test]
    fn every_word_size_and_order() {
        let pairs = [33, 0xffff_7000, 16, 0x178b_fbff, 6, 65536, 17, 100, 0, 0];
        let size = Some("64K".parse().unwrap());
        assert_eq!(base_page(&words(&pairs, u64::to_le_bytes)), size);
        assert_eq!(base_page(&words(&pairs, u64::to_be_bytes)), size);
        let short = |n: u64| u32::try_from(n).unwrap();
        assert_eq!(base_page(&words(&pairs, |n| short(n).to_le_bytes())), size);
        assert_eq!(base_page(&words(&pairs, |n| short(n).to_be_bytes())), size);
    }

    #[test]
    fn none_in_an_empty_or_cut_vector() {
        assert_eq!(base_page(&[]), None);
        assert_eq!(
            base_page(&words(&[33, 1, 0, 0, 6, 4096], u64::to_le_bytes)),
            None
        );
        assert_eq!(base_page(&words(&[33, 1, 6], u64::to_le_bytes)), None);
        assert_eq!(base_page(&words(&[6, 4097, 0, 0], u64::to_le_bytes)), None);
    }

    #[test]
    fn own_vector_agrees_with_the_system_call() {
        let auxv = std::fs::read("/proc/self/auxv").unwrap();
        assert_eq!(
            base_page(&auxv),
            Some(hugeleaf_sys::Kernel::new().base_page())
        );
    }

    #[test]
    fn without_a_vector_the_smallest_mapped_page_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let says = || captured_base_page(&root).unwrap_err().to_string();
        assert!(says().contains("/proc: missing"), "{}", says());
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        assert!(says().contains("/proc/self/auxv: missing"), "{}", says());
        std::fs::create_dir(dir.path().join("proc/self")).unwrap();
        std::fs::write(dir.path().join("proc/self/auxv"), [0; 16]).unwrap();
        assert!(
            says().contains("/proc/self/auxv: has no size"),
            "{}",
            says()
        );
        std::fs::remove_file(dir.path().join("proc/self/auxv")).unwrap();
        std::fs::create_dir_all(dir.path().join("proc/12")).unwrap();
        let smaps = "KernelPageSize:     2048 kB\nKernelPageSize:       16 kB\nKernelPageSize: x\n";
        std::fs::write(dir.path().join("proc/12/smaps"), smaps).unwrap();
        assert_eq!(captured_base_page(&root).unwrap().to_string(), "16K");
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = base_page(&bytes);
        }
    }
}
