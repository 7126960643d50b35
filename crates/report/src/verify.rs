//! `hugeleaf verify`: as a screen, as JSON, and in the text format of Prometheus.
//!
//! If everything is in order, the screen is one line, so that cron mails stay short.

mod prometheus;

use hugeleaf_host::Fact;
use hugeleaf_plan::PageCount;
use hugeleaf_plan::verify::{PoolRow, ServiceRow, VerifyReport, time};
use serde_json::json;

use crate::document::{Document, Table, TableBuilder};
use crate::json::{answer, merge_fields};
use crate::status::findings_block;

pub(crate) use prometheus::findings_by_kind;
pub use prometheus::verify_prometheus;

pub fn verify(report: &VerifyReport) -> Document {
    if report.findings.is_empty() {
        return Document::new("hugeleaf verify", all_good(report));
    }
    let mut page = Document::new("hugeleaf verify", "");
    page.section("SERVICES", vec![services(report).into()])
        .section("POOLS", vec![pools(report).into()])
        .add(findings_block(&report.findings));
    page
}

fn all_good(report: &VerifyReport) -> String {
    let services = match report.services.len() {
        0 => "no service requests pages of a pool".to_owned(),
        1 => "1 service has the pages it requested".to_owned(),
        n => format!("{n} services have the pages they requested"),
    };
    let pools = report.pools.iter().filter(|pool| pool.total.get() > 0);
    let pools = pools.map(|pool| {
        let used = pool.total.get().saturating_sub(pool.available().get());
        format!("{used} of {} pages of {} in use", pool.total, pool.page)
    });
    let plan = report.plan.as_ref();
    let plan = plan.map(|plan| format!("apply {} of {} in force", plan.id, plan.time));
    let parts: Vec<String> = [services].into_iter().chain(pools).chain(plan).collect();
    format!("Everything matches: {}.", parts.join("; "))
}

fn services(report: &VerifyReport) -> TableBuilder<&ServiceRow> {
    Table::from_items(&report.services)
        .left("SERVICE", |row| &row.name)
        .right("ASKED", |row| pages(&row.asked))
        .right("GOT", |row| pages(&row.got))
        .right("SHORT", |row| (row.short.get() > 0).then_some(row.short))
        .left("SINCE", |row| since(row))
}

/// Formats page counts, such as `4200 of 2M`.
fn pages(all: &[PageCount]) -> String {
    let one = |pages: &PageCount| format!("{} of {}", pages.pages, pages.page);
    match all {
        [] => "-".to_owned(),
        all => all.iter().map(one).collect::<Vec<_>>().join(" + "),
    }
}

fn since(row: &ServiceRow) -> String {
    if !row.is_found {
        return "not found".to_owned();
    }
    if !row.is_running() {
        return "does not run".to_owned();
    }
    match &row.since {
        Fact::Known(seconds) => time(*seconds).map_or_else(
            || "unknown".to_owned(),
            |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        ),
        Fact::Absent => "-".to_owned(),
        Fact::Unreadable(_) => "unknown".to_owned(),
    }
}

fn pools(report: &VerifyReport) -> TableBuilder<&PoolRow> {
    let asked = |pool: &PoolRow| {
        let mut sizes = report.services.iter().flat_map(|row| &row.asked);
        sizes.any(|pages| pages.page == pool.page)
    };
    let pools = report.pools.iter();
    Table::from_items(pools.filter(|pool| pool.total.get() > 0 || asked(pool)))
        .right("PAGES OF", |pool| pool.page)
        .right("TOTAL", |pool| pool.total)
        .right("FREE", |pool| pool.free)
        .right("RESERVED", |pool| pool.reserved)
        .right("SURPLUS", |pool| pool.surplus)
        .right("UNUSED", |pool| pool.unused)
}

pub fn verify_json(report: &VerifyReport) -> String {
    answer(&merge_fields(json!({ "good": report.is_good() }), report))
}

#[cfg(test)]
pub(crate) mod tests;
