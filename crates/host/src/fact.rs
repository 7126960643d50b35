//! Known, absent and unreadable: three different things, all the way to the screen.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// Why a file could not be read as what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct ReadError {
    pub path: PathBuf,
    /// The system's error, or the line and item that are not as they should be.
    pub reason: String,
    /// Whether the reason was missing permission: then root, or a capability, would read it.
    pub denied: bool,
}

impl ReadError {
    /// A file that was read, or is missing, and is not what it should be.
    pub fn new(path: PathBuf, reason: impl ToString) -> ReadError {
        ReadError {
            path,
            reason: reason.to_string(),
            denied: false,
        }
    }

    pub fn io(path: PathBuf, error: &std::io::Error) -> ReadError {
        ReadError {
            denied: error.kind() == std::io::ErrorKind::PermissionDenied,
            ..ReadError::new(path, error)
        }
    }
}

/// Something that was looked for on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// It is there, with this value (which may be zero).
    Known(T),
    /// This host does not have it: the kernel was built without it, or is too old.
    Absent,
    /// It could not be read, so nothing is known.
    Unreadable(ReadError),
}

// Not derived: a derive would ask for `T: Default`.
#[allow(clippy::derivable_impls)]
impl<T> Default for Fact<T> {
    fn default() -> Fact<T> {
        Fact::Absent
    }
}

impl<T> Fact<T> {
    pub const fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            _ => None,
        }
    }

    /// The error, where it could not be read.
    pub const fn error(&self) -> Option<&ReadError> {
        match self {
            Fact::Unreadable(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the host does not have it.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Fact::Absent)
    }

    /// The same fact about another value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        self.and_then(|value| Fact::Known(f(value)))
    }

    /// A further fact that follows from this one's value.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Fact::Known(value) => f(value),
            Fact::Absent => Fact::Absent,
            Fact::Unreadable(error) => Fact::Unreadable(error),
        }
    }
}

impl<T: Default> Fact<T> {
    /// The value, or the default one where none is known.
    pub fn or_default(self) -> T {
        match self {
            Fact::Known(value) => value,
            _ => T::default(),
        }
    }
}

impl<T> Fact<Vec<T>> {
    /// The entries of a list; none where none are known.
    pub const fn entries(&self) -> &[T] {
        match self {
            Fact::Known(list) => list.as_slice(),
            _ => &[],
        }
    }
}

impl Fact<String> {
    pub fn text(&self) -> Option<&str> {
        self.known().map(String::as_str)
    }
}

impl<T: Copy> Fact<T> {
    pub fn get(&self) -> Option<T> {
        self.known().copied()
    }
}

/// Stands in JSON for what could not be read, until `hugeleaf_report::json` puts `null` there and the reason
/// next to it. No name that a host could choose: it holds a zero byte.
pub const UNREADABLE: &str = "\0unreadable";

/// Known: the value. Absent: none, which is left out of an answer. Unreadable: see [`UNREADABLE`].
impl<T: Serialize> Serialize for Fact<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Fact::Known(value) => value.serialize(serializer),
            Fact::Absent => serializer.serialize_none(),
            Fact::Unreadable(error) => {
                let error = error.to_string();
                serializer.serialize_newtype_variant("Fact", 2, UNREADABLE, &error)
            }
        }
    }
}

impl<T> From<Option<T>> for Fact<T> {
    /// `None` is [`Fact::Absent`].
    fn from(value: Option<T>) -> Fact<T> {
        value.map_or(Fact::Absent, Fact::Known)
    }
}
