//! `guard.toml`: permissions and scan intervals of the guard.
//!
//! Parses the file and its drop-ins into [`Config`]; errors name file, line and column. This module does not
//! act: [`crate::rule`] selects the rule of a process tree, and [`crate::policy`] decides.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hugeleaf_mover::{Percent, StallLimits};
use hugeleaf_proof::MetricSpec;
use hugeleaf_units::{Bytes, Failure, line_and_column, parse_time};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::rule::{Matcher, Rule};
use crate::rule_settings::any_time;
pub use crate::rule_settings::{
    DailyWindow, KeepCondition, PromotionLimits, RuleAction, TestSettings,
};
use hugeleaf_balancer::{BalanceAction, BalanceTarget, TargetToml};
use hugeleaf_units::Share;
use hugeleaf_units::deserialize::{checked, some, time};

/// Schema of the file that this version reads.
pub const SCHEMA: u64 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Minimum time between scans, at least a second. Longer while nothing changes, and if scans would exceed
    /// `cpu`.
    pub every: Duration,
    /// Share of one processor for scans, over a minute. Promotion has a budget of its own.
    pub cpu: Share,
    pub at_once: u32,
    /// Share of time in memory stalls of some task (PSI, `some`) above which promotion pauses.
    pub pause_memory: Share,
    /// Share of time in which tasks wait for a processor above which promotion waits for a quieter minute. It
    /// then continues with a quarter of its budget.
    pub pause_cpu: Share,
    /// Address of the page and the metrics; `None` for no server.
    pub listen: Option<SocketAddr>,
    /// Address of the metrics alone, beyond loopback only with `listen_beyond_host`; `None` for no such server.
    pub metrics: Option<SocketAddr>,
    /// True if `metrics` may be an address that other hosts reach.
    pub listen_beyond_host: bool,
    /// Group whose members may use the guard's socket; `None` for root only.
    pub group: Option<String>,
    /// File for node_exporter's textfile collector, if any.
    pub textfile: Option<PathBuf>,
    /// Maximum length of a log before rotation; at most two files are kept.
    pub log_bytes: Bytes,
    /// Maximum number of units exported individually; smaller ones are summed as `other`.
    pub series: usize,
    /// The rules; the first match counts, and the last one matches everything.
    pub rules: Vec<Rule>,
    pub targets: Vec<BalanceTarget>,
    /// Names of earlier builds in the files: where, and the new name. They still work.
    pub old_names: Vec<String>,
    /// True to change nothing, whatever rules and plans permit. Set by a flag, never by a file.
    pub is_dry: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", path.display(), at.map_or(String::new(), |(line, column)| format!(":{line}:{column}")))]
pub struct ConfigError {
    pub path: PathBuf,
    /// Line and column, from 1.
    pub at: Option<(usize, usize)>,
    pub what: String,
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::usage(
            error.to_string(),
            "see docs/reference/guard.md for all keys of a rule; then: hugeleaf guard --check",
        )
    }
}

/// One file as written; missing settings are `None`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigToml {
    #[serde(rename = "schema", deserialize_with = "schema")]
    _schema: (),
    #[serde(default, deserialize_with = "some_pace")]
    every: Option<Duration>,
    #[serde(default, deserialize_with = "some")]
    cpu: Option<Share>,
    #[serde(default, deserialize_with = "some_count")]
    at_once: Option<u32>,
    #[serde(default, deserialize_with = "some")]
    pause_memory: Option<Share>,
    #[serde(default, deserialize_with = "some")]
    pause_cpu: Option<Share>,
    #[serde(default, deserialize_with = "some_listen")]
    listen: Option<Option<SocketAddr>>,
    #[serde(default)]
    metrics: Option<Spanned<MetricsAddress>>,
    #[serde(default)]
    listen_beyond_host: Option<bool>,
    #[serde(default)]
    group: Option<String>,
    #[serde(default, deserialize_with = "some_path")]
    textfile: Option<PathBuf>,
    #[serde(default, deserialize_with = "some_log_bytes")]
    log_bytes: Option<Bytes>,
    #[serde(default, deserialize_with = "some_count")]
    series: Option<u32>,
    #[serde(default)]
    default: Option<Spanned<WrittenRule>>,
    #[serde(default)]
    rule: Vec<Spanned<WrittenRule>>,
    #[serde(default)]
    balance: Vec<Spanned<TargetToml>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    #[serde(default, deserialize_with = "some_pattern")]
    name: Option<String>,
    #[serde(default, deserialize_with = "some_pattern")]
    unit: Option<String>,
    #[serde(default, deserialize_with = "some_pattern")]
    cgroup: Option<String>,
    #[serde(default, deserialize_with = "some_pattern")]
    user: Option<String>,
    #[serde(default, deserialize_with = "some_pattern")]
    pod: Option<String>,
    action: Option<RuleAction>,
    #[serde(default, deserialize_with = "some")]
    budget: Option<Percent>,
    #[serde(default, deserialize_with = "some_time")]
    longest_stall: Option<Duration>,
    #[serde(default, deserialize_with = "some_any_time")]
    min_age: Option<Duration>,
    #[serde(default, deserialize_with = "some")]
    min_cpu: Option<Share>,
    #[serde(default, deserialize_with = "some")]
    min_bytes: Option<Bytes>,
    #[serde(default, deserialize_with = "some")]
    min_resident: Option<Percent>,
    #[serde(default, alias = "looks", deserialize_with = "some_count")]
    scans: Option<u32>,
    #[serde(default, deserialize_with = "some_count")]
    at_once: Option<u32>,
    #[serde(default, deserialize_with = "some_hours")]
    hours: Option<Vec<DailyWindow>>,
    #[serde(rename = "override")]
    overrides: Option<bool>,
    #[serde(default, deserialize_with = "some_metric")]
    metric: Option<String>,
    prove: Option<TestSettings>,
    keep: Option<KeepCondition>,
}

