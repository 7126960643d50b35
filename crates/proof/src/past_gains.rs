//! The measured benefit of settings on this host, from its earlier results.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::over;
use crate::prove_result::HostFingerprint;
use crate::result_format::{Pairing, Results, fields};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredGain {
    pub workload: String,
    /// The gain over the first arm; above 1 is better.
    pub ratio: f64,
    /// Lower end of its 95 % interval; `None` for a count taken once.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// Benefits by arm: `thp:2M`, `hugetlb:2M`.
pub type GainsByArm = BTreeMap<String, Vec<MeasuredGain>>;

/// Adds a result, if it is from the same kind of host and compares its arms with base pages.
pub fn add(worths: &mut GainsByArm, results: &Results, host: &HostFingerprint) {
    const BASE: &str = "base";
    let same = ["kernel", "processor", "memory_bytes"];
    let here = fields(host);
    let is_here = same
        .iter()
        .all(|field| results.host.get(*field) == here.get(*field));
    let first = results.arms.first().filter(|arm| arm.name == BASE);
    let (Some(first), true) = (first, is_here) else {
        return;
    };
    for row in results
        .rows
        .iter()
        .filter(|row| row.quantity.main && row.arm != first.name && !row.doubtful)
    {
        let Some(base) = results.row(&first.name, &row.at, &row.quantity.name) else {
            continue;
        };
        let Ok(over) = over(base, row, Pairing::Rounds) else {
            continue;
        };
        let Some(ratio) = over.ratio else {
            continue;
        };
        let gain = |ratio: f64| row.quantity.better.gain(ratio);
        let ends = over.effect.map(|effect| {
            let (a, b) = (gain(effect.low), gain(effect.high));
            (a.min(b), a.max(b))
        });
        let places: Vec<String> = row
            .at
            .iter()
            .map(|place| place.value.to_json().to_string().replace('"', ""))
            .collect();
        let workload = std::iter::once(results.experiment.name.clone()).chain(places);
        worths
            .entry(row.arm.clone())
            .or_default()
            .push(MeasuredGain {
                workload: workload.collect::<Vec<_>>().join(" "),
                ratio: gain(ratio),
                low: ends.map(|ends| ends.0),
                high: ends.map(|ends| ends.1),
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result_format::{ArmInfo, Quantity, Sample};

    fn host(kernel: &str) -> HostFingerprint {
        HostFingerprint {
            kernel: Some(kernel.to_owned()),
            arch: None,
            processor: None,
            cpus: 2,
            nodes: 1,
            memory_bytes: Some(1 << 30),
            base_page_bytes: 4096,
            large_page_bytes: None,
            is_virtual: None,
        }
    }

    fn result(quantity: &Quantity, base: f64, large: f64) -> Results {
        let mut results = Results::empty("sort", "");
        results.host = fields(&host("6.18"));
        results.arms = ["base", "thp:2M"].map(ArmInfo::named).to_vec();
        for round in 0..8 {
            let noise = 1.0 + round as f64 / 1000.0;
            results.add("base", &[], quantity.clone(), Sample::new(round, base));
            results.add(
                "thp:2M",
                &[],
                quantity.clone(),
                Sample::new(round, large * noise),
            );
        }
        results
    }

    #[test]
    fn better_is_above_one_whichever_way_it_is() {
        let mut worths = GainsByArm::new();
        add(
            &mut worths,
            &result(&Quantity::rate("r", "1/s").main(), 100.0, 120.0),
            &host("6.18"),
        );
        add(
            &mut worths,
            &result(&Quantity::amount("t", "s").main(), 12.0, 10.0),
            &host("6.18"),
        );
        let all = &worths["thp:2M"];
        assert_eq!(all.len(), 2);
        for worth in all {
            assert!((worth.ratio - 1.2).abs() < 0.02, "{worth:?}");
            assert!(worth.low.unwrap() <= worth.ratio && worth.ratio <= worth.high.unwrap());
        }
    }

    #[test]
    fn another_host_and_other_arms_say_nothing_of_this_one() {
        let mut worths = GainsByArm::new();
        let quantity = Quantity::rate("r", "1/s").main();
        add(&mut worths, &result(&quantity, 1.0, 2.0), &host("7.3"));
        let mut renamed = result(&quantity, 1.0, 2.0);
        renamed.arms.reverse();
        add(&mut worths, &renamed, &host("6.18"));
        add(
            &mut worths,
            &result(&Quantity::rate("r", "1/s"), 1.0, 2.0),
            &host("6.18"),
        );
        assert!(worths.is_empty());
    }
}
