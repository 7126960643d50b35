//! `verify` as metrics in the text format of Prometheus, for an endpoint or the textfile collector of the node exporter.

use hugeleaf_plan::PageCount;
use hugeleaf_plan::verify::{ServiceRow, VerifyReport};
use hugeleaf_units::Bytes;

use crate::exposition::{MetricFamily, text};

/// Returns the report as metrics; `now` is in seconds since 1970, so that an alarm can detect a stopped collector.
pub fn verify_prometheus(report: &VerifyReport, now: u64) -> String {
    let good = MetricFamily::gauge(
        "hugeleaf_verify_good",
        "1 if every service has the pages it requested and nothing has drifted.",
    );
    let at = MetricFamily::gauge(
        "hugeleaf_verify_time_seconds",
        "Time of the check, in seconds since 1970.",
    );
    let good = good.with_sample([], u64::from(report.is_good()));
    let mut all = vec![good, at.with_sample([], now), findings(report)];
    all.extend(services(report));
    all.push(pools(report));
    text(all)
}

/// Groups items by name, in order of first occurrence.
fn by_name<T>(all: &[T], name: impl Fn(&T) -> &str) -> Vec<(&str, Vec<&T>)> {
    let mut groups: Vec<(&str, Vec<&T>)> = Vec::new();
    for one in all {
        match groups.iter_mut().find(|(known, _)| *known == name(one)) {
            Some((_, group)) => group.push(one),
            None => groups.push((name(one), vec![one])),
        }
    }
    groups
}

fn findings(report: &VerifyReport) -> MetricFamily {
    let found = report.findings.iter();
    findings_by_kind(found.map(|finding| (finding.id, finding.severity.name())))
}

/// Counts findings, each given by its ID and severity. The guard exports this family too: node_exporter reads the files of both, and
/// drops a family whose help text differs from that of an earlier one.
pub(crate) fn findings_by_kind<'a>(
    found: impl Iterator<Item = (&'a str, &'a str)>,
) -> MetricFamily {
    let mut family = MetricFamily::gauge("hugeleaf_findings", "Number of findings, by kind.");
    let found: Vec<(&str, &str)> = found.collect();
    for (id, found) in by_name(&found, |(id, _)| id) {
        let severity = found[0].1;
        family.add([("id", id), ("severity", severity)], found.len() as u64);
    }
    family
}

/// Sums services of one name, because two samples with the same name and labels are invalid.
fn services(report: &VerifyReport) -> [MetricFamily; 5] {
    let services = by_name(&report.services, |row| &row.name);
    let of = |name, help, value: &dyn Fn(&[&ServiceRow]) -> Option<u64>| {
        let mut family = MetricFamily::gauge(name, help);
        for (service, rows) in &services {
            if let Some(value) = value(rows) {
                family.add([("service", service)], value);
            }
        }
        family
    };
    let bytes = |rows: &[&ServiceRow], of: fn(&ServiceRow) -> &[PageCount]| {
        let pages = rows.iter().flat_map(|row| of(row));
        Some(pages.map(|pages| pages.bytes()).sum::<Bytes>().get())
    };
    [
        of(
            "hugeleaf_service_running",
            "1 if the service runs.",
            &|rows| Some(rows.iter().any(|row| row.is_running()).into()),
        ),
        of(
            "hugeleaf_service_asked_bytes",
            "Memory on pages of a pool that the service requested.",
            &|rows| bytes(rows, |row| &row.asked),
        ),
        of(
            "hugeleaf_service_got_bytes",
            "Memory on pages of a pool that the service has or has reserved.",
            &|rows| bytes(rows, |row| &row.got),
        ),
        of(
            "hugeleaf_service_short_pages",
            "Pages of a pool that the running service lacks.",
            &|rows| Some(rows.iter().map(|row| row.short.get()).sum()),
        ),
        of(
            "hugeleaf_service_start_time_seconds",
            "Start time of the service, in seconds since 1970.",
            &|rows| rows.iter().filter_map(|row| row.since.get()).min(),
        ),
    ]
}

fn pools(report: &VerifyReport) -> MetricFamily {
    let mut family = MetricFamily::gauge("hugeleaf_pool_pages", "Pages of a pool, by state.");
    for pool in &report.pools {
        let size = pool.page.bytes().get().to_string();
        for (state, pages) in [
            ("total", pool.total),
            ("free", pool.free),
            ("reserved", pool.reserved),
            ("surplus", pool.surplus),
            ("unused", pool.unused),
        ] {
            family.add([("page_bytes", &size), ("state", state)], pages.get());
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::super::tests::testing::report;
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
            r#"hugeleaf_service_running{service="odd \"name\"\\\\\\u000a"} 0"#,
            "hugeleaf_pool_pages{page_bytes=\"2097152\",state=\"unused\"} 100",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in:\n{text}"
            );
        }
    }
}
