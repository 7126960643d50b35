//! The content of a block, and its verification. Pure.
//!
//! A block contains its origin and a checksum over all of it. A block that is damaged, torn or from
//! another place therefore differs from the expected one.

use std::fmt;

/// Origin of a block: a device, and a block of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockOrigin {
    pub source: u64,
    /// Number of the block in the device.
    pub index: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidBlock {
    /// The content is not a block of this kit.
    NotABlock,
    /// The checksum does not match the content.
    Checksum { said: u32, found: u32 },
    Another {
        wanted: BlockOrigin,
        found: BlockOrigin,
    },
}

impl fmt::Display for InvalidBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidBlock::NotABlock => write!(f, "not a block of this run"),
            InvalidBlock::Checksum { said, found } => {
                write!(f, "the checksum is {found:08x} and should be {said:08x}")
            }
            InvalidBlock::Another { wanted, found } => write!(
                f,
                "block {} of source {} instead of block {} of source {}",
                found.index, found.source, wanted.index, wanted.source
            ),
        }
    }
}

const MAGIC: u64 = u64::from_le_bytes(*b"hugeleaf");
/// Length of the header: magic, source, index, checksum, and four unused bytes.
pub const HEADER: usize = 32;

/// Makes a block of all of `block`, which must be longer than [`HEADER`].
pub fn fill(block: &mut [u8], stamp: BlockOrigin, random: &mut fastrand::Rng) {
    random.fill(&mut block[HEADER..]);
    let words = [MAGIC, stamp.source, stamp.index];
    for (at, word) in words.into_iter().enumerate() {
        block[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = checksum(block);
    block[24..28].copy_from_slice(&sum.to_le_bytes());
    block[28..HEADER].fill(0);
}

/// Returns the stamp of a block.
///
/// # Errors
/// Returns the defect of the block.
pub fn check(block: &[u8]) -> Result<BlockOrigin, InvalidBlock> {
    let stamp = stamp_of(block)?;
    let said = u32::from_le_bytes(block[24..28].try_into().unwrap_or_default());
    let found = checksum(block);
    match said == found {
        true => Ok(stamp),
        false => Err(InvalidBlock::Checksum { said, found }),
    }
}

/// Checks that a block has the expected stamp.
///
/// # Errors
/// Returns the defect of the block.
pub fn expect(block: &[u8], wanted: BlockOrigin) -> Result<(), InvalidBlock> {
    match check(block)? {
        found if found == wanted => Ok(()),
        found => Err(InvalidBlock::Another { wanted, found }),
    }
}

/// Returns the stamp in a block without checking the checksum.
fn stamp_of(block: &[u8]) -> Result<BlockOrigin, InvalidBlock> {
    if block.len() <= HEADER {
        return Err(InvalidBlock::NotABlock);
    }
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
    match word(0) {
        MAGIC => Ok(BlockOrigin {
            source: word(8),
            index: word(16),
        }),
        _ => Err(InvalidBlock::NotABlock),
    }
}

fn checksum(block: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&block[..24]);
    sum.update(&block[HEADER..]);
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: BlockOrigin = BlockOrigin {
        source: 3,
        index: 77,
    };

    fn block(length: usize) -> Vec<u8> {
        let mut block = vec![0; length];
        fill(&mut block, STAMP, &mut fastrand::Rng::with_seed(1));
        block
    }

    #[test]
    fn another_block_is_told() {
        let wanted = BlockOrigin {
            source: 3,
            index: 78,
        };
        let found = expect(&block(512), wanted).unwrap_err();
        assert_eq!(
            found.to_string(),
            "block 77 of source 3 instead of block 78 of source 3"
        );
        assert_eq!(expect(&block(512), STAMP), Ok(()));
        assert_eq!(check(&[0; 512]), Err(InvalidBlock::NotABlock));
        assert_eq!(check(&[]), Err(InvalidBlock::NotABlock));
    }

    proptest! {
        /// A single wrong bit at any position is detected.
        #[test]
        fn no_flipped_bit_passes(at in 0usize..512, bit in 0u8..8) {
            let mut block = block(512);
            block[at] ^= 1 << bit;
            // Four bytes are unused.
            prop_assert_eq!(expect(&block, STAMP).is_ok(), (28..HEADER).contains(&at));
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = check(&bytes);
        }
    }
}
