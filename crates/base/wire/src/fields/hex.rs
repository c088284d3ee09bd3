//! The frame of hexadecimal digits.

use super::{FieldsError, LARGEST};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;

/// What may be between bytes.
const SEPARATORS: [char; 4] = [':', '-', '.', '_'];

/// Bytes in hexadecimal, as [`super::Described::read`] reads them.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads a frame in hexadecimal: pairs of digits, which may be joined or separated. A line may begin with its offset,
/// as in the output of `tcpdump -xx`: `0x0010:`.
pub(super) fn frame(text: &str) -> Result<Vec<u8>, FieldsError> {
    let mut frame = Vec::new();
    let mut high: Option<(u8, usize)> = None;
    let mut column = 0;
    for line in text.split('\n') {
        let offset = offset(line);
        for (at, letter) in line.chars().enumerate() {
            let column = column + at + 1;
            if at < offset || letter.is_whitespace() || SEPARATORS.contains(&letter) {
                continue;
            }
            let Some(digit) = letter.to_digit(16).and_then(|digit| u8::try_from(digit).ok()) else {
                let what = format!("`{}` is no hexadecimal digit", letter.escape_debug());
                return Err(FieldsError { column, what });
            };
            match high.take() {
                Some((high, _)) => frame.push(high << 4 | digit),
                None => high = Some((digit, column)),
            }
            // Attack: digits without end.
            if frame.len() as u128 > LARGEST {
                let what = format!("the frame has more than {LARGEST} bytes");
                return Err(FieldsError { column, what });
            }
        }
        column += line.chars().count() + 1;
    }
    match high {
        Some((_, column)) => {
            Err(FieldsError { column, what: "the last byte has one digit; a byte has two".to_string() })
        }
        None => Ok(frame),
    }
}

/// Number of characters of an offset at the beginning of a line.
fn offset(line: &str) -> usize {
    let begin = line.trim_start();
    let Some((digits, rest)) = begin.strip_prefix("0x").or_else(|| begin.strip_prefix("0X")).map(|digits| {
        let count = digits.chars().take_while(char::is_ascii_hexdigit).count();
        (count, digits.get(count..).unwrap_or_default())
    }) else {
        return 0;
    };
    let skipped = line.chars().count() - begin.chars().count();
    // A number without a colon is the frame itself.
    skipped + 2 + if rest.starts_with(':') { digits + 1 } else { 0 }
}
