//! Numbers.
use super::{Arg, ArgError, Scope};
use alloc::format;
use alloc::string::ToString;
use core::fmt;

/// A number's sign, digits and base.
struct Digits<'a> {
    negative: bool,
    digits: &'a str,
    base: u32,
}

fn digits(text: &str) -> Option<Digits<'_>> {
    let negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (digits, base) = match rest.get(..2) {
        Some("0x" | "0X") if rest.len() > 2 => (&rest[2..], 16),
        Some("0b" | "0B") if rest.len() > 2 => (&rest[2..], 2),
        _ if rest.starts_with('0') => (rest, 8),
        _ => (rest, 10),
    };
    let sound = !digits.is_empty()
        && !digits.starts_with('_')
        && !digits.ends_with('_')
        && !digits.contains("__")
        && digits.chars().all(|digit| digit == '_' || digit.is_digit(base));
    sound.then_some(Digits { negative, digits, base })
}

/// An integer, clamped to `least` and `most`; the second value is whether it was clamped. Decimal, or `0x`,
/// `0b`, `0` for base 16, 2, 8; single `_` between digits. `None` if it is not an integer.
pub fn parse_saturating(text: &str, least: i128, most: i128) -> Option<(i128, bool)> {
    let Digits { negative, digits, base } = digits(text)?;
    if negative && least >= 0 {
        return None;
    }
    let mut value: i128 = 0;
    for digit in digits.chars().filter_map(|digit| digit.to_digit(base)) {
        value = value.saturating_mul(i128::from(base)).saturating_add(i128::from(digit));
    }
    let value = if negative { -value } else { value };
    let bounded = value.clamp(least, most);
    Some((bounded, bounded != value))
}

/// An integer within the bounds of its type.
///
/// # Errors
/// [`ArgError`], with Click's text if it is too large or small.
pub fn parse_int<T: TryFrom<i128>>(text: &str, least: i128, most: i128) -> Result<T, ArgError> {
    let (value, bounded) = parse_saturating(text, least, most).ok_or(ArgError::Number)?;
    if bounded {
        return Err(ArgError::Other(format!("out of range, bound {value}")));
    }
    T::try_from(value).map_err(|_| ArgError::Number)
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        /// A whole number within the bounds of its type.
        impl Arg for $type {
            fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
                parse_int(text, <$type>::MIN as i128, <$type>::MAX as i128)
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 usize i8 i16 i32 i64);

/// A number with a fraction; `1%` is 0.01.
impl Arg for f64 {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        let (number, unit) =
            text.strip_suffix('%').map_or((text, 1.0), |number| (number.trim_ascii_end(), 100.0));
        let value = number.parse::<f64>().map_err(|_| ArgError::Parse)? / unit;
        if value.is_finite() { Ok(value) } else { Err(ArgError::other("out of range")) }
    }
}

/// A fixed-point number with `BITS` bits of fraction, as a whole number of `2^-BITS`; `1%` is 0.01.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed<const BITS: u32>(pub u32);

impl<const BITS: u32> fmt::Display for Fixed<BITS> {
    /// The shortest decimal that is read as this number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = |text: &str| super::unit::decimal(text, 0).map(|value| value.scaled(1 << BITS));
        let exact = f64::from(self.0) / (1u64 << BITS) as f64;
        let texts = (0..=BITS as usize).map(|digits| format!("{exact:.digits$}"));
        let mut fitting = texts.filter(|text| scaled(text) == Some(self.0.into()));
        f.write_str(&fitting.next().unwrap_or_else(|| exact.to_string()))
    }
}

impl<const BITS: u32> Arg for Fixed<BITS> {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        let (number, power) =
            text.strip_suffix('%').map_or((text, 0), |number| (number.trim_ascii_end(), -2));
        let value = super::unit::decimal(number, power).ok_or(ArgError::Parse)?;
        let scaled = value.scaled(1 << BITS);
        match u32::try_from(scaled) {
            Ok(scaled) => Ok(Self(scaled)),
            Err(_) => {
                let bound = f64::from(u32::MAX) / f64::from(1u32 << BITS.min(31));
                Err(ArgError::Other(format!("out of range, bound {bound}")))
            }
        }
    }
}
