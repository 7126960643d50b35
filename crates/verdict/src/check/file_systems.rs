//! File systems on disks, each with what it can do: what it said when it was asked, and what its makers say of all of its kind.

use hugeleaf_host::Fact;
use hugeleaf_host::system::features::{Abilities, DiskMount, release};
use serde::Serialize;

use super::model::Checked;

struct Kind {
    name: &'static str,
    /// Whether it can be made larger, or smaller, while it is mounted.
    resize: &'static str,
    /// Whether its journal may be on another device; a file system without a journal has none to move.
    journal_elsewhere: Option<bool>,
    /// The first kernel in which its page cache is in folios larger than a base page.
    large_folios_since: Option<(u32, u32)>,
}

/// resize2fs(8), mke2fs(8); xfs_growfs(8), mkfs.xfs(8); btrfs-filesystem(8); resize.f2fs(8). Folios: fs/xfs since 5.18, fs/ext4 since
/// 6.16; of the others it is not said.
const KINDS: &[Kind] = &[
    Kind {
        name: "ext4",
        resize: "larger",
        journal_elsewhere: Some(true),
        large_folios_since: Some((6, 16)),
    },
    Kind {
        name: "xfs",
        resize: "larger",
        journal_elsewhere: Some(true),
        large_folios_since: Some((5, 18)),
    },
    Kind {
        name: "btrfs",
        resize: "both",
        journal_elsewhere: None,
        large_folios_since: None,
    },
    Kind {
        name: "f2fs",
        resize: "no",
        journal_elsewhere: None,
        large_folios_since: None,
    },
];

/// Kinds that list blocks by extents and have no flag that says so.
const ALWAYS_EXTENTS: &[&str] = &["xfs", "btrfs"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    pub at: String,
    pub kind: String,
    pub can: Fact<Abilities>,
    /// Whether files are listed by extents: also where it has nothing else and does not say so.
    pub extents: Option<bool>,
    pub large_folios: Option<bool>,
    /// What it can be made while it is mounted: `larger`, `both` (larger and smaller), `no`.
    pub resize: Option<&'static str>,
    pub journal_elsewhere: Option<bool>,
}

pub fn file_systems(checked: &Checked<'_>) -> Vec<FileSystem> {
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
