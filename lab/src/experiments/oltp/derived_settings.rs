//! Cache size, number of connections and touched data, from the flags or derived from one another.
//! Impossible combinations are refused before any work.

use crate::kits::tpcc::{PostgresStore, SqliteStore, TableCardinality, data_bytes, warehouses_in};
use hugeleaf_units::Bytes;

use super::settings::{DerivedSettings, OltpDatabase, OltpSettings, ReadPath};
use hugeleaf_proof::bench::{BenchContext, BenchError};

/// Default size of the cache.
const USUAL: Bytes = Bytes::from_mib(256);

/// Minimum size of a cache derived from the data.
const LEAST: Bytes = Bytes::from_mib(16);

/// Divisor of the data for a cache that misses.
const PART: u64 = 5;

impl DerivedSettings {
    /// Derives the setup from the flags; with steps, for the largest cache and fewest connections.
    pub(super) fn from_settings(
        order: &OltpSettings,
        machine: &BenchContext<'_>,
    ) -> Result<DerivedSettings, BenchError> {
        let data = touched_bytes(order);
        let cache = match (order.cache, order.by_cache.iter().max(), order.io) {
            (Some(cache), ..) | (None, Some(&cache), _) => cache,
            (None, None, None) => USUAL,
            // Rows that a run adds must fit, too.
            (None, None, Some(ReadPath::Cached)) => LEAST.max(data + Bytes(data.get() / 8)),
            (None, None, Some(ReadPath::Buffered | ReadPath::Direct)) => {
                LEAST.max(Bytes(data.get() / PART))
            }
        };
        if order.io == Some(ReadPath::Cached) && cache < data {
            return Err(too_small(order, cache, data));
        }
        if cache > machine.most {
            return Err(too_large(order, cache, machine.most));
        }
        let fits = if cache < data {
            ReadPath::Buffered
        } else {
            ReadPath::Cached
        };
        let fewest = order.by_connections.iter().min().copied();
        Ok(DerivedSettings {
            cache,
            connections: fewest.or(order.connections).unwrap_or_else(processors),
            touch: order.touch,
            io: order.io.unwrap_or(fits),
        })
    }

    /// Returns the same setup at a step.
    pub(super) fn at(self, order: &OltpSettings, step: Option<u64>) -> DerivedSettings {
        let Some(value) = step else {
            return self;
        };
        if order.by_cache.is_empty() {
            let connections = usize::try_from(value).unwrap_or(usize::MAX);
            return DerivedSettings {
                connections,
                ..self
            };
        }
        let share = u128::from(order.warehouses.unsigned_abs()) * u128::from(value);
        let share = share / u128::from(self.cache.get().max(1));
        // At least one warehouse per connection, as far as there are enough.
        let most = usize::try_from(order.warehouses).unwrap_or(1);
        let share = usize::try_from(share).unwrap_or(most);
        let touch = share.max(self.connections).min(most);
        DerivedSettings {
            cache: Bytes(value),
            touch: i32::try_from(touch).ok(),
            ..self
        }
    }
}

/// Returns the steps of the flags, in rising order, and their place.
pub(super) fn steps(order: &OltpSettings) -> Option<(&'static str, Vec<u64>)> {
    let (place, mut values): (_, Vec<u64>) = match order.by_cache.is_empty() {
        false => (
            "cache_bytes",
            order.by_cache.iter().map(|b| b.get()).collect(),
        ),
        true => (
            "connections",
            order.by_connections.iter().map(|n| *n as u64).collect(),
        ),
    };
    values.sort_unstable();
    values.dedup();
    (!values.is_empty()).then_some((place, values))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn each(order: &OltpSettings) -> Bytes {
    match &order.database {
        OltpDatabase::Sqlite(_) => SqliteStore::WAREHOUSE,
        OltpDatabase::ExternalServer(_) => PostgresStore::WAREHOUSE,
        OltpDatabase::Started(kind, _) => kind.warehouse,
    }
}

fn touched_bytes(order: &OltpSettings) -> Bytes {
    let touched = order
        .touch
        .unwrap_or(order.warehouses)
        .min(order.warehouses);
    data_bytes(each(order), touched, TableCardinality::shrunk(order.shrink))
}

fn too_small(order: &OltpSettings, cache: Bytes, data: Bytes) -> BenchError {
    let fit = warehouses_in(cache, each(order), TableCardinality::shrunk(order.shrink));
    BenchError::missing(
        format!("bench oltp: --io cached: a cache of {cache} is smaller than the data, {data}"),
        match fit {
            0 => format!("use more: --cache {data}; or --io buffered"),
            fit => format!("what fits: --warehouses {fit}; or --cache {data}, or --io buffered"),
        },
    )
}

fn too_large(order: &OltpSettings, cache: Bytes, most: Bytes) -> BenchError {
    let fit = warehouses_in(most, each(order), TableCardinality::shrunk(order.shrink));
    let next = match (order.cache, order.by_cache.is_empty(), fit) {
        (Some(_), ..) => format!("hugeleaf-lab oltp --cache {most}"),
        (None, false, _) => format!("hugeleaf-lab oltp --by-cache with {most} at most"),
        // An eighth of it is left for rows that a run adds.
        (None, true, 2..) => format!("what fits: --warehouses {}", fit - fit / 8 - 1),
        (None, true, _) => "free memory: hugeleaf mem".to_owned(),
    };
    BenchError::missing(
        format!(
            "bench oltp: a cache of {cache}: at most {most} may be taken (half of available memory)"
        ),
        next,
    )
}
