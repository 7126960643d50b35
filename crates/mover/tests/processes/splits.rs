//! Splits memory that several processes map: on a kernel that does so, one that only claims it, and
//! one that refuses. Refusals and false success are simulated. Real splits come from a hole of one
//! page in the shared file, for which the kernel splits the huge page in all processes that map it.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use hugeleaf_mover::{
    BytesByMethod, DemoteOptions, Method, Outcome, Percent, SplitRefusal, UnchangedReason,
    can_split_shared,
};
use hugeleaf_sys::{Errno, GateReply, Kernel, Pid, ProcessCall, SyscallGate};
use hugeleaf_units::{Bytes, PageSize, Range};

use super::faulty::{Call, Fault, faulty};
use super::victim::Victim;
use super::{Bench, bytes_of, fast, fast_demote};

const PAGES: u64 = 8;

/// Two processes with the same shared memory on huge pages.
struct Sharers {
    file: tempfile::NamedTempFile,
    victims: [Victim; 2],
    ranges: [Range; 2],
}

impl Sharers {
    fn new(bench: &Bench) -> Sharers {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let mut victims = [Victim::start(), Victim::start()];
        let ranges = victims.each_mut().map(|victim| {
            let range = victim.map("a", &path, bench.pages(PAGES), bench.huge);
            victim.tell("touch a");
            range
        });
        let sharers = Sharers {
            file,
            victims,
            ranges,
        };
        let there = bench.promote(&sharers.pids(), &fast());
        assert_eq!(there.done(), bench.pages(PAGES), "{there:#?}");
        sharers
    }

    fn pids(&self) -> [Pid; 2] {
        [self.victims[0].pid(), self.victims[1].pid()]
    }

    fn splitting(&self, huge: PageSize) -> Splitting {
        Splitting {
            file: self.file.path().to_owned(),
            ranges: self.ranges,
            huge,
            open: None,
            does_nothing: false,
            stranger: false,
            splits: Mutex::new(Vec::new()),
        }
    }

    fn kernel(&self, huge: PageSize) -> (Kernel, Arc<Splitting>) {
        behind(self.splitting(huge))
    }
}

fn behind(splitting: Splitting) -> (Kernel, Arc<Splitting>) {
    let gate = Arc::new(splitting);
    (Kernel::behind(gate.clone()), gate)
}

/// This host's kernel with a simulated split.
#[derive(Debug)]
struct Splitting {
    file: PathBuf,
    ranges: [Range; 2],
    huge: PageSize,
    /// Errors of opening the file: by path, and unattached.
    open: Option<[Errno; 2]>,
    does_nothing: bool,
    /// Returns handles of another process than requested, as if `/proc` counted differently.
    stranger: bool,
    /// Requested splits, without ranges that hold no memory.
    splits: Mutex<Vec<(Pid, Range)>>,
}

impl Splitting {
    fn split(&self, pid: Pid, range: Range) {
        let mut each = self.ranges.iter();
        let at = each.find(|r| r.intersect(range).is_some());
        let Some(start) = at.map(|r| r.start()) else {
            return;
        };
        self.splits.lock().unwrap().push((pid, range));
        let base = Kernel::new().base_page().bytes().get();
        for block in range.chunks(self.huge).filter(|_| !self.does_nothing) {
            let done = Command::new("fallocate")
                .arg("--punch-hole")
                .args(["--offset", &(block.start() - start).to_string()])
                .args(["--length", &base.to_string()])
                .arg(&self.file)
                .status()
                .unwrap();
            assert!(done.success());
        }
    }
}

impl SyscallGate for Splitting {
    fn process(&self, call: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
        Ok(Some(match call {
            ProcessCall::PidfdOpen(_) if self.stranger => {
                let own = Kernel::new().pidfd_open(hugeleaf_sys::own_pid()).unwrap();
                GateReply::Descriptor(hugeleaf_sys::duplicate_raw(own.number()).unwrap())
            }
            ProcessCall::Madvise(_, ranges, _) if self.stranger => {
                GateReply::Bytes(ranges.iter().map(|r| r.len()).sum())
            }
            ProcessCall::OpenSplit(path) => match self.open {
                Some(errnos) => return Err(errnos[usize::from(path.is_none())]),
                None => GateReply::Descriptor(File::open("/dev/null").unwrap().into()),
            },
            ProcessCall::Split(process, range) => {
                self.split(process.pid(), range);
                GateReply::Done
            }
            _ => return Ok(None),
        }))
    }
}

/// Checks that both processes keep their huge pages, for this reason.
#[track_caller]
fn assert_kept(bench: &Bench, outcome: &Outcome, reason: UnchangedReason) {
    assert_eq!(outcome.done(), Bytes::ZERO, "{outcome:#?}");
    for p in &outcome.processes {
        let kept = bytes_of(&p.failed, reason);
        assert_eq!(kept, bench.pages(PAGES), "{reason:?}: {p:#?}");
    }
}

