/// Parses an integer in Click's syntax: an optional sign, then decimal, `0x`, `0b`, or octal with a leading
/// 0; `_` is permitted between digits.
pub fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let prefixed = |prefixes: [&str; 2]| prefixes.iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (radix, digits) = match (prefixed(["0x", "0X"]), prefixed(["0b", "0B"])) {
        (Some(digits), _) => (16, digits),
        (_, Some(digits)) => (2, digits),
        _ if digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    if digits.is_empty() || digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    let mut value = 0i64;
    for digit in digits.chars().filter(|&c| c != '_') {
        value = value.checked_mul(radix.into())?.checked_add(digit.to_digit(radix)?.into())?;
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::integer;

    #[test]
    fn forms() {
        let forms = ["0", "12", "0x1F", "017", "0b101", "-3", "1_000"];
        assert_eq!(forms.map(|text| integer(text).unwrap()), [0, 12, 31, 15, 5, -3, 1000]);
        for bad in ["", "08", "0x", "1a", "_1", "1__0", "99999999999999999999", "-"] {
            assert_eq!(integer(bad), None, "{bad}");
        }
    }
}
