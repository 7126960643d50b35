//! Flags of `hugeleaf-lab pin`; see its `--help`.

use std::path::PathBuf;
use std::time::Duration;

use crate::experiments::memory_pinning::PinSettings;
use crate::kits::backup_io::AskedIoPages;
use crate::kits::memory_pinning::PinMethod;
use hugeleaf_units::{Bytes, parse_time};

use super::backup_io::{pages, place, whole_pages};
use hugeleaf_cli::bench::{BenchSetup, OutputArgs};
use hugeleaf_cli::bench::{once, parse_count, parse_rounds};
use hugeleaf_cli::context::Failure;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ways:   mlock (mlock and munlock); uring (io_uring buffer registration); direct (a read that
        bypasses the page cache)
Pages:  scattered (base pages in random places), split (huge pages, split), base, 64K, thp:2M,
        hugetlb:2M

Examples:
  hugeleaf-lab pin
  hugeleaf-lab pin --how uring --pages scattered,hugetlb:2M --threads 1

The first page layout is the baseline. The result notes ways for which the kernel has nothing to
do, and whether the memory kept its layout.
Exit status: 0 measured; 1 interrupted, or pages that --pages names were unavailable; 2 wrong usage;
3 a precondition is missing.")]
pub struct Args {
    /// Ways to pin, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "mlock,uring,direct"
    )]
    how: Vec<PinMethod>,
    /// Page layouts, separated by commas [default: scattered, split, and all page sizes of this
    /// host]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pages: Vec<AskedIoPages>,
    /// Numbers of concurrent threads, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = parse_threads)]
    threads: Vec<usize>,
    /// Size of the pinned buffer
    #[arg(long, value_name = "SIZE", default_value = "256K")]
    block: Bytes,
    /// Size of the memory from which all threads pin buffers
    #[arg(long, value_name = "SIZE", default_value = "32M")]
    space: Bytes,
    /// Place of the file for direct reads: a directory, or memory
    #[arg(long, value_name = "PLACE", default_value = ".")]
    device: PathBuf,
    /// Total measurement time, in addition to allocation
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    time: Duration,
    /// Samples per point; an interval needs 6
    #[arg(long, value_name = "N", default_value = "9", value_parser = parse_rounds)]
    rounds: usize,
    /// Seed of the random orders, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    /// Maximum number of threads; more are a mistake.
    const MOST: usize = 1024;
    parse_count(text, "threads", MOST)
}

impl Args {
    pub fn settings(&self, setup: &BenchSetup) -> Result<PinSettings, Failure> {
        whole_pages("pin", "block", self.block, &setup.host)?;
        let mut threads = self.threads.clone();
        threads.sort_unstable();
        threads.dedup();
        let most = threads.last().copied().unwrap_or(1) as u64;
        if self.space.get() / self.block.get() < most {
            let least = Bytes(self.block.get().saturating_mul(most));
            return Err(Failure::usage(
                format!(
                    "bench pin: {} is too small for a block of {} for each of {most} threads",
                    self.space, self.block
                ),
                format!("hugeleaf-lab pin --space {least}"),
            ));
        }
        let methods = once(self.how.iter().copied());
        let pages = pages(&self.pages, setup);
        let samples = self.rounds * pages.len() * methods.len() * threads.len();
        let samples = u32::try_from(samples.max(1)).unwrap_or(u32::MAX);
        /// Number of blocks that are read repeatedly.
        const BLOCKS: u64 = 128;
        Ok(PinSettings {
            methods,
            pages,
            threads,
            block: self.block,
            space: self.space,
            rounds: self.rounds,
            sample: (self.time / samples).max(SHORTEST),
            place: place(&self.device),
            each: Bytes(self.block.get().saturating_mul(BLOCKS)),
            seed: self.seed,
            memory_limit: setup.most,
        })
    }
}

/// Minimum length of a sample: the clock's own error affects shorter ones.
const SHORTEST: Duration = Duration::from_millis(2);
