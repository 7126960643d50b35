//! JVMs: with `-XX:+UseLargePages`, heap, code cache and tables of the collector are taken from the
//! pool, completely, at the start.
//!
//! The JVM reports its sizes when run with large pages disabled, so that the query takes no page
//! from the pool. The rules of OpenJDK 17 decide which of the areas would be on huge pages. Each
//! rule was compared with the mappings of a JVM that had them, for every collector.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hugeleaf_units::{Bytes, Failure, PageSize};

use super::program_query::{complaint, query};
use super::service_reader::{
    ServiceReader, arguments_of, held_on_pool, measured_pool, or_measured,
};
use super::source_kind::{DemandSourceKind, FlagArity, ProgramRule};
use super::{
    Demand, EqualMappings, HugePageRequirement, HugePageSetting, PageSource, Service, ServiceKind,
};
use crate::model::Process;
use crate::process::find_variable;

pub(super) const SOURCE: DemandSourceKind = DemandSourceKind {
    flag: "java",
    value: "FLAGS",
    help: "JVM with these flags, e.g. --java '-Xmx8g -XX:+UseLargePages'",
    arity: FlagArity::OftenWithDash,
    check: None,
    is_synthetic: false,
    read: |reader, flags| Ok(vec![of_flags(reader, &flags.to_string_lossy())?]),
};

pub(super) const PROGRAM: ProgramRule = ProgramRule {
    kind: ServiceKind::Jvm,
    is: |name| name == "java",
    forks: false,
    running: |reader, process, _| of_process(reader, process),
    stopped: |reader, program, words| {
        let (java, rest) = words.split_first()?;
        let flags = rest.iter().take_while(|word| word.starts_with('-'));
        let flags: Vec<&str> = std::iter::once(java).chain(flags).copied().collect();
        (PROGRAM.is)(program).then(|| of_flags(reader, &flags.join(" ")))
    },
    query: None,
};

/// Reads the demand of a stopped JVM from its intended flags, which may begin with its program.
fn of_flags(reader: &ServiceReader<'_>, flags: &str) -> Result<Service, Failure> {
    let mut words: Vec<String> = flags.split_ascii_whitespace().map(str::to_owned).collect();
    let program = match words.first() {
        Some(word) if word.starts_with('/') => PathBuf::from(words.remove(0)),
        _ => PathBuf::from("/usr/bin/java"),
    };
    if !reader.is_file(&program) {
        return Err(Failure::usage(
            format!("{}: no such program", program.display()),
            "put the JVM's path before the flags: --java '/opt/jdk/bin/java -Xmx8g'",
        ));
    }
    let mut service = Service::new("java", ServiceKind::Jvm);
    service.is_unnamed = true;
    let asked = query_sizes(reader, &program, &words, None)?;
    service.huge_page_setting = huge_page_setting(&words);
    service.demands = vec![demand_of(&asked, &words, reader, &program)];
    Ok(service)
}

fn of_process(reader: &ServiceReader<'_>, process: &Process) -> Result<Service, Failure> {
    let process = reader.segments(process.pid)?;
    let mut service = reader.service(&process, ServiceKind::Jvm, "java");
    let arguments = flags_of(reader, &process);
    service.huge_page_setting = huge_page_setting(&arguments);
    // ZGC takes its heap from the pool as it grows. Its pages now show that it requested them.
    let is_growing = arguments.iter().any(|a| a == "-XX:+UseZGC");
    service.grows = is_growing;
    let has_some = !held_on_pool(&process).is_empty();
    let user = service.user.as_ref().map(|user| (user.uid, user.gid));
    let asked = reader.program_to_query(process.pid).and_then(|program| {
        let sizes = query_sizes(reader, &program, &arguments, user)?;
        Ok(demand_of(&sizes, &arguments, reader, &program))
    });
    service.demands = match asked {
        Ok(_) if is_growing && has_some => measured_pool(&process),
        asked => or_measured(&process, asked)?,
    };
    Ok(service)
}

