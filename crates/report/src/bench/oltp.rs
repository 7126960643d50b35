//! `bench oltp` as text.

use hugeleaf_proof::bench::Spread;
use hugeleaf_proof::bench::oltp::{
    CountedBy, OltpArm, OltpCost, OltpKind, OltpResult, OltpSample, StepsBy, Translation,
    TranslationSource,
};
use hugeleaf_units::Bytes;

use super::chart::{Series, draw};
use super::{duration, ending, not_had_text, short, spread, times_base};
use crate::prove::number;
use crate::table::{Align, Look, Paint, Table, bar, first_that_fits};

pub(crate) mod rows;
#[cfg(test)]
pub(crate) mod testing;

use rows::{
    Index, PUBLISHED, PUBLISHED_GAIN, STUDY, Seen, Step, first_label, index_text, indices,
    kind_names, labels, miss_indices, not_had, over_base, page_tables, published, runs_of, seen,
    step_name, steps, study_rows, translation_indices, whole, with_joined_step, with_step, within,
};

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
        for part in [bars, translation, step_tables, study] {
            out.push_str(&part(result, look));
        }
        out.push('\n');
        out.push_str(&latencies(result, look));
        out.push_str(&not_had_text(&not_had(result), look));
    }
    out.push('\n');
    out.push_str(&look.wrap("how   ", &how(result)));
    if let Some(note) = doubts(result) {
        out.push_str(&look.wrap("note  ", &note));
    }
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
    if let Some(last) = steps(result).pop() {
        let arms: Vec<String> = last.arms.into_iter().filter_map(in_short).collect();
        return format!(
            "oltp on {}{}, NOTPM: {}",
            result.database.version,
            with_step(result, last.at),
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

pub(crate) fn meaning(result: &OltpResult) -> String {
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

/// The head of the column of steps, where there are steps.
fn step_head(result: &OltpResult) -> Option<&'static str> {
    result.steps.as_ref().map(|steps| match steps.by {
        StepsBy::Cache => "CACHE",
        StepsBy::Connections => "CONNECTIONS",
    })
}

fn arms_table(result: &OltpResult, look: Look) -> String {
    let columns = [(true, true), (false, true), (false, false)];
    let tables = columns.map(|(ends, published)| arms_columns(result, ends, published));
    first_that_fits(tables, look)
}

/// With the ends of intervals of what was measured, and with what is published, or without.
fn arms_columns(result: &OltpResult, ends: bool, with_published: bool) -> Table {
    let step = step_head(result);
    let mut heads = vec![
        ("CACHE ON", Align::Left),
        ("NOTPM", Align::Right),
        ("BASE = 100", Align::Right),
        ("OVER BASE", Align::Left),
    ];
    heads.splice(0..0, step.map(|head| (head, Align::Left)));
    if with_published {
        heads.push(("PUBLISHED", Align::Right));
    }
    heads.push(("ON THESE PAGES", Align::Left));
    let mut table = Table::new(&heads);
    let dash = || "-".to_owned();
    for each in steps(result) {
        let level = each.at.map(|at| step_name(result, at));
        for (arm, index) in each.arms.iter().zip(indices(&each)) {
            let mut row = vec![arm.label.clone(), measured(index.spread, ends)];
            row.splice(0..0, step.map(|_| level.clone().unwrap_or_else(dash)));
            row.push(index.value.map_or_else(dash, |v| number(v.round())));
            row.push(arm.effect.map_or_else(dash, |e| over_base(&e)));
            if with_published {
                let found = published(&arm.label);
                row.push(found.map_or_else(dash, |(size, v)| format!("{v:.0} ({size})")));
            }
            row.push(index.spread.map_or_else(dash, |_| index.seen.name().into()));
            table.row(row);
        }
    }
    table
}

fn measured(value: Option<Spread>, ends: bool) -> String {
    match value {
        None => "not had".to_owned(),
        Some(s) if ends => spread(&s),
        Some(s) => short(s.median),
    }
}

/// A bar an arm at the last step, from 0, with the published ones below on the same scale.
fn bars(result: &OltpResult, look: Look) -> String {
    let Some(last) = steps(result).pop() else {
        return String::new();
    };
    let mut rows: Vec<(String, Option<f64>, String)> = Vec::new();
    for index in indices(&last) {
        let mark = match index.seen {
            Seen::Yes => "",
            _ if index.value.is_none() => "",
            _ => " ?",
        };
        let text = format!("{}{mark}", index_text(&index));
        rows.push((index.label, index.value, text));
    }
    if rows.iter().all(|(_, value, _)| value.is_none()) {
        return String::new();
    }
    for (size, value) in PUBLISHED {
        rows.push((
            format!("DB2 9, {size}"),
            Some(value),
            format!("{value:.0} (published)"),
        ));
    }
    let top = rows.iter().filter_map(|(_, v, _)| *v).fold(1.0, f64::max);
    let longest = |words: Vec<&String>| {
        let lengths = words.into_iter().map(|word| word.chars().count());
        lengths.max().unwrap_or(0)
    };
    let labels = longest(rows.iter().map(|(label, _, _)| label).collect());
    let notes = longest(rows.iter().map(|(_, _, note)| note).collect());
    let room = look.width.saturating_sub(labels + notes + 6).clamp(10, 60);
    let mut out = format!(
        "NOTPM{}, {} = 100\n",
        with_step(result, last.at),
        first_label(result)
    );
    for (label, value, text) in rows {
        let drawn = value.map_or_else(|| " ".repeat(room), |v| bar(v / top, room));
        out.push_str(&format!("  {label:<labels$}  {drawn}  {text}\n"));
    }
    out.push('\n');
    out
}

/// What it costs to translate an address on each arm.
fn translation(result: &OltpResult, look: Look) -> String {
    let Some(translation) = &result.translation else {
        return String::new();
    };
    let counted = translation.source == TranslationSource::Counters;
    let mut heads = vec![
        ("CACHE ON", Align::Left),
        (
            if counted {
                "CYCLES AN INSTRUCTION"
            } else {
                "NS A READ"
            },
            Align::Right,
        ),
        ("BASE = 100", Align::Right),
        ("OVER BASE", Align::Left),
    ];
    let seen = |label: &str| seen(result, label);
    let indices = translation_indices(&translation.arms, &seen);
    // Where misses are not counted there is no column of them, and the text says why.
    let misses = [("TLB MISSES", false), ("EACH TRANSACTION", true)]
        .into_iter()
        .filter_map(|(head, each)| Some((head, miss_indices(&translation.arms, each, &seen)?)));
    let misses: Vec<(&str, Vec<Index>)> = misses.collect();
    heads.extend(misses.iter().map(|(head, _)| (*head, Align::Right)));
    let dash = || "-".to_owned();
    let columns = |ends: bool| {
        let mut table = Table::new(&heads);
        for (at, (arm, index)) in translation.arms.iter().zip(&indices).enumerate() {
            let mut row = vec![arm.label.clone(), measured(index.spread, ends)];
            row.push(index.value.map_or_else(dash, |v| number(v.round())));
            row.push(arm.effect.map_or_else(dash, |e| over_base(&e)));
            let own = misses.iter().map(|(_, all)| all[at].spread);
            row.extend(own.map(|spread| measured(spread, ends)));
            table.row(row);
        }
        table
    };
    let table = first_that_fits([true, false].map(columns), look);
    let mut out = look.wrap("", &translation_meaning(translation));
    out.push_str(&table);
    out.push('\n');
    out
}

/// What the numbers of a translation are, and why they are these.
pub(crate) fn translation_meaning(translation: &Translation) -> String {
    match translation.source {
        TranslationSource::Counters => counted_meaning(translation.counted_by.as_ref()),
        TranslationSource::Chase => format!(
            "translation: nanoseconds of a read that depends on the one before, over memory as long \
             as the cache (less is better); not by counters: {}",
            translation.why.as_deref().unwrap_or("no reason was given")
        ),
    }
}

/// What was counted, by which events, and what was not.
fn counted_meaning(by: Option<&CountedBy>) -> String {
    let misses = by.map(|by| (by.tlb_misses.as_deref(), by.tlb_misses_error.as_deref()));
    let what = match misses {
        Some((None, error)) => format!(
            "cycles an instruction, counted by the processor while the load ran (less is better); misses of \
             the TLB and walks of page tables are not counted here: {}",
            error.unwrap_or("no reason was given")
        ),
        _ => "cycles an instruction, and misses of the TLB for data in a thousand instructions and each \
              transaction, counted by the processor while the load ran (less is better)"
            .to_owned(),
    };
    let events = by.map(|by| {
        let misses = by.tlb_misses.as_ref();
        let misses = misses.map_or_else(String::new, |event| format!(", {event}"));
        let share = by.share_of_time.filter(|share| *share < 0.995);
        let share = share.map_or_else(String::new, |share| {
            format!(", for {:.0} % of the time and scaled up", 100.0 * share)
        });
        format!(
            "; by the events {}, {}{misses}{share}",
            by.cycles, by.instructions
        )
    });
    format!(
        "translation: {what}{}; published for 64K over 4K: cycles ×0.89, misses ×0.87",
        events.unwrap_or_default()
    )
}

/// What was changed from step to step, and what that did.
fn step_tables(result: &OltpResult, look: Look) -> String {
    let Some(by) = result.steps.as_ref().map(|steps| steps.by) else {
        return String::new();
    };
    let mut out = String::new();
    match by {
        StepsBy::Cache => {
            let over = format!("over {}", first_label(result));
            let title = format!("gain by cache size, {over}; {PUBLISHED_GAIN}");
            out.push_str(&look.wrap("", &title));
            out.push_str(&grid(
                result,
                &|_, arm, index, ends| gain(arm, index, ends),
                look,
            ));
            let value = |_: &OltpArm, index: &Index| Some(index.value? / 100.0);
            out.push_str(&chart(result, &value, &over, look));
        }
        StepsBy::Connections => {
            out.push_str("page tables by connections\n");
            let cell = |result: &OltpResult, arm: &OltpArm, _: &Index, _: bool| {
                page_tables(result, arm)
                    .map(|s| crate::chart::label(s.median, None, crate::page::Unit::Bytes))
            };
            out.push_str(&grid(result, &cell, look));
            let mib = Bytes::from_mib(1).as_f64();
            let value = |arm: &OltpArm, _: &Index| Some(page_tables(result, arm)?.median / mib);
            out.push_str(&chart(result, &value, "M of page tables", look));
            out.push_str("\nNOTPM by connections\n");
            let cell = |_: &OltpResult, _: &OltpArm, index: &Index, ends| {
                Some(measured(Some(index.spread?), ends))
            };
            out.push_str(&grid(result, &cell, look));
        }
    }
    out.push('\n');
    out
}

/// Which arms are marked with `?`.
fn doubts(result: &OltpResult) -> Option<String> {
    let labels = labels(result).into_iter();
    let marked = labels.filter(|label| seen(result, label) != Seen::Yes);
    let marked: Vec<&str> = marked.collect();
    (!marked.is_empty()).then(|| {
        format!(
            "?: not all of the cache was seen to be on the pages of the arm: {}",
            marked.join(", ")
        )
    })
}

fn gain(arm: &OltpArm, index: &Index, ends: bool) -> Option<String> {
    match arm.effect {
        Some(effect) if ends => Some(over_base(&effect)),
        _ => Some(times_base(index.value? / 100.0)),
    }
}

/// What stands in a cell; with the ends of its interval, or without.
type Cell<'a> = &'a dyn Fn(&OltpResult, &OltpArm, &Index, bool) -> Option<String>;

/// A row a step, a column an arm; `-` is not had, `?` not seen to be on the pages of the arm.
fn grid(result: &OltpResult, cell: Cell<'_>, look: Look) -> String {
    let labels = labels(result);
    let heads = labels.iter().map(|l| (l.to_uppercase(), Align::Right));
    let step = step_head(result).unwrap_or_default().to_owned();
    let heads: Vec<(String, Align)> = [(step, Align::Left)].into_iter().chain(heads).collect();
    let columns = |ends: bool| {
        let mut table = Table::new(&heads);
        for each in steps(result) {
            let indices = indices(&each);
            let found = |label: &&str| {
                let at = each.arms.iter().position(|arm| arm.label == **label)?;
                let text = cell(result, each.arms[at], &indices[at], ends)?;
                let mark = if indices[at].seen == Seen::Yes {
                    ""
                } else {
                    " ?"
                };
                Some(text + mark)
            };
            let level = each
                .at
                .map_or_else(|| "-".to_owned(), |at| step_name(result, at));
            let cells = labels
                .iter()
                .map(|l| found(l).unwrap_or_else(|| "-".to_owned()));
            table.row([level].into_iter().chain(cells));
        }
        table
    };
    first_that_fits([true, false].map(columns), look)
}

/// The same as a chart of letters, a column a step; nothing below two steps.
fn chart(
    result: &OltpResult,
    value: &dyn Fn(&OltpArm, &Index) -> Option<f64>,
    what: &str,
    look: Look,
) -> String {
    let (steps, labels) = (steps(result), labels(result));
    if steps.len() < 2 {
        return String::new();
    }
    let letters = letters(&labels);
    let of = |label: &str, step: &Step<'_>| {
        let at = step.arms.iter().position(|arm| arm.label == label)?;
        value(step.arms[at], &indices(step)[at])
    };
    let series = labels.iter().zip(&letters).map(|(label, letter)| Series {
        letter: *letter,
        values: steps.iter().map(|step| of(label, step)).collect(),
    });
    let columns: Vec<String> = steps
        .iter()
        .map(|step| step.at.map_or_else(String::new, |at| step_name(result, at)))
        .collect();
    let drawn = draw(&series.collect::<Vec<_>>(), &columns, look.width);
    let keys = labels.iter().zip(&letters);
    let keys: Vec<String> = keys.map(|(label, l)| format!("{l} {label}")).collect();
    format!(
        "{}{drawn}",
        look.wrap("", &format!("{what}: {}", keys.join(", ")))
    )
}

/// A letter for each arm: the first of its name that no other has.
fn letters(labels: &[&str]) -> Vec<char> {
    labels.iter().fold(Vec::new(), |mut taken, label| {
        let mut own = label.chars().filter(|c| c.is_alphanumeric());
        let letter = own.find(|c| !taken.contains(c)).unwrap_or('*');
        taken.push(letter);
        taken
    })
}

/// The table of the Oracle study: a second, and a transaction.
fn study(result: &OltpResult, look: Look) -> String {
    let long = STUDY.map(str::to_uppercase);
    let brief = ["TPS", "LOGICAL", "CHANGES", "READ", "WRITTEN", "CPU"].map(str::to_owned);
    let table = |names: [String; 6], shape: &dyn Fn(Vec<String>) -> Vec<String>, first: &[&str]| {
        let first = first.iter().map(|head| ((*head).to_owned(), Align::Left));
        let names = names.map(|head| (head, Align::Right));
        let mut table = Table::new(&first.chain(names).collect::<Vec<_>>());
        for row in study_rows(result) {
            table.row(shape(row));
        }
        table
    };
    let own = |row| without_step(result, row);
    let step = step_head(result).unwrap_or_default();
    let wide = table(
        long,
        &own,
        &without_step(result, vec!["CACHE ON", step, ""]),
    );
    let narrow = table(brief, &with_joined_step, &["CACHE ON", ""]);
    let about = "pages asked of the cache (logical reads), pages changed, pages read and written; of \
                 Oracle as published, with automatic and with manual memory management";
    look.wrap("", about) + &first_that_fits([wide, narrow], look)
}

/// The same without its second cell where there are no steps.
pub(crate) fn without_step<T>(result: &OltpResult, mut row: Vec<T>) -> Vec<T> {
    if result.steps.is_none() && row.len() > 1 {
        row.remove(1);
    }
    row
}

/// Within which time nine of ten transactions of a kind ended: what the standard limits.
fn latencies(result: &OltpResult, look: Look) -> String {
    let names = kind_names(result);
    let kinds = names.iter().map(|name| (name.to_uppercase(), Align::Right));
    let first = ["CACHE ON", step_head(result).unwrap_or_default()];
    let first = first.map(|head| (head.to_owned(), Align::Left));
    let heads: Vec<_> = first.into_iter().chain(kinds).collect();
    let mut table = Table::new(&without_step(result, heads));
    for arm in result.arms.iter().filter(|arm| arm.spread.is_some()) {
        let own: Vec<&OltpSample> = runs_of(result, arm).collect();
        let at = arm.at.map_or_else(String::new, |at| step_name(result, at));
        let mut row = vec![arm.label.clone(), at];
        row.extend(
            names
                .iter()
                .map(|name| within(&own, name, |k| k.p90_seconds)),
        );
        table.row(without_step(result, row));
    }
    format!(
        "nine of ten transactions end within\n{}",
        table.render_as(look)
    )
}

/// The heads of [`kind_rows`].
pub(crate) const KINDS: [&str; 9] = [
    "TRANSACTION",
    "COMMITTED",
    "SHARE",
    "ROLLED BACK",
    "SENT AGAIN",
    "P50",
    "P90",
    "P99",
    "MAX",
];

/// A row a kind of transaction of one run.
pub(crate) fn kind_rows(run: &OltpSample) -> Vec<Vec<String>> {
    run.kinds.iter().map(row).collect()
}

fn kinds(run: &OltpSample, look: Look) -> String {
    let heads = KINDS.map(|head| match head {
        "TRANSACTION" => (head, Align::Left),
        _ => (head, Align::Right),
    });
    let mut table = Table::new(&heads);
    for row in kind_rows(run) {
        table.row(row);
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

/// The table of the Oracle study of one run.
fn costs(run: &OltpSample, look: Look) -> String {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("A SECOND", Align::Right),
        ("A TRANSACTION", Align::Right),
    ]);
    for row in cost_rows(run) {
        table.row(row);
    }
    table.render_as(look)
}

/// What was used: a second, and a transaction; what is not counted has no row.
pub(crate) fn cost_rows(run: &OltpSample) -> Vec<[String; 3]> {
    type Of = fn(&OltpCost) -> Option<f64>;
    let counted: [(&str, Of); 4] = [
        ("logical reads", |c| c.logical_reads),
        ("block changes", |c| c.block_changes),
        ("physical reads", |c| c.physical_reads),
        ("physical writes", |c| c.physical_writes),
    ];
    let (second, each) = (&run.per_second, &run.per_transaction);
    let row = |name: &str, second: String, each: String| [name.to_owned(), second, each];
    let tps = short(run.transactions_per_second);
    let mut rows = vec![row("transactions", tps, "1".to_owned())];
    for (name, of) in counted {
        if let (Some(second), Some(each)) = (of(second), of(each)) {
            rows.push(row(name, short(second), short(each)));
        }
    }
    let cpu = |name: &str, second: f64, each: f64| row(name, duration(second), duration(each));
    if let Some((of_server, each_of_server)) =
        second.server_cpu_seconds.zip(each.server_cpu_seconds)
    {
        rows.push(cpu("CPU of the server", of_server, each_of_server));
    }
    rows.push(cpu("CPU of hugeleaf", second.cpu_seconds, each.cpu_seconds));
    rows
}

pub(crate) fn how(result: &OltpResult) -> String {
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

    #[test]
    fn what_is_not_counted_has_no_row_and_what_did_not_occur_no_time() {
        let mut run = testing::single().runs.remove(0);
        (
            run.per_second.physical_reads,
            run.per_second.physical_writes,
        ) = (None, None);
        let look = Look::plain(100);
        let costs = costs(&run, look);
        assert!(costs.contains("logical reads"), "{costs}");
        assert!(!costs.contains("physical"), "{costs}");
        assert!(!costs.contains("server"), "{costs}");
        let kinds = kinds(&run, look);
        let never = kinds
            .lines()
            .find(|l| l.starts_with("Stock-Level"))
            .unwrap();
        assert!(never.trim_end().ends_with('-'), "{kinds}");
        assert!(
            kinds.contains("45.0 %") && kinds.contains("1.80 ms"),
            "{kinds}"
        );
    }

    #[test]
    fn the_screen_of_arms_to_the_letter() {
        let text = oltp_text(&testing::example(), Look::plain(80));
        let expected = "\
oltp on SQLite 3.50.4, NOTPM: base 31,216; locked 31,356, ×1.00 [0.99, 1.02];
thp:2M 34,667, ×1.11 [1.09, 1.13]; hugetlb:2M 36,192, ×1.16 [1.14, 1.18]
NOTPM: New-Order transactions committed a minute (higher is better), beside all
others in the standard's mix; the twelve consistency conditions held afterwards

CACHE ON      NOTPM  BASE = 100  OVER BASE           PUBLISHED  ON THESE PAGES
base         31,216         100  -                    100 (4K)  yes
locked       31,356         100  ×1.00 [0.99, 1.02]          -  yes
thp:2M       34,667         111  ×1.11 [1.09, 1.13]  122 (16M)  not all of it
hugetlb:2M   36,192         116  ×1.16 [1.14, 1.18]  122 (16M)  yes
hugetlb:1G  not had           -  -                   126 (16G)  -

NOTPM, base = 100
  base        ██████████████████████████████████████··········  100 [99, 101]
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("pages of the arm: thp:2M\n"), "{text}");
        let narrow = |line: &str| line.chars().count() <= 80;
        assert!(text.lines().all(narrow), "{text}");
    }

    #[test]
    fn steps_have_their_tables_and_nothing_is_left_out_on_a_narrow_screen() {
        for width in [80, 120] {
            for result in [testing::by_cache(), testing::by_connections()] {
                let text = oltp_text(&result, Look::plain(width));
                let fits = |line: &str| line.chars().count() <= width;
                assert!(text.lines().all(fits), "{text}");
            }
        }
        let text = oltp_text(&testing::by_cache(), Look::plain(120));
        for part in [
            "gain by cache size, over base; published",
            "1G     ×1.00  ×1.00 [",
            "over base: b base, l locked, t thp:2M, h hugetlb:2M\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = oltp_text(&testing::by_connections(), Look::plain(120));
        for part in [
            "page tables by connections",
            "NOTPM by connections",
            "256M",
            "32M ?",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_was_not_had_is_said_once_or_with_its_step() {
        let mut result = testing::by_cache();
        let what = |result: &OltpResult| -> Vec<String> {
            not_had(result).into_iter().map(|line| line.what).collect()
        };
        assert_eq!(what(&result), ["hugetlb:1G"]);
        let had = result.arms.iter().position(|arm| arm.not_had.is_some());
        result.arms[had.unwrap()].not_had = None;
        assert_eq!(
            what(&result),
            [
                "hugetlb:1G with a cache of 2G",
                "hugetlb:1G with a cache of 4G"
            ]
        );
    }

    #[test]
    fn translation_is_of_counters_or_says_why_not() {
        let text = oltp_text(&testing::example(), Look::plain(100));
        assert!(
            text.contains("NS A READ") && !text.contains("TLB MISSES"),
            "{text}"
        );
        let counted = oltp_text(&testing::counted(), Look::plain(100));
        assert!(
            counted.contains("TLB MISSES") && !counted.contains("not by"),
            "{counted}"
        );
        // Every figure says which event counted it.
        for part in [
            "ls_l1_d_tlb_miss.all_l2_miss",
            "75 % of the time",
            "EACH TRANSACTION",
        ] {
            assert!(
                counted.replace("\n", " ").contains(part),
                "{part}: {counted}"
            );
        }
        let some = oltp_text(&testing::counted_without_misses(), Look::plain(100));
        assert!(
            !some.contains("TLB MISSES") && !some.contains("TRANSACTION  "),
            "{some}"
        );
        assert!(some.contains("DTLB_WALK opens and stays at 0"), "{some}");
    }

    #[test]
    fn letters_of_arms_differ() {
        let labels = ["base", "thp:2M", "thp:1M", "t", "b-b"];
        assert_eq!(letters(&labels), ['b', 't', 'h', '*', '*']);
    }
}
