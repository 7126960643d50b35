//! Finds the services that flags and targets name.

use hugeleaf_host::demand::{
    CacheNodes, Demand, Service, ServiceKind, ServiceSelector, User, cache_shares, host_cache,
    read_services, read_source, read_user,
};
use hugeleaf_host::{Fact, Host};

use super::flags::Args;
use crate::context::{AmbiguityPolicy, Context, Failure};

/// Returns all services of the flags and targets, and a line for each that could not be read.
pub fn services(
    args: &Args,
    host: &Host,
    context: &Context,
) -> Result<(Vec<Service>, Vec<String>), Failure> {
    let mut services = Vec::new();
    let named = sources(args, host, context)?;
    let is_synthetic = |source: &ServiceSelector| matches!(source, ServiceSelector::Flag(kind, _) if kind.is_synthetic);
    let says_more = args.name.is_some() || args.user.is_some() || args.node.is_some();
    if says_more && args.mount.is_none() && !named.iter().any(is_synthetic) {
        return Err(Failure::usage(
            "--name, --user and --node need --bytes, --mover or --host-cache",
            "hugeleaf plan --bytes 8G --user NAME",
        ));
    }
    let user = args.user.as_deref().map(|name| user(name, context));
    let user = user.transpose()?;
    for source in &named {
        let mut found = read_source(&context.root, &context.kernel, host, source)?;
        found = shared_out(found, args, host);
        if is_synthetic(source) {
            let each = found.iter_mut();
            each.for_each(|service| apply_flags(service, args, user.as_ref()));
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
        .map(|error| format!("not queried: {}; {}", error.message, error.remedy))
        .collect();
    if found.services.is_empty() {
        return Err(Failure::missing(
            match unread.first() {
                Some(first) => format!("no service that could use huge pages; {first}"),
                None => "no running service that could use huge pages".to_owned(),
            },
            "name one: hugeleaf plan --postgres DATADIR, --bytes 8G; hugeleaf plan --help",
        ));
    }
    Ok((found.services, unread))
}

/// Returns the sources of demand: targets first, then flags in the order of their table.
fn sources(args: &Args, host: &Host, context: &Context) -> Result<Vec<ServiceSelector>, Failure> {
    let target = |target: &String| match ServiceSelector::of_target(target, host) {
        Some(source) => Ok(source),
        None => Ok(ServiceSelector::Pids(
            context.targets(std::slice::from_ref(target), AmbiguityPolicy::All)?,
        )),
    };
    let targets: Result<Vec<ServiceSelector>, Failure> = args.targets.iter().map(target).collect();
    Ok(targets?
        .into_iter()
        .chain(args.sources.0.iter().cloned())
        .collect())
}

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

/// Applies --name, --user and --node to a synthetic service.
fn apply_flags(service: &mut Service, args: &Args, user: Option<&User>) {
    if let Some(name) = &args.name {
        service.name = match service.node {
            Some(node) => format!("{name}-node{node}"),
            None => name.clone(),
        };
        service.is_unnamed = false;
    }
    service.user = user.cloned();
    service.node = service.node.or(args.node);
}

/// Divides a cache among its ranks, by --ranks and --node-each.
fn shared_out(services: Vec<Service>, args: &Args, host: &Host) -> Vec<Service> {
    let shared = |service: Service| match service.kind {
        ServiceKind::HostCache => {
            let bytes = service.demands.iter().map(Demand::bytes).sum();
            let nodes = match args.node_each {
                true => CacheNodes::Each,
                false => CacheNodes::Any,
            };
            host_cache::services(&cache_shares(bytes, args.ranks, nodes, &host.nodes))
        }
        _ => vec![service],
    };
    services.into_iter().flat_map(shared).collect()
}
