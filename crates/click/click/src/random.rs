//! Random numbers of a router.
use alloc::boxed::Box;

/// The random numbers of the C library's `random`, which Click uses: each is the sum of the numbers 3 and 31
/// positions before it, without its lowest bit.
#[derive(Debug)]
struct Additive {
    sums: [u32; 31],
    at: usize,
}

impl Additive {
    fn new(seed: u32) -> Self {
        let mut sums = [0; 31];
        // A multiplicative generator (Park, Miller, 1988) initializes them, with signed numbers.
        let mut number = i64::from(seed.max(1) as i32);
        for sum in &mut sums {
            *sum = number as u32;
            number = number * 16_807 % i64::from(i32::MAX);
            if number < 0 {
                number += i64::from(i32::MAX);
            }
        }
        let mut own = Self { sums, at: 0 };
        for _ in 0..10 * own.sums.len() {
            own.next();
        }
        own
    }

    fn next(&mut self) -> u32 {
        // The position to fill is three ahead of the oldest.
        let place = (self.at + 3) % self.sums.len();
        let sum = self.sums[place].wrapping_add(self.sums[self.at]);
        self.sums[place] = sum;
        self.at = (self.at + 1) % self.sums.len();
        sum >> 1
    }
}

/// The random numbers of a router.
#[derive(Debug)]
pub(crate) struct Random {
    state: u64,
    /// Click's generator, once a seed is set.
    clicks: Option<Box<Additive>>,
}

impl Random {
    /// Numbers that follow this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, clicks: None }
    }

    /// As `new`, but numbers from a range equal Click's for this seed.
    pub(crate) fn like_click(seed: u32) -> Self {
        Self { clicks: Some(Box::new(Additive::new(seed))), ..Self::new(seed.into()) }
    }

    /// Other numbers for a thread other than the first, which has the same seed.
    pub(crate) fn diverge(&mut self, thread: usize) {
        let own = (thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.state = (self.state ^ own) | 1;
        if let Some(clicks) = self.clicks.as_deref_mut().filter(|_| thread > 0) {
            let seed = clicks.next() ^ (own >> 32) as u32;
            *clicks = Additive::new(seed);
        }
    }

    /// Whether the configuration has set the seed.
    pub(crate) fn is_set(&self) -> bool {
        self.clicks.is_some()
    }

    /// The next number (xorshift64*, Vigna 2016).
    pub(crate) fn next(&mut self) -> u32 {
        let mut state = self.state;
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.state = state;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// A number from `least` to `most`, inclusive; `least` if `most` is smaller.
    pub(crate) fn between(&mut self, least: u32, most: u32) -> u32 {
        let Some(span) = most.checked_sub(least).filter(|span| *span > 0) else { return least };
        let Some(clicks) = &mut self.clicks else {
            return least + ((u64::from(self.next()) * (u64::from(span) + 1)) >> 32) as u32;
        };
        match span {
            1 => least + (clicks.next() >> 14 & 1),
            span if span > i32::MAX as u32 => loop {
                let number = clicks.next() << 17 ^ clicks.next() >> 14;
                if number <= span {
                    return least.wrapping_add(number);
                }
            },
            span => {
                let share = (1 << 31) / (span + 1);
                loop {
                    let number = clicks.next() / share;
                    if number <= span {
                        return least + number;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_the_c_library() {
        let mut one = Additive::new(1);
        assert_eq!([one.next(), one.next(), one.next()], [1_804_289_383, 846_930_886, 1_681_692_777]);
        let mut other = Additive::new(42);
        assert_eq!([other.next(), other.next()], [71_876_166, 708_592_740]);
    }

    #[test]
    fn threads_with_the_same_seed_draw_different_numbers() {
        for seeded in [|| Random::new(5), || Random::like_click(5)] {
            let draw = |thread| {
                let mut random = seeded();
                random.diverge(thread);
                [(); 8].map(|()| [random.next(), random.between(0, 1 << 30)])
            };
            let mut same = seeded();
            assert_eq!(draw(0), [(); 8].map(|()| [same.next(), same.between(0, 1 << 30)]));
            for (one, other) in [(0, 1), (0, 2), (1, 2), (3, 7)] {
                let equal = draw(one).iter().flatten().zip(draw(other).iter().flatten()).any(|(a, b)| a == b);
                assert!(!equal, "{one} {other}");
            }
        }
    }

    #[test]
    fn ranges_are_inclusive_and_fully_used() {
        for mut random in [Random::new(1), Random::like_click(1)] {
            for (least, most) in [(0, 1), (5, 7), (0, u32::MAX), (u32::MAX - 1, u32::MAX), (7, 7), (9, 3)] {
                let numbers: alloc::vec::Vec<u32> = (0..200).map(|_| random.between(least, most)).collect();
                assert!(numbers.iter().all(|number| (least..=most.max(least)).contains(number)));
                if (1..9).contains(&(most.wrapping_sub(least))) {
                    assert!(numbers.contains(&least) && numbers.contains(&most));
                }
            }
        }
        assert_eq!(Random::like_click(1).between(1024, 65534), 55226);
    }
}
