//! `hugeleaf plan`: demand, pools, what stays for base pages, settings, and the steps that follow;
//! the same as JSON.

use hugeleaf_change::host::{Looked, Obstacle, Place};
use hugeleaf_units::{Bytes, Pages};
use hugeleaf_verdict::plan::{
    ForDemand, ForPool, ForService, Plan, What, demand_lines, kind_name, needs, place_name,
    sum_pages,
};
use serde_json::{Value, json};

use crate::apply::place;
use crate::json::{Object, pool_pages};
use crate::table::{Align, Look, Paint, Table, clean};

/// A plan, and its steps held against the host.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its steps, and what stands where they change something.
    pub steps: &'a [Looked],
    /// Steps that could not be made here.
    pub obstacles: &'a [Obstacle],
    /// Sources of demand that could not be asked, and why.
    pub unread: &'a [String],
    /// The file that it was written to.
    pub written: Option<&'a str>,
}

fn title(text: &str, look: Look) -> String {
    look.paint(text, Paint::Bold) + "\n"
}

impl Planned<'_> {
    /// The screen.
    pub fn text(&self, look: Look) -> String {
        let sections = [
            head(self.plan, look),
            services(self.plan, look),
            pools(self.plan, look),
            base(self.plan, look),
            settings(self.plan, look),
            rights(self.plan, look),
            self.steps(look),
            self.notes(look),
            self.next(look),
        ];
        let shown: Vec<String> = sections.into_iter().filter(|s| !s.is_empty()).collect();
        shown.join("\n")
    }

    fn steps(&self, look: Look) -> String {
        if self.steps.is_empty() {
            return String::new();
        }
        let mut text = title("STEPS", look);
        for looked in self.steps {
            let step = &looked.step;
            let change = match looked.state.id() {
                "already" => format!("{}, and it is so already", after(looked)),
                "not-applicable" => "nothing to do: systemd does not run here".to_owned(),
                _ => format!("{} -> {}", short(&looked.before), after(looked)),
            };
            let needed = needs(&step.needs).map_or(String::new(), |n| format!("; needs {n}"));
            text += &look.wrap(&format!("  {}: ", clean(&step.id)), &(change + &needed));
            text += &format!("    {}\n", clean(&step.path.display().to_string()));
            if let What::File { text: lines, .. } | What::Block { text: lines } = &step.what {
                for line in lines.lines().filter(|line| !line.starts_with('#')) {
                    text += &format!("      {}\n", clean(line));
                }
            }
        }
        text
    }

    fn notes(&self, look: Look) -> String {
        let obstacles = self
            .obstacles
            .iter()
            .map(|o| format!("cannot be made here: {o}"));
        let notes = self.plan.notes.iter().cloned();
        let all: Vec<String> = notes
            .chain(obstacles)
            .chain(self.unread.iter().cloned())
            .collect();
        if all.is_empty() {
            return String::new();
        }
        let lines = all.iter().map(|note| look.wrap("  - ", note));
        title("TO KNOW", look) + &lines.collect::<String>()
    }

    fn next(&self, look: Look) -> String {
        if self.plan.pools.is_empty() && self.steps.is_empty() {
            return look.wrap("", "Nothing to set: no step follows from this plan.");
        }
        match self.written {
            Some(file) => format!(
                "Written to {}. See what it would change: hugeleaf apply --dry-run {}\n",
                clean(file),
                clean(file)
            ),
            None => look.wrap(
                "",
                "Nothing was written or changed. To have it as a file: the same with --output FILE; \
                 then: hugeleaf apply --dry-run FILE",
            ),
        }
    }

    /// The same as JSON.
    pub fn json(&self) -> String {
        let plan = self.plan;
        let mut answer = Object::answer();
        answer.put_some("file", self.written);
        answer.put("host", host_json(plan));
        answer.put("base", base_json(plan));
        let services: Vec<Value> = plan.services.iter().map(service_json).collect();
        answer.put("services", services);
        answer.put("pools", pools_json(plan));
        answer.put("knobs", knobs_json(plan));
        answer.put("rights", rights_json(plan));
        let steps: Vec<Value> = self.steps.iter().map(step_json).collect();
        answer.put("steps", steps);
        let obstacles: Vec<String> = self.obstacles.iter().map(ToString::to_string).collect();
        answer.put("obstacles", obstacles);
        answer.put_some("force", plan.force.as_deref());
        answer.put("notes", plan.notes.clone());
        answer.put("unread", self.unread.to_vec());
        answer.render()
    }
}