fn demote(bench: &Bench, kernel: &Kernel, sharers: &Sharers) -> Outcome {
    bench
        .demote_with(kernel, &sharers.pids(), &fast_demote())
        .unwrap()
}

#[test]
fn what_two_processes_share_is_split_once_for_both() {
    let Some(bench) = Bench::new("what_two_processes_share_is_split_once_for_both") else {
        return;
    };
    let sharers = Sharers::new(&bench);
    for budget in [Percent::ALL, Percent::new(50).unwrap()] {
        let (kernel, gate) = sharers.kernel(bench.huge);
        let options = DemoteOptions {
            pace: budget.into(),
            ..DemoteOptions::default()
        };
        let outcome = bench
            .demote_with(&kernel, &sharers.pids(), &options)
            .unwrap();
        assert!(outcome.is_complete(), "{outcome:#?}");
        for p in &outcome.processes {
            let by = BytesByMethod {
                method: Method::SplitFile,
                bytes: bench.pages(PAGES),
            };
            assert_eq!(p.done_by, [by], "{p:#?}");
        }
        let splits = gate.splits.lock().unwrap();
        let first = sharers.victims[0].pid();
        assert!(splits.iter().all(|(pid, _)| *pid == first), "{splits:?}");
        let asked: Bytes = splits.iter().map(|(_, range)| range.len()).sum();
        assert_eq!(asked, bench.pages(PAGES));
        if budget != Percent::ALL {
            let longest = splits.iter().map(|(_, range)| range.len()).max();
            assert!(longest <= Some(bench.pages(4)), "in slices: {splits:?}");
        }
        // Mapped again in full in the first process, so it can be promoted.
        let back = bench.promote(&sharers.pids(), &fast());
        assert!(back.processes[0].done == bench.pages(PAGES), "{back:#?}");
        sharers_touch(&sharers);
        bench.promote(&sharers.pids(), &fast());
    }
}

/// Has both processes map all of it in their page tables.
fn sharers_touch(sharers: &Sharers) {
    let kernel = Kernel::new();
    for (pid, range) in sharers.pids().into_iter().zip(sharers.ranges) {
        let process = kernel.pidfd_open(pid).unwrap();
        kernel.fault_in(&process, range).unwrap();
    }
}

#[test]
fn only_the_named_ranges_of_shared_memory_are_split() {
    let Some(bench) = Bench::new("only_the_named_ranges_of_shared_memory_are_split") else {
        return;
    };
    let sharers = Sharers::new(&bench);
    let (kernel, gate) = sharers.kernel(bench.huge);
    let third = sharers.ranges[1].chunks(bench.huge).nth(3).unwrap();
    let options = DemoteOptions {
        only: Some(vec![bench.memory(sharers.pids()[1], third)]),
        ..fast_demote()
    };
    let outcome = bench
        .demote_with(&kernel, &sharers.pids(), &options)
        .unwrap();
    assert_eq!(outcome.processes[1].moved, [third], "{outcome:#?}");
    let splits = gate.splits.lock().unwrap();
    assert_eq!(*splits, [(sharers.pids()[1], third)]);
}

#[test]
fn a_file_that_does_not_open_is_the_reason() {
    let Some(bench) = Bench::new("a_file_that_does_not_open_is_the_reason") else {
        return;
    };
    let sharers = Sharers::new(&bench);
    for (by_path, unattached, why) in [
        (Errno::PERM, Errno::IO, SplitRefusal::Refused),
        (Errno::ACCESS, Errno::IO, SplitRefusal::Refused),
        (Errno::NOENT, Errno::NOENT, SplitRefusal::NoFile),
        (Errno::NOENT, Errno::NODEV, SplitRefusal::NoDebugfs),
        (Errno::NOENT, Errno::PERM, SplitRefusal::Refused),
        (Errno::MFILE, Errno::IO, SplitRefusal::Failed(Errno::MFILE)),
    ] {
        let (kernel, _) = behind(Splitting {
            open: Some([by_path, unattached]),
            ..sharers.splitting(bench.huge)
        });
        let outcome = demote(&bench, &kernel, &sharers);
        assert_kept(&bench, &outcome, UnchangedReason::SharedByOthers(Some(why)));
        let probed = can_split_shared(&kernel, &bench.root, &sharers.pids());
        assert_eq!(probed, Err(why));
    }
}

