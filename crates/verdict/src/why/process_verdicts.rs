//! Judges a process: each segment alone, then the reasons that concern all of them. Describes the findings in a
//! sentence with the values found, and the next step.

use hugeleaf_host::process::proc_parsers::is_service;
use hugeleaf_host::{Host, HugetlbLimitKind, Process, ProcessMapping, ThpMemoryKind};
use hugeleaf_units::time::interval;
use hugeleaf_units::{Bytes, PageSize};

use crate::advice::{self, AdvisedCommand, ChangeScope, Setting, SettingChange};
use crate::clean;
use crate::eligible::{MappingKind, tmpfs_mount};
use crate::findings::shell_word;
use crate::pod_limits::PodLimitCause;
use crate::pool_programs::{self, PoolProgram};

use super::group_text::NOTHING;
use super::segment_obstacles::{self, RangeObstacle, SegmentObstacles};
use super::{
    ProcessContext, RangeVerdict, Reason, SegmentAccount, VerdictFigures, group_text, hugetlb,
    smallest_huge_page, thp_settings,
};

/// Judges every segment of a process that was read page by page. Returns one account per segment, in the same order.
/// `target` is the process name in commands, as in `1234` or `tree:1234`.
pub fn account(host: &Host, process: &Process, target: &str) -> Vec<SegmentAccount> {
    let case = ProcessContext {
        host,
        process,
        target,
        pmd: host.pmd_page.get(),
        smallest: smallest_huge_page(host),
    };
    let mut found: Vec<segment_obstacles::SegmentObstacles> = process
        .segments
        .iter()
        .map(|s| segment_obstacles::examine(&case, s))
        .collect();
    segment_obstacles::place_pinned(&case, &mut found);
    segment_obstacles::check_free_blocks(&case, &mut found);
    segment_obstacles::check_memory_limit(&case, &mut found);
    found
        .into_iter()
        .zip(&process.segments)
        .map(|(found, segment)| describe(&case, segment, found))
        .collect()
}

/// Returns the verdicts of a process in address order.
pub fn judge(host: &Host, process: &Process) -> Vec<RangeVerdict> {
    account(host, process, &process.pid.to_string())
        .into_iter()
        .flat_map(|a| a.verdicts)
        .collect()
}

/// Describes the findings of a segment.
pub fn describe(
    case: &ProcessContext<'_>,
    segment: &ProcessMapping,
    found: SegmentObstacles,
) -> SegmentAccount {
    let verdicts = found.findings.iter().map(|finding| {
        let words = ObstacleText {
            case,
            segment,
            finding,
            page: case.pmd.map_or("a huge page".to_owned(), |p| p.to_string()),
            name: clean(&case.process.name),
            promote: format!("hugeleaf promote {}", case.target),
        };
        let figures = words.figures();
        let (text, next) = words.text_and_next(&figures);
        RangeVerdict {
            id: finding.reason,
            role: segment.role,
            name: case.process.name_of(segment),
            range: finding.range,
            bytes: finding.bytes,
            text,
            command: next.command,
            changes: next.changes,
            figures,
        }
    });
    SegmentAccount {
        range: segment.range,
        resident: found.resident,
        huge: found.huge,
        too_small: found.too_small,
        verdicts: verdicts.collect(),
    }
}

struct ObstacleText<'a> {
    case: &'a ProcessContext<'a>,
    segment: &'a ProcessMapping,
    finding: &'a RangeObstacle,
    page: String,
    name: String,
    /// The command that promotes all memory that needs no other change.
    promote: String,
}

type TextAndCommand = (String, AdvisedCommand);