/// Returns the flags of a running JVM, those of its environment first, as the command line wins.
fn flags_of(reader: &ServiceReader<'_>, process: &Process) -> Vec<String> {
    let mut flags = Vec::new();
    let environment = reader.root.read(format!("proc/{}/environ", process.pid));
    for name in ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"] {
        let value = environment
            .text()
            .and_then(|text| find_variable(text, name));
        let words = value.unwrap_or_default().split_ascii_whitespace();
        flags.extend(words.map(str::to_owned));
    }
    let arguments = arguments_of(reader.root, process.pid).into_iter().skip(1);
    flags.extend(arguments.take_while(|a| a.starts_with('-') && a != "-jar"));
    flags
}

/// Returns the flags that decide sizes, without those that would make a JVM write, listen, or touch
/// all its memory.
fn safe_flags(flags: &[String]) -> Vec<String> {
    const LEFT_OUT: [&str; 16] = [
        "OnError",
        "OnOutOfMemoryError",
        "Flags=",
        "VMOptionsFile",
        "FlightRecord",
        "StartFlightRecording",
        "PreTouch",
        "Dump",
        "File",
        "Archive",
        "UseLargePages",
        "UseTransparentHugePages",
        "LargePageSizeInBytes",
        "Print",
        "Log",
        "CRaC",
    ];
    let decides = |flag: &&String| {
        let is_size = ["-Xms", "-Xmx", "-Xmn", "-Xss"]
            .iter()
            .any(|p| flag.starts_with(p));
        let is_setting = flag.starts_with("-XX:");
        is_size || (is_setting && !LEFT_OUT.iter().any(|name| flag.contains(name)))
    };
    flags.iter().filter(decides).cloned().collect()
}

/// Runs a JVM with these flags and returns its sizes.
fn query_sizes(
    reader: &ServiceReader<'_>,
    program: &Path,
    flags: &[String],
    account: Option<(u32, u32)>,
) -> Result<JvmSizes, Failure> {
    let mut arguments = safe_flags(flags);
    arguments.extend(
        [
            "-XX:-UseLargePages",
            "-XX:-UseTransparentHugePages",
            // It would leave a file for jps(1).
            "-XX:-UsePerfData",
            "-Xlog:disable",
            "-Xlog:pagesize*=info",
            "-XX:+PrintFlagsFinal",
            "-version",
        ]
        .map(str::to_owned),
    );
    let answer = query(reader.root, program, &arguments, account)?;
    let sizes = parse_sizes(&answer.stdout);
    if answer.status.success() && sizes.flags.contains_key("MaxHeapSize") {
        return Ok(sizes);
    }
    Err(Failure::missing(
        format!(
            "{} {}: {}",
            program.display(),
            safe_flags(flags).join(" "),
            complaint(&answer)
        ),
        "fix the flags that it names. A JVM before 11 cannot report its sizes: start it with \
         -XX:+UseLargePages and run this again, because a running JVM is measured",
    ))
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JvmSizes {
    /// `-XX:+PrintFlagsFinal`.
    pub flags: BTreeMap<String, String>,
    /// The lines of `-Xlog:pagesize*`.
    pub regions: Vec<JvmMemoryArea>,
}

impl JvmSizes {
    fn is_on(&self, flag: &str) -> bool {
        self.flags.get(flag).is_some_and(|on| on == "true")
    }

    fn number(&self, flag: &str) -> Option<u64> {
        self.flags.get(flag)?.parse().ok()
    }
}

/// A part of a JVM's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JvmMemoryArea {
    /// As in `Heap` or `CodeHeap 'non-nmethods'`.
    pub name: String,
    /// Its size. The requested size, if the line has that.
    pub bytes: Bytes,
    /// True if the line has `req_size`, as for a table of G1.
    pub is_g1_table: bool,
}

/// Parses both from one output.
pub fn parse_sizes(text: &str) -> JvmSizes {
    let mut sizes = JvmSizes::default();
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("[pagesize] ") {
            sizes.regions.extend(region_of(rest));
        } else if let Some((left, right)) = line.split_once('=')
            && let (Some(name), Some(value)) = (
                left.split_ascii_whitespace().last(),
                right.split_ascii_whitespace().next(),
            )
        {
            sizes
                .flags
                .insert(name.trim_end_matches(':').to_owned(), value.to_owned());
        }
    }
    sizes
}

