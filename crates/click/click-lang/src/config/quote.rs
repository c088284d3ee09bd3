use super::scan::{comment_at, skip_comment};
use super::split::uncomment;
use alloc::string::String;
use alloc::vec::Vec;

/// Removes comments and one level of quoting (`cp_unquote`). Returns bytes, since escapes can produce any.
pub fn unquote(text: &str) -> Vec<u8> {
    let text = uncomment(text);
    let text = text.as_bytes();
    let mut out = Vec::with_capacity(text.len());
    let mut open = None;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' | b'\'' if open.is_none() => open = Some(byte),
            b'"' | b'\'' if open == Some(byte) => open = None,
            b'\\'
                if at + 1 < text.len()
                    && (open == Some(b'"') || (open.is_none() && text[at + 1] == b'<')) =>
            {
                at = escape(text, at, &mut out);
                continue;
            }
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

/// As [`unquote`], converted to text; invalid UTF-8 is replaced.
pub fn unquote_text(text: &str) -> String {
    match String::from_utf8(unquote(text)) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}

/// Appends the expansion of the escape at `at`; returns the position after it (`cp_process_backslash`).
fn escape(text: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let Some(&letter) = text.get(at + 1) else {
        out.push(b'\\');
        return text.len();
    };
    match letter {
        b'\r' if text.get(at + 2) == Some(&b'\n') => return at + 3,
        b'\r' | b'\n' => {}
        b'a' => out.push(0x07),
        b'b' => out.push(0x08),
        b'f' => out.push(0x0c),
        b'n' => out.push(b'\n'),
        b'r' => out.push(b'\r'),
        b't' => out.push(b'\t'),
        b'v' => out.push(0x0b),
        b'0'..=b'7' => {
            let digits = text[at + 1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7'));
            let (count, value) =
                digits.fold((0, 0u32), |(n, value), &digit| (n + 1, value * 8 + u32::from(digit - b'0')));
            out.push(value as u8);
            return at + 1 + count;
        }
        b'x' => {
            let digits = text[at + 2..].iter().map_while(|&byte| hexadecimal(byte));
            let (count, value) = digits.fold((0, 0u8), |(n, value), digit| (n + 1, value << 4 | digit));
            out.push(value);
            return at + 2 + count;
        }
        b'<' => return escape_hexadecimal(text, at + 2, out),
        other => out.push(other),
    }
    at + 2
}

/// Expands the `48 65>` of `\<48 65>`: pairs of hexadecimal digits. All other text is skipped.
fn escape_hexadecimal(text: &[u8], mut at: usize, out: &mut Vec<u8>) -> usize {
    let mut first = None;
    while let Some(&byte) = text.get(at) {
        if byte == b'>' {
            return at + 1;
        }
        if comment_at(text, at) {
            at = skip_comment(text, at);
            continue;
        }
        if let Some(digit) = hexadecimal(byte) {
            first = match first {
                None => Some(digit),
                Some(high) => {
                    out.push(high << 4 | digit);
                    None
                }
            };
        }
        at += 1;
    }
    text.len()
}

fn hexadecimal(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Quotes `bytes` as a double-quoted string, the reverse of [`unquote`]; newlines become `\n` (`cp_quote`).
pub fn quote(bytes: &[u8]) -> String {
    quoted(bytes, false)
}

/// As [`quote`], keeping newlines.
pub fn quote_lines(bytes: &[u8]) -> String {
    quoted(bytes, true)
}

fn quoted(bytes: &[u8], keep_newlines: bool) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' | b'$' => out.extend(['\\', char::from(byte)]),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b'\n' if keep_newlines => out.push('\n'),
            b'\n' => out.push_str("\\n"),
            32..127 => out.push(char::from(byte)),
            _ => out.extend(['\\', octal(byte >> 6), octal(byte >> 3 & 7), octal(byte & 7)]),
        }
    }
    out.push('"');
    out
}

fn octal(digit: u8) -> char {
    char::from(b'0' + digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquoting() {
        assert_eq!(unquote("\"\\n\" abc /* 123 */ '/* def */'"), b"\n abc /* def */");
        assert_eq!(unquote("\\<48 65 // x\n 6c6C 6f 2 /* end */ 1>"), b"Hello!");
        assert_eq!(unquote("\"\\x41\\101\\0\\q\\\n\""), b"AA\0q");
        assert_eq!(unquote("a\\nb"), b"a\\nb");
        assert_eq!(unquote("'a\\<41>'"), b"a\\<41>");
        assert_eq!(unquote("\"\\377\\400\""), [0xff, 0]);
        assert_eq!(unquote("\"abc"), b"abc");
    }

    #[test]
    fn quoting_round_trips() {
        assert_eq!(quote(b""), "\"\"");
        assert_eq!(quote(b"a\"$\\\t\n\x01\xff"), "\"a\\\"\\$\\\\\\t\\n\\001\\377\"");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unquote(&quote(&all)), all);
        assert_eq!(quote_lines(b"a\nb"), "\"a\nb\"");
    }
}
