//! Implements `hugeleaf warm`.

use std::path::{Path, PathBuf};

use hugeleaf::MemoryError;
use hugeleaf::warm::{WarmOptions, WarmPart, WarmSource, Warmed, warm};
use hugeleaf_host::HugetlbfsMount;
use hugeleaf_host::demand::CacheNodes;
use hugeleaf_plan::can_take::{CacheRequest, CanTake, PlacedPages};
use hugeleaf_report::warm::{NodeRow, PagesRow, WarmView};
use hugeleaf_sys::{Errno, HugetlbFile, MemorySyscalls, SysError};
use hugeleaf_units::{Bytes, Ladder, PageKind, Pages, Rung};

use crate::cmd::verify::can_take::{HostCacheFacts, show, sizes};
use crate::context::{CommandStatus, Context, Failure};
use crate::progress::{Bar, BarLayout};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Populates the file of a hugetlbfs before a program maps it, or memory on trial, which is returned at
once. Each node's processors populate the pages of that node. The pools, the cgroups and the rest of
the host are judged first, as by hugeleaf verify --can-take, and all pages are reserved before the
first one is touched. Afterwards page sizes and nodes are read back.

A new file is readable and writable by its owner. It is removed if it could not be filled.

Exit status: 0 all memory is on the requested pages; 1 some is not, the pages do not fit, or a
signal ended it; 2 wrong usage; 3 the host cannot be read, or a call failed.

Examples:
  hugeleaf warm /dev/hugepages/kv-cache --size 512G --node 0
  hugeleaf warm /dev/hugepages/kv-cache          an existing file
  hugeleaf warm --size 64G --sizes 1G,2M --node-each")]
pub struct Args {
    /// File of a hugetlbfs; without it, memory on trial
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Size of a new file, or of the memory on trial
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Page sizes of memory on trial, from the first to the last [default: the kernel's default
    /// size]; a file has those of its hugetlbfs
    #[arg(long, value_name = "LADDER", conflicts_with = "file")]
    sizes: Option<Ladder>,
    /// Only pages of this NUMA node
    #[arg(long, value_name = "NODE")]
    node: Option<u32>,
    /// An equal share of pages of each NUMA node, in order
    #[arg(long, conflicts_with = "node")]
    node_each: bool,
    /// Threads of each node [default: one per processor]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    const MOST: usize = 1024;
    let threads = text.parse().ok().filter(|n| (1..=MOST).contains(n));
    threads.ok_or_else(|| format!("'{text}' is not a number of threads from 1 to {MOST}"))
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    context.need_live("warm")?;
    if args.file.is_none() && args.size.is_none() {
        return Err(Failure::usage(
            "warm: neither a file nor a --size",
            "hugeleaf warm /dev/hugepages/cache, or hugeleaf warm --size 4G for a trial",
        ));
    }
    context.stop_on_signals()?;
    let facts = HostCacheFacts::read(context, None)?;
    let mut file = args
        .file
        .as_deref()
        .map(|path| open(path, args))
        .transpose()?;
    let request = request(args, file.as_ref(), &facts)?;
    let parts = match request {
        Some(request) => {
            let answer = facts.judge(&request)?;
            if !answer.can_take {
                show(&answer, context)?;
                return Ok(CommandStatus::No);
            }
            parts(args, file.as_ref(), &answer)
        }
        None => file
            .as_ref()
            .map_or_else(Vec::new, |file| vec![whole(file, args.node)]),
    };
    let warmed = populate(args, file.as_ref(), &parts, context)?;
    let is_good = warmed.is_complete();
    if let Some(file) = file.as_mut().filter(|_| is_good) {
        file.keep();
    }
    let view = view(args, warmed);
    context.answer(Context::view(false), || view.json(), || view.page())?;
    Ok(is_good.into())
}

/// Opens the file, or makes it with `--size`.
fn open(path: &Path, args: &Args) -> Result<HugetlbFile, Failure> {
    let memory = MemorySyscalls::new();
    let opened = match HugetlbFile::open(&memory, path) {
        Err(error) if error.errno == Errno::NOENT => {
            let size = args.size.ok_or_else(|| {
                Failure::usage(
                    format!("{}: no such file", path.display()),
                    "add --size to make it, as in --size 64G",
                )
            })?;
            if size.is_zero() {
                return Err(Failure::usage(
                    "--size 0: nothing to populate",
                    "as in --size 64G",
                ));
            }
            HugetlbFile::create(&memory, path, size)
        }
        other => other,
    };
    let file = opened.map_err(|error| unopened(path, &error))?;
    if file.length().is_zero() {
        return Err(Failure::usage(
            format!("{}: an empty file", path.display()),
            "remove it, and make it with --size",
        ));
    }
    match args.size.and_then(|size| file.page().round_up(size.get())) {
        Some(size) if size != file.length().get() => Err(Failure::usage(
            format!(
                "{}: exists with a size of {}",
                path.display(),
                file.length()
            ),
            "leave out --size, or name another file",
        )),
        _ => Ok(file),
    }
}

fn unopened(path: &Path, error: &SysError) -> Failure {
    match error.errno {
        Errno::INVAL => Failure::usage(
            format!("{}: not a file of a hugetlbfs", path.display()),
            "grep hugetlbfs /proc/mounts    # lists its mounts",
        ),
        _ => Failure::missing(error.to_string(), "name a file that this user may write"),
    }
}

/// Returns the memory that is still to be taken; `None` if the file has all its pages.
fn request(
    args: &Args,
    file: Option<&HugetlbFile>,
    facts: &HostCacheFacts,
) -> Result<Option<CacheRequest>, Failure> {
    let (bytes, sizes, mount) = match (file, args.size) {
        (Some(file), _) => {
            let rung = Rung {
                size: file.page(),
                kind: None,
            };
            let mount = args.file.as_deref().and_then(|path| mount_of(path, facts));
            (file.length() - file.held(), vec![rung], mount)
        }
        (None, size) => (
            size.unwrap_or_default(),
            sizes(args.sizes.as_ref(), &facts.host)?,
            None,
        ),
    };
    let is_done = file.is_some() && bytes.is_zero();
    Ok((!is_done).then(|| CacheRequest {
        bytes,
        sizes,
        nodes: nodes(args),
        ranks: None,
        pin: None,
        mount,
        margin: None,
    }))
}

fn nodes(args: &Args) -> CacheNodes {
    match (args.node, args.node_each) {
        (Some(node), _) => CacheNodes::One(node),
        (None, true) => CacheNodes::Each,
        (None, false) => CacheNodes::Any,
    }
}

/// Returns the mount that holds a path: the one with the longest path.
fn mount_of(path: &Path, facts: &HostCacheFacts) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let holds = |mount: &&HugetlbfsMount| path.starts_with(&mount.path);
    let mounts = facts.mounts.iter().filter(holds);
    let longest = mounts.max_by_key(|mount| mount.path.len());
    longest.map(|mount| mount.path.clone())
}

