//! Complete, truncated, foreign, newer and damaged files.

use std::path::Path;

use super::*;
use crate::model::{
    CpuMode, Interval, Lock, LockCaller, MemoryCounter, MemoryState, PoolState, Stack, StackSample,
    Symbol, TracedProcess,
};

fn trace() -> Trace {
    Trace {
        schema: SCHEMA,
        tool_version: "0.1.0".into(),
        seconds: 1.5,
        processes: vec![TracedProcess {
            pid: 7,
            name: "seven".into(),
            ..TracedProcess::default()
        }],
        symbols: vec![Symbol {
            name: "main".into(),
            ..Symbol::default()
        }],
        stacks: vec![Stack { frames: vec![0] }],
        samples: vec![StackSample {
            process: 0,
            tid: 7,
            stack: 0,
            mode: CpuMode::Kernel,
            count: 3,
        }],
        locks: vec![Lock {
            address: 0xffff_8000_0000_1234,
            by_caller: vec![LockCaller::default()],
            ..Lock::default()
        }],
        ..Trace::default()
    }
}

fn packed(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(&mut bytes, trace).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Trace, TraceFileError> {
    read_from(bytes, Path::new("a.trace"))
}

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace");
    let size = write_trace(&path, &trace()).unwrap();
    assert_eq!(size, std::fs::metadata(&path).unwrap().len());
    assert_eq!(read_trace(&path).unwrap(), trace());
    // No other file is left in the folder.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Truncation at any position gives an error: never a smaller trace, never a panic.
#[test]
fn a_file_that_is_cut_off() {
    let whole = packed(&trace());
    for length in 0..whole.len() {
        match read(&whole[..length]) {
            Err(TraceFileError {
                problem: TraceProblem::Truncated(_),
                ..
            }) => assert!(length > MAGIC.len() / 2),
            Err(TraceFileError {
                problem: TraceProblem::Foreign,
                ..
            }) => assert!(length <= MAGIC.len() + 2),
            other => panic!("cut at {length} of {}: {other:?}", whole.len()),
        }
    }
}

#[test]
fn a_foreign_file_a_newer_one_and_an_older_one() {
    for bytes in [
        &b""[..],
        b"ELF",
        b"hugeleaf trace x\n",
        b"{\"schema\": 1}\n",
    ] {
        assert!(matches!(
            read(bytes),
            Err(TraceFileError {
                problem: TraceProblem::Foreign,
                ..
            })
        ));
    }
    let error = read(b"hugeleaf trace 99\nanything").unwrap_err();
    assert!(matches!(error.problem, TraceProblem::Newer(99)));
    assert!(error.to_string().contains("99") && error.next().contains("later"));
    let error = read(b"hugeleaf trace 1\nanything").unwrap_err();
    assert!(matches!(error.problem, TraceProblem::Older(1)));
    assert!(error.next().contains("trace again"));
}

#[test]
fn a_flipped_bit_is_damage() {
    let whole = packed(&trace());
    let mut damaged = whole.clone();
    let last = damaged.len() - 6;
    damaged[last] ^= 1;
    assert!(matches!(
        read(&damaged),
        Err(TraceFileError {
            problem: TraceProblem::Damaged(_) | TraceProblem::Truncated(_),
            ..
        })
    ));
}

/// An invalid reference is detected on reading, not on drawing.
#[test]
fn references_lead_somewhere() {
    for spoil in [
        |t: &mut Trace| t.samples[0].process = 1,
        |t: &mut Trace| t.samples[0].stack = 9,
        |t: &mut Trace| t.stacks[0].frames[0] = 5,
        |t: &mut Trace| t.locks[0].by_caller[0].function = Some(4),
    ] {
        let mut spoiled = trace();
        spoil(&mut spoiled);
        let error = read(&packed(&spoiled)).unwrap_err();
        assert!(matches!(error.problem, TraceProblem::Damaged(_)), "{error}");
    }
}

/// A full device leaves no partial file, and keeps the earlier one.
#[test]
fn nothing_is_left_of_a_write_that_failed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("folder");
    // A file cannot replace a non-empty folder: the last step fails.
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("x"), "x").unwrap();
    let error = write_trace(&path, &trace()).unwrap_err();
    assert!(matches!(error.problem, TraceProblem::Io(_)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    // A device that is always full.
    if Path::new("/dev/full").exists() {
        let error = write_trace(Path::new("/dev/full"), &trace()).unwrap_err();
        assert!(error.next().contains("make room"), "{error}");
    }
    // The folder does not exist.
    let nowhere = dir.path().join("none/a.trace");
    assert!(matches!(
        write_trace(&nowhere, &trace()),
        Err(TraceFileError {
            problem: TraceProblem::Io(_),
            ..
        })
    ));
}

proptest::proptest! {
    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = read(&bytes);
        let header = format!("{MAGIC}{SCHEMA}\n").into_bytes();
        let mut packed = GzEncoder::new(header, Compression::fast());
        packed.write_all(&bytes).unwrap();
        let with_header = packed.finish().unwrap();
        let _ = read(&with_header);
    }
}

/// Each kind of count at its maximum: no two may be added.
#[test]
fn counts_that_no_host_counts() {
    type Spoil = fn(&mut Trace);
    let spoilers: [(&str, Spoil); 6] = [
        ("samples", |t| t.samples[0].count = u64::MAX),
        ("locks", |t| t.locks[0].totals.contentions = u64::MAX),
        ("callers", |t| {
            t.locks[0].by_caller[0].totals.waited_nanos = u64::MAX
        }),
        ("intervals", |t| {
            t.intervals = vec![Interval {
                context_switches: u64::MAX,
                ..Interval::default()
            }];
        }),
        ("counters", |t| {
            t.memory_counters = vec![MemoryCounter {
                by_interval: vec![u64::MAX / 2, u64::MAX / 2],
                ..MemoryCounter::default()
            }];
        }),
        ("pools", |t| {
            t.memory_after = Some(MemoryState {
                pools: vec![PoolState {
                    page_bytes: 1 << 40,
                    total: 1 << 40,
                    ..PoolState::default()
                }],
                ..MemoryState::default()
            });
        }),
    ];
    for (what, spoil) in spoilers {
        let mut hostile = trace();
        spoil(&mut hostile);
        match read(&packed(&hostile)) {
            Err(TraceFileError {
                problem: TraceProblem::Damaged(reason),
                ..
            }) => {
                assert!(reason.contains("impossibly large"), "{what}: {reason}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}
