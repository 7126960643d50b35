//! The lines between `try` and its workload: what is printed reads back as the same.
#![no_main]

use hugeleaf_workload::protocol::{Event, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    if let Ok(request) = Request::parse(line) {
        assert_eq!(Request::parse(&request.to_string()), Ok(request));
    }
    if let Ok(event) = Event::parse(line)
        && !line.contains(['\n', '\r'])
    {
        assert_eq!(Event::parse(&event.to_string()), Ok(event));
    }
});
