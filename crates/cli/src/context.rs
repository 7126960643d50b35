//! Common services of all commands: reading the host, printing the answer, and stopping.

#![expect(clippy::disallowed_methods, reason = "the place that prints")]

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hugeleaf_host::{
    Host, Process, ProcessError, ReadDetail, ReadError, Root, Target, TargetError, read_process,
};
use hugeleaf_plan::applied_plans::{servers_here, unseen_by_kubelet};
use hugeleaf_report::document::{Document, TextOptions};
use hugeleaf_report::terminal_escape::screen;
use hugeleaf_sys::{Kernel, Pid};
pub use hugeleaf_units::Failure;
use hugeleaf_verdict::check::wants;

/// Processes that could not be read, each with its error.
pub type UnreadableProcesses = Vec<(Pid, ProcessError)>;

/// Flags that every command takes.
#[derive(Debug, clap::Args)]
pub struct GlobalArgs {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Read a captured host: /proc, /sys and /etc below this directory
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

pub struct Context {
    pub json: bool,
    pub root: Root,
    pub kernel: Kernel,
    /// Path of hugeleaf if the running program is another one.
    pub program: Option<PathBuf>,
    /// Becomes true on Ctrl-C (SIGINT) and SIGTERM; commands stop at the next safe point. All pending questions end at once.
    pub stop: Arc<AtomicBool>,
}

impl Context {
    pub fn new(global: GlobalArgs) -> Context {
        let stop = Arc::new(AtomicBool::new(false));
        hugeleaf_sys::set_stop_flag(&stop);
        Context {
            json: global.json,
            root: global.root.map_or_else(Root::live, Root::at),
            kernel: Kernel::new(),
            program: None,
            stop,
        }
    }

    /// Makes Ctrl-C and SIGTERM set [`Context::stop`]; a second signal ends the program at once. Only commands that change something use
    /// it; others can be killed at any time.
    pub fn stop_on_signals(&self) -> Result<(), Failure> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        use signal_hook::flag::{register, register_conditional_shutdown};
        // Handlers run in this order. Setting `stop` comes first, so that no signal is lost between two of these registrations.
        let is_second = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            register(signal, Arc::clone(&self.stop))
                .and_then(|_| register_conditional_shutdown(signal, 130, Arc::clone(&is_second)))
                .and_then(|_| register(signal, Arc::clone(&is_second)))
                .map_err(|e| Failure::missing(format!("signal {signal}: {e}"), "try again"))?;
        }
        Ok(())
    }

    /// Makes the signals that would end the program set [`Context::stop`] instead. For commands that must restore state;
    /// restoring is bounded, and SIGKILL still ends the program.
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
        let host = hugeleaf_host::read_host(&self.root, &self.kernel);
        let mut host = host.map_err(|error| self.no_host(error))?;
        host.unseen_by_kubelet = unseen_by_kubelet(&self.root);
        Ok(host)
    }

    /// Reads the host, including pool pages that no running process holds.
    pub fn host_and_leftovers(&self) -> Result<Host, Failure> {
        let mut host = self.host()?;
        host.leftovers = hugeleaf_host::read_leftovers(&self.root, &self.kernel, &host);
        Ok(host)
    }

    /// Adds the wants of running programs, which no advice may contradict.
    pub fn with_wants(&self, mut host: Host) -> Host {
        host.wants = wants(&host, &servers_here(&self.root));
        host
    }

    /// Explains an unreadable host. Only a capture can lack facts that a running kernel always provides.
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
                format!("run on that host: cat /proc/self/auxv > auxv; copy it to {root}/proc/self")
            }
        };
        Failure::missing(error.to_string(), next)
    }

    /// Returns the path of hugeleaf: the configured one, or else that of the running program.
    pub fn program(&self) -> Result<PathBuf, Failure> {
        if let Some(program) = &self.program {
            return Ok(program.clone());
        }
        std::env::current_exe()
            .map_err(|e| Failure::missing(format!("own executable: {e}"), "run it again"))
    }

    /// Returns the distinct processes of the targets in ascending order of id. `several` says how to treat a name of several unrelated
    /// process trees.
    pub fn targets(&self, texts: &[String], several: AmbiguityPolicy) -> Result<Vec<Pid>, Failure> {
        let mut pids = Vec::new();
        for text in texts {
            let found = text.parse::<Target>()?.resolve(&self.root)?;
            pids.extend(match several {
                AmbiguityPolicy::All => found.all(),
                AmbiguityPolicy::Refused => found.single_tree()?,
                AmbiguityPolicy::Confirm(verb) => match found.clone().single_tree() {
                    Err(error) if confirm(&format!("{error}. {verb} all of them?"))? => found.all(),
                    one => one?,
                },
            });
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Reads the processes. Returns unreadable ones with their errors; fails only if none can be read.
    pub fn read_targets(
        &self,
        host: &Host,
        pids: &[Pid],
        looking: ReadDetail,
    ) -> Result<(Vec<Process>, UnreadableProcesses), Failure> {
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

    /// Refuses a captured host, because the command acts on a running one.
    pub fn need_live(&self, command: &str) -> Result<(), Failure> {
        if self.root.is_live() {
            return Ok(());
        }
        Err(Failure::usage(
            format!("{command}: --root names a captured host, and {command} acts on a running one"),
            format!("hugeleaf {command} without --root"),
        ))
    }

    /// Returns true if stdout is a terminal, which allows colour.
    pub fn is_terminal() -> bool {
        std::io::stdout().is_terminal()
    }

    /// Returns the columns of the terminal, or 100 in a pipe.
    pub fn width() -> usize {
        hugeleaf_sys::terminal_columns().unwrap_or(100)
    }

    /// Returns the view for a page; `all` shows all rows of long tables.
    pub fn view(all: bool) -> TextOptions {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        TextOptions {
            width: Context::width(),
            // NO_COLOR disables colour if it is set and not empty (no-color.org).
            colour: Context::is_terminal() && !no_colour,
            all,
        }
    }

    /// Prints an answer as JSON if requested, otherwise as a page.
    pub fn answer(
        &self,
        view: TextOptions,
        json: impl FnOnce() -> String,
        page: impl FnOnce() -> Document,
    ) -> Result<(), Failure> {
        match self.json {
            true => Context::print(&json()),
            false => Context::show(&page(), view),
        }
    }

    pub fn show(page: &Document, view: TextOptions) -> Result<(), Failure> {
        Context::write(&page.text(view))
    }

    /// Prints text other than a page; escapes terminal control characters ([`screen`]).
    pub fn print(text: &str) -> Result<(), Failure> {
        Context::write(&screen(text))
    }

    /// Clears the terminal for the next answer.
    pub fn clear() -> Result<(), Failure> {
        // Home and clear to the end flickers less than clearing the whole screen first.
        Context::write("\x1b[H\x1b[J")
    }

    /// Writes to stdout. A closed pipe (`| head`) is not an error.
    fn write(text: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::missing(
                format!("stdout: {e}"),
                "free space where the output is written",
            )),
            _ => Ok(()),
        }
    }
}

