//! What every command gets: where the host is read, how the answer is printed, when to stop.

#![expect(clippy::disallowed_methods, reason = "the place that prints")]

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hugeleaf_host::{
    Host, Looking, Process, ProcessError, ReadError, Root, Target, TargetError, read_process,
};
use hugeleaf_report::page::{Page, View};
use hugeleaf_report::screen::{clean, screen};
use hugeleaf_sys::{Kernel, Pid, setcap_advice};
use indicatif::ProgressBar;

/// Processes that could not be read, and why.
pub type Unread = Vec<(Pid, ProcessError)>;

/// Flags that every command takes.
#[derive(Debug, clap::Args)]
pub struct Global {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Read /proc, /sys and /etc below this folder: a captured host
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

pub struct Context {
    pub json: bool,
    pub root: Root,
    pub kernel: Kernel,
    /// The program hugeleaf, where that is not this program.
    pub program: Option<PathBuf>,
    /// Becomes true on Ctrl-C (SIGINT) and SIGTERM: stop at the next safe point. Every question that is under way ends
    /// at once.
    pub stop: Arc<AtomicBool>,
}

impl Context {
    pub fn new(global: Global) -> Context {
        let stop = Arc::new(AtomicBool::new(false));
        hugeleaf_sys::end_questions_by(&stop);
        Context {
            json: global.json,
            root: global.root.map_or_else(Root::live, Root::at),
            kernel: Kernel::new(),
            program: None,
            stop,
        }
    }

