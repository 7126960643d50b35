//! Implements `hugeleaf prove`.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_mover::{Percent, StallLimits};
use hugeleaf_proof::experiment::{ProveError, design};
use hugeleaf_proof::metric::{self, MetricSpec};
use hugeleaf_proof::stats::{LogRatioInterval, percent};
use hugeleaf_proof::stopping_rule::MIN_PAIRS;
use hugeleaf_proof::{
    ExperimentDesign, ExperimentEvent, ExperimentSettings, FinalPages, LiveSubject, Metric,
    Subject, Verdict, circumstances, run as experiment,
};
use hugeleaf_report::document::{Cell, Document, Note, TextOptions, counted};
use hugeleaf_report::prove::{page, whole_page};

use super::bench::save;
use crate::context::{AmbiguityPolicy, CommandStatus, Context, Failure};
use crate::progress::{Bar, BarLayout, time_left};
use hugeleaf_units::parse_time;

/// Maximum default hold time, in which a server's caches can fill.
const MOST_HOLD: Duration = Duration::from_secs(40);

const EXAMPLES: &str = "
Examples:
  hugeleaf prove redis-server --metric redis:localhost:6379
  hugeleaf prove tree:1234 --metric 'postgres:host=/run/postgresql dbname=shop' --for 5m
  hugeleaf prove mariadbd --metric mysql:/run/mysqld/mysqld.sock --pairs 40 --html result.html
  hugeleaf prove app --metric 'http://localhost:9100/metrics#mean(request_seconds)'

Exit status: 0 faster; 1 slower, same or unclear; 2 wrong usage; 3 a precondition is missing.";

/// Returns the table of metrics for the help text.
fn metrics() -> String {
    let rows = metric::forms_and_help().into_iter();
    let rows = rows.map(|(form, help)| (form.to_owned(), Cell::from(help.replace('`', ""))));
    let mut help = Document::default();
    help.section("Metrics:", vec![rows.collect::<Vec<_>>().into()]);
    help.text(TextOptions::plain(100))
}

#[derive(Debug, clap::Args)]
#[command(after_help = metrics() + EXAMPLES)]
pub struct Args {
    /// Processes: PID, name, systemd unit, cgroup path, or tree:PID
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<String>,
    /// Metric to measure; see Metrics below
    #[arg(long, value_name = "METRIC")]
    metric: String,
    /// Run exactly this many pairs; at least 8
    #[arg(long, value_name = "N", value_parser = parse_pairs, conflicts_with = "until")]
    pairs: Option<usize>,
    /// Stop once the interval is within ± this
    #[arg(long, value_name = "PERCENT", default_value = "3%")]
    until: Fraction,
    /// Start no pair after this time; at least 8 pairs run in any case
    #[arg(long = "for", value_name = "TIME", default_value = "3m", value_parser = parse_time)]
    time: Duration,
    /// Measurement time of each arm; longer if the metric needs it
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    interval: Duration,
    /// Time discarded after each promotion and demotion, in addition to half an interval
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_time)]
    settle: Duration,
    /// After the pairs, hold each arm this long to detect slow effects; 0 skips it. Default: 40s,
    /// at most a quarter of --for; 0 with --pairs, or if this is less than four intervals
    #[arg(long, value_name = "TIME", value_parser = parse_hold)]
    hold: Option<Duration>,
    /// Treat differences within ± this as equal; `same` needs two one-sided tests (TOST)
    #[arg(long, value_name = "PERCENT", default_value = "2%")]
    equal: Fraction,
    /// Confidence level of the interval, from 50% to 99%
    #[arg(long, value_name = "PERCENT", default_value = "95%", value_parser = parse_confidence)]
    confidence: Fraction,
    /// Keep the huge pages if the verdict is `faster`; otherwise restore the state before the
    /// experiment
    #[arg(long, value_name = "WHEN")]
    keep: Option<KeepArg>,
    /// Measure the base arm first, then the huge arm: weaker evidence, but a single promotion
    #[arg(long)]
    before_after: bool,
    /// A/A test: promote and demote as usual, but measure both arms on the pages as found. A
    /// verdict other than `same` or `unclear` is then false
    #[arg(long, conflicts_with_all = ["before_after", "keep"])]
    same_pages: bool,
    /// Also report the effect over all pairs as assigned, including those with an incomplete
    /// promotion or demotion
    #[arg(long, conflicts_with = "before_after")]
    intention_to_treat: bool,
    /// Seed of the random order, to repeat an experiment
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Maximum share of the process's time that promotion and demotion may take
    #[arg(long, value_name = "PERCENT", default_value = "100%")]
    budget: Percent,
    /// Bound the stall of one call, e.g. 5ms. A call for one huge page takes about 1 ms, and more
    /// if memory is fragmented or processors are busy
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    longest_stall: Option<Duration>,
    /// Write the result to this file [default: none]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write an HTML page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the planned experiment; change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Condition for keeping the huge pages. A doc comment on a variant would switch the whole help to clap's long layout.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum KeepArg {
    IfFaster,
}