/// Treatment of a name that several unrelated process trees have.
#[derive(Debug, Clone, Copy)]
pub enum AmbiguityPolicy {
    All,
    Refused,
    /// The user confirms the action, named by this verb, for all of them.
    Confirm(&'static str),
}

/// Returns true if a person can answer a question.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks a yes-or-no question on a terminal; returns false without one.
pub fn confirm(question: &str) -> Result<bool, Failure> {
    if !can_ask() {
        return Ok(false);
    }
    print_stderr(&format!("{question} [y/N]"));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|e| Failure::missing(format!("standard input: {e}"), "use a flag instead"))?;
    Ok(matches!(answer.trim(), "y" | "yes"))
}

/// Prints lines to stderr and escapes terminal control characters. A closed stderr is not an error.
pub fn print_stderr(lines: &str) {
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
pub enum CommandStatus {
    /// The command succeeded and the answer is positive.
    Good = 0,
    /// The command succeeded and the answer is negative.
    No = 1,
}

impl From<bool> for CommandStatus {
    /// Maps true to [`CommandStatus::Good`].
    fn from(is_good: bool) -> CommandStatus {
        match is_good {
            true => CommandStatus::Good,
            false => CommandStatus::No,
        }
    }
}

impl From<CommandStatus> for ExitCode {
    fn from(status: CommandStatus) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

/// Prints the two lines of a failed command and returns its exit status.
pub fn print_failure(failure: &Failure) -> ExitCode {
    // Names may contain line breaks, which would add lines.
    let line = |text: &str| text.replace('\n', "\\u000a");
    print_stderr(&format!(
        "hugeleaf: {}\n  next: {}",
        line(&failure.message),
        line(&failure.remedy)
    ));
    ExitCode::from(failure.status)
}

/// Converts a usage error of clap into two lines; `help` is the command that shows the help.
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
    // The message repeats the typed text, which may hold an address with a password.
    Failure::usage(
        hugeleaf_proof::metric::redact(&what),
        tip.map_or(help.to_owned(), |tip| format!("{tip}; {help}")),
    )
}
