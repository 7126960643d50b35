use super::*;
use crate::model::{GuardSummary, ProcessTreeMemory};
use crate::tests::{app, busy, config, moving, outcome, playing, program, sample};
use hugeleaf_sys::own_pid;
use hugeleaf_units::Bytes;
use proptest::prelude::*;

fn key(code: KeyCode) -> AppEvent {
    AppEvent::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn with(modifiers: KeyModifiers, c: char) -> AppEvent {
    AppEvent::Key(KeyEvent::new(KeyCode::Char(c), modifiers))
}

/// Types each character. Returns the effects of the last one.
fn typed(app: &mut App, text: &str) -> Vec<AppAction> {
    let mut effects = Vec::new();
    for c in text.chars() {
        effects = app.on(key(KeyCode::Char(c)));
    }
    effects
}

fn mouse(kind: MouseEventKind, column: u16, row: u16) -> AppEvent {
    AppEvent::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    })
}

const CLICK: MouseEventKind = MouseEventKind::Down(MouseButton::Left);

fn selected(app: &App) -> u32 {
    app.program_at(app.selected_row().unwrap()).unwrap().pid
}

fn usual() -> App {
    app((80, 24), false, sample())
}

fn refusal() -> Failure {
    Failure::missing("process_madvise: Operation not permitted", "run as root")
}

/// Presses `p` on the selected program, and answers with a dry run.
fn asked(app: &mut App) -> (u64, Box<TreeSample>, PromoteDemoteRequest) {
    let effects = typed(app, "p");
    let [AppAction::Change(ticket, program, asked)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert!(asked.dry_run);
    let answer = TaskResult::Changed(program.clone(), *asked, Box::new(Ok(outcome())));
    assert!(app.on(AppEvent::Answer(*ticket, answer)).is_empty());
    (*ticket, program.clone(), *asked)
}

#[test]
fn what_could_be_moved_is_first_and_marked() {
    let app = usual();
    assert_eq!(selected(&app), 1021);
    assert_eq!(app.wanted().selected.unwrap().pid, 1021);
    assert_eq!(app.wanted().visible.len(), 7);
}

#[test]
fn keys_move_the_mark_and_stop_at_the_ends() {
    let mut app = usual();
    for (code, row) in [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::Char('j'), 2),
        (KeyCode::Char('k'), 1),
        (KeyCode::End, 6),
        (KeyCode::Down, 6),
        (KeyCode::PageUp, 0),
        (KeyCode::PageDown, 6),
        (KeyCode::Home, 0),
        (KeyCode::Char('G'), 6),
        (KeyCode::Char('g'), 0),
    ] {
        assert!(app.on(key(code)).is_empty());
        assert_eq!(app.selected_row(), Some(row), "{code:?}");
    }
}

#[test]
fn the_mark_stays_with_its_program() {
    let mut app = usual();
    app.on(key(KeyCode::Down));
    let marked = selected(&app);
    // It is by far the smallest now, and below another one.
    let mut next = sample();
    for program in next.programs.iter_mut().filter(|p| p.pid == marked) {
        program.held = Some(ProcessTreeMemory::default());
    }
    app.on(AppEvent::Scanned(Box::new(next.clone())));
    assert_eq!(selected(&app), marked);
    assert!(app.selected_row().unwrap() > 1);
    // It ends, and the row stays selected.
    let row = app.selected_row().unwrap();
    next.programs.retain(|p| p.pid != marked);
    app.on(AppEvent::Scanned(Box::new(next.clone())));
    assert_eq!(app.selected_row(), Some(row.min(5)));
    // Another program with that PID is not the same.
    let now = selected(&app);
    for program in next.programs.iter_mut().filter(|p| p.pid == now) {
        program.start_ticks += 1;
    }
    app.on(AppEvent::Scanned(Box::new(next)));
    assert!(app.selected_row().is_some());
}

