//! Metrics from the CPU's counters, if the machine has them: cycles per instruction, cost of page walks, TLB
//! misses. Counted in groups, thread by thread, in user mode.

use std::collections::BTreeMap;

use hugeleaf_host::Root;
use hugeleaf_perf::processor::{CYCLES, INSTRUCTIONS, Processor, ProcessorEvent};
use hugeleaf_perf::{
    CounterGroup, CounterKind, CounterScope, GroupCount, ScaledCounts, counts_misses,
};
use hugeleaf_sys::{Deadline, Errno, Kernel, Pid, SysError};

use super::addressed_metrics::{SERVERS, names};
use super::reading::{Metric, MetricError, Reading, ReadingKind};
use super::spec::{MetricArgument, MetricKind, MetricSpec, MetricSpecError};
use crate::stats::BetterDirection;

/// Metrics that the CPU counts.
pub(super) static KINDS: &[MetricKind] = &[CPI, WALK_CYCLES];

const CPI: MetricKind = MetricKind {
    names: &["cpi"],
    form: "cpi",
    help: "cycles per instruction in user mode; needs hardware counters",
    example: "cpi",
    needs_address: false,
    can_be_gauge: false,
    parse: |typed| match typed.rest {
        "" => {
            let open = |pids: &[Pid], _: Deadline<'_>| cpi(pids);
            Ok(MetricSpec::new(typed.text.to_owned(), open))
        }
        _ => Err(typed.malformed("cpi takes no argument")),
    },
};

const WALK_CYCLES: MetricKind = MetricKind {
    names: &["walk-cycles"],
    form: "walk-cycles[:rHEX]",
    help: "share of cycles spent in page-table walks, counted by the raw event `rHEX` or by the \
           event known for this processor. AMD Zen does not count these cycles, so walks per 1000 \
           instructions are measured there. The unit in the result names the events",
    example: "walk-cycles",
    needs_address: false,
    can_be_gauge: false,
    parse: parse_walk_cycles,
};

fn parse_walk_cycles(typed: &MetricArgument<'_>) -> Result<MetricSpec, MetricSpecError> {
    let hex = |raw: &str| u64::from_str_radix(raw.strip_prefix('r')?, 16).ok();
    let event = match typed.rest {
        "" => None,
        raw => Some(hex(raw).ok_or_else(|| {
            typed.malformed("a raw event is r and hexadecimal digits, as perf writes it: r1008")
        })?),
    };
    let open = move |pids: &[Pid], _: Deadline<'_>| walk_cycles(pids, event);
    Ok(MetricSpec::new(typed.text.to_owned(), open))
}

#[derive(Debug, Clone, PartialEq, Default)]
struct CounterTotals {
    /// Values in the order of the events, scaled up to the whole running time of the threads.
    values: Vec<f64>,
    /// The share of that time in which they were counted: below 1 if other users counted too.
    counted_share: Option<f64>,
}

/// A group of counters for every thread of some processes. Ended threads keep their counts; new threads are
/// added at the next reading.
#[derive(Debug)]
struct ThreadCounters {
    name: &'static str,
    pids: Vec<Pid>,
    kinds: Vec<CounterKind>,
    open: BTreeMap<Pid, (CounterGroup, GroupCount)>,
    sums: Vec<f64>,
    enabled_nanos: u64,
    running_nanos: u64,
}

impl ThreadCounters {
    /// Starts counting; `name` is the metric in errors.
    fn open(
        name: &'static str,
        pids: &[Pid],
        kinds: &[CounterKind],
    ) -> Result<ThreadCounters, MetricError> {
        let mut threads = ThreadCounters {
            name,
            pids: pids.to_vec(),
            kinds: kinds.to_vec(),
            open: BTreeMap::new(),
            sums: vec![0.0; kinds.len()],
            enabled_nanos: 0,
            running_nanos: 0,
        };
        threads.join(&threads.alive())?;
        if threads.open.is_empty() {
            let next = "name a running process";
            return Err(no_counter(name, "the target has no threads", next));
        }
        Ok(threads)
    }

