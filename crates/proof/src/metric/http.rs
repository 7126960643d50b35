//! A metric on a page of Prometheus text.

use ureq::http::Uri;

use super::prometheus::{self, Selected, Selector};
use super::reading::{Kind, Metric, MetricError, PATIENCE, Reading};
use super::shown::{host_name, without};
use super::spec::{MetricKind, MetricSpec, SpecError, Typed};
use crate::stats::Better;

/// A page is not larger than this; big servers print a few megabytes.
const MOST_BYTES: u64 = 64 << 20;

pub(super) const KIND: MetricKind = MetricKind {
    names: &["http", "https"],
    form: "http://HOST/PATH#NAME",
    help: "Prometheus text: `NAME`, `NAME{label=\"x\"}`; of a histogram `mean(NAME)` (`NAME_sum` over \
           `NAME_count`), or `p99(NAME)`, which is known to its bucket only",
    example: "http://localhost:9100/metrics#mean(request_seconds)",
    needs_address: true,
    can_be_gauge: true,
    parse,
};

fn parse(typed: &Typed<'_>) -> Result<MetricSpec, SpecError> {
    const HTTPS: &str = "https is not supported; name the plain address or read it with cmd:curl";
    let whole = typed.rest.split_once('#');
    let address = whole.map_or(typed.rest, |(address, _)| address);
    // `http:http://host/…` is taken too: the kind, then a whole address.
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
    let selector: Selector = selector.parse().map_err(|e| typed.malformed(e))?;
    let shown = format!("{}{}#{selector}", typed.gauge_prefix(), shown(&url));
    let open = move |_: &_| Ok(Box::new(Http::open(&url, &selector, gauge)?) as _);
    Ok(MetricSpec::new(shown, open))
}

/// Scheme, host, port and path; a query may hold a key.
fn shown(url: &str) -> String {
    let Ok(uri) = url.parse::<Uri>() else {
        return "http:…".to_owned();
    };
    let port = uri
        .port_u16()
        .map_or(String::new(), |port| format!(":{port}"));
    let query = uri.query().map_or("", |_| "?…");
    let host = host_name(uri.host().unwrap_or_default());
    format!("http://{host}{port}{}{query}", uri.path())
}

/// `http://…#metric`.
#[derive(Debug)]
struct Http {
    agent: ureq::Agent,
    url: String,
    selector: Selector,
    gauge: Option<Better>,
    kind: Kind,
}

impl Http {
    /// Reads the page once to learn what the metric is.
    fn open(url: &str, selector: &Selector, gauge: Option<Better>) -> Result<Http, MetricError> {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .build()
            .new_agent();
        let mut http = Http {
            agent,
            url: url.to_owned(),
            selector: selector.clone(),
            gauge,
            kind: Kind::Counter,
        };
        http.kind = match http.read()? {
            Reading::Gauge(_) if gauge.is_none() => {
                return Err(http.garbage(
                    "is a gauge: say which way is better",
                    format!("--metric gauge:lower:{} or gauge:higher:…", http.name()),
                ));
            }
            Reading::Gauge(_) => Kind::Gauge,
            Reading::Buckets { .. } => Kind::Quantile,
            Reading::Ratio { .. } => Kind::Ratio,
            Reading::Counter(_) => Kind::Counter,
        };
        if http.kind == Kind::Counter && gauge.is_some() {
            return Err(http.garbage(
                "is a counter by its type, not a gauge",
                format!("--metric {}", http.name()),
            ));
        }
        Ok(http)
    }

    fn garbage(&self, what: impl Into<String>, next: impl Into<String>) -> MetricError {
        MetricError::garbage(&self.name(), what, next)
    }

    fn page(&self) -> Result<String, MetricError> {
        let fail = |e: ureq::Error| {
            // Some of them repeat the address.
            let reason = without(&e.to_string(), Some(&self.url));
            let next = format!("try it by hand: curl -sS '{}'", shown(&self.url));
            MetricError::unreachable(&self.name(), reason, next)
        };
        let mut response = self.agent.get(&self.url).call().map_err(fail)?;
        let body = response.body_mut().with_config().limit(MOST_BYTES);
        body.lossy_utf8(true).read_to_string().map_err(fail)
    }
}

impl Metric for Http {
    fn name(&self) -> String {
        format!("{}#{}", shown(&self.url), self.selector)
    }

    fn unit(&self) -> String {
        match self.kind {
            Kind::Counter => "1/s".into(),
            // By the naming rule of Prometheus the unit ends the name.
            _ if self.selector.name.ends_with("_seconds") => "s".into(),
            _ if self.selector.name.ends_with("_bytes") => "bytes".into(),
            _ => "value".into(),
        }
    }

    fn better(&self) -> Better {
        match self.kind {
            Kind::Quantile | Kind::Ratio => self.gauge.unwrap_or(Better::Lower),
            _ => self.gauge.unwrap_or(Better::Higher),
        }
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn instead_of_quantile(&self) -> Option<String> {
        let mean = Selector {
            quantile: None,
            mean: true,
            ..self.selector.clone()
        };
        let url = shown(&self.url);
        (self.kind == Kind::Quantile).then(|| format!("{url}#{mean}"))
    }

    fn read(&mut self) -> Result<Reading, MetricError> {
        let page = prometheus::parse(&self.page()?).map_err(|e| {
            let next = format!(
                "name a page of Prometheus text, as in http://localhost:9090/metrics#NAME: \
                 curl -sS '{}' | head",
                shown(&self.url)
            );
            self.garbage(e, next)
        })?;
        let found = prometheus::select(&page, &self.selector, self.gauge.is_some());
        match found {
            Ok(Selected::Counter(v)) => Ok(Reading::Counter(v)),
            Ok(Selected::Gauge(v)) => Ok(Reading::Gauge(v)),
            Ok(Selected::Mean { sum, count }) => Ok(Reading::Ratio {
                above: sum,
                below: count,
            }),
            Ok(Selected::Buckets(counts)) => Ok(Reading::Buckets {
                quantile: self.selector.quantile.unwrap_or(0.99),
                counts,
            }),
            Err(e) => {
                let url = shown(&self.url);
                let next = format!(
                    "see what there is: curl -sS '{url}' | grep {}",
                    self.selector.name
                );
                Err(self.garbage(e, next))
            }
        }
    }
}
