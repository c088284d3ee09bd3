//! Reads TOML files key by key and reports all errors of a file at once, each with its position.
//!
//! [`parse`] reads a file's text, [`Section`] a table; both collect [`Problem`]s in [`Diagnostics`]. Used for the
//! fabric file, policies and inventories.

mod problem;
mod section;
pub mod units;

pub use problem::{Problem, Problems, nearest};
pub use section::{Diagnostics, Section, either};

use toml::Spanned;
use toml::de::DeTable;

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
