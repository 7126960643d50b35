//! Where the demand comes from: flags and targets to services.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgGroup};
use hugeleaf_host::demand::{
    DemandError, Given, SOURCES, Service, Source, SourceKind, User, read_services, read_source,
    read_user,
};
use hugeleaf_host::{Fact, Host};

use super::Args;
use crate::context::{Context, Failure};

impl From<DemandError> for Failure {
    fn from(error: DemandError) -> Failure {
        match error.is_usage {
            true => Failure::usage(error.what, error.next),
            false => Failure::missing(error.what, error.next),
        }
    }
}

/// All services that the flags and targets mean, and what could not be asked.
pub fn services(
    args: &Args,
    host: &Host,
    context: &Context,
) -> Result<(Vec<Service>, Vec<String>), Failure> {
    let mut services = Vec::new();
    let named = sources(args, host, context)?;
    let is_made_up = |source: &Source| matches!(source, Source::Flag(kind, _) if kind.is_made_up);
    let says_more = args.name.is_some() || args.user.is_some() || args.node.is_some();
    if says_more && args.mount.is_none() && !named.iter().any(is_made_up) {
        return Err(Failure::usage(
            "--name, --user and --node say something of --bytes or --mover",
            "hugeleaf plan --bytes 8G --user NAME",
        ));
    }
    let user = args.user.as_deref().map(|name| user(name, context));
    let user = user.transpose()?;
    for source in &named {
        let mut found = read_source(&context.root, &context.kernel, host, source)?;
        if is_made_up(source) {
            let each = found.iter_mut();
            each.for_each(|service| name_it(service, args, user.as_ref()));
        }
        services.extend(found);
    }
    if !named.is_empty() {
        return Ok((services, Vec::new()));
    }
    let found = read_services(&context.root, &context.kernel, host);
    let unread: Vec<String> = found
        .unread
        .iter()
        .map(|error| format!("not asked: {}; {}", error.what, error.next))
        .collect();
    if found.services.is_empty() {
        return Err(Failure::missing(
            match unread.first() {
                Some(first) => format!("no service that could use large pages; {first}"),
                None => "no running service that could use large pages".to_owned(),
            },
            "name one: hugeleaf plan --postgres DATADIR, --bytes 8G; hugeleaf plan --help",
        ));
    }
    Ok((found.services, unread))
}

/// What is to be asked: the targets, then the flags in the order of their description.
fn sources(args: &Args, host: &Host, context: &Context) -> Result<Vec<Source>, Failure> {
    let target = |target: &String| match Source::of_target(target, host) {
        Some(source) => Ok(source),
        None => Ok(Source::Pids(context.targets(std::slice::from_ref(target))?)),
    };
    let targets: Result<Vec<Source>, Failure> = args.targets.iter().map(target).collect();
    Ok(targets?
        .into_iter()
        .chain(args.sources.0.iter().cloned())
        .collect())
}

/// A user by name or number.
pub fn user(name: &str, context: &Context) -> Result<User, Failure> {
    match read_user(&context.root, name) {
        Fact::Known(user) => Ok(user),
        Fact::Absent => Err(Failure::usage(
            format!("--user {name}: no such user"),
            "getent passwd    # lists them",
        )),
        Fact::Unreadable(error) => Err(error.into()),
    }
}

/// What --name, --user and --node say of a service that is made up.
fn name_it(service: &mut Service, args: &Args, user: Option<&User>) {
    if let Some(name) = &args.name {
        service.name.clone_from(name);
        service.is_unnamed = false;
    }
    service.user = user.cloned();
    service.node = args.node;
}

/// The flags of all sources.
#[derive(Debug, Default)]
pub struct Sources(Vec<Source>);

impl clap::FromArgMatches for Sources {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Sources, clap::Error> {
        let of_kind = |kind: &'static SourceKind| {
            let values = matches
                .get_many::<OsString>(kind.flag)
                .into_iter()
                .flatten();
            values.map(move |value| Source::Flag(kind, value.clone()))
        };
        Ok(Sources(SOURCES.iter().flat_map(of_kind).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Sources::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Sources {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flags = SOURCES.iter().map(|kind| kind.flag);
        command
            .args(SOURCES.iter().map(flag))
            .group(ArgGroup::new("sources").args(flags).multiple(true))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Sources::augment_args(command)
    }
}

fn flag(kind: &'static SourceKind) -> Arg {
    let flag = Arg::new(kind.flag).long(kind.flag).help(kind.help);
    let flag = flag.value_name(kind.value);
    let flag = match kind.check {
        None => flag.value_parser(clap::value_parser!(OsString)),
        Some(check) => flag.value_parser(move |text: &str| -> Result<OsString, String> {
            check(text).map(|()| text.into())
        }),
    };
    match kind.given {
        Given::Once => flag,
        Given::Often => flag.action(ArgAction::Append),
        Given::OftenWithDash => flag.action(ArgAction::Append).allow_hyphen_values(true),
        Given::OnceOrBare => flag
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(""),
    }
}
