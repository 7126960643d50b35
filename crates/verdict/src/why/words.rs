//! Findings in words: a sentence with the values met, and the one thing to do next.

use hugeleaf_host::{Limited, Process, Segment, ThpUse};
use hugeleaf_units::{Bytes, PageSize};

use crate::eligible::{Kind, tmpfs_mount};
use crate::findings::shell_word;

use super::segment::{Finding, Found};
use super::setting;
use super::sums::name_of;
use super::{Account, Case, Figures, Reason, Remedy, Verdict, hugetlb, sums};

/// Puts what was found of a segment in words.
pub fn put(case: &Case<'_>, segment: &Segment, found: Found) -> Account {
    let verdicts = found.findings.iter().map(|finding| {
        let words = Words {
            case,
            segment,
            finding,
        };
        Verdict {
            id: finding.reason,
            role: segment.role,
            name: segment.name.clone(),
            range: finding.range,
            bytes: finding.bytes,
            text: words.text(),
            command: words.command(),
            figures: words.figures(),
        }
    });
    Account {
        range: segment.range,
        resident: found.resident,
        large: found.large,
        small: found.small,
        verdicts: verdicts.collect(),
    }
}

struct Words<'a> {
    case: &'a Case<'a>,
    segment: &'a Segment,
    finding: &'a Finding,
}

impl Words<'_> {
    fn figures(&self) -> Figures {
        let f = self.finding;
        Figures {
            missing: f.missing,
            swapped: f.swapped,
            least_percent: f.least_percent,
            is_host_wide: match f.reason {
                Reason::ShmemDeny | Reason::ShmemSizeOff | Reason::NoContiguous => true,
                Reason::Misaligned => !setting::shmem_places_well(self.case, self.segment),
                Reason::Memlock => self.group_for_pools().is_some(),
                _ => false,
            },
            promote: self.promote(),
            sharer: match f.reason {
                Reason::CopyOnWrite => self.sharer(),
                _ => String::new(),
            },
            room: super::segment::room(self.case),
            off_sizes: match f.reason {
                Reason::OrdersOff => setting::off_sizes(self.case, self.segment, f.range, f.bytes),
                _ => Vec::new(),
            },
        }
    }

    /// The size of a large page, for sentences.
    fn page(&self) -> String {
        self.case
            .pmd
            .map_or_else(|| "a large page".to_owned(), |p| p.to_string())
    }

    fn text(&self) -> String {
        use Reason::*;
        let f = self.finding;
        match f.reason {
            ThpNever | NotAdvised | SmallSteps | ProcessDisabled | Unknown => {
                self.text_of_setting()
            }
            ShmemNever | ShmemNotAdvised | Misaligned | ShmemDeny | ShmemSizeOff => {
                self.text_of_shared()
            }
            ShmGroup | Memlock | CgroupReservation | PoolShort | CgroupFault | PoolUnused => {
                self.text_of_pool()
            }
            PartlyResident => sums::partly_resident(f.bytes, &self.figures()),
            PartlyMapped => sums::partly_mapped(f.bytes, &self.figures()),
            Sparse => sums::sparse(f.bytes, &self.figures()),
            Swapped => sums::swapped(f.bytes, &self.figures()),
            CopyOnWrite => sums::copy_on_write(&format!("with {}", self.sharer()), f.bytes),
            CgroupMemory => sums::cgroup_memory(&self.figures()),
            Merged | Locked | Pinned | NoContiguous => self.text_of_pages(),
            TooSmall => format!("no whole {} page fits here", self.page()),
            OrdersOff | OrderAtFault => self.text_of_order(),
            PrivateFile => sums::private_copies(match self.segment.name.as_str() {
                "" => "a file",
                name => name,
            }),
            TextUnsupported | FileNotCollapsed | NoLargeFolios | SmallFolios => {
                f.reason.says().to_owned() + &self.on_file_system()
            }
            FileMisaligned => format!(
                "the file is mapped where its offset does not fit {} pages",
                self.page()
            ),
            _ => f.reason.says().to_owned(),
        }
    }

    fn command(&self) -> String {
        use Reason::*;
        let target = self.case.target;
        match self.finding.reason {
            ThpNever | NotAdvised | ProcessUnlessAdvised | SmallSteps | ShmemNever
            | ShmemNotAdvised | TextNotCollapsed | FileNotCollapsed | Unknown => {
                format!("hugeleaf promote {target}")
            }
            Swapped if self.finding.bytes.is_zero() => {
                format!("# once it is back in memory: hugeleaf promote {target}")
            }
            PartlyResident | Swapped | PartlyMapped => self.promote_and_grow(),
            ProcessDisabled => self.enable_thp(),
            Misaligned => self.place_well(),
            ShmemDeny => format!(
                "echo never > {} && hugeleaf promote {target}",
                ThpUse::Shared.file()
            ),
            ShmemSizeOff => {
                let (path, _) = self.case.host.thp_setting(ThpUse::Shared);
                format!("echo inherit > {path} && hugeleaf promote {target}")
            }
            ShmGroup | Memlock | CgroupReservation | PoolShort | CgroupFault | PoolUnused => {
                self.command_of_pool()
            }
            CopyOnWrite => sums::once_ended(&format!("{} has", self.sharer()), &self.figures()),
            NoContiguous => self.make_room(),
            CgroupMemory => sums::promote_within(&self.figures(), Bytes::ZERO, &self.promote()),
            _ => self.comment(),
        }
    }
}

