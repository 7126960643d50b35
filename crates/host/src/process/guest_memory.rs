//! The RAM of a QEMU guest among the mappings of its process, by the command line of QEMU.
//!
//! The command line names every memory backend with its size (qemu(1): `-m`, `-object memory-backend-*`). A mapping is RAM if it
//! has exactly that size and the kind of its backend. If several backends fit equally well, none of them is named.

use hugeleaf_units::{Bytes, Range};
use serde_json::Value as Json;

use super::maps::MapLine;
use crate::model::GuestRam;

/// Kinds of memory backends, as far as their mappings differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendKind {
    /// `memory-backend-ram`, and RAM without a backend of its own.
    Anonymous,
    /// `memory-backend-memfd`.
    Memfd,
    /// `memory-backend-file` with this `mem-path`, and `-mem-path`.
    File(String),
}

/// A memory backend of a QEMU command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryBackend {
    /// `None` for RAM without a backend of its own (`-m` alone).
    pub id: Option<String>,
    pub size: Bytes,
    pub kind: BackendKind,
}

/// RAM of a machine without `-m` (qemu(1)).
const DEFAULT_RAM: Bytes = Bytes::from_mib(128);

/// Parses the memory backends of a QEMU command line, whose arguments end in zero bytes (`/proc/PID/cmdline`). Empty for other
/// programs. Skips arguments of another form.
pub fn parse_guest_backends(command_line: &str) -> Vec<MemoryBackend> {
    let mut arguments = command_line.split('\0');
    if !arguments.next().is_some_and(is_qemu) {
        return Vec::new();
    }
    let mut machine = GuestMachine::default();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        // QEMU accepts one dash or two.
        let Some(flag) = argument.strip_prefix('-') else {
            continue;
        };
        let flag = flag.strip_prefix('-').unwrap_or(flag);
        if let Some(value) = arguments.next_if(|value| !value.starts_with('-')) {
            machine.read(flag, value);
        }
    }
    machine.backends()
}

fn is_qemu(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    name.starts_with("qemu-system-") || matches!(name, "qemu-kvm" | "kvm" | "qemu")
}

#[derive(Default)]
struct GuestMachine {
    ram: Option<Bytes>,
    path: Option<String>,
    objects: Vec<MemoryBackend>,
    /// True if backends provide the RAM of the machine, so that `-m` adds none.
    is_backed: bool,
}

impl GuestMachine {
    fn read(&mut self, flag: &str, value: &str) {
        match flag {
            "m" => {
                let options = options(value);
                let size = find(&options, "size").or(find(&options, ""));
                self.ram = size.and_then(ram_size).or(self.ram);
            }
            "mem-path" => self.path = Some(value.to_owned()),
            "machine" | "M" => self.is_backed |= find(&options(value), "memory-backend").is_some(),
            "numa" => self.is_backed |= find(&options(value), "memdev").is_some(),
            "object" => self.objects.extend(match value.starts_with('{') {
                true => object_in_json(value),
                false => object(&options(value)),
            }),
            _ => {}
        }
    }

    fn backends(self) -> Vec<MemoryBackend> {
        let kind = self.path.map_or(BackendKind::Anonymous, BackendKind::File);
        let own = (!self.is_backed).then_some(MemoryBackend {
            id: None,
            size: self.ram.unwrap_or(DEFAULT_RAM),
            kind,
        });
        own.into_iter().chain(self.objects).collect()
    }
}

/// Parses options of the form `first,key=value,…`, in which a doubled comma is a comma of the value. The first may have no key.
fn options(text: &str) -> Vec<(String, String)> {
    let mut all = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            ',' if rest.next_if_eq(&',').is_none() => all.push(String::new()),
            letter => all.last_mut().unwrap_or(&mut String::new()).push(letter),
        }
    }
    let pairs = all.into_iter().map(|option| match option.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (String::new(), option),
    });
    pairs.collect()
}

fn find<'a>(options: &'a [(String, String)], key: &str) -> Option<&'a str> {
    let option = options.iter().find(|(name, _)| name == key);
    option.map(|(_, value)| value.as_str())
}

/// Parses the size of `-m`: MiB unless it has a unit.
fn ram_size(text: &str) -> Option<Bytes> {
    match text.parse::<u64>() {
        Ok(mib) => mib.checked_mul(1 << 20).map(Bytes),
        Err(_) => text.parse().ok(),
    }
}

fn object(options: &[(String, String)]) -> Option<MemoryBackend> {
    let kind = find(options, "qom-type").or(find(options, ""))?;
    Some(MemoryBackend {
        id: Some(find(options, "id")?.to_owned()),
        size: find(options, "size")?.parse().ok()?,
        kind: backend_kind(kind, find(options, "mem-path"))?,
    })
}