    fn alive(&self) -> Vec<Pid> {
        self.pids.iter().flat_map(|pid| threads_of(*pid)).collect()
    }

    /// Starts counting for new threads.
    fn join(&mut self, alive: &[Pid]) -> Result<(), MetricError> {
        for thread in alive {
            if self.open.contains_key(thread) {
                continue;
            }
            match CounterGroup::open(CounterScope::Thread(*thread), &self.kinds) {
                Ok(group) => {
                    group.enable().map_err(|e| refused(self.name, &e))?;
                    self.open.insert(*thread, (group, GroupCount::default()));
                }
                // The thread ended between the listing and the call.
                Err(e) if e.errno == Errno::SRCH => {}
                Err(error) => return Err(refused(self.name, &error)),
            }
        }
        Ok(())
    }

    /// Returns the counts so far.
    ///
    /// # Errors
    /// [`MetricError::NoCounter`]: a counter is refused to a new thread, or nothing was counted since the
    /// last reading although threads ran, because other groups had the registers all the time.
    fn totals(&mut self) -> Result<CounterTotals, MetricError> {
        let alive = self.alive();
        self.join(&alive)?;
        let mut since = Vec::with_capacity(self.open.len());
        for (group, last) in self.open.values_mut() {
            let now = group.read().map_err(|e| refused(self.name, &e))?;
            since.push(now.since(last));
            *last = now;
        }
        // Ended threads were read a last time above.
        self.open.retain(|thread, _| alive.contains(thread));
        let all = sum_threads(self.name, &since)?;
        for (sum, value) in self.sums.iter_mut().zip(&all.values) {
            *sum += value;
        }
        self.enabled_nanos = self.enabled_nanos.saturating_add(all.enabled_nanos);
        self.running_nanos = self.running_nanos.saturating_add(all.running_nanos);
        Ok(CounterTotals {
            values: self.sums.clone(),
            counted_share: ratio(self.running_nanos, self.enabled_nanos),
        })
    }
}

/// Returns the counts of all threads in an interval. Threads without a register are assumed to resemble the
/// others; if no thread had one, the result is unknown.
fn sum_threads(name: &str, threads: &[ScaledCounts]) -> Result<ScaledCounts, MetricError> {
    let sum = |of: &mut dyn Iterator<Item = u64>| of.fold(0, u64::saturating_add);
    let counted = || threads.iter().filter(|thread| thread.running_nanos > 0);
    let enabled_nanos = sum(&mut threads.iter().map(|thread| thread.enabled_nanos));
    let running_nanos = sum(&mut counted().map(|thread| thread.running_nanos));
    if enabled_nanos > 0 && running_nanos == 0 {
        return Err(no_counter(
            name,
            "its events were not scheduled in an interval: others occupy the hardware counters",
            "stop other users of the counters: perf, or the kernel's watchdog (sysctl \
             kernel.nmi_watchdog=0); or choose a longer --interval",
        ));
    }
    let of_counted = sum(&mut counted().map(|thread| thread.enabled_nanos));
    let factor = ratio(enabled_nanos, of_counted).unwrap_or(1.0);
    let events = threads.iter().map(|thread| thread.values.len()).max();
    let value = |at: usize| {
        let own = counted().filter_map(|thread| thread.values.get(at));
        own.sum::<f64>() * factor
    };
    Ok(ScaledCounts {
        values: (0..events.unwrap_or(0)).map(value).collect(),
        enabled_nanos,
        running_nanos,
    })
}

const RAW_EVENT: &str = "name a raw event as perf writes it: --metric walk-cycles:rHEX (perf list \
                         shows names)";

fn ratio(above: u64, below: u64) -> Option<f64> {
    (below > 0).then(|| above as f64 / below as f64)
}

