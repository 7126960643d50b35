//! Implements `hugeleaf apply`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hugeleaf_plan::applied_plans::in_force;
use hugeleaf_plan::host_changes::{
    ApplyOptions, ApplyOutcome, ApplyRequest, ChangeContext, HostChangeError, StopReason, apply,
    inspect,
};
use hugeleaf_plan::{CurrentHost, Plan, check, complete, parse, steps};
use hugeleaf_report::apply::{self as view, AppliedPlanRemarks, apply_json, dry_run, dry_run_json};
use hugeleaf_sys::{Errno, PathError, check_trusted, open_trusted, read_at_most};
use hugeleaf_units::Bytes;
use hugeleaf_verdict::findings::shell_word;

use super::plan::text_of;
use crate::context::{CommandStatus, Context, Failure};
use crate::progress::Bar;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
All steps are checked first. If one is impossible, nothing is changed. Each step is journaled with
the previous value, applied and read back. Pool pages are requested several times, with compaction
between tries. hugeleaf undo reverts the changes.

Exit status: 0 applied as planned; 1 applied with fewer pages than planned; 2 wrong usage, or an
invalid plan; 3 a precondition is missing, or a step failed; completed steps are listed.

Examples:
  hugeleaf apply --dry-run plan.toml
  hugeleaf apply plan.toml
  hugeleaf apply --drop-caches --all-or-nothing plan.toml")]
pub struct Args {
    /// Plan file that hugeleaf plan has written; it may be edited
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Print the differences; change nothing. Works with --root too
    #[arg(long)]
    dry_run: bool,
    /// If a pool is short, drop clean page cache between tries; servers must read it again
    #[arg(long)]
    drop_caches: bool,
    /// If a pool stays short, revert everything instead of keeping the pages obtained
    #[arg(long)]
    all_or_nothing: bool,
}

pub fn run(args: &Args, context: &Context) -> Result<CommandStatus, Failure> {
    if !args.dry_run && !context.root.is_live() {
        return Err(Failure::usage(
            "apply: --root names a captured host, and apply acts on a running one",
            format!(
                "hugeleaf apply --dry-run --root DIR {}",
                args.plan.display()
            ),
        ));
    }
    let text = read_plan(&args.plan)?;
    let mut plan = parse(&text).map_err(|error| {
        Failure::usage(
            format!("{}: {error}", args.plan.display()),
            format!("correct that line: $EDITOR {}", args.plan.display()),
        )
    })?;
    let (warnings, in_force) = compared_with_host(&mut plan, context)?;
    let steps = steps(&plan);
    let (shown, by_hand) = (args.plan.display().to_string(), plan.by_hand());
    let asked = AppliedPlanRemarks {
        plan: &shown,
        by_hand: &by_hand,
        warnings: &warnings,
    };
    if args.dry_run {
        return preview(&steps, asked, context);
    }
    check_programs(&plan)?;
    context.stop_on_signals()?;
    let options = ApplyOptions {
        drop_caches: args.drop_caches,
        all_or_nothing: args.all_or_nothing,
        base_page: plan.host.base_page,
    };
    let program = format!("hugeleaf {}", env!("CARGO_PKG_VERSION"));
    // `undo` may read the journal from another folder.
    let file = std::path::absolute(&args.plan).unwrap_or_else(|_| args.plan.clone());
    let serves: Vec<&str> = plan.services.iter().map(|s| s.name.as_str()).collect();
    let request = ApplyRequest {
        steps: &steps,
        plan: &text,
        plan_file: &file.display().to_string(),
        program: &program,
        forced: plan.force.as_deref(),
        serves: &serves,
        in_force: Some(&in_force),
    };
    let bar = Bar::spinner("checking the steps");
    let mut change = ChangeContext {
        root: &context.root,
        kernel: &context.kernel,
        stop: &context.stop,
        progress: &mut |step| bar.set_message(step),
    };
    let outcome = apply(&mut change, &request, &options);
    drop(bar);
    let outcome = outcome.map_err(|error| refusal(error, "apply", &shown))?;
    context.answer(
        Context::view(false),
        || apply_json(&outcome, asked),
        || view::apply(&outcome, asked),
    )?;
    ended(&outcome, &shown)
}

