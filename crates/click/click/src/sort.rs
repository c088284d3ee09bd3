//! Sorting by numbers. All sorts of configurations and tables use one function, since each type of items and each
//! order of its own takes 3 to 14 KB of code in a guest's image.
use alloc::vec::Vec;

/// Sorts numbers, ascending.
#[inline(never)]
pub fn numbers(numbers: &mut [u128]) {
    numbers.sort_unstable();
}

/// Sorts items by a number, ascending; those with the same number keep their order.
pub fn by_number<T>(items: &mut [T], number: impl Fn(&T) -> u64) {
    if items.is_sorted_by(|one, other| number(one) <= number(other)) {
        return;
    }
    let place = |(at, item): (usize, &T)| u128::from(number(item)) << 64 | at as u128;
    let mut places: Vec<u128> = items.iter().enumerate().map(place).collect();
    numbers(&mut places);
    // The item of a place comes from another, that one's from a third, until the cycle is closed.
    for start in 0..places.len() {
        let mut at = start;
        loop {
            let from = core::mem::replace(&mut places[at], at as u128) as u64 as usize;
            if from == start {
                break;
            }
            items.swap(at, from);
            at = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn items_keep_their_order_otherwise(
            mut items in prop::collection::vec((0u64..9, 0u32..99), 0..99)
        ) {
            let mut sorted = items.clone();
            sorted.sort_by_key(|(number, _)| *number);
            by_number(&mut items, |(number, _)| *number);
            prop_assert_eq!(items, sorted);
        }
    }

    #[test]
    fn the_greatest_numbers_are_last() {
        let mut items = [u64::MAX, 0, u64::MAX - 1, 1 << 63];
        by_number(&mut items, |number| *number);
        assert_eq!(items, [0, 1 << 63, u64::MAX - 1, u64::MAX]);
    }
}
