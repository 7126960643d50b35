//! Demand of a host cache: memory that the ranks of one program share out, such as the KV cache of an LLM server.

use hugeleaf_units::Bytes;

use super::source_kind::{DemandSourceKind, FlagArity};
use super::synthetic::{parse, size};
use super::{Demand, EqualMappings, PageSource, Service, ServiceKind};

/// Maximum number of ranks. More are a mistake.
pub const MOST_RANKS: u64 = 10_000;

/// NUMA nodes of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheNodes {
    /// Pages may come from any node.
    #[default]
    Any,
    /// All ranks are bound to one node.
    One(u32),
    /// The ranks are spread over all nodes, and each is bound to its own.
    Each,
}

/// Equal parts of a cache, one per rank, on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheShare {
    /// The node to which these ranks are bound, if any.
    pub node: Option<u32>,
    pub ranks: u64,
    /// Memory of each rank, before it is rounded up to pages.
    pub bytes: Bytes,
}

/// Divides a cache among its ranks, and spreads these over the nodes in order. Without a number of ranks, each node
/// has one. The sum exceeds `bytes` by less than one byte per rank.
pub fn cache_shares(
    bytes: Bytes,
    ranks: Option<u64>,
    nodes: CacheNodes,
    host_nodes: &[u32],
) -> Vec<CacheShare> {
    let count = host_nodes.len().max(1) as u64;
    let default = match nodes {
        CacheNodes::Each => count,
        CacheNodes::Any | CacheNodes::One(_) => 1,
    };
    let ranks = ranks.unwrap_or(default).max(1);
    let each = Bytes(bytes.get().div_ceil(ranks));
    let share = |node, ranks| CacheShare {
        node,
        ranks,
        bytes: each,
    };
    match nodes {
        CacheNodes::Any => vec![share(None, ranks)],
        CacheNodes::One(node) => vec![share(Some(node), ranks)],
        // Rank r is on node r × nodes / ranks, as launchers bind them.
        CacheNodes::Each => (host_nodes.iter().zip(0..))
            .map(|(node, at)| {
                let from = |at: u64| (at * ranks).div_ceil(count);
                share(Some(*node), from(at + 1) - from(at))
            })
            .filter(|share| share.ranks > 0)
            .collect(),
    }
}

pub(super) const HOST_CACHE: DemandSourceKind = DemandSourceKind {
    flag: "host-cache",
    value: "SIZE",
    help: "Host cache of this size, shared out among --ranks; refused if it does not fit",
    arity: FlagArity::Once,
    check: Some(|text| parse::<Bytes>(text).map(drop)),
    is_synthetic: true,
    read: |_, text| {
        let bytes = size("host-cache", &text.to_string_lossy(), "512G")?;
        Ok(services(&cache_shares(bytes, None, CacheNodes::Any, &[])))
    },
};

/// Returns one service per node of a cache.
pub fn services(shares: &[CacheShare]) -> Vec<Service> {
    let service = |share: &CacheShare| {
        let name = match (shares.len(), share.node) {
            (0 | 1, _) | (_, None) => "host-cache".to_owned(),
            (_, Some(node)) => format!("host-cache-node{node}"),
        };
        let mapping = EqualMappings {
            count: share.ranks,
            bytes: share.bytes,
        };
        let mut service = Service::new(name, ServiceKind::HostCache);
        service.is_unnamed = true;
        service.node = share.node;
        let what = "cache in host memory";
        let source = "--host-cache";
        service.demands = vec![Demand::new(what, vec![mapping], PageSource::Pool, source)];
        service
    };
    shares.iter().map(service).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn show(shares: &[CacheShare]) -> Vec<(Option<u32>, u64, u64)> {
        let one = |s: &CacheShare| (s.node, s.ranks, s.bytes.get());
        shares.iter().map(one).collect()
    }

    #[test]
    fn ranks_are_spread_over_the_nodes_in_order() {
        let bytes = Bytes(800);
        let of = |ranks, nodes, host: &[u32]| show(&cache_shares(bytes, ranks, nodes, host));
        assert_eq!(of(None, CacheNodes::Any, &[0, 1]), [(None, 1, 800)]);
        assert_eq!(
            of(Some(8), CacheNodes::One(1), &[0, 1]),
            [(Some(1), 8, 100)]
        );
        let each = of(Some(8), CacheNodes::Each, &[0, 1]);
        assert_eq!(each, [(Some(0), 4, 100), (Some(1), 4, 100)]);
        let uneven = of(Some(3), CacheNodes::Each, &[0, 2]);
        assert_eq!(uneven, [(Some(0), 2, 267), (Some(2), 1, 267)]);
        let few = of(Some(1), CacheNodes::Each, &[0, 1]);
        assert_eq!(few, [(Some(0), 1, 800)]);
        let default = of(None, CacheNodes::Each, &[0, 1]);
        assert_eq!(default, [(Some(0), 1, 400), (Some(1), 1, 400)]);
    }

    proptest! {
        #[test]
        fn every_rank_has_one_part(bytes in 1u64..1 << 50, ranks in 1u64..MOST_RANKS, nodes in 1u32..9) {
            let host: Vec<u32> = (0..nodes).collect();
            for nodes in [CacheNodes::Any, CacheNodes::One(0), CacheNodes::Each] {
                let shares = cache_shares(Bytes(bytes), Some(ranks), nodes, &host);
                let all: u64 = shares.iter().map(|s| s.ranks).sum();
                prop_assert_eq!(all, ranks);
                let sum: u64 = shares.iter().map(|s| s.ranks * s.bytes.get()).sum();
                prop_assert!((bytes..bytes + ranks).contains(&sum));
            }
        }
    }
}
