//! The table of programs: its columns, their order, and the programs in it. Pure.

use std::cmp::Ordering;

use hugeleaf_report::document::{Cell, CellValue, StatusMark};
use hugeleaf_report::terminal_escape::clean;
use hugeleaf_units::time;

use crate::model::{HostSample, TreeSample};

hugeleaf_units::named! {
    /// The columns from left to right. The name is the head.
    pub enum Column {
        Pid = "PID",
        Name = "NAME",
        Unit = "UNIT",
        User = "USER",
        Guard = "GUARD",
        Small = "BASE",
        Large = "HUGE",
        Coverage = "COVERAGE",
        History = "HISTORY",
        Tables = "TABLES",
        Cpu = "CPU",
        Resident = "RESIDENT",
        Threads = "THREADS",
        Processes = "PROCS",
        Age = "AGE",
    }
}

impl Column {
    pub const fn description(self) -> &'static str {
        match self {
            Column::Pid => "PID of the first process in the tree",
            Column::Name => "command; ×N: a tree of N processes, forked without execve",
            Column::Unit => "systemd unit",
            Column::User => "user",
            Column::Guard => "state in the guard",
            Column::Small => "base-page memory that could be on huge pages",
            Column::Large => "memory on huge pages, THP and hugetlb",
            Column::Coverage => "HUGE as a share of both; off: THP is disabled; 4m: 4 minutes old",
            Column::History => "coverage since the start, newest at the right",
            Column::Tables => "page tables",
            Column::Cpu => "CPU usage; 100 % is one processor",
            Column::Resident => "resident memory, summed over its processes",
            Column::Threads => "number of threads",
            Column::Processes => "number of processes",
            Column::Age => "time since its start",
        }
    }

    /// Returns the width in cells. The name and the unit also share the remaining width.
    pub const fn width(self) -> usize {
        match self {
            Column::Name => 15,
            Column::Unit => 18,
            Column::History => 12,
            Column::Guard => 12,
            Column::User | Column::Coverage | Column::Resident => 8,
            Column::Pid | Column::Threads => 7,
            Column::Small | Column::Large | Column::Tables | Column::Cpu | Column::Age => 6,
            Column::Processes => 5,
        }
    }

    pub const fn is_left(self) -> bool {
        matches!(
            self,
            Column::Name | Column::Unit | Column::User | Column::Guard | Column::History
        )
    }

    pub const fn is_descending(self) -> bool {
        !matches!(
            self,
            Column::Pid | Column::Name | Column::Unit | Column::User | Column::Guard
        )
    }

    /// Returns the cell of a program, except coverage over time.
    pub fn cell(self, program: &TreeSample, since_boot: f64) -> Cell {
        let held = program.held;
        let text = |text: Option<&str>| text.map(clean).unwrap_or_default().into();
        let some = |bytes| match (&program.unreadable, bytes) {
            (Some(_), None) => CellValue::Unreadable.into(),
            (_, bytes) if program.old(since_boot).is_some() => {
                Cell::from(bytes).marked(StatusMark::Dim)
            }
            (_, bytes) => Cell::from(bytes),
        };
        match self {
            Column::Pid => CellValue::Text(program.pid.to_string()).into(),
            Column::Name => name(program).into(),
            Column::Unit => text(program.unit.as_deref()),
            Column::User => text(program.user.as_deref()),
            Column::Small => some(held.map(|held| held.base_bytes)),
            Column::Large => some(held.map(|held| held.huge_bytes)),
            Column::Tables => some(held.map(|held| held.page_tables_bytes)),
            Column::Coverage => coverage(program, since_boot),
            Column::Cpu => Cell::percent(program.cpu.map(|cpu| (cpu * 100.0).round() / 100.0)),
            Column::Resident => program.resident_bytes.into(),
            Column::Threads => program.threads.into(),
            Column::Processes => program.processes.into(),
            Column::Age => age(since_boot - program.started_seconds).into(),
            Column::Guard => guard(program),
            Column::History => Cell::empty(),
        }
    }

    /// Compares two programs by this column, ascending. Unknown values are smallest.
    fn compare(self, a: &TreeSample, b: &TreeSample) -> Ordering {
        let held = |p: &TreeSample| p.held.unwrap_or_default();
        let number =
            |a: Option<f64>, b: Option<f64>| a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0));
        match self {
            Column::Pid => a.pid.cmp(&b.pid),
            Column::Name => a.name.cmp(&b.name),
            Column::Unit => unknown_last(a.unit.as_deref(), b.unit.as_deref()),
            Column::User => unknown_last(a.user.as_deref(), b.user.as_deref()),
            Column::Guard => unknown_last(a.guard.as_deref(), b.guard.as_deref()),
            Column::Small => held(a).base_bytes.cmp(&held(b).base_bytes),
            Column::Large => held(a).huge_bytes.cmp(&held(b).huge_bytes),
            Column::Tables => held(a).page_tables_bytes.cmp(&held(b).page_tables_bytes),
            Column::Coverage | Column::History => number(a.coverage(), b.coverage()),
            Column::Cpu => number(a.cpu, b.cpu),
            Column::Resident => a.resident_bytes.cmp(&b.resident_bytes),
            Column::Threads => a.threads.cmp(&b.threads),
            Column::Processes => a.processes.cmp(&b.processes),
            Column::Age => b.started_seconds.total_cmp(&a.started_seconds),
        }
    }
}