fn region_of(text: &str) -> Option<JvmMemoryArea> {
    let (name, fields) = text.rsplit_once(": ")?;
    let field = |wanted: &str| {
        let mut words = fields.split_ascii_whitespace();
        let value = words.find_map(|word| word.strip_prefix(wanted)?.strip_prefix('='))?;
        value.trim_end_matches('B').parse::<Bytes>().ok()
    };
    let asked = field("req_size");
    Some(JvmMemoryArea {
        name: name.trim().to_owned(),
        bytes: asked.or_else(|| field("size"))?,
        is_g1_table: asked.is_some(),
    })
}

/// Returns the memory that would be on huge pages, mapping by mapping.
fn mappings_of(sizes: &JvmSizes, page: PageSize) -> Vec<EqualMappings> {
    let at_least = |bytes: Bytes, pages: u64| bytes.get() / page.bytes().get() >= pages;
    let is_code =
        |region: &&JvmMemoryArea| region.name.starts_with("CodeHeap") || region.name == "CodeCache";
    let code: Vec<&JvmMemoryArea> = sizes.regions.iter().filter(is_code).collect();
    let code_bytes: Bytes = code.iter().map(|region| region.bytes).sum();
    let mut mappings = Vec::new();
    // A segmented cache is in one mapping and must be at least eight pages.
    if at_least(code_bytes, if code.len() > 1 { 8 } else { 1 }) {
        mappings.push(EqualMappings::single(code_bytes));
    }
    for region in sizes.regions.iter().filter(|region| !is_code(region)) {
        let needed = match region.name.as_str() {
            "Heap" => 0,
            _ if region.is_g1_table => 1,
            "Mark Bitmap" | "Parallel Compact Data" if is_whole(sizes, region, page) => 10,
            // Card tables of the other collectors are on base pages, whatever their size.
            _ => continue,
        };
        if at_least(region.bytes, needed) {
            mappings.push(EqualMappings::single(region.bytes));
        }
    }
    if !sizes.regions.iter().any(|region| region.name == "Heap") {
        mappings.extend(unlogged(sizes));
    }
    mappings.extend(start_table(sizes, page));
    mappings
}

/// True if a table of the parallel collector consists of whole pages. Only then is it on huge ones.
/// On huge pages the heap is rounded up to whole ones, and the table grows with it.
fn is_whole(sizes: &JvmSizes, region: &JvmMemoryArea, page: PageSize) -> bool {
    let unit = page.bytes().get();
    let heap = sizes.number("MaxHeapSize").filter(|n| *n > 0);
    let bytes = region.bytes.get();
    let bytes = match heap {
        Some(heap) => {
            let whole = page.pages_for(Bytes(heap)).in_bytes(page).get();
            let grown = u128::from(bytes) * u128::from(whole) / u128::from(heap);
            u64::try_from(grown).unwrap_or(u64::MAX)
        }
        None => bytes,
    };
    bytes.is_multiple_of(unit)
}

/// Returns the block start table of the old generation, which the parallel and the serial collector
/// do not log: a byte per card. A part below a page at its end stays on base pages. On huge pages
/// generations are whole pages, so the old one gets the rest of the young one.
fn start_table(sizes: &JvmSizes, page: PageSize) -> Option<EqualMappings> {
    const CARD: u64 = 512;
    if !sizes.is_on("UseParallelGC") && !sizes.is_on("UseSerialGC") {
        return None;
    }
    let unit = page.bytes().get();
    let heap = page.pages_for(Bytes(sizes.number("MaxHeapSize")?)).get();
    let young = sizes.number("MaxNewSize")? / unit;
    let old = Bytes(heap.checked_sub(young)?.saturating_mul(unit));
    let card = sizes.number("GCCardSizeInBytes").filter(|n| *n > 0);
    let card = card.unwrap_or(CARD);
    let whole = old.get() / card / unit;
    (whole > 0).then(|| EqualMappings::single(Bytes(whole * unit)))
}

/// Returns heap and tables of collectors that log none of them.
fn unlogged(sizes: &JvmSizes) -> Vec<EqualMappings> {
    let heap = sizes.number("MaxHeapSize").unwrap_or(0);
    let mut mappings = vec![EqualMappings::single(Bytes(heap))];
    if sizes.is_on("UseShenandoahGC") {
        // Two bitmaps of two bits per word, and the regions' own table, which takes a page.
        mappings.push(EqualMappings {
            bytes: Bytes(heap / 32),
            count: 2,
        });
        mappings.push(EqualMappings::single(Bytes(1)));
    }
    mappings
}

