//! Text that others wrote, made safe to show: on a terminal, in a log, in a drawing.

use std::borrow::Cow;
use std::fmt::Write;

/// A text without characters that act on a terminal or change the order of the text around them: each becomes an
/// escape sequence of Rust's, such as `\n`, `\u{1b}` or `\u{202e}`. A text that was escaped before stays as it is.
///
/// Attack: names and reasons with escape sequences of terminals, line feeds that begin a false line of a log, or marks
/// that reverse the letters after them.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_plain)
}

/// As [`printable`], for a text of several lines: line feeds and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| is_plain(letter) || matches!(letter, '\n' | '\t'))
}

/// As [`printable`], for JSON, which stays the same value: letters become JSON's own escape sequences, such as
/// `\u009b`. Line feeds, which are between values alone, stay.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_plain = |letter| is_plain(letter) || letter == '\n';
    if json.chars().all(is_plain) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        if is_plain(letter) {
            out.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

/// As [`printable`], for the text and the attributes of XML: characters with a meaning there become entities. None that
/// XML forbids is left.
pub fn printable_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in printable(text).chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            letter => out.push(letter),
        }
    }
    out
}

/// Whether a letter only shows itself. `escape_debug` leaves those alone, and so none of the Unicode categories Cc, Cf,
/// Zl, Zp, Co and Cn; of marks that combine with the letter before, it leaves none either.
fn is_plain(letter: char) -> bool {
    matches!(letter, '"' | '\'' | '\\') || letter.escape_debug().len() == 1
}

fn escaped(text: &str, is_plain: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_plain(letter) {
            true => out.push(letter),
            false => out.extend(letter.escape_debug()),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        assert_eq!(printable("\u{1b}]0;title\u{7}\u{1b}[2J"), "\\u{1b}]0;title\\u{7}\\u{1b}[2J");
        assert_eq!(printable("one\r\ntwo\tthree\0"), "one\\r\\ntwo\\tthree\\0");
        assert_eq!(printable("\u{9b}2J\u{7f}"), "\\u{9b}2J\\u{7f}", "a C1 control, and DEL");
        assert_eq!(printable("a\u{2028}b\u{2029}c\u{85}d"), "a\\u{2028}b\\u{2029}c\\u{85}d");
    }

    #[test]
    fn what_changes_the_order_of_letters_or_hides_is_escaped() {
        let marks = "\u{61c}\u{200b}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}";
        let shown = printable(marks);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(shown.matches("\\u{").count(), marks.chars().count());
    }

    #[test]
    fn other_text_stays_as_it_is_also_if_it_was_escaped_before() {
        for text in ["", "port \"x\" isn't up: C:\\path", "Größe 3 µs, 日本語, עברית, 🙂"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
        let once = printable("a\u{1b}\n\\b").into_owned();
        assert_eq!(printable(&once), once);
    }

    #[test]
    fn a_text_has_no_meaning_in_xml() {
        assert_eq!(printable_xml("<a & \"b\" 'c'>\n"), "&lt;a &amp; &quot;b&quot; &apos;c&apos;&gt;\\n");
        assert_eq!(printable_xml("\u{202e}</text><script>"), "\\u{202e}&lt;/text&gt;&lt;script&gt;");
        assert_eq!(printable_xml("\0\u{fffe}\u{ffff}"), "\\0\\u{fffe}\\u{ffff}");
    }

    #[test]
    fn json_stays_the_same_value() {
        let text = "a\u{1b}[2J\u{9b}2J\u{7f}\u{202e}\u{e0041}\u{2028}Größe \"\\\n";
        let json = serde_json::to_string(text).unwrap() + "\n";
        let shown = printable_json(&json);
        assert!(shown.chars().all(|letter| is_plain(letter) || letter == '\n'), "{shown}");
        assert!(shown.contains("\\u009b2J\\u007f\\u202e\\udb40\\udc41\\u2028Größe"), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        assert!(matches!(printable_json("{\"a\":\"ß\"}\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn lines_stay_lines_in_a_text_of_several() {
        assert_eq!(printable_lines("one\n\ttwo\u{1b}[m\r\n"), "one\n\ttwo\\u{1b}[m\\r\n");
    }
}
