//! Functions of scripts: handlers that depend on nothing but their parameters.
use super::format;
use ringway_click::arg::{parse_bool, parse_saturating};
use ringway_click::prelude::*;
use ringway_click_lang::config;

/// Names of the functions.
pub(super) const NAMES: &[&str] = &[
    "abs", "add", "and", "div", "eq", "first", "ge", "gt", "htonl", "htons", "idiv", "if", "in", "le",
    "length", "lt", "max", "min", "mod", "mul", "nand", "ne", "neg", "nor", "not", "ntohl", "ntohs", "or",
    "rem", "sprintf", "sub", "unquote",
];

/// A number of scripts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Whole(i64),
    Real(f64),
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        if let Some((value, false)) = parse_saturating(text, i64::MIN.into(), i64::MAX.into()) {
            return Some(Self::Whole(value as i64));
        }
        let sound = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        text.parse().ok().filter(|_| sound).map(Self::Real)
    }

    fn real(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Real(real) => real,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Whole(whole) => whole.to_string(),
            Self::Real(real) => format::general(real, 12),
        }
    }
}

type Answer = Result<String, HandlerError>;

fn wrong(text: &str) -> HandlerError {
    HandlerError::failed(text)
}

/// Calls a function.
pub(super) fn call(name: &str, parameters: &str) -> Answer {
    match name {
        "add" | "sub" | "min" | "max" | "mul" | "div" | "idiv" => fold(name, parameters),
        "mod" | "rem" => remainder(name, parameters),
        "neg" | "abs" => one(name, parameters),
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" => compare(name, parameters),
        "and" | "or" | "nand" | "nor" => junction(name, parameters),
        "htons" | "htonl" | "ntohs" | "ntohl" => network_order(name, parameters),
        "not" => boolean(parameters).map(|value| (!value).to_string()),
        "if" => {
            let (condition, rest) = config::shift_word(parameters);
            let (yes, no) = config::shift_word(rest);
            Ok(if boolean(condition)? { yes } else { no.trim_end() }.to_string())
        }
        "in" => {
            let (wanted, rest) = config::shift_word(parameters);
            let wanted = config::unquote(wanted);
            Ok(config::split_words(rest).iter().any(|word| config::unquote(word) == wanted).to_string())
        }
        "first" => Ok(config::shift_word(parameters).0.to_string()),
        "length" => Ok(parameters.len().to_string()),
        "unquote" => Ok(config::unquote_text(parameters)),
        "sprintf" => format::sprintf(parameters).ok_or_else(|| wrong("syntax error")),
        _ => Err(HandlerError::missing(name)),
    }
}

fn boolean(text: &str) -> Result<bool, HandlerError> {
    parse_bool(text.trim()).ok_or_else(|| wrong("syntax error"))
}

fn fold(name: &str, parameters: &str) -> Answer {
    let words = config::split_words(parameters);
    let mut numbers = words.iter().map(|word| Number::parse(word));
    let list = || wrong("expected list of numbers");
    let Some(first) = numbers.next() else {
        return match name {
            "add" | "sub" => Ok("0".into()),
            "mul" | "div" | "idiv" => Ok("1".into()),
            _ => Err(list()),
        };
    };
    let mut sum = first.ok_or_else(list)?;
    if matches!(name, "div" | "idiv") {
        sum = Number::Real(sum.real());
    }
    for number in numbers {
        sum = join(name, sum, number.ok_or_else(list)?);
    }
    if name == "idiv" {
        // Saturates.
        sum = Number::Whole(sum.real() as i64);
    }
    Ok(sum.text())
}

fn join(name: &str, left: Number, right: Number) -> Number {
    if let (Number::Whole(left), Number::Whole(right)) = (left, right) {
        return Number::Whole(match name {
            "add" => left.wrapping_add(right),
            "sub" => left.wrapping_sub(right),
            "min" => left.min(right),
            "max" => left.max(right),
            _ => left.wrapping_mul(right),
        });
    }
    let (left, right) = (left.real(), right.real());
    Number::Real(match name {
        "add" => left + right,
        "sub" => left - right,
        "min" => left.min(right),
        "max" => left.max(right),
        "mul" => left * right,
        _ => left / right,
    })
}

