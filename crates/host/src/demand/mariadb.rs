//! MariaDB and MySQL: private memory that the server itself takes from the pool with `large_pages`.
//! There is a mapping for the key cache, Aria's cache and the buffer pool, and two for the log
//! buffer.
//!
//! The mappings of MariaDB 10.11.19 were traced with strace. The buffer pool is one mapping (rounded
//! up to 8 MB). The two caches exclude their block descriptors, which the server subtracts from the
//! configured size and keeps elsewhere. For each mapping, the server tries the largest page size of
//! the pool that is no larger than the mapping, rounded up to it, then smaller ones. If none is
//! available the server starts on base pages. It warns for the caches, but not for the buffer pool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hugeleaf_units::{Bytes, Failure};

use super::program_query::{complaint, query};
use super::service_reader::{ServiceReader, arguments_of, or_measured};
use super::source_kind::{DemandSourceKind, FlagArity, ProgramRule};
use super::{
    Demand, EqualMappings, HugePageRequirement, HugePageSetting, PageSource, Service, ServiceKind,
    user_account,
};
use crate::model::Process;

pub(super) const SOURCE: DemandSourceKind = DemandSourceKind {
    flag: "mariadb",
    value: "FILE",
    help: "MariaDB or MySQL, as configured by its option files or by this one",
    arity: FlagArity::OnceOrBare,
    check: None,
    is_synthetic: false,
    read: |reader, file| {
        let file = (!file.is_empty()).then_some(Path::new(file));
        Ok(vec![of_options(reader, file)?])
    },
};

pub(super) const PROGRAM: ProgramRule = ProgramRule {
    kind: ServiceKind::MariaDb,
    is: |name| matches!(name, "mariadbd" | "mysqld"),
    forks: false,
    running: |reader, process, _| of_process(reader, process),
    stopped: |reader, program, words| {
        let mut words = words.iter();
        let options = words.find_map(|word| word.strip_prefix("--defaults-file="));
        (PROGRAM.is)(program).then(|| of_options(reader, options.map(Path::new)))
    },
    query: None,
};

/// Reads a stopped server, by its option file or by its default ones.
fn of_options(reader: &ServiceReader<'_>, file: Option<&Path>) -> Result<Service, Failure> {
    let program = ["mariadbd", "mysqld"]
        .iter()
        .flat_map(|name| ["/usr/sbin", "/usr/bin", "/usr/libexec"].map(|f| format!("{f}/{name}")))
        .map(PathBuf::from)
        .find(|path| reader.is_file(path))
        .ok_or_else(|| {
            Failure::missing(
                "neither mariadbd nor mysqld is installed in /usr/sbin, /usr/bin or /usr/libexec",
                "start the server and name its process: hugeleaf plan PID",
            )
        })?;
    let mut arguments = Vec::new();
    let file = file.map(|file| reader.resolved(file));
    if let Some(file) = &file {
        if !reader.is_file(file) {
            return Err(Failure::usage(
                format!("{}: no such option file", file.display()),
                format!(
                    "{} --help --verbose | grep -A1 'Default options'",
                    program.display()
                ),
            ));
        }
        arguments.push(format!("--defaults-file={}", file.display()));
    }
    let user = user_account::read_user(reader.root, "mysql");
    let account = match user.known() {
        _ if hugeleaf_sys::effective_uid() != 0 => None,
        Some(user) => Some((user.uid, user.gid)),
        // The owner of the options decides which libraries the program loads.
        None => file
            .as_ref()
            .and_then(|file| Some(reader.files_of_owner(file).ok()?.1)),
    };
    let options = options_of(reader, &program, &arguments, account)?;
    let mut service = Service::new("mariadb", ServiceKind::MariaDb);
    service.user = user.known().cloned();
    service.configured_by = file;
    service.huge_page_setting = huge_page_setting(&options);
    service.demands = vec![demand_of(&options, &program)];
    Ok(service)
}

fn of_process(reader: &ServiceReader<'_>, process: &Process) -> Result<Service, Failure> {
    let process = reader.segments(process.pid)?;
    let mut service = reader.service(&process, ServiceKind::MariaDb, "mariadb");
    let arguments = arguments_of(reader.root, process.pid);
    let file = arguments
        .iter()
        .find_map(|a| a.strip_prefix("--defaults-file="));
    service.configured_by = file.map(PathBuf::from);
    // On base pages the caches cannot be distinguished from its other memory.
    service.huge_page_setting.requirement = HugePageRequirement::IfAvailable;
    let asked = reader.program_to_query(process.pid).and_then(|program| {
        let user = service.user.as_ref().map(|user| (user.uid, user.gid));
        let options = options_of(reader, &program, &safe_arguments(&arguments), user)?;
        service.huge_page_setting = huge_page_setting(&options);
        Ok(demand_of(&options, &program))
    });
    service.demands = or_measured(&process, asked)?;
    Ok(service)
}

