//! The line about `--at-least`: the share that was reached, and what is missing.

use std::cmp::Reverse;

use hugeleaf_mover::{BytesByReason, Outcome, UnchangedReason};
use hugeleaf_units::Bytes;

use crate::document::listed;

/// Maximum number of reasons in the line. Sections further below have all of them, with their sentences.
const REASONS: usize = 3;

/// Formats the result of `--at-least`; `None` without that flag.
pub fn result(outcome: &Outcome) -> Option<String> {
    let target = outcome.at_least?;
    let share = target.share;
    let word = if target.reached { "reached" } else { "missed" };
    let rounds = match target.rounds {
        1 => String::new(),
        n => format!(", in {n} rounds"),
    };
    let Some(part) = share.huge.share_of(share.eligible) else {
        return Some(format!(
            "{} {word}: none of the memory could be on huge pages",
            target.percent
        ));
    };
    let missing = (!share.missing().is_zero()).then(|| {
        let reasons = reasons(outcome).into_iter().take(REASONS);
        let reasons = reasons.map(|part| format!("{} {}", part.bytes, part.reason.id()));
        format!(
            "; {} on base pages{}",
            share.missing(),
            listed(": ", reasons)
        )
    });
    Some(format!(
        "{} {word}: {} of {} of eligible memory is on huge pages{rounds}{}",
        target.percent,
        floored(part),
        share.eligible,
        missing.unwrap_or_default()
    ))
}

/// Formats a share without rounding it up to the requested one.
fn floored(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).floor() / 10.0)
}

/// Returns the reasons of all eligible memory on base pages, most bytes first.
fn reasons(outcome: &Outcome) -> Vec<BytesByReason> {
    let totals = &outcome.totals;
    let counts = |part: &&BytesByReason| match part.reason {
        UnchangedReason::Not(reason) => reason.counts_as_eligible(),
        _ => true,
    };
    let mut all = Vec::new();
    for part in totals
        .failed
        .iter()
        .chain(totals.left_out.iter().filter(counts))
    {
        BytesByReason::add(&mut all, part.reason, part.bytes);
    }
    all.sort_by_key(|part| Reverse(part.bytes));
    all
}

/// Warns that KSM may split huge pages again. Returns the text if it runs on this host and may merge memory of the
/// processes.
pub fn ksm(outcome: &Outcome) -> Option<String> {
    let mergeable: Bytes = outcome.processes.iter().map(|p| p.mergeable).sum();
    (!mergeable.is_zero()).then(|| {
        format!(
            "KSM runs on this host (/sys/kernel/mm/ksm/run is 1), and {mergeable} of this memory \
             is open to it (MADV_MERGEABLE): it splits a huge page again to merge a part of it. \
             For QEMU, -machine mem-merge=off prevents that from the next start on"
        )
    })
}

#[cfg(test)]
mod tests {
    use hugeleaf_mover::{CoverageTarget, EligibleShare};
    use hugeleaf_verdict::eligible::Reason;

    use super::*;
    use crate::document::TextOptions;
    use crate::promote::tests::{one, outcome, request};
    use crate::promote::{PromotionDirection, json, page};

    fn judged(percent: &str, huge: u64, eligible: u64) -> Outcome {
        let share = EligibleShare {
            huge: Bytes::from_mib(huge),
            eligible: Bytes::from_mib(eligible),
        };
        let percent = percent.parse().unwrap();
        Outcome {
            at_least: Some(CoverageTarget {
                percent,
                reached: share.reaches(percent),
                rounds: 1,
                share,
            }),
            ..outcome(vec![one()])
        }
    }

    #[test]
    fn a_reached_share_is_one_line() {
        assert_eq!(
            result(&judged("95%", 3198, 3238)).unwrap(),
            "95% reached: 98.7 % of 3.2G of eligible memory is on huge pages; 40M on base pages: \
             30M partly-resident, 10M busy"
        );
        let mut outcome = judged("95%", 100, 100);
        outcome.at_least.as_mut().unwrap().rounds = 3;
        assert_eq!(
            result(&outcome).unwrap(),
            "95% reached: 100.0 % of 100M of eligible memory is on huge pages, in 3 rounds"
        );
        assert_eq!(
            result(&judged("95%", 0, 0)).unwrap(),
            "95% reached: none of the memory could be on huge pages"
        );
        assert_eq!(result(&super::super::tests::outcome(vec![one()])), None);
    }

    #[test]
    fn a_missed_share_is_not_rounded_up_and_names_the_reasons() {
        let mut outcome = judged("95%", 94_999, 100_000);
        let merged = Reason::Merged.into();
        BytesByReason::add(&mut outcome.totals.left_out, merged, Bytes::from_mib(4900));
        // Memory that no huge page fits does not count, so it explains nothing.
        let small = Reason::TooSmall.into();
        BytesByReason::add(&mut outcome.totals.left_out, small, Bytes::from_mib(9000));
        let text = result(&outcome).unwrap();
        assert!(text.starts_with("95% missed: 94.9 % of 97.7G"), "{text}");
        assert!(
            text.ends_with(": 4.8G ksm-merged, 30M partly-resident, 10M busy"),
            "{text}"
        );
    }

    #[test]
    fn the_page_and_json_have_the_result() {
        let missed = judged("95%", 3000, 3238);
        let request = request(PromotionDirection::Promote);
        let text = page(&missed, &request).text(TextOptions::plain(200));
        assert!(text.contains("\nat least:  95% missed: 92.6 %"), "{text}");
        let value: serde_json::Value = serde_json::from_str(&json(&missed)).unwrap();
        assert_eq!(
            (&value["at_least"], &value["reached"]),
            (&0.95.into(), &false.into())
        );
        assert_eq!(value["eligible_bytes"], 3238u64 << 20);
        let plain: serde_json::Value = serde_json::from_str(&json(&outcome(vec![one()]))).unwrap();
        assert!(plain.get("reached").is_none() && plain.get("at_least").is_none());
    }

    #[test]
    fn ksm_is_named_only_for_mergeable_memory() {
        let mut process = one();
        assert_eq!(ksm(&outcome(vec![process.clone()])), None);
        process.mergeable = Bytes::from_mib(512);
        let text = ksm(&outcome(vec![process])).unwrap();
        assert!(text.contains("512M of this memory is open to it"), "{text}");
    }
}
