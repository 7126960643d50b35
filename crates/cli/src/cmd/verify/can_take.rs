//! Implements `hugeleaf verify --can-take`, and reads the facts of that judgement.

use hugeleaf_host::demand::CacheNodes;
use hugeleaf_host::limits::{has_ipc_lock, read_limits};
use hugeleaf_host::{Host, HugetlbfsMount, Pid, ProcessMemoryLimits, read_hugetlbfs_mounts};
use hugeleaf_plan::Margin;
use hugeleaf_plan::can_take::{CacheFacts, CacheRequest, CanTake, Pinning, can_take};
use hugeleaf_report::can_take::{json, page};
use hugeleaf_units::{Bytes, Ladder, Rung};

use crate::cmd::plan::flags::parse_ranks;
use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Judge a cache")]
pub struct CacheArgs {
    /// Judge whether this host can give a cache of this size its huge pages
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["since", "prometheus"])]
    pub can_take: Option<Bytes>,
    /// Page sizes of the cache, from the first to the last; thp:2M is transparent [default: the
    /// kernel's default size]
    #[arg(long, value_name = "LADDER", requires = "can_take")]
    sizes: Option<Ladder>,
    /// Number of processes that share out the cache; each is rounded up to whole pages
    #[arg(long, value_name = "N", requires = "can_take", value_parser = parse_ranks)]
    ranks: Option<u64>,
    /// NUMA node that all ranks are bound to
    #[arg(long, value_name = "NODE", requires = "can_take")]
    node: Option<u32>,
    /// Spread the ranks over all NUMA nodes, each bound to its own
    #[arg(long, requires = "can_take", conflicts_with = "node")]
    node_each: bool,
    /// The ranks pin their memory, in one call or in pieces of this size
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, requires = "can_take")]
    pin: Option<Option<Bytes>>,
    /// The hugetlbfs that holds the files of the cache
    #[arg(long, value_name = "DIR", requires = "can_take")]
    mount: Option<String>,
    /// Memory to keep free besides thp: sizes, e.g. 10%
    #[arg(long, value_name = "SIZE", requires = "can_take")]
    margin: Option<Margin>,
    /// Process whose limits and cgroups apply, instead of this shell's
    #[arg(long, value_name = "PID", requires = "can_take")]
    limits_of: Option<u32>,
}

pub fn run(args: &CacheArgs, bytes: Bytes, context: &Context) -> Result<CommandStatus, Failure> {
    let bar = Bar::spinner("reading pools and limits");
    let facts = HostCacheFacts::read(context, args.limits_of.map(Pid))?;
    let nodes = match (args.node, args.node_each) {
        (Some(node), _) => CacheNodes::One(node),
        (None, true) => CacheNodes::Each,
        (None, false) => CacheNodes::Any,
    };
    let request = CacheRequest {
        bytes,
        sizes: sizes(args.sizes.as_ref(), &facts.host)?,
        nodes,
        ranks: args.ranks,
        pin: args
            .pin
            .map(|piece| piece.map_or(Pinning::Whole, Pinning::Pieces)),
        mount: args.mount.clone(),
        margin: args.margin,
    };
    let answer = facts.judge(&request)?;
    drop(bar);
    show(&answer, context)?;
    Ok(answer.can_take.into())
}

pub fn show(answer: &CanTake, context: &Context) -> Result<(), Failure> {
    context.answer(Context::view(false), || json(answer), || page(answer))
}

/// Returns the rungs of a ladder, or the kernel's default size.
pub fn sizes(ladder: Option<&Ladder>, host: &Host) -> Result<Vec<Rung>, Failure> {
    if let Some(ladder) = ladder {
        return Ok(ladder.rungs().to_vec());
    }
    let default = host.memory.default_hugetlb_page.get();
    let size = default.ok_or_else(|| {
        Failure::missing(
            "this kernel has no hugetlb pages",
            "name a transparent size: --sizes thp:2M",
        )
    })?;
    Ok(vec![Rung { size, kind: None }])
}

/// Facts of the host and of the process whose limits apply.
pub struct HostCacheFacts {
    pub host: Host,
    pub mounts: Vec<HugetlbfsMount>,
    limits: ProcessMemoryLimits,
    ipc_lock: bool,
}

impl HostCacheFacts {
    /// Reads the facts; `process` is this one if it is not named.
    pub fn read(context: &Context, process: Option<Pid>) -> Result<HostCacheFacts, Failure> {
        let root = &context.root;
        let process = process.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        if process != "self" && root.list(format!("proc/{process}")).is_absent() {
            return Err(Failure::missing(
                format!("process {process}: has ended"),
                "hugeleaf mem    # lists the processes",
            ));
        }
        Ok(HostCacheFacts {
            host: context.host_and_leftovers()?,
            mounts: read_hugetlbfs_mounts(root).or_default(),
            limits: read_limits(root, &process),
            ipc_lock: has_ipc_lock(root, &process).get().unwrap_or_default(),
        })
    }

    pub fn judge(&self, request: &CacheRequest) -> Result<CanTake, Failure> {
        let facts = CacheFacts {
            host: &self.host,
            limits: &self.limits,
            ipc_lock: self.ipc_lock,
            mounts: &self.mounts,
        };
        can_take(&facts, request)
    }
}
