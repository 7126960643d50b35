//! The text format of Prometheus, for an endpoint or the textfile collector of the node exporter.
//! One HELP and one TYPE line a metric; label values are escaped.

use hugeleaf_units::Bytes;
use hugeleaf_verdict::findings::Finding;
use hugeleaf_verdict::plan::PagesOf;
use hugeleaf_verdict::verify::{Report, Row};

/// A sample: its labels and its value.
type Sample = (Vec<(&'static str, String)>, u64);

/// One metric with its samples; nothing of none.
fn metric(name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) -> String {
    let line = |(labels, value): Sample| {
        let labels: Vec<String> = (labels.iter())
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        match labels.is_empty() {
            true => format!("{name} {value}\n"),
            false => format!("{name}{{{}}} {value}\n", labels.join(",")),
        }
    };
    let samples: String = samples.into_iter().map(line).collect();
    match samples.is_empty() {
        true => samples,
        false => format!("# HELP {name} {help}\n# TYPE {name} gauge\n{samples}"),
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
    let good = metric(
        "hugeleaf_verify_good",
        "1 where every service has the pages it asked for and nothing drifted.",
        [(Vec::new(), report.is_good().into())],
    );
    let at = metric(
        "hugeleaf_verify_time_seconds",
        "When this was found, in seconds since 1970.",
        [(Vec::new(), now)],
    );
    [good, at, findings(report), services(report), pools(report)].concat()
}

/// All of one name, in the order in which the names are met.
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

/// How many findings there are of a kind.
fn findings(report: &Report) -> String {
    let kinds = by_name(&report.findings, |finding| finding.id).into_iter();
    let count = |(id, found): (&str, Vec<&Finding>)| {
        let severity = found[0].severity.name().to_owned();
        let labels = vec![("id", id.to_owned()), ("severity", severity)];
        (labels, found.len() as u64)
    };
    let help = "What was found wrong, by kind.";
    metric("hugeleaf_findings", help, kinds.map(count))
}

/// Two samples of one name and labels are no valid answer, so services of one name are summed up.
fn services(report: &Report) -> String {
    let services = by_name(&report.services, |row| &row.name);
    let of = |name: &str, help: &str, value: &dyn Fn(&[&Row]) -> Option<u64>| {
        let sample = |(service, rows): &(&str, Vec<&Row>)| {
            Some((vec![("service", (*service).to_owned())], value(rows)?))
        };
        metric(name, help, services.iter().filter_map(sample))
    };
    let bytes = |rows: &[&Row], of: fn(&Row) -> &[PagesOf]| {
        let pages = rows.iter().flat_map(|row| of(row));
        Some(pages.map(|pages| pages.bytes()).sum::<Bytes>().get())
    };
    [
        of(
            "hugeleaf_service_running",
            "1 where the service runs.",
            &|rows| Some(rows.iter().any(|row| row.is_running()).into()),
        ),
        of(
            "hugeleaf_service_asked_bytes",
            "Memory on pages of a pool that the service asked for.",
            &|rows| bytes(rows, |row| &row.asked),
        ),
        of(
            "hugeleaf_service_got_bytes",
            "Memory on pages of a pool that the service has or has reserved.",
            &|rows| bytes(rows, |row| &row.got),
        ),
        of(
            "hugeleaf_service_short_pages",
            "Pages of a pool that the running service is short of.",
            &|rows| Some(rows.iter().map(|row| row.short.get()).sum()),
        ),
        of(
            "hugeleaf_service_start_time_seconds",
            "When the service was started, in seconds since 1970.",
            &|rows| rows.iter().filter_map(|row| row.since.get()).min(),
        ),
    ]
    .concat()
}

fn pools(report: &Report) -> String {
    let samples = report.pools.iter().flat_map(|pool| {
        let states = [
            ("total", pool.total),
            ("free", pool.free),
            ("reserved", pool.reserved),
            ("surplus", pool.surplus),
            ("unused", pool.unused),
        ];
        states.map(|(state, pages)| {
            let size = pool.page.bytes().get().to_string();
            let labels = vec![("page_bytes", size), ("state", state.to_owned())];
            (labels, pages.get())
        })
    });
    metric("hugeleaf_pool_pages", "Pages of a pool, by state.", samples)
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
