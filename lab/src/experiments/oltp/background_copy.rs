//! A process that copies a file repeatedly below the database's folder. It puts pressure on the page
//! cache, as a backup does. Its files are unlinked, so they disappear with the process.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use hugeleaf_host::Root;
use hugeleaf_testkit::ChildGuard;
use hugeleaf_units::Bytes;

use hugeleaf_proof::bench::BenchError;

/// Argument that starts a copier process; internal.
pub const COPIER: &str = "bench-copier";

const CHUNK: usize = 256 * 1024;

/// A running copier; ended when dropped.
pub(super) struct BackgroundCopy(ChildGuard);

impl BackgroundCopy {
    /// Starts a copier if a length is given, and waits for its first file.
    pub(super) fn start(
        length: Option<Bytes>,
        folder: &Path,
    ) -> Result<Option<BackgroundCopy>, BenchError> {
        let Some(length) = length else {
            return Ok(None);
        };
        check_room(length, folder)?;
        let lost = |what: String| {
            BenchError::missing(
                format!(
                    "bench oltp: --copy-beside {length} in {}: {what}",
                    folder.display()
                ),
                "free space there, or copy less: --copy-beside SIZE",
            )
        };
        let program = std::env::current_exe().map_err(|e| lost(e.to_string()))?;
        let child = Command::new(program)
            .arg(COPIER)
            .arg(folder)
            .arg(length.get().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| lost(e.to_string()))?;
        let mut copier = BackgroundCopy(ChildGuard(child));
        let mut said = [0; 1];
        let ready = copier.0.0.stdout.as_mut();
        match ready.map(|out| out.read_exact(&mut said)) {
            Some(Ok(())) => Ok(Some(copier)),
            _ => Err(lost("the copying process ended at once".to_owned())),
        }
    }

    /// Returns the bytes that it has written since its start.
    pub(super) fn copied(&self, root: &Root) -> Option<u64> {
        let text = root.read(format!("proc/{}/io", self.0.0.id()));
        let line = text
            .known()?
            .lines()
            .find_map(|l| l.strip_prefix("wchar: "));
        line?.trim().parse().ok()
    }
}

/// Refuses a folder without room for both files twice over: the measured database grows, too.
fn check_room(length: Bytes, folder: &Path) -> Result<(), BenchError> {
    let Some(free) = crate::kits::tpcc::free_bytes(folder) else {
        return Ok(());
    };
    if length.get().saturating_mul(4) <= free.get() {
        return Ok(());
    }
    Err(BenchError::missing(
        format!(
            "bench oltp: --copy-beside {length}: {} has {free} free, and four times the file's size is \
             needed",
            folder.display()
        ),
        format!("what fits: --copy-beside {}", Bytes(free.get() / 4)),
    ))
}

/// Copies a file of the given length in a folder until this process is ended, at the latest with its
/// parent. A process started with [`COPIER`], a folder and a length calls this function.
///
/// # Errors
/// Those of the files.
pub fn copy_until_ended(folder: &Path, length: u64) -> std::io::Result<std::convert::Infallible> {
    let _ = hugeleaf_workload::child::end_with_parent();
    let mut buffer = vec![0; CHUNK];
    let mut from = tempfile::tempfile_in(folder)?;
    std::io::copy(&mut std::io::repeat(7).take(length), &mut from)?;
    let mut ready = std::io::stdout();
    ready.write_all(b".")?;
    ready.flush()?;
    let mut to = tempfile::tempfile_in(folder)?;
    loop {
        from.seek(SeekFrom::Start(0))?;
        to.seek(SeekFrom::Start(0))?;
        to.set_len(0)?;
        loop {
            let part = from.read(&mut buffer)?;
            if part == 0 {
                break;
            }
            to.write_all(&buffer[..part])?;
        }
    }
}
