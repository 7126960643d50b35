//! Memory that is elastic and on large pages: one range of addresses, from which components of a
//! program, or of several processes, take whole granules and return them while it works.
//!
//! How it is made: [`backing`] has the memory, one sparse file a rung, so that returning is a hole
//! punched into a file, for all processes at once. [`ledger`] has the table of who holds what, in
//! memory that the processes share. What a process is about to do is written there first (a granule
//! is `Taking` or `Returning`, with its owner) and what it has done afterwards, and no lock is held
//! between: a process may be killed at any instruction, and [`Elastic::recover`] finds what it had.
//!
//! This module must not hand out a granule before it is populated, nor take memory from a process
//! that may still be alive.

mod backing;
mod entry;
mod error;
mod ledger;
mod lend;
mod lock;
mod names;
mod process;
mod recover;
mod share;
mod table;
mod view;

use hugeleaf_host::{Host, Pid};
use hugeleaf_sys::{Memory, MemoryFile, NodePolicy, Sharing, own_pid};
use hugeleaf_units::{Bytes, Ladder, PageSize, Range, Rung};

use crate::error::MemoryError;
use crate::room::Room;
use crate::steps::Steps;

use backing::{Backing, Plan};
use entry::{COMPONENTS, STEPS};
use ledger::{Ledger, MOST_GRANULES, NAME, Shape};
use names::components;

pub use error::ElasticError;
pub use names::{Component, Granule};
pub use recover::Recovered;
pub use view::{ComponentInfo, Info, Share};

/// What is asked of an [`Elastic`]: [`ElasticOptions::new`], then what is to differ from the default.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElasticOptions {
    /// The most there can ever be: so many addresses are set aside. A multiple of the granule.
    pub max: Bytes,
    /// How much may be held at a time at first, at most `max`; `None` for all of it.
    pub target: Option<Bytes>,
    /// What is taken and returned as one: at least the largest page of the ladder. `None` for just
    /// that.
    pub granule: Option<PageSize>,
    /// The page sizes to try for each granule, from large to small.
    pub ladder: Ladder,
    /// Private to this process, or for others too, by a [`crate::Handle`].
    pub sharing: Sharing,
    /// The nodes its pages come from.
    pub nodes: NodePolicy,
    /// The calls it is made with: tests put a gate before them.
    pub(crate) memory: Memory,
}

impl ElasticOptions {
    /// Private memory of at most that length on that ladder, from all nodes.
    pub fn new(max: Bytes, ladder: Ladder) -> ElasticOptions {
        ElasticOptions {
            max,
            target: None,
            granule: None,
            ladder,
            sharing: Sharing::Private,
            nodes: NodePolicy::Inherit,
            memory: Memory::new(),
        }
    }

    /// Memory that other processes can attach, by a [`crate::Handle`].
    #[must_use]
    pub fn shared(self) -> ElasticOptions {
        self.sharing(Sharing::Shared)
    }

    /// Private or shared; private by default.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> ElasticOptions {
        ElasticOptions { sharing, ..self }
    }

    /// How many bytes may be held at a time at first, at most [`ElasticOptions::max`], which is the
    /// default; [`Elastic::set_target`] changes it.
    #[must_use]
    pub fn target(self, target: Bytes) -> ElasticOptions {
        ElasticOptions {
            target: Some(target),
            ..self
        }
    }

    /// What is taken and returned as one: a multiple of the ladder's largest page, which is the
    /// default.
    #[must_use]
    pub fn granule(self, granule: PageSize) -> ElasticOptions {
        ElasticOptions {
            granule: Some(granule),
            ..self
        }
    }

    /// The nodes its pages come from; by default as the calling thread's own policy says
    /// (set_mempolicy(2)).
    #[must_use]
    pub fn nodes(self, nodes: NodePolicy) -> ElasticOptions {
        ElasticOptions { nodes, ..self }
    }
}

/// A range of addresses from which components take granules, and to which they return them.
///
/// All calls may be made from several threads and, where it is shared, processes at a time. What a
/// granule holds is the business of those who use it, as with all shared memory.
///
/// # Whose granules are
/// A granule belongs to a component, and to the process that took it. When a process ends, however
/// that happens, its granules are not lost: [`Elastic::recover`] in any other process gives them
/// back, contents and all. A process that is to keep what another one took makes it its own by
/// [`Elastic::transfer`], to the same component if need be. Dropping an elastic returns what was
/// taken through it.
///
/// # Children
/// A forked child can use what its parent had mapped where the memory is shared, and must attach to
/// take or return: all calls answer [`ElasticError::Forked`]. Private memory is copied on write,
/// a base page at a time, which loses the huge page that it was of, unless the ladder names a
/// pool: then the child has a gap there (see [`crate::Region`]).
///
/// # After returning
/// The addresses stay. Whoever touches a granule that is not held makes a mistake like using freed
/// memory: it may see zeroes, take a page that nobody accounts for (taken out again by the next
/// take there, or by recover), or be killed by SIGBUS where the pool is short. Processes that share
/// an elastic trust each other not to.
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

