//! Flags of `hugeleaf-lab mover`; see its `--help`.

use std::path::PathBuf;
use std::time::Duration;

use crate::experiments::backup_io::BackupIoSettings;
use crate::kits::backup_io::{AskedIoPages, DeviceLocation, IoMode, IoPages};
use hugeleaf_host::Host;
use hugeleaf_units::{Bytes, parse_time};

use hugeleaf_cli::bench::{BenchSetup, OutputArgs};
use hugeleaf_cli::bench::{once, parse_count, parse_rounds, usual};
use hugeleaf_cli::context::Failure;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Modes:    direct; lock (each buffer is locked and unlocked around its transfer); uring;
          uring-registered
Pages:    scattered (base pages in random places), split (huge pages, split), base, 64K, thp:2M,
          hugetlb:2M
Devices:  a directory gets new files; memory creates block devices in memory (needs root); an
          existing block device or file is overwritten only with --overwrite

Examples:
  hugeleaf-lab mover --device /backup
  hugeleaf-lab mover --device memory --mode direct,lock --readers 2 --writers 5
  hugeleaf-lab mover --device /backup --rate 30M       number of drives that sustain 30M/s each
  hugeleaf-lab mover --device /dev/sdx --overwrite --html mover.html

The first page layout is the baseline. Created files and devices are removed afterwards, even after
a kill.
Exit status: 0 measured; 1 interrupted, or pages that --pages names were unavailable; 2 wrong usage;
3 a precondition is missing, a device failed, or a block was read back with wrong contents.")]
pub struct Args {
    /// Devices, separated by commas: directories, memory, block devices, files
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = ".")]
    device: Vec<PathBuf>,
    /// Overwrite existing devices and files; their contents are lost
    #[arg(long)]
    overwrite: bool,
    /// Transfer modes, separated by commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "direct"
    )]
    mode: Vec<IoMode>,
    /// Page layouts of the buffers, separated by commas [default: scattered, split, and all page
    /// sizes of this host]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pages: Vec<AskedIoPages>,
    /// Reader threads, each with its own device
    #[arg(long, value_name = "N", default_value = "2", value_parser = parse_threads)]
    readers: usize,
    /// Writer threads, each with its own device
    #[arg(long, value_name = "N", default_value = "5", value_parser = parse_threads)]
    writers: usize,
    /// Size of a block
    #[arg(long, value_name = "SIZE", default_value = "256K")]
    block: Bytes,
    /// Size of each device
    #[arg(long, value_name = "SIZE", default_value = "64M")]
    size: Bytes,
    /// Size of the data space, whose slots are the buffers [default: 64M, or more if all threads
    /// need more]
    #[arg(long, value_name = "SIZE")]
    space: Option<Bytes>,
    /// Transfers in flight per thread, in io_uring modes
    #[arg(long, value_name = "N", default_value = "4", value_parser = parse_depth)]
    depth: usize,
    /// Total measurement time, in addition to filling devices and reading back
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    time: Duration,
    /// Samples per arm; an interval needs 6
    #[arg(long, value_name = "N", default_value = "9", value_parser = parse_rounds)]
    rounds: usize,
    /// Also find the number of writers that sustain this rate per second each, e.g. 30M
    #[arg(long, value_name = "SIZE")]
    rate: Option<Bytes>,
    /// Maximum number of writers to try with --rate
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_most)]
    most_streams: usize,
    /// Seed of contents and random orders, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Maximum number of threads; more are a mistake.
const MOST_THREADS: usize = 1024;

fn parse_threads(text: &str) -> Result<usize, String> {
    match text {
        "0" => Ok(0),
        _ => parse_count(text, "threads", MOST_THREADS),
    }
}

fn parse_most(text: &str) -> Result<usize, String> {
    parse_count(text, "writers", MOST_THREADS)
}

fn parse_depth(text: &str) -> Result<usize, String> {
    /// Maximum depth; a ring accepts more (io_uring_setup(2)).
    const MOST: usize = 4_000;
    parse_count(text, "transfers", MOST)
}

/// Refuses flags that are wrong on any host.
fn check(args: &Args) -> Result<(), Failure> {
    let refuse = |what: String, with: String| {
        let next = format!("hugeleaf-lab mover {with}");
        Err(Failure::usage(format!("bench mover: {what}"), next))
    };
    let (space, least, block) = (args.space(), args.least_space(), args.block);
    if args.readers + args.writers == 0 {
        let next = "--readers 2 --writers 5".to_owned();
        refuse("neither readers nor writers".to_owned(), next)
    } else if args.rate.is_some() && args.writers == 0 {
        let what = "--rate needs writers, and there are none".to_owned();
        refuse(what, "--writers 1 --rate 30M".to_owned())
    } else if args.rate.is_some_and(Bytes::is_zero) {
        refuse("--rate is 0".to_owned(), "--rate 30M".to_owned())
    } else if space < least {
        let slots = space.get() / block.get().max(1);
        let what = format!(
            "a data space of {space} has {slots} slots of {block}: too few for all threads"
        );
        refuse(what, format!("--space {least}"))
    } else if args.size < block {
        let what = format!(
            "a device of {} is smaller than a block of {block}",
            args.size
        );
        refuse(what, format!("--size {}", Bytes(block.get() * 16)))
    } else {
        Ok(())
    }
}

