//! Elastic memory on huge pages: one address range from which components of one or several
//! processes take whole granules and return them at run time.
//!
//! Design: [`backing`] holds the memory, one sparse file per rung. Returning a granule punches a
//! hole into a file, which takes effect in all processes at once. [`ledger`] holds the table of
//! owners, in memory that the processes share. A process records each operation there before it
//! starts (a granule is `Taking` or `Returning`, with its owner) and after it ends. No lock is held
//! between. A process may be killed at any instruction; [`Elastic::recover`] finds what it held.
//!
//! This module must not hand out a granule before it is populated, nor take memory from a process
//! that may still be alive.

mod alloc;
mod attach;
mod backing;
mod error;
mod granule_entry;
mod ids;
mod info;
mod ledger;
mod lock;
mod owner_identity;
mod recover;
mod shared_words;

use hugeleaf_host::{Host, Pid};
use hugeleaf_sys::{MemoryFile, MemorySyscalls, NodePolicy, Sharing, own_pid};
use hugeleaf_units::{Bytes, Ladder, PageSize, Range, Rung};

use crate::error::MemoryError;
use crate::host_memory::HostMemory;
use crate::ladder_steps::LadderSteps;

use backing::{Backing, BackingPlan};
use granule_entry::{COMPONENTS, STEPS};
use ids::components;
use ledger::{Ledger, LedgerShape, MOST_GRANULES, NAME};

pub use error::ElasticError;
pub use ids::{Component, Granule};
pub use info::{ComponentInfo, ElasticInfo, PageSizeTotal};
pub use recover::Recovered;

/// Options of an [`Elastic`]: [`ElasticOptions::new`] sets defaults, each method changes one.
///
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticOptions};
///
/// // At most 64M, 16M of it at first, in granules of 4M.
/// let options = ElasticOptions::new(Bytes::from_mib(64), "2M".parse()?)
///     .target(Bytes::from_mib(16))
///     .granule("4M".parse()?);
/// let memory = Elastic::new(&options)?;
/// assert_eq!(memory.target(), Bytes::from_mib(16));
/// assert_eq!(memory.granule(), "4M".parse()?);
/// # assert_eq!(options.sharing(hugeleaf::Sharing::Shared).sharing, hugeleaf::Sharing::Shared);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElasticOptions {
    /// Maximum size; addresses are reserved for all of it. A multiple of the granule.
    pub max: Bytes,
    /// Initial limit of the held memory, at most `max`; `None` for `max`.
    pub target: Option<Bytes>,
    /// Unit of taking and returning, a multiple of the ladder's largest page; `None` for that page.
    pub granule: Option<PageSize>,
    /// Page sizes to try for each granule, from largest to smallest.
    pub ladder: Ladder,
    /// Private to this process, or attachable by others with a [`crate::Handle`].
    pub sharing: Sharing,
    /// NUMA nodes from which the pages come.
    pub nodes: NodePolicy,
    /// System calls used for the elastic. Tests put a gate before them.
    pub(crate) memory: MemorySyscalls,
}

impl ElasticOptions {
    /// Returns options for private memory from all nodes, with this maximum and ladder.
    pub fn new(max: Bytes, ladder: Ladder) -> ElasticOptions {
        ElasticOptions {
            max,
            target: None,
            granule: None,
            ladder,
            sharing: Sharing::Private,
            nodes: NodePolicy::Inherit,
            memory: MemorySyscalls::new(),
        }
    }

    /// Makes the memory shared: other processes can attach it with a [`crate::Handle`].
    #[must_use]
    pub fn shared(self) -> ElasticOptions {
        self.sharing(Sharing::Shared)
    }

    /// Sets private or shared; private by default.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> ElasticOptions {
        ElasticOptions { sharing, ..self }
    }

    /// Sets the initial target in bytes, at most [`ElasticOptions::max`], which is the default.
    /// [`Elastic::set_target`] changes it later.
    #[must_use]
    pub fn target(self, target: Bytes) -> ElasticOptions {
        ElasticOptions {
            target: Some(target),
            ..self
        }
    }

    /// Sets the unit of taking and returning: a multiple of the ladder's largest page, which is the
    /// default.
    #[must_use]
    pub fn granule(self, granule: PageSize) -> ElasticOptions {
        ElasticOptions {
            granule: Some(granule),
            ..self
        }
    }

    /// Sets the NUMA nodes of the pages. The default is the policy of the calling thread
    /// (set_mempolicy(2)).
    #[must_use]
    pub fn nodes(self, nodes: NodePolicy) -> ElasticOptions {
        ElasticOptions { nodes, ..self }
    }
}

