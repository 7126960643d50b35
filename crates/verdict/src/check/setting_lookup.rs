//! Settings of a host by the names in `data/programs.toml`.

use hugeleaf_host::{Fact, ReadError, ThpMemoryKind, thp_file};

use super::model::CheckInput;

/// A property of the kernel, not a setting.
pub(super) const BASE_PAGE: &str = "base page";

/// Converts `vm.swappiness` to the file name of the features' readers.
pub(super) fn sysctl_file(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

/// Returns the file of a setting.
pub(super) fn file(checked: &CheckInput<'_>, setting: &str) -> String {
    match setting.strip_prefix("thp.") {
        Some("enabled") => checked.host.thp_setting(ThpMemoryKind::Private).0,
        Some("shmem_enabled") => checked.host.thp_setting(ThpMemoryKind::Shared).0,
        Some(name) => thp_file(name),
        None => format!("/{}", sysctl_file(setting)),
    }
}

/// Returns the value, or unknown if a capture lacks it.
pub(super) fn value(checked: &CheckInput<'_>, setting: &str) -> Fact<String> {
    let has_thp = setting.starts_with("thp.") && checked.host.thp.known().is_some();
    match read(checked, setting) {
        // A kernel with THP has all THP settings.
        Fact::Absent if has_thp && checked.features.is_captured => {
            let reason = "it is not part of this capture";
            Fact::Unreadable(ReadError::new(file(checked, setting).into(), reason))
        }
        value => value,
    }
}

fn read(checked: &CheckInput<'_>, setting: &str) -> Fact<String> {
    let host = checked.host;
    let of_thp = |of| host.thp_setting(of).1.clone();
    match setting {
        "thp.enabled" => of_thp(ThpMemoryKind::Private),
        "thp.shmem_enabled" => of_thp(ThpMemoryKind::Shared),
        "thp.defrag" => host.thp.clone().and_then(|thp| thp.defrag),
        "thp.khugepaged/max_ptes_none" => {
            let pages = host
                .thp
                .clone()
                .and_then(|thp| thp.khugepaged.max_ptes_none);
            pages.map(|pages| pages.get().to_string())
        }
        BASE_PAGE => Fact::Known(host.base_page.bytes().get().to_string()),
        name => {
            let value = checked.features.setting(&sysctl_file(name)).clone();
            value.and_then(|text| text.split_whitespace().next().map(str::to_owned).into())
        }
    }
}
