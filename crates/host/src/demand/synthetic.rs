//! Demand of no existing program: a number of bytes, or a published rule.

use std::str::FromStr;

use hugeleaf_units::{Bytes, Failure};

use super::source_kind::{DemandSourceKind, FlagArity};
use super::{Demand, EqualMappings, PageSource, Service, ServiceKind};

pub(super) const BYTES: DemandSourceKind = DemandSourceKind {
    flag: "bytes",
    value: "SIZE",
    help: "Memory of this size, for any program",
    arity: FlagArity::Once,
    check: Some(|text| parse::<Bytes>(text).map(drop)),
    is_synthetic: true,
    read: |_, text| {
        let bytes = size("bytes", &text.to_string_lossy(), "8G")?;
        let mappings = vec![EqualMappings::single(bytes)];
        let demand = Demand::new("memory", mappings, PageSource::Pool, "--bytes");
        Ok(vec![service("bytes", ServiceKind::Other, demand)])
    },
};

pub(super) const MOVER: DemandSourceKind = DemandSourceKind {
    flag: "mover",
    value: "SEGMENTS",
    help: "Data mover with this number of segments, by the published rule",
    arity: FlagArity::Once,
    check: Some(|text| parse::<u64>(text).map(drop)),
    is_synthetic: true,
    read: |_, text| {
        let segments = parsed(parse(&text.to_string_lossy()))?;
        Ok(vec![service("mover", ServiceKind::Mover, rule(segments))])
    },
};

pub(super) fn parse<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse::<T>().map_err(|error| error.to_string())
}

fn parsed<T>(value: Result<T, String>) -> Result<T, Failure> {
    value.map_err(|what| Failure::usage(what, "hugeleaf plan --help"))
}

/// Parses the size that a flag gives. `example` is a size for the error if it is zero.
pub(super) fn size(flag: &str, text: &str, example: &str) -> Result<Bytes, Failure> {
    let bytes: Bytes = parsed(parse(text))?;
    if bytes.is_zero() {
        let what = format!("--{flag} 0: nothing to plan");
        return Err(Failure::usage(what, format!("as in --{flag} {example}")));
    }
    Ok(bytes)
}

fn service(name: &str, kind: ServiceKind, demand: Demand) -> Service {
    let mut service = Service::new(name, kind);
    service.is_unnamed = true;
    service.demands = vec![demand];
    service
}

/// Applies the published rule: a number of 16M pages for each data segment, and 32 more for the
/// kernel and for growth. Segments of the original platform are 256M.
fn rule(segments: u64) -> Demand {
    const RULE_PAGE: Bytes = Bytes::from_mib(16);
    const PAGES_A_SEGMENT: u64 = 16;
    const MORE: u64 = 32;
    let segment = EqualMappings {
        bytes: RULE_PAGE * PAGES_A_SEGMENT,
        count: segments,
    };
    let in_rule = segments
        .saturating_mul(PAGES_A_SEGMENT)
        .saturating_add(MORE);
    Demand::new(
        "data segments plus 32 pages",
        vec![segment, EqualMappings::single(RULE_PAGE * MORE)],
        PageSource::Pool,
        format!(
            "the published rule: {segments} × {PAGES_A_SEGMENT} + {MORE} = {in_rule} \
             pages of {RULE_PAGE}"
        ),
    )
}
