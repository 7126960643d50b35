//! The table entry of a granule. It is one word, so that no reader ever sees half of a change.

use crate::extent::FallbackReason;

pub(crate) const PROCESSES: usize = 2048;
pub(crate) const COMPONENTS: usize = 64;
/// Maximum number of steps; more than any ladder produces.
pub(crate) const STEPS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GranuleState {
    Free,
    Taking,
    Held,
    Returning,
    /// No owner, but its memory could not be returned. This is retried before it is used.
    Unclean,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FallbackCode {
    /// The granule is on the first rung.
    None,
    NoSuchSize,
    PoolShort,
    NotContiguous,
    ThpOff,
    KnobOff,
    NotReported,
}

impl FallbackCode {
    /// Combines two reasons. The first one explains why a granule is not on the first rung.
    pub(crate) const fn or(self, other: FallbackCode) -> FallbackCode {
        match self {
            FallbackCode::None => other,
            before => before,
        }
    }

    /// Returns the reason in few bits. Its details are derived again from the first rung.
    pub(crate) const fn from_fallback(why: &FallbackReason) -> FallbackCode {
        match why {
            FallbackReason::PoolShort { .. } => FallbackCode::PoolShort,
            FallbackReason::NotContiguous { .. } | FallbackReason::Split { .. } => {
                FallbackCode::NotContiguous
            }
            FallbackReason::ThpOff => FallbackCode::ThpOff,
            FallbackReason::KnobOff { .. } => FallbackCode::KnobOff,
            FallbackReason::NotReported { .. } | FallbackReason::Attached => {
                FallbackCode::NotReported
            }
            FallbackReason::NoSuchSize { .. } | FallbackReason::Remainder { .. } => {
                FallbackCode::NoSuchSize
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GranuleEntry {
    pub(crate) state: GranuleState,
    /// Step that its memory is on: an index into the resolved steps of the ladder.
    pub(crate) step: u8,
    /// Component that holds it; meaningless if the granule is free.
    pub(crate) component: u8,
    pub(crate) owner: u16,
    pub(crate) reason: FallbackCode,
    /// Number of times it was taken or transferred; distinguishes its current name from old ones.
    pub(crate) stamp: u32,
}

const STATES: [GranuleState; 5] = [
    GranuleState::Free,
    GranuleState::Taking,
    GranuleState::Held,
    GranuleState::Returning,
    GranuleState::Unclean,
];
const REASONS: [FallbackCode; 7] = [
    FallbackCode::None,
    FallbackCode::NoSuchSize,
    FallbackCode::PoolShort,
    FallbackCode::NotContiguous,
    FallbackCode::ThpOff,
    FallbackCode::KnobOff,
    FallbackCode::NotReported,
];

impl GranuleEntry {
    /// Encodes, from bit 0: state in 4 bits, rung in 4, reason in 4, owner in 12, component in 8,
    /// stamp in 32.
    pub(crate) const fn to_word(self) -> u64 {
        self.state as u64
            | (self.step as u64) << 4
            | (self.reason as u64) << 8
            | (self.owner as u64) << 12
            | (self.component as u64) << 24
            | (self.stamp as u64) << 32
    }

    /// Decodes a word; `None` if this library did not write it.
    pub(crate) fn from_word(word: u64) -> Option<GranuleEntry> {
        let bits = |from: u32, count: u32| (word >> from) & ((1 << count) - 1);
        let entry = GranuleEntry {
            state: *STATES.get(usize::try_from(bits(0, 4)).ok()?)?,
            step: u8::try_from(bits(4, 4)).ok()?,
            reason: *REASONS.get(usize::try_from(bits(8, 4)).ok()?)?,
            owner: u16::try_from(bits(12, 12)).ok()?,
            component: u8::try_from(bits(24, 8)).ok()?,
            stamp: u32::try_from(bits(32, 32)).ok()?,
        };
        let fits =
            usize::from(entry.owner) < PROCESSES && usize::from(entry.component) < COMPONENTS;
        fits.then_some(entry)
    }

    /// Returns the entry as free and without memory; its stamp stays.
    pub(crate) const fn freed(self) -> GranuleEntry {
        GranuleEntry {
            state: GranuleState::Free,
            step: 0,
            component: 0,
            owner: 0,
            reason: FallbackCode::None,
            stamp: self.stamp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_read_back(word: u64) {
            if let Some(entry) = GranuleEntry::from_word(word) {
                prop_assert_eq!(GranuleEntry::from_word(entry.to_word()), Some(entry));
                prop_assert_eq!(entry.to_word(), word);
            }
        }

        #[test]
        fn entries_read_back(
            state in 0usize..5, step in 0u8..16, reason in 0usize..7,
            owner in 0u16..2048, component in 0u8..64, stamp: u32,
        ) {
            let entry = GranuleEntry {
                state: STATES[state], step, component, owner, reason: REASONS[reason], stamp,
            };
            prop_assert_eq!(GranuleEntry::from_word(entry.to_word()), Some(entry));
        }
    }

    #[test]
    fn a_table_of_zeroes_is_all_free() {
        assert_eq!(
            GranuleEntry::from_word(0).unwrap().state,
            GranuleState::Free
        );
        assert!(GranuleEntry::from_word(5).is_none(), "no such state");
        assert!(
            GranuleEntry::from_word(64 << 24).is_none(),
            "no such component"
        );
    }
}
