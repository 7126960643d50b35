//! `bench oltp` as text.

use hugeleaf_proof::bench::oltp::{OltpArm, OltpCost, OltpKind, OltpResult, OltpSample};
use hugeleaf_proof::result::Effect;
use hugeleaf_units::Bytes;

use super::{NotHadLine, duration, ending, not_had_text, short, spread};
use crate::prove::{number, ratio};
use crate::table::{Align, Look, Paint, Table};

/// The result on a screen.
pub fn oltp_text(result: &OltpResult, look: Look) -> String {
    let mut out = look.paint(&look.wrap("", &oltp_headline(result)), Paint::Bold);
    out.push_str(&look.wrap("", &meaning(result)));
    if result.arms.is_empty() {
        for run in &result.runs {
            out.push('\n');
            out.push_str(&kinds(run, look));
            out.push('\n');
            out.push_str(&costs(run, look));
        }
    } else {
        out.push('\n');
        out.push_str(&arms_table(result, look));
        out.push('\n');
        out.push_str(&study(result, look));
        out.push_str(&not_had_text(&not_had(result), look));
    }
    out.push('\n');
    out.push_str(&look.wrap("how   ", &how(result)));
    for note in &result.caveats {
        out.push_str(&look.wrap("note  ", note));
    }
    out
}

/// `oltp on SQLite 3.50.4: 31,200 NOTPM, 4 warehouses, 2 connections`.
pub fn oltp_headline(result: &OltpResult) -> String {
    let Some(run) = result.runs.first() else {
        return "oltp: nothing was measured".to_owned();
    };
    if !result.arms.is_empty() {
        let arms = result.arms.iter().filter_map(in_short);
        let arms: Vec<String> = arms.collect();
        return format!(
            "oltp on {}, NOTPM: {}",
            result.database.version,
            arms.join("; ")
        );
    }
    format!(
        "oltp on {}: {} NOTPM, {} with {}",
        result.database.version,
        number(run.notpm.round()),
        count(
            u64::from(result.database.warehouses.unsigned_abs()),
            "warehouse"
        ),
        count(result.settings.connections as u64, "connection"),
    )
}

fn count(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

fn meaning(result: &OltpResult) -> String {
    let conditions = match result.runs.iter().all(|run| run.consistent) {
        true => "the twelve consistency conditions held afterwards",
        false => "the consistency conditions did not hold afterwards",
    };
    format!(
        "NOTPM: New-Order transactions committed a minute (higher is better), beside all others in \
         the standard's mix; {conditions}"
    )
}

/// `thp:2M 36,210, ×1.16 [1.14, 1.18]`.
fn in_short(arm: &OltpArm) -> Option<String> {
    let median = number(arm.spread?.median.round());
    let effect = arm
        .effect
        .map_or_else(String::new, |e| format!(", {}", over_base(&e)));
    Some(format!("{} {median}{effect}", arm.label))
}

fn over_base(effect: &Effect) -> String {
    format!(
        "×{} [{}, {}]",
        ratio(effect.ratio),
        ratio(effect.low),
        ratio(effect.high)
    )
}

/// What DB2 9 reached by page size, 4K pages = 100 (chart 1 of its study), for an arm with pages of
/// about that size.
fn published(label: &str) -> &'static str {
    let size = label.rsplit(':').next().unwrap_or(label);
    match size {
        "base" => "100 (4K)",
        "64K" => "113 (64K)",
        "2M" | "16M" | "32M" => "122 (16M)",
        "1G" | "16G" => "126 (16G)",
        _ => "-",
    }
}

fn arms_table(result: &OltpResult, look: Look) -> String {
    let mut table = Table::new(&[
        ("CACHE ON", Align::Left),
        ("NOTPM", Align::Right),
        ("BASE = 100", Align::Right),
        ("OVER BASE", Align::Left),
        ("PUBLISHED", Align::Right),
        ("ON THESE PAGES", Align::Left),
    ]);
    let base = result.arms.first().and_then(|arm| arm.spread);
    for arm in &result.arms {
        let index = base
            .zip(arm.spread)
            .map(|(b, a)| 100.0 * a.median / b.median);
        let seen = match arm.verified {
            Some(true) => "yes",
            Some(false) => "not all of it",
            None => "cannot be told",
        };
        table.row([
            arm.label.clone(),
            arm.spread
                .map_or_else(|| "not had".to_owned(), |s| spread(&s)),
            index.map_or_else(|| "-".to_owned(), |i| format!("{i:.0}")),
            arm.effect.map_or_else(|| "-".to_owned(), |e| over_base(&e)),
            published(&arm.label).to_owned(),
            match arm.spread {
                Some(_) => seen.to_owned(),
                None => "-".to_owned(),
            },
        ]);
    }
    table.render_as(look)
}

