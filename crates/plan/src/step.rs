//! A step: one change of one place on the host. Plans derive steps, `host_changes`
//! executes them.

use std::path::PathBuf;

use hugeleaf_units::{PageSize, Pages};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// A short id, unique within a plan, as in `pool-2M-node0`. Messages and JSON use it.
    pub id: String,
    pub what: StepAction,
    /// The file, knob or mount point: absolute, below the root of the host.
    pub path: PathBuf,
    pub why: String,
    pub verify: String,
    pub needs: FollowUp,
}

impl Step {
    /// Creates a step without further needs.
    pub(super) fn new(
        id: impl Into<String>,
        what: StepAction,
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
            needs: FollowUp::Nothing,
        }
    }

    pub(super) fn needing(self, needs: FollowUp) -> Step {
        Step { needs, ..self }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepAction {
    /// Writes a value into a file of /proc/sys or /sys.
    Knob {
        /// The value, without a newline. For a knob that shows its choices, as in `always [madvise]
        /// never`, the selected one.
        value: String,
    },
    Pool {
        size: PageSize,
        /// The node. The path is the node's own `nr_hugepages`.
        node: u32,
        pages: Pages,
    },
    File {
        text: String,
        mode: u32,
    },
    /// Writes a block between markers into a file of another owner.
    Block {
        text: String,
    },
    Folder {
        mode: u32,
    },
    Mount {
        /// Options in the syntax of mount(8), as in `pagesize=2M,uid=26,mode=0770`.
        options: String,
    },
}

impl StepAction {
    pub const fn name(&self) -> &'static str {
        match self {
            StepAction::Knob { .. } => "knob",
            StepAction::Pool { .. } => "pool",
            StepAction::File { .. } => "file",
            StepAction::Block { .. } => "block",
            StepAction::Folder { .. } => "folder",
            StepAction::Mount { .. } => "mount",
        }
    }
}

/// The action that gives a step its full effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowUp {
    Nothing,
    Restart(Vec<String>),
    /// A reboot, after a command that the user must run.
    Reboot {
        /// The command, as in `update-grub`.
        first: String,
    },
    Login,
}
