pub(crate) mod testing;

use super::*;
use crate::document::TextOptions;
use serde_json::Value;
use testing::report;

#[test]
fn a_screen_with_shortfalls() {
    let text = verify(&report()).text(TextOptions::plain(100));
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
    let text = verify(&report).text(TextOptions::plain(200));
    assert_eq!(
        text,
        "Everything matches: 2 services have the pages they requested; 4200 of 4300 pages of 2M \
         in use; apply 3 of 2026-11-20T10:00:00Z in force.\n"
    );
    let nothing = verify(&VerifyReport::default()).text(TextOptions::plain(100));
    assert_eq!(
        nothing,
        "Everything matches: no service requests pages of a pool.\n"
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
    // A stopped process has no start time, and a satisfied one no reason: missing, not null.
    let stopped = &answer["services"][2];
    assert!(stopped.get("since").is_none() && stopped.get("reason").is_none());
    for name in ["id", "what", "path", "before", "after", "state"] {
        assert!(answer["steps"][0][name].is_string(), "{name}");
    }
    assert_eq!(answer["good"], false);
    assert_eq!(answer["findings"][0]["id"], "service-short");
    assert_eq!(answer["applied"]["id"], 3);
}
