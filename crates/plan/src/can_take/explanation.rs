//! Explains the number that decides, and remarks on the rest.

use std::fmt::Write;

use hugeleaf_host::demand::CacheNodes;
use hugeleaf_host::{HugetlbLimitKind, Pool};
use hugeleaf_units::{Bytes, PageSize, Pages};
use hugeleaf_verdict::advice::{ChangeScope, Setting, SettingChange, of_container, raised_limit};
use hugeleaf_verdict::findings::{AdvisedCommand, left_over};
use hugeleaf_verdict::reservation::Margin;
use hugeleaf_verdict::{clean, list};

use super::cache_case::CacheCase;
use super::causes::Cause;
use super::model::{
    CapacityCheck, CheckId, DecidingNumber, PlacedPages, find_mount, is_of_pool, pool_sizes,
    tightest_memory,
};
use super::placement::Placement;
use super::process_checks::REGISTRATION;

/// Formats bytes for a flag: rounded text only if it means the same number.
fn exact(bytes: Bytes) -> String {
    let text = bytes.to_string();
    match text.parse() == Ok(bytes) {
        true => text,
        false => format!("{bytes:#}"),
    }
}

impl CacheCase<'_> {
    pub(super) fn decides_yes(&self, checks: &[CapacityCheck]) -> DecidingNumber {
        let is_capacity = |check: &&CapacityCheck| check.id <= CheckId::CommitLimit;
        let capacity = checks.iter().filter(is_capacity);
        let tightest = capacity.min_by_key(|check| check.have - check.need);
        let (id, need, have, source) = tightest.map_or_else(
            || {
                let asked = self.request.bytes;
                (CheckId::Free, asked, asked, String::new())
            },
            |check| (check.id, check.need, check.have, check.source.clone()),
        );
        DecidingNumber {
            id,
            need,
            have,
            short: Bytes::ZERO,
            text: clean(&format!(
                "The cache needs {need}, and the tightest limit ({}: {source}) leaves {have}.",
                id.name()
            )),
            next: None,
        }
    }

    pub(super) fn decides_no(&self, check: &CapacityCheck) -> DecidingNumber {
        let cause = match check.id {
            CheckId::Free => self.cause(),
            CheckId::Reserved | CheckId::Node => {
                self.cause().filter(|cause| *cause == Cause::Rounding)
            }
            _ => None,
        };
        let (text, next) = match &cause {
            Some(cause) => self.explain_cause(cause, check),
            None => self.explain(check),
        };
        DecidingNumber {
            id: cause.map_or(check.id, |cause| self.id_of(&cause)),
            need: check.need,
            have: check.have,
            short: check.short(),
            text: clean(&text),
            next: Some(next),
        }
    }

    fn explain(&self, check: &CapacityCheck) -> (String, AdvisedCommand) {
        let (need, have, short) = (check.need, check.have, check.short());
        let sizes = list(pool_sizes(&self.rungs));
        let fits = format!("request at most {have}");
        match check.id {
            CheckId::PageSize => (
                format!(
                    "This kernel has no pages of {}.",
                    list(self.request.sizes.iter().map(|rung| rung.size))
                ),
                "hugeleaf status    # lists the page sizes of this kernel".into(),
            ),
            CheckId::Free => (
                format!(
                    "The cache needs {need} on pages of {sizes}, but {have} are free: {short} \
                     short."
                ),
                self.plan().into(),
            ),
            CheckId::Reserved => (
                format!(
                    "The cache needs {need} on pages of {sizes}. Other processes have reserved \
                     {}, which leaves {have}: {short} short.",
                    self.reserved()
                ),
                self.plan().into(),
            ),
            CheckId::Node => (self.explain_node(check), self.plan().into()),
            CheckId::MountSize => self.explain_mount(check),
            CheckId::CgroupReservations => self.explain_cgroup(HugetlbLimitKind::Reservations),
            CheckId::CgroupFaults => self.explain_cgroup(HugetlbLimitKind::Faults),
            CheckId::AvailableMemory => (
                format!(
                    "The cache needs {need}, but {have} is there ({}).",
                    check.source
                ),
                fits.into(),
            ),
            CheckId::CgroupMemory => self.explain_memory_cgroup(check),
            CheckId::CommitLimit => (
                format!(
                    "Strict overcommit (vm.overcommit_memory=2) leaves {have} below CommitLimit, \
                     and the cache needs {need}."
                ),
                fits.into(),
            ),
            _ => self.explain_process(check),
        }
    }

    fn explain_process(&self, check: &CapacityCheck) -> (String, AdvisedCommand) {
        let (need, have) = (check.need, check.have);
        match check.id {
            CheckId::AddressSpace => (
                format!("Each rank maps {need}, but its address space is limited to {have}."),
                "raise the limit: ulimit -v unlimited, or LimitAS=infinity in the unit".into(),
            ),
            CheckId::Memlock => (
                format!(
                    "Each rank pins {need}, but may lock {have} (RLIMIT_MEMLOCK) and has no \
                     CAP_IPC_LOCK."
                ),
                format!(
                    "raise the limit: ulimit -l {}, or LimitMEMLOCK={:#} in the unit",
                    need.get().div_ceil(1024),
                    need
                )
                .into(),
            ),
            CheckId::Registration => (
                format!(
                    "Each rank registers {need} in one call. NVIDIA's driver fails from \
                     {REGISTRATION} on, however much memory is free."
                ),
                format!(
                    "register it in pieces (--pin=64G), or use at least {} ranks",
                    self.request.bytes.get().div_ceil(have.get().max(1))
                )
                .into(),
            ),
            _ => (
                format!(
                    "Only {have} is available on base pages, and the rest of the host needs at \
                     least {need}: the kernel would kill processes."
                ),
                "hugeleaf plan --tighten    # frees pages of pools that nobody needs".into(),
            ),
        }
    }

    fn explain_cause(&self, cause: &Cause, check: &CapacityCheck) -> (String, AdvisedCommand) {
        let (need, have, short) = (check.need, check.have, check.short());
        let asked = exact(self.request.bytes);
        let sizes = list(pool_sizes(&self.rungs));
        match cause {
            Cause::Rounding => (
                format!(
                    "{have} would suffice for {}, but each of {} ranks is rounded up to whole \
                     pages of {sizes}, which makes {need}: {short} short.",
                    self.request.bytes,
                    self.ranks()
                ),
                "use ranks of whole pages, or add a smaller size: --sizes 1G,2M".into(),
            ),
            Cause::Leftovers => {
                let (text, command) = left_over(self.facts.host).unwrap_or_default();
                let text =
                    format!("The cache needs {need}, but {have} are free: {short} short. {text}");
                (text, command.into())
            }
            Cause::OtherSize(size) => {
                let free = self.facts.host.pool(*size).map(Pool::available);
                let free = free.unwrap_or_default().in_bytes(*size);
                let named = match self.id_of(cause) {
                    CheckId::DefaultSize => ", the default size",
                    _ => "",
                };
                (
                    format!(
                        "The cache needs {need} on pages of {sizes}, but {have} are free. The free \
                         pages are of {size}{named}: {free}."
                    ),
                    format!("hugeleaf verify --can-take {asked} --sizes {size}").into(),
                )
            }
            Cause::Overcommit => {
                let sizes: Vec<PageSize> = pool_sizes(&self.rungs).collect();
                let pools = self.facts.host.totals();
                let pools = pools.filter(|pool| sizes.contains(&pool.size));
                let more: Bytes = pools.map(|pool| pool.may_add().in_bytes(pool.size)).sum();
                (
                    format!(
                        "The cache needs {need}, but {have} are free. Overcommit may add {more} \
                         as surplus pages, which need contiguous free memory at that moment."
                    ),
                    self.plan().into(),
                )
            }
        }
    }

    /// Returns the memory in pools of the requested sizes that others have reserved.
    fn reserved(&self) -> Bytes {
        let pools = pool_sizes(&self.rungs).filter_map(|size| self.facts.host.pool(size));
        pools
            .map(|pool| pool.reserved.get().unwrap_or_default().in_bytes(pool.size))
            .sum()
    }

    fn explain_node(&self, check: &CapacityCheck) -> String {
        let host = self.facts.host;
        let sizes: Vec<PageSize> = pool_sizes(&self.rungs).collect();
        let free = |node: u32| -> Bytes {
            let of_node = host.pools.iter().filter(|p| p.node == Some(node));
            let of_sizes = of_node.filter(|p| sizes.contains(&p.size));
            of_sizes
                .map(|p| p.free.get().unwrap_or_default().in_bytes(p.size))
                .sum()
        };
        let reserved = self.reserved();
        let mut text = String::new();
        for share in &self.shares {
            let Some(node) = share.node else { continue };
            let (need, free) = (share.bytes * share.ranks, free(node));
            if free - reserved < need {
                let _ = write!(text, "Node {node} needs {need}, and {free} are free. ");
            }
        }
        if !reserved.is_zero() {
            let _ = write!(
                text,
                "Other processes have reserved {reserved}, and may take them from any node. "
            );
        }
        text + &format!("{} short.", check.short())
    }

    fn explain_mount(&self, check: &CapacityCheck) -> (String, AdvisedCommand) {
        let mount = find_mount(self.facts, self.request).ok().flatten();
        let (path, usage) = mount.map_or((String::new(), Bytes::ZERO), |mount| {
            (mount.path.clone(), mount.usage.get().unwrap_or_default())
        });
        let limit = mount.and_then(|mount| mount.limit).unwrap_or_default();
        let size = format!("size={:#}", usage + check.need);
        let change = SettingChange::new(Setting::mount(&path), size);
        (
            format!(
                "{path} is limited to {limit} (mount option size=), and {usage} are in use. The \
                 cache needs {}: {} short.",
                check.need,
                check.short()
            ),
            change.check(self.facts.host).into(),
        )
    }

    fn explain_cgroup(&self, kind: HugetlbLimitKind) -> (String, AdvisedCommand) {
        let limits = self.facts.limits;
        let placed = self.place(&[]);
        let needs = |size: PageSize| -> Bytes {
            let of_size = placed.pages.iter().filter(|p| p.page == size);
            of_size.map(PlacedPages::bytes).sum()
        };
        let mut sizes = pool_sizes(&self.rungs);
        let found = sizes.find_map(|size| {
            let (group, limit) = limits.tightest(size, kind)?;
            (limit.room(kind)? < needs(size)).then_some((size, group, limit))
        });
        let Some((size, group, limit)) = found else {
            let text = "A cgroup limits pages of the pools.".to_owned();
            return (text, "hugeleaf status    # lists limits of cgroups".into());
        };
        let allowed = limit.limit(kind).get().flatten().unwrap_or_default();
        let (usage, need) = (limit.usage(kind), needs(size));
        let (name, then) = match kind {
            HugetlbLimitKind::Reservations => ("reservations", "mmap(2) fails"),
            HugetlbLimitKind::Faults => ("faults", "the first touch beyond it ends in SIGBUS"),
        };
        let to = usage + need;
        let next = match limits.is_in_container {
            true => of_container(size, Some(to), "").into(),
            false => {
                let setting = Setting::file(group.limit_file(size, kind));
                let change = SettingChange::new(setting, format!("{to:#}"));
                let change = change.from(allowed.get()).in_scope(ChangeScope::Cgroup);
                change.check(self.facts.host).into()
            }
        };
        (
            format!(
                "cgroup {} limits {name} of pages of {size} to {allowed}, and {usage} are in use. \
                 The cache needs {need}: {then}.",
                group.path
            ),
            next,
        )
    }

    fn explain_memory_cgroup(&self, check: &CapacityCheck) -> (String, AdvisedCommand) {
        let Some(limit) = tightest_memory(self.facts.limits) else {
            return (String::new(), "hugeleaf status".into());
        };
        let counts = match self.facts.limits.memory_counts_pools {
            true => ", which counts pages of pools too (memory_hugetlb_accounting)",
            false => "",
        };
        let raised = Bytes(limit.limit.get() + check.short().get());
        (
            format!(
                "Memory cgroup {} is limited to {}{counts}, and {} of it are in use. The cache \
                 needs {}: {} short.",
                limit.path,
                limit.limit,
                limit.usage,
                check.need,
                check.short()
            ),
            raised_limit(&limit.file, raised, self.facts.limits.is_in_container),
        )
    }

    /// Returns the command that plans pools for this cache.
    fn plan(&self) -> String {
        let request = self.request;
        let mut command = format!("hugeleaf plan --host-cache {}", exact(request.bytes));
        if self.ranks() > 1 {
            let _ = write!(command, " --ranks {}", self.ranks());
        }
        match request.nodes {
            CacheNodes::Any => {}
            CacheNodes::One(node) => {
                let _ = write!(command, " --node {node}");
            }
            CacheNodes::Each => command += " --node-each",
        }
        let sizes: Vec<PageSize> = pool_sizes(&request.sizes).collect();
        let _ = write!(command, " --sizes {}", list(sizes).replace(", ", ","));
        command
    }

    /// Returns remarks that do not change the answer.
    pub(super) fn notes(&self, whole: &Placement, last: &Placement) -> Vec<String> {
        let lines = [
            self.lacking_sizes(),
            self.wasteful(whole),
            self.by_default(),
            self.few_base_pages(last),
            self.long_registration(whole),
            self.uncounted_surplus(),
            self.limits_above(),
        ];
        let lines = lines.into_iter().flatten();
        lines.map(|line| clean(&line)).collect()
    }

    fn lacking_sizes(&self) -> Option<String> {
        let asked = self.request.sizes.iter();
        let lacking = asked.filter(|rung| !self.rungs.contains(rung));
        let lacking = list(lacking.map(|rung| rung.size));
        (!lacking.is_empty() && !self.rungs.is_empty())
            .then(|| format!("this host has no pages of {lacking}: the next size takes its part"))
    }

    fn wasteful(&self, whole: &Placement) -> Option<String> {
        /// Waste of more than one part in this many is worth a remark.
        const WASTE: u64 = 50;
        let waste = self.waste(whole);
        (waste * WASTE > self.request.bytes && !self.rungs.is_empty()).then(|| {
            let ranks = self.ranks();
            let each = self.rank_bytes(whole);
            format!("rounding adds {waste}: each of {ranks} ranks takes {each} in whole pages")
        })
    }

    /// Warns that interfaces without a page size mean the default one.
    fn by_default(&self) -> Option<String> {
        let default = self.facts.host.memory.default_hugetlb_page.get()?;
        let mut sizes = pool_sizes(&self.rungs).peekable();
        sizes.peek()?;
        (!sizes.any(|size| size == default)).then(|| {
            format!(
                "the default size is {default}: MAP_HUGETLB without a size, and HugePages_Free in \
                 /proc/meminfo, mean that pool"
            )
        })
    }

    fn few_base_pages(&self, last: &Placement) -> Option<String> {
        let (total, _) = hugeleaf_verdict::reservation::used(self.facts.host).ok()?;
        let left = self.facts.host.memory.available.get()? - last.on_thp();
        let margin = Margin::usual(total);
        (left < margin && left >= Margin::forced_minimum(total)).then(|| {
            format!(
                "{left} is available on base pages, less than the margin of a plan ({margin}); a \
                 check of MemAvailable would refuse the cache, though it takes none of it"
            )
        })
    }

    fn long_registration(&self, whole: &Placement) -> Option<String> {
        let each = self.rank_bytes(whole);
        (self.request.pin.is_none() && each >= REGISTRATION).then(|| {
            format!(
                "a rank of {each} cannot be registered with NVIDIA's driver in one call \
                 ({REGISTRATION} or more); --pin judges that too"
            )
        })
    }

    fn uncounted_surplus(&self) -> Option<String> {
        let sizes: Vec<PageSize> = pool_sizes(&self.rungs).collect();
        let pools = self.facts.host.totals();
        let with = |pool: &&Pool| sizes.contains(&pool.size) && pool.may_add() > Pages(0);
        let more: Vec<String> = pools
            .filter(with)
            .map(|pool| format!("{} pages of {}", pool.may_add(), pool.size))
            .collect();
        (!more.is_empty()).then(|| {
            let more = list(more);
            format!(
                "overcommit could add {more}; they are not counted, because nothing reserves them"
            )
        })
    }

    fn limits_above(&self) -> Option<String> {
        let limits = self.facts.limits;
        let asks = self.rungs.iter().any(is_of_pool);
        (limits.is_in_container && asks).then(|| {
            "limits of cgroups above this container are not visible here; they bind it too"
                .to_owned()
        })
    }
}
