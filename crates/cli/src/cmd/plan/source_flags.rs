//! Defines one flag for each source of demand, from their table.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgGroup};
use hugeleaf_host::demand::{DemandSource, FlagArity, SOURCES, SourceKind};

#[derive(Debug, Default)]
pub struct SourceFlags(pub Vec<DemandSource>);

impl clap::FromArgMatches for SourceFlags {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<SourceFlags, clap::Error> {
        let of_kind = |kind: &'static SourceKind| {
            let values = matches
                .get_many::<OsString>(kind.flag)
                .into_iter()
                .flatten();
            values.map(move |value| DemandSource::Flag(kind, value.clone()))
        };
        Ok(SourceFlags(SOURCES.iter().flat_map(of_kind).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = SourceFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for SourceFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flags = SOURCES.iter().map(|kind| kind.flag);
        command
            .args(SOURCES.iter().map(flag))
            .group(ArgGroup::new("sources").args(flags).multiple(true))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        SourceFlags::augment_args(command)
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