/// Reads a plan from a file that only root and the caller can change. Anyone else who could change
/// it would gain root.
fn read_plan(path: &Path) -> Result<String, Failure> {
    /// Maximum length of a plan. Plans take a few kilobytes; this allows about a hundred services.
    const MOST: Bytes = Bytes(4 << 20);
    let shown = path.display();
    let make = format!("hugeleaf plan --output {shown}");
    let file = open_trusted(path).map_err(|error| match error.errno() {
        None => Failure::missing(
            format!("apply: {shown} is not trusted: {error}; nothing was changed"),
            trust_remedy(&error, path),
        ),
        Some(_) => Failure::usage(format!("{shown}: {}", error.reason()), &*make),
    })?;
    let read = read_at_most(&file, MOST).and_then(|bytes| std::io::read_to_string(&*bytes));
    read.map_err(|error| {
        let why = match error.kind() {
            ErrorKind::FileTooLarge => "too long for a plan".to_owned(),
            _ => error.to_string(),
        };
        Failure::usage(format!("{shown}: {why}"), make)
    })
}

/// Returns the command that makes a plan trusted.
fn trust_remedy(error: &PathError, plan: &Path) -> String {
    let word = |path: &Path| shell_word(&path.to_string_lossy());
    match error.fixable_permissions() {
        Some(path) => format!("chmod go-w {}", word(path)),
        None => format!(
            "cp {} ~/    # then apply the copy, which only you can change",
            word(plan)
        ),
    }
}

/// Checks that only root can change the programs that the plan's units start as root.
fn check_programs(plan: &Plan) -> Result<(), Failure> {
    for unit in &plan.units {
        let program = unit.exec_start.as_deref().and_then(|c| c.split(' ').next());
        let Some(program) = program.map(Path::new) else {
            continue;
        };
        check_trusted(program).map_err(|error| {
            Failure::missing(
                format!(
                    "apply: {} would start an untrusted program: {error}",
                    unit.unit
                ),
                "install hugeleaf where only root can change it, and plan with that copy",
            )
        })?;
    }
    Ok(())
}

/// Completes the plan by the host, and compares it with the host and with the applied plans in force. Returns warnings, and
/// the numbers of the applied plans that they concern.
fn compared_with_host(
    plan: &mut Plan,
    context: &Context,
) -> Result<(Vec<String>, Vec<u32>), Failure> {
    let in_force = in_force(&context.root);
    let host = context.host()?;
    complete(plan, &host, |path| text_of(context, path))?;
    let identity = hugeleaf_host::identity(&context.root);
    let now = CurrentHost {
        host: &host,
        identity: &identity,
        in_force: &in_force,
    };
    let ids = in_force.iter().map(|one| one.id).collect();
    let warnings = check(plan, &now).map_err(|refusals| {
        let whats: Vec<&str> = refusals.iter().map(|r| &*r.message).collect();
        let next = refusals.first().map_or("hugeleaf plan", |r| &r.remedy);
        Failure::missing(whats.join("; "), next)
    })?;
    Ok((warnings, ids))
}

fn preview(
    steps: &[hugeleaf_plan::Step],
    asked: AppliedPlanRemarks<'_>,
    context: &Context,
) -> Result<CommandStatus, Failure> {
    let (looked, obstacles) = inspect(&context.root, steps);
    let systemd = context.root.path("run/systemd/system").is_dir();
    context.answer(
        Context::view(false),
        || dry_run_json(&looked, &obstacles, asked, systemd),
        || dry_run(&looked, &obstacles, asked, systemd),
    )?;
    if !obstacles.is_empty() {
        let error = HostChangeError::Refused(obstacles, steps.len());
        return Err(refusal(error, "apply", asked.plan));
    }
    Ok(CommandStatus::Good)
}

/// Returns the exit status of a finished apply.
fn ended(outcome: &ApplyOutcome, plan: &str) -> Result<CommandStatus, Failure> {
    let Some(StopReason::Failed {
        step,
        error,
        errno,
        journal,
    }) = &outcome.stopped
    else {
        return Ok(outcome.is_good().into());
    };
    let what = match journal {
        true => format!("apply stopped at {step}: its journal cannot be written: {error}"),
        false => format!("apply stopped at {step}: {error}"),
    };
    let mend = match errno {
        Some(Errno::NOSPC | Errno::DQUOT) => "make room on that file system",
        Some(Errno::ROFS) => "make that file system writable",
        Some(Errno::ACCESS | Errno::PERM) => "run as root on the host itself",
        _ => "fix that",
    };
    Err(Failure::missing(
        what,
        format!("{mend}, then continue: hugeleaf apply {plan}; or revert: hugeleaf undo"),
    ))
}

/// Returns the failure for an error after which nothing was changed.
pub fn refusal(error: HostChangeError, command: &str, plan: &str) -> Failure {
    let text = format!("{command}: {error}; nothing was changed");
    let next = error.next(command, plan);
    match error {
        HostChangeError::SameId(_) | HostChangeError::NoSuch(_) => Failure::usage(text, next),
        _ => Failure::missing(text, next),
    }
}