/// Compares names. A missing one comes last.
fn unknown_last(a: Option<&str>, b: Option<&str>) -> Ordering {
    (a.is_none(), a).cmp(&(b.is_none(), b))
}

fn name(program: &TreeSample) -> String {
    match program.processes {
        0 | 1 => clean(&program.name),
        n => format!("{} ×{n}", clean(&program.name)),
    }
}

fn coverage(program: &TreeSample, since_boot: f64) -> Cell {
    let part = program.coverage();
    let is_off = program.held.is_some_and(|held| held.thp_disabled);
    let mark = match part {
        _ if is_off => StatusMark::Warn,
        Some(part) if part >= 0.95 => StatusMark::Good,
        Some(part) if part >= 0.5 => StatusMark::Plain,
        Some(_) => StatusMark::Warn,
        None => StatusMark::Dim,
    };
    let cell = match (part, is_off, &program.unreadable) {
        (Some(0.0) | None, true, _) => "off".into(),
        (None, _, Some(_)) => CellValue::Unreadable.into(),
        _ => Cell::percent(part),
    };
    match program.old(since_boot).filter(|_| program.held.is_some()) {
        Some(age) => {
            let part = cell.to_string().replace(' ', "");
            Cell::from(format!("{part} {}", short_age(age.as_secs()))).marked(StatusMark::Dim)
        }
        None => cell.marked(mark),
    }
}

fn guard(program: &TreeSample) -> Cell {
    let Some(stand) = program.guard.as_deref() else {
        return Cell::empty();
    };
    let mark = match stand {
        "managed" | "already huge" => StatusMark::Good,
        "skipped" => StatusMark::Dim,
        _ => StatusMark::Warn,
    };
    Cell::from(clean(stand)).marked(mark)
}

/// Formats an age as one number: `45s`, `12m`, `30h`, `12d`.
#[allow(clippy::cast_possible_truncation)] // not below 0
fn age(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        s @ 172_800.. => format!("{}d", s / 86_400),
        s => {
            let (number, unit) = time::age(s);
            format!("{number}{}", &unit[..1])
        }
    }
}

/// Formats an age in three columns.
fn short_age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", (seconds / 86_400).min(99)),
    }
}

/// The sort column and its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    pub column: Column,
    pub descending: bool,
}

impl Default for Sort {
    fn default() -> Sort {
        Sort::by(Column::Small)
    }
}

impl Sort {
    /// Sorts by a column, in its default direction.
    pub const fn by(column: Column) -> Sort {
        Sort {
            column,
            descending: column.is_descending(),
        }
    }
}

/// Returns the indices of the programs that match a filter, in their order. Equal ones are sorted by PID, so that rows
/// do not jump.
pub fn rows(sample: &HostSample, sort: Sort, filter: &str) -> Vec<usize> {
    let filter = filter.to_lowercase();
    let mut rows: Vec<usize> = (0..sample.programs.len())
        .filter(|at| is_in(&sample.programs[*at], &filter))
        .collect();
    rows.sort_by(|a, b| {
        let (a, b) = (&sample.programs[*a], &sample.programs[*b]);
        let by_column = sort.column.compare(a, b);
        let by_column = if sort.descending {
            by_column.reverse()
        } else {
            by_column
        };
        by_column
            .then_with(|| b.resident_bytes.cmp(&a.resident_bytes))
            .then_with(|| a.pid.cmp(&b.pid))
    });
    rows
}

/// True if its name, unit, user or the beginning of its PID matches the filter, in lower case.
fn is_in(program: &TreeSample, filter: &str) -> bool {
    let says = |text: &str| text.to_lowercase().contains(filter);
    filter.is_empty()
        || says(&program.name)
        || program.unit.as_deref().is_some_and(says)
        || program.user.as_deref().is_some_and(says)
        || program.guard.as_deref() == Some(filter)
        || program.pid.to_string().starts_with(filter)
}

pub const GAP: usize = 2;
/// Width of the sign at the selected row.
pub const SIGN: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedColumn {
    pub column: Column,
    /// First cell, from the left of the screen.
    pub x: usize,
    pub width: usize,
}

