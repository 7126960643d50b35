//! JSON of `apply` and `undo`.

use hugeleaf_plan::host_changes::{
    ApplyOutcome, JournaledApply, Obstacle, StepOutcome, StepPreview, UndoOutcome,
};
use serde_json::{Value, json};

use super::{AppliedPlanRemarks, begun, standing, todo};
use crate::json::{answer, merge_fields};

pub fn apply_json(outcome: &ApplyOutcome, asked: AppliedPlanRemarks<'_>) -> String {
    answer(&json!({
        "dry_run": false,
        "plan": asked.plan,
        "id": outcome.id,
        "continues": outcome.continues,
        "complete": outcome.is_good(),
        "stopped": outcome.stopped,
        "undone": outcome.reverted.is_some(),
        "steps": outcome.steps,
        "to_do": lines(&outcome.steps, outcome.systemd, asked),
        "warnings": asked.warnings,
    }))
}

pub fn dry_run_json(
    looked: &[StepPreview],
    obstacles: &[Obstacle],
    asked: AppliedPlanRemarks<'_>,
    systemd: bool,
) -> String {
    let mut steps: Vec<StepOutcome> = looked.iter().map(StepOutcome::from_preview).collect();
    let to_do = lines(&steps, systemd, asked);
    for step in &mut steps {
        // In a dry run, `after` is the planned value.
        step.after = step.wanted.clone();
    }
    answer(&json!({
        "dry_run": true,
        "plan": asked.plan,
        "steps": steps,
        "obstacles": obstacles.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "to_do": to_do,
        "warnings": asked.warnings,
    }))
}

pub fn undo_json(outcomes: &[UndoOutcome], dry_run: bool) -> String {
    let undone = |outcome: &UndoOutcome| {
        let to_do = todo(&outcome.steps, outcome.systemd);
        merge_fields(
            json!({ "complete": outcome.is_good(), "to_do": to_do }),
            outcome,
        )
    };
    let steps = outcomes.iter().flat_map(|outcome| {
        let step = |step| merge_fields(json!({ "apply": outcome.id }), step);
        outcome.steps.iter().map(step)
    });
    answer(&json!({
        "dry_run": dry_run,
        "applies": outcomes.iter().map(undone).collect::<Value>(),
        "steps": steps.collect::<Value>(),
    }))
}

pub fn list_json(all: &[JournaledApply]) -> String {
    let one = |one: &JournaledApply| {
        json!({
            "id": one.head.id,
            "time": one.head.time,
            "state": standing(one),
            "begun": begun(one),
            "plan": one.head.plan_file,
            "program": one.head.program,
            "forced": one.head.forced,
            "continues": one.head.continues,
            "damage": one.damage,
        })
    };
    answer(&json!({ "applies": all.iter().map(one).collect::<Value>() }))
}

fn lines(steps: &[StepOutcome], systemd: bool, asked: AppliedPlanRemarks<'_>) -> Vec<String> {
    let mut lines = todo(steps, systemd);
    lines.extend_from_slice(asked.by_hand);
    lines
}
