//! Summaries of `promote` and `demote`: result, skipped memory with reasons, cost, undo command, and the way
//! to make the change permanent.

mod coverage_target;

use std::collections::BTreeMap;

use hugeleaf_host::{Host, MappingRole};
use hugeleaf_mover::{
    BytesByReason, Method, Outcome, ProcessOutcome, StallLimits, StallStats, StoppedBy, TargetLoss,
    UnchangedReason, ZeroRestoreError,
};
use hugeleaf_units::Bytes;
use hugeleaf_units::time::{format_elapsed, measured};
use hugeleaf_verdict::advice::{self, AdvisedCommand, risks};
use hugeleaf_verdict::eligible;
use hugeleaf_verdict::partial_blocks::{self, PartialBlocks};
use hugeleaf_verdict::unaligned_ends::{UnalignedEndsSetting, ends};
use serde_json::json;

use crate::document::{
    Cell, CommandHint, Document, Note, StatusMark, Table, TableBuilder, listed, thousands,
};
use crate::json::{answer, merge_fields};

pub use hugeleaf_verdict::advice::BootTaskRunner;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromotionDirection {
    Promote,
    Demote,
}

impl PromotionDirection {
    pub const fn verb(self) -> &'static str {
        match self {
            PromotionDirection::Promote => "promote",
            PromotionDirection::Demote => "demote",
        }
    }

    const fn past(self) -> &'static str {
        match self {
            PromotionDirection::Promote => "promoted",
            PromotionDirection::Demote => "demoted",
        }
    }
}

/// Flag for a name that several unrelated process trees share.
pub const ALL: &str = "--all ";

#[derive(Debug, Clone)]
pub struct PromoteRequest<'a> {
    pub direction: PromotionDirection,
    /// The targets as typed, joined by spaces, after [`ALL`] if needed.
    pub targets: &'a str,
    pub pace: StallLimits,
    pub commands: &'a HostCommands,
}

/// Commands for this host that these pages mention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCommands {
    /// Path of hugeleaf, for lines that another program runs.
    program: String,
    scheduler: BootTaskRunner,
    /// The smaller THP size for the ends of mappings, if the host has one.
    ends: Option<UnalignedEndsSetting>,
    compact: AdvisedCommand,
    shmem_at_boot: AdvisedCommand,
    /// True if ksmd merges equal pages on this host.
    ksm_runs: bool,
}

impl HostCommands {
    pub fn new(host: &Host, program: String, scheduler: BootTaskRunner) -> HostCommands {
        HostCommands {
            program,
            scheduler,
            ends: ends(host),
            compact: advice::compaction().next(host),
            shmem_at_boot: advice::shmem_at_boot(host, scheduler),
            ksm_runs: host.limits.ksm_run.get() == Some(1),
        }
    }
}

pub fn page(outcome: &Outcome, request: &PromoteRequest<'_>) -> Document {
    let title = format!("hugeleaf {}", request.direction.verb());
    let mut page = Document::new(title, headline(outcome, request));
    page.mark = match outcome.is_success() {
        true => StatusMark::Good,
        false if outcome.dry_run => StatusMark::Plain,
        false => StatusMark::Warn,
    };
    page.add(processes(outcome, request))
        .add(facts(outcome, request));
    let totals = &outcome.totals;
    for (title, parts) in [
        ("failed:", &totals.failed),
        ("skipped:", &totals.left_out),
        (
            "one way (on huge pages until the processes that map it exit):",
            &totals.one_way,
        ),
    ] {
        let reasons = reasons(parts, &totals.holes, request);
        page.section(title, vec![reasons.into()]);
    }
    page.add(about_processes(outcome));
    let may_merge = request.direction == PromotionDirection::Promote && request.commands.ksm_runs;
    let ksm = may_merge.then(|| coverage_target::ksm(outcome)).flatten();
    page.add(ksm.map(Note::plain).into_iter().collect::<Vec<Note>>());
    if !outcome.dry_run {
        page.add(next(outcome, request));
    }
    page
}

fn headline(outcome: &Outcome, request: &PromoteRequest<'_>) -> String {
    let (asked, done) = (outcome.requested(), outcome.done());
    let (verb, past) = (request.direction.verb(), request.direction.past());
    if outcome.dry_run && !asked.is_zero() {
        let time = outcome.estimated_seconds.map_or_else(String::new, |s| {
            format!(
                ", in about {} at --budget {}",
                format_elapsed(s),
                request.pace.budget
            )
        });
        return format!("would {verb} {asked}{time}; nothing was changed");
    }
    let had_some = !outcome.totals.already.is_zero();
    match (outcome.is_complete(), asked.is_zero()) {
        (true, false) => format!("{past} all {done}"),
        (true, true) if had_some => format!("nothing left to {verb}"),
        (_, true) => format!("nothing to {verb}"),
        (false, false) => format!("{past} {done} of {asked}; {} not", asked - done),
    }
}

