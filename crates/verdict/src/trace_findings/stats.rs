//! Sums of a trace that several rules share.

use std::collections::BTreeMap;

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{CpuMode, PageSizeUsage};
use hugeleaf_trace::tables::interval_totals::{self, CpuTime};
use hugeleaf_trace::tables::memory::{coverage, held, newest, total};
use hugeleaf_trace::tables::profile::busy;
use hugeleaf_trace::tables::{TableScope, memory_scope, share, target_name};
use hugeleaf_units::Bytes;

use super::kernel_work::{KernelWork, area_of, area_of_stack, is_release};
use super::percent;
use crate::findings::shell_word;

#[derive(Debug, Clone)]
pub struct TraceStats<'a> {
    pub trace: &'a Trace,
    /// CPU time of the target, or of the host without a target. `None` if unknown.
    pub cpu: Option<CpuTime>,
    pub samples: u64,
    pub in_kernel: u64,
    /// Kernel samples in functions that re-enable interrupts, by name.
    pub releases: BTreeMap<&'a str, u64>,
    pub areas: BTreeMap<KernelWork, u64>,
    pub host_samples: u64,
    pub host_areas: BTreeMap<KernelWork, u64>,
    /// Memory of the target or the host, by page size. `None` if unknown.
    pub held: Option<Vec<PageSizeUsage>>,
}

impl<'a> TraceStats<'a> {
    pub fn of(trace: &'a Trace) -> TraceStats<'a> {
        let mut seen = TraceStats {
            trace,
            cpu: interval_totals::target_cpu(trace),
            samples: 0,
            in_kernel: 0,
            releases: BTreeMap::new(),
            areas: BTreeMap::new(),
            host_samples: 0,
            host_areas: BTreeMap::new(),
            held: newest(trace).and_then(|state| held(state, memory_scope(trace))),
        };
        let stacks = 0..u32::try_from(trace.stacks.len()).unwrap_or(u32::MAX);
        let by_stack: Vec<_> = stacks.map(|s| area_of_stack(seen.kernel(s))).collect();
        for sample in busy(trace, TableScope::Host) {
            seen.host_samples += sample.count;
            if let Some(area) = by_stack[sample.stack as usize] {
                *seen.host_areas.entry(area).or_default() += sample.count;
            }
        }
        for sample in busy(trace, TableScope::Target) {
            seen.samples += sample.count;
            if let Some(area) = by_stack[sample.stack as usize] {
                *seen.areas.entry(area).or_default() += sample.count;
            }
            if sample.mode == CpuMode::Kernel {
                seen.in_kernel += sample.count;
                let leaf = trace.stacks[sample.stack as usize].frames.first();
                let leaf = leaf.map(|f| &trace.symbols[*f as usize]);
                if let Some(leaf) = leaf.filter(|s| s.kernel && is_release(&s.name)) {
                    *seen.releases.entry(&leaf.name).or_default() += sample.count;
                }
            }
        }
        seen
    }

    /// Returns the kernel functions of a stack, leaf first. User functions may have any name.
    pub fn kernel(&self, stack: u32) -> impl Iterator<Item = &'a str> {
        let frames = self.trace.stacks[stack as usize].frames.iter();
        let symbols = frames.map(|f| &self.trace.symbols[*f as usize]);
        symbols.filter(|s| s.kernel).map(|s| s.name.as_str())
    }

    /// Returns the share of an area in the target's samples; `None` without samples.
    pub fn area_share(&self, area: KernelWork) -> Option<f64> {
        share(self.areas.get(&area).copied().unwrap_or(0), self.samples)
    }

    /// Returns the share of an area in all samples of the host.
    pub fn host_area_share(&self, area: KernelWork) -> Option<f64> {
        let part = self.host_areas.get(&area).copied().unwrap_or(0);
        share(part, self.host_samples)
    }

    /// Returns the number of CPUs that the target kept busy, as in 1.3; `None` if unknown.
    pub fn cpus_used(&self) -> Option<f64> {
        let cpu = self.cpu.filter(|_| self.trace.seconds > 0.0)?;
        Some((cpu.user + cpu.system) / self.trace.seconds)
    }

    /// Converts a number of events to events per second.
    pub fn a_second(&self, count: u64) -> f64 {
        match self.trace.seconds > 0.0 {
            true => count as f64 / self.trace.seconds,
            false => 0.0,
        }
    }

    pub fn coverage(&self) -> Option<f64> {
        coverage(self.held.as_ref()?)
    }

    pub fn memory(&self) -> Option<Bytes> {
        self.held.as_ref().map(|held| Bytes(total(held)))
    }

    pub fn on_base(&self) -> Option<Bytes> {
        let base = self.held.as_ref()?.iter().filter(|h| h.kind == "base");
        Some(Bytes(base.map(|h| h.bytes).sum()))
    }

    /// Returns the huge page that any program can use: the PMD-size THP, or else the smallest pool page.
    pub fn large_page(&self) -> Option<Bytes> {
        let host = &self.trace.host;
        let pools = host.page_sizes.iter().filter(|s| s.kind == "hugetlb");
        let smallest = pools.map(|s| s.page_bytes).min();
        host.pmd_page_bytes.or(smallest).map(Bytes)
    }

    /// Returns the share of page-table walks in all cycles; `None` if the host has no such counter.
    pub fn walks(&self) -> Option<f64> {
        share(
            self.cpu_counter("page_walk_cycles")?,
            self.cpu_counter("cycles")?,
        )
    }

    pub fn cpu_counter(&self, name: &str) -> Option<u64> {
        self.trace.counters.iter().find(|c| c.name == name)?.value
    }

    pub fn walks_in_words(&self) -> String {
        let walks = self
            .cpu_counter("page_walks_data")
            .map(|walks| self.a_second(walks) / 1e6);
        match (self.walks(), walks) {
            (Some(part), _) => format!("page-table walks take {} of all cycles", percent(part)),
            (None, Some(millions)) => format!(
                "{millions:.1} million data page-table walks a second; this CPU does not count \
                 their cycles, so their cost is unknown"
            ),
            (None, None) => {
                "page-table walks cannot be counted here, so their cost is unknown".to_owned()
            }
        }
    }

    /// Returns the growth of a memory-management counter; `None` if the host has no counter of that name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counters = self.trace.memory_counters.iter();
        let mut named = counters.filter(|c| c.name == name).peekable();
        named.peek()?;
        Some(named.map(|c| c.total).sum())
    }

    pub fn who(&self) -> String {
        target_name(self.trace).unwrap_or("this host".to_owned())
    }

    /// Returns a command for the target, as in `hugeleaf why 4242`, or `instead` without a target.
    pub fn command(&self, verb: &str, instead: &str) -> String {
        match &self.trace.target {
            Some(target) => format!("hugeleaf {verb} {}", shell_word(&target.text)),
            None => instead.to_owned(),
        }
    }

    /// Returns the function of an area with most of the target's samples, and its share.
    pub fn hottest(&self, area: KernelWork) -> Option<(&'a str, f64)> {
        let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
        for sample in busy(self.trace, TableScope::Target) {
            let name = self
                .kernel(sample.stack)
                .find(|name| area_of(name).is_some());
            if let Some(name) = name.filter(|name| area_of(name) == Some(area)) {
                *by_name.entry(name).or_default() += sample.count;
            }
        }
        let (name, count) = by_name.into_iter().max_by_key(|(_, count)| *count)?;
        Some((name, share(count, self.samples)?))
    }
}
