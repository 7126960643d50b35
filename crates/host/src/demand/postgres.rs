//! PostgreSQL: one shared mapping, allocated whole at the start, from the pool if it is configured.
//!
//! A stopped cluster is queried through its own program (`postgres -C shared_memory_size`, since version
//! 15). For a running one the mapping itself is measured. If a person names it, it is queried too (`SHOW
//! shared_memory_size`), including settings that wait for a restart.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hugeleaf_units::{Bytes, Failure, PageSize};

use super::postgres_config::setting_in_files;
use super::program_query::{complaint, query};
use super::service_reader::{ServiceReader, arguments_of, held_of, shared_objects};
use super::source_kind::{DemandSourceKind, FlagArity, ProgramRule};
use super::{
    Demand, EqualMappings, HugePageRequirement, HugePageSetting, PageSource, Service, ServiceKind,
    user_account,
};
use crate::model::{Process, ProcessMapping};
use crate::root::UntrustedFiles;

const PID_FILE: &str = "postmaster.pid";

const WHAT: &str = "shared_buffers and related memory";

pub(super) const SOURCE: DemandSourceKind = DemandSourceKind {
    flag: "postgres",
    value: "DATADIR",
    help: "PostgreSQL cluster by its data directory, running or not",
    arity: FlagArity::Often,
    check: None,
    is_synthetic: false,
    read: |reader, data| Ok(vec![of_folder(reader, Path::new(data))?]),
};

pub(super) const PROGRAM: ProgramRule = ProgramRule {
    kind: ServiceKind::PostgreSql,
    is: |name| matches!(name, "postgres" | "postmaster"),
    forks: true,
    running: |reader, postmaster, all| {
        let mut service = of_postmaster(reader, postmaster)?;
        let children = all.iter().filter(|p| p.parent == postmaster.pid);
        service.pids.extend(children.map(|p| p.pid));
        Ok(service)
    },
    stopped: of_command,
    query: Some(query_server),
};

/// Reads a stopped cluster, by the server's command or Debian's (`pg_ctlcluster 15-main start`).
fn of_command(
    reader: &ServiceReader<'_>,
    program: &str,
    words: &[&str],
) -> Option<Result<Service, Failure>> {
    if (PROGRAM.is)(program) {
        let at = words.iter().position(|word| *word == "-D")?;
        return Some(of_folder(reader, Path::new(words.get(at + 1)?)));
    }
    if program != "pg_ctlcluster" {
        return None;
    }
    let cluster = words.iter().find_map(|word| {
        word.split_once('-')
            .filter(|(v, _)| v.parse::<u32>().is_ok())
    })?;
    let config = format!(
        "/etc/postgresql/{}/{}/postgresql.conf",
        cluster.0, cluster.1
    );
    let clusters = debian_clusters(reader);
    let (_, data) = clusters.iter().find(|(c, _)| *c == Path::new(&config))?;
    Some(of_folder(reader, data))
}

/// Reads the cluster in a data folder, running or not.
fn of_folder(reader: &ServiceReader<'_>, data: &Path) -> Result<Service, Failure> {
    let data = &reader.resolved(data);
    let unseen = |e: std::io::Error| match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => no_data_folder(data),
        ErrorKind::TimedOut => Failure::missing(
            format!("{}: {e}", data.display()),
            "run this again once its file server answers",
        ),
        _ => Failure::missing(format!("{}: {e}", data.display()), "run hugeleaf as root"),
    };
    let (theirs, owner) = reader.files_of_owner(data).map_err(unseen)?;
    let version = version_of(&theirs, data)?;
    if let Some(postmaster) = running_in(reader, &theirs, data) {
        return of_postmaster(reader, &postmaster);
    }
    let cluster = PostgresCluster::find(reader, data, &version, owner)?;
    let mut service = Service::new(format!("postgresql-{version}"), ServiceKind::PostgreSql);
    service.user = Some(user_account::of_uid(reader.root, cluster.owner.0));
    service.configured_by = Some(data.clone());
    let is_said = [&cluster.config, &data.join("postgresql.auto.conf")]
        .iter()
        .any(|file| setting_in_files(&theirs, file, "huge_pages").is_some());
    service.huge_page_setting =
        match huge_page_setting(&cluster.query_setting(reader, "huge_pages")?) {
            wish if wish.requirement == HugePageRequirement::IfAvailable && !is_said => {
                by_default()
            }
            wish => wish,
        };
    // Before version 12 there is no such setting, and mmap is the only kind.
    let kind = cluster.query_setting(reader, SHARED_MEMORY_TYPE).ok();
    service.huge_page_setting = unless_elsewhere(service.huge_page_setting, kind.as_deref());
    service.demands = vec![cluster.demand(reader)?];
    Ok(service)
}

