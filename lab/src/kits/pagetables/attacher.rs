//! The child process: waits for its turn, attaches a region, touches it, and stays.

use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hugeleaf::{Handle, Ladder, Region, RegionOptions};
use hugeleaf_sys::{Kernel, Pid, own_pid};
use hugeleaf_units::{Bytes, PageKind, PageSize, Rung};
use rustix::event::{PollFd, PollFlags};
use rustix::process::getppid;
use serde::{Deserialize, Serialize};

use super::touch::touch;
use hugeleaf_workload::child::{self, end_with_parent};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachTiming {
    pub pid: Pid,
    /// Duration of attaching: mapping the region, and filling in page tables of this process.
    pub attach: Duration,
    /// Duration of the subsequent first read of one byte in each base page.
    pub first_touch: Duration,
    /// Bytes of the region by the pages that map it in this process.
    pub pages: Vec<(PageSize, PageKind, Bytes)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AttachReply {
    Ready,
    Done(AttachTiming),
    /// The process could not attach the region.
    Failed {
        pid: Pid,
        /// Reason of the failure.
        reason: String,
    },
}

/// Runs a process of [`super::Attachers`] until its parent closes the pipe on standard input or
/// dies. `parent` and `handle` are the added arguments.
///
/// # Errors
/// Returns the reason in words; the parent got it too, if it still reads.
pub fn serve_attacher(parent: &str, handle: &str) -> Result<(), String> {
    let served = end_with_parent()
        .map_err(|e| format!("prctl(PR_SET_PDEATHSIG): {e}"))
        .and_then(|()| serve(parent, handle));
    if let Err(reason) = &served {
        let (pid, reason) = (own_pid(), reason.clone());
        say(&AttachReply::Failed { pid, reason })?;
    }
    served
}

fn serve(parent: &str, handle: &str) -> Result<(), String> {
    // If the parent had died before the line above, nothing would ever end this process.
    let is_parent = getppid().is_some_and(|id| id.to_string() == parent);
    if !is_parent {
        return Err(format!("its parent process {parent} has ended"));
    }
    let page = Kernel::new().base_page();
    rehearse(page).map_err(|e| format!("attaching one page: {e}"))?;
    let stdin = std::io::stdin();
    let input = stdin.as_fd().try_clone_to_owned();
    let mut input = PipeReader::from(input.map_err(|e| format!("standard input: {e}"))?);
    say(&AttachReply::Ready)?;
    let mut turn = [0];
    if input
        .read(&mut turn)
        .map_err(|e| format!("standard input: {e}"))?
        == 0
    {
        return Ok(());
    }
    let began = Instant::now();
    let region = Handle::from_inherited(handle)
        .and_then(|handle| Region::attach(&handle))
        .map_err(|e| e.to_string())?;
    let attach = began.elapsed();
    let began = Instant::now();
    touch(&region, page);
    let first_touch = began.elapsed();
    say(&AttachReply::Done(AttachTiming {
        pid: own_pid(),
        attach,
        first_touch,
        pages: pages(&region)?,
    }))?;
    until_closed(&input);
    drop(region);
    Ok(())
}

/// Attaches a region of one page and releases it. The program's own memory and page tables for any
/// attachment then exist before the first count, and its code is warm.
fn rehearse(page: PageSize) -> Result<(), hugeleaf::MemoryError> {
    let rung = Rung {
        size: page,
        kind: None,
    };
    let ladder = Ladder::new(vec![rung], false);
    let region = Region::new(&RegionOptions::new(page.bytes(), ladder).shared())?;
    let attached = Region::attach(&region.handle()?)?;
    touch(&attached, page);
    Ok(())
}

fn pages(region: &Region) -> Result<Vec<(PageSize, PageKind, Bytes)>, String> {
    let mut table: Vec<(PageSize, PageKind, Bytes)> = Vec::new();
    for extent in region.extents().map_err(|e| e.to_string())? {
        let (page, kind, bytes) = (extent.page, extent.kind, extent.range.len());
        match table.iter_mut().find(|row| (row.0, row.1) == (page, kind)) {
            Some(row) => row.2 += bytes,
            None => table.push((page, kind, bytes)),
        }
    }
    Ok(table)
}

fn say(answer: &AttachReply) -> Result<(), String> {
    child::say(&mut std::io::stdout().lock(), answer).map_err(|e| format!("standard output: {e}"))
}

/// Waits until the pipe has no writer. Turns in it are for other processes and remain.
fn until_closed(input: &PipeReader) {
    loop {
        let mut polled = [PollFd::new(input, PollFlags::empty())];
        let ended = rustix::event::poll(&mut polled, None).is_ok();
        if ended
            && polled[0]
                .revents()
                .intersects(PollFlags::HUP | PollFlags::ERR)
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_read_back() {
        let done = AttachReply::Done(AttachTiming {
            pid: Pid(7),
            attach: Duration::from_nanos(1500),
            first_touch: Duration::from_millis(2),
            pages: vec![
                ("2M".parse().unwrap(), PageKind::Thp, Bytes::from_mib(4)),
                ("4K".parse().unwrap(), PageKind::Base, Bytes::from_kib(8)),
            ],
        });
        let failed = AttachReply::Failed {
            pid: Pid(7),
            reason: "no memory,\nhere".to_owned(),
        };
        for answer in [AttachReply::Ready, done, failed] {
            let line = child::line(&answer);
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(child::parse::<AttachReply>(&line).unwrap(), answer);
        }
        let no_size = r#"{"done":{"pid":7,"attach":{"secs":0,"nanos":1},"first_touch":{"secs":0,"nanos":1},"pages":[[3,"base",4]]}}"#;
        assert!(child::parse::<AttachReply>(&no_size.replace("[3,", "[4,")).is_ok());
        for line in [
            "",
            r#""done""#,
            r#"{"done":{"pid":7}}"#,
            no_size,
            r#"{"failed":{"pid":"x","reason":"y"}}"#,
            "ready",
        ] {
            assert!(child::parse::<AttachReply>(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(line in ".{0,80}") {
            let _ = child::parse::<AttachReply>(&line);
        }
    }
}
