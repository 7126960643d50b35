//! A step: one change of one place on the host. Plans come to steps, `hugeleaf-change` makes them.

use std::path::PathBuf;

use hugeleaf_units::{PageSize, Pages};
use serde::ser::{Serialize, SerializeMap, Serializer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Short and unique within a plan, as in `pool-2M-node0`: what messages and JSON call it.
    pub id: String,
    pub what: What,
    /// The file, knob or mount point that it is done to: absolute, below the root of the host.
    pub path: PathBuf,
    pub why: String,
    pub verify: String,
    pub needs: Needs,
}

impl Step {
    /// One that needs nothing else.
    pub(super) fn new(
        id: impl Into<String>,
        what: What,
        path: impl Into<PathBuf>,
        why: impl Into<String>,
        verify: impl Into<String>,
    ) -> Step {
        Step {
            id: id.into(),
            what,
            path: path.into(),
            why: why.into(),
            verify: verify.into(),
            needs: Needs::Nothing,
        }
    }

    pub(super) fn needing(self, needs: Needs) -> Step {
        Step { needs, ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Writes a value into a file of /proc/sys or /sys.
    Knob {
        /// The value, without a newline. Of a knob that shows its choices, as in
        /// `always [madvise] never`, the one that is chosen.
        value: String,
    },
    Pool {
        size: PageSize,
        /// on this node; the path is the node's own `nr_hugepages`,
        node: u32,
        pages: Pages,
    },
    File {
        text: String,
        mode: u32,
    },
    /// Puts a block between markers into a file that belongs to somebody else.
    Block {
        text: String,
    },
    Folder {
        mode: u32,
        owner: Option<(u32, u32)>,
    },
    Mount {
        /// Options as mount(8) has them, as in `pagesize=2M,uid=26,mode=0770`.
        options: String,
    },
}

impl What {
    pub const fn name(&self) -> &'static str {
        match self {
            What::Knob { .. } => "knob",
            What::Pool { .. } => "pool",
            What::File { .. } => "file",
            What::Block { .. } => "block",
            What::Folder { .. } => "folder",
            What::Mount { .. } => "mount",
        }
    }
}

/// What has to happen before a step has its whole effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Restart(Vec<String>),
    /// The host has to be rebooted; the command that the person runs before.
    Reboot {
        /// As in `update-grub`.
        first: String,
    },
    Login,
}

/// `restart[]`, `reboot` and `first`, or `login`.
impl Serialize for Needs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Needs::Nothing {
            return serializer.serialize_none();
        }
        let mut map = serializer.serialize_map(None)?;
        match self {
            Needs::Nothing => {}
            Needs::Restart(services) => map.serialize_entry("restart", services)?,
            Needs::Reboot { first } => {
                map.serialize_entry("reboot", &true)?;
                map.serialize_entry("first", first)?;
            }
            Needs::Login => map.serialize_entry("login", &true)?,
        }
        map.end()
    }
}