// Settings.
impl Words<'_> {
    fn text_of_setting(&self) -> String {
        let (path, _) = self.case.host.thp_setting(ThpUse::Private);
        let page = self.page();
        match self.finding.reason {
            Reason::ThpNever => {
                format!("THP is off on this host ({path} is never); promotion works all the same")
            }
            Reason::NotAdvised => format!(
                "THP is for advised memory only ({path} is madvise), and the program did not \
                 advise this; promotion works all the same"
            ),
            Reason::SmallSteps => format!(
                "THP is on, but this memory came in steps smaller than {page} or was split since, \
                 and khugepaged has not been here: {}{}",
                self.khugepaged(),
                self.at_growth()
            ),
            Reason::ProcessDisabled => self.text_of_disabled(),
            _ => format!("the setting could not be read: {}", self.unread()),
        }
    }

    fn text_of_disabled(&self) -> String {
        let name = name_of(self.case.process);
        let lasting = match name.starts_with("redis") || name.starts_with("valkey") {
            true => "'disable-thp no' in its configuration lasts past a restart",
            false => "it is for the program's settings to make that last past a restart",
        };
        format!(
            "the process switched THP off for itself with prctl(PR_SET_THP_DISABLE) (THP_enabled: \
             0 in its status), and promotion goes by that. The command makes {name} take it back \
             until it ends. {lasting}"
        )
    }

    /// Why a setting of THP is not known.
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

    /// When khugepaged would have been everywhere once.
    fn khugepaged(&self) -> String {
        let host = self.case.host;
        let Some(k) = host.thp.known().map(|t| &t.khugepaged) else {
            return "nothing is known of it".to_owned();
        };
        let (Some(pages), Some(sleep)) = (k.pages_to_scan.get(), k.scan_sleep_millis.get()) else {
            return "its settings could not be read".to_owned();
        };
        let each = pages.of(host.base_page);
        if each.is_zero() {
            return "it is set to scan nothing".to_owned();
        }
        let huge = host.memory.anon_huge.get().unwrap_or_default();
        let to_scan = host
            .memory
            .anon
            .get()
            .map_or(self.case.process.resident_anon, |anon| anon - huge);
        let rounds = to_scan.get().div_ceil(each.get()).max(1);
        let seconds = rounds.saturating_mul(sleep) / 1000;
        format!(
            "it scans {each} every {}, so with {to_scan} of this host's memory to scan it takes \
             up to {}",
            duration_millis(sleep),
            duration(seconds)
        )
    }

    /// What would have been large from the start: private memory of a program under `hugeleaf run`.
    fn at_growth(&self) -> &'static str {
        let is_run = self.case.process.run.known().is_some();
        match (Kind::of(self.segment) == Kind::Private) && !is_run {
            true => ". Started under `hugeleaf run`, the program gets large pages as it grows",
            false => "",
        }
    }

    /// Only the process itself can take the call back, and is made to (see the notes on programs in
    /// docs/internals/kernel-notes.md).
    fn enable_thp(&self) -> String {
        format!("hugeleaf promote --switch-thp-on {}", self.case.target)
    }
}

