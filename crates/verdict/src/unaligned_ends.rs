//! The ends of mappings, where no whole huge page fits, on processors that translate a smaller size
//! with one TLB entry too.
//!
//! On arm64 with 16K base pages, a huge page is 32M, so up to 32M at each end of a mapping stay on
//! base pages. Contiguous page-table entries form one translation of 2M there (64K with 4K base
//! pages). Pools of that size show that a host supports it.

use hugeleaf_host::{Host, Thp, ThpMemoryKind, ThpSizeSettings};
use hugeleaf_units::PageSize;

use crate::advice::{AdvisedCommand, Setting, SettingChange};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnalignedEndsSetting {
    pub size: PageSize,
    pub path: String,
    pub setting: String,
    /// The value to set if the size is off; `None` if it is on for any memory.
    pub better: Option<&'static str>,
    /// The command that sets it.
    pub command: Option<AdvisedCommand>,
}

/// Returns the largest size below a full huge page that the processor translates with one entry and
/// THP supports. `None` if there is none, as on x86, or if its setting is unknown.
pub fn ends(host: &Host) -> Option<UnalignedEndsSetting> {
    let (thp, pmd) = (host.thp.known()?, host.pmd_page.get()?);
    let translated = |order: &&ThpSizeSettings| {
        let has_pool = host.pools.iter().any(|pool| pool.size == order.size);
        has_pool && order.size > host.base_page && order.size < pmd
    };
    let order = thp.orders.iter().rev().find(translated)?;
    let setting = order.anon.known()?.clone();
    let of = ThpMemoryKind::Private;
    let is_off = order.effective(thp, of)? == "never";
    let (path, setting, better) = match (is_off, setting.as_str()) {
        // The size inherits from `enabled`, which is off.
        (true, "inherit") => (of.file(), "never".to_owned(), Some("madvise")),
        (is_off, _) => (order.file(of), setting, is_off.then(|| follow(thp))),
    };
    let on = |better: &str| SettingChange::new(Setting::file(&*path), better).from(&setting);
    let command = better.map(|better| on(better).next(host));
    Some(UnalignedEndsSetting {
        size: order.size,
        path,
        setting,
        better,
        command,
    })
}

/// Returns the value that makes a size inherit the top-level setting, or enables it if that is off.
fn follow(thp: &Thp) -> &'static str {
    match thp.enabled.text() {
        Some("always" | "madvise") => "inherit",
        _ => "madvise",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::tests::testing::{arm64_16k, healthy, thp, word};

    #[test]
    fn arm64_has_contiguous_entries_of_2m_below_32m() {
        let mut host = arm64_16k();
        let off = ends(&host).unwrap();
        assert_eq!(off.size.to_string(), "2M");
        let folder = "/sys/kernel/mm/transparent_hugepage";
        assert_eq!(
            off.command.unwrap().command,
            format!("echo inherit > {folder}/hugepages-2048kB/enabled")
        );
        thp(&mut host).enabled = word("never");
        assert_eq!(
            ends(&host).unwrap().command.unwrap().command,
            format!("echo madvise > {folder}/hugepages-2048kB/enabled")
        );
        // It inherits the top-level setting.
        thp(&mut host).orders[1].anon = word("inherit");
        assert_eq!(
            ends(&host).unwrap().command.unwrap().command,
            format!("echo madvise > {folder}/enabled")
        );
        thp(&mut host).enabled = word("always");
        assert_eq!(ends(&host).unwrap().command, None);
    }

    #[test]
    fn x86_has_none() {
        assert_eq!(ends(&healthy()), None);
    }
}