impl WrittenRule {
    fn matcher(&self) -> Matcher {
        Matcher {
            name: self.name.clone(),
            unit: self.unit.clone(),
            cgroup: self.cgroup.clone(),
            user: self.user.clone(),
            pod: self.pod.clone(),
        }
    }

    fn resolve(self, label: String, default: &WrittenRule) -> Rule {
        let matcher = self.matcher();
        let limits = PromotionLimits::default();
        // A named program is known to the user, so it need be neither old nor busy.
        let (age, cpu) = match matcher.names_a_program() {
            true => (Duration::ZERO, Share(0.0)),
            false => (
                default.min_age.unwrap_or(limits.min_age),
                default.min_cpu.unwrap_or(limits.min_cpu),
            ),
        };
        let metric = self.metric.or_else(|| default.metric.clone());
        Rule {
            label,
            matcher,
            action: self.action.or(default.action).unwrap_or_default(),
            limits: PromotionLimits {
                pace: StallLimits {
                    budget: (self.budget.or(default.budget)).unwrap_or(limits.pace.budget),
                    longest_stall: self.longest_stall.or(default.longest_stall),
                },
                min_age: self.min_age.unwrap_or(age),
                min_cpu: self.min_cpu.unwrap_or(cpu),
                min_bytes: (self.min_bytes.or(default.min_bytes)).unwrap_or(limits.min_bytes),
                min_resident: (self.min_resident.or(default.min_resident))
                    .unwrap_or(limits.min_resident),
                scans: self.scans.or(default.scans).unwrap_or(limits.scans),
                at_once: self.at_once.or(default.at_once).unwrap_or(limits.at_once),
                hours: self
                    .hours
                    .or_else(|| default.hours.clone())
                    .unwrap_or_default(),
            },
            overrides: self.overrides.or(default.overrides).unwrap_or(false),
            prove: match (self.prove.or(default.prove), &metric) {
                // A metric without settings enables tests.
                (None, Some(_)) => Some(TestSettings::default()),
                (prove, _) => prove,
            },
            metric,
            keep: self.keep.or(default.keep).unwrap_or_default(),
        }
    }
}

impl Default for Config {
    /// Settings without a file: everything is watched, nothing is changed.
    fn default() -> Config {
        Config {
            every: Duration::from_secs(5),
            cpu: Share(0.01),
            at_once: 1,
            pause_memory: Share(0.1),
            pause_cpu: Share(0.9),
            listen: Some(default_listen()),
            metrics: None,
            listen_beyond_host: false,
            group: None,
            textfile: None,
            log_bytes: Bytes::from_mib(8),
            series: 200,
            is_dry: false,
            targets: Vec::new(),
            old_names: Vec::new(),
            rules: vec![WrittenRule::default().resolve("default".into(), &WrittenRule::default())],
        }
    }
}

/// Loopback, so that nothing is served to the network.
fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9646))
}