fn of_postmaster(reader: &ServiceReader<'_>, postmaster: &Process) -> Result<Service, Failure> {
    let process = reader.segments(postmaster.pid)?;
    let mut service = reader.service(&process, ServiceKind::PostgreSql, "postgresql");
    let data = reader.link(process.pid, "cwd");
    service.configured_by.clone_from(&data);
    // The mapping with the buffers is by far the largest shared one.
    let largest = shared_objects(&process).max_by_key(|segment| segment.range.len());
    service.demands = largest.map(measured).into_iter().collect();
    let configured = PostgresConfig {
        arguments: arguments_of(reader.root, process.pid),
        files: reader.files_of(&process),
        data,
    };
    let wish = configured
        .setting("huge_pages")
        .map_or_else(by_default, |value| huge_page_setting(&value));
    let kind = configured.setting(SHARED_MEMORY_TYPE);
    service.huge_page_setting = unless_elsewhere(wish, kind.as_deref());
    if let Some(demand) = service.demands.first_mut() {
        let page = configured.setting("huge_page_size");
        demand.page = page.and_then(|value| page_of(&value));
        let buffers = configured.setting("shared_buffers");
        demand.buffers = buffers.and_then(|value| size_of(&value, None));
    }
    Ok(service)
}

/// Queries a running server for its size and for settings that wait for a restart, and adds them to the
/// measured size. Without permission to connect, only the measured size remains.
fn query_server(reader: &ServiceReader<'_>, service: &mut Service) {
    let Some(answer) = answer_of_running(reader, service) else {
        return;
    };
    if let Some(demand) = service.demands.first_mut() {
        demand.source = source_of(&answer, &demand.source);
    }
}

/// Returns `537MB|max_connections, shared_buffers`: the size, empty before version 15, and pending
/// settings.
fn answer_of_running(reader: &ServiceReader<'_>, service: &Service) -> Option<String> {
    const QUERY: &str = "SELECT current_setting('shared_memory_size', true), \
        (SELECT string_agg(name, ', ' ORDER BY name) FROM pg_settings WHERE pending_restart)";
    let (pid, user) = (*service.pids.first()?, service.user.as_ref()?);
    let process = crate::process::read_basics(reader.root, pid).ok()?;
    let file = reader.files_of(&process)?;
    let file = file.read(&reader.link(pid, "cwd")?.join(PID_FILE));
    let (port, folder) = socket_in(file.known()?)?;
    let its_own = reader.program_to_query(pid).ok()?.with_file_name("psql");
    let program = [its_own, PathBuf::from("/usr/bin/psql")]
        .into_iter()
        .find(|path| reader.is_file(path))?;
    let name = user.name.as_deref()?;
    let to = format!("host='{folder}' port={port} user='{name}' dbname=postgres connect_timeout=3");
    let arguments = ["-XAtw", "-d", &to, "-c", QUERY].map(str::to_owned);
    let answer = query(
        reader.root,
        &program,
        &arguments,
        Some((user.uid, user.gid)),
    )
    .ok()?;
    answer
        .status
        .success()
        .then(|| answer.stdout.trim().to_owned())
}

