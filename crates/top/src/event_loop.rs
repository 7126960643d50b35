//! The threads of the view: one reads keys, one receives signals, one scans the host, and one per action of a key.
//! Only this file uses the terminal.

use std::io::IsTerminal;
use std::ops::ControlFlow::{self, Break, Continue};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hugeleaf_host::ReadError;
use hugeleaf_units::Failure;
use ratatui::crossterm::event::{Event as Input, read};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::actions::{ActionContext, PromoteDemoteRequest, change, going_on, why};
use crate::app::{App, AppAction, AppConfig, AppEvent, ReplayState, TaskResult};
use crate::draw::draw;
use crate::model::{HostSample, OperationProgress, TreeSample};
use crate::raw_terminal::{RawTerminal, give_back};
use crate::recording::{Recorder, Recording};
use crate::scan_schedule::VisibleTrees;
use crate::scanner::{EVERY, Scanner};

/// Interval without events after which the terminal is checked.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Maximum time for a promotion or demotion to stop once the view ends.
const STOPPING: Duration = Duration::from_secs(10);
/// Time after which a signal ends the view, even if it hangs.
const LAST: Duration = Duration::from_secs(15);
/// Interval at which progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

pub struct TopSettings {
    pub tools: ActionContext,
    pub config: AppConfig,
    pub record: Option<PathBuf>,
    pub replay: Option<PathBuf>,
}

fn no_terminal(what: String) -> Failure {
    Failure::missing(what, "run it in a terminal, or: hugeleaf mem")
}

enum LoopMessage {
    Input(Input),
    InputEnded,
    Scanned(Result<Box<HostSample>, ReadError>),
    Event(AppEvent),
    Signal(i32),
}

pub fn run(settings: TopSettings) -> Result<(), Failure> {
    check_terminal()?;
    let recorder = settings
        .record
        .as_deref()
        .map(Recorder::create)
        .transpose()?;
    let recording = settings
        .replay
        .as_deref()
        .map(Recording::open)
        .transpose()?;
    let gone = |what: &str, e: std::io::Error| no_terminal(format!("{what}: {e}"));
    let (sender, receiver) = channel();
    take_signals(sender.clone()).map_err(|e| gone("signals", e))?;
    let playing = recording.as_ref().map(|r| ReplayState::new(r.scans()));
    let mut view = TerminalUi {
        app: App::new(settings.config, playing),
        screen: RawTerminal::take().map_err(|e| gone("the terminal", e))?,
        tools: settings.tools,
        recorder,
        recording,
        sender,
        wanted: Arc::default(),
        moving: Arc::default(),
        mover: None,
        played: Instant::now(),
    };
    let ended = view.start().and_then(|()| view.go_on(&receiver));
    let TerminalUi { screen, mover, .. } = view;
    drop(screen);
    if let Some(mover) = mover {
        mover.end();
    }
    if let Some(signal) = ended? {
        // Ends as the signal would have, so that the parent sees the cause.
        let _ = emulate_default_handler(signal);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "asks whether it is a terminal")]
fn check_terminal() -> Result<(), Failure> {
    let name = std::env::var("TERM").unwrap_or_default();
    if !std::io::stdout().is_terminal() {
        return Err(no_terminal(
            "stdout is not a terminal, which top requires".into(),
        ));
    }
    if name.is_empty() || name == "dumb" {
        return Err(no_terminal(format!(
            "the terminal cannot position the cursor (TERM is '{name}')"
        )));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the last screen stays readable")]
fn take_signals(sender: Sender<LoopMessage>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if !matches!(signal, SIGCONT | SIGTSTP) {
                std::thread::spawn(move || {
                    std::thread::sleep(LAST);
                    give_back();
                    let _ = emulate_default_handler(signal);
                });
            }
            let _ = sender.send(LoopMessage::Signal(signal));
        }
    });
    Ok(())
}

fn read_input(sender: &Sender<LoopMessage>) {
    while let Ok(input) = read() {
        if sender.send(LoopMessage::Input(input)).is_err() {
            return;
        }
    }
    let _ = sender.send(LoopMessage::InputEnded);
}