fn no_counter(metric: &str, reason: &str, next: &str) -> MetricError {
    MetricError::NoCounter {
        metric: metric.to_owned(),
        reason: reason.to_owned(),
        next: next.to_owned(),
    }
}

fn refused(metric: &str, e: &SysError) -> MetricError {
    let next = match e.errno {
        Errno::ACCESS | Errno::PERM => {
            "run as root, or: sysctl kernel.perf_event_paranoid=1".to_owned()
        }
        _ => format!(
            "use a metric of the server instead ({}); virtual machines often have no counters",
            names(SERVERS).join(", ")
        ),
    };
    no_counter(metric, &e.to_string(), &next)
}

/// Returns the threads of a process of this host: captured processes have no hardware counters.
fn threads_of(pid: Pid) -> Vec<Pid> {
    let names = Root::live().list(format!("proc/{pid}/task"));
    let names = names.known().into_iter().flatten();
    names.filter_map(|n| n.parse().ok().map(Pid)).collect()
}

/// Returns the CPU of this host, the only one with usable counters.
fn processor() -> Processor {
    let cpuinfo = Root::live().read("proc/cpuinfo");
    Processor::parse(cpuinfo.known().map_or("", String::as_str))
}

/// Returns the first alternative that this machine supports and that really counts. Many CPUs and hypervisors
/// open any raw event and leave it at 0 forever.
fn first_that_counts(
    name: &'static str,
    ways: &[Vec<ProcessorEvent>],
) -> Result<Vec<ProcessorEvent>, MetricError> {
    let base = Kernel::new().base_page();
    let mut said = Vec::new();
    let mut refusal = None;
    for way in ways.iter().filter(|way| !way.is_empty()) {
        let of_data = way.iter().filter(|event| event.event.is_of_data());
        let tried = of_data.map(|event| (event.name, counts_misses(event.kind, base)));
        match tried.into_iter().find(|(_, counts)| *counts != Ok(true)) {
            None => return Ok(way.clone()),
            Some((event, Err(error))) => {
                said.push(format!("{event}: {error}"));
                refusal = Some(error);
            }
            Some((event, Ok(_))) => said.push(format!(
                "{event} opens but stays at 0, although page tables are walked"
            )),
        }
    }
    let next = refusal.map(|error| refused(name, &error).next());
    let next = next.as_deref().unwrap_or(RAW_EVENT);
    Err(no_counter(name, &said.join("; "), next))
}

/// Opens `cpi`: cycles per instruction.
pub fn cpi(pids: &[Pid]) -> Result<Metric, MetricError> {
    of_events(
        "cpi",
        pids,
        &[CYCLES],
        INSTRUCTIONS,
        (1.0, "cycles/instruction"),
    )
}

/// Opens `walk-cycles`: the share of cycles in page walks, by `event` or by the known events of this CPU. A
/// CPU that counts walks but not their cycles (AMD's Zen) gives walks per thousand instructions instead; the
/// unit names it and the events.
pub fn walk_cycles(pids: &[Pid], event: Option<u64>) -> Result<Metric, MetricError> {
    const NAME: &str = "walk-cycles";
    const SHARE: (f64, &str) = (1.0, "share of cycles");
    const WALKS: (f64, &str) = (
        1000.0,
        "walks in 1000 instructions: this processor does not count their cycles",
    );
    if let Some(event) = event {
        let unit = format!("{} (r{event:x} / {})", SHARE.1, CYCLES.name);
        let kinds = [CounterKind::Raw(event), CounterKind::Cycles];
        return over_last(NAME, pids, &kinds, 1.0, &unit);
    }
    let processor = processor();
    let (cycles, walks) = (processor.walk_cycles(), processor.walks());
    if cycles.is_empty() && walks.is_empty() {
        let reason = "no event is known for this processor";
        return Err(no_counter(NAME, reason, RAW_EVENT));
    }
    let first = first_that_counts(NAME, &[cycles.clone(), walks])?;
    match first == cycles {
        true => of_events(NAME, pids, &first, CYCLES, SHARE),
        false => of_events(NAME, pids, &first, INSTRUCTIONS, WALKS),
    }
}

