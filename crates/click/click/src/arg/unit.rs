//! Numbers with units: seconds and bandwidths; and annotations, which are named numbers.
use super::{Arg, ArgError, NameKind, Scope};
use crate::{Annotations, SECOND};
use alloc::format;
use alloc::string::String;

/// A decimal number: `value * 10^-digits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    value: u128,
    digits: u32,
}

/// Further digits after the decimal point are ignored.
const DIGITS: u32 = 20;
/// More digits at all are out of range for everything that is measured here.
const LARGEST: u128 = 1 << 90;

impl Decimal {
    /// The number times `factor`, rounded to the nearest.
    pub(super) fn scaled(self, factor: u128) -> u128 {
        let divisor = 10u128.pow(self.digits);
        (self.value.saturating_mul(factor).saturating_add(divisor / 2)) / divisor
    }
}

/// Reads a number that is not negative, with or without fraction and exponent, times `10^power`.
pub(super) fn decimal(text: &str, power: i32) -> Option<Decimal> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?.clamp(-100, 100)),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0u128;
    let mut digits = -(exponent + power);
    for (digit, behind) in whole.chars().map(|c| (c, false)).chain(fraction.chars().map(|c| (c, true))) {
        if digit == '_' {
            continue;
        }
        let digit = u128::from(digit.to_digit(10)?);
        if value < LARGEST && digits < DIGITS as i32 {
            value = value * 10 + digit;
            digits += i32::from(behind);
        } else if !behind {
            digits -= 1;
        }
    }
    while digits < 0 && value < LARGEST {
        value *= 10;
        digits += 1;
    }
    while digits > DIGITS as i32 {
        value /= 10;
        digits -= 1;
    }
    Some(Decimal { value, digits: digits.max(0) as u32 })
}

/// A unit, with its power of ten or its factor.
struct Unit {
    suffix: &'static str,
    factor: u128,
    power: i32,
}

const fn unit(suffix: &'static str, factor: u128, power: i32) -> Unit {
    Unit { suffix, factor, power }
}

/// Click's, and plurals as in tc(8).
const TIMES: &[Unit] = &[
    unit("msecs", 1, -3),
    unit("usecs", 1, -6),
    unit("nsecs", 1, -9),
    unit("secs", 1, 0),
    unit("msec", 1, -3),
    unit("usec", 1, -6),
    unit("nsec", 1, -9),
    unit("sec", 1, 0),
    unit("ms", 1, -3),
    unit("us", 1, -6),
    unit("ns", 1, -9),
    unit("s", 1, 0),
    unit("min", 60, 0),
    unit("m", 60, 0),
    unit("hr", 3600, 0),
    unit("h", 3600, 0),
    unit("day", 86400, 0),
    unit("d", 86400, 0),
];

/// Prefixes of bandwidths.
const PREFIXES: &[(&str, i32)] = &[("k", 3), ("K", 3), ("M", 6), ("G", 9)];

fn split_time(text: &str) -> (&str, &Unit) {
    const PLAIN: &Unit = &unit("", 1, 0);
    let found = TIMES.iter().find_map(|unit| Some((text.strip_suffix(unit.suffix)?, unit)));
    found.map_or((text, PLAIN), |(number, unit)| (number.trim_ascii_end(), unit))
}

/// A duration in nanoseconds: a number with a unit of time, seconds if none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nanoseconds(pub u64);

impl Arg for Nanoseconds {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        let (number, unit) = split_time(text);
        let value = decimal(number, unit.power).ok_or(ArgError::Parse)?;
        let nanoseconds = value.scaled(unit.factor * u128::from(SECOND));
        u64::try_from(nanoseconds).map(Self).map_err(|_| ArgError::other("out of range"))
    }
}

/// A duration in whole seconds; the number may have a unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seconds(pub u32);

impl Arg for Seconds {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        let (number, unit) = split_time(text);
        let value = decimal(number, unit.power).ok_or(ArgError::Parse)?;
        u32::try_from(value.scaled(unit.factor)).map(Self).map_err(|_| ArgError::other("out of range"))
    }
}

/// A bandwidth in bytes a second: a number with `Bps`, `B/s`, `bps`, `b/s` or `baud` and a prefix; bytes if none. Also
/// a number with `bit`, as in tc(8), or `bit/s`, and a prefix in any case; tc's `kbps` are bytes there, but bits here,
/// as in Click.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth(pub u32);

impl Bandwidth {
    /// As Click prints it: in bits, with a suitable unit.
    pub fn unparse(self) -> String {
        let (value, unit) = match self.0 {
            0x2000_0000.. => (f64::from(self.0) / 1e6, "MBps"),
            125_000_000.. => (f64::from(self.0) * 8.0 / 1e9, "Gbps"),
            125_000.. => (f64::from(self.0) * 8.0 / 1e6, "Mbps"),
            _ => (f64::from(self.0) * 8.0 / 1e3, "kbps"),
        };
        format!("{value}{unit}")
    }
}

