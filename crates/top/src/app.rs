//! The view as a state machine: events in, effects out. It reads nothing and draws nothing.

use std::time::Duration;

use hugeleaf_guard::status::JobProgress;
use hugeleaf_mover::{Outcome, Percent, Stage};
use hugeleaf_report::document::{Document, Paint, PaintedLine, StatusMark, TextOptions};
use hugeleaf_report::promote::{HostCommands, PromotionDirection};
use hugeleaf_units::Failure;
use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::actions::{PromoteDemoteRequest, outcome_page};
use crate::history::History;
use crate::model::{HostSample, OperationProgress, TreeId, TreeSample};
use crate::pane::{Confirmation, Pane, PaneContent, help, refused};
use crate::scan_schedule::VisibleTrees;
use crate::scanner::is_own;
use crate::table::{Column, PlacedColumn, Sort, columns, rows};

/// Minimum size of the screen. Below it, only that fact is shown.
pub const LEAST: (u16, u16) = (52, 12);
const WHEEL: usize = 3;
/// Speeds of a replay, in samples per second.
const SPEEDS: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
const LONGEST_FILTER: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppConfig {
    pub can_move: bool,
    pub why_not: &'static str,
    pub colour: bool,
    pub commands: HostCommands,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AppEvent {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    /// The terminal has another size: columns and rows.
    Size(u16, u16),
    Scanned(Box<HostSample>),
    Played(usize, Box<HostSample>),
    /// The next sample of a recording is due.
    Tick,
    Answer(u64, TaskResult),
    Progress(OperationProgress),
    Note(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum TaskResult {
    /// Answers [`AppAction::Why`].
    Why(Result<Document, Failure>),
    /// Answers [`AppAction::Change`], both a dry run and a real one.
    Changed(
        Box<TreeSample>,
        PromoteDemoteRequest,
        Box<Result<Outcome, Failure>>,
    ),
}

#[derive(Debug, Clone, PartialEq)]
pub enum AppAction {
    Quit,
    Suspend,
    Redraw,
    Why(u64, Box<TreeSample>),
    Change(u64, Box<TreeSample>, PromoteDemoteRequest),
    StopMove,
    Show(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub enum AppMode {
    List,
    /// A filter is being typed. Holds the previous one.
    Filter(String),
    Pane(Box<Pane>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayState {
    /// Index of the sample that is shown, from 0.
    pub at: usize,
    pub scans: usize,
    pub paused: bool,
    speed: usize,
}

impl ReplayState {
    pub const fn new(scans: usize) -> ReplayState {
        ReplayState {
            at: 0,
            scans,
            paused: false,
            speed: 2,
        }
    }

    pub const fn speed(&self) -> f64 {
        SPEEDS[self.speed]
    }

    pub const fn is_at_end(&self) -> bool {
        self.at + 1 >= self.scans
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct App {
    pub config: AppConfig,
    pub size: (u16, u16),
    /// The sample that is shown. `None` before the first.
    pub sample: Option<HostSample>,
    pub history: History,
    pub sort: Sort,
    pub filter: String,
    /// Indices of the programs in their order.
    pub rows: Vec<usize>,
    pub top: usize,
    pub mode: AppMode,
    pub note: Option<String>,
    pub moving: Option<OperationProgress>,
    pub playing: Option<ReplayState>,
    selected: Option<TreeId>,
    /// Position of the selected row, for when its program ends.
    selected_at: usize,
    tickets: u64,
    /// True if the user asked to quit while a promotion or demotion runs.
    leaving: bool,
    effects: Vec<AppAction>,
}

impl App {
    pub fn new(config: AppConfig, playing: Option<ReplayState>) -> App {
        App {
            config,
            size: (80, 24),
            sample: None,
            history: History::default(),
            sort: Sort::default(),
            filter: String::new(),
            rows: Vec::new(),
            top: 0,
            mode: AppMode::List,
            note: None,
            moving: None,
            playing,
            selected: None,
            selected_at: 0,
            tickets: 0,
            leaving: false,
            effects: Vec::new(),
        }
    }

    pub fn on(&mut self, event: AppEvent) -> Vec<AppAction> {
        self.take(event);
        self.keep_in_sight();
        std::mem::take(&mut self.effects)
    }

    fn take(&mut self, event: AppEvent) {
        match event {
            AppEvent::Key(key) if key.kind == KeyEventKind::Release => {}
            AppEvent::Key(key) => self.key(key),
            AppEvent::Mouse(mouse) => self.mouse(mouse),
            AppEvent::Paste(text) => {
                // Pasted text is never a command, whatever letters it has.
                if let AppMode::Filter(_) = self.mode {
                    text.chars().for_each(|c| self.filter_by(c));
                }
            }
            AppEvent::Size(columns, rows) => {
                self.size = (columns, rows);
                if let AppMode::Pane(pane) = &self.mode {
                    self.scroll(pane.scroll);
                }
            }
            AppEvent::Scanned(sample) => self.show(*sample),
            AppEvent::Played(at, sample) => {
                if let Some(playing) = &mut self.playing {
                    // History only grows, so a step back clears it.
                    if at < playing.at {
                        self.history = History::default();
                    }
                    playing.at = at;
                }
                self.show(*sample);
            }
            AppEvent::Tick => self.tick(),
            AppEvent::Answer(ticket, answer) => self.answer(ticket, answer),
            AppEvent::Progress(progress) => self.moving = Some(progress),
            AppEvent::Note(note) => self.note = Some(note),
        }
    }

    /// Returns the time from one sample of a recording to the next.
    pub fn tick_after(&self) -> Option<Duration> {
        let playing = self.goes_on()?;
        Some(Duration::from_secs_f64(1.0 / playing.speed()))
    }

    fn tick(&mut self) {
        if let Some(playing) = self.goes_on() {
            self.effects.push(AppAction::Show(playing.at + 1));
        }
    }

    fn goes_on(&self) -> Option<ReplayState> {
        self.playing.filter(|p| !p.paused && !p.is_at_end())
    }

    pub fn wanted(&self) -> VisibleTrees {
        let visible = self.in_sight().filter_map(|row| self.program_at(row));
        VisibleTrees {
            selected: self.selected,
            visible: visible.map(TreeSample::id).collect(),
        }
    }

    pub fn program_at(&self, row: usize) -> Option<&TreeSample> {
        self.sample.as_ref()?.programs.get(*self.rows.get(row)?)
    }

    pub fn selected_row(&self) -> Option<usize> {
        let selected = self.selected?;
        (0..self.rows.len()).find(|row| self.program_at(*row).is_some_and(|p| p.id() == selected))
    }

    pub fn in_sight(&self) -> std::ops::Range<usize> {
        let end = (self.top + self.layout().list).min(self.rows.len());
        self.top.min(end)..end
    }

    pub fn columns(&self) -> Vec<PlacedColumn> {
        let guard = self.sample.as_ref().is_some_and(|s| s.guard.is_some());
        columns(self.size.0.into(), guard)
    }

    pub fn layout(&self) -> ScreenLayout {
        let sample = self.sample.as_ref();
        let guard = sample.is_some_and(|s| s.guard.is_some());
        let problems = sample.is_some_and(|s| !s.problems.is_empty());
        let moves = self.moves().len().min(3);
        let host = 6 + usize::from(guard) + usize::from(problems);
        // The head of the table, and the last line.
        let taken = host + 1 + moves + 1;
        ScreenLayout {
            host,
            list: usize::from(self.size.1).saturating_sub(taken),
            moves,
        }
    }

    /// Returns promotions and demotions in progress, that of this program first.
    pub fn moves(&self) -> Vec<&OperationProgress> {
        let sampled = self.sample.iter().flat_map(|s| &s.moves);
        let others = sampled.filter(|m| m.by != "top" || self.playing.is_some());
        self.moving.iter().chain(others).collect()
    }

    pub const fn is_too_small(&self) -> bool {
        self.size.0 < LEAST.0 || self.size.1 < LEAST.1
    }

    fn show(&mut self, sample: HostSample) {
        self.history.add(&sample);
        self.sample = Some(sample);
        self.arrange();
    }

    /// Sorts programs, and keeps the selected one.
    fn arrange(&mut self) {
        if let Some(sample) = &self.sample {
            self.rows = rows(sample, self.sort, &self.filter);
        }
        if self.selected_row().is_none() {
            // It ended, or does not match the filter: selects its neighbour.
            self.select(self.selected_at);
        }
    }

    fn select(&mut self, row: usize) {
        let row = row.min(self.rows.len().saturating_sub(1));
        self.selected = self.program_at(row).map(TreeSample::id);
        self.selected_at = row;
    }

    fn keep_in_sight(&mut self) {
        let list = self.layout().list.max(1);
        let row = self.selected_row().unwrap_or(0);
        self.selected_at = row;
        let last = self.rows.len().saturating_sub(list);
        self.top = self
            .top
            .clamp((row + 1).saturating_sub(list), row)
            .min(last);
    }

    fn key(&mut self, key: KeyEvent) {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => {
                return self.effects.extend([AppAction::StopMove, AppAction::Quit]);
            }
            KeyCode::Char('z') if is_control => return self.effects.push(AppAction::Suspend),
            KeyCode::Char('l') if is_control => return self.effects.push(AppAction::Redraw),
            KeyCode::Char('u') if is_control => {
                if let AppMode::Filter(_) = self.mode {
                    self.filter.clear();
                    self.arrange();
                }
                return;
            }
            // Other letters with control or alt have no function.
            KeyCode::Char(_) if is_control || key.modifiers.contains(KeyModifiers::ALT) => {
                return;
            }
            _ => {}
        }
        self.note = None;
        match &self.mode {
            AppMode::List => self.list_key(key),
            AppMode::Filter(_) => self.filter_key(key.code),
            AppMode::Pane(_) => self.pane_key(key.code),
        }
    }

    fn list_key(&mut self, key: KeyEvent) {
        if !matches!(key.code, KeyCode::Char('q')) {
            self.leaving = false;
        }
        let row = self.selected_row().unwrap_or(0);
        if let Some(to) = goes_to(key.code, row, self.layout().list) {
            return self.select(to);
        }
        match key.code {
            KeyCode::Char('/') => self.mode = AppMode::Filter(self.filter.clone()),
            KeyCode::Esc if !self.filter.is_empty() => {
                self.filter.clear();
                self.arrange();
            }
            KeyCode::Char('>' | 's') => self.sort_next(true),
            KeyCode::Char('<' | 'S') => self.sort_next(false),
            KeyCode::Char('r') => {
                self.sort.descending = !self.sort.descending;
                self.arrange();
            }
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => {
                let page = help(self.config.can_move, self.playing.is_some());
                self.open(None, PaneContent::Page(page));
            }
            KeyCode::Char('w') | KeyCode::Enter => self.ask_why(),
            KeyCode::Char('p') => self.ask_move(PromotionDirection::Promote),
            KeyCode::Char('d') => self.ask_move(PromotionDirection::Demote),
            KeyCode::Char('x') => self.stop_move(),
            KeyCode::Char('q') => self.quit(),
            _ => self.play_key(key),
        }
    }

    fn quit(&mut self) {
        if let (Some(moving), false) = (&self.moving, self.leaving) {
            self.leaving = true;
            self.note = Some(format!(
                "{} {} is running; q again stops it and quits, completed blocks stay",
                moving.what, moving.name
            ));
            return;
        }
        self.effects.extend([AppAction::StopMove, AppAction::Quit]);
    }

    fn stop_move(&mut self) {
        if self.moving.is_some() {
            self.note = Some("stopping; completed blocks stay as they are".into());
            self.effects.push(AppAction::StopMove);
        }
    }

    fn play_key(&mut self, key: KeyEvent) {
        let Some(playing) = &mut self.playing else {
            return;
        };
        let far = match key.modifiers.contains(KeyModifiers::SHIFT) {
            true => 10,
            false => 1,
        };
        match key.code {
            // At the end, plays again from the beginning.
            KeyCode::Char(' ') if playing.is_at_end() => {
                playing.paused = false;
                self.effects.push(AppAction::Show(0));
            }
            KeyCode::Char(' ') => playing.paused = !playing.paused,
            KeyCode::Left => {
                playing.paused = true;
                let at = playing.at.saturating_sub(far);
                self.effects.push(AppAction::Show(at));
            }
            KeyCode::Right => {
                playing.paused = true;
                let at = (playing.at + far).min(playing.scans - 1);
                self.effects.push(AppAction::Show(at));
            }
            KeyCode::Char('+' | '=') => playing.speed = (playing.speed + 1).min(SPEEDS.len() - 1),
            KeyCode::Char('-') => playing.speed = playing.speed.saturating_sub(1),
            _ => {}
        }
    }

    fn sort_next(&mut self, right: bool) {
        let shown: Vec<Column> = self.columns().iter().map(|placed| placed.column).collect();
        let Some(last) = shown.len().checked_sub(1) else {
            return;
        };
        let at = shown.iter().position(|c| *c == self.sort.column);
        let next = match (at, right) {
            (Some(at), true) if at < last => at + 1,
            (Some(at), false) if at > 0 => at - 1,
            (_, true) => 0,
            (_, false) => last,
        };
        self.sort_by(shown[next]);
    }

    /// Sorts by a column. Reverses the order if it is the present one.
    fn sort_by(&mut self, column: Column) {
        self.sort = match self.sort.column == column {
            true => Sort {
                descending: !self.sort.descending,
                ..self.sort
            },
            false => Sort::by(column),
        };
        self.arrange();
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = AppMode::List,
            KeyCode::Esc => {
                if let AppMode::Filter(before) = std::mem::replace(&mut self.mode, AppMode::List) {
                    self.filter = before;
                }
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Up => self.select(self.selected_row().unwrap_or(0).saturating_sub(1)),
            KeyCode::Down => self.select(self.selected_row().unwrap_or(0) + 1),
            KeyCode::Char(c) => self.filter_by(c),
            _ => {}
        }
        self.arrange();
    }

    fn filter_by(&mut self, c: char) {
        if !c.is_control() && self.filter.chars().count() < LONGEST_FILTER {
            self.filter.push(c);
            self.arrange();
        }
    }

    fn pane_key(&mut self, code: KeyCode) {
        let AppMode::Pane(pane) = &self.mode else {
            return;
        };
        let down = match code {
            KeyCode::Char(' ') => KeyCode::PageDown,
            code => code,
        };
        match goes_to(down, pane.scroll, self.pane_height(pane)) {
            Some(to) => self.scroll(to),
            None => self.pane_order(code),
        }
    }

    /// Scrolls a pane, no further than its end.
    fn scroll(&mut self, to: usize) {
        let AppMode::Pane(pane) = &self.mode else {
            return;
        };
        let length = self.pane_lines(pane).len();
        let to = to.min(length.saturating_sub(self.pane_height(pane)));
        if let AppMode::Pane(pane) = &mut self.mode {
            pane.scroll = to;
        }
    }

    /// Returns the lines of a pane, without its title and surroundings.
    pub fn pane_lines(&self, pane: &Pane) -> Vec<PaintedLine> {
        let view = TextOptions::plain(usize::from(self.size.0).saturating_sub(2));
        match (&pane.body, &pane.about) {
            (PaneContent::Waiting(what), _) => {
                vec![vec![((*what).to_owned(), Paint::Mark(StatusMark::Dim))]]
            }
            (PaneContent::Page(page), _) => page.painted(view),
            (PaneContent::Ask(ask), Some(about)) => {
                ask.page(&self.config.commands, about).painted(view)
            }
            (PaneContent::Ask(_), None) => Vec::new(),
        }
    }

    /// Returns the rows for them: without a title, the program's own lines, a question and keys.
    pub fn pane_height(&self, pane: &Pane) -> usize {
        let question = if matches!(pane.body, PaneContent::Ask(_)) {
            3
        } else {
            0
        };
        usize::from(self.size.1).saturating_sub(2 + self.pane_head(pane) + question)
    }

    /// Returns the rows of program facts above its page.
    pub fn pane_head(&self, pane: &Pane) -> usize {
        match (&pane.about, self.size.1) {
            (None, _) => 0,
            (Some(_), 0..20) => 2,
            (Some(_), 20..36) => 5,
            (Some(_), _) => 9,
        }
    }

    fn pane_order(&mut self, code: KeyCode) {
        let AppMode::Pane(pane) = &mut self.mode else {
            return;
        };
        if let PaneContent::Ask(ask) = &mut pane.body {
            match code {
                KeyCode::Char('+' | '=') => ask.step(true),
                KeyCode::Char('-') => ask.step(false),
                KeyCode::Char('y' | 'Y') if ask.is_something() => return self.answer_yes(),
                // No other key means yes.
                KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => self.mode = AppMode::List,
                _ if !ask.is_something() => self.mode = AppMode::List,
                _ => {}
            }
            return;
        }
        match code {
            KeyCode::Esc
            | KeyCode::Char('q' | '?' | 'h')
            | KeyCode::Enter
            | KeyCode::Backspace
            | KeyCode::Left => {
                self.mode = AppMode::List;
            }
            KeyCode::Char('w') => self.ask_why(),
            KeyCode::Char('p') => self.ask_move(PromotionDirection::Promote),
            KeyCode::Char('d') => self.ask_move(PromotionDirection::Demote),
            _ => {}
        }
    }

    fn answer_yes(&mut self) {
        let AppMode::Pane(pane) = std::mem::replace(&mut self.mode, AppMode::List) else {
            return;
        };
        let (PaneContent::Ask(ask), Some(about)) = (pane.body, pane.about) else {
            return;
        };
        if self.refuses_move(&about) {
            return;
        }
        let asked = PromoteDemoteRequest {
            direction: ask.direction,
            budget: ask.budget,
            dry_run: false,
        };
        self.moving = Some(OperationProgress {
            pid: about.pid,
            name: about.name.clone(),
            what: ask.direction.verb().into(),
            by: "top".into(),
            status: JobProgress {
                stage: Stage::Planning.name().into(),
                ..JobProgress::default()
            },
            budget_percent: ask.budget.get(),
        });
        let ticket = self.ticket();
        self.effects
            .push(AppAction::Change(ticket, Box::new(about), asked));
    }

    fn selected_program(&self) -> Option<TreeSample> {
        match &self.mode {
            // A pane keeps its program, even if it is no longer in the table.
            AppMode::Pane(pane) if pane.about.is_some() => pane.about.clone(),
            _ => self.program_at(self.selected_row()?).cloned(),
        }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Opens a pane on a program that an answer will fill. Returns its ticket.
    fn wait(&mut self, program: &TreeSample, what: &'static str) -> u64 {
        let ticket = self.ticket();
        self.open(Some(program.clone()), PaneContent::Waiting(what));
        ticket
    }

    fn open(&mut self, about: Option<TreeSample>, body: PaneContent) {
        self.mode = AppMode::Pane(Box::new(Pane {
            ticket: self.tickets,
            about,
            body,
            scroll: 0,
        }));
    }

    fn ask_why(&mut self) {
        let Some(program) = self.selected_program() else {
            return;
        };
        if self.playing.is_some() {
            self.note = Some(format!(
                "a recording has no memory ranges; on that host: hugeleaf why {}",
                program.pid
            ));
            return;
        }
        let ticket = self.wait(&program, "Reading its memory ranges…");
        self.effects.push(AppAction::Why(ticket, Box::new(program)));
    }

    fn ask_move(&mut self, direction: PromotionDirection) {
        let Some(program) = self.selected_program() else {
            return;
        };
        if self.refuses_move(&program) {
            return;
        }
        let asked = PromoteDemoteRequest {
            direction,
            budget: Percent::new(10).unwrap_or(Percent::ALL),
            dry_run: true,
        };
        let ticket = self.wait(&program, "Estimating the change…");
        self.effects
            .push(AppAction::Change(ticket, Box::new(program), asked));
    }

    /// Shows the reason if a program cannot be promoted or demoted from here.
    fn refuses_move(&mut self, program: &TreeSample) -> bool {
        let why = match &self.moving {
            _ if !self.config.can_move => self.config.why_not.to_owned(),
            Some(moving) => format!(
                "only one at a time: {} {} is running; x stops it",
                moving.what, moving.name
            ),
            None if is_own(program) => "hugeleaf cannot promote or demote itself".to_owned(),
            None => return false,
        };
        self.note = Some(why);
        true
    }

    fn answer(&mut self, ticket: u64, answer: TaskResult) {
        match answer {
            TaskResult::Why(why) => {
                let page = why.unwrap_or_else(|refusal| refused(&refusal));
                self.fill(ticket, PaneContent::Page(page));
            }
            TaskResult::Changed(_, asked, result) if asked.dry_run => {
                let body = match *result {
                    Ok(outcome) => PaneContent::Ask(Box::new(Confirmation {
                        direction: asked.direction,
                        budget: asked.budget,
                        outcome,
                    })),
                    Err(refusal) => PaneContent::Page(refused(&refusal)),
                };
                self.fill(ticket, body);
            }
            TaskResult::Changed(program, asked, result) => {
                self.moving = None;
                let commands = &self.config.commands;
                let page = match *result {
                    Ok(outcome) => {
                        outcome_page(commands, &outcome, &program, asked.direction, asked.budget)
                    }
                    Err(refusal) => refused(&refusal),
                };
                if self.mode == AppMode::List {
                    self.open(Some(*program), PaneContent::Page(page));
                } else {
                    self.note = Some(format!("{} ({}): {}", program.name, program.pid, page.lead));
                }
            }
        }
    }

    /// Fills the pane that waits for this answer. Does nothing if the user left it.
    fn fill(&mut self, ticket: u64, body: PaneContent) {
        if let AppMode::Pane(pane) = &mut self.mode
            && pane.ticket == ticket
            && matches!(pane.body, PaneContent::Waiting(_))
        {
            pane.body = body;
            pane.scroll = 0;
        }
    }

    fn mouse(&mut self, mouse: MouseEvent) {
        match (mouse.kind, &self.mode) {
            (MouseEventKind::ScrollUp, AppMode::Pane(pane)) => {
                self.scroll(pane.scroll.saturating_sub(WHEEL))
            }
            (MouseEventKind::ScrollDown, AppMode::Pane(pane)) => self.scroll(pane.scroll + WHEEL),
            (MouseEventKind::ScrollUp, _) => {
                self.select(self.selected_row().unwrap_or(0).saturating_sub(WHEEL));
            }
            (MouseEventKind::ScrollDown, _) => {
                self.select(self.selected_row().unwrap_or(0) + WHEEL)
            }
            (MouseEventKind::Down(MouseButton::Left), AppMode::List | AppMode::Filter(_)) => {
                self.click(mouse.column.into(), mouse.row.into());
            }
            _ => {}
        }
    }

    fn click(&mut self, x: usize, y: usize) {
        let layout = self.layout();
        if self.is_too_small() {
            return;
        }
        if y == layout.host {
            let placed = self.columns();
            // The gap after a head is part of it.
            let hit = placed.iter().rev().find(|p| p.x <= x + 1);
            if let Some(hit) = hit {
                self.sort_by(hit.column);
            }
        } else if let Some(row) = y
            .checked_sub(layout.host + 1)
            .filter(|row| *row < layout.list)
        {
            let row = self.top + row;
            if row < self.rows.len() {
                // The second click on a row asks why.
                if self.selected_row() == Some(row) {
                    return self.ask_why();
                }
                self.select(row);
            }
        }
    }
}

/// Returns the row that a key selects from `at` with `page` visible rows, not limited to existing rows.
fn goes_to(code: KeyCode, at: usize, rows: usize) -> Option<usize> {
    let page = rows.saturating_sub(1).max(1);
    Some(match code {
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => at + 1,
        KeyCode::PageUp => at.saturating_sub(page),
        KeyCode::PageDown => at + page,
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => usize::MAX,
        _ => return None,
    })
}

/// The rows of the screen from the top: the host, the head of the table, programs, promotions, keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenLayout {
    pub host: usize,
    pub list: usize,
    pub moves: usize,
}

#[cfg(test)]
mod tests;