impl ObstacleText<'_> {
    fn figures(&self) -> VerdictFigures {
        let f = self.finding;
        VerdictFigures {
            missing: f.missing,
            swapped: f.swapped,
            holes: f.holes.clone(),
            is_host_wide: match f.reason {
                Reason::ShmemDeny | Reason::ShmemSizeOff | Reason::NoContiguous => true,
                Reason::Misaligned => !thp_settings::shmem_places_well(self.case, self.segment),
                Reason::Memlock => self.group_for_pools().is_some(),
                _ => false,
            },
            target: self.case.target.to_owned(),
            sharer: match f.reason {
                Reason::CopyOnWrite => self.sharer(),
                _ => String::new(),
            },
            tightest_limit: segment_obstacles::tightest_limit(self.case),
            off_sizes: match f.reason {
                Reason::OrdersOff => {
                    thp_settings::off_sizes(self.case, self.segment, f.range, f.bytes)
                }
                _ => Vec::new(),
            },
        }
    }

    fn text_and_next(&self, f: &VerdictFigures) -> TextAndCommand {
        use Reason::*;
        let (reason, bytes) = (self.finding.reason, self.finding.bytes);
        match reason {
            ThpNever | NotAdvised | SmallSteps | ProcessDisabled | Unknown => self.setting(),
            ShmemNever | ShmemNotAdvised | Misaligned | ShmemDeny | ShmemSizeOff => self.shared(),
            ShmGroup | Memlock | CgroupReservation | PoolShort | CgroupFault | PoolUnused => {
                self.pool()
            }
            PartlyResident | PartlyMapped | Sparse | Swapped => {
                let text = group_text::partly(reason, bytes, f);
                (text, group_text::promote_and_grow(bytes, f))
            }
            CopyOnWrite => (
                group_text::copy_on_write(&format!("with {}", f.sharer), bytes),
                group_text::once_ended(&format!("{} has", f.sharer), f).into(),
            ),
            CgroupMemory => (
                group_text::cgroup_memory(f),
                group_text::promote_within(f, Bytes::ZERO, &self.promote),
            ),
            OrdersOff | OrderAtFault => self.order(f),
            Locked | Pinned | NoContiguous => self.pages(),
            SmallFolios => self.read_again(),
            _ => self.other(),
        }
    }
}

// Settings.
impl ObstacleText<'_> {
    fn setting(&self) -> TextAndCommand {
        let (path, _) = self.case.host.thp_setting(ThpMemoryKind::Private);
        let text = match self.finding.reason {
            Reason::ThpNever => {
                format!("THP is off on this host ({path} is never); promotion works all the same")
            }
            Reason::NotAdvised => format!(
                "THP is for advised memory only ({path} is madvise), and the program did not \
                 advise this; promotion works all the same"
            ),
            Reason::SmallSteps => format!(
                "THP is on, but this memory came in steps smaller than {} or was split since, \
                 and khugepaged has not scanned it: {}{}",
                self.page,
                self.khugepaged(),
                self.at_growth()
            ),
            Reason::ProcessDisabled => return self.disabled(),
            _ => format!("the setting could not be read: {}", self.unread()),
        };
        (text, self.promote.clone().into())
    }

    /// Describes a process that disabled THP. Only the process itself can undo the call, so it is made to (see the
    /// notes on programs in docs/internals/kernel-notes.md).
    fn disabled(&self) -> TextAndCommand {
        let name = &self.name;
        let lasting = match name.starts_with("redis") || name.starts_with("valkey") {
            true => "To make this permanent, set 'disable-thp no' in its configuration",
            false => "To make this permanent, change the program's configuration",
        };
        let text = format!(
            "the process disabled THP with prctl(PR_SET_THP_DISABLE) (THP_enabled: 0 in its \
             status), which blocks promotion too. The command re-enables THP in {name} until it \
             exits. {lasting}"
        );
        let target = self.case.target;
        let command = format!("hugeleaf promote --switch-thp-on {target}");
        (text, command.into())
    }

    fn unread(&self) -> String {
        let host = self.case.host;
        let thp = host.thp.known();
        let error = host
            .thp
            .error()
            .or(host.pmd_page.error())
            .or(thp.and_then(|t| t.enabled.error()))
            .or(thp.and_then(|t| t.shmem_enabled.error()));
        error.map_or_else(|| "it is missing".to_owned(), ToString::to_string)
    }

    fn khugepaged(&self) -> String {
        let host = self.case.host;
        let Some(k) = host.thp.known().map(|t| &t.khugepaged) else {
            return "its settings are unknown".to_owned();
        };
        let (Some(pages), Some(sleep)) = (k.pages_to_scan.get(), k.scan_sleep_millis.get()) else {
            return "its settings could not be read".to_owned();
        };
        let each = pages.in_bytes(host.base_page);
        if each.is_zero() {
            return "it is set to scan no pages".to_owned();
        }
        let huge = host.memory.anon_huge.get().unwrap_or_default();
        let anon = host.memory.anon.get().map(|anon| anon - huge);
        let to_scan = anon.unwrap_or(self.case.process.resident_anon);
        let rounds = to_scan.get().div_ceil(each.get()).max(1);
        let seconds = rounds.saturating_mul(sleep) / 1000;
        format!(
            "it scans {each} every {}, so {to_scan} of this host's memory takes up to {}",
            interval_millis(sleep),
            interval(seconds)
        )
    }

    /// Adds a hint for private memory that `hugeleaf run` would have made huge from the start.
    fn at_growth(&self) -> &'static str {
        let is_run = self.case.process.run.known().is_some();
        match (MappingKind::from_segment(self.segment) == MappingKind::Private) && !is_run {
            true => ". Started under `hugeleaf run`, the program gets huge pages as it grows",
            false => "",
        }
    }
}