fn demand_of(
    sizes: &JvmSizes,
    flags: &[String],
    reader: &ServiceReader<'_>,
    program: &Path,
) -> Demand {
    let asked = asked_page(flags);
    let default = reader.host.memory.default_hugetlb_page.get();
    let page = asked.or(default).unwrap_or(reader.host.base_page);
    let place = match switch(flags, "UseTransparentHugePages") {
        Some(true) => PageSource::Thp,
        _ => PageSource::Pool,
    };
    let what = "heap, code cache and the collector's tables";
    let source = format!("{} -Xlog:pagesize -XX:+PrintFlagsFinal", program.display());
    Demand {
        page: asked,
        ..Demand::new(what, mappings_of(sizes, page), place, source)
    }
}

/// Parses `-XX:LargePageSizeInBytes=`. 0 is the default.
fn asked_page(flags: &[String]) -> Option<PageSize> {
    let value = flags
        .iter()
        .rev()
        .find_map(|flag| flag.strip_prefix("-XX:LargePageSizeInBytes="))?;
    PageSize::new(value.to_ascii_uppercase().parse().ok()?).ok()
}

/// Returns the last `-XX:+NAME` or `-XX:-NAME`.
fn switch(flags: &[String], name: &str) -> Option<bool> {
    flags.iter().rev().find_map(|flag| {
        let set = flag.strip_prefix("-XX:")?;
        match set.strip_prefix('+') {
            Some(on) => (on == name).then_some(true),
            None => (set.strip_prefix('-')? == name).then_some(false),
        }
    })
}

