use super::quote::unquote_text;
use super::scan::{comment_at, is_space, skip_comment, skip_comments, skip_item};
use alloc::string::String;
use alloc::vec::Vec;

/// Parses the argument at `at`. Returns its text without comments and outer spaces, and the position of the
/// comma or end after it.
fn take_argument(text: &str, at: usize, until_comma: bool) -> (String, usize) {
    let bytes = text.as_bytes();
    let mut at = skip_comments(bytes, at);
    let (mut left, mut right, mut closed) = (at, at, false);
    let mut out = String::new();
    while let Some(&byte) = bytes.get(at) {
        if is_space(byte) {
            at += 1;
        } else if comment_at(bytes, at) {
            at = skip_comment(bytes, at);
            closed = true;
        } else if byte == b',' && until_comma {
            break;
        } else {
            if closed {
                out.push_str(slice(text, left, right));
                out.push(' ');
                left = at;
                closed = false;
            }
            at = skip_item(bytes, at).min(bytes.len());
            right = at;
        }
    }
    out.push_str(slice(text, left, right));
    (out, at)
}

/// A part of `text`. The positions are at ASCII bytes, and so at character boundaries.
pub(super) fn slice(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

/// `text` without outer spaces, and with comments replaced by a space (`cp_uncomment`).
pub fn uncomment(text: &str) -> String {
    take_argument(text, 0, false).0
}

/// Splits a configuration string at unquoted commas (`cp_argvec`); an empty last argument is dropped.
pub fn split_arguments(text: &str) -> Vec<String> {
    arguments(text).collect()
}

/// As [`split_arguments`], as an iterator.
pub fn arguments(text: &str) -> impl Iterator<Item = String> {
    let mut at = 0;
    core::iter::from_fn(move || {
        let (argument, end) = (at < text.len()).then(|| take_argument(text, at, true))?;
        at = end + 1;
        (!argument.is_empty() || end < text.len()).then_some(argument)
    })
}

/// The position of the space, comment or end after the word at `at`.
fn word_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = bytes.get(at) {
        if is_space(byte) || comment_at(bytes, at) {
            return at;
        }
        at = skip_item(bytes, at);
    }
    bytes.len()
}

/// Splits an argument at unquoted spaces (`cp_spacevec`).
pub fn split_words(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut at = skip_comments(bytes, 0);
    while at < bytes.len() {
        let end = word_end(bytes, at);
        words.push(slice(text, at, end).into());
        at = skip_comments(bytes, end);
    }
    words
}

/// The first word of `text` and the rest, without outer spaces and comments (`cp_shift_spacevec`).
pub fn shift_word(text: &str) -> (&str, &str) {
    let bytes = text.as_bytes();
    let start = skip_comments(bytes, 0);
    let end = word_end(bytes, start);
    let rest = skip_comments(bytes, end);
    (slice(text, start, end), slice(text, rest, text.len()))
}

/// Joins arguments with `, ` (`cp_unargvec`); nothing is quoted.
pub fn join_arguments(arguments: &[impl AsRef<str>]) -> String {
    let mut out = String::new();
    for (number, argument) in arguments.iter().enumerate() {
        if number > 0 {
            out.push_str(", ");
        }
        out.push_str(argument.as_ref());
    }
    out
}

/// Whether `text` is a word: printable ASCII without spaces, quotes, backslashes and commas (`cp_is_word`).
pub fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b','))
}

/// Whether `text` is a Click identifier: letters, digits, `_`, `@`, and single inner slashes (`cp_is_click_id`).
pub fn is_identifier(text: &str) -> bool {
    !text.is_empty()
        && text.split('/').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'@'))
        })
}

/// The string up to the first unquoted space, unquoted, and the rest (`cp_string`); `None` if the string is
/// empty.
pub fn parse_string(text: &str) -> Option<(String, &str)> {
    let bytes = text.as_bytes();
    let mut end = 0;
    while bytes.get(end).is_some_and(|&byte| !is_space(byte)) {
        end = skip_item(bytes, end);
    }
    let end = end.min(bytes.len());
    (end > 0).then(|| (unquote_text(slice(text, 0, end)), slice(text, end, text.len())))
}

/// As [`parse_string`], if the unquoted string is a word (`cp_word`).
pub fn parse_word(text: &str) -> Option<(String, &str)> {
    parse_string(text).filter(|(word, _)| is_word(word))
}

/// The keyword at the start of `text`, and the rest without leading spaces (`cp_keyword`).
pub fn parse_keyword(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().position(is_space).unwrap_or(text.len());
    let (keyword, rest) = (slice(text, 0, end), slice(text, end, text.len()));
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'?' | b'!');
    (!keyword.is_empty() && keyword.bytes().all(legal))
        .then(|| (keyword, rest.trim_start_matches(|c: char| u8::try_from(c).is_ok_and(is_space))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        assert_eq!(split_arguments("a, b, c"), ["a", "b", "c"]);
        assert_eq!(split_arguments("  a /*?*/ b,  c, "), ["a b", "c"]);
        assert_eq!(split_arguments("\"x, y\" // ?"), ["\"x, y\""]);
        assert_eq!(split_arguments("a,,b,,"), ["a", "", "b", ""]);
        assert_eq!(split_arguments(" , "), [""]);
        assert_eq!(split_arguments(""), [""; 0]);
        assert_eq!(
            split_arguments("DATA \\< 01, // , >\n 02 >, X 'a\\', b"),
            ["DATA \\< 01, // , >\n 02 >", "X 'a\\'", "b"]
        );
    }

    #[test]
    fn words() {
        assert_eq!(split_words("a  b, c"), ["a", "b,", "c"]);
        assert_eq!(split_words("  'a /*?*/ b'c"), ["'a /*?*/ b'c"]);
        assert_eq!(split_words("a/*x*/b \"\\\" \" c"), ["a", "b", "\"\\\" \"", "c"]);
        assert_eq!(shift_word("  one /* x */ two  "), ("one", "two  "));
        assert_eq!(shift_word(""), ("", ""));
    }

    #[test]
    fn comments() {
        assert_eq!(uncomment("  a   b  "), "a   b");
        assert_eq!(uncomment("  a /* Comment */       b  "), "a b");
        assert_eq!(uncomment("  \" /*???  */ \"  "), "\" /*???  */ \"");
        assert_eq!(uncomment("a // x\r\nb"), "a b");
        assert_eq!(uncomment("/*"), "");
        assert_eq!(uncomment("//"), "");
    }

    #[test]
    fn classes_of_text() {
        assert!(is_word("a:b=c") && !is_word("a,b") && !is_word("") && !is_word("ä"));
        assert!(
            is_identifier("a/b@1") && !is_identifier("a//b") && !is_identifier("/a") && !is_identifier("a/")
        );
        assert_eq!(parse_keyword("STOP? true"), Some(("STOP?", "true")));
        assert_eq!(parse_keyword("'A' b"), None);
        assert_eq!(parse_string("\"a b\"c d"), Some(("a bc".into(), " d")));
        assert_eq!(parse_string(" a"), None);
    }
}
