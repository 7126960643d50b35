//! Parses the lines between `try` and its workload. They must survive printing and parsing unchanged.
#![no_main]

use hugeleaf_workload::child::{line, parse};
use hugeleaf_workload::protocol::{WorkloadMessage, WorkloadRequest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(request) = parse::<WorkloadRequest>(text) {
        assert_eq!(parse::<WorkloadRequest>(&line(&request)).unwrap(), request);
    }
    if let Ok(event) = parse::<WorkloadMessage>(text) {
        assert_eq!(parse::<WorkloadMessage>(&line(&event)).unwrap(), event);
    }
});
