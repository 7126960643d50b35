//! Estimates the hits of a cache at other sizes by a ghost list: keys without their values.
//!
//! A touch of a key hits in every least-recently-used cache larger than its depth. The depth is the number of different
//! keys touched since the key's last touch. So counting hits by depth gives the hits at all sizes at once, for this
//! stream of keys. Keys are sampled by hash, as in SHARDS (Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC
//! Construction with SHARDS", FAST 2015). A key is always or never in the sample. So depths among sampled keys, scaled,
//! are depths among all. When the sample is full, the keys with the highest hashes leave it. As in SHARDS, a lowered
//! rate stays low.
//!
//! Keys that never repeat have no depth, and so never show a benefit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::component::{Benefit, Estimate};
use crate::decayed_rate::DecayWindow;

/// Multiple of the cache's size that is watched.
const WATCHED: u64 = 2;
/// Minimum number of steps watched beyond its size.
const MORE_STEPS: u64 = 4;
/// Maximum number of depth bins, for any step.
const MOST_BINS: u64 = 1 << 16;
/// Divisor of the cache size for the span over which a granule's benefit is averaged, at least a step: fewer hits are
/// too noisy.
const SPAN_PART: u64 = 16;
/// Half-life of the counts.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Minimum number of sampled touches for an estimate, unless there are few after a long time.
const ENOUGH: f64 = 16.0;
/// Maximum of the sampling threshold: all keys.
const ALL: u64 = u64::MAX;

/// The ghost list of one cache.
///
/// # Costs
/// A key that is not sampled costs a mix of its hash (two multiplications), a compare and an addition. A sampled key
/// costs O(log n) for n keys in the sample: a search in a tree and two walks over a Fenwick tree. Memory is at most 80
/// bytes for each of `max_samples`, and 8 for each step of depth: 4000 samples and 1000 steps take 328 KB.
///
/// # Errors of estimation
/// With 2000 samples, one key in four, the mean error of the hit ratio is 0.015 and the largest 0.07, at a size that is
/// itself uncertain by 7 % (`tests`). If a load's hits share one depth (a loop), that depth is uncertain.
#[derive(Debug, Clone)]
pub struct GhostList {
    capacity: u64,
    step: u64,
    /// Items per bin: a step, or more to limit the number of bins.
    width: u64,
    max_samples: usize,
    /// Keys with a mixed hash up to this value are sampled.
    threshold: u64,
    stack: LruStack,
    /// Hits by depth: sampled hits divided by their sampling rate.
    bins: Vec<f64>,
    touches: f64,
    sampled: f64,
    window: DecayWindow,
}

/// Hits per second at depths from `from_items` on, for one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurveStep {
    /// The depth: a cache of that many items misses these hits, and one larger by a step has them.
    pub from_items: u64,
    /// Hits per second, over all keys.
    pub hits: f64,
}

impl GhostList {
    /// Creates the list of a cache with `capacity_items`, resized by `step_items`, with at most `max_samples` keys.
    /// Zeroes count as ones.
    pub fn new(capacity_items: u64, step_items: u64, max_samples: usize) -> GhostList {
        let mut ghost = GhostList {
            capacity: 0,
            step: step_items.max(1),
            width: step_items.max(1),
            max_samples: max_samples.max(1),
            threshold: ALL,
            stack: LruStack::default(),
            bins: Vec::new(),
            touches: 0.0,
            sampled: 0.0,
            window: DecayWindow::new(HALF_LIFE),
        };
        ghost.set_capacity(capacity_items);
        ghost
    }

    /// Sets another half-life of the counts; longer for rare touches.
    #[must_use]
    pub fn half_life(self, half_life: Duration) -> GhostList {
        let window = DecayWindow::new(half_life);
        GhostList { window, ..self }
    }

    /// Sets the cache's size. Counts stay, because depths do not depend on it.
    pub fn set_capacity(&mut self, capacity_items: u64) {
        self.capacity = capacity_items.max(1);
        let depth = self.depth();
        let needed = self.step.max(depth.div_ceil(MOST_BINS));
        // Counts of narrower bins cannot be used in wider ones. This needs a cache that grew a thousandfold.
        if needed > self.width {
            self.width = needed;
            self.bins.clear();
        }
        let bins = usize::try_from(depth.div_ceil(self.width)).unwrap_or(usize::MAX);
        self.bins.resize(bins, 0.0);
        // Fits even if all watched items are different keys.
        let part = self.max_samples as f64 / depth as f64;
        let threshold = match part < 1.0 {
            // Saturates; the next representable number is close enough.
            #[allow(clippy::cast_possible_truncation)]
            true => (ALL as f64 * part) as u64,
            false => ALL,
        };
        if threshold < self.threshold {
            self.threshold = threshold;
            self.stack.drop_above(threshold);
        }
    }

