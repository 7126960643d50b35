//! `[[balance]]`: one memory target for several servers, as written and as parsed.
//!
//! Errors have their place in the file. This module does not contact servers.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use hugeleaf_units::{Bytes, parse_time};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::server::ServerKind;
use crate::server_kinds::{KINDS, kind_named};
use hugeleaf_units::deserialize::{checked, time};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BalanceAction {
    Balance,
    #[default]
    Watch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PagePreference {
    #[default]
    #[serde(alias = "large")]
    Huge,
    Base,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BalanceTarget {
    /// Name, unique among targets.
    pub name: String,
    pub target: Bytes,
    pub action: BalanceAction,
    /// Time between two scans; at least a second.
    pub every: Duration,
    pub pages: PagePreference,
    /// The servers; at least one.
    pub components: Vec<BalancedServer>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BalancedServer {
    /// Name, unique in this target.
    pub name: String,
    pub kind: &'static ServerKind,
    /// The server's address; may contain a password.
    pub address: String,
    /// The address without the password.
    pub shown: String,
    pub least: Bytes,
    pub most: Bytes,
    pub miss: Duration,
    /// True if a server without a limit must get one.
    pub set_limit: bool,
    /// True if a server that fails instead of evicting may get less than its configured limit.
    pub below_limit: bool,
    /// Data that resizes may evict per hour, if it evicts.
    pub evict_per_hour: Bytes,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetToml {
    name: Spanned<String>,
    target: Spanned<String>,
    #[serde(default)]
    action: BalanceAction,
    #[serde(default = "usual_every")]
    every: Spanned<DurationToml>,
    #[serde(default)]
    pages: PagePreference,
    #[serde(default)]
    component: Vec<Spanned<ComponentToml>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ComponentToml {
    name: Spanned<String>,
    kind: Spanned<String>,
    address: Spanned<String>,
    least: Spanned<String>,
    most: Spanned<String>,
    #[serde(default)]
    miss: Option<MissCost>,
    #[serde(default)]
    set_limit: bool,
    #[serde(default)]
    below_limit: bool,
    #[serde(default)]
    evict_per_hour: Option<Spanned<String>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct DurationToml(#[serde(deserialize_with = "time")] Duration);

/// The cost of a miss, which may be less than a millisecond.
#[derive(Debug, Clone, Copy, Deserialize)]
struct MissCost(#[serde(deserialize_with = "short_time")] Duration);

fn short_time<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    checked(from, |text| {
        let micros = text.strip_suffix("us").map(|digits| digits.trim().parse());
        match micros {
            Some(Ok(0)) | Some(Err(_)) => {
                Err(format!("'{text}' is not a time; write 200us, 5ms or 1s"))
            }
            Some(Ok(micros)) => Ok(Duration::from_micros(micros)),
            None => parse_time(text),
        }
    })
}

fn usual_every() -> Spanned<DurationToml> {
    Spanned::new(0..0, DurationToml(Duration::from_secs(2)))
}

pub type SpannedError = (Range<usize>, String);

fn size(written: &Spanned<String>) -> Result<Bytes, SpannedError> {
    let bytes = written.as_ref().parse::<Bytes>();
    match bytes.map_err(|e| (written.span(), e.to_string()))? {
        Bytes::ZERO => Err((written.span(), "must be above 0, as in \"256M\"".into())),
        bytes => Ok(bytes),
    }
}

/// Divisor of a component's `most` for its default of `evict_per_hour`.
const EVICTED_PART: u64 = 4;

fn evict_per_hour(
    written: Option<&Spanned<String>>,
    kind: &ServerKind,
    most: Bytes,
) -> Result<Bytes, SpannedError> {
    let Some(written) = written else {
        return Ok(Bytes(most.get() / EVICTED_PART));
    };
    if !kind.evicts {
        let what = format!(
            "resizing {} evicts no data; remove evict_per_hour",
            kind.name()
        );
        return Err((written.span(), what));
    }
    let bytes = written.as_ref().parse::<Bytes>();
    bytes.map_err(|e| (written.span(), e.to_string()))
}

fn name(written: &Spanned<String>) -> Result<String, SpannedError> {
    let text = written.as_ref();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    match !text.is_empty() && text.len() <= 64 && text.chars().all(is_name) {
        true => Ok(text.clone()),
        false => Err((
            written.span(),
            format!("'{text}' is not a valid name: use 1 to 64 letters, digits, and - _ . @"),
        )),
    }
}

impl TargetToml {
    /// Checks the values, at the place `span` of the file.
    ///
    /// # Errors
    /// The place of a wrong value, and the reason.
    pub fn resolve(self, span: Range<usize>) -> Result<BalanceTarget, SpannedError> {
        let target = size(&self.target)?;
        let every = self.every.as_ref().0;
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&every) {
            let what = "every must be between 1s and 1h";
            return Err((self.every.span(), what.into()));
        }
        if self.component.is_empty() {
            let what = "the target has no components: add [[balance.component]] for each server";
            return Err((span, what.into()));
        }
        let mut names = BTreeSet::new();
        let mut components = Vec::new();
        for written in self.component {
            let span = written.get_ref().name.span();
            let member = written.into_inner().resolve()?;
            if !names.insert(member.name.clone()) {
                let what = format!("two components of the target are named '{}'", member.name);
                return Err((span, what));
            }
            components.push(member);
        }
        let floors: Bytes = components.iter().map(|member| member.least).sum();
        if floors > target {
            let what = format!(
                "the sum of all least is {floors}, more than the target of {target}; lower a least, or raise the target"
            );
            return Err((self.target.span(), what));
        }
        Ok(BalanceTarget {
            name: name(&self.name)?,
            target,
            action: self.action,
            every,
            pages: self.pages,
            components,
        })
    }
}

impl ComponentToml {
    fn resolve(self) -> Result<BalancedServer, SpannedError> {
        let name = name(&self.name)?;
        let Some(kind) = kind_named(self.kind.as_ref()) else {
            let all: Vec<&str> = KINDS.iter().flat_map(|kind| kind.names).copied().collect();
            let what = format!(
                "unknown kind '{}'; kinds are {}",
                self.kind.as_ref(),
                all.join(", ")
            );
            return Err((self.kind.span(), what));
        };
        let shown = (kind.check)(self.address.as_ref()).map_err(|what| {
            (
                self.address.span(),
                format!("{what}, as in {}", kind.example),
            )
        })?;
        let (least, most) = (size(&self.least)?, size(&self.most)?);
        if least > most {
            let what = format!("'{name}': least ({least}) is more than most ({most})");
            return Err((self.most.span(), what));
        }
        Ok(BalancedServer {
            name,
            kind,
            address: self.address.into_inner(),
            shown,
            least,
            most,
            miss: self.miss.map_or(kind.miss, |MissCost(time)| time),
            set_limit: self.set_limit,
            below_limit: self.below_limit,
            evict_per_hour: evict_per_hour(self.evict_per_hour.as_ref(), kind, most)?,
        })
    }
}