fn head(plan: &Plan, look: Look) -> String {
    let host = &plan.host;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
    let nodes = match host.nodes.len() {
        1 => "1 node".to_owned(),
        n => format!("{n} nodes"),
    };
    let whom = host
        .name
        .as_ref()
        .map_or(String::new(), |name| format!(" for {name}"));
    let text = format!(
        "Plan{whom}: Linux {} {}, {} on {nodes}",
        known(&host.kernel),
        known(&host.arch),
        host.memory
    );
    let reason = plan.force.as_ref().map_or(String::new(), |reason| {
        look.wrap("", &format!("Forced below the margin, because: {reason}"))
    });
    look.wrap("", &text) + &reason
}

fn services(plan: &Plan, look: Look) -> String {
    if plan.services.is_empty() {
        return String::new();
    }
    let mut text = title("FOR WHOM", look);
    for service in &plan.services {
        let mut about = vec![kind_name(service.kind).to_owned()];
        about.extend(service.unit.as_ref().map(|unit| format!("unit {unit}")));
        about.extend(service.user.as_ref().map(|user| format!("user {user}")));
        let name = look.paint(&clean(&service.name), Paint::Bold);
        text += &format!("  {name} ({})\n", clean(&about.join(", ")));
        for demand in &service.demands {
            text += &look.wrap("    ", &format!("{} (from {})", demand.what, demand.source));
            for line in demand_lines(demand) {
                text += &look.wrap("      ", &line);
            }
        }
        if service.restart {
            text += &look.wrap(
                "    ",
                "It runs, and uses these pages only after a restart.",
            );
        }
        for way in &service.ways {
            text += &look.wrap("    you: ", way);
        }
    }
    text
}

fn pools(plan: &Plan, look: Look) -> String {
    if plan.pools.is_empty() {
        return String::new();
    }
    let mut heads = vec![
        ("SIZE", Align::Right),
        ("NODE", Align::Right),
        ("WAS", Align::Right),
        ("PAGES", Align::Right),
        ("MEMORY", Align::Right),
        ("OTHERS'", Align::Right),
    ];
    // Columns that most plans have nothing for.
    let some = |of: fn(&ForPool) -> Pages| plan.pools.iter().any(|pool| of(pool).get() > 0);
    let (promised, idle) = (some(|p| p.promised), some(|p| p.idle));
    heads.extend(promised.then_some(("PROMISED", Align::Right)));
    heads.extend(idle.then_some(("IDLE", Align::Right)));
    heads.push(("FOR", Align::Left));
    let mut table = Table::new(&heads).indented(2);
    for pool in &plan.pools {
        let pages = |n: Option<Pages>| n.map_or("?".to_owned(), |n| n.to_string());
        let mut row = vec![
            pool.page.to_string(),
            pool.node.map_or("all".to_owned(), |n| n.to_string()),
            pages(pool.was),
            pool.pages.to_string(),
            pool.pages.of(pool.page).to_string(),
            pool.others.to_string(),
        ];
        row.extend(promised.then(|| pool.promised.to_string()));
        row.extend(idle.then(|| pool.idle.to_string()));
        row.push(pool.services.join(", "));
        table.row(row);
    }
    title("POOLS", look) + &table.render_as(look)
}

