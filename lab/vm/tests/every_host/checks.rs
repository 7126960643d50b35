//! `hugeleaf check`: its statements on a host match the kernel and the behaviour of its file
//! systems.

use std::path::Path;

use serde_json::Value;

use crate::host::Host;
use crate::json;
use crate::kernel::{chosen, nodes, number, text};

/// Returns the first row of that name.
fn row<'a>(features: &'a [Value], id: &str) -> &'a Value {
    let found = features.iter().find(|row| row["id"] == id);
    found.unwrap_or_else(|| panic!("no row {id}: {features:#?}"))
}

/// Checks settings that are written with the kernel's own names.
fn assert_settings(features: &[Value]) {
    let mut count = 0;
    for row in features {
        let value = row["value"].as_str().unwrap_or_default();
        let Some((name, value)) = value.split_once(" = ") else {
            continue;
        };
        let file = format!("/proc/sys/{}", name.replace('.', "/"));
        let words: Vec<String> = text(&file).split_whitespace().map(str::to_owned).collect();
        // A remark on the value follows a comma.
        let said = value.split(',').next().unwrap_or_default();
        assert_eq!(said, words.join(" "), "{row}");
        count += 1;
    }
    assert!(count >= 5, "{features:#?}");
}

#[test]
fn check_agrees_with_the_kernel() {
    let Some(_host) = Host::new("check_agrees_with_the_kernel") else {
        return;
    };
    let answer = json(&["check"]);
    let features = answer["features"].as_array().unwrap();
    assert_settings(features);
    for row in features {
        // With all rights, nothing is unknown.
        assert_ne!(row["state"], "unknown", "{row}");
    }
    // The setting of the full size is active, unless it inherits the global one.
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let size: u64 = number(format!("{folder}/hpage_pmd_size")).unwrap();
    let own = format!("{folder}/hugepages-{}kB/enabled", size / 1024);
    let own = chosen(&own).filter(|word| word != "inherit");
    let thp = own.unwrap_or_else(|| chosen(format!("{folder}/enabled")).unwrap());
    assert_eq!(row(features, "thp")["value"], thp);
    // One node has nothing to balance; the row then says that there is only one.
    let missing = features.iter().filter(|row| row["id"] == "numa");
    assert_eq!(
        missing.map(|row| &row["state"]).collect::<Vec<_>>(),
        vec!["absent"; usize::from(nodes().len() == 1)]
    );
    let balancing = features.iter().any(|row| row["id"] == "numa-balancing");
    assert_eq!(balancing, nodes().len() > 1);
    let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    assert_eq!(row(features, "clock")["value"], text(clock).trim());
    for one in features.iter().filter(|row| row["id"] == "scheduler") {
        let disk = one["what"].as_str().unwrap().split(':').next().unwrap();
        let queue = format!("/sys/block/{disk}/queue");
        assert_eq!(one["value"], text(format!("{queue}/scheduler")).trim());
    }
    for disk in features.iter().filter(|row| row["id"] == "queue-depth") {
        let name = disk["what"].as_str().unwrap().split(':').next().unwrap();
        let depth = number(format!("/sys/block/{name}/queue/nr_requests")).unwrap();
        assert_eq!(disk["value"], depth.to_string());
    }
}

/// A file of the reported maximum size fits a file system, and one byte more does not.
#[test]
fn check_reports_the_largest_file_of_a_file_system() {
    let Some(_host) = Host::new("check_reports_the_largest_file_of_a_file_system") else {
        return;
    };
    let answer = json(&["check"]);
    for one in answer["file_systems"].as_array().unwrap() {
        let at = Path::new(one["at"].as_str().unwrap());
        let Some(largest) = one["can"]["largest_file_bytes"].as_u64() else {
            continue;
        };
        let path = at.join("hugeleaf-largest-file");
        let Ok(file) = std::fs::File::create_new(&path) else {
            continue; // read-only
        };
        std::fs::remove_file(&path).unwrap();
        // The file consists of holes; nothing is written.
        let fits = file.set_len(largest);
        let more = file.set_len(largest + 1);
        assert!(fits.is_ok(), "{one}: {fits:?}");
        assert!(more.is_err(), "{one}");
    }
}
