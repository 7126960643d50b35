//! Missing data is never shown as zero. Each collection in turn is missing from a trace, on every screen and
//! page and in every answer.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{EventSource, Interval, SourceState};
use hugeleaf_trace::tables::not_measured::TraceDataKind;
use hugeleaf_verdict::trace_findings::findings as judge;
use serde_json::Value;

use super::super::diff::TraceDiff;
use super::super::{PARTS, TraceView, diff_json, json};
use super::testing;
use crate::document::TextOptions;

const WHY: &str = "the reason of this test";

/// A trace in which one collection is missing and left no data.
fn without(what: TraceDataKind) -> Trace {
    let mut trace = testing::pinning();
    trace.sources = TraceDataKind::ALL
        .into_iter()
        .map(|each| EventSource {
            name: each.name().to_owned(),
            state: match each == what {
                true => SourceState::NotHere {
                    reason: WHY.to_owned(),
                },
                false => SourceState::Used,
            },
            ..EventSource::default()
        })
        .collect();
    match what {
        TraceDataKind::CpuSamples => trace.samples.clear(),
        TraceDataKind::FaultSamples => trace.faults.clear(),
        TraceDataKind::Locks => trace.locks.clear(),
        TraceDataKind::LockingCalls | TraceDataKind::DirectIo | TraceDataKind::Registrations => {
            trace.pins.clear();
        }
        TraceDataKind::MemoryEvents | TraceDataKind::TlbFlushes => trace.memory_events.clear(),
        TraceDataKind::CpuTime => trace.intervals.iter_mut().for_each(|i| {
            *i = Interval {
                user_seconds: 0.0,
                system_seconds: 0.0,
                idle_seconds: 0.0,
                wait_seconds: 0.0,
                ..i.clone()
            };
        }),
        TraceDataKind::Vmstat => {
            trace.memory_counters.clear();
            for interval in &mut trace.intervals {
                interval.faults = 0;
                interval
                    .faults_by_size
                    .iter_mut()
                    .for_each(|size| size.count = 0);
            }
        }
        TraceDataKind::Io => {
            let threads = trace.processes.iter_mut().flat_map(|p| &mut p.threads);
            threads.for_each(|thread| thread.io = None);
        }
        TraceDataKind::Memory => (trace.memory_before, trace.memory_after) = (None, None),
        TraceDataKind::Counters => trace.counters.clear(),
    }
    trace
}

/// Texts that only a trace with this measurement may show, alone or in a comparison.
const fn claims(what: TraceDataKind) -> &'static [&'static str] {
    match what {
        TraceDataKind::CpuSamples => &["no samples", "0 samples", "No samples"],
        TraceDataKind::FaultSamples => &["none were sampled"],
        TraceDataKind::Locks => &["no thread waited", "No thread waited"],
        // The other two have a table of their own, with a note.
        TraceDataKind::DirectIo | TraceDataKind::Registrations | TraceDataKind::LockingCalls => &[],
        TraceDataKind::MemoryEvents | TraceDataKind::TlbFlushes => &[],
        TraceDataKind::CpuTime => &["no intervals"],
        TraceDataKind::Vmstat => &["no page faults", "no counter changed"],
        TraceDataKind::Io => &["wrote nothing", "moved no data"],
        TraceDataKind::Memory => &[],
        TraceDataKind::Counters => &["none on this host"],
    }
}

const fn place(what: TraceDataKind) -> Option<&'static str> {
    match what {
        TraceDataKind::CpuSamples => Some("profile"),
        TraceDataKind::Locks => Some("locks"),
        TraceDataKind::CpuTime => Some("cpu"),
        TraceDataKind::Vmstat => Some("faults"),
        TraceDataKind::Io => Some("io"),
        TraceDataKind::Memory => Some("pages"),
        _ => None,
    }
}

fn all_texts(trace: &Trace, other: &Trace) -> Vec<(&'static str, String)> {
    let found = judge(trace);
    let shown = |trace, findings| TraceView {
        trace,
        findings,
        file: "x.trace",
    };
    let own = shown(trace, &found);
    let view = TextOptions {
        all: true,
        ..TextOptions::plain(200)
    };
    let command = ["hugeleaf".to_owned()];
    let mut texts = vec![
        ("screen", own.screen().text(view)),
        ("sections", own.sections(&PARTS).text(view)),
        ("page", own.whole().html()),
    ];
    for (before, after) in [(trace, trace), (trace, other), (other, trace)] {
        let compared = TraceDiff {
            before: shown(before, &[]),
            after: shown(after, &[]),
        };
        texts.push(("diff", compared.page().text(view)));
        texts.push(("diff page", compared.whole(&command).html()));
        texts.push(("diff answer", diff_json(&compared)));
    }
    texts
}

