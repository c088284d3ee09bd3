//! Quantities of Kubernetes: `500m`, `2`, `1Gi`, `1500M`, `2e3`, `.5`. Computed exactly, and rounded up as Kubernetes
//! does: 0.1 CPU is 100 thousandths, not 101.

use serde_json::Value;

/// Attack: endless numbers. Largest number of digits, and of powers of ten.
const DIGITS: usize = 30;
const POWERS: i32 = 30;

/// A quantity: `digits` times ten to the `tens`, times two to the `twos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quantity {
    digits: u128,
    tens: i32,
    twos: u32,
}

impl Quantity {
    fn read(text: &str) -> Option<Quantity> {
        let text = text.strip_prefix('+').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let (whole, part) = (whole.trim_start_matches('0'), part.trim_end_matches('0'));
        let has_digit = number.contains(|c: char| c.is_ascii_digit());
        if !has_digit || part.contains('.') || whole.len() + part.len() > DIGITS {
            return None;
        }
        let digits = format!("0{whole}{part}").parse().ok()?;
        let (tens, twos) = scale(suffix)?;
        Some(Quantity { digits, tens: tens - part.len() as i32, twos })
    }

    /// The value in units of `1/10^powers`, rounded up; saturates.
    fn parts(self, powers: i32) -> u64 {
        let tens = self.tens + powers;
        let times = |by: i32| 10u128.checked_pow(by.unsigned_abs());
        let whole = self.digits.checked_mul(1 << self.twos);
        let whole = match (whole, tens) {
            (Some(whole), 0..) => times(tens).and_then(|by| whole.checked_mul(by)),
            (Some(whole), _) => Some(whole.div_ceil(times(tens).unwrap_or(u128::MAX))),
            (None, _) => None,
        };
        whole.and_then(|whole| u64::try_from(whole).ok()).unwrap_or(u64::MAX)
    }
}

/// The powers of ten and of two of a suffix.
fn scale(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (-POWERS..=POWERS).contains(&exponent).then_some((exponent, 0))?
        }
    })
}

fn read(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::read(text),
        Value::Number(number) => Quantity::read(&number.to_string()),
        _ => None,
    }
}

/// A quantity in thousandths.
pub fn milli(value: &Value) -> Option<u64> {
    read(value).map(|quantity| quantity.parts(3))
}

/// A quantity in whole units.
pub fn whole(value: &Value) -> Option<u64> {
    read(value).map(|quantity| quantity.parts(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_exact_and_rounded_up() {
        let of = |text: &str| (whole(&json!(text)), milli(&json!(text)));
        assert_eq!(of("0.1"), (Some(1), Some(100)));
        assert_eq!(of("250m"), (Some(1), Some(250)));
        assert_eq!(of("100u"), (Some(1), Some(1)));
        assert_eq!(of(".5"), (Some(1), Some(500)));
        assert_eq!(of("+3."), (Some(3), Some(3000)));
        assert_eq!(of("1.5Gi"), (Some(1_610_612_736), Some(1_610_612_736_000)));
        assert_eq!(of("5e3"), (Some(5000), Some(5_000_000)));
        assert_eq!(of("12e-1"), (Some(2), Some(1200)));
        assert_eq!((of("2E").0, of("1Pi").0), (Some(2_000_000_000_000_000_000), Some(1 << 50)));
        assert_eq!(of("0"), (Some(0), Some(0)));
        assert_eq!(of("123456789012345678901234567890Ei"), (Some(u64::MAX), Some(u64::MAX)));
        assert_eq!((milli(&json!(2)), milli(&json!(0.25))), (Some(2000), Some(250)));
        for wrong in
            ["", "-1", "1x", "1ee3", "e3", "1e31", "1e99999999999", "Gi", "NaN", "1..2", ".", "1.5.2"]
        {
            assert_eq!(whole(&json!(wrong)), None, "{wrong}");
        }
        assert_eq!(whole(&json!("1".repeat(31))), None);
        assert_eq!(whole(&json!(["1"])), None);
    }
}
