//! The flags of `plan`.

use std::path::PathBuf;
use std::time::Duration;

use hugeleaf_units::{Ladder, parse_time};
use hugeleaf_verdict::plan::Margin;

use super::sources::Sources;

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Says how many pages of which size each service needs, on which node, what stays for base pages, and
every file and setting that has to agree with that. Nothing is changed: --output writes the plan
into a file to read, edit and give to hugeleaf apply.

Without a target or a source of demand: every service on this host that could use large pages.
Sources may be mixed. What base pages have been using stays theirs, with a margin of 10 % of memory
or 1G, whichever is more; where that leaves too little, pages are cut and the plan says whose.

Exit status: 0 planned; 1 planned, and pages had to be cut; 2 wrong usage; 3 a service could not be
asked, or the host does not say what a plan rests on.

Examples:
  hugeleaf plan                                  all services
  hugeleaf plan postgresql@15-main.service --output pg.toml
  hugeleaf plan --postgres /var/lib/postgresql/15/main
  hugeleaf plan --bytes 8G --name cache --user app
  hugeleaf plan --tighten --for 24h --every 1m   after a day of real load")]
pub struct Args {
    /// Services: a PID, a name, a systemd unit, a cgroup's path, or tree:PID
    #[arg(value_name = "TARGET")]
    pub(super) targets: Vec<String>,
    #[command(flatten)]
    pub(super) sources: Sources,
    /// What --bytes or --mover is for
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Whom --bytes or --mover runs as: says which group, limit or capability that user lacks
    #[arg(long, value_name = "USER")]
    pub(super) user: Option<String>,
    /// The node that --bytes or --mover is bound to
    #[arg(long, value_name = "NODE")]
    pub(super) node: Option<u32>,
    /// What stays free for base pages: a size, or a part of memory as in 10%
    #[arg(long, value_name = "SIZE")]
    pub(super) margin: Option<Margin>,
    /// Page sizes to choose from, as in 1G,2M, instead of those that the programs will ask for;
    /// thp:2M alone reserves nothing and plans for hugeleaf promote
    #[arg(long, value_name = "LADDER")]
    pub(super) sizes: Option<Ladder>,
    /// Plan more than the margin allows; the reason goes into the plan and the journal
    #[arg(long, value_name = "REASON")]
    pub(super) force: Option<String>,
    /// Also mount a hugetlbfs here, owned by --user
    #[arg(long, value_name = "DIR")]
    pub(super) mount: Option<PathBuf>,
    /// Start the units through hugeleaf run, with these flags of it
    #[arg(long, value_name = "FLAGS", num_args = 0..=1, require_equals = true)]
    pub(super) run: Option<Option<String>>,
    /// A variable for the units, as in NAME=value
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) env: Vec<String>,
    /// Write the plan into this file; - is stdout
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Watch the pools and plan smaller ones, by the most that was in use
    #[arg(long, conflicts_with_all = [
        "targets", "sources", "name", "user", "node", "sizes", "force", "mount", "run", "env",
    ])]
    pub(super) tighten: bool,
    /// How long --tighten watches
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, default_value = "10m", requires = "tighten")]
    pub(super) period: Option<Duration>,
    /// How often --tighten looks
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s", requires = "tighten")]
    pub(super) every: Option<Duration>,
}
