//! The processor as `/proc/cpuinfo` describes it, and its events for TLB misses and page-table walks. Pure: only
//! opening an event shows if this machine supports it.
//!
//! Sources of the numbers: the vendors' event lists in the kernel tree (`tools/perf/pmu-events/arch`, selected by
//! its `mapfile.csv`), and the kernel's own generic events (`arch/x86/events`). Intel's and AMD's numbers are the
//! event code, the unit mask at bit 8 and the counter mask at bit 24. Arm's numbers are architectural, the same on
//! every core that has them.

use crate::CounterKind;

/// The identity of a processor in `/proc/cpuinfo`; the first one if they differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processor {
    /// `vendor_id`, on x86.
    pub vendor: Option<String>,
    /// `cpu family`.
    pub family: Option<u32>,
    /// `model`.
    pub model: Option<u32>,
    /// `model name`.
    pub name: Option<String>,
    /// `CPU implementer`, on Arm.
    pub implementer: Option<String>,
}

impl Processor {
    /// Parses the text of `/proc/cpuinfo`. Missing fields are `None`.
    pub fn parse(cpuinfo: &str) -> Processor {
        let field = |name: &str| {
            let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
            Some(value.trim().to_owned())
        };
        let number = |name: &str| field(name)?.parse().ok();
        Processor {
            vendor: field("vendor_id"),
            family: number("cpu family"),
            model: number("model"),
            name: field("model name"),
            implementer: field("CPU implementer"),
        }
    }
}

/// True if `/proc/cpuinfo` reports a hypervisor; `None` without x86's line of flags.
pub fn is_virtual(cpuinfo: &str) -> Option<bool> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let (_, flags) = fields.find(|(name, _)| name.trim() == "flags")?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HardwareEvent {
    Cycles,
    Instructions,
    /// Misses of the data TLB. The TLB level, and the inclusion of stores, depend on the processor.
    DataMisses,
    DataLastMisses,
    CodeMisses,
    DataWalks,
    CodeWalks,
    LoadWalkCycles,
    StoreWalkCycles,
    /// Cycles of data walks, loads and stores together.
    DataWalkCycles,
    CodeWalkCycles,
}

