//! A metric on a page of Prometheus text.

use hugeleaf_ask::http::{HttpAddress, page};
use hugeleaf_sys::Deadline;

use super::prometheus::{self, MetricSelector, SelectedValue};
use super::reading::{Metric, MetricError, Reading, ReadingKind};
use super::redact::redact_secret;
use super::spec::{MetricArgument, MetricKind, MetricSpec, MetricSpecError};
use crate::stats::BetterDirection;

/// Maximum size of a page; big servers print a few megabytes.
const MOST_BYTES: usize = 64 << 20;

pub(super) const KIND: MetricKind = MetricKind {
    names: &["http", "https"],
    form: "http://HOST/PATH#NAME",
    help: "a value of a Prometheus page. `NAME` or `NAME{label=\"x\"}`: a counter. `mean(NAME)`: the mean of a \
           histogram (`NAME_sum` / `NAME_count`). `p99(NAME)`: a quantile of a histogram, only as precise as its \
           buckets",
    example: "http://localhost:9100/metrics#mean(request_seconds)",
    needs_address: true,
    can_be_gauge: true,
    parse,
};

fn parse(typed: &MetricArgument<'_>) -> Result<MetricSpec, MetricSpecError> {
    const HTTPS: &str = "https is not supported; use an http address, or cmd:curl";
    let whole = typed.rest.split_once('#');
    let address = whole.map_or(typed.rest, |(address, _)| address);
    // `http:http://host/…` is accepted too: the kind, then a whole address.
    let address = address.strip_prefix("http:").unwrap_or(address);
    if typed.name == "https" || address.starts_with("https:") {
        return Err(typed.malformed(HTTPS));
    }
    let (_, selector) = whole.ok_or_else(|| {
        typed.malformed("say which metric of the page: http://HOST:PORT/metrics#NAME")
    })?;
    let address = address.trim_start_matches('/');
    if address.is_empty() {
        return Err(typed.malformed("lacks the address of the page"));
    }
    let (url, gauge) = (format!("http://{address}"), typed.gauge);
    let selector: MetricSelector = selector.parse().map_err(|e| typed.malformed(e))?;
    let shown = format!("{}{}#{selector}", typed.gauge_prefix(), shown(&url));
    let open = move |_: &_, question: Deadline<'_>| connect(&url, &selector, gauge, question);
    Ok(MetricSpec::new(shown, open))
}

/// Formats scheme, host, port and path; a query may hold a key.
fn shown(url: &str) -> String {
    match HttpAddress::parse(url) {
        Ok(HttpAddress {
            authority,
            path,
            query,
            ..
        }) => format!("http://{authority}{path}{}", query.map_or("", |_| "?…")),
        Err(_) => "http:…".to_owned(),
    }
}

/// Connects to `http://…#metric`. Reads the page once to learn the kind of the metric.
fn connect(
    url: &str,
    selector: &MetricSelector,
    gauge: Option<BetterDirection>,
    question: Deadline<'_>,
) -> Result<Metric, MetricError> {
    let page = MetricsPage {
        url: url.to_owned(),
        selector: selector.clone(),
        is_gauge: gauge.is_some(),
    };
    let name = page.name();
    let kind = match page.read(question)? {
        Reading::Gauge(_) if gauge.is_none() => {
            let what = "is a gauge: say which way is better";
            let next = format!("--metric gauge:lower:{name} or gauge:higher:…");
            return Err(MetricError::garbage(&name, what, next));
        }
        Reading::Counter(_) if gauge.is_some() => {
            let what = "is a counter by its type, not a gauge";
            return Err(MetricError::garbage(
                &name,
                what,
                format!("--metric {name}"),
            ));
        }
        Reading::Gauge(_) => ReadingKind::Gauge,
        Reading::Buckets { .. } => ReadingKind::Quantile,
        Reading::Ratio { .. } => ReadingKind::Ratio,
        Reading::Counter(_) => ReadingKind::Counter,
    };
    let unit = match kind {
        ReadingKind::Counter => "1/s",
        // By the naming rule of Prometheus the unit ends the name.
        _ if selector.name.ends_with("_seconds") => "s",
        _ if selector.name.ends_with("_bytes") => "bytes",
        _ => "value",
    };
    let better = match kind {
        ReadingKind::Quantile | ReadingKind::Ratio => BetterDirection::Lower,
        ReadingKind::Counter | ReadingKind::Gauge => BetterDirection::Higher,
    };
    let mean = MetricSelector {
        quantile: None,
        mean: true,
        ..selector.clone()
    };
    let mean = (kind == ReadingKind::Quantile).then(|| format!("{}#{mean}", shown(url)));
    Ok(Metric {
        better: gauge.unwrap_or(better),
        kind,
        instead_of_quantile: mean,
        ..Metric::counter(name, unit, move |question: Deadline<'_>| {
            page.read(question)
        })
    })
}

struct MetricsPage {
    url: String,
    selector: MetricSelector,
    is_gauge: bool,
}

impl MetricsPage {
    fn name(&self) -> String {
        format!("{}#{}", shown(&self.url), self.selector)
    }

    fn text(&self, question: Deadline<'_>) -> Result<String, MetricError> {
        let fail = |reason: &str| {
            // The reason may repeat the address.
            let reason = redact_secret(reason, Some(&self.url));
            let next = format!("try it by hand: curl -sS '{}'", shown(&self.url));
            MetricError::unreachable(&self.name(), reason, next)
        };
        let address = HttpAddress::parse(&self.url).map_err(|why| fail(&why))?;
        page(&address, question, MOST_BYTES).map_err(|e| fail(&e.what))
    }

    fn read(&self, question: Deadline<'_>) -> Result<Reading, MetricError> {
        let (name, url) = (self.name(), shown(&self.url));
        let page = prometheus::parse(&self.text(question)?).map_err(|e| {
            let next = format!(
                "name a page of Prometheus text, as in http://localhost:9090/metrics#NAME: \
                 curl -sS '{url}' | head"
            );
            MetricError::garbage(&name, e, next)
        })?;
        let found = prometheus::select(&page, &self.selector, self.is_gauge);
        let found = found.map_err(|e| {
            let selected = &self.selector.name;
            let next = format!("list the metrics: curl -sS '{url}' | grep {selected}");
            MetricError::garbage(&name, e, next)
        })?;
        Ok(match found {
            SelectedValue::Counter(v) => Reading::Counter(v),
            SelectedValue::Gauge(v) => Reading::Gauge(v),
            SelectedValue::Mean { sum, count } => Reading::Ratio {
                above: sum,
                below: count,
            },
            SelectedValue::Buckets(counts) => Reading::Buckets {
                quantile: self.selector.quantile.unwrap_or(0.99),
                counts,
            },
        })
    }
}