impl Args {
    fn threads_at_once(&self) -> usize {
        let writers = match self.rate {
            Some(_) => self.writers.max(self.most_streams),
            None => self.writers,
        };
        self.readers + writers
    }

    fn space(&self) -> Bytes {
        let usual = Bytes::from_mib(64);
        self.space.unwrap_or(usual.max(self.least_space()))
    }

    fn least_space(&self) -> Bytes {
        let slots = self.threads_at_once() as u64 * self.slots_a_thread();
        Bytes(self.block.get().saturating_mul(slots))
    }

    /// Returns the number of slots per thread, so that no thread waits while another has spare slots.
    fn slots_a_thread(&self) -> u64 {
        match self.mode.iter().any(|mode| mode.is_ring()) {
            true => self.depth as u64 + 1,
            false => 2,
        }
    }

    pub fn settings(&self, setup: &BenchSetup) -> Result<BackupIoSettings, Failure> {
        check(self)?;
        let host = &setup.host;
        whole_pages("mover", "block", self.block, host)?;
        whole_pages("mover", "device", self.size, host)?;
        let pages = pages(&self.pages, setup);
        let samples = self.rounds * pages.len() * self.mode.len();
        let samples = u32::try_from(samples.max(1)).unwrap_or(u32::MAX);
        Ok(BackupIoSettings {
            modes: once(self.mode.iter().copied()),
            pages,
            places: self.device.iter().map(|d| place(d)).collect(),
            readers: self.readers,
            writers: self.writers,
            each: self.size,
            block: self.block,
            space: self.space(),
            depth: self.depth,
            rounds: self.rounds,
            sample: (self.time / samples).max(SHORTEST),
            rate: self.rate,
            most_streams: self.most_streams,
            overwrite: self.overwrite,
            seed: self.seed,
            memory_limit: setup.most,
        })
    }
}

/// Refuses a length that is not a multiple of a base page, as direct I/O requires of addresses.
pub fn whole_pages(name: &str, what: &str, length: Bytes, host: &Host) -> Result<(), Failure> {
    let base = host.base_page;
    if !length.is_zero() && base.divides(length.get()) {
        return Ok(());
    }
    Err(Failure::usage(
        format!("bench {name}: a {what} of {length:#} is not a multiple of a base page ({base})"),
        format!("hugeleaf-lab {name} --block 256K"),
    ))
}

/// Minimum length of a sample: a device answers in milliseconds.
const SHORTEST: Duration = Duration::from_millis(20);

pub fn place(path: &std::path::Path) -> DeviceLocation {
    match path {
        path if path.as_os_str() == "memory" => DeviceLocation::Memory,
        path if path.is_dir() => DeviceLocation::Folder(path.to_owned()),
        path => DeviceLocation::Existing(path.to_owned()),
    }
}

/// Returns the given pages, or all kinds that this host knows.
pub fn pages(asked: &[AskedIoPages], setup: &BenchSetup) -> Vec<IoPages> {
    let host = &setup.host;
    if !asked.is_empty() {
        return once(asked.iter().map(|p| IoPages::resolve(*p, host)));
    }
    let mut pages = vec![IoPages::Scattered];
    if host.pmd_page.get().is_some() {
        pages.push(IoPages::Split);
    }
    let sizes = usual(host, true).into_iter().filter(|arm| !arm.is_base());
    pages.extend(sizes.map(IoPages::Pages));
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        assert_eq!(place("memory".as_ref()), DeviceLocation::Memory);
        assert_eq!(place(".".as_ref()), DeviceLocation::Folder(".".into()));
        assert_eq!(
            place("none".as_ref()),
            DeviceLocation::Existing("none".into())
        );
    }

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    /// By default, the data space is as long as all threads together need.
    #[test]
    fn the_data_space_holds_all_threads() {
        let of = |words: &[&str]| {
            let words = [&["mover"], words].concat();
            <Typed as clap::Parser>::try_parse_from(words).unwrap().args
        };
        assert_eq!(of(&[]).space(), Bytes::from_mib(64));
        let many = ["--rate", "30M", "--mode", "uring"];
        let args = of(&many);
        // 2 readers and 64 writers, each with four transfers in flight and one to come.
        assert_eq!(args.space().get(), 66 * 5 * args.block.get());
        assert!(check(&args).is_ok());
        let given = [&many[..], &["--space", "64M"]].concat();
        assert!(check(&of(&given)).is_err());
    }

    #[test]
    fn numbers() {
        assert_eq!((parse_threads("0"), parse_threads("8")), (Ok(0), Ok(8)));
        assert!(parse_threads("-1").is_err() && parse_depth("0").is_err());
        assert_eq!(once([1, 2, 1]), [1, 2]);
    }
}
