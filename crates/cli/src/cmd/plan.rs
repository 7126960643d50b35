//! Implements `hugeleaf plan`.

mod demand_source_flags;
pub(in crate::cmd) mod flags;
mod pool_sampling;
mod selected_services;

use std::path::{Path, PathBuf};

use hugeleaf_host::Host;
use hugeleaf_host::demand::{Service, ServiceKind, read_services};
use hugeleaf_plan::applied_plans::in_force;
use hugeleaf_plan::host_changes::{inspect, mount_point};
use hugeleaf_plan::{
    DemandPlan, GRUB, KubernetesPlan, Mount, PageCount, Plan, PlanFacts, PlanOptions, build_plan,
    keep, parse, steps, tighten, write,
};
use hugeleaf_report::plan::{KubernetesView, PlanView};
use hugeleaf_sys::{Errno, OnExisting, write_whole};
use hugeleaf_units::{Bytes, Ladder, PageKind, PageSize};

use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;
pub use flags::Args;

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    // --tighten has a bar of its own.
    let bar = (!args.tighten).then(|| Bar::spinner("querying the services"));
    let host = context.with_wants(context.host_and_leftovers()?);
    let identity = hugeleaf_host::identity(&context.root);
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/hugeleaf"));
    let made = jiff::Timestamp::now().round(jiff::Unit::Second);
    let made = made.map(|time| time.to_string()).ok();
    let grub = Path::new(GRUB);
    let in_force = in_force(&context.root);
    // Only earlier plans require a search for the services that hold their pages.
    let found = match in_force.is_empty() {
        true => Vec::new(),
        false => read_services(&context.root, &context.kernel, &host).services,
    };
    let facts = PlanFacts {
        in_force: &in_force,
        found: &found,
        host: &host,
        identity: &identity,
        grub_drop_ins: grub
            .parent()
            .is_some_and(|folder| is_folder(context, folder)),
        grub_text: &text_of(context, grub).unwrap_or_default(),
        // A capture has no /run, so this assumes that tmpfiles exists.
        tmpfiles: is_folder(context, Path::new("/run/systemd/system")) || !context.root.is_live(),
        program: &program,
        created_at: made.as_deref().filter(|_| context.root.is_live()),
    };
    let wishes = wishes(args, &host, context)?;
    let mut services = Vec::new();
    let (mut plan, unread) = if args.tighten {
        let (samples, watched) = pool_sampling::watch(args.period, args.every, context)?;
        (tighten(&facts, &samples, watched, &wishes)?, Vec::new())
    } else {
        let (found, unread) = selected_services::services(args, &host, context)?;
        services = found;
        (build_plan(&facts, &services, &wishes)?, unread)
    };
    drop(bar);
    fitting_cache(&plan, args)?;
    keep(&mut plan, |path| text_of(context, path))?;
    match args.kubernetes {
        true => show_for_kubernetes(args, context, (&plan, &services), &unread)?,
        false => show(args, context, &plan, &unread)?,
    }
    Ok(plan.missing().next().is_none().into())
}

/// Refuses a host cache that does not fit as a whole: a program with a part of its pages starts on base pages.
fn fitting_cache(plan: &Plan, args: &Args) -> Result<(), Failure> {
    let caches = || {
        plan.services
            .iter()
            .filter(|s| s.kind == ServiceKind::HostCache)
    };
    let sum = |of: fn(&DemandPlan) -> &Vec<PageCount>| -> Bytes {
        let demands = caches().flat_map(|service| &service.demands);
        demands.flat_map(of).map(|pages| pages.bytes()).sum()
    };
    let (planned, missing) = (sum(|d| &d.pages), sum(|d| &d.missing));
    if missing.is_zero() {
        return Ok(());
    }
    let why = plan.notes.iter().find(|note| note.starts_with("cut: "));
    let why = why.and_then(|note| Some(note.split_once(", because ")?.1));
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    let all = planned + missing;
    let next = match planned.is_zero() {
        true => "hugeleaf mem    # shows who uses the memory".to_owned(),
        false => {
            let ranks = args.ranks.map(|ranks| format!(" --ranks {ranks}"));
            let each = if args.node_each { " --node-each" } else { "" };
            let (ranks, gib) = (ranks.unwrap_or_default(), planned.get() >> 30);
            format!(
                "hugeleaf plan --host-cache {gib}G{ranks}{each}    # or --margin, --force REASON"
            )
        }
    };
    Err(Failure::no(
        format!("the host cache does not fit: {all} needed, {missing} short{why}"),
        next,
    ))
}

