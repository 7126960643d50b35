//! File systems on disks, with the abilities that each reported and those documented for its kind.

use hugeleaf_host::Fact;
use hugeleaf_host::system::system_config::{DiskMount, FileSystemFeatures, release};
use serde::Serialize;

use super::model::CheckInput;

struct FileSystemKind {
    name: &'static str,
    /// Resizing while mounted: `larger`, `both` or `no`.
    resize: &'static str,
    /// True if the journal may be on another device; `None` for a file system without a journal.
    journal_elsewhere: Option<bool>,
    /// The first kernel whose page cache for this kind uses large folios.
    large_folios_since: Option<(u32, u32)>,
}

/// resize2fs(8), mke2fs(8); xfs_growfs(8), mkfs.xfs(8); btrfs-filesystem(8); resize.f2fs(8). Folios: fs/xfs since 5.18, fs/ext4 since
/// 6.16; undocumented for the others.
const KINDS: &[FileSystemKind] = &[
    FileSystemKind {
        name: "ext4",
        resize: "larger",
        journal_elsewhere: Some(true),
        large_folios_since: Some((6, 16)),
    },
    FileSystemKind {
        name: "xfs",
        resize: "larger",
        journal_elsewhere: Some(true),
        large_folios_since: Some((5, 18)),
    },
    FileSystemKind {
        name: "btrfs",
        resize: "both",
        journal_elsewhere: None,
        large_folios_since: None,
    },
    FileSystemKind {
        name: "f2fs",
        resize: "no",
        journal_elsewhere: None,
        large_folios_since: None,
    },
];

/// Kinds that always use extents and have no flag for them.
const ALWAYS_EXTENTS: &[&str] = &["xfs", "btrfs"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    pub at: String,
    pub kind: String,
    pub can: Fact<FileSystemFeatures>,
    /// True if files use extents, including kinds without a flag for it.
    pub extents: Option<bool>,
    pub large_folios: Option<bool>,
    /// Resizing while mounted: `larger`, `both` (larger and smaller), `no`.
    pub resize: Option<&'static str>,
    pub journal_elsewhere: Option<bool>,
}

pub fn file_systems(checked: &CheckInput<'_>) -> Vec<FileSystem> {
    let kernel = checked.host.kernel.text().and_then(release);
    let one = |mount: &DiskMount| {
        let kind = KINDS.iter().find(|kind| kind.name == mount.kind);
        let since = kind.and_then(|kind| kind.large_folios_since);
        let said = mount.can.known().and_then(|can| can.extents);
        let always = ALWAYS_EXTENTS.contains(&mount.kind.as_str());
        FileSystem {
            at: mount.at.clone(),
            kind: mount.kind.clone(),
            can: mount.can.clone(),
            extents: if always { Some(true) } else { said },
            large_folios: since.zip(kernel).map(|(since, kernel)| kernel >= since),
            resize: kind.map(|kind| kind.resize),
            journal_elsewhere: kind.and_then(|kind| kind.journal_elsewhere),
        }
    };
    let mounts = checked.features.mounts.known().into_iter().flatten();
    mounts.map(one).collect()
}
