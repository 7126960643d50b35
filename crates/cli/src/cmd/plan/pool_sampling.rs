//! Samples the pools at intervals, for `--tighten`.

use std::time::{Duration, Instant};

use hugeleaf_plan::{PoolSample, sample};

use crate::context::{Context, Failure};
use crate::progress::{Bar, BarLayout};

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Samples the pools until the period ends or a signal arrives, and returns the samples so far. A
/// captured host does not change, so one sample is enough.
pub fn watch(
    period: Option<Duration>,
    every: Option<Duration>,
    context: &Context,
) -> Result<(Vec<PoolSample>, Duration), Failure> {
    let (period, every) = (period.unwrap_or_default(), every.unwrap_or_default());
    let mut samples = vec![sample(&context.host()?)?];
    if !context.root.is_live() {
        return Ok((samples, Duration::ZERO));
    }
    context.stop_on_signals()?;
    let bar = Bar::new(BarLayout::Seconds, period.as_secs());
    bar.set_message("watching the pools");
    let begin = Instant::now();
    let mut next = every;
    while begin.elapsed() < period && context.kernel.wait(POLL_INTERVAL.min(every), &context.stop) {
        bar.set_position(begin.elapsed().as_secs());
        if begin.elapsed() >= next {
            samples.push(sample(&context.host()?)?);
            next = begin.elapsed() + every;
        }
    }
    Ok((samples, begin.elapsed().min(period)))
}
