//! The words of an expression.

use super::FilterError;
use crate::MacAddress;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv6Addr;

/// A word or a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Number(u32),
    /// One to four decimal numbers, and how many there are.
    Dotted([u8; 4], usize),
    Ipv6(Ipv6Addr),
    Mac(MacAddress),
    Symbol(&'static str),
}

/// A token, and its column.
#[derive(Clone, Debug)]
pub(super) struct Located {
    pub(super) token: Token,
    pub(super) column: usize,
}

/// Symbols; a longer one precedes those that it begins with.
const SYMBOLS: [&str; 26] = [
    "&&", "||", "!=", "==", "<=", ">=", "<<", ">>", "(", ")", "[", "]", "!", "=", "<", ">", "&", "|", "+",
    "-", "*", "/", "%", "^", ":", ",",
];

/// All tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Located>, FilterError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        let len = if first.is_whitespace() {
            first.len_utf8()
        } else {
            let (token, len) = next(rest, column)?;
            tokens.push(Located { token, column });
            len
        };
        column += rest[..len].chars().count();
        rest = &rest[len..];
    }
    Ok(tokens)
}

/// Length of the leading part whose characters are accepted.
fn run(text: &str, accepts: impl Fn(char) -> bool) -> usize {
    text.find(|next| !accepts(next)).unwrap_or(text.len())
}

/// The first token, and its length in bytes.
fn next(text: &str, column: usize) -> Result<(Token, usize), FilterError> {
    let wrong = |what: String| FilterError { column, what };
    let hex = run(text, |next| next.is_ascii_hexdigit() || matches!(next, ':' | '.'));
    let candidate = &text[..hex];
    if candidate.matches(':').count() >= 2 {
        return address(candidate).map(|token| (token, hex)).ok_or_else(|| {
            wrong(format!(
                "`{candidate}` is neither a MAC address such as 02:00:00:00:00:01 nor an IPv6 address"
            ))
        });
    }
    let len = run(text, |next| next.is_ascii_alphanumeric() || matches!(next, '.' | '_'));
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let word = &text[..len];
        let what = || wrong(format!("`{word}` is no number and no IPv4 address"));
        return number(word).map(|token| (token, len)).ok_or_else(what);
    }
    let escape = usize::from(text.starts_with('\\'));
    let len = run(&text[escape..], |next| next.is_ascii_alphanumeric() || matches!(next, '.' | '_' | '-'));
    if text[escape..].starts_with(|first: char| first.is_ascii_alphabetic()) {
        return Ok((Token::Word(text[escape..escape + len].to_string()), escape + len));
    }
    if let Some(symbol) = SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)) {
        return Ok((Token::Symbol(symbol), symbol.len()));
    }
    let first: String = text.chars().take(1).flat_map(char::escape_debug).collect();
    Err(wrong(format!("`{first}` has no meaning here")))
}

fn address(text: &str) -> Option<Token> {
    if let Ok(address) = text.parse() {
        return Some(Token::Ipv6(address));
    }
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| matches!(part.len(), 1 | 2))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then(|| Token::Mac(MacAddress::from(bytes)))
}

fn number(word: &str) -> Option<Token> {
    if let Some(digits) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return u32::from_str_radix(digits, 16).ok().map(Token::Number);
    }
    if word.contains('.') {
        let mut bytes = [0; 4];
        let mut count = 0;
        for part in word.split('.') {
            *bytes.get_mut(count)? = part.parse().ok()?;
            count += 1;
        }
        return Some(Token::Dotted(bytes, count));
    }
    let (digits, radix) = if word.len() > 1 && word.starts_with('0') { (&word[1..], 8) } else { (word, 10) };
    u32::from_str_radix(digits, radix).ok().map(Token::Number)
}
