//! Populates a file of a hugetlbfs, or memory on trial, in parallel by node, and judges the result.
//!
//! Each part has its page size, its kind and possibly its node. All pages of a pool are reserved before the first one
//! is touched, so that a short pool is an error and no SIGBUS. The result is read back from the kernel.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hugeleaf_host::process::maps::parse_node_memory;
use hugeleaf_host::{Root, system::node_cpus};
use hugeleaf_sys::{
    Advice, HugetlbFile, HugetlbReservation, MemoryFile, MemorySyscalls, NodePolicy,
    ReservedAddresses, SysError, allowed_cpus, run_on_cpus,
};
use hugeleaf_units::{Bytes, PageKind, PageSize, Pages, Range};

use crate::error::MemoryError;
use crate::host_memory::HostMemory;
use crate::own_memory::extents_of;
use crate::populate::{is_short, populate};

/// Memory that a thread populates with one call, unless a page is larger. A stop takes effect between two calls.
const CHUNK: Bytes = Bytes::from_mib(16);
/// Interval between checks of the host's memory, and between calls of the progress callback.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Pages of one size and kind, from one node or from any.
///
/// ```
/// use hugeleaf::{PageKind, Pages, warm::WarmPart};
///
/// let part = WarmPart {
///     page: "2M".parse()?,
///     kind: PageKind::Hugetlb,
///     node: Some(0),
///     pages: Pages(512),
/// };
/// assert_eq!(part.bytes().to_string(), "1G");
/// # Ok::<(), hugeleaf::ParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmPart {
    /// Size of the pages.
    pub page: PageSize,
    /// [`PageKind::Hugetlb`] or [`PageKind::Thp`].
    pub kind: PageKind,
    /// The only node from which the pages may come.
    pub node: Option<u32>,
    /// Number of pages.
    pub pages: Pages,
}

impl WarmPart {
    /// Returns the memory of the part.
    pub fn bytes(&self) -> Bytes {
        self.pages.in_bytes(self.page)
    }
}

/// Options of [`warm`]. The default has one thread per processor, never stops and reports nothing.
///
/// ```
/// use hugeleaf::warm::WarmOptions;
///
/// let options = WarmOptions { threads: Some(2), ..WarmOptions::default() };
/// assert!(options.stop.is_none());
/// ```
#[derive(Clone, Copy, Default)]
pub struct WarmOptions<'a> {
    /// Number of threads of each node; `None` is one per processor of the node.
    pub threads: Option<usize>,
    /// Ends the work early when it becomes true.
    pub stop: Option<&'a AtomicBool>,
    /// Receives the memory populated so far, and all of it.
    pub progress: Option<&'a (dyn Fn(Bytes, Bytes) + Sync)>,
}

/// The threads of a node, and what they populated.
///
/// See [`Warmed`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmedNode {
    /// The node whose processors did it; `None` on a kernel without NUMA.
    pub node: Option<u32>,
    /// Number of threads.
    pub threads: usize,
    /// Memory populated.
    pub bytes: Bytes,
    /// Time from the first call to the end of the last.
    pub time: Duration,
}

/// Memory by page size, kind and node, as the kernel reports it.
///
/// See [`Warmed`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmPages {
    /// Size of the pages.
    pub page: PageSize,
    /// Kind of the pages.
    pub kind: PageKind,
    /// The node, if one was requested.
    pub node: Option<u32>,
    /// Memory requested.
    pub wanted: Bytes,
    /// Memory on such pages.
    pub got: Bytes,
}

/// The result of [`warm`].
///
/// ```
/// use hugeleaf::{PageKind, Pages, warm::{WarmOptions, WarmPart, WarmSource, warm}};
///
/// let part = WarmPart { page: "2M".parse()?, kind: PageKind::Thp, node: None, pages: Pages(4) };
/// let warmed = warm(WarmSource::Trial, &[part], &WarmOptions::default())?;
/// for node in &warmed.nodes {
///     println!("node {:?}: {} in {:?} by {} threads", node.node, node.bytes, node.time, node.threads);
/// }
/// for pages in &warmed.pages {
///     println!("{} of {} on {} pages", pages.got, pages.wanted, pages.page);
/// }
/// # assert!(!warmed.stopped);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warmed {
    /// Work by node.
    pub nodes: Vec<WarmedNode>,
    /// Result by part.
    pub pages: Vec<WarmPages>,
    /// True if [`WarmOptions::stop`] ended it early.
    pub stopped: bool,
}

