//! The flags of `hugeleaf run` as values.

use std::fmt;
use std::str::FromStr;

use hugeleaf_host::RunMemoryKind;
use hugeleaf_host::system::parse_nodes;
use hugeleaf_units::{Bytes, Ladder};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PagePolicy {
    /// The largest size that this host can provide.
    #[default]
    Auto,
    Base,
    /// The given sizes, in this order.
    Ladder(Ladder),
}

impl PagePolicy {
    /// True if base pages are not acceptable.
    pub fn is_mandatory(&self) -> bool {
        matches!(self, PagePolicy::Ladder(ladder) if ladder.is_mandatory())
    }
}

impl fmt::Display for PagePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PagePolicy::Auto => f.pad("auto"),
            PagePolicy::Base => f.pad("base"),
            PagePolicy::Ladder(ladder) => f.pad(&ladder.to_string()),
        }
    }
}

impl FromStr for PagePolicy {
    type Err = String;

    /// Parses `auto`, `base` or a ladder.
    fn from_str(text: &str) -> Result<PagePolicy, String> {
        match text {
            "auto" => Ok(PagePolicy::Auto),
            "base" => Ok(PagePolicy::Base),
            _ => match text.parse() {
                Ok(ladder) => Ok(PagePolicy::Ladder(ladder)),
                Err(error) => Err(format!("{error}, or auto, or base")),
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NumaPolicy {
    /// Memory of these nodes only.
    Bind(Vec<u32>),
    Prefer(u32),
    Interleave(Vec<u32>),
    Local,
}

impl NumaPolicy {
    pub fn nodes(&self) -> &[u32] {
        match self {
            NumaPolicy::Bind(nodes) | NumaPolicy::Interleave(nodes) => nodes,
            NumaPolicy::Prefer(node) => std::slice::from_ref(node),
            NumaPolicy::Local => &[],
        }
    }
}

impl fmt::Display for NumaPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<String> = self.nodes().iter().map(u32::to_string).collect();
        let nodes = nodes.join(",");
        match self {
            NumaPolicy::Bind(_) => write!(f, "bind={nodes}"),
            NumaPolicy::Prefer(_) => write!(f, "prefer={nodes}"),
            NumaPolicy::Interleave(_) => write!(f, "interleave={nodes}"),
            NumaPolicy::Local => f.write_str("local"),
        }
    }
}

impl FromStr for NumaPolicy {
    type Err = String;

    /// Parses `bind=0,1`, `prefer=0`, `interleave=0-3` or `local`.
    fn from_str(text: &str) -> Result<NumaPolicy, String> {
        let error = || {
            format!(
                "'{text}' is not a NUMA policy; write bind=0,1, prefer=0, interleave=0-3 or local"
            )
        };
        if text == "local" {
            return Ok(NumaPolicy::Local);
        }
        let (word, list) = text.split_once('=').ok_or_else(error)?;
        let nodes = parse_nodes(list).map_err(|_| error())?;
        match (word, nodes.as_slice()) {
            (_, []) => Err(error()),
            ("bind", _) => Ok(NumaPolicy::Bind(nodes)),
            ("interleave", _) => Ok(NumaPolicy::Interleave(nodes)),
            ("prefer", [node]) => Ok(NumaPolicy::Prefer(*node)),
            _ => Err(error()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFlags {
    /// The request for each role, in the order of [`RunMemoryKind::ALL`].
    pub wants: [PagePolicy; 4],
    pub reserve: Option<Bytes>,
    pub numa: Option<NumaPolicy>,
    /// Base names of the affected executables; empty for all.
    pub only: Vec<String>,
}

impl RunFlags {
    pub const fn want(&self, role: RunMemoryKind) -> &PagePolicy {
        &self.wants[role as usize]
    }

    /// Returns the first role with a mandatory request.
    pub fn mandatory(&self) -> Option<RunMemoryKind> {
        RunMemoryKind::ALL
            .into_iter()
            .find(|role| self.want(*role).is_mandatory())
    }
}