fn base(plan: &Plan, look: Look) -> String {
    let used = plan.base.used - plan.base.moves;
    let left = plan.left();
    let mut table = Table::new(&[
        ("MEMORY", Align::Right),
        ("IN POOLS", Align::Right),
        ("USED", Align::Right),
        ("LEFT", Align::Right),
        ("MARGIN", Align::Right),
    ])
    .indented(2);
    table.row([
        plan.host.memory.to_string(),
        plan.in_pools().to_string(),
        used.to_string(),
        left.map_or("none".to_owned(), |l| l.to_string()),
        plan.base.margin.to_string(),
    ]);
    let mut note = "USED: neither available nor in a pool now".to_owned();
    if !plan.base.moves.is_zero() {
        note += &format!(
            ", without {} that moves to the pools when the services restart",
            plan.base.moves
        );
    }
    note += ". LEFT has to be at least MARGIN.";
    title("WHAT STAYS FOR BASE PAGES", look) + &table.render_as(look) + &look.wrap("  ", &note)
}

fn settings(plan: &Plan, look: Look) -> String {
    if plan.knobs.is_empty() {
        return String::new();
    }
    let mut text = title("SETTINGS", look);
    for knob in &plan.knobs {
        let was = knob.was.as_deref().unwrap_or("?");
        text += &format!("  {}: {was} -> {}\n", knob.path.display(), knob.now);
        text += &look.wrap("    why: ", &knob.why);
        text += &look.wrap("    risk: ", &knob.risk);
    }
    text
}

/// What users lack, and the change.
fn lacks(plan: &Plan) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    if let Some(group) = &plan.group {
        let change = format!("vm.hugetlb_shm_group = {}", group.gid);
        found.push((group.why.clone(), change));
    }
    for limit in &plan.limits {
        let change = format!(
            "limits.d: {} soft and hard memlock {}",
            limit.user, limit.memlock
        );
        found.push((limit.why.clone(), change));
    }
    for unit in &plan.units {
        if let Some(memlock) = unit.memlock {
            let change = format!("{}: LimitMEMLOCK={memlock}", unit.unit);
            found.push((unit.why.clone(), change));
        }
    }
    found
}

fn rights(plan: &Plan, look: Look) -> String {
    let lacks = lacks(plan);
    let mut text = String::new();
    let mut last = None;
    for (why, change) in &lacks {
        if last != Some(why) {
            text += &look.wrap("  ", why);
        }
        last = Some(why);
        text += &look.wrap("    change: ", change);
    }
    match text.is_empty() {
        true => text,
        false => title("RIGHTS", look) + &text,
    }
}

/// A place in a word or two.
fn short(place: &Place) -> String {
    match place {
        Place::Absent => "absent".to_owned(),
        Place::File { .. } => "a file".to_owned(),
        Place::Folder { .. } => "a folder".to_owned(),
        Place::Other => "something else".to_owned(),
        Place::Value { value } => value.clone(),
        Place::Pool { pages, .. } => pages.to_string(),
        Place::Mount { .. } => "mounted".to_owned(),
        Place::NoMount => "not mounted".to_owned(),
        Place::OtherMount { kind } => kind.clone(),
    }
}

fn after(looked: &Looked) -> String {
    match &looked.step.what {
        What::Knob { value } => value.clone(),
        What::Pool { size, pages, .. } => format!("{pages} pages of {size}"),
        What::File { text, .. } | What::Block { text } => {
            let lines = text.lines().filter(|l| !l.starts_with('#')).count();
            match lines {
                1 => "one line".to_owned(),
                n => format!("{n} lines"),
            }
        }
        What::Folder { .. } => "a folder".to_owned(),
        What::Mount { .. } => "mounted".to_owned(),
    }
}

fn step_json(looked: &Looked) -> Value {
    let step = &looked.step;
    let mut object = Object::new();
    object
        .put("id", step.id.as_str())
        .put("what", step.what.name())
        .put("path", step.path.display().to_string())
        .put_some("before", place(&looked.before, short))
        .put_some("after", place(&looked.wanted, short))
        .put("state", looked.state.id())
        .put("why", step.why.as_str())
        .put("verify", step.verify.as_str())
        .put_some("needs", needs(&step.needs));
    object.build()
}