impl Warmed {
    /// Returns true if all memory is on the requested pages and nodes.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        !self.stopped && self.pages.iter().all(|pages| pages.got >= pages.wanted)
    }
}

/// Memory to populate.
///
/// See [`Warmed`] for an example.
#[derive(Debug, Clone, Copy)]
pub enum WarmSource<'a> {
    /// The file, whose length must be that of all parts. They cover it in order.
    File(&'a HugetlbFile),
    /// Memory of this process, returned at once.
    Trial,
}

/// Populates memory and reads the result back. See [`Warmed`] for an example.
///
/// # Errors
/// [`MemoryError::Sys`] with ENOMEM if a pool cannot reserve the pages: nothing was touched then. Errors of the system
/// calls, and [`MemoryError::TooLarge`] if the host or a cgroup runs out of memory outside the pools.
pub fn warm(
    source: WarmSource<'_>,
    parts: &[WarmPart],
    options: &WarmOptions<'_>,
) -> Result<Warmed, MemoryError> {
    let space = Layout::map(source, parts)?;
    let jobs = NodeJobs::new(&space.parts);
    let nodes = jobs.run(&space, options)?;
    let stopped = options.is_stopped();
    let pages = match stopped {
        true => Vec::new(),
        false => space.read_back()?,
    };
    Ok(Warmed {
        nodes,
        pages,
        stopped,
    })
}

impl std::fmt::Debug for WarmOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("WarmOptions");
        fields
            .field("threads", &self.threads)
            .field("stop", &self.stop);
        fields.finish_non_exhaustive()
    }
}

impl WarmOptions<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

/// The parts, mapped one after the other.
struct Layout {
    space: ReservedAddresses,
    parts: Vec<(WarmPart, Range)>,
    /// Trial files, which hold their pages until the end.
    _files: Vec<MemoryFile>,
}

impl Layout {
    fn map(source: WarmSource<'_>, parts: &[WarmPart]) -> Result<Layout, MemoryError> {
        let memory = MemorySyscalls::new();
        let total: Bytes = parts.iter().map(WarmPart::bytes).sum();
        let align = parts.iter().map(|part| part.page).max();
        let (Some(align), false) = (align, total.is_zero()) else {
            return Err(MemoryError::Empty);
        };
        let space = memory.reserve_addresses(total, align)?;
        let (mut at, mut mapped, mut files) = (0, Vec::new(), Vec::new());
        for part in parts {
            let range = part_of(&space, at, part.bytes())?;
            match (source, part.kind) {
                (WarmSource::File(file), _) => {
                    space.map_file(range, file.file(), at, HugetlbReservation::All)?;
                }
                (WarmSource::Trial, PageKind::Hugetlb) => {
                    let file =
                        memory.create_file("hugeleaf-warm", part.bytes(), Some(part.page))?;
                    space.map_file(range, &file, 0, HugetlbReservation::All)?;
                    files.push(file);
                }
                (WarmSource::Trial, _) => {
                    space.map_private(range)?;
                    space.advise(range, Advice::HugePage)?;
                }
            }
            if let Some(node) = part.node {
                space.bind(range, &NodePolicy::Bind(vec![node]))?;
            }
            mapped.push((*part, range));
            at += part.bytes().get();
        }
        Ok(Layout {
            space,
            parts: mapped,
            _files: files,
        })
    }

    /// Reads page sizes and nodes from the kernel.
    fn read_back(&self) -> Result<Vec<WarmPages>, MemoryError> {
        let by_node = read_nodes(&self.parts);
        let each = self.parts.iter().map(|(part, range)| {
            let extents = extents_of(*range)?;
            let fits = extents
                .iter()
                .filter(|extent| extent.kind == part.kind && extent.page >= part.page);
            let on_size: Bytes = fits.map(|extent| extent.resident).sum();
            let got = match part.node {
                Some(node) => on_size.min(by_node(*range, node).unwrap_or(on_size)),
                None => on_size,
            };
            Ok(WarmPages {
                page: part.page,
                kind: part.kind,
                node: part.node,
                wanted: part.bytes(),
                got,
            })
        });
        each.collect()
    }
}