/// Returns the arguments of a running server that decide sizes. The others name files and ports,
/// which the queried program must not open.
fn safe_arguments(arguments: &[String]) -> Vec<String> {
    const DECIDE: [&str; 8] = [
        "defaults-",
        "no-defaults",
        "large-pages",
        "skip-large-pages",
        "innodb-buffer-pool-",
        "innodb-log-buffer-",
        "key-",
        "aria-",
    ];
    let decides = |argument: &&String| {
        let name = argument.strip_prefix("--").unwrap_or_default();
        let name = name.trim_start_matches("loose-").replace('_', "-");
        DECIDE.iter().any(|prefix| name.starts_with(prefix))
    };
    arguments.iter().skip(1).filter(decides).cloned().collect()
}

/// Returns the options in force, as the program itself reads them.
fn options_of(
    reader: &ServiceReader<'_>,
    program: &Path,
    arguments: &[String],
    account: Option<(u32, u32)>,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut arguments = arguments.to_vec();
    arguments.extend(["--verbose", "--help"].map(str::to_owned));
    let answer = query(reader.root, program, &arguments, account)?;
    let options = parse_options(&answer.stdout);
    if options.contains_key(BUFFER_POOL) {
        return Ok(options);
    }
    Err(Failure::missing(
        format!(
            "{} --verbose --help: {}",
            program.display(),
            complaint(&answer)
        ),
        "fix the error in the option files that it reads",
    ))
}

const BUFFER_POOL: &str = "innodb-buffer-pool-size";

/// Parses the table at the end of `--verbose --help`: names and values in two columns.
pub fn parse_options(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .skip_while(|line| !line.starts_with("-----"))
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            Some((name.replace('_', "-"), value.trim().to_owned()))
        })
        .collect()
}

fn huge_page_setting(options: &BTreeMap<String, String>) -> HugePageSetting {
    let value = options.get("large-pages").map_or("", String::as_str);
    let (how, word) = match value {
        "TRUE" | "ON" | "1" => (HugePageRequirement::IfAvailable, "ON"),
        "FALSE" | "OFF" | "0" => (HugePageRequirement::Never, "OFF"),
        _ => (HugePageRequirement::Unknown, value),
    };
    HugePageSetting::new(how, format!("large_pages = {word}"))
}

fn demand_of(options: &BTreeMap<String, String>, program: &Path) -> Demand {
    let mut mappings = mappings_of(options);
    mappings.retain(|mapping| !mapping.bytes.is_zero());
    let source = format!("{} --verbose --help", program.display());
    Demand::new(
        "buffer pool, caches and log buffer",
        mappings,
        PageSource::Pool,
        source,
    )
}

fn mappings_of(options: &BTreeMap<String, String>) -> Vec<EqualMappings> {
    let number = |name: &str| options.get(name).and_then(|n| n.parse::<u64>().ok());
    let bytes = |name: &str| number(name).unwrap_or(0);
    let segments = bytes("key-cache-segments").max(1);
    let key_block = number("key-cache-block-size").unwrap_or(KEY_BLOCK).max(1);
    let key_size = bytes("key-buffer-size") / segments;
    let aria_block = number("aria-block-size").unwrap_or(ARIA_BLOCK).max(1);
    let aria_size = bytes("aria-pagecache-buffer-size");
    let mut mappings = vec![
        EqualMappings {
            bytes: blocks_in(key_size, key_block, KEY_DESCRIPTORS),
            count: segments,
        },
        EqualMappings::single(blocks_in(aria_size, aria_block, ARIA_DESCRIPTORS)),
    ];
    mappings.extend(buffer_pool(
        bytes(BUFFER_POOL),
        bytes("innodb-buffer-pool-chunk-size"),
    ));
    mappings.push(EqualMappings {
        bytes: Bytes(bytes("innodb-log-buffer-size")),
        count: 2,
    });
    mappings
}

/// Defaults of options that older versions do not list.
const KEY_BLOCK: u64 = 1 << 10; // not a page size: a block of an index
const ARIA_BLOCK: u64 = 8 << 10; // not a page size: a block of an index

/// Overhead of a block: its descriptor and two links (mysys/mf_keycache.c,
/// storage/maria/ma_pagecache.c of MariaDB 10.11). Derived from mapping sizes for several settings
/// from 64 MB to 4 GB, where it is exact to a block.
const KEY_DESCRIPTORS: u64 = 208;
const ARIA_DESCRIPTORS: u64 = 368;