fn service_json(service: &ForService) -> Value {
    let got = sum_pages(service.demands.iter().flat_map(|d| &d.pages));
    let missing = sum_pages(service.demands.iter().flat_map(|d| &d.missing));
    let asked = sum_pages(got.iter().chain(&missing));
    let short: u64 = missing.iter().map(|p| p.pages.get()).sum();
    let reason = (short > 0).then_some("base pages keep what they use and the margin");
    let demands: Vec<Value> = service.demands.iter().map(demand_json).collect();
    let configured = service.configured_by.as_ref();
    let mut object = Object::new();
    object
        .put("name", service.name.as_str())
        .put("kind", kind_name(service.kind))
        .put_some("unit", service.unit.as_deref())
        .put_some("user", service.user.as_deref())
        .put_some("configured_by", configured.map(|p| p.display().to_string()))
        .put("asked", pool_pages(&asked))
        .put("got", pool_pages(&got))
        .put("short_pages", short)
        .put_some("reason", reason)
        .put("restart", service.restart)
        .put("demands", demands)
        .put("ways", service.ways.clone());
    object.build()
}

fn demand_json(demand: &ForDemand) -> Value {
    let pieces: Vec<Value> = demand
        .pieces
        .iter()
        .map(|p| json!({"count": p.count, "each_bytes": p.bytes.get()}))
        .collect();
    json!({
        "what": demand.what,
        "source": demand.source,
        "from": place_name(demand.from),
        "pieces": pieces,
        "got": pool_pages(&demand.pages),
        "missing": pool_pages(&demand.missing),
        "arithmetic": demand_lines(demand),
    })
}

fn host_json(plan: &Plan) -> Value {
    let host = &plan.host;
    let mut object = Object::new();
    object
        .put_some("name", host.name.as_deref())
        .put_some("id", host.id.as_deref())
        .put_some("kernel", host.kernel.as_deref())
        .put_some("arch", host.arch.as_deref())
        .put_bytes("memory_bytes", host.memory)
        .put("nodes", host.nodes.clone());
    object.build()
}

fn base_json(plan: &Plan) -> Value {
    let mut object = Object::new();
    object
        .put_bytes("used_bytes", plan.base.used)
        .put_bytes("moves_bytes", plan.base.moves)
        .put_bytes("in_pools_bytes", plan.in_pools())
        .put_bytes("other_pools_bytes", plan.base.other_pools)
        .put_some("left_bytes", plan.left().map(Bytes::get))
        .put_bytes("margin_bytes", plan.base.margin);
    object.build()
}

fn pools_json(plan: &Plan) -> Vec<Value> {
    let one = |pool: &hugeleaf_verdict::plan::ForPool| {
        let mut object = Object::new();
        object
            .put_bytes("page_bytes", pool.page.bytes())
            .put_some("node", pool.node)
            .put_some("was", pool.was.map(Pages::get))
            .put("pages", pool.pages.get())
            .put("others", pool.others.get())
            .put("promised", pool.promised.get())
            .put("idle", pool.idle.get())
            .put("for", pool.services.clone());
        object.build()
    };
    plan.pools.iter().map(one).collect()
}

fn knobs_json(plan: &Plan) -> Vec<Value> {
    let one = |knob: &hugeleaf_verdict::plan::Knob| {
        let mut object = Object::new();
        object
            .put("path", knob.path.display().to_string())
            .put_some("was", knob.was.as_deref())
            .put("now", knob.now.as_str())
            .put("why", knob.why.as_str())
            .put("risk", knob.risk.as_str());
        object.build()
    };
    plan.knobs.iter().map(one).collect()
}

fn rights_json(plan: &Plan) -> Vec<Value> {
    let one = |(lacks, change): (String, String)| json!({"lacks": lacks, "change": change});
    lacks(plan).into_iter().map(one).collect()
}