impl Config {
    /// Parses the main file and its drop-ins, each with its path. A later file replaces earlier settings of the
    /// guard and earlier defaults. Its rules precede those of earlier files, so that a drop-in can refine them.
    pub fn parse(texts: &[(PathBuf, String)]) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        let mut default = WrittenRule::default();
        let mut rules: Vec<(String, WrittenRule)> = Vec::new();
        let mut metrics_place = None;
        for (path, text) in texts {
            let error = |span: Option<Range<usize>>, what: String| ConfigError {
                path: path.clone(),
                at: span.map(|span| line_and_column(text, span.start)),
                what,
            };
            let file: ConfigToml = toml::from_str(text).map_err(|e| {
                error(
                    e.span(),
                    e.message().trim().replace("i64", "a whole number"),
                )
            })?;
            config.old_names.extend(old_names(path, text));
            config.take(&file);
            if let Some(metrics) = &file.metrics {
                config.metrics = metrics.get_ref().0;
                metrics_place = Some((path, line_and_column(text, metrics.span().start)));
            }
            if let Some(written) = file.default {
                let span = written.span();
                let written = written.into_inner();
                if !written.matcher().is_empty() {
                    let what = "[default] applies to every process; put patterns into a [[rule]]";
                    return Err(error(Some(span), what.into()));
                }
                default = written;
            }
            let mut own = Vec::new();
            for (n, written) in file.rule.into_iter().enumerate() {
                let span = written.span();
                let written = written.into_inner();
                check(&written).map_err(|what| error(Some(span), what))?;
                own.push((label(path, n, &written), written));
            }
            rules.splice(0..0, own);
            for written in file.balance {
                let span = written.span();
                let target = written.into_inner().resolve(span.clone());
                let target = target.map_err(|(at, what)| error(Some(at), what))?;
                if config.targets.iter().any(|other| other.name == target.name) {
                    let what = format!("two targets are named '{}'", target.name);
                    return Err(error(Some(span), what));
                }
                config.targets.push(target);
            }
        }
        // Later files may permit an address or set another, so it is checked last.
        if let (Some((path, at)), Err(what)) = (metrics_place, config.check_metrics()) {
            return Err(ConfigError {
                path: path.clone(),
                at: Some(at),
                what,
            });
        }
        config.rules = (rules.into_iter())
            .map(|(label, written)| written.resolve(label, &default))
            .chain([WrittenRule::default().resolve("default".into(), &default)])
            .collect();
        Ok(config)
    }

    fn take(&mut self, file: &ConfigToml) {
        fn set<T: Clone>(to: &mut T, from: &Option<T>) {
            if let Some(value) = from {
                to.clone_from(value);
            }
        }
        set(&mut self.every, &file.every);
        set(&mut self.cpu, &file.cpu);
        set(&mut self.at_once, &file.at_once);
        set(&mut self.pause_memory, &file.pause_memory);
        set(&mut self.pause_cpu, &file.pause_cpu);
        set(&mut self.listen, &file.listen);
        set(&mut self.listen_beyond_host, &file.listen_beyond_host);
        set(&mut self.group, &file.group.clone().map(Some));
        set(&mut self.textfile, &file.textfile.clone().map(Some));
        set(&mut self.log_bytes, &file.log_bytes);
        set(&mut self.series, &file.series.map(|n| n as usize));
    }

    /// Refuses an address of the metrics that other hosts reach without permission, or that the page occupies.
    fn check_metrics(&self) -> Result<(), String> {
        let Some(metrics) = self.metrics else {
            return Ok(());
        };
        if !metrics.ip().is_loopback() && !self.listen_beyond_host {
            return Err(format!(
                "other hosts reach {metrics}: to permit this, add listen_beyond_host = true; else use a loopback address"
            ));
        }
        let is_taken = |page: &SocketAddr| {
            // Linux binds [::] for IPv4 too.
            let has = metrics.ip().is_unspecified() && (metrics.is_ipv6() || page.is_ipv4());
            page.port() == metrics.port() && page.port() != 0 && (has || page.ip() == metrics.ip())
        };
        match self.listen.filter(is_taken) {
            Some(page) => Err(format!(
                "the page and its metrics are at {page} already: use another port, or add listen = \"off\""
            )),
            None => Ok(()),
        }
    }

    pub fn acts(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.action == RuleAction::Promote)
            || (self.targets.iter()).any(|target| target.action == BalanceAction::Balance)
    }
}

/// Returns a note for each key or value of earlier builds in a file, with its new name.
fn old_names(path: &Path, text: &str) -> Vec<String> {
    const OLD: [(&str, Option<&str>, &str); 2] = [
        ("looks", None, "looks is now scans"),
        ("pages", Some("large"), "pages = \"large\" is now \"huge\""),
    ];
    let file: toml::Table = toml::from_str(text).unwrap_or_default();
    let tables = ["default", "rule", "balance"].map(|name| match file.get(name) {
        Some(toml::Value::Array(tables)) => tables.clone(),
        one => one.cloned().into_iter().collect(),
    });
    let is_old = |table: &toml::Value, (key, value, _): &(&str, Option<&str>, &str)| {
        let found = table.get(key);
        found.is_some_and(|found| value.is_none_or(|value| found.as_str() == Some(value)))
    };
    let all: Vec<&toml::Value> = tables.iter().flatten().collect();
    OLD.iter()
        .filter(|old| all.iter().any(|table| is_old(table, old)))
        .map(|(_, _, note)| format!("{}: {note}; the old name still works", path.display()))
        .collect()
}

