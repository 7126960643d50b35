//! Looks at the pools over a time, for `--tighten`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hugeleaf_verdict::plan::{Sample, sample};
use indicatif::{ProgressBar, ProgressStyle};

use crate::context::{Context, Failure};

/// How often it looks whether it should stop.
const GLANCE: Duration = Duration::from_millis(100);

/// Samples of the pools until the time is over or somebody stops it: then what was seen so far
/// counts. A captured host does not change: one look at it is all.
pub fn watch(
    period: Option<Duration>,
    every: Option<Duration>,
    context: &Context,
) -> Result<(Vec<Sample>, Duration), Failure> {
    let (period, every) = (period.unwrap_or_default(), every.unwrap_or_default());
    let mut samples = vec![sample(&context.host()?)?];
    if !context.root.is_live() {
        return Ok((samples, Duration::ZERO));
    }
    context.stop_on_signals()?;
    let bar = progress(period);
    let begin = Instant::now();
    let mut next = every;
    while begin.elapsed() < period && !context.stop.load(Ordering::Relaxed) {
        std::thread::sleep(GLANCE.min(every));
        bar.set_position(begin.elapsed().as_secs());
        if begin.elapsed() >= next {
            samples.push(sample(&context.host()?)?);
            next = begin.elapsed() + every;
        }
    }
    bar.finish_and_clear();
    Ok((samples, begin.elapsed().min(period)))
}

fn progress(period: Duration) -> ProgressBar {
    if !Context::draws_progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "watching the pools {bar:30} {pos}/{len} s; Ctrl-C ends it early",
    );
    let bar = ProgressBar::new(period.as_secs());
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