/// An address range from which components take granules, and to which they return them.
///
/// All calls are safe from several threads and, if the elastic is shared, from several processes at
/// once. Its users must coordinate access to the contents of granules, as with all shared memory.
///
/// # Ownership
/// A granule belongs to a component and to the process that took it. If a process ends for any
/// reason, its granules are not lost: [`Elastic::recover`] in any other process frees them with
/// their contents. A process that wants to keep another process's granules becomes their owner
/// through [`Elastic::transfer`], to the same component if necessary. Dropping an elastic returns
/// the granules taken through it.
///
/// # Children
/// A forked child can use shared memory that its parent had mapped. It must attach to take or
/// return granules: all calls return [`ElasticError::Forked`]. Private memory is copied on write,
/// one base page at a time, which splits the huge page. If the ladder names a pool, the child has a
/// gap there instead (see [`crate::Region`]).
///
/// # After returning
/// The addresses stay reserved. Access to a granule that is not held is an error like a use after
/// free. It may read zeroes, or raise SIGBUS if the pool is short. It may also allocate a page that
/// is not accounted for, which the next take there or a recover removes. Processes that share an
/// elastic must trust each other in this.
///
/// # Examples
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticOptions};
///
/// let options = ElasticOptions::new(Bytes::from_mib(16), "2M".parse()?);
/// let memory = Elastic::new(&options)?;
/// let pages = memory.component("page cache", true)?;
/// let sort = memory.component("sort area", true)?;
///
/// // Memory for the cache: populated and zeroed.
/// let mut cached = memory.take_many(pages, 4)?;
/// // SAFETY: the granule is held, and no other thread uses it.
/// unsafe { memory.address(cached[0])?.write(7) };
///
/// // A sort borrows a granule of the cache, and takes another one.
/// let lent = memory.transfer(pages, sort, &cached.split_off(3))?;
/// let own = memory.take(sort)?;
/// memory.give_back(sort, &lent)?;
/// memory.give_back(sort, &[own])?;
///
/// // An administrator wants 2M back: the cache evicts a granule.
/// let above = memory.set_target(Bytes::from_mib(4))?;
/// assert_eq!(above, Bytes::from_mib(2));
/// memory.give_back(pages, &cached.split_off(2))?;
/// assert_eq!(memory.held(), memory.target());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Elastic {
    pid: Pid,
    max: Bytes,
    asked: Rung,
    ladder: Ladder,
    sharing: Sharing,
    ledger: Ledger,
    table: MemoryFile,
    backing: Backing,
}

/// Resolves a request for this host.
///
/// # Errors
/// The parts of the request conflict, or this host has no such size.
fn plan<'a>(options: &ElasticOptions, host: &'a Host) -> Result<BackingPlan<'a>, ElasticError> {
    let (max, ladder, sharing) = (options.max, &options.ladder, options.sharing);
    let steps = LadderSteps::of(ladder, sharing, host)?;
    if max.is_zero() {
        return Err(MemoryError::Empty.into());
    }
    let largest = ladder.rungs()[0].size.max(host.base_page);
    let granule = options.granule.unwrap_or(largest);
    for (length, page) in [(granule.bytes(), largest), (max, granule)] {
        if !page.divides(length.get()) {
            return Err(MemoryError::NotAMultiple { length, page }.into());
        }
    }
    let granules = max.get() / granule.bytes().get();
    let count = u32::try_from(granules).ok();
    let count = count.filter(|_| granules <= MOST_GRANULES && steps.list.len() <= STEPS);
    let Some(count) = count else {
        let most = MOST_GRANULES;
        return Err(ElasticError::TooManyGranules { granules, most });
    };
    let shape = LedgerShape {
        granule,
        granules: count,
    };
    Ok(BackingPlan {
        max,
        shape,
        steps,
        sharing,
        nodes: options.nodes.clone(),
        host,
    })
}

impl Elastic {
    /// Reserves addresses and creates the table; takes no memory for granules.
    ///
    /// # Errors
    /// Conflicting options, a size that the host lacks, or an error of the system calls. No
    /// resources are kept then.
    pub fn new(options: &ElasticOptions) -> Result<Elastic, ElasticError> {
        let room = HostMemory::read()?;
        let plan = plan(options, &room.host)?;
        room.check_nodes(&plan.nodes)?;
        let max = options.max;
        let target = options.target.unwrap_or(max);
        if target > max {
            return Err(ElasticError::OverMax { target, max });
        }
        let (shape, base) = (plan.shape, room.host.base_page);
        HostMemory::check(shape.length(base))?;
        let backing = Backing::create(&options.memory, plan)?;
        let (ledger, table) = Ledger::create(&options.memory, shape, target, base)?;
        Ok(Elastic {
            pid: own_pid(),
            max,
            asked: options.ladder.rungs()[0],
            ladder: options.ladder.clone(),
            sharing: options.sharing,
            ledger,
            table,
            backing,
        })
    }

