//! Where the demand comes from: flags and targets to services.

use hugeleaf_host::demand::{
    Demand, DemandError, Piece, Place, Service, ServiceKind, Source, User, read_services,
    read_source, read_user,
};
use hugeleaf_host::{Fact, Host};
use hugeleaf_units::Bytes;

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
    for source in &named {
        services.extend(read_source(&context.root, &context.kernel, host, source)?);
    }
    services.extend(made_up(args, context)?);
    if !named.is_empty() || !services.is_empty() {
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

/// What is to be asked, in the order of the flags' description.
fn sources(args: &Args, host: &Host, context: &Context) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    for target in &args.targets {
        sources.push(target_source(target, host, context)?);
    }
    sources.extend(args.postgres.iter().cloned().map(Source::Postgres));
    if let Some(file) = &args.mariadb {
        sources.push(Source::MariaDb(file.clone()));
    }
    sources.extend(args.java.iter().cloned().map(Source::Java));
    sources.extend(args.container.iter().cloned().map(Source::Container));
    Ok(sources)
}

/// A unit may be stopped, and a cgroup may have limits of its own; everything else is processes.
fn target_source(target: &str, host: &Host, context: &Context) -> Result<Source, Failure> {
    if target.ends_with(".service") {
        return Ok(Source::Unit(target.to_owned()));
    }
    let limited = host.cgroups.known().map(Vec::as_slice).unwrap_or_default();
    if limited.iter().any(|group| group.path == target) {
        return Ok(Source::Container(target.to_owned()));
    }
    Ok(Source::Pids(context.targets(&[target.to_owned()])?))
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

/// Services that only flags know.
fn made_up(args: &Args, context: &Context) -> Result<Vec<Service>, Failure> {
    let mut services = Vec::new();
    if let Some(bytes) = args.bytes {
        if bytes.is_zero() {
            return Err(Failure::usage(
                "--bytes 0: nothing to plan",
                "as in --bytes 8G",
            ));
        }
        let name = args.name.clone().unwrap_or_else(|| "bytes".to_owned());
        let mut service = Service::new(name, ServiceKind::Other);
        service.is_unnamed = args.name.is_none();
        service.demands = vec![demand(
            "memory",
            vec![Piece::one(bytes)],
            "--bytes".to_owned(),
        )];
        services.push(service);
    }
    if let Some(segments) = args.mover {
        let name = args.name.clone().unwrap_or_else(|| "mover".to_owned());
        let mut service = Service::new(name, ServiceKind::Mover);
        service.is_unnamed = args.name.is_none();
        service.demands = vec![mover(segments)];
        services.push(service);
    }
    let about = args.name.is_some() || args.user.is_some() || args.node.is_some();
    if services.is_empty() && about && args.mount.is_none() {
        return Err(Failure::usage(
            "--name, --user and --node say something of --bytes or --mover",
            "hugeleaf plan --bytes 8G --user NAME",
        ));
    }
    if let (Some(name), false) = (&args.user, services.is_empty()) {
        let user = user(name, context)?;
        for service in &mut services {
            service.user = Some(user.clone());
        }
    }
    for service in &mut services {
        service.node = args.node;
    }
    Ok(services)
}

fn demand(what: &str, pieces: Vec<Piece>, source: String) -> Demand {
    Demand {
        what: what.to_owned(),
        pieces,
        place: Place::Pool,
        page: None,
        source,
        held: None,
    }
}

/// The published rule: so many pages of 16M for each segment of data, and 32 beside them for the
/// kernel and for growth. Segments of the platform that it is from are 256M.
fn mover(segments: u64) -> Demand {
    const RULE_PAGE: Bytes = Bytes::from_mib(16);
    const PAGES_A_SEGMENT: u64 = 16;
    const BESIDE: u64 = 32;
    let pages = |n: u64| Bytes(RULE_PAGE.get().saturating_mul(n));
    let segment = Piece {
        bytes: pages(PAGES_A_SEGMENT),
        count: segments,
    };
    let in_rule = segments
        .saturating_mul(PAGES_A_SEGMENT)
        .saturating_add(BESIDE);
    demand(
        "data segments, and 32 pages beside them",
        vec![segment, Piece::one(pages(BESIDE))],
        format!(
            "the published rule: {segments} × {PAGES_A_SEGMENT} + {BESIDE} = {in_rule} \
             pages of {RULE_PAGE}"
        ),
    )
}
