//! The other side: a process that waits for its turn, attaches a region, touches it, and stays.

use std::io::{PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hugeleaf::{Handle, Ladder, Region, RegionOptions};
use hugeleaf_sys::{Kernel, Pid, RealKernel, own_pid};
use hugeleaf_units::{Bytes, PageKind, PageSize, Rung};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::touch::touch;

/// What one process did at its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The process.
    pub pid: Pid,
    /// How long attaching took: mapping it, and filling in page tables of this process.
    pub attach: Duration,
    /// How long the first read of one byte in each base page took after that.
    pub first_touch: Duration,
    /// The region by the pages that this process has it on.
    pub pages: Vec<(PageSize, PageKind, Bytes)>,
}

/// A line that a process says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It waits for its turn.
    Ready,
    /// It has had it.
    Done(Turn),
    /// It could not.
    Failed {
        /// Who.
        pid: Pid,
        /// Why not.
        reason: String,
    },
}

impl Answer {
    fn text(&self) -> String {
        match self {
            Answer::Ready => "ready\n".to_owned(),
            Answer::Failed { pid, reason } => {
                format!("failed {pid} {}\n", reason.replace('\n', " "))
            }
            Answer::Done(turn) => {
                let (attach, touch) = (turn.attach.as_nanos(), turn.first_touch.as_nanos());
                let mut line = format!("done {} {attach} {touch}", turn.pid);
                for (size, kind, bytes) in &turn.pages {
                    let (size, bytes) = (size.bytes().get(), bytes.get());
                    line.push_str(&format!(" {kind}:{size}:{bytes}"));
                }
                line.push('\n');
                line
            }
        }
    }

    /// Reads what [`Answer::text`] writes, without the line's end.
    pub(super) fn parse(line: &str) -> Option<Answer> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "ready" => rest.is_empty().then_some(Answer::Ready),
            "failed" => {
                let (pid, reason) = rest.split_once(' ')?;
                Some(Answer::Failed {
                    pid: Pid(pid.parse().ok()?),
                    reason: reason.to_owned(),
                })
            }
            "done" => {
                let mut words = rest.split(' ');
                let pid = Pid(words.next()?.parse().ok()?);
                let mut time = || Some(Duration::from_nanos(words.next()?.parse().ok()?));
                let (attach, first_touch) = (time()?, time()?);
                let pages = words.map(pages_of).collect::<Option<_>>()?;
                Some(Answer::Done(Turn {
                    pid,
                    attach,
                    first_touch,
                    pages,
                }))
            }
            _ => None,
        }
    }
}

fn pages_of(word: &str) -> Option<(PageSize, PageKind, Bytes)> {
    let (kind, rest) = word.split_once(':')?;
    let (size, bytes) = rest.split_once(':')?;
    let kinds = [PageKind::Base, PageKind::Thp, PageKind::Hugetlb];
    let kind = kinds.into_iter().find(|known| known.name() == kind)?;
    let size = PageSize::new(Bytes(size.parse().ok()?)).ok()?;
    Some((size, kind, Bytes(bytes.parse().ok()?)))
}

/// Runs a process of [`super::Attachers`] until its parent closes the pipe on standard input or
/// dies. `parent` and `handle` are the arguments that were added.
///
/// # Errors
/// What went wrong, in words; the parent was told, where it still reads.
pub fn serve_attacher(parent: &str, handle: &str) -> Result<(), String> {
    let served = set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| format!("prctl(PR_SET_PDEATHSIG): {e}"))
        .and_then(|()| serve(parent, handle));
    if let Err(reason) = &served {
        let (pid, reason) = (own_pid(), reason.clone());
        say(&Answer::Failed { pid, reason })?;
    }
    served
}

fn serve(parent: &str, handle: &str) -> Result<(), String> {
    // Where the parent had died before the line above, nobody would ever end this process.
    let is_parent = getppid().is_some_and(|id| id.to_string() == parent);
    if !is_parent {
        return Err(format!("its parent {parent} has gone"));
    }
    let page = RealKernel::new().base_page();
    rehearse(page).map_err(|e| format!("attaching one page: {e}"))?;
    let stdin = std::io::stdin();
    let input = stdin.as_fd().try_clone_to_owned();
    let mut input = PipeReader::from(input.map_err(|e| format!("standard input: {e}"))?);
    say(&Answer::Ready)?;
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
    say(&Answer::Done(Turn {
        pid: own_pid(),
        attach,
        first_touch,
        pages: pages(&region)?,
    }))?;
    until_closed(&input);
    drop(region);
    Ok(())
}

/// Attaches a region of one page and lets it go: what this program itself takes in memory and page
/// tables to attach anything is there before the first count, and its code is warm.
fn rehearse(page: PageSize) -> Result<(), hugeleaf::MemoryError> {
    let rung = Rung {
        size: page,
        kind: None,
    };
    let ladder = Ladder::of(vec![rung], false);
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

/// One line in one write: lines of many processes do not mix in a pipe.
fn say(answer: &Answer) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(answer.text().as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| format!("standard output: {e}"))
}

/// Waits until nobody can write to the pipe any more; turns in it are for others and stay there.
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
        let done = Answer::Done(Turn {
            pid: Pid(7),
            attach: Duration::from_nanos(1500),
            first_touch: Duration::from_millis(2),
            pages: vec![
                ("2M".parse().unwrap(), PageKind::Thp, Bytes::from_mib(4)),
                ("4K".parse().unwrap(), PageKind::Base, Bytes::from_kib(8)),
            ],
        });
        let failed = Answer::Failed {
            pid: Pid(7),
            reason: "no memory, here".to_owned(),
        };
        for answer in [Answer::Ready, done, failed] {
            let text = answer.text();
            assert!(text.ends_with('\n') && text.matches('\n').count() == 1);
            assert_eq!(Answer::parse(text.trim_end()), Some(answer));
        }
        for line in [
            "",
            "done",
            "done 7 1",
            "done 7 1 2 base:3:4",
            "failed x y",
            "ready 1",
        ] {
            assert_eq!(Answer::parse(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(line in ".{0,80}") {
            let _ = Answer::parse(&line);
        }
    }
}
