//! Judges a process under `hugeleaf run` by role: the request, the result, the missing bytes and the reason.
//!
//! Missing bytes are resident on none of the requested pages, although they could be. A range that holds no whole
//! page of the smallest requested size counts separately, as small. The reason is first sought in the settings (too
//! little growth yet, library not loaded), and then in the verdicts on the ranges. The verdict with most bytes stands
//! for the role.

use std::collections::BTreeMap;

use hugeleaf_host::process::is_run_library;
use hugeleaf_host::{
    Host, MappingRole, PageUsage, Process, ProcessMapping, RunMemoryKind, RunPageKind, RunPolicy,
    RunSettings,
};
use hugeleaf_units::{Bytes, Ladder, PageKind, PageSize};
use serde::Serialize;

use crate::eligible::{self, Remedy};
use crate::run_policy::PagePolicy;
use crate::run_policy::rung_availability::{
    RungAvailability as Rung, judge, left_in_pool, pool_short,
};
use crate::why::{RangeVerdict, SegmentAccount, restart};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoleResult {
    pub role: RunMemoryKind,
    pub asked: String,
    pub got: Vec<PageUsage>,
    /// Resident bytes on none of the requested pages, although they could be.
    #[serde(rename = "missing_bytes")]
    pub missing: Bytes,
    /// Resident bytes on base pages where no requested page would fit.
    #[serde(rename = "too_small_bytes")]
    pub too_small: Bytes,
    /// The reason why bytes are missing or nothing is tried; `None` if nothing is missing.
    pub reason: Option<String>,
    /// The remedy: a command, or a comment that begins with `#`.
    pub command: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRoleResults {
    /// One entry per role, in the order of [`RunMemoryKind::ALL`].
    pub states: Vec<RoleResult>,
    contributions: Vec<RoleSegment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct RoleSegment {
    role: RunMemoryKind,
    /// The shared object and the offset in it; `None` for private memory.
    object: Option<((u32, u32, u64), u64)>,
    held: Vec<PageUsage>,
    missing: Bytes,
    too_small: Bytes,
}

/// Returns the role of a segment in a policy, for a process with this [`program`]; `None` if policies ignore the
/// segment. Only the program's own code counts, because libraries stay on base pages.
pub fn role_of(program: Option<&str>, segment: &ProcessMapping) -> Option<RunMemoryKind> {
    match segment.role {
        MappingRole::Data | MappingRole::Heap | MappingRole::Anon => Some(RunMemoryKind::Data),
        MappingRole::Stack | MappingRole::ThreadStack => Some(RunMemoryKind::Stack),
        MappingRole::Shm => Some(RunMemoryKind::Shm),
        MappingRole::Text => {
            let own = program == Some(segment.name.as_str());
            (own || !segment.name.starts_with('/')).then_some(RunMemoryKind::Text)
        }
        MappingRole::File | MappingRole::Vdso => None,
    }
}

/// Returns the program's file, whose mappings are below those of all libraries. Call it once per process, which may
/// have tens of thousands of mappings.
pub fn program(process: &Process) -> Option<&str> {
    let mut names = process.segments.iter().map(|s| s.name.as_str());
    names.find(|name| name.starts_with('/'))
}

/// Judges a process that was read segment by segment. `accounts` are those of [`crate::why::account`], one per
/// segment.
pub fn judge_roles(
    host: &Host,
    process: &Process,
    settings: &RunSettings,
    accounts: &[SegmentAccount],
) -> ProcessRoleResults {
    let case = RoleContext {
        host,
        process,
        program: program(process),
        settings,
        accounts,
    };
    let segments = process.segments.iter().zip(accounts);
    let contributions: Vec<RoleSegment> = segments
        .filter_map(|(s, a)| case.contribution(s, a))
        .collect();
    let states = RunMemoryKind::ALL
        .into_iter()
        .map(|role| case.state(role, &contributions))
        .collect();
    ProcessRoleResults {
        states,
        contributions,
    }
}

/// Sums several processes. A shared object counts once, as the process that holds most of it has it. The reason is
/// that of the process with most missing bytes.
pub fn sum_of(processes: &[&ProcessRoleResults]) -> Vec<RoleResult> {
    let mut largest: BTreeMap<_, &RoleSegment> = BTreeMap::new();
    let mut counted: Vec<&RoleSegment> = Vec::new();
    for contribution in processes.iter().flat_map(|roles| &roles.contributions) {
        let Some(object) = contribution.object else {
            counted.push(contribution);
            continue;
        };
        let best = largest.entry(object).or_insert(contribution);
        if PageUsage::total(&contribution.held) > PageUsage::total(&best.held) {
            *best = contribution;
        }
    }
    counted.extend(largest.into_values());
    RunMemoryKind::ALL
        .into_iter()
        .filter_map(|role| {
            let of_role = processes.iter().flat_map(|roles| &roles.states);
            let of_role = of_role.filter(|state| state.role == role);
            let mut state = of_role.max_by_key(|state| state.missing)?.clone();
            let own = counted
                .iter()
                .copied()
                .filter(|contribution| contribution.role == role);
            total(&mut state, own);
            Some(state)
        })
        .collect()
}

fn total<'a>(state: &mut RoleResult, contributions: impl Iterator<Item = &'a RoleSegment>) {
    (state.got, state.missing, state.too_small) = (Vec::new(), Bytes::ZERO, Bytes::ZERO);
    for contribution in contributions {
        PageUsage::add_all(&mut state.got, &contribution.held);
        state.missing += contribution.missing;
        state.too_small += contribution.too_small;
    }
}

#[derive(Debug, PartialEq, Eq)]
struct RequestedPages {
    /// Sizes, and the kind if one was named. Larger pages are acceptable.
    pages: Vec<(PageSize, Option<PageKind>)>,
}

impl RequestedPages {
    /// Returns the wanted pages; `None` if the role is to be left alone.
    fn from_policy(host: &Host, asked: &RunPolicy) -> Option<RequestedPages> {
        let pmd = host.pmd_page.get();
        let pages = match asked.typed.parse::<PagePolicy>() {
            Ok(PagePolicy::Ladder(ladder)) => {
                ladder.rungs().iter().map(|r| (r.size, r.kind)).collect()
            }
            Ok(PagePolicy::Base) => Vec::new(),
            Ok(PagePolicy::Auto) | Err(_) => {
                // The request named no size, so any huge page will do.
                let size = |way: &RunPageKind| match way {
                    RunPageKind::Thp => pmd,
                    RunPageKind::Hugetlb(size) => Some(*size),
                };
                let sizes = asked.ways.iter().filter_map(size);
                sizes.map(|size| (size, None)).collect::<Vec<_>>()
            }
        };
        (!pages.is_empty()).then_some(RequestedPages { pages })
    }

    fn smallest(&self) -> Option<PageSize> {
        self.pages.iter().map(|(size, _)| *size).min()
    }

    /// Pages that the program itself placed in a pool never count as missing, because they are already huge.
    fn has(&self, held: &PageUsage) -> bool {
        let kind_fits = |kind: Option<PageKind>| {
            kind.is_none_or(|k| k == held.kind || held.kind == PageKind::Hugetlb)
        };
        let mut pages = self.pages.iter();
        pages.any(|(size, kind)| held.size >= *size && kind_fits(*kind))
    }
}

struct RoleContext<'a> {
    host: &'a Host,
    process: &'a Process,
    program: Option<&'a str>,
    settings: &'a RunSettings,
    accounts: &'a [SegmentAccount],
}

