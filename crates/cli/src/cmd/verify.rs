//! See `hugeleaf verify --help`.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hugeleaf_change::host::{self as change, Looked, Obstacle, State};
use hugeleaf_host::Fact;
use hugeleaf_host::demand::read_services;
use hugeleaf_host::system::{boot_time, settings::read_settings};
use hugeleaf_report::verify::{verify as screen, verify_json, verify_prometheus};
use hugeleaf_sys::Existing;
use hugeleaf_verdict::plan::{Step, steps};
use hugeleaf_verdict::verify::{Applied, Did, Facts, Place, Report, Stands, verify};

use crate::context::{Context, Failure, Status, parse_time};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Services that run or are started at boot are asked what they want; plans that were applied say what
they should have; files below /etc are held against the kernel. Where all is as it should be the
answer is one line.

Exit status: 0 all as it should be; 1 something fell short or drifted; 2 wrong usage; 3 the host
could not be read.

Examples:
  hugeleaf verify
  hugeleaf verify --since 15m        for cron, every 15 minutes
  hugeleaf verify --prometheus /var/lib/prometheus/node-exporter/hugeleaf.prom")]
pub struct Args {
    /// Leave out lines of the kernel's log from before: 2h ago, or a date as 2026-11-21T10:00:00Z;
    /// default: the newest apply
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print metrics for Prometheus, or write them into a file that its textfile collector reads
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    prometheus: Option<PathBuf>,
}

/// Runs it.
pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    if args.prometheus.is_some() && context.json {
        return Err(Failure::usage(
            "verify: --json and --prometheus are two forms of one answer",
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
    let report = look(context, since)?;
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
    Ok(match report.is_good() {
        true => Status::Good,
        false => Status::No,
    })
}

/// Gathers the facts and has them judged.
fn look(context: &Context, since: Option<u64>) -> Result<Report, Failure> {
    let host = context.host()?;
    let found = read_services(&context.root, &context.kernel, &host);
    let units: Vec<&str> = found
        .services
        .iter()
        .filter_map(|s| s.unit.as_deref())
        .collect();
    let settings = read_settings(&context.root, &units);
    let mut unread: Vec<String> = found
        .unread
        .iter()
        .map(|error| format!("A service could not be asked: {error}"))
        .collect();
    let applied = match change::applied(&context.root) {
        Fact::Known(all) => all
            .iter()
            .filter(|one| !one.undone)
            .map(|one| applied_of(context, one))
            .collect(),
        Fact::Absent => Vec::new(),
        Fact::Unreadable(error) => {
            unread.push(format!("What was applied is not known: {error}"));
            Vec::new()
        }
    };
    let newest = applied
        .first()
        .and_then(|one: &Applied| seconds_of(&one.time));
    Ok(verify(&Facts {
        host: &host,
        services: &found.services,
        unread: &unread,
        applied: &applied,
        settings: &settings,
        booted: boot_time::read(&context.root).get(),
        log_since: since.or(newest),
    }))
}

/// What was applied, its steps held against the host as it is now.
fn applied_of(context: &Context, one: &change::Applied) -> Applied {
    let plan = super::plan::in_force::plan_of(one);
    let planned = plan.as_ref().map(steps).unwrap_or_default();
    let places = one
        .steps
        .iter()
        .filter(|step| is_in_force(step.state))
        .filter_map(|step| {
            let planned = planned.iter().find(|planned| planned.id == step.id)?;
            Some(place_of(context, planned, step))
        });
    Applied {
        id: one.id,
        time: one.time.clone(),
        plan_copy: Path::new("/")
            .join(change::JOURNAL)
            .join(format!("{:04}.toml", one.id)),
        places: places.collect(),
        plan,
        is_complete: one.complete == Some(true),
        damage: one.damage.clone(),
    }
}

/// Whether a step was made, or was so already.
const fn is_in_force(state: State) -> bool {
    matches!(
        state,
        State::Already | State::Done | State::Short | State::InUse | State::Differs
    )
}

fn place_of(context: &Context, planned: &Step, step: &change::AppliedStep) -> Place {
    let (looked, obstacles) = change::look(&context.root, std::slice::from_ref(planned));
    let (now, stands) = match (looked.first(), obstacles.first()) {
        (Some(looked), _) => (words(&looked.before), stands(looked)),
        (None, Some(Obstacle::Missing(_))) => (None, Stands::Gone),
        (None, Some(Obstacle::Denied(error))) => (None, Stands::Unread(error.to_string())),
        (None, Some(other)) => (Some(other.to_string()), Stands::Changed),
        (None, None) => (None, Stands::Gone),
    };
    Place {
        id: step.id.clone(),
        what: Did::of_step(&step.what),
        path: step.path.clone(),
        before: step.before.as_ref().and_then(words),
        wanted: step.wanted.as_ref().and_then(words),
        now,
        stands,
    }
}

fn stands(looked: &Looked) -> Stands {
    match (looked.state, &looked.before) {
        (State::Already, _) => Stands::AsApplied,
        (State::NotApplicable, _) => Stands::NotApplicable,
        (_, change::Place::Absent | change::Place::NoMount) => Stands::Gone,
        _ => Stands::Changed,
    }
}

/// A place in a word; of files, which have many, nothing.
fn words(place: &change::Place) -> Option<String> {
    match place {
        change::Place::Value { value } => Some(value.clone()),
        change::Place::Pool { pages, .. } => Some(pages.to_string()),
        change::Place::Mount { options } => Some(options.clone()),
        change::Place::OtherMount { kind } => Some(kind.clone()),
        _ => None,
    }
}

/// A time as `2h` ago or as a date, in seconds since 1970.
fn since_of(text: &str, now: u64) -> Result<u64, Failure> {
    if let Ok(ago) = parse_time(text) {
        return Ok(now.saturating_sub(ago.as_secs()));
    }
    seconds_of(text).ok_or_else(|| {
        Failure::usage(
            format!("verify: --since '{text}' is no time"),
            "write 30m, 2h, or a date: hugeleaf verify --since 2026-11-21T10:00:00Z",
        )
    })
}

/// A date in seconds since 1970; without an hour its first, without a zone the host's own.
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

/// Writes a file so that whoever reads it finds the old text or the new one, and no part of
/// either. The collector passes over names that do not end in `.prom`, such as that of the draft.
fn write_whole(file: &Path, text: &str) -> Result<(), Failure> {
    if file.file_name().is_none() {
        return Err(Failure::usage(
            format!("verify: --prometheus {}: not a file's name", file.display()),
            "hugeleaf verify --prometheus FILE",
        ));
    }
    hugeleaf_sys::write_whole(file, text.as_bytes(), Existing::Replaced).map_err(|e| {
        Failure::missing(
            format!("{}: {}", file.display(), e.reason()),
            "name a file in a folder that is there and may be written to",
        )
    })
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
