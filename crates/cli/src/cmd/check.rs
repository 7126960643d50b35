//! Implements `hugeleaf check`.

use std::path::{Path, PathBuf};

use hugeleaf_host::Host;
use hugeleaf_host::system::system_config::read_features;
use hugeleaf_plan::applied_plans::servers_here;
use hugeleaf_proof::circumstances;
use hugeleaf_proof::past_gains::{GainsByArm, add};
use hugeleaf_report::check::{check as screen, check_json};
use hugeleaf_verdict::check::{CheckInput, CheckState, WorkloadProfile, check, file_systems};

use super::read_results::read_folder;

use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
States: change (a harmful value, or one that a running program needs changed),
        review (worth a check), good, absent, unknown

Examples:
  hugeleaf check
  hugeleaf check --for oltp
  hugeleaf check --results lab        with the gain of huge pages in these results

Nothing is changed. The gain of huge pages is taken from results that were measured on this host.
Without any it is shown as not measured.
Exit status: 0 nothing to change; 1 something to change; 3 the host cannot be read.")]
pub struct Args {
    /// Use of the host: oltp, warehouse, backup, jvm, cache, vector [default: all of them]
    #[arg(long = "for", value_name = "USE", value_parser = parse_profile)]
    profile: Option<WorkloadProfile>,
    /// Directory with results of hugeleaf bench
    #[arg(long, value_name = "DIR", default_value = ".")]
    results: PathBuf,
}

fn parse_profile(text: &str) -> Result<WorkloadProfile, String> {
    let all = WorkloadProfile::ALL;
    let named = all.iter().copied().find(|profile| profile.name() == text);
    let names: Vec<&str> = all.iter().map(|profile| profile.name()).collect();
    named.ok_or_else(|| format!("'{text}' is not one of {}", names.join(", ")))
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    let bar = Bar::spinner("reading the settings");
    let host = context.host()?;
    let features = read_features(&context.root);
    let servers = servers_here(&context.root);
    let checked = CheckInput {
        host: &host,
        features: &features,
        profile: args.profile,
        servers: &servers,
    };
    let (rows, mounted) = (check(&checked), file_systems(&checked));
    let worths = worths(&args.results, context, &host);
    drop(bar);
    context.answer(
        Context::view(false),
        || check_json(&rows, &mounted, args.profile, &worths),
        || screen(&rows, &mounted, args.profile, &worths),
    )?;
    Ok(rows
        .iter()
        .all(|row| row.state != CheckState::Change)
        .into())
}

/// Returns the measured gains from a folder's results of this host; other results are ignored.
fn worths(folder: &Path, context: &Context, host: &Host) -> GainsByArm {
    let here = circumstances(&context.root, host, &[]).host;
    let mut worths = GainsByArm::new();
    for measured in read_folder(folder).unwrap_or_default().results {
        let results = measured.results;
        add(&mut worths, &results, &here);
    }
    worths
}
