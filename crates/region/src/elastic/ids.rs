//! Names of granules and components.

use std::fmt;

use super::granule_entry::COMPONENTS;

/// The name of a granule from taking it to returning or transferring it; the same in all processes.
/// Names are never reused, so an old name is always recognised.
///
/// ```
/// use hugeleaf::{Bytes, Elastic, ElasticError, ElasticOptions, Granule};
///
/// let memory = Elastic::new(&ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?))?;
/// let pages = memory.component("page cache", true)?;
/// let granule = memory.take(pages)?;
///
/// // Other processes find its contents by this number, at addresses of their own.
/// let number = granule.to_number();
/// assert_eq!(Granule::from_number(number), granule);
/// let offset = u64::from(granule.index()) * memory.granule().bytes().get();
/// assert_eq!(memory.address(granule)? as u64, memory.range().start() + offset);
///
/// // A second return is an error without effect.
/// memory.give_back(pages, &[granule])?;
/// let error = memory.give_back(pages, &[granule]).unwrap_err();
/// assert!(matches!(error, ElasticError::NotHeld { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// use hugeleaf::{Bytes, Component, Elastic, ElasticOptions};
///
/// let memory = Elastic::new(&ElasticOptions::new(Bytes::from_mib(8), "2M".parse()?))?;
/// let sort = memory.component("sort area", true)?;
/// // The name finds it again; a number for it fits in a message to another process.
/// assert_eq!(memory.component("sort area", true)?, sort);
/// assert_eq!(Component::from_number(sort.to_number()), sort);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
