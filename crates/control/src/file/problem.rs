//! What is wrong in a fabric file, where, and what to do.

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

impl Problems {
    /// Every problem with its file, its line and column, from 1.
    pub fn places(&self) -> impl Iterator<Item = (&str, usize, usize, &Problem)> {
        self.list.iter().map(|problem| {
            let place = Place::of(&self.text, problem.at.start);
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
                Place::of(&self.text, problem.at.start).excerpt(&self.text, &problem.at, &mut out);
            }
        }
        out
    }
}

/// A place in a text.
struct Place {
    /// Line, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    /// Where the line starts.
    start: usize,
}

impl Place {
    fn of(text: &str, at: usize) -> Place {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1, start }
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

/// The entry of `known` that `word` most likely means, if any is near enough.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // One letter says too little to guess from.
    let limit = word.chars().count().saturating_add(1) / 3;
    known
        .into_iter()
        .map(|candidate| (distance(word, candidate, limit + 1), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace, swap neighbours) from one word to the other; words whose lengths alone
/// differ by `enough` are not compared further.
fn distance(one: &str, other: &str, enough: usize) -> usize {
    let one: Vec<char> = one.to_lowercase().replace('_', "-").chars().collect();
    let other: Vec<char> = other.to_lowercase().replace('_', "-").chars().collect();
    if one.len().abs_diff(other.len()) >= enough {
        return enough;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_not() {
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
            list: vec![Problem { at: at..at + 5, what: "no".into(), fix: "write 1".into(), elsewhere: None }],
        };
        assert_eq!(problems.to_string(), "f.toml:2:5: no; write 1");
        assert_eq!(problems.render(true), "f.toml:2:5: no; write 1\n  2 | ä = \"bad\"\n    |     ^^^^^");
    }
}