// Shared memory.
impl Words<'_> {
    fn text_of_shared(&self) -> String {
        let page = self.page();
        let knob = ThpUse::Shared.file();
        let (path, own) = self.case.host.thp_setting(ThpUse::Shared);
        let value = setting::shmem_top(self.case).unwrap_or("unknown");
        match self.finding.reason {
            Reason::ShmemNever => match tmpfs_mount(self.segment) {
                Some(folder) => format!(
                    "the tmpfs on {folder} is mounted without huge=; the address fits, so \
                     promotion can move it"
                ),
                None => format!(
                    "large pages for shared memory are off ({path} is never); the address fits, so \
                     promotion can move it"
                ),
            },
            Reason::ShmemNotAdvised => format!(
                "large pages for shared memory are for advised memory only ({}), and the \
                 program did not advise this; the address fits, so promotion can move it",
                match tmpfs_mount(self.segment) {
                    Some(folder) => format!("the tmpfs on {folder} is mounted with huge=advise"),
                    None => format!("{path} is advise"),
                }
            ),
            Reason::ShmemDeny => {
                format!("{knob} is deny, which forbids large pages in shared memory altogether")
            }
            Reason::ShmemSizeOff => format!(
                "{path} is {}, and promotion of shared memory goes by that one",
                own.unwrap_or_default()
            ),
            _ => match tmpfs_mount(self.segment) {
                Some(folder) if setting::shmem_places_well(self.case, self.segment) => format!(
                    "mapped at an address that does not fit {page} pages, while the tmpfs on \
                     {folder} was mounted without huge=; it has huge={} now. It cannot be \
                     promoted before a restart",
                    self.segment.mount_huge.as_deref().unwrap_or(value)
                ),
                Some(folder) => format!(
                    "mapped at an address that does not fit {page} pages: the tmpfs on {folder} \
                     was mounted without huge= then. It cannot be promoted before a restart"
                ),
                None if setting::shmem_places_well(self.case, self.segment) => format!(
                    "mapped at an address that does not fit {page} pages, while {knob} was never; \
                     it is {value} now. It cannot be promoted before a restart"
                ),
                None => format!(
                    "mapped at an address that does not fit {page} pages, because {knob} is \
                     {value}. It cannot be promoted before a restart"
                ),
            },
        }
    }

    fn place_well(&self) -> String {
        let process = self.case.process;
        if setting::shmem_places_well(self.case, self.segment) {
            return restart(None, process);
        }
        let knob = match tmpfs_mount(self.segment) {
            Some(folder) => format!("mount -o remount,huge=advise {}", shell_word(folder)),
            None => format!("echo advise > {}", ThpUse::Shared.file()),
        };
        restart(Some(knob), process)
    }
}

// Pools.
impl Words<'_> {
    fn text_of_pool(&self) -> String {
        let Some(pool) = hugetlb::pool(self.case, self.segment) else {
            return "no pool".to_owned();
        };
        let (size, len) = (pool.size, self.segment.range.len());
        let need = size.pages_for(len);
        let had = hugetlb::available(pool);
        match self.finding.reason {
            Reason::PoolShort => format!(
                "the pool of {size} pages is {} pages short: this segment needs {need}, and {had} \
                 are free and not promised",
                hugetlb::short(pool, self.segment)
            ),
            Reason::CgroupReservation | Reason::CgroupFault => self.text_of_cgroup(size),
            Reason::ShmGroup => format!(
                "SysV memory on {size} pages is for group {} (vm.hugetlb_shm_group), which this \
                 process is not in; its memlock limit of {} does not stand in for that",
                self.case.host.limits.hugetlb_shm_group.get().unwrap_or(0),
                self.memlock()
            ),
            Reason::Memlock => format!(
                "SysV memory on {size} pages counts against the memlock limit, which is {} for \
                 this process and must be {len}",
                self.memlock()
            ),
            _ => format!(
                "the pool has {had} free pages of {size}, enough for the {need} of this segment: \
                 the program did not ask for them, or started before they were there"
            ),
        }
    }

    fn text_of_cgroup(&self, size: PageSize) -> String {
        let len = self.segment.range.len();
        let of = self.limited();
        let tightest = hugetlb::tightest(self.case, size, of);
        let path = tightest.map_or("", |(g, _)| g.path.as_str());
        let left = tightest.and_then(|(_, l)| l.room(of)).unwrap_or_default();
        let (may, then) = match of {
            Limited::Reservations => ("reserve", "fails"),
            Limited::Faults => ("touch", "succeeds, and touching it ends in SIGBUS"),
        };
        format!(
            "cgroup {path} may {may} {left} more on {size} pages, and this segment needs {len}: \
             mapping it on them {then}"
        )
    }

    /// What the limit counts that stands in the way.
    fn limited(&self) -> Limited {
        match self.finding.reason {
            Reason::CgroupReservation => Limited::Reservations,
            _ => Limited::Faults,
        }
    }

    fn memlock(&self) -> Bytes {
        self.case.process.memlock.get().unwrap_or_default()
    }

    fn command_of_pool(&self) -> String {
        let process = self.case.process;
        let Some(pool) = hugetlb::pool(self.case, self.segment) else {
            return self.comment();
        };
        let len = self.segment.range.len();
        let step = match self.finding.reason {
            Reason::PoolShort => {
                let pid = process.pid;
                format!("hugeleaf plan {pid} --output pages.toml && hugeleaf apply pages.toml")
            }
            Reason::CgroupReservation | Reason::CgroupFault => {
                return self.raise_limit(pool.size);
            }
            Reason::ShmGroup => {
                let group = self.case.host.limits.hugetlb_shm_group.get().unwrap_or(0);
                return format!(
                    "usermod -aG $(getent group {group} | cut -d: -f1) $(id -nu {})    # then \
                     restart {}",
                    process.uid,
                    name_of(process)
                );
            }
            Reason::Memlock => match self.group_for_pools() {
                Some(group) => format!("sysctl -w vm.hugetlb_shm_group={group}"),
                None => {
                    return format!(
                        "# raise the memlock limit to {len} (systemd: LimitMEMLOCK={}), then \
                             restart {}",
                        len.get(),
                        name_of(process)
                    );
                }
            },
            _ => return ask_for_them(process),
        };
        restart(Some(step), process)
    }

    /// A group of the process that could be let at pools.
    fn group_for_pools(&self) -> Option<u64> {
        self.case.process.groups.iter().copied().find(|g| *g != 0)
    }

    fn raise_limit(&self, size: PageSize) -> String {
        let of = self.limited();
        let Some((group, limit)) = hugetlb::tightest(self.case, size, of) else {
            return self.comment();
        };
        let need = limit.usage(of) + self.segment.range.len();
        let most = size.pages_for(need).of(size).get();
        let file = shell_word(&group.limit_file(size, of));
        restart(Some(format!("echo {most} > {file}")), self.case.process)
    }
}