fn check(written: &WrittenRule) -> Result<(), String> {
    if written.overrides == Some(true) && written.matcher().is_empty() {
        return Err("override = true needs a pattern: add name, unit, cgroup, user or pod".into());
    }
    if written.metric.is_some() && written.matcher().is_empty() {
        return Err("metric needs a pattern: add name, unit, cgroup, user or pod".into());
    }
    Ok(())
}

/// Returns a rule's label for decisions: its position and its patterns.
fn label(path: &Path, n: usize, written: &WrittenRule) -> String {
    let file = path
        .file_name()
        .map_or_else(|| path.to_string_lossy(), |name| name.to_string_lossy());
    format!("{file} rule {}: {}", n + 1, written.matcher())
}

fn schema<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    match i64::deserialize(from)? {
        1 => Ok(()),
        other => Err(D::Error::custom(format!(
            "schema {other} is not supported; this version of hugeleaf reads schema {SCHEMA}"
        ))),
    }
}

/// Parses a number, at least 1.
fn some_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let number = i64::deserialize(from)?;
    match u32::try_from(number)
        .ok()
        .filter(|n| (1..=10_000).contains(n))
    {
        Some(number) => Ok(Some(number)),
        None => Err(D::Error::custom(format!(
            "{number} is not a number from 1 to 10000"
        ))),
    }
}

fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(from).map(Some)
}

fn some_any_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    any_time(from).map(Some)
}

fn some_pace<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(3600));
    checked(from, |text| match parse_time(text)? {
        time if (least..=most).contains(&time) => Ok(Some(time)),
        _ => Err(format!("'{text}' is not between 1s and 1h")),
    })
}

fn some_log_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    let least = Bytes::from_kib(64);
    checked(from, |text| {
        match text.parse::<Bytes>().map_err(|e| e.to_string())? {
            bytes if bytes >= least => Ok(Some(bytes)),
            bytes => Err(format!("{bytes} is too small for a log; minimum: {least}")),
        }
    })
}

/// The value of `metrics`: `off`, or any address.
#[derive(Debug)]
struct MetricsAddress(Option<SocketAddr>);

impl<'de> Deserialize<'de> for MetricsAddress {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<MetricsAddress, D::Error> {
        checked(from, |text| match text {
            "off" => Ok(MetricsAddress(None)),
            _ => (text.parse().map(Some).map(MetricsAddress))
                .map_err(|_| format!("'{text}' is neither off nor an address, as in 0.0.0.0:9646")),
        })
    }
}

/// Parses a loopback address, because the data is for this host only.
fn some_listen<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<SocketAddr>>, D::Error> {
    checked(from, |text| {
        if text == "off" {
            return Ok(Some(None));
        }
        let address: SocketAddr = text.parse().map_err(|_| {
            format!(
                "'{text}' is neither off nor an address, as in {}",
                default_listen()
            )
        })?;
        match address.ip().is_loopback() {
            true => Ok(Some(Some(address))),
            false => Err(format!(
                "{address} is not a loopback address; for other hosts, use metrics = \"{address}\", or an \
                 authenticating proxy for the page"
            )),
        }
    })
}

fn some_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    checked(from, |text| match Path::new(text).is_absolute() {
        true => Ok(Some(text.into())),
        false => Err(format!("'{text}' is not an absolute path")),
    })
}

fn some_pattern<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |text| {
        match text.is_empty() || text.chars().any(char::is_control) {
            true => Err("empty, or has a control character; * matches everything".into()),
            false => Ok(Some(text.to_owned())),
        }
    })
}

fn some_metric<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |text| {
        let spec = text.parse::<MetricSpec>();
        spec.map(|_| Some(text.to_owned()))
            .map_err(|e| e.to_string().replace("--metric ", ""))
    })
}

/// Parses one part of the day or a list of them.
fn some_hours<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<DailyWindow>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMore {
        One(String),
        More(Vec<String>),
    }
    let texts = match OneOrMore::deserialize(from)? {
        OneOrMore::One(text) => vec![text],
        OneOrMore::More(texts) => texts,
    };
    let hours: Result<Vec<DailyWindow>, String> = texts.iter().map(|text| text.parse()).collect();
    hours.map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests;
