//! Records the rate of an undisturbed load, for the simulator.
//!
//! `scripts/lab.sh run --release --example record_noise -- METRIC MINUTES [INTERVAL_SECONDS] >
//! noise.json`, where METRIC is written as for `hugeleaf prove --metric`. Keep the machine as busy
//! as during experiments on it, and no busier.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hugeleaf_host::Root;
use hugeleaf_lab::prove_simulation::NoiseRecording;
use hugeleaf_proof::metric::{self, MetricSpec, redact};
use hugeleaf_sys::Kernel;

fn run() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(text), Some(minutes)) = (args.first(), args.get(1)) else {
        return Err("usage: record_noise METRIC MINUTES [INTERVAL_SECONDS]".into());
    };
    let number = |text: &str| -> Result<f64, String> {
        let value: f64 = text.parse().unwrap_or(f64::NAN);
        match value > 0.0 {
            true => Ok(value),
            false => Err(format!("{text}: not a number above 0")),
        }
    };
    let minutes = number(minutes)?;
    let seconds = args.get(2).map_or(Ok(2.0), |t| number(t))?;
    let spec: MetricSpec = text
        .parse()
        .map_err(|e: metric::MetricSpecError| e.to_string())?;
    let explain = |e: metric::MetricError| format!("{e}\n  next: {}", e.next());
    let goes_on = AtomicBool::new(false);
    let mut metric = spec.open(&[], &goes_on).map_err(explain)?;
    let interval = Duration::from_secs_f64(seconds).max(metric.least_interval);
    let kernel = Kernel::new();
    let root = Root::live();
    let host = hugeleaf_host::read_host(&root, &kernel).map_err(|e| e.to_string())?;
    let here = hugeleaf_proof::circumstances(&root, &host, &args);
    let mut samples = Vec::new();
    let end = kernel.now() + Duration::from_secs_f64(minutes * 60.0);
    let mut before = (metric.read(&goes_on).map_err(explain)?, kernel.now());
    // A fixed grid, so that a late reading does not delay the later ones.
    let mut due = before.1;
    while kernel.now() < end {
        due += interval;
        while kernel.now() < due {
            kernel.wait(due.saturating_sub(kernel.now()), &goes_on);
        }
        let after = (metric.read(&goes_on).map_err(explain)?, kernel.now());
        let elapsed = after.1.saturating_sub(before.1);
        let rate = metric::between(&metric.name, &before.0, &after.0, elapsed);
        samples.push(rate.map_err(explain)?);
        before = after;
    }
    let h = here.host;
    let noise = NoiseRecording {
        host: format!(
            "{} x {}, {} bytes of memory{}",
            h.cpus,
            h.processor.as_deref().unwrap_or("unknown processor"),
            h.memory_bytes.unwrap_or(0),
            if h.is_virtual == Some(true) {
                ", virtual"
            } else {
                ""
            }
        ),
        kernel: h.kernel.unwrap_or_default(),
        command: redact(text),
        interval_seconds: interval.as_secs_f64(),
        samples,
    };
    let json = serde_json::to_string(&noise).map_err(|e| e.to_string())?;
    println!("{json}");
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("record_noise: {what}");
            ExitCode::from(2)
        }
    }
}
