use std::fmt::Write;
use std::path::PathBuf;

use super::*;
use crate::actions::PromoteDemoteRequest;
use crate::app::{App, AppAction, AppEvent, TaskResult};
use crate::history::History;
use crate::model::HostSample;
use crate::tests::{app, busy, config, moving, outcome, playing, program, sample};
use hugeleaf_mover::Percent;
use hugeleaf_report::document::{ContentBlock, Document, Note, Table};
use hugeleaf_report::promote::PromotionDirection;
use hugeleaf_units::Bytes;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

pub(crate) fn drawn(app: &App) -> Buffer {
    let (columns, rows) = app.size;
    let mut terminal = Terminal::new(TestBackend::new(columns.max(1), rows.max(1))).unwrap();
    terminal.draw(|frame| draw(app, frame)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let (columns, rows) = (buffer.area.width, buffer.area.height);
    let line = |y| {
        let mut text = String::new();
        let mut x = 0;
        while x < columns {
            let symbol = buffer[(x, y)].symbol();
            text += symbol;
            // The second cell of a wide character is empty.
            x += u16::try_from(width(symbol).max(1)).unwrap();
        }
        text.trim_end().to_owned()
    };
    (0..rows).map(line).collect()
}

/// Returns the screen with the codes of its styles.
fn painted(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let cell = &buffer[(x, y)];
            let mut codes = Vec::new();
            for (modifier, code) in [
                (Modifier::BOLD, 1),
                (Modifier::DIM, 2),
                (Modifier::REVERSED, 7),
            ] {
                if cell.modifier.contains(modifier) {
                    codes.push(code);
                }
            }
            codes.extend(match cell.fg {
                Color::Red => Some(31),
                Color::Green => Some(32),
                Color::Yellow => Some(33),
                _ => None,
            });
            let codes: Vec<String> = codes.iter().map(u8::to_string).collect();
            write!(text, "\x1b[0;{}m{}", codes.join(";"), cell.symbol()).unwrap();
            x += u16::try_from(width(cell.symbol()).max(1)).unwrap();
        }
        text += "\x1b[0m\n";
    }
    text
}

/// Compares with the file of that name. HUGELEAF_BLESS=1 rewrites it. HUGELEAF_SCREENS=FOLDER draws it there.
fn expect(name: &str, app: &App) {
    let buffer = drawn(app);
    if let Some(folder) = std::env::var_os("HUGELEAF_SCREENS") {
        let svg = anstyle_svg::Term::new().render_svg(&painted(&buffer));
        std::fs::write(PathBuf::from(folder).join(format!("{name}.svg")), svg).unwrap();
    }
    let text = lines(&buffer).join("\n") + "\n";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/screens/{name}.txt"));
    if std::env::var_os("HUGELEAF_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}: HUGELEAF_BLESS=1 writes it anew");
}

