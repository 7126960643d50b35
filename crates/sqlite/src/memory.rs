//! Lists that may be long: where there is no memory for one, the caller goes on without it. SQLite's caller gets an error
//! then where it must have a page, and nothing aborts.

/// A list of so many of the same; `None` where there is no memory for it.
pub(crate) fn filled<T: Clone>(count: usize, value: T) -> Option<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).ok()?;
    list.resize(count, value);
    Some(list)
}

/// A list of what comes; `None` where there is no memory for so many.
pub(crate) fn listed<T>(most: usize, all: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(most).ok()?;
    list.extend(all.take(most));
    Some(list)
}

/// Adds to a list; false where there is no memory for it.
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
