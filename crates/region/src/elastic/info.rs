//! Page sizes of an elastic, and the memory of each component.

use std::fmt;

use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};

use super::backing::GranuleRun;
use super::granule_entry::{FallbackCode, GranuleEntry, GranuleState, PROCESSES};
use super::ids::components;
use super::ledger::LockedLedger;
use super::{Component, Elastic, ElasticError};
use crate::extent::{Extent, FallbackReason};
use crate::host_memory::HostMemory;
use crate::thp;

/// Memory and page sizes by component: the table that Oracle shows as `v$sgainfo`.
///
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticOptions};
///
/// let memory = Elastic::new(&ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?))?;
/// let sort = memory.component("sort area", true)?;
/// memory.take(sort)?;
///
/// let info = memory.info()?;
/// assert_eq!(info.free, Bytes::from_mib(6));
/// assert!(info.unclean.is_zero() && info.processes == 1);
/// print!("{info}"); // a table
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElasticInfo {
    /// Unit of taking and returning.
    pub granule: PageSize,
    /// Maximum size.
    pub max: Bytes,
    /// Limit of the held memory.
    pub target: Bytes,
    /// Memory held, including granules being taken or returned.
    pub held: Bytes,
    /// Memory that may still be taken.
    pub free: Bytes,
    /// Memory without an owner that the system refused to accept: see [`Elastic::recover`].
    pub unclean: Bytes,
    /// Number of processes that are attached, or ended without detaching.
    pub processes: usize,
    /// Components, in order of creation.
    pub components: Vec<ComponentInfo>,
}

/// The memory of a component.
///
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticOptions};
///
/// let memory = Elastic::new(&ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?))?;
/// let locks = memory.component("lock list", false)?;
/// memory.take_many(locks, 2)?;
/// for one in memory.info()?.components {
///     let kind = if one.resizable { "resizable" } else { "of fixed size" };
///     println!("{} holds {}, {kind}", one.name, one.bytes);
///     # assert_eq!((one.component, one.bytes), (locks, Bytes::from_mib(4)));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComponentInfo {
    /// The component.
    pub component: Component,
    /// Its name.
    pub name: String,
    /// True if it may return and take again.
    pub resizable: bool,
    /// Memory that it holds.
    pub bytes: Bytes,
    /// The same memory by page size, largest first.
    pub by_page: Vec<PageSizeTotal>,
}

/// Memory on pages of one size and kind.
///
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticOptions, PageSizeTotal};
///
/// let memory = Elastic::new(&ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?))?;
/// let sort = memory.component("sort area", true)?;
/// memory.take(sort)?;
/// let shares: Vec<PageSizeTotal> = memory.info()?.components[0].by_page.clone();
/// for share in &shares {
///     println!("{} on {} {} pages", share.bytes, share.page, share.kind);
/// }
/// # assert_eq!(shares.iter().map(|share| share.bytes).sum::<Bytes>(), Bytes::from_mib(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageSizeTotal {
    /// The page size.
    pub page: PageSize,
    /// Source of the pages.
    pub kind: PageKind,
    /// Size of the memory.
    pub bytes: Bytes,
}

impl fmt::Display for ElasticInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, bytes, resizable, pages: &str| {
            let text = format!(
                "{name:<32} {:>10} {resizable:<9} {pages}",
                format!("{bytes}")
            );
            writeln!(f, "{}", text.trim_end())
        };
        writeln!(f, "{:<32} {:>10} RESIZABLE PAGES", "COMPONENT", "BYTES")?;
        for component in &self.components {
            let shares = component.by_page.iter();
            let shares: Vec<String> = shares
                .map(|s| format!("{} on {} {}", s.bytes, s.page, s.kind))
                .collect();
            let resizable = if component.resizable { "yes" } else { "no" };
            let shares = shares.join(", ");
            line(f, &component.name, component.bytes, resizable, &shares)?;
        }
        line(f, "free", self.free, "", "")?;
        line(f, "target", self.target, "", "")?;
        line(f, "maximum", self.max, "", "")?;
        if !self.unclean.is_zero() {
            line(f, "not yet freed", self.unclean, "", "")?;
        }
        Ok(())
    }
}

