//! What an elastic is on, and who holds how much of it.

use std::fmt;

use hugeleaf_units::{Bytes, PageKind, PageSize, Pages};

use super::backing::Run;
use super::entry::{Entry, PROCESSES, Reason, State};
use super::ledger::Locked;
use super::names::components;
use super::{Component, Elastic, ElasticError};
use crate::extent::{Extent, Why};
use crate::room::Room;
use crate::thp::{self, OnPages};

/// Who holds how much, and on what: the table that Oracle shows as `v$sgainfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// What is taken and returned as one.
    pub granule: PageSize,
    /// The most there can ever be.
    pub max: Bytes,
    /// How much may be held at a time.
    pub target: Bytes,
    /// How much is, with what is being taken and returned just now.
    pub held: Bytes,
    /// How much more may be taken.
    pub free: Bytes,
    /// Nobody's, and not returned yet, because the system refused: see [`Elastic::recover`].
    pub unclean: Bytes,
    /// How many processes have it attached, or ended without detaching.
    pub processes: usize,
    /// The components, in the order in which they were made.
    pub components: Vec<ComponentInfo>,
}

/// What a component holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComponentInfo {
    /// Which.
    pub component: Component,
    /// Its name.
    pub name: String,
    /// Whether it may return and take again.
    pub resizable: bool,
    /// How much it holds.
    pub bytes: Bytes,
    /// The same by page size, largest first.
    pub by_page: Vec<Share>,
}

/// How much is on pages of one size and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// The page size.
    pub page: PageSize,
    /// Where those pages come from.
    pub kind: PageKind,
    /// How much.
    pub bytes: Bytes,
}

impl fmt::Display for Info {
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
        line(f, "most", self.max, "", "")?;
        if !self.unclean.is_zero() {
            line(f, "not back yet", self.unclean, "", "")?;
        }
        Ok(())
    }
}

impl Elastic {
    /// What every granule that is held is on now, in order of address, whoever holds it: read back
    /// from the page map at each call where the kernel may change it. The ranges are addresses of
    /// this process.
    ///
    /// # Errors
    /// Those of reading `/proc/self/pagemap`, of mapping what this process has not mapped yet;
    /// [`ElasticError::Forked`], [`ElasticError::Stuck`], [`ElasticError::Damaged`].
    pub fn extents(&self) -> Result<Vec<Extent>, ElasticError> {
        self.check_process()?;
        let held = self.all_held(&self.ledger.lock()?)?;
        self.extents_of(&held)
    }