/// Opens the sum of some events, multiplied by a factor, over another event.
fn of_events(
    name: &'static str,
    pids: &[Pid],
    above: &[ProcessorEvent],
    below: ProcessorEvent,
    (times, unit): (f64, &str),
) -> Result<Metric, MetricError> {
    let kinds: Vec<CounterKind> = above.iter().chain([&below]).map(|e| e.kind).collect();
    let names: Vec<&str> = above.iter().map(|e| e.name).collect();
    let unit = format!("{unit} ({} / {})", names.join(" + "), below.name);
    over_last(name, pids, &kinds, times, &unit)
}

/// Opens a ratio of the target's counts in user mode: the sum of all but the last event, over the last.
fn over_last(
    name: &'static str,
    pids: &[Pid],
    kinds: &[CounterKind],
    times: f64,
    unit: &str,
) -> Result<Metric, MetricError> {
    let mut threads = ThreadCounters::open(name, pids, kinds)?;
    let read = move |_: Deadline<'_>| {
        let totals = threads.totals()?;
        let (below, above) = totals.values.split_last().unwrap_or((&0.0, &[]));
        Ok(Reading::Ratio {
            above: above.iter().sum::<f64>() * times,
            below: *below,
        })
    };
    Ok(Metric {
        better: BetterDirection::Lower,
        kind: ReadingKind::Ratio,
        ..Metric::counter(name.to_owned(), unit, read)
    })
}

/// Cycles, instructions and data TLB misses, counted together during some work. No flag selects it.
#[derive(Debug)]
pub struct TranslationCounters {
    threads: ThreadCounters,
    /// The event that counts misses, or the reason why they are not counted.
    pub misses: Result<ProcessorEvent, String>,
}

/// See [`TranslationCounters::totals`].
#[derive(Debug, Clone, PartialEq)]
pub struct TranslationTotals {
    pub cycles: f64,
    pub instructions: f64,
    /// TLB misses so far; `None` if the host does not count them.
    pub misses: Option<f64>,
    /// The share of the time in which they were counted.
    pub counted_share: Option<f64>,
}

impl TranslationCounters {
    /// Starts counting. A host that does not count misses still counts cycles.
    pub fn open(pids: &[Pid]) -> Result<TranslationCounters, MetricError> {
        const NAME: &str = "translation";
        let processor = processor();
        let ways = processor.data_misses().into_iter().map(|event| vec![event]);
        let found = first_that_counts(NAME, &ways.collect::<Vec<_>>());
        let misses = match found {
            Ok(events) if events.len() == 1 => Ok(events[0]),
            Ok(_) => Err("no event is known for this processor".to_owned()),
            Err(MetricError::NoCounter { reason, .. }) => Err(reason),
            Err(error) => Err(error.to_string()),
        };
        let mut kinds = vec![CYCLES.kind, INSTRUCTIONS.kind];
        kinds.extend(misses.iter().map(|event| event.kind));
        Ok(TranslationCounters {
            threads: ThreadCounters::open(NAME, pids, &kinds)?,
            misses,
        })
    }