// Shared memory.
impl ObstacleText<'_> {
    fn shared(&self) -> TextAndCommand {
        let (knob, promote) = (ThpMemoryKind::Shared.file(), self.promote.clone());
        let (path, own) = self.case.host.thp_setting(ThpMemoryKind::Shared);
        let on = tmpfs_mount(self.segment);
        match self.finding.reason {
            Reason::ShmemNever => {
                let why = match on {
                    Some(folder) => format!("the tmpfs on {folder} is mounted without huge="),
                    None => {
                        format!("huge pages for shared memory are off ({path} is never)")
                    }
                };
                let text = format!("{why}; the address is aligned, so promotion works");
                (text, promote.into())
            }
            Reason::ShmemNotAdvised => {
                let why = match on {
                    Some(folder) => format!("the tmpfs on {folder} is mounted with huge=advise"),
                    None => format!("{path} is advise"),
                };
                let text = format!(
                    "huge pages for shared memory are for advised memory only ({why}), and the \
                     program did not advise this; the address is aligned, so promotion works"
                );
                (text, promote.into())
            }
            Reason::ShmemDeny => (
                format!("{knob} is deny, which forbids huge pages in shared memory"),
                self.then(
                    SettingChange::new(Setting::file(&*knob), "advise"),
                    &promote,
                ),
            ),
            Reason::ShmemSizeOff => (
                format!(
                    "{path} is {}, which forbids huge pages here, also for promotion",
                    own.text().unwrap_or_default()
                ),
                self.then(
                    SettingChange::new(Setting::file(&*path), "inherit"),
                    &promote,
                ),
            ),
            _ => self.misaligned(&knob, on),
        }
    }

    fn misaligned(&self, knob: &str, on: Option<&str>) -> TextAndCommand {
        let value = thp_settings::shmem_top(self.case).unwrap_or("unknown");
        let places_well = thp_settings::shmem_places_well(self.case, self.segment);
        let why = match (on, places_well) {
            (Some(folder), true) => format!(
                ", while the tmpfs on {folder} was mounted without huge=; it has huge={} now",
                self.segment.mount_huge.as_deref().unwrap_or(value)
            ),
            (Some(folder), false) => {
                format!(", while the tmpfs on {folder} was mounted without huge=")
            }
            (None, true) => format!(", while {knob} was never; it is {value} now"),
            (None, false) => format!(", because {knob} is {value}"),
        };
        let text = format!(
            "mapped at an address that is not aligned for {} pages{why}. Promotion needs a restart",
            self.page
        );
        let change = match on {
            Some(folder) => SettingChange::new(Setting::mount(folder), "huge=advise")
                .in_scope(ChangeScope::Device),
            None => SettingChange::new(Setting::file(knob), "advise"),
        };
        let step = (!places_well).then(|| change.next(self.case.host));
        (text, restart(step, self.case.process))
    }
}