    /// Checks that this process can have that much memory on these page sizes: no more than the host
    /// has, nor than its memory cgroups allow outside the pools. [`Elastic::new`] and
    /// [`Elastic::set_target`] accept more, because processes with other limits may share the memory.
    ///
    /// ```
    /// use hugeleaf::{Bytes, Elastic, ElasticError};
    ///
    /// Elastic::check_target(Bytes::from_mib(2), &"2M".parse()?)?;
    /// let error = Elastic::check_target("900T".parse()?, &"2M".parse()?);
    /// assert!(matches!(error, Err(ElasticError::OverMemory { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ElasticError::OverMemory`].
    pub fn check_target(target: Bytes, ladder: &Ladder) -> Result<(), ElasticError> {
        match HostMemory::most(ladder) {
            Some(most) if target > most => Err(ElasticError::OverMemory { target, most }),
            _ => Ok(()),
        }
    }

    /// Returns the unit of taking and returning.
    pub const fn granule(&self) -> PageSize {
        self.ledger.shape.granule
    }

    /// Returns the maximum size.
    pub const fn max(&self) -> Bytes {
        self.max
    }

    /// Returns the address range, including granules that are not held.
    pub fn range(&self) -> Range {
        self.backing.space.range()
    }

    /// Returns the requested ladder.
    pub const fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// Returns the sharing: private, or attachable by other processes.
    pub const fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// Returns the limit of the held memory.
    pub fn target(&self) -> Bytes {
        self.ledger.target()
    }

    /// Returns the memory held by all components, including granules being taken or returned.
    pub fn held(&self) -> Bytes {
        self.ledger.shape.bytes(self.ledger.held())
    }

    /// Sets the target and returns the memory held above it. Components must return that memory
    /// themselves. Until they have, nothing more can be taken.
    ///
    /// # Errors
    /// [`ElasticError::OverMax`]; [`ElasticError::Forked`]; [`ElasticError::LockTimeout`].
    pub fn set_target(&self, target: Bytes) -> Result<Bytes, ElasticError> {
        self.check_process()?;
        if target > self.max {
            let max = self.max;
            return Err(ElasticError::OverMax { target, max });
        }
        let locked = self.ledger.lock()?;
        locked.set_target(target);
        Ok(self.held() - target)
    }

    /// Finds the component of that name, or creates it. One that is not `resizable` takes granules
    /// in one call, and keeps them until the process that took them ends.
    ///
    /// # Errors
    /// [`ElasticError::NoName`], [`ElasticError::NameTooLong`], [`ElasticError::OtherKind`],
    /// [`ElasticError::TooManyComponents`]; [`ElasticError::Forked`]; [`ElasticError::LockTimeout`].
    pub fn component(&self, name: &str, resizable: bool) -> Result<Component, ElasticError> {
        self.check_process()?;
        if name.is_empty() {
            return Err(ElasticError::NoName);
        }
        if name.len() > NAME {
            let name = name.to_owned();
            return Err(ElasticError::NameTooLong { name, most: NAME });
        }
        let locked = self.ledger.lock()?;
        for component in components() {
            match locked.component(component) {
                Some(listed) if listed.name == name => {
                    return match listed.resizable == resizable {
                        true => Ok(component),
                        false => Err(ElasticError::OtherKind {
                            name: listed.name,
                            resizable: listed.resizable,
                        }),
                    };
                }
                _ => {}
            }
        }
        let added = locked.add_component(name, resizable);
        added.ok_or(ElasticError::TooManyComponents { most: COMPONENTS })
    }

    /// Refuses use in a forked child, which has a copy of its parent's slot in the table.
    fn check_process(&self) -> Result<(), ElasticError> {
        match own_pid() == self.pid {
            true => Ok(()),
            false => Err(ElasticError::Forked { pid: self.pid }),
        }
    }
}

impl Drop for Elastic {
    fn drop(&mut self) {
        if self.check_process().is_err() {
            // A forked child owns no granules.
            return;
        }
        // Private memory too: a forked child has the files open and would keep the pages. After a
        // failure the granules keep their state in the table, and recover() finds them.
        let _ = self.leave();
    }
}