/// A percentage between 0 and 100, both excluded, stored as a fraction of 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fraction(pub(super) f64);

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Fraction, String> {
        let digits = text.trim().trim_end_matches('%').trim_end();
        let value: f64 = digits.parse().unwrap_or(f64::NAN);
        if value > 0.0 && value < 100.0 {
            return Ok(Fraction(value / 100.0));
        }
        Err(format!(
            "'{text}' is not a percentage between 0 and 100; write 3%"
        ))
    }
}

fn parse_confidence(text: &str) -> Result<Fraction, String> {
    let part: Fraction = text.parse()?;
    // Eight pairs support no interval of higher confidence.
    if (0.5..=0.99).contains(&part.0) {
        return Ok(part);
    }
    Err(format!("'{text}' is not a confidence from 50% to 99%"))
}

fn parse_hold(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => parse_time(text).map_err(|e| format!("{e}, or 0")),
    }
}

fn parse_pairs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n >= MIN_PAIRS => Ok(n),
        _ => Err(format!(
            "'{text}' is not a number of pairs, or below {MIN_PAIRS}"
        )),
    }
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    context.need_live("prove")?;
    let spec: MetricSpec = (args.metric.parse()).map_err(|e: metric::MetricSpecError| {
        Failure::usage(
            e.to_string(),
            "hugeleaf prove --help    # lists the metrics",
        )
    })?;
    let name = args.targets.join(" ");
    let pids = context.targets(&args.targets, AmbiguityPolicy::Refused)?;
    let host = context.host()?;
    let mut subject = LiveSubject::new(
        &context.kernel,
        &context.root,
        &host,
        &name,
        &pids,
        StallLimits {
            budget: args.budget,
            longest_stall: args.longest_stall,
        },
    );
    let mut metric = spec.open(&pids, &context.stop)?;
    if args.dry_run {
        return dry_run(args, &mut subject, &mut metric, &context.stop);
    }
    context.stop_on_all_signals()?;
    let command: Vec<String> = std::env::args().collect();
    let circumstances = circumstances(&context.root, &host, &command);
    let bar = Bar::new(BarLayout::Pairs, 1);
    let mut course = ExperimentProgress::default();
    let result = experiment(
        &mut subject,
        &mut metric,
        &context.kernel,
        &settings(args),
        &circumstances,
        &mut |event| course.show(&bar, &event),
        &context.stop,
    );
    drop(bar);
    let result = result?;
    context.answer(Context::view(true), || result.to_json(), || page(&result))?;
    if let Some(path) = &args.output {
        save("result", path, &result.to_json())?;
    }
    if let Some(path) = &args.html {
        save("page", path, &whole_page(&result).html())?;
    }
    Ok((result.verdict == Verdict::Faster).into())
}