#[test]
fn columns_sort_by_key_and_by_click() {
    let mut app = usual();
    assert_eq!(app.sort.column, Column::Small);
    typed(&mut app, ">");
    assert_eq!(
        (app.sort.column, app.sort.descending),
        (Column::Large, true)
    );
    typed(&mut app, "r");
    assert!(!app.sort.descending);
    typed(&mut app, "<<<");
    assert_eq!((app.sort.column, app.sort.descending), (Column::Pid, false));
    typed(&mut app, "<");
    assert_eq!(app.sort.column, Column::Resident);
    typed(&mut app, "s");
    assert_eq!(app.sort.column, Column::Pid);
    app.sort = Sort::by(Column::History);
    for placed in app.columns() {
        app.on(mouse(CLICK, u16::try_from(placed.x).unwrap(), 6));
        assert_eq!(app.sort, Sort::by(placed.column));
        app.on(mouse(
            CLICK,
            u16::try_from(placed.x + placed.width - 1).unwrap(),
            6,
        ));
        assert_ne!(app.sort, Sort::by(placed.column));
        app.sort = Sort::by(Column::History);
    }
}

#[test]
fn a_click_marks_a_second_asks_why_and_the_wheel_scrolls() {
    let mut app = usual();
    assert!(app.on(mouse(CLICK, 3, 9)).is_empty());
    assert_eq!(app.selected_row(), Some(2));
    assert!(matches!(&app.on(mouse(CLICK, 70, 9))[..], [AppAction::Why(_, p)] if p.pid == 2210));
    app.mode = AppMode::List;
    // Clicks on the host's lines, below the rows and on the last line have no effect.
    for row in [0, 3, 20, 23, 500] {
        assert!(app.on(mouse(CLICK, 3, row)).is_empty());
    }
    assert_eq!(app.selected_row(), Some(2));
    app.on(mouse(MouseEventKind::ScrollDown, 0, 0));
    assert_eq!(app.selected_row(), Some(5));
    app.on(mouse(MouseEventKind::ScrollUp, 0, 0));
    assert_eq!(app.selected_row(), Some(2));
}

#[test]
fn a_filter_is_typed_kept_and_dropped() {
    let mut app = usual();
    typed(&mut app, "/mari");
    assert_eq!((app.rows.len(), selected(&app)), (1, 1021));
    // In a filter, command letters are text.
    typed(&mut app, "q");
    assert!(app.rows.is_empty() && app.selected_row().is_none());
    app.on(key(KeyCode::Backspace));
    app.on(key(KeyCode::Enter));
    assert_eq!((app.filter.as_str(), &app.mode), ("mari", &AppMode::List));
    typed(&mut app, "/x");
    app.on(key(KeyCode::Esc));
    assert_eq!(app.filter, "mari");
    app.on(key(KeyCode::Esc));
    assert_eq!((app.filter.as_str(), app.rows.len()), ("", 7));
    typed(&mut app, "/abc");
    app.on(with(KeyModifiers::CONTROL, 'u'));
    assert_eq!(app.filter, "");
    app.on(AppEvent::Paste("post\u{1b}gres\n".into()));
    assert_eq!((app.filter.as_str(), app.rows.len()), ("postgres", 1));
    app.on(AppEvent::Paste("x".repeat(5000)));
    assert_eq!(app.filter.chars().count(), LONGEST_FILTER);
}

#[test]
fn pasted_text_is_no_order() {
    let mut app = usual();
    let before = app.clone();
    assert!(app.on(AppEvent::Paste("d\ny\nq".into())).is_empty());
    assert_eq!(app, before);
}

#[test]
fn why_waits_shows_and_goes_back() {
    let mut app = usual();
    let effects = app.on(key(KeyCode::Enter));
    let [AppAction::Why(ticket, program)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(program.pid, 1021);
    // An answer to another ticket is ignored.
    app.on(AppEvent::Answer(
        ticket + 7,
        TaskResult::Why(Ok(Document::new("", "other"))),
    ));
    assert!(matches!(&app.mode, AppMode::Pane(p) if matches!(p.body, PaneContent::Waiting(_))));
    let long: String = (0..200)
        .map(|n| format!("word{n} "))
        .collect::<String>()
        .repeat(9);
    app.on(AppEvent::Answer(
        *ticket,
        TaskResult::Why(Ok(Document::new("", long))),
    ));
    let scroll = |app: &App| match &app.mode {
        AppMode::Pane(pane) => pane.scroll,
        _ => panic!(),
    };
    let length = match &app.mode {
        AppMode::Pane(pane) => app.pane_lines(pane).len() - app.pane_height(pane),
        _ => panic!(),
    };
    for (code, at) in [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::End, length),
        (KeyCode::Down, length),
        (KeyCode::Up, length - 1),
        (KeyCode::Home, 0),
    ] {
        app.on(key(code));
        assert_eq!(scroll(&app), at, "{code:?}");
    }
    app.on(mouse(MouseEventKind::ScrollDown, 0, 0));
    assert_eq!(scroll(&app), 3);
    app.on(key(KeyCode::End));
    // A taller screen shows all, so nothing is left to scroll.
    app.on(AppEvent::Size(200, 200));
    assert_eq!(scroll(&app), 0);
    app.on(key(KeyCode::Esc));
    assert_eq!(app.mode, AppMode::List);
    // This answer comes too late.
    app.on(AppEvent::Answer(*ticket, TaskResult::Why(Err(refusal()))));
    assert_eq!(app.mode, AppMode::List);
}

