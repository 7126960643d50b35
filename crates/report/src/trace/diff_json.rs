//! `hugeleaf trace diff --json`.

use serde_json::{Value, json};

use super::diff::Compared;
use super::json::{about, cpu, findings, intervals, io, pages};
use super::words::float;
use crate::json::Object;

/// The answer.
pub fn diff_json(compared: &Compared<'_>) -> String {
    let side = |shown: &super::Shown<'_>| {
        let mut object = Object::new();
        object
            .put("trace", about(shown))
            .put("cpu", cpu(shown.trace))
            .put("io", io(shown.trace))
            .put("intervals", intervals(shown.trace))
            .put("pages", pages(shown.trace))
            .put("findings", findings(shown));
        object.build()
    };
    let hot = compared.hot();
    let functions = hot.iter().map(|hot| {
        json!({"function": hot.name, "module": hot.module, "kernel": hot.kernel,
            "before_share": hot.shares[0], "after_share": hot.shares[1]})
    });
    let locks = compared.waits().into_iter().map(|(function, [a, b])| {
        let seconds = |nanos: u64| float(nanos) / 1e9;
        json!({"function": function,
            "before": {"contentions": a.contentions, "waited_seconds": seconds(a.waited_nanos)},
            "after": {"contentions": b.contentions, "waited_seconds": seconds(b.waited_nanos)}})
    });
    let mut answer = Object::answer();
    answer
        .put("not_comparable", compared.not_comparable())
        .put("before", side(&compared.before))
        .put("after", side(&compared.after))
        .put("functions", functions.collect::<Vec<Value>>())
        .put("locks", locks.collect::<Vec<Value>>());
    answer.render()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn both_sides_and_what_changed() {
        let (a, b) = (testing::pinning(), testing::cured());
        let compared = testing::beside(&a, &b);
        let value: Value = serde_json::from_str(&diff_json(&compared)).unwrap();
        assert_eq!(value["schema"], 1);
        assert_eq!(value["not_comparable"], json!([]));
        assert_eq!(value["functions"][1]["function"], "mlock_pte_range");
        assert_eq!(value["functions"][1]["after_share"], 0.0);
        assert_eq!(value["locks"][0]["before"]["contentions"], 5000);
        assert_eq!(value["after"]["io"]["read_calls"], 2720);
    }
}
