//! `hugeleaf predict`: the expected benefit of huge pages for a process, and the evidence.

use std::time::Duration;

use hugeleaf_host::Process;
use hugeleaf_verdict::findings::shell_word;
use hugeleaf_verdict::predict::{
    GainPrediction, NoPrediction, PredictionMethod, ProcessActivity, ReadLatency,
};
use serde_json::json;

use crate::document::{Cell, CommandHint, ContentBlock, Document};
use crate::json::answer;

pub struct PredictionView<'a> {
    /// The target as it was typed.
    pub target: &'a str,
    /// The watched processes; not empty.
    pub processes: &'a [Process],
    pub watched: &'a ProcessActivity,
    /// Longest time that one scan kept a process from mapping memory.
    pub longest_walk: Duration,
    pub reads: Option<&'a ReadLatency>,
    pub predicted: &'a Result<GainPrediction, NoPrediction>,
}

impl PredictionView<'_> {
    pub fn page(&self) -> Document {
        let who = match self.processes {
            [one] => format!("{} ({})", one.name, one.pid),
            all => format!("{} ({} processes)", self.target, all.len()),
        };
        let says = match self.predicted {
            Ok(predicted) => format!(
                "{who}: expected throughput on huge pages ×{:.2} to ×{:.2}",
                predicted.low, predicted.high
            ),
            Err(why) => format!("{who}: {why}"),
        };
        let mut page = Document::new("Expected effect of huge pages", says);
        page.section("", vec![ContentBlock::Facts(self.facts())]);
        page.section("NEXT", vec![ContentBlock::Commands(self.commands())]);
        page
    }

    fn facts(&self) -> Vec<(String, Cell)> {
        let watched = self.watched;
        let seconds = watched.time.as_secs_f64();
        let mut facts: Vec<(String, Cell)> = Vec::new();
        let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value.into()));
        fact("watched for", format!("{seconds:.1} s"));
        let used = (watched.user + watched.system).as_secs_f64() / seconds;
        let user =
            watched.user.as_secs_f64() / (watched.user + watched.system).as_secs_f64().max(1e-9);
        let (used, user) = (used * 100.0, user * 100.0);
        let text = format!("{used:.0} % of one, {user:.0} % of that in user mode");
        fact("processor", text);
        if let Some(waited) = watched.waited {
            let waited = waited.as_secs_f64() / seconds * 100.0;
            fact(
                "waited for a processor",
                format!("{waited:.0} % of the time"),
            );
        }
        if let Some(scan) = watched.scans.last() {
            let text = format!("{} of {} on base pages", scan.touched, scan.resident);
            fact("touched in 1 s", text);
            if !scan.large.is_zero() {
                fact("already on huge pages", scan.large.to_string());
            }
        }
        if let Ok(predicted) = self.predicted {
            if let Some(misses) = predicted.misses_per_second {
                let text = format!("{:.2} million a second, at least", misses / 1e6);
                fact("missed translations", text);
            }
            let of = match predicted.by {
                PredictionMethod::WalkCycles => "by the processor's counters",
                PredictionMethod::TouchedPages => "by touched pages",
            };
            let [low, high] = predicted.walks.map(|share| share * 100.0);
            let text = format!("{low:.0} to {high:.0} % of its time in user mode, {of}");
            fact("page walks", text);
        }
        if let Some(reads) = self.reads {
            let text = format!(
                "{:.0} ns on base pages, {:.0} ns on huge pages, in {}",
                reads.base_ns, reads.large_ns, reads.size
            );
            fact("random read", text);
        }
        let walk = self.longest_walk.as_secs_f64() * 1e3;
        fact("longest scan", format!("{walk:.1} ms"));
        facts
    }

    fn commands(&self) -> Vec<CommandHint> {
        let target = match self.processes {
            [one] => one.pid.to_string(),
            _ => shell_word(self.target),
        };
        let why = CommandHint::new("why", format!("hugeleaf why {target}"));
        let prove = CommandHint::new("prove", format!("hugeleaf prove {target} --metric cpi"));
        vec![
            why.noted("why memory is not on huge pages"),
            prove.noted("or a metric of the server: hugeleaf prove --help"),
        ]
    }

    pub fn json(&self) -> String {
        let (predicted, unsaid) = match self.predicted {
            Ok(predicted) => (Some(predicted), None),
            Err(why) => (None, Some(why.to_string())),
        };
        let watched = self.watched;
        let scans: Vec<_> = (watched.scans.iter())
            .map(|scan| {
                json!({
                    "seconds": scan.time.as_secs_f64(), "resident_bytes": scan.resident,
                    "touched_bytes": scan.touched, "huge_bytes": scan.large,
                })
            })
            .collect();
        let first = self.processes.first();
        answer(&json!({
            "pid": first.map(|one| one.pid), "name": first.map(|one| &one.name),
            "pids": self.processes.iter().map(|one| one.pid).collect::<Vec<_>>(),
            "predicted": predicted, "no_estimate": unsaid,
            "watched": {
                "watched_seconds": watched.time.as_secs_f64(),
                "user_seconds": watched.user.as_secs_f64(),
                "system_seconds": watched.system.as_secs_f64(),
                "busiest_thread_seconds": watched.busiest.as_secs_f64(),
                "waited_seconds": watched.waited.map(|time| time.as_secs_f64()),
                "minor_faults": watched.faults,
                "walk_cycles_share": watched.walks,
                "scans": scans,
            },
            "read": self.reads,
        }))
    }
}
