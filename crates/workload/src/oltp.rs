use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hugeleaf_sys::Pid;
use hugeleaf_units::{Bytes, PageSize};

use crate::OltpError;
use crate::client::Client;
use crate::kernel::RemoteKernel;
use crate::protocol::{Event, Progress, Ready, Request, Stats};

/// The smallest page cache: a database that does not fit the processor's own caches.
const LEAST: Bytes = Bytes::from_mib(16);

/// The most that is taken without being asked for.
const MOST_BY_DEFAULT: Bytes = Bytes::from_mib(3 * 1024);

/// How the workload is to be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The size of the page cache; rounded down to whole pages of `align`.
    pub cache: Bytes,
    /// Where the page cache has to start and end: the size that it can be promoted to. The host's
    /// PMD-sized page, or its base page where it has none.
    pub align: PageSize,
    /// What rows hold and which keys are drawn.
    pub seed: u64,
}

/// The program that becomes the workload: it has to call [`crate::serve`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What to execute.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A quarter of what is free, at most 3 GB.
pub fn default_cache(available: Bytes) -> Bytes {
    Bytes(available.get() / 4).min(MOST_BY_DEFAULT)
}

/// # Errors
/// [`OltpError::TooSmall`].
pub(crate) fn check_size(cache: Bytes, align: PageSize) -> Result<(), OltpError> {
    let least = LEAST.max(align.bytes());
    if Bytes(align.round_down(cache.get())) < least {
        return Err(OltpError::TooSmall { cache, least });
    }
    Ok(())
}

/// A workload at work. It ends when this is dropped.
#[derive(Debug)]
pub struct Oltp {
    child: Child,
    client: Arc<Client>,
    pid: Pid,
    ready: Ready,
}

impl Oltp {
    /// Starts the workload and waits until it is filled, warm and at work. `progress` is told how
    /// far it is, several times a second, and may break off.
    ///
    /// The process gets its own process group, so that a Ctrl-C at the terminal reaches only the
    /// parent, which can then put things in order before it ends the workload.
    ///
    /// # Errors
    /// [`OltpError::TooSmall`], [`OltpError::Start`], [`OltpError::Stopped`] where `progress` broke
    /// off, [`OltpError::Ended`] with the workload's own words where it could not be built.
    pub fn spawn(
        settings: Settings,
        program: &Program,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Oltp, OltpError> {
        check_size(settings.cache, settings.align)?;
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|source| OltpError::Start {
                program: program.path.display().to_string(),
                source,
            })?;
        let pid = Pid(child.id());
        let client = match Client::new(pid, ours) {
            Ok(client) => Arc::new(client),
            Err(error) => {
                end(child);
                return Err(error);
            }
        };
        match build(&client, settings, progress) {
            Ok(ready) => Ok(Oltp {
                child,
                client,
                pid,
                ready,
            }),
            Err(error) => {
                drop(client);
                let status = end(child);
                Err(explain(error, status.as_deref()))
            }
        }
    }

    /// Its process id.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// What it holds.
    pub const fn ready(&self) -> Ready {
        self.ready
    }

    /// What it has done so far. The percentiles are of the time since the last call.
    ///
    /// # Errors
    /// The process has ended, is stopped, or makes no sense.
    pub fn stats(&self) -> Result<Stats, OltpError> {
        self.client.stats()
    }

    /// The way to ask it, to be shared with a metric.
    pub fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// A kernel that has this workload move its own memory.
    pub fn kernel(&self) -> RemoteKernel {
        RemoteKernel::new(self.client())
    }

    /// Ends it and waits until it is gone, as dropping it does.
    pub fn stop(self) {}
}

impl Drop for Oltp {
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        const LOOK: Duration = Duration::from_millis(5);
        // Where it cannot be determined it is gone or stuck, and what follows deals with both.
        let _ = self.client.tell(&Request::Quit);
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Talks the workload through its start.
fn build(
    client: &Client,
    settings: Settings,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Ready, OltpError> {
    client.tell(&Request::Start {
        cache: settings.cache,
        align: settings.align,
        seed: settings.seed,
    })?;
    loop {
        match client.next()? {
            Event::Progress(p) => {
                if progress(p).is_break() {
                    return Err(OltpError::Stopped);
                }
            }
            Event::Ready(ready) => return Ok(ready),
            other => return Err(client.unexpected(other)),
        }
    }
}

/// Kills and buries a child that never became a workload. Says how it ended by itself, where it did.
fn end(mut child: Child) -> Option<String> {
    // One that failed is about to exit: let it say how.
    for _ in 0..20 {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.to_string());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// An end without words is explained by the status.
fn explain(error: OltpError, status: Option<&str>) -> OltpError {
    match error {
        OltpError::Ended { pid, reason: None } => OltpError::Ended {
            pid,
            reason: status.map(str::to_owned),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_free_memory_but_at_most_three_gigabytes() {
        assert_eq!(default_cache(Bytes::from_mib(400)), Bytes::from_mib(100));
        assert_eq!(
            default_cache(Bytes::from_mib(1024 * 1024)),
            Bytes::from_mib(3072)
        );
    }

    #[test]
    fn a_page_cache_smaller_than_one_large_page_is_refused() {
        let large: PageSize = "512M".parse().unwrap();
        assert!(check_size(Bytes::from_mib(511), large).is_err());
        assert!(check_size(Bytes::from_mib(512), large).is_ok());
        let base: PageSize = "4K".parse().unwrap();
        assert!(check_size(Bytes::from_mib(1), base).is_err());
        assert!(check_size(Bytes::from_mib(64), base).is_ok());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let program = Program {
            path: "/nonexistent/hugeleaf".into(),
            arguments: vec![],
        };
        let settings = Settings {
            cache: Bytes::from_mib(64),
            align: "4K".parse().unwrap(),
            seed: 1,
        };
        let error = Oltp::spawn(settings, &program, &mut |_| ControlFlow::Continue(()))
            .map(drop)
            .unwrap_err();
        assert!(
            error.to_string().contains("/nonexistent/hugeleaf"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_is_no_workload_is_reported_with_its_status() {
        let program = Program {
            path: "/bin/false".into(),
            arguments: vec![],
        };
        let settings = Settings {
            cache: Bytes::from_mib(64),
            align: "4K".parse().unwrap(),
            seed: 1,
        };
        let error = Oltp::spawn(settings, &program, &mut |_| ControlFlow::Continue(()))
            .map(drop)
            .unwrap_err();
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    }
}
