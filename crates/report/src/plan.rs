//! `hugeleaf plan`: demand, pools, what stays for base pages, settings, and the steps that follow;
//! the same as JSON.

use hugeleaf_change::host::{Looked, Obstacle, Place, StepOutcome};
use hugeleaf_units::{Bytes, Pages};
use hugeleaf_verdict::plan::{
    BasePages, ForDemand, ForHost, ForPool, ForService, Knob, Needs, PagesOf, Plan, What,
    demand_lines, kind_name, needs, sum_pages,
};
use serde::Serialize;

use crate::json::answer;
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
        #[derive(Serialize)]
        struct Answer<'a> {
            file: Option<&'a str>,
            host: &'a ForHost,
            base: BaseAnswer<'a>,
            services: Vec<ServiceAnswer<'a>>,
            pools: &'a [ForPool],
            knobs: &'a [Knob],
            rights: Vec<Right<'a>>,
            steps: Vec<StepAnswer>,
            obstacles: Vec<String>,
            force: Option<&'a str>,
            notes: &'a [String],
            unread: &'a [String],
        }
        let plan = self.plan;
        answer(&Answer {
            file: self.written,
            host: &plan.host,
            base: BaseAnswer {
                base: &plan.base,
                in_pools_bytes: plan.in_pools(),
                left_bytes: plan.left(),
            },
            services: plan.services.iter().map(ServiceAnswer::of).collect(),
            pools: &plan.pools,
            knobs: &plan.knobs,
            rights: lacks(plan),
            steps: self.steps.iter().map(StepAnswer::of).collect(),
            obstacles: self.obstacles.iter().map(ToString::to_string).collect(),
            force: plan.force.as_deref(),
            notes: &plan.notes,
            unread: self.unread,
        })
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

/// What a user lacks, and the change.
#[derive(Serialize)]
struct Right<'a> {
    lacks: &'a str,
    change: String,
}

fn lacks(plan: &Plan) -> Vec<Right<'_>> {
    let group = plan.group.iter().map(|group| Right {
        lacks: &group.why,
        change: format!("vm.hugetlb_shm_group = {}", group.gid),
    });
    let limits = plan.limits.iter().map(|limit| Right {
        lacks: &limit.why,
        change: format!(
            "limits.d: {} soft and hard memlock {}",
            limit.user, limit.memlock
        ),
    });
    let units = plan.units.iter().filter_map(|unit| {
        Some(Right {
            lacks: &unit.why,
            change: format!("{}: LimitMEMLOCK={}", unit.unit, unit.memlock?),
        })
    });
    group.chain(limits).chain(units).collect()
}

fn rights(plan: &Plan, look: Look) -> String {
    let mut text = String::new();
    let mut last = None;
    for right in lacks(plan) {
        if last != Some(right.lacks) {
            text += &look.wrap("  ", right.lacks);
        }
        last = Some(right.lacks);
        text += &look.wrap("    change: ", &right.change);
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

/// A step as it would be made.
#[derive(Serialize)]
struct StepAnswer {
    #[serde(flatten)]
    step: StepOutcome,
    needs: Option<String>,
}

impl StepAnswer {
    fn of(looked: &Looked) -> StepAnswer {
        StepAnswer {
            step: StepOutcome {
                after: Some(looked.wanted.clone()),
                needs: Needs::Nothing,
                ..StepOutcome::of(looked)
            },
            needs: needs(&looked.step.needs),
        }
    }
}

/// A service with what it comes to.
#[derive(Serialize)]
struct ServiceAnswer<'a> {
    #[serde(flatten)]
    service: &'a ForService,
    asked: Vec<PagesOf>,
    got: Vec<PagesOf>,
    short_pages: Pages,
    reason: Option<&'static str>,
    demands: Vec<DemandAnswer<'a>>,
}

/// A demand with the sum in words.
#[derive(Serialize)]
struct DemandAnswer<'a> {
    #[serde(flatten)]
    demand: &'a ForDemand,
    arithmetic: Vec<String>,
}

impl ServiceAnswer<'_> {
    fn of(service: &ForService) -> ServiceAnswer<'_> {
        let got = sum_pages(service.demands.iter().flat_map(|d| &d.pages));
        let missing = sum_pages(service.demands.iter().flat_map(|d| &d.missing));
        let short = missing.iter().map(|p| p.pages.get()).sum();
        let demand = |demand| DemandAnswer {
            demand,
            arithmetic: demand_lines(demand),
        };
        ServiceAnswer {
            service,
            asked: sum_pages(got.iter().chain(&missing)),
            got,
            short_pages: Pages(short),
            reason: (short > 0).then_some("base pages keep what they use and the margin"),
            demands: service.demands.iter().map(demand).collect(),
        }
    }
}

/// What stays for base pages, with what follows from it.
#[derive(Serialize)]
struct BaseAnswer<'a> {
    #[serde(flatten)]
    base: &'a BasePages,
    in_pools_bytes: Bytes,
    left_bytes: Option<Bytes>,
}
