//! Two traces side by side: the page of a case study, before and after.
//!
//! What is compared is told as far as the two can be compared, and why not where they cannot.

use std::collections::BTreeMap;

use hugeleaf_trace::model::LockTotals;
use hugeleaf_trace::tables::intervals::{self, CpuTime};
use hugeleaf_trace::tables::measured::{Collection, all_not_measured, not_measured};
use hugeleaf_trace::tables::profile::{self, SymbolRow};
use hugeleaf_trace::tables::work::{self, Work};
use hugeleaf_trace::tables::{Of, locks, share, target_names};
use hugeleaf_trace::{Trace, model::Ending};

use super::Shown;
use super::charts::last_sizes;
use super::parts::{Part, module};
use super::words::{count, ending, float, host, megabytes, nanos, part, when, who, whole_part};
use crate::bench::short;
use crate::table::Align::{Left, Right};
use crate::table::{Look, Paint};

/// Rows of each table on a terminal.
const ROWS: usize = 12;
/// Lengths that differ by less are alike.
const SAME_LENGTH: f64 = 0.1;

/// A kind of CPU time.
type OfCpu = fn(&CpuTime) -> f64;

/// One of the two.
pub type Side<'a> = Shown<'a>;

/// Two traces.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// The first.
    pub before: Side<'a>,
    /// The second.
    pub after: Side<'a>,
}