/// Returns the columns that fit a screen of that width, from the left. `guard` adds the guard's column.
pub fn columns(width: usize, guard: bool) -> Vec<PlacedColumn> {
    use Column::*;
    // The most important come first. Columns without room are left out.
    const IMPORTANCE: [Column; 15] = [
        Pid, Name, Small, Large, Coverage, Cpu, Tables, Resident, Guard, Unit, History, User,
        Threads, Age, Processes,
    ];
    let mut left = width.saturating_sub(SIGN);
    let mut shown = Vec::new();
    for column in IMPORTANCE {
        let takes = column.width() + if shown.is_empty() { 0 } else { GAP };
        if column == Guard && !guard {
            continue;
        }
        if takes > left {
            break;
        }
        left -= takes;
        shown.push(column);
    }
    // The rest goes to units, which are long, then to names, which the kernel cuts at 15.
    let unit = match shown.contains(&Unit) {
        true => left.min(20),
        false => 0,
    };
    let name = (left - unit).min(5);
    let mut x = SIGN;
    let mut placed = Vec::new();
    for column in Column::ALL.into_iter().filter(|c| shown.contains(c)) {
        let more = match column {
            Name => name,
            Unit => unit,
            _ => 0,
        };
        let width = column.width() + more;
        placed.push(PlacedColumn { column, x, width });
        x += width + GAP;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{program, sample};
    use hugeleaf_units::Bytes;

    fn pids(sample: &HostSample, sort: Sort, filter: &str) -> Vec<u32> {
        let rows = rows(sample, sort, filter);
        rows.iter().map(|at| sample.programs[*at].pid).collect()
    }

    #[test]
    fn every_column_sorts_both_ways() {
        let sample = sample();
        for column in Column::ALL {
            let down = pids(
                &sample,
                Sort {
                    column,
                    descending: true,
                },
                "",
            );
            let up = pids(
                &sample,
                Sort {
                    column,
                    descending: false,
                },
                "",
            );
            assert_eq!(
                (down.len(), up.len()),
                (sample.programs.len(), sample.programs.len())
            );
            if column == Column::Pid {
                let mut sorted = up.clone();
                sorted.sort_unstable();
                assert_eq!(up, sorted);
                assert!(down.iter().rev().eq(&up));
            }
        }
        let by = |column| pids(&sample, Sort::by(column), "")[0];
        assert_eq!(by(Column::Small), 1021);
        assert_eq!(by(Column::Cpu), 1021);
        assert_eq!(by(Column::Age), 1);
    }

    #[test]
    fn old_figures_say_their_age() {
        const NOW: f64 = 1e6;
        let mut one = program(9, "b", 100, 100);
        let scanned = |one: &mut TreeSample, ago: f64| {
            one.held_at_seconds = Some(NOW - ago);
            Column::Coverage.cell(one, NOW).to_string()
        };
        let live = scanned(&mut one, 3.0);
        assert!(live.ends_with(" %"), "{live}");
        assert_eq!(
            scanned(&mut one, 240.0),
            format!("{} 4m", live.replace(' ', ""))
        );
        assert_eq!(Column::Small.cell(&one, NOW).mark, StatusMark::Dim);
        for ago in [20.0, 59.0, 60.0, 3_599.0, 86_399.0, 172_800.0, 1e12] {
            assert!(
                scanned(&mut one, ago).len() <= Column::Coverage.width(),
                "{ago}"
            );
        }
        (one.held, one.unreadable) = (None, Some("denied".into()));
        assert!(!scanned(&mut one, 240.0).contains('m'));
    }

    #[test]
    fn alike_stand_by_size_and_number() {
        let mut sample = HostSample {
            programs: vec![
                program(9, "b", 0, 0),
                program(3, "a", 0, 0),
                program(5, "c", 0, 0),
            ],
            ..HostSample::default()
        };
        assert_eq!(pids(&sample, Sort::default(), ""), [3, 5, 9]);
        sample.programs[0].resident_bytes = Bytes(1 << 40);
        assert_eq!(pids(&sample, Sort::default(), ""), [9, 3, 5]);
    }

    #[test]
    fn a_filter_finds_names_units_users_and_numbers() {
        let sample = sample();
        for (filter, finds) in [
            ("MARIA", vec![1021]),
            ("postgresql@", vec![2210]),
            ("102", vec![1021]),
            ("021", vec![]),
            ("no such", vec![]),
        ] {
            assert_eq!(pids(&sample, Sort::default(), filter), finds, "{filter}");
        }
        assert_eq!(
            pids(&sample, Sort::default(), "").len(),
            sample.programs.len()
        );
    }

    #[test]
    fn columns_fit_every_screen() {
        for width in 0..300 {
            for guard in [false, true] {
                let placed = columns(width, guard);
                let end = placed.last().map_or(0, |p| p.x + p.width);
                assert!(end <= width, "{width}: {end}");
                for pair in placed.windows(2) {
                    assert_eq!(pair[0].x + pair[0].width + GAP, pair[1].x, "{width}");
                }
            }
        }
        let heads = |width, guard| -> Vec<&str> {
            columns(width, guard)
                .iter()
                .map(|p| p.column.name())
                .collect()
        };
        let narrow = [
            "PID", "NAME", "BASE", "HUGE", "COVERAGE", "TABLES", "CPU", "RESIDENT",
        ];
        assert_eq!(heads(80, false), narrow);
        assert_eq!(heads(52, false), narrow[..5]);
        assert_eq!(heads(200, true).len(), Column::ALL.len());
    }

    #[test]
    fn ages() {
        for (seconds, text) in [
            (-5.0, "0s"),
            (119.0, "119s"),
            (600.0, "10m"),
            (86_400.0, "24h"),
            (1e9, "11574d"),
            (f64::NAN, "0s"),
        ] {
            assert_eq!(age(seconds), text);
        }
    }
}
