//! The pages of a database's memory, as named by `--pages`.

use std::str::FromStr;

use hugeleaf_host::Host;
use hugeleaf_units::{PageKind, PageSize};
use hugeleaf_workload::{AskedPages, PageArm};

/// The requested pages of an arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OltpPages {
    /// Pages of a size.
    Asked(AskedPages),
    /// Base pages that are locked in memory.
    Locked,
    /// The pages that `hugeleaf run` provides.
    Run,
    /// Base pages, which are promoted while the server runs.
    Promoted,
}

impl FromStr for OltpPages {
    type Err = String;

    fn from_str(text: &str) -> Result<OltpPages, String> {
        Ok(match text {
            "locked" => OltpPages::Locked,
            "run" => OltpPages::Run,
            "promoted" => OltpPages::Promoted,
            _ => {
                let asked = text.parse();
                OltpPages::Asked(asked.map_err(|e| format!("{e}, locked, run or promoted"))?)
            }
        })
    }
}

impl OltpPages {
    pub fn label(self, host: &Host) -> String {
        match self {
            OltpPages::Asked(asked) => PageArm::resolve(asked, host).to_string(),
            OltpPages::Locked => "locked".to_owned(),
            OltpPages::Run => "run".to_owned(),
            OltpPages::Promoted => "promoted".to_owned(),
        }
    }

    /// Returns the pages for all of the memory, if the host has them.
    pub(super) fn arm(self, host: &Host) -> Option<PageArm> {
        let thp = |size: PageSize| PageArm {
            size,
            kind: PageKind::Thp,
        };
        match self {
            OltpPages::Asked(asked) => Some(PageArm::resolve(asked, host)),
            OltpPages::Locked => Some(PageArm::base(host)),
            OltpPages::Run | OltpPages::Promoted => host.pmd_page.get().map(thp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use hugeleaf_host::{Root, read_host};
    use hugeleaf_sys::Kernel;

    /// A run in a process of its own gets its arm by that name.
    #[test]
    fn a_name_is_read_back() {
        let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/x86-4k-two-nodes");
        let host = read_host(&Root::at(fixture), &Kernel::new()).unwrap();
        for text in [
            "base",
            "locked",
            "thp:64K",
            "thp:2M",
            "hugetlb:1G",
            "run",
            "promoted",
        ] {
            let pages: OltpPages = text.parse().unwrap();
            assert_eq!(pages.label(&host), text);
        }
        let error = "large".parse::<OltpPages>().unwrap_err();
        assert!(error.contains("promoted"), "{error}");
    }
}
