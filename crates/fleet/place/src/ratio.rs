//! Exact fractions: decimals of policies, and what is compared with them.

use std::cmp::Ordering;

/// An exact fraction. Equal fractions may have different terms; they compare equal.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    top: i128,
    /// Above 0.
    bottom: i128,
}

impl Ratio {
    /// A whole number.
    pub const fn whole(number: i64) -> Ratio {
        Ratio { top: number as i128, bottom: 1 }
    }

    /// `top` divided by `bottom`, which is at least 1 here.
    pub fn of(top: i64, bottom: i64) -> Ratio {
        Ratio::new(top.into(), bottom.into())
    }

    /// `top` divided by `bottom`, which is at least 1 here.
    pub fn new(top: i128, bottom: i128) -> Ratio {
        Ratio { top, bottom: bottom.max(1) }
    }

    /// Its terms; the second is above 0.
    pub fn terms(self) -> (i128, i128) {
        (self.top, self.bottom)
    }

    /// Reads digits with or without a fraction: `115`, `1.15`, `.5`, `1.`. None for other text and for more than
    /// about 38 digits.
    pub fn decimal(text: &str) -> Option<Ratio> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        if whole.len() + part.len() == 0 {
            return None;
        }
        let digit = |top: i128, byte: u8| {
            let digit = byte.is_ascii_digit().then(|| i128::from(byte - b'0'))?;
            top.checked_mul(10)?.checked_add(digit)
        };
        let top = whole.bytes().chain(part.bytes()).try_fold(0, digit)?;
        let bottom = 10i128.checked_pow(u32::try_from(part.len()).ok()?)?;
        Some(Ratio { top, bottom })
    }

    /// The shortest decimal that reads as `number`. None if it is not finite, or too large or too small.
    pub fn shortest(number: f64) -> Option<Ratio> {
        /// Largest integer up to which every integer is a double.
        const EXACT: f64 = (1u64 << 53) as f64;
        let mut scale = 1.0;
        // Few decimal places are the usual case, and need no text.
        for _ in 0..10 {
            let scaled = (number * scale).round();
            if scaled.abs() < EXACT && scaled / scale == number {
                return Some(Ratio { top: scaled as i128, bottom: scale as i128 });
            }
            scale *= 10.0;
        }
        let text = number.to_string();
        match text.strip_prefix('-') {
            Some(text) => Ratio::decimal(text).map(Ratio::negated),
            None => Ratio::decimal(&text),
        }
    }

    /// The nearest double, or nearly so.
    pub fn to_f64(self) -> f64 {
        self.top as f64 / self.bottom as f64
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.top == 0
    }

    /// With the other sign.
    pub fn negated(self) -> Ratio {
        Ratio { top: self.top.saturating_neg(), ..self }
    }

    /// Whether `left` is more than `right` times this, which is not negative.
    pub fn is_exceeded(self, left: i64, right: i64) -> bool {
        match (i64::try_from(self.top), i64::try_from(self.bottom)) {
            // Neither product can overflow.
            (Ok(top), Ok(bottom)) => {
                i128::from(left) * i128::from(bottom) > i128::from(right) * i128::from(top)
            }
            _ if right == 0 => left > 0,
            _ if right > 0 => Ratio::of(left, right) > self,
            _ => Ratio { top: -i128::from(left), bottom: -i128::from(right) } < self,
        }
    }

    /// In lowest terms.
    pub fn reduced(self) -> Ratio {
        let (mut a, mut b) = (self.top.unsigned_abs(), self.bottom.unsigned_abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        match i128::try_from(a) {
            Ok(common) if common > 1 => Ratio { top: self.top / common, bottom: self.bottom / common },
            _ => self,
        }
    }

    /// Computes on the terms, and again on the lowest terms if these overflow.
    fn with(self, other: Ratio, compute: impl Fn(Ratio, Ratio) -> Option<Ratio>) -> Option<Ratio> {
        compute(self, other).or_else(|| compute(self.reduced(), other.reduced()))
    }

    /// The sum; none if its terms are too large.
    pub fn plus(self, other: Ratio) -> Option<Ratio> {
        self.with(other, |a, b| {
            if a.bottom == b.bottom {
                return Some(Ratio { top: a.top.checked_add(b.top)?, bottom: a.bottom });
            }
            let top = a.top.checked_mul(b.bottom)?.checked_add(b.top.checked_mul(a.bottom)?)?;
            Some(Ratio { top, bottom: a.bottom.checked_mul(b.bottom)? })
        })
    }

    /// The difference; none if its terms are too large.
    pub fn minus(self, other: Ratio) -> Option<Ratio> {
        self.plus(other.negated())
    }

    /// The product; none if its terms are too large.
    pub fn times(self, other: Ratio) -> Option<Ratio> {
        self.with(other, |a, b| {
            Some(Ratio { top: a.top.checked_mul(b.top)?, bottom: a.bottom.checked_mul(b.bottom)? })
        })
    }

    /// The quotient; none if `other` is 0 or if its terms are too large.
    pub fn over(self, other: Ratio) -> Option<Ratio> {
        let inverse = Ratio { top: other.bottom * other.top.signum(), bottom: other.top.checked_abs()? };
        if inverse.bottom == 0 { None } else { self.times(inverse) }
    }

    /// The largest integer that is not larger.
    pub fn floor(self) -> i128 {
        self.top.div_euclid(self.bottom)
    }

    /// The smallest integer that is not smaller.
    pub fn ceil(self) -> i128 {
        self.floor() + i128::from(self.top.rem_euclid(self.bottom) > 0)
    }

    /// The nearest integer; halves go up.
    pub fn round(self) -> i128 {
        let part = self.top.rem_euclid(self.bottom);
        self.floor() + i128::from(part >= self.bottom - part)
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Ratio) -> Ordering {
        match (self.top.checked_mul(other.bottom), other.top.checked_mul(self.bottom)) {
            (Some(left), Some(right)) => left.cmp(&right),
            _ => by_parts(*self, *other),
        }
    }
}

