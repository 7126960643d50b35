//! See `hugeleaf bench pagetables --help`.

use hugeleaf_proof::bench::BenchEvent;
use hugeleaf_proof::bench::pagetables::{PageTablesResult, PageTablesSettings, run as measure};
use hugeleaf_report::bench::pagetables_text;
use hugeleaf_report::bench_html::pagetables_html;
use hugeleaf_report::table::Look;
use hugeleaf_units::Bytes;
use hugeleaf_workload::{AskedPages, PageArm, Program};

use super::lists::parse_count;
use super::lists::{named, usual};
use super::{ATTACHER, Bench, Ground, Output, Summary, failure};
use crate::context::{Context, Failure};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Pages: base; thp:2M is transparent; hugetlb:2M and hugetlb:1G are from pools

Examples:
  hugeleaf bench pagetables
  hugeleaf bench pagetables --processes 256 --region 8G --pages base,hugetlb:2M --html page.html

At most half of available memory is taken, never more than a cgroup leaves.
Exit status: 0 measured; 1 interrupted, or pages that --pages names were not had; 2 wrong usage;
3 a precondition is missing."
)]
pub struct Args {
    /// How many processes, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,16,64,256,1024",
          value_parser = parse_processes)]
    processes: Vec<usize>,
    /// How long the region is
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    region: Bytes,
    /// Page sizes, separated by commas [default: all that this host knows and that fit the region]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pages: Vec<AskedPages>,
    /// Seed of the random orders, to repeat a run
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

fn parse_processes(text: &str) -> Result<usize, String> {
    /// The most that any kernel has ids for on a small machine.
    const MOST: usize = 32_768;
    parse_count(text, "processes", MOST)
}

impl Bench for Args {
    const NAME: &'static str = "pagetables";
    type Result = PageTablesResult;

    fn output(&self) -> &Output {
        &self.output
    }

    fn names_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    fn measure(
        &self,
        ground: &Ground,
        context: &Context,
        progress: &mut dyn FnMut(BenchEvent),
    ) -> Result<PageTablesResult, Failure> {
        let settings = settings(self, context, ground)?;
        let (root, host) = (&context.root, &ground.host);
        let circumstances = &ground.circumstances;
        let result = measure(
            &settings,
            root,
            host,
            circumstances,
            progress,
            &context.stop,
        );
        result.map_err(|error| failure(Args::NAME, &error))
    }

    fn summary(result: &PageTablesResult) -> Summary<'_> {
        Summary {
            about: &result.experiment,
            lacks_pages: result.arms.iter().any(|arm| arm.not_had.is_some()),
            json: result.to_results().to_json(),
        }
    }

    fn text(result: &PageTablesResult, look: Look) -> String {
        pagetables_text(result, look)
    }

    fn html(result: &PageTablesResult) -> String {
        pagetables_html(result)
    }
}

fn settings(
    args: &Args,
    context: &Context,
    ground: &Ground,
) -> Result<PageTablesSettings, Failure> {
    let (host, region) = (&ground.host, args.region);
    let base = host.base_page;
    if region.is_zero() || !base.divides(region.get()) {
        return Err(Failure::usage(
            format!(
                "bench pagetables: a region of {region:#} is no multiple of a base page ({base})"
            ),
            "hugeleaf bench pagetables --region 1G",
        ));
    }
    let mut processes = args.processes.clone();
    processes.sort_unstable();
    processes.dedup();
    let fits = |arm: &PageArm| arm.size.divides(region.get());
    Ok(PageTablesSettings {
        arms: match args.pages.is_empty() {
            true => usual(host, false).into_iter().filter(fits).collect(),
            false => named(&args.pages, host),
        },
        processes,
        region,
        seed: args.seed,
        most: ground.most,
        program: Program {
            path: context.root.path("proc/self/exe"),
            arguments: vec![ATTACHER.into()],
        },
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