/// Parses port and folder of the socket from the postmaster's file in its data folder: the fourth and fifth
/// line. `None` if it listens on no Unix socket.
fn socket_in(text: &str) -> Option<(u16, &str)> {
    let mut lines = text.lines().skip(3);
    let port = lines.next()?.trim().parse().ok()?;
    let folder = lines.next()?.trim();
    (folder.starts_with('/') && !folder.contains(['\'', '\\'])).then_some((port, folder))
}

/// Describes the source of a running server's size: reported and measured.
fn source_of(answer: &str, measured: &str) -> String {
    let (size, waits) = answer.split_once('|').unwrap_or((answer, ""));
    let said = match size {
        "" => measured.to_owned(),
        size => format!("the server reports shared_memory_size = {size}; {measured}"),
    };
    match waits {
        "" => said,
        waits => format!("{said}; {waits} pending a restart: plan again after it"),
    }
}

fn measured(segment: &ProcessMapping) -> Demand {
    let mappings = vec![EqualMappings::single(segment.range.len())];
    Demand {
        held: Some(held_of(segment)),
        ..Demand::new(
            WHAT,
            mappings,
            PageSource::Pool,
            "the length of its shared mapping",
        )
    }
}

fn huge_page_setting(value: &str) -> HugePageSetting {
    let how = match value.trim().to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => HugePageRequirement::Always,
        "try" => HugePageRequirement::IfAvailable,
        "off" | "false" | "no" | "0" => HugePageRequirement::Never,
        _ => HugePageRequirement::Unknown,
    };
    HugePageSetting::new(how, format!("huge_pages = {}", value.trim()))
}

/// Kind of PostgreSQL's shared memory (since version 12). It takes only mmap memory from a pool: with
/// `sysv` and `huge_pages = on` it does not start, and with `try` it never requests pages
/// (`PGSharedMemoryCreate`, `sysv_shmem.c`).
const SHARED_MEMORY_TYPE: &str = "shared_memory_type";

fn unless_elsewhere(wish: HugePageSetting, kind: Option<&str>) -> HugePageSetting {
    match kind.map(str::trim) {
        None | Some("mmap") => wish,
        Some(kind) => HugePageSetting::new(
            HugePageRequirement::Cannot,
            format!("{SHARED_MEMORY_TYPE} = {kind}"),
        ),
    }
}

/// Returns PostgreSQL's default without a setting: `try`.
fn by_default() -> HugePageSetting {
    HugePageSetting::new(HugePageRequirement::IfAvailable, "")
}

struct PostgresConfig {
    arguments: Vec<String>,
    files: Option<UntrustedFiles>,
    data: Option<PathBuf>,
}

impl PostgresConfig {
    /// Returns the configured value: from its command line, else from its files.
    fn setting(&self, name: &str) -> Option<String> {
        if let Some(value) = setting_in_arguments(&self.arguments, name) {
            return Some(value);
        }
        let (theirs, data) = (self.files.as_ref()?, self.data.as_deref()?);
        let config = config_of_running(theirs, &self.arguments, data);
        // ALTER SYSTEM writes the other file, which is read last.
        let files = [data.join("postgresql.auto.conf"), config];
        let mut values = files
            .iter()
            .filter_map(|file| setting_in_files(theirs, file, name));
        values.next()
    }
}

/// Returns the configuration file of a running postmaster: the one on its command line, else the one in its
/// `-D` folder. On some hosts that folder is not the data folder.
fn config_of_running(theirs: &UntrustedFiles, arguments: &[String], data: &Path) -> PathBuf {
    const NAME: &str = "postgresql.conf";
    if let Some(named) = setting_in_arguments(arguments, "config_file") {
        return data.join(named);
    }
    let at = arguments.iter().position(|argument| argument == "-D");
    let after = at.and_then(|at| arguments.get(at + 1));
    let together = || {
        arguments
            .iter()
            .find_map(|argument| argument.strip_prefix("-D"))
    };
    let folder = after.map(String::as_str).or_else(together);
    let named = folder.map(|folder| data.join(folder).join(NAME));
    named
        .filter(|file| theirs.owner(file).is_some())
        .unwrap_or_else(|| data.join(NAME))
}

