//! `hugeleaf verify`: as a screen, as JSON, and in the text format of Prometheus.
//!
//! Where all is as it should be the screen is one line, so that cron mails nothing worth reading.

mod prometheus;

use hugeleaf_host::Fact;
use hugeleaf_verdict::plan::PagesOf;
use hugeleaf_verdict::verify::{PoolRow, Report, Row, time};
use serde_json::json;

use crate::json::{answer, both};
use crate::page::{Page, Table, TableOf};
use crate::status::findings_block;

pub use prometheus::verify_prometheus;

/// The screen.
pub fn verify(report: &Report) -> Page {
    if report.findings.is_empty() {
        return Page::new("hugeleaf verify", all_good(report));
    }
    let mut page = Page::new("hugeleaf verify", "");
    page.section("SERVICES", vec![services(report).into()])
        .section("POOLS", vec![pools(report).into()])
        .add(findings_block(&report.findings));
    page
}

fn all_good(report: &Report) -> String {
    let services = match report.services.len() {
        0 => "no service asks for pages of a pool".to_owned(),
        1 => "1 service has the pages it asked for".to_owned(),
        n => format!("{n} services have the pages they asked for"),
    };
    let pools = report.pools.iter().filter(|pool| pool.total.get() > 0);
    let pools: Vec<String> = pools
        .map(|pool| {
            let used = pool.total.get().saturating_sub(pool.available().get());
            format!("{used} of {} pages of {} in use", pool.total, pool.page)
        })
        .collect();
    let plan = report.plan.as_ref();
    let plan = plan.map(|plan| format!("apply {} of {} in force", plan.id, plan.time));
    let parts = [services].into_iter().chain(pools).chain(plan);
    format!(
        "All as it should be: {}.",
        parts.collect::<Vec<_>>().join("; ")
    )
}

fn services(report: &Report) -> TableOf<&Row> {
    Table::of(&report.services)
        .left("SERVICE", |row| &row.name)
        .right("ASKED", |row| pages(&row.asked))
        .right("GOT", |row| pages(&row.got))
        .right("SHORT", |row| (row.short.get() > 0).then_some(row.short))
        .left("SINCE", |row| since(row))
}

/// `4200 of 2M`, or several of these.
fn pages(all: &[PagesOf]) -> String {
    let one = |pages: &PagesOf| format!("{} of {}", pages.pages, pages.page);
    match all {
        [] => "-".to_owned(),
        all => all.iter().map(one).collect::<Vec<_>>().join(" + "),
    }
}

