//! The same as JSON.

use hugeleaf_change::host::{
    Applied, ApplyOutcome, Looked, Obstacle, Place, Shortage, StepOutcome, StopReason, UndoOutcome,
};
use hugeleaf_verdict::plan::Needs;
use serde_json::{Value, json};

use super::{Asked, shown, standing, todo};
use crate::json::Object;

/// The answer of `apply`.
pub fn apply_json(outcome: &ApplyOutcome, asked: Asked<'_>) -> String {
    let mut answer = Object::answer();
    answer
        .put("dry_run", false)
        .put("plan", asked.plan)
        .put_some("id", outcome.id)
        .put_some("continues", outcome.continues)
        .put("complete", outcome.is_good())
        .put_some("stopped", outcome.stopped.as_ref().map(stopped))
        .put("taken_back", outcome.taken_back.is_some())
        .put("steps", outcome.steps.iter().map(step).collect::<Value>())
        .put("to_do", lines(&outcome.steps, outcome.systemd, asked))
        .put("warnings", asked.warnings.to_vec());
    answer.render()
}

/// The answer of `apply --dry-run`.
pub fn dry_run_json(
    looked: &[Looked],
    obstacles: &[Obstacle],
    asked: Asked<'_>,
    systemd: bool,
) -> String {
    let steps: Vec<StepOutcome> = looked.iter().map(StepOutcome::of).collect();
    let each = steps.iter().map(|one| {
        let mut value = step(one);
        // What it would be.
        if let (Some(Some(wanted)), Some(object)) = (
            one.wanted.as_ref().map(|wanted| place(wanted, shown)),
            value.as_object_mut(),
        ) {
            object.insert("after".to_owned(), wanted);
        }
        value
    });
    let mut answer = Object::answer();
    answer
        .put("dry_run", true)
        .put("plan", asked.plan)
        .put("steps", each.collect::<Value>())
        .put(
            "obstacles",
            obstacles.iter().map(ToString::to_string).collect::<Value>(),
        )
        .put("to_do", lines(&steps, systemd, asked))
        .put("warnings", asked.warnings.to_vec());
    answer.render()
}

/// The answer of `undo`.
pub fn undo_json(outcomes: &[UndoOutcome], dry_run: bool) -> String {
    let steps = outcomes.iter().flat_map(|outcome| {
        outcome.steps.iter().map(|one| {
            let mut value = step(one);
            if let Some(object) = value.as_object_mut() {
                object.insert("apply".to_owned(), outcome.id.into());
            }
            value
        })
    });
    let applies = outcomes.iter().map(|outcome| {
        json!({
            "id": outcome.id,
            "time": outcome.time,
            "finished": outcome.finished,
            "complete": outcome.is_good(),
            "unjournaled": outcome.unjournaled,
            "damage": outcome.damage,
            "to_do": todo(&outcome.steps, outcome.systemd),
        })
    });
    let mut answer = Object::answer();
    answer
        .put("dry_run", dry_run)
        .put("applies", applies.collect::<Value>())
        .put("steps", steps.collect::<Value>());
    answer.render()
}

/// The answer of `undo --list`.
pub fn list_json(all: &[Applied]) -> String {
    let applies = all.iter().map(|one| {
        let mut object = Object::new();
        let begun = one.steps.iter().filter(|s| s.before.is_some()).count();
        object
            .put("id", one.id)
            .put("time", one.time.clone())
            .put("state", standing(one))
            .put("begun", begun)
            .put("plan", one.plan_file.clone())
            .put("program", one.program.clone())
            .put_some("forced", one.forced.clone())
            .put_some("continues", one.continues)
            .put("damage", one.damage.clone());
        object.build()
    });
    let mut answer = Object::answer();
    answer.put("applies", applies.collect::<Value>());
    answer.render()
}

fn lines(steps: &[StepOutcome], systemd: bool, asked: Asked<'_>) -> Vec<String> {
    let mut lines = todo(steps, systemd);
    lines.extend_from_slice(asked.by_hand);
    lines
}

fn stopped(reason: &StopReason) -> Value {
    match reason {
        StopReason::Signal => json!({"reason": "signal"}),
        StopReason::Short => json!({"reason": "short"}),
        StopReason::Failed { step, error, .. } => {
            json!({"reason": "failed", "step": step, "error": error})
        }
    }
}

fn step(step: &StepOutcome) -> Value {
    let mut object = Object::new();
    object
        .put("id", step.id.clone())
        .put("what", step.what.clone())
        .put("path", step.path.display().to_string())
        .put_some(
            "before",
            step.before.as_ref().and_then(|before| place(before, shown)),
        )
        .put_some(
            "after",
            step.after.as_ref().and_then(|after| place(after, shown)),
        )
        .put("state", step.state.id())
        .put("why", step.why.clone())
        .put("verify", step.verify.clone())
        .put_some("needs", needs(&step.needs))
        .put_some("note", step.note.clone())
        .put_some("shortage", step.shortage.as_deref().map(shortage));
    object.build()
}

/// A place as a value: `None` where nothing is there; `words` are for what is no value of its own.
pub(crate) fn place(place: &Place, words: fn(&Place) -> String) -> Option<Value> {
    match place {
        Place::Absent | Place::NoMount => None,
        Place::File { content, .. } => Some(content.text().into()),
        Place::Value { value } => Some(value.clone().into()),
        Place::Pool { pages, .. } => Some((*pages).into()),
        Place::Mount { options } => Some(options.clone().into()),
        other => Some(words(other).into()),
    }
}

fn needs(needs: &Needs) -> Option<Value> {
    match needs {
        Needs::Nothing => None,
        Needs::Restart(services) => Some(json!({"restart": services})),
        Needs::Reboot { first } => Some(json!({"reboot": true, "first": first})),
        Needs::Login => Some(json!({"login": true})),
    }
}

fn shortage(short: &Shortage) -> Value {
    let mut object = Object::new();
    object
        .put_bytes("page_bytes", short.size.bytes())
        .put("node", short.node)
        .put("wanted", short.wanted.get())
        .put("got", short.got.get())
        .put("missing", short.missing().get())
        .put("attempts", short.attempts)
        .put_fact("memory_bytes", &short.total, |b| b.get())
        .put_fact("free_bytes", &short.free, |b| b.get())
        .put_fact("free_in_blocks_bytes", &short.free_in_blocks, |b| b.get())
        .put_fact("cache_bytes", &short.cache, |b| b.get())
        .put_fact("anon_bytes", &short.anon, |b| b.get())
        .put_fact("shmem_bytes", &short.shmem, |b| b.get())
        .put_fact("kernel_reclaimable_bytes", &short.kernel_reclaimable, |b| {
            b.get()
        })
        .put_fact("kernel_fixed_bytes", &short.kernel_fixed, |b| b.get())
        .put_fact("locked_bytes", &short.locked, |b| b.get())
        .put_fact("unmovable_blocks", &short.unmovable_blocks, |n| *n);
    object.build()
}
