use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hugeleaf_sys::{Kernel, Pid};
use hugeleaf_units::{Bytes, PageSize};

use crate::child::{self, ChildCommand, ChildError};
use crate::control_client::ControlClient;
use crate::protocol::{
    ReadyMessage, StartupProgress, WorkloadMessage, WorkloadRequest, WorkloadSettings,
    WorkloadStats,
};
use crate::self_advice::SelfAdvice;

/// Minimum size of the page cache; the database must exceed the CPU caches.
const LEAST: Bytes = Bytes::from_mib(16);

/// Maximum default size of the page cache.
const MOST_BY_DEFAULT: Bytes = Bytes::from_mib(3 * 1024);

/// Returns the default cache size: a quarter of free memory, at most 3G.
pub fn default_cache(available: Bytes) -> Bytes {
    Bytes(available.get() / 4).min(MOST_BY_DEFAULT)
}

pub(crate) fn check_size(cache: Bytes, align: PageSize) -> Result<(), ChildError> {
    let least = LEAST.max(align.bytes());
    if Bytes(align.round_down(cache.get())) < least {
        return Err(ChildError::TooSmall { cache, least });
    }
    Ok(())
}

/// A running workload. It ends when dropped.
#[derive(Debug)]
pub struct OltpProcess {
    child: Child,
    client: Arc<ControlClient>,
    pid: Pid,
    ready: ReadyMessage,
}

impl OltpProcess {
    /// Starts the workload and waits until it is filled, warm and running. `progress` is called several times a second and may cancel the
    /// start.
    ///
    /// The process gets its own process group, so that Ctrl-C at the terminal reaches only the parent. The parent can then restore state
    /// before it ends the workload.
    ///
    /// # Errors
    /// [`ChildError::TooSmall`], [`ChildError::Start`], [`ChildError::Stopped`] if `progress` cancels, [`ChildError::Ended`] with the
    /// workload's own message if it could not be built.
    #[expect(clippy::disallowed_methods, reason = "our own program, ended with us")]
    pub fn spawn(
        settings: WorkloadSettings,
        program: &ChildCommand,
        progress: &mut dyn FnMut(StartupProgress) -> ControlFlow<()>,
    ) -> Result<OltpProcess, ChildError> {
        check_size(settings.cache, settings.align)?;
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|source| ChildError::Start {
                what: program.path.display().to_string(),
                before: 0,
                source,
            })?;
        let pid = Pid(child.id());
        let client = match ControlClient::new(pid, ours) {
            Ok(client) => Arc::new(client),
            Err(error) => {
                end(child);
                return Err(error);
            }
        };
        match build(&client, settings, progress) {
            Ok(ready) => Ok(OltpProcess {
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

    pub const fn pid(&self) -> Pid {
        self.pid
    }

    pub const fn ready(&self) -> ReadyMessage {
        self.ready
    }

    /// Returns the counters so far. The percentiles cover the time since the last call.
    pub fn stats(&self) -> Result<WorkloadStats, ChildError> {
        self.client.stats()
    }

    /// Returns the client, to be shared with a metric.
    pub fn client(&self) -> Arc<ControlClient> {
        Arc::clone(&self.client)
    }

    /// Returns a kernel through which the workload advises its own memory.
    pub fn kernel(&self) -> Kernel {
        Kernel::behind(Arc::new(SelfAdvice(self.client())))
    }

    pub fn stop(self) {}
}

impl Drop for OltpProcess {
    fn drop(&mut self) {
        // If the request fails, the process has ended or hangs; the code below handles both.
        let _ = self.client.tell(&WorkloadRequest::Quit);
        if child::wait(&mut self.child, Duration::from_secs(5)).is_some() {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn build(
    client: &ControlClient,
    settings: WorkloadSettings,
    progress: &mut dyn FnMut(StartupProgress) -> ControlFlow<()>,
) -> Result<ReadyMessage, ChildError> {
    client.tell(&WorkloadRequest::Start(settings))?;
    loop {
        match client.next()? {
            WorkloadMessage::Progress(p) => {
                if progress(p).is_break() {
                    return Err(ChildError::Stopped);
                }
            }
            WorkloadMessage::Ready(ready) => return Ok(ready),
            other => return Err(client.unexpected(other)),
        }
    }
}

/// Kills and reaps a child that failed to start. Returns its exit status if it had already ended.
fn end(mut child: Child) -> Option<String> {
    // A failed child is about to exit, so wait briefly for its status.
    if let Some(status) = child::wait(&mut child, Duration::from_millis(100)) {
        return status.map(|status| status.to_string());
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Adds the exit status to an end without a message.
fn explain(error: ChildError, status: Option<&str>) -> ChildError {
    match error {
        ChildError::Ended { pid, reason: None } => ChildError::Ended {
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

    /// Returns the error of a program that does not become a workload.
    fn refused(path: &str) -> String {
        let program = ChildCommand {
            path: path.into(),
            arguments: vec![],
        };
        let settings = WorkloadSettings {
            cache: Bytes::from_mib(64),
            align: "4K".parse().unwrap(),
            seed: 1,
        };
        let spawned = OltpProcess::spawn(settings, &program, &mut |_| ControlFlow::Continue(()));
        spawned.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = refused("/nonexistent/hugeleaf");
        assert!(error.contains("/nonexistent/hugeleaf"), "{error}");
    }

    #[test]
    fn a_program_that_is_no_workload_is_reported_with_its_status() {
        let error = refused("/bin/false");
        assert!(error.contains("exit status: 1"), "{error}");
    }
}
