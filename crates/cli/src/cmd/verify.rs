//! Implements `hugeleaf verify`.

pub mod can_take;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hugeleaf_plan::applied_plans::verify;
use hugeleaf_report::verify::{verify as screen, verify_json, verify_prometheus};

use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;
use hugeleaf_units::parse_time;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Services that run or start at boot are queried for the huge pages that they request. Applied plans
define the pages that services should have. Files below /etc are compared with the kernel. If
everything matches, the answer is one line.

--can-take judges whether the pools can give a cache its pages now, and names the number that
decides: free and reserved pages, nodes, cgroups, the limits of a process, and memory for the rest
of the host. Limits are those of this shell, or of --limits-of.

Exit status: 0 everything matches, or the cache fits; 1 something is short or has drifted, or the
cache does not fit; 2 wrong usage; 3 the host cannot be read.

Examples:
  hugeleaf verify
  hugeleaf verify --since 15m        from cron, every 15 minutes
  hugeleaf verify --prometheus /var/lib/prometheus/node-exporter/hugeleaf.prom
  hugeleaf verify --can-take 1536G --ranks 8 --node-each --sizes 1G,2M --pin")]
pub struct Args {
    /// Ignore kernel log lines before this time: an age, e.g. 2h, or a date, e.g.
    /// 2026-11-21T10:00:00Z [default: the newest apply]
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print Prometheus metrics, or write them to this file for the textfile collector
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    prometheus: Option<PathBuf>,
    #[command(flatten)]
    cache: can_take::CacheArgs,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    if let Some(bytes) = args.cache.can_take {
        return can_take::run(&args.cache, bytes, context);
    }
    if args.prometheus.is_some() && context.json {
        return Err(Failure::usage(
            "verify: --json and --prometheus cannot be combined",
            "hugeleaf verify --prometheus    # or --json",
        ));
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    let since = args
        .since
        .as_deref()
        .map(|text| since_of(text, now))
        .transpose()?;
    let bar = Bar::spinner("querying the services");
    let host = context.host_and_leftovers()?;
    let report = verify(&context.root, &context.kernel, &host, since, &[]);
    drop(bar);
    match &args.prometheus {
        Some(file) if file == Path::new("-") => {
            Context::print(&verify_prometheus(&report, now))?;
        }
        Some(file) => write_whole(file, &verify_prometheus(&report, now))?,
        None => {
            let view = Context::view(false);
            context.answer(view, || verify_json(&report), || screen(&report))?;
        }
    }
    Ok(report.is_good().into())
}

/// Parses a duration before now (`2h`) or a date. Returns seconds since 1970.
fn since_of(text: &str, now: u64) -> Result<u64, Failure> {
    if let Ok(ago) = parse_time(text) {
        return Ok(now.saturating_sub(ago.as_secs()));
    }
    seconds_of(text).ok_or_else(|| {
        Failure::usage(
            format!("verify: --since '{text}' is not a time"),
            "write 30m, 2h, or a date: hugeleaf verify --since 2026-11-21T10:00:00Z",
        )
    })
}

/// Parses a date into seconds since 1970. The default hour is 0, the default zone is the host's.
fn seconds_of(text: &str) -> Option<u64> {
    let zoned = || -> Option<jiff::Timestamp> {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        Some(
            civil
                .to_zoned(jiff::tz::TimeZone::system())
                .ok()?
                .timestamp(),
        )
    };
    let time: jiff::Timestamp = text.parse().ok().or_else(zoned)?;
    u64::try_from(time.as_second()).ok()
}

/// Writes a file atomically, so that readers see either the old text or the new one. The Prometheus
/// collector ignores names that do not end in `.prom`, such as the draft's.
fn write_whole(file: &Path, text: &str) -> Result<(), Failure> {
    if file.file_name().is_none() {
        return Err(Failure::usage(
            format!("verify: --prometheus {}: not a file name", file.display()),
            "hugeleaf verify --prometheus FILE",
        ));
    }
    hugeleaf_proof::write_whole(file, text)
        .map_err(|e| Failure::missing(e.to_string(), "name a file in an existing, writable folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ago_or_a_date() {
        assert_eq!(since_of("2h", 10_000).unwrap(), 2800);
        assert_eq!(since_of("1970-01-02T00:00:00Z", 0).unwrap(), 86_400);
        let local = since_of("2026-11-21", 0).unwrap();
        assert!(local.abs_diff(1_795_219_200) <= 86_400, "{local}");
        assert!(since_of("yesterday", 0).is_err());
    }
}
