//! Tracepoints: their IDs and field layouts, as read from tracefs. The parser is pure.

use hugeleaf_host::{Fact, Root};
use hugeleaf_perf::{PerfEvent, PerfKind, PerfSampling, PerfSetup, PerfStack};
use hugeleaf_sys::{DetachedMount, SysError};

#[derive(Debug)]
pub enum Tracefs {
    Mounted(Root, String),
    /// Not mounted anywhere, and held by this process.
    Held {
        root: Root,
        _mount: DetachedMount,
    },
    Missing {
        reason: String,
        remedy: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tracepoint {
    pub id: u64,
    fields: Vec<TracepointField>,
    /// Names of the values of its one symbolic field (a result, a reason).
    names: Vec<(i64, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TracepointField {
    name: String,
    offset: usize,
    size: usize,
}

impl Tracepoint {
    /// Opens the tracepoint on a CPU, disabled; a sample carries its fields.
    pub fn open(
        &self,
        rate: PerfSampling,
        stack: PerfStack,
        cpu: u32,
    ) -> Result<PerfEvent, SysError> {
        let setup = PerfSetup {
            kind: PerfKind::Tracepoint(self.id),
            rate,
            stack,
            raw: true,
        };
        PerfEvent::open(&setup, cpu)
    }

    /// Returns the value of a field of up to eight bytes; `None` if the kernel has no such field.
    pub fn field(&self, name: &str, raw: &[u8]) -> Option<u64> {
        let field = self.fields.iter().find(|f| f.name == name)?;
        let bytes = raw.get(field.offset..field.offset.checked_add(field.size)?)?;
        let mut wide = [0u8; 8];
        // The byte order of a value is the host's own.
        match cfg!(target_endian = "little") {
            true => wide.get_mut(..bytes.len())?.copy_from_slice(bytes),
            false => wide
                .get_mut(8usize.checked_sub(bytes.len())?..)?
                .copy_from_slice(bytes),
        }
        Some(u64::from_ne_bytes(wide))
    }

    /// Returns the kernel's name for a value of the symbolic field, or the number if it has none.
    pub fn name_of(&self, value: i64) -> String {
        let found = self.names.iter().find(|(number, _)| *number == value);
        found.map_or_else(|| value.to_string(), |(_, name)| name.clone())
    }

    /// Returns the value of a signed field of four bytes.
    pub fn signed(&self, name: &str, raw: &[u8]) -> Option<i32> {
        let value = u32::try_from(self.field(name, raw)?).ok()?;
        Some(value.cast_signed())
    }
}

impl Tracefs {
    /// Finds tracefs on the host; on a running host even if it is not mounted.
    pub fn find(root: &Root) -> Tracefs {
        let mounts = root.read("proc/self/mounts");
        let mounted = mounts.known().and_then(|text| mount_point(text));
        let usual = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
        for folder in mounted.as_deref().into_iter().chain(usual) {
            if matches!(root.list(format!("{folder}/events")), Fact::Known(_)) {
                return Tracefs::Mounted(root.clone(), folder.to_owned());
            }
        }
        if !root.is_live() {
            return Tracefs::Missing {
                reason: "the capture has no tracefs".to_owned(),
                remedy: "trace the running host, without --root".to_owned(),
            };
        }
        match DetachedMount::tracefs() {
            Ok(held) => Tracefs::Held {
                root: Root::at(held.folder()),
                _mount: held,
            },
            Err(error) => Tracefs::Missing {
                reason: format!("no tracefs is mounted, and {error}"),
                remedy: "as root: mount -t tracefs nodev /sys/kernel/tracing".to_owned(),
            },
        }
    }

    /// Returns a tracepoint such as `lock/contention_begin`; absent if the kernel lacks it.
    pub fn tracepoint(&self, name: &str) -> Fact<Tracepoint> {
        let (root, folder) = match self {
            Tracefs::Mounted(root, folder) => (root, format!("{folder}/")),
            Tracefs::Held { root, .. } => (root, String::new()),
            Tracefs::Missing { .. } => return Fact::Absent,
        };
        let format = root.read(format!("{folder}events/{name}/format"));
        format.and_then(|text| Fact::from(parse_format(&text)))
    }
}

/// Returns the mount point of a tracefs, without the leading slash.
fn mount_point(mounts: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        (kind == "tracefs").then(|| point.trim_start_matches('/').to_owned())
    })
}

/// Parses the file `format` of a tracepoint.
pub fn parse_format(text: &str) -> Option<Tracepoint> {
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("ID:"))?
        .trim()
        .parse()
        .ok()?;
    let fields = text.lines().filter_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';');
        let declared = parts.next()?;
        let mut number = |key: &str| -> Option<usize> {
            let part = parts.next()?.trim();
            part.strip_prefix(key)?.trim_start_matches(':').parse().ok()
        };
        let (offset, size) = (number("offset")?, number("size")?);
        let name = declared.rsplit([' ', '*']).next()?;
        Some(TracepointField {
            name: name.split('[').next().unwrap_or(name).to_owned(),
            offset,
            size,
        })
    });
    Some(Tracepoint {
        id,
        fields: fields.collect(),
        names: names_in(text),
    })
}