fn processes<'a>(
    outcome: &'a Outcome,
    request: &PromoteRequest<'_>,
) -> TableBuilder<&'a ProcessOutcome> {
    let already = match request.direction {
        PromotionDirection::Promote => "HUGE BEFORE",
        PromotionDirection::Demote => "BASE BEFORE",
    };
    let pair = |before: Cell, after: Option<Cell>| match after {
        _ if outcome.dry_run => before.to_string(),
        Some(after) => format!("{before} → {after}"),
        None => format!("{before} → gone"),
    };
    Table::from_items(&outcome.processes)
        .right("PID", |p| p.pid)
        .left("NAME", |p| &p.name)
        .right(already, |p| p.already)
        .right("ASKED", |p| p.requested)
        .right("GOT", |p| (!outcome.dry_run).then_some(p.done))
        .right("COVERAGE", |p| {
            let after = p.resident_after.map(|_| Cell::percent(p.coverage_after));
            pair(Cell::percent(p.coverage_before), after)
        })
        .right("PAGE TABLES", |p| {
            pair(
                p.page_tables_before.into(),
                p.page_tables_after.map(Cell::from),
            )
        })
        .right("RESIDENT", |p| {
            pair(p.resident_before.into(), p.resident_after.map(Cell::from))
        })
}

fn facts(outcome: &Outcome, request: &PromoteRequest<'_>) -> Vec<(String, Cell)> {
    let (grown, done) = (outcome.totals.grown, outcome.done());
    let added = request.direction == PromotionDirection::Promote && !grown.is_zero();
    let added = added.then(|| format!("{grown} of new memory, to fill partly resident blocks"));
    let speed = (!outcome.dry_run && !done.is_zero()).then(|| speed(outcome, request));
    let stopped = outcome.stopped_by.filter(|_| !outcome.dry_run);
    let stopped = stopped.map(|by| match by {
        StoppedBy::Signal => "interrupted".to_owned(),
        StoppedBy::MemoryPressure => "the host is short of memory".to_owned(),
        StoppedBy::NoContiguousMemory => "no contiguous memory; see: hugeleaf status".to_owned(),
    });
    [
        ("at least:", coverage_target::result(outcome)),
        ("shared:", counted_once(outcome)),
        ("by role:", roles(outcome)),
        ("shared:", split_for_others(outcome)),
    ]
    .into_iter()
    .chain(zeros(outcome, request))
    .chain([("added:", added), ("speed:", speed), ("stopped:", stopped)])
    .filter_map(|(label, text)| Some((label.to_owned(), text?.into())))
    .collect()
}

/// Explains that the table counts shared memory in every process, and the rest of the page once.
fn counted_once(outcome: &Outcome) -> Option<String> {
    let asked = sum(outcome, |p| p.requested);
    let columns = match outcome.dry_run {
        true => "under ASKED",
        false => "under ASKED and GOT",
    };
    (asked != outcome.requested()).then(|| {
        format!(
            "{columns}, shared memory counts once for each mapping, {asked} in all; everywhere \
             else it counts once"
        )
    })
}

/// Returns requested and promoted memory by role, over all processes, in one line.
fn roles(outcome: &Outcome) -> Option<String> {
    let sums = &outcome.totals.by_role;
    let parts = sums.iter().map(|r| match outcome.dry_run {
        true => format!("{} {}", r.role.name(), r.requested),
        false => format!("{} {} of {}", r.role.name(), r.done, r.requested),
    });
    (!sums.is_empty()).then(|| listed("", parts))
}

/// Returns the memory that was split in unnamed processes too, because they share it.
fn split_for_others(outcome: &Outcome) -> Option<String> {
    let done = outcome.processes.iter().flat_map(|p| &p.done_by);
    let by_file = done.filter(|d| d.method == Method::SplitFile);
    let bytes: Bytes = by_file.map(|d| d.bytes).sum();
    (!bytes.is_zero()).then(|| {
        format!(
            "{bytes} that several processes map, by {}: split for all of them; each maps it again \
             on access. If shmem_enabled allows it, khugepaged may promote it again",
            Method::SplitFile.name()
        )
    })
}