type ReasonAndRemedy = (String, Option<String>);

impl RoleContext<'_> {
    fn contribution(
        &self,
        segment: &ProcessMapping,
        account: &SegmentAccount,
    ) -> Option<RoleSegment> {
        let role = role_of(self.program, segment)?;
        let held = segment.by_page_size.clone();
        let (mut missing, mut small) = (Bytes::ZERO, Bytes::ZERO);
        if let Some(wanted) = RequestedPages::from_policy(self.host, self.settings.policy(role)) {
            let off = held
                .iter()
                .filter(|h| !wanted.has(h))
                .map(|h| h.bytes)
                .sum();
            small = self.without_room(&wanted, segment, account).min(off);
            missing = off - small;
        }
        Some(RoleSegment {
            role,
            object: segment.shared.then_some((segment.object, segment.offset)),
            held,
            missing,
            too_small: small,
        })
    }

    /// Returns the bytes of a segment where no requested page would fit.
    fn without_room(
        &self,
        wanted: &RequestedPages,
        segment: &ProcessMapping,
        account: &SegmentAccount,
    ) -> Bytes {
        let Some(smallest) = wanted.smallest() else {
            return Bytes::ZERO;
        };
        if Some(smallest) == self.host.pmd_page.get() {
            let small = account.verdicts.iter().filter(|v| is_small(v.id));
            return account.too_small + small.map(|v| v.bytes).sum();
        }
        let inside = segment.range.aligned_inside(smallest);
        segment.range.len() - inside.map_or(Bytes::ZERO, |range| range.len())
    }

    fn state(&self, role: RunMemoryKind, contributions: &[RoleSegment]) -> RoleResult {
        let mut state = RoleResult {
            role,
            asked: self.settings.policy(role).text(),
            got: Vec::new(),
            missing: Bytes::ZERO,
            too_small: Bytes::ZERO,
            reason: None,
            command: None,
        };
        total(&mut state, contributions.iter().filter(|p| p.role == role));
        if state.missing.is_zero() {
            state.reason = self.left_alone(role);
            return state;
        }
        let (reason, command) = self.reason(&state);
        state.reason = Some(reason);
        state.command = command;
        state
    }

    fn left_alone(&self, role: RunMemoryKind) -> Option<String> {
        let asked = self.settings.policy(role);
        let wanted = RequestedPages::from_policy(self.host, asked);
        let text = match asked.typed.as_str() {
            _ if wanted.is_some() => return None,
            "auto" if role != RunMemoryKind::Text => "this host has no huge pages for it",
            "base" => "base pages, as requested",
            _ => "unchanged unless requested",
        };
        Some(text.to_owned())
    }

    fn reason(&self, state: &RoleResult) -> ReasonAndRemedy {
        self.not_at_work()
            .map(|reason| (reason, self.promotion(state.role)))
            .or_else(|| self.below(state).map(|reason| (reason, None)))
            .or_else(|| self.unavailable(state))
            .or_else(|| self.by_verdict(state.role))
            .unwrap_or_else(|| ("no obstacle is known".to_owned(), None))
    }

    /// Returns why the library does nothing in this process.
    fn not_at_work(&self) -> Option<String> {
        let segments = &self.process.segments;
        if !segments.iter().any(|s| is_run_library(&s.name)) {
            return Some(
                "the library is not loaded: the program is static, setuid or not linked with \
                 glibc, or it was started without the library"
                    .to_owned(),
            );
        }
        let only = &self.settings.only;
        let own = self.program.and_then(|path| path.rsplit('/').next());
        if only.is_empty() || own.is_none_or(|own| only.iter().any(|name| name == own)) {
            return None;
        }
        Some(format!("--only names other programs: {}", only.join(", ")))
    }

    /// Returns the reason if too little has grown for the library to act.
    fn below(&self, state: &RoleResult) -> Option<String> {
        match state.role {
            RunMemoryKind::Data => {
                let after = self.settings.data_after?;
                let below = PageUsage::total(&state.got) < after;
                below.then(|| format!("run skips data below {after}"))
            }
            RunMemoryKind::Stack => {
                let after = self.settings.stack_after?;
                let worst = self.largest(RunMemoryKind::Stack)?;
                let below = worst.role == MappingRole::ThreadStack && worst.range.len() < after;
                below.then(|| format!("run skips thread stacks below {after}"))
            }
            RunMemoryKind::Shm | RunMemoryKind::Text => None,
        }
    }

    /// Returns the named pages that the host lacks or has too few of. The last rung of a ladder is reported first,
    /// because it would have sufficed.
    fn unavailable(&self, state: &RoleResult) -> Option<ReasonAndRemedy> {
        let ladder: Ladder = self.settings.policy(state.role).typed.parse().ok()?;
        let mut rungs = ladder.rungs().iter().rev();
        rungs.find_map(|rung| {
            let from_pool = rung.kind == Some(PageKind::Hugetlb)
                || (state.role == RunMemoryKind::Shm
                    && Some(rung.size) != self.host.pmd_page.get());
            if from_pool && self.host.pool(rung.size).is_some() {
                return Some(self.pool_failed(rung.size, state.missing));
            }
            let (because, command) = match judge(self.host, state.role, *rung) {
                Rung::Unavailable(lack) => (lack.message, lack.remedy),
                Rung::Automatic => (
                    "the kernel allocates them automatically, and per-process counters do not \
                     show them"
                        .to_owned(),
                    format!("hugeleaf mem --orders {}", self.process.pid),
                ),
                Rung::Ways(_) | Rung::Base => return None,
            };
            Some((format!("{} pages: {because}", rung.size), Some(command)))
        })
    }

    /// Returns why `missing` bytes are not on an existing pool.
    fn pool_failed(&self, size: PageSize, missing: Bytes) -> ReasonAndRemedy {
        let left = left_in_pool(self.host, size);
        if left.is_some_and(|left| left.bytes >= missing) {
            return (
                format!("the pool has enough free pages of {size} now, but had too few before"),
                Some(restart(None, self.process).command),
            );
        }
        let lack = pool_short(self.host, size, Some(missing));
        let next = restart(Some(lack.remedy.into()), self.process);
        (lack.message, Some(next.command))
    }

    /// Returns the verdict on the range with most of the missing bytes.
    fn by_verdict(&self, role: RunMemoryKind) -> Option<ReasonAndRemedy> {
        let worst = self.largest(role)?;
        Some((worst.text.clone(), Some(worst.command.clone())))
    }

    /// Returns the command that promotes most of a role, if promotion can.
    fn promotion(&self, role: RunMemoryKind) -> Option<String> {
        let ways = [Remedy::Promote, Remedy::PromoteAndGrow];
        let worst = self
            .verdicts(role)
            .filter(|v| ways.contains(&v.id.remedy()));
        worst.max_by_key(|v| v.bytes).map(|v| v.command.clone())
    }

    fn largest(&self, role: RunMemoryKind) -> Option<&RangeVerdict> {
        let worst = self.verdicts(role).filter(|v| !is_small(v.id));
        worst.max_by_key(|v| v.bytes)
    }

    fn verdicts(&self, role: RunMemoryKind) -> impl Iterator<Item = &RangeVerdict> {
        let segments = self.process.segments.iter().zip(self.accounts);
        segments
            .filter(move |(segment, _)| role_of(self.program, segment) == Some(role))
            .flat_map(|(_, account)| &account.verdicts)
    }
}

/// True for obstacles of ranges that hold no page of PMD size.
fn is_small(id: eligible::Reason) -> bool {
    matches!(
        id,
        eligible::Reason::TooSmall | eligible::Reason::OrdersOff | eligible::Reason::OrderAtFault
    )
}

#[cfg(test)]
mod tests;