impl Compared<'_> {
    /// In text. `all` shows whole lists.
    pub fn text(&self, look: Look, all: bool) -> String {
        let most = if all { usize::MAX } else { ROWS };
        let mut text = look.paint(&look.wrap("", &self.headline()), Paint::Bold);
        for (name, side) in [("before", &self.before), ("after", &self.after)] {
            text += &look.wrap(&format!("{name:<8}"), &describe(side));
        }
        for line in self.not_comparable() {
            text += &look.wrap("not comparable  ", &line);
        }
        for part in self.parts(most) {
            text += "\n";
            text += &part.text(look, "--all");
        }
        text
    }

    /// What changed most, in a line.
    pub fn headline(&self) -> String {
        let (before, after) = (self.before.trace, self.after.trace);
        let mut words = vec![format!("{} → {}", who(before), who(after))];
        if let (Some(a), Some(b)) = (moved(before), moved(after))
            && a.bytes_a_second > 0.0
        {
            words.push(format!(
                "{} → {} (×{})",
                megabytes(a.bytes_a_second),
                megabytes(b.bytes_a_second),
                short(b.bytes_a_second / a.bytes_a_second)
            ));
        }
        let share = |t: &Trace, of: fn(&CpuTime) -> f64| {
            let cpu = intervals::host_cpu(t);
            whole_part(cpu.share(of(&cpu)))
        };
        for (name, of) in [("user", (|c| c.user) as OfCpu), ("system", |c| c.system)] {
            words.push(format!(
                "{name} {} → {} %",
                share(before, of),
                share(after, of)
            ));
        }
        words.join(", ")
    }

    /// What of the two cannot be compared, and why: empty where all can.
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
        // Ids differ from run to run: the same program is the same target.
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
            if trace.ending == Ending::TargetEnded {
                why.push(format!(
                    "{name}: {}; its last interval is cut",
                    ending(trace).unwrap_or_default()
                ));
            }
            let lost: u64 = trace.sources.iter().map(|s| s.lost).sum();
            if lost > 0 {
                why.push(format!(
                    "{name}: {} events were lost; its sums are too small",
                    count(lost)
                ));
            }
        }
        why
    }

    /// The tables.
    pub fn parts(&self, most: usize) -> Vec<Part> {
        vec![
            self.cpu(),
            self.rates(),
            self.throughput(),
            self.intervals(most),
            self.functions(most),
            self.locks(most),
            self.pins(most),
            self.sizes(),
            self.findings(),
        ]
    }

    /// Which of the two have measured something.
    pub(super) fn measured(&self, what: Collection) -> [bool; 2] {
        self.two(|trace| not_measured(trace, what).is_none())
    }

    /// Which of the two have not measured something, and why, as a sentence; `None` where both have.
    pub(super) fn not_measured(&self, what: Collection) -> Option<String> {
        let sides = [("before", self.before.trace), ("after", self.after.trace)];
        let missing: Vec<String> = sides
            .into_iter()
            .filter_map(|(side, trace)| Some(format!("{side}: {}", not_measured(trace, what)?)))
            .collect();
        (!missing.is_empty())
            .then(|| format!("{} not measured, {}", what.name(), missing.join("; ")))
    }

    /// Says below a table what a `-` in it stands for, and in the place of its rows why there are none.
    pub(super) fn said(&self, mut table: Part, parts: &[Collection], none: &str) -> Part {
        let missing = parts.iter().filter_map(|what| self.not_measured(*what));
        let missing: Vec<String> = missing.collect();
        table.empty = match missing.is_empty() {
            true => none.to_owned(),
            false => missing.join("; "),
        };
        if !table.rows.is_empty() {
            table
                .notes
                .extend(missing.iter().map(|why| format!("-: {why}.")));
        }
        table
    }

    fn two<T>(&self, of: impl Fn(&Trace) -> T) -> [T; 2] {
        [of(self.before.trace), of(self.after.trace)]
    }

    fn cpu(&self) -> Part {
        let heads = [
            ("CPU TIME", Left),
            ("BEFORE", Right),
            ("AFTER", Right),
            ("CHANGE", Right),
        ];
        let [a, b] = self.two(intervals::host_cpu);
        let fields: [(&str, OfCpu); 5] = [
            ("user", |c| c.user),
            ("system", |c| c.system),
            ("idle", |c| c.idle),
            ("wait", |c| c.wait),
            ("steal", |c| c.steal),
        ];
        let mut table = Part::plain("User and system time", &heads);
        for (name, of) in fields {
            let (x, y) = (a.share(of(&a)), b.share(of(&b)));
            if x.unwrap_or(0.0) + y.unwrap_or(0.0) > 0.0 || name == "user" {
                table
                    .rows
                    .push(vec![name.to_owned(), part(x), part(y), times(x, y)]);
            }
        }
        let (x, y) = (a.system_over_user(), b.system_over_user());
        let ratio = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("×{}", short(v)));
        table.rows.push(vec![
            "system over user".to_owned(),
            ratio(x),
            ratio(y),
            times(x, y),
        ]);
        let own = |t: &Trace| {
            let cpu = intervals::target_cpu(t).filter(|_| t.target.is_some() && t.seconds > 0.0)?;
            Some([cpu.user / t.seconds, cpu.system / t.seconds])
        };
        let [x, y] = self.two(own);
        for (at, name) in ["target's user, CPUs", "target's system, CPUs"]
            .into_iter()
            .enumerate()
        {
            if x.is_some() || y.is_some() {
                let (x, y) = (x.map(|v| v[at]), y.map(|v| v[at]));
                table
                    .rows
                    .push(vec![name.to_owned(), number(x), number(y), times(x, y)]);
            }
        }
        table
    }

    pub(super) fn throughput(&self) -> Part {
        let heads = [
            ("THROUGHPUT", Left),
            ("BEFORE", Right),
            ("AFTER", Right),
            ("CHANGE", Right),
        ];
        let [a, b] = self.two(moved);
        let [x_seconds, y_seconds] = self.two(|t| t.seconds);
        let mut table = Part::plain("What the target got done", &heads);
        if let Some((a, b)) = a.zip(b) {
            let calls = |w: &Work, seconds: f64| {
                (seconds > 0.0).then(|| float(w.read_calls + w.write_calls) / seconds)
            };
            let row = |name: &str,
                       x: Option<f64>,
                       y: Option<f64>,
                       show: &dyn Fn(Option<f64>) -> String| {
                vec![name.to_owned(), show(x), show(y), times(x, y)]
            };
            let rate = |v: Option<f64>| v.map_or("-".to_owned(), megabytes);
            table.rows.push(row(
                "data moved",
                Some(a.bytes_a_second),
                Some(b.bytes_a_second),
                &rate,
            ));
            table.rows.push(row(
                "reads and writes a second",
                calls(&a, x_seconds),
                calls(&b, y_seconds),
                &number,
            ));
            table.rows.push(row(
                "CPU seconds a GB",
                a.cpu_seconds_a_gigabyte,
                b.cpu_seconds_a_gigabyte,
                &number,
            ));
        }
        let told = self.two(|t| t.throughput.clone());
        if let [Some(x), Some(y)] = &told
            && x.unit == y.unit
        {
            let (v, w) = (Some(x.value), Some(y.value));
            table
                .rows
                .push(vec![x.unit.clone(), number(v), number(w), times(v, w)]);
        }
        self.said(
            table,
            &[Collection::Io],
            "the target moved no data in either",
        )
    }

    fn intervals(&self, most: usize) -> Part {
        let heads = [
            ("AT", Right),
            ("US", Right),
            ("SY", Right),
            ("ID", Right),
            ("WA", Right),
            ("│", Left),
            ("US", Right),
            ("SY", Right),
            ("ID", Right),
            ("WA", Right),
        ];
        let cells = |t: &Trace, at: usize| -> Vec<String> {
            let Some(cpu) = t.intervals.get(at).map(CpuTime::of) else {
                return vec![String::new(); 4];
            };
            [cpu.user, cpu.system, cpu.idle, cpu.wait]
                .map(|v| whole_part(cpu.share(v)))
                .to_vec()
        };
        let [a, b] = self.two(|t| t.intervals.len());
        let rows = (0..a.max(b)).map(|at| {
            let longer = if a > at {
                self.before.trace
            } else {
                self.after.trace
            };
            let end = longer.intervals[at].at_seconds + longer.intervals[at].seconds;
            let mut row = vec![format!("{end:.0}")];
            row.extend(cells(self.before.trace, at));
            row.push("│".to_owned());
            row.extend(cells(self.after.trace, at));
            row
        });
        let mut table = Part::plain("Intervals, before and after, in percent", &heads);
        table.rows = rows.take(most).collect();
        table.more = a.max(b).saturating_sub(most);
        table
    }

    /// Functions of the target by the larger of their two shares.
    pub(super) fn hot(&self) -> Vec<Hot> {
        let mut rows: BTreeMap<(String, String), Hot> = BTreeMap::new();
        for (at, trace) in [self.before.trace, self.after.trace]
            .into_iter()
            .enumerate()
        {
            let all = profile::modes(trace, Of::Target).total();
            let leaves = profile::by_symbol(trace, Of::Target)
                .into_iter()
                .filter(|r| r.samples > 0);
            for SymbolRow {
                name,
                module,
                kernel,
                samples,
                ..
            } in leaves
            {
                let row = rows
                    .entry((name.clone(), module.clone()))
                    .or_insert_with(|| Hot {
                        name,
                        module,
                        kernel,
                        shares: [0.0; 2],
                    });
                row.shares[at] = share(samples, all).unwrap_or(0.0);
            }
        }
        let mut rows: Vec<Hot> = rows.into_values().collect();
        let highest = |hot: &Hot| hot.shares[0].max(hot.shares[1]);
        rows.sort_by(|a, b| highest(b).total_cmp(&highest(a)));
        rows
    }

    fn functions(&self, most: usize) -> Part {
        let sampled = self.measured(Collection::CpuSamples);
        let heads = [
            ("BEFORE", Right),
            ("AFTER", Right),
            ("CHANGE", Right),
            ("WHERE", Left),
            ("FUNCTION", Left),
            ("MODULE", Left),
        ];
        let mut table = Part::plain("Hot functions of the target, parts of its samples", &heads);
        let rows = self.hot();
        table.more = rows.len().saturating_sub(most);
        table.rows.extend(rows.into_iter().take(most).map(|hot| {
            let [x, y] = hot.shares;
            let change = match sampled {
                [true, true] => format!("{:+.1}", (y - x) * 100.0),
                _ => "-".to_owned(),
            };
            vec![
                part(Some(x).filter(|_| sampled[0])),
                part(Some(y).filter(|_| sampled[1])),
                change,
                if hot.kernel { "kernel" } else { "user" }.to_owned(),
                hot.name,
                module(&hot.module).to_owned(),
            ]
        }));
        let none = "no samples of the target in either";
        self.said(table, &[Collection::CpuSamples], none)
    }

    /// Waits by the function that takes the lock: addresses differ from run to run.
    pub(super) fn waits(&self) -> Vec<(String, [LockTotals; 2])> {
        let mut rows: BTreeMap<String, [LockTotals; 2]> = BTreeMap::new();
        for (at, trace) in [self.before.trace, self.after.trace]
            .into_iter()
            .enumerate()
        {
            for row in locks::by_caller(trace, None, 1) {
                rows.entry(row.function).or_default()[at].join(&row.totals);
            }
        }
        let mut rows: Vec<(String, [LockTotals; 2])> = rows.into_iter().collect();
        rows.sort_by_key(|(_, t)| std::cmp::Reverse(t[0].waited_nanos.max(t[1].waited_nanos)));
        rows
    }

    fn locks(&self, most: usize) -> Part {
        let heads = [
            ("WAITS/s", Right),
            ("AFTER", Right),
            ("WAITED/s", Right),
            ("AFTER", Right),
            ("MEAN", Right),
            ("AFTER", Right),
            ("TAKEN BY", Left),
        ];
        let [x, y] = self.two(|t| t.seconds);
        let measured = self.measured(Collection::Locks);
        let dash = || "-".to_owned();
        let rate = |at: usize, n: u64, seconds: f64| match measured[at] {
            true => super::words::rate(n, seconds),
            false => dash(),
        };
        let waited = |at: usize, n: u64, seconds: f64| match measured[at] && seconds > 0.0 {
            true if n == 0 => "0".to_owned(),
            true => crate::bench::duration(float(n) / 1e9 / seconds),
            false => dash(),
        };
        let mean = |t: &LockTotals| t.mean_nanos().map_or_else(dash, nanos);
        let rows = self.waits();
        let mut table = Part::plain("Lock contention by function", &heads);
        table.more = rows.len().saturating_sub(most);
        table
            .rows
            .extend(rows.into_iter().take(most).map(|(function, [a, b])| {
                vec![
                    rate(0, a.contentions, x),
                    rate(1, b.contentions, y),
                    waited(0, a.waited_nanos, x),
                    waited(1, b.waited_nanos, y),
                    mean(&a),
                    mean(&b),
                    function,
                ]
            }));
        let none = "no thread waited for a lock in either";
        self.said(table, &[Collection::Locks], none)
    }

    fn pins(&self, most: usize) -> Part {
        let heads = [
            ("CALL", Left),
            ("BEFORE/s", Right),
            ("AFTER/s", Right),
            ("CHANGE", Right),
        ];
        let mut rows: BTreeMap<String, [Option<f64>; 2]> = BTreeMap::new();
        for (at, trace) in [self.before.trace, self.after.trace]
            .into_iter()
            .enumerate()
        {
            for row in work::pins(trace)
                .into_iter()
                .filter(|_| trace.seconds > 0.0)
            {
                rows.entry(row.call).or_default()[at] = Some(float(row.calls) / trace.seconds);
            }
        }
        let mut table = Part::plain("Calls that pin or lock memory", &heads);
        table.more = rows.len().saturating_sub(most);
        let measured = Collection::PINS.map(|what| (what, self.measured(what)));
        // A call that was looked for and not seen was made 0 times; one that was not looked for is not known.
        let known = |call: &str, at: usize, rate: Option<f64>| {
            let of_call = Collection::PINS[..]
                .iter()
                .position(|what| what.is_of(call));
            let (_, measured) = measured[of_call.unwrap_or(0)];
            rate.or(measured[at].then_some(0.0))
        };
        table
            .rows
            .extend(rows.into_iter().take(most).map(|(call, [a, b])| {
                let (a, b) = (known(&call, 0, a), known(&call, 1, b));
                vec![call, number(a), number(b), times(a, b)]
            }));
        self.said(table, &Collection::PINS, "none in either")
    }

    fn sizes(&self) -> Part {
        let heads = [("PAGES OF", Left), ("BEFORE", Right), ("AFTER", Right)];
        let [a, b] = self.two(last_sizes);
        let bytes = |of: &[(String, u64)], name: &str| {
            let found = of.iter().find(|(n, _)| n == name);
            // Memory that was read and has none of this size, and memory that was not read.
            let read = (!of.is_empty()).then_some(0);
            super::words::bytes(found.map(|(_, bytes)| *bytes).or(read))
        };
        let mut table = Part::plain("Memory by page size, at the end of each", &heads);
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in a.iter().chain(&b) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        table.rows.extend(
            names
                .iter()
                .map(|name| vec![(*name).clone(), bytes(&a, name), bytes(&b, name)]),
        );
        self.said(table, &[Collection::Memory], "not read in either")
    }

    fn findings(&self) -> Part {
        let heads = [("FINDING", Left), ("BEFORE", Left), ("AFTER", Left)];
        let word = |side: &Shown<'_>, id: &str| {
            let found = side.findings.iter().find(|f| f.id == id);
            found.map_or("no".to_owned(), |f| f.severity.name().to_owned())
        };
        let mut table = Part::plain("Findings", &heads);
        let mut ids: Vec<&str> = Vec::new();
        for finding in self.before.findings.iter().chain(self.after.findings) {
            if !ids.contains(&finding.id) {
                ids.push(finding.id);
            }
        }
        table.rows.extend(ids.iter().map(|id| {
            vec![
                (*id).to_owned(),
                word(&self.before, id),
                word(&self.after, id),
            ]
        }));
        table.empty = "none in either".to_owned();
        if self.two(|trace| all_not_measured(trace).is_empty()) != [true; 2] {
            let some = "What was not measured cannot be found: the sources of each trace say what that is.";
            table.notes.push(some.to_owned());
            table.empty = format!("none in either. {some}");
        }
        table
    }
}

