//! Processors of the calling thread (sched_setaffinity(2)).

use rustix::thread::CpuSet;

use crate::SysError;

/// Returns the processors on which this thread may run, ascending.
///
/// # Errors
/// EINVAL on a host with more processors than the call's mask has bits (1024).
pub fn allowed_cpus() -> Result<Vec<u32>, SysError> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| SysError::new("sched_getaffinity", String::new(), errno))?;
    let numbers = 0..CpuSet::MAX_CPU;
    let allowed = numbers.filter(|cpu| set.is_set(*cpu));
    Ok(allowed.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

/// Restricts this thread to some processors. The kernel ignores those that a cpuset forbids.
///
/// # Errors
/// EINVAL if none of them is allowed.
pub fn run_on_cpus(cpus: &[u32]) -> Result<(), SysError> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        let cpu = usize::try_from(*cpu).unwrap_or(usize::MAX);
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
    }
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|errno| SysError::new("sched_setaffinity", format!("to {cpus:?}"), errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_where_it_is_told() {
        let all = allowed_cpus().unwrap();
        let last = *all.last().unwrap();
        let thread = std::thread::spawn(move || {
            run_on_cpus(&[last]).unwrap();
            allowed_cpus().unwrap()
        });
        assert_eq!(thread.join().unwrap(), [last]);
        assert_eq!(allowed_cpus().unwrap(), all, "only that thread");
        assert!(run_on_cpus(&[]).is_err());
    }
}
