//! `hugeleaf plan`: demand, pools, remaining base-page memory, settings, and the resulting steps;
//! as a screen and as JSON.

mod kubernetes;

pub use kubernetes::KubernetesView;

use hugeleaf_plan::host_changes::{Obstacle, PathState, StepOutcome, StepPreview};
use hugeleaf_plan::{
    FollowUp, Knob, Plan, PoolPlan, ServicePlan, StepAction, demand_lines, needs, sum_pages,
};
use hugeleaf_units::Pages;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::document::{
    Cell, CommandHint, ContentBlock, Document, Note, Section, StatusMark, Table, TableBuilder,
    counted, listed,
};
use crate::json::{answer, merge_fields};

#[derive(Debug, Clone, Copy)]
pub struct PlanView<'a> {
    pub plan: &'a Plan,
    /// The steps, with the current value of each changed setting.
    pub steps: &'a [StepPreview],
    pub obstacles: &'a [Obstacle],
    /// Sources of demand that were unreadable, with the reason.
    pub unread: &'a [String],
    pub written: Option<&'a str>,
    pub kubernetes: Option<KubernetesView<'a>>,
}

impl PlanView<'_> {
    pub fn page(&self) -> Document {
        let plan = self.plan;
        let mut page = Document::new("Plan", head(plan));
        if let Some(reason) = &plan.force {
            page.add(format!("Forced below the margin, because: {reason}"));
        }
        page.section("SERVICES", plan.services.iter().map(service).collect())
            .section("POOLS", vec![pools(plan).into()])
            .section("BASE-PAGE MEMORY", base(plan))
            .section("SETTINGS", plan.knobs.iter().map(setting).collect())
            .section("PERMISSIONS", vec![rights(plan).into()])
            .section("STEPS", self.steps.iter().map(step).collect())
            .section("NOTES", vec![self.notes().into()])
            .section("", self.next());
        page
    }

    fn notes(&self) -> Vec<Note> {
        let notes = Note::each("note", &self.plan.notes);
        let obstacles = self.obstacles.iter().map(|obstacle| {
            let text = format!("not possible on this host: {obstacle}");
            Note::marked("problem", StatusMark::Bad, text)
        });
        let unread = Note::each("unread", self.unread);
        notes.chain(obstacles).chain(unread).collect()
    }

    fn next(&self) -> Vec<ContentBlock> {
        if self.plan.pools.is_empty() && self.steps.is_empty() {
            return vec!["Nothing to set: this plan has no steps.".into()];
        }
        match self.written {
            Some(file) => {
                let next = CommandHint::new("preview", dry_run(file));
                vec![format!("Written to {file}.").into(), vec![next].into()]
            }
            None => {
                let text = "Nothing was written or changed. To write the plan, add --output FILE.";
                vec![
                    text.into(),
                    vec![CommandHint::new("then", dry_run("FILE"))].into(),
                ]
            }
        }
    }

    pub fn json(&self) -> String {
        let plan = self.plan;
        let sums = json!({ "in_pools_bytes": plan.in_pools(), "left_bytes": plan.left() });
        answer(&json!({
            "file": self.written,
            "host": plan.host,
            "base": merge_fields(&plan.base, sums),
            "services": plan.services.iter().map(service_answer).collect::<Json>(),
            "pools": plan.pools,
            "knobs": plan.knobs,
            "rights": lacks(plan),
            "steps": self.steps.iter().map(step_answer).collect::<Json>(),
            "obstacles": self.obstacles.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "force": plan.force,
            "notes": plan.notes,
            "unread": self.unread,
            "kubernetes": self.kubernetes.map(|view| view.json()),
        }))
    }
}

fn dry_run(file: &str) -> String {
    format!("hugeleaf apply --dry-run {file}")
}

fn head(plan: &Plan) -> String {
    let host = &plan.host;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    format!(
        "Plan{}: Linux {} {}, {} on {}",
        listed(" for ", &host.name),
        known(&host.kernel),
        known(&host.arch),
        host.memory,
        counted(host.nodes.len(), "node")
    )
}

fn service(service: &ServicePlan) -> ContentBlock {
    let mut about = vec![service.kind.name().to_owned()];
    about.extend(service.unit.as_ref().map(|unit| format!("unit {unit}")));
    about.extend(service.user.as_ref().map(|user| format!("user {user}")));
    let demands = service.demands.iter().map(|demand| Note {
        evidence: demand_lines(demand),
        ..Note::new("needs", format!("{} (from {})", demand.what, demand.source))
    });
    let restart = service.restart.then(|| {
        let text = "The service runs, and uses these pages only after a restart.";
        Note::new("note", text)
    });
    let ways = service.ways.iter().map(|way| Note::new("to do", way));
    let notes: Vec<Note> = demands.chain(restart).chain(ways).collect();
    let title = format!("{} ({})", service.name, about.join(", "));
    Section::new(title, vec![notes.into()]).into()
}

fn pools(plan: &Plan) -> TableBuilder<&PoolPlan> {
    // Columns that are empty for most plans.
    let some = |of: fn(&PoolPlan) -> Pages| plan.pools.iter().any(|pool| of(pool).get() > 0);
    let unknown = || Cell::from("?");
    Table::from_items(&plan.pools)
        .right("SIZE", |p| p.page)
        .right("NODE", |p| p.node.map_or("all".into(), Cell::from))
        .right("BEFORE", |p| p.was.map_or_else(unknown, Cell::from))
        .right("PAGES", |p| p.pages)
        .right("MEMORY", |p| p.pages.in_bytes(p.page))
        .right("OTHERS", |p| p.others)
        .when(some(|p| p.promised), |t| {
            t.right("PROMISED", |p| p.promised)
        })
        .when(some(|p| p.idle), |t| t.right("IDLE", |p| p.idle))
        .left("FOR", |p| p.services.join(", "))
}

