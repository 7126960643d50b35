//! All rules, in order of dependency.

use super::drift::not_verified;
use super::{NewestApply, VerifyFacts, VerifyReport, demand, drift, service_limits};
use hugeleaf_verdict::findings::{Finding, on_one_screen, without_contradicting_wants};

/// Compares facts, files and plans.
pub fn verify(facts: &VerifyFacts<'_>) -> VerifyReport {
    let mut rows = demand::rows(facts);
    let pools = demand::pools(facts, &rows);
    let mut findings = demand::short(facts, &mut rows, &pools);
    findings.extend(demand::restart(&rows, &pools, facts));
    findings.extend(demand::combined_shortage(facts, &rows, &pools));
    findings.extend(demand::unused(facts, &pools));
    findings.extend(service_limits::limits_not_taken(facts));
    findings.extend(drift::pools(facts));
    findings.extend(drift::sysctl(facts));
    findings.extend(drift::places(facts));
    findings.extend(drift::tmpfiles(facts));
    findings.extend(drift::boot(facts));
    findings.extend(drift::journal(facts));
    findings.extend(drift::kernel_log(facts));
    findings.extend(unread(facts));
    let findings = without_contradicting_wants(on_one_screen(findings), facts.wants);
    let newest = facts.applied.first();
    VerifyReport {
        services: rows.into_iter().map(|row| row.row).collect(),
        pools,
        steps: facts
            .applied
            .iter()
            .flat_map(|applied| applied.places.iter().cloned())
            .collect(),
        plan: newest.map(|applied| NewestApply {
            id: applied.id,
            time: applied.time.clone(),
        }),
        findings,
    }
}

fn unread(facts: &VerifyFacts<'_>) -> Vec<Finding> {
    let services = facts.unread.iter().cloned().map(not_verified);
    let settings = facts.settings;
    let files = [
        settings.tmpfiles.error(),
        settings.memlock.error(),
        settings.boot.error(),
        facts.host.limits.sysctl.error(),
    ];
    let files = files.into_iter().flatten().map(|error| {
        not_verified(format!(
            "A file could not be read, and was not compared with the kernel: {error}"
        ))
    });
    services.chain(files).collect()
}
