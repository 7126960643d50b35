//! Metrics from the processor's own counters, where the machine has them.

use std::collections::BTreeMap;

use hugeleaf_sys::{Counter, CounterKind, Errno, Pid, SysError};

use super::{Kind, Metric, MetricError, Reading};
use crate::stats::Better;

/// Two counters of every thread of some processes. Threads that end keep what they counted;
/// threads that start are joined at the next reading.
#[derive(Debug)]
struct Threads {
    name: &'static str,
    pids: Vec<Pid>,
    kinds: [CounterKind; 2],
    open: BTreeMap<Pid, [Counter; 2]>,
    /// What threads that ended had counted.
    ended: [u64; 2],
    last: BTreeMap<Pid, [u64; 2]>,
}

impl Threads {
    fn open(
        name: &'static str,
        pids: &[Pid],
        kinds: [CounterKind; 2],
    ) -> Result<Threads, MetricError> {
        let mut threads = Threads {
            name,
            pids: pids.to_vec(),
            kinds,
            open: BTreeMap::new(),
            ended: [0; 2],
            last: BTreeMap::new(),
        };
        threads.join()?;
        if threads.open.is_empty() {
            return Err(threads.fail("the target has no threads", "name a process that runs"));
        }
        Ok(threads)
    }

    fn fail(&self, reason: &str, next: &str) -> MetricError {
        MetricError::NoCounter {
            metric: self.name.to_owned(),
            reason: reason.to_owned(),
            next: next.to_owned(),
        }
    }

    /// Starts counting for threads that are not counted yet, and forgets those that ended.
    fn join(&mut self) -> Result<(), MetricError> {
        let alive: Vec<Pid> = self.pids.iter().flat_map(|pid| threads_of(*pid)).collect();
        let gone: Vec<Pid> = (self.open.keys().copied())
            .filter(|t| !alive.contains(t))
            .collect();
        for thread in gone {
            self.open.remove(&thread);
            let last = self.last.remove(&thread).unwrap_or_default();
            self.ended = [self.ended[0] + last[0], self.ended[1] + last[1]];
        }
        for thread in alive {
            if self.open.contains_key(&thread) {
                continue;
            }
            let pair = Counter::open(thread, self.kinds[0])
                .and_then(|a| Ok([a, Counter::open(thread, self.kinds[1])?]));
            match pair {
                Ok(pair) => {
                    self.open.insert(thread, pair);
                }
                // It ended between the listing and the call.
                Err(e) if e.errno == Errno::SRCH => {}
                Err(e) => return Err(self.refused(&e)),
            }
        }
        Ok(())
    }

    fn refused(&self, e: &SysError) -> MetricError {
        let next = match e.errno {
            Errno::ACCESS | Errno::PERM => "run as root, or: sysctl kernel.perf_event_paranoid=1",
            _ => {
                "use a metric of the server instead (postgres:, redis:, mysql:, cmd:, http://); \
                 virtual machines often have no counters"
            }
        };
        self.fail(&e.to_string(), next)
    }

    fn sums(&mut self) -> Result<[f64; 2], MetricError> {
        self.join()?;
        let mut sums = self.ended;
        let mut failed = None;
        for (thread, pair) in &mut self.open {
            match (pair[0].read(), pair[1].read()) {
                (Ok(a), Ok(b)) => {
                    self.last.insert(*thread, [a, b]);
                    sums = [sums[0] + a, sums[1] + b];
                }
                (Err(e), _) | (_, Err(e)) => failed = Some(e),
            }
        }
        if let Some(e) = failed {
            return Err(self.refused(&e));
        }
        #[allow(clippy::cast_precision_loss)]
        Ok([sums[0] as f64, sums[1] as f64])
    }

    fn ratio(&mut self) -> Result<Reading, MetricError> {
        let [above, below] = self.sums()?;
        Ok(Reading::Ratio { above, below })
    }
}

/// The threads of a process of this host: hardware counters exist for no captured one.
fn threads_of(pid: Pid) -> Vec<Pid> {
    hugeleaf_host::Root::live()
        .list(format!("proc/{pid}/task"))
        .known()
        .map(|names| {
            names
                .iter()
                .filter_map(|n| n.parse().ok().map(Pid))
                .collect()
        })
        .unwrap_or_default()
}

/// What the processor counts of the target's threads in user mode, over something else that it counts.
#[derive(Debug)]
pub struct Counted {
    threads: Threads,
    unit: &'static str,
}

impl Counted {
    /// `cpi`: cycles per instruction.
    ///
    /// # Errors
    /// [`MetricError::NoCounter`].
    pub fn cpi(pids: &[Pid]) -> Result<Counted, MetricError> {
        let kinds = [CounterKind::Cycles, CounterKind::Instructions];
        Ok(Counted {
            threads: Threads::open("cpi", pids, kinds)?,
            unit: "cycles/instruction",
        })
    }

