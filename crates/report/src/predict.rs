//! `hugeleaf predict`: what larger pages would bring a process, and by what that is said.

use std::time::Duration;

use hugeleaf_host::Process;
use hugeleaf_verdict::predict::{By, Predicted, Reads, Unsaid, Watched};
use serde_json::json;

use crate::json::answer;
use crate::page::{Block, Cell, Command, Page};

pub struct Prediction<'a> {
    pub process: &'a Process,
    pub watched: &'a Watched,
    /// How long one look kept it from mapping memory, at most.
    pub longest_walk: Duration,
    pub reads: Option<&'a Reads>,
    pub predicted: &'a Result<Predicted, Unsaid>,
}

impl Prediction<'_> {
    pub fn page(&self) -> Page {
        let Process { pid, name, .. } = self.process;
        let says = match self.predicted {
            Ok(predicted) => format!(
                "{name} ({pid}) would do ×{:.2} to ×{:.2} of its work in the same time on larger pages",
                predicted.low, predicted.high
            ),
            Err(why) => format!("{name} ({pid}): {why}"),
        };
        let mut page = Page::new("What larger pages would bring", says);
        page.section("", vec![Block::Facts(self.facts())]);
        page.section("NEXT", vec![Block::Commands(self.commands())]);
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
        fact(
            "processor",
            format!(
                "{:.0} % of one, {:.0} % of that in user mode",
                used * 100.0,
                user * 100.0
            ),
        );
        if let Some(look) = watched.looks.last() {
            fact(
                "touched in 1 s",
                format!("{} of {} on base pages", look.touched, look.resident),
            );
            if !look.large.is_zero() {
                fact("on large pages already", look.large.to_string());
            }
        }
        if let Ok(predicted) = self.predicted {
            if let Some(misses) = predicted.misses_per_second {
                fact(
                    "missed translations",
                    format!("{:.2} million a second, at least", misses / 1e6),
                );
            }
            let of = match predicted.by {
                By::WalkCycles => "by the processor's counters",
                By::TouchedPages => "by touched pages",
            };
            let [low, high] = predicted.walks.map(|share| share * 100.0);
            fact(
                "page walks",
                format!("{low:.0} to {high:.0} % of its time in user mode, {of}"),
            );
        }
        if let Some(reads) = self.reads {
            fact(
                "a random read here",
                format!(
                    "{:.0} ns on base pages, {:.0} ns on large ones, in {}",
                    reads.base_ns, reads.large_ns, reads.size
                ),
            );
        }
        fact(
            "longest look",
            format!("{:.1} ms", self.longest_walk.as_secs_f64() * 1e3),
        );
        facts
    }

    fn commands(&self) -> Vec<Command> {
        let pid = self.process.pid;
        let command = |label: &str, line: String, note: &str| Command {
            label: label.to_owned(),
            line,
            note: note.to_owned(),
        };
        vec![
            command(
                "why",
                format!("hugeleaf why {pid}"),
                "what keeps it from larger pages",
            ),
            command(
                "prove",
                format!("hugeleaf prove {pid} --metric cpi"),
                "or a metric of its own: hugeleaf prove --help",
            ),
        ]
    }

    pub fn json(&self) -> String {
        let (predicted, unsaid) = match self.predicted {
            Ok(predicted) => (Some(predicted), None),
            Err(why) => (None, Some(why.to_string())),
        };
        let watched = self.watched;
        let looks: Vec<_> = (watched.looks.iter())
            .map(|look| {
                json!({
                    "seconds": look.time.as_secs_f64(), "resident_bytes": look.resident,
                    "touched_bytes": look.touched, "large_bytes": look.large,
                })
            })
            .collect();
        answer(&json!({
            "pid": self.process.pid, "name": self.process.name,
            "predicted": predicted, "unsaid": unsaid,
            "watched": {
                "watched_seconds": watched.time.as_secs_f64(),
                "user_seconds": watched.user.as_secs_f64(),
                "system_seconds": watched.system.as_secs_f64(),
                "busiest_thread_seconds": watched.busiest.as_secs_f64(),
                "minor_faults": watched.faults,
                "walk_cycles_share": watched.walks,
                "looks": looks,
            },
            "read": self.reads,
        }))
    }
}
