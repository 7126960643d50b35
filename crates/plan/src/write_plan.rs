//! Writes a plan as an editable file: values in TOML, with the arithmetic and the consequences as
//! comments. Comments are not read back, because they follow from the values.

use std::fmt::Display;
use std::path::Path;

use hugeleaf_host::demand::EqualMappings;
use hugeleaf_units::{Bytes, PageSize, Pages};

use super::model::{
    DemandPlan, Knob, Mount, PageCount, Plan, PoolPlan, PromisedPages, ServicePlan, UnitDropIn,
};
use super::page_counts;
use super::step::{FollowUp, Step, StepAction};
use super::steps;
use hugeleaf_verdict::list;

struct TomlWriter(String);

impl TomlWriter {
    fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    fn comment(&mut self, text: &str) {
        self.line(&format!("# {text}"));
    }

    fn head(&mut self, head: &str) {
        self.line("");
        self.line(head);
    }

    fn raw(&mut self, key: &str, value: impl Display) {
        self.line(&format!("{key} = {value}"));
    }

    fn some(&mut self, key: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.raw(key, value);
        }
    }

    fn text(&mut self, key: &str, value: &str) {
        self.raw(key, quoted(value));
    }

    /// Writes a list, one element per line if there are several.
    fn list(&mut self, key: &str, items: impl IntoIterator<Item = String>) {
        let items: Vec<String> = items.into_iter().collect();
        match items.as_slice() {
            [] | [_] => self.raw(key, format_args!("[{}]", items.concat())),
            many => self.raw(key, format_args!("[\n    {},\n]", many.join(",\n    "))),
        }
    }

    /// Writes a list unless it is empty.
    fn some_list(&mut self, key: &str, items: impl IntoIterator<Item = String>) {
        let mut items = items.into_iter().peekable();
        if items.peek().is_some() {
            self.list(key, items);
        }
    }

    fn texts(&mut self, key: &str, values: &[String]) {
        self.some_list(key, values.iter().map(|value| quoted(value)));
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn bytes(bytes: Bytes) -> String {
    format!("{bytes:#} # {bytes}")
}

fn size(size: PageSize) -> String {
    quoted(&size.to_string())
}

fn sizes(sizes: &[PageSize]) -> String {
    format!("[{}]", list(sizes.iter().copied().map(size)))
}

fn pages(pages: &[PageCount]) -> impl Iterator<Item = String> {
    let pages = pages.iter();
    pages.map(|p| format!("{{ page = {}, pages = {} }}", size(p.page), p.pages))
}

/// Writes the plan as a file. `read` returns the current text of a file by its path. The end of the
/// plan shows the changes to these files.
pub fn write(plan: &Plan, read: impl Fn(&Path) -> Option<String>) -> String {
    let mut out = TomlWriter(String::new());
    out.comment("A plan of hugeleaf. Edit the values; comments have no effect.");
    out.comment(
        "Show the changes: hugeleaf apply --dry-run FILE. Apply them: hugeleaf apply FILE.",
    );
    out.raw("schema", plan.schema);
    out.some("made", plan.made.as_deref().map(quoted));
    if let Some(reason) = &plan.force {
        out.comment("The reason for leaving base pages less than the margin:");
        out.text("force", reason);
    }
    out.texts("notes", &plan.notes);
    host(&mut out, plan);
    for one in &plan.services {
        service(&mut out, one);
    }
    for pool in &plan.pools {
        self::pool(&mut out, plan, pool);
    }
    for knob in &plan.knobs {
        self::knob(&mut out, knob);
    }
    rights(&mut out, plan);
    for mount in &plan.mounts {
        self::mount(&mut out, mount);
    }
    for unit in &plan.units {
        self::unit(&mut out, unit);
    }
    if let Some(boot) = &plan.boot {
        out.head("[boot]");
        out.comment(
            "Pages of these sizes are guaranteed only if the kernel command line asks for them.",
        );
        out.raw("pages", sizes(&boot.pages));
        out.raw("grub_drop_in", boot.grub_drop_in);
    }
    for promise in &plan.promises {
        self::promise(&mut out, promise);
    }
    for kept in &plan.kept {
        out.head("[[keep]]");
        out.comment("Lines of earlier plans in this file.");
        out.text("path", &kept.path.to_string_lossy());
        out.list("lines", kept.lines.iter().map(|line| quoted(line)));
    }
    follows(&mut out, plan, &read);
    out.0
}

fn host(out: &mut TomlWriter, plan: &Plan) {
    let host = &plan.host;
    out.head("[host]");
    out.some("name", host.name.as_deref().map(quoted));
    out.some("id", host.id.as_deref().map(quoted));
    out.some("kernel", host.kernel.as_deref().map(quoted));
    out.some("arch", host.arch.as_deref().map(quoted));
    out.raw("memory_bytes", bytes(host.memory));
    out.raw("base_page", size(host.base_page));
    out.some("default_page", host.default_page.map(size));
    out.raw("pages", sizes(&host.pages));
    out.raw("nodes", format_args!("[{}]", list(&host.nodes)));

    out.head("[base]");
    for line in page_counts::base(plan) {
        out.comment(&line);
    }
    out.raw("used_bytes", bytes(plan.base.used));
    out.raw("to_pools_bytes", bytes(plan.base.moves));
    out.raw("other_pools_bytes", bytes(plan.base.other_pools));
    out.raw("margin_bytes", bytes(plan.base.margin));
}

fn service(out: &mut TomlWriter, service: &ServicePlan) {
    out.head("[[service]]");
    out.text("name", &service.name);
    out.text("kind", service.kind.name());
    out.some("unit", service.unit.as_deref().map(quoted));
    out.some("user", service.user.as_deref().map(quoted));
    let configured = service.configured_by.as_ref().map(|p| p.to_string_lossy());
    out.some("configured_by", configured.as_deref().map(quoted));
    out.some("node", service.node);
    out.some("runs", service.runs.then_some(true));
    if service.restart {
        out.comment("It runs, and uses the planned pages only after a restart.");
        out.raw("restart", true);
    }
    if !service.ways.is_empty() {
        out.comment("Manual changes that make it use the pages:");
    }
    out.texts("ways", &service.ways);
    for demand in &service.demands {
        self::demand(out, demand);
    }
}

fn demand(out: &mut TomlWriter, demand: &DemandPlan) {
    out.head("[[service.demand]]");
    for line in page_counts::demand(demand) {
        out.comment(&line);
    }
    out.text("what", &demand.what);
    out.text("source", &demand.source);
    out.text("from", demand.from.name());
    let mapping = |p: &EqualMappings| format!("{{ count = {}, bytes = {:#} }}", p.count, p.bytes);
    out.list("mappings", demand.mappings.iter().map(mapping));
    out.some_list("pages", pages(&demand.pages));
    out.some_list("missing", pages(&demand.missing));
}

fn promise(out: &mut TomlWriter, promise: &PromisedPages) {
    out.head("[[promise]]");
    out.comment("Pages that an earlier plan in force promises to a service outside this plan.");
    out.raw("apply", promise.apply);
    out.some("name", promise.name.as_deref().map(quoted));
    out.some_list("pages", pages(&promise.pages));
}

fn pool(out: &mut TomlWriter, plan: &Plan, pool: &PoolPlan) {
    out.head("[[pool]]");
    for line in page_counts::pool(plan, pool) {
        out.comment(&line);
    }
    let some = |pages: Pages| Some(pages).filter(|n| *n > Pages(0));
    out.raw("page", size(pool.page));
    out.some("node", pool.node);
    out.some("was", pool.was);
    out.raw("pages", pool.pages);
    out.texts("for", &pool.services);
    out.some("others", some(pool.others));
    out.some("promised", some(pool.promised));
    if let Some(idle) = some(pool.idle) {
        out.comment(
            "No service needs these; they stay until the next boot, and no file asks for them.",
        );
        out.raw("idle", idle);
    }
    if pool.give_back {
        out.comment(
            "While memory is short, the guard may free unused pages, and add them again later.",
        );
        out.raw("give_back", true);
    }
}

fn knob(out: &mut TomlWriter, knob: &Knob) {
    out.head("[[knob]]");
    out.text("path", &knob.path.to_string_lossy());
    out.some("was", knob.was.as_deref().map(quoted));
    out.text("now", &knob.now);
    out.text("why", &knob.why);
    out.text("risk", &knob.risk);
    out.texts("restart", &knob.restart);
}

fn rights(out: &mut TomlWriter, plan: &Plan) {
    for limit in &plan.limits {
        out.head("[[limit]]");
        out.text("user", &limit.user);
        out.some("was_bytes", limit.was.map(bytes));
        out.raw("memlock_bytes", bytes(limit.memlock));
        out.text("why", &limit.why);
    }
    if let Some(group) = &plan.group {
        out.head("[group]");
        out.raw("gid", group.gid);
        out.some("was", group.was);
        out.text("why", &group.why);
    }
}

fn mount(out: &mut TomlWriter, mount: &Mount) {
    out.head("[[mount]]");
    out.text("path", &mount.path.to_string_lossy());
    out.raw("page", size(mount.page));
    out.some("uid", mount.uid);
    out.some("gid", mount.gid);
    out.text("mode", &format!("{:04o}", mount.mode));
    out.some("size_bytes", mount.size.map(bytes));
}

fn unit(out: &mut TomlWriter, unit: &UnitDropIn) {
    out.head("[[unit]]");
    out.text("unit", &unit.unit);
    out.some("memlock_bytes", unit.memlock.map(bytes));
    out.texts("environment", &unit.environment);
    out.some("exec_start", unit.exec_start.as_deref().map(quoted));
    out.text("why", &unit.why);
}

fn follows(out: &mut TomlWriter, plan: &Plan, read: &dyn Fn(&Path) -> Option<String>) {
    out.line("");
    out.comment("The steps that follow from these values, in order:");
    for step in steps(plan) {
        out.comment("");
        out.comment(&format!("{}: {}", step.id, step.path.display()));
        for line in change(plan, &step, read) {
            out.comment(&format!("  {line}"));
        }
        out.comment(&format!("  why: {}", step.why));
        if let Some(needs) = needs(&step.needs) {
            out.comment(&format!("  needs: {needs}"));
        }
        out.comment(&format!("  shown by: {}", step.verify));
    }
}

/// Formats the old and new value of a step. For a file, lists removed lines with `-` and added lines
/// with `+`.
fn change(plan: &Plan, step: &Step, read: &dyn Fn(&Path) -> Option<String>) -> Vec<String> {
    let one = match &step.what {
        StepAction::Knob { value } => format!("{} -> {value}", was(plan, step)),
        StepAction::Pool { size, pages, .. } => {
            format!("{} -> {pages} pages of {size}", was(plan, step))
        }
        StepAction::File { text, .. } => return lines(read(&step.path).as_deref(), text),
        StepAction::Block { text } => {
            let mut all = vec!["a separate block in the file, between markers:".to_owned()];
            all.extend(text.lines().map(|line| format!("  + {line}")));
            return all;
        }
        StepAction::Folder { mode, .. } => format!("a folder of mode {mode:04o}"),
        StepAction::Mount { options } => format!("a hugetlbfs, {options}"),
    };
    vec![one]
}

fn lines(old: Option<&str>, new: &str) -> Vec<String> {
    let set = |text: &'_ str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(hugeleaf_verdict::clean).collect()
    };
    let before = old.map(set).unwrap_or_default();
    let after = set(new);
    let head = match old {
        None => "absent -> a file with:",
        Some(_) if before == after => "no changes in the file:",
        Some(_) => "changes in the file:",
    };
    let gone = before.iter().filter(|line| !after.contains(line));
    let gone = gone.map(|line| format!("  - {line}"));
    let come = after.iter().map(|line| match before.contains(line) {
        true => format!("    {line}"),
        false => format!("  + {line}"),
    });
    std::iter::once(head.to_owned())
        .chain(gone)
        .chain(come)
        .collect()
}

fn was(plan: &Plan, step: &Step) -> String {
    let pool = plan.pools.iter().find(|p| super::pool_path(p) == step.path);
    let knob = plan.knobs.iter().find(|k| k.path == step.path);
    let group = plan.group.as_ref().filter(|_| step.id == "group");
    pool.and_then(|p| Some(p.was?.to_string()))
        .or(knob.and_then(|k| k.was.clone()))
        .or(group.and_then(|g| Some(g.was?.to_string())))
        .unwrap_or_else(|| "?".to_owned())
}

/// Describes the needs of a step; `None` if it has none.
pub fn needs(needs: &FollowUp) -> Option<String> {
    match needs {
        FollowUp::Nothing => None,
        FollowUp::Restart(services) => Some(format!("a restart of {}", services.join(", "))),
        FollowUp::Reboot { first } => Some(format!("{first}, and a reboot")),
        FollowUp::Login => Some("a new login of the user".to_owned()),
    }
}
