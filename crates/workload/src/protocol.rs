//! What parent and workload say to each other: one line each, words separated by single spaces.
//!
//! ```text
//! parent   start cache=BYTES align=BYTES seed=N        once, first
//! workload progress populate|fill|warm DONE TOTAL      any number
//! workload ready rows=N start=HEX end=HEX outside=BYTES
//! parent   stats
//! workload stats ops=N updates=N nanos=N cpu_nanos=N samples=N p50_nanos=N p99_nanos=N
//! parent   advise collapse|cold HEX-HEX[,HEX-HEX…]     at most 1024 ranges
//! workload advised BYTES | errno N
//! parent   quit
//! workload failed TEXT                                 any time, then it ends
//! ```
//! `stats`: operations and `nanos` count from the first operation, `cpu_nanos` is the
//! process's, percentiles are of the
//! samples since the last `stats`. `advise` goes through the ranges in order as
//! process_madvise(2) does: `advised` counts the bytes of those done before the first that failed,
//! and `errno` is the answer only where none was done.
//!
//! Both parsers are pure and take any text.

use std::fmt;

use hugeleaf_sys::Advice;
use hugeleaf_units::{Bytes, PageSize, Range};

/// The longest line either side takes, in bytes; 1024 ranges of 34 characters fit.
pub const LINE_LIMIT: usize = 64 * 1024;

/// The most ranges in one `advise`, as process_madvise(2) has it (UIO_MAXIOV).
pub const RANGE_LIMIT: usize = 1024;

/// A line that is none of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a line of the workload's protocol: {0:?}")]
pub struct BadLine(pub String);

/// What the parent says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Build the database and go to work.
    Start {
        /// How large the page cache is to be; rounded down to whole pages of `align`.
        cache: Bytes,
        /// Where the page cache has to start and end: the host's PMD-sized page.
        align: PageSize,
        /// What rows hold and which keys are drawn.
        seed: u64,
    },
    /// Say how far you are.
    Stats,
    /// Advise on your own memory.
    Advise {
        /// `Collapse` or `Cold`.
        advice: Advice,
        /// In order; at least one, at most [`RANGE_LIMIT`].
        ranges: Vec<Range>,
    },
    /// End.
    Quit,
}

/// A stage of getting ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Every page of the page cache is being made resident; counted in bytes.
    Populate,
    /// Rows are being inserted; counted in bytes of page cache.
    Fill,
    /// The steady load has begun but is not counted yet; counted in operations.
    Warm,
}

impl Stage {
    /// The word on the line.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Populate => "populate",
            Stage::Fill => "fill",
            Stage::Warm => "warm",
        }
    }
}

/// How far a stage is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Which stage.
    pub stage: Stage,
    /// Done so far, in the stage's own unit.
    pub done: u64,
    /// All of it.
    pub total: u64,
}

/// What a workload that is ready holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Rows in the table; their keys are 1 to this.
    pub rows: u64,
    /// The page cache: one private anonymous mapping that holds every page of the database.
    pub segment: Range,
    /// Page memory that SQLite had to take outside the segment; 0 unless something is wrong.
    pub outside: Bytes,
}

/// What a workload has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Operations (reads and updates) since it became ready.
    pub operations: u64,
    /// How many of them were updates.
    pub updates: u64,
    /// Nanoseconds since it became ready.
    pub nanoseconds: u64,
    /// Nanoseconds of processor time that its process has used since it started: what it is
    /// measured by where it shares processors with others.
    pub cpu_nanoseconds: u64,
    /// Latency samples since the last time it was asked.
    pub samples: u64,
    /// Median of those samples, in nanoseconds; 0 without any.
    pub p50_nanoseconds: u64,
    /// 99th percentile of those samples, in nanoseconds; 0 without any.
    pub p99_nanoseconds: u64,
}

/// What the workload says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Not ready yet.
    Progress(Progress),
    /// At work.
    Ready(Ready),
    /// Answer to [`Request::Stats`].
    Stats(Stats),
    /// Answer to [`Request::Advise`]: bytes of the ranges done.
    Advised(Bytes),
    /// Answer to [`Request::Advise`]: the first range failed with this errno.
    Errno(i32),
    /// It cannot go on; one line of text.
    Failed(String),
}

impl Request {
    /// Reads one line, without its end.
    ///
    /// # Errors
    /// [`BadLine`] for anything that is no request.
    pub fn parse(line: &str) -> Result<Request, BadLine> {
        parse_request(line).ok_or_else(|| bad(line))
    }
}

impl Event {
    /// Reads one line, without its end.
    ///
    /// # Errors
    /// [`BadLine`] for anything that is no event.
    pub fn parse(line: &str) -> Result<Event, BadLine> {
        parse_event(line).ok_or_else(|| bad(line))
    }
}

