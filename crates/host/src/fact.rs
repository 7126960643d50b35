//! Distinguishes known, absent and unreadable values, from the reader to the screen.

use std::path::PathBuf;

use hugeleaf_units::Failure;
use serde::{Serialize, Serializer};

/// The reason why a file could not be read or parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct ReadError {
    pub path: PathBuf,
    /// The system's error, or the line and item that did not parse.
    pub reason: String,
    /// True if permission was missing. Root, or a capability, could read it.
    pub denied: bool,
}

impl ReadError {
    /// Describes a file that has unexpected content, or that is missing but required.
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

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        let next = if error.denied {
            "run as root, or as the owner of the process"
        } else {
            "check that proc/ and sys/ exist, below --root if given: ls /proc /sys"
        };
        Failure::missing(error.to_string(), next)
    }
}

/// A value that was looked up on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// The host has this value, which may be zero.
    Known(T),
    /// The host does not have it: the kernel was built without it, or is too old.
    Absent,
    /// It could not be read, so nothing is known.
    Unreadable(ReadError),
}

// Not derived, because a derive would require `T: Default`.
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

    /// Returns the error if the value could not be read.
    pub const fn error(&self) -> Option<&ReadError> {
        match self {
            Fact::Unreadable(error) => Some(error),
            _ => None,
        }
    }

    /// Returns true if the host does not have the value.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Fact::Absent)
    }

    /// Maps a known value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        self.and_then(|value| Fact::Known(f(value)))
    }

    /// Derives another fact from a known value.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Fact::Known(value) => f(value),
            Fact::Absent => Fact::Absent,
            Fact::Unreadable(error) => Fact::Unreadable(error),
        }
    }
}

impl<T: Default> Fact<T> {
    /// Returns the value, or the default if none is known.
    pub fn or_default(self) -> T {
        match self {
            Fact::Known(value) => value,
            _ => T::default(),
        }
    }
}

impl<T> Fact<Vec<T>> {
    /// Returns the entries of a list. Empty if none are known.
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

/// Marks an unreadable value in JSON, until `hugeleaf_report::json` replaces it by `null` and adds the
/// reason next to it. It holds a zero byte, so it cannot equal a name from the host.
pub const UNREADABLE: &str = "\0unreadable";

/// Serializes an absent value as none, which answers leave out, and unreadable as [`UNREADABLE`].
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
    /// Converts `None` to [`Fact::Absent`].
    fn from(value: Option<T>) -> Fact<T> {
        value.map_or(Fact::Absent, Fact::Known)
    }
}
