//! `hugeleaf trace diff --json`.

use hugeleaf_trace::tables::not_measured::{TraceDataKind, not_measured};
use serde_json::{Value, json};

use super::diff::TraceDiff;
use super::format::float;
use super::json::{
    about, cpu, findings, intervals, io, measured, missing, not_measured_list, pages,
};
use crate::json;

pub fn diff_json(compared: &TraceDiff<'_>) -> String {
    let sides = [compared.before, compared.after];
    let [before, after] = sides.map(|shown| {
        json!({
            "trace": about(&shown),
            "intervals": intervals(shown.trace),
            "findings": findings(&shown),
            "not_measured": not_measured_list(shown.trace),
            "cpu": measured(shown.trace, TraceDataKind::CpuTime, cpu),
            "io": measured(shown.trace, TraceDataKind::Io, io),
            "pages": measured(shown.trace, TraceDataKind::Memory, pages),
        })
    });
    // An unmeasured side gives its reason; 0 would be false.
    let of = |what: TraceDataKind, at: usize, value: Value| {
        not_measured(sides[at].trace, what).map_or(value, |why| missing(&why))
    };
    // An empty list means that nothing occurred, so it is replaced if neither side measured.
    let list = |what: TraceDataKind, list: Vec<Value>| match compared.not_measured(what) {
        Some(why) if compared.measured(what) == [false; 2] => missing(&why),
        _ => Value::from(list),
    };
    let functions = compared.hot().into_iter().map(|hot| {
        let share = |at: usize| of(TraceDataKind::CpuSamples, at, hot.shares[at].into());
        json!({"function": hot.name, "module": hot.module, "kernel": hot.kernel,
            "before_share": share(0), "after_share": share(1)})
    });
    let waits = compared.waits().into_iter().map(|(function, totals)| {
        let side = |at: usize| {
            let waited = float(totals[at].waited_nanos) / 1e9;
            let waits = json!({"contentions": totals[at].contentions, "waited_seconds": waited});
            of(TraceDataKind::Locks, at, waits)
        };
        json!({"function": function, "before": side(0), "after": side(1)})
    });
    json::answer(&json!({
        "not_comparable": compared.not_comparable(),
        "before": before,
        "after": after,
        "functions": list(TraceDataKind::CpuSamples, functions.collect()),
        "locks": list(TraceDataKind::Locks, waits.collect()),
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing;
    use super::*;

    #[test]
    fn both_sides_and_what_changed() {
        let (a, b) = (testing::pinning(), testing::cured());
        let compared = testing::compared(&a, &b);
        let value: Value = serde_json::from_str(&diff_json(&compared)).unwrap();
        assert_eq!(value["schema"], 2);
        assert_eq!(value["not_comparable"], json!([]));
        assert_eq!(value["functions"][1]["function"], "mlock_pte_range");
        assert_eq!(value["functions"][1]["after_share"], 0.0);
        assert_eq!(value["locks"][0]["before"]["contentions"], 5000);
        assert_eq!(value["after"]["io"]["read_calls"], 2720);
    }
}