fn huge_page_setting(flags: &[String]) -> HugePageSetting {
    let is_thp = switch(flags, "UseTransparentHugePages") == Some(true);
    match (switch(flags, "UseLargePages"), is_thp) {
        (Some(true), _) => {
            HugePageSetting::new(HugePageRequirement::IfAvailable, "-XX:+UseLargePages")
        }
        (Some(false), _) => HugePageSetting::new(HugePageRequirement::Never, "-XX:-UseLargePages"),
        (None, true) => {
            HugePageSetting::new(HugePageRequirement::Never, "-XX:+UseTransparentHugePages")
        }
        (None, false) => HugePageSetting::new(HugePageRequirement::Never, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const G1: &str = "\
        [0.001s][info][pagesize]   hugepage size: 2M\n\
        [0.002s][info][pagesize] CodeHeap 'non-nmethods':  min=2496K max=5692K base=0x00007fc9a4938000 page_size=4K size=5692K\n\
        [0.002s][info][pagesize] CodeHeap 'profiled nmethods':  min=2496K max=120032K base=0x00007fc9 page_size=4K size=120032K\n\
        [0.002s][info][pagesize] CodeHeap 'non-profiled nmethods':  min=2496K max=120036K base=0x0 page_size=4K size=120036K\n\
        [0.004s][info][pagesize] Heap:  min=8M max=1G base=0x00000000c0000000 page_size=4K size=1G\n\
        [0.004s][info][pagesize] Block Offset Table: req_size=2M base=0x0 page_size=4K alignment=4K size=2M\n\
        [0.004s][info][pagesize] Card Table: req_size=2M base=0x0 page_size=4K alignment=4K size=2M\n\
        [0.004s][info][pagesize] Card Counts Table: req_size=1M base=0x0 page_size=4K alignment=4K size=2M\n\
        [0.004s][info][pagesize] Prev Bitmap: req_size=16M base=0x0 page_size=4K alignment=4K size=16M\n\
        [Global flags]\n\
           size_t MaxHeapSize                              = 1073741824                                {product} {command line}\n\
             bool UseShenandoahGC                          = false                                     {product} {default}\n";

    fn two_mib() -> PageSize {
        "2M".parse().unwrap()
    }

    fn pages(text: &str) -> u64 {
        let mappings = mappings_of(&parse_sizes(text), two_mib());
        let of = |p: &EqualMappings| two_mib().pages_for(p.bytes).get() * p.count;
        mappings.iter().map(of).sum()
    }

    #[test]
    fn g1_takes_tables_that_come_to_a_page() {
        assert_eq!(pages(G1), 120 + 512 + 1 + 1 + 8);
    }

    #[test]
    fn the_parallel_collector_takes_bitmaps_of_ten_pages() {
        let text = "[pagesize] Heap:  min=8M max=1G page_size=4K size=1G\n\
            [pagesize] Card Table:  min=2097153B max=2097153B page_size=4K size=2052K\n\
            [pagesize] Mark Bitmap:  min=32M max=32M page_size=4K size=32M\n\
            [pagesize] Parallel Compact Data:  min=2M max=2M page_size=4K size=2M\n";
        assert_eq!(pages(text), 512 + 16);
        assert_eq!(pages(&text.replace("32M", "16M")), 512);
        // It is on base pages if not whole. The heap is rounded up, and the table with it.
        assert_eq!(pages(&text.replace("32M", "24544K")), 512);
        let odd = text.replace("32M", "32752K");
        let flags = |heap: &str| format!("{odd} size_t MaxHeapSize = {heap} {{product}}\n");
        assert_eq!(pages(&flags("2146435072")), 512 + 16); // 2047M
        assert_eq!(pages(&flags("2147483648")), 512);
    }

    /// Each value was compared with the mappings of a JVM 17 and a JVM 25 on a pool.
    #[test]
    fn where_objects_begin_takes_a_page_for_each_gigabyte_of_the_old_generation() {
        let of = |collector: &str, heap: u64, young: u64| {
            let text = format!(
                "[pagesize] Heap:  min=8M max=1G page_size=4K size=2M\n\
                 size_t MaxHeapSize = {} {{product}}\n size_t MaxNewSize = {} {{product}}\n\
                 bool {collector} = true {{product}}\n",
                heap << 20,
                young << 20
            );
            pages(&text) - 1
        };
        assert_eq!(of("UseParallelGC", 1024, 341), 0);
        // The young generation gets 510M of its 511M.
        assert_eq!(of("UseParallelGC", 1534, 511), 1);
        assert_eq!(of("UseParallelGC", 2048, 682), 1);
        assert_eq!(of("UseParallelGC", 3072, 1024), 2);
        assert_eq!(of("UseParallelGC", 3072, 512), 2);
        assert_eq!(of("UseParallelGC", 4096, 256), 3);
        assert_eq!(of("UseSerialGC", 4096, 1365), 2);
        assert_eq!(of("UseG1GC", 4096, 1365), 0);
    }

    #[test]
    fn collectors_that_log_nothing() {
        let z = " size_t MaxHeapSize = 1073741824 {product}\n bool UseZGC = true {product}\n";
        assert_eq!(pages(z), 512);
        let shenandoah = z.replace("UseZGC", "UseShenandoahGC");
        assert_eq!(pages(&shenandoah), 512 + 32 + 1);
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_jvm_that_is_asked_writes_nothing_and_listens_nowhere() {
        let flags = words(
            "-Xmx8g -Xlog:gc:/var/log/gc -XX:+UseG1GC -XX:+AlwaysPreTouch -javaagent:/x.jar \
             -Dcom.sun.management.jmxremote.port=1 -XX:OnError=reboot -XX:+UseLargePages \
             -XX:StartFlightRecording=filename=/x -XX:+HeapDumpOnOutOfMemoryError -agentlib:jdwp=1 \
             -XX:+LogVMOutput -XX:CRaCCheckpointTo=/x",
        );
        assert_eq!(safe_flags(&flags), ["-Xmx8g", "-XX:+UseG1GC"]);
        assert_eq!(
            huge_page_setting(&flags).requirement,
            HugePageRequirement::IfAvailable
        );
        assert_eq!(
            huge_page_setting(&words("-Xmx1g")).requirement,
            HugePageRequirement::Never
        );
        let sized = words("-XX:LargePageSizeInBytes=1g");
        assert_eq!(asked_page(&sized), "1G".parse().ok());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*", line in "[A-Za-z' :=0-9KMGB]*", flag in "[-+A-Za-z:=0-9]*") {
            let _ = parse_sizes(&text);
            let sizes = parse_sizes(&format!("[pagesize] {line}\n{G1}"));
            let _ = mappings_of(&sizes, two_mib());
            let flags = [flag];
            let _ = (safe_flags(&flags), huge_page_setting(&flags), asked_page(&flags));
        }
    }
}