/// Parses the pairs of `__print_symbolic(…, {0, "failed"}, { 1, "succeeded" })`.
fn names_in(text: &str) -> Vec<(i64, String)> {
    let Some((_, pairs)) = text.split_once("__print_symbolic(") else {
        return Vec::new();
    };
    pairs
        .split('{')
        .skip(1)
        .map_while(|pair| {
            let (value, rest) = pair.split_once(',')?;
            let name = rest.split('"').nth(1)?;
            Some((value.trim().parse().ok()?, name.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "name: contention_begin\nID: 408\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:void * lock_addr;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int flags;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:int ret;\toffset:20;\tsize:4;\tsigned:1;\n\nprint fmt: \"x\"\n";

    #[test]
    fn fields_are_found() {
        let point = parse_format(FORMAT).unwrap();
        assert_eq!(point.id, 408);
        let mut raw = vec![0u8; 24];
        raw[8..16].copy_from_slice(&0xffff_0000_0000_0001u64.to_ne_bytes());
        raw[16..20].copy_from_slice(&33u32.to_ne_bytes());
        raw[20..24].copy_from_slice(&(-4i32).to_ne_bytes());
        assert_eq!(point.field("lock_addr", &raw), Some(0xffff_0000_0000_0001));
        assert_eq!(point.field("flags", &raw), Some(33));
        assert_eq!(point.signed("ret", &raw), Some(-4));
        assert_eq!(point.field("none", &raw), None);
        assert_eq!(point.field("flags", &raw[..17]), None);
    }

    #[test]
    fn values_have_names() {
        let text = "ID: 5\nprint fmt: \"%s (%d)\", __print_symbolic(REC->reason, { 0, \"flush on task switch\" }, {1, \"remote\"}), REC->reason\n";
        let point = parse_format(text).unwrap();
        assert_eq!(point.name_of(0), "flush on task switch");
        assert_eq!(
            (point.name_of(1), point.name_of(7)),
            ("remote".into(), "7".into())
        );
    }

    #[test]
    fn a_host_without_tracefs() {
        let dir = tempfile::tempdir().unwrap();
        let tracefs = Tracefs::find(&Root::at(dir.path()));
        assert!(matches!(tracefs, Tracefs::Missing { .. }));
        assert!(tracefs.tracepoint("lock/contention_begin").is_absent());
        // A tracefs with another mount point.
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/self/mounts", "nodev /mnt/t tracefs ro 0 0\n");
        write("mnt/t/events/lock/contention_begin/format", FORMAT);
        let tracefs = Tracefs::find(&Root::at(dir.path()));
        let point = tracefs.tracepoint("lock/contention_begin");
        assert_eq!(point.known().unwrap().id, 408);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).*", raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(point) = parse_format(&format!("ID: 1\n{text}")) {
                for field in &point.fields {
                    let _ = point.field(&field.name, &raw);
                }
            }
            let _ = mount_point(&text);
        }
    }
}
