//! Durations, sizes, rates and shares in files and on the command line: an unsigned number and a unit, in the spellings
//! of tc(8) too. Case matters only where it has a meaning: see [`bits`].

use crate::names::shown;
use std::ops::RangeInclusive;

/// The units of a quantity, with their factors.
struct Units {
    what: &'static str,
    example: &'static str,
    list: &'static str,
    factors: &'static [(&'static str, u64)],
    /// Further spellings.
    also: &'static [(&'static str, u64)],
}

const DURATION: Units = Units {
    what: "a duration",
    example: "100us",
    list: "ns, us, ms or s",
    factors: &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)],
    also: &[
        ("nsec", 1),
        ("nsecs", 1),
        ("usec", 1_000),
        ("usecs", 1_000),
        ("msec", 1_000_000),
        ("msecs", 1_000_000),
        ("sec", 1_000_000_000),
        ("secs", 1_000_000_000),
    ],
};

const SIZE: Units = Units {
    what: "a size",
    example: "2MB",
    list: "B, KB, MB or GB",
    factors: &[
        ("B", 1),
        ("KB", 1 << 10),
        ("KiB", 1 << 10),
        ("MB", 1 << 20),
        ("MiB", 1 << 20),
        ("GB", 1 << 30),
        ("GiB", 1 << 30),
    ],
    also: &[("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)],
};

const RATE: Units = Units {
    what: "a rate",
    example: "1000pps",
    list: "pps, kpps or Mpps",
    factors: &[("pps", 1), ("kpps", 1_000), ("Mpps", 1_000_000)],
    also: &[],
};

/// An error and its remedy.
pub type Wrong = (String, String);

/// Checks the value of a key, which `show` writes as the user does.
///
/// # Errors
/// The value is out of range.
pub fn within(
    key: &str,
    value: u64,
    range: &RangeInclusive<u64>,
    show: fn(u64) -> String,
) -> Result<(), Wrong> {
    let [least, most] = [*range.start(), *range.end()].map(show);
    let wrong = || (format!("`{key}` is {}", show(value)), format!("use a value from {least} to {most}"));
    range.contains(&value).then_some(()).ok_or_else(wrong)
}

/// Nanoseconds of `100us`, `1.5ms`, `2s`.
pub fn duration(text: &str) -> Result<u64, Wrong> {
    DURATION.read(text)
}

/// Bytes of `64KB`, `256MB`, `1GB`; a KB has 1024 bytes.
pub fn size(text: &str) -> Result<u64, Wrong> {
    SIZE.read(text)
}

/// Frames per second of `500pps`, `10kpps`, `1.5Mpps`.
pub fn rate(text: &str) -> Result<u64, Wrong> {
    RATE.read(text)
}

/// Bits per second: `100Mbit`, `100Mb/s`, `2.5gbit`; `10MBps` or `10MB/s` for bytes, and `10mbps`, which are bytes for
/// tc.
///
/// # Errors
/// `10Mbps`, which are bits for some programs and bytes for tc, is an error that says so.
pub fn bits(text: &str) -> Result<u64, Wrong> {
    const RANGE: RangeInclusive<f64> = 1e3..=1e12;
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let (number, lower) = (number.trim(), unit.to_ascii_lowercase());
    let prefixed = |suffix: &str| match lower.strip_suffix(suffix)? {
        "" => Some(1.0),
        "k" => Some(1e3),
        "m" => Some(1e6),
        "g" => Some(1e9),
        "t" => Some(1e12),
        _ => None,
    };
    let factor = match (prefixed("bit").or(prefixed("bit/s")), prefixed("b/s"), prefixed("bps")) {
        (Some(factor), ..) => factor,
        (_, Some(factor), _) if unit.ends_with("b/s") => factor,
        (_, Some(bytes), _) if unit.ends_with("B/s") => bytes * 8.0,
        (.., Some(bytes)) if unit.ends_with("Bps") || unit == lower => bytes * 8.0,
        (.., Some(_)) if plain(number).is_some() => {
            let prefix = &unit[..unit.len() - "bps".len()];
            let fix = format!(
                "write \"{number}{prefix}bit\" for bits a second, or \"{number}{prefix}Bps\" for bytes"
            );
            return Err((format!("\"{unit}\" are bits for some programs and bytes for tc"), fix));
        }
        _ => 0.0,
    };
    let rate = plain(number).map(|number| number * factor);
    let fix = "write a number and bit, kbit, Mbit or Gbit, such as \"100Mbit\", \
               from \"1kbit\" to \"1000Gbit\"; \
               for bytes kBps, MBps or GBps";
    let rate = rate.filter(|rate| RANGE.contains(rate));
    rate.map(|rate| rate as u64).ok_or_else(|| (format!("{} is not a rate", shown(text)), fix.into()))
}

/// A share: `1%` or `0.01`; up to `100%`.
///
/// # Errors
/// The text is no number, or out of range, or 1 without a unit, which is 1% for tc and would be 100% here.
pub fn share(text: &str) -> Result<f64, Wrong> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let value = plain(number.trim()).map(|value| value / unit);
    let fix = match value {
        Some(1.0) if unit == 1.0 => {
            let what = format!("{} may mean 1%, as for tc, or all", shown(text));
            return Err((what, "write \"1%\" or \"100%\"".into()));
        }
        // `loss = 2` and `loss 2` are percents for some.
        Some(value) if unit == 1.0 && value > 1.0 && value <= 100.0 => {
            format!("write \"{number}%\", or a number below 1")
        }
        _ => "write one from \"0%\" to \"100%\", or a number below 1".into(),
    };
    value.filter(|value| (0.0..=1.0).contains(value)).ok_or((format!("{} is not a share", shown(text)), fix))
}

/// A number without a sign, in decimal digits: not `+1`, `-0` or `inf`.
fn plain(number: &str) -> Option<f64> {
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    number.parse().ok().filter(|_| is_plain)
}

/// The position of a name in `names`, in any case, with `_` or `-`: tc's `fq_codel` is `fq-codel`.
pub fn name(text: &str, names: &[&str]) -> Option<usize> {
    let text = text.replace('_', "-");
    names.iter().position(|name| name.eq_ignore_ascii_case(&text))
}

/// The error for a rate without a unit.
pub fn rate_needs_unit(number: &str) -> Wrong {
    RATE.without(number, RATE.example)
}

/// A rate in the largest unit of which it is a multiple.
pub fn show_rate(rate: u64) -> String {
    RATE.show(rate)
}

/// Bits a second in the largest unit of which they are a multiple, as [`bits`] reads them.
pub fn show_bits(bits: u64) -> String {
    let units = [(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit")];
    let unit = units.into_iter().find(|(unit, _)| bits.is_multiple_of(*unit) && bits > 0);
    let (unit, name) = unit.unwrap_or((1, "bit"));
    format!("{}{name}", bits / unit)
}

/// The error for a duration without a unit; `example` has the unit to suggest.
pub fn duration_needs_unit(number: &str, example: &str) -> Wrong {
    DURATION.without(number, example)
}

/// The error for a size without a unit. Suggests the smallest unit with which the size is in `range`.
pub fn size_needs_unit(number: &str, range: &RangeInclusive<u64>) -> Wrong {
    let fits = |unit: &&&str| size(&format!("{number}{unit}")).is_ok_and(|size| range.contains(&size));
    let unit = ["B", "KB", "MB", "GB"].iter().find(fits);
    SIZE.without(number, unit.unwrap_or(&"MB"))
}

/// A duration in the largest unit of which it is a multiple.
pub fn show_duration(nanoseconds: u64) -> String {
    DURATION.show(nanoseconds)
}

/// A size in the largest unit of which it is a multiple.
pub fn show_size(bytes: u64) -> String {
    SIZE.show(bytes)
}

impl Units {
    fn read(&self, text: &str) -> Result<u64, Wrong> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim_start());
        if number.is_empty()
            || number.matches('.').count() > 1
            || !number.starts_with(|c: char| c.is_ascii_digit())
        {
            let fix = format!("write a number and a unit ({}), such as \"{}\"", self.list, self.example);
            return Err((format!("{} is not {}", shown(text), self.what), fix));
        }
        if unit.is_empty() {
            return Err(self.without(number, self.example));
        }
        let mut all = self.factors.iter().chain(self.also);
        let Some((_, factor)) = all.find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
            let fix = format!("use {}, such as \"{}\"", self.list, self.example);
            return Err((format!("{} is not a unit of {}", shown(unit), self.what), fix));
        };
        scale(number, *factor)
            .ok_or_else(|| (format!("{} is too large", shown(text)), "write a smaller number".into()))
    }

    fn without(&self, number: &str, example: &str) -> Wrong {
        let unit = example.trim_start_matches(|c: char| c.is_ascii_digit());
        (
            format!("{number} has no unit"),
            format!("write \"{number}{unit}\", or with another of {}", self.list),
        )
    }

    fn show(&self, value: u64) -> String {
        let descending = self.factors.iter().rev().filter(|(name, _)| !name.contains('i'));
        let (name, factor) = descending
            .copied()
            .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor))
            .unwrap_or(self.factors[0]);
        format!("{}{name}", value / factor)
    }
}

