//! What is wrong in a file, where, and what to do.

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
}

/// Everything wrong in a file, in the order of the file: one line a problem, `file:line:column: what; what to do`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Problems {
    /// Name of the file, as people know it.
    pub file: String,
    /// Its text.
    pub text: String,
    /// At least one.
    pub list: Vec<Problem>,
}

impl Problems {
    fn lines(&self) -> String {
        let lines = self.list.iter().map(|problem| {
            let before = self.text.get(..problem.at.start).unwrap_or("");
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
            let fix = if problem.fix.is_empty() { String::new() } else { format!("; {}", problem.fix) };
            format!("{}:{line}:{column}: {}{fix}", self.file, problem.what)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The entry of `known` that `word` most likely means, if any is near enough.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word: Vec<char> = word.chars().flat_map(char::to_lowercase).take(64).collect();
    let scored = known.into_iter().map(|entry| (distance(&word, entry), entry));
    scored
        .filter(|(distance, _)| *distance <= 1 + word.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// Insertions, removals and replacements between them.
fn distance(word: &[char], entry: &str) -> usize {
    let entry: Vec<char> = entry.chars().flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=entry.len()).collect();
    for (i, a) in word.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in entry.iter().enumerate() {
            let change = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[entry.len()]
}
