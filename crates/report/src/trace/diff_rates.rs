//! What the host did a second, before and after: page faults by size, switches between threads,
//! paging.

use hugeleaf_trace::Trace;
use hugeleaf_trace::model::{Interval, SizeCount};
use hugeleaf_trace::tables::intervals::{faults_by_size, sum};
use hugeleaf_trace::tables::measured::Collection;
use hugeleaf_units::Bytes;

use super::diff::{Compared, number, times};
use super::parts::Part;
use super::words::{float, megabytes};
use crate::table::Align::{Left, Right};

/// What is counted in an interval.
type Of = fn(&Interval) -> u64;

impl Compared<'_> {
    /// The table; a row that is zero in both is left out, but for faults and switches: there zero is
    /// an answer.
    pub(super) fn rates(&self) -> Part {
        let heads = [
            ("A SECOND", Left),
            ("BEFORE", Right),
            ("AFTER", Right),
            ("CHANGE", Right),
        ];
        let mut table = Part::plain("Faults, switches and paging", &heads);
        let (stat, vmstat) = (Collection::CpuTime, Collection::Vmstat);
        let counts: [(&str, Of, bool, Collection); 4] = [
            ("page faults", |i| i.faults, true, vmstat),
            (
                "page faults that read a disk",
                |i| i.faults_major,
                false,
                vmstat,
            ),
            ("context switches", |i| i.context_switches, true, stat),
            ("new processes and threads", |i| i.forks, false, stat),
        ];
        for (name, of, always, what) in counts {
            let pair = self.sums_a_second(of, what);
            if always || is_any(pair) {
                table.rows.push(row(name.to_owned(), pair, &number));
            }
            if name == "page faults" {
                table.rows.extend(self.faults_of_sizes());
            }
        }
        let moved: [(&str, Of); 4] = [
            ("paged in", |i| i.page_in_bytes),
            ("paged out", |i| i.page_out_bytes),
            ("swapped in", |i| i.swap_in_bytes),
            ("swapped out", |i| i.swap_out_bytes),
        ];
        for (name, of) in moved {
            let pair = self.sums_a_second(of, vmstat);
            if is_any(pair) {
                let rate = |v: Option<f64>| v.map_or("-".to_owned(), megabytes);
                table.rows.push(row(name.to_owned(), pair, &rate));
            }
        }
        self.said(table, &[stat, vmstat], "nothing")
    }

    fn faults_of_sizes(&self) -> Vec<Vec<String>> {
        let [a, b] = [self.before.trace, self.after.trace].map(faults_by_size);
        let mut sizes: Vec<u64> = a.iter().chain(&b).map(|s| s.page_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let of = |size: u64| {
            let count = |all: &[SizeCount]| {
                let found = all.iter().find(|s| s.page_bytes == size);
                found.map_or(0, |s| s.count)
            };
            self.a_second([count(&a), count(&b)], Collection::Vmstat)
        };
        // The kernel counts many sizes, and a program meets one or two.
        let met = sizes.into_iter().map(|size| (size, of(size)));
        met.filter(|(_, pair)| is_any(*pair))
            .map(|(size, pair)| row(format!("  of {}", Bytes(size)), pair, &number))
            .collect()
    }

    fn sums_a_second(&self, of: Of, what: Collection) -> [Option<f64>; 2] {
        self.a_second(
            [self.before.trace, self.after.trace].map(|t| sum(t, of)),
            what,
        )
    }

    /// Counts of both over their lengths; missing where a trace has not counted them.
    fn a_second(&self, [before, after]: [u64; 2], what: Collection) -> [Option<f64>; 2] {
        let measured = self.measured(what);
        let rate = |at: usize, trace: &Trace, count: u64| {
            let seconds: f64 = trace.intervals.iter().map(|i| i.seconds).sum();
            (measured[at] && seconds > 0.0).then(|| float(count) / seconds)
        };
        [
            rate(0, self.before.trace, before),
            rate(1, self.after.trace, after),
        ]
    }
}

fn is_any(pair: [Option<f64>; 2]) -> bool {
    pair.iter().flatten().any(|rate| *rate > 0.0)
}

fn row(
    name: String,
    [a, b]: [Option<f64>; 2],
    show: &dyn Fn(Option<f64>) -> String,
) -> Vec<String> {
    vec![name, show(a), show(b), times(a, b)]
}

#[cfg(test)]
mod tests {
    use super::super::testing::beside;
    use super::*;
    use crate::table::Look;

    fn text(a: &Trace, b: &Trace) -> String {
        let part = beside(a, b).rates();
        part.text(Look::plain(100), "--all")
    }

    /// Words of the row that begins so.
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
                SizeCount {
                    page_bytes: Bytes::from_kib(4).get(),
                    count: small,
                },
                SizeCount {
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
        let text = text(&a, &b);
        assert_eq!(words(&text, "page faults"), ["2000", "50.0", "×0.03"]);
        assert_eq!(words(&text, "of 4K"), ["2000", "30.0", "×0.01"]);
        assert_eq!(words(&text, "of 2M"), ["0.00", "20.0", "-"]);
        assert_eq!(words(&text, "context switches"), ["300", "150", "×0.50"]);
        assert!(!text.contains("swapped"), "{text}");
    }

    #[test]
    fn of_nothing_there_are_no_rates() {
        let text = text(&Trace::default(), &Trace::default());
        assert_eq!(words(&text, "context switches"), ["-", "-", "-"]);
        assert!(!text.contains("NaN"), "{text}");
    }
}