/// The decimal `number` times `factor`, rounded down; `None` on overflow.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut value = integer.parse::<u64>().ok()?.checked_mul(factor)?;
    let mut part = factor;
    for digit in fraction.chars().filter_map(|c| c.to_digit(10)) {
        value = value.checked_add(u64::from(digit) * (part / 10) + u64::from(digit) * (part % 10) / 10)?;
        part /= 10;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_parsed_exactly() {
        assert_eq!(duration("100us"), Ok(100_000));
        assert_eq!(duration("1.5ms"), Ok(1_500_000));
        assert_eq!(duration("0s"), Ok(0));
        assert_eq!(size("2MB"), Ok(2 << 20));
        assert_eq!(size("0.5 GB"), Ok(512 << 20));
        assert_eq!(size("64KiB"), Ok(65_536));
    }

    #[test]
    fn invalid_units_get_suggestions() {
        assert_eq!(duration("100").unwrap_err().1, "write \"100us\", or with another of ns, us, ms or s");
        assert_eq!(
            size("2mbit").unwrap_err(),
            ("\"mbit\" is not a unit of a size".into(), "use B, KB, MB or GB, such as \"2MB\"".into())
        );
        assert_eq!(duration("soon").unwrap_err().0, "\"soon\" is not a duration");
        assert_eq!(
            size_needs_unit("256", &(16 << 20..=1 << 40)).1,
            "write \"256MB\", or with another of B, KB, MB or GB"
        );
        assert_eq!(
            size_needs_unit("2048", &(64..=32 << 10)).1,
            "write \"2048B\", or with another of B, KB, MB or GB"
        );
        assert!(duration("99999999999s").is_err());
        assert!(duration(".5s").is_err());
        assert!(duration("").is_err());
    }

    #[test]
    fn the_spellings_of_tc_are_accepted() {
        assert_eq!((duration("20msec"), duration("1sec")), (Ok(20_000_000), Ok(1_000_000_000)));
        assert_eq!((size("64kb"), size("2m"), size("1500b")), (Ok(65_536), Ok(2 << 20), Ok(1500)));
        assert_eq!((bits("100mbit"), bits("2.5Gbit")), (Ok(100_000_000), Ok(2_500_000_000)));
        assert_eq!(
            (bits("10mbps"), bits("10MBps"), bits("64KBps")),
            (Ok(80_000_000), Ok(80_000_000), Ok(512_000))
        );
        assert_eq!(
            (bits("100Mb/s"), bits("100mb/s"), bits("1Gbit/s")),
            (Ok(100_000_000), Ok(100_000_000), Ok(1_000_000_000))
        );
        assert_eq!((bits("10MB/s"), bits("10kB/s")), (Ok(80_000_000), Ok(80_000)));
        assert!(bits("10MB/S").is_err());
        assert_eq!((bits("1TBIT"), bits(".5 gbit")), (Ok(1_000_000_000_000), Ok(500_000_000)));
        assert_eq!(name("fq_codel", &["codel", "fq-codel"]), Some(1));
        assert_eq!((share("1%"), share("0.01"), share(" 2.5 %")), (Ok(0.01), Ok(0.01), Ok(0.025)));
    }

    #[test]
    fn click_reads_the_same() {
        let lines = include_str!("units.txt").lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            let [what, text, expected] = *line.split(' ').collect::<Vec<_>>() else { panic!("{line}") };
            let read = match what {
                "duration" => duration(text).map(|value| value as f64),
                "bits" => bits(text).map(|value| value as f64),
                _ => share(text),
            };
            assert_eq!(read, Ok(expected.parse().unwrap()), "{line}");
        }
    }

    #[test]
    fn a_rate_that_may_mean_two_things_is_refused() {
        let (what, fix) = bits("10Mbps").unwrap_err();
        assert_eq!(what, "\"Mbps\" are bits for some programs and bytes for tc");
        assert_eq!(fix, "write \"10Mbit\" for bits a second, or \"10MBps\" for bytes");
        assert!(bits("Mbps").unwrap_err().1.contains("such as \"100Mbit\""));
        for rate in [1_000, 1_001, 1_500_000, 100_000_000, 2_500_000_000, 1_000_000_000_000] {
            assert_eq!(bits(&show_bits(rate)), Ok(rate));
        }
        for wrong in ["", "100", "-1Mbit", "0bit", "2000Gbit", "1xbit", "ms", "nanbit"] {
            assert_eq!(bits(wrong).unwrap_err().0, format!("\"{wrong}\" is not a rate"));
        }
        assert_eq!(share("5").unwrap_err().1, "write \"5%\", or a number below 1");
        for one in ["1", "1.0", " 1"] {
            let what = format!("\"{one}\" may mean 1%, as for tc, or all");
            assert_eq!(share(one), Err((what, "write \"1%\" or \"100%\"".into())));
        }
        assert_eq!((share("100%"), share("0.99"), share("0")), (Ok(1.0), Ok(0.99), Ok(0.0)));
        for wrong in ["101%", "150", "nan", "inf", "-1%", "-0%", "+1%", "1e-3"] {
            let (what, fix) = share(wrong).unwrap_err();
            assert_eq!(what, format!("\"{wrong}\" is not a share"));
            assert_eq!(fix, "write one from \"0%\" to \"100%\", or a number below 1");
        }
        assert_eq!(
            bits("10MBPS").unwrap_err().1,
            "write \"10Mbit\" for bits a second, or \"10MBps\" for bytes"
        );
        assert!(bits("+100Mbit").is_err() && bits("infbit").is_err());
        assert_eq!(duration("\u{1b}[2J\n").unwrap_err().0, "\"\\u{1b}[2J\\n\" is not a duration");
    }

    #[test]
    fn formatted_values_parse_again() {
        for value in [0, 1, 999, 1_000, 100_000, 1_500_000, u64::MAX] {
            assert_eq!(duration(&show_duration(value)), Ok(value));
            assert_eq!(size(&show_size(value)), Ok(value));
        }
    }
}