// Pages.
impl Words<'_> {
    fn text_of_pages(&self) -> String {
        let (page, f) = (self.page(), self.finding);
        match f.reason {
            Reason::Merged => match self.segment.merged {
                Bytes::ZERO => f.reason.says().to_owned(),
                merged => format!("KSM merged {merged} of it with equal pages to save memory"),
            },
            Reason::Locked => format!(
                "mlock of a part cut the mapping here, in the middle of {page}: a large page \
                 cannot lie in two mappings"
            ),
            Reason::Pinned if super::segment::is_registered(self.case, f.range) => format!(
                "an io_uring of this process has registered buffers here (/proc/{}/fdinfo). Pinned \
                 pages cannot move",
                self.case.process.pid
            ),
            Reason::Pinned => format!(
                "{} of this process is pinned for device I/O (VmPin), most likely here: /proc does \
                 not say where. Pinned pages cannot move",
                self.case.process.pinned
            ),
            _ => self.text_of_blocks(),
        }
    }

    fn text_of_blocks(&self) -> String {
        let host = self.case.host;
        let page = self.page();
        let free = host.memory.free.get().unwrap_or_default();
        let kept = host.limits.min_free.get().unwrap_or_default();
        format!(
            "no free block of {page} is left: {free} of memory are free, in smaller blocks. \
             Compaction could join up to {} of that",
            free - kept
        )
    }

    fn make_room(&self) -> String {
        let host = self.case.host;
        let free = host.memory.free.get().unwrap_or_default();
        let kept = host.limits.min_free.get().unwrap_or_default();
        let page = self.case.pmd.map_or(Bytes::ZERO, |p| p.bytes());
        let target = self.case.target;
        if free - kept >= page {
            format!("echo 1 > /proc/sys/vm/compact_memory && hugeleaf promote {target}")
        } else {
            format!(
                "sync && echo 1 > /proc/sys/vm/drop_caches && echo 1 > \
                 /proc/sys/vm/compact_memory    # then: hugeleaf promote {target}"
            )
        }
    }

    fn promote_and_grow(&self) -> String {
        let figures = self.figures();
        let adds = figures.missing + figures.swapped;
        sums::promote_within(&figures, adds, &figures.promote)
    }

    /// The bare promotion of this memory.
    fn promote(&self) -> String {
        let target = self.case.target;
        if self.finding.reason.remedy() != Remedy::PromoteAndGrow {
            return format!("hugeleaf promote {target}");
        }
        // Rounded down to tens: a figure to type, not one to measure by. Promotion goes by single
        // pages, so the emptiest one decides.
        let percent = (self.finding.least_percent / 10 * 10).max(10);
        format!("hugeleaf promote --min-resident {percent}% {target}")
    }

    /// Who shares pages copy-on-write, as far as the family tells.
    fn sharer(&self) -> String {
        let process = self.case.process;
        match process.children.as_slice() {
            [] => format!("its parent {}", process.parent),
            [child] => format!("its child {child}"),
            [first, rest @ ..] => format!("its child {first} and {} more", rest.len()),
        }
    }
}

