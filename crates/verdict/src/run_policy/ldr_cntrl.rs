//! Translates AIX's LDR_CNTRL and LARGE_PAGE_DATA into flags of `hugeleaf run`.
//!
//! The keys have the meaning that IBM documents: `DATAPSIZE`, `TEXTPSIZE`, `STACKPSIZE` and
//! `SHMPSIZE` name a page size. `LARGE_PAGE_DATA` requests 16M pages for data (`Y`), requires them
//! (`M`) or declines them (`N`). An unavailable size becomes the next smaller one.

use hugeleaf_host::{Host, RunMemoryKind};
use hugeleaf_units::{Bytes, Failure, Ladder, PageKind, PageSize, Rung};

use super::PagePolicy;
use super::rung_availability::thp_use;
use crate::list;

const SIZES: [(&str, RunMemoryKind); 4] = [
    ("DATAPSIZE", RunMemoryKind::Data),
    ("TEXTPSIZE", RunMemoryKind::Text),
    ("STACKPSIZE", RunMemoryKind::Stack),
    ("SHMPSIZE", RunMemoryKind::Shm),
];
const LARGE_PAGE_DATA: &str = "LARGE_PAGE_DATA";
/// The page sizes of AIX on POWER.
const AIX_SIZES: [&str; 4] = ["4K", "64K", "16M", "16G"];
const AIX_LARGE: &str = "16M";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AixRequest {
    /// The key, as in `DATAPSIZE`.
    pub key: &'static str,
    pub value: String,
    pub role: RunMemoryKind,
    pub request: PagePolicy,
}

/// Translates a value of LDR_CNTRL, and of the variable LARGE_PAGE_DATA if it is set.
///
/// # Errors
/// An unknown key or value, a duplicate, or DATAPSIZE together with LARGE_PAGE_DATA, which IBM's
/// documents forbid.
pub fn translate(text: &str, large: Option<&str>, host: &Host) -> Result<Vec<AixRequest>, Failure> {
    let mut mapped: Vec<AixRequest> = Vec::new();
    let items = text.split('@').filter(|item| !item.is_empty());
    let items = items.map(|item| match item.split_once('=') {
        Some((key, value)) => Ok((key.trim(), value.trim())),
        None => Err(unknown(item)),
    });
    let large = large.map(|value| Ok((LARGE_PAGE_DATA, value.trim())));
    for item in items.chain(large) {
        let (key, value) = item?;
        let item = map(key, value, host)?;
        if mapped.iter().any(|other| other.key == item.key) {
            return Err(Failure::missing(
                format!("run: {key} occurs twice in LDR_CNTRL"),
                format!("omit one of them: '{text}'"),
            ));
        }
        mapped.push(item);
    }
    let has = |key: &str| mapped.iter().any(|item| item.key == key);
    if has("DATAPSIZE") && has(LARGE_PAGE_DATA) {
        return Err(Failure::missing(
            "run: DATAPSIZE and LARGE_PAGE_DATA both apply to data, and cannot be given together",
            "omit one of them: DATAPSIZE names the size, LARGE_PAGE_DATA=M makes it mandatory",
        ));
    }
    Ok(mapped)
}

fn unknown(key: &str) -> Failure {
    Failure::missing(
        format!("run: LDR_CNTRL: unknown key '{key}'"),
        format!(
            "write KEY=VALUE, joined by @, with these keys: {}, {LARGE_PAGE_DATA}",
            list(SIZES.iter().map(|(key, _)| key))
        ),
    )
}

fn map(key: &str, value: &str, host: &Host) -> Result<AixRequest, Failure> {
    let mut known = SIZES
        .into_iter()
        .chain([(LARGE_PAGE_DATA, RunMemoryKind::Data)]);
    let known = known.find(|(known, _)| *known == key);
    let (key, role) = known.ok_or_else(|| unknown(key))?;
    let here = match (key, value) {
        (LARGE_PAGE_DATA, "Y" | "y") => size_here(AIX_LARGE, role, host, false),
        (LARGE_PAGE_DATA, "M" | "m") => size_here(AIX_LARGE, role, host, true),
        (LARGE_PAGE_DATA, "N" | "n") => Some(PagePolicy::Base),
        (LARGE_PAGE_DATA, _) => None,
        _ => {
            let mut sizes = AIX_SIZES.iter();
            let size = sizes.find(|size| size.parse::<Bytes>() == value.parse::<Bytes>());
            size.and_then(|size| size_here(size, role, host, false))
        }
    };
    let request = here.ok_or_else(|| match key {
        LARGE_PAGE_DATA => Failure::missing(
            format!("run: {key}={value} is not a valid value"),
            format!("write {key}=Y (if available), M (mandatory) or N (none)"),
        ),
        _ => Failure::missing(
            format!("run: {key}={value} is not a page size of AIX"),
            format!("write one of {}", AIX_SIZES.join(", ")),
        ),
    })?;
    Ok(AixRequest {
        key,
        value: value.to_owned(),
        role,
        request,
    })
}

/// Translates an AIX size to sizes of this host. For shared memory: all pools up to the size,
/// largest first, and then THP. Otherwise: the largest THP size up to it. `None` if `size` is
/// invalid.
fn size_here(size: &str, role: RunMemoryKind, host: &Host, mandatory: bool) -> Option<PagePolicy> {
    let asked: PageSize = size.parse().ok()?;
    let serves = |kind: PageKind| match kind {
        PageKind::Base => false,
        PageKind::Thp => true,
        PageKind::Hugetlb => role == RunMemoryKind::Shm,
    };
    let mut sizes: Vec<PageSize> = host
        .page_sizes
        .iter()
        .filter(|info| serves(info.kind) && info.size <= asked && info.size > host.base_page)
        .filter(|info| info.kind != PageKind::Thp || is_for(host, role, info.size))
        .map(|info| info.size)
        .collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup();
    let rungs: Vec<PageSize> = match role {
        // Use every pool, but only the largest THP size.
        RunMemoryKind::Shm => {
            let largest_thp = sizes.iter().copied().find(|size| is_thp(host, *size));
            let is_pool = |size: &PageSize| host.pool(*size).is_some();
            sizes.retain(|size| is_pool(size) || Some(*size) == largest_thp);
            sizes
        }
        _ => sizes.into_iter().take(1).collect(),
    };
    let rungs = match rungs.is_empty() {
        true if !mandatory => return Some(PagePolicy::Base),
        // The host has no such size; request it anyway, so that the error names it.
        true => vec![asked],
        false => rungs,
    };
    let rung = |size| Rung { size, kind: None };
    let rungs = rungs.into_iter().map(rung).collect();
    Some(PagePolicy::Ladder(Ladder::new(rungs, mandatory)))
}

fn is_thp(host: &Host, size: PageSize) -> bool {
    host.page_sizes
        .iter()
        .any(|info| info.kind == PageKind::Thp && info.size == size)
}

/// True if a THP size exists for the memory of a role. Some sizes are for shared memory only, and
/// code can be promoted to the PMD size only.
fn is_for(host: &Host, role: RunMemoryKind, size: PageSize) -> bool {
    let Some(thp) = host.thp.known() else {
        return false;
    };
    if role == RunMemoryKind::Text {
        return host.pmd_page.get() == Some(size);
    }
    let order = thp.order(size);
    order.is_none_or(|order| !order.own_setting(thp_use(role)).is_absent())
}
