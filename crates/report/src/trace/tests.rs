pub(crate) mod testing;
mod unmeasured;

use super::*;
use crate::document::{TextOptions, needs_nothing};
use hugeleaf_verdict::trace_findings::findings as judge;

#[test]
fn one_screen_has_what_matters_and_findings_last() {
    let trace = testing::pinning();
    let findings = judge(&trace);
    let shown = TraceView {
        trace: &trace,
        findings: &findings,
        file: "a b.trace",
    };
    let text = shown.screen().text(TextOptions::plain(110));
    for part in [
        "mover, 10.0 s",
        "×5.00",
        "mlock_pte_range",
        "pool_lock",
        "4K base",
        "64 base pages a call",
        "effect: unit of pinning",
        "run: hugeleaf why mover",
        "'a b.trace'",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let last = text.rfind("Findings").unwrap();
    assert!(last > text.find("Lock contention").unwrap());
}

#[test]
fn every_section_is_shown_also_of_an_empty_trace() {
    for trace in [Trace::default(), testing::pinning()] {
        let shown = TraceView {
            trace: &trace,
            findings: &[],
            file: "f",
        };
        for part in &PARTS {
            let text = shown.sections([part]).text(TextOptions::plain(100));
            assert!(text.lines().count() >= 3, "{}: {text}", part.name);
            assert_eq!(TraceSection::parse(part.name).unwrap().name, part.name);
        }
    }
    assert!(TraceSection::parse("nothing").is_none());
}

#[test]
fn one_page_with_its_charts() {
    let trace = testing::pinning();
    let findings = judge(&trace);
    let shown = TraceView {
        trace: &trace,
        findings: &findings,
        file: "<b>.trace",
    };
    let page = shown.whole().html();
    needs_nothing(&page);
    // Host and target over time, processes, functions, locks and sizes; two flame graphs.
    assert_eq!(page.matches("<svg").count(), 6 + 2);
    for part in [
        "unit of pinning",
        "mlock_pte_range",
        "2 threads take turns",
        "hugeleaf trace mover",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<b>.trace"));
}

#[test]
fn an_empty_trace_is_a_page_too() {
    let trace = Trace::default();
    let shown = TraceView {
        trace: &trace,
        findings: &[],
        file: "f",
    };
    let page = shown.whole().html();
    assert!(page.contains("not measured: this trace has no record of it"));
    assert!(page.contains("No findings from what was measured"));
}
