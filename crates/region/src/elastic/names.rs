//! Names of what an elastic hands out, and of who holds it.

use std::fmt;

use super::entry::COMPONENTS;

/// The name of a granule from when it is taken until it is returned or transferred; the same in
/// all processes. Names are never used again, so that an old one is distinguished from a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granule {
    pub(super) index: u32,
    pub(super) stamp: u32,
}

impl Granule {
    /// Where it is, counted in granules from the start of the range.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The name as one number, to be kept or sent.
    pub const fn to_number(self) -> u64 {
        (self.index as u64) << 32 | self.stamp as u64
    }

    /// The name that a number stands for; whether somebody holds it is another question.
    pub const fn from_number(number: u64) -> Granule {
        // The halves of the number.
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
    /// It as a number, to be kept or sent.
    pub const fn to_number(self) -> u32 {
        self.0
    }

    /// The component that a number stands for; whether it is there is another question.
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