/// Returns the bytes of the blocks of a cache. Its size must hold the blocks, their descriptors and a
/// hash table of the next power of two from five quarters of them.
fn blocks_in(size: u64, block: u64, descriptors: u64) -> Bytes {
    const POINTER: u64 = 8;
    let first = size / (block + descriptors + POINTER * 5 / 4);
    let table = (first + first / 4)
        .next_power_of_two()
        .saturating_mul(POINTER);
    let blocks = size.saturating_sub(table) / (block + descriptors);
    Bytes(blocks.saturating_mul(block))
}

/// Returns InnoDB's buffer pool. It is one mapping since 10.11.12, where the option for chunks has no
/// effect and reads 0. Before that, and in MySQL, it is chunks with the descriptors of their pages.
/// Those are estimated at 1/32 of a chunk, since no such version was tried.
fn buffer_pool(size: u64, chunk: u64) -> Vec<EqualMappings> {
    const EXTENT: u64 = 8 << 20; // not a page size: what the pool is rounded up to
    if chunk == 0 {
        return vec![EqualMappings::single(Bytes(
            size.checked_next_multiple_of(EXTENT).unwrap_or(size),
        ))];
    }
    vec![EqualMappings {
        bytes: Bytes(chunk.saturating_add(chunk / 32)),
        count: size.div_ceil(chunk),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rounded up to 2 MB, as MariaDB 10.11.19 mapped it under strace for these settings.
    #[test]
    fn the_caches_are_what_the_server_maps() {
        let rounded = |bytes: Bytes| bytes.get().next_multiple_of(2 << 20); // not a page size
        let key = |mib: u64| rounded(blocks_in(mib << 20, 1024, KEY_DESCRIPTORS));
        assert_eq!(
            [key(8), key(128), key(1024)],
            [8_388_608, 111_149_056, 878_706_688]
        );
        let large_blocks = 4 << 10; // not a page size: a block of an index
        let key_of_4g = rounded(blocks_in(4 << 30, large_blocks, KEY_DESCRIPTORS));
        assert_eq!(key_of_4g, 4_072_669_184);
        let aria = |mib: u64| rounded(blocks_in(mib << 20, ARIA_BLOCK, ARIA_DESCRIPTORS));
        assert_eq!([aria(64), aria(128)], [65_011_712, 130_023_424]);
        assert_eq!([aria(1024), aria(4096)], [1_027_604_480, 4_104_126_464]);
    }

    #[test]
    fn the_buffer_pool_in_one_piece_and_in_chunks() {
        let one = |size: u64| buffer_pool(size, 0)[0].bytes.get();
        assert_eq!(one(300 << 20), 318_767_104);
        assert_eq!(one(1100 << 20), 1_157_627_904);
        assert_eq!(one(1 << 30), 1 << 30);
        let chunks = buffer_pool(300 << 20, 128 << 20);
        assert_eq!(chunks[0].count, 3);
        assert!(chunks[0].bytes > Bytes(128 << 20));
    }

    #[test]
    fn options_are_the_table_at_the_end() {
        let text = "mysqld  Ver 10\n  --large-pages  help\nlarge-pages TRUE\n\
            Variables (--variable-name=value)\n-------------- ----\n\
            innodb-buffer-pool-size   134217728\nlarge_pages  TRUE\nsocket  /run/a b\n\nTo see\nx y\n";
        let options = parse_options(text);
        assert_eq!(options.len(), 3);
        assert_eq!(options["socket"], "/run/a b");
        let wish = huge_page_setting(&options);
        let expected = (HugePageRequirement::IfAvailable, "large_pages = ON");
        assert_eq!((wish.requirement, wish.text.as_str()), expected);
        assert_eq!(
            huge_page_setting(&BTreeMap::new()).requirement,
            HugePageRequirement::Unknown
        );
    }

    #[test]
    fn a_server_that_is_asked_opens_no_file_and_no_port() {
        let words = "mariadbd --defaults-file=/etc/my.cnf --log-error=/var/log/x --port=3306 \
            --innodb_buffer_pool_size=1G --large-pages --datadir=/d --pid-file=/p --key-buffer-size=8M";
        let words: Vec<String> = words.split_ascii_whitespace().map(str::to_owned).collect();
        let kept = safe_arguments(&words);
        assert_eq!(kept.len(), 4, "{kept:?}");
        assert_eq!(kept[0], "--defaults-file=/etc/my.cnf");
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*", n: u64) {
            let _ = parse_options(&format!("-----\n{text}"));
            let mut options = parse_options(&format!("-----\nkey-buffer-size {n}\n"));
            options.insert(BUFFER_POOL.to_owned(), (n >> 4).to_string());
            let _ = mappings_of(&options);
        }
    }
}
