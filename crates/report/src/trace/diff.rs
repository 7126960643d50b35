//! Two traces side by side, such as the before and after of a case study.
//!
//! The report covers what is comparable, and gives the reason where it is not.

use std::collections::BTreeMap;

use hugeleaf_trace::model::{Interval, LockTotals, PageSizeCount};
use hugeleaf_trace::tables::interval_totals::{self, CpuTime, faults_by_size};
use hugeleaf_trace::tables::io_and_pins::{self, IoTotals};
use hugeleaf_trace::tables::not_measured::{TraceDataKind, all_not_measured, not_measured};
use hugeleaf_trace::tables::profile::{self, SymbolRow};
use hugeleaf_trace::tables::{TableScope, locks, share, target_names};
use hugeleaf_trace::{Trace, model::TraceEndReason};
use hugeleaf_units::Bytes;

use super::TraceView;
use super::charts::{self, last_sizes, page_sizes};
use super::format::{
    bytes, count, drawn_table, ending, float, flow, host, is_measured, module, nanos, part, rate,
    side, table, when, who, whole_part,
};
use crate::document::{
    Cell, CellValue, Chart, ChartKind, ColumnShrink, ContentBlock, Document, Note, Section, Table,
    TableBuilder, fact,
};

const ROWS: usize = 12;
/// Relative difference below which two durations count as equal.
const SAME_LENGTH: f64 = 0.1;

type CpuTimeField = fn(&CpuTime) -> f64;
type IntervalField = fn(&Interval) -> u64;

#[derive(Debug, Clone, Copy)]
pub struct TraceDiff<'a> {
    pub before: TraceView<'a>,
    pub after: TraceView<'a>,
}

struct DiffRow {
    name: String,
    values: [Cell; 2],
    change: Cell,
}

impl DiffRow {
    fn new(
        name: impl Into<String>,
        values: [Option<f64>; 2],
        cell: fn(Option<f64>) -> Cell,
    ) -> DiffRow {
        DiffRow {
            name: name.into(),
            values: values.map(cell),
            change: times(values),
        }
    }

    /// Returns the pair unless both values are zero or missing.
    fn some(
        name: impl Into<String>,
        values: [Option<f64>; 2],
        cell: fn(Option<f64>) -> Cell,
    ) -> Option<DiffRow> {
        let mut known = values.into_iter().flatten();
        let is_any = known.any(|value| value > 0.0);
        is_any.then(|| DiffRow::new(name, values, cell))
    }
}

/// Returns the ratio of after to before; absent if it is undefined.
fn times([before, after]: [Option<f64>; 2]) -> Cell {
    let whole = before.filter(|before| *before > 0.0);
    Cell::ratio(whole.zip(after).map(|(before, after)| after / before))
}

fn pairs(head: &str, rows: Vec<DiffRow>) -> TableBuilder<DiffRow> {
    Table::from_items(rows)
        .left(head, |row| row.name.clone())
        .right("BEFORE", |row| row.values[0].clone())
        .right("AFTER", |row| row.values[1].clone())
        .right("CHANGE", |row| row.change.clone())
}

fn a_flow(value: Option<f64>) -> Cell {
    value.map(flow).into()
}

/// Joins both sides by key; `None` marks a missing side.
fn joined<K: Ord, V>([before, after]: [Vec<(K, V)>; 2]) -> BTreeMap<K, [Option<V>; 2]> {
    let mut rows: BTreeMap<K, [Option<V>; 2]> = BTreeMap::new();
    for (at, side) in [before, after].into_iter().enumerate() {
        for (key, value) in side {
            rows.entry(key).or_default()[at] = Some(value);
        }
    }
    rows
}