fn bad(line: &str) -> BadLine {
    const SHOWN: usize = 80;
    BadLine(line.chars().take(SHOWN).collect())
}

fn parse_request(line: &str) -> Option<Request> {
    let (word, rest) = split_word(line);
    match word {
        "stats" if line == "stats" => Some(Request::Stats),
        "quit" if line == "quit" => Some(Request::Quit),
        "start" => {
            let [cache, align, seed] = fields(rest, ["cache", "align", "seed"])?;
            Some(Request::Start {
                cache: Bytes(cache.parse().ok()?),
                align: PageSize::new(Bytes(align.parse().ok()?)).ok()?,
                seed: seed.parse().ok()?,
            })
        }
        "advise" => {
            let (advice, ranges) = split_word(rest);
            let advice = match advice {
                "collapse" => Advice::Collapse,
                "cold" => Advice::Cold,
                _ => return None,
            };
            if ranges.split(',').take(RANGE_LIMIT + 1).count() > RANGE_LIMIT {
                return None;
            }
            let ranges = ranges
                .split(',')
                .map(parse_range)
                .collect::<Option<Vec<_>>>()?;
            Some(Request::Advise { advice, ranges })
        }
        _ => None,
    }
}

fn parse_event(line: &str) -> Option<Event> {
    let (word, rest) = split_word(line);
    match word {
        "progress" => {
            let (stage, rest) = split_word(rest);
            let stage = [Stage::Populate, Stage::Fill, Stage::Warm]
                .into_iter()
                .find(|s| s.name() == stage)?;
            let (done, total) = split_word(rest);
            Some(Event::Progress(Progress {
                stage,
                done: done.parse().ok()?,
                total: total.parse().ok()?,
            }))
        }
        "ready" => {
            let [rows, start, end, outside] = fields(rest, ["rows", "start", "end", "outside"])?;
            Some(Event::Ready(Ready {
                rows: rows.parse().ok()?,
                segment: Range::new(hex(start)?, hex(end)?).ok()?,
                outside: Bytes(outside.parse().ok()?),
            }))
        }
        "stats" => {
            let names = [
                "ops",
                "updates",
                "nanos",
                "cpu_nanos",
                "samples",
                "p50_nanos",
                "p99_nanos",
            ];
            let [ops, updates, nanos, cpu, samples, p50, p99] = fields(rest, names)?;
            Some(Event::Stats(Stats {
                operations: ops.parse().ok()?,
                updates: updates.parse().ok()?,
                nanoseconds: nanos.parse().ok()?,
                cpu_nanoseconds: cpu.parse().ok()?,
                samples: samples.parse().ok()?,
                p50_nanoseconds: p50.parse().ok()?,
                p99_nanoseconds: p99.parse().ok()?,
            }))
        }
        "advised" => Some(Event::Advised(Bytes(rest.parse().ok()?))),
        "errno" => Some(Event::Errno(rest.parse().ok().filter(|n| *n > 0)?)),
        "failed" if !rest.is_empty() => Some(Event::Failed(rest.to_owned())),
        _ => None,
    }
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

/// The values of `name=value` words that must be these, in this order, and no others.
fn fields<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Option<[&'a str; N]> {
    let mut words = text.split(' ');
    let mut values = [""; N];
    for (value, name) in values.iter_mut().zip(names) {
        *value = words.next()?.strip_prefix(name)?.strip_prefix('=')?;
    }
    words.next().is_none().then_some(values)
}

fn parse_range(text: &str) -> Option<Range> {
    let (start, end) = text.split_once('-')?;
    Range::new(hex(start)?, hex(end)?).ok()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Start { cache, align, seed } => write!(
                f,
                "start cache={} align={} seed={seed}",
                cache.get(),
                align.bytes().get()
            ),
            Request::Stats => f.write_str("stats"),
            Request::Advise { advice, ranges } => {
                let word = match advice {
                    Advice::Cold => "cold",
                    _ => "collapse",
                };
                write!(f, "advise {word} ")?;
                for (i, range) in ranges.iter().enumerate() {
                    let comma = if i == 0 { "" } else { "," };
                    write!(f, "{comma}{range}")?;
                }
                Ok(())
            }
            Request::Quit => f.write_str("quit"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Progress(p) => write!(f, "progress {} {} {}", p.stage.name(), p.done, p.total),
            Event::Ready(r) => write!(
                f,
                "ready rows={} start={:x} end={:x} outside={}",
                r.rows,
                r.segment.start(),
                r.segment.end(),
                r.outside.get()
            ),
            Event::Stats(s) => write!(
                f,
                "stats ops={} updates={} nanos={} cpu_nanos={} samples={} p50_nanos={} p99_nanos={}",
                s.operations,
                s.updates,
                s.nanoseconds,
                s.cpu_nanoseconds,
                s.samples,
                s.p50_nanoseconds,
                s.p99_nanoseconds
            ),
            Event::Advised(bytes) => write!(f, "advised {}", bytes.get()),
            Event::Errno(errno) => write!(f, "errno {errno}"),
            // A line stays one line whatever an error says.
            Event::Failed(text) => write!(f, "failed {}", text.replace(['\n', '\r'], " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range() -> impl Strategy<Value = Range> {
        (0..u64::MAX / 2, 1..u64::MAX / 2).prop_map(|(s, n)| Range::new(s, s + n).unwrap())
    }

    fn request() -> impl Strategy<Value = Request> {
        let advice = prop_oneof![Just(Advice::Collapse), Just(Advice::Cold)];
        prop_oneof![
            (any::<u64>(), 0u32..63, any::<u64>()).prop_map(|(cache, shift, seed)| {
                Request::Start {
                    cache: Bytes(cache),
                    align: PageSize::new(Bytes(1 << shift)).unwrap(),
                    seed,
                }
            }),
            Just(Request::Stats),
            Just(Request::Quit),
            (advice, prop::collection::vec(range(), 1..40))
                .prop_map(|(advice, ranges)| Request::Advise { advice, ranges }),
        ]
    }

    fn event() -> impl Strategy<Value = Event> {
        let stage = prop_oneof![Just(Stage::Populate), Just(Stage::Fill), Just(Stage::Warm)];
        prop_oneof![
            (stage, any::<u64>(), any::<u64>())
                .prop_map(|(stage, done, total)| Event::Progress(Progress { stage, done, total })),
            (any::<u64>(), range(), any::<u64>()).prop_map(|(rows, segment, outside)| {
                Event::Ready(Ready {
                    rows,
                    segment,
                    outside: Bytes(outside),
                })
            }),
            any::<[u64; 7]>().prop_map(|n| Event::Stats(Stats {
                operations: n[0],
                updates: n[1],
                nanoseconds: n[2],
                cpu_nanoseconds: n[3],
                samples: n[4],
                p50_nanoseconds: n[5],
                p99_nanoseconds: n[6],
            })),
            any::<u64>().prop_map(|n| Event::Advised(Bytes(n))),
            (1..i32::MAX).prop_map(Event::Errno),
            "[a-z ]{1,40}".prop_map(Event::Failed),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(request in request(), event in event()) {
            prop_assert_eq!(Request::parse(&request.to_string()), Ok(request));
            prop_assert_eq!(Event::parse(&event.to_string()), Ok(event));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,200}") {
            let _ = Request::parse(&text);
            let _ = Event::parse(&text);
        }

        #[test]
        fn a_cut_line_is_never_taken_for_another_kind(
            request in request(), event in event(), cut in 0usize..400
        ) {
            // A number that lost digits is still a number; what kind of line it is must stay.
            let text = request.to_string();
            if let Ok(read) = Request::parse(&text[..cut.min(text.len())]) {
                prop_assert_eq!(std::mem::discriminant(&read), std::mem::discriminant(&request));
            }
            let text = event.to_string();
            if let Ok(read) = Event::parse(&text[..cut.min(text.len())]) {
                prop_assert_eq!(std::mem::discriminant(&read), std::mem::discriminant(&event));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "start",
            "start cache=1 align=3 seed=1",
            "start cache=1 align=4096",
            "start cache=1 align=4096 seed=1 more=2",
            "start align=4096 cache=1 seed=1",
            "stats now",
            "advise",
            "advise willneed 1000-2000",
            "advise cold",
            "advise cold 2000-1000",
            "advise cold 1000-2000,",
            "quit ",
        ] {
            assert!(Request::parse(text).is_err(), "{text:?}");
        }
        for text in [
            "errno 0",
            "errno -1",
            "advised",
            "failed",
            "progress nap 1 2",
        ] {
            assert!(Event::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_full_advise_fits_a_line_and_no_more_is_taken() {
        let one = Range::new(u64::MAX - 1, u64::MAX).unwrap();
        let full = Request::Advise {
            advice: Advice::Cold,
            ranges: vec![one; RANGE_LIMIT],
        };
        assert!(full.to_string().len() < LINE_LIMIT);
        assert!(Request::parse(&full.to_string()).is_ok());
        assert!(Request::parse(&format!("{full},{one}")).is_err());
    }

    #[test]
    fn an_error_of_many_lines_stays_one() {
        assert_eq!(
            Event::Failed("a\nb".into()).to_string(),
            "failed a b".to_owned()
        );
    }
}