/// Reads a file of the planned host as text.
pub(super) fn text_of(context: &Context, path: &Path) -> Option<String> {
    let below = path.strip_prefix("/").unwrap_or(path);
    context.root.read(below).known().cloned()
}

fn is_folder(context: &Context, path: &Path) -> bool {
    let below = path.strip_prefix("/").unwrap_or(path);
    context.root.list(below).known().is_some()
}

fn wishes(args: &Args, host: &Host, context: &Context) -> Result<PlanOptions, Failure> {
    sensible(args, host)?;
    let sizes = args.sizes.as_ref().map(reserved).transpose()?;
    // A hugetlbfs has pages of one size, so the plan uses that size.
    let default = host.memory.default_hugetlb_page.get();
    let of_mount = default.filter(|_| args.mount.is_some());
    let sizes = sizes.or(of_mount.map(|size| vec![size]));
    let size = sizes.as_ref().and_then(|sizes| sizes.first().copied());
    let mount = match (&args.mount, size) {
        (None, _) => None,
        (Some(path), Some(page)) => Some(mount(args, path, page, context)?),
        (Some(_), None) => {
            return Err(Failure::missing(
                "--mount: no hugetlb page size in this kernel or in --sizes",
                "hugeleaf status    # lists the page sizes of this kernel",
            ));
        }
    };
    Ok(PlanOptions {
        margin: args.margin,
        sizes,
        force: args.force.clone(),
        mounts: mount.into_iter().collect(),
        run: args.run.clone().map(Option::unwrap_or_default),
        environment: args.env.clone(),
    })
}

/// Rejects flag values that cannot be intended.
fn sensible(args: &Args, host: &Host) -> Result<(), Failure> {
    for variable in &args.env {
        if !variable.contains('=') {
            return Err(Failure::usage(
                format!("--env '{variable}' has no ="),
                "write NAME=value",
            ));
        }
    }
    if let Some(node) = args.node.filter(|node| !host.nodes.contains(node)) {
        return Err(Failure::usage(
            format!("--node {node}: this host has no node {node} with memory"),
            "ls /sys/devices/system/node    # lists them",
        ));
    }
    let reason = args.force.as_deref();
    if reason.is_some_and(|reason| reason.trim().is_empty()) {
        return Err(Failure::usage(
            "--force: an empty reason",
            "give a reason, for the plan and the journal",
        ));
    }
    Ok(())
}

/// Returns the sizes of a ladder that can be reserved; empty if it names THP only.
fn reserved(ladder: &Ladder) -> Result<Vec<PageSize>, Failure> {
    if ladder.is_mandatory() {
        return Err(Failure::usage(
            format!("--sizes {ladder}: a plan cannot have mandatory sizes"),
            "omit the !; the plan shows what had to be cut",
        ));
    }
    let reserved = ladder
        .rungs()
        .iter()
        .filter(|r| r.kind != Some(PageKind::Thp));
    Ok(reserved.map(|rung| rung.size).collect())
}

