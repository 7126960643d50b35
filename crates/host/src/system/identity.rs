//! Identity of a host. A plan made for one host must not be applied to another.

use sha2::{Digest, Sha256};

use super::file_readers;
use crate::fact::Fact;
use crate::root::Root;

/// A host's name, and a hash of its machine id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostIdentity {
    /// `/proc/sys/kernel/hostname`.
    pub name: Fact<String>,
    /// A hash of `/etc/machine-id`, because machine-id(5) asks not to expose the id itself. Absent
    /// if there is none, or if it is not set yet.
    pub id: Fact<String>,
}

pub fn identity(root: &Root) -> HostIdentity {
    let id = root.read("etc/machine-id").and_then(|text| {
        let id = text.trim();
        let is_set = !id.is_empty() && id.chars().all(|c| c.is_ascii_hexdigit());
        is_set.then(|| hashed(id)).into()
    });
    let name = file_readers::line(root, "proc/sys/kernel/hostname");
    HostIdentity { name, id }
}

/// Returns a hash of thirty-two hexadecimal digits, as in a machine id.
fn hashed(id: &str) -> String {
    const DIGITS: usize = 32;
    let hash = Sha256::digest(format!("hugeleaf {id}"));
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.chars().take(DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_id_itself_goes_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("etc")).unwrap();
        let file = dir.path().join("etc/machine-id");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            identity(&Root::at(dir.path())).id
        };
        let one = read("0123456789abcdef0123456789abcdef\n");
        let known = one.known().unwrap().clone();
        assert_eq!(known.len(), 32);
        assert!(!known.contains("0123456789"), "{known}");
        assert_eq!(read("0123456789abcdef0123456789abcdef"), one);
        assert_ne!(read("0123456789abcdef0123456789abcdee"), one);
        // systemd writes this word before the id is made.
        assert_eq!(read("uninitialized\n"), Fact::Absent);
        assert_eq!(identity(&Root::at("/nowhere")), HostIdentity::default());
    }
}
