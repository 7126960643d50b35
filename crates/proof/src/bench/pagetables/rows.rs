//! The result of `bench pagetables` as rows.

use serde_json::json;

use super::{PageTablesArm, PageTablesPoint, PageTablesResult};
use crate::bench::{add_arm, without_samples};
use crate::rows::{ArmAbout, Chart, Layout, Place, Quantity, Results, Row, Sample};

const GROWTH: &str = "page tables";

fn growth() -> Quantity {
    Quantity::amount(GROWTH, "bytes").counted().main()
}

impl PageTablesResult<'_> {
    /// As it is kept.
    pub fn to_results(&self) -> Results {
        let s = self.settings;
        let mut results = self.results(
            format!(
                "processes that attach one region of {}: growth of their page tables, and the time of attaching and of \
                 the first touch of all of it",
                s.region
            ),
            format!(
                "each process attaches and touches in its turn; growth is that of the same processes, counted before and \
                 after; orders drawn from seed {}",
                s.seed
            ),
            &json!({ "region_bytes": s.region.get(), "seed": s.seed, "most_bytes": s.most.get() }),
        );
        results.charts = vec![
            Chart::by(
                "processes",
                GROWTH,
                "Growth of page tables by number of processes",
            ),
            Chart::by("processes", "attach", "Attaching, a process"),
            Chart::by(
                "processes",
                "first touch",
                "First touch of all of it, a process",
            ),
        ];
        for arm in &self.arms {
            let about = ArmAbout {
                name: arm.label.clone(),
                page_bytes: Some(arm.page_bytes),
                kind: Some(arm.kind.clone()),
            };
            add_arm(&mut results, about, &[], arm.shortage.as_ref());
            if arm.points.is_empty() {
                results
                    .rows
                    .push(without_samples(&arm.label, Vec::new(), growth()));
            }
            for point in &arm.points {
                add(arm, point, &mut results);
            }
        }
        results
    }
}

#[allow(clippy::cast_precision_loss)] // page tables of a host are far below 2^52 bytes
fn add(arm: &PageTablesArm, point: &PageTablesPoint, results: &mut Results) {
    let at = vec![Place::number("processes", point.processes as u64)];
    let each = point.samples.iter().map(|bytes| *bytes as f64);
    let one = |value: f64| Sample::alone([value]);
    let all = [
        (growth(), one(point.growth_bytes as f64)),
        (
            Quantity::time("attach, all", "seconds"),
            one(point.attach.iter().sum()),
        ),
        (
            Quantity::time("first touch, all", "seconds"),
            one(point.first_touch.iter().sum()),
        ),
        (
            Quantity::time("attach", "seconds"),
            Sample::alone(point.attach.iter().copied()),
        ),
        (
            Quantity::time("first touch", "seconds"),
            Sample::alone(point.first_touch.iter().copied()),
        ),
        (
            Quantity::amount("page tables of a process", "bytes"),
            Sample::alone(each),
        ),
        (
            Quantity::plain("page tables before", "bytes").counted(),
            one(point.before_bytes as f64),
        ),
        (
            Quantity::plain("page tables after", "bytes").counted(),
            one(point.after_bytes as f64),
        ),
        (
            Quantity::plain("memory of an idle process", "bytes").counted(),
            one(point.idle_bytes as f64),
        ),
    ];
    let host = point.host_growth_bytes.map(|bytes| one(bytes as f64));
    let host = host.map(|samples| {
        (
            Quantity::amount("page tables of the host", "bytes").counted(),
            samples,
        )
    });
    for (quantity, samples) in all.into_iter().chain(host) {
        results.rows.push(Row {
            doubtful: !point.verified,
            note: point.note.clone(),
            ..Row::new(&arm.label, at.clone(), quantity, samples)
        });
    }
    results.layouts.push(Layout {
        arm: arm.label.clone(),
        at,
        when: "after".to_owned(),
        round: None,
        pages: point.pages.clone(),
        extents_a_block: None,
        verified: None,
        note: None,
    });
}