fn two(parameters: &str) -> Option<(&str, &str)> {
    let (first, rest) = config::shift_word(parameters);
    let (second, rest) = config::shift_word(rest);
    (!second.is_empty() && rest.is_empty()).then_some((first, second))
}

fn remainder(name: &str, parameters: &str) -> Answer {
    let error = || wrong("expected two numbers");
    let (left, right) = two(parameters).ok_or_else(error)?;
    match (Number::parse(left), Number::parse(right)) {
        (Some(Number::Whole(left)), Some(Number::Whole(right))) => {
            left.checked_rem(right).map(|rest| rest.to_string()).ok_or_else(error)
        }
        (Some(left), Some(right)) if name == "rem" && right.real() != 0.0 => {
            Ok(Number::Real(left.real() % right.real()).text())
        }
        _ => Err(error()),
    }
}

fn one(name: &str, parameters: &str) -> Answer {
    let number = Number::parse(parameters.trim()).ok_or_else(|| wrong("expected one number"))?;
    Ok(match number {
        Number::Whole(whole) if name == "neg" || whole < 0 => Number::Whole(whole.wrapping_neg()),
        Number::Real(real) if name == "neg" || real < 0.0 => Number::Real(-real),
        number => number,
    }
    .text())
}

fn compare(name: &str, parameters: &str) -> Answer {
    let (left, right) = two(parameters).ok_or_else(|| wrong("expected two numbers"))?;
    let order = match (Number::parse(left), Number::parse(right)) {
        (Some(Number::Whole(left)), Some(Number::Whole(right))) => Some(left.cmp(&right)),
        (Some(left), Some(right)) => left.real().partial_cmp(&right.real()),
        _ => Some(config::unquote(left).cmp(&config::unquote(right))),
    };
    let Some(order) = order else { return Ok("false".into()) };
    let holds = match name {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    };
    Ok(holds.to_string())
}

fn junction(name: &str, parameters: &str) -> Answer {
    let zero = matches!(name, "and" | "nand");
    let mut value = zero;
    for word in config::split_words(parameters) {
        let word = boolean(&word)?;
        value = if zero { value && word } else { value || word };
    }
    Ok((value != name.starts_with('n')).to_string())
}

fn network_order(name: &str, parameters: &str) -> Answer {
    let short = name.ends_with('s');
    let most = if short { u16::MAX.into() } else { u32::MAX.into() };
    match parse_saturating(parameters.trim(), 0, most) {
        Some((value, false)) if short => Ok((value as u16).to_be().to_string()),
        Some((value, false)) => Ok((value as u32).to_be().to_string()),
        _ => Err(wrong("syntax error")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        let cases = [
            ("add", "1 2 3", "6"),
            ("sub", "10 2 2", "6"),
            ("min", "10 6 20", "6"),
            ("div", "75 2.5 5", "6"),
            ("div", "1 3", "0.333333333333"),
            ("idiv", "60 2 5", "6"),
            ("mod", "7 3", "1"),
            ("rem", "7.5 2", "1.5"),
            ("eq", "10 0xA", "true"),
            ("le", "9 8", "false"),
            ("eq", "10x 10x", "true"),
            ("nand", "true false", "true"),
            ("nor", "false", "true"),
            ("if", "true a b", "a"),
            ("in", "foo bar foo", "true"),
            ("length", "abcdef", "6"),
            ("sprintf", "\"%05x|%-3s|%3d\" 127 ab 7", "0007f|ab |  7"),
            ("neg", "-4", "4"),
            ("htons", "1", "256"),
        ];
        for (name, parameters, expected) in cases {
            let expected = if cfg!(target_endian = "big") && name == "htons" { "1" } else { expected };
            assert_eq!(call(name, parameters).as_deref(), Ok(expected), "{name} {parameters}");
        }
    }

    #[test]
    fn nothing_panics() {
        for name in NAMES {
            for parameters in
                ["", "x", "1", "1 0", "-9223372036854775808 -1", "\"%999999999d\" 1", "a b c d", "\"%\""]
            {
                let _ = call(name, parameters);
            }
        }
        assert!(call("mod", "1 0").is_err());
    }
}
