//! Names of granules and components.

use std::fmt;

use super::granule_entry::COMPONENTS;

/// The name of a granule from taking it to returning or transferring it; the same in all processes.
/// Names are never reused, so an old name is always recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granule {
    pub(super) index: u32,
    pub(super) stamp: u32,
}

impl Granule {
    /// Returns its position, counted in granules from the start of the range.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Returns the name as a number, to store or send.
    pub const fn to_number(self) -> u64 {
        (self.index as u64) << 32 | self.stamp as u64
    }

    /// Returns the name for a number, without checking that the granule is held.
    pub const fn from_number(number: u64) -> Granule {
        // The two halves of the number.
        #[allow(clippy::cast_possible_truncation)]
        Granule {
            index: (number >> 32) as u32,
            stamp: number as u32,
        }
    }
}

impl fmt::Display for Granule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "granule {}.{}", self.index, self.stamp)
    }
}

/// A user of granules: a buffer pool, a lock list, a sort heap. The same in all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Component(pub(super) u32);

impl Component {
    /// Returns the component as a number, to store or send.
    pub const fn to_number(self) -> u32 {
        self.0
    }

    /// Returns the component for a number, without checking that it exists.
    pub const fn from_number(number: u32) -> Component {
        Component(number)
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

pub(super) fn components() -> impl Iterator<Item = Component> {
    (0u32..).take(COMPONENTS).map(Component)
}
