use crate::config::{integer, split_arguments, split_words};

/// Alignment of packets' data: its address modulo a modulus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Alignment {
    /// Not known yet.
    #[default]
    Empty,
    /// No packets, so that every alignment holds.
    Universal,
    /// Contradicting requirements.
    Bad,
    /// Modulus, at least 1, and offset, less than the modulus.
    At(u32, u32),
}

use Alignment::{At, Bad, Empty, Universal};

impl Alignment {
    /// An alignment from two numbers, if they are valid.
    pub fn checked(modulus: i64, offset: i64) -> Option<Self> {
        let (modulus, offset) = (u32::try_from(modulus).ok()?, u32::try_from(offset).ok()?);
        // Attack: moduli whose product overflows.
        (modulus > 0 && modulus <= 1 << 15 && offset < modulus).then_some(At(modulus, offset))
    }

    /// Parses the two arguments of an Align, or two words.
    pub fn parse(text: &str, words: bool) -> Option<Self> {
        let parts = if words { split_words(text) } else { split_arguments(text) };
        let [modulus, offset] = &parts[..] else { return None };
        let number = |part: &str, keyword: &str| integer(part.strip_prefix(keyword).unwrap_or(part).trim());
        Self::checked(number(modulus, "MODULUS ")?, number(offset, "OFFSET ")?)
    }

    /// Modulus and offset, as in AlignmentInfo.
    pub fn numbers(self) -> (u32, u32) {
        match self {
            At(modulus, offset) => (modulus, offset),
            _ => (1, 0),
        }
    }

    /// Whether this alignment implies `other`.
    pub fn implies(self, other: Self) -> bool {
        match (self, other) {
            (Bad, _) | (_, Bad) => false,
            (Universal, _) => true,
            (_, Universal) => false,
            (_, Empty | At(1, _)) => true,
            (Empty | At(1, _), _) => false,
            (At(modulus, offset), At(wanted, at)) => modulus.is_multiple_of(wanted) && offset % wanted == at,
        }
    }

    /// The alignment after removing this number of bytes, or adding bytes if it is negative.
    pub fn shifted(self, bytes: i64) -> Self {
        match self {
            At(modulus, offset) => {
                let offset = (i64::from(offset) + bytes % i64::from(modulus)).rem_euclid(i64::from(modulus));
                At(modulus, offset as u32)
            }
            other => other,
        }
    }

    /// The best alignment that both alignments imply.
    pub fn or(self, other: Self) -> Self {
        let (At(one, at_one), At(two, at_two)) = (self, other) else {
            return match (self, other) {
                (Empty, _) | (_, Bad) => other,
                (Universal, At(..)) => other,
                _ => self,
            };
        };
        if one == 1 {
            return self;
        }
        let common = gcd(one, two);
        let (at_one, at_two) = (at_one % common, at_two % common);
        if at_one == at_two {
            return At(common, at_one);
        }
        let apart = at_one.abs_diff(at_two);
        let apart = apart.min(common - apart);
        if common.is_multiple_of(apart) { At(apart, at_one % apart) } else { At(1, 0) }
    }

    /// The alignment that implies both.
    pub fn and(self, other: Self) -> Self {
        let (At(one, at_one), At(two, at_two)) = (self, other) else {
            return match (self, other) {
                (Empty, _) | (_, Bad) => other,
                _ => self,
            };
        };
        if self.implies(other) {
            return self;
        }
        if other.implies(self) {
            return other;
        }
        let together = one / gcd(one, two) * two;
        let ((small, at_small), (large, at_large)) =
            if one < two { ((one, at_one), (two, at_two)) } else { ((two, at_two), (one, at_one)) };
        let mut offsets = (at_large..together).step_by(large as usize);
        offsets.find(|offset| offset % small == at_small).map_or(Bad, |offset| At(together, offset))
    }
}

fn gcd(one: u32, two: u32) -> u32 {
    if two == 0 { one } else { gcd(two, one % two) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        assert!(At(1, 0).implies(Empty) && Empty.implies(At(1, 0)) && !At(2, 0).implies(At(4, 0)));
        assert!(At(4, 0).implies(At(2, 0)) && Universal.implies(At(2, 1)) && !Bad.implies(Empty));
    }

    #[test]
    fn joins() {
        assert_eq!(At(4, 1).and(At(2, 1)), At(4, 1));
        assert_eq!(At(4, 1).or(At(2, 1)), At(2, 1));
        assert_eq!(At(4, 1).and(At(5, 1)), At(20, 1));
        assert_eq!(At(4, 1).and(At(5, 3)), At(20, 13));
        assert_eq!(At(6, 1).and(At(10, 7)), At(30, 7));
        assert_eq!(At(4, 1).and(At(4, 2)), Bad);
        assert_eq!(At(4, 0).or(At(4, 2)), At(2, 0));
        assert_eq!(At(4, 2).shifted(14), At(4, 0));
        assert_eq!(At(4, 2).shifted(-3), At(4, 3));
        assert_eq!(Alignment::parse("4, 2", false), Some(At(4, 2)));
        assert_eq!(Alignment::parse("4 5", true), None);
    }
}