fn part_of(space: &ReservedAddresses, at: u64, length: Bytes) -> Result<Range, MemoryError> {
    space.part(at, length).ok_or_else(|| {
        let error = SysError::new("mmap", length.to_string(), hugeleaf_sys::Errno::INVAL);
        MemoryError::Sys(error)
    })
}

/// Returns a function from a range and a node to the memory there. `None` without `numa_maps`. Neighbouring mappings
/// with one policy can be one, so the memory of a mapping counts for the part in which it starts.
fn read_nodes(parts: &[(WarmPart, Range)]) -> impl Fn(Range, u32) -> Option<Bytes> {
    let text = Root::live().read("proc/self/numa_maps");
    let mappings = text.known().map(|text| parse_node_memory(text));
    let is_needed = parts.iter().any(|(part, _)| part.node.is_some());
    move |range, node| {
        let mappings = mappings.as_ref().filter(|_| is_needed)?;
        let inside = mappings
            .iter()
            .filter(|mapping| (range.start()..range.end()).contains(&mapping.start));
        let on = inside.flat_map(|mapping| &mapping.nodes);
        Some(
            on.filter(|(on, _)| *on == node)
                .map(|(_, bytes)| *bytes)
                .sum(),
        )
    }
}

/// The chunks of each node, and its processors.
struct NodeJobs {
    jobs: Vec<NodeJob>,
}

struct NodeJob {
    node: Option<u32>,
    cpus: Vec<u32>,
    chunks: Vec<Chunk>,
    next: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Chunk {
    range: Range,
    is_thp: bool,
}

impl NodeJobs {
    /// Gives each node its own parts, and an equal share of those that may come from any.
    fn new(parts: &[(WarmPart, Range)]) -> NodeJobs {
        let nodes = nodes_with_cpus();
        let mut jobs: Vec<NodeJob> = nodes
            .into_iter()
            .map(|(node, cpus)| NodeJob {
                node,
                cpus,
                chunks: Vec::new(),
                next: AtomicUsize::new(0),
            })
            .collect();
        for (part, range) in parts {
            let step = PageSize::new(CHUNK).map_or(part.page, |step| step.max(part.page));
            let chunks = range.chunks(step).map(|range| Chunk {
                range,
                is_thp: part.kind == PageKind::Thp,
            });
            let chunks: Vec<Chunk> = chunks.collect();
            let own = jobs.iter().position(|job| job.node == part.node);
            match (part.node, own) {
                (Some(_), Some(at)) => jobs[at].chunks.extend(chunks),
                // The node has no processor of this process, or pages may come from any.
                _ => deal(&mut jobs, &chunks),
            }
        }
        jobs.retain(|job| !job.chunks.is_empty());
        NodeJobs { jobs }
    }

    fn run(
        &self,
        layout: &Layout,
        options: &WarmOptions<'_>,
    ) -> Result<Vec<WarmedNode>, MemoryError> {
        let chunks = || self.jobs.iter().flat_map(|job| &job.chunks);
        let length = |chunk: &Chunk| chunk.range.len();
        let work = Work {
            space: &layout.space,
            options,
            total: chunks().map(length).sum(),
            on_thp: chunks().filter(|chunk| chunk.is_thp).map(length).sum(),
            done: AtomicU64::new(0),
            thp_done: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            let nodes: Vec<_> = (self.jobs.iter())
                .map(|job| {
                    let threads = options.threads.unwrap_or(job.cpus.len());
                    let threads = threads.clamp(1, job.chunks.len());
                    let work = &work;
                    let spawned = (0..threads).map(|_| scope.spawn(move || job.populate(work)));
                    spawned.collect::<Vec<_>>()
                })
                .collect();
            let is_running = || nodes.iter().flatten().any(|thread| !thread.is_finished());
            let mut outcome = work.watch(is_running);
            let mut warmed = Vec::new();
            for (job, threads) in self.jobs.iter().zip(nodes) {
                let mut node = WarmedNode {
                    node: job.node,
                    threads: threads.len(),
                    bytes: Bytes::ZERO,
                    time: Duration::ZERO,
                };
                for thread in threads {
                    let ended = thread.join();
                    let ended = ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    match ended {
                        Ok((bytes, time)) => {
                            node.bytes += bytes;
                            node.time = node.time.max(time);
                        }
                        Err(error) => outcome = outcome.and(Err(error)),
                    }
                }
                warmed.push(node);
            }
            outcome.map(|()| warmed)
        })
    }
}

