//! The pools of a plan.

use std::collections::BTreeMap;

use hugeleaf_host::Host;
use hugeleaf_units::PageSize;

use super::layout::Wanted;
use super::model::{ForPool, ForService, Plan};
use super::room::Ledger;

/// The pools that services of the plan take from, node by node.
pub(super) fn pools(host: &Host, ledger: &Ledger, plan: &Plan) -> Vec<ForPool> {
    let mut found = Vec::new();
    for (size, _) in ledger.planned.iter().rev().filter(|(_, n)| **n > 0) {
        let takes = |s: &&ForService| s.pages().any(|p| p.page == *size);
        let whom = plan.services.iter().filter(takes);
        let of = |map: &BTreeMap<PageSize, u64>| map.get(size).copied().unwrap_or_default();
        let wanted = Wanted {
            size: *size,
            others: of(&ledger.others),
            promised: of(&ledger.promised),
            whom: whom.map(|s| s.name.clone()).collect(),
            wants: ledger.wants(*size),
            configured: of(&ledger.configured),
            may_shrink: false,
        };
        found.extend(wanted.layout(host));
    }
    found
}
