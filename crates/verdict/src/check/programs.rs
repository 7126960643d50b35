//! What programs that run here want of the host: a data file, with sources.

use serde::Deserialize;

use super::model::{Checked, Program, Row};

pub const PROGRAMS_SOURCE: &str = include_str!("../../data/programs.toml");

pub fn programs() -> Vec<Program> {
    #[derive(Deserialize)]
    struct File {
        program: Vec<Program>,
    }
    // The file is part of the program; a test reads it.
    toml::from_str::<File>(PROGRAMS_SOURCE).map_or_else(|_| Vec::new(), |file| file.program)
}

/// What those that run here want and do not have, and where two of them want different things.
pub(super) fn wants(checked: &Checked<'_>) -> Vec<Row> {
    let mut all: Vec<Row> = checked
        .running
        .iter()
        .filter_map(|program| thp(checked, program))
        .collect();
    all.extend(conflicts(checked.running));
    for program in checked.running {
        all.extend(settings(checked, program));
    }
    all
}

fn thp(checked: &Checked<'_>, program: &Program) -> Option<Row> {
    let setting = checked.host.thp.known()?.enabled.known()?;
    let what = format!("{}: transparent huge pages", program.title);
    let row = Row::new("program-thp", what).is(setting);
    if program.thp.contains(setting) {
        return Some(row);
    }
    let best = program.thp.first()?;
    let why = format!("it wants {} ({})", program.thp.join(" or "), program.source);
    Some(row.change(why).by(
        format!("echo {best} > /sys/kernel/mm/transparent_hugepage/enabled"),
        "it changes what every program here gets",
    ))
}

fn conflicts(running: &[Program]) -> Vec<Row> {
    let mut all = Vec::new();
    for (at, one) in running.iter().enumerate() {
        for other in &running[at + 1..] {
            if one.thp.iter().any(|setting| other.thp.contains(setting)) {
                continue;
            }
            let what = format!("{} and {} on one host", one.title, other.title);
            let why = format!(
                "no setting of transparent huge pages is right for both: {} wants {}, {} wants {}. Set what the one \
                 wants, and give the other its own by its unit (MemoryTHP=) or by hugeleaf run",
                one.title,
                one.thp.join(" or "),
                other.title,
                other.thp.join(" or ")
            );
            all.push(Row::new("program-conflict", what).change(why));
        }
    }
    all
}

fn settings(checked: &Checked<'_>, program: &Program) -> Vec<Row> {
    type Wrong = fn(&u64, &u64) -> bool;
    let (features, p) = (checked.features, program);
    let all: [(&str, Option<u64>, Wrong, &str); 4] = [
        ("vm.overcommit_memory", p.overcommit_memory, u64::ne, "be"),
        ("vm.swappiness", p.swappiness, u64::gt, "be at most"),
        ("vm.max_map_count", p.max_map_count, u64::lt, "be at least"),
        ("net.core.somaxconn", p.somaxconn, u64::lt, "be at least"),
    ];
    let wrong = all.into_iter().filter_map(|(name, wants, is_wrong, word)| {
        let wants = wants?;
        let has = features.number(&format!("proc/sys/{}", name.replace('.', "/")))?;
        is_wrong(&has, &wants).then(|| {
            let why = format!(
                "{} asks for it to {word} {wants} ({})",
                program.title, program.source
            );
            Row::new("program-setting", format!("{}: {name}", program.title))
                .is(has.to_string())
                .look(why)
                .by(
                    format!("sysctl -w {name}={wants}"),
                    "it holds for all programs",
                )
        })
    });
    wrong.collect()
}
