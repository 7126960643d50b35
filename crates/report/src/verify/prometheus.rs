//! The text format of Prometheus, for an endpoint or the textfile collector of the node exporter.
//! One HELP and one TYPE line a metric; label values are escaped.

use std::fmt::Write;

use hugeleaf_units::Bytes;
use hugeleaf_verdict::plan::PagesOf;
use hugeleaf_verdict::verify::{Report, Row};

/// One metric with its samples.
struct Metric {
    name: &'static str,
    help: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, String)>,
}

impl Metric {
    fn new(name: &'static str, help: &'static str) -> Metric {
        Metric {
            name,
            help,
            samples: Vec::new(),
        }
    }

    fn add(&mut self, labels: Vec<(&'static str, String)>, value: impl ToString) {
        self.samples.push((labels, value.to_string()));
    }

    fn write(&self, out: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        let name = self.name;
        let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} gauge", self.help);
        for (labels, value) in &self.samples {
            out.push_str(name);
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            if !labels.is_empty() {
                let _ = write!(out, "{{{}}}", labels.join(","));
            }
            let _ = writeln!(out, " {value}");
        }
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The report as metrics; `now` in seconds since 1970, so that an alarm can tell a collector that
/// stopped.
pub fn verify_prometheus(report: &Report, now: u64) -> String {
    let mut good = Metric::new(
        "hugeleaf_verify_good",
        "1 where every service has the pages it asked for and nothing drifted.",
    );
    good.add(Vec::new(), u8::from(report.is_good()));
    let mut at = Metric::new(
        "hugeleaf_verify_time_seconds",
        "When this was found, in seconds since 1970.",
    );
    at.add(Vec::new(), now);
    let mut out = String::new();
    for metric in [good, at, findings(report)]
        .into_iter()
        .chain(services(report))
        .chain([pools(report)])
    {
        metric.write(&mut out);
    }
    out
}

/// How many findings there are of a kind.
fn findings(report: &Report) -> Metric {
    let mut metric = Metric::new("hugeleaf_findings", "What was found wrong, by kind.");
    let mut seen: Vec<&str> = Vec::new();
    for finding in &report.findings {
        if seen.contains(&finding.id) {
            continue;
        }
        seen.push(finding.id);
        let count = report
            .findings
            .iter()
            .filter(|f| f.id == finding.id)
            .count();
        let labels = vec![
            ("id", finding.id.to_owned()),
            ("severity", finding.severity.name().to_owned()),
        ];
        metric.add(labels, count);
    }
    metric
}

fn services(report: &Report) -> [Metric; 5] {
    let mut running = Metric::new("hugeleaf_service_running", "1 where the service runs.");
    let mut asked = Metric::new(
        "hugeleaf_service_asked_bytes",
        "Memory on pages of a pool that the service asked for.",
    );
    let mut got = Metric::new(
        "hugeleaf_service_got_bytes",
        "Memory on pages of a pool that the service has or has reserved.",
    );
    let mut short = Metric::new(
        "hugeleaf_service_short_pages",
        "Pages of a pool that the running service is short of.",
    );
    let mut since = Metric::new(
        "hugeleaf_service_start_time_seconds",
        "When the service was started, in seconds since 1970.",
    );
    for name in names(&report.services) {
        let rows = || report.services.iter().filter(|row| row.name == name);
        let label = || vec![("service", name.to_owned())];
        let sum = |of: fn(&Row) -> &[PagesOf]| -> Bytes {
            rows().flat_map(of).map(|pages| pages.bytes()).sum()
        };
        running.add(label(), u8::from(rows().any(Row::is_running)));
        asked.add(label(), sum(|row| &row.asked).get());
        got.add(label(), sum(|row| &row.got).get());
        short.add(label(), rows().map(|row| row.short.get()).sum::<u64>());
        if let Some(first) = rows().filter_map(|row| row.since.get()).min() {
            since.add(label(), first);
        }
    }
    [running, asked, got, short, since]
}

/// The names of services, each once: two samples of one name and labels are no valid answer, so
/// services of one name are summed up.
fn names(rows: &[Row]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.name.as_str()) {
            names.push(&row.name);
        }
    }
    names
}

fn pools(report: &Report) -> Metric {
    let mut metric = Metric::new("hugeleaf_pool_pages", "Pages of a pool, by state.");
    for pool in &report.pools {
        for (state, pages) in [
            ("total", pool.total),
            ("free", pool.free),
            ("reserved", pool.reserved),
            ("surplus", pool.surplus),
            ("unused", pool.unused),
        ] {
            let labels = vec![
                ("page_bytes", pool.page.bytes().get().to_string()),
                ("state", state.to_owned()),
            ];
            metric.add(labels, pages);
        }
    }
    metric
}

#[cfg(test)]
mod tests {
    use super::super::testing::report;
    use super::*;

    #[test]
    fn every_metric_has_its_head_once_and_every_line_reads() {
        let mut report = report();
        report.services.push(report.services[0].clone());
        let text = verify_prometheus(&report, 1_790_000_100);
        let mut samples: Vec<&str> = Vec::new();
        let mut heads: Vec<&str> = Vec::new();
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# TYPE ") {
                let name = head.strip_suffix(" gauge").unwrap();
                assert!(!heads.contains(&name), "{name} twice");
                heads.push(name);
            } else if !line.starts_with("# HELP ") {
                let (sample, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(!samples.contains(&sample), "{sample} twice");
                let name = sample.split('{').next().unwrap();
                assert_eq!(Some(&name), heads.last(), "{line}");
                samples.push(sample);
            }
        }
        assert!(text.ends_with('\n') && samples.len() > 15, "{text}");
        for line in [
            "hugeleaf_verify_good 0",
            "hugeleaf_findings{id=\"service-short\",severity=\"problem\"} 1",
            "hugeleaf_service_short_pages{service=\"postgresql@15-main\"} 8400",
            "hugeleaf_service_running{service=\"odd \\\"name\\\"\\\\\\n\"} 0",
            "hugeleaf_pool_pages{page_bytes=\"2097152\",state=\"unused\"} 100",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in:\n{text}"
            );
        }
    }
}
