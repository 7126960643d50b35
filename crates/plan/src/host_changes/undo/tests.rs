use super::super::record::RecordedStep;
use super::*;
use crate::FollowUp;

fn step(before: PathState, wanted: PathState, after: Option<PathState>) -> AppliedStep {
    AppliedStep {
        listed: RecordedStep {
            id: "s".to_owned(),
            what: "knob".to_owned(),
            path: "/k".into(),
            why: String::new(),
            verify: String::new(),
            needs: FollowUp::Nothing,
            state: StepState::Done,
        },
        applied: StepState::Done,
        begun: Some(BeginRecord {
            step: "s".to_owned(),
            what: "knob".to_owned(),
            path: "/k".into(),
            before,
            wanted,
            makes: Vec::new(),
            block: None,
            beside: None,
        }),
        after,
        side_effect: None,
    }
}

fn value(text: &str) -> PathState {
    PathState::Value {
        value: text.to_owned(),
    }
}

fn pool(pages: u64) -> PathState {
    PathState::Pool { pages, surplus: 0 }
}

const RULES: UndoConditions = UndoConditions {
    even: false,
    rebooted: false,
};

#[test]
fn as_before_as_left_and_changed_meanwhile() {
    let made = step(value("a"), value("b"), Some(value("b")));
    assert_eq!(decide(&value("a"), &made, RULES), UndoAction::Nothing);
    assert_eq!(
        decide(&value("b"), &made, RULES),
        UndoAction::To(value("a"))
    );
    assert_eq!(decide(&value("c"), &made, RULES), UndoAction::LeaveAlone);
    let even = UndoConditions {
        even: true,
        ..RULES
    };
    assert_eq!(decide(&value("c"), &made, even), UndoAction::To(value("a")));
    // `even_if_changed` does not permit unmounting another file system.
    let other = PathState::OtherMount {
        kind: "tmpfs".to_owned(),
    };
    let mounted = step(
        PathState::NoMount,
        PathState::Mount {
            options: String::new(),
        },
        None,
    );
    assert_eq!(decide(&other, &mounted, even), UndoAction::LeaveAlone);
}

#[test]
fn a_pool_that_was_on_its_way_is_ours_and_one_that_was_done_is_not() {
    let killed = step(pool(2), pool(10), None);
    for pages in [3, 9, 10] {
        assert_eq!(
            decide(&pool(pages), &killed, RULES),
            UndoAction::To(pool(2))
        );
    }
    assert_eq!(decide(&pool(11), &killed, RULES), UndoAction::LeaveAlone);
    let done = step(pool(2), pool(10), Some(pool(8)));
    assert_eq!(decide(&pool(8), &done, RULES), UndoAction::To(pool(2)));
    assert_eq!(decide(&pool(9), &done, RULES), UndoAction::LeaveAlone);
    // After a boot the configuration files have set it, as far as pages were available.
    let rebooted = UndoConditions {
        rebooted: true,
        ..RULES
    };
    assert_eq!(decide(&pool(9), &done, rebooted), UndoAction::To(pool(2)));
    assert_eq!(decide(&pool(12), &done, rebooted), UndoAction::LeaveAlone);
}

#[test]
fn a_block_is_cut_out_of_a_file_that_others_changed() {
    let file = |bytes: &[u8]| PathState::File {
        content: FileContent(bytes.to_vec()),
        mode: 0o600,
        uid: 1,
        gid: 2,
        attributes: Vec::new(),
    };
    let with = config_block::put(b"one\n", "s", "x\n").unwrap();
    let mut made = step(file(b"one\n"), file(&with), Some(file(&with)));
    made.begun.as_mut().unwrap().block = Some("x\n".to_owned());
    assert_eq!(
        decide(&file(&with), &made, RULES),
        UndoAction::To(file(b"one\n"))
    );
    let longer = [&with[..], b"two\n"].concat();
    assert_eq!(
        decide(&file(&longer), &made, RULES),
        UndoAction::Cut(file(b"one\ntwo\n"))
    );
    let edited = String::from_utf8(longer).unwrap().replace("x\n", "y\n");
    assert_eq!(
        decide(&file(edited.as_bytes()), &made, RULES),
        UndoAction::LeaveAlone
    );
}
