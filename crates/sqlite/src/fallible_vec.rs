//! Fallible allocation of lists that may be long. If memory is short, the caller continues without the list. If SQLite
//! must have a page, its caller gets an error, and nothing aborts.

/// Returns a list of `count` copies of a value; `None` if memory is short.
pub(crate) fn filled<T: Clone>(count: usize, value: T) -> Option<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).ok()?;
    list.resize(count, value);
    Some(list)
}

/// Collects at most `most` items; `None` if memory is short.
pub(crate) fn listed<T>(most: usize, all: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(most).ok()?;
    list.extend(all.take(most));
    Some(list)
}

/// Appends to a list; false if memory is short.
pub(crate) fn pushed<T>(list: &mut Vec<T>, value: T) -> bool {
    let has_room = list.try_reserve(1).is_ok();
    if has_room {
        list.push(value);
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_no_panic() {
        assert_eq!(filled(3, 7), Some(vec![7, 7, 7]));
        assert_eq!(filled(usize::MAX, 7_u64), None);
        assert_eq!(listed(2, 0..9), Some(vec![0, 1]));
        assert_eq!(listed(usize::MAX, 0..9), None);
        let mut list = Vec::new();
        assert!(pushed(&mut list, 1) && list == [1]);
    }
}