    /// The table of components.
    ///
    /// # Errors
    /// As [`Elastic::extents`].
    pub fn info(&self) -> Result<Info, ElasticError> {
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
            let is_its = |(_, entry): &&(u32, Entry)| u32::from(entry.component) == component.0;
            let its: Vec<(u32, Entry)> = held.iter().filter(is_its).copied().collect();
            infos.push(ComponentInfo {
                component,
                name: listed.name,
                resizable: listed.resizable,
                bytes: self.ledger.shape.bytes(its.len() as u64),
                by_page: by_page(&self.extents_of(&its)?),
            });
        }
        Ok(Info {
            granule: self.granule(),
            max: self.max,
            target,
            held: held_bytes,
            free: target.saturating_sub(held_bytes),
            unclean,
            processes,
            components: infos,
        })
    }

    fn all_held(&self, locked: &Locked<'_>) -> Result<Vec<(u32, Entry)>, ElasticError> {
        let is_held = |found: &Result<(u32, Entry), _>| match found {
            Ok((_, entry)) => entry.state == State::Held,
            Err(_) => true,
        };
        let held = locked.entries().filter(is_held);
        let held: Vec<_> = held.collect::<Result<_, ElasticError>>()?;
        // The page map tells nothing of what is not in it. Under the lock: a granule that were
        // returned meanwhile would get its pages again.
        for (index, entry) in &held {
            if !self.is_from_pool(*entry) && !self.backing.is_ready(*index, *entry) {
                self.backing.make_ready(*index, *entry)?;
            }
        }
        Ok(held)
    }

    fn is_from_pool(&self, entry: Entry) -> bool {
        let step = self.backing.steps.list.get(usize::from(entry.step));
        step.is_some_and(|step| step.kind == PageKind::Hugetlb)
    }

    fn extents_of(&self, held: &[(u32, Entry)]) -> Result<Vec<Extent>, ElasticError> {
        let mut extents = Vec::new();
        let mut room = None;
        for (run, entry) in alike(held) {
            let needs_room = matches!(entry.reason, Reason::PoolShort | Reason::KnobOff);
            if needs_room && room.is_none() {
                room = Some(Room::read()?);
            }
            let part = self.backing.part(run);
            let step = self.backing.steps.list.get(usize::from(entry.step));
            let Some(step) = step else {
                let said = format!("granule {} is on rung {}", run.first, entry.step);
                return Err(ElasticError::Damaged(said));
            };
            let pages = match step.kind {
                PageKind::Hugetlb => vec![OnPages {
                    range: part,
                    page: step.size,
                    kind: step.kind,
                    resident: part.len(),
                }],
                _ => {
                    let map = thp::look(part).map_err(ElasticError::from)?;
                    let (base, huge) = self.backing.sizes();
                    thp::by_page(&map, part, base, huge)
                }
            };
            extents.extend(pages.into_iter().map(|found| Extent {
                range: found.range,
                asked: self.asked,
                page: found.page,
                kind: found.kind,
                resident: found.resident,
                why: self.why_not(&found, entry, room.as_ref()),
            }));
        }
        Ok(extents)
    }

    /// Why a range is not on what was asked for.
    fn why_not(&self, found: &OnPages, entry: Entry, room: Option<&Room>) -> Option<Why> {
        let asked = self.asked;
        let is_asked = found.page == asked.size && asked.kind.is_none_or(|kind| kind == found.kind);
        if is_asked || asked.size <= self.backing.sizes().0 {
            return None;
        }
        let wanted = asked.size.pages_for(found.range.len());
        self.why(entry.reason, wanted, Pages(0), room).or_else(|| {
            // All of it was on its own pages when it was taken.
            let step = self.backing.steps.list.get(usize::from(entry.step))?;
            Some(Why::Split { size: step.size })
        })
    }

    /// A reason in full; what it speaks of is the first rung.
    pub(super) fn why(
        &self,
        reason: Reason,
        wanted: Pages,
        got: Pages,
        room: Option<&Room>,
    ) -> Option<Why> {
        let size = self.asked.size;
        Some(match reason {
            Reason::None => return None,
            Reason::NoSuchSize => Why::NoSuchSize { size },
            Reason::PoolShort => {
                // Which limit it was then is not kept; which one it would be now is known.
                let limited_by = room.map(|room| room.pool(size).1);
                let cgroup = limited_by.filter(|limit| limit.starts_with("cgroup"));
                Why::PoolShort {
                    size,
                    wanted,
                    got,
                    limited_by: cgroup.unwrap_or_else(|| "pool".to_owned()),
                }
            }
            Reason::NotContiguous => Why::NotContiguous { size },
            Reason::ThpOff => Why::ThpOff,
            Reason::KnobOff => {
                let knob = |room: &Room| thp::knob_of(&room.host, size, self.sharing);
                let is_full = self.backing.sizes().1 == Some(size);
                let other = match is_full {
                    true => Why::ThpOff,
                    false => Why::NotTold { size },
                };
                room.and_then(knob).unwrap_or(other)
            }
            Reason::NotTold => Why::NotTold { size },
        })
    }
}

/// Runs of neighbours that are on the same rung for the same reason.
fn alike(held: &[(u32, Entry)]) -> Vec<(Run, Entry)> {
    let mut runs: Vec<(Run, Entry)> = Vec::new();
    for (index, entry) in held {
        match runs.last_mut() {
            Some((run, first))
                if run.first + run.count == *index
                    && (first.step, first.reason) == (entry.step, entry.reason) =>
            {
                run.count += 1;
            }
            _ => runs.push((Run::one(*index), *entry)),
        }
    }
    runs
}

fn by_page(extents: &[Extent]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for extent in extents {
        let same = |share: &&mut Share| (share.page, share.kind) == (extent.page, extent.kind);
        match shares.iter_mut().find(same) {
            Some(share) => share.bytes += extent.range.len(),
            None => shares.push(Share {
                page: extent.page,
                kind: extent.kind,
                bytes: extent.range.len(),
            }),
        }
    }
    shares.sort_by_key(|share| std::cmp::Reverse((share.page, share.kind)));
    shares
}