// Pools.
impl ObstacleText<'_> {
    /// Joins a host change and the command that it enables.
    fn then(&self, change: SettingChange, command: &str) -> AdvisedCommand {
        change.next(self.case.host).then(command)
    }

    fn pool(&self) -> TextAndCommand {
        let (process, name) = (self.case.process, &self.name);
        let Some(pool) = hugetlb::pool(self.case, self.segment) else {
            return ("no pool".to_owned(), NOTHING.into());
        };
        let (size, len) = (pool.size, self.segment.range.len());
        let (need, had) = (size.pages_for(len), hugetlb::available(pool));
        let memlock = process.limits.memlock.get().unwrap_or_default();
        let group = self.case.host.limits.hugetlb_shm_group.get().unwrap_or(0);
        match self.finding.reason {
            Reason::PoolShort => {
                let text = format!(
                    "the pool of {size} pages is {} pages short: this segment needs {need}, and \
                     {had} are free and not reserved",
                    hugetlb::short(pool, self.segment)
                );
                let plan = format!(
                    "hugeleaf plan {} --output pages.toml && hugeleaf apply pages.toml",
                    process.pid
                );
                (text, restart(Some(plan.into()), process))
            }
            Reason::CgroupReservation => self.cgroup(size, HugetlbLimitKind::Reservations),
            Reason::CgroupFault => self.cgroup(size, HugetlbLimitKind::Faults),
            Reason::ShmGroup => (
                format!(
                    "SysV memory on {size} pages is for group {group} (vm.hugetlb_shm_group), which \
                     this process is not in; its memlock limit of {memlock} is too low to replace \
                     the group"
                ),
                self.in_group(group),
            ),
            Reason::Memlock => {
                let text = format!(
                    "SysV memory on {size} pages counts against the memlock limit, which is \
                     {memlock} for this process and must be {len}"
                );
                let command = match self.group_for_pools() {
                    Some(group) => {
                        let setting = Setting::sysctl("vm.hugetlb_shm_group");
                        let step = SettingChange::new(setting, group).next(self.case.host);
                        restart(Some(step), process)
                    }
                    None => format!(
                        "# raise the memlock limit to {len} (systemd: LimitMEMLOCK={len:#}), then \
                         restart {name}"
                    )
                    .into(),
                };
                (text, command)
            }
            _ => {
                let setting = hugetlb::size_setting(self.case, size);
                let default = pool_programs::requested_page_size(self.case.host, None)
                    .filter(|_| setting.is_some());
                let why = match default {
                    Some(default) => format!(
                        "the program asks for pages of {default}, the default size, unless it is \
                         configured otherwise"
                    ),
                    None => {
                        "the program did not ask for them, or started before they were reserved"
                            .to_owned()
                    }
                };
                let text = format!(
                    "the pool has {had} free pages of {size}, and this segment needs {need}: {why}"
                );
                (text, ask_for_them(process, setting).into())
            }
        }
    }

    /// Describes a cgroup limit on pool pages.
    fn cgroup(&self, size: PageSize, of: HugetlbLimitKind) -> TextAndCommand {
        let limits = &self.case.process.limits;
        let Some((group, limit)) = limits.tightest(size, of) else {
            return (String::new(), NOTHING.into());
        };
        let len = self.segment.range.len();
        let (may, then) = match of {
            HugetlbLimitKind::Reservations => ("reserve", "fails"),
            HugetlbLimitKind::Faults => ("touch", "succeeds, but touching it raises SIGBUS"),
        };
        let text = format!(
            "cgroup {} may {may} {} more on {size} pages, but this segment needs {len}: mapping it \
             on them {then}",
            group.path,
            limit.room(of).unwrap_or_default()
        );
        let most = size.pages_for(limit.usage(of) + len).in_bytes(size);
        if limits.is_in_container {
            let cause = PodLimitCause::of(self.case.host, limits, size);
            let command = cause.remedy(size, most, &self.case.process.name);
            return (format!("{text}; {}", cause.text()), command.into());
        }
        let raised = SettingChange::new(Setting::file(group.limit_file(size, of)), most.get());
        let step = raised.in_scope(ChangeScope::Cgroup).next(self.case.host);
        (text, restart(Some(step), self.case.process))
    }

    fn in_group(&self, group: u64) -> AdvisedCommand {
        let user = format!("$(id -nu {})", self.case.process.uid);
        let joined = SettingChange::new(Setting::groups(&user), group).next(self.case.host);
        joined.remark(&format!("then restart {}", self.name))
    }

    /// Returns a group of the process that could be given access to pools.
    fn group_for_pools(&self) -> Option<u64> {
        self.case.process.groups.iter().copied().find(|g| *g != 0)
    }
}

