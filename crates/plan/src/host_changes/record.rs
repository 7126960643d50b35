//! Records of the journal, and their lines. Pure.
//!
//! A line has a checksum, a sequence number, and the record as JSON. So truncated, damaged and missing
//! lines can be distinguished, and the other lines remain usable: each record is self-contained.

use std::path::PathBuf;

use crate::FollowUp;
use serde::{Deserialize, Serialize};

use super::outcome::StepState;
use super::path_state::PathState;

pub(super) const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum JournalRecord {
    /// The first record: the apply that begins.
    Apply(JournalHeader),
    Begin(BeginRecord),
    Done {
        step: String,
        after: PathState,
        state: StepState,
        #[serde(default)]
        beside: Option<String>,
    },
    Failed {
        step: String,
        error: String,
    },
    End {
        time: String,
        complete: bool,
    },
    Undo {
        time: String,
    },
    Undoing {
        step: String,
    },
    Undone {
        step: String,
        state: StepState,
    },
    UndoEnd {
        time: String,
        complete: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JournalHeader {
    pub schema: u32,
    /// The number for `undo`, counted up.
    pub id: u32,
    pub time: String,
    /// The boot in which it was applied (`/proc/sys/kernel/random/boot_id`).
    #[serde(default)]
    pub boot: Option<String>,
    pub program: String,
    pub plan_file: String,
    #[serde(default)]
    pub forced: Option<String>,
    /// The apply that this one continues; both are undone together.
    #[serde(default)]
    pub continues: Option<u32>,
    #[serde(default)]
    pub serves: Vec<String>,
    pub steps: Vec<RecordedStep>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStep {
    pub id: String,
    pub what: String,
    pub path: PathBuf,
    pub why: String,
    pub verify: String,
    pub needs: FollowUp,
    /// The state; `already` and `not-applicable` steps are never begun.
    pub state: StepState,
}

/// A step about to be executed, with all that its undo needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginRecord {
    pub step: String,
    pub what: String,
    pub path: PathBuf,
    pub before: PathState,
    pub wanted: PathState,
    /// Parent folders that are created, outermost first.
    #[serde(default)]
    pub makes: Vec<PathBuf>,
    #[serde(default)]
    pub block: Option<String>,
    #[serde(default)]
    pub beside: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JournalDamage {
    /// The last line was cut off by a crash during its write.
    #[error("line {line} was cut off and is ignored")]
    CutOff { line: usize },
    /// A line differs from the one that was written.
    #[error("line {line} is damaged and is ignored")]
    Damaged { line: usize },
    /// A line is intact, but of a kind that only a newer program knows.
    #[error("line {line} was written by a newer hugeleaf and is ignored")]
    Unknown { line: usize },
    #[error("lines are missing before line {line}")]
    Missing { line: usize },
}

/// Formats a record as a line; `number` counts the records of a journal from 1.
pub fn line(number: u64, record: &JournalRecord) -> String {
    // Cannot fail: all keys are strings and all values plain.
    let json = serde_json::to_string(record).unwrap_or_default();
    let body = format!("{number} {json}");
    format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
}

/// Returns the intact records of a journal, the number of the last one, and the damage.
pub fn parse_records(bytes: &[u8]) -> (Vec<JournalRecord>, u64, Vec<JournalDamage>) {
    let (mut records, mut damage) = (Vec::new(), Vec::new());
    // Numbers that were seen or may be in damaged lines.
    let (mut last, mut unknown) = (0, 0);
    for (at, raw) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        let line = at + 1;
        // An empty line follows one that was cut off, when the journal is continued.
        if raw == b"\n" {
            continue;
        }
        match parse_line(raw) {
            Some((number, record)) => {
                if number > last + 1 + unknown {
                    damage.push(JournalDamage::Missing { line });
                }
                (last, unknown) = (number, 0);
                match record {
                    Some(record) => records.push(record),
                    None => damage.push(JournalDamage::Unknown { line }),
                }
            }
            None if raw.ends_with(b"\n") => {
                unknown += 1;
                damage.push(JournalDamage::Damaged { line });
            }
            None => damage.push(JournalDamage::CutOff { line }),
        }
    }
    (records, last, damage)
}

/// Returns the number and the record of an intact line; no record if this program does not know its
/// kind.
fn parse_line(raw: &[u8]) -> Option<(u64, Option<JournalRecord>)> {
    let text = std::str::from_utf8(raw.strip_suffix(b"\n")?).ok()?;
    let (sum, body) = text.split_at_checked(8)?;
    let body = body.strip_prefix(' ')?;
    if !sum.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    if u32::from_str_radix(sum, 16).ok()? != crc32fast::hash(body.as_bytes()) {
        return None;
    }
    let (number, json) = body.split_once(' ')?;
    Some((number.parse().ok()?, serde_json::from_str(json).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> Vec<JournalRecord> {
        let header = JournalHeader {
            schema: 1,
            id: 3,
            time: "2026-01-02T03:04:05Z".to_owned(),
            boot: Some("b".to_owned()),
            program: "hugeleaf 0".to_owned(),
            plan_file: "plan.toml".to_owned(),
            forced: None,
            continues: Some(2),
            serves: vec!["pg".to_owned()],
            steps: vec![RecordedStep {
                id: "pool".to_owned(),
                what: "pool".to_owned(),
                path: "/p".into(),
                why: "w\nw".to_owned(),
                verify: "v".to_owned(),
                needs: FollowUp::Reboot {
                    first: "update-grub".to_owned(),
                },
                state: StepState::WouldChange,
            }],
        };
        let begin = BeginRecord {
            step: "pool".to_owned(),
            what: "pool".to_owned(),
            path: "/p".into(),
            before: PathState::Absent,
            wanted: PathState::Pool {
                pages: 4,
                surplus: 0,
            },
            makes: vec!["/m".into()],
            block: None,
            beside: None,
        };
        vec![
            JournalRecord::Apply(header),
            JournalRecord::Begin(begin),
            JournalRecord::Done {
                step: "pool".to_owned(),
                after: PathState::Value {
                    value: "é".to_owned(),
                },
                state: StepState::Short,
                beside: Some("1".to_owned()),
            },
            JournalRecord::End {
                time: String::new(),
                complete: true,
            },
        ]
    }

    fn text() -> String {
        let lines = records();
        let numbered = (1..).zip(&lines);
        numbered.map(|(n, record)| line(n, record)).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(parse_records(text().as_bytes()), (records(), 4, Vec::new()));
    }

    #[test]
    fn cut_off_anywhere_the_whole_lines_stay() {
        let text = text();
        for end in 0..text.len() {
            let (read, _, damage) = parse_records(&text.as_bytes()[..end]);
            let whole = text.as_bytes()[..end]
                .iter()
                .filter(|b| **b == b'\n')
                .count();
            assert_eq!(read, records()[..whole], "{end}");
            let clean = end == 0 || text.as_bytes()[end - 1] == b'\n';
            assert_eq!(damage.is_empty(), clean, "{end}: {damage:?}");
        }
    }

    #[test]
    fn any_bit_that_flips_costs_one_line_and_is_told() {
        let text = text();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let (read, _, damage) = parse_records(&bytes);
            assert!(!damage.is_empty(), "{at}");
            let known = read.iter().all(|record| records().contains(record));
            // A flipped line break joins two lines.
            assert!(known && read.len() >= 2, "{at}: {damage:?}");
        }
    }

    #[test]
    fn a_record_of_a_newer_program_is_told() {
        let body = "5 {\"record\":\"moved\",\"to\":7}";
        let text = format!(
            "{}{:08x} {body}\n",
            text(),
            crc32fast::hash(body.as_bytes())
        );
        let (read, last, damage) = parse_records(text.as_bytes());
        assert_eq!((read, last), (records(), 5));
        assert_eq!(damage, [JournalDamage::Unknown { line: 5 }]);
    }

    #[test]
    fn a_line_that_is_gone_is_told() {
        let text = text();
        let without: String = text
            .lines()
            .enumerate()
            .filter(|(i, _)| *i != 1)
            .map(|(_, l)| format!("{l}\n"))
            .collect();
        let (read, last, damage) = parse_records(without.as_bytes());
        assert_eq!((read.len(), last), (3, 4));
        assert_eq!(damage, [JournalDamage::Missing { line: 2 }]);
    }

    #[test]
    fn written_on_after_a_cut_the_rest_is_read() {
        let lines = records();
        let cut = line(2, &lines[1]);
        let text = format!(
            "{}{}\n{}",
            line(1, &lines[0]),
            &cut[..20],
            line(2, &lines[3])
        );
        let (read, last, damage) = parse_records(text.as_bytes());
        assert_eq!((read.len(), last), (2, 2));
        assert_eq!(damage, [JournalDamage::Damaged { line: 2 }]);
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_records(&bytes);
        }
    }
}