/// The table of the Oracle study: a second, and a transaction, on the average of an arm's runs.
fn study(result: &OltpResult, look: Look) -> String {
    let mut table = Table::new(&[
        ("CACHE ON", Align::Left),
        ("", Align::Left),
        ("TRANSACTIONS", Align::Right),
        ("LOGICAL READS", Align::Right),
        ("BLOCK CHANGES", Align::Right),
        ("PHYSICAL READS", Align::Right),
        ("PHYSICAL WRITES", Align::Right),
        ("CPU", Align::Right),
    ]);
    for arm in result.arms.iter().filter(|arm| arm.spread.is_some()) {
        let own: Vec<&OltpSample> = result
            .runs
            .iter()
            .filter(|run| run.arm.as_deref() == Some(arm.label.as_str()))
            .collect();
        let tps: Vec<f64> = own.iter().map(|run| run.transactions_per_second).collect();
        let second: Vec<OltpCost> = own.iter().map(|run| run.per_second).collect();
        let each: Vec<OltpCost> = own.iter().map(|run| run.per_transaction).collect();
        let label = arm.label.clone();
        let tps = mean(&tps).map_or_else(|| "-".to_owned(), short);
        table.row([vec![label, "a second".to_owned(), tps], averages(&second)].concat());
        let one = vec![String::new(), "each".to_owned(), "1".to_owned()];
        table.row([one, averages(&each)].concat());
    }
    table.render_as(look)
}

fn averages(costs: &[OltpCost]) -> Vec<String> {
    type Of = fn(&OltpCost) -> Option<f64>;
    let columns: [Of; 4] = [
        |c| c.logical_reads,
        |c| c.block_changes,
        |c| c.physical_reads,
        |c| c.physical_writes,
    ];
    let column = |of: Of| {
        let all: Option<Vec<f64>> = costs.iter().map(of).collect();
        all.and_then(|all| mean(&all))
    };
    let cpu: Vec<f64> = costs
        .iter()
        .map(|c| c.cpu_seconds + c.server_cpu_seconds.unwrap_or(0.0))
        .collect();
    columns
        .into_iter()
        .map(|of| column(of).map_or_else(|| "-".to_owned(), short))
        .chain([mean(&cpu).map_or_else(|| "-".to_owned(), duration)])
        .collect()
}

// Few runs.
#[allow(clippy::cast_precision_loss)]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn not_had(result: &OltpResult) -> Vec<NotHadLine> {
    let arms = result.arms.iter();
    arms.filter_map(|arm| Some(NotHadLine::of(&arm.label, false, arm.not_had.as_ref()?)))
        .collect()
}

fn kinds(run: &OltpSample, look: Look) -> String {
    let heads = [
        ("TRANSACTION", Align::Left),
        ("COMMITTED", Align::Right),
        ("SHARE", Align::Right),
        ("ROLLED BACK", Align::Right),
        ("SENT AGAIN", Align::Right),
        ("P50", Align::Right),
        ("P90", Align::Right),
        ("P99", Align::Right),
        ("MAX", Align::Right),
    ];
    let mut table = Table::new(&heads);
    for kind in &run.kinds {
        table.row(row(kind));
    }
    table.render_as(look)
}

fn row(kind: &OltpKind) -> Vec<String> {
    // Of a kind that did not occur there are no times.
    let ended = kind.committed + kind.rolled_back;
    let time = |seconds: f64| match ended {
        0 => "-".to_owned(),
        _ => duration(seconds),
    };
    vec![
        kind.name.clone(),
        whole(kind.committed),
        format!("{:.1} %", kind.share * 100.0),
        whole(kind.rolled_back),
        whole(kind.conflicts),
        time(kind.p50_seconds),
        time(kind.p90_seconds),
        time(kind.p99_seconds),
        time(kind.max_seconds),
    ]
}