/// Returns other effects of splitting: dropped zero pages and unmapped memory, and their outcome.
fn zeros(outcome: &Outcome, request: &PromoteRequest<'_>) -> [(&'static str, Option<String>); 3] {
    let back = sum(outcome, |p| p.zeros_restored);
    let gone = sum(outcome, |p| p.zeros_lost);
    let unmapped = sum(outcome, |p| p.unmapped);
    let why = (outcome.processes.iter()).find_map(|p| p.no_zeros);
    let why = why.map_or_else(String::new, |why| format!(" ({})", no_zeros(why)));
    let back = (!back.is_zero()).then(|| match request.direction {
        PromotionDirection::Demote => format!(
            "{back} of zero pages, which the split returned to the kernel; allocated again, so \
             that the process keeps its size"
        ),
        PromotionDirection::Promote => format!(
            "{back} of zero pages allocated again: these blocks were huge pages before, and were \
             split"
        ),
    });
    let gone = (!gone.is_zero()).then(|| {
        format!(
            "by {gone} of zero pages, which the split returned to the kernel{why}; writes of the \
             process allocate them again. To promote with them: {}",
            partial_blocks::promotion(request.targets, 1)
        )
    });
    let unmapped = (!unmapped.is_zero()).then(|| {
        format!(
            "by {unmapped} of shared memory, which the split unmapped{why}; it stays in memory, \
             and the process maps it again on access"
        )
    });
    [("zeros:", back), ("smaller:", gone), ("smaller:", unmapped)]
}

fn no_zeros(why: ZeroRestoreError) -> String {
    match why {
        ZeroRestoreError::Denied => "restoring it takes CAP_SYS_PTRACE".to_owned(),
        ZeroRestoreError::Pressure => "the host is short of memory".to_owned(),
        ZeroRestoreError::Failed(errno) => format!("restoring it failed: {errno}"),
    }
}

/// The partly resident blocks, by the reason why they are skipped.
type PartialBlocksByReason = BTreeMap<eligible::Reason, PartialBlocks>;

/// Returns notes on the reasons, largest first.
fn reasons(
    parts: &[BytesByReason],
    holes: &PartialBlocksByReason,
    request: &PromoteRequest<'_>,
) -> Vec<Note> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let note = |part: &BytesByReason| {
        let note = Note::new(part.bytes, part.reason.to_string());
        match remedy(part.reason, holes, request) {
            Some(next) => note.then(advised("next", next)),
            None => note,
        }
    };
    parts.iter().map(note).collect()
}

fn about_processes(outcome: &Outcome) -> Vec<Note> {
    let ended = outcome.processes.iter().filter_map(|p| {
        let how = match p.ended? {
            TargetLoss::Exited => "exited meanwhile: its memory is gone",
            TargetLoss::Replaced => "executed another program (execve): skipped since then",
        };
        Some(format!("process {} ({}) {how}", p.pid, p.name))
    });
    let did = match outcome.dry_run {
        true => "would enable",
        false => "enabled",
    };
    let switched = outcome.processes.iter().filter(|p| p.thp_enabled);
    let switched = switched.map(|p| {
        format!(
            "{did} THP in {} ({}), which had disabled it: prctl(PR_SET_THP_DISABLE, 0) in its main \
             thread; this lasts until the process exits",
            p.name, p.pid
        )
    });
    let skipped = outcome.skipped.iter();
    let skipped = skipped.map(|s| format!("process {} was skipped: {}", s.pid, s.error));
    ended
        .chain(switched)
        .chain(skipped)
        .map(Note::plain)
        .collect()
}

fn advised(label: &str, next: AdvisedCommand) -> CommandHint {
    let risk = risks(&next.changes);
    CommandHint::new(label, next.command).at_risk(risk)
}

fn remedy(
    reason: UnchangedReason,
    holes: &PartialBlocksByReason,
    request: &PromoteRequest<'_>,
) -> Option<AdvisedCommand> {
    use eligible::Reason::{CopyOnWrite, ProcessDisabled, TooSmall};
    use eligible::Remedy::{Change, PromoteAndGrow};
    let targets = request.targets;
    let verb = request.direction.verb();
    Some(match reason {
        UnchangedReason::Not(CopyOnWrite) => {
            format!("hugeleaf {verb} {targets}    # once the child has exited").into()
        }
        // For a demotion, nothing that helps a promotion applies.
        UnchangedReason::Not(_) if request.direction == PromotionDirection::Demote => return None,
        UnchangedReason::Not(TooSmall) => {
            let ends = request.commands.ends.as_ref()?;
            let remark = format!("pages of {} for these, after a restart", ends.size);
            ends.command.clone()?.remark(&remark)
        }
        UnchangedReason::Not(ProcessDisabled) => {
            format!("hugeleaf promote --switch-thp-on {targets}").into()
        }
        UnchangedReason::Not(reason) if reason.remedy() == PromoteAndGrow => {
            holes.get(&reason)?.growth()?.command(targets).into()
        }
        // The remedy depends on more than the reason.
        UnchangedReason::Not(reason) if reason.remedy() == Change => {
            format!("hugeleaf why {targets}").into()
        }
        UnchangedReason::Refused => format!("hugeleaf why {targets}").into(),
        UnchangedReason::Busy | UnchangedReason::Interrupted | UnchangedReason::NotSeen => {
            format!("hugeleaf {verb} {targets}    # continues where it stopped").into()
        }
        UnchangedReason::Pressure => {
            format!("hugeleaf {verb} {targets}    # when memory is free again").into()
        }
        UnchangedReason::NoContiguousMemory => request.commands.compact.clone(),
        UnchangedReason::SharedByOthers(Some(why)) => {
            return why.remedy().map(AdvisedCommand::from);
        }
        UnchangedReason::CgroupLimit => "hugeleaf status    # the cgroup's limits".into(),
        _ => return None,
    })
}

