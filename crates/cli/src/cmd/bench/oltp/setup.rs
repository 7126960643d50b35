//! How large the cache is, how many connect and what they touch: as the flags say, or as follows
//! from one another; refused before anything is done where it cannot be.

use hugeleaf_proof::bench::oltp::{Io, Steps, StepsBy};
use hugeleaf_units::Bytes;
use hugeleaf_workload::tpcc::{PostgresStore, Scale, SqliteStore, data_bytes, warehouses_in};

use super::{Args, Ground, Place};
use crate::context::Failure;

/// What a run is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) cache: Bytes,
    pub(super) connections: usize,
    pub(super) touch: Option<i32>,
    pub(super) io: Io,
}

/// The cache where nothing says how large it is to be.
const USUAL: Bytes = Bytes::from_mib(256);

/// The smallest that follows from the data.
const LEAST: Bytes = Bytes::from_mib(16);

/// A cache that misses is a fifth of the data.
const PART: u64 = 5;

impl Setup {
    /// From the flags; of steps, the largest cache and the fewest connections.
    pub(super) fn of(args: &Args, ground: &Ground) -> Result<Setup, Failure> {
        let data = touched_bytes(args);
        let cache = match (args.cache, args.by_cache.iter().max(), args.io) {
            (Some(cache), ..) | (None, Some(&cache), _) => cache,
            (None, None, None) => USUAL,
            // What a run adds has to fit, too.
            (None, None, Some(Io::Cached)) => LEAST.max(data + Bytes(data.get() / 8)),
            (None, None, Some(Io::Buffered | Io::Direct)) => LEAST.max(Bytes(data.get() / PART)),
        };
        if args.io == Some(Io::Cached) && cache < data {
            return Err(too_small(args, cache, data));
        }
        if cache > ground.most {
            return Err(too_large(args, cache, ground.most));
        }
        let fits = if cache < data {
            Io::Buffered
        } else {
            Io::Cached
        };
        let fewest = args.by_connections.iter().min().copied();
        Ok(Setup {
            cache,
            connections: fewest.or(args.connections).unwrap_or_else(processors),
            touch: args.touch,
            io: args.io.unwrap_or(fits),
        })
    }

    /// The same at a step.
    pub(super) fn at(self, args: &Args, step: Option<u64>) -> Setup {
        let Some(value) = step else {
            return self;
        };
        if args.by_cache.is_empty() {
            let connections = usize::try_from(value).unwrap_or(usize::MAX);
            return Setup {
                connections,
                ..self
            };
        }
        let share = u128::from(args.warehouses.unsigned_abs()) * u128::from(value);
        let share = share / u128::from(self.cache.get().max(1));
        // One a connection at least, as far as there are so many.
        let most = usize::try_from(args.warehouses).unwrap_or(1);
        let share = usize::try_from(share).unwrap_or(most);
        let touch = share.max(self.connections).min(most);
        Setup {
            cache: Bytes(value),
            touch: i32::try_from(touch).ok(),
            ..self
        }
    }
}

/// The steps that the flags name.
pub(super) fn steps(args: &Args) -> Option<Steps> {
    let (by, mut values): (StepsBy, Vec<u64>) = match args.by_cache.is_empty() {
        false => (
            StepsBy::Cache,
            args.by_cache.iter().map(|b| b.get()).collect(),
        ),
        true => (
            StepsBy::Connections,
            args.by_connections.iter().map(|n| *n as u64).collect(),
        ),
    };
    values.sort_unstable();
    values.dedup();
    (!values.is_empty()).then_some(Steps { by, values })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What a warehouse takes.
fn each(args: &Args) -> Bytes {
    match (&args.start, &args.database) {
        (Some(_), _) | (_, Some(Place::Postgres(_))) => PostgresStore::WAREHOUSE,
        (None, Some(Place::Sqlite(_)) | None) => SqliteStore::WAREHOUSE,
    }
}

fn touched_bytes(args: &Args) -> Bytes {
    let touched = args.touch.unwrap_or(args.warehouses).min(args.warehouses);
    data_bytes(each(args), touched, Scale::shrunk(args.shrink))
}

fn too_small(args: &Args, cache: Bytes, data: Bytes) -> Failure {
    let fit = warehouses_in(cache, each(args), Scale::shrunk(args.shrink));
    Failure::missing(
        format!("bench oltp: --io cached: a cache of {cache} is smaller than the data, {data}"),
        match fit {
            0 => format!("give it more: --cache {data}; or --io buffered"),
            fit => format!("what fits: --warehouses {fit}; or --cache {data}, or --io buffered"),
        },
    )
}

fn too_large(args: &Args, cache: Bytes, most: Bytes) -> Failure {
    let fit = warehouses_in(most, each(args), Scale::shrunk(args.shrink));
    let next = match (args.cache, args.by_cache.is_empty(), fit) {
        (Some(_), ..) => format!("hugeleaf bench oltp --cache {most}"),
        (None, false, _) => format!("hugeleaf bench oltp --by-cache with {most} at most"),
        // An eighth of it is left for what a run adds.
        (None, true, 2..) => format!("what fits: --warehouses {}", fit - fit / 8 - 1),
        (None, true, _) => "free memory: hugeleaf mem".to_owned(),
    };
    Failure::missing(
        format!(
            "bench oltp: a cache of {cache}: at most {most} may be taken (half of what is available)"
        ),
        next,
    )
}
