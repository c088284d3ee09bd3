//! Formatting of numbers, as by C's `printf`.
use ringway_click::arg::parse_saturating;
use ringway_click::prelude::*;
use ringway_click_lang::config;

/// Maximum field width. Attack: `%999999999d` in a script that a control connection writes.
const WIDEST: usize = 1 << 12;

/// A number with at most this many significant digits (`%.*g`).
pub(super) fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    trim(&format!("{value:.*}", (digits as i32 - 1 - exponent).max(0) as usize))
}

#[derive(Clone, Copy, Default)]
struct Field {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

/// Formats words, of which the first is the format string. `None` if they don't match the format.
pub(super) fn sprintf(parameters: &str) -> Option<String> {
    let (template, mut rest) = config::shift_word(parameters);
    let template = config::unquote_text(template);
    let mut out = String::new();
    let mut chars = template.chars().peekable();
    let mut shift = || {
        let (word, behind) = config::shift_word(rest);
        rest = behind;
        word
    };
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.peek() == Some(&'%') {
            out.push('%');
            chars.next();
            continue;
        }
        let mut field = Field::default();
        while let Some(flag) = chars.next_if(|c| "-0+ #".contains(*c)) {
            match flag {
                '-' => field.left = true,
                '0' => field.zero = true,
                '+' => field.plus = true,
                ' ' => field.space = true,
                _ => field.alternate = true,
            }
        }
        let mut number = |chars: &mut core::iter::Peekable<core::str::Chars<'_>>| -> Option<i128> {
            if chars.next_if_eq(&'*').is_some() {
                return parse_saturating(shift(), -(WIDEST as i128), WIDEST as i128).map(|(value, _)| value);
            }
            let mut value = 0i128;
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                value = (value * 10 + i128::from(digit.to_digit(10)?)).min(1 << 40);
            }
            Some(value)
        };
        let width = number(&mut chars)?;
        field.left |= width < 0;
        field.width = usize::try_from(width.abs()).ok().filter(|width| *width <= WIDEST)?;
        if chars.next_if_eq(&'.').is_some() {
            let precision = usize::try_from(number(&mut chars)?).ok();
            field.precision = Some(precision.filter(|precision| *precision <= WIDEST)?);
        }
        while chars.next_if(|c| "hlLzj".contains(*c)).is_some() {}
        let kind = chars.next()?;
        out.push_str(&convert(kind, shift(), field)?);
        if out.len() > WIDEST * 16 {
            return None;
        }
    }
    Some(out)
}

fn convert(kind: char, word: &str, field: Field) -> Option<String> {
    let whole = |least: i128, most: i128| parse_saturating(word, least, most).map(|(value, _)| value);
    let (sign, prefix, digits) = match kind {
        's' => {
            let mut text = config::unquote_text(word);
            if let Some(precision) = field.precision {
                text = text.chars().take(precision).collect();
            }
            return Some(pad(text, field));
        }
        'c' => {
            let text = parse_saturating(word, 0, 255).map(|(code, _)| char::from(code as u8).to_string());
            return Some(pad(
                text.or_else(|| config::unquote_text(word).chars().next().map(String::from))?,
                field,
            ));
        }
        'e' | 'f' | 'g' | 'E' | 'F' | 'G' => {
            let value: f64 = word.parse().ok()?;
            let precision = field.precision.unwrap_or(6).min(300);
            let text = match kind.to_ascii_lowercase() {
                'f' => format!("{:.precision$}", value.abs()),
                'g' => general(value.abs(), precision.max(1)),
                _ => {
                    let text = format!("{:.precision$e}", value.abs());
                    let (mantissa, exponent) = text.split_once('e')?;
                    let exponent: i32 = exponent.parse().ok()?;
                    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
                }
            };
            (value.is_sign_negative(), "", text)
        }
        'd' | 'i' => {
            let value = whole(i64::MIN.into(), i64::MAX.into())?;
            (value < 0, "", value.unsigned_abs().to_string())
        }
        'o' | 'u' | 'x' | 'X' => {
            let value = whole(i64::MIN.into(), u64::MAX.into())? as u64;
            match kind {
                'o' => (false, if field.alternate { "0" } else { "" }, format!("{value:o}")),
                'x' => (false, if field.alternate { "0x" } else { "" }, format!("{value:x}")),
                'X' => (false, if field.alternate { "0X" } else { "" }, format!("{value:X}")),
                _ => (false, "", value.to_string()),
            }
        }
        _ => return None,
    };
    let least = if "diouxX".contains(kind) { field.precision.unwrap_or(1) } else { 0 };
    let sign = match (sign, field.plus, field.space) {
        (true, ..) => "-",
        (_, true, _) => "+",
        (.., true) => " ",
        _ => "",
    };
    let zeros = least.saturating_sub(digits.len());
    let body = format!("{}{digits}", "0".repeat(zeros));
    let used = sign.len() + prefix.len() + body.len();
    if field.zero && !field.left && field.width > used {
        return Some(format!("{sign}{prefix}{}{body}", "0".repeat(field.width - used)));
    }
    Some(pad(format!("{sign}{prefix}{body}"), field))
}

fn pad(text: String, field: Field) -> String {
    let spaces = " ".repeat(field.width.saturating_sub(text.chars().count()));
    if field.left { text + &spaces } else { spaces + &text }
}