/// Returns the next commands: to continue, to undo, and to make the change permanent.
fn next(outcome: &Outcome, request: &PromoteRequest<'_>) -> Vec<CommandHint> {
    let (verb, targets) = (request.direction.verb(), request.targets);
    let totals = &outcome.totals;
    let mut all = Vec::new();
    if outcome.stopped_by == Some(StoppedBy::Signal) {
        all.push(CommandHint::new(
            "to continue",
            format!("hugeleaf {verb} {targets}"),
        ));
    }
    if request.direction == PromotionDirection::Demote || totals.done.is_zero() {
        return all;
    }
    let remark = match totals.already.is_zero() {
        true => String::new(),
        false => format!(
            "    # also demotes the {} that were huge before",
            totals.already
        ),
    };
    let one_way = BytesByReason::total(&totals.one_way);
    let mut undo = CommandHint::new("undo", format!("hugeleaf demote {targets}{remark}"));
    if !one_way.is_zero() {
        undo.note = format!("{one_way} of it stays on huge pages: see above");
    }
    if one_way < totals.done {
        all.push(undo);
    }
    let lines = persistence_commands(outcome, request);
    let permanent = |next| advised("to make this permanent", next);
    all.extend(lines.into_iter().map(permanent));
    all
}

fn speed(outcome: &Outcome, request: &PromoteRequest<'_>) -> String {
    let (done, budget) = (outcome.done(), request.pace.budget);
    let rate = rate(done, outcome.seconds);
    let rate = rate.map(|rate| format!("{rate} a second at --budget {budget}"));
    let held = Some(outcome.paused_seconds).filter(|held| *held >= 0.1);
    let held = held.map(|held| {
        format!(
            "{} of waiting for busy pages or free memory",
            format_elapsed(held)
        )
    });
    format!(
        "{done} in {}{}; {}{}",
        format_elapsed(outcome.seconds),
        listed(", ", rate),
        stalls(&outcome.stalls, request),
        listed(", ", held)
    )
}

/// Formats the time of the calls: `3.0 s in 1,550 collapse calls, longest 3.1 ms (2 took longer than 3 ms)`. A call
/// is an upper bound of a stall: the process is held up only if it needs the memory meanwhile.
fn stalls(stalls: &StallStats, request: &PromoteRequest<'_>) -> String {
    let over = request.pace.longest_stall.map(|most| {
        let most = measured(most.as_secs_f64());
        format!(
            " ({} took longer than {most})",
            thousands(&stalls.over.to_string())
        )
    });
    let call = match request.direction {
        PromotionDirection::Promote => "collapse",
        PromotionDirection::Demote => "split",
    };
    let ending = if stalls.count == 1 { "" } else { "s" };
    format!(
        "{} in {} {call} call{ending}, longest {}{}",
        format_elapsed(stalls.total.as_secs_f64()),
        thousands(&stalls.count.to_string()),
        measured(stalls.longest.as_secs_f64()),
        over.unwrap_or_default()
    )
}