    pub fn totals(&mut self) -> Result<TranslationTotals, MetricError> {
        let totals = self.threads.totals()?;
        let value = |at: usize| totals.values.get(at).copied();
        Ok(TranslationTotals {
            cycles: value(0).unwrap_or(0.0),
            instructions: value(1).unwrap_or(0.0),
            misses: value(2),
            counted_share: totals.counted_share,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_without_threads_is_refused() {
        let e = cpi(&[Pid(u32::MAX)]).map(drop).unwrap_err();
        assert!(matches!(e, MetricError::NoCounter { .. }));
    }

    #[test]
    fn what_stays_at_zero_is_passed_over_and_each_is_named_where_none_is_left() {
        // A kernel event that never happens stands in for a raw event that does not count.
        let event = |name: &'static str, kind| ProcessorEvent {
            event: hugeleaf_perf::processor::HardwareEvent::DataWalks,
            name,
            kind,
        };
        let dummy = event("NEVER", CounterKind::Other(1, 9));
        let faults = event("FAULTS", CounterKind::Other(1, 2));
        let none = event("NONE", CounterKind::Other(1, u64::MAX));
        let ways = |all: &[ProcessorEvent]| -> Vec<Vec<ProcessorEvent>> {
            all.iter().map(|event| vec![*event]).collect()
        };
        let chosen = first_that_counts("m", &ways(&[dummy, none, faults]));
        if let Err(e) = &chosen
            && e.to_string().contains("ermi")
        {
            println!(
                "not run: what_stays_at_zero_is_passed_over_and_each_is_named_where_none_is_left: needs perf_event_open: {e}"
            );
            return;
        }
        assert_eq!(chosen, Ok(vec![faults]));
        let refused = first_that_counts("m", &ways(&[dummy, none])).unwrap_err();
        let said = refused.to_string();
        assert!(
            said.contains("NEVER opens but stays at 0") && said.contains("NONE:"),
            "{said}"
        );
        assert!(!refused.next().is_empty());
    }

    #[test]
    fn threads_without_a_turn_count_like_the_others_and_none_at_all_is_an_error() {
        let thread = |value, enabled_nanos, running_nanos| ScaledCounts {
            values: vec![value, 2.0 * value],
            enabled_nanos,
            running_nanos,
        };
        let sum = sum_threads("cpi", &[thread(10.0, 100, 50), thread(20.0, 100, 100)]).unwrap();
        assert_eq!(sum.values, [30.0, 60.0]);
        assert_eq!((sum.enabled_nanos, sum.running_nanos), (200, 150));
        // Half of the work was never counted.
        let sum = sum_threads("cpi", &[thread(10.0, 100, 50), thread(0.0, 100, 0)]).unwrap();
        assert_eq!(sum.values, [20.0, 40.0]);
        let never = sum_threads("cpi", &[thread(0.0, 100, 0), thread(0.0, 7, 0)]).unwrap_err();
        assert!(never.to_string().contains("not scheduled"), "{never}");
        assert!(never.next().contains("nmi_watchdog"));
        // Sleeping threads are not an error.
        assert_eq!(
            sum_threads("cpi", &[thread(0.0, 0, 0)]).unwrap().values,
            [0.0, 0.0]
        );
    }

    #[test]
    fn a_ratio_is_of_one_group_and_threads_that_end_keep_their_counts() {
        // Software events: the ratio of the clock to itself is always 1.
        const TASK_CLOCK: CounterKind = CounterKind::Other(1, 1);
        let own = hugeleaf_sys::own_pid();
        let opened = ThreadCounters::open("m", &[own], &[TASK_CLOCK, TASK_CLOCK]);
        let mut threads = match opened {
            Ok(threads) => threads,
            Err(e) => {
                println!(
                    "not run: a_ratio_is_of_one_group_and_threads_that_end_keep_their_counts: needs perf_event_open: {e}"
                );
                return;
            }
        };
        let before = threads.totals().unwrap().values[0];
        let spin = || (0..30_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b));
        let (ready, go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ready.wait();
                go.wait();
                spin();
            });
            ready.wait();
            threads.totals().unwrap();
            go.wait();
        });
        // The thread is gone, but its work since the last reading counts.
        let after = threads.totals().unwrap();
        assert!(after.values[0] > before);
        let ratio = after.values[0] / after.values[1];
        assert!((ratio - 1.0).abs() < 0.05, "{after:?}");
        assert!(after.counted_share.unwrap() > 0.0);
    }
}
