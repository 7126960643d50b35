//! A metric on a page of Prometheus text.

use std::time::Duration;

use super::prometheus::{self, Selected, Selector};
use super::shown::without;
use super::{Kind, Metric, MetricError, Reading};
use crate::stats::Better;

const PATIENCE: Duration = Duration::from_secs(10);
/// A page is not larger than this; big servers print a few megabytes.
const MOST_BYTES: u64 = 64 << 20;

/// `http://…#metric`.
#[derive(Debug)]
pub struct Http {
    agent: ureq::Agent,
    url: String,
    selector: Selector,
    gauge: Option<Better>,
    kind: Kind,
}

impl Http {
    /// Reads the page once to learn what the metric is.
    ///
    /// # Errors
    /// [`MetricError::Unreachable`], and [`MetricError::Garbage`] where the page lacks the metric
    /// or where it is a gauge and nobody said which way is better.
    pub fn open(
        url: &str,
        selector: &Selector,
        gauge: Option<Better>,
    ) -> Result<Http, MetricError> {
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
        MetricError::Garbage {
            metric: self.name(),
            what: what.into(),
            next: next.into(),
        }
    }

    fn page(&self) -> Result<String, MetricError> {
        let fail = |e: ureq::Error| MetricError::Unreachable {
            metric: self.name(),
            // Some of them repeat the address.
            reason: without(&e.to_string(), Some(&self.url)),
            next: format!(
                "try it by hand: curl -sS '{}'",
                super::shown::http(&self.url)
            ),
        };
        let mut response = self.agent.get(&self.url).call().map_err(fail)?;
        let body = response.body_mut().with_config().limit(MOST_BYTES);
        body.lossy_utf8(true).read_to_string().map_err(fail)
    }
}

impl Metric for Http {
    fn name(&self) -> String {
        format!("{}#{}", super::shown::http(&self.url), self.selector)
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
        let url = super::shown::http(&self.url);
        (self.kind == Kind::Quantile).then(|| format!("{url}#{mean}"))
    }

    fn read(&mut self) -> Result<Reading, MetricError> {
        let page = prometheus::parse(&self.page()?).map_err(|e| {
            let next = format!(
                "name a page of Prometheus text, as in http://localhost:9090/metrics#NAME: \
                 curl -sS '{}' | head",
                super::shown::http(&self.url)
            );
            self.garbage(e.to_string(), next)
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
                let url = super::shown::http(&self.url);
                let next = format!(
                    "see what there is: curl -sS '{url}' | grep {}",
                    self.selector.name
                );
                Err(self.garbage(e.to_string(), next))
            }
        }
    }
}