    /// Makes Ctrl-C and SIGTERM set [`Context::stop`]; a second Ctrl-C ends the program at once.
    /// Only commands that change something ask for this: the others may simply die.
    pub fn stop_on_signals(&self) -> Result<(), Failure> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        use signal_hook::flag::{register, register_conditional_shutdown};
        // What a signal does it does in this order. Stopping comes first, so that none is lost that comes between
        // two of these lines.
        let is_second = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            register(signal, Arc::clone(&self.stop))
                .and_then(|_| register_conditional_shutdown(signal, 130, Arc::clone(&is_second)))
                .and_then(|_| register(signal, Arc::clone(&is_second)))
                .map_err(|e| Failure::missing(format!("signal {signal}: {e}"), "try again"))?;
        }
        Ok(())
    }

    /// Makes every signal that would end the program set [`Context::stop`], and none end it: for a
    /// command that has to put back what it changed. What is put back is bounded; SIGKILL remains.
    pub fn stop_on_all_signals(&self) -> Result<(), Failure> {
        use signal_hook::consts::{
            SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU,
        };
        for signal in [
            SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU,
        ] {
            signal_hook::flag::register(signal, Arc::clone(&self.stop))
                .map_err(|e| Failure::missing(format!("signal {signal}: {e}"), "try again"))?;
        }
        Ok(())
    }

    pub fn host(&self) -> Result<Host, Failure> {
        hugeleaf_host::read_host(&self.root, &self.kernel).map_err(|error| self.no_host(error))
    }

    /// The same with the pages of pools that no running process holds.
    pub fn host_and_leftovers(&self) -> Result<Host, Failure> {
        let mut host = self.host()?;
        host.leftovers = hugeleaf_host::read_leftovers(&self.root, &self.kernel, &host);
        Ok(host)
    }

    /// Only a capture can lack what a running kernel tells by itself.
    fn no_host(&self, error: ReadError) -> Failure {
        let root = self.root.path("");
        let root = root.display().to_string();
        let root = root.trim_end_matches('/');
        if self.root.is_live() || error.denied {
            return Failure::from(error);
        }
        let next = match self.root.list("proc").is_absent() {
            true => format!("name the folder that holds proc/, sys/ and etc/: ls {root}"),
            false => {
                format!("on that host: cat /proc/self/auxv > auxv; put it into {root}/proc/self")
            }
        };
        Failure::missing(error.to_string(), next)
    }

    /// The program hugeleaf: this one, or another that was set, for a program that is not hugeleaf itself.
    pub fn program(&self) -> Result<PathBuf, Failure> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        std::env::current_exe()
            .map_err(|e| Failure::missing(format!("this very program: {e}"), "run it again"))
    }

    /// The processes that the targets on the command line mean, each once, ids ascending. `several` says what
    /// becomes of a name that several unrelated process trees have.
    pub fn targets(&self, texts: &[String], several: Several) -> Result<Vec<Pid>, Failure> {
        let mut pids = Vec::new();
        for text in texts {
            let found = text.parse::<Target>()?.resolve(&self.root)?;
            pids.extend(match several {
                Several::All => found.all(),
                Several::Refused => found.one()?,
                Several::Asked(verb) => match found.clone().one() {
                    Err(error) if agrees(&format!("{error}. {verb} all of them?"))? => found.all(),
                    one => one?,
                },
            });
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Reads the processes that the targets mean. Of several, those that cannot be read come back
    /// with the reason; an error only where none can.
    pub fn read_targets(
        &self,
        host: &Host,
        pids: &[Pid],
        looking: Looking,
    ) -> Result<(Vec<Process>, Unread), Failure> {
        let (mut processes, mut unread) = (Vec::new(), Vec::new());
        for pid in pids {
            match read_process(&self.root, &self.kernel, host, *pid, looking) {
                Ok(process) => processes.push(process),
                Err(error) => unread.push((*pid, error)),
            }
        }
        match unread.first() {
            Some((_, error)) if processes.is_empty() => {
                Err(TargetError::from(error.clone()).into())
            }
            _ => Ok((processes, unread)),
        }
    }

    /// Refuses a captured host: this command acts on a running one.
    pub fn need_live(&self, command: &str) -> Result<(), Failure> {
        if self.root.is_live() {
            return Ok(());
        }
        Err(Failure::usage(
            format!("{command}: --root names a captured host, and {command} acts on a running one"),
            format!("hugeleaf {command} without --root"),
        ))
    }

    /// Whether stdout is a terminal: then progress and colour may be shown.
    pub fn is_terminal() -> bool {
        std::io::stdout().is_terminal()
    }

    /// Progress before an answer: a bar on stderr, where that and the answer go to a terminal.
    pub fn bar(&self, template: &str, length: u64) -> ProgressBar {
        match Context::is_terminal() && !self.json {
            true => crate::progress::bar(template, length),
            false => ProgressBar::hidden(),
        }
    }

    /// Columns of the terminal, 100 in a pipe.
    pub fn width() -> usize {
        hugeleaf_sys::terminal_columns().unwrap_or(100)
    }

    /// How a page is drawn; `all` shows all rows of long tables.
    pub fn view(all: bool) -> View {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        View {
            width: Context::width(),
            // Unless NO_COLOR is set and not empty (no-color.org).
            colour: Context::is_terminal() && !no_colour,
            all,
        }
    }

    /// Prints an answer: JSON where that was asked for, else a page.
    pub fn answer(
        &self,
        view: View,
        json: impl FnOnce() -> String,
        page: impl FnOnce() -> Page,
    ) -> Result<(), Failure> {
        match self.json {
            true => Context::print(&json()),
            false => Context::show(&page(), view),
        }
    }

    pub fn show(page: &Page, view: View) -> Result<(), Failure> {
        Context::write(&page.text(view))
    }

    /// Prints what is no page; what a terminal would act on is written out ([`screen`]).
    pub fn print(text: &str) -> Result<(), Failure> {
        Context::write(&screen(text))
    }

    /// Takes away all that the terminal shows, for the next answer to stand in its place.
    pub fn clear() -> Result<(), Failure> {
        // Home and clear to the end: less flicker than clearing the whole screen first.
        Context::write("\x1b[H\x1b[J")
    }

    /// A reader that went away (`| head`) is no error.
    fn write(text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::missing(
                format!("stdout: {e}"),
                "make room where the output goes",
            )),
            _ => Ok(()),
        }
    }
}

