//! `hugeleaf trace diff --json`.

use hugeleaf_trace::tables::measured::Collection;
use serde_json::{Value, json};

use super::diff::Compared;
use super::json::{about, cpu, findings, intervals, io, not_measured_list, pages, put_measured};
use super::words::float;
use crate::json::Object;

/// The answer.
pub fn diff_json(compared: &Compared<'_>) -> String {
    let side = |shown: &super::Shown<'_>| {
        let mut object = Object::new();
        object
            .put("trace", about(shown))
            .put("intervals", intervals(shown.trace))
            .put("findings", findings(shown))
            .put("not_measured", not_measured_list(shown.trace));
        put_measured(&mut object, shown.trace, "cpu", Collection::CpuTime, cpu);
        put_measured(&mut object, shown.trace, "io", Collection::Io, io);
        put_measured(&mut object, shown.trace, "pages", Collection::Memory, pages);
        object.build()
    };
    let hot = compared.hot();
    let sampled = compared.measured(Collection::CpuSamples);
    let functions = hot.iter().map(|hot| {
        let share = |at: usize| sampled[at].then_some(hot.shares[at]);
        json!({"function": hot.name, "module": hot.module, "kernel": hot.kernel,
            "before_share": share(0), "after_share": share(1)})
    });
    let counted = compared.measured(Collection::Locks);
    let locks = compared.waits().into_iter().map(|(function, [a, b])| {
        let seconds = |nanos: u64| float(nanos) / 1e9;
        let side = |at: usize, t: &hugeleaf_trace::model::LockTotals| {
            let of =
                json!({"contentions": t.contentions, "waited_seconds": seconds(t.waited_nanos)});
            counted[at].then_some(of)
        };
        json!({"function": function, "before": side(0, &a), "after": side(1, &b)})
    });
    let mut answer = Object::answer();
    answer
        .put("not_comparable", compared.not_comparable())
        .put("before", side(&compared.before))
        .put("after", side(&compared.after))
        .put("functions", functions.collect::<Vec<Value>>())
        .put("locks", locks.collect::<Vec<Value>>());
    // A list of nothing says that there was nothing: not where neither could tell.
    for (name, what, measured) in [
        ("functions", Collection::CpuSamples, sampled),
        ("locks", Collection::Locks, counted),
    ] {
        if let (false, Some(why)) = (measured.contains(&true), compared.not_measured(what)) {
            answer
                .put(name, Value::Null)
                .put(&format!("{name}_error"), why);
        }
    }
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
