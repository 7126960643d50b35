//! Defines one flag for each source of demand, from their table.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgGroup};
use hugeleaf_host::demand::{DemandSourceKind, FlagArity, SOURCES, ServiceSelector};

#[derive(Debug, Default)]
pub struct DemandSourceFlags(pub Vec<ServiceSelector>);

impl clap::FromArgMatches for DemandSourceFlags {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<DemandSourceFlags, clap::Error> {
        let of_kind = |kind: &'static DemandSourceKind| {
            let values = matches
                .get_many::<OsString>(kind.flag)
                .into_iter()
                .flatten();
            values.map(move |value| ServiceSelector::Flag(kind, value.clone()))
        };
        Ok(DemandSourceFlags(
            SOURCES.iter().flat_map(of_kind).collect(),
        ))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = DemandSourceFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for DemandSourceFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flags = SOURCES.iter().map(|kind| kind.flag);
        command
            .args(SOURCES.iter().map(flag))
            .group(ArgGroup::new("sources").args(flags).multiple(true))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        DemandSourceFlags::augment_args(command)
    }
}

fn flag(kind: &'static DemandSourceKind) -> Arg {
    let flag = Arg::new(kind.flag).long(kind.flag).help(kind.help);
    let flag = flag.value_name(kind.value);
    let flag = match kind.check {
        None => flag.value_parser(clap::value_parser!(OsString)),
        Some(check) => flag.value_parser(move |text: &str| -> Result<OsString, String> {
            check(text).map(|()| text.into())
        }),
    };
    match kind.arity {
        FlagArity::Once => flag,
        FlagArity::Often => flag.action(ArgAction::Append),
        FlagArity::OftenWithDash => flag.action(ArgAction::Append).allow_hyphen_values(true),
        FlagArity::OnceOrBare => flag
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(""),
    }
}