/// Parses the form that libvirt writes.
fn object_in_json(text: &str) -> Option<MemoryBackend> {
    let object: Json = serde_json::from_str(text).ok()?;
    let word = |key: &str| object.get(key)?.as_str();
    let size = object.get("size")?;
    let size = size.as_u64().map(Bytes);
    Some(MemoryBackend {
        id: Some(word("id")?.to_owned()),
        size: size.or_else(|| word("size")?.parse().ok())?,
        kind: backend_kind(word("qom-type")?, word("mem-path"))?,
    })
}

fn backend_kind(name: &str, path: Option<&str>) -> Option<BackendKind> {
    match name {
        "memory-backend-ram" => Some(BackendKind::Anonymous),
        "memory-backend-memfd" => Some(BackendKind::Memfd),
        "memory-backend-file" => path.map(|path| BackendKind::File(path.to_owned())),
        _ => None,
    }
}

impl BackendKind {
    /// Returns true if a mapping may be memory of a backend of this kind. Code that QEMU translates is anonymous too, but
    /// executable.
    fn fits(&self, map: &MapLine) -> bool {
        let [_, writable, executable] = map.permissions;
        let name = map.name.as_str();
        let is_memfd = name.starts_with("/memfd:memory-backend-memfd");
        let is_kind = match self {
            BackendKind::Anonymous => {
                let is_private =
                    map.object.2 == 0 && (name.is_empty() || name.starts_with("[anon:"));
                is_private || name == "/dev/zero (deleted)" || is_memfd
            }
            BackendKind::Memfd => is_memfd,
            BackendKind::File(path) => is_file_of(name, path),
        };
        writable && !executable && is_kind
    }
}

/// Returns true if a mapping is of the backend's file. In a folder, QEMU makes a file and unlinks it (`file_ram_open`,
/// system/physmem.c).
fn is_file_of(name: &str, path: &str) -> bool {
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let in_folder = || name.strip_prefix(path.trim_end_matches('/'));
    name == path || in_folder().is_some_and(|rest| rest.starts_with("/qemu_back_mem."))
}

/// Returns the RAM of a guest, in order of address. `maps` are the mappings of the process in that order.
pub fn guest_ram<'a>(
    backends: &[MemoryBackend],
    maps: impl Iterator<Item = &'a MapLine>,
) -> Vec<GuestRam> {
    let maps: Vec<&MapLine> = maps.collect();
    let mut found: Vec<GuestRam> = Vec::new();
    for (n, backend) in backends.iter().enumerate() {
        let alike = |b: &&MemoryBackend| (b.size, &b.kind) == (backend.size, &backend.kind);
        // The first of several equal backends stands for all.
        if backends[..n].iter().any(|b| alike(&b)) {
            continue;
        }
        let count = backends.iter().filter(alike).count();
        let ranges = ranges_of(backend, &maps);
        // More mappings than backends: some are something else.
        if ranges.len() > count {
            continue;
        }
        let id = backend.id.clone().filter(|_| count == 1);
        found.extend(ranges.into_iter().map(|range| GuestRam {
            range,
            backend: id.clone(),
        }));
    }
    found.sort_by_key(|ram| ram.range.start());
    found
}

/// Returns the address ranges that have the kind and the size of a backend: mappings of exactly that size, or else several
/// without a gap. Advice for a part of the RAM divides it, and other memory may follow it directly.
fn ranges_of(backend: &MemoryBackend, maps: &[&MapLine]) -> Vec<Range> {
    let fits = |map: &&MapLine| backend.kind.fits(map);
    let whole = maps.iter().filter(|map| fits(map)).map(|map| map.range);
    let whole: Vec<Range> = whole.filter(|range| range.len() == backend.size).collect();
    if !whole.is_empty() {
        return whole;
    }
    let follows = |a: &&MapLine, b: &&MapLine| {
        fits(a) && fits(b) && a.range.end() == b.range.start() && a.object == b.object
    };
    let runs = maps.chunk_by(follows);
    let runs = runs.filter(|run| run.first().is_some_and(fits));
    runs.flat_map(|run| ranges_in(run, backend.size)).collect()
}

/// Returns the parts of mappings without gaps that begin and end with a mapping and have exactly this size.
fn ranges_in(run: &[&MapLine], size: Bytes) -> Vec<Range> {
    let mut found = Vec::new();
    let mut first = 0;
    for last in run {
        // Mappings are in order of address, so a part that is too long stays too long.
        while let Some(map) = run.get(first) {
            match Range::new(map.range.start(), last.range.end()) {
                Ok(range) if range.len() > size => first += 1,
                Ok(range) => {
                    found.extend((range.len() == size).then_some(range));
                    break;
                }
                Err(_) => break,
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
