//! Arms of `hugeleaf-lab mover` and `hugeleaf-lab pin`: a way to use memory, and a data space on one kind of pages.
//! A space is taken once.
//!
//! Locking parts of memory splits its transparent huge pages, so ways that lock have a space of their own.

use crate::kits::backup_io::{IoMemory, IoPages};
use hugeleaf_host::Host;
use hugeleaf_units::Bytes;

use super::page_layout::read_layout;
use hugeleaf_proof::bench::BenchRun;
use hugeleaf_proof::bench::{BenchError, MissingPages};
use hugeleaf_proof::result_format::{PageLayout, Parameter};

/// Request for data spaces: each way on each kind of pages, in the order of the pages.
pub(super) struct IoArmRequest<'a, M> {
    pub(super) ways: &'a [M],
    pub(super) pages: &'a [IoPages],
    pub(super) locks: fn(M) -> bool,
    pub(super) place: &'a str,
    pub(super) space: Bytes,
    pub(super) block: Bytes,
    /// Seed of the scattered pages.
    pub(super) seed: u64,
    pub(super) called: &'a str,
}

/// One way on one kind of pages.
pub(super) struct IoArm<M> {
    pub(super) way: M,
    pub(super) pages: IoPages,
    pub(super) label: String,
    pub(super) at: Vec<Parameter>,
    /// Index of its data space; `None` if it is unavailable.
    space: Option<usize>,
}

struct ArmMemory {
    kind: ArmMemoryKind,
    memory: IoMemory,
    before: PageLayout,
}

/// The pages of a space, and true if it is for ways that lock.
type ArmMemoryKind = (IoPages, bool);

/// The arms, with the data spaces that are available.
pub(super) struct IoArms<M> {
    pub(super) all: Vec<IoArm<M>>,
    spaces: Vec<ArmMemory>,
    block: Bytes,
}

impl<M: Copy + ToString> IoArmRequest<'_, M> {
    fn kind(&self, way: M, pages: IoPages) -> ArmMemoryKind {
        (pages, (self.locks)(way) && !pages.is_pool())
    }

    /// Returns the required spaces, in the order of the pages.
    fn kinds(&self) -> Vec<ArmMemoryKind> {
        let both = self.pages.iter().flat_map(|p| [(*p, false), (*p, true)]);
        let is_used =
            |kind: &ArmMemoryKind| self.ways.iter().any(|way| self.kind(*way, kind.0) == *kind);
        both.filter(is_used).collect()
    }

    /// Returns the ordinary memory of all spaces together.
    pub(super) fn ordinary(&self, host: &Host) -> Bytes {
        let kinds = self.kinds().into_iter();
        let ordinary = kinds.filter(|(pages, _)| !pages.is_pool());
        let whole = |(pages, _): ArmMemoryKind| pages.whole(self.space, host).unwrap_or(self.space);
        ordinary.map(whole).sum()
    }

    /// Takes the spaces. An unavailable space is noted, and the others continue.
    pub(super) fn take(&self, run: &mut BenchRun<'_>) -> Result<IoArms<M>, BenchError> {
        let mut spaces: Vec<ArmMemory> = Vec::new();
        let mut lacking: Vec<(ArmMemoryKind, MissingPages)> = Vec::new();
        for kind in self.kinds() {
            run.go_on()?;
            run.taking(format!("{} on {}", self.called, kind.0));
            match IoMemory::take(kind.0, self.space, run.machine.host, self.seed) {
                Ok(memory) => spaces.push(ArmMemory {
                    kind,
                    before: read_layout(&memory, self.block, run.machine)?,
                    memory,
                }),
                Err(error) => lacking.push((kind, MissingPages::from_error(self.space, error)?)),
            }
        }
        let mut all = Vec::new();
        for way in self.ways {
            for pages in self.pages {
                let kind = self.kind(*way, *pages);
                let (label, way_named) = (pages.to_string(), way.to_string());
                let at = vec![Parameter::text(self.place, &way_named)];
                if let Some((_, why)) = lacking.iter().find(|(lacks, _)| *lacks == kind) {
                    run.lacks(&label, &at, why);
                }
                all.push(IoArm {
                    way: *way,
                    pages: *pages,
                    label,
                    at,
                    space: spaces.iter().position(|space| space.kind == kind),
                });
            }
        }
        Ok(IoArms {
            all,
            spaces,
            block: self.block,
        })
    }
}

impl<M> IoArms<M> {
    /// Returns the available arms, each with its data space.
    pub(super) fn available(&self) -> Vec<(usize, usize)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(at, arm)| Some((at, arm.space?))).collect()
    }

    pub(super) fn memory(&mut self, space: usize) -> &mut IoMemory {
        &mut self.spaces[space].memory
    }

    /// Returns the last space that is not for ways that lock (the largest pages), or else the last space.
    pub(super) fn largest(&mut self) -> Option<&mut IoMemory> {
        let whole = self.spaces.iter().rposition(|space| !space.kind.1);
        let at = whole.unwrap_or(self.spaces.len().saturating_sub(1));
        Some(&mut self.spaces.get_mut(at)?.memory)
    }

    /// Stores the layouts before and after, and marks rows with a wrong layout as doubtful.
    pub(super) fn look_again(&self, run: &mut BenchRun<'_>) -> Result<(), BenchError> {
        for arm in &self.all {
            let Some(space) = arm.space.map(|at| &self.spaces[at]) else {
                continue;
            };
            let after = PageLayout {
                when: "after".to_owned(),
                ..read_layout(&space.memory, self.block, run.machine)?
            };
            let looks = [space.before.clone(), after];
            if let Some(wrong) = looks.iter().find(|look| look.verified == Some(false)) {
                run.doubt(&arm.label, &arm.at, wrong.note.as_ref());
            }
            run.results.layouts.extend(looks.map(|look| PageLayout {
                arm: arm.label.clone(),
                at: arm.at.clone(),
                ..look
            }));
        }
        Ok(())
    }
}