struct PromotionThread {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl PromotionThread {
    /// Stops it between two calls, and waits for that.
    #[expect(
        clippy::disallowed_methods,
        reason = "waits for a thread, within the deadline"
    )]
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < STOPPING {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

struct TerminalUi {
    app: App,
    screen: RawTerminal,
    tools: ActionContext,
    recorder: Option<Recorder>,
    recording: Option<Recording>,
    sender: Sender<LoopMessage>,
    /// Programs to walk first, for the thread that scans.
    wanted: Arc<Mutex<VisibleTrees>>,
    moving: Arc<Mutex<Option<OperationProgress>>>,
    mover: Option<PromotionThread>,
    played: Instant,
}

/// Locks a value that no panic can leave half-written.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TerminalUi {
    fn start(&mut self) -> Result<(), Failure> {
        if let Ok(size) = self.screen.terminal.size() {
            self.app.on(AppEvent::Size(size.width, size.height));
        }
        let sender = self.sender.clone();
        std::thread::spawn(move || read_input(&sender));
        if let Some(recording) = &self.recording {
            let is_cut = recording.is_cut;
            self.show(0)?;
            let note = "The last line of the recording is incomplete and left out.";
            self.app.note = is_cut.then(|| note.to_owned());
            return Ok(());
        }
        let scanner = Scanner::new(self.tools.clone());
        let (sender, wanted) = (self.sender.clone(), Arc::clone(&self.wanted));
        let moving = Arc::clone(&self.moving);
        let is_live = self.tools.root.is_live();
        std::thread::spawn(move || scan(scanner, &sender, &wanted, &moving, is_live));
        Ok(())
    }

    /// Runs until the view ends. Returns the signal that ended it, if any.
    fn go_on(&mut self, receiver: &Receiver<LoopMessage>) -> Result<Option<i32>, Failure> {
        loop {
            if self.draw().is_err() {
                // The terminal is gone.
                return Ok(None);
            }
            let mut next = self.wait(receiver);
            while let Some(message) = next {
                if let Break(signal) = self.take(message)? {
                    return Ok(signal);
                }
                next = receiver.try_recv().ok();
            }
            *lock(&self.wanted) = self.app.wanted();
        }
    }

    fn draw(&mut self) -> std::io::Result<()> {
        let app = &self.app;
        self.screen.terminal.draw(|frame| draw(app, frame))?;
        Ok(())
    }

    /// Returns the next message: a tick when a sample of the recording is due, an end if the terminal is gone.
    #[expect(clippy::disallowed_methods, reason = "asks whether it is a terminal")]
    fn wait(&mut self, receiver: &Receiver<LoopMessage>) -> Option<LoopMessage> {
        loop {
            let due = self.app.tick_after();
            let due = due.map(|after| after.saturating_sub(self.played.elapsed()));
            match receiver.recv_timeout(due.unwrap_or(HEARTBEAT).min(HEARTBEAT)) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return Some(LoopMessage::InputEnded),
                Err(RecvTimeoutError::Timeout) if !std::io::stdout().is_terminal() => {
                    return Some(LoopMessage::InputEnded);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let after = self.app.tick_after();
                    if after.is_some_and(|after| self.played.elapsed() >= after) {
                        return Some(LoopMessage::Event(AppEvent::Tick));
                    }
                }
            }
        }
    }

    fn take(&mut self, message: LoopMessage) -> Result<LoopFlow, Failure> {
        let event = match message {
            LoopMessage::InputEnded => return Ok(Break(None)),
            LoopMessage::Signal(SIGTSTP) => return Ok(self.suspend()),
            LoopMessage::Signal(SIGCONT) => return Ok(end_if_gone(self.screen.take_again())),
            LoopMessage::Signal(SIGINT) => return Ok(Break(None)),
            LoopMessage::Signal(signal) => return Ok(Break(Some(signal))),
            LoopMessage::Scanned(scanned) => {
                let sample = scanned?;
                self.record(&sample);
                AppEvent::Scanned(sample)
            }
            LoopMessage::Event(event) => event,
            LoopMessage::Input(input) => match input {
                Input::Key(key) => AppEvent::Key(key),
                Input::Mouse(mouse) => AppEvent::Mouse(mouse),
                Input::Paste(text) => AppEvent::Paste(text),
                Input::Resize(columns, rows) => AppEvent::Size(columns, rows),
                Input::FocusGained | Input::FocusLost => return Ok(Continue(())),
            },
        };
        if let AppEvent::Answer(_, TaskResult::Changed(_, asked, _)) = &event
            && !asked.dry_run
        {
            self.mover = None;
            *lock(&self.moving) = None;
        }
        for effect in self.app.on(event) {
            if let Break(signal) = self.carry_out(effect)? {
                return Ok(Break(signal));
            }
        }
        Ok(Continue(()))
    }

    fn record(&mut self, sample: &HostSample) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        if let Err(error) = recorder.add(sample) {
            self.recorder = None;
            self.app.on(AppEvent::Note(error.to_string()));
        }
    }

    fn carry_out(&mut self, effect: AppAction) -> Result<LoopFlow, Failure> {
        match effect {
            AppAction::Quit => return Ok(Break(None)),
            AppAction::Suspend => return Ok(self.suspend()),
            AppAction::Redraw => return Ok(end_if_gone(self.screen.clear())),
            AppAction::Why(ticket, program) => {
                let (tools, sender) = (self.tools.clone(), self.sender.clone());
                std::thread::spawn(move || {
                    let answer = TaskResult::Why(why(&tools, &program));
                    let _ = sender.send(LoopMessage::Event(AppEvent::Answer(ticket, answer)));
                });
            }
            AppAction::Change(ticket, program, asked) => self.change(ticket, program, asked),
            AppAction::StopMove => {
                if let Some(mover) = &self.mover {
                    mover.stop.store(true, Ordering::Relaxed);
                }
            }
            AppAction::Show(at) => self.show(at)?,
        }
        Ok(Continue(()))
    }

    fn show(&mut self, at: usize) -> Result<(), Failure> {
        if let Some(recording) = &mut self.recording {
            let sample = Box::new(recording.show(at)?.clone());
            let at = recording.at;
            self.app.on(AppEvent::Played(at, sample));
            self.played = Instant::now();
        }
        Ok(())
    }

    fn change(&mut self, ticket: u64, program: Box<TreeSample>, asked: PromoteDemoteRequest) {
        let (tools, sender) = (self.tools.clone(), self.sender.clone());
        let (moving, stop) = (Arc::clone(&self.moving), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut shown = Instant::now();
            let mut progress = |progress: &hugeleaf_mover::Progress<'_>| {
                if asked.dry_run || shown.elapsed() < PROGRESS_EVERY {
                    return;
                }
                shown = Instant::now();
                let now = going_on(&program, asked, progress);
                *lock(&moving) = Some(now.clone());
                let _ = sender.send(LoopMessage::Event(AppEvent::Progress(now)));
            };
            let result = change(&tools, &program, asked, &mut progress, &flag);
            let answer = TaskResult::Changed(program, asked, Box::new(result));
            let _ = sender.send(LoopMessage::Event(AppEvent::Answer(ticket, answer)));
        });
        if !asked.dry_run {
            self.mover = Some(PromotionThread { thread, stop });
        }
    }

    /// Returns the terminal to the parent, as Ctrl-Z does, and takes it again afterwards.
    fn suspend(&mut self) -> LoopFlow {
        give_back();
        let _ = emulate_default_handler(SIGTSTP);
        end_if_gone(self.screen.take_again())
    }
}

/// `Break` ends the view, with the signal that ended it, if any.
type LoopFlow = ControlFlow<Option<i32>>;

fn end_if_gone(done: std::io::Result<()>) -> LoopFlow {
    match done {
        Ok(()) => Continue(()),
        Err(_) => Break(None),
    }
}

/// Scans once a second, or less often to stay within the budget. Scans a captured host once.
#[expect(clippy::disallowed_methods, reason = "waits for the next step")]
fn scan(
    mut scanner: Scanner,
    sender: &Sender<LoopMessage>,
    wanted: &Mutex<VisibleTrees>,
    moving: &Mutex<Option<OperationProgress>>,
    is_live: bool,
) {
    let mut due = Instant::now();
    loop {
        let wanted = lock(wanted).clone();
        let own = lock(moving).clone();
        let scanned = scanner.scan(&wanted, own).map(Box::new);
        let is_last = scanned.is_err() || !is_live;
        if sender.send(LoopMessage::Scanned(scanned)).is_err() || is_last {
            return;
        }
        due += scanner.every;
        let wait = due.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            // It was suspended, or a scan took longer. Missed scans are not repeated.
            due = Instant::now() + EVERY;
        }
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}