/// Deals chunks to all nodes, in equal and contiguous shares.
fn deal(jobs: &mut [NodeJob], chunks: &[Chunk]) {
    let each = chunks.len().div_ceil(jobs.len().max(1)).max(1);
    for (job, share) in jobs.iter_mut().zip(chunks.chunks(each)) {
        job.chunks.extend(share);
    }
}

/// Returns the nodes on whose processors this process may run. One without a number if the kernel names none.
fn nodes_with_cpus() -> Vec<(Option<u32>, Vec<u32>)> {
    let root = Root::live();
    let allowed = allowed_cpus().unwrap_or_default();
    let with_cpus = |node: u32| {
        let cpus = node_cpus(&root, node).or_default();
        let cpus: Vec<u32> = cpus
            .into_iter()
            .filter(|cpu| allowed.contains(cpu))
            .collect();
        (!cpus.is_empty()).then_some((Some(node), cpus))
    };
    let host = HostMemory::read().map(|memory| memory.host.nodes);
    let nodes: Vec<_> = host
        .unwrap_or_default()
        .into_iter()
        .filter_map(with_cpus)
        .collect();
    match nodes.is_empty() {
        true => vec![(None, allowed)],
        false => nodes,
    }
}

/// State that all threads share.
struct Work<'a> {
    space: &'a ReservedAddresses,
    options: &'a WarmOptions<'a>,
    total: Bytes,
    on_thp: Bytes,
    done: AtomicU64,
    thp_done: AtomicU64,
    failed: AtomicBool,
}

impl Work<'_> {
    fn must_end(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.options.is_stopped()
    }

    /// Reports progress, and stops the threads before the host or a cgroup runs out of memory.
    fn watch(&self, is_running: impl Fn() -> bool) -> Result<(), MemoryError> {
        let mut outcome = Ok(());
        while is_running() {
            if outcome.is_ok() {
                let left = self.on_thp - Bytes(self.thp_done.load(Ordering::Relaxed));
                if !left.is_zero() {
                    outcome = HostMemory::check(left);
                    self.failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                }
            }
            self.report();
            std::thread::park_timeout(LOOK_EVERY);
        }
        self.report();
        outcome
    }

    fn report(&self) {
        if let Some(progress) = self.options.progress {
            progress(Bytes(self.done.load(Ordering::Relaxed)), self.total);
        }
    }
}

impl NodeJob {
    /// Populates chunks on this thread until none is left. Returns the memory and the time of the thread.
    fn populate(&self, work: &Work<'_>) -> Result<(Bytes, Duration), MemoryError> {
        // Without it, the scheduler places the thread.
        let _ = run_on_cpus(&self.cpus);
        let (begin, mut bytes) = (Instant::now(), Bytes::ZERO);
        while !work.must_end() {
            let Some(chunk) = self.chunks.get(self.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let length = chunk.range.len();
            if let Err(error) = populate(work.space, chunk.range) {
                work.failed.store(true, Ordering::Relaxed);
                return Err(self.failure(error));
            }
            bytes += length;
            work.done.fetch_add(length.get(), Ordering::Relaxed);
            if chunk.is_thp {
                work.thp_done.fetch_add(length.get(), Ordering::Relaxed);
            }
        }
        Ok((bytes, begin.elapsed()))
    }

    /// Names the node in the error of a page that was unavailable.
    fn failure(&self, error: SysError) -> MemoryError {
        match (is_short(&error), self.node) {
            (true, Some(node)) => {
                let subject = format!("a page on node {node}");
                MemoryError::Sys(SysError::new(error.call, subject, error.errno))
            }
            _ => MemoryError::Sys(error),
        }
    }
}

#[cfg(test)]
mod tests;