// Pages.
impl ObstacleText<'_> {
    fn pages(&self) -> TextAndCommand {
        let (page, name, promote) = (&self.page, &self.name, &self.promote);
        let process = self.case.process;
        match self.finding.reason {
            Reason::Locked => (
                format!(
                    "mlock of a part split the mapping inside a block of {page}: a huge page \
                     cannot span two mappings"
                ),
                format!(
                    "# {name} must lock whole {page} pages, or all of it: mlockall(MCL_CURRENT)"
                )
                .into(),
            ),
            Reason::Pinned => {
                let range = self.finding.range;
                let what = match process.is_registered(range) {
                    true => format!(
                        "an io_uring of this process has registered buffers here (/proc/{}/fdinfo)",
                        process.pid
                    ),
                    false => format!(
                        "{} of this process is pinned for device I/O (VmPin), most likely here: \
                         /proc does not show where",
                        process.pinned
                    ),
                };
                let command = format!(
                    "# stop the I/O that holds the pages (io_uring registered buffers, RDMA, \
                     vfio), then: {promote}"
                );
                (
                    format!("{what}. Pinned pages cannot be promoted"),
                    command.into(),
                )
            }
            _ => self.blocks(),
        }
    }

    /// Describes re-reading a file. The page cache creates folios of the readahead size (tested, see
    /// docs/internals/kernel-notes.md), and never drops a mapped page.
    fn read_again(&self) -> TextAndCommand {
        let (segment, name, page) = (self.segment, &self.name, &self.page);
        let kind = segment.file_system.as_ref();
        let kind = kind.map_or_else(String::new, |kind| format!(" ({kind})"));
        let text = format!(
            "{}{kind}. If it is read again with a readahead of {page}, most of it is on huge \
             pages. This stops {name}, reads up to {} from disk, and changes the readahead of the whole \
             device until a reboot",
            self.finding.reason.says(),
            segment.range.len()
        );
        let kib = self.case.pmd.map_or(0, |page| page.bytes().get() >> 10);
        let mut changes = Vec::new();
        let readahead = match segment.object {
            (0, ..) => format!("let its file system read {page} ahead; "),
            (major, minor, _) => {
                let file = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
                let step =
                    SettingChange::new(Setting::file(file), kib).in_scope(ChangeScope::Device);
                let step = step.next(self.case.host);
                changes = step.changes;
                format!("{}; ", step.command.trim_start_matches("# "))
            }
        };
        if segment.name.ends_with(" (deleted)") {
            return (text, NOTHING.into());
        }
        let file = shell_word(&segment.name);
        let command = format!(
            "# stop {name} and all others that map it; {readahead}dd if={file} iflag=nocache \
             count=0; cat {file} > /dev/null; start it"
        );
        (text, AdvisedCommand { command, changes })
    }

    /// Describes a host without a free block of huge-page size.
    fn blocks(&self) -> TextAndCommand {
        let (host, page, target) = (self.case.host, &self.page, self.case.target);
        let free = host.memory.free.get().unwrap_or_default();
        let joined = free - host.limits.min_free.get().unwrap_or_default();
        let text = format!(
            "no free block of {page} is left: {free} of memory is free, in smaller blocks. \
             Compaction could merge up to {joined} of it"
        );
        let needed = self.case.pmd.map_or(Bytes::ZERO, |p| p.bytes());
        let promote = format!("hugeleaf promote {target}");
        let next = match joined >= needed {
            true => self.then(advice::compaction(), &promote),
            false => advice::sequence([advice::dropped_caches(), advice::compaction()], host)
                .then(&promote),
        };
        (text, next)
    }

    /// Names the sharers of copy-on-write pages, as far as the process tree shows them.
    fn sharer(&self) -> String {
        let process = self.case.process;
        match process.children.as_slice() {
            [] => format!("its parent {}", process.parent),
            [child] => format!("its child {child}"),
            [first, rest @ ..] => format!("its child {first} and {} more", rest.len()),
        }
    }

    fn order(&self, f: &VerdictFigures) -> TextAndCommand {
        let (page, bytes, range) = (&self.page, self.finding.bytes, self.finding.range);
        let thp = self.case.host.thp.known();
        let fits =
            thp.and_then(|t| thp_settings::largest_that_fits(self.case, t, self.segment, range));
        let text = match fits {
            Some((size, true)) => format!(
                "too small for {page}; {size} pages are on, but allocated at first touch only: \
                 /proc does not show whether they were"
            ),
            Some((_, false)) => group_text::orders_off(bytes, f),
            None => format!("too small for {page}"),
        };
        let next = match self.finding.reason {
            Reason::OrdersOff => group_text::turn_size_on(bytes, f, &self.name),
            _ => format!("hugeleaf mem --orders {}", self.case.target).into(),
        };
        (text, next)
    }
}

