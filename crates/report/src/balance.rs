//! `hugeleaf balance`: servers that share a memory target, as tables and as metrics.

use hugeleaf_balancer::{
    BalanceAction, BalanceStatus, ComponentStatus, PagePreference, ResizeOperation,
};
use hugeleaf_units::Bytes;

use crate::document::{
    Cell, CellValue, ColumnShrink, ContentBlock, Document, Note, StatusMark, Table, TableBuilder,
    counted, fact,
};
use crate::exposition::MetricFamily;

pub fn page(all: &[BalanceStatus]) -> Document {
    let mut page = Document::new("hugeleaf balance", lead(all));
    let is_good = all.iter().all(|status| status.problems.is_empty());
    page.mark = if is_good {
        StatusMark::Good
    } else {
        StatusMark::Warn
    };
    sections(&mut page, all);
    page
}

fn lead(all: &[BalanceStatus]) -> String {
    if all.is_empty() {
        return "No rules name a memory target: see docs/guide/balance.md.".into();
    }
    let would: usize = all.iter().map(|status| status.would.len()).sum();
    let moves: u64 = all.iter().map(|status| status.view.operations_total).sum();
    match (would, moves) {
        (0, 0) => "No resizes.".into(),
        (0, n) => format!("{} so far.", counted(n, "resize")),
        (n, _) => format!("{} would be made.", counted(n, "resize")),
    }
}

/// Adds the sections of each target; adds nothing for an empty list.
pub fn sections(page: &mut Document, all: &[BalanceStatus]) {
    for status in all {
        let title = format!("MEMORY TARGET {}", status.name);
        let mut notes = problems(&status.problems);
        notes.extend(Note::each("would", &status.would));
        let said = status.components.iter().filter(|c| !c.standing.is_empty());
        notes.extend(said.map(|c| Note::new(&c.name, standing(c))));
        let blocks: Vec<ContentBlock> = vec![
            facts(status).into(),
            components(status).into(),
            notes.into(),
            operations(status).into(),
        ];
        page.section(title, blocks);
    }
}

fn standing(component: &ComponentStatus) -> String {
    let standing = &component.standing;
    match component.may_evict_bytes {
        Some(bytes) => {
            format!("{standing}; resizes may evict {bytes} of its data this hour")
        }
        None => standing.clone(),
    }
}

pub(crate) fn problems(all: &[String]) -> Vec<Note> {
    let note = |problem| Note::marked("problem", StatusMark::Warn, problem);
    all.iter().map(note).collect()
}

fn facts(status: &BalanceStatus) -> Vec<(String, Cell)> {
    let does = match status.action {
        BalanceAction::Balance => "memory is transferred",
        BalanceAction::Watch => "watched: nothing is changed",
    };
    let pages = match status.pages {
        PagePreference::Huge => "transferred memory is promoted to huge pages",
        PagePreference::Base => "transferred memory stays on base pages",
    };
    let target = format!(
        "{}, {} of it divided; {} resident",
        status.target_bytes, status.usable_bytes, status.resident_bytes
    );
    vec![
        fact("target", target),
        fact("rule", format!("{does}; {pages}")),
    ]
}

/// Formats seconds a second of one granule as milliseconds a second, because the values are small.
fn worth(seconds: Option<f64>) -> Cell {
    match seconds {
        None => "unknown".into(),
        Some(seconds) => format!("{:.2} ms/s", seconds * 1e3).into(),
    }
}

fn components(status: &BalanceStatus) -> TableBuilder<&ComponentStatus> {
    Table::from_items(&status.components)
        .left("COMPONENT", |c| c.name.as_str())
        .left("KIND", |c| c.kind.as_str())
        .narrow(ColumnShrink::Drop(2))
        .right("PID", |c| c.pid.map(|pid| CellValue::Text(pid.to_string())))
        .narrow(ColumnShrink::Drop(3))
        .right("SIZE", |c| c.size_bytes)
        .right("MIN", |c| c.least_bytes)
        .right("MAX", |c| c.most_bytes)
        .right("RESIDENT", |c| c.resident_bytes)
        .right("OVERHEAD", |c| Cell::some_bytes(c.overhead_bytes))
        .narrow(ColumnShrink::Drop(4))
        .right("GRANULE", |c| c.granule_bytes)
        .narrow(ColumnShrink::Drop(5))
        .right("GAIN", |c| worth(c.gain_seconds_per_second))
        .right("LOSS", |c| worth(c.loss_seconds_per_second))
        .right("MISS COST", |c| worth(Some(c.pressure_seconds_per_second)))
        .narrow(ColumnShrink::Drop(1))
}