#[test]
fn what_was_not_measured_is_nowhere_said_to_be_nothing() {
    let whole = {
        let mut trace = without(TraceDataKind::Counters);
        trace
            .sources
            .iter_mut()
            .for_each(|s| s.state = SourceState::Used);
        trace
    };
    for what in TraceDataKind::ALL {
        let trace = without(what);
        for (view, text) in all_texts(&trace, &whole) {
            for claim in claims(what) {
                assert!(
                    !text.contains(claim),
                    "{view} without {what:?} says {claim:?}:\n{text}"
                );
            }
            if matches!(view, "screen" | "sections" | "page") {
                assert!(
                    text.contains(WHY),
                    "{view} does not say why there is no {what:?}:\n{text}"
                );
            }
            assert!(
                !text.contains("NaN") && !text.contains("inf "),
                "{view} {what:?}"
            );
        }
    }
}

#[test]
fn an_answer_has_null_and_a_reason_and_no_zero() {
    for what in TraceDataKind::ALL {
        let trace = without(what);
        let shown = TraceView {
            trace: &trace,
            findings: &[],
            file: "x.trace",
        };
        let answer: Value = serde_json::from_str(&json(&shown, None)).unwrap();
        let listed = answer["not_measured"].as_array().unwrap();
        assert_eq!(listed.len(), 1, "{what:?}");
        assert_eq!(listed[0]["name"], what.name());
        if let Some(place) = place(what) {
            assert!(answer[place].is_null(), "{what:?}: {}", answer[place]);
            let why = answer[format!("{place}_error")].as_str().unwrap();
            assert!(why.contains(WHY), "{why}");
        }
        let interval = &answer["intervals"][0];
        let has = |name: &str| interval.get(name).is_some();
        assert_eq!(has("user_seconds"), what != TraceDataKind::CpuTime);
        assert_eq!(has("faults"), what != TraceDataKind::Vmstat);
        let target = &interval["target"];
        assert_eq!(
            target.get("read_bytes").is_some(),
            what != TraceDataKind::Io
        );
    }
}

/// One side measured nothing, shown as 0; the other did not measure, shown as `-`.
#[test]
fn a_comparison_tells_zero_from_unknown() {
    let (blind, mut seeing) = (without(TraceDataKind::Locks), testing::pinning());
    seeing.sources = blind.sources.clone();
    seeing
        .sources
        .iter_mut()
        .for_each(|s| s.state = SourceState::Used);
    let text = testing::compared(&seeing, &blind)
        .page()
        .text(TextOptions::plain(200));
    let row = text
        .lines()
        .find(|l| l.trim_end().ends_with("mlock_pte_range") && l.contains("ms"));
    let words: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert_eq!(&words[..2], ["500", "-"], "{text}");
    assert!(
        text.contains("-: lock contention not measured, after: not on this host"),
        "{text}"
    );
    let mut none = seeing.clone();
    none.locks.clear();
    let text = testing::compared(&seeing, &none)
        .page()
        .text(TextOptions::plain(200));
    let row = text
        .lines()
        .find(|l| l.trim_end().ends_with("mlock_pte_range") && l.contains("ms"));
    let words: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert_eq!(&words[..2], ["500", "0"], "{text}");
    let answer: Value =
        serde_json::from_str(&diff_json(&testing::compared(&seeing, &blind))).unwrap();
    assert_eq!(answer["locks"][0]["before"]["contentions"], 5000);
    assert!(answer["locks"][0]["after"].is_null());
    // Neither side measured.
    let answer: Value =
        serde_json::from_str(&diff_json(&testing::compared(&blind, &blind))).unwrap();
    assert!(answer["locks"].is_null() && answer["locks_error"].is_string());
    // A pinning call was observed without occurring, or was not observed.
    let text = testing::compared(&seeing, &without(TraceDataKind::LockingCalls))
        .page()
        .text(TextOptions::plain(200));
    let row = text
        .lines()
        .find(|l| l.trim_start().starts_with("mlock "))
        .unwrap();
    assert_eq!(
        row.split_whitespace().collect::<Vec<_>>(),
        ["mlock", "100", "-", "-"],
        "{text}"
    );
}
