//! Mappings of reserved pages that are longer than the program asked for: reserved pages come
//! whole, and can be unmapped whole only, so the program's `munmap` is made longer as well.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Piece {
    start: AtomicUsize,
    asked: AtomicUsize,
    mapped: AtomicUsize,
}

static PIECES: [Piece; 64] = [const {
    Piece {
        start: AtomicUsize::new(0),
        asked: AtomicUsize::new(0),
        mapped: AtomicUsize::new(0),
    }
}; 64];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Remembers one. Whether there was room: otherwise it must not be handed out.
pub fn remember(start: usize, asked: usize, mapped: usize) -> bool {
    if asked == mapped {
        return true;
    }
    for piece in &PIECES {
        if piece
            .start
            .compare_exchange(0, start, Relaxed, Relaxed)
            .is_ok()
        {
            piece.asked.store(asked, Relaxed);
            piece.mapped.store(mapped, Relaxed);
            COUNT.fetch_add(1, Relaxed);
            return true;
        }
    }
    false
}

/// How much to unmap where the program asks for `length` from `start`.
#[inline(always)]
pub fn unmap_length(start: usize, length: usize) -> usize {
    if COUNT.load(Relaxed) == 0 {
        length
    } else {
        look_up(start, length)
    }
}

#[cold]
fn look_up(start: usize, length: usize) -> usize {
    for piece in &PIECES {
        let (asked, mapped) = (piece.asked.load(Relaxed), piece.mapped.load(Relaxed));
        if piece.start.load(Relaxed) == start && length >= asked && length < mapped {
            piece.start.store(0, Relaxed);
            COUNT.fetch_sub(1, Relaxed);
            return mapped;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_unmapped_whole_and_once() {
        assert_eq!(unmap_length(0x40_0000, 5000), 5000);
        assert!(remember(0x40_0000, 5000, 0x20_0000));
        assert_eq!(unmap_length(0x40_0000, 4000), 4000);
        assert_eq!(unmap_length(0x60_0000, 5000), 5000);
        assert_eq!(unmap_length(0x40_0000, 5000), 0x20_0000);
        assert_eq!(unmap_length(0x40_0000, 5000), 5000);
    }
}