fn since(row: &Row) -> String {
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

fn pools(report: &Report) -> TableOf<&PoolRow> {
    let asked = |pool: &PoolRow| {
        let mut sizes = report.services.iter().flat_map(|row| &row.asked);
        sizes.any(|pages| pages.page == pool.page)
    };
    let pools = report.pools.iter();
    Table::of(pools.filter(|pool| pool.total.get() > 0 || asked(pool)))
        .right("PAGES OF", |pool| pool.page)
        .right("TOTAL", |pool| pool.total)
        .right("FREE", |pool| pool.free)
        .right("RESERVED", |pool| pool.reserved)
        .right("SURPLUS", |pool| pool.surplus)
        .right("UNUSED", |pool| pool.unused)
}

/// The whole answer as JSON.
pub fn verify_json(report: &Report) -> String {
    answer(&both(json!({ "good": report.is_good() }), report))
}

#[cfg(test)]
mod testing {
    //! A report with one of everything.

    use hugeleaf_host::demand::ServiceKind;
    use hugeleaf_host::{Fact, Pid};
    use hugeleaf_units::Pages;
    use hugeleaf_verdict::findings::{Finding, Severity};
    use hugeleaf_verdict::plan::PagesOf;
    use hugeleaf_verdict::verify::{Did, Newest, Place, PoolRow, Report, Row, Stands};

    pub fn report() -> Report {
        let of = |pages: u64, size: &str| PagesOf {
            page: size.parse().unwrap(),
            pages: Pages(pages),
        };
        let row = |name: &str, pid: Option<u32>, got: Vec<PagesOf>, short: u64| Row {
            name: name.to_owned(),
            kind: ServiceKind::PostgreSql,
            unit: Some(format!("{name}.service")),
            is_found: true,
            pids: pid.map(Pid).into_iter().collect(),
            since: Fact::from(pid.map(|_| 1_790_000_000)),
            asked: vec![of(4200, "2M")],
            got,
            short: Pages(short),
            reason: (short > 0).then(|| "the pool is empty".to_owned()),
        };
        Report {
            services: vec![
                row("postgresql@15-main", Some(41), Vec::new(), 4200),
                row("good", Some(42), vec![of(4200, "2M")], 0),
                row("odd \"name\"\\\n", None, Vec::new(), 0),
            ],
            pools: vec![
                PoolRow {
                    page: "2M".parse().unwrap(),
                    total: Pages(4300),
                    free: Pages(4000),
                    reserved: Pages(3900),
                    surplus: Pages(0),
                    unused: Pages(100),
                },
                PoolRow {
                    page: "1G".parse().unwrap(),
                    total: Pages(0),
                    free: Pages(0),
                    reserved: Pages(0),
                    surplus: Pages(0),
                    unused: Pages(0),
                },
            ],
            steps: vec![Place {
                id: "knob-shmem_enabled".to_owned(),
                what: Did::Knob,
                path: "/sys/kernel/mm/transparent_hugepage/shmem_enabled".into(),
                before: Some("never".to_owned()),
                wanted: Some("advise".to_owned()),
                now: Some("never".to_owned()),
                stands: Stands::Changed,
            }],
            plan: Some(Newest {
                id: 3,
                time: "2026-11-20T10:00:00Z".to_owned(),
            }),
            findings: vec![Finding {
                id: "service-short",
                severity: Severity::Problem,
                text: "postgresql@15-main asked for 8.2G and got nothing.".to_owned(),
                command: "systemctl restart postgresql@15-main.service".to_owned(),
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::report;
    use super::*;
    use crate::page::View;
    use serde_json::Value;

    #[test]
    fn a_screen_with_shortfalls() {
        let text = verify(&report()).text(View::plain(100));
        let expected = "\
SERVICES
  SERVICE                  ASKED         GOT  SHORT  SINCE
  postgresql@15-main  4200 of 2M           -   4200  2026-09-21 14:13 UTC
  good                4200 of 2M  4200 of 2M      -  2026-09-21 14:13 UTC
  odd \"name\"\\\\u000a   4200 of 2M           -      -  does not run

POOLS
  PAGES OF  TOTAL  FREE  RESERVED  SURPLUS  UNUSED
        2M   4300  4000      3900        0     100

FINDINGS
  problem  postgresql@15-main asked for 8.2G and got nothing.
           run: systemctl restart postgresql@15-main.service
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn a_healthy_host_is_one_line() {
        let mut report = report();
        report.findings.clear();
        report.services.truncate(2);
        let text = verify(&report).text(View::plain(200));
        assert_eq!(
            text,
            "All as it should be: 2 services have the pages they asked for; 4200 of 4300 pages of 2M \
             in use; apply 3 of 2026-11-20T10:00:00Z in force.\n"
        );
        let nothing = verify(&Report::default()).text(View::plain(100));
        assert_eq!(
            nothing,
            "All as it should be: no service asks for pages of a pool.\n"
        );
    }

    #[test]
    fn the_json_contract_holds() {
        let answer: Value = serde_json::from_str(&verify_json(&report())).unwrap();
        let service = &answer["services"][0];
        for name in ["name", "asked", "got", "short_pages", "since", "reason"] {
            assert!(!service[name].is_null(), "{name}");
        }
        assert_eq!(service["since"], "2026-09-21T14:13:20Z");
        // What does not run has no start, and what is not short no reason: missing, not null.
        let stopped = &answer["services"][2];
        assert!(stopped.get("since").is_none() && stopped.get("reason").is_none());
        for name in ["id", "what", "path", "before", "after", "state"] {
            assert!(answer["steps"][0][name].is_string(), "{name}");
        }
        assert_eq!(answer["good"], false);
        assert_eq!(answer["findings"][0]["id"], "service-short");
        assert_eq!(answer["applied"]["id"], 3);
    }
}
