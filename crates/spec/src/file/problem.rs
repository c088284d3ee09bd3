//! Errors in a file, with their positions and remedies.

use std::fmt::Write as _;
use std::ops::Range;

/// One thing wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The bytes of the file it is about.
    pub at: Range<usize>,
    /// What is wrong.
    pub what: String,
    /// What to do; may be empty.
    pub fix: String,
    /// If it stands in another file that this one names: that file, line and column, from 1.
    pub elsewhere: Option<(String, usize, usize)>,
}

/// Everything wrong in a file, in the order of the file.
///
/// Its `Display` is one line a problem: `file:line:column: what is wrong; what to do`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render(false))]
pub struct Problems {
    /// Name of the file, as people know it.
    pub file: String,
    /// Its text.
    pub text: String,
    /// At least one.
    pub list: Vec<Problem>,
}

impl Problem {
    /// Creates a problem at these bytes, with its description and its remedy.
    pub fn new(at: Range<usize>, what: impl Into<String>, fix: impl Into<String>) -> Problem {
        Problem { at, what: what.into(), fix: fix.into(), elsewhere: None }
    }
}

impl Problems {
    /// Every problem with its file, its line and column, from 1.
    pub fn places(&self) -> impl Iterator<Item = (&str, usize, usize, &Problem)> {
        self.list.iter().map(|problem| {
            let place = TextPosition::of(&self.text, problem.at.start);
            match &problem.elsewhere {
                Some((file, line, column)) => (&**file, *line, *column, problem),
                None => (&*self.file, place.line, place.column, problem),
            }
        })
    }

    /// Every problem in words; with `excerpts` each followed by its source line and a caret below the place.
    pub fn render(&self, excerpts: bool) -> String {
        let mut out = String::new();
        for (index, (file, line, column, problem)) in self.places().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            let _ = write!(out, "{file}:{line}:{column}: {}", problem.what);
            if !problem.fix.is_empty() {
                let _ = write!(out, "; {}", problem.fix);
            }
            if excerpts && problem.elsewhere.is_none() {
                TextPosition::of(&self.text, problem.at.start).excerpt(&self.text, &problem.at, &mut out);
            }
        }
        out
    }
}

/// A place in a text.
struct TextPosition {
    /// Line, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    /// Where the line starts.
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
        // Tabs would put the caret elsewhere than the place.
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

/// The entry of `known` that `word` most likely means, if any is near enough: a third of its letters may be inserted,
/// deleted, replaced or swapped with their neighbours.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |word: &str| word.to_lowercase().replace('_', "-");
    // Attack: a key of megabytes, compared with every known one.
    let word: String = plain(word).chars().take(64).collect();
    let limit = (word.chars().count() + 1) / 3;
    known
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &plain(candidate)), candidate))
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
