//! File capabilities of a program (capabilities(7), "File capabilities"), and the setcap(8) command
//! that adds to them. setcap replaces the existing ones.

use std::path::Path;

use rustix::thread::CapabilitySet;

use crate::{Errno, SysError};

/// Capabilities of a program file. Bits are numbered as in linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileCapabilities {
    pub permitted: u64,
    /// Granted to a user who runs the file and holds them as inheritable.
    pub inheritable: u64,
}

impl FileCapabilities {
    /// Reads the capabilities of a file, which may be none.
    ///
    /// # Errors
    /// The errors of getxattr(2). EINVAL for an attribute in a format that no kernel writes.
    pub fn read(path: &Path) -> Result<FileCapabilities, SysError> {
        const NAME: &str = "security.capability";
        let fail =
            |errno| SysError::new("getxattr", format!("{NAME} of {}", path.display()), errno);
        let mut buffer = [0u8; 64];
        match rustix::fs::getxattr(path, NAME, &mut buffer) {
            Ok(length) => {
                let value = buffer.get(..length).unwrap_or_default();
                FileCapabilities::parse(value).ok_or_else(|| fail(Errno::INVAL))
            }
            // The file or its file system has no such attribute.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(FileCapabilities::default()),
            Err(errno) => Err(fail(errno)),
        }
    }

    /// Parses `struct vfs_cap_data`, revision 1 to 3 (include/uapi/linux/capability.h).
    /// A word holds revision and flags. Then permitted and inheritable alternate, 32 bits each, lowest
    /// first, little endian. Revision 3 ends with the user id of its namespace.
    pub fn parse(value: &[u8]) -> Option<FileCapabilities> {
        let (words, rest) = value.as_chunks::<4>();
        let words: Vec<u64> = words
            .iter()
            .map(|w| u64::from(u32::from_le_bytes(*w)))
            .collect();
        let (revision, length) = (words.first()? >> 24, words.len());
        let is_whole = rest.is_empty() && matches!((revision, length), (1, 3) | (2, 5) | (3, 6));
        let word = |n: usize| words.get(n).copied().unwrap_or(0);
        let high = |n: usize| if revision == 1 { 0 } else { word(n) << 32 };
        is_whole.then(|| FileCapabilities {
            permitted: word(1) | high(3),
            inheritable: word(2) | high(4),
        })
    }

    /// Returns the argument for setcap(8) that adds `needed` to the file's capabilities.
    /// It is one word, except for a file with inheritable ones. `needed` has names as in setcap(8). An
    /// unknown name is kept unchanged.
    pub fn with(self, needed: &[&str]) -> String {
        let mut names: Vec<String> = names_of(self.permitted);
        for name in needed {
            if !names.iter().any(|n| n == name) {
                names.push((*name).to_owned());
            }
        }
        names.sort_by_key(|name| number_of(name));
        let both = names.join(",");
        match names_of(self.inheritable).join(",") {
            none if none.is_empty() => format!("{both}=ep"),
            inheritable => format!("'{both}=ep {inheritable}+i'"),
        }
    }
}

/// Returns the full command `setcap LIST FILE` for this program's file, including its existing
/// capabilities. If they are unreadable, the text says so.
pub fn setcap_advice(needed: &[&str]) -> String {
    let file = std::env::current_exe();
    let shown = file.as_ref().map_or_else(
        |_| "$(which hugeleaf)".to_owned(),
        |f| f.display().to_string(),
    );
    let held = match &file {
        Ok(path) => FileCapabilities::read(path),
        Err(_) => Err(SysError::new("readlink", "/proc/self/exe", Errno::IO)),
    };
    match held {
        Ok(held) => format!("setcap {} {shown}", held.with(needed)),
        Err(error) => {
            let list = FileCapabilities::default().with(needed);
            format!(
                "setcap {list} {shown} (its capabilities could not be read: {error}. setcap replaces them: \
                 add those that getcap shows)"
            )
        }
    }
}

fn names_of(bits: u64) -> Vec<String> {
    let set = (0..u64::BITS).filter(|bit| bits >> bit & 1 == 1);
    set.map(name_of).collect()
}

fn name_of(bit: u32) -> String {
    let set = CapabilitySet::from_bits_retain(1 << bit);
    match set.iter_names().next() {
        Some((name, _)) => format!("cap_{}", name.to_ascii_lowercase()),
        // setcap(8) also accepts numbers.
        None => bit.to_string(),
    }
}

/// Returns the number of a name, or `u32::MAX` for an unknown name.
fn number_of(name: &str) -> u32 {
    let known = (0..u64::BITS).find(|bit| name_of(*bit) == name);
    known.or_else(|| name.parse().ok()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As written by setcap(8): cap_sys_nice,cap_perfmon=ep.
    const NICE_AND_PERFMON: [u8; 20] = [
        1, 0, 0, 2, 0, 0, 0x80, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn what_a_file_has_stays_in_the_line() {
        let held = FileCapabilities::parse(&NICE_AND_PERFMON).unwrap();
        assert_eq!((held.permitted, held.inheritable), (1 << 23 | 1 << 38, 0));
        assert_eq!(
            held.with(&["cap_sys_ptrace"]),
            "cap_sys_ptrace,cap_sys_nice,cap_perfmon=ep"
        );
        assert_eq!(held.with(&["cap_sys_nice"]), "cap_sys_nice,cap_perfmon=ep");
        let inherits = FileCapabilities {
            inheritable: 1 << 14 | 1 << 50,
            ..held
        };
        assert_eq!(
            inherits.with(&["cap_syslog"]),
            "'cap_sys_nice,cap_syslog,cap_perfmon=ep cap_ipc_lock,50+i'"
        );
        assert_eq!(FileCapabilities::default().with(&["cap_bpf"]), "cap_bpf=ep");
    }

    #[test]
    fn revisions_have_their_lengths() {
        let mut third = NICE_AND_PERFMON.to_vec();
        third[3] = 3;
        assert_eq!(FileCapabilities::parse(&third), None);
        third.extend([0xe8, 3, 0, 0]);
        let second = FileCapabilities::parse(&NICE_AND_PERFMON);
        assert_eq!(FileCapabilities::parse(&third), second);
        let first = [0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(FileCapabilities::parse(&first).unwrap().permitted, 4);
    }

    proptest! {
        #[test]
        fn never_panics(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = FileCapabilities::parse(&value);
        }
    }

    #[test]
    fn a_file_without_any_has_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(
            FileCapabilities::read(file.path()).unwrap(),
            FileCapabilities::default()
        );
        assert!(FileCapabilities::read(Path::new("/no/such/file")).is_err());
        assert!(setcap_advice(&["cap_sys_nice"]).starts_with("setcap cap_sys_nice=ep /"));
    }
}