fn mount(args: &Args, path: &Path, page: PageSize, context: &Context) -> Result<Mount, Failure> {
    /// Only the owner and the group have access.
    const MODE: u32 = 0o770;
    mount_point(&context.root, path).map_err(|obstacle| {
        Failure::usage(
            format!("--mount {obstacle}"),
            "name an empty or a new folder, as in /mnt/huge",
        )
    })?;
    let user = args
        .user
        .as_deref()
        .map(|name| selected_services::user(name, context));
    let user = user.transpose()?;
    Ok(Mount {
        path: path.to_owned(),
        page,
        uid: user.as_ref().map(|u| u.uid),
        gid: user.as_ref().map(|u| u.gid),
        mode: MODE,
        size: None,
    })
}

fn show(args: &Args, context: &Context, plan: &Plan, unread: &[String]) -> Result<(), Failure> {
    let text = write(plan, |path| text_of(context, path));
    can_be_applied(&text)?;
    if args.output.as_deref() == Some(Path::new("-")) {
        return Context::print(&text);
    }
    if let Some(file) = &args.output {
        save(file, &text)?;
    }
    let written = args.output.as_ref().map(|file| file.display().to_string());
    answer(context, plan, unread, written.as_deref(), None)
}

/// Prints the plan with the state of this host. `written` is the file that has it.
fn answer(
    context: &Context,
    plan: &Plan,
    unread: &[String],
    written: Option<&str>,
    kubernetes: Option<KubernetesView<'_>>,
) -> Result<(), Failure> {
    let all = steps(plan);
    let (looked, obstacles) = inspect(&context.root, &all);
    let planned = PlanView {
        plan,
        steps: &looked,
        obstacles: &obstacles,
        unread,
        written,
        kubernetes,
    };
    context.answer(Context::view(false), || planned.json(), || planned.page())
}

/// Refuses a plan that `apply` could not parse. The line of the error names the wrong flag.
fn can_be_applied(text: &str) -> Result<(), Failure> {
    let parsed = parse(text).map_err(|error| {
        let value = text.lines().nth(error.line.saturating_sub(1));
        Failure::usage(
            format!("the plan would be invalid: {}", error.what),
            format!(
                "change the flag that gives: {}",
                value.unwrap_or_default().trim()
            ),
        )
    });
    parsed.map(drop)
}

/// Prints the requests of pods, and writes values of the chart.
fn show_for_kubernetes(
    args: &Args,
    context: &Context,
    (plan, services): (&Plan, &[Service]),
    unread: &[String],
) -> Result<(), Failure> {
    let kubernetes = KubernetesPlan::new(plan, services, args.name.as_deref());
    if kubernetes.pools.is_empty() {
        return Err(Failure::missing(
            "--kubernetes: the plan reserves no pages, so pods need no request",
            "hugeleaf guard --help    # promotes running pods",
        ));
    }
    let for_nodes = write(&kubernetes.for_nodes, |_| None);
    can_be_applied(&for_nodes)?;
    let file = args.output.as_deref();
    let to_stdout = file == Some(Path::new("-"));
    let written = file.map(|file| file.display().to_string());
    let notes = [plan.notes.as_slice(), unread].concat();
    let view = KubernetesView {
        plan: &kubernetes,
        for_nodes: &for_nodes,
        notes: &notes,
        written: written.as_deref(),
    };
    match file {
        Some(_) if to_stdout => return Context::print(&view.values()),
        Some(file) => save(file, &view.values())?,
        None => {}
    }
    if !context.json {
        return Context::print(&view.text());
    }
    answer(context, plan, unread, written.as_deref(), Some(view))
}

/// Writes the plan. An existing file is kept because it may be an edited plan.
fn save(file: &Path, text: &str) -> Result<(), Failure> {
    write_whole(file, text.as_bytes(), OnExisting::Kept).map_err(|e| match e.errno() {
        Some(Errno::EXIST) => Failure::usage(
            format!("{}: the file exists already", file.display()),
            "name another one with --output, or remove it first",
        ),
        _ => Failure::missing(
            format!("{}: {}", file.display(), e.reason()),
            "name a file that can be written with --output",
        ),
    })
}