/// Returns the parts to populate. A file is populated as a whole, including pages that it has already.
fn parts(args: &Args, file: Option<&HugetlbFile>, answer: &CanTake) -> Vec<WarmPart> {
    let placed = |placed: &PlacedPages| WarmPart {
        page: placed.page,
        kind: placed.kind,
        node: placed.node,
        pages: placed.pages,
    };
    match file {
        None => answer.pages.iter().map(placed).collect(),
        Some(file) if args.node_each => {
            let nodes: Vec<Option<u32>> = answer.pages.iter().map(|p| p.node).collect();
            shares(file, &nodes)
        }
        Some(file) => vec![whole(file, args.node)],
    }
}

fn whole(file: &HugetlbFile, node: Option<u32>) -> WarmPart {
    part(file, node, pages_of(file))
}

fn pages_of(file: &HugetlbFile) -> u64 {
    file.length().get() / file.page().bytes().get()
}

const fn part(file: &HugetlbFile, node: Option<u32>, pages: u64) -> WarmPart {
    WarmPart {
        page: file.page(),
        kind: PageKind::Hugetlb,
        node,
        pages: Pages(pages),
    }
}

/// Divides a file among nodes, in equal shares of whole pages.
fn shares(file: &HugetlbFile, nodes: &[Option<u32>]) -> Vec<WarmPart> {
    let (pages, count) = (pages_of(file), nodes.len().max(1) as u64);
    let from = |at: u64| (at * pages).div_ceil(count);
    let share = |(at, node): (u64, &Option<u32>)| part(file, *node, from(at + 1) - from(at));
    let shares = (0..).zip(nodes).map(share);
    shares.filter(|part| part.pages > Pages(0)).collect()
}

fn populate(
    args: &Args,
    file: Option<&HugetlbFile>,
    parts: &[WarmPart],
    context: &Context,
) -> Result<Warmed, Failure> {
    let total: Bytes = parts.iter().map(WarmPart::bytes).sum();
    let bar = Bar::new(BarLayout::Bytes, total.get());
    let progress = |done: Bytes, _: Bytes| bar.set_position(done.get());
    let options = WarmOptions {
        threads: args.threads,
        stop: Some(&context.stop),
        progress: Some(&progress),
    };
    let source = file.map_or(WarmSource::Trial, WarmSource::File);
    warm(source, parts, &options).map_err(|error| unpopulated(&error))
}

/// Explains a failure after the judgement: the pages went elsewhere meanwhile.
fn unpopulated(error: &MemoryError) -> Failure {
    match error {
        MemoryError::Sys(inner) if matches!(inner.errno, Errno::NOMEM | Errno::FAULT) => {
            Failure::no(
                format!("{error}: the pages were taken meanwhile, or a limit refuses them"),
                "hugeleaf verify --can-take SIZE    # judges again",
            )
        }
        _ => Failure::missing(error.to_string(), error.next()),
    }
}

fn view(args: &Args, warmed: Warmed) -> WarmView {
    let nodes = warmed.nodes.iter().map(|node| {
        let seconds = node.time.as_secs_f64();
        NodeRow::new(node.node, node.threads, node.bytes, seconds)
    });
    let pages = warmed.pages.iter().map(|pages| PagesRow {
        page: pages.page,
        kind: pages.kind,
        node: pages.node,
        wanted: pages.wanted,
        got: pages.got,
    });
    let mut notes = Vec::new();
    if !warmed.is_complete() && args.file.is_some() {
        notes.push("a file that this command made was removed".to_owned());
    }
    WarmView {
        good: warmed.is_complete(),
        stopped: warmed.stopped,
        file: args.file.as_ref().map(|file| file.display().to_string()),
        nodes: nodes.collect(),
        pages: pages.collect(),
        notes,
    }
}