/// Splits off `bit` or `bit/s` and its prefix, with its power of ten.
fn split_bits(text: &str) -> Option<(&str, i32)> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    let (text, suffix) = text.split_at_checked(text.len().checked_sub(3)?)?;
    if !suffix.eq_ignore_ascii_case("bit") {
        return None;
    }
    let prefixes = [(['k', 'K'], 3), (['m', 'M'], 6), (['g', 'G'], 9), (['t', 'T'], 12)];
    let found = prefixes.iter().find_map(|(prefix, power)| Some((text.strip_suffix(*prefix)?, *power)));
    Some(found.unwrap_or((text, 0)))
}

impl Arg for Bandwidth {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        if let Some((number, power)) = split_bits(text) {
            let value = decimal(number.trim_ascii_end(), power).ok_or(ArgError::Parse)?;
            let bytes = u32::try_from(value.scaled(125) / 1000);
            return bytes.map(Self).map_err(|_| ArgError::other("out of range"));
        }
        let units = [("baud", true), ("bps", true), ("b/s", true), ("Bps", false), ("B/s", false)];
        let found = units.iter().find_map(|(suffix, bits)| Some((text.strip_suffix(suffix)?, *bits)));
        let (number, bits) = found.unwrap_or((text, false));
        let prefix = PREFIXES.iter().find_map(|(prefix, power)| Some((number.strip_suffix(prefix)?, *power)));
        let (number, power) = if found.is_some() { prefix.unwrap_or((number, 0)) } else { (number, 0) };
        let value = decimal(number.trim_ascii_end(), power).ok_or(ArgError::Parse)?;
        let bytes = if bits { value.scaled(125) / 1000 } else { value.scaled(1) };
        u32::try_from(bytes).map(Self).map_err(|_| ArgError::other("out of range"))
    }
}

/// Names of annotations, with offset and size.
const ANNOTATIONS: &[(&str, usize, usize)] = &[
    ("DST_IP", Annotations::DST_IP, 4),
    ("DST_IP6", Annotations::DST_IP6, 16),
    ("PAINT", Annotations::PAINT, 1),
    ("ICMP_PARAMPROB", Annotations::ICMP_PARAMPROB, 1),
    ("FIX_IP_SRC", Annotations::FIX_IP_SRC, 1),
    ("VLAN_TCI", Annotations::VLAN_TCI, 2),
    ("AGGREGATE", Annotations::AGGREGATE, 4),
    ("FWD_RATE", Annotations::FWD_RATE, 4),
    ("MISC_IP", Annotations::MISC_IP, 4),
    ("EXTRA_PACKETS", Annotations::EXTRA_PACKETS, 4),
    ("REV_RATE", Annotations::REV_RATE, 4),
    ("EXTRA_LENGTH", Annotations::EXTRA_LENGTH, 4),
    ("IPREASSEMBLER", Annotations::IPREASSEMBLER, 4),
    ("FIRST_TIMESTAMP", Annotations::FIRST_TIMESTAMP, 8),
    ("PACKET_NUMBER", Annotations::PACKET_NUMBER, 4),
    ("IPSEC_SPI", Annotations::IPSEC_SPI, 4),
    ("SEQUENCE_NUMBER", Annotations::SEQUENCE_NUMBER, 4),
    ("PERFCTR", Annotations::PERFCTR, 8),
];

/// An annotation: a name, an offset, or an offset and a size as `16/1` or `16:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    /// Offset in the annotation area.
    pub offset: usize,
    /// Size in bytes; 0 if not given.
    pub size: usize,
}

impl Annotation {
    /// Parses a value of `size` bytes.
    ///
    /// # Errors
    /// [`ArgError::Parse`] if its size differs or it does not fit.
    pub fn of_size(text: &str, size: usize, scope: &Scope) -> Result<Self, ArgError> {
        let found = Self::parse(text, scope)?;
        let size = if found.size == 0 { size } else { found.size };
        let whole = matches!(size, 1 | 2 | 4 | 8) && found.offset % size == 0 || size == 16;
        let fits = size > 0 && found.offset + size <= crate::element::ANNOTATION_BYTES;
        if fits && whole && (found.size == 0 || found.size == size) {
            return Ok(Self { offset: found.offset, size });
        }
        Err(ArgError::Parse)
    }
}

impl Arg for Annotation {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        if let Some((_, offset, size)) = ANNOTATIONS.iter().find(|(name, ..)| *name == text) {
            return Ok(Self { offset: *offset, size: *size });
        }
        if let Some(value) = scope.names().value(NameKind::Annotation, text, scope.element_name())
            && let [offset, size] = value[..]
        {
            return Ok(Self { offset: offset.into(), size: size.into() });
        }
        let (offset, size) = text.split_once(['/', ':']).unwrap_or((text, "0"));
        let offset = usize::parse(offset, scope).map_err(|_| ArgError::Parse)?;
        let size = usize::parse(size, scope).map_err(|_| ArgError::Parse)?;
        if offset + size > crate::element::ANNOTATION_BYTES {
            return Err(ArgError::Parse);
        }
        Ok(Self { offset, size })
    }
}
