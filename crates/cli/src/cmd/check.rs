//! Implements `hugeleaf check`.

use std::path::{Path, PathBuf};

use hugeleaf_change::standing::servers_here;
use hugeleaf_host::Host;
use hugeleaf_host::system::features::read_features;
use hugeleaf_proof::circumstances;
use hugeleaf_proof::worth::{Worths, add};
use hugeleaf_report::check::{check as screen, check_json};
use hugeleaf_verdict::check::{Checked, Profile, State, check, file_systems};

use super::results::all_in;

use crate::context::{Context, Failure, Status};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "States: change (it hurts, or programs that run here want it otherwise), look, good, absent, unknown

Examples:
  hugeleaf check
  hugeleaf check --for oltp
  hugeleaf check --results lab        what larger pages brought here, of results of hugeleaf bench

It reads, and changes nothing. What a feature is worth is taken from results that this very host has
made; without any it says that it was not measured here.
Exit status: 0 nothing has to be changed; 1 something has; 3 the host cannot be read."
)]
pub struct Args {
    /// What the host is for: oltp, warehouse, backup, jvm, cache, vector
    #[arg(long = "for", value_name = "USE", value_parser = parse_profile)]
    profile: Option<Profile>,
    /// A folder with results of hugeleaf bench
    #[arg(long, value_name = "DIR", default_value = ".")]
    results: PathBuf,
}

fn parse_profile(text: &str) -> Result<Profile, String> {
    let all = Profile::ALL;
    let named = all.iter().copied().find(|profile| profile.name() == text);
    let names: Vec<&str> = all.iter().map(|profile| profile.name()).collect();
    named.ok_or_else(|| format!("'{text}' is none of {}", names.join(", ")))
}

pub fn run(args: &Args, context: &Context) -> Result<Status, Failure> {
    let host = context.host()?;
    let features = read_features(&context.root);
    let servers = servers_here(&context.root);
    let checked = Checked {
        host: &host,
        features: &features,
        profile: args.profile,
        servers: &servers,
    };
    let (rows, mounted) = (check(&checked), file_systems(&checked));
    let worths = worths(&args.results, context, &host);
    context.answer(
        Context::view(false),
        || check_json(&rows, &mounted, args.profile, &worths),
        || screen(&rows, &mounted, args.profile, &worths),
    )?;
    Ok(rows.iter().all(|row| row.state != State::Change).into())
}

/// Returns the measured gains from a folder's results of this host; other results are ignored.
fn worths(folder: &Path, context: &Context, host: &Host) -> Worths {
    let here = circumstances(&context.root, host, &[]).host;
    let mut worths = Worths::new();
    for measured in all_in(folder).unwrap_or_default().results {
        let results = measured.results;
        add(&mut worths, &results, &here);
    }
    worths
}
