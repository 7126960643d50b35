//! Flags of `hugeleaf-lab pagetables`; see its `--help`.

use std::process::ExitCode;

use hugeleaf_cli::bench::{BenchSetup, OutputArgs, named, parse_count, usual};
use hugeleaf_cli::context::{Context, Failure, print_failure};
use hugeleaf_units::Bytes;
use hugeleaf_workload::{AskedPages, ChildCommand, PageArm};

use crate::experiments::pagetables::PageTablesSettings;
use crate::kits::pagetables::serve_attacher;

/// Internal argument that starts the processes of `pagetables`. It is checked before the command
/// line is parsed: a thousand of these processes start, and each must stay small.
const ATTACHER: &str = "bench-attacher";

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Pages: base; thp:2M is transparent; hugetlb:2M and hugetlb:1G are from pools

Examples:
  hugeleaf-lab pagetables
  hugeleaf-lab pagetables --processes 256 --region 8G --pages base,hugetlb:2M --html page.html

At most half of available memory is used, and never more than the cgroup allows.
Exit status: 0 measured; 1 interrupted, or pages that --pages names were unavailable; 2 wrong usage;
3 a precondition is missing.")]
pub struct Args {
    /// Numbers of processes, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,16,64,256,1024",
          value_parser = parse_processes)]
    processes: Vec<usize>,
    /// Size of the region
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    region: Bytes,
    /// Page sizes, separated by commas [default: all of this host that fit the region]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub pages: Vec<AskedPages>,
    /// Seed of the random orders, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn parse_processes(text: &str) -> Result<usize, String> {
    /// Maximum number of process ids of any kernel on a small machine.
    const MOST: usize = 32_768;
    parse_count(text, "processes", MOST)
}

impl Args {
    pub fn settings(
        &self,
        context: &Context,
        setup: &BenchSetup,
    ) -> Result<PageTablesSettings, Failure> {
        let (host, region) = (&setup.host, self.region);
        let base = host.base_page;
        if region.is_zero() || !base.divides(region.get()) {
            return Err(Failure::usage(
                format!(
                    "bench pagetables: a region of {region:#} is not a multiple of a base page ({base})"
                ),
                "hugeleaf-lab pagetables --region 1G",
            ));
        }
        let mut processes = self.processes.clone();
        processes.sort_unstable();
        processes.dedup();
        let fits = |arm: &PageArm| arm.size.divides(region.get());
        Ok(PageTablesSettings {
            arms: match self.pages.is_empty() {
                true => usual(host, false).into_iter().filter(fits).collect(),
                false => named(&self.pages, host),
            },
            processes,
            region,
            seed: self.seed,
            memory_limit: setup.most,
            program: ChildCommand {
                path: context.root.path("proc/self/exe"),
                arguments: vec![ATTACHER.into()],
            },
        })
    }
}

/// Runs a process of `pagetables`, if this process was started for it.
pub fn attacher() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ATTACHER {
        return None;
    }
    let (Some(parent), Some(handle)) = (arguments.next(), arguments.next()) else {
        let what = format!("{ATTACHER}: internal command of hugeleaf-lab pagetables");
        return Some(print_failure(&Failure::usage(
            what,
            "hugeleaf-lab pagetables --help",
        )));
    };
    Some(match serve_attacher(&parent, &handle) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let what = format!("{ATTACHER}: {reason}");
            print_failure(&Failure::missing(what, "hugeleaf-lab pagetables"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_processes() {
        assert_eq!(parse_processes("1024"), Ok(1024));
        for text in ["0", "-1", "x", "", "32769"] {
            assert!(parse_processes(text).is_err(), "{text}");
        }
    }
}