    /// Returns the maximum depth watched.
    fn depth(&self) -> u64 {
        let more = self.step.saturating_mul(MORE_STEPS);
        let watched = self.capacity.saturating_mul(WATCHED);
        watched.max(self.capacity.saturating_add(more))
    }

    fn rate(&self) -> f64 {
        ((self.threshold as f64 + 1.0) / ALL as f64).min(1.0)
    }

    /// Records a request for a key, found or not. `key_hash` is any number unique to the key, and is mixed here.
    /// Returns true if the key is in the sample. A key that is not never will be, so a cache may remember this and skip
    /// later touches of it ([`GhostList::hit_ratio`] then counts too few).
    #[inline]
    pub fn touch(&mut self, key_hash: u64) -> bool {
        self.touches += 1.0;
        let hash = mixed(key_hash);
        let is_sampled = hash <= self.threshold;
        if is_sampled {
            self.sample(hash);
        }
        is_sampled
    }

    fn sample(&mut self, hash: u64) {
        self.sampled += 1.0;
        let rate = self.rate();
        let most = self.depth() as f64 * rate;
        if let Some(depth) = self.stack.touch(hash) {
            // The middle of the keys that this sampled key represents.
            let depth = (depth as f64 + 0.5) / rate;
            // Not negative, and below 2^53.
            #[allow(clippy::cast_possible_truncation)]
            let bin = (depth / self.width as f64) as usize;
            if let Some(bin) = self.bins.get_mut(bin) {
                *bin += 1.0 / rate;
            }
        }
        while self.stack.len() as f64 > most.max(1.0) {
            self.stack.drop_oldest();
        }
        if self.stack.len() > self.max_samples {
            self.threshold = self.stack.drop_highest().saturating_sub(1);
        }
    }

    /// Advances the time; call it in each scan, before [`GhostList::curve`] or [`GhostList::benefit`].
    pub fn pass(&mut self, elapsed: Duration) {
        let left = self.window.pass(elapsed);
        self.touches *= left;
        self.sampled *= left;
        for bin in &mut self.bins {
            *bin *= left;
        }
    }

    /// Returns hits per second for `steps` steps below the current size and `steps` above it, smallest depth first.
    /// Empty before any time has passed.
    pub fn curve(&self, steps: u64) -> Vec<CurveStep> {
        let reach = self.step.saturating_mul(steps);
        let first = self.capacity.saturating_sub(reach);
        let last = self.capacity.saturating_add(reach);
        let mut curve = Vec::new();
        let mut from = first;
        while from < last && from < self.depth() {
            let to = from.saturating_add(self.step);
            let hits = self.window.rate(self.hits(from, to));
            curve.extend(hits.map(|hits| CurveStep {
                from_items: from,
                hits,
            }));
            from = to;
        }
        curve
    }

    /// Returns the hit ratio of a cache with this number of items; `None` before any touch. Beyond the watched depth it
    /// is the ratio at that depth.
    pub fn hit_ratio(&self, items: u64) -> Option<f64> {
        // SHARDS-adj: a deviation of the sample from its share is corrected at depth 0. A few very frequent keys, which
        // are in the sample or not, cause it.
        let correction = self.touches - self.sampled / self.rate();
        let hits = self.hits(0, items) + correction;
        (self.touches > 0.0).then(|| (hits / self.touches).clamp(0.0, 1.0))
    }

    /// Returns hits at depths from `from` to `to`, with bins at the ends in proportion.
    fn hits(&self, from: u64, to: u64) -> f64 {
        let (from, to) = (
            from as f64 / self.width as f64,
            to as f64 / self.width as f64,
        );
        let part = |(index, hits): (usize, &f64)| {
            let bin = index as f64;
            let inside = to.min(bin + 1.0) - from.max(bin);
            hits * inside.max(0.0)
        };
        // Not negative, and below 2^53.
        #[allow(clippy::cast_possible_truncation)]
        let (first, last) = (from as usize, (to as usize).saturating_add(1));
        let bins = self.bins.iter().enumerate();
        let wanted = last.saturating_sub(first);
        bins.skip(first).take(wanted).map(part).sum()
    }

