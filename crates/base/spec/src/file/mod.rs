//! Reads TOML files key by key and reports all errors of a file at once, each with its position.
//!
//! [`parse`] reads a file's text, [`Section`] a table; both collect [`Problem`]s in [`Diagnostics`]. Used for the
//! fabric file, policies and inventories.

mod key;
mod problem;
mod section;
pub mod units;

pub use key::{Key, Value};
pub use problem::{Problem, Problems, nearest};
pub use section::{Diagnostics, Section, either, keys_of, typed_keys_of};

use std::ops::Range;
use toml::Spanned;
use toml::de::DeTable;

/// Another language in which a file that is not TOML seems to be written, and where it begins.
fn other_language(text: &str) -> Option<(Range<usize>, &'static str)> {
    let rest = text.trim_start_matches('\u{feff}').trim_start();
    let start = text.len() - rest.len();
    let at = start..start + rest.lines().next().unwrap_or_default().len();
    let is_list = |rest: &str| serde_json::from_str::<serde::de::IgnoredAny>(rest).is_ok();
    if rest.starts_with('{') || rest.starts_with('[') && is_list(rest) {
        return Some((at, "JSON"));
    }
    // The first line with content is `---` or `key:`.
    let first = rest.lines().map(str::trim_end).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let is_key = |key: &str| {
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let key = first.split_once(": ").map(|(key, _)| key).or(first.strip_suffix(':'));
    if first == "---" || key.is_some_and(is_key) {
        return Some((at, "YAML"));
    }
    match rest.as_bytes() {
        [b'<', ..] => Some((at, "XML")),
        [0x7f, b'E', b'L', b'F', ..] => Some((at, "a program")),
        _ => None,
    }
}

/// Parses a file's text: notes all syntax errors and returns what could be parsed.
///
/// Attack: a huge file sent at run time. A text of more than `largest` bytes is not parsed.
pub fn parse<'t>(text: &'t str, largest: usize, diagnostics: &Diagnostics) -> Spanned<DeTable<'t>> {
    if text.len() > largest {
        diagnostics.error(
            &(0..0),
            format!("the file has {} bytes", text.len()),
            format!("the limit is {largest}"),
        );
        return DeTable::parse_recoverable("").0;
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    if let Some((at, what)) = other_language(text).filter(|_| !errors.is_empty()) {
        // Its errors as TOML would help nobody.
        let fix = "write tables and keys, such as [port.a] and kind = \"ring\"; names of keys are the same";
        diagnostics.error(&at, format!("this is {what}; the file is read as TOML"), fix);
        return DeTable::parse_recoverable("").0;
    }
    for error in &errors {
        let at = error.span().unwrap_or(0..0);
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        match text.get(at.clone()).filter(|_| what == "duplicate key") {
            Some(key) => {
                diagnostics.error(
                    &at,
                    format!("`{}` is defined twice", key.trim()),
                    "keep one, or rename one",
                );
            }
            None => diagnostics.error(&at, what, ""),
        }
    }
    table
}

/// The value that a text means behind `KEY =` in a file; `None` if it means none, or a date.
pub fn value(text: &str) -> Option<serde_json::Value> {
    let read: toml::Table = format!("value = {text}").parse().ok()?;
    let value = read.get("value").filter(|value| read.len() == 1 && !value.is_datetime())?;
    serde_json::to_value(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_an_error_in_each_line_has_a_bounded_report() {
        let diagnostics = Diagnostics::default();
        for line in 0..100_000 {
            diagnostics.error(&(line..line + 1), format!("error {line}"), "");
        }
        let problems = diagnostics.into_problems();
        assert_eq!((problems.len(), &*problems[500].what), (501, "99500 more errors"));
        assert_eq!((&*problems[0].what, &*problems[499].what), ("error 0", "error 499"));
    }

    fn errors(text: &str) -> Vec<String> {
        let diagnostics = Diagnostics::default();
        parse(text, 1 << 20, &diagnostics);
        let list = diagnostics.into_problems();
        let problems = Problems { file: "f".into(), text: text.into(), list };
        problems.to_string().lines().map(String::from).collect()
    }

    #[test]
    fn files_in_another_language_are_answered_as_such() {
        for (text, what) in [
            ("{\"port\": {\"a\": {}}}", "f:1:1: this is JSON; "),
            ("\n  {\n", "f:2:3: this is JSON; "),
            ("[{\"kind\": \"ring\"}]", "f:1:1: this is JSON; "),
            ("# mine\n---\nport:\n", "f:1:1: this is YAML; "),
            ("port:\n  a:\n    kind: ring\n", "f:1:1: this is YAML; "),
            ("kind: ring\n", "f:1:1: this is YAML; "),
            ("<domain type='kvm'>", "f:1:1: this is XML; "),
        ] {
            let found = errors(text);
            assert!(found.len() == 1 && found[0].starts_with(what), "{text}: {found:?}");
        }
        for text in ["", "[port.a]\nkind = \"ring\"\n", "a = { b = 1 }", "[[a]]\nb = 1", "[1]\na = 2"] {
            assert_eq!(errors(text), [""; 0], "{text}");
        }
        assert!(errors("[port.a\nkind = 1")[0].contains("unclosed table"));
    }
}