fn settings(args: &Args) -> ExperimentSettings {
    let defaults = ExperimentSettings::default();
    let mut rule = defaults.rule;
    rule.confidence = args.confidence.0;
    rule.until = (1.0 + args.until.0).ln();
    rule.fixed_pairs = args.pairs;
    ExperimentSettings {
        interval: args.interval,
        settle: args.settle,
        hold: args.hold.unwrap_or_else(|| default_hold(args)),
        against: None,
        limit: args.time,
        at_most: None,
        rule,
        equal: (1.0 + args.equal.0).ln(),
        keep: match args.keep {
            Some(KeepArg::IfFaster) => FinalPages::IfFaster,
            None => FinalPages::AsFound,
        },
        seed: args.seed.unwrap_or(defaults.seed),
        before_after: args.before_after,
        same_pages: args.same_pages,
        intention_to_treat: args.intention_to_treat,
    }
}

/// Returns the default hold time: in proportion to a short experiment, and none if it would have fewer than four intervals.
fn default_hold(args: &Args) -> Duration {
    let hold = MOST_HOLD.min(args.time / 4);
    match args.pairs.is_some() || hold < 4 * args.interval {
        true => Duration::ZERO,
        false => hold,
    }
}

/// Prints the planned experiment. It reads the metric because the experiment would do so first.
fn dry_run(
    args: &Args,
    subject: &mut dyn Subject,
    metric: &mut Metric,
    stop: &AtomicBool,
) -> Result<CommandStatus, Failure> {
    let prepared = subject.prepare().map_err(ProveError::from)?;
    metric.read(stop)?;
    let design = match design(&prepared, &settings(args))? {
        ExperimentDesign::BeforeAfter => "before and after",
        ExperimentDesign::RandomPairs => "in pairs of random order, balanced in blocks",
    };
    let interval = args.interval.max(metric.least_interval);
    let would = format!(
        "would promote and demote {} of {}, now on {} pages, and measure {} ({}) {design}, {} s \
         on each",
        prepared.bytes,
        subject.name(),
        prepared.began.name(),
        metric.name,
        metric.unit,
        interval.as_secs_f64(),
    );
    let notes = prepared.notes.iter().map(|note| Note::new("note", note));
    let mut page = Document::new("hugeleaf prove --dry-run", would);
    page.add(notes.collect::<Vec<_>>());
    Context::show(&page, Context::view(true))?;
    Ok(CommandStatus::Good)
}

/// Course of an experiment, for one line of progress.
#[derive(Debug, Default)]
struct ExperimentProgress {
    pairs: usize,
    /// Interval after the last pair.
    interval: Option<LogRatioInterval>,
    elapsed: Duration,
    limit: Duration,
    /// Current activity.
    doing: String,
    is_holding: bool,
}

impl ExperimentProgress {
    fn show(&mut self, bar: &Bar, event: &ExperimentEvent<'_>) {
        match event {
            ExperimentEvent::Note(text) => return bar.note(text),
            ExperimentEvent::Rejected(r) => {
                return bar.print_above(&format!("discarded: {}", r.reason));
            }
            event => self.take(event),
        }
        if !self.limit.is_zero() {
            bar.set_length(self.limit.as_secs());
            bar.set_position(self.elapsed.as_secs());
        }
        bar.set_message(&self.line());
    }

    fn take(&mut self, event: &ExperimentEvent<'_>) {
        match event {
            ExperimentEvent::Moving(arm) => {
                self.is_holding = false;
                self.doing = format!("switching to {} pages", arm.pages());
            }
            ExperimentEvent::Measuring {
                arm,
                pairs,
                elapsed,
                limit,
            } => {
                (self.pairs, self.elapsed, self.limit) = (*pairs, *elapsed, *limit);
                // A hold is measured too, and its name says more.
                if !self.is_holding {
                    self.doing = format!("measuring {} pages", arm.pages());
                }
            }
            ExperimentEvent::Paired {
                pairs,
                interval,
                elapsed,
            } => {
                (self.pairs, self.elapsed) = (*pairs, *elapsed);
                self.interval = interval.or(self.interval);
            }
            ExperimentEvent::Holding { arm, time } => {
                self.is_holding = true;
                let seconds = time.as_secs();
                self.doing = format!("holding {} pages for {seconds} s", arm.pages());
            }
            ExperimentEvent::Restoring => self.doing = "restoring the memory".to_owned(),
            ExperimentEvent::Note(_) | ExperimentEvent::Rejected(_) => {}
        }
    }