#[test]
fn a_move_is_asked_for_and_only_y_is_yes() {
    for no in ["n", "q"] {
        let mut app = usual();
        asked(&mut app);
        assert!(typed(&mut app, no).is_empty());
        assert_eq!(app.mode, AppMode::List);
    }
    let mut app = usual();
    asked(&mut app);
    assert!(app.on(key(KeyCode::Enter)).is_empty());
    assert!(typed(&mut app, "pdw x").is_empty());
    assert!(app.moving.is_none());
    typed(&mut app, "++-");
    let effects = typed(&mut app, "y");
    let [AppAction::Change(_, program, asked)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(
        (program.pid, asked.dry_run, asked.budget.get()),
        (1021, false, 20)
    );
    assert_eq!(asked.direction, PromotionDirection::Promote);
    assert_eq!((&app.mode, app.moves().len()), (&AppMode::List, 1));
    let mut app = usual();
    typed(&mut app, "d");
    assert!(matches!(&app.mode, AppMode::Pane(_)));
}

#[test]
fn one_move_at_a_time_is_shown_stopped_and_reported() {
    let mut app = usual();
    let (_, program, _) = asked(&mut app);
    let effects = typed(&mut app, "y");
    let [AppAction::Change(ticket, _, asked)] = effects[..] else {
        panic!("{effects:?}");
    };
    app.on(AppEvent::Progress(moving()));
    assert_eq!(app.moves()[0].status, moving().status);
    assert!(typed(&mut app, "p").is_empty());
    assert!(
        app.note.as_deref().unwrap().starts_with("only one"),
        "{:?}",
        app.note
    );
    assert_eq!(typed(&mut app, "x"), [AppAction::StopMove]);
    assert!(typed(&mut app, "q").is_empty());
    assert!(app.note.as_deref().unwrap().contains("q again stops it"));
    // Another key cancels the request to quit.
    typed(&mut app, "j");
    assert!(typed(&mut app, "q").is_empty());
    assert_eq!(typed(&mut app, "q"), [AppAction::StopMove, AppAction::Quit]);
    let answer = TaskResult::Changed(program, asked, Box::new(Ok(outcome())));
    app.on(AppEvent::Answer(ticket, answer));
    assert!(app.moving.is_none() && matches!(&app.mode, AppMode::Pane(_)));
    app.on(key(KeyCode::Esc));
    assert!(typed(&mut app, "x").is_empty());
    assert_eq!(typed(&mut app, "q"), [AppAction::StopMove, AppAction::Quit]);
}

/// The result of a promotion does not replace the pane that the user reads.
#[test]
fn a_move_that_ends_meanwhile_says_so_in_a_line() {
    let mut app = usual();
    let (ticket, program, mut asked) = asked(&mut app);
    typed(&mut app, "y?");
    asked.dry_run = false;
    app.on(AppEvent::Answer(
        ticket + 1,
        TaskResult::Changed(program, asked, Box::new(Err(refusal()))),
    ));
    assert!(matches!(&app.mode, AppMode::Pane(p) if p.about.is_none()));
    let note = app.note.as_deref().unwrap();
    assert_eq!(
        note,
        "mariadbd (1021): process_madvise: Operation not permitted"
    );
}

#[test]
fn a_refusal_has_both_lines() {
    let mut app = usual();
    let effects = typed(&mut app, "p");
    let [AppAction::Change(ticket, program, asked)] = &effects[..] else {
        panic!("{effects:?}");
    };
    app.on(AppEvent::Answer(
        *ticket,
        TaskResult::Changed(program.clone(), *asked, Box::new(Err(refusal()))),
    ));
    let AppMode::Pane(pane) = &app.mode else {
        panic!()
    };
    let lines: Vec<String> = (app.pane_lines(pane).iter())
        .map(|line| line.iter().map(|(text, _)| text.as_str()).collect())
        .collect();
    assert_eq!(
        lines,
        [
            "process_madvise: Operation not permitted",
            "next: run as root"
        ]
    );
}

#[test]
fn nothing_to_move_is_no_question() {
    let mut app = usual();
    let effects = typed(&mut app, "p");
    let [AppAction::Change(ticket, program, asked)] = &effects[..] else {
        panic!("{effects:?}");
    };
    let mut nothing = outcome();
    nothing.totals.requested = Bytes::ZERO;
    let answer = TaskResult::Changed(program.clone(), *asked, Box::new(Ok(nothing)));
    app.on(AppEvent::Answer(*ticket, answer));
    assert!(typed(&mut app, "y").is_empty());
    assert_eq!((&app.mode, &app.moving), (&AppMode::List, &None));
}

#[test]
fn who_may_not_be_moved_says_why() {
    let mut app = usual();
    app.config.can_move = false;
    app.config.why_not = "--read-only was given";
    for order in ["p", "d"] {
        assert!(typed(&mut app, order).is_empty());
        assert_eq!(app.note.as_deref(), Some("--read-only was given"));
    }
    let mut own = program(own_pid().0, "hugeleaf", 9000, 0);
    own.pids = vec![own_pid().0];
    let mut sample = sample();
    sample.programs.push(own);
    let mut app = crate::tests::app((80, 24), false, sample);
    assert!(typed(&mut app, "p").is_empty());
    assert_eq!(
        app.note.as_deref(),
        Some("hugeleaf cannot promote or demote itself")
    );
}

#[test]
fn control_letters_are_no_letters() {
    let mut app = usual();
    let control = |c| with(KeyModifiers::CONTROL, c);
    assert_eq!(app.on(control('c')), [AppAction::StopMove, AppAction::Quit]);
    assert_eq!(app.on(control('z')), [AppAction::Suspend]);
    assert_eq!(app.on(control('l')), [AppAction::Redraw]);
    for c in ['p', 'd', 'q', 'y', 'w'] {
        assert!(app.on(control(c)).is_empty());
        assert!(app.on(with(KeyModifiers::ALT, c)).is_empty());
    }
    assert_eq!(app.mode, AppMode::List);
    let mut release = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
    release.kind = KeyEventKind::Release;
    assert!(app.on(AppEvent::Key(release)).is_empty());
    // It also works from a pane and from a filter.
    typed(&mut app, "/");
    assert_eq!(app.on(control('c')), [AppAction::StopMove, AppAction::Quit]);
    app.on(key(KeyCode::Esc));
    typed(&mut app, "?");
    assert_eq!(app.on(control('c')), [AppAction::StopMove, AppAction::Quit]);
}

#[test]
fn a_recording_plays_pauses_steps_and_ends() {
    let mut app = playing(30);
    assert_eq!(app.tick_after(), Some(Duration::from_secs(1)));
    assert_eq!(app.on(AppEvent::Tick), [AppAction::Show(1)]);
    typed(&mut app, "++");
    assert_eq!(app.tick_after(), Some(Duration::from_millis(250)));
    typed(&mut app, "---");
    assert_eq!(app.tick_after(), Some(Duration::from_secs(2)));
    app.on(AppEvent::Played(1, Box::new(sample())));
    assert_eq!(app.history.host.fitted(9).len(), 2);
    typed(&mut app, " ");
    assert_eq!((app.tick_after(), app.on(AppEvent::Tick).len()), (None, 0));
    assert_eq!(app.on(key(KeyCode::Right)), [AppAction::Show(2)]);
    assert_eq!(app.on(key(KeyCode::Left)), [AppAction::Show(0)]);
    let far = AppEvent::Key(KeyEvent::new(KeyCode::Right, KeyModifiers::SHIFT));
    assert_eq!(app.on(far), [AppAction::Show(11)]);
    app.on(AppEvent::Played(0, Box::new(sample())));
    assert_eq!(app.history.host.fitted(9).len(), 1);
    app.on(AppEvent::Played(29, Box::new(sample())));
    assert_eq!(app.on(key(KeyCode::Right)), [AppAction::Show(29)]);
    assert_eq!((app.tick_after(), app.on(AppEvent::Tick).len()), (None, 0));
    assert_eq!(typed(&mut app, " "), [AppAction::Show(0)]);
    // A recording has neither ranges nor processes.
    assert!(typed(&mut app, "w").is_empty());
    assert!(app.note.as_deref().unwrap().contains("hugeleaf why 1021"));
}

#[test]
fn what_others_move_is_shown_too() {
    let mut app = app((80, 24), false, busy());
    app.on(AppEvent::Progress(moving()));
    let by: Vec<&str> = app.moves().iter().map(|m| m.by.as_str()).collect();
    assert_eq!(by, ["top", "guard"]);
    let layout = app.layout();
    assert_eq!((layout.host, layout.moves, layout.list), (8, 2, 12));
    let mut sample = busy();
    sample.guard = Some(GuardSummary::default());
    sample.moves = vec![moving(); 9];
    app.on(AppEvent::Scanned(Box::new(sample)));
    assert_eq!(app.layout().moves, 1);
}

fn any_event() -> impl Strategy<Value = AppEvent> {
    let code = prop_oneof![
        proptest::sample::select(
            "jkgGwpdxyn+-/?hqrs<> S\u{0}\u{7f}ä漢"
                .chars()
                .collect::<Vec<_>>()
        )
        .prop_map(KeyCode::Char),
        proptest::sample::select(vec![
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::PageUp,
            KeyCode::PageDown,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Backspace,
            KeyCode::Tab,
            KeyCode::F(1),
        ]),
    ];
    let kinds = proptest::sample::select(vec![
        CLICK,
        MouseEventKind::ScrollUp,
        MouseEventKind::ScrollDown,
    ]);
    prop_oneof![
        6 => code.prop_map(key),
        2 => (kinds, 0u16..300, 0u16..100).prop_map(|(kind, x, y)| mouse(kind, x, y)),
        1 => (0u16..300, 0u16..100).prop_map(|(x, y)| AppEvent::Size(x, y)),
        1 => (0u32..60).prop_map(|n| {
            let mut sample = busy();
            sample.programs = (0..n).map(|pid| program(pid * 7 % 50, "p", u64::from(pid), 3)).collect();
            AppEvent::Scanned(Box::new(sample))
        }),
        1 => ".*".prop_map(AppEvent::Paste),
        1 => ".*".prop_map(AppEvent::Note),
        1 => Just(AppEvent::Progress(moving())),
        1 => (0u64..9, any::<bool>(), any::<bool>()).prop_map(|(ticket, dry_run, good)| {
            let asked = PromoteDemoteRequest { direction: PromotionDirection::Demote, budget: Percent::ALL, dry_run };
            let result = if good { Ok(outcome()) } else { Err(refusal()) };
            let program = Box::new(program(3, "x", 1, 1));
            AppEvent::Answer(ticket, TaskResult::Changed(program, asked, Box::new(result)))
        }),
        1 => (0u64..9).prop_map(|ticket| AppEvent::Answer(ticket, TaskResult::Why(Ok(Document::new("", "a b c"))))),
        1 => Just(AppEvent::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(hugeleaf_testkit::size(48, 256)))]
    /// Checks any order of events: no panic, a visible selection, and no promotion without `y`.
    #[test]
    fn no_order_of_events_breaks_it(events in proptest::collection::vec(any_event(), 0..120)) {
        let mut app = App::new(config(true), None);
        for event in events {
            let is_yes = event == key(KeyCode::Char('y'));
            let effects = app.on(event);
            let moves = effects.iter().any(|e| matches!(e, AppAction::Change(_, _, asked) if !asked.dry_run));
            prop_assert!(!moves || is_yes);
            if let Some(row) = app.selected_row() {
                let list = app.layout().list;
                prop_assert!(list == 0 || (app.top..app.top + list).contains(&row), "{row} {}", app.top);
            }
            crate::draw::tests::drawn(&app);
        }
    }
}