fn base(plan: &Plan) -> Vec<ContentBlock> {
    let left = |plan: &Plan| plan.left().map_or("none".into(), Cell::from);
    let table = Table::from_items([plan])
        .right("MEMORY", |plan| plan.host.memory)
        .right("IN POOLS", |plan| plan.in_pools())
        .right("USED", |plan| plan.base.used - plan.base.moves)
        .right("LEFT", |plan| left(plan))
        .right("MARGIN", |plan| plan.base.margin);
    let mut note = "USED: memory that is neither available nor in a pool".to_owned();
    if !plan.base.moves.is_zero() {
        note += &format!(
            ", without {} that the services use from the pools after a restart",
            plan.base.moves
        );
    }
    note += ". LEFT must be at least MARGIN.";
    vec![table.into(), note.into()]
}

fn setting(knob: &Knob) -> ContentBlock {
    let was = knob.was.as_deref().unwrap_or("?");
    let title = format!("{}: {was} -> {}", knob.path.display(), knob.now);
    let notes = vec![Note::new("why", &knob.why), Note::new("risk", &knob.risk)];
    Section::new(title, vec![notes.into()]).into()
}

#[derive(Serialize)]
struct MissingPermission<'a> {
    lacks: &'a str,
    change: String,
}

fn lacks(plan: &Plan) -> Vec<MissingPermission<'_>> {
    let group = plan.group.iter().map(|group| MissingPermission {
        lacks: &group.why,
        change: format!("vm.hugetlb_shm_group = {}", group.gid),
    });
    let limits = plan.limits.iter().map(|limit| MissingPermission {
        lacks: &limit.why,
        change: format!(
            "limits.d: {} soft and hard memlock {}",
            limit.user, limit.memlock
        ),
    });
    let units = plan.units.iter().filter_map(|unit| {
        Some(MissingPermission {
            lacks: &unit.why,
            change: format!("{}: LimitMEMLOCK={}", unit.unit, unit.memlock?),
        })
    });
    group.chain(limits).chain(units).collect()
}

fn rights(plan: &Plan) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for right in lacks(plan) {
        let change = CommandHint::new("change", &right.change);
        match notes.last_mut().filter(|last| last.text == right.lacks) {
            Some(last) => last.commands.push(change),
            None => notes.push(Note {
                commands: vec![change],
                ..Note::new("problem", right.lacks)
            }),
        }
    }
    notes
}

fn step(looked: &StepPreview) -> ContentBlock {
    let step = &looked.step;
    let change = match looked.state.name() {
        "already" => format!("{}, already set", after(looked)),
        "not-applicable" => "nothing to do: systemd does not run here".to_owned(),
        _ => format!("{} -> {}", short(&looked.before), after(looked)),
    };
    let lines = match &step.what {
        StepAction::File { text, .. } | StepAction::Block { text } => text.as_str(),
        _ => "",
    };
    let lines = lines.lines().filter(|line| !line.starts_with('#'));
    let place = Note {
        commands: lines.map(|line| CommandHint::new("", line)).collect(),
        ..Note::new("in", step.path.display().to_string())
    };
    let needs = needs(&step.needs).map(|needed| Note::new("needs", needed));
    let notes: Vec<Note> = [place].into_iter().chain(needs).collect();
    Section::new(format!("{}: {change}", step.id), vec![notes.into()]).into()
}

fn short(place: &PathState) -> String {
    match place {
        PathState::Absent => "absent".to_owned(),
        PathState::File { .. } => "a file".to_owned(),
        PathState::Folder { .. } => "a folder".to_owned(),
        PathState::Other => "something else".to_owned(),
        PathState::Value { value } => value.clone(),
        PathState::Pool { pages, .. } => pages.to_string(),
        PathState::Mount { .. } => "mounted".to_owned(),
        PathState::NoMount => "not mounted".to_owned(),
        PathState::OtherMount { kind } => kind.clone(),
    }
}

fn after(looked: &StepPreview) -> String {
    match &looked.step.what {
        StepAction::Knob { value } => value.clone(),
        StepAction::Pool { size, pages, .. } => format!("{pages} pages of {size}"),
        StepAction::File { text, .. } | StepAction::Block { text } => {
            match text.lines().filter(|l| !l.starts_with('#')).count() {
                1 => "one line".to_owned(),
                n => format!("{n} lines"),
            }
        }
        StepAction::Folder { .. } => "a folder".to_owned(),
        StepAction::Mount { .. } => "mounted".to_owned(),
    }
}

fn step_answer(looked: &StepPreview) -> Json {
    let step = StepOutcome {
        after: Some(looked.wanted.clone()),
        needs: FollowUp::Nothing,
        ..StepOutcome::from_preview(looked)
    };
    merge_fields(step, json!({ "needs": needs(&looked.step.needs) }))
}

/// Returns a service with its total, and each demand with its sum in words.
fn service_answer(service: &ServicePlan) -> Json {
    let got = sum_pages(service.demands.iter().flat_map(|d| d.pages.clone()));
    let missing = sum_pages(service.demands.iter().flat_map(|d| d.missing.clone()));
    let short: u64 = missing.iter().map(|p| p.pages.get()).sum();
    let demand = |demand| merge_fields(demand, json!({ "arithmetic": demand_lines(demand) }));
    let resulting_pages = json!({
        "asked": sum_pages(got.iter().chain(&missing).copied()),
        "got": got,
        "short_pages": short,
        "reason": (short > 0).then_some("base pages keep the memory in use and the margin"),
        "demands": service.demands.iter().map(demand).collect::<Json>(),
    });
    merge_fields(service, resulting_pages)
}
