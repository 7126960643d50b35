//! Damaged journals: the intact records are used, and the damage is reported.

use hugeleaf_host::Root;
use hugeleaf_plan::host_changes::{HostChangeError, StepState, applied};
use hugeleaf_sys::Kernel;

use super::tree::{Tree, assert_same, steps};
use super::{apply_to, options, state, undo_newest};

const LOG: &str = "var/lib/hugeleaf/journal/0001.log";

#[test]
fn cut_off_anywhere_what_was_begun_before_is_undone_and_the_cut_is_told() {
    let whole = {
        let tree = Tree::new();
        apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
        tree.read(LOG)
    };
    let head = whole.find('\n').unwrap() + 1;
    for end in (head..whole.len()).step_by(97) {
        let tree = Tree::new();
        apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
        tree.write(LOG, &whole[..end]);
        let begun = whole[..end].matches("\"record\":\"begin\"").count();
        let undone = undo_newest(tree.path(), &Kernel::new()).unwrap();
        // A begin record with a damaged line does not count.
        let steps = &undone[0].steps;
        assert!(
            steps.len() == begun || steps.len() + 1 == begun,
            "cut at {end}"
        );
        let reported = !undone[0].damage.is_empty() || whole[..end].ends_with('\n');
        assert!(reported, "cut at {end}");
        for step in steps {
            assert_eq!(step.state, StepState::Restored, "cut at {end}: {}", step.id);
        }
    }
}

#[test]
fn damaged_in_the_middle_the_rest_is_still_undone() {
    let tree = Tree::new();
    let before = tree.snapshot();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let text = tree.read(LOG);
    let damaged = text.replacen("\"step\":\"pool\"", "\"step\":\"poll\"", 1);
    assert_ne!(text, damaged);
    tree.write(LOG, &damaged);
    let undone = undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_eq!(undone[0].damage.len(), 1, "{undone:#?}");
    assert!(
        undone[0].damage[0].contains("0001.log: line"),
        "{undone:#?}"
    );
    assert_eq!(state(&undone[0].steps, "group"), StepState::Restored);
    // Only the step with the lost beginning stays.
    assert_eq!(tree.read(super::tree::POOL), "5\n");
    tree.write(super::tree::POOL, "0\n");
    assert_same(&before, &tree.snapshot(), "but for the pool");
}

#[test]
fn without_its_head_a_journal_still_undoes() {
    let tree = Tree::new();
    let before = tree.snapshot();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let text = tree.read(LOG);
    let (_, rest) = text.split_once('\n').unwrap();
    tree.write(LOG, rest);
    let all = applied(&Root::at(tree.path()));
    assert!(!all.known().unwrap()[0].damage.is_empty());
    undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_same(&before, &tree.snapshot(), "undone");
}

#[test]
fn noise_is_no_journal_and_hurts_nothing() {
    let tree = Tree::new();
    let before = tree.snapshot();
    tree.write(LOG, "noise\n\u{0}\u{1}\n");
    tree.write("var/lib/hugeleaf/journal/other.txt", "noise");
    let undone = undo_newest(tree.path(), &Kernel::new()).unwrap();
    assert_eq!((undone[0].steps.len(), undone[0].damage.len()), (0, 2));
    assert_same(&before, &tree.snapshot(), "nothing to undo");
    let outcome = apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    assert_eq!(outcome.id, Some(2));
}

/// Returns a journal line with its checksum.
fn line(body: &str) -> String {
    format!("{:08x} {body}\n", crc32fast::hash(body.as_bytes()))
}

#[test]
fn a_journal_of_a_newer_program_is_left_to_that() {
    let tree = Tree::new();
    apply_to(tree.path(), &Kernel::new(), &steps(), &options()).unwrap();
    let text = tree.read(LOG);
    let (head, rest) = text.split_once('\n').unwrap();
    let newer = head[9..].replacen("\"schema\":1", "\"schema\":2", 1);
    let unknown = "99 {\"record\":\"frozen\",\"step\":\"pool\"}";
    for changed in [line(&newer) + rest, text.clone() + &line(unknown)] {
        tree.write(LOG, &changed);
        let before = tree.snapshot();
        let refused = undo_newest(tree.path(), &Kernel::new()).unwrap_err();
        assert!(
            matches!(refused, HostChangeError::Newer { id: 1, .. }),
            "{refused}"
        );
        let refused = apply_to(
            tree.path(),
            &Kernel::new(),
            &[super::tree::pool(9)],
            &options(),
        );
        assert!(matches!(refused, Err(HostChangeError::Newer { id: 1, .. })));
        assert_same(&before, &tree.snapshot(), "nothing was touched");
    }
}