impl HardwareEvent {
    /// Returns the name in files, the same for all processors.
    pub const fn name(self) -> &'static str {
        match self {
            HardwareEvent::Cycles => "cycles",
            HardwareEvent::Instructions => "instructions",
            HardwareEvent::DataMisses => "dtlb_load_misses",
            HardwareEvent::DataLastMisses => "dtlb_l2_misses",
            HardwareEvent::CodeMisses => "itlb_misses",
            HardwareEvent::DataWalks => "page_walks_data",
            HardwareEvent::CodeWalks => "page_walks_code",
            HardwareEvent::LoadWalkCycles => "page_walk_cycles_loads",
            HardwareEvent::StoreWalkCycles => "page_walk_cycles_stores",
            HardwareEvent::DataWalkCycles => "page_walk_cycles_data",
            HardwareEvent::CodeWalkCycles => "page_walk_cycles_code",
        }
    }

    /// True for walk cycles. The sum of these events of a processor is its total of walk cycles.
    pub const fn is_walk_cycles(self) -> bool {
        matches!(
            self,
            HardwareEvent::LoadWalkCycles
                | HardwareEvent::StoreWalkCycles
                | HardwareEvent::DataWalkCycles
                | HardwareEvent::CodeWalkCycles
        )
    }

    pub const fn is_walks(self) -> bool {
        matches!(self, HardwareEvent::DataWalks | HardwareEvent::CodeWalks)
    }

    /// True if first touches of data must change the count.
    pub const fn is_of_data(self) -> bool {
        !matches!(
            self,
            HardwareEvent::CodeMisses | HardwareEvent::CodeWalks | HardwareEvent::CodeWalkCycles
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessorEvent {
    pub event: HardwareEvent,
    /// The vendor's name, or the kernel's for a generic event.
    pub name: &'static str,
    pub kind: CounterKind,
}

const fn event(counts: HardwareEvent, name: &'static str, kind: CounterKind) -> ProcessorEvent {
    ProcessorEvent {
        event: counts,
        name,
        kind,
    }
}

const fn raw(counts: HardwareEvent, name: &'static str, config: u64) -> ProcessorEvent {
    event(counts, name, CounterKind::Raw(config))
}

/// Generic kernel events: read misses of the data TLB (3) and of the instruction TLB (4).
const DATA_MISSES: ProcessorEvent = event(
    HardwareEvent::DataMisses,
    "dTLB-load-misses",
    CounterKind::Cache(3 | 1 << 16),
);
const CODE_MISSES: ProcessorEvent = event(
    HardwareEvent::CodeMisses,
    "iTLB-load-misses",
    CounterKind::Cache(4 | 1 << 16),
);

/// Cycles and instructions, which the kernel supports on every processor.
pub const CYCLES: ProcessorEvent = event(HardwareEvent::Cycles, "cycles", CounterKind::Cycles);
/// See [`CYCLES`].
pub const INSTRUCTIONS: ProcessorEvent = event(
    HardwareEvent::Instructions,
    "instructions",
    CounterKind::Instructions,
);

/// Creates Intel's walk-cycle events for loads, stores and code.
const fn walk_cycles(names: [&'static str; 3], numbers: [u64; 3]) -> [ProcessorEvent; 3] {
    [
        raw(HardwareEvent::LoadWalkCycles, names[0], numbers[0]),
        raw(HardwareEvent::StoreWalkCycles, names[1], numbers[1]),
        raw(HardwareEvent::CodeWalkCycles, names[2], numbers[2]),
    ]
}

const DURATIONS: [&str; 3] = [
    "DTLB_LOAD_MISSES.WALK_DURATION",
    "DTLB_STORE_MISSES.WALK_DURATION",
    "ITLB_MISSES.WALK_DURATION",
];
/// Later processors: cycles with at least one walk. Without the counter mask the event would count walks times
/// cycles.
const ACTIVE: [&str; 3] = [
    "DTLB_LOAD_MISSES.WALK_ACTIVE",
    "DTLB_STORE_MISSES.WALK_ACTIVE",
    "ITLB_MISSES.WALK_ACTIVE",
];

const SANDY_BRIDGE: [ProcessorEvent; 3] = walk_cycles(DURATIONS, [0x0408, 0x0449, 0x0485]);
const IVY_BRIDGE: [ProcessorEvent; 3] = walk_cycles(DURATIONS, [0x8408, 0x0449, 0x0485]);
const HASWELL: [ProcessorEvent; 3] = walk_cycles(DURATIONS, [0x1008, 0x1049, 0x1085]);
const SKYLAKE: [ProcessorEvent; 3] = walk_cycles(ACTIVE, [0x0100_1008, 0x0100_1049, 0x0100_1085]);
/// Golden Cove and later (Alder Lake, Sapphire Rapids). On hybrid processors, the performance cores.
const GOLDEN_COVE: [ProcessorEvent; 3] =
    walk_cycles(ACTIVE, [0x0100_1012, 0x0100_1013, 0x0100_1011]);

/// Events of all Zen processors, which count walks but not walk cycles.
const ZEN: [ProcessorEvent; 2] = [
    raw(HardwareEvent::DataMisses, "ls_l1_d_tlb_miss.all", 0xff45),
    raw(
        HardwareEvent::DataLastMisses,
        "ls_l1_d_tlb_miss.all_l2_miss",
        0xf045,
    ),
];
const ZEN_WALKERS: [ProcessorEvent; 2] = [
    raw(HardwareEvent::DataWalks, "ls_tablewalker.dside", 0x0346),
    raw(HardwareEvent::CodeWalks, "ls_tablewalker.iside", 0x0c46),
];
/// Zen 1 and Hygon's derivatives.
const ZEN_1: [ProcessorEvent; 1] = [raw(
    HardwareEvent::CodeMisses,
    "bp_l1_tlb_miss_l2_miss",
    0x0085,
)];
const ZEN_2: [ProcessorEvent; 1] = [raw(
    HardwareEvent::CodeMisses,
    "bp_l1_tlb_miss_l2_tlb_miss",
    0x0785,
)];
const ZEN_3: [ProcessorEvent; 1] = [raw(
    HardwareEvent::CodeMisses,
    "bp_l1_tlb_miss_l2_tlb_miss",
    0xff85,
)];
/// Zen 4 and later have no event of the walker, but a miss of the last TLB level causes a walk.
const ZEN_4: [ProcessorEvent; 3] = [
    raw(
        HardwareEvent::DataWalks,
        "ls_l1_d_tlb_miss.all_l2_miss",
        0xf045,
    ),
    raw(
        HardwareEvent::CodeMisses,
        "bp_l1_tlb_miss_l2_tlb_miss.all",
        0x0f85,
    ),
    raw(
        HardwareEvent::CodeWalks,
        "bp_l1_tlb_miss_l2_tlb_miss.all",
        0x0f85,
    ),
];

/// Architectural events of Arm. Only opening an event shows if a core has it.
const ARM: [ProcessorEvent; 6] = [
    raw(HardwareEvent::DataWalks, "DTLB_WALK", 0x34),
    raw(HardwareEvent::CodeWalks, "ITLB_WALK", 0x35),
    raw(HardwareEvent::DataMisses, "L1D_TLB_REFILL", 0x05),
    raw(HardwareEvent::CodeMisses, "L1I_TLB_REFILL", 0x02),
    raw(HardwareEvent::DataWalkCycles, "DTLB_WALK_PERCYC", 0x8128),
    raw(HardwareEvent::CodeWalkCycles, "ITLB_WALK_PERCYC", 0x8129),
];

impl Processor {
    /// Returns the events to count, in grouping order. Each should share a group with cycles and instructions as far
    /// as registers allow.
    pub fn events(&self) -> Vec<ProcessorEvent> {
        let own: Vec<ProcessorEvent> = match self.vendor.as_deref() {
            Some("GenuineIntel") => [self.intel(), &[DATA_MISSES, CODE_MISSES]].concat(),
            Some("AuthenticAMD" | "HygonGenuine") => self.zen(),
            _ if self.implementer.is_some() => ARM.to_vec(),
            _ => vec![DATA_MISSES, CODE_MISSES],
        };
        [vec![CYCLES, INSTRUCTIONS], own].concat()
    }

    fn intel(&self) -> &'static [ProcessorEvent] {
        if self.family != Some(6) {
            return &[];
        }
        match self.model.unwrap_or(0) {
            0x2a | 0x2d => &SANDY_BRIDGE,
            0x3a | 0x3e => &IVY_BRIDGE,
            0x3c | 0x3d | 0x3f | 0x45 | 0x46 | 0x47 | 0x4f | 0x56 => &HASWELL,
            0x4e | 0x55 | 0x5e | 0x66 | 0x6a | 0x6c | 0x7d | 0x7e | 0x8c | 0x8d | 0x8e | 0x9e
            | 0xa5 | 0xa6 | 0xa7 => &SKYLAKE,
            0x8f | 0x97 | 0x9a | 0xaa | 0xac | 0xad | 0xae | 0xb5 | 0xb7 | 0xba | 0xbd | 0xbf
            | 0xc5 | 0xc6 | 0xcf => &GOLDEN_COVE,
            _ => &[],
        }
    }

    fn zen(&self) -> Vec<ProcessorEvent> {
        let model = self.model.unwrap_or(0);
        let walkers = &ZEN_WALKERS[..];
        let (walks, code): (&[_], &[_]) = match self.family {
            Some(0x17) if model < 0x30 => (walkers, &ZEN_1),
            Some(0x17) => (walkers, &ZEN_2),
            Some(0x18) => (walkers, &ZEN_1),
            // Zen 3 has models 00 to 0f and 20 to 5f.
            Some(0x19) if matches!(model, 0x00..=0x0f | 0x20..=0x5f) => (walkers, &ZEN_3),
            Some(0x19 | 0x1a) => (&[], &ZEN_4),
            // Older than Zen, or newer than these lists: use the kernel's generic events.
            _ => return vec![DATA_MISSES, CODE_MISSES],
        };
        [&ZEN[..], walks, code].concat()
    }

    /// Returns the events for data TLB misses that cost a walk, best first. The next one is the fallback if an event
    /// is refused or counts nothing.
    pub fn data_misses(&self) -> Vec<ProcessorEvent> {
        let all = self.events();
        let order = [
            HardwareEvent::DataWalks,
            HardwareEvent::DataLastMisses,
            HardwareEvent::DataMisses,
        ];
        let of = |wanted: HardwareEvent| all.iter().copied().find(move |e| e.event == wanted);
        let mut best: Vec<ProcessorEvent> = order.into_iter().filter_map(of).collect();
        if !best.contains(&DATA_MISSES) {
            best.push(DATA_MISSES);
        }
        best
    }

    /// Returns the events for walk cycles; empty if the processor does not count them.
    pub fn walk_cycles(&self) -> Vec<ProcessorEvent> {
        let all = self.events().into_iter();
        all.filter(|e| e.event.is_walk_cycles()).collect()
    }

    /// Returns the events for numbers of walks; empty if the processor does not count them.
    pub fn walks(&self) -> Vec<ProcessorEvent> {
        let all = self.events().into_iter();
        all.filter(|e| e.event.is_walks()).collect()
    }
}

#[cfg(test)]
mod tests;
