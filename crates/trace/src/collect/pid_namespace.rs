//! Tracing from another PID namespace than the host's. There, records name every outside process by ID 0, like the idle
//! thread (perf_event_pid, kernel/events/core.c), and a busy host would appear idle. Samples not known to be idle get a
//! row of their own.

use super::processes::OUTSIDE;
use crate::model::{CpuMode, Trace, TracedProcess};

/// True for kernel functions of the idle thread.
fn is_idle(function: &str) -> bool {
    const IDLE: [&str; 10] = [
        "do_idle",
        "cpu_startup_entry",
        "cpuidle_",
        "default_idle",
        "arch_cpu_idle",
        "native_safe_halt",
        "pv_native_safe_halt",
        "acpi_safe_halt",
        "intel_idle",
        "cpu_do_idle",
    ];
    IDLE.iter().any(|name| function.starts_with(name))
}

/// Assigns a separate row to outside processes: all samples of ID 0 not known to be of the idle thread.
pub fn separate_outside(trace: &mut Trace) {
    // There are several, because outside processes also start and end under this ID.
    let zero: Vec<bool> = trace
        .processes
        .iter()
        .map(|process| process.pid == 0)
        .collect();
    let is_zero = |process: u32| zero.get(process as usize) == Some(&true);
    if !zero.contains(&true) {
        return;
    }
    let outside = u32::try_from(trace.processes.len()).unwrap_or(u32::MAX);
    let mut has_names = false;
    for sample in &mut trace.samples {
        if !is_zero(sample.process) {
            continue;
        }
        let stack = trace.stacks.get(sample.stack as usize);
        let frames = stack.into_iter().flat_map(|stack| &stack.frames);
        let symbols = frames.filter_map(|frame| trace.symbols.get(*frame as usize));
        let mut names = symbols
            .filter(|symbol| symbol.kernel && !symbol.unnamed)
            .peekable();
        has_names |= names.peek().is_some();
        if sample.mode != CpuMode::Kernel || !names.any(|symbol| is_idle(&symbol.name)) {
            sample.process = outside;
        }
    }
    // The idle thread touches no user memory.
    let faults = trace
        .faults
        .iter_mut()
        .filter(|fault| is_zero(fault.process));
    faults.for_each(|fault| fault.process = outside);
    let name = match has_names {
        true => "(outside)",
        // Idle samples are recognizable by kernel function names only.
        false => "(outside or idle)",
    };
    trace.processes.push(TracedProcess {
        pid: OUTSIDE,
        name: name.to_owned(),
        in_target: trace.target.is_none(),
        ..TracedProcess::default()
    });
    trace.notes.push(format!(
        "hugeleaf ran in a PID namespace: processes outside it cannot be told apart and share the row {name}. \
         To list each, run on the host or in its PID namespace (docker run --pid=host)."
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::profile::{BusyIdleSamples, by_process, counted};
    use crate::tables::testing::{Maker, kernel, user};

    #[test]
    fn what_is_not_known_to_be_idle_is_not() {
        let mut maker = Maker::new();
        let own = maker.process(10, "hugeleaf", false);
        let zero = maker.process(0, "idle", false);
        let again = maker.process(0, "bash", false);
        maker.sample(own, 10, CpuMode::User, &[user("main")], 5);
        let halt = [kernel("pv_native_safe_halt"), kernel("do_idle")];
        maker.sample(zero, 0, CpuMode::Kernel, &halt, 20);
        maker.sample(zero, 0, CpuMode::User, &[user("[unknown]")], 20);
        maker.sample(again, 0, CpuMode::User, &[user("[unknown]")], 40);
        maker.sample(zero, 0, CpuMode::Kernel, &[kernel("clear_page_erms")], 10);
        maker.sample(zero, 0, CpuMode::Kernel, &[], 5);
        let mut trace = maker.build();
        // Before, all others count as idle, and this process seems alone on the host.
        assert_eq!(counted(&trace), BusyIdleSamples { busy: 5, idle: 95 });
        separate_outside(&mut trace);
        assert_eq!(counted(&trace), BusyIdleSamples { busy: 80, idle: 20 });
        let rows = by_process(&trace);
        assert_eq!(
            (rows[0].name.as_str(), rows[0].modes.total()),
            ("(outside)", 75)
        );
        assert!(
            trace.notes[0].contains("PID namespace"),
            "{:?}",
            trace.notes
        );
    }

    #[test]
    fn without_names_nothing_is_idle_and_without_the_id_nothing_changes() {
        let mut maker = Maker::new();
        let zero = maker.process(0, "idle", false);
        maker.sample(zero, 0, CpuMode::Kernel, &[], 7);
        let mut trace = maker.build();
        separate_outside(&mut trace);
        assert_eq!(counted(&trace), BusyIdleSamples { busy: 7, idle: 0 });
        assert_eq!(by_process(&trace)[0].name, "(outside or idle)");

        let mut maker = Maker::new();
        let own = maker.process(10, "hugeleaf", false);
        maker.sample(own, 10, CpuMode::User, &[user("main")], 5);
        let mut trace = maker.build();
        let before = trace.clone();
        separate_outside(&mut trace);
        assert_eq!(trace, before);
    }
}