    /// Misses of the TLB for data, of loads, per instruction. Nobody names it in a flag.
    ///
    /// # Errors
    /// [`MetricError::NoCounter`].
    pub fn tlb_misses(pids: &[Pid]) -> Result<Counted, MetricError> {
        let kinds = [CounterKind::DataTlbLoadMisses, CounterKind::Instructions];
        Ok(Counted {
            threads: Threads::open("tlb-misses", pids, kinds)?,
            unit: "misses/instruction",
        })
    }

    /// `walk-cycles`: the share of cycles in which the processor walks page tables for data, by
    /// `event`, or by the one known for this processor.
    ///
    /// # Errors
    /// [`MetricError::NoCounter`].
    pub fn walk_cycles(pids: &[Pid], event: Option<u64>) -> Result<Counted, MetricError> {
        const PERF_TYPE_RAW: u32 = 4;
        let cpuinfo = hugeleaf_host::Root::live().read("proc/cpuinfo");
        let event = event.or_else(|| walk_event(cpuinfo.known().map_or("", String::as_str)));
        let Some(event) = event else {
            return Err(MetricError::NoCounter {
                metric: "walk-cycles".into(),
                reason: "no event is known for this processor".into(),
                next: "name the raw event as perf writes it: --metric walk-cycles:rHEX \
                       (perf list shows names)"
                    .into(),
            });
        };
        let kinds = [CounterKind::Raw(PERF_TYPE_RAW, event), CounterKind::Cycles];
        Ok(Counted {
            threads: Threads::open("walk-cycles", pids, kinds)?,
            unit: "share of cycles",
        })
    }
}

impl Metric for Counted {
    fn name(&self) -> String {
        self.threads.name.to_owned()
    }
    fn unit(&self) -> String {
        self.unit.to_owned()
    }
    fn better(&self) -> Better {
        Better::Lower
    }
    fn kind(&self) -> Kind {
        Kind::Ratio
    }
    fn read(&mut self) -> Result<Reading, MetricError> {
        self.threads.ratio()
    }
}

/// The raw event DTLB_LOAD_MISSES.WALK_ACTIVE of an Intel processor named by the text of
/// `/proc/cpuinfo`; event number by family in Intel's event files (perfmon). `None` where unknown.
pub fn walk_event(cpuinfo: &str) -> Option<u64> {
    // Event, unit mask 0x10, counter mask 1, laid out as the processor takes them.
    const SKYLAKE_TO_ICE_LAKE: u64 = 0x0100_1008;
    const FROM_GOLDEN_COVE: u64 = 0x0100_1012;
    let field = |name: &str| {
        let line = cpuinfo
            .lines()
            .find(|l| l.split_once(':').is_some_and(|(n, _)| n.trim() == name))?;
        Some(line.split_once(':')?.1.trim())
    };
    if field("vendor_id")? != "GenuineIntel" || field("cpu family")? != "6" {
        return None;
    }
    match field("model")?.parse::<u32>().ok()? {
        78 | 94 | 85 | 142 | 158 | 165 | 166 | 125 | 126 | 106 | 108 | 140 | 141 => {
            Some(SKYLAKE_TO_ICE_LAKE)
        }
        143 | 151 | 154 | 170 | 172 | 183 | 186 | 191 | 207 => Some(FROM_GOLDEN_COVE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_by_processor() {
        let of = |vendor: &str, model: u32| {
            walk_event(&format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: x\n"
            ))
        };
        assert_eq!(of("GenuineIntel", 85), Some(0x0100_1008));
        assert_eq!(of("GenuineIntel", 143), Some(0x0100_1012));
        assert_eq!(of("GenuineIntel", 1), None);
        assert_eq!(of("AuthenticAMD", 85), None);
        assert_eq!(walk_event(""), None);
    }

    #[test]
    fn counts_or_says_that_it_cannot() {
        match Counted::cpi(&[hugeleaf_sys::own_pid()]) {
            Ok(mut cpi) => {
                let before = cpi.read().unwrap();
                let work: u64 = (0..1_000_000u64).fold(0, |a, b| a ^ b.wrapping_mul(a | 1));
                assert!(work != 1);
                let after = cpi.read().unwrap();
                let (Reading::Ratio { below: b, .. }, Reading::Ratio { below: a, .. }) =
                    (before, after)
                else {
                    panic!("not a ratio");
                };
                assert!(a > b);
            }
            Err(e) => {
                assert!(matches!(e, MetricError::NoCounter { .. }), "{e}");
                assert!(!e.next().is_empty());
                println!("not run: needs hardware counters");
            }
        }
    }

    #[test]
    fn a_target_without_threads_is_refused() {
        let e = Counted::cpi(&[Pid(u32::MAX)]).unwrap_err();
        assert!(matches!(e, MetricError::NoCounter { .. }));
    }
}