/// Treatment of a name that several unrelated process trees have.
#[derive(Debug, Clone, Copy)]
pub enum Several {
    All,
    Refused,
    /// The user is asked whether to do so to all of them.
    Asked(&'static str),
}

/// Returns true where a person can answer a question.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks on a terminal; no without one.
pub fn agrees(question: &str) -> Result<bool, Failure> {
    if !can_ask() {
        return Ok(false);
    }
    tell(&format!("{question} [y/N]"));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|e| Failure::missing(format!("standard input: {e}"), "answer by a flag"))?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

/// Whether what is told is read on a terminal.
pub fn is_told_to_a_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// A line for a person: above the bar, or by itself where no bar is drawn.
pub fn note(bar: &ProgressBar, note: &str) {
    let line = format!("note: {note}");
    match bar.is_hidden() {
        true => tell(&line),
        false => bar.println(clean(&line)),
    }
}

/// Lines on stderr; what a terminal would act on is written out. Where nobody reads them any more, that
/// is no reason to stop.
pub fn tell(lines: &str) {
    if lines.is_empty() {
        return;
    }
    let mut text = screen(lines).into_owned();
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done and good.
    Good = 0,
    /// Done, and the answer is no.
    No = 1,
}

impl From<bool> for Status {
    /// Good where it is so.
    fn from(is_good: bool) -> Status {
        match is_good {
            true => Status::Good,
            false => Status::No,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

/// Why a command could not do its work: two lines and an exit status.
#[derive(Debug)]
pub struct Failure {
    pub lines: hugeleaf_units::Failure,
    status: u8,
}

impl Failure {
    fn of(status: u8, what: impl Into<String>, next: impl Into<String>) -> Failure {
        let lines = hugeleaf_units::Failure::new(what, next);
        Failure { lines, status }
    }

    /// Wrong usage (exit status 2).
    pub fn usage(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure::of(2, what, next)
    }

    /// A precondition is missing (exit status 3).
    pub fn missing(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure::of(3, what, next)
    }

    /// It was tried and the answer is no (exit status 1).
    pub fn no(what: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure::of(1, what, next)
    }

    #[must_use]
    pub fn with_status(mut self, status: u8) -> Failure {
        self.status = status;
        self
    }

    pub const fn status(&self) -> u8 {
        self.status
    }

    /// Prints the two lines and gives the status.
    pub fn report(&self) -> ExitCode {
        // Two lines, whatever is in the names that they hold.
        let line = |text: &str| text.replace('\n', "\\u000a");
        tell(&format!(
            "hugeleaf: {}\n  next: {}",
            line(&self.lines.what),
            line(&self.lines.next)
        ));
        ExitCode::from(self.status)
    }
}

/// A usage error of clap in the two lines that every failure has; `help` is the command that shows the help.
pub fn wrong_usage(error: &clap::Error, help: &str) -> Failure {
    let text = error.to_string();
    let (what, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let what = what
        .trim_start_matches("error: ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let tip = rest
        .lines()
        .find_map(|line| line.trim().strip_prefix("tip: "));
    // The message repeats what was typed, which may be an address with a password.
    Failure::usage(
        hugeleaf_proof::metric::redact(&what),
        tip.map_or(help.to_owned(), |tip| format!("{tip}; {help}")),
    )
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        let next = if error.denied {
            "run as root, or as the owner of the process"
        } else {
            "check that proc/ and sys/ are there, below --root where that is given: ls /proc /sys"
        };
        Failure::missing(error.to_string(), next)
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Failure {
        let text = error.to_string();
        match error {
            TargetError::Malformed { .. } => Failure::usage(
                text,
                "name a PID, a process, a unit or tree:PID, as in: hugeleaf mem postgres",
            ),
            TargetError::Several { trees, .. } => {
                let first = trees.first().map_or(Pid(0), |tree| tree.first);
                Failure::usage(
                    text,
                    format!(
                        "name the one you mean, as tree:{first} or by its unit; promote and demote \
                         take --all"
                    ),
                )
            }
            TargetError::Nobody {
                hidden_possible: true,
                ..
            }
            | TargetError::Process(ProcessError::Gone {
                hidden_possible: true,
                ..
            }) => Failure::missing(
                format!("{text} (or /proc hides it: it is mounted with hidepid)"),
                "run as root to see the processes of other users",
            ),
            TargetError::Nobody { .. } | TargetError::Process(ProcessError::Gone { .. }) => {
                Failure::missing(text, "hugeleaf mem    # lists the processes there are")
            }
            TargetError::Process(ProcessError::Denied { uid, .. }) => Failure::missing(
                text,
                format!(
                    "run as root, or as uid {uid}, or: sudo {}",
                    setcap_advice(&["cap_sys_ptrace"])
                ),
            ),
            TargetError::Process(ProcessError::KernelThread { .. }) => Failure::missing(
                text,
                "hugeleaf mem    # lists the processes with memory of their own",
            ),
            TargetError::Process(ProcessError::Zombie { .. }) => Failure::missing(
                text,
                "point at its parent, or at a process that lives: hugeleaf mem",
            ),
            TargetError::Process(ProcessError::Read(error)) => Failure::from(error),
        }
    }
}
