//! Keys of pages that one cache evicted recently. A page that returns while its key is here was evicted too early, and
//! joins the main queue at once.

use std::ffi::c_uint;

use crate::fallible_vec::filled;

/// A lossy hash table: a key replaces an older one in the same place.
#[derive(Debug)]
pub(crate) struct Ghosts {
    /// Key and number of the eviction; 0 for none.
    places: Vec<(c_uint, u32)>,
    drops: u32,
}

impl Ghosts {
    pub const fn new() -> Ghosts {
        Ghosts {
            places: Vec::new(),
            drops: 0,
        }
    }

    fn place(&self, key: c_uint) -> usize {
        // Fibonacci hashing (Knuth, volume 3, 6.4) spreads adjacent keys.
        let spread = key.wrapping_mul(0x9e37_79b9) as usize;
        spread >> (32 - self.places.len().trailing_zeros())
    }

    /// Records the eviction of a page from a cache of `pages`.
    pub fn dropped(&mut self, key: c_uint, pages: usize) {
        let wanted = pages.clamp(64, 1 << 24).next_power_of_two();
        if self.places.len() < wanted
            && let Some(places) = filled(wanted, (0, 0))
        {
            self.places = places;
        }
        if self.places.is_empty() {
            return;
        }
        self.drops = self.drops.wrapping_add(1).max(1);
        let place = self.place(key);
        self.places[place] = (key, self.drops);
    }

    /// Returns true if a page was evicted fewer than `pages` evictions ago, and forgets it.
    pub fn returns(&mut self, key: c_uint, pages: usize) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let place = self.place(key);
        let (its, drop) = self.places[place];
        if drop == 0 || its != key {
            return false;
        }
        self.places[place] = (0, 0);
        (self.drops.wrapping_sub(drop) as usize) < pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_returns_once_and_not_for_ever() {
        let mut ghosts = Ghosts::new();
        assert!(!ghosts.returns(1, 100));
        ghosts.dropped(1, 100);
        assert!(ghosts.returns(1, 100));
        assert!(!ghosts.returns(1, 100));
        ghosts.dropped(2, 100);
        for key in 1000..1100 {
            ghosts.dropped(key, 100);
        }
        assert!(!ghosts.returns(2, 100));
        let known = (1000..1100).filter(|key| ghosts.returns(*key, 100));
        // Some keys have replaced each other.
        assert!(known.count() > 50);
    }
}