impl Elastic {
    /// Returns the current pages of all held granules in address order, for all components. They
    /// are read from the page map at each call, except for pool pages, which cannot change. The
    /// ranges are addresses of this process.
    ///
    /// # Errors
    /// Errors of reading `/proc/self/pagemap` and of mapping granules that this process has not
    /// mapped yet; [`ElasticError::Forked`], [`ElasticError::LockTimeout`], [`ElasticError::Damaged`].
    ///
    /// # Examples
    /// ```
    /// use hugeleaf::{Bytes, Elastic, ElasticOptions};
    ///
    /// let memory = Elastic::new(&ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?))?;
    /// let sort = memory.component("sort area", true)?;
    /// let granule = memory.take(sort)?;
    /// for extent in memory.extents()? {
    ///     println!("{extent}");
    /// }
    /// // Also granules that are not held have addresses here.
    /// assert_eq!(memory.range().len(), memory.max());
    /// println!("{granule} of a {:?} elastic on {}", memory.sharing(), memory.ladder());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn extents(&self) -> Result<Vec<Extent>, ElasticError> {
        self.check_process()?;
        let held = self.all_held(&self.ledger.lock()?)?;
        self.extents_of(&held)
    }

    /// Returns the table of components.
    ///
    /// # Errors
    /// As [`Elastic::extents`].
    pub fn info(&self) -> Result<ElasticInfo, ElasticError> {
        self.check_process()?;
        let locked = self.ledger.lock()?;
        let held = self.all_held(&locked)?;
        let listed: Vec<_> = components()
            .filter_map(|component| Some((component, locked.component(component)?)))
            .collect();
        let (target, held_bytes) = (self.target(), self.held());
        let unclean = self.ledger.shape.bytes(locked.unclean());
        let slots = 0u16..u16::try_from(PROCESSES).unwrap_or(u16::MAX);
        let processes = slots.filter(|slot| locked.process(*slot).is_some()).count();
        drop(locked);
        let mut infos = Vec::new();
        for (component, listed) in listed {
            let is_its =
                |(_, entry): &&(u32, GranuleEntry)| u32::from(entry.component) == component.0;
            let its: Vec<(u32, GranuleEntry)> = held.iter().filter(is_its).copied().collect();
            infos.push(ComponentInfo {
                component,
                name: listed.name,
                resizable: listed.resizable,
                bytes: self.ledger.shape.bytes(its.len() as u64),
                by_page: by_page(&self.extents_of(&its)?),
            });
        }
        Ok(ElasticInfo {
            granule: self.granule(),
            max: self.max,
            target,
            held: held_bytes,
            free: target - held_bytes,
            unclean,
            processes,
            components: infos,
        })
    }

    fn all_held(
        &self,
        locked: &LockedLedger<'_>,
    ) -> Result<Vec<(u32, GranuleEntry)>, ElasticError> {
        let is_held = |found: &Result<(u32, GranuleEntry), _>| match found {
            Ok((_, entry)) => entry.state == GranuleState::Held,
            Err(_) => true,
        };
        let held = locked.entries().filter(is_held);
        let held: Vec<_> = held.collect::<Result<_, ElasticError>>()?;
        // The page map shows only mapped memory. Done under the lock: a granule returned meanwhile
        // would get its pages again.
        for (index, entry) in &held {
            if !self.is_from_pool(*entry) && !self.backing.is_ready(*index, *entry) {
                self.backing.make_ready(*index, *entry)?;
            }
        }
        Ok(held)
    }

    fn is_from_pool(&self, entry: GranuleEntry) -> bool {
        let step = self.backing.steps.list.get(usize::from(entry.step));
        step.is_some_and(|step| step.kind == PageKind::Hugetlb)
    }

    fn extents_of(&self, held: &[(u32, GranuleEntry)]) -> Result<Vec<Extent>, ElasticError> {
        let mut extents = Vec::new();
        let mut room = None;
        for (run, entry) in alike(held) {
            let needs_room = matches!(
                entry.reason,
                FallbackCode::PoolShort | FallbackCode::KnobOff
            );
            if needs_room && room.is_none() {
                room = Some(HostMemory::read()?);
            }
            let part = self.backing.part(run);
            let step = self.backing.steps.list.get(usize::from(entry.step));
            let Some(step) = step else {
                let said = format!("granule {} is on rung {}", run.first, entry.step);
                return Err(ElasticError::Damaged(said));
            };
            let mut pages = match step.kind {
                PageKind::Hugetlb => vec![Extent {
                    range: part,
                    requested: self.asked,
                    page: step.size,
                    kind: step.kind,
                    resident: part.len(),
                    why: None,
                }],
                _ => {
                    let map = thp::read_pages(part).map_err(ElasticError::from)?;
                    let (base, huge) = (self.backing.base, self.backing.huge);
                    thp::by_page(&map, part, self.asked, base, huge)
                }
            };
            for extent in &mut pages {
                extent.why = self.fallback_reason(extent, entry, room.as_ref());
            }
            extents.append(&mut pages);
        }
        Ok(extents)
    }

    /// Returns the reason why a range is not on the requested pages.
    fn fallback_reason(
        &self,
        found: &Extent,
        entry: GranuleEntry,
        room: Option<&HostMemory>,
    ) -> Option<FallbackReason> {
        let asked = self.asked;
        let is_asked = found.page == asked.size && asked.kind.is_none_or(|kind| kind == found.kind);
        if is_asked || asked.size <= self.backing.base {
            return None;
        }
        let wanted = asked.size.pages_for(found.range.len());
        self.why(entry.reason, wanted, Pages(0), room).or_else(|| {
            // All of it was on its own page size when it was taken.
            let step = self.backing.steps.list.get(usize::from(entry.step))?;
            Some(FallbackReason::Split { size: step.size })
        })
    }

    /// Returns a reason with its details, which concern the first rung.
    pub(super) fn why(
        &self,
        reason: FallbackCode,
        wanted: Pages,
        got: Pages,
        room: Option<&HostMemory>,
    ) -> Option<FallbackReason> {
        let size = self.asked.size;
        Some(match reason {
            FallbackCode::None => return None,
            FallbackCode::NoSuchSize => FallbackReason::NoSuchSize { size },
            FallbackCode::PoolShort => {
                // The limit at that time is not recorded, so the current one is reported.
                let limited_by = room.map(|room| room.pool(size).1);
                let cgroup = limited_by.filter(|limit| limit.starts_with("cgroup"));
                FallbackReason::PoolShort {
                    size,
                    wanted,
                    got,
                    limited_by: cgroup.unwrap_or_else(|| "pool".to_owned()),
                }
            }
            FallbackCode::NotContiguous => FallbackReason::NotContiguous { size },
            FallbackCode::ThpOff => FallbackReason::ThpOff,
            FallbackCode::KnobOff => {
                let knob = |room: &HostMemory| thp::knob_of(&room.host, size, self.sharing);
                let is_full = self.backing.huge == Some(size);
                let other = match is_full {
                    true => FallbackReason::ThpOff,
                    false => FallbackReason::NotReported { size },
                };
                room.and_then(knob).unwrap_or(other)
            }
            FallbackCode::NotReported => FallbackReason::NotReported { size },
        })
    }
}

/// Groups adjacent granules on the same rung for the same reason.
fn alike(held: &[(u32, GranuleEntry)]) -> Vec<(GranuleRun, GranuleEntry)> {
    let mut runs: Vec<(GranuleRun, GranuleEntry)> = Vec::new();
    for (index, entry) in held {
        match runs.last_mut() {
            Some((run, first))
                if run.first + run.count == *index
                    && (first.step, first.reason) == (entry.step, entry.reason) =>
            {
                run.count += 1;
            }
            _ => runs.push((GranuleRun::single(*index), *entry)),
        }
    }
    runs
}

fn by_page(extents: &[Extent]) -> Vec<PageSizeTotal> {
    let mut shares: Vec<PageSizeTotal> = Vec::new();
    for extent in extents {
        let same =
            |share: &&mut PageSizeTotal| (share.page, share.kind) == (extent.page, extent.kind);
        match shares.iter_mut().find(same) {
            Some(share) => share.bytes += extent.range.len(),
            None => shares.push(PageSizeTotal {
                page: extent.page,
                kind: extent.kind,
                bytes: extent.range.len(),
            }),
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse((share.page, share.kind)));
    shares
}
