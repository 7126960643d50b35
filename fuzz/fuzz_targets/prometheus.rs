//! Parses Prometheus pages and selects a metric. The first line is the selector.
#![no_main]

use hugeleaf_proof::metric::prometheus::{MetricSelector, SelectedValue, locate, parse, select};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = hugeleaf_fuzz::text(data);
    let (first, page) = text.split_once('\n').unwrap_or(("up", &text));
    let Ok(page) = parse(page) else { return };
    let Ok(selector) = first.parse::<MetricSelector>() else {
        return;
    };
    let _ = selector.to_string();
    if let Ok(SelectedValue::Buckets(counts)) = select(&page, &selector, true) {
        for q in [0.5, 0.99] {
            let _ = locate(q, &counts);
        }
    }
});