// Where nothing is to be done, or nothing that is a command.
impl Words<'_> {
    fn text_of_order(&self) -> String {
        let page = self.page();
        match self.order() {
            Some((size, true)) => format!(
                "too small for {page}; {size} pages are on, and given at first touch only: /proc \
                 does not tell whether they were"
            ),
            Some((_, false)) => sums::orders_off(self.finding.bytes, &self.figures()),
            None => format!("too small for {page}"),
        }
    }

    fn order(&self) -> Option<(PageSize, bool)> {
        let thp = self.case.host.thp.known()?;
        setting::largest_that_fits(self.case, thp, self.segment, self.finding.range)
    }

    fn on_file_system(&self) -> String {
        let fs = self.segment.file_system.as_ref();
        fs.map_or_else(String::new, |fs| format!(" ({fs})"))
    }

    /// What to do, where that is no command.
    fn comment(&self) -> String {
        let (page, process) = (self.page(), self.case.process);
        let name = name_of(process);
        match self.finding.reason {
            Reason::NoHugeAdvised => format!(
                "# {name} must not call madvise(MADV_NOHUGEPAGE): see its settings and its \
                 allocator's"
            ),
            Reason::Userfaultfd => {
                format!(
                    "# let {name} finish with userfaultfd, then: hugeleaf promote {}",
                    self.case.target
                )
            }
            Reason::Locked => {
                format!(
                    "# {name} must lock whole {page} pages, or all of it: mlockall(MCL_CURRENT)"
                )
            }
            Reason::Pinned => format!(
                "# stop the I/O that holds the pages (io_uring registered buffers, RDMA, vfio), \
                 then: hugeleaf promote {}",
                self.case.target
            ),
            Reason::OrdersOff => sums::turn_size_on(self.finding.bytes, &self.figures(), &name),
            Reason::OrderAtFault => format!("hugeleaf mem --orders {}", self.case.target),
            Reason::FileMisaligned => format!(
                "# nothing to do from outside; a program can be linked with -Wl,-z,max-page-size={}",
                self.case.pmd.map_or(0, |p| p.bytes().get())
            ),
            Reason::SmallFolios => "# nothing to do from outside; the program can advise \
                                      MADV_HUGEPAGE before its first read"
                .to_owned(),
            Reason::NoThp => "# a kernel with CONFIG_TRANSPARENT_HUGEPAGE".to_owned(),
            _ => "# nothing to do".to_owned(),
        }
    }
}

/// The unit to restart, as a shell takes it, where the process belongs to a service of the system.
fn service(process: &Process) -> Option<String> {
    let unit = process.unit.as_deref()?;
    (unit.ends_with(".service") && !unit.starts_with("user@")).then(|| shell_word(unit))
}

/// A step, and the one restart that it takes.
pub fn restart(step: Option<String>, process: &Process) -> String {
    let name = name_of(process);
    match (step, service(process)) {
        (Some(step), Some(unit)) => format!("{step} && systemctl restart {unit}"),
        (Some(step), None) => format!("{step}    # then restart {name} once"),
        (None, Some(unit)) => format!("systemctl restart {unit}"),
        (None, None) => format!("# restart {name} once"),
    }
}

/// The program must ask for pages of the pool, and start again.
fn ask_for_them(process: &Process) -> String {
    let name = name_of(process);
    let setting = hugetlb::ASKING.iter().find(|(n, _)| name.starts_with(n));
    let how = setting.map_or_else(String::new, |(_, setting)| format!(" ({setting})"));
    match service(process) {
        Some(unit) => format!("# let {name} ask for them{how}, then: systemctl restart {unit}"),
        None => format!("# let {name} ask for them{how}, then restart it once"),
    }
}

/// Seconds as people say them: the two largest units.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn duration_millis(millis: u64) -> String {
    match millis {
        n if n % 1000 == 0 => duration(n / 1000),
        n => format!("{n} ms"),
    }
}
