//! Protocol between `try` and its database, one message per line ([`crate::child`]):
//!
//! ```text
//! parent   {"start":{"cache":…,"align":…,"seed":…}}            once, first
//! workload {"progress":{"stage":"fill","done":…,"total":…}}    any number
//! workload {"ready":{"rows":…,"segment":{…},"outside":…}}
//! parent   "stats"
//! workload {"stats":{"operations":…, …}}
//! parent   {"advise":{"advice":"collapse","ranges":[…]}}       at most 1024 ranges
//! workload {"advised":BYTES} or {"errno":N}
//! parent   "quit"
//! workload {"failed":TEXT}                                     any time, then it ends
//! ```
//! `advise` processes the ranges in order, as process_madvise(2) does. `advised` counts the bytes
//! before the first failure. `errno` is the answer only if the first range failed.

use std::num::NonZeroU16;

use hugeleaf_sys::Advice;
use hugeleaf_units::{Bytes, PageSize, Range};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Maximum length of a line in bytes, both ways; 1024 ranges of 57 characters fit.
pub const LINE_LIMIT: usize = 64 * 1024;

/// Maximum number of ranges in one `advise`, as in process_madvise(2) (UIO_MAXIOV).
pub const RANGE_LIMIT: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSettings {
    /// Size of the page cache; rounded down to whole pages of `align`.
    pub cache: Bytes,
    /// Alignment of the page cache's start and end: the size that it can be promoted to. This is
    /// the host's PMD-sized page, or its base page without one.
    pub align: PageSize,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadRequest {
    Start(WorkloadSettings),
    Stats,
    Advise {
        advice: Advice,
        /// Ranges in order; at least one, at most [`RANGE_LIMIT`].
        #[serde(deserialize_with = "some_ranges")]
        ranges: Vec<Range>,
    },
    Quit,
}

fn some_ranges<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Range>, D::Error> {
    let ranges: Vec<Range> = Vec::deserialize(from)?;
    match ranges.len() {
        1..=RANGE_LIMIT => Ok(ranges),
        other => Err(D::Error::invalid_length(other, &"1 to 1024 ranges")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartupStage {
    /// Populates every page of the page cache; counted in bytes.
    Populate,
    /// Inserts rows; counted in bytes of page cache.
    Fill,
    /// Runs the steady load without counting it yet; counted in operations.
    Warm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartupProgress {
    pub stage: StartupStage,
    /// Progress so far, in the stage's unit.
    pub done: u64,
    pub total: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyMessage {
    /// Rows in the table; the keys are 1 to this number.
    pub rows: u64,
    /// The page cache: one private anonymous mapping that holds every page of the database.
    pub segment: Range,
    /// Page memory that SQLite took outside the segment; 0 unless something is wrong.
    pub outside: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkloadStats {
    /// Operations (reads and updates) since the workload became ready.
    pub operations: u64,
    pub updates: u64,
    pub nanoseconds: u64,
    /// CPU time of the process since its start, in nanoseconds. It is the measure if the process
    /// shares CPUs with others.
    pub cpu_nanoseconds: u64,
    pub samples: u64,
    /// Median of those samples in nanoseconds; 0 without any.
    pub p50_nanoseconds: u64,
    /// 99th percentile of those samples in nanoseconds; 0 without any.
    pub p99_nanoseconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadMessage {
    Progress(StartupProgress),
    Ready(ReadyMessage),
    Stats(WorkloadStats),
    /// Answer to [`WorkloadRequest::Advise`]: bytes of the processed ranges.
    Advised(Bytes),
    /// Answer to [`WorkloadRequest::Advise`]: the first range failed with this errno.
    Errno(NonZeroU16),
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::{line, parse};
    use proptest::prelude::*;

    fn range() -> impl Strategy<Value = Range> {
        (0..u64::MAX / 2, 1..u64::MAX / 2).prop_map(|(s, n)| Range::new(s, s + n).unwrap())
    }

    fn request() -> impl Strategy<Value = WorkloadRequest> {
        let advice = prop_oneof![Just(Advice::Collapse), Just(Advice::Cold)];
        prop_oneof![
            (any::<u64>(), 0u32..63, any::<u64>()).prop_map(|(cache, shift, seed)| {
                WorkloadRequest::Start(WorkloadSettings {
                    cache: Bytes(cache),
                    align: PageSize::new(Bytes(1 << shift)).unwrap(),
                    seed,
                })
            }),
            Just(WorkloadRequest::Stats),
            Just(WorkloadRequest::Quit),
            (advice, prop::collection::vec(range(), 1..40))
                .prop_map(|(advice, ranges)| WorkloadRequest::Advise { advice, ranges }),
        ]
    }

    fn event() -> impl Strategy<Value = WorkloadMessage> {
        let stage = prop_oneof![
            Just(StartupStage::Populate),
            Just(StartupStage::Fill),
            Just(StartupStage::Warm)
        ];
        prop_oneof![
            (stage, any::<u64>(), any::<u64>()).prop_map(|(stage, done, total)| {
                WorkloadMessage::Progress(StartupProgress { stage, done, total })
            }),
            (any::<u64>(), range(), any::<u64>()).prop_map(|(rows, segment, outside)| {
                WorkloadMessage::Ready(ReadyMessage {
                    rows,
                    segment,
                    outside: Bytes(outside),
                })
            }),
            any::<[u64; 7]>().prop_map(|n| WorkloadMessage::Stats(WorkloadStats {
                operations: n[0],
                updates: n[1],
                nanoseconds: n[2],
                cpu_nanoseconds: n[3],
                samples: n[4],
                p50_nanoseconds: n[5],
                p99_nanoseconds: n[6],
            })),
            any::<u64>().prop_map(|n| WorkloadMessage::Advised(Bytes(n))),
            any::<NonZeroU16>().prop_map(WorkloadMessage::Errno),
            "\\PC{1,40}".prop_map(WorkloadMessage::Failed),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(request in request(), event in event()) {
            prop_assert_eq!(parse::<WorkloadRequest>(&line(&request)).unwrap(), request);
            prop_assert_eq!(parse::<WorkloadMessage>(&line(&event)).unwrap(), event);
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,200}") {
            let _ = parse::<WorkloadRequest>(&text);
            let _ = parse::<WorkloadMessage>(&text);
        }

        #[test]
        fn a_cut_line_is_never_taken_for_another_kind(
            request in request(), event in event(), cut in 0usize..400
        ) {
            let text = line(&request);
            let cut_off = text.get(..cut.min(text.len())).unwrap_or_default();
            if let Ok(read) = parse::<WorkloadRequest>(cut_off) {
                prop_assert_eq!(read, request);
            }
            let text = line(&event);
            let cut_off = text.get(..cut.min(text.len())).unwrap_or_default();
            if let Ok(read) = parse::<WorkloadMessage>(cut_off) {
                prop_assert_eq!(read, event);
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            r#""start""#,
            r#"{"start":{"cache":1,"align":3,"seed":1}}"#,
            r#"{"start":{"cache":1,"align":4096}}"#,
            r#"{"start":{"cache":1,"align":4096,"seed":1,"more":2}}"#,
            r#""stats" now"#,
            r#""advise""#,
            r#"{"advise":{"advice":"willneed","ranges":[{"start":4096,"end":8192}]}}"#,
            r#"{"advise":{"advice":"cold"}}"#,
            r#"{"advise":{"advice":"cold","ranges":[]}}"#,
            r#"{"advise":{"advice":"cold","ranges":[{"start":8192,"end":4096}]}}"#,
            "quit",
        ] {
            assert!(parse::<WorkloadRequest>(text).is_err(), "{text:?}");
        }
        for text in [
            r#"{"errno":0}"#,
            r#"{"errno":-1}"#,
            r#""advised""#,
            r#""failed""#,
            r#"{"progress":{"stage":"nap","done":1,"total":2}}"#,
        ] {
            assert!(parse::<WorkloadMessage>(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_full_advise_fits_a_line_and_no_more_is_taken() {
        let one = Range::new(u64::MAX - 1, u64::MAX).unwrap();
        let advise = |count| {
            line(&WorkloadRequest::Advise {
                advice: Advice::Cold,
                ranges: vec![one; count],
            })
        };
        assert!(advise(RANGE_LIMIT).len() < LINE_LIMIT);
        assert!(parse::<WorkloadRequest>(&advise(RANGE_LIMIT)).is_ok());
        assert!(parse::<WorkloadRequest>(&advise(RANGE_LIMIT + 1)).is_err());
    }

    #[test]
    fn an_error_of_many_lines_stays_one() {
        let text = line(&WorkloadMessage::Failed("a\nb".into()));
        assert!(!text.contains('\n'), "{text}");
    }
}