// Counts of a run are far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn whole(count: u64) -> String {
    number(count as f64)
}

/// The table of the Oracle study: a second, and a transaction.
fn costs(run: &OltpSample, look: Look) -> String {
    type Of = fn(&OltpCost) -> Option<f64>;
    let rows: [(&str, Of); 4] = [
        ("logical reads", |c| c.logical_reads),
        ("block changes", |c| c.block_changes),
        ("physical reads", |c| c.physical_reads),
        ("physical writes", |c| c.physical_writes),
    ];
    let mut table = Table::new(&[
        ("", Align::Left),
        ("A SECOND", Align::Right),
        ("A TRANSACTION", Align::Right),
    ]);
    table.row(["transactions", &short(run.transactions_per_second), "1"]);
    for (name, of) in rows {
        if let (Some(second), Some(each)) = (of(&run.per_second), of(&run.per_transaction)) {
            table.row([name.to_owned(), short(second), short(each)]);
        }
    }
    let (second, each) = (&run.per_second, &run.per_transaction);
    let mut cpu = |name: &str, second: f64, each: f64| {
        table.row([name.to_owned(), duration(second), duration(each)]);
    };
    match second.server_cpu_seconds.zip(each.server_cpu_seconds) {
        Some((of_server, each_of_server)) => {
            cpu("CPU of the server", of_server, each_of_server);
            cpu("CPU of hugeleaf", second.cpu_seconds, each.cpu_seconds);
        }
        None => cpu("CPU of hugeleaf", second.cpu_seconds, each.cpu_seconds),
    }
    table.render_as(look)
}

fn how(result: &OltpResult) -> String {
    let (database, settings) = (&result.database, &result.settings);
    let think = match settings.think {
        0.0 => "no keying or think time".to_owned(),
        factor => format!("keying and think time {} of the standard's", short(factor)),
    };
    format!(
        "{}; {} in {}, {} of them touched; cache {}, commits on disk: {}; {think}; {} before it \
         counted, {} measured; seed {}; {}",
        database.name,
        count(u64::from(database.warehouses.unsigned_abs()), "warehouse"),
        count(u64::from(database.databases.unsigned_abs()), "database"),
        settings.touched_warehouses,
        Bytes(database.cache_bytes),
        database.durability,
        duration(settings.ramp_up_seconds),
        duration(settings.for_seconds),
        settings.seed,
        ending(result.experiment.ending, result.experiment.duration_seconds),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, committed: u64) -> OltpKind {
        OltpKind {
            name: name.to_owned(),
            committed,
            rolled_back: 3,
            conflicts: 0,
            share: 0.435,
            mean_seconds: 0.0001,
            p50_seconds: 0.0001,
            p90_seconds: 0.0002,
            p99_seconds: 0.0003,
            max_seconds: 0.1,
        }
    }

    #[test]
    fn what_is_not_counted_has_no_row_and_what_did_not_occur_no_time() {
        let cost = OltpCost {
            cpu_seconds: 0.5,
            logical_reads: Some(300.0),
            ..OltpCost::default()
        };
        let never = OltpKind {
            rolled_back: 0,
            ..kind("Delivery", 0)
        };
        let run = OltpSample {
            arm: None,
            round: 0,
            at: None,
            page_tables_bytes: None,
            copied_bytes_per_second: None,
            counted: None,
            pages: Vec::new(),
            verified: None,
            notpm: 1000.0,
            transactions_per_second: 40.0,
            seconds: 10.0,
            kinds: vec![kind("New-Order", 1000), never],
            per_transaction: cost,
            per_second: cost,
            consistent: true,
        };
        let look = Look::plain(100);
        let costs = costs(&run, look);
        assert!(costs.contains("logical reads"), "{costs}");
        assert!(!costs.contains("physical"), "{costs}");
        assert!(!costs.contains("server"), "{costs}");
        let kinds = kinds(&run, look);
        let delivery = kinds.lines().find(|l| l.starts_with("Delivery")).unwrap();
        assert!(delivery.trim_end().ends_with('-'), "{kinds}");
        assert!(
            kinds.contains("43.5 %") && kinds.contains("200 µs"),
            "{kinds}"
        );
    }
}
