//! Panes that cover the table of programs: why, a question, a result, help. Data only, drawn by [`crate::draw`].

use hugeleaf_mover::{Outcome, Percent};
use hugeleaf_report::document::{Cell, CommandHint, ContentBlock, Document, Note};
use hugeleaf_report::promote::{HostCommands, PromotionDirection};
use hugeleaf_units::Failure;

use crate::actions::outcome_page;
use crate::model::TreeSample;
use crate::table::Column;

/// Selectable budgets, in percent of a program's time.
const BUDGETS: [u8; 7] = [1, 2, 5, 10, 20, 50, 100];

#[derive(Debug, Clone, PartialEq)]
pub struct Pane {
    /// Ticket of the answer that it waits for, or shows.
    pub ticket: u64,
    pub about: Option<TreeSample>,
    pub body: PaneContent,
    pub scroll: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum PaneContent {
    Waiting(&'static str),
    Page(Document),
    /// A question with the planned action.
    Ask(Box<Confirmation>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Confirmation {
    pub direction: PromotionDirection,
    pub budget: Percent,
    pub outcome: Outcome,
}

impl Confirmation {
    /// Selects the next higher or lower budget, and adjusts the estimated time.
    pub fn step(&mut self, up: bool) {
        let now = self.budget.get();
        let next = match up {
            true => BUDGETS.into_iter().find(|b| *b > now),
            false => BUDGETS.into_iter().rev().find(|b| *b < now),
        };
        let Some(next) = next.and_then(|next| Percent::new(next).ok()) else {
            return;
        };
        if let Some(seconds) = &mut self.outcome.estimated_seconds {
            *seconds *= f64::from(now) / f64::from(next.get());
        }
        self.budget = next;
    }

    pub fn is_something(&self) -> bool {
        !self.outcome.requested().is_zero()
    }

    pub fn page(&self, commands: &HostCommands, whom: &TreeSample) -> Document {
        outcome_page(commands, &self.outcome, whom, self.direction, self.budget)
    }

    /// Returns the question, and the effect of the answer yes.
    pub fn question(&self, whom: &TreeSample) -> [String; 2] {
        let verb = self.direction.verb();
        let asked = self.outcome.requested();
        let name = format!("{} ({})", whom.name, whom.pid);
        if !self.is_something() {
            return [
                format!("{name}: nothing to {verb}."),
                "Press any key to go back.".into(),
            ];
        }
        let what = match self.direction {
            PromotionDirection::Promote => format!("Promote {asked} of {name} to huge pages?"),
            PromotionDirection::Demote => format!("Demote {asked} of {name} to base pages?"),
        };
        let how = match self.budget {
            Percent::ALL => "full speed, which may slow it down; x stops it".to_owned(),
            budget => format!("calls take at most {budget} of its time; x stops it"),
        };
        [what, format!("It keeps running: {how}.")]
    }
}

/// Makes a page of the two lines of a refusal, as the command line prints them.
pub fn refused(refusal: &Failure) -> Document {
    let mut page = Document::new("refused", refusal.message.clone());
    page.mark = hugeleaf_report::document::StatusMark::Bad;
    page.add(vec![CommandHint::new("next", refusal.remedy.clone())]);
    page
}

pub fn help(can_move: bool, is_replay: bool) -> Document {
    let mut page = Document::new("help", "");
    let mut keys = vec![
        (
            "↑ ↓ PgUp PgDn Home End",
            "select another row; also j, k, g and G",
        ),
        (
            "Enter, w",
            "show why memory is not on huge pages, range by range",
        ),
    ];
    if can_move {
        keys.extend([
            ("p", "promote to huge pages, after a preview"),
            ("d", "demote to base pages, after a preview"),
            ("x", "stop the running promotion or demotion"),
        ]);
    }
    keys.extend([
        (
            "< >, s S",
            "sort by the next column left or right; r reverses",
        ),
        ("/", "filter by name, unit, user or PID; Esc shows all"),
        ("mouse", "click selects a row or sorts; the wheel scrolls"),
    ]);
    if is_replay {
        keys.extend([
            ("space", "pause, continue"),
            ("← →", "one scan back or forward; ten with Shift"),
            ("+ -", "faster, slower"),
        ]);
    }
    keys.extend([
        ("Ctrl-L", "redraw the screen"),
        ("Ctrl-Z", "suspend; fg continues"),
        ("q", "quit; also Ctrl-C"),
    ]);
    let facts = |(label, says): (&str, &str)| (label.to_owned(), says.into());
    let keys: Vec<(String, Cell)> = keys.into_iter().map(facts).collect();
    let columns = Column::ALL.map(|column| facts((column.name(), column.description())));
    page.section("KEYS", vec![keys.into()]);
    page.section("COLUMNS", vec![Vec::from(columns).into()]);
    let absent = "-: not read yet, or nothing to show; ?: this user may not read it.";
    let wide = "A wider screen shows more columns. < and > sort by any visible column.";
    page.add(ContentBlock::Notes(
        [absent, wide].map(Note::plain).to_vec(),
    ));
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::outcome;

    #[test]
    fn a_larger_budget_takes_less_time() {
        let mut ask = Confirmation {
            direction: PromotionDirection::Promote,
            budget: Percent::new(10).unwrap(),
            outcome: outcome(),
        };
        let seconds = ask.outcome.estimated_seconds.unwrap();
        ask.step(true);
        assert_eq!(
            (ask.budget.get(), ask.outcome.estimated_seconds),
            (20, Some(seconds / 2.0))
        );
        for _ in 0..9 {
            ask.step(true);
        }
        assert_eq!(ask.budget, Percent::ALL);
        assert!(ask.question(&TreeSample::default())[1].contains("full speed"));
        for _ in 0..9 {
            ask.step(false);
        }
        assert_eq!(ask.budget.get(), 1);
        assert!((ask.outcome.estimated_seconds.unwrap() / seconds - 10.0).abs() < 1e-9);
    }
}
