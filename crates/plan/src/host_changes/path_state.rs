//! The state of a place on the host, before and after a step.

use std::path::{Path, PathBuf};

use hugeleaf_host::{MountLine, Root, unescape};
use hugeleaf_sys::{
    Errno, FileKind, FileMeta, SysError, effective_gid, effective_uid, errno_of, metadata_at,
};
use serde::{Deserialize, Serialize, Serializer};

use super::setting_values;

/// Bytes of a file or of an extended attribute; the journal stores valid text as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent(pub Vec<u8>);

impl FileContent {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl From<&str> for FileContent {
    fn from(text: &str) -> FileContent {
        FileContent(text.as_bytes().to_vec())
    }
}

/// Form of [`FileContent`] in the journal.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum EncodedContent {
    Text(String),
    Hex(String),
}

impl Serialize for FileContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match std::str::from_utf8(&self.0) {
            Ok(text) => EncodedContent::Text(text.to_owned()),
            Err(_) => EncodedContent::Hex(self.0.iter().map(|b| format!("{b:02x}")).collect()),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FileContent {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<FileContent, D::Error> {
        use serde::de::Error;
        match EncodedContent::deserialize(deserializer)? {
            EncodedContent::Text(text) => Ok(FileContent(text.into_bytes())),
            EncodedContent::Hex(text) => unhex(&text)
                .map(FileContent)
                .ok_or_else(|| D::Error::custom("expected pairs of hexadecimal digits")),
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let whole = text.len().is_multiple_of(2) && text.bytes().all(|b| b.is_ascii_hexdigit());
    whole.then(|| text.as_bytes().chunks(2).map(pair).collect::<Option<_>>())?
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub enum PathState {
    Absent,
    File {
        content: FileContent,
        mode: u32,
        uid: u32,
        gid: u32,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attributes: Vec<(String, FileContent)>,
    },
    Folder {
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// A link, device, socket or pipe, which is never changed.
    Other,
    /// A knob with its value; for a knob that lists its choices, the chosen one.
    Value {
        value: String,
    },
    Pool {
        pages: u64,
        /// Surplus pages beyond `pages`, which go when the programs that use them free them.
        surplus: u64,
    },
    Mount {
        options: String,
    },
    NoMount,
    /// Another file system is mounted here. It is never changed.
    OtherMount {
        kind: String,
    },
}

impl PathState {
    pub fn file(content: FileContent, look: &FileMeta) -> PathState {
        let attributes = look.attributes.iter();
        PathState::File {
            content,
            mode: look.mode,
            uid: look.uid,
            gid: look.gid,
            attributes: attributes
                .map(|(name, value)| (name.clone(), FileContent(value.clone())))
                .collect(),
        }
    }

    /// Returns content, mode, owner and attributes of a file.
    pub fn as_file(&self) -> Option<(&FileContent, FileMeta)> {
        let PathState::File {
            content,
            mode,
            uid,
            gid,
            attributes,
        } = self
        else {
            return None;
        };
        let look = FileMeta {
            mode: *mode,
            uid: *uid,
            gid: *gid,
            attributes: attributes
                .iter()
                .map(|(name, value)| (name.clone(), value.0.clone()))
                .collect(),
        };
        Some((content, look))
    }

    pub fn in_short(&self) -> String {
        match self {
            PathState::Absent => "absent".to_owned(),
            PathState::NoMount => "not mounted".to_owned(),
            PathState::File { content, .. } => match content.text().lines().count() {
                1 => "1 line".to_owned(),
                n => format!("{n} lines"),
            },
            PathState::Folder { mode, .. } => format!("folder {mode:04o}"),
            PathState::Other => "special file".to_owned(),
            PathState::Value { value } => value.split_whitespace().collect::<Vec<_>>().join(" "),
            PathState::Pool { pages, surplus: 0 } => pages.to_string(),
            PathState::Pool { pages, surplus } => format!("{pages} +{surplus}"),
            PathState::Mount { .. } => "mounted".to_owned(),
            PathState::OtherMount { kind } => kind.clone(),
        }
    }

    /// True if the states are equal for a step: files by content, folders by existence.
    pub fn is_like(&self, other: &PathState) -> bool {
        match (self, other) {
            (PathState::File { content: a, .. }, PathState::File { content: b, .. }) => a == b,
            (PathState::Folder { .. }, PathState::Folder { .. }) => true,
            (PathState::Pool { pages: a, .. }, PathState::Pool { pages: b, .. }) => a == b,
            (PathState::Value { value: a }, PathState::Value { value: b }) => {
                setting_values::same(a, b)
            }
            (PathState::Mount { options: a }, PathState::Mount { options: b }) => {
                setting_values::mount_has(a, b) || setting_values::mount_has(b, a)
            }
            _ => self == other,
        }
    }
}

/// Serialises a place for JSON: the pages of a pool, the value of a knob, the content of a file.
pub(super) fn as_value<S: Serializer>(place: &Option<PathState>, to: S) -> Result<S::Ok, S::Error> {
    match place {
        None | Some(PathState::Absent | PathState::NoMount) => to.serialize_none(),
        Some(PathState::File { content, .. }) => to.serialize_str(&content.text()),
        Some(PathState::Value { value }) => to.serialize_str(value),
        Some(PathState::Pool { pages, .. }) => to.serialize_u64(*pages),
        Some(PathState::Mount { options }) => to.serialize_str(options),
        Some(other) => to.serialize_str(&other.in_short()),
    }
}

pub fn below(root: &Root, path: &Path) -> PathBuf {
    root.path(path.strip_prefix("/").unwrap_or(path))
}

pub fn unreadable(path: &Path, e: &std::io::Error) -> SysError {
    SysError::new("read", path.display().to_string(), errno_of(e))
}

pub fn read_file(path: &Path) -> Result<PathState, SysError> {
    Ok(match metadata_at(path)? {
        None => PathState::Absent,
        Some((FileKind::File, look)) => {
            #[expect(clippy::disallowed_methods, reason = "reads what a step changes")]
            let bytes = std::fs::read(path).map_err(|e| unreadable(path, &e))?;
            PathState::file(FileContent(bytes), &look)
        }
        Some((FileKind::Folder, look)) => PathState::Folder {
            mode: look.mode,
            uid: look.uid,
            gid: look.gid,
        },
        Some(_) => PathState::Other,
    })
}

/// Returns the text of a knob; `None` if it does not exist.
#[expect(clippy::disallowed_methods, reason = "reads what a step changes")]
pub fn read_knob(path: &Path) -> Result<Option<String>, SysError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(unreadable(path, &e)),
    }
}

/// Returns the pool with this `nr_hugepages` file; `None` if there is none.
///
/// # Errors
/// Those of open(2) and read(2); EINVAL if it holds no number.
pub fn read_pool(path: &Path) -> Result<Option<PathState>, SysError> {
    let number = |path: &Path| -> Result<Option<u64>, SysError> {
        let Some(text) = read_knob(path)? else {
            return Ok(None);
        };
        let bad = |_| SysError::new("read", path.display().to_string(), Errno::INVAL);
        text.trim().parse().map(Some).map_err(bad)
    };
    let Some(all) = number(path)? else {
        return Ok(None);
    };
    // When read, nr_hugepages includes surplus pages; when written, it does not.
    let surplus = number(&path.with_file_name("surplus_hugepages"))?.unwrap_or(0);
    let surplus = surplus.min(all);
    Ok(Some(PathState::Pool {
        pages: all - surplus,
        surplus,
    }))
}

pub fn read_mount(root: &Root, path: &Path) -> PathState {
    // Compare by path, as for all places: links below a root belong to its owner.
    let table = read_knob(&root.path("proc/self/mountinfo"));
    let real = below(root, path);
    let real = std::fs::canonicalize(&real).unwrap_or(real);
    let text = table.ok().flatten().unwrap_or_default();
    let topmost = text.lines().filter_map(MountLine::parse).rfind(|mount| {
        let at = unescape(mount.at);
        let at = Path::new(&at);
        // A captured host has the paths of its own mounts.
        at == if root.is_live() { path } else { &real } || at == real
    });
    match topmost {
        None => PathState::NoMount,
        Some(mount) if mount.file_system == "hugetlbfs" => PathState::Mount {
            options: format!("{},{}", mount.options, mount.file_system_options),
        },
        Some(mount) => PathState::OtherMount {
            kind: mount.file_system.to_owned(),
        },
    }
}

pub fn fresh(mode: u32) -> FileMeta {
    FileMeta {
        mode,
        uid: effective_uid(),
        gid: effective_gid(),
        attributes: Vec::new(),
    }
}

pub fn missing_folders(folder: &Path) -> Vec<PathBuf> {
    let mut missing: Vec<PathBuf> = folder
        .ancestors()
        .take_while(|at| std::fs::symlink_metadata(at).is_err())
        .map(Path::to_path_buf)
        .collect();
    missing.reverse();
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_survive_the_journal() {
        for bytes in [&b"plain\n"[..], b"", b"\xff\x00x"] {
            let content = FileContent(bytes.to_vec());
            let line = serde_json::to_string(&content).unwrap();
            assert_eq!(serde_json::from_str::<FileContent>(&line).unwrap(), content);
        }
        for bad in [r#"{"hex":"f"}"#, r#"{"hex":"+f"}"#, r#"{"hex":"é"}"#] {
            assert!(serde_json::from_str::<FileContent>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn surplus_pages_are_no_part_of_what_was_set() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("nr_hugepages");
        assert_eq!(read_pool(&file).unwrap(), None);
        std::fs::write(&file, "12\n").unwrap();
        let pool = |pages, surplus| Some(PathState::Pool { pages, surplus });
        assert_eq!(read_pool(&file).unwrap(), pool(12, 0));
        std::fs::write(dir.path().join("surplus_hugepages"), "5\n").unwrap();
        assert_eq!(read_pool(&file).unwrap(), pool(7, 5));
        std::fs::write(&file, "many\n").unwrap();
        assert_eq!(read_pool(&file).unwrap_err().errno, Errno::INVAL);
    }
}