/// A function in both traces.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hot {
    pub(super) name: String,
    pub(super) module: String,
    pub(super) kernel: bool,
    /// Before and after; 0 where it was not seen.
    pub(super) shares: [f64; 2],
}

/// A trace in a line.
pub(super) fn describe(side: &Shown<'_>) -> String {
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

fn moved(trace: &Trace) -> Option<Work> {
    work::work(trace).filter(Work::moves_data)
}

pub(super) fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), short)
}

/// How many times the one is the other; `-` where that says nothing.
pub(super) fn times(before: Option<f64>, after: Option<f64>) -> String {
    match (before, after) {
        (Some(a), Some(b)) if a > 0.0 && a.is_finite() && b.is_finite() => {
            format!("×{}", short(b / a))
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use hugeleaf_verdict::trace::findings as judge;

    fn side<'a>(
        trace: &'a Trace,
        findings: &'a [hugeleaf_verdict::trace::TraceFinding],
    ) -> Side<'a> {
        Shown {
            trace,
            findings,
            file: "x.trace",
        }
    }

    #[test]
    fn the_case_study_side_by_side() {
        let (a, b) = (testing::pinning(), testing::cured());
        let (fa, fb) = (judge(&a), judge(&b));
        let compared = Compared {
            before: side(&a, &fa),
            after: side(&b, &fb),
        };
        let text = compared.text(Look::plain(110), false);
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
        let compared = Compared {
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
        let compared = Compared {
            before: side(&empty, &[]),
            after: side(&empty, &[]),
        };
        let text = compared.text(Look::plain(80), true);
        assert!(
            text.contains("none in either") && !text.contains("NaN"),
            "{text}"
        );
        assert!(!text.contains("no thread waited"), "{text}");
    }
}