/// Returns the last setting in the arguments of `postgres`: `-c name=value` or `--name=value`.
fn setting_in_arguments(arguments: &[String], name: &str) -> Option<String> {
    let mut found = None;
    let mut before = "";
    for argument in arguments {
        let setting = match before {
            "-c" => Some(argument.as_str()),
            _ => argument
                .strip_prefix("--")
                .or_else(|| argument.strip_prefix("-c").filter(|rest| !rest.is_empty())),
        };
        if let Some((key, value)) = setting.and_then(|s| s.split_once('='))
            && key.replace('-', "_") == name
        {
            found = Some(value.to_owned());
        }
        before = argument;
    }
    found
}

/// Parses a page size of PostgreSQL: `2MB`, `1GB`, a number of kB, 0 for the default.
fn page_of(value: &str) -> Option<PageSize> {
    let value: String = value.split_whitespace().collect();
    let bytes = match value.ends_with('B') {
        true => value.parse().ok()?,
        false => Bytes::from_kib(value.parse().ok()?),
    };
    PageSize::new(bytes).ok()
}

/// Parses a memory size of PostgreSQL: `128MB`, or a number of blocks.
fn size_of(value: &str, block: Option<Bytes>) -> Option<Bytes> {
    let value: String = value.split_whitespace().collect();
    match value.ends_with('B') {
        true => value.parse().ok(),
        false => Some(block? * value.parse::<u64>().ok()?),
    }
}

fn no_data_folder(data: &Path) -> Failure {
    let file = data.join("PG_VERSION");
    Failure::usage(
        format!(
            "{}: does not exist, so this is not a data folder",
            file.display()
        ),
        "use the folder printed by: psql -Atc 'SHOW data_directory'",
    )
}

/// Returns the version of a data folder: digits and points. It becomes a part of a path. The target of a
/// link of that name must not be printed.
fn version_of(theirs: &UntrustedFiles, data: &Path) -> Result<String, Failure> {
    let text = match theirs.read(&data.join("PG_VERSION")) {
        crate::Fact::Known(text) => text.trim().to_owned(),
        crate::Fact::Absent => return Err(no_data_folder(data)),
        crate::Fact::Unreadable(error) => {
            return Err(Failure::missing(
                error.to_string(),
                "run hugeleaf as root, or as the owner of the folder",
            ));
        }
    };
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let is_version = text.starts_with(|c: char| c.is_ascii_digit());
    if is_version && text.len() <= 16 && text.chars().all(is_part) {
        return Ok(text);
    }
    Err(Failure::usage(
        format!("{}: contains no version", data.join("PG_VERSION").display()),
        "use the folder printed by: psql -Atc 'SHOW data_directory'",
    ))
}

/// Returns the running postmaster of a data folder. Its working folder is the data folder.
fn running_in(reader: &ServiceReader<'_>, theirs: &UntrustedFiles, data: &Path) -> Option<Process> {
    let text = theirs.read(&data.join(PID_FILE)).known()?.clone();
    let pid = hugeleaf_sys::Pid(text.lines().next()?.trim().parse().ok()?);
    let process = crate::process::read_basics(reader.root, pid).ok()?;
    let is_there = (PROGRAM.is)(&process.name) && {
        let folder = reader.canonical(&reader.link(pid, "cwd")?);
        folder.is_some() && folder == reader.canonical(data)
    };
    is_there.then_some(process)
}

/// A stopped cluster, with its program, configuration and owner.
struct PostgresCluster {
    data: PathBuf,
    config: PathBuf,
    program: PathBuf,
    owner: (u32, u32),
}