// Reasons with a fixed sentence, or without a remedy.
impl ObstacleText<'_> {
    fn other(&self) -> TextAndCommand {
        let (reason, name, page) = (self.finding.reason, &self.name, &self.page);
        let text = match reason {
            Reason::Merged if !self.segment.merged.is_zero() => format!(
                "KSM merged {} of it with equal pages to save memory",
                self.segment.merged
            ),
            Reason::TooSmall => format!("no whole {page} page fits here"),
            Reason::PrivateFile => group_text::private_copies(match self.segment.name.as_str() {
                "" => "a file",
                name => name,
            }),
            Reason::TextUnsupported | Reason::FileNotCollapsed | Reason::NoLargeFolios => {
                let fs = self.segment.file_system.as_ref();
                let fs = fs.map_or_else(String::new, |fs| format!(" ({fs})"));
                reason.says().to_owned() + &fs
            }
            Reason::FileMisaligned => {
                format!("misaligned: address and file offset differ modulo {page}")
            }
            _ => reason.says().to_owned(),
        };
        let command = match reason {
            Reason::ProcessUnlessAdvised | Reason::TextNotCollapsed | Reason::FileNotCollapsed => {
                self.promote.clone()
            }
            Reason::NoHugeAdvised => format!(
                "# {name} must not call madvise(MADV_NOHUGEPAGE): see its settings and its \
                 allocator's"
            ),
            Reason::Userfaultfd => {
                format!(
                    "# let {name} finish with userfaultfd, then: {}",
                    self.promote
                )
            }
            Reason::FileMisaligned => format!(
                "# nothing to do from outside; a program can be linked with -Wl,-z,max-page-size={}",
                self.case.pmd.map_or(0, |p| p.bytes().get())
            ),
            Reason::NoThp => "# use a kernel with CONFIG_TRANSPARENT_HUGEPAGE".to_owned(),
            _ => NOTHING.to_owned(),
        };
        (text, command.into())
    }
}

/// Returns the unit to restart, quoted for a shell, if the process belongs to a system service.
fn service(process: &Process) -> Option<String> {
    let unit = process.unit.as_deref()?;
    is_service(unit).then(|| shell_word(unit))
}

/// Returns a step followed by the restart that it needs.
pub fn restart(step: Option<AdvisedCommand>, process: &Process) -> AdvisedCommand {
    let name = clean(&process.name);
    let command = service(process).map(|unit| format!("systemctl restart {unit}"));
    match (step, command) {
        (Some(step), Some(command)) => step.then(&command),
        (Some(step), None) => step.remark(&format!("then restart {name} once")),
        (None, Some(command)) => command.into(),
        (None, None) => format!("# restart {name} once").into(),
    }
}

/// Returns the instruction that the program must request pool pages and restart.
fn ask_for_them(process: &Process, size: Option<String>) -> String {
    let name = clean(&process.name);
    let size = size.map_or(String::new(), |size| format!("{size}, "));
    let how = PoolProgram::of(&name).map_or(String::new(), |p| format!(" ({size}{})", p.on));
    match service(process) {
        Some(unit) => format!("# make {name} ask for them{how}, then: systemctl restart {unit}"),
        None => format!("# make {name} ask for them{how}, then restart it once"),
    }
}

fn interval_millis(millis: u64) -> String {
    match millis {
        n if n % 1000 == 0 => interval(n / 1000),
        n => format!("{n} ms"),
    }
}
