use proptest::prelude::*;

use super::*;

/// The first lines of `/proc/cpuinfo` as x86 writes them.
fn x86(vendor: &str, family: u32, model: u32, name: &str) -> Processor {
    Processor::parse(&format!(
        "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
         model name\t: {name}\nstepping\t: 1\nmicrocode\t: 0xa0011d1\ncpu MHz\t\t: 2595.124\n\
         flags\t\t: fpu vme de pse\n\nprocessor\t: 1\nvendor_id\t: {vendor}\ncpu family\t: {family}\n"
    ))
}

fn known() -> Vec<(&'static str, Processor)> {
    let amd = "AuthenticAMD";
    let intel = "GenuineIntel";
    vec![
        ("zen1", x86(amd, 23, 1, "AMD EPYC 7551 32-Core Processor")),
        ("zen2", x86(amd, 23, 49, "AMD EPYC 7R32")),
        ("zen3", x86(amd, 25, 1, "AMD EPYC 7R13 Processor")),
        ("zen4", x86(amd, 25, 17, "AMD EPYC 9R14")),
        ("zen5", x86(amd, 26, 2, "AMD EPYC 9755 128-Core Processor")),
        ("hygon", x86("HygonGenuine", 24, 1, "Hygon C86 7285")),
        ("piledriver", x86(amd, 21, 2, "AMD Opteron 6380")),
        (
            "broadwell",
            x86(intel, 6, 79, "Intel(R) Xeon(R) CPU E5-2686 v4"),
        ),
        (
            "skylake",
            x86(intel, 6, 85, "Intel(R) Xeon(R) Platinum 8275CL"),
        ),
        (
            "icelake",
            x86(intel, 6, 106, "Intel(R) Xeon(R) Platinum 8375C"),
        ),
        (
            "sapphire",
            x86(intel, 6, 143, "Intel(R) Xeon(R) Platinum 8488C"),
        ),
        ("pentium4", x86(intel, 15, 4, "Intel(R) Pentium(R) 4")),
        ("arm", Processor::parse(ARM_CPUINFO)),
        (
            "power",
            Processor::parse("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"),
        ),
    ]
}

const ARM_CPUINFO: &str = "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd evtstrm aes\n\
    CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\nCPU revision\t: 1\n";

fn of(name: &str) -> Processor {
    known().into_iter().find(|(n, _)| *n == name).unwrap().1
}

fn named(events: &[ProcessorEvent]) -> Vec<(&'static str, CounterKind)> {
    events.iter().map(|e| (e.name, e.kind)).collect()
}

#[test]
fn the_first_processor_is_read() {
    let zen = of("zen3");
    assert_eq!((zen.family, zen.model), (Some(25), Some(1)));
    assert_eq!(zen.name.as_deref(), Some("AMD EPYC 7R13 Processor"));
    assert_eq!(of("arm").implementer.as_deref(), Some("0x41"));
    assert_eq!(Processor::parse(""), Processor::default());
}

/// Numbers from the vendors' event lists in the kernel tree.
#[test]
fn walks_are_counted_by_the_event_of_the_generation() {
    let raw = CounterKind::Raw;
    for (name, walks) in [
        (
            "zen1",
            [
                ("ls_tablewalker.dside", raw(0x0346)),
                ("ls_tablewalker.iside", raw(0x0c46)),
            ],
        ),
        (
            "zen3",
            [
                ("ls_tablewalker.dside", raw(0x0346)),
                ("ls_tablewalker.iside", raw(0x0c46)),
            ],
        ),
        (
            "zen4",
            [
                ("ls_l1_d_tlb_miss.all_l2_miss", raw(0xf045)),
                ("bp_l1_tlb_miss_l2_tlb_miss.all", raw(0x0f85)),
            ],
        ),
        ("arm", [("DTLB_WALK", raw(0x34)), ("ITLB_WALK", raw(0x35))]),
    ] {
        assert_eq!(named(&of(name).walks()), walks, "{name}");
    }
    for name in ["zen1", "zen2", "zen3", "zen4", "zen5", "hygon"] {
        // AMD counts walks but not walk cycles.
        assert!(of(name).walk_cycles().is_empty(), "{name}");
        assert_eq!(of(name).walks().len(), 2, "{name}");
    }
    for name in ["power", "pentium4", "piledriver"] {
        assert!(
            of(name).walk_cycles().is_empty() && of(name).walks().is_empty(),
            "{name}"
        );
    }
}

