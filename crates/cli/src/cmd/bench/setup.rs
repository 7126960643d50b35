//! Common setup and output flags of all `bench` workloads.

use std::path::PathBuf;

use hugeleaf_host::Host;
use hugeleaf_proof::bench::memory_limit;
use hugeleaf_proof::{Provenance, circumstances};
use hugeleaf_sys::{OnExisting, StagedFile};
use hugeleaf_units::Bytes;

use crate::context::{Context, Failure};

#[derive(Debug, clap::Args)]
pub struct OutputArgs {
    /// Result file [default: hugeleaf-bench-NAME-DATE-TIME.json in the current directory]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write an HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

pub struct BenchSetup {
    pub host: Host,
    pub circumstances: Provenance,
    /// Maximum amount of ordinary memory to allocate.
    pub most: Bytes,
    pub program: PathBuf,
}

impl BenchSetup {
    pub fn new(name: &str, output: &OutputArgs, context: &Context) -> Result<BenchSetup, Failure> {
        context.need_live("bench")?;
        let host = context.host()?;
        let Some(most) = memory_limit(&context.root) else {
            return Err(match host.memory.available.error() {
                Some(error) => error.clone().into(),
                None => Failure::missing(
                    format!(
                        "bench {name}: /proc/meminfo does not say how much memory is available"
                    ),
                    "boot Linux 3.14 or later",
                ),
            });
        };
        // An unwritable path must fail before minutes are spent on the measurement.
        for path in [&output.output, &output.html].into_iter().flatten() {
            StagedFile::begin(path, OnExisting::Replaced).map_err(|e| {
                Failure::missing(
                    format!("bench {name}: {}: {}", path.display(), e.reason()),
                    "name a writable file, with free space: --output FILE, --html FILE",
                )
            })?;
        }
        let command: Vec<String> = std::env::args().collect();
        let circumstances = circumstances(&context.root, &host, &command);
        let program = context.program()?;
        context.stop_on_signals()?;
        Ok(BenchSetup {
            program,
            host,
            circumstances,
            most,
        })
    }
}