    /// Returns the benefit of `granule_items` more or less, with the extra cost of a miss in seconds. It is unknown
    /// until enough touches or enough time have passed. After that time no hits mean a benefit of zero.
    pub fn benefit(&self, granule_items: u64, seconds_per_miss: f64) -> Benefit {
        if self.sampled < ENOUGH && !self.window.is_long() {
            return Benefit::default();
        }
        let span = (self.capacity / SPAN_PART).max(self.step).max(1);
        let granules = span as f64 / granule_items.max(1) as f64;
        let estimate = |from: u64, to: u64| -> Option<Estimate> {
            let hits = self.hits(from, to);
            let events = hits * self.rate();
            let cost = seconds_per_miss.max(0.0) / granules;
            let mut estimate = self.window.estimate(hits * cost, events)?;
            if events < 1.0 {
                // No event in the sample still permits one per sampling interval.
                estimate.error = self.window.rate(cost / self.rate())?;
            }
            Some(estimate)
        };
        let below = self.capacity.saturating_sub(span);
        let above = self.capacity.saturating_add(span);
        Benefit {
            more: estimate(self.capacity, above),
            less: estimate(below, self.capacity),
            pressure: 0.0,
        }
    }

    /// Returns the maximum memory of the list.
    pub fn bytes(&self) -> hugeleaf_units::Bytes {
        let bytes = self.max_samples * 80 + self.bins.len() * size_of::<f64>();
        hugeleaf_units::Bytes(bytes as u64)
    }
}

/// Spreads a number over all 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). Without it,
/// consecutively numbered keys would be sampled in stripes.
const fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Sampled keys in the order of their last touch. Each touch takes the next slot. The number of keys touched since is
/// the number of later slots in use, counted by a Fenwick tree. When slots run out, all keys move together.
#[derive(Debug, Clone, Default)]
struct LruStack {
    /// Slot of each key, sorted: the highest hash leaves first.
    slots: BTreeMap<u64, usize>,
    keys: Vec<Option<u64>>,
    tree: Vec<u32>,
    next: usize,
    /// No earlier slot is in use.
    oldest: usize,
}

impl LruStack {
    fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of different keys touched since this one; `None` for a new key.
    fn touch(&mut self, key: u64) -> Option<usize> {
        let depth = self.slots.get(&key).copied().map(|slot| {
            let depth = self.len() - self.up_to(slot);
            self.free(slot);
            depth
        });
        if self.next >= self.keys.len() {
            self.compact();
        }
        self.keys[self.next] = Some(key);
        self.add(self.next, 1);
        self.slots.insert(key, self.next);
        self.next += 1;
        depth
    }

    fn drop_oldest(&mut self) {
        while self.oldest < self.next {
            if let Some(key) = self.keys[self.oldest] {
                self.free(self.oldest);
                self.slots.remove(&key);
                return;
            }
            self.oldest += 1;
        }
    }

    /// Returns the removed hash; the maximum if there was none.
    fn drop_highest(&mut self) -> u64 {
        let Some((key, slot)) = self.slots.pop_last() else {
            return ALL;
        };
        self.free(slot);
        key
    }

    fn drop_above(&mut self, threshold: u64) {
        while self
            .slots
            .last_key_value()
            .is_some_and(|(key, _)| *key > threshold)
        {
            self.drop_highest();
        }
    }

    fn free(&mut self, slot: usize) {
        self.keys[slot] = None;
        self.add(slot, u32::MAX);
    }

    /// Adds to a slot's count; `u32::MAX` subtracts one.
    fn add(&mut self, slot: usize, by: u32) {
        let mut at = slot + 1;
        while at <= self.tree.len() {
            self.tree[at - 1] = self.tree[at - 1].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Returns the number of slots in use up to and including this one.
    fn up_to(&self, slot: usize) -> usize {
        let (mut at, mut sum) = (slot + 1, 0usize);
        while at > 0 {
            sum += self.tree[at - 1] as usize;
            at &= at - 1;
        }
        sum
    }

    /// Moves all keys to the first slots, and provides twice as many slots as keys.
    fn compact(&mut self) {
        let keys: Vec<u64> = self.keys.iter().copied().flatten().collect();
        let slots = (keys.len() * 2).max(64);
        self.keys = vec![None; slots];
        self.tree = vec![0; slots];
        (self.next, self.oldest) = (keys.len(), 0);
        for (slot, key) in keys.into_iter().enumerate() {
            // A key that is being touched is not in the list.
            self.keys[slot] = Some(key);
            self.slots.insert(key, slot);
            self.add(slot, 1);
        }
    }
}

#[cfg(test)]
mod tests;