#[test]
fn cycles_of_walks_are_those_with_a_walk_under_way() {
    let configs = |name: &str| -> Vec<CounterKind> {
        of(name).walk_cycles().iter().map(|e| e.kind).collect()
    };
    let raw = |all: [u64; 3]| all.map(CounterKind::Raw).to_vec();
    assert_eq!(configs("broadwell"), raw([0x1008, 0x1049, 0x1085]));
    assert_eq!(
        configs("skylake"),
        raw([0x0100_1008, 0x0100_1049, 0x0100_1085])
    );
    assert_eq!(configs("icelake"), configs("skylake"));
    // Golden Cove renumbered all three.
    assert_eq!(
        configs("sapphire"),
        raw([0x0100_1012, 0x0100_1013, 0x0100_1011])
    );
    // 0x8137 would be ITLB_STEP.
    assert_eq!(
        configs("arm"),
        [CounterKind::Raw(0x8128), CounterKind::Raw(0x8129)]
    );
}

#[test]
fn models_of_one_family_differ() {
    let first = |family, model| {
        let events = x86("AuthenticAMD", family, model, "x").events();
        let code = events.iter().find(|e| e.event == HardwareEvent::CodeMisses);
        code.unwrap().kind
    };
    assert_eq!(first(0x17, 0x2f), CounterKind::Raw(0x0085));
    assert_eq!(first(0x17, 0x31), CounterKind::Raw(0x0785));
    assert_eq!(first(0x19, 0x21), CounterKind::Raw(0xff85));
    assert_eq!(first(0x19, 0x61), CounterKind::Raw(0x0f85));
    // A family unknown to the event lists.
    assert_eq!(first(0x1b, 0x00), CODE_MISSES.kind);
}

#[test]
fn misses_end_in_the_kernels_own_event() {
    for (name, processor) in known() {
        let misses = processor.data_misses();
        assert_eq!(misses.last(), Some(&DATA_MISSES), "{name}");
        assert!(misses.iter().all(|e| e.event.is_of_data()), "{name}");
    }
    let zen4 = of("zen4").data_misses();
    assert_eq!(zen4[0].kind, CounterKind::Raw(0xf045));
    assert_eq!(named(&of("power").data_misses()), named(&[DATA_MISSES]));
}

/// Screens and files request these events by name.
#[test]
fn every_processor_counts_cycles_instructions_and_misses_by_one_name_each() {
    for (name, processor) in known() {
        let events = processor.events();
        let mut names: Vec<_> = events.iter().map(|e| e.event.name()).collect();
        for wanted in ["cycles", "instructions", "dtlb_load_misses", "itlb_misses"] {
            assert!(names.contains(&wanted), "{name}: {wanted}");
        }
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "{name}: an event twice");
        assert!(events.iter().all(|e| !e.name.is_empty()));
    }
}

#[test]
fn a_virtual_processor_says_so() {
    let text = "model name\t: Some CPU @ 2GHz\nflags\t\t: fpu hypervisor sse\n";
    assert_eq!(is_virtual(text), Some(true));
    assert_eq!(is_virtual("flags : fpu sse"), Some(false));
    assert_eq!(is_virtual("Features : fp"), None);
}

proptest! {
    #[test]
    fn any_text_is_a_processor(text in ".*", family in any::<u32>(), model in any::<u32>()) {
        Processor::parse(&text).events();
        for vendor in ["GenuineIntel", "AuthenticAMD", "x"] {
            let processor = x86(vendor, family, model, "x");
            prop_assert!(processor.events().len() >= 4);
        }
    }
}
