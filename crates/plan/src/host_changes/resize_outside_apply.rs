//! Resizes a pool outside of an apply, as the guard does if a plan allows it.

use std::path::Path;

use hugeleaf_sys::{Errno, SysError};

use super::lock::lock;
use super::path_state::{PathState, below, read_pool};
use super::{ChangeContext, set_pool_size};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolResizeResult {
    /// The pool's current pages; fewer than requested if the kernel found no more memory.
    Has(u64),
    /// The pool had another size than expected, and was left alone.
    ChangedSince(u64),
}

/// Resizes the pool with this `nr_hugepages` file from `from` to `to` pages, and reads back the result. Excludes a
/// concurrent apply or undo. Pages that a program takes meanwhile stay in the pool.
pub fn resize_pool(
    context: &mut ChangeContext<'_>,
    file: &Path,
    from: u64,
    to: u64,
) -> Result<PoolResizeResult, String> {
    let _lock = lock(context.root).map_err(|error| error.to_string())?;
    resize(context, file, from, to).map_err(|error| error.to_string())
}

fn resize(
    context: &mut ChangeContext<'_>,
    file: &Path,
    from: u64,
    to: u64,
) -> Result<PoolResizeResult, SysError> {
    let path = below(context.root, file);
    let Some(PathState::Pool { pages, surplus }) = read_pool(&path)? else {
        let shown = path.display().to_string();
        return Err(SysError::new("read", shown, Errno::NOENT));
    };
    if pages != from {
        return Ok(PoolResizeResult::ChangedSince(pages));
    }
    let mut got = set_pool_size::set(context, &path, to, false)?;
    // Pages taken meanwhile become surplus, and would leave the pool when their process frees them.
    let taken = got.surplus.saturating_sub(surplus);
    if to < from && taken > 0 {
        got = set_pool_size::set(context, &path, (got.pages + taken).min(from), false)?;
    }
    Ok(PoolResizeResult::Has(got.pages))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, Mutex};

    use hugeleaf_host::Root;

    use super::*;
    use hugeleaf_sys::{GateReply, HostChange, Kernel, ProcessCall, SyscallGate};

    const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    /// A kernel whose programs hold `held` pages, and which finds at most `most`.
    #[derive(Debug)]
    struct Host {
        held: u64,
        most: u64,
        written: Mutex<Vec<String>>,
    }

    impl SyscallGate for Host {
        fn host(&self, change: HostChange<'_>) -> Option<Result<(), SysError>> {
            let HostChange::Write(path, value) = change else {
                return None;
            };
            if !path.ends_with("nr_hugepages") {
                return Some(Ok(()));
            }
            let wanted: u64 = value.parse().unwrap();
            let lasting = wanted.min(self.most);
            let all = lasting.max(self.held);
            std::fs::write(path, all.to_string()).unwrap();
            let surplus = path.with_file_name("surplus_hugepages");
            std::fs::write(surplus, (all - lasting).to_string()).unwrap();
            self.written.lock().unwrap().push(value.to_owned());
            Some(Ok(()))
        }

        fn process(&self, _: ProcessCall<'_>) -> Result<Option<GateReply>, Errno> {
            Ok(Some(GateReply::Done))
        }
    }

    fn resized(
        has: u64,
        held: u64,
        most: u64,
        from: u64,
        to: u64,
    ) -> (PoolResizeResult, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let file = below(&root, Path::new(POOL));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, has.to_string()).unwrap();
        let host = Arc::new(Host {
            held,
            most,
            written: Mutex::default(),
        });
        let mut context = ChangeContext {
            root: &root,
            kernel: &Kernel::behind(host.clone()),
            stop: &AtomicBool::new(false),
            progress: &mut |_| {},
        };
        let got = resize_pool(&mut context, Path::new(POOL), from, to).unwrap();
        let written = host.written.lock().unwrap().clone();
        (got, written)
    }

    #[test]
    fn what_it_has_is_read_back() {
        assert_eq!(
            resized(8, 0, 99, 8, 6),
            (PoolResizeResult::Has(6), vec!["6".to_owned()])
        );
        assert_eq!(resized(6, 0, 7, 6, 8).0, PoolResizeResult::Has(7));
    }

    #[test]
    fn a_pool_of_another_size_is_left_alone() {
        assert_eq!(
            resized(9, 0, 99, 8, 6),
            (PoolResizeResult::ChangedSince(9), vec![])
        );
    }

    #[test]
    fn pages_taken_meanwhile_stay_in_the_pool() {
        let (got, written) = resized(8, 7, 99, 8, 6);
        assert_eq!(
            (got, written),
            (PoolResizeResult::Has(7), vec!["6".into(), "7".into()])
        );
    }

    #[test]
    fn a_pool_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let mut context = ChangeContext {
            root: &root,
            kernel: &Kernel::new(),
            stop: &AtomicBool::new(false),
            progress: &mut |_| {},
        };
        let error = resize_pool(&mut context, Path::new(POOL), 1, 0).unwrap_err();
        assert!(error.to_string().contains("nr_hugepages"), "{error}");
    }
}