/// Compares whole parts, then the inverses of the remainders in the same way: nothing overflows.
fn by_parts(mut left: Ratio, mut right: Ratio) -> Ordering {
    let mut is_inverse = false;
    loop {
        let parts = |it: Ratio| (it.top.div_euclid(it.bottom), it.top.rem_euclid(it.bottom));
        let ((whole, rest), (other_whole, other_rest)) = (parts(left), parts(right));
        let order = match whole.cmp(&other_whole) {
            Ordering::Equal if rest == 0 || other_rest == 0 => rest.cmp(&other_rest),
            Ordering::Equal => {
                left = Ratio { top: left.bottom, bottom: rest };
                right = Ratio { top: right.bottom, bottom: other_rest };
                is_inverse = !is_inverse;
                continue;
            }
            order => order,
        };
        return if is_inverse { order.reverse() } else { order };
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Ratio) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Ratio) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ratio {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A natural number of any size: digits in base 2^32, least first, without zeros at the end.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct Big(Vec<u32>);

    impl Big {
        pub(crate) fn of(mut number: u128) -> Big {
            let mut digits = Vec::new();
            while number > 0 {
                digits.push(number as u32);
                number >>= 32;
            }
            Big(digits)
        }

        fn read(digits: &str) -> Big {
            digits.bytes().fold(Big::of(0), |number, byte| {
                number.times(&Big::of(10)).plus(&Big::of((byte - b'0').into()))
            })
        }

        pub(crate) fn plus(&self, other: &Big) -> Big {
            let (mut digits, mut carry) = (Vec::new(), 0u64);
            let digit = |of: &Big, at: usize| u64::from(of.0.get(at).copied().unwrap_or(0));
            for at in 0..=self.0.len().max(other.0.len()) {
                carry += digit(self, at) + digit(other, at);
                digits.push(carry as u32);
                carry >>= 32;
            }
            Big(digits).trimmed()
        }

        pub(crate) fn times(&self, other: &Big) -> Big {
            let mut digits = vec![0u32; self.0.len() + other.0.len()];
            for (at, digit) in self.0.iter().enumerate() {
                let mut carry = 0u64;
                for (next, factor) in other.0.iter().enumerate() {
                    carry += u64::from(digits[at + next]) + u64::from(*digit) * u64::from(*factor);
                    digits[at + next] = carry as u32;
                    carry >>= 32;
                }
                digits[at + other.0.len()] = carry as u32;
            }
            Big(digits).trimmed()
        }

        fn trimmed(mut self) -> Big {
            while self.0.last() == Some(&0) {
                self.0.pop();
            }
            self
        }
    }

    impl Ord for Big {
        fn cmp(&self, other: &Big) -> Ordering {
            let digits = |of: &Big| of.0.iter().rev().copied().collect::<Vec<u32>>();
            self.0.len().cmp(&other.0.len()).then_with(|| digits(self).cmp(&digits(other)))
        }
    }

    impl PartialOrd for Big {
        fn partial_cmp(&self, other: &Big) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    fn tens(places: usize) -> Big {
        Big::read(&format!("1{}", "0".repeat(places)))
    }

    #[test]
    fn decimals_are_read_exactly() {
        let read = |text: &str| Ratio::decimal(text);
        assert_eq!(read("1.15"), Some(Ratio::of(115, 100)));
        assert_eq!((read(".5"), read("1.")), (Some(Ratio::of(1, 2)), Some(Ratio::whole(1))));
        for wrong in ["", ".", "-1", "1e3", "1.2.3", "inf", &"9".repeat(39)] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let ratio = read("1.15").unwrap();
        assert!(!ratio.is_exceeded(115, 100) && ratio.is_exceeded(116, 100) && ratio.is_exceeded(0, -1));
        assert_eq!(Ratio::shortest(f64::NAN), None);
        assert_eq!(Ratio::shortest(-0.1), read("0.1").map(Ratio::negated));
        assert_eq!(Ratio::shortest(1e300), None);
    }

    #[test]
    fn arithmetic_is_exact_or_absent() {
        let (third, largest) = (Ratio::of(1, 3), Ratio { top: i128::MAX, bottom: 1 });
        let large = Ratio { top: i128::MAX - 1, bottom: 1 };
        assert_eq!(third.plus(third).unwrap().plus(third), Some(Ratio::whole(1)));
        assert_eq!(third.times(Ratio::whole(3)).unwrap().minus(Ratio::whole(1)), Some(Ratio::whole(0)));
        assert_eq!(third.over(Ratio::whole(0)), None);
        assert_eq!(third.over(third.negated()), Some(Ratio::whole(-1)));
        assert_eq!(largest.plus(Ratio::whole(1)), None);
        let half = Ratio::of(1, 2);
        assert_eq!(large.times(half).unwrap().times(Ratio::whole(2)), Some(large));
        assert_eq!(largest.times(third).unwrap().times(Ratio::whole(3)), None);
        let halves = [-3, -1, 1, 3].map(|top| Ratio::of(top, 2));
        assert_eq!(halves.map(Ratio::round), [-1, 0, 1, 2]);
        assert_eq!(halves.map(Ratio::floor), [-2, -1, 0, 1]);
        assert_eq!(halves.map(Ratio::ceil), [-1, 0, 1, 2]);
    }

    proptest! {
        /// `left > right * decimal`, for decimals of up to 38 digits, equals arithmetic on integers of any size.
        #[test]
        fn limits_equal_big_integers(
            left in 0i64..,
            right in 1i64..,
            whole in "[0-9]{1,3}",
            part in "[0-9]{0,34}",
            near in -2i64..3,
        ) {
            let ratio = Ratio::decimal(&format!("{whole}.{part}")).unwrap();
            let limit = Big::read(&format!("{whole}{part}"));
            let is_exceeded = |left: i64, right: i64| {
                let left = Big::of(left.unsigned_abs().into()).times(&tens(part.len()));
                left > Big::of(right.unsigned_abs().into()).times(&limit)
            };
            prop_assert_eq!(ratio.is_exceeded(left, right), is_exceeded(left, right));
            // Values next to the limit are those that rounding would confuse.
            let right = right % 1_000_000_000;
            let bound = ratio.times(Ratio::whole(right)).unwrap_or(Ratio::whole(0)).floor();
            let left = (bound as i64).saturating_add(near).max(0);
            prop_assert_eq!(ratio.is_exceeded(left, right), is_exceeded(left, right));
        }

        /// The order of fractions equals that of cross products of any size.
        #[test]
        fn the_order_equals_big_integers(
            terms in prop::array::uniform4(1i128..),
            shift in prop::array::uniform4(0u32..127),
        ) {
            let [a, b, c, d]: [i128; 4] = std::array::from_fn(|at| (terms[at] >> shift[at]).max(1));
            let (left, right) = (Ratio { top: a, bottom: b }, Ratio { top: c, bottom: d });
            let product = |a: i128, b: i128| Big::of(a.unsigned_abs()).times(&Big::of(b.unsigned_abs()));
            let expected = product(a, d).cmp(&product(c, b));
            prop_assert_eq!(left.cmp(&right), expected);
            prop_assert_eq!(by_parts(left, right), expected);
            prop_assert_eq!(left.negated().cmp(&right.negated()), expected.reverse());
            prop_assert_eq!(left.cmp(&left.reduced()), Ordering::Equal);
        }

        /// A decimal survives the double that a fact is stored in.
        #[test]
        fn doubles_are_read_as_the_decimal_they_were_written_as(
            units in -999_999_999_999_999i64..1_000_000_000_000_000,
            places in 0usize..12,
        ) {
            let sign = if units < 0 { "-" } else { "" };
            let digits = format!("{:0>width$}", units.unsigned_abs(), width = places + 1);
            let (whole, part) = digits.split_at(digits.len() - places);
            let text = format!("{whole}.{part}");
            let written: f64 = format!("{sign}{text}").parse().unwrap();
            let exact = Ratio::decimal(&text).unwrap();
            let exact = if units < 0 { exact.negated() } else { exact };
            prop_assert_eq!(Ratio::shortest(written), Some(exact));
        }
    }
}