    /// Formats the course: `12 pairs, +11 % [7, 16 %], measuring huge pages, 1 min 40 s left`.
    fn line(&self) -> String {
        let pairs = (self.pairs > 0).then(|| counted(self.pairs, "pair"));
        let estimate = self.interval.map(|i| {
            let [low, center, high] = [i.low, i.center, i.high].map(|log| percent(log.exp()));
            let end = |text: &str| text.trim_start_matches('+').to_owned();
            format!("{center} % [{}, {} %]", end(&low), end(&high))
        });
        let left = self.limit.saturating_sub(self.elapsed).as_secs();
        let left = (left > 0).then(|| time_left(left));
        let parts = [pairs, estimate, Some(self.doing.clone()), left];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugeleaf_proof::Arm;
    use hugeleaf_proof::stats::StatisticalTest;

    #[test]
    fn the_estimate_and_the_time_left_stay_while_it_measures() {
        let seconds = Duration::from_secs;
        let mut course = ExperimentProgress::default();
        let mut after = |event: ExperimentEvent<'_>| {
            course.take(&event);
            course.line()
        };
        let measuring = |arm, pairs, at| ExperimentEvent::Measuring {
            arm,
            pairs,
            elapsed: seconds(at),
            limit: seconds(180),
        };
        assert_eq!(
            after(ExperimentEvent::Moving(Arm::Base)),
            "switching to base pages"
        );
        assert_eq!(
            after(measuring(Arm::Base, 0, 1)),
            "measuring base pages, 2 min 59 s left"
        );
        let paired = ExperimentEvent::Paired {
            pairs: 12,
            interval: Some(LogRatioInterval {
                center: 1.11_f64.ln(),
                low: 1.07_f64.ln(),
                high: 1.16_f64.ln(),
                method: StatisticalTest::SignedRank,
            }),
            elapsed: seconds(78),
        };
        after(paired);
        let estimate = "12 pairs, +11 % [7, 16 %]";
        assert_eq!(
            after(measuring(Arm::Large, 12, 80)),
            format!("{estimate}, measuring huge pages, 1 min 40 s left")
        );
        let without = ExperimentEvent::Paired {
            pairs: 13,
            interval: None,
            elapsed: seconds(182),
        };
        assert!(after(without).starts_with("13 pairs, +11 % [7, 16 %]"));
        let holding = ExperimentEvent::Holding {
            arm: Arm::Large,
            time: seconds(40),
        };
        after(holding);
        assert_eq!(
            after(measuring(Arm::Large, 12, 190)),
            format!("{estimate}, holding huge pages for 40 s")
        );
    }

    #[test]
    fn percentages() {
        assert_eq!("3%".parse(), Ok(Fraction(0.03)));
        assert_eq!("1.5".parse(), Ok(Fraction(0.015)));
        for text in ["", "%", "0", "-1", "100%", "x", "nan"] {
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
        assert!(parse_confidence("99%").is_ok());
        assert!(parse_confidence("99.9%").is_err());
        assert_eq!(parse_hold("0"), Ok(Duration::ZERO));
        assert_eq!(parse_hold("40s"), Ok(Duration::from_secs(40)));
        assert!(parse_hold("-1").is_err());
        assert_eq!(parse_pairs("8"), Ok(8));
        assert!(parse_pairs("7").is_err());
        assert!(parse_pairs("many").is_err());
    }
}
