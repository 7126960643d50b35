//! The flags of `plan`.

use std::path::PathBuf;
use std::time::Duration;

use hugeleaf_host::demand::host_cache::MOST_RANKS;
use hugeleaf_plan::Margin;
use hugeleaf_units::{Ladder, parse_time};

use super::demand_source_flags::DemandSourceFlags;

#[derive(Debug, Default, clap::Args)]
#[command(after_help = "\
Computes the number of huge pages of each size that each service needs on each node, the memory that
stays on base pages, and every file and setting that must match. Nothing is changed: --output writes
the plan to a file, to review, edit and pass to hugeleaf apply.

Without a target or a source of demand, the plan covers every service on this host that could use
huge pages. Sources can be combined. Base pages keep the memory that they use now, plus a margin of
10 % of memory or 1G, whichever is larger. If the rest is too little, pages are cut, and the plan
names the services affected.

Exit status: 0 planned; 1 planned, but pages had to be cut, or --host-cache does not fit; 2 wrong usage; 3 a service could not be
queried, or facts about the host are missing.

Examples:
  hugeleaf plan                                  all services
  hugeleaf plan postgresql@15-main.service --output pg.toml
  hugeleaf plan --postgres /var/lib/postgresql/15/main
  hugeleaf plan --bytes 8G --name cache --user app
  hugeleaf plan --host-cache 1536G --ranks 8 --node-each --sizes 1G,2M
  hugeleaf plan --tighten --for 24h --every 1m   during a day of real load
  hugeleaf plan --bytes 16G --name db --kubernetes --output values.yaml")]
pub struct Args {
    /// Services: PID, name, systemd unit, cgroup path, or tree:PID
    #[arg(value_name = "TARGET")]
    pub(super) targets: Vec<String>,
    #[command(flatten)]
    pub(super) sources: DemandSourceFlags,
    /// Number of processes that share out --host-cache; each is rounded up to whole pages
    #[arg(long, value_name = "N", requires = "host-cache", value_parser = parse_ranks)]
    pub(super) ranks: Option<u64>,
    /// Spread the ranks of --host-cache over all NUMA nodes, each bound to its own
    #[arg(long, requires = "host-cache", conflicts_with = "node")]
    pub(super) node_each: bool,
    /// Name of the service that --bytes, --mover or --host-cache is for
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// User that --bytes, --mover or --host-cache runs as; missing groups, limits and capabilities are listed
    #[arg(long, value_name = "USER")]
    pub(super) user: Option<String>,
    /// NUMA node that --bytes, --mover or --host-cache is bound to
    #[arg(long, value_name = "NODE")]
    pub(super) node: Option<u32>,
    /// Memory to keep free for base pages: a size, or a share of memory, e.g. 10%
    #[arg(long, value_name = "SIZE")]
    pub(super) margin: Option<Margin>,
    /// Page sizes to choose from, e.g. 1G,2M [default: those that the programs will request].
    /// thp:2M alone reserves nothing and plans for hugeleaf promote
    #[arg(long, value_name = "LADDER")]
    pub(super) sizes: Option<Ladder>,
    /// Plan more than the margin allows; plan and journal record the reason
    #[arg(long, value_name = "REASON")]
    pub(super) force: Option<String>,
    /// Also mount a hugetlbfs here, owned by --user
    #[arg(long, value_name = "DIR")]
    pub(super) mount: Option<PathBuf>,
    /// Start the units through hugeleaf run, with these flags
    #[arg(long, value_name = "FLAGS", num_args = 0..=1, require_equals = true)]
    pub(super) run: Option<Option<String>>,
    /// Environment variable for the units, e.g. NAME=value
    #[arg(long, value_name = "NAME=VALUE")]
    pub(super) env: Vec<String>,
    /// Print what pods request, as YAML; --output writes values for the Helm chart's pool setter
    #[arg(long, conflicts_with_all = ["run", "env"])]
    pub(super) kubernetes: bool,
    /// Write the plan to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Watch the pools and plan smaller ones, by their peak usage
    #[arg(long, conflicts_with_all = [
        "targets", "sources", "name", "user", "node", "ranks", "node_each", "sizes", "force", "mount", "run", "env",
    ])]
    pub(super) tighten: bool,
    /// Time that --tighten watches
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time, default_value = "10m", requires = "tighten")]
    pub(super) period: Option<Duration>,
    /// Scan interval of --tighten
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5s", requires = "tighten")]
    pub(super) every: Option<Duration>,
}

/// Parses a number of ranks.
pub(in crate::cmd) fn parse_ranks(text: &str) -> Result<u64, String> {
    let ranks = text
        .parse()
        .ok()
        .filter(|ranks| (1..=MOST_RANKS).contains(ranks));
    ranks.ok_or_else(|| format!("'{text}' is not a number of ranks from 1 to {MOST_RANKS}"))
}
