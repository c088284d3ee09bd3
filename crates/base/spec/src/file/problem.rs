//! Errors in a file, with their positions and remedies.

use std::fmt::Write as _;
use std::ops::Range;

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The position in the file: a range of bytes.
    pub at: Range<usize>,
    /// The error.
    pub what: String,
    /// The remedy; may be empty.
    pub fix: String,
    /// For an error in another file, to which this one refers at `at`: that file, line and column, from 1.
    pub other_file: Option<(String, usize, usize)>,
}

/// All errors in a file, in the order of the file.
///
/// `Display` prints one line per error: `file:line:column: error; remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render(false))]
pub struct Problems {
    /// Name of the file, for messages.
    pub file: String,
    /// Text of the file.
    pub text: String,
    /// The errors, at least one.
    pub list: Vec<Problem>,
}

impl Problem {
    /// An error at these bytes, with its remedy.
    pub fn new(at: Range<usize>, what: impl Into<String>, fix: impl Into<String>) -> Problem {
        Problem { at, what: what.into(), fix: fix.into(), other_file: None }
    }
}

impl Problems {
    /// Each error with its file, line and column, from 1.
    pub fn positions(&self) -> impl Iterator<Item = (&str, usize, usize, &Problem)> {
        self.list.iter().map(|problem| {
            let position = TextPosition::of(&self.text, problem.at.start);
            match &problem.other_file {
                Some((file, line, column)) => (&**file, *line, *column, problem),
                None => (&*self.file, position.line, position.column, problem),
            }
        })
    }

    /// All errors as text; if `excerpts`, each followed by its source line with carets below the position.
    pub fn render(&self, excerpts: bool) -> String {
        let mut out = String::new();
        for (index, (file, line, column, problem)) in self.positions().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            let _ = write!(out, "{file}:{line}:{column}: {}", problem.what);
            if !problem.fix.is_empty() {
                let _ = write!(out, "; {}", problem.fix);
            }
            if excerpts && problem.other_file.is_none() {
                TextPosition::of(&self.text, problem.at.start).excerpt(&self.text, &problem.at, &mut out);
            }
        }
        out
    }
}

/// A position in a text.
struct TextPosition {
    /// Line, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    /// Byte offset of the line's start.
    start: usize,
}

impl TextPosition {
    fn of(text: &str, at: usize) -> TextPosition {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        TextPosition {
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            start,
        }
    }

    fn excerpt(&self, text: &str, at: &Range<usize>, out: &mut String) {
        let line = text[self.start..].lines().next().unwrap_or("");
        let number = self.line.to_string();
        // Tabs would shift the carets.
        let shown: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let left = shown.chars().count().saturating_sub(self.column - 1);
        let marked =
            text.get(at.clone()).map_or(1, |marked| marked.lines().next().unwrap_or("").chars().count());
        let carets = "^".repeat(marked.min(left).max(1));
        let _ = write!(
            out,
            "\n  {number} | {shown}\n  {:w$} | {:c$}{carets}",
            "",
            "",
            w = number.len(),
            c = self.column - 1
        );
    }
}

/// The most similar entry of `known`, if its edit distance from `word` is at most a third of the word's
/// length. Edits are insertions, deletions, replacements and swaps of adjacent letters.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let normalize = |word: &str| word.to_lowercase().replace('_', "-");
    // Attack: a key of megabytes, which would be compared with all known ones.
    let word: String = normalize(word).chars().take(64).collect();
    let limit = (word.chars().count() + 1) / 3;
    known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &normalize(candidate)), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_words_are_suggested() {
        assert_eq!(nearest("swich", ["switch", "port"]), Some("switch"));
        assert_eq!(nearest("scoket", ["socket", "slots"]), Some("socket"));
        assert_eq!(nearest("slot_size", ["slot-size"]), Some("slot-size"));
        assert_eq!(nearest("colour", ["socket", "slots"]), None);
    }

    #[test]
    fn a_problem_names_line_and_column_in_characters() {
        let text = "a = 1\nä = \"bad\"\n";
        let at = text.find('"').unwrap();
        let problems = Problems {
            file: "f.toml".into(),
            text: text.into(),
            list: vec![Problem::new(at..at + 5, "no", "write 1")],
        };
        assert_eq!(problems.to_string(), "f.toml:2:5: no; write 1");
        assert_eq!(problems.render(true), "f.toml:2:5: no; write 1\n  2 | ä = \"bad\"\n    |     ^^^^^");
    }
}