fn operations(status: &BalanceStatus) -> TableBuilder<&ResizeOperation> {
    let newest = status.view.operations.iter().rev().take(10);
    Table::from_items(newest)
        .left("COMPONENT", |o| o.component.as_str())
        .left("OPER_TYPE", |o| o.kind.name())
        .left("OPER_MODE", |o| o.mode.name())
        .narrow(ColumnShrink::Drop(1))
        .right("INITIAL", |o| o.initial)
        .right("TARGET", |o| o.target)
        .right("FINAL", |o| o.end_size)
        .left("STATUS", |o| o.status.name())
        .left("REASON", |o| o.why.as_str())
        .narrow(ColumnShrink::Wrap)
}

pub fn metrics(all: &[BalanceStatus]) -> Vec<MetricFamily> {
    if all.is_empty() {
        return Vec::new();
    }
    let gauge = MetricFamily::gauge;
    let mut target = gauge(
        "hugeleaf_balance_target_bytes",
        "Total memory that the servers of a target may use",
    );
    let mut usable = gauge(
        "hugeleaf_balance_usable_bytes",
        "Part of a target that is divided: without overhead, limited by host and cgroup",
    );
    let mut size = gauge("hugeleaf_balance_size_bytes", "Configured size of a server");
    let mut resident = gauge(
        "hugeleaf_balance_resident_bytes",
        "Resident memory of a server's process",
    );
    let mut loses = gauge(
        "hugeleaf_balance_pressure_ratio",
        "Time that a server loses by misses, in seconds per second",
    );
    let mut problems = gauge(
        "hugeleaf_balance_problems",
        "Number of problems with a target; hugeleaf guard status lists them",
    );
    let mut operations = MetricFamily::counter(
        "hugeleaf_balance_operations",
        "Resizes started by the balancer or made manually",
    );
    for status in all {
        let name = status.name.as_str();
        target.add([("target", name)], status.target_bytes.as_f64());
        usable.add([("target", name)], status.usable_bytes.as_f64());
        problems.add([("target", name)], status.problems.len() as f64);
        operations.add([("target", name)], status.view.operations_total as f64);
        for component in &status.components {
            let labels = [("target", name), ("component", component.name.as_str())];
            let bytes = |family: &mut MetricFamily, bytes: Option<Bytes>| {
                if let Some(bytes) = bytes {
                    family.add(labels, bytes.as_f64());
                }
            };
            bytes(&mut size, component.size_bytes);
            bytes(&mut resident, component.resident_bytes);
            loses.add(labels, component.pressure_seconds_per_second);
        }
    }
    vec![target, usable, size, resident, loses, problems, operations]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::document::TextOptions;
    use crate::exposition::text;

    pub(crate) fn status() -> BalanceStatus {
        serde_json::from_str(
            r#"{"name":"databases","action":"watch","pages":"large","target_bytes":4294967296,"usable_bytes":4194304000,
            "held_bytes":1,"resident_bytes":2147483648,"every_seconds":2,"problems":["growth is paused: tasks stall"],
            "would":["orders from 1G to 900M, for sessions: why"],"components":[{"name":"orders","kind":"mariadb",
            "address":"/run/a.sock","pid":7,"size_bytes":1073741824,"least_bytes":268435456,"most_bytes":3221225472,
            "granule_bytes":67108864,"resident_bytes":1073741824,"overhead_bytes":104857600,"loss_seconds_per_second":0.0125,
            "pressure_seconds_per_second":0.5,"promoted_bytes":0,"standing":"ready"}],
            "view":{"info":[],"components":[],"operations":[{"component":"orders","oper_type":"SHRINK","oper_mode":"DEFERRED",
            "initial_size_bytes":1,"target_size_bytes":2,"status":"PENDING","start_seconds":1,"why":"w"}],"operations_total":3,"taken_back":0}}"#,
        )
        .unwrap()
    }

    #[test]
    fn what_is_unknown_is_not_nothing() {
        let page = page(&[status()]).text(TextOptions {
            width: 200,
            colour: false,
            all: true,
        });
        for words in [
            "1 resize would be made.",
            "MEMORY TARGET databases",
            "unknown",
            "12.50 ms/s",
            "500.00 ms/s",
            "growth is paused: tasks stall",
            "SHRINK",
            "PENDING",
            "ready",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(
            super::page(&[])
                .lead
                .contains("No rules name a memory target")
        );
    }

    #[test]
    fn metrics_are_by_target_and_component() {
        let text = text(metrics(&[status()]));
        let line =
            "hugeleaf_balance_size_bytes{target=\"databases\",component=\"orders\"} 1073741824";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("hugeleaf_balance_operations_total{target=\"databases\"} 3"),
            "{text}"
        );
        assert!(metrics(&[]).is_empty());
    }
}
