//! Sums of judged processes. Each page counts once, and each command has one line.

use hugeleaf_host::memory_totals::{self, CountedMemory};
use hugeleaf_host::{Process, ProcessMapping};
use hugeleaf_units::Bytes;
use serde::Serialize;

use crate::advice::{AdvisedCommand, ChangeScope, FeasibleChange, PLAN, agree_commands};
use crate::partial_blocks::PartialBlocks;

use super::group_text::{VerdictGroup, best_size, is_summed};
use super::{DisabledThpSize, RangeVerdict, Reason, Remedy, SegmentAccount, VerdictFigures};

/// Verdicts with the same id and remedy, of one or several processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SummaryLine {
    pub id: Reason,
    pub bytes: Bytes,
    pub ranges: usize,
    pub text: String,
    pub command: String,
    /// The changes of the host that the command makes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FeasibleChange>,
    #[serde(rename = "adds_bytes", skip_serializing_if = "is_nothing")]
    pub adds: Bytes,
    /// The maximum bytes that a host-wide command could promote.
    #[serde(rename = "affected_bytes")]
    pub host_wide: Option<Bytes>,
}

fn is_nothing(bytes: &Bytes) -> bool {
    bytes.is_zero()
}

/// The resident bytes of one or several processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Resident bytes, including hugetlb pages. Memory shared by the processes counts once.
    pub resident: Bytes,
    pub huge: Bytes,
    pub too_small: Bytes,
    /// Swapped bytes, which are not resident.
    pub swapped: Bytes,
    /// One line per id and command, most bytes first.
    pub lines: Vec<SummaryLine>,
}

impl Summary {
    pub fn by_remedy(&self, way: Remedy) -> Bytes {
        let lines = self.lines.iter().filter(|l| l.id.remedy() == way);
        lines.map(|l| l.bytes).sum()
    }

    /// True if all memory that can be on huge pages without growth is on them.
    pub fn is_good(&self) -> bool {
        let ways = [Remedy::Promote, Remedy::Change];
        self.lines.iter().all(|l| !ways.contains(&l.id.remedy()))
    }
}

/// Reduces the accounts of several processes to their counted bytes. Memory that several processes
/// share, or that one process maps several times, counts once ([`memory_totals::counted`]). The bytes that
/// do not count here are in another account, so an account may become empty.
pub fn counted(judged: &[(&Process, &[SegmentAccount])]) -> Vec<Vec<SegmentAccount>> {
    parts_of(judged, &counts_of(judged))
}

fn counts_of(judged: &[(&Process, &[SegmentAccount])]) -> Vec<Vec<CountedMemory>> {
    let processes: Vec<&Process> = judged.iter().map(|(process, _)| *process).collect();
    memory_totals::counted(&processes)
}

fn parts_of(
    judged: &[(&Process, &[SegmentAccount])],
    counts: &[Vec<CountedMemory>],
) -> Vec<Vec<SegmentAccount>> {
    let of_one =
        |((process, accounts), counts): (&(&Process, &[SegmentAccount]), &Vec<CountedMemory>)| {
            let segments = process.segments.iter().zip(counts);
            let all = accounts.iter().zip(segments);
            all.map(|(account, (segment, counts))| part_of(account, segment, *counts))
                .collect()
        };
    judged.iter().zip(counts).map(of_one).collect()
}

/// Scales an account to its counted bytes. For private memory, pages shared since fork are deducted
/// first: copy-on-write pages, then huge ones.
fn part_of(
    account: &SegmentAccount,
    segment: &ProcessMapping,
    counts: CountedMemory,
) -> SegmentAccount {
    let target = match segment.resident {
        Bytes::ZERO => account.resident,
        resident => account.resident.scaled(counts.resident, resident),
    };
    if target >= account.resident {
        return account.clone();
    }
    let of = |is_cow: bool| -> Bytes {
        let verdicts = account.verdicts.iter();
        let alike = verdicts.filter(|v| (v.id == Reason::CopyOnWrite) == is_cow);
        alike.map(|v| v.bytes).sum()
    };
    let (shared, rest) = (of(true), account.too_small + of(false));
    let parts = match segment.shared {
        true => [shared, account.huge, rest].map(|b| b.scaled(target, account.resident)),
        false => {
            let kept_rest = rest.min(target);
            let kept_large = account.huge.min(target - kept_rest);
            [target - kept_rest - kept_large, kept_large, kept_rest]
        }
    };
    let mut part = account.clone();
    part.huge = parts[1];
    part.too_small = account.too_small.scaled(parts[2], rest);
    for verdict in &mut part.verdicts {
        let before = verdict.bytes;
        verdict.bytes = match verdict.id {
            Reason::CopyOnWrite => before.scaled(parts[0], shared),
            _ => before.scaled(parts[2], rest),
        };
        verdict.figures.holes.scale(verdict.bytes, before);
        verdict.figures.missing = verdict.figures.missing.scaled(verdict.bytes, before);
        if !before.is_zero() {
            verdict.figures.swapped = verdict.figures.swapped.scaled(verdict.bytes, before);
        }
        for off in &mut verdict.figures.off_sizes {
            off.bytes = off.bytes.scaled(verdict.bytes, before);
        }
    }
    part.verdicts
        .retain(|v| !v.bytes.is_zero() || !counts.swapped.is_zero());
    let judged: Bytes = part.verdicts.iter().map(|v| v.bytes).sum();
    part.resident = part.huge + part.too_small + judged;
    part
}