fn press(app: &mut App, keys: &str) -> Vec<AppAction> {
    let mut effects = Vec::new();
    for c in keys.chars() {
        let code = if c == '\n' {
            KeyCode::Enter
        } else {
            KeyCode::Char(c)
        };
        effects = app.on(AppEvent::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    effects
}

/// Returns a view of a host whose coverage rose.
fn after_a_while(size: (u16, u16), colour: bool, last: &HostSample) -> App {
    let mut first = last.clone();
    let mut app = app(size, colour, first.clone());
    app.history = History::default();
    for n in 0..40u64 {
        first.host.private_huge_bytes = Bytes::from_mib(500 + n * 60);
        for one in first.programs.iter_mut().filter(|p| p.pid == 1021) {
            one.held = program(1021, "", 4096 - n * 25, n * 25).held;
        }
        app.history.add(&first);
    }
    app.on(AppEvent::Scanned(Box::new(last.clone())));
    app
}

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

#[test]
fn a_host() {
    for size in SIZES {
        let app = after_a_while(size, true, &sample());
        expect(&format!("host-{}x{}", size.0, size.1), &app);
    }
}

#[test]
fn a_host_with_a_guard_moves_and_a_problem() {
    for size in SIZES {
        let mut app = after_a_while(size, true, &busy());
        app.on(AppEvent::Progress(moving()));
        expect(&format!("busy-{}x{}", size.0, size.1), &app);
    }
}

/// Returns a page with all kinds of parts.
fn why_page() -> Document {
    let mut page = Document::new("why", "mariadbd 1021 (mariadb.service)");
    page.add("4G resident: 1G on huge pages, 3G could be promoted now");
    page.add(vec![hugeleaf_report::document::ShareBar {
        value: Bytes::from_mib(3072).into(),
        part: Some(0.75),
        name: "not-promoted".into(),
        text: "Nothing keeps it from huge pages: it was there before they were enabled.".into(),
        commands: vec![hugeleaf_report::document::CommandHint::new(
            "next",
            "hugeleaf promote 1021",
        )],
    }]);
    let row = [
        "7f0000000000-7f00c0000000",
        "3",
        "3G",
        "data",
        "not-promoted",
    ];
    let table = Table::from_items([row])
        .left("RANGE", |row| row[0])
        .right("EXTENTS", |row| row[1])
        .right("BYTES", |row| row[2])
        .left("ROLE", |row| row[3])
        .left("WHY", |row| row[4]);
    page.section("", vec![table.into()]);
    page.add(ContentBlock::Notes(vec![Note::new(
        "note",
        "of a server under load",
    )]));
    page
}

#[test]
fn why_and_a_question() {
    for size in SIZES {
        let mut app = after_a_while(size, true, &sample());
        let effects = press(&mut app, "w");
        let [AppAction::Why(ticket, _)] = effects[..] else {
            panic!()
        };
        expect(&format!("waiting-{}x{}", size.0, size.1), &app);
        app.on(AppEvent::Answer(ticket, TaskResult::Why(Ok(why_page()))));
        expect(&format!("why-{}x{}", size.0, size.1), &app);
        let effects = press(&mut app, "p");
        let [AppAction::Change(ticket, program, asked)] = &effects[..] else {
            panic!()
        };
        let answer = TaskResult::Changed(program.clone(), *asked, Box::new(Ok(outcome())));
        app.on(AppEvent::Answer(*ticket, answer));
        expect(&format!("ask-{}x{}", size.0, size.1), &app);
    }
}

#[test]
fn help_a_filter_and_a_recording() {
    for size in SIZES {
        let mut app = after_a_while(size, true, &sample());
        press(&mut app, "?");
        expect(&format!("help-{}x{}", size.0, size.1), &app);
        press(&mut app, "q/post");
        expect(&format!("filter-{}x{}", size.0, size.1), &app);
        let mut app = playing(300);
        app.on(AppEvent::Size(size.0, size.1));
        press(&mut app, " ");
        expect(&format!("replay-{}x{}", size.0, size.1), &app);
    }
}

#[test]
fn nothing_yet_nobody_and_one() {
    let mut empty = App::new(config(true), None);
    empty.on(AppEvent::Size(80, 24));
    expect("nothing-yet", &empty);
    let mut nobody = sample();
    nobody.programs.clear();
    expect("nobody", &app((80, 24), true, nobody));
    let mut one = sample();
    one.programs.truncate(1);
    (one.host.thp, one.host.rates, one.host.huge_page_bytes) = (None, None, None);
    one.host.pools.clear();
    (
        one.host.stalled_io,
        one.host.stalled_memory,
        one.host.stalled_processors,
    ) = (None, None, None);
    expect("one", &app((80, 24), true, one));
}

#[test]
fn a_small_terminal_says_so_down_to_nothing() {
    let mut app = app((40, 10), true, busy());
    expect("small-40x10", &app);
    assert_eq!(lines(&drawn(&app))[0], "hugeleaf top needs 52 columns");
    for columns in [0, 1, 2, 10, 51, 52, 53, 79, 133, 300] {
        for rows in [0, 1, 2, 11, 12, 13, 25, 90] {
            app.on(AppEvent::Size(columns, rows));
            for keys in ["", "w", "?", "/x"] {
                let mut app = app.clone();
                press(&mut app, keys);
                drawn(&app);
            }
        }
    }
}

/// The terminal may become smaller or larger before the view knows of it.
#[test]
fn a_terminal_of_another_size_than_is_known() {
    let app = app((120, 40), true, busy());
    for (columns, rows) in [(80, 24), (119, 40), (120, 39), (200, 60), (1, 1)] {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(&app, frame)).unwrap();
    }
}

#[test]
fn ten_thousand_programs() {
    let mut sample = sample();
    sample.programs = (1..=10_000)
        .map(|pid| program(pid, "worker", u64::from(pid % 977), 1))
        .collect();
    let mut app = app((80, 24), true, sample);
    press(&mut app, "G");
    let shown = lines(&drawn(&app));
    assert!(shown[23].ends_with("10000 of 10000"), "{}", shown[23]);
    assert_eq!(app.in_sight().len(), 16);
    press(&mut app, "/9999\n");
    assert_eq!(app.rows.len(), 1);
}

/// Names are untrusted. Control characters are escaped, and wide characters must not shift columns.
#[test]
fn names_of_all_kinds() {
    let names = [
        "\x1b[2Jevil\x07",
        "数据库服务器主进程很长",
        "a\tb\nc",
        "\u{202e}rtl",
        "e\u{301}\u{200b}x",
        "🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀",
        "",
        "a-name-that-is-far-too-long-for-any-column-of-the-table",
    ];
    let mut sample = busy();
    sample.programs = (names.iter().zip(1u32..))
        .map(|(name, pid)| {
            let mut program = program(pid, name, 100 - u64::from(pid), 0);
            program.unit = Some(format!("{name}.service"));
            program.user = Some((*name).to_owned());
            program.guard = Some((*name).to_owned());
            program
        })
        .collect();
    sample.problems = vec![names[0].to_owned()];
    sample.host.kernel = names[0].to_owned();
    sample.at = format!("{}漢", names[0]);
    for size in SIZES {
        let mut app = app(size, true, sample.clone());
        let mut going_on = moving();
        going_on.name = names[0].to_owned();
        app.on(AppEvent::Progress(going_on));
        expect(&format!("names-{}x{}", size.0, size.1), &app);
        app.on(AppEvent::Note(names[0].to_owned()));
        for keys in ["", "w", "?", "/\u{7f}数"] {
            let mut app = app.clone();
            press(&mut app, keys);
            let buffer = drawn(&app);
            for cell in buffer.content() {
                assert!(
                    !cell
                        .symbol()
                        .contains(|c: char| c.is_control() || c == '\u{202e}')
                );
            }
        }
    }
}

#[test]
fn without_colour_there_is_none_and_nothing_is_lost() {
    let mut with = after_a_while((120, 40), true, &busy());
    let mut without = after_a_while((120, 40), false, &busy());
    for app in [&mut with, &mut without] {
        app.on(AppEvent::Progress(moving()));
    }
    for keys in ["", "w", "?", "q/x"] {
        press(&mut with, keys);
        press(&mut without, keys);
        let (a, b) = (drawn(&with), drawn(&without));
        assert_eq!(lines(&a), lines(&b));
        for cell in b.content() {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
            assert!(!cell.modifier.contains(Modifier::DIM));
        }
    }
    assert!(
        drawn(&app((80, 24), true, busy()))
            .content()
            .iter()
            .any(|c| c.fg != Color::Reset)
    );
}

#[test]
fn a_move_in_a_line() {
    let mut one = moving();
    assert_eq!(
        move_line(&one),
        "promote mariadbd 1021: 1.2G of 3G, 19 s left, stall 9.2 % (budget 10 %, longest 3 ms)"
    );
    one.status.stage = "holding back".into();
    (one.status.done_bytes, one.status.call_seconds) = (Bytes::ZERO, 0.0);
    one.status.longest_stall_seconds = 0.0;
    assert_eq!(
        move_line(&one),
        "promote mariadbd 1021: holding back, 0 of 3G, stall 0.0 % (budget 10 %)"
    );
    (one.status.total_bytes, one.status.stage) = (Bytes::ZERO, "reading".into());
    assert_eq!(
        move_line(&one),
        "promote mariadbd 1021: reading (budget 10 %)"
    );
    let guard = &busy().moves[0];
    let says = "promote redis-server 977 by the guard: promoting (budget 10 %)";
    assert_eq!(move_line(guard), says);
}

#[test]
fn a_refused_move_is_a_page() {
    let mut app = app((80, 24), true, sample());
    let effects = press(&mut app, "d");
    let [AppAction::Change(ticket, program, _)] = &effects[..] else {
        panic!()
    };
    let asked = PromoteDemoteRequest {
        direction: PromotionDirection::Demote,
        budget: Percent::ALL,
        dry_run: true,
    };
    let refusal = hugeleaf_units::Failure::missing(
        "process_madvise: Operation not permitted: process 1021 of uid 27 of another user",
        "run as root, or: sudo setcap cap_sys_ptrace,cap_sys_nice+ep hugeleaf",
    );
    let answer = TaskResult::Changed(program.clone(), asked, Box::new(Err(refusal)));
    app.on(AppEvent::Answer(*ticket, answer));
    expect("refused-80x24", &app);
}