impl PostgresCluster {
    fn find(
        reader: &ServiceReader<'_>,
        data: &Path,
        version: &str,
        owner: (u32, u32),
    ) -> Result<PostgresCluster, Failure> {
        let mut config = data.join("postgresql.conf");
        if !reader.is_file(&config) {
            // Debian's file is outside the data folder and names it.
            let mut clusters = debian_clusters(reader).into_iter();
            let found = clusters.find_map(|(file, folder)| (folder == data).then_some(file));
            config = found.unwrap_or(config);
        }
        let program = program_of(reader, version).ok_or_else(|| {
            Failure::missing(
                format!(
                    "{}: no postgres of version {version} is installed",
                    data.display()
                ),
                "install it, or start the cluster and run this again: a running cluster is measured",
            )
        })?;
        Ok(PostgresCluster {
            data: data.to_owned(),
            config,
            program,
            owner,
        })
    }

    /// Returns one setting, as its own program prints it.
    fn query_setting(&self, reader: &ServiceReader<'_>, setting: &str) -> Result<String, Failure> {
        let arguments = [
            "-D".to_owned(),
            self.data.display().to_string(),
            "-c".to_owned(),
            format!("config_file={}", self.config.display()),
            "-C".to_owned(),
            setting.to_owned(),
        ];
        let answer = query(reader.root, &self.program, &arguments, Some(self.owner))?;
        if answer.status.success() {
            return Ok(answer.stdout.trim().to_owned());
        }
        let complaint = complaint(&answer);
        let next = if complaint.contains("unrecognized configuration parameter") {
            "versions before 15 cannot report it: start the cluster and run this again, which measures it"
                .to_owned()
        } else {
            format!("fix the error in {}", self.config.display())
        };
        let program = self.program.display();
        Err(Failure::missing(
            format!(
                "{program} -D {} -C {setting}: {complaint}",
                self.data.display()
            ),
            next,
        ))
    }

    /// Returns its demand. The figure is in whole MB, rounded up. Rounding it again to pages of a MB or
    /// more gives the same as rounding the bytes, which are not reported.
    fn demand(&self, reader: &ServiceReader<'_>) -> Result<Demand, Failure> {
        const SETTING: &str = "shared_memory_size";
        let answer = self.query_setting(reader, SETTING)?;
        let mib: u64 = answer.parse().map_err(|_| {
            Failure::missing(
                format!(
                    "{} -C {SETTING}: '{answer}' is not a number",
                    self.program.display()
                ),
                "start the cluster and run this again: a running cluster is measured",
            )
        })?;
        let mappings = vec![EqualMappings::single(Bytes::from_mib(mib))];
        let source = format!("{} -C {SETTING}", self.program.display());
        let block = self.query_setting(reader, "block_size").ok();
        let block = block.and_then(|bytes| bytes.parse().ok()).map(Bytes);
        let buffers = self.query_setting(reader, "shared_buffers").ok();
        Ok(Demand {
            page: page_of(&self.query_setting(reader, "huge_page_size")?),
            buffers: buffers.and_then(|value| size_of(&value, block)),
            ..Demand::new(WHAT, mappings, PageSource::Pool, source)
        })
    }
}

/// Returns configuration and data folder of every cluster below `/etc/postgresql`.
fn debian_clusters(reader: &ServiceReader<'_>) -> Vec<(PathBuf, PathBuf)> {
    let list = |folder: &str| reader.root.list(folder).or_default();
    let mut found = Vec::new();
    for version in list("etc/postgresql") {
        for name in list(&format!("etc/postgresql/{version}")) {
            let folder = PathBuf::from(format!("/etc/postgresql/{version}/{name}"));
            let config = folder.join("postgresql.conf");
            let Ok((theirs, _)) = reader.files_of_owner(&folder) else {
                continue;
            };
            if let Some(data) = setting_in_files(&theirs, &config, "data_directory") {
                found.push((config, PathBuf::from(data)));
            }
        }
    }
    found
}

