//! The same as JSON.

use hugeleaf_change::host::{
    Applied, ApplyOutcome, Looked, Obstacle, StepOutcome, StopReason, UndoOutcome,
};
use serde::Serialize;

use super::{Asked, begun, standing, todo};
use crate::json::answer;

/// The answer of `apply`.
pub fn apply_json(outcome: &ApplyOutcome, asked: Asked<'_>) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        dry_run: bool,
        plan: &'a str,
        id: Option<u32>,
        continues: Option<u32>,
        complete: bool,
        stopped: Option<&'a StopReason>,
        taken_back: bool,
        steps: &'a [StepOutcome],
        to_do: Vec<String>,
        warnings: &'a [String],
    }
    answer(&Answer {
        dry_run: false,
        plan: asked.plan,
        id: outcome.id,
        continues: outcome.continues,
        complete: outcome.is_good(),
        stopped: outcome.stopped.as_ref(),
        taken_back: outcome.taken_back.is_some(),
        steps: &outcome.steps,
        to_do: lines(&outcome.steps, outcome.systemd, asked),
        warnings: asked.warnings,
    })
}

/// The answer of `apply --dry-run`.
pub fn dry_run_json(
    looked: &[Looked],
    obstacles: &[Obstacle],
    asked: Asked<'_>,
    systemd: bool,
) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        dry_run: bool,
        plan: &'a str,
        steps: Vec<StepOutcome>,
        obstacles: Vec<String>,
        to_do: Vec<String>,
        warnings: &'a [String],
    }
    let mut steps: Vec<StepOutcome> = looked.iter().map(StepOutcome::of).collect();
    let to_do = lines(&steps, systemd, asked);
    for step in &mut steps {
        // What it would be.
        step.after = step.wanted.clone();
    }
    answer(&Answer {
        dry_run: true,
        plan: asked.plan,
        steps,
        obstacles: obstacles.iter().map(ToString::to_string).collect(),
        to_do,
        warnings: asked.warnings,
    })
}

/// The answer of `undo`.
pub fn undo_json(outcomes: &[UndoOutcome], dry_run: bool) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        dry_run: bool,
        applies: Vec<Undone<'a>>,
        steps: Vec<Step<'a>>,
    }
    #[derive(Serialize)]
    struct Undone<'a> {
        complete: bool,
        to_do: Vec<String>,
        #[serde(flatten)]
        outcome: &'a UndoOutcome,
    }
    #[derive(Serialize)]
    struct Step<'a> {
        apply: u32,
        #[serde(flatten)]
        step: &'a StepOutcome,
    }
    let applies = outcomes.iter().map(|outcome| Undone {
        complete: outcome.is_good(),
        to_do: todo(&outcome.steps, outcome.systemd),
        outcome,
    });
    let steps = outcomes.iter().flat_map(|outcome| {
        let apply = outcome.id;
        outcome.steps.iter().map(move |step| Step { apply, step })
    });
    answer(&Answer {
        dry_run,
        applies: applies.collect(),
        steps: steps.collect(),
    })
}

/// The answer of `undo --list`.
pub fn list_json<'a>(all: &'a [Applied]) -> String {
    #[derive(Serialize)]
    struct Answer<'a> {
        applies: Vec<One<'a>>,
    }
    #[derive(Serialize)]
    struct One<'a> {
        id: u32,
        time: &'a str,
        state: &'static str,
        begun: usize,
        plan: &'a str,
        program: &'a str,
        forced: Option<&'a str>,
        continues: Option<u32>,
        damage: &'a [String],
    }
    let one = |applied: &'a Applied| One {
        id: applied.head.id,
        time: &applied.head.time,
        state: standing(applied),
        begun: begun(applied),
        plan: &applied.head.plan_file,
        program: &applied.head.program,
        forced: applied.head.forced.as_deref(),
        continues: applied.head.continues,
        damage: &applied.damage,
    };
    answer(&Answer {
        applies: all.iter().map(one).collect(),
    })
}

fn lines(steps: &[StepOutcome], systemd: bool, asked: Asked<'_>) -> Vec<String> {
    let mut lines = todo(steps, systemd);
    lines.extend_from_slice(asked.by_hand);
    lines
}