/// Sums judged processes. Memory that several of them share counts once (see [`counted`]).
pub fn summarise(judged: &[(&Process, &[SegmentAccount])]) -> Summary {
    let mut summary = Summary::default();
    let counts = counts_of(judged);
    summary.swapped = counts.iter().flatten().map(|c| c.swapped).sum();
    let counted = parts_of(judged, &counts);
    let mut groups: Vec<VerdictGroup<'_>> = Vec::new();
    for ((process, _), accounts) in judged.iter().zip(&counted) {
        for account in accounts {
            summary.resident += account.resident;
            summary.huge += account.huge;
            summary.too_small += account.too_small;
            for verdict in &account.verdicts {
                put(&mut groups, process, verdict);
            }
        }
    }
    // One process shows the shared pages, but they belong to all.
    let is_cow = |v: &RangeVerdict| v.id == Reason::CopyOnWrite;
    for group in groups.iter_mut().filter(|g| is_cow(g.verdicts[0])) {
        let shares =
            |accounts: &[SegmentAccount]| accounts.iter().any(|a| a.verdicts.iter().any(is_cow));
        let sharing = judged.iter().filter(|(_, accounts)| shares(accounts));
        group.processes = sharing.map(|(process, _)| *process).collect();
    }
    summary.lines = groups.iter().map(line).collect();
    drop_contradictions(&mut summary.lines);
    summary
        .lines
        .sort_by_key(|l| (std::cmp::Reverse(l.bytes), l.id));
    summary
}

/// Removes commands that contradict another line; a plan weighs those demands.
fn drop_contradictions(lines: &mut [SummaryLine]) {
    let changes: Vec<Vec<&FeasibleChange>> =
        lines.iter().map(|line| weighed(line).collect()).collect();
    let against = agree_commands(&changes, &[]);
    for (line, why) in lines.iter_mut().zip(against) {
        if let Some(why) = why {
            line.text = format!("{} ({why}: a plan decides.)", line.text);
            PLAN.clone_into(&mut line.command);
            line.changes.clear();
        }
    }
}

/// Returns the changes that a plan weighs. Limits of a cgroup are minima, each for its own line.
fn weighed(line: &SummaryLine) -> impl Iterator<Item = &FeasibleChange> {
    let changes = line.changes.iter();
    changes.filter(|change| change.scope() != ChangeScope::Cgroup)
}

fn put<'a>(groups: &mut Vec<VerdictGroup<'a>>, process: &'a Process, verdict: &'a RangeVerdict) {
    let alike = |g: &&mut VerdictGroup<'a>| {
        let first = g.verdicts[0];
        let is_summed = is_summed(verdict.id);
        let same = || first.text == verdict.text && first.command == verdict.command;
        first.id == verdict.id && (is_summed || same())
    };
    match groups.iter_mut().find(alike) {
        Some(group) => {
            if group.processes.last().map(|p| p.pid) != Some(process.pid) {
                group.processes.push(process);
            }
            group.verdicts.push(verdict);
        }
        None => groups.push(VerdictGroup {
            verdicts: vec![verdict],
            processes: vec![process],
        }),
    }
}

fn line(group: &VerdictGroup<'_>) -> SummaryLine {
    let first = group.verdicts[0];
    let bytes = sum(group, |v| v.bytes);
    let figures = figures(group);
    let (text, next) = group.words(bytes, &figures);
    let AdvisedCommand { command, changes } = next;
    let could_move = match first.id {
        Reason::OrdersOff => best_size(&figures.off_sizes, bytes).map(|s| s.bytes),
        _ => Some(bytes).filter(|_| figures.is_host_wide),
    };
    SummaryLine {
        id: first.id,
        bytes,
        ranges: group.verdicts.len(),
        text,
        command,
        changes,
        adds: figures.holes.growth().map_or(Bytes::ZERO, |g| g.adds),
        host_wide: could_move,
    }
}

fn sum(group: &VerdictGroup<'_>, of: impl Fn(&RangeVerdict) -> Bytes) -> Bytes {
    group.verdicts.iter().map(|v| of(v)).sum()
}

fn figures(group: &VerdictGroup<'_>) -> VerdictFigures {
    let mut off_sizes: Vec<DisabledThpSize> = Vec::new();
    for off in group.verdicts.iter().flat_map(|v| &v.figures.off_sizes) {
        match off_sizes.iter_mut().find(|o| o.knob == off.knob) {
            Some(known) => known.bytes += off.bytes,
            None => off_sizes.push(off.clone()),
        }
    }
    let mut holes = PartialBlocks::default();
    for verdict in &group.verdicts {
        holes.join(&verdict.figures.holes);
    }
    let rooms = group
        .verdicts
        .iter()
        .filter_map(|v| v.figures.tightest_limit.as_ref());
    VerdictFigures {
        missing: sum(group, |v| v.figures.missing),
        swapped: sum(group, |v| v.figures.swapped),
        holes,
        // The tightest memory limit of the processes.
        tightest_limit: rooms.min_by_key(|room| room.left).cloned(),
        off_sizes,
        ..group.verdicts[0].figures.clone()
    }
}