fn program_of(reader: &ServiceReader<'_>, version: &str) -> Option<PathBuf> {
    let major = version.split('.').next().unwrap_or(version);
    let candidates = [
        format!("/usr/lib/postgresql/{major}/bin/postgres"),
        format!("/usr/pgsql-{major}/bin/postgres"),
        format!("/usr/lib64/postgresql/{major}/bin/postgres"),
        format!("/usr/local/pgsql-{major}/bin/postgres"),
        "/usr/bin/postgres".to_owned(),
        "/usr/local/pgsql/bin/postgres".to_owned(),
    ];
    let mut candidates = candidates.into_iter().map(PathBuf::from);
    candidates.find(|path| reader.is_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_in_units_or_in_blocks() {
        let block = Some(Bytes(1 << 13));
        let of = |value, block| size_of(value, block).map(Bytes::get);
        assert_eq!(of("128MB", None), Some(128 << 20));
        assert_eq!(of("1 GB", None), Some(1 << 30));
        assert_eq!(of("16384kB", None), Some(16 << 20));
        assert_eq!(of("16384", block), Some(128 << 20));
        assert_eq!(of("16384", None), None);
        assert_eq!(of("a lot", block), None);
    }

    #[test]
    fn memory_that_is_not_mapped_never_comes_from_a_pool() {
        let wish = |kind| unless_elsewhere(huge_page_setting("on"), kind);
        assert_eq!(wish(Some("mmap")).requirement, HugePageRequirement::Always);
        assert_eq!(wish(None).requirement, HugePageRequirement::Always);
        assert_eq!(
            wish(Some("sysv\n")).requirement,
            HugePageRequirement::Cannot
        );
        assert_eq!(wish(Some("sysv")).text, "shared_memory_type = sysv");
    }

    #[test]
    fn settings_are_read_from_the_command_line() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let line =
            words("postgres -D /d -c huge_pages=off --huge-pages=on -chuge_page_size=2MB -F");
        let of = |name| setting_in_arguments(&line, name);
        assert_eq!(of("huge_pages").as_deref(), Some("on"));
        assert_eq!(of("huge_page_size").as_deref(), Some("2MB"));
        assert_eq!(of("D"), None);
    }

    #[test]
    fn page_sizes_are_written_in_three_ways() {
        let page = |text| page_of(text).map(|size| size.to_string());
        assert_eq!(page("2MB").as_deref(), Some("2M"));
        assert_eq!(page("64kB").as_deref(), Some("64K"));
        assert_eq!(page("2 MB").as_deref(), Some("2M"));
        assert_eq!(page("1048576").as_deref(), Some("1G"));
        assert_eq!(page("0"), None);
        assert_eq!(page("x"), None);
    }

    #[test]
    fn what_a_running_server_says() {
        let measured = "the length of its shared mapping";
        assert_eq!(
            source_of("537MB|", measured),
            "the server reports shared_memory_size = 537MB; the length of its shared mapping"
        );
        assert_eq!(
            source_of("|shared_buffers, wal_buffers", measured),
            "the length of its shared mapping; shared_buffers, wal_buffers pending a restart: \
             plan again after it"
        );
        assert_eq!(source_of("", measured), measured);
        let file = "41\n/data\n1790000000\n5433\n/run/postgresql\n\n  12  0\nready   \n";
        assert_eq!(socket_in(file), Some((5433, "/run/postgresql")));
        assert_eq!(socket_in("41\n/data\n1790000000\n5433\n\n*\n"), None);
        assert_eq!(socket_in("41\n/data\n1790000000\nx\n/run\n"), None);
        assert_eq!(socket_in("41\n"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*", words in proptest::collection::vec("[-a-z=_]*", 0..6)) {
            let _ = page_of(&text);
            let _ = (socket_in(&text), source_of(&text, ""));
            let _ = setting_in_arguments(&words, "huge_pages");
        }
    }
}