/// What a request comes to on this host.
///
/// # Errors
/// Where the parts of a request do not fit together, or this host has no such size.
fn plan<'a>(
    max: Bytes,
    granule: Option<PageSize>,
    ladder: &Ladder,
    sharing: Sharing,
    nodes: NodePolicy,
    host: &'a Host,
) -> Result<Plan<'a>, ElasticError> {
    let steps = Steps::of(ladder, sharing, host)?;
    if max.is_zero() {
        return Err(MemoryError::Empty.into());
    }
    let largest = ladder.rungs()[0].size.max(host.base_page);
    let granule = granule.unwrap_or(largest);
    if !largest.divides(granule.bytes().get()) {
        let length = granule.bytes();
        let page = largest;
        return Err(MemoryError::NotAMultiple { length, page }.into());
    }
    if !granule.divides(max.get()) {
        let (length, page) = (max, granule);
        return Err(MemoryError::NotAMultiple { length, page }.into());
    }
    let granules = max.get() / granule.bytes().get();
    let count = u32::try_from(granules).ok();
    let count = count.filter(|_| granules <= MOST_GRANULES && steps.list.len() <= STEPS);
    let Some(count) = count else {
        let most = MOST_GRANULES;
        return Err(ElasticError::TooManyGranules { granules, most });
    };
    let shape = Shape {
        granule,
        granules: count,
    };
    Ok(Plan {
        max,
        shape,
        steps,
        sharing,
        nodes,
        host,
    })
}

impl Elastic {
    /// Sets addresses aside and makes the table; takes no memory for granules.
    ///
    /// # Errors
    /// Where the options do not fit together or the host has no such size; those of the calls.
    /// Nothing is kept then.
    pub fn new(options: &ElasticOptions) -> Result<Elastic, ElasticError> {
        let room = Room::read()?;
        let ElasticOptions {
            max,
            target,
            granule,
            ladder,
            sharing,
            nodes,
            memory,
        } = options.clone();
        let plan = plan(max, granule, &ladder, sharing, nodes, &room.host)?;
        room.check_nodes(&plan.nodes)?;
        let target = target.unwrap_or(max);
        if target > max {
            return Err(ElasticError::OverMax { target, max });
        }
        let (shape, base) = (plan.shape, room.host.base_page);
        Room::check(shape.length(base))?;
        let backing = Backing::create(&memory, plan)?;
        let (ledger, table) = Ledger::create(&memory, shape, target, base)?;
        Ok(Elastic {
            pid: own_pid(),
            max,
            asked: ladder.rungs()[0],
            ladder,
            sharing,
            ledger,
            table,
            backing,
        })
    }

    /// What is taken and returned as one.
    pub const fn granule(&self) -> PageSize {
        self.ledger.shape.granule
    }

    /// The most there can ever be.
    pub const fn max(&self) -> Bytes {
        self.max
    }

    /// Its addresses, held or not.
    pub fn range(&self) -> Range {
        self.backing.space.range()
    }

    /// What was asked for.
    pub const fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// Whether other processes can attach it.
    pub const fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// How much may be held at a time.
    pub fn target(&self) -> Bytes {
        self.ledger.target()
    }

    /// How much is held by all components, with what is being taken and returned just now.
    pub fn held(&self) -> Bytes {
        self.ledger.shape.bytes(self.ledger.held())
    }

    /// Raises or lowers the target, and returns how much is held above it. That is not taken away:
    /// it is for the components to return it; until they have, nothing more can be taken.
    ///
    /// # Errors
    /// [`ElasticError::OverMax`]; [`ElasticError::Forked`]; [`ElasticError::Stuck`].
    pub fn set_target(&self, target: Bytes) -> Result<Bytes, ElasticError> {
        self.check_process()?;
        if target > self.max {
            let max = self.max;
            return Err(ElasticError::OverMax { target, max });
        }
        let locked = self.ledger.lock()?;
        locked.set_target(target);
        Ok(self.held().saturating_sub(target))
    }

    /// Finds the component of that name, or makes it. One that is not `resizable` takes granules in
    /// one call, and keeps them until the process that took them ends.
    ///
    /// # Errors
    /// [`ElasticError::NoName`], [`ElasticError::NameTooLong`], [`ElasticError::OtherKind`],
    /// [`ElasticError::TooManyComponents`]; [`ElasticError::Forked`]; [`ElasticError::Stuck`].
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

    /// A forked child has its parent's place in the table, and must not use it.
    fn check_process(&self) -> Result<(), ElasticError> {
        match self.is_of_this_process() {
            true => Ok(()),
            false => Err(ElasticError::Forked { pid: self.pid }),
        }
    }

    fn is_of_this_process(&self) -> bool {
        own_pid() == self.pid
    }
}

impl Drop for Elastic {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // A forked child: nothing of it is the child's to return.
            return;
        }
        // Also where it is private: a forked child has the files open, and would keep the pages.
        // What fails stays in the table as what it is, and is found by recover().
        let _ = self.leave();
    }
}
