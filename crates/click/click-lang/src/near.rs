//! Suggestions for misspelt names.
use alloc::string::String;
use alloc::vec::Vec;

/// Number of letters that are compared. Attack: a name of megabytes, which would be compared with all known
/// ones.
const LONGEST: usize = 64;

/// The most similar entry of `known`, if its edit distance from `word` is at most a third of the word's
/// length. Edits are insertions, deletions, replacements and swaps of adjacent letters; case is ignored.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let word = letters(word);
    let limit = word.len().div_ceil(3);
    let distances = known.into_iter().map(|candidate| (distance(&word, &letters(candidate)), candidate));
    let near = distances.filter(|(distance, _)| *distance <= limit);
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

fn letters(word: &str) -> Vec<char> {
    word.chars().take(LONGEST).map(|c| c.to_ascii_lowercase()).collect()
}

/// The optimal string alignment distance, computed row by row.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = [Vec::new(), Vec::new(), (0..=b.len()).collect::<Vec<usize>>()];
    for (i, c) in a.iter().enumerate() {
        rows.rotate_left(1);
        let mut row = alloc::vec![i + 1];
        for (j, d) in b.iter().enumerate() {
            let replaced = rows[1][j] + usize::from(c != d);
            let mut best = replaced.min(rows[1][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *c == b[j - 1] && a[i - 1] == *d {
                best = best.min(rows[0][j - 1] + 1);
            }
            row.push(best);
        }
        rows[2] = row;
    }
    rows[2].last().copied().unwrap_or(0)
}

/// A suggestion of the nearest name, if there is one.
pub fn proposal<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(word, known).map(|near| alloc::format!("did you mean '{near}'?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        let known = ["Counter", "Queue", "CheckIPHeader"];
        assert_eq!(nearest("Conter", known), Some("Counter"));
        assert_eq!(nearest("queeu", known), Some("Queue"));
        assert_eq!(nearest("CheckIpHaeder", known), Some("CheckIPHeader"));
        assert_eq!(nearest("Discard", known), None);
        assert_eq!(nearest("", known), None);
    }
}