/// Returns the distinct items of both sides in order of first occurrence.
fn either<T: PartialEq>(before: impl Iterator<Item = T>, after: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for one in before.chain(after) {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

impl TraceDiff<'_> {
    pub fn page(&self) -> Document {
        let mut page = Document::new("Before and after", self.headline());
        page.add(vec![
            fact("before", describe(&self.before)),
            fact("after", describe(&self.after)),
        ]);
        let why = Note::each("not comparable", self.not_comparable());
        page.add(why.collect::<Vec<_>>());
        for section in [
            self.cpu(),
            self.rates(),
            self.throughput(),
            self.intervals(),
            self.functions(),
            self.locks(),
            self.pins(),
            self.sizes(),
            self.findings(),
        ] {
            page.add(section.limited_to(ROWS, "--all"));
        }
        page
    }

    /// Returns the page for a browser, with both sides' findings and the command that made it.
    pub fn whole(&self, command: &[String]) -> Document {
        let mut page = self.page();
        page.add(self.before.found("Findings before"));
        page.add(self.after.found("Findings after"));
        page.section("Command", vec![super::command(command)]);
        page
    }

    fn headline(&self) -> String {
        let mut words = vec![self.two(who).join(" → ")];
        if let [Some(a), Some(b)] = self.two(moved)
            && a.bytes_a_second > 0.0
        {
            let [a, b] = [a, b].map(|work| work.bytes_a_second);
            let times = times([Some(a), Some(b)]);
            words.push(format!("{} → {} ({times})", flow(a), flow(b)));
        }
        for (name, of) in [
            ("user", (|c| c.user) as CpuTimeField),
            ("system", |c| c.system),
        ] {
            let [a, b] = self.two(|trace| {
                let cpu = interval_totals::host_cpu(trace);
                whole_part(cpu.share(of(&cpu)))
            });
            words.push(format!("{name} {a} → {b} %"));
        }
        words.join(", ")
    }

    /// Returns the reasons why the traces are not fully comparable; empty if they are.
    pub fn not_comparable(&self) -> Vec<String> {
        let (a, b) = (self.before.trace, self.after.trace);
        let mut why = Vec::new();
        let mut differ = |what: &str, a: String, b: String, so: &str| {
            if a != b {
                why.push(format!("{what}: {a} and {b}; {so}"));
            }
        };
        differ(
            "hosts",
            host(a),
            host(b),
            "times and rates are of two machines",
        );
        // PIDs differ from run to run, so targets are compared by name.
        let program = |t: &Trace| match target_names(t)[..] {
            [name] => name.to_owned(),
            _ => who(t),
        };
        differ(
            "targets",
            program(a),
            program(b),
            "their shares and throughput are of different programs",
        );
        differ(
            "samples",
            format!("{} {}", a.samples_a_second, a.sampled_by),
            format!("{} {}", b.samples_a_second, b.sampled_by),
            "shares can be compared, counts cannot",
        );
        let longer = a.seconds.max(b.seconds);
        if longer > 0.0 && (a.seconds - b.seconds).abs() / longer > SAME_LENGTH {
            why.push(format!(
                "lengths: {:.1} s and {:.1} s; rates and shares are shown, no sums",
                a.seconds, b.seconds
            ));
        }
        for (name, trace) in [("before", a), ("after", b)] {
            if trace.ending == TraceEndReason::TargetEnded {
                why.push(format!(
                    "{name}: {}; its last interval is cut",
                    ending(trace).unwrap_or_default()
                ));
            }
            let lost: u64 = trace.sources.iter().map(|s| s.lost).sum();
            if lost > 0 {
                why.push(format!(
                    "{name}: {} events were lost; its sums are too low",
                    count(lost)
                ));
            }
        }
        why
    }

    pub(super) fn measured(&self, what: TraceDataKind) -> [bool; 2] {
        self.two(|trace| is_measured(trace, what))
    }

    /// Returns a sentence on the sides that did not measure `what`, with reasons; `None` if both did.
    pub(super) fn not_measured(&self, what: TraceDataKind) -> Option<String> {
        let sides = [("before", self.before.trace), ("after", self.after.trace)];
        let missing: Vec<String> = sides
            .into_iter()
            .filter_map(|(side, trace)| Some(format!("{side}: {}", not_measured(trace, what)?)))
            .collect();
        (!missing.is_empty())
            .then(|| format!("{} not measured, {}", what.name(), missing.join("; ")))
    }

    /// Returns a table with a note on the meaning of `-`, or the reason why it is empty.
    fn table(
        &self,
        title: &str,
        drawn: Vec<ContentBlock>,
        rows: impl Into<Table>,
        parts: &[TraceDataKind],
        none: &str,
    ) -> Section {
        let rows: Table = rows.into();
        let missing = parts.iter().filter_map(|what| self.not_measured(*what));
        let missing: Vec<String> = missing.collect();
        let (none, notes) = match (missing.is_empty(), rows.rows.is_empty()) {
            (true, _) => (none.to_owned(), Vec::new()),
            (false, true) => (missing.join("; "), Vec::new()),
            (false, false) => {
                let notes = missing.iter().map(|why| format!("-: {why}."));
                (String::new(), notes.collect())
            }
        };
        drawn_table(title, drawn, rows, none).noted(notes)
    }

    fn two<T>(&self, of: impl Fn(&Trace) -> T) -> [T; 2] {
        [of(self.before.trace), of(self.after.trace)]
    }

    fn cpu(&self) -> Section {
        let share = |of: CpuTimeField| {
            self.two(|trace| {
                let cpu = interval_totals::host_cpu(trace);
                cpu.share(of(&cpu))
            })
        };
        let own = |of: CpuTimeField| {
            self.two(|trace| {
                let has_own = trace.target.is_some() && trace.seconds > 0.0;
                let cpu = interval_totals::target_cpu(trace).filter(|_| has_own)?;
                Some(of(&cpu) / trace.seconds)
            })
        };
        let ratios = self.two(|trace| interval_totals::host_cpu(trace).system_over_user());
        let of_host = [
            Some(DiffRow::new("user", share(|c| c.user), part)),
            DiffRow::some("system", share(|c| c.system), part),
            DiffRow::some("idle", share(|c| c.idle), part),
            DiffRow::some("wait", share(|c| c.wait), part),
            DiffRow::some("steal", share(|c| c.steal), part),
            Some(DiffRow::new("system over user", ratios, Cell::ratio)),
        ];
        let of_target = [
            ("target's user, CPUs", own(|c| c.user)),
            ("target's system, CPUs", own(|c| c.system)),
        ];
        let of_target = of_target.into_iter().filter(|(_, cpus)| *cpus != [None; 2]);
        let of_target = of_target.map(|(name, cpus)| DiffRow::new(name, cpus, Cell::number));
        let rows = of_host.into_iter().flatten().chain(of_target).collect();
        let rows = pairs("CPU TIME", rows);
        let what = [TraceDataKind::CpuTime];
        self.table("User and system time", self.over_time(), rows, &what, "")
    }

    /// Returns user and system time, on one scale for both traces.
    fn over_time(&self) -> Vec<ContentBlock> {
        let named = |of: &dyn Fn(&Trace) -> String| {
            let [before, after] = self.two(|trace| format!("{}, of all CPUs", of(trace)));
            [
                (format!("Before: {before}"), self.before.trace),
                (format!("After: {after}"), self.after.trace),
            ]
        };
        let host = named(&|_| "the host".to_owned());
        let host = charts::cpu_times(host, charts::host_times);
        let own = charts::cpu_times(named(&who), charts::target_times);
        let own: Vec<ContentBlock> = own.map(ContentBlock::from).into();
        let both = own.iter().all(|chart| !chart.is_empty());
        let own = own.into_iter().filter(|_| both);
        host.into_iter()
            .map(ContentBlock::from)
            .chain(own)
            .collect()
    }

    /// Returns host events a second. A row of zeros is omitted, except for faults and switches, where zero is an
    /// answer.
    fn rates(&self) -> Section {
        let (stat, vmstat) = (TraceDataKind::CpuTime, TraceDataKind::Vmstat);
        let count =
            |of: IntervalField, what| self.a_second(what, |trace| interval_totals::sum(trace, of));
        let moved = |name, of| DiffRow::some(name, count(of, vmstat), a_flow);
        let (number, faults) = (Cell::number, count(|i| i.faults, vmstat));
        let (major, forks) = (count(|i| i.faults_major, vmstat), count(|i| i.forks, stat));
        let switches = count(|i| i.context_switches, stat);
        let rows = [Some(DiffRow::new("page faults", faults, number))].into_iter();
        let rows = rows.chain(self.faults_of_sizes().map(Some)).chain([
            DiffRow::some("page faults that read a disk", major, number),
            Some(DiffRow::new("context switches", switches, number)),
            DiffRow::some("new processes and threads", forks, number),
            moved("paged in", |i| i.page_in_bytes),
            moved("paged out", |i| i.page_out_bytes),
            moved("swapped in", |i| i.swap_in_bytes),
            moved("swapped out", |i| i.swap_out_bytes),
        ]);
        let rows = pairs("A SECOND", rows.flatten().collect());
        let title = "Faults, switches and paging";
        self.table(title, Vec::new(), rows, &[stat, vmstat], "")
    }

    /// Returns faults of the sizes that occur; the kernel counts many, and a process meets one or two.
    fn faults_of_sizes(&self) -> impl Iterator<Item = DiffRow> {
        let [a, b] = self.two(faults_by_size);
        let mut sizes: Vec<u64> = a.iter().chain(&b).map(|s| s.page_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.into_iter().filter_map(|size| {
            let is_it = |s: &&PageSizeCount| s.page_bytes == size;
            let pair = self.a_second(TraceDataKind::Vmstat, |trace| {
                faults_by_size(trace)
                    .iter()
                    .find(is_it)
                    .map_or(0, |s| s.count)
            });
            DiffRow::some(format!("  of {}", Bytes(size)), pair, Cell::number)
        })
    }

    /// Returns both counts divided by the length of their intervals; `None` for a trace without such counts.
    fn a_second(&self, what: TraceDataKind, of: impl Fn(&Trace) -> u64) -> [Option<f64>; 2] {
        self.two(|trace| {
            let seconds: f64 = trace.intervals.iter().map(|i| i.seconds).sum();
            let is_known = is_measured(trace, what) && seconds > 0.0;
            is_known.then(|| float(of(trace)) / seconds)
        })
    }

    fn throughput(&self) -> Section {
        let mut rows = Vec::new();
        if let [Some(a), Some(b)] = self.two(moved) {
            let both = [(a, self.before.trace), (b, self.after.trace)];
            let bytes = both.map(|(work, _)| Some(work.bytes_a_second));
            let calls = both.map(|(work, trace)| {
                let calls = float(work.read_calls + work.write_calls);
                (trace.seconds > 0.0).then(|| calls / trace.seconds)
            });
            let cost = both.map(|(work, _)| work.cpu_seconds_a_gigabyte);
            rows.push(DiffRow::new("data moved", bytes, a_flow));
            rows.push(DiffRow::new(
                "reads and writes a second",
                calls,
                Cell::number,
            ));
            rows.push(DiffRow::new("CPU seconds a GB", cost, Cell::number));
        }
        if let [Some(a), Some(b)] = self.two(|trace| trace.throughput.clone())
            && a.unit == b.unit
        {
            let values = [Some(a.value), Some(b.value)];
            rows.push(DiffRow::new(a.unit, values, Cell::number));
        }
        let rows = pairs("THROUGHPUT", rows);
        let none = "the target moved no data in either";
        let title = "Throughput of the target";
        self.table(title, Vec::new(), rows, &[TraceDataKind::Io], none)
    }

    fn intervals(&self) -> Section {
        let kinds: [(&str, CpuTimeField); 4] = [
            ("US", |c| c.user),
            ("SY", |c| c.system),
            ("ID", |c| c.idle),
            ("WA", |c| c.wait),
        ];
        let [before, after] = [self.before.trace, self.after.trace].map(|t| &t.intervals[..]);
        let longer = if before.len() > after.len() {
            before
        } else {
            after
        };
        let cell = |of: &[Interval], at: usize, kind: CpuTimeField| {
            let cpu = of.get(at).map(CpuTime::from_interval);
            cpu.map_or_else(Cell::empty, |cpu| whole_part(cpu.share(kind(&cpu))))
        };
        let rows = Table::from_items(0..longer.len())
            .right("AT", |at| {
                let interval = &longer[*at];
                Cell::decimal(Some(interval.at_seconds + interval.seconds), 0)
            })
            .columns_for(kinds, |rows, (name, kind)| {
                rows.right(name, |at| cell(before, *at, kind))
            })
            .left("│", |_| "│")
            .columns_for(kinds, |rows, (name, kind)| {
                rows.right(name, |at| cell(after, *at, kind))
            });
        table("Intervals, before and after, in percent", rows, "nothing")
    }

    /// Returns the target's functions by the larger of their two shares.
    pub(super) fn hot(&self) -> Vec<FunctionShares> {
        let rows = joined(self.two(|trace| {
            let all = profile::modes(trace, TableScope::Target).total();
            let rows = profile::by_symbol(trace, TableScope::Target).into_iter();
            let share = |row: SymbolRow| {
                let share = share(row.samples, all).unwrap_or(0.0);
                ((row.name, row.module, row.kernel), share)
            };
            rows.filter(|row| row.samples > 0).map(share).collect()
        }));
        let hot = |((name, module, kernel), shares): (_, [Option<f64>; 2])| FunctionShares {
            name,
            module,
            kernel,
            shares: shares.map(Option::unwrap_or_default),
        };
        let mut rows: Vec<FunctionShares> = rows.into_iter().map(hot).collect();
        let highest = |hot: &FunctionShares| hot.shares[0].max(hot.shares[1]);
        rows.sort_by(|a, b| highest(b).total_cmp(&highest(a)));
        rows
    }

    fn functions(&self) -> Section {
        let sampled = self.measured(TraceDataKind::CpuSamples);
        let share = |hot: &FunctionShares, at: usize| Some(hot.shares[at]).filter(|_| sampled[at]);
        let all = self.hot();
        let bars = all.iter().map(|hot| {
            let values = [0, 1].map(|at| share(hot, at));
            let notes = values.map(|value| value.map(|value| part(Some(value))));
            (
                format!("{} ({})", hot.name, side(hot.kernel)),
                values,
                notes,
            )
        });
        let drawn = vec![side_by_side("", bars).into()];
        let rows = Table::from_items(&all)
            .right("BEFORE", |hot| part(share(hot, 0)))
            .right("AFTER", |hot| part(share(hot, 1)))
            .right("CHANGE", |hot| {
                let both = share(hot, 0).zip(share(hot, 1));
                Cell::from(both.map(|(a, b)| format!("{:+.1}", (b - a) * 100.0)))
            })
            .left("MODE", |hot| side(hot.kernel))
            .left("FUNCTION", |hot| hot.name.clone())
            .narrow(ColumnShrink::Truncate)
            .left("MODULE", |hot| module(&hot.module).to_owned());
        let title = "Hot functions of the target, by share of its samples";
        let none = "no samples of the target in either";
        self.table(title, drawn, rows, &[TraceDataKind::CpuSamples], none)
    }

    /// Returns waits by the function that takes the lock, because addresses differ from run to run.
    pub(super) fn waits(&self) -> Vec<(String, [LockTotals; 2])> {
        let mut rows: BTreeMap<String, [LockTotals; 2]> = BTreeMap::new();
        for (at, side) in self
            .two(|trace| locks::by_caller(trace, None, 1))
            .into_iter()
            .enumerate()
        {
            for row in side {
                rows.entry(row.function).or_default()[at].join(&row.totals);
            }
        }
        let mut rows: Vec<(String, [LockTotals; 2])> = rows.into_iter().collect();
        rows.sort_by_key(|(_, t)| std::cmp::Reverse(t[0].waited_nanos.max(t[1].waited_nanos)));
        rows
    }

    fn locks(&self) -> Section {
        let measured = self.measured(TraceDataKind::Locks);
        let seconds = self.two(|trace| trace.seconds);
        let all = self.waits();
        // Seconds waited a second.
        let waited = |totals: &[LockTotals; 2], at: usize| {
            let is_known = measured[at] && seconds[at] > 0.0;
            is_known.then(|| float(totals[at].waited_nanos) / 1e9 / seconds[at])
        };
        let a_time = |value: Option<f64>| match value {
            Some(value) if value > 0.0 => Cell::from(CellValue::Time(value)),
            Some(_) => CellValue::Count(0).into(),
            None => Cell::default(),
        };
        let bars = all.iter().map(|(function, totals)| {
            let values = [0, 1].map(|at| waited(totals, at));
            let note = |value: f64| match value > 0.0 {
                true => format!("{} a second", a_time(Some(value))).into(),
                false => "nothing".into(),
            };
            let notes = values.map(|value| value.map(note));
            (function.clone(), values, notes)
        });
        let drawn = side_by_side("Time waited", bars);
        let sides = [(0, ["WAITS/s", "WAITED/s", "MEAN"]), (1, ["AFTER"; 3])];
        let waits = |totals: &[LockTotals; 2], at: usize| {
            measured[at].then(|| rate(totals[at].contentions, seconds[at]))
        };
        let rows = Table::from_items(&all)
            .columns_for(sides, |rows, (at, names)| {
                rows.right(names[0], move |(_, t)| waits(t, at))
            })
            .columns_for(sides, |rows, (at, names)| {
                rows.right(names[1], move |(_, t)| a_time(waited(t, at)))
            })
            .columns_for(sides, |rows, (at, names)| {
                rows.right(names[2], move |(_, t)| t[at].mean_nanos().map(nanos))
            })
            .left("TAKEN BY", |(function, _)| function.clone());
        let none = "no thread waited for a lock in either";
        let title = "Lock contention by function";
        self.table(
            title,
            vec![drawn.into()],
            rows,
            &[TraceDataKind::Locks],
            none,
        )
    }

    fn pins(&self) -> Section {
        let calls = joined(self.two(|trace| {
            let rows = io_and_pins::pins(trace).into_iter();
            let rate = |row: io_and_pins::PinRow| (row.call, float(row.calls) / trace.seconds);
            rows.filter(|_| trace.seconds > 0.0).map(rate).collect()
        }));
        let row = |(name, seen): (String, [Option<f64>; 2])| {
            // An observed call that did not occur counts 0; an unobserved call is unknown.
            let mut parts = TraceDataKind::PINS.into_iter();
            let of_call = parts.find(|what| what.is_of(&name));
            let looked = self.measured(of_call.unwrap_or(TraceDataKind::PINS[0]));
            let rates = [0, 1].map(|at: usize| seen[at].or(looked[at].then_some(0.0)));
            DiffRow::new(name, rates, Cell::number)
        };
        let rows = pairs("CALLS A SECOND", calls.into_iter().map(row).collect());
        let title = "Calls that pin or lock memory";
        self.table(
            title,
            Vec::new(),
            rows,
            &TraceDataKind::PINS,
            "none in either",
        )
    }

    fn sizes(&self) -> Section {
        let sides = self.two(last_sizes);
        let on = |at: usize, name: &String| {
            let found = sides[at].iter().find(|(size, _)| size == name);
            // Memory that was read but has none of this size is 0; unread memory is unknown.
            let read = (!sides[at].is_empty()).then_some(0);
            bytes(found.map(|(_, bytes)| *bytes).or(read))
        };
        let [before, after] = [0, 1].map(|at: usize| sides[at].iter().map(|(name, _)| name));
        let rows = Table::from_items(either(before, after))
            .left("PAGES OF", |name| (*name).clone())
            .right("BEFORE", |name| on(0, name))
            .right("AFTER", |name| on(1, name));
        let [before, after] = self.two(last_sizes);
        let drawn = page_sizes(&[("before", before), ("after", after)]);
        let title = "Memory by page size, at the end of each";
        let what = [TraceDataKind::Memory];
        self.table(title, vec![drawn.into()], rows, &what, "not read in either")
    }

    fn findings(&self) -> Section {
        let word = |side: &TraceView<'_>, id: &str| {
            let found = side.findings.iter().find(|finding| finding.id == id);
            found.map_or("no", |finding| finding.severity.name())
        };
        let [before, after] = [self.before, self.after].map(|s| s.findings.iter().map(|f| f.id));
        let rows = Table::from_items(either(before, after))
            .left("FINDING", |id| *id)
            .left("BEFORE", |id| word(&self.before, id))
            .left("AFTER", |id| word(&self.after, id));
        let is_whole = self.two(|trace| all_not_measured(trace).is_empty()) == [true; 2];
        let note = "Findings cover only measured data: see the sources of each trace.";
        table("Findings", rows, "none in either").noted((!is_whole).then(|| note.to_owned()))
    }
}

/// Returns pairs of bars, before and after; an unmeasured one is labelled as such.
fn side_by_side(
    title: &str,
    rows: impl Iterator<Item = (String, [Option<f64>; 2], [Option<Cell>; 2])>,
) -> Chart {
    let bar = |(label, values, [before, after]): (String, [Option<f64>; 2], [Option<Cell>; 2])| {
        let note = |name: &str, cell: Option<Cell>| match cell {
            Some(cell) => format!("{name} {cell}"),
            None => format!("{name} not measured"),
        };
        let notes = [note("before", before), note("after", after)];
        (label, values.map(|value| Some(value.unwrap_or(0.0))), notes)
    };
    charts::bars(title, ChartKind::Bars, ["before", "after"], rows.map(bar))
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct FunctionShares {
    pub(super) name: String,
    pub(super) module: String,
    pub(super) kernel: bool,
    /// Shares before and after; 0 if the function did not occur.
    pub(super) shares: [f64; 2],
}

fn describe(side: &TraceView<'_>) -> String {
    let trace = side.trace;
    format!(
        "{}: {}, {:.1} s, {}, {}",
        side.file,
        who(trace),
        trace.seconds,
        when(trace),
        host(trace)
    )
}

fn moved(trace: &Trace) -> Option<IoTotals> {
    io_and_pins::work(trace).filter(IoTotals::moves_data)
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing;
    use super::*;
    use crate::document::{TextOptions, needs_nothing};
    use hugeleaf_verdict::trace_findings::findings as judge;
    use testing::compared;

    fn side<'a>(
        trace: &'a Trace,
        findings: &'a [hugeleaf_verdict::trace_findings::TraceFinding],
    ) -> TraceView<'a> {
        TraceView {
            trace,
            findings,
            file: "x.trace",
        }
    }

    #[test]
    fn the_case_study_side_by_side() {
        let (a, b) = (testing::pinning(), testing::cured());
        let (fa, fb) = (judge(&a), judge(&b));
        let compared = TraceDiff {
            before: side(&a, &fa),
            after: side(&b, &fb),
        };
        let text = compared.page().text(TextOptions::plain(110));
        for part in [
            "(×2.72)",
            "mlock_pte_range",
            "copy_to_iter",
            "×0.30",
            "512M",
            "pin-locking    warning  no",
            "CPU seconds a GB",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(compared.not_comparable().is_empty(), "{text}");
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let (a, mut b) = (testing::pinning(), testing::cured());
        b.host.name = "backup2".to_owned();
        b.seconds = 5.0;
        b.target = None;
        b.sources[0].lost = 3;
        let compared = TraceDiff {
            before: side(&a, &[]),
            after: side(&b, &[]),
        };
        let why = compared.not_comparable().join("\n");
        for part in ["hosts", "targets", "lengths", "3 events were lost"] {
            assert!(why.contains(part), "{part} in {why}");
        }
    }

    #[test]
    fn nothing_compares_with_nothing() {
        let empty = Trace::default();
        let compared = TraceDiff {
            before: side(&empty, &[]),
            after: side(&empty, &[]),
        };
        let text = compared.page().text(TextOptions::plain(80));
        assert!(
            text.contains("none in either") && !text.contains("NaN"),
            "{text}"
        );
        assert!(!text.contains("no thread waited"), "{text}");
    }

    fn rates(a: &Trace, b: &Trace) -> String {
        let mut page = Document::default();
        page.add(compared(a, b).rates());
        page.text(TextOptions::plain(100))
    }

    /// Words of the row that begins with `name`.
    fn words<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        let line = text.lines().find_map(|l| l.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name} in\n{text}"))
            .split_whitespace()
            .collect()
    }

    #[test]
    fn rates_are_over_the_length_of_the_intervals() {
        let interval = |faults, small, large, switches| Interval {
            seconds: 2.0,
            faults,
            faults_by_size: vec![
                PageSizeCount {
                    page_bytes: Bytes::from_kib(4).get(),
                    count: small,
                },
                PageSizeCount {
                    page_bytes: Bytes::from_mib(2).get(),
                    count: large,
                },
            ],
            context_switches: switches,
            idle_seconds: 1.0,
            ..Interval::default()
        };
        let trace = |interval| Trace {
            intervals: vec![interval],
            ..Trace::default()
        };
        let (a, b) = (
            trace(interval(4000, 4000, 0, 600)),
            trace(interval(100, 60, 40, 300)),
        );
        let text = rates(&a, &b);
        assert_eq!(words(&text, "page faults"), ["2000", "50", "×0.025"]);
        assert_eq!(words(&text, "of 4K"), ["2000", "30", "×0.015"]);
        assert_eq!(words(&text, "of 2M"), ["0", "20", "-"]);
        assert_eq!(words(&text, "context switches"), ["300", "150", "×0.50"]);
        assert!(!text.contains("swapped"), "{text}");
    }

    #[test]
    fn of_nothing_there_are_no_rates() {
        let text = rates(&Trace::default(), &Trace::default());
        assert_eq!(words(&text, "context switches"), ["-", "-", "-"]);
        assert!(!text.contains("NaN"), "{text}");
    }

    fn page_of(a: &Trace, b: &Trace) -> String {
        let compared = compared(a, b);
        compared
            .whole(&["hugeleaf".to_owned(), "trace".to_owned()])
            .html()
    }

    #[test]
    fn one_page_with_the_published_charts() {
        let page = page_of(&testing::pinning(), &testing::cured());
        needs_nothing(&page);
        // Two charts over time of the host and two of the target, then functions, locks and sizes.
        assert_eq!(page.matches("<svg").count(), 7);
        for part in [
            "×2.72",
            "pages of 2M hugetlb",
            "before 66.7 %",
            "after 0.0 %",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn nothing_beside_nothing_is_a_page() {
        let empty = Trace::default();
        let page = page_of(&empty, &empty);
        assert!(!page.contains("No thread waited") && !page.contains("No samples"));
        assert!(page.contains("lock contention not measured, before: this trace has no record"));
    }
}
