//! Implements `hugeleaf bench chase`.

use std::time::Duration;

use hugeleaf_proof::bench::chase::{ChaseSettings, cache_line};
use hugeleaf_units::{Bytes, parse_time};
use hugeleaf_workload::AskedPages;

use super::setup::{BenchSetup, OutputArgs};
use super::size_lists::parse_rounds;
use super::size_lists::{WorkingSets, named, usual};
use crate::context::{Context, Failure};

/// Smallest default working set.
const FROM: Bytes = Bytes::from_kib(64);
/// Largest default working set, if memory allows. Beyond it latency changes little, and allocating
/// memory takes longer than measuring it.
const CAP: Bytes = Bytes::from_mib(4 * 1024);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Working sets:  64K..1G doubles from 64K to 1G; 64K..half ends at half of available memory;
               1M,64M,3G is a list
Pages:         base; 64K and thp:2M are transparent; hugetlb:2M and hugetlb:1G are from pools

Examples:
  hugeleaf bench chase
  hugeleaf bench chase --sizes 64K..half --html chase.html
  hugeleaf bench chase --sizes 1G --pages base,thp:2M --rounds 20

At most half of available memory is used at a time, and never more than the cgroup allows.
Exit status: 0 measured; 1 interrupted, or pages that --pages names were unavailable; 2 wrong usage;
3 a precondition is missing.")]
pub struct Args {
    /// Working sets [default: 64K, doubled up to half of available memory, at most 4G]
    #[arg(long, value_name = "LIST")]
    sizes: Option<WorkingSets>,
    /// Page sizes, separated by commas [default: base, THP, each pool, and enabled smaller THP
    /// sizes]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) pages: Vec<AskedPages>,
    /// Total measurement time, in addition to allocation and warm-up
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    time: Duration,
    /// Samples per working set and page size; an interval needs 6
    #[arg(long, value_name = "N", default_value = "9", value_parser = parse_rounds)]
    rounds: usize,
    /// Seed of the random orders, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl Args {
    pub(super) fn settings(
        &self,
        context: &Context,
        setup: &BenchSetup,
    ) -> Result<ChaseSettings, Failure> {
        let (host, most) = (&setup.host, setup.most);
        let sizes = match &self.sizes {
            Some(sizes) => sizes.clone(),
            None => WorkingSets::usual(FROM, most, CAP),
        };
        let sizes = sizes.resolve(most);
        let least = host.base_page.bytes();
        if let Some(small) = sizes.iter().find(|size| **size < least) {
            return Err(Failure::usage(
                format!(
                    "bench chase: a working set of {small} is smaller than a base page ({least})"
                ),
                format!("hugeleaf bench chase --sizes {least}..half"),
            ));
        }
        if let Some(large) = sizes.iter().find(|size| **size > most) {
            return Err(Failure::missing(
                format!(
                    "bench chase: a working set of {large} exceeds {most}, half of available memory"
                ),
                "hugeleaf bench chase --sizes 64K..half",
            ));
        }
        Ok(ChaseSettings {
            arms: match self.pages.is_empty() {
                true => usual(host, true),
                false => named(&self.pages, host),
            },
            sizes,
            time: self.time,
            rounds: self.rounds,
            seed: self.seed,
            line: cache_line(&context.root),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds() {
        assert_eq!(parse_rounds("9"), Ok(9));
        for text in ["0", "-1", "x", "10001"] {
            assert!(parse_rounds(text).is_err(), "{text}");
        }
    }
}