#[test]
fn each_errno_of_the_write_has_its_reason() {
    let Some(bench) = Bench::new("each_errno_of_the_write_has_its_reason") else {
        return;
    };
    let sharers = Sharers::new(&bench);
    let failing = |errno, after, times| {
        let fault = Fault {
            call: Call::Split,
            after,
            times,
            errno,
        };
        faulty(fault, Some(sharers.kernel(bench.huge).1))
    };
    let shared = |why| UnchangedReason::SharedByOthers(Some(why));
    for (errno, reason) in [
        (Errno::INTR, UnchangedReason::Busy),
        (Errno::AGAIN, UnchangedReason::Busy),
        (Errno::BUSY, UnchangedReason::Busy),
        (Errno::SRCH, UnchangedReason::Refused),
        (Errno::INVAL, UnchangedReason::Refused),
        (Errno::PERM, shared(SplitRefusal::Refused)),
        (Errno::ACCESS, shared(SplitRefusal::Refused)),
        (Errno::IO, shared(SplitRefusal::Failed(Errno::IO))),
    ] {
        // The first write only checks the permission.
        let kernel = failing(errno, 1, u64::MAX);
        let pids = [sharers.pids()[0]];
        let outcome = bench.demote_with(&kernel, &pids, &fast_demote()).unwrap();
        assert_kept(&bench, &outcome, reason);
    }
    for (errno, why) in [
        (Errno::PERM, SplitRefusal::Refused),
        (Errno::IO, SplitRefusal::Failed(Errno::IO)),
    ] {
        let kernel = failing(errno, 0, u64::MAX);
        assert_kept(&bench, &demote(&bench, &kernel, &sharers), shared(why));
        let probed = can_split_shared(&kernel, &bench.root, &sharers.pids());
        assert_eq!(probed, Err(why));
    }
    let once = failing(Errno::INTR, 1, 1);
    let outcome = demote(&bench, &once, &sharers);
    assert!(outcome.is_complete(), "{outcome:#?}");
}

#[test]
fn a_write_that_does_nothing_is_not_believed() {
    let Some(bench) = Bench::new("a_write_that_does_nothing_is_not_believed") else {
        return;
    };
    let sharers = Sharers::new(&bench);
    let (kernel, _) = behind(Splitting {
        does_nothing: true,
        ..sharers.splitting(bench.huge)
    });
    let outcome = demote(&bench, &kernel, &sharers);
    assert_kept(&bench, &outcome, UnchangedReason::NotSeen);
}

#[test]
fn memory_that_is_not_mapped_in_is_split_all_the_same() {
    let Some(bench) = Bench::new("memory_that_is_not_mapped_in_is_split_all_the_same") else {
        return;
    };
    for errno in [Errno::PERM, Errno::SRCH, Errno::FAULT, Errno::NOSYS] {
        let sharers = Sharers::new(&bench);
        let fault = Fault {
            call: Call::MapIn,
            after: 0,
            times: u64::MAX,
            errno,
        };
        let kernel = faulty(fault, Some(sharers.kernel(bench.huge).1));
        let outcome = demote(&bench, &kernel, &sharers);
        assert!(outcome.is_complete(), "{errno}: {outcome:#?}");
    }
}

#[test]
fn a_number_that_may_mean_another_process_is_not_written() {
    let Some(bench) = Bench::new("a_number_that_may_mean_another_process_is_not_written") else {
        return;
    };
    let sharers = Sharers::new(&bench);
    let (kernel, gate) = behind(Splitting {
        stranger: true,
        ..sharers.splitting(bench.huge)
    });
    let outcome = demote(&bench, &kernel, &sharers);
    let reason = UnchangedReason::SharedByOthers(Some(SplitRefusal::OtherNamespace));
    assert_kept(&bench, &outcome, reason);
    assert!(gate.splits.lock().unwrap().is_empty());
}

#[test]
fn locked_shared_memory_keeps_its_promise() {
    let Some(bench) = Bench::new("locked_shared_memory_keeps_its_promise") else {
        return;
    };
    let mut sharers = Sharers::new(&bench);
    for victim in &mut sharers.victims {
        victim.tell("lock a");
    }
    let (kernel, gate) = sharers.kernel(bench.huge);
    assert_kept(
        &bench,
        &demote(&bench, &kernel, &sharers),
        UnchangedReason::Locked,
    );
    assert!(gate.splits.lock().unwrap().is_empty());
}

/// Uses this host's own kernel, if it offers the split.
#[test]
fn this_host_splits_or_says_why_not() {
    let Some(bench) = Bench::new("this_host_splits_or_says_why_not") else {
        return;
    };
    let sharers = Sharers::new(&bench);
    let can = can_split_shared(&bench.kernel, &bench.root, &sharers.pids());
    let outcome = demote(&bench, &bench.kernel, &sharers);
    match can {
        Ok(()) => {
            assert!(outcome.is_complete(), "{outcome:#?}");
            let back = bench.promote(&sharers.pids()[..1], &fast());
            assert!(back.is_complete(), "{back:#?}");
        }
        Err(why) => {
            println!("not run: the part of this_host_splits_or_says_why_not that splits: {why}");
            assert_kept(&bench, &outcome, UnchangedReason::SharedByOthers(Some(why)));
        }
    }
}