/// Returns commands that promote the memory again after a restart of the process. Private memory must be
/// filled first. Shared memory also needs the knob on while it is mapped, or it is misaligned.
fn persistence_commands(outcome: &Outcome, request: &PromoteRequest<'_>) -> Vec<AdvisedCommand> {
    let Some(process) = outcome.processes.iter().find(|p| !p.done.is_zero()) else {
        return Vec::new();
    };
    let target = process.unit.as_deref().unwrap_or(&process.name);
    let all = match process.unit.is_none() && request.targets.starts_with(ALL) {
        true => ALL,
        false => "",
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    if !target.chars().all(plain) || target.is_empty() {
        return vec!["after each restart, promote it again once its memory is filled".into()];
    }
    let shared = outcome.processes.iter().flat_map(|p| &p.by_role);
    let shared = shared
        .filter(|r| r.role == MappingRole::Shm)
        .any(|r| !r.done.is_zero());
    let commands = request.commands;
    let program = &commands.program;
    let name = target.trim_end_matches(".service");
    let again = match commands.scheduler {
        BootTaskRunner::Systemd => {
            let name = format!("hugeleaf-{}", name.replace('@', "-"));
            format!(
                "printf '[Service]\\nType=oneshot\\nSuccessExitStatus=1 3\\nExecStart={program} \
                 promote {all}{target}\\n' > /etc/systemd/system/{name}.service; printf \
                 '[Timer]\\nOnCalendar=*:0/10\\n[Install]\\nWantedBy=timers.target\\n' > \
                 /etc/systemd/system/{name}.timer; systemctl enable --now {name}.timer"
            )
        }
        // cron ignores files with a dot in their names.
        BootTaskRunner::Cron => format!(
            "echo '*/10 * * * * root {program} promote {all}{target} >/dev/null 2>&1' > \
             /etc/cron.d/hugeleaf-{}",
            name.replace(['.', '@', ':'], "-")
        ),
        BootTaskRunner::Unknown => format!(
            "{program} promote {all}{target}    # after each restart, once it has filled its memory"
        ),
    };
    let at_boot = shared.then(|| commands.shmem_at_boot.clone());
    at_boot.into_iter().chain([again.into()]).collect()
}

pub fn json(outcome: &Outcome) -> String {
    answer(&merge_fields(
        json!({ "complete": outcome.is_complete() }),
        outcome,
    ))
}

fn sum(outcome: &Outcome, of: impl Fn(&ProcessOutcome) -> Bytes) -> Bytes {
    outcome.processes.iter().map(of).sum()
}

#[allow(clippy::cast_possible_truncation)]
fn rate(bytes: Bytes, seconds: f64) -> Option<Bytes> {
    (seconds > 0.0).then(|| Bytes((bytes.as_f64() / seconds) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::TextOptions;
    use hugeleaf_mover::{BytesByMethod, OutcomeTotals, RoleOutcome, SplitRefusal};
    use hugeleaf_sys::{Errno, Pid};
    use serde_json::Value;
    use std::sync::LazyLock;

    const VIEW: TextOptions = TextOptions::plain(100);

    pub(super) fn request(direction: PromotionDirection) -> PromoteRequest<'static> {
        PromoteRequest {
            direction,
            targets: "mariadbd",
            pace: StallLimits::default(),
            commands: &CRON,
        }
    }

    static CRON: LazyLock<HostCommands> = LazyLock::new(|| commands(BootTaskRunner::Cron, None));

    fn commands(scheduler: BootTaskRunner, ends: Option<UnalignedEndsSetting>) -> HostCommands {
        HostCommands {
            program: "/usr/bin/hugeleaf".to_owned(),
            scheduler,
            ends,
            compact: "compact".into(),
            shmem_at_boot: format!("shmem_enabled by {scheduler:?}").into(),
            ksm_runs: false,
        }
    }

    #[test]
    fn the_ends_of_mappings_have_a_smaller_size_where_the_processor_knows_one() {
        let ends = UnalignedEndsSetting {
            size: "2M".parse().unwrap(),
            path: "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled".to_owned(),
            setting: "never".to_owned(),
            better: Some("inherit"),
            command: Some("echo inherit > FILE".into()),
        };
        let of = |ends| {
            remedy(
                eligible::Reason::TooSmall.into(),
                &holes(),
                &PromoteRequest {
                    commands: &commands(BootTaskRunner::Cron, ends),
                    ..request(PromotionDirection::Promote)
                },
            )
        };
        assert_eq!(
            of(Some(ends.clone())).unwrap().command,
            "echo inherit > FILE    # pages of 2M for these, after a restart"
        );
        assert_eq!(of(None), None);
        let on = UnalignedEndsSetting {
            command: None,
            ..ends
        };
        assert_eq!(of(Some(on)), None);
    }

    pub(super) fn one() -> ProcessOutcome {
        ProcessOutcome {
            who: hugeleaf_mover::ProcessIdentity::default(),
            pid: Pid(1234),
            name: "mariadbd".to_owned(),
            unit: Some("mariadb.service".to_owned()),
            requested: Bytes::from_mib(3200),
            already: Bytes::from_mib(8),
            done: Bytes::from_mib(3190),
            done_by: vec![BytesByMethod {
                method: Method::Collapse,
                bytes: Bytes::from_mib(3190),
            }],
            failed: vec![BytesByReason {
                reason: UnchangedReason::Busy,
                bytes: Bytes::from_mib(10),
            }],
            left_out: vec![BytesByReason {
                reason: eligible::Reason::PartlyResident.into(),
                bytes: Bytes::from_mib(30),
            }],
            grown: Bytes::ZERO,
            zeros_restored: Bytes::ZERO,
            zeros_lost: Bytes::ZERO,
            unmapped: Bytes::ZERO,
            no_zeros: None,
            one_way: vec![BytesByReason {
                reason: UnchangedReason::Locked,
                bytes: Bytes::from_mib(2),
            }],
            by_role: vec![RoleOutcome {
                role: MappingRole::Anon,
                requested: Bytes::from_mib(3200),
                done: Bytes::from_mib(3190),
            }],
            moved: Vec::new(),
            seconds: 30.0,
            coverage_before: Some(0.003),
            coverage_after: Some(0.97),
            page_tables_before: Bytes::from_kib(6700),
            page_tables_after: Some(Bytes::from_kib(6700)),
            resident_before: Bytes::from_mib(3300),
            resident_after: Some(Bytes::from_mib(3300)),
            mergeable: Bytes::ZERO,
            thp_enabled: false,
            ended: None,
        }
    }

    fn holes() -> PartialBlocksByReason {
        let of = |reason| {
            let mut holes = PartialBlocks::default();
            holes.add(reason, Bytes::from_mib(30), Bytes::from_mib(10));
            (reason, holes)
        };
        let all = eligible::Reason::ALL.iter().copied();
        all.map(of).collect()
    }

    /// An outcome in which no memory is shared.
    pub(super) fn outcome(processes: Vec<ProcessOutcome>) -> Outcome {
        let sum = |of: fn(&ProcessOutcome) -> Bytes| processes.iter().map(of).sum();
        Outcome {
            totals: OutcomeTotals {
                requested: sum(|p| p.requested),
                already: sum(|p| p.already),
                done: sum(|p| p.done),
                failed: processes.iter().flat_map(|p| p.failed.clone()).collect(),
                left_out: processes.iter().flat_map(|p| p.left_out.clone()).collect(),
                grown: sum(|p| p.grown),
                one_way: processes.iter().flat_map(|p| p.one_way.clone()).collect(),
                by_role: processes.iter().flat_map(|p| p.by_role.clone()).collect(),
                holes: holes(),
            },
            processes,
            skipped: Vec::new(),
            interrupted: false,
            stopped_by: None,
            dry_run: false,
            estimated_seconds: None,
            seconds: 31.2,
            stalls: StallStats {
                count: 1550,
                total: std::time::Duration::from_secs(3),
                longest: std::time::Duration::from_micros(3100),
                ..StallStats::default()
            },
            held: hugeleaf_mover::HeldBeforeSplit::default(),
            paused_seconds: 0.3,
            huge_page: "2M".parse().unwrap(),
            at_least: None,
        }
    }

    #[test]
    fn says_what_it_got_and_what_not_how_to_undo_it_and_to_make_it_last() {
        let text = page(&outcome(vec![one()]), &request(PromotionDirection::Promote)).text(VIEW);
        let expected = "\
promoted 3.1G of 3.1G; 10M not
 PID  NAME      HUGE BEFORE  ASKED   GOT      COVERAGE  PAGE TABLES     RESIDENT
1234  mariadbd           8M   3.1G  3.1G  0.3 % → 97 %  6.5M → 6.5M  3.2G → 3.2G
by role:  anon 3.1G of 3.1G
speed:    3.1G in 31 s, 102M a second at --budget 10%; 3.0 s in 1,550 collapse calls, longest 3.10
          ms, 300 ms of waiting for busy pages or free memory

failed:
  10M  busy in every pass (EAGAIN): pinned for I/O, or held elsewhere
       next: hugeleaf promote mariadbd    # continues where it stopped

skipped:
  30M  partly resident: promotion would fill it and grow the process
       next: hugeleaf promote --min-resident 70% mariadbd    # promotes 30M of it, and adds 10M

one way (on huge pages until the processes that map it exit):
  2M  locked in memory (mlock): the kernel refuses to split it
undo: hugeleaf demote mariadbd    # also demotes the 8M that were huge before
      2M of it stays on huge pages: see above
to make this permanent: echo '*/10 * * * * root /usr/bin/hugeleaf promote mariadb.service >/dev/null 2>&1' > \
/etc/cron.d/hugeleaf-mariadb
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_command_that_slows_the_host_down_states_its_risk() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/why/fragmented");
        let root = hugeleaf_host::Root::at(root);
        let host = hugeleaf_host::read_host(&root, &hugeleaf_sys::Kernel::new()).unwrap();
        let commands = HostCommands::new(&host, "hugeleaf".to_owned(), BootTaskRunner::Cron);
        let mut process = one();
        process.failed[0].reason = UnchangedReason::NoContiguousMemory;
        let request = PromoteRequest {
            commands: &commands,
            ..request(PromotionDirection::Promote)
        };
        let text = page(&outcome(vec![process]), &request).text(VIEW);
        let lines = "next: echo 1 > /proc/sys/vm/compact_memory\n             \
                     risk: programs may stall meanwhile\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn no_undo_is_printed_that_cannot_work() {
        let mut process = one();
        process.one_way = vec![BytesByReason {
            reason: UnchangedReason::SharedByOthers(Some(SplitRefusal::Refused)),
            bytes: process.done,
        }];
        let text = page(
            &outcome(vec![process]),
            &request(PromotionDirection::Promote),
        )
        .text(VIEW);
        assert!(!text.contains("hugeleaf demote"), "{text}");
        assert!(text.contains("the processes that map it exit"), "{text}");
        assert!(text.contains("refused even to root"), "{text}");
    }

    /// The next command has the same targets as this one.
    #[test]
    fn several_programs_of_one_name_are_named_with_all() {
        let mut process = one();
        process.unit = None;
        let request = PromoteRequest {
            targets: "--all mariadbd",
            ..request(PromotionDirection::Promote)
        };
        let text = page(&outcome(vec![process]), &request).text(VIEW);
        for command in [
            "undo: hugeleaf demote --all mariadbd ",
            "/usr/bin/hugeleaf promote --all mariadbd >",
        ] {
            assert!(text.contains(command), "{text}");
        }
    }

    #[test]
    fn the_time_of_calls_names_the_calls() {
        let single = StallStats {
            count: 1,
            ..outcome(vec![one()]).stalls
        };
        let text = |direction| stalls(&single, &request(direction));
        assert_eq!(
            text(PromotionDirection::Promote),
            "3.0 s in 1 collapse call, longest 3.10 ms"
        );
        assert_eq!(
            text(PromotionDirection::Demote),
            "3.0 s in 1 split call, longest 3.10 ms"
        );
    }

    /// The table of reasons determines the command, as in `why`.
    #[test]
    fn a_command_is_printed_where_something_helps() {
        use eligible::Remedy;
        for reason in eligible::Reason::ALL {
            let command = |direction| remedy((*reason).into(), &holes(), &request(direction));
            let helps = matches!(reason.remedy(), Remedy::Change | Remedy::PromoteAndGrow);
            assert_eq!(
                command(PromotionDirection::Promote).is_some(),
                helps,
                "{reason:?}"
            );
            let forked = *reason == eligible::Reason::CopyOnWrite;
            assert_eq!(
                command(PromotionDirection::Demote).is_some(),
                forked,
                "{reason:?}"
            );
        }
    }

    #[test]
    fn shared_memory_also_needs_the_knob_to_last() {
        let mut process = one();
        process.by_role[0].role = MappingRole::Shm;
        for (scheduler, line) in [
            (BootTaskRunner::Systemd, "systemctl enable --now"),
            (BootTaskRunner::Cron, "/etc/cron.d/hugeleaf-mariadb"),
            (
                BootTaskRunner::Unknown,
                "/usr/bin/hugeleaf promote mariadb.service",
            ),
        ] {
            let commands = commands(scheduler, None);
            let request = PromoteRequest {
                commands: &commands,
                ..request(PromotionDirection::Promote)
            };
            let lines = persistence_commands(&outcome(vec![process.clone()]), &request);
            assert_eq!(lines.len(), 2, "{lines:?}");
            assert!(
                lines[0].command.starts_with("shmem_enabled") && lines[1].command.contains(line),
                "{lines:?}"
            );
        }
        // A name that a shell would split is not put into a shell command.
        process.unit = None;
        process.name = "a b;c".to_owned();
        let lines = persistence_commands(
            &outcome(vec![process]),
            &request(PromotionDirection::Promote),
        );
        assert!(!lines[0].command.contains(';'), "{lines:?}");
    }

    #[test]
    fn an_end_midway_is_a_clear_line() {
        let gone = ProcessOutcome {
            ended: Some(TargetLoss::Replaced),
            done: Bytes::ZERO,
            coverage_after: None,
            page_tables_after: None,
            resident_after: None,
            ..one()
        };
        let mut outcome = outcome(vec![gone]);
        outcome.stopped_by = Some(StoppedBy::Signal);
        let text = page(&outcome, &request(PromotionDirection::Promote)).text(VIEW);
        assert!(
            text.contains("process 1234 (mariadbd) executed another program"),
            "{text}"
        );
        assert!(text.contains("0.3 % → gone"), "{text}");
        assert!(
            text.contains("to continue: hugeleaf promote mariadbd"),
            "{text}"
        );
        assert!(!text.contains("undo:"), "{text}");
    }

    #[test]
    fn a_dry_run_says_that_nothing_was_changed() {
        let mut outcome = outcome(vec![one()]);
        outcome.dry_run = true;
        outcome.estimated_seconds = Some(31.0);
        let text = page(&outcome, &request(PromotionDirection::Promote)).text(VIEW);
        let first = "would promote 3.1G, in about 31 s at --budget 10%; nothing was changed\n";
        assert!(text.starts_with(first), "{text}");
        assert!(
            !text.contains("undo:") && !text.contains("permanent:"),
            "{text}"
        );
    }

    #[test]
    fn a_dry_run_with_nothing_to_move_says_so() {
        let untouched = ProcessOutcome {
            requested: Bytes::ZERO,
            done: Bytes::ZERO,
            failed: Vec::new(),
            ..one()
        };
        for (already, first) in [
            (Bytes::from_mib(8), "nothing left to promote\n"),
            (Bytes::ZERO, "nothing to promote\n"),
        ] {
            let mut outcome = outcome(vec![ProcessOutcome {
                already,
                ..untouched.clone()
            }]);
            outcome.dry_run = true;
            outcome.estimated_seconds = Some(0.0);
            let text = page(&outcome, &request(PromotionDirection::Promote)).text(VIEW);
            assert!(text.starts_with(first), "{text}");
        }
    }

    #[test]
    fn json_keeps_the_contract() {
        let value: Value = serde_json::from_str(&json(&outcome(vec![one()]))).unwrap();
        assert_eq!(value["schema"], 2);
        let process = &value["processes"][0];
        for name in [
            "pid",
            "asked_bytes",
            "already_bytes",
            "done_bytes",
            "failed",
            "seconds",
            "coverage_before",
            "coverage_after",
            "page_tables_before_bytes",
            "page_tables_after_bytes",
            "resident_before_bytes",
            "resident_after_bytes",
        ] {
            assert!(!process[name].is_null(), "{name}");
        }
        assert_eq!(process["failed"][0]["reason"], "busy");
        assert_eq!(process["failed"][0]["bytes"], 10 << 20);
    }

    #[test]
    fn what_was_split_for_others_is_said() {
        let mut process = one();
        process.done_by[0].method = Method::SplitFile;
        let outcome = outcome(vec![process]);
        let text = page(&outcome, &request(PromotionDirection::Demote)).text(VIEW);
        assert!(
            text.contains("3.1G that several processes map, by debugfs"),
            "{text}"
        );
        let value: Value = serde_json::from_str(&json(&outcome)).unwrap();
        let by = &value["processes"][0]["done_by"][0];
        assert_eq!(by["by"], "debugfs split_huge_pages");
        assert_eq!(by["bytes"], 3190u64 << 20);
    }

    #[test]
    fn why_shared_memory_stays_is_said_with_what_to_do() {
        let request = request(PromotionDirection::Demote);
        for (why, says, next) in [
            (SplitRefusal::Refused, "even to root", Some("lockdown")),
            (SplitRefusal::NotRoot, "only root", Some("run as root")),
            (SplitRefusal::NoDebugfs, "no debugfs", Some("debugfs=off")),
            (SplitRefusal::NoFile, "no such file", None),
            (
                SplitRefusal::OtherNamespace,
                "PID namespace",
                Some("the host itself"),
            ),
            (SplitRefusal::Failed(Errno::FAULT), "Bad address", None),
        ] {
            let reason = UnchangedReason::SharedByOthers(Some(why));
            assert_eq!(reason.id(), "shared-by-others");
            let text = reason.to_string();
            assert!(text.contains(says), "{text}");
            let remedy = remedy(reason, &holes(), &request);
            assert_eq!(remedy.is_some(), next.is_some(), "{why:?}");
            assert!(
                remedy.is_none_or(|r| next.is_some_and(|n| r.command.contains(n))),
                "{why:?}"
            );
        }
    }

    #[test]
    fn every_reason_has_a_sentence() {
        let other = UnchangedReason::Other(Errno::FAULT).to_string();
        assert!(other.contains("Bad address"), "{other}");
        let shared = UnchangedReason::SharedByOthers(None);
        for reason in [
            shared,
            UnchangedReason::Locked,
            eligible::Reason::Hugetlb.into(),
        ] {
            assert!(!reason.to_string().is_empty());
            assert_eq!(
                remedy(reason, &holes(), &request(PromotionDirection::Demote)),
                None
            );
        }
    }
}
