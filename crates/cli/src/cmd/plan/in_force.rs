//! What was applied and is not undone, with the plans as the journal keeps them.

use hugeleaf_change::host as change;
use hugeleaf_host::Fact;
use hugeleaf_verdict::plan::{InForce, Plan, parse};

use crate::context::Context;

/// The plan of an apply, or why its copy next to the journal cannot be read.
pub fn plan_of(one: &change::Applied) -> Result<Plan, String> {
    if one.is_newer {
        return Err("a newer program applied it".to_owned());
    }
    match &one.plan {
        Fact::Known(text) => parse(text).map_err(|error| error.to_string()),
        Fact::Absent => Err("it is not there".to_owned()),
        Fact::Unreadable(error) => Err(error.to_string()),
    }
}

/// All that is in force, the newest first. A journal that cannot be read counts as one apply of
/// which nothing is known.
pub fn in_force(context: &Context) -> Vec<InForce> {
    match change::applied(&context.root) {
        Fact::Known(all) => {
            let in_force = all.iter().filter(|one| !one.undone);
            in_force
                .map(|one| InForce {
                    id: one.head.id,
                    plan: plan_of(one),
                })
                .collect()
        }
        Fact::Absent => Vec::new(),
        Fact::Unreadable(error) => vec![InForce {
            id: 0,
            plan: Err(error.to_string()),
        }],
    }
}
