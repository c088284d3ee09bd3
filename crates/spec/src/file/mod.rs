//! Reading TOML files key by key, so that everything wrong in a file is reported at once, each at its place.
//!
//! [`parse`] reads a text, [`Section`] a table of it; both collect [`Problem`]s in [`Notes`]. The fabric file,
//! policies and inventories are read so.

mod problem;
mod section;
pub mod units;

pub use problem::{Problem, Problems, nearest};
pub use section::{Notes, Section, either};

use toml::Spanned;
use toml::de::DeTable;

/// Parses the text of a file. What can't be read is noted, and what can is returned.
///
/// Attack: a file sent at run time that has no end: nothing is read of one with more than `largest` bytes.
pub fn parse<'t>(text: &'t str, largest: usize, notes: &Notes) -> Spanned<DeTable<'t>> {
    if text.len() > largest {
        notes.wrong(&(0..0), format!("the file has {} bytes", text.len()), format!("the limit is {largest}"));
        return DeTable::parse_recoverable("").0;
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = error.span().unwrap_or(0..0);
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        match text.get(at.clone()).filter(|_| what == "duplicate key") {
            Some(key) => {
                notes.wrong(&at, format!("`{}` is defined twice", key.trim()), "keep one, or rename one");
            }
            None => notes.wrong(&at, what, ""),
        }
    }
    table
}
